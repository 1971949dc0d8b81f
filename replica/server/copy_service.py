"""The CopyService of a tablet server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nyala.replica.base import Code, Corruption, DataState, Refused, ReplicaError, check, limits
from nyala.replica.copy import (
    CopyRequest,
    CopySourceSession,
    CopyWanted,
    capture_session,
)
from nyala.replica.peers import Taker
from nyala.replica.rpc import addresses_from_pb, error_to_pb, opid_from_pb, opid_to_pb, pb, pb_grpc

from .copies import CopyJobs
from .fetch_serving import FetchServing
from .hosted import CopyJob
from .lanes import drained
from .maintenance import Maintenance
from .manager import TabletManager
from .refusals import as_refusal, check_name, check_tablet_id
from .scans import when

_log = logging.getLogger("nyala.server")

FLUSH_WAIT_S = 30.0
"""How long a session that needs a flush waits for entries that are committed and not applied yet."""


class CopyServicer(pb_grpc.CopyServiceServicer):  # type: ignore[misc]
    """Serves copies of this server's leaders, and starts copies into this server.

    Concurrency: handlers on the loop; sessions begin and end, and files are read, in threads of its own.
    """

    def __init__(
        self,
        manager: TabletManager,
        jobs: CopyJobs,
        maintenance: Maintenance,
        admit: Callable[[Taker], tuple[int, bytes]],
    ) -> None:
        """`admit(taker)`: port and ticket for one connection that is handed to `taker`."""
        self._manager = manager
        self._maintenance = maintenance
        self._jobs = jobs
        self._admit = admit
        self._pool = ThreadPoolExecutor(limits.COPY_SESSIONS_MAX, thread_name_prefix="copy-begin")
        self.fetches = FetchServing(manager, lambda session, why: manager.post(lambda: self._lost(session, why)))

    def close(self) -> None:
        """End what is being served."""
        self.fetches.close()
        self._pool.shutdown(wait=False)

    async def StartTabletCopy(self, request: Any, context: Any) -> Any:
        """Check and start a copy into this server; answers before it runs."""
        try:
            check_name(request.dest_uuid, self._manager.uuid)
            check_tablet_id(request.tablet_id)
            wanted = CopyRequest(
                dest_uuid=request.dest_uuid,
                from_uuid=request.from_uuid,
                tablet_id=request.tablet_id,
                term=request.term,
                current_state=_data_state(request.current_state),
                last_opid=opid_from_pb(request.last_opid) if request.HasField("last_opid") else None,
                log_only=request.log_only,
                config=opid_from_pb(request.config),
            )
            addresses = list(addresses_from_pb(request.from_addresses))
            if not addresses:
                raise Refused(Code.INVALID_ARGUMENT, "the source tells no address", source=request.from_uuid)
            before = self._jobs.start(wanted, addresses)
        except ReplicaError as error:
            local = self._jobs.local(request.tablet_id)
            return pb.StartTabletCopyReply(
                error=error_to_pb(as_refusal(error, self._manager.on_fatal)),
                current_term=local.term,
                last_opid=opid_to_pb(local.last_opid),
                data_state=int(local.data_state),
            )
        return pb.StartTabletCopyReply(
            current_term=before.term, last_opid=opid_to_pb(before.last_opid), data_state=int(DataState.COPYING)
        )

    async def BeginCopy(self, request: Any, context: Any) -> Any:
        """Open a session on a replica here: its leader, unless the caller may copy without one."""
        manager = self._manager
        try:
            check_name(request.dest_uuid, manager.uuid)
            hosted = manager.get(request.tablet_id)
            replica, tablet = hosted.serving()
            wanted = CopyWanted(
                log_only=request.log_only,
                acknowledged=opid_from_pb(request.acknowledged),
                flushed=opid_from_pb(request.flushed),
            )
            if tablet.flush_opid < wanted.flushed and replica.is_leader:
                # Everything below is committed here, so it will be applied; a flush takes what is.
                await when(
                    lambda done: replica.wait_applied(wanted.flushed.index, done), FLUSH_WAIT_S, "entries to apply"
                )
                await self._maintenance.flush(hosted)
                replica, tablet = hosted.serving()
            if wanted.log_only:
                # A config that was just committed is on its way there; without it the whole log would go along.
                await drained(hosted.meta_lane)
                replica, tablet = hosted.serving()
            cmeta, log = hosted.cmeta, hosted.log
            check(cmeta is not None and log is not None, "a running replica has its files", tablet=hosted.tablet_id)
            is_leader, config_index = replica.is_leader, replica.committed_config.opid.index
            term, commit_index, committed = replica.term, replica.commit_index, replica.commit_opid
            if not is_leader and not request.allow_leaderless:
                raise Refused(Code.NOT_LEADER, "copies are served by the leader", detail=replica.leader_uuid or "")

            def capture(session_id: str, ttl_us: int) -> CopySourceSession:
                return capture_session(
                    disk=manager.disk,
                    tablet_id=hosted.tablet_id,
                    requestor_uuid=request.requestor_uuid,
                    session_id=session_id,
                    ttl_us=ttl_us,
                    state=tablet,
                    cmeta=cmeta,  # type: ignore[arg-type]
                    log=log,  # type: ignore[arg-type]
                    is_leader=is_leader,
                    config_index=config_index,
                    commit_index=commit_index,
                    term=term,
                    committed=committed,
                    wanted=wanted,
                )

            loop = asyncio.get_running_loop()
            session = await loop.run_in_executor(
                self._pool,
                lambda: manager.sessions.open(
                    hosted.tablet_id,
                    request.requestor_uuid,
                    capture,
                    run=request.requestor_run,
                    attempt=request.attempt,
                ),
            )
            if is_leader and not (replica.is_leader and replica.term == term):
                # The metadata in the session may name a term that another leads, and vouch for a log that ends early.
                await loop.run_in_executor(self._pool, lambda: manager.sessions.end(session.manifest.session_id, False))
                raise Refused(Code.NOT_LEADER, "leadership was lost meanwhile", detail=replica.leader_uuid or "")
        except ReplicaError as error:
            return pb.BeginCopyReply(error=error_to_pb(as_refusal(error, self._manager.on_fatal)))
        m = session.manifest
        _log.info(
            "T %s P %s copy session %s for %s: %d bytes, log to %s",
            hosted.tablet_id,
            manager.uuid,
            m.session_id,
            request.requestor_uuid,
            m.size_bytes,
            m.last_opid,
        )
        return pb.BeginCopyReply(
            session_id=m.session_id,
            superblock=m.superblock,
            cmeta=m.cmeta,
            files=[pb.CopyFile(kind=int(f.kind), name=f.name, length_bytes=f.length_bytes, crc=f.crc) for f in m.files],
            last_opid=opid_to_pb(m.last_opid),
            first_retained_index=m.first_retained_index,
            is_leader=m.is_leader,
            ttl_us=m.ttl_us,
        )

    async def OpenFetch(self, request: Any, context: Any) -> Any:
        """A ticket for one connection on which a session's files are fetched."""
        try:
            check_name(request.dest_uuid, self._manager.uuid)
            # A look at the sessions may close some that have expired, which writes to the disk.
            look = asyncio.get_running_loop().run_in_executor
            await look(self._pool, self._manager.sessions.get, request.session_id)
            if self.fetches.full:
                raise Refused(Code.OVERLOADED, "too many connections of copies", limit=limits.COPY_FETCHES_MAX)
        except ReplicaError as error:
            return pb.OpenFetchReply(error=error_to_pb(as_refusal(error, self._manager.on_fatal)))
        port, ticket = self._admit(self.fetches.taken)
        return pb.OpenFetchReply(port=port, ticket=ticket)

    def _lost(self, session_id: str, error: Corruption) -> None:
        """A block that cannot be read for a copy is lost here: this replica ends, another leads and serves."""
        for session in self._manager.sessions.sessions():
            if session.manifest.session_id == session_id:
                self._fail(session.tablet_id, error)

    def _fail(self, tablet_id: str, error: Corruption) -> None:
        hosted = self._manager.tablets.get(tablet_id)
        if hosted is not None and hosted.replica is not None:
            self._manager.damaged(hosted, error)

    async def EndCopy(self, request: Any, context: Any) -> Any:
        """Close a session. A block of it that the target doubts is read here: if it is lost, so is this replica."""
        try:
            check_name(request.dest_uuid, self._manager.uuid)
            await asyncio.get_running_loop().run_in_executor(self._pool, lambda: self._end(request))
        except ReplicaError as error:
            return pb.EndCopyReply(error=error_to_pb(as_refusal(error, self._manager.on_fatal)))
        return pb.EndCopyReply()

    def _end(self, request: Any) -> None:
        """In a thread: it reads a whole block, and the target may not wait for that."""
        sessions = self._manager.sessions
        try:
            if request.doubted:
                session = sessions.get(request.session_id)
                tablet_id = session.tablet_id
                session.verify_block(request.doubted)
        except Corruption as error:
            lost = error
            self._manager.post(lambda: self._fail(tablet_id, lost))
        finally:
            sessions.end(request.session_id, request.success)

    async def ListCopies(self, request: Any, context: Any) -> Any:
        """Copies into this server, running ones first, and sessions that it serves."""
        try:
            check_name(request.dest_uuid, self._manager.uuid)
        except Refused as error:
            return pb.ListCopiesReply(error=error_to_pb(error))
        jobs = [_job(j) for j in (*self._jobs.running(), *reversed(self._jobs.ended))]
        jobs += [
            pb.CopyJob(
                tablet_id=s.tablet_id,
                source_uuid=self._manager.uuid,
                target_uuid=s.requestor_uuid,
                phase="SERVING",
                bytes_done=s.bytes_served,
                bytes_total=s.manifest.size_bytes,
                started_us=started_us,
                idle_us=idle_us,
                ttl_us=s.manifest.ttl_us,
            )
            for s, started_us, idle_us in self._manager.sessions.served()
        ]
        return pb.ListCopiesReply(jobs=jobs)

    async def CancelCopy(self, request: Any, context: Any) -> Any:
        """End a copy into this server; answers when it has ended."""
        try:
            check_name(request.dest_uuid, self._manager.uuid)
            job = await self._jobs.cancel(request.tablet_id, request.started_us)
        except ReplicaError as error:
            return pb.CancelCopyReply(error=error_to_pb(as_refusal(error, self._manager.on_fatal)))
        return pb.CancelCopyReply(job=_job(job), data_state=int(self._jobs.local(request.tablet_id).data_state))


def _job(job: CopyJob) -> Any:
    return pb.CopyJob(
        tablet_id=job.tablet_id,
        source_uuid=job.source_uuid,
        target_uuid=job.target_uuid,
        phase=job.progress.phase,
        bytes_done=job.progress.bytes_done,
        bytes_total=job.progress.bytes_total,
        started_us=job.started_us,
        error=job.error,
    )


def _data_state(number: int) -> DataState:
    try:
        return DataState(number)
    except ValueError:
        raise Refused(Code.INVALID_ARGUMENT, "no such data state", number=number) from None
