"""The `nyala` command: one app of all rooms' commands."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Annotated

import typer

from nyala.infra.jars import JarsMissing
from nyala.infra.local import StackError, text_of
from nyala.pipeline import LettersUnreadable
from nyala.replica.base import ReplicaError, __version__

from . import (
    bench,
    changes,
    cluster,
    cmeta_edit,
    demo,
    dumps,
    feeds,
    fs,
    job,
    letters,
    local_replica,
    quarantine,
    replace,
    sources,
    stack,
    tables,
    unsafe,
)

app = typer.Typer(
    name="nyala",
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


app.command()(stack.up)
app.command()(stack.status)
app.command()(stack.down)
app.command()(stack.env)
app.command()(demo.demo)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(job.job)
app.add_typer(bench.app, name="bench")
app.add_typer(tables.app, name="table")
app.add_typer(feeds.topic_app, name="topic")
app.add_typer(feeds.schema_app, name="schema")
cluster.tablet_app.add_typer(changes.app, name="change-config")
cluster.tablet_app.command()(changes.move)
cluster.server_app.command()(changes.retire)
cluster.server_app.command()(changes.unretire)
cluster.tablet_app.command("unsafe-recover")(unsafe.recover)
cluster.tablet_app.command("unsafe-replace")(replace.replace)
tables.app.command("set-replication")(changes.set_replication)
app.add_typer(cluster.tablet_app, name="tablet")
app.add_typer(cluster.server_app, name="server")
app.add_typer(cluster.cluster_app, name="cluster")
app.add_typer(cluster.copy_app, name="copy")
app.add_typer(sources.app, name="source")
app.add_typer(letters.app, name="dead-letter")
app.add_typer(quarantine.app, name="quarantine")
app.add_typer(fs.app, name="fs")
app.add_typer(local_replica.app, name="local-replica")
app.add_typer(dumps.wal_app, name="wal")
dumps.cmeta_app.command()(cmeta_edit.rewrite)
dumps.cmeta_app.command()(cmeta_edit.set_term)
app.add_typer(dumps.cmeta_app, name="cmeta")
app.add_typer(dumps.superblock_app, name="superblock")
unsafe.app.command()(replace.replace)
app.add_typer(unsafe.app, name="unsafe")


def _end_orderly(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Run one command; what a user did wrong, or a cluster or the system refused, is one line and exit
    status 1."""
    signal.signal(signal.SIGTERM, _end_orderly)
    try:
        app()
    except (ReplicaError, StackError, LettersUnreadable, JarsMissing) as error:
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
