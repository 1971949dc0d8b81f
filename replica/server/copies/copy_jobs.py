"""Jobs that copy tablets into this server, and the requests that its leaders send to peers which need a copy."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import grpc
import grpc.aio

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import exhausted
from nyala.replica.raft import CopyNeeded
from nyala.replica.rpc import address_to_pb, check_reply, error_from_pb, opid_to_pb, pb, pb_grpc
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import (
    CopyAttempt,
    CopyRequest,
    CopySource,
    HealthyReplica,
    LocalReplica,
    TargetCopy,
    copy_cancelled,
    start_tablet_copy_checks,
    was_here,
)
from nyala.replica.types import (
    Address,
    Code,
    Corruption,
    DataState,
    DiskFailure,
    InvariantViolation,
    Member,
    OpId,
    Refused,
    ReplicaError,
    started_pool,
)
from nyala.replica.types.log_records import about

from ..runtime.channels import Channels
from ..runtime.tasks import Tasks
from ..tablets.hosted import CopyJob, HostedTablet
from ..tablets.manager import TabletManager
from ..tablets.opening import load_cmeta
from .copy_queue import CopyQueue, check_waiting

_log = logging.getLogger("nyala.server")

JOBS_REMEMBERED = 64
START_TIMEOUT_S = 5.0
BACKOFF_FIRST_S = 0.3
BACKOFF_MAX_S = 10.0


class CopyJobs:
    """Copies into this server. They have a pool of their own, so that they never delay votes or writes.

    Concurrency: the loop's thread; each job runs in one thread of the pool and in its streams.
    """

    def __init__(
        self,
        manager: TabletManager,
        make_source: Callable[[str, list[Address]], CopySource],
        place: Callable[[Member], Address | None] = lambda member: None,
    ) -> None:
        """`place(member)`: the member's present address, which may differ from the one in the config."""
        self._manager = manager
        self._place = place
        self._make_source = make_source
        self._pool = started_pool(manager.options.copy_jobs_max, "copy-job")
        self._queue = CopyQueue(manager.options.copy_jobs_max)
        self.ended: deque[CopyJob] = deque(maxlen=JOBS_REMEMBERED)
        self._tasks = Tasks(manager.on_fatal)
        self._jobs: dict[str, CopyJob] = {}

    def running(self) -> list[CopyJob]:
        """The jobs that have not ended, including those that wait and those whose replica is being started (COPY.6)."""
        return list(self._jobs.values())

    def start(self, request: CopyRequest, addresses: list[Address], host: str = "") -> LocalReplica:
        """Check `request`, which came from `host`, and start its job. Returns the state that the tablet had here
        before. If it raises Refused, nothing has changed."""
        manager = self._manager
        hosted = manager.tablets.get(request.tablet_id)
        local = self.local(request.tablet_id)
        refusal = start_tablet_copy_checks(request, local)
        if refusal is not None:
            raise refusal
        if joining := self._jobs.get(request.tablet_id):
            # The checks above refuse a request while a copy runs. So the job found here brings rows to a witness. The
            # leader asks for a copy because the witness's log cannot be continued, so that job is useless. The leader
            # asks again.
            joining.cancel()
            what = "data is being brought to a witness here; that is cancelled"
            raise Refused(Code.ALREADY_INPROGRESS, what, tablet=request.tablet_id)
        if hosted is not None and (hosted.transition.locked() or hosted.opening):
            raise Refused(Code.ALREADY_INPROGRESS, "the tablet is in transition", tablet=request.tablet_id)
        check_waiting(self._jobs.values(), host)
        if hosted is None or not hosted.takes_room:
            manager.check_room(request.tablet_id)
        if hosted is None:
            hosted = manager.blank(request.tablet_id)
        if local.healthy is not None:
            addresses = self._known_places(local.healthy, request.from_uuid) or addresses
        job = CopyJob(request.tablet_id, request.from_uuid, manager.uuid, manager.clock.wall_us(), request.config, host)
        hosted.copy = self._jobs[request.tablet_id] = job
        self._tasks.start(self._run(hosted, job, request, addresses))
        return local

    def _known_places(self, here: HealthyReplica, uuid: str) -> list[Address]:
        """The addresses at which this server knows voters of the tablet. Only these may be a source, because the caller
        could name any process."""
        voters = [m for config in here.configs if (m := config.member(uuid)) is not None and m.votes]
        places = [at for m in voters[:1] if (at := self._place(m)) is not None]
        return list(dict.fromkeys((*places, *(at for m in voters for at in m.addresses))))

    def local(self, tablet_id: str) -> LocalReplica:
        """The state of the tablet here, as the checks of a copy need it."""
        hosted = self._manager.tablets.get(tablet_id)
        if hosted is None:
            term = self._manager.lost_term(tablet_id)
            return LocalReplica(uuid=self._manager.uuid, data_state=DataState.DOES_NOT_EXIST, term=term)
        return LocalReplica(
            uuid=self._manager.uuid,
            data_state=hosted.data_state,
            copying=hosted.copy is not None,
            term=hosted.term,
            last_opid=hosted.last_opid,
            healthy=hosted.healthy,
        )

    async def cancel(self, tablet_id: str, started_us: int = 0) -> CopyJob:
        """End the tablet's job and return it. It is cancelled, or DONE if it was complete already.

        If the job had changed nothing, the replica stays as it was. Otherwise it becomes a tombstone, which keeps the
        replica's last logged OpId. A later request starts a new copy. Refused NOT_FOUND if no such job runs; TIMED_OUT
        if the job does not end in time, though it is cancelled.
        """
        job = self._jobs.get(tablet_id)
        if job is None or started_us not in (0, job.started_us):
            raise Refused(Code.NOT_FOUND, "no such copy runs into this server", tablet=tablet_id)
        about(_log, tablet_id, job.target_uuid).info("tablet copy is being cancelled in %s", job.progress.phase)
        await job.end()
        return job

    async def stop(self) -> None:
        """Cancel all jobs and wait until none runs."""
        for job in self.running():
            job.cancel()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._tasks.ended(), 5)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _run(self, hosted: HostedTablet, job: CopyJob, request: CopyRequest, addresses: list[Address]) -> None:
        manager, loop = self._manager, asyncio.get_running_loop()
        log, role = about(_log, job.tablet_id, manager.uuid, peer=job.source_uuid), f"[term {hosted.term} LEARNER]"
        log.info("%s tablet copy from %s begins (was %s)", role, job.source_uuid, request.current_state.name)
        try:
            async with hosted.transition:
                failure = await self._on_pool(job, lambda: self._copy(hosted, job, request, addresses, loop), hosted)
                if failure is not None:
                    raise failure
                job.progress.phase = "COPY.6"
                hosted.superblock = await manager.in_thread(lambda: Superblock.load(manager.disk, job.tablet_id))
                hosted.copy = None
                await manager.open(hosted, checked=True)
                manager.disk.crash_point("copy.6")
            self._done(job)
            log.info("%s tablet copy done: %d bytes", role, job.progress.bytes_done)
        except (DiskFailure, InvariantViolation) as error:
            manager.on_fatal(error)
        except (ReplicaError, grpc.RpcError, OSError) as error:
            self._failed(job, error)
            log.warning("%s tablet copy failed: %s", role, job.error)
            await self._settle(hosted)
        except Exception as error:  # noqa: BLE001 - the root of the job's task
            wanted = exhausted(error)
            if wanted is None:
                manager.on_fatal(error)
                return
            self._failed(job, wanted)
            log.warning("%s tablet copy failed: %s", role, job.error)
            await self._settle(hosted)
        finally:
            hosted.copy = None
            self._over(job)

    async def _on_pool(
        self, job: CopyJob, work: Callable[[], None], hosted: HostedTablet | None = None
    ) -> BaseException | None:
        """Run `work` on the pool when a place is free; returns its error, or None. If the job was cancelled before
        that, the error says so. The error is OVERLOADED if this server has no room for the replica `hosted` any
        more."""

        if job.cancelled.is_set():
            return copy_cancelled(job.tablet_id)
        async with self._queue.place(job) as granted:
            if not granted or job.cancelled.is_set():
                return copy_cancelled(job.tablet_id)
            if hosted is not None and not hosted.takes_room:
                try:
                    self._manager.check_room(job.tablet_id)
                except Refused as full:
                    return full
            job.work = self._pool.submit(work)
            running = asyncio.wrap_future(job.work)
            await asyncio.wait([running])
            return copy_cancelled(job.tablet_id) if running.cancelled() else running.exception()

    def _done(self, job: CopyJob) -> None:
        job.progress.phase = "DONE"
        self._manager.copy_failures.succeeded(job.tablet_id)

    def _failed(self, job: CopyJob, error: BaseException) -> None:
        # A cancel interrupts calls to the source. Their error is not the reason why the copy ended.
        cancelled = job.cancelled.is_set()
        job.error = str(copy_cancelled(job.tablet_id) if cancelled else error)
        job.progress.phase = "CANCELLED" if cancelled else "FAILED"
        if not cancelled:
            self._manager.copy_failures.failed(job.tablet_id, error)

    def _over(self, job: CopyJob) -> None:
        del self._jobs[job.tablet_id]
        self.ended.append(job)
        self._manager.changed.add(job.tablet_id)
        job.ended.set()

    async def _settle(self, hosted: HostedTablet) -> None:
        """Take the state from the disk after a failed copy. A replica that the copy had not changed runs on."""
        try:
            await self._settle_as_found(hosted)
        except (Corruption, Refused) as error:
            hosted.error = str(error)
            about(_log, hosted.tablet_id, self._manager.uuid).error("after a failed copy: %s", error)

    async def _settle_as_found(self, hosted: HostedTablet) -> None:
        manager, tablet_id = self._manager, hosted.tablet_id
        # The replica may be stopping for another reason, and its last flush may be writing the superblock now.
        async with hosted.transition:
            if hosted.superblock.data_state is DataState.DOES_NOT_EXIST:
                if not await manager.in_thread(lambda: Superblock.exists(manager.disk, tablet_id)):
                    manager.tablets.pop(tablet_id, None)
                    return
            else:
                await manager.in_thread(lambda: hosted.repair_superblock(manager.disk))
            hosted.superblock = await manager.in_thread(lambda: Superblock.load(manager.disk, tablet_id))
            if hosted.cmeta is None:
                hosted.cmeta = await manager.in_thread(lambda: load_cmeta(manager.disk, tablet_id))
            if hosted.superblock.data_state is DataState.COPYING:
                # The disk had no room for the tombstone. Until it is written, no copy can be started.
                await manager.settle(hosted)
            closed = hosted.superblock.data_state is DataState.READY and hosted.replica is None
            if closed and not manager.stopping:
                # The replica was stopped and could not be deleted. Nothing is lost; it is opened again.
                await manager.open(hosted)

    def _copy(
        self,
        hosted: HostedTablet,
        job: CopyJob,
        request: CopyRequest,
        addresses: list[Address],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """COPY.1 to COPY.5 in the job's thread; the loop stops the replica for it.

        The job may have waited long, and the replica here may have acknowledged more meanwhile. So the request's checks
        are made again now, and once more with the stopped replica.
        """
        manager = self._manager
        local = LocalReplica(
            uuid=manager.uuid,
            data_state=hosted.superblock.data_state,
            term=hosted.term,
            last_opid=hosted.last_opid,
            healthy=hosted.healthy,
        )
        refusal = start_tablet_copy_checks(request, local)
        if refusal is not None:
            raise refusal

        def stop_and_delete(check_source: Callable[[OpId, int], None]) -> Superblock | None:
            if hosted.superblock.data_state is DataState.DOES_NOT_EXIST:
                manager.shutdowns.check_still_lost(job.tablet_id)
                return None
            last = asyncio.run_coroutine_threadsafe(manager.shutdowns.halt_for_deletion(hosted), loop).result()
            check_source(last.opid, hosted.term)
            return manager.shutdowns.delete_files(hosted, last)

        here = hosted.superblock.data_state is not DataState.DOES_NOT_EXIST or was_here(manager.disk, job.tablet_id)

        def merge(remote: bytes) -> None:
            with hosted.cmeta_lock:
                if hosted.cmeta is not None:
                    hosted.cmeta.merge(remote)
                else:
                    hosted.cmeta = ConsensusMeta.adopt(manager.disk, job.tablet_id, manager.uuid, remote, lost=here)

        with self.attempt(job, addresses) as attempt:
            target = TargetCopy(
                attempt,
                own_last_opid=local.last_opid,
                own_term=local.term,
                stop_and_delete=stop_and_delete,
                log_only=request.log_only,
                healthy=local.healthy,
                source_uuid=request.from_uuid,
                own_last_known=hosted.last_opid_known,
                merge=merge,
                own_cmeta=lambda: hosted.cmeta,
            )
            try:
                target.run()
            finally:
                hosted.superblock = target.in_force or hosted.superblock

    def _pace(self, job: CopyJob, length_bytes: int) -> None:
        """Wait until the copy rate allows so many bytes, unless the job is cancelled. In the job's threads."""
        rate = self._manager.copy_rate
        drawn = rate.draw(length_bytes)
        while (pause_s := rate.pause_s(drawn)) and not job.cancelled.wait(pause_s):
            pass

    @contextmanager
    def attempt(self, job: CopyJob, addresses: list[Address]) -> Iterator[CopyAttempt]:
        """The job's attempt at its source, which a cancel can interrupt. In the job's thread."""
        manager = self._manager
        job.source = source = self._make_source(job.source_uuid, addresses)
        try:
            yield CopyAttempt(
                disk=manager.disk,
                tablet_id=job.tablet_id,
                uuid=manager.uuid,
                source=source,
                streams=manager.options.copy_streams,
                pace=lambda length_bytes: self._pace(job, length_bytes),
                cancelled=job.cancelled.is_set,
                ahead_us=manager.hybrid_clock.ahead_us,
                progress=job.progress,
            )
        finally:
            job.source = None
            close = getattr(source, "close", None)
            if close is not None:
                close()

    async def run_join(self, job: CopyJob, work: Callable[[], None]) -> BaseException | None:
        """Run `work` on the pool, which brings a witness its rows; returns its error, or None. The job is listed, and
        can be cancelled."""
        if job.tablet_id in self._jobs:
            return Refused(Code.ALREADY_INPROGRESS, "the tablet is being copied here", tablet=job.tablet_id)
        self._jobs[job.tablet_id] = job
        try:
            error = await self._on_pool(job, work)
            if error is None:
                self._done(job)
            else:
                self._failed(job, error)
        finally:
            self._over(job)
        return error


class CopyRequester:
    """Sends StartTabletCopy for this server's leaders to their peers: one call at a time per peer, with back-off per
    tablet and peer.

    Concurrency: the loop's thread.
    """

    def __init__(
        self,
        manager: TabletManager,
        channels: Channels,
        own_address: Address,
        place: Callable[[Member], Address | None],
    ) -> None:
        """`place(member)`: the member's present address, which may differ from the one in the config."""
        self._manager = manager
        self._channels = channels
        self._own_address = own_address
        self._place = place
        self._busy: set[str] = set()
        self._next: dict[tuple[str, str], tuple[float, float]] = {}
        self._tasks = Tasks(manager.on_fatal)

    def needed(self, tablet_id: str, need: CopyNeeded) -> None:
        """Take the request of a leader here whose peer needs a copy. It may be dropped, because the Raft core asks
        again."""
        key, now = (tablet_id, need.peer_uuid), self._manager.clock.monotonic_us() / 1_000_000
        at, backoff = self._next.get(key, (0.0, BACKOFF_FIRST_S))
        if need.peer_uuid in self._busy or now < at or self._manager.stopping:
            return
        if now - at > 2 * BACKOFF_MAX_S:
            backoff = BACKOFF_FIRST_S
        self._next[key] = (now + backoff, min(2 * backoff, BACKOFF_MAX_S))
        self._busy.add(need.peer_uuid)
        self._tasks.start(self._send(tablet_id, need))
        if len(self._next) > 10_000:
            self._next = {k: v for k, v in self._next.items() if now - v[0] < 2 * BACKOFF_MAX_S}

    async def _send(self, tablet_id: str, need: CopyNeeded) -> None:
        try:
            await self._ask(tablet_id, need)
        finally:
            self._busy.discard(need.peer_uuid)

    async def _ask(self, tablet_id: str, need: CopyNeeded) -> None:
        hosted = self._manager.tablets.get(tablet_id)
        if hosted is None or hosted.replica is None or not hosted.replica.is_leader:
            return
        term = hosted.replica.term
        member = hosted.replica.active_config.member(need.peer_uuid)
        place = self._place(member) if member is not None else None
        if member is None or place is None:
            return
        request = pb.StartTabletCopyRequest(
            dest_uuid=need.peer_uuid,
            from_uuid=self._manager.uuid,
            from_addresses=[address_to_pb(self._own_address)],
            tablet_id=tablet_id,
            term=term,
            current_state=int(need.current_state),
            log_only=not member.holds_data,
            config=opid_to_pb(hosted.replica.active_config.opid),
        )
        if need.last_opid != OpId(0, 0):
            request.last_opid.CopyFrom(opid_to_pb(need.last_opid))
        log, role = about(_log, tablet_id, self._manager.uuid, peer=need.peer_uuid), f"[term {term} LEADER]"
        stub = pb_grpc.CopyServiceStub(self._channels.get(str(place), need.peer_uuid))
        try:
            reply = check_reply(await stub.StartTabletCopy(request, timeout=START_TIMEOUT_S), "the target")
            refusal = error_from_pb(reply.error)
        except grpc.aio.AioRpcError as error:
            log.info("%s could not ask %s to copy: %s", role, need.peer_uuid, error.code().name)
            return
        except Refused as error:
            refusal = error
        if refusal is None:
            log.info("%s asked %s to copy the tablet (%s)", role, need.peer_uuid, need.current_state.name)
        elif refusal.code is not Code.ALREADY_INPROGRESS:
            log.info("%s %s refused to copy: %s", role, need.peer_uuid, refusal)
