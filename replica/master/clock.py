"""The host's clocks."""

from __future__ import annotations

import time


class SystemClock:
    """`Clock` of the host. Concurrency: any thread."""

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        """Microseconds that never go back and count suspends."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
