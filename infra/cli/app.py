"""The `nyala` command: one app of all rooms' commands, of which a run loads the one that it is asked for."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from nyala.infra.jars import JarsMissing
from nyala.infra.local import StackError, text_of
from nyala.replica.base import ReplicaError, __version__

COMMANDS = {
    "up": "stack:up",
    "status": "stack:status",
    "down": "stack:down",
    "env": "stack:env",
    "demo": "demo:demo",
    "job": "job:job",
    "bench": "bench:app",
    "table": "tables:app",
    "topic": "feeds:topic_app",
    "schema": "feeds:schema_app",
    "tablet": "cluster:tablet_app",
    "server": "cluster:server_app",
    "master": "masters:app",
    "cluster": "cluster:cluster_app",
    "copy": "copies:app",
    "source": "sources:app",
    "dead-letter": "letters:app",
    "quarantine": "quarantine:app",
    "fs": "fs:app",
    "local-replica": "local_replica:app",
    "wal": "dumps:wal_app",
    "cmeta": "dumps:cmeta_app",
    "superblock": "dumps:superblock_app",
    "unsafe": "unsafe:app",
}
"""Where each command is: a module of this folder, and in it a function, or a typer.Typer of more commands."""
JOINED = {
    "table": {"set-replication": "changes:set_replication"},
    "tablet": {
        "change-config": "changes:app",
        "move": "changes:move",
        "unsafe-recover": "unsafe:recover",
        "unsafe-replace": "replace:replace",
    },
    "server": {"retire": "changes:retire", "unretire": "changes:unretire"},
    "cmeta": {"rewrite": "cmeta_edit:rewrite", "set-term": "cmeta_edit:set_term"},
    "unsafe": {"replace": "replace:replace"},
}
"""What another module adds to the commands of one."""
PASSES_ON = {"job": {"allow_extra_args": True, "ignore_unknown_options": True}}


def _found(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"{__package__}.{module}"), name)


@cache
def _command(name: str) -> Any:
    """The click command of this name, with all that is below it."""
    found = _found(COMMANDS[name])
    if isinstance(found, typer.Typer):
        for part, place in JOINED.get(name, {}).items():
            added = _found(place)
            if isinstance(added, typer.Typer):
                found.add_typer(added, name=part)
            else:
                found.command(part)(added)
        command: Any = get_group(found)
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(context_settings=PASSES_ON.get(name))(found)
        command = get_command(alone)
    command.name = name
    return command


class _Commands(Mapping[str, Any]):
    """All commands by name, each loaded when it is looked up: loading all takes twice the time of loading one."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _OnDemand(TyperGroup):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _Commands()  # type: ignore[assignment]


app = typer.Typer(
    name="nyala",
    cls=_OnDemand,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"nyala {__version__}")
        raise typer.Exit


@app.callback()
def _whole_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version and end")
    ] = False,
) -> None:
    """A replicated table store that Kafka feeds and Spark drives."""


def _end_orderly(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Run one command; what a user did wrong, or a cluster or the system refused, is one line and exit
    status 1."""
    signal.signal(signal.SIGTERM, _end_orderly)
    try:
        app()
    except (ReplicaError, StackError, JarsMissing) as error:
        typer.echo(f"nyala: {error}", err=True)
        return 1
    except OSError as error:
        typer.echo(f"nyala: {text_of(error)}", err=True)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
