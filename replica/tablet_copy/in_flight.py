"""Bounds how much of a copy is in memory at once: each download takes room from a budget before it fetches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nyala.replica.types import check


class InFlight:
    """Bytes of one session that were fetched, or are about to be, and are not written yet.

    Invariants: never more than the budget. A thread that holds room never waits for more, so each wait ends.
    Concurrency: any thread.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._free = threading.Condition()
        self._held_bytes = 0
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """The number of threads that wait for room."""
        return self._waiting

    @contextmanager
    def room(self, length_bytes: int) -> Iterator[None]:
        """Wait for room for so many bytes, and hold it until they are written."""
        check(0 < length_bytes <= self._budget_bytes, "a chunk fits the budget", bytes=length_bytes)
        with self._free:
            self._waiting += 1
            try:
                self._free.wait_for(lambda: self._held_bytes + length_bytes <= self._budget_bytes)
            finally:
                self._waiting -= 1
            self._held_bytes += length_bytes
        try:
            yield
        finally:
            with self._free:
                self._held_bytes -= length_bytes
                self._free.notify_all()
