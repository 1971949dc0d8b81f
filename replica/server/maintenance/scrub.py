"""Reads blocks and closed log segments again, at a bounded rate, to find damage while other replicas are healthy."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from typing import NamedTuple

from nyala.replica.tablet import BlockInfo, Tablet, verify_pieces
from nyala.replica.tablet_copy import wal_folder
from nyala.replica.tablet_copy.wire import CopyRate
from nyala.replica.types import Corruption, Refused, started_pool
from nyala.replica.types.log_records import about
from nyala.replica.wal import Log, SegmentInfo, verify_segment

from ..tablets.hosted import HostedTablet
from ..tablets.manager import TabletManager

_log = logging.getLogger("nyala.server")

LOOK_EVERY_S = 60.0
PIECE_BYTES = 1 << 20
"""The bytes that one step reads. At the default rate this is an eighth of a second's share, so that other readers
hardly wait for the disk."""
CPU_SHARE = 0.1
"""The share of one core that checks may take. Log segments with many small entries cost CPU rather than reads."""

Pieces = Generator[int, None, None]
"""Each step reads and checks a piece, and yields its number of bytes; Corruption if they are damaged."""


class _AtRest(NamedTuple):
    """A block, or a closed log segment, of a running replica."""

    hosted: HostedTablet
    is_there: Callable[[], bool]
    """Whether the file still belongs to the replica."""
    files: Callable[[], Iterator[Pieces]]


class Scrub:
    """Checks every block and every closed log segment of every running replica once in an interval, by its CRCs.

    Concurrency: the loop's thread chooses; one thread of its own reads, a piece at a time. It keeps no file from
    removal: if a merge, log GC, a deletion or a copy removes the file, the check ends after the piece.
    """

    def __init__(
        self,
        manager: TabletManager,
        now: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """`now`: seconds of a monotonic clock; `cpu_s`: CPU seconds of the calling thread."""
        self._manager = manager
        self._now = now
        self._cpu_s = cpu_s
        self._rate = CopyRate(manager.clock, manager.options.scrub_mb_per_s * 1_000_000, 0)
        self._pool = started_pool(1, "scrub")
        self._whole_s: dict[str, float] = {}
        self.bytes = 0
        """The bytes read so far."""
        self.damaged = 0
        """The number of blocks and segments found damaged so far."""

    async def run_forever(self) -> None:
        """Check what is due until the server stops."""
        options = self._manager.options
        while options.scrub_mb_per_s and not self._manager.stopping:
            await self.check_due()
            await asyncio.sleep(min(LOOK_EVERY_S, options.scrub_interval_s))

    async def check_due(self) -> None:
        """Check what is due now, oldest first."""
        at_rest = dict(self._at_rest())
        self._whole_s = carried(self._whole_s, at_rest, self._now())
        for name in due(self._whole_s, self._now(), self._manager.options.scrub_interval_s):
            one = at_rest[name]
            try:
                if one.is_there() and await self._check(one):
                    self._whole_s[name] = self._now()
            except (Refused, MemoryError) as error:  # a resource is exhausted: the next check begins with this one
                about(_log, one.hosted.tablet_id, self._manager.uuid).info("not scrubbed now: %s", error)
                return

    def _at_rest(self) -> Iterator[tuple[str, _AtRest]]:
        """The files that can be checked now. Each has a name that no other block, and no other segment of the same log,
        ever gets."""
        for hosted in self._manager.running():
            if hosted.tablet is not None:
                for block in hosted.tablet.superblock.blocks:
                    yield block.name, self._block(hosted, hosted.tablet, block)
            if hosted.log is not None:
                for info in hosted.log.segments():
                    if info.closed:
                        yield f"{hosted.tablet_id}/{info.name}", self._segment(hosted, hosted.log, info)

    def _block(self, hosted: HostedTablet, tablet: Tablet, block: BlockInfo) -> _AtRest:
        def is_there() -> bool:
            return hosted.running and hosted.tablet is tablet and block in tablet.superblock.blocks

        def files() -> Iterator[Pieces]:
            disk = self._manager.disk
            for path, length_bytes, crc in block.files:
                yield verify_pieces(disk, path, length_bytes, crc, piece_bytes=PIECE_BYTES, uncached=True)

        return _AtRest(hosted, is_there, files)

    def _segment(self, hosted: HostedTablet, log: Log, info: SegmentInfo) -> _AtRest:
        def is_there() -> bool:
            return hosted.running and hosted.log is log and info in log.segments()

        def files() -> Iterator[Pieces]:
            yield verify_segment(self._manager.disk, wal_folder(hosted.tablet_id), hosted.tablet_id, info)

        return _AtRest(hosted, is_there, files)

    async def _check(self, one: _AtRest) -> bool:
        """Check one block or segment; returns whether it is intact. If it is damaged and still belongs to the replica,
        the replica fails."""
        try:
            for pieces in one.files():
                if not await self._read(pieces, one.is_there):
                    return False
        except Corruption as error:
            # Before a file is removed, the superblock is saved without the block, or the segment is taken from the
            # list.
            if one.is_there():
                self.damaged += 1
                self._manager.damaged(one.hosted, error)
            return False
        return True

    async def _read(self, pieces: Pieces, wanted: Callable[[], bool]) -> bool:
        """Whether all pieces were read: False if the block or segment was removed meanwhile."""
        in_thread = asyncio.get_running_loop().run_in_executor
        try:
            while wanted():
                length_bytes, cpu_s = await in_thread(self._pool, self._next, pieces)
                if length_bytes is None:
                    return True
                self.bytes += length_bytes
                drawn = self._rate.draw(cost_bytes(length_bytes, cpu_s, self._rate.bytes_per_s))
                pause_s = self._rate.pause_s(drawn)
                while pause_s:
                    await asyncio.sleep(pause_s)
                    pause_s = self._rate.pause_s(drawn)
            return False
        finally:
            # On the same thread, after the piece that may be under way: closing a removed file may take time.
            self._pool.submit(pieces.close)

    def _next(self, pieces: Pieces) -> tuple[int | None, float]:
        """Check the next piece, in the thread. Returns its length, or None if there is no further piece, and the CPU
        seconds that it took."""
        began_s = self._cpu_s()
        return next(pieces, None), self._cpu_s() - began_s

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def cost_bytes(length_bytes: int, cpu_s: float, rate_bytes_per_s: int) -> int:
    """The bytes of the rate that a piece costs: its length, or more if the check took much CPU."""
    return max(length_bytes, int(cpu_s / CPU_SHARE * rate_bytes_per_s))


def carried(whole_s: Mapping[str, float], present: Collection[str], now_s: float) -> dict[str, float]:
    """The time at which each block in `present` was last known to be intact. A new one was written or checked just
    now."""
    return {name: whole_s.get(name, now_s) for name in present}


def due(whole_s: Mapping[str, float], now_s: float, interval_s: float) -> list[str]:
    """Blocks that were not checked for an interval; the one that waits longest comes first."""
    return sorted((n for n, at in whole_s.items() if now_s - at >= interval_s), key=lambda n: (whole_s[n], n))
