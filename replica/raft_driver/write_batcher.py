"""The write batcher: small writes that arrive while others are under way wait, and are proposed as one batch.

A proposal of any size costs three servers a `Ready`, a group commit, a message and an answer each. A lone writer never
waits. Many writers wait for the batch under way, and the next batch takes all writes that arrived meanwhile. When a
batch ends, its writers are answered, and most of them write again at once. If the next batch did not wait for them, the
writers would stay split into two halves, with twice as many batches.
"""

from __future__ import annotations

from typing import NamedTuple

from nyala.replica.types import EntryKind

from .pending import Done

WRITE_BYTES_MAX = 4 << 10
"""Larger writes do not wait, because they gain nothing from a shared batch."""
BATCH_BYTES_MAX = 64 << 10
BATCH_WRITES_MAX = 64
_WRITERS_MIN = 2
_WAIT_US_MAX = 10_000
_SKIPS_MAX = 64
"""The most batches in a row that do not wait, after waits in which no writer came."""


class Wait(NamedTuple):
    """A wait for the writers of the batch that has ended."""

    number: int
    limit_us: int


class Write(NamedTuple):
    """One write that has no index yet."""

    kind: EntryKind
    schema_id: int
    meta: bytes
    payload: bytes
    payload_crc: int
    size_bytes: int
    done: Done


class WriteBatcher:
    """The writes that wait for the batch under way, or for writers that were just answered.

    A batch consists of the small writes that are proposed until it leaves (goes into a `Ready`). It ends when the last
    of them is applied. The next batch waits for as many writers as the last one answered, plus those that wait already,
    but at most half of the time that the last one took, and 10 ms at most. After a wait in which no writer came, the
    next batch does not wait, then the next two, four and so on, until a writer comes during a wait.
    Invariants: writes leave in the order in which they came. A write waits only while a batch is under way or writers
    are expected. So each event that ends this state proposes or answers all waiting writes: the batch is applied, the
    time is over, leadership is lost, or the replica stops serving. At most one batch of writes waits. Concurrency: the
    owner's thread.
    """

    def __init__(self) -> None:
        self._writes: list[Write] = []
        self._batch_end: int | None = None
        self._batch_writes = 0
        self._began_us = 0
        self._left = False
        self._expected = 0
        """The number of writers for which the next batch waits; 0 while it does not wait."""
        self._wait_number = 0
        self._write_came = False
        self._skips = self._skips_left = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._writes)

    def hold_back(self, write: Write) -> bool:
        """Let `write` wait if it is small, there is something to wait for, and there is room. True: it waits.

        False: the caller proposes it at once, after the writes that wait already.
        """
        if not (self._left or self._expected) or write.size_bytes > WRITE_BYTES_MAX:
            return False
        if self._expected:
            self._write_came, self._skips = True, 0
        full = len(self._writes) >= BATCH_WRITES_MAX or self.bytes + write.size_bytes > BATCH_BYTES_MAX
        if full or 0 < self._expected <= len(self._writes) + 1:
            return False
        self._writes.append(write)
        self.bytes += write.size_bytes
        return True

    def proposed(self, index: int, now_us: int) -> None:
        """Note that a small write got `index`: the batch lasts until that is applied. Others may join it until it
        leaves."""
        if self._batch_end is None:
            self._began_us = now_us
        if self._left:
            self._batch_writes = 0  # its other writes go on, and answered writers may write again before it ends
        self._batch_end, self._left = index, False
        self._batch_writes += 1

    def leave(self) -> None:
        """The batch leaves: no further write joins it."""
        self._left = self._batch_end is not None

    def applied(self, index: int) -> bool:
        """Note that entries up to `index` are applied. Returns whether that ended the batch."""
        return self._batch_end is not None and index >= self._batch_end

    def end(self, now_us: int | None) -> Wait | None:
        """Note that the batch has ended, and begin to wait for its writers. None (always without a clock): call `take`
        now."""
        seen = self._batch_writes + len(self._writes)
        took_us = 0 if now_us is None else now_us - self._began_us
        self._batch_end, self._batch_writes, self._left = None, 0, False
        if now_us is None or seen < _WRITERS_MIN:
            return None
        if self._skips_left:
            self._skips_left -= 1
            return None
        self._expected, self._write_came = seen, False
        self._wait_number += 1
        return Wait(self._wait_number, min(took_us // 2, _WAIT_US_MAX))

    def waited(self, number: int) -> bool:
        """Note that the time of wait `number` is over. True if that wait had not ended before: then the caller calls
        `take`."""
        if not self._expected or number != self._wait_number:
            return False
        if not self._write_came:
            self._skips = min(max(1, 2 * self._skips), _SKIPS_MAX)
        self._skips_left = self._skips
        return True

    def take(self) -> list[Write]:
        """Return all writes that wait, in order, to be proposed; the wait is over then."""
        writes, self._writes = self._writes, []
        self._expected, self.bytes = 0, 0
        return writes

    def abandon(self) -> list[Write]:
        """Return all writes that wait, to be answered; no batch is under way then. None of them has an index."""
        self._batch_end, self._batch_writes, self._left = None, 0, False
        return self.take()
