"""Shared by the commands on a stopped server's directory: its lock, a question before harm, findings for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn

from nyala.infra.printing import as_text, line
from nyala.replica import tools
from nyala.replica.types import Address, RaftConfig

from .context import console, size_text

if TYPE_CHECKING:
    from nyala.replica.fs import RealDisk

Root = Annotated[Path, typer.Argument(help="directory of a stopped server, e.g. .nyala/server-1")]


def _tablet_id(text: str) -> str:
    return tools.CATALOG_ID if text == "catalog" else text


Tablet = Annotated[str, typer.Argument(help="tablet id; `catalog` for the masters' own", callback=_tablet_id)]


def address_of(text: str) -> Address:
    """The address in an argument HOST:PORT."""
    try:
        return Address.given(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


PATH_SHOWN_LENGTH_MAX = 60
_COLOURS = {"ERROR": "red", "WARNING": "yellow"}


@contextmanager
def stopped(root: Path) -> Iterator[RealDisk]:
    """The files of a server that does not run, locked for this context."""
    from nyala.replica.fs import RealDisk, lock_stopped

    tools.need_server_directory(root)
    with lock_stopped(root):
        yield RealDisk(root)


@contextmanager
def changeable(root: Path) -> Iterator[RealDisk]:
    """The same, for changes of single replicas: refused while an unsafe recovery of the directory is unfinished."""
    from nyala.replica.fs import refuse_fenced

    with stopped(root) as disk:
        refuse_fenced(disk)
        yield disk


@contextmanager
def reading(*, quiet: bool, total_bytes: int | None = None) -> Iterator[Callable[[str, int], None]]:
    """`step(path, bytes read)`, which draws progress on a terminal in this context; elsewhere, or with `quiet`,
    nothing."""
    with Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[read]}", markup=False),
        console=console, transient=True, disable=quiet or not console.is_terminal,
    ) as bar:  # fmt: skip
        task, read = bar.add_task("reading", total=total_bytes, read=""), 0

        def step(path: str, size_bytes: int) -> None:
            nonlocal read
            read += size_bytes
            of = "" if total_bytes is None else f" of {size_text(total_bytes)}"
            shown = as_text(path)[:PATH_SHOWN_LENGTH_MAX]
            bar.update(task, description=shown, completed=read, read=size_text(read) + of)

        yield step


def print_findings(findings: Sequence[tools.FileFinding]) -> None:
    """Print the findings, one line each, errors first."""
    for found in findings:
        text = line((f"{found.severity:<7}", _COLOURS[found.severity]), f" {found.path}: {found.what}")
        console.print(text, soft_wrap=True)
    if not findings:
        console.print(line(("every file is whole", "green")))


def members_text(config: RaftConfig) -> str:
    """The members of a config, in short, and which of them do not vote."""
    return " ".join(m.uuid[:8] + ("" if m.votes else " (no vote)") for m in config.members)


def replica_cells(found: tools.TabletFiles) -> tuple[object, ...]:
    """Tablet, table, state, term, last OpId: the first cells of every list of replicas."""
    superblock, cmeta = found.superblock, found.cmeta
    table, state = (superblock.table_name, superblock.data_state.name) if superblock is not None else ("", "?")
    return found.tablet_id, table, state, cmeta.term if cmeta is not None else "?", found.last_opid or "?"
