"""Small writes that come while others are under way: they wait for those, and then share one round's costs.

A proposal costs three servers a bundle, a group commit, a message and an answer each, whatever it carries. A writer
that is alone never waits. Many writers wait for one another's round, as they would for the disk, and each round takes
all that came meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

from nyala.replica.base import EntryKind

from .pending import Done

WRITE_BYTES_MAX = 4 << 10
"""Larger writes are not held back: they gain nothing from company."""
ROUND_BYTES_MAX = 64 << 10
ROUND_WRITES_MAX = 64


class Write(NamedTuple):
    """One write that has no index yet."""

    kind: EntryKind
    schema_id: int
    meta: bytes
    payload: bytes
    payload_crc: int
    size_bytes: int
    done: Done


class Gathering:
    """What waits for the round that is under way.

    Invariants: writes leave in the order in which they came; nothing waits unless a round has left, so whatever ends
    the round (it is applied, leadership is lost, the replica falls silent) takes or answers all of them; what waits is
    bounded by one round. Concurrency: the owner's thread.
    """

    def __init__(self) -> None:
        self._writes: list[Write] = []
        self._round_end: int | None = None
        self._left = False
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._writes)

    def holds_back(self, write: Write) -> bool:
        """Take `write` if it is small, a round has left, and there is room in the next one; whether it was taken."""
        if not self._left or write.size_bytes > WRITE_BYTES_MAX:
            return False
        if len(self._writes) >= ROUND_WRITES_MAX or self.bytes + write.size_bytes > ROUND_BYTES_MAX:
            return False
        self._writes.append(write)
        self.bytes += write.size_bytes
        return True

    def proposed(self, index: int) -> None:
        """A small write got `index`: the round lasts until that is applied. Until it leaves, others may join it."""
        self._round_end, self._left = index, False

    def leave(self) -> None:
        """What was proposed is on its way."""
        self._left = self._round_end is not None

    def applied(self, index: int) -> bool:
        """Entries up to `index` are applied; whether the round has ended with that."""
        return self._round_end is not None and index >= self._round_end

    def take(self) -> list[Write]:
        """All that waits, in order; no round is under way then."""
        writes, self._writes = self._writes, []
        self._round_end, self._left, self.bytes = None, False, 0
        return writes
