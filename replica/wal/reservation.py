"""A place in the order of the log, taken before its bytes exist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from nyala.replica.types import Entry, OpId

from .format import EncodedEntry

OnDurable = Callable[[OpId | BaseException], None]
"""Called once per reservation, on the appender's thread: with its last OpId when it is durable, or with the error."""


class ReservationState(Enum):
    """RESERVED -> READY -> DONE. A slot that cannot be served any more goes to DONE from either state."""

    RESERVED = 0
    READY = 1
    DONE = 2


class Reservation:
    """Entries whose place on disk is fixed, and their bytes once `append_async` made them.

    Concurrency: its owner until READY, the appender afterwards; `state` under the log's lock.
    """

    __slots__ = ("encoded", "entries", "error", "on_durable", "rewrites", "size_bytes", "state")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = tuple(entries)
        self.size_bytes = sum(entry.size_bytes for entry in self.entries)
        self.state = ReservationState.RESERVED
        self.rewrites = False
        """Whether it replaces entries that are on disk. So an OpId may come again that was replaced before."""
        self.encoded: list[EncodedEntry] = []
        self.on_durable: OnDurable | None = None
        self.error: BaseException | None = None

    @property
    def last(self) -> OpId:
        """Its highest OpId."""
        return self.entries[-1].opid


class Truncation(Reservation):
    """A place in the order from which on entries above `index` are dropped. Nothing of it is written."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        super().__init__(())
        self.index = index
        self.state = ReservationState.READY
