"""`nyala up | status | down`: a local stack that people can look at."""

from __future__ import annotations

import json
import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from nyala.infra import local
from nyala.infra.printing import as_text, cell, line

from .context import new_console

STATUS_TIMEOUT_S = 2.0
"""The time-out for each master's status of Kafka."""
DEFAULT_FOLDER = Path(".nyala")
Folder = Annotated[Path, typer.Option("--dir", envvar="NYALA_DIR", help="where the stack keeps its state and logs")]

_COLOURS = {"READY": "green", "STARTING": "yellow", "BACKING_OFF": "yellow", "FAILED": "red", "STOPPED": "dim"}


def children_table(status: dict[str, Any]) -> Table:
    """The children of a stack as a table."""
    table = Table(title=cell(f"nyala stack in {status['folder']}", "table.title"), title_justify="left")
    problems = [f"{c['name']}: {c['problem']}" for c in status["children"] if c.get("problem")]
    table.caption = Text("\n".join(as_text(p) for p in [*problems, status.get("problem", "")] if p), style="red")
    for heading in ("process", "state", "address", "pid", "restarts", "uuid"):
        table.add_column(heading, overflow="fold")
    for child in status["children"]:
        table.add_row(
            cell(child["name"]),
            cell(child["state"], _COLOURS.get(child["state"], "white")),
            cell(child["address"]),
            str(child["pid"] or ""),
            str(child["restarts"]) + (f" (last exit {child['last_exit']})" if child["last_exit"] is not None else ""),
            cell(child["uuid"]),
        )
    return table


def up(
    servers: Annotated[int, typer.Option(help=f"tablet servers, 1 to {local.SERVERS_MAX}")] = 3,
    masters: Annotated[
        int | None, typer.Option(help="masters: 1, 3 or 5; as many as before if not said, 1 in a new folder")
    ] = None,
    folder: Folder = DEFAULT_FOLDER,
    detach: Annotated[bool, typer.Option("--detach", help="leave the stack running and return")] = False,
    kafka: Annotated[bool, typer.Option(help="start a Kafka broker too")] = True,
    kafka_bootstrap: Annotated[str, typer.Option(help="use this broker instead of starting one")] = "",
    execute_decisions: Annotated[
        str, typer.Option(help="who carries out decisions: `master`, or `none` when the Spark query does")
    ] = "master",
) -> None:
    """Start a Kafka broker, masters and tablet servers on this machine, and keep them alive."""
    console = new_console()
    if local.is_running(local.read_state(folder)):
        raise typer.BadParameter(f"a stack runs in {folder} already: `nyala status`, or `nyala down` first")
    options = local.StackOptions(
        servers=servers,
        masters=masters,
        kafka=kafka and not kafka_bootstrap,
        kafka_bootstrap=kafka_bootstrap,
        execute_decisions=execute_decisions,
    )
    if detach:
        with _telling(console) as tell:
            state = local.start_detached(folder, options, tell)
        console.print(children_table(state))
        console.print(_addresses(state["masters"], state["kafka"], "stop with `nyala down`"))
        return
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    signal.signal(signal.SIGINT, lambda *_: ended.set())
    with _telling(console) as tell:
        supervisor = local.Supervisor(folder, options).start(tell)
    end_control = local.serve(supervisor)
    console.print(_addresses(supervisor.masters, supervisor.kafka_bootstrap, "Ctrl-C stops"))
    with Live(children_table(supervisor.status()), console=console, refresh_per_second=2) as live:
        while not ended.wait(0.5):
            live.update(children_table(supervisor.status()))
    end_control()
    with console.status("stopping"):
        supervisor.stop()


def _addresses(masters: str, kafka: str, how_to_stop: str) -> Text:
    return line("masters ", (masters, "bold"), "   kafka ", (kafka or "none", "bold"), f"   {how_to_stop}")


@contextmanager
def _telling(console: Console) -> Iterator[Callable[[str], None]]:
    """A function that shows the present step: one changing line on a terminal, one line each in a log."""
    with console.status("starting the stack") as shown:

        def tell(text: str) -> None:
            shown.update(line(text))
            if not console.is_terminal:
                typer.echo(f"nyala: {text}", err=True)

        yield tell


def env(folder: Folder = DEFAULT_FOLDER) -> None:
    """Print shell commands that name the stack: with `eval "$(nyala env)"` other programs find it too."""
    state = local.read_state(folder)
    if state is None or not local.is_running(state):
        typer.echo(f"no stack runs in {folder}: start one with `nyala up`", err=True)
        raise typer.Exit(1)
    typer.echo(f"export NYALA_MASTERS={shlex.quote(str(state['masters']))}")
    typer.echo(f"export NYALA_KAFKA={shlex.quote(str(state.get('kafka') or ''))}")


def status(
    folder: Folder = DEFAULT_FOLDER, as_json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False
) -> None:
    """Show the processes of the stack; exit status 1 if one is not READY or none runs."""
    state = local.read_state(folder)
    running = local.is_running(state)
    if as_json:
        public = {k: v for k, v in (state or {}).items() if k != "token"}
        typer.echo(json.dumps({**public, "running": running}, indent=2))
    elif state is None or not running:
        typer.echo(f"no stack runs in {folder}: start one with `nyala up`", err=True)
    else:
        new_console().print(children_table(state))
        for text in _kafka_lines(state):
            typer.echo(text)
    if not running or state is None or any(c["state"] != "READY" for c in state["children"]):
        raise typer.Exit(1)


def _kafka_lines(state: dict[str, Any]) -> Iterator[str]:
    """The state of Kafka as each answering master reports it; nothing for a stack without Kafka."""
    if not state.get("kafka"):
        return
    from nyala.replica import tools
    from nyala.replica.client import Client
    from nyala.replica.types import Address, Refused

    for child in state["children"]:
        if not child["name"].startswith("master") or child["state"] != "READY":
            continue
        address = Address.parse(child["address"])
        with Client([address]) as client:
            try:
                text = tools.kafka_line(client.status_of_master(address, timeout_s=STATUS_TIMEOUT_S))
            except Refused as error:
                text = f"Kafka: not known, the master does not answer: {error}"
        yield f"{child['name']}: {text}"


def down(
    folder: Folder = DEFAULT_FOLDER,
    wipe: Annotated[bool, typer.Option("--wipe", help="remove the stack's data and logs too")] = False,
) -> None:
    """Stop the stack."""
    import shutil

    console = new_console()
    with console.status("stopping"):
        stopped = local.stop(folder)
    console.print("stopped" if stopped else f"no stack was running in {folder}")
    if wipe and (folder / "state.json").exists():
        shutil.rmtree(folder)
        console.print(f"removed {folder}")
