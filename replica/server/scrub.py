"""Blocks at rest are read again, slowly and in turn: damage is found before the last whole replica is needed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor

from nyala.replica.base import Corruption, Refused
from nyala.replica.tablet import BlockInfo, Tablet, verify_pieces

from .copy_rate import CopyRate
from .hosted import HostedTablet
from .manager import TabletManager
from .scrub_rule import carried, due

_log = logging.getLogger("nyala.server")

LOOK_EVERY_S = 60.0
PIECE_BYTES = 1 << 20
"""Read in one go: an eighth of a second's share by default, so that others wait for no longer at the disk."""


class Scrub:
    """Checks every block of every running replica once in an interval, against the CRC that its superblock holds.

    Concurrency: the loop's thread chooses; one thread of its own reads, a piece at a time. Nothing is held meanwhile: a
    block that a merge, a deletion or a copy takes away is let go after the piece.
    """

    def __init__(self, manager: TabletManager, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: seconds that only grow."""
        self._manager = manager
        self._now = now
        self._rate = CopyRate(manager.clock, manager.options.scrub_mb_per_s * 1_000_000, 0)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="scrub")
        self._whole_s: dict[str, float] = {}
        self.bytes = 0
        """Read so far."""
        self.damaged = 0
        """Blocks found damaged so far."""

    async def run_forever(self) -> None:
        """Look for blocks to check until the server stops."""
        options = self._manager.options
        while options.scrub_mb_per_s and not self._manager.stopping:
            await self.round()
            await asyncio.sleep(min(LOOK_EVERY_S, options.scrub_interval_s))

    async def round(self) -> None:
        """Check what is due now, oldest first."""
        open_blocks = self._open_blocks()
        self._whole_s = carried(self._whole_s, open_blocks, self._now())
        for name in due(self._whole_s, self._now(), self._manager.options.scrub_interval_s):
            hosted, tablet, block = open_blocks[name]
            try:
                if self._is_open(hosted, tablet, block) and await self._check(hosted, tablet, block):
                    self._whole_s[name] = self._now()
            except Refused as error:  # no descriptor is free: the next round begins with this one
                _log.info("T %s P %s not scrubbed now: %s", hosted.tablet_id, self._manager.uuid, error)
                return

    def _open_blocks(self) -> dict[str, tuple[HostedTablet, Tablet, BlockInfo]]:
        """By name, which no other block ever gets."""
        tablets = [(h, h.tablet) for h in self._manager.running() if h.tablet is not None]
        return {b.name: (h, t, b) for h, t in tablets for b in t.superblock.blocks}

    def _is_open(self, hosted: HostedTablet, tablet: Tablet, block: BlockInfo) -> bool:
        return hosted.running and hosted.tablet is tablet and block in tablet.superblock.blocks

    async def _check(self, hosted: HostedTablet, tablet: Tablet, block: BlockInfo) -> bool:
        """Whether the block is whole. If not, and it is still the replica's, the replica fails."""
        try:
            for path, length_bytes, crc in block.files:
                pieces = verify_pieces(
                    self._manager.disk, path, length_bytes, crc, piece_bytes=PIECE_BYTES, uncached=True
                )
                if not await self._read(pieces, lambda: self._is_open(hosted, tablet, block)):
                    return False
        except Corruption as error:
            # A superblock without the block is saved before its files go.
            if self._is_open(hosted, tablet, block):
                self.damaged += 1
                self._manager.damaged(hosted, error)
            return False
        return True

    async def _read(self, pieces: Generator[int, None, None], wanted: Callable[[], bool]) -> bool:
        """Whether all pieces were read: not if the block went away meanwhile."""
        in_thread = asyncio.get_running_loop().run_in_executor
        try:
            while wanted():
                length_bytes = await in_thread(self._pool, next, pieces, None)
                if length_bytes is None:
                    return True
                self.bytes += length_bytes
                ticket = self._rate.ticket(length_bytes)
                pause_s = self._rate.pause_s(ticket)
                while pause_s:
                    await asyncio.sleep(pause_s)
                    pause_s = self._rate.pause_s(ticket)
            return False
        finally:
            # Behind the piece that may still be under way; a file that was removed meanwhile may take time to close.
            self._pool.submit(pieces.close)

    def close(self) -> None:
        """No more work."""
        self._pool.shutdown(wait=False, cancel_futures=True)
