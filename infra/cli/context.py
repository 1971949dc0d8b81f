"""What every command shares: which cluster is meant, how to print, how to end when something is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import nyala
from nyala.infra import local
from nyala.replica.client import Client
from nyala.replica.rpc import pb

Json = Annotated[bool, typer.Option("--json", help="machine-readable")]
Masters = Annotated[
    str,
    typer.Option("--masters", envvar="NYALA_MASTERS", help="host:port[,host:port]; default: the stack in ./.nyala"),
]

WIDTH_OF_FILES = 200
"""Of a table that goes to no terminal: cells cut to 80 columns would be lost for good."""

console = Console()
if not console.is_terminal and "COLUMNS" not in os.environ:
    console = Console(width=WIDTH_OF_FILES)


def masters_of(given: str) -> str:
    """The masters named, or those of the local stack in this folder; a usage error if there is neither."""
    if given:
        return given
    state = local.read_state(Path(os.environ.get("NYALA_DIR", ".nyala")))
    if state is None or not local.is_running(state):
        raise typer.BadParameter(
            "no cluster named and no stack runs here: say --masters host:port, or `nyala up --detach`"
        )
    return str(state["masters"])


def kafka_of(given: str) -> str:
    """The broker named, or that of the local stack in this folder."""
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
def cluster(masters: str) -> Iterator[nyala.Cluster]:
    """A connected cluster."""
    with nyala.connect(masters_of(masters)) as connected:
        yield connected


@contextmanager
def client(masters: str) -> Iterator[Client]:
    """The client of a connected cluster."""
    with cluster(masters) as connected:
        yield connected.client


def find_server(connected: Client, prefix: str) -> pb.ServerInfo:
    """The one tablet server whose uuid begins with `prefix`."""
    found: list[pb.ServerInfo] = [s for s in connected.list_servers().servers if s.uuid.startswith(prefix)]
    if len(found) != 1:
        raise typer.BadParameter(f"{len(found)} servers begin with {prefix!r}: `nyala server list` shows them")
    return found[0]


def find_tablet(connected: Client, prefix: str) -> tuple[str, str]:
    """(table name, tablet id) of the one tablet whose id begins with `prefix`."""
    handles = [connected.get_table(t.name) for t in connected.list_tables()]
    found = [(h.name, t.tablet_id) for h in handles for t in h.tablets if t.tablet_id.startswith(prefix)]
    if len(found) != 1:
        raise typer.BadParameter(f"{len(found)} tablets begin with {prefix!r}: `nyala tablet list` shows them")
    return found[0]


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(value, indent=2, default=str))


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table for people."""
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, no_wrap=len(heading) < 10)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console.print(table)


def size_text(count_bytes: int) -> str:
    """Bytes as people read them."""
    value = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
