"""Brings witnesses of this server their rows while they vote and log, and joins them by a short restart.

Every 0.2 s the server compares the configs in force with its jobs. If a witness should get rows and has no job, the
server starts one, which copies from the leader. If a witness should no longer get rows, the server cancels its job. So
leaders need not know of jobs. CC-52, CC-53.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import WitnessJoin, copy_cancelled
from nyala.replica.types import Address, Code, DataState, DiskFailure, InvariantViolation, Member, OpId, Refused
from nyala.replica.types.log_records import about

from ..requests.scans import when
from ..runtime.tasks import Tasks
from ..tablets.hosted import CopyJob, HostedTablet
from ..tablets.manager import TabletManager
from .copy_jobs import BACKOFF_FIRST_S, BACKOFF_MAX_S, CopyJobs

_log = logging.getLogger("nyala.server")

LOOK_S = 0.2
LOG_WAIT_S = 60.0
"""The longest wait at the end of a job for the witness's own log to reach the blocks' flush position."""


def wants_data(hosted: HostedTablet) -> bool:
    """Whether the replica is a running witness that should get rows by the config in force."""
    if not hosted.superblock.witness or not hosted.running or hosted.copy is not None or hosted.replica is None:
        return False
    mine = hosted.replica.active_config.member(hosted.replica.uuid)
    return mine is not None and (mine.promote or mine.holds_data)


class WitnessDataJobs:
    """Starts and cancels the jobs that bring witnesses their rows.

    Concurrency: the loop's thread; each job runs on the pool of `CopyJobs`, within its bounds.
    """

    def __init__(self, manager: TabletManager, jobs: CopyJobs, place: Callable[[Member], Address | None]) -> None:
        """`place(member)`: the member's address for calls."""
        self._manager = manager
        self._place = place
        self._jobs = jobs
        self._running: dict[str, CopyJob] = {}
        self._tasks = Tasks(manager.on_fatal)
        self._next: dict[str, tuple[float, float]] = {}
        """The time of the next attempt, and the pause after it, by tablet."""

    async def run_forever(self) -> None:
        """Compare configs with jobs until the server stops."""
        while not self._manager.stopping:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Start the jobs that are needed, and cancel those that are not."""
        tablets, now = self._manager.tablets, time.monotonic()
        for tablet_id, job in self._running.items():
            hosted = tablets.get(tablet_id)
            # During the swap the replica does not run, and the job can no longer be cancelled.
            if job.progress.phase != "JOIN.4" and (hosted is None or not wants_data(hosted)):
                job.cancel()
        self._next = {tablet_id: at for tablet_id, at in self._next.items() if tablet_id in tablets}
        for hosted in list(tablets.values()):
            if hosted.superblock.witness and hosted.tablet_id not in self._running and wants_data(hosted):
                at, backoff = self._next.get(hosted.tablet_id, (0.0, BACKOFF_FIRST_S))
                if now >= at and self._leader_of(hosted) is not None:
                    self._next[hosted.tablet_id] = now + backoff, min(2 * backoff, BACKOFF_MAX_S)
                    self._start(hosted)

    def _leader_of(self, hosted: HostedTablet) -> Member | None:
        replica = hosted.replica
        if replica is None or not replica.leader_uuid or replica.leader_uuid == replica.uuid:
            return None
        leader = replica.active_config.member(replica.leader_uuid)
        return leader if leader is not None and self._place(leader) is not None else None

    def _start(self, hosted: HostedTablet) -> None:
        leader = self._leader_of(hosted)
        where = self._place(leader) if leader is not None else None
        if leader is None or where is None or any(job.tablet_id == hosted.tablet_id for job in self._jobs.running()):
            return
        job = CopyJob(hosted.tablet_id, leader.uuid, self._manager.uuid, self._manager.clock.wall_us())
        self._running[hosted.tablet_id] = job
        self._tasks.start(self._run(hosted, job, where))

    async def _run(self, hosted: HostedTablet, job: CopyJob, where: Address) -> None:
        manager, loop = self._manager, asyncio.get_running_loop()
        log = about(_log, job.tablet_id, manager.uuid, peer=job.source_uuid)
        log.info("is a witness: its data comes from %s", job.source_uuid)

        def held(flushed: OpId) -> None:
            asyncio.run_coroutine_threadsafe(self._held(hosted, flushed), loop).result()

        def swap(whole: Superblock) -> None:
            asyncio.run_coroutine_threadsafe(self.swap(hosted, job, whole), loop).result()

        def work() -> None:
            witness = hosted.superblock
            if not witness.witness or witness.data_state is not DataState.READY:
                raise copy_cancelled(job.tablet_id)
            with self._jobs.attempt(job, [where]) as attempt:
                WitnessJoin(attempt, witness=witness, await_log=held, swap=swap).run()

        try:
            error = await self._jobs.run_join(job, work)
        finally:
            del self._running[job.tablet_id]
        if isinstance(error, (DiskFailure, InvariantViolation)):
            manager.on_fatal(error)
        elif error is None:
            self._next.pop(job.tablet_id, None)
            log.info("has its data: %d bytes", job.progress.bytes_done)
        else:
            log.info("stays a witness: %s", error)

    async def _held(self, hosted: HostedTablet, flushed: OpId) -> None:
        """Wait until the witness has `flushed` committed and durable. An entry that it counts as applied is both."""
        replica = hosted.replica
        if replica is None or not hosted.superblock.witness:
            raise copy_cancelled(hosted.tablet_id)
        await when(lambda done: replica.wait_applied(flushed.index, done), LOG_WAIT_S, "the witness's log")

    async def swap(self, hosted: HostedTablet, job: CopyJob, whole: Superblock) -> None:
        """Stop the witness, make `whole` its superblock, start the replica. Its log, term and vote stay.

        Refused if the witness should no longer get rows, or if the disk has no room for the superblock; then the
        witness goes on.
        """
        manager = self._manager
        async with hosted.transition:
            if job.cancelled.is_set() or manager.stopping or not wants_data(hosted):
                raise copy_cancelled(hosted.tablet_id)
            hosted.opening = True  # no report may say meanwhile that there is no replica here
            try:
                end = await manager.shutdowns.halt(hosted)
                if end < whole.flush_opid:
                    what = "the log here ends below what the blocks hold"
                    raise Refused(Code.ILLEGAL_STATE, what, end=end, flushed=whole.flush_opid)
                await manager.in_thread(lambda: whole.save(manager.disk, over=hosted.superblock))
                hosted.superblock = whole
            except Refused:
                await manager.open(hosted)
                raise
            await manager.open(hosted, checked=True)
