"""Counts the memory maps of this process, and keeps a reserve of them.

Without a reserve, the last map would go to a block, and the next allocation of a library would abort the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from nyala.replica.types import MEMORY_MAPS, REMEDIES, ResourcesExhausted, ResourceUse

COUNT_EVERY_S = 1.0
"""A count costs 0.3 ms for each thousand maps, 16 ms at the kernel's default limit."""
_MAPS = Path("/proc/self/maps")
_MAP_LIMIT = Path("/proc/sys/vm/max_map_count")


def memory_maps() -> ResourceUse:
    """Memory maps of this process, and the kernel's limit; zeros if the kernel does not list them."""
    try:
        with _MAPS.open("rb") as lines:
            return ResourceUse(sum(1 for _ in lines), int(_MAP_LIMIT.read_text()))
    except (OSError, ValueError):
        return ResourceUse()


class MapReserve:
    """Refuses maps beyond a share of the limit.

    Between two counts it adds what it granted, so it may refuse too early for COUNT_EVERY_S, and never grants more than
    there is but for the maps that other work made meanwhile. Concurrency: any thread.
    """

    def __init__(
        self, count: Callable[[], ResourceUse] = memory_maps, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._count, self._now = count, now
        self._lock = threading.Lock()
        self._use, self._counted_at = ResourceUse(), -COUNT_EVERY_S

    def take(self, maps: int, share: float) -> None:
        """Grant so many maps; ResourcesExhausted, and none is granted, if more than `share` of the limit would be in
        use."""
        with self._lock:
            now = self._now()
            if now - self._counted_at >= COUNT_EVERY_S:
                self._use, self._counted_at = self._count(), now
            after = self._use._replace(used=self._use.used + maps)
            if after.share > share:
                what = f"too many memory maps are in use, and the rest is kept for other work: {REMEDIES[MEMORY_MAPS]}"
                raise ResourcesExhausted(what, used=self._use.used, limit=after.limit, share=share)
            self._use = after


RESERVE = MapReserve()
"""The reserve of this process, whose maps the kernel counts together."""
