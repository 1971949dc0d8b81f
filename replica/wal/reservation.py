"""A slot in the order of the log, taken before its bytes exist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from nyala.replica.base import Entry, OpId

OnDurable = Callable[[OpId | BaseException], None]
"""Called once per reservation, on the appender's thread: its last OpId once durable, or why it never will be."""


class SlotState(Enum):
    """RESERVED -> READY -> DONE; a slot whose serialisation failed goes to DONE directly."""

    RESERVED = 0
    READY = 1
    DONE = 2


class Reservation:
    """Entries with a place on disk that is settled, and their bytes once `append_async` made them."""

    __slots__ = ("entries", "on_durable", "parts", "size_bytes", "state")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = tuple(entries)
        self.size_bytes = sum(entry.size_bytes for entry in self.entries)
        self.state = SlotState.RESERVED
        self.parts: list[object] = []
        self.on_durable: OnDurable | None = None

    @property
    def last(self) -> OpId:
        return self.entries[-1].opid
