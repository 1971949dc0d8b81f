"""Stops a replica, finds out what its tombstone must keep, and deletes its files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import (
    LastLogged,
    SourceSessions,
    delete_replica,
    last_of_unopened,
    write_tombstone_for_lost,
)
from nyala.replica.types import ZERO_OPID, Code, Corruption, DataState, Disk, LaterFormat, OpId, Refused

from ..runtime.lanes import drained
from ..startup.replay_watch import ReplayWatch
from .hosted import HostedTablet


@dataclass(frozen=True)
class ReplicaShutdown:
    """Stops replicas and deletes them. The caller holds the tablet's `transition`.

    Concurrency: the loop's thread, unless a method says otherwise.
    """

    disk: Disk
    sessions: SourceSessions
    replays: ReplayWatch
    heavy: ThreadPoolExecutor
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]

    async def halt(self, hosted: HostedTablet) -> OpId:
        """Stop the replica, wait for its threads, close its files; returns the last OpId of its log."""
        replica, tablet, log = hosted.replica, hosted.tablet, hosted.log
        last = hosted.last_opid
        if replica is not None:
            hosted.error = replica.error or hosted.error  # the reason until the files are deleted or opened
            replica.stop()
        hosted.halting = tablet or hosted.halting
        hosted.replica = hosted.tablet = hosted.log = None
        hosted.silent_since_s = time.monotonic()
        await asyncio.gather(*(drained(lane) for lane in (hosted.lane, hosted.meta_lane)))

        def close() -> OpId:
            self.sessions.end_tablet(hosted.tablet_id)
            ended = log.last if log is not None else last
            if log is not None:
                log.close()
                ended = log.last
            if tablet is not None:
                tablet.close()
            return max(ended, last)

        await hosted.unattended.wait()  # a flush runs on its own thread; it ends by itself
        try:
            return await asyncio.get_running_loop().run_in_executor(self.heavy, close)
        finally:
            if tablet is not None:
                hosted.superblock = tablet.superblock  # the tablet's may be newer, and its file may be lost
                hosted.halting = None

    async def halt_for_deletion(self, hosted: HostedTablet) -> LastLogged:
        """Stop a replica that is about to be deleted; returns what its tombstone must keep of its log.

        If the replica could not be opened, its log cannot be read (`last_of_unopened`). If an earlier deletion stopped
        it and then found the disk full, the result is the one that the earlier deletion stored.
        """
        superblock, cmeta = hosted.superblock, hosted.cmeta
        if hosted.replica is not None:
            # Entries of a damaged tail are not in the log, but they may have been acknowledged.
            withheld = hosted.replica.withheld
            ended = LastLogged(max(await self.halt(hosted), withheld or ZERO_OPID), known=withheld is None)
            hosted.stopped_at = ended
            return ended
        if superblock.data_state is not DataState.READY:
            return LastLogged(superblock.last_logged or ZERO_OPID, superblock.last_logged_known)
        if hosted.stopped_at is not None:
            return hosted.stopped_at
        last: LastLogged = await self.in_thread(lambda: last_of_unopened(superblock, cmeta))
        return last

    def delete_files(self, hosted: HostedTablet, last: LastLogged) -> Superblock:
        """Steps 2 to 6 of a deletion, for a stopped replica. In a thread.

        If the superblock's file is gone, damaged or another one, it is written again from memory first.
        """
        disk, tablet_id = self.disk, hosted.tablet_id
        hosted.repair_superblock(disk)
        if hosted.lost:
            self.check_still_lost(tablet_id)
            hosted.superblock = write_tombstone_for_lost(disk, tablet_id, hosted.cmeta)
        else:
            current = Superblock.load(disk, tablet_id)
            committed = partial(setattr, hosted, "superblock")
            hosted.superblock = delete_replica(
                disk, current, last.opid, stop=lambda: None, known=last.known, committed=committed
            )
        self.replays.forget(tablet_id)
        hosted.error, hosted.stopped_at, hosted.unreadable = "", None, False
        return hosted.superblock

    def check_still_lost(self, tablet_id: str) -> None:
        """Refused if a superblock that was lost when this process started exists now; LaterFormat as in `load`."""
        try:
            if not Superblock.exists(self.disk, tablet_id):
                return
            Superblock.load(self.disk, tablet_id)
        except LaterFormat:
            raise
        except Corruption:
            return
        what = "the superblock was put back while the server runs; nothing was done: restart the server"
        raise Refused(Code.ILLEGAL_STATE, what, detail="STATE", tablet=tablet_id)
