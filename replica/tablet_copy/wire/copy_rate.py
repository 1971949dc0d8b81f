"""Bounds the rate of all tablet copies on one server: one token bucket, slower while clients write here.

Incoming and outgoing bytes both count, so source and target each bound the copy: the source leads and sees its clients'
writes; the target sees those that other leaders replicate to it.
"""

from __future__ import annotations

import threading

from nyala.replica.types import Clock

WRITING_US = 1_000_000
"""The time after a write for which clients count as writing, in microseconds."""
BURST_S = 0.05
"""The seconds of unused rate that are kept. They make up for waits that last longer than requested."""
PAUSE_S_MAX = 0.1
"""The longest wait before a copy checks the rate again, because it may have changed, in seconds."""


def rate_allowed(rate_bytes_per_s: int, busy_rate_bytes_per_s: int, since_write_us: int | None) -> int:
    """Bytes per second for copies, `since_write_us` after the latest write (None: none yet); 0: no bound."""
    writing = since_write_us is not None and since_write_us < WRITING_US
    if not writing or not busy_rate_bytes_per_s:
        return rate_bytes_per_s
    return min(rate_bytes_per_s, busy_rate_bytes_per_s) if rate_bytes_per_s else busy_rate_bytes_per_s


class CopyRate:
    """A token bucket: `draw` before bytes are moved, then wait while `pause_s` is above 0.

    Draws are served in their order, so that many files at once progress evenly. The scrub has a bucket of its own
    (`scrub.py`).
    Concurrency: any thread.
    """

    def __init__(self, clock: Clock, rate_bytes_per_s: int, busy_rate_bytes_per_s: int) -> None:
        """Rates in bytes per second, 0 for no bound: that of the server, and that while clients write."""
        self._clock = clock
        self._rates = rate_bytes_per_s, busy_rate_bytes_per_s
        self._lock = threading.Lock()
        self._written_us: int | None = None
        self._drawn = 0
        self._paid = 0.0
        self._looked_us = clock.monotonic_us()

    def written(self) -> None:
        """Note that a client's write came to this server, or was replicated to it."""
        self._written_us = self._clock.monotonic_us()

    @property
    def bytes_per_s(self) -> int:
        """The rate allowed now; 0: no bound."""
        written_us = self._written_us
        since_write_us = None if written_us is None else self._clock.monotonic_us() - written_us
        return rate_allowed(*self._rates, since_write_us)

    def draw(self, length_bytes: int) -> int:
        """Draw so many bytes; returns the sum of all draws, for `pause_s`."""
        with self._lock:
            self._pay()
            self._drawn += length_bytes
            return self._drawn

    def pause_s(self, drawn: int) -> float:
        """Seconds to wait before the next call; 0.0: the draws up to the sum `drawn` may be used."""
        with self._lock:
            rate = self._pay()
            owed = drawn - self._paid
            return min(owed / rate, PAUSE_S_MAX) if rate and owed > 0 else 0.0

    def _pay(self) -> int:
        now, rate = self._clock.monotonic_us(), self.bytes_per_s
        if rate:
            earned = rate * (now - self._looked_us) / 1_000_000
            self._paid = min(self._paid + earned, self._drawn + rate * BURST_S)
        else:
            self._paid = self._drawn
        self._looked_us = now
        return rate
