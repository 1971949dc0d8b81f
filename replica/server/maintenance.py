"""Flush, compaction and log GC: in the background, by need, one at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nyala.replica.base import Code, Corruption, DiskFailure, InvariantViolation, Refused, limits

from .hosted import HostedTablet
from .manager import TabletManager
from .memory import MemoryGuard

_log = logging.getLogger("nyala.server")

PRESSURE_FLUSH = 0.6
"""From this share of the memory limit on, the largest memory store is flushed whatever its size."""
IDLE_FLUSH_S = 120.0
GC_EVERY_S = 10.0


class Maintenance:
    """The one background worker of a server.

    Concurrency: the loop's thread chooses; the work runs in one thread of its own, never two at once.
    """

    def __init__(self, manager: TabletManager, memory: MemoryGuard) -> None:
        self._manager = manager
        self._memory = memory
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="maintenance")
        self._turn = asyncio.Lock()
        self.flushes = 0
        self.compactions = 0
        self._gc_at = time.monotonic()

    async def run_forever(self) -> None:
        """Look for work until the server stops."""
        while not self._manager.stopping:
            await asyncio.sleep(self._manager.options.maintenance_ms / 1000)
            self._memory.refresh()
            if self._memory.pressure > PRESSURE_FLUSH:
                for hosted in self._manager.running():
                    if hosted.replica is not None:
                        hosted.replica.shrink_cache()
            while not self._manager.stopping and await self.once():
                self._memory.refresh()

    async def once(self) -> bool:
        """Do the most urgent piece of work, if any; whether there was one."""
        hosted = self.most_urgent_flush()
        if hosted is not None:
            return await self.flush(hosted)
        hosted = next(
            (h for h in self._manager.running() if h.tablet is not None and h.tablet.wants_compaction()), None
        )
        if hosted is not None:
            return await self.compact(hosted)
        if time.monotonic() - self._gc_at > GC_EVERY_S:
            self._gc_at = time.monotonic()
            for tablet in self._manager.running():
                if tablet.replica is not None:
                    tablet.replica.gc()
        return False

    def most_urgent_flush(self) -> HostedTablet | None:
        """The tablet to flush next: a full store or a long log, then the largest under pressure, then idle ones."""
        best: tuple[float, HostedTablet] | None = None
        pressed, now = self._memory.pressure > PRESSURE_FLUSH, time.monotonic()
        for hosted in self._manager.running():
            tablet, log = hosted.tablet, hosted.log
            if tablet is None or log is None or not hosted.unattended.is_set():
                continue
            if tablet.applied_opid <= tablet.flush_opid or not tablet.memory_bytes:
                continue
            score = max(
                tablet.memory_bytes / limits.MEMSTORE_FLUSH_BYTES,
                (log.size_bytes - self._manager.options.log_retain_bytes) / self._manager.options.flush_wal_bytes,
                1.0 + tablet.memory_bytes / self._memory.soft_bytes if pressed else 0.0,
                1.0 if now - hosted.flushed_s > IDLE_FLUSH_S else 0.0,
            )
            if score >= 1.0 and (best is None or score > best[0]):
                best = (score, hosted)
        return best[1] if best else None

    async def flush(self, hosted: HostedTablet) -> bool:
        """Flush one tablet and let its log go; whether something was flushed."""
        tablet = hosted.tablet
        if tablet is None:
            return False
        result = await self._work(hosted, tablet.flush)
        hosted.flushed_s = time.monotonic()
        if result is None:
            return False
        self.flushes += 1
        if hosted.replica is not None:
            hosted.replica.gc()
        return True

    async def compact(self, hosted: HostedTablet) -> bool:
        """Merge some of a tablet's blocks; whether anything was merged."""
        tablet = hosted.tablet
        if tablet is None:
            return False
        merged = bool(await self._work(hosted, tablet.compact))
        self.compactions += merged
        return merged

    async def _work(self, hosted: HostedTablet, work: Callable[[], Any]) -> Any:
        """Run on the maintenance thread. Trouble of one tablet is its own; a failing disk ends the process."""
        async with self._turn:
            if hosted.tablet is None or hosted.transition.locked():
                return None
            hosted.unattended.clear()
            try:
                return await asyncio.get_running_loop().run_in_executor(self._pool, work)
            except (DiskFailure, InvariantViolation) as error:
                self._manager.on_fatal(error)
                return None
            except Refused as error:
                level = logging.WARNING if error.code is Code.NO_SPACE else logging.INFO
                _log.log(level, "T %s P %s maintenance refused: %s", hosted.tablet_id, self._manager.uuid, error)
                return None
            except Corruption as error:
                hosted.error = str(error)
                _log.error("T %s P %s %s", hosted.tablet_id, self._manager.uuid, error)
                if hosted.replica is not None:
                    hosted.replica.fail(error)
                return None
            finally:
                hosted.unattended.set()

    def close(self) -> None:
        """No more work."""
        self._pool.shutdown(wait=False, cancel_futures=True)
