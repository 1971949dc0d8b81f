"""Progress bars of copies, in bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from nyala.infra.printing import as_text

from .context import console

if TYPE_CHECKING:
    from nyala.replica.tablet_copy import CopyProgress

REDRAW_S = 0.2


class CopyState(Protocol):
    """A copy as its target or a list of jobs reports it; `bytes_total` is 0 while it is unknown."""

    @property
    def phase(self) -> str: ...
    @property
    def bytes_done(self) -> int: ...
    @property
    def bytes_total(self) -> int: ...


@contextmanager
def copy_bar(*, quiet: bool = False) -> Iterator[Callable[[CopyState], None]]:
    """A function that redraws a progress bar on a terminal, for this context; elsewhere, or if `quiet`, it draws
    nothing."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("BEGIN", total=None)

        def draw(copy: CopyState) -> None:
            bar.update(task, description=as_text(copy.phase), completed=copy.bytes_done, total=copy.bytes_total or None)

        yield draw


@contextmanager
def shown_copy(*, quiet: bool) -> Iterator[CopyProgress]:
    """A copy's progress, drawn while the context lasts."""
    from nyala.replica.tablet_copy import CopyProgress

    progress, over = CopyProgress(), threading.Event()
    with copy_bar(quiet=quiet) as draw:

        def paint() -> None:
            while not over.wait(REDRAW_S):
                draw(progress)

        painter = threading.Thread(target=paint, name="copy-progress", daemon=True)
        painter.start()
        try:
            yield progress
        finally:
            over.set()
            painter.join()
