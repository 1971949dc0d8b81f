"""The `nyala` command: one app of all commands, of which a run loads only the one that it needs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from types import FrameType
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from nyala.infra.jars import JarsMissing
from nyala.infra.local import StackError, text_of
from nyala.replica.types import ReplicaError, __version__

from .arguments import check_arguments


class Place(NamedTuple):
    """The place of a command: a module of this folder, and in it a function, or a typer.Typer of more commands."""

    place: str
    help: str
    """The first paragraph of the command's help."""


COMMANDS = {
    "up": Place("stack:up", "Start a Kafka broker, masters and tablet servers on this machine, and keep them alive."),
    "status": Place("stack:status", "Show the processes of the stack; exit status 1 if one is not READY or none runs."),
    "down": Place("stack:down", "Stop the stack."),
    "env": Place(
        "stack:env", 'Print shell commands that name the stack: with `eval "$(nyala env)"` other programs find it too.'
    ),
    "demo": Place(
        "demo:demo",
        "Replay a year of real flights into a table, kill a leader and the driver, add a server, and compare.",
    ),
    "job": Place(
        "job:job", "Run a Spark job; what stands behind `--` goes to the job, whose own options `-- --help` shows."
    ),
    "bench": Place("bench:app", "measure a cluster, alone or beside Apache Kudu"),
    "table": Place("tables:app", "create, look at and drop tables"),
    "sql": Place("sql:sql", "Answer a query in SQL. It reads tables and changes nothing."),
    "topic": Place("producers:topic_app", "the Kafka topic that feeds a table"),
    "schema": Place("producers:schema_app", "Avro schemas of a table's row events"),
    "tablet": Place("cluster:tablet_app", "tablets and their replicas"),
    "server": Place("cluster:server_app", "tablet servers"),
    "master": Place("masters:app", "the masters: list, add, remove, replace; copy or rebuild their catalog"),
    "cluster": Place("cluster:cluster_app", "the whole cluster"),
    "security": Place("security:app", "certificates of servers, masters, clients and operators"),
    "upgrade": Place("upgrade:app", "which builds run, and the feature level of the cluster"),
    "copy": Place("copies:app", "tablet copies under way"),
    "source": Place("sources:app", "source positions: what of Kafka is in the tables"),
    "decisions": Place("decisions:app", "what was proposed, decided and done, as Kafka has it"),
    "dead-letter": Place("letters:app", "records that did not become rows"),
    "quarantine": Place("quarantine:app", "data of deleted replicas, kept for a look"),
    "fs": Place("fs:app", "directories of stopped servers"),
    "local-replica": Place("local_replica:app", "replicas of a stopped server"),
    "wal": Place("dumps:wal_app", "write-ahead logs on this machine"),
    "cmeta": Place("dumps:cmeta_app", "consensus metadata files"),
    "superblock": Place("dumps:superblock_app", "superblock files"),
    "unsafe": Place("unsafe:app", "tablets that lost a majority for good: no guarantee holds for them"),
}
"""The commands in the order of the help. Their texts are repeated here, so that `nyala --help` imports no command."""
JOINED = {
    "table": {"set-replication": "changes:set_replication"},
    "tablet": {
        "change-config": "changes:app",
        "move": "changes:move",
        "unsafe-recover": "unsafe:recover",
        "unsafe-replace": "replace:replace",
    },
    "server": {
        "retire": "changes:retire",
        "unretire": "changes:unretire",
        "enter-maintenance": "changes:enter_maintenance",
        "exit-maintenance": "changes:exit_maintenance",
        "forget": "changes:forget",
        "quiesce": "quiesce:app",
        "prepare-restart": "prepare_restart:prepare_restart",
        "run": "run:run_server",
    },
    "master": {"run": "run:run_master", "unsafe-rebuild": "master_rebuild:unsafe_rebuild"},
    "cmeta": {"rewrite": "cmeta_edit:rewrite", "set-term": "cmeta_edit:set_term"},
    "unsafe": {"replace": "replace:replace"},
}
"""Modules that add commands to those of another one."""
_REST = {"allow_extra_args": True, "ignore_unknown_options": True}
PASSES_ON = {"job": _REST, "server run": _REST, "master run": _REST}
"""The commands that hand options on to another program."""


def _found(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"{__package__}.{module}"), name)


@cache
def _command(name: str) -> Any:
    """The click command of this name, with all its subcommands."""
    found = _found(COMMANDS[name].place)
    if isinstance(found, typer.Typer):
        for part, place in JOINED.get(name, {}).items():
            added = _found(place)
            if isinstance(added, typer.Typer):
                found.add_typer(added, name=part)
            else:
                found.command(part, context_settings=PASSES_ON.get(f"{name} {part}"))(added)
        command: Any = get_group(found)
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(context_settings=PASSES_ON.get(name))(found)
        command = get_command(alone)
    command.name = name
    check_arguments(command, name)
    return command


class _Commands(Mapping[str, Any]):
    """All commands by name. Each is loaded when it is looked up, because loading all takes twice as long as loading
    one."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _OnDemand(TyperGroup):
    """Lists commands by their texts in COMMANDS, for the help and for a shell's completion; loads the one that runs."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _Commands()  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command that has only its name and its text."""
        found = COMMANDS.get(cmd_name)
        return None if found is None else TyperCommand(cmd_name, help=found.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, found, rest = super().resolve_command(ctx, args)
        return name, None if found is None else _command(found.name), rest


app = typer.Typer(name="nyala", cls=_OnDemand, no_args_is_help=True, pretty_exceptions_enable=False)


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
    """Run one command. An error of the user, or a refusal of the cluster or the system, is one line and exit status
    1."""
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
        typer.echo("nyala: interrupted", err=True)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
