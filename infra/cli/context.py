"""Shared by all commands: the choice of the cluster, printing, and the end after an error."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

import nyala
from nyala.infra import local
from nyala.infra.printing import TextConsole, cell, titled

from .interrupted import NothingSent, before_sending

if TYPE_CHECKING:
    from nyala.replica.client import Client
    from nyala.replica.rpc import pb

_CONNECT_PAUSE_S = 0.3

Json = Annotated[bool, typer.Option("--json", help="machine-readable")]
Masters = Annotated[
    str,
    typer.Option("--masters", envvar="NYALA_MASTERS", help="host:port[,...]; default: the local stack (`nyala up`)"),
]

Yes = Annotated[bool, typer.Option("--yes", help="do not ask")]
Tablets = Annotated[list[str], typer.Option("--tablet", help="tablet id, or its beginning; repeat it")]
Confirmed = Annotated[
    str,
    typer.Option(
        "--yes-i-lose-data",
        metavar="FINGERPRINT",
        help="carry out the plan of this fingerprint; without it, only print it",
    ),
]

UNBROKEN_MAX = 16
"""A cell of up to this many characters, such as `17.2 KiB` or `tablet server`, stays on one line."""
WIDTH_OF_FILES = 100_000
"""The width of output that is not a terminal: each row is one line, because text that is cut is lost for scripts."""


def new_console() -> TextConsole:
    """Standard output: a terminal with its width, or that of COLUMNS; anything else without a line length."""
    found = TextConsole()
    return found if found.is_terminal or "COLUMNS" in os.environ else TextConsole(width=WIDTH_OF_FILES)


console = new_console()


def masters_of(given: str) -> str:
    """The named masters, or those of the local stack in this folder; a usage error if there is neither."""
    if given:
        return given
    state = local.read_state(Path(os.environ.get("NYALA_DIR", ".nyala")))
    if state is None or not local.is_running(state):
        raise typer.BadParameter(
            "no cluster named and no stack runs here: say --masters host:port, or `nyala up --detach`"
        )
    return str(state["masters"])


def kafka_of(given: str) -> str:
    """The named broker, or that of the local stack in this folder."""
    if given:
        return given
    found = local_kafka()
    if not found:
        raise typer.BadParameter("no broker named and none runs here: say --kafka host:port")
    return found


def local_kafka() -> str:
    """The broker of the local stack in this folder; empty if there is none."""
    state = local.read_state(Path(os.environ.get("NYALA_DIR", ".nyala")))
    return str(state.get("kafka") or "") if state is not None and local.is_running(state) else ""


@contextmanager
def cluster(
    masters: str, kafka: str = "", kafka_properties: str = "", *, wait_s: float = 0.0
) -> Iterator[nyala.Cluster]:
    """A connected cluster. `kafka`: where its topics are made, by default where the masters say; `kafka_properties`: a
    file with the login to Kafka; `wait_s`: how long it tries again if no master answers."""
    login = {}
    with before_sending():
        if kafka_properties:
            from nyala import pipeline

            login = dict(pipeline.security_of(pipeline.kafka_options([], kafka_properties)).properties)
        named_masters = masters_of(masters)
        found = _until_answered(lambda: nyala.connect(named_masters, kafka=kafka, kafka_properties=login), wait_s)
    with found as connected:
        yield connected


def _until_answered(connect: Callable[[], nyala.Cluster], wait_s: float) -> nyala.Cluster:
    deadline, tick = time.monotonic() + wait_s, threading.Event()
    while True:
        over = time.monotonic() >= deadline
        try:
            return connect()
        except nyala.Refused:
            if over:
                raise
        tick.wait(_CONNECT_PAUSE_S)


@contextmanager
def client(masters: str, wait_s: float = 0.0) -> Iterator[Client]:
    """The client of a connected cluster. `wait_s`: how long it tries again if no master answers."""
    with cluster(masters, wait_s=wait_s) as connected:
        yield connected.client


def find_server(connected: Client, text: str) -> pb.ServerInfo:
    """The one tablet server whose uuid begins with `text`, or whose address it is."""
    named(text, "server")
    servers = connected.list_servers().servers
    found: list[pb.ServerInfo] = [s for s in servers if s.uuid.startswith(text) or _has_address(s, text)]
    if len(found) != 1:
        what = f"{len(found)} servers begin with {text!r} or have that address"
        raise typer.BadParameter(f"{what}: `nyala server list` shows them")
    return found[0]


def _has_address(server: pb.ServerInfo, text: str) -> bool:
    return any(f"{each.host}:{each.port}" == text for each in server.addresses)


def named(prefix: str, what: str) -> None:
    """A usage error for an empty prefix, such as that of an unset shell variable: it would match anything."""
    if not prefix:
        raise typer.BadParameter(f"the {what} is empty: give its id, or the beginning of it")


def find_tablet(connected: Client, prefix: str) -> tuple[str, str]:
    """(table name, tablet id) of the one tablet whose id begins with `prefix`."""
    named(prefix, "tablet")
    handles = [connected.get_table(t.name) for t in connected.list_tables()]
    found = [(h.name, t.tablet_id) for h in handles for t in h.tablets if t.tablet_id.startswith(prefix)]
    if len(found) != 1:
        raise typer.BadParameter(f"{len(found)} tablets begin with {prefix!r}: `nyala tablet list` shows them")
    return found[0]


def ask(question: str, yes: bool) -> None:
    """Return only if `yes` or an answer allows it; otherwise the command ends and reports that nothing was done.

    The question goes to standard error, because the output may be a document.
    """
    try:
        told = yes or typer.confirm(question, err=True)
    except typer.Abort as abort:
        _interrupt(abort)  # else nobody is there to answer
        typer.echo(err=True)
        told = False
    if not told:
        typer.echo("nothing was changed; --yes goes on without asking", err=True)
        raise typer.Exit(1)


def ask_for_name(name: str, question: str) -> None:
    """Return only if `name` is typed; otherwise the command ends and reports that nothing was done."""
    try:
        typed = typer.prompt(question, err=True)
    except typer.Abort as abort:
        _interrupt(abort)  # else nobody is there to answer
        typer.echo(err=True)
        typed = ""
    if typed != name:
        typer.echo("that is another name: nothing was changed; --yes goes on without asking", err=True)
        raise typer.Exit(1)


def _interrupt(abort: typer.Abort) -> None:
    """Raise NothingSent if it was Ctrl-C that ended a question."""
    if isinstance(abort.__context__, KeyboardInterrupt):
        raise NothingSent from abort


def not_yet(fingerprint: str) -> None:
    """The last line of a plan that was only printed."""
    console.print(f"Nothing was changed. To carry this out: --yes-i-lose-data={fingerprint}")


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(value, indent=2, default=str))


def say(as_json: bool, document: object, text: str) -> None:
    """The document for a program, or the text for people."""
    if as_json:
        print_json(document)
    else:
        typer.echo(text)


def show_list(
    as_json: bool,
    document: object,
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    spare: Sequence[str] = (),
) -> None:
    """The document for a program, or a table for people, as `print_table`."""
    if as_json:
        print_json(document)
    else:
        print_table(title, headings, rows, spare)


def print_table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[object]], spare: Sequence[str] = ()
) -> None:
    """Print a table for people. Cells, title and headings are shown by `cell`: a `Text` is a text of ours.

    No text is cut: if the table is too wide, columns of `spare` are dropped, then cells wrap.

    `spare` lists the least useful column first; empty ones are dropped before all others. The output names them.
    """
    cells = [[cell(value) for value in row] for row in rows]
    empty = [h for h in spare if not any(row[headings.index(h)] for row in cells)]
    going = empty + [h for h in spare if h not in empty]
    for count in range(len(going) + 1):
        kept = [pos for pos, heading in enumerate(headings) if heading not in going[:count]]
        table = _table([headings[p] for p in kept], [[row[p] for p in kept] for row in cells], whole_words=True)
        if _least_width(table) <= console.width:
            break
    else:
        kept_rows = [[row[p] for p in kept] for row in cells]
        table = _table([headings[p] for p in kept], kept_rows, whole_words=False)
    console.print(titled(title, table))
    if len(kept) < len(headings):
        left_out = ", ".join(heading for pos, heading in enumerate(headings) if pos not in kept)
        console.print(f"too narrow for: {left_out} (a wider terminal, a pipe or --json has them)")


def _table(headings: Sequence[str], rows: Sequence[Sequence[Text]], *, whole_words: bool) -> Table:
    """A table whose cells wrap between words only, such as ids and addresses, or, if that is impossible, anywhere."""
    table = Table()
    for pos, heading in enumerate(headings):
        sentences = [row[pos] for row in rows if " " in row[pos].plain]
        width = max((text.cell_len for text in sentences), default=0)
        words = not sentences and " " not in heading
        least = min(width, UNBROKEN_MAX) if whole_words and width else None
        table.add_column(cell(heading), overflow="fold", no_wrap=whole_words and words, min_width=least)
    for row in rows:
        table.add_row(*row)
    return table


def _least_width(table: Table) -> int:
    return Measurement.get(console, console.options.update(width=WIDTH_OF_FILES), table).minimum


def size_text(count_bytes: int) -> str:
    """A number of bytes as text for people."""
    value = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
