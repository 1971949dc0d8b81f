"""Flush, compaction and log GC in the background, one at a time, the most urgent first."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from nyala.replica.fs import exhausted
from nyala.replica.types import (
    Corruption,
    DiskFailure,
    InvariantViolation,
    Refused,
    give_back_free_memory,
    is_transient,
    started_pool,
)
from nyala.replica.types.log_records import about

from ..runtime.memory import MemoryGuard
from ..runtime.resources import LOOK_EVERY_S, ResourceWatch
from ..runtime.tasks import Tasks
from ..tablets.flush_rule import FlushHistory, urgency
from ..tablets.hosted import HostedTablet
from ..tablets.manager import TabletManager
from .file_check import CHECK_EVERY_S, FileChecker

T = TypeVar("T")
_log = logging.getLogger("nyala.server")

PRESSURE_FLUSH = 0.7
"""From this share of the memory limit on, the largest memory store is flushed whatever its size."""
GC_EVERY_S = 10.0
COMPACT_AGAIN_S = 60.0
"""The pause of a tablet after a compaction that merged nothing, for example because the disk was full. Other tablets'
compactions go on."""
GIVE_BACK_EVERY_S = 5.0
"""The shortest time between two returns of free memory to the kernel. Allocations wait during a return, and the kernel
must clear memory that it hands out anew."""


class Maintenance:
    """The one background worker of a server.

    Concurrency: the loop's thread chooses; the work runs in one thread of its own, never two at once.
    """

    def __init__(
        self,
        manager: TabletManager,
        memory: MemoryGuard,
        now: Callable[[], float] = time.monotonic,
        check_folders: Callable[[], None] = lambda: None,
    ) -> None:
        """`now`: a clock in seconds that never goes back. `check_folders`: as in `FileChecker`."""
        self._manager = manager
        self._memory = memory
        self._now = now
        self._pool = started_pool(1, "maintenance")
        self._one_at_a_time = asyncio.Lock()
        self._under_way = Tasks(manager.on_fatal)
        self.resources = ResourceWatch(manager.uuid)
        self.file_checker = FileChecker(manager, check_folders)
        self._checked_at = now()
        self._looked_at: float | None = None
        self.flushes = 0
        self.compactions = 0
        self._gc_at = self._gave_back_at = now()

    async def run_forever(self) -> None:
        """Look for work until the server stops."""
        while not self._manager.stopping:
            await asyncio.sleep(self._manager.options.maintenance_ms / 1000)
            self._memory.refresh()
            await self.count_resources()
            await self.check_files()
            await self.give_back()
            if self._memory.pressure > PRESSURE_FLUSH:
                for hosted in self._manager.running():
                    if hosted.replica is not None:
                        hosted.replica.shrink_cache()
            while not self._manager.stopping and await self.once():
                self._memory.refresh()

    async def once(self) -> bool:
        """Do the most urgent piece of work; returns whether there was any."""
        hosted = self.most_urgent_flush()
        if hosted is not None and await self.flush(hosted):
            return True
        # A flush that was refused for want of memory maps must not keep merges waiting: they give maps back.
        now = self._now()
        able = (h for h in self._manager.running() if h.tablet is not None and now >= h.compact_after_s)
        hosted = next((h for h in able if h.tablet is not None and h.tablet.wants_compaction()), None)
        if hosted is not None:
            return await self.compact(hosted)
        if self._now() - self._gc_at > GC_EVERY_S:
            self._gc_at = self._now()
            # Sessions of dead targets and finished copies are closed first, because they hold log segments.
            await self._manager.in_thread(self._manager.sessions.expire)
            for tablet in self._manager.running():
                if tablet.replica is not None:
                    tablet.replica.gc()
        return False

    async def count_resources(self) -> None:
        """Count open files and memory maps from time to time, so that a warning comes before they run out."""
        if self._looked_at is None or self._now() - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = self._now()
            await asyncio.get_running_loop().run_in_executor(self._pool, self.resources.look)

    async def check_files(self) -> None:
        """Check the files of every tablet, once a minute."""
        if self._now() - self._checked_at >= CHECK_EVERY_S:
            self._checked_at = self._now()
            await self.file_checker.check_all()

    async def give_back(self) -> bool:
        """Give free memory back if writes would otherwise be refused because of it; returns whether it did."""
        if not self._memory.mostly_free or self._now() - self._gave_back_at < GIVE_BACK_EVERY_S:
            return False
        self._gave_back_at = self._now()
        await asyncio.get_running_loop().run_in_executor(self._pool, give_back_free_memory)
        self._memory.refresh()
        return True

    def most_urgent_flush(self) -> HostedTablet | None:
        """The tablet to flush next, by the rule of `flush_rule`. An idle tablet costs one comparison."""
        best: tuple[float, HostedTablet] | None = None
        options, now = self._manager.options, self._now()
        pressed = self._memory.soft_bytes if self._memory.pressure > PRESSURE_FLUSH else 0
        for hosted in self._manager.running():
            tablet, log = hosted.tablet, hosted.log
            if tablet is None or log is None or not hosted.unattended.is_set():
                continue
            watch, applied, row_bytes = self._watch(hosted), tablet.applied_opid, tablet.row_bytes
            if applied == watch.seen and (applied <= tablet.flush_opid or not row_bytes):
                continue
            log_bytes = log.size_bytes
            hosted.flush_history = watch = watch.after_check(applied, tablet.flush_opid, log_bytes, now)
            if watch.first_s is None:
                continue
            held = watch.unflushed(row_bytes, tablet.store_bytes, log_bytes, now)
            score = urgency(held, flush_wal_bytes=options.flush_wal_bytes, pressed_bytes=pressed)
            if score >= 1.0 and (best is None or score > best[0]):
                best = (score, hosted)
        return best[1] if best else None

    def _watch(self, hosted: HostedTablet) -> FlushHistory:
        return hosted.flush_history or FlushHistory(self._manager.options.log_retain_bytes)

    async def flush(self, hosted: HostedTablet) -> bool:
        """Flush one tablet and run its log GC; returns whether something was flushed. Once it has begun, it goes on
        even if its caller is cancelled."""
        tablet = hosted.tablet
        return tablet is not None and await self._work(hosted, tablet.flush, self._flushed)

    def _flushed(self, hosted: HostedTablet, result: object) -> bool:
        log_bytes = hosted.log.size_bytes if hosted.log is not None and result is not None else None
        hosted.flush_history = self._watch(hosted).after_flush(log_bytes, self._now())
        if result is None:
            return False
        self.flushes += 1
        if hosted.replica is not None:
            hosted.replica.gc()
        return True

    async def compact(self, hosted: HostedTablet) -> bool:
        """Merge some of a tablet's blocks; returns whether any were merged. Once it has begun, it goes on even if its
        caller is cancelled."""
        tablet = hosted.tablet
        return tablet is not None and await self._work(hosted, tablet.compact, self._compacted)

    def _compacted(self, hosted: HostedTablet, result: object) -> bool:
        if not result:
            hosted.compact_after_s = self._now() + COMPACT_AGAIN_S
        self.compactions += bool(result)
        return bool(result)

    async def _work(
        self, hosted: HostedTablet, work: Callable[[], T], then: Callable[[HostedTablet, T | None], bool]
    ) -> bool:
        """Run `work` on the maintenance thread when no other work runs, and call `then` with its result. The result is
        None if a resource or the disk was exhausted, or if the work failed its replica."""
        await self._one_at_a_time.acquire()
        if not hosted.running or hosted.tablet is None or hosted.transition.locked():  # as it waited for its turn
            self._one_at_a_time.release()
            return then(hosted, None)
        hosted.unattended.clear()
        return await self._under_way.finish(self._begun(hosted, work, then))

    async def _begun(
        self, hosted: HostedTablet, work: Callable[[], T], then: Callable[[HostedTablet, T | None], bool]
    ) -> bool:
        """Do the part of `_work` after the wait. While the thread works, no other work begins, and the tablet's files
        stay."""
        try:
            return then(hosted, await self._result(hosted, work))
        finally:
            hosted.unattended.set()
            self._one_at_a_time.release()

    async def _result(self, hosted: HostedTablet, work: Callable[[], T]) -> T | None:
        """The result of `work`. An error of one tablet fails that replica; a failing disk ends the process."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except (DiskFailure, InvariantViolation) as error:
            self._manager.on_fatal(error)
        except Refused as error:
            level = logging.WARNING if is_transient(error) else logging.INFO
            about(_log, hosted.tablet_id, self._manager.uuid).log(level, "maintenance refused: %s", error)
        except Corruption as error:
            self._manager.damaged(hosted, error)
        except (OSError, MemoryError, RuntimeError) as error:
            wanted = exhausted(error)
            if wanted is None:
                raise
            about(_log, hosted.tablet_id, self._manager.uuid).warning("maintenance waits: %s", wanted)
        return None

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(wait=False, cancel_futures=True)
