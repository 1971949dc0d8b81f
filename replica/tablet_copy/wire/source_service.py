"""The source's side of the CopyService, the same for tablets and for the masters' catalog."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from functools import partial

from nyala.replica.rpc import (
    Context,
    as_refusal,
    check_name,
    error_to_pb,
    host_of_caller,
    opid_from_pb,
    opid_to_pb,
    pb,
    pb_grpc,
)
from nyala.replica.tablet_copy import Asker, CopySourceSession, CopyWanted, LogSums, capture_session
from nyala.replica.transport import GrantTicket
from nyala.replica.types import Code, Corruption, Refused, ReplicaError, limits, started_pool
from nyala.replica.types.log_records import about

from .fetch_serving import FetchServing
from .source_process import SourceProcess, SourceReplica

_log = logging.getLogger("nyala.tablet_copy")


class SourceServicer(pb_grpc.CopyServiceServicer):
    """Serves copies of replicas that lead here, and of others if the caller allows it.

    Concurrency: handlers on the loop; sessions begin and end, and files are read, in threads of its own.
    """

    def __init__(
        self,
        process: SourceProcess,
        grant_ticket: GrantTicket,
        find: Callable[[str, CopyWanted], Awaitable[SourceReplica]],
        on_unreadable: Callable[[str, Corruption], None],
    ) -> None:
        """`grant_ticket`: that of the listener for links.

        `find(tablet id, wanted)`: the replica, made ready to be copied from, or Refused. `on_unreadable(tablet id,
        why)`: called on any thread if a block of the replica cannot be read.
        """
        self._process = process
        self._grant_ticket = grant_ticket
        self._find = find
        self._on_unreadable = on_unreadable
        self._sums = LogSums()
        self._pool = started_pool(limits.COPY_SESSIONS_MAX, "copy-begin")
        self.fetches = self._fetches_of(process)

    def _fetches_of(self, process: SourceProcess) -> FetchServing:
        return FetchServing(process, self._session_unreadable)

    def close(self) -> None:
        """End all connections."""
        self.fetches.close()
        self._pool.shutdown(wait=False)

    async def BeginCopy(self, request: pb.BeginCopyRequest, context: Context) -> pb.BeginCopyReply:
        """Open a session on a replica here: its leader, unless the caller may copy without one."""
        process, tablet_id = self._process, request.tablet_id
        try:
            check_name(request.dest_uuid, process.uuid)
            if not 0 < len(request.requestor_uuid) <= limits.NAME_LENGTH_MAX or len(request.requestor_run) > 64:
                what = (
                    f"the target of a copy has a uuid of 1 to {limits.NAME_LENGTH_MAX} characters, and its process a "
                    "name of at most 64"
                )
                found = f"{len(request.requestor_uuid)} and {len(request.requestor_run)} characters"
                raise Refused(Code.INVALID_ARGUMENT, what, found=found)
            wanted = CopyWanted(
                log_only=request.log_only,
                acknowledged=opid_from_pb(request.acknowledged),
                flushed=opid_from_pb(request.flushed),
            )
            replica, state, cmeta, log = await self._find(tablet_id, wanted)
            members = (*replica.active_config.members, *replica.committed_config.members)
            asker = Asker(
                host_of_caller(context),
                any(member.uuid == request.requestor_uuid for member in members),
            )
            is_leader, config_index = replica.is_leader, replica.committed_config.opid.index
            term, commit_index, committed = replica.term, replica.commit_index, replica.commit_opid
            if not is_leader and not request.allow_leaderless:
                raise Refused(Code.NOT_LEADER, "copies are served by the leader", detail=replica.leader_uuid or "")

            left = threading.Event()

            def stop() -> None:
                if left.is_set():
                    raise Refused(Code.EXPIRED, "the caller left before its copy session was open")

            def capture(session_id: str, ttl_us: int) -> CopySourceSession:
                return capture_session(
                    disk=process.disk,
                    tablet_id=tablet_id,
                    requestor_uuid=request.requestor_uuid,
                    session_id=session_id,
                    ttl_us=ttl_us,
                    state=state,
                    cmeta=cmeta,
                    log=log,
                    is_leader=is_leader,
                    config_index=config_index,
                    commit_index=commit_index,
                    term=term,
                    committed=committed,
                    wanted=wanted,
                    stop=stop,
                    sums=self._sums,
                )

            loop = asyncio.get_running_loop()
            opening = loop.run_in_executor(
                self._pool,
                lambda: process.sessions.open(
                    tablet_id,
                    request.requestor_uuid,
                    capture,
                    run=request.requestor_run,
                    attempt=request.attempt,
                    asker=asker,
                ),
            )
            try:
                session = await asyncio.shield(opening)
            except asyncio.CancelledError:
                left.set()
                opening.add_done_callback(self._left)  # the caller has gone, and will never end it
                raise
            if is_leader and not (replica.is_leader and replica.term == term):
                # The metadata in the session may name a term in which another replica leads, and this log may end too
                # early.
                await loop.run_in_executor(self._pool, lambda: process.sessions.end(session.manifest.session_id, False))
                raise Refused(Code.NOT_LEADER, "leadership was lost meanwhile", detail=replica.leader_uuid or "")
        except ReplicaError as error:
            return pb.BeginCopyReply(error=error_to_pb(as_refusal(error, process.on_fatal)))
        m = session.manifest
        about(_log, tablet_id, process.uuid, peer=request.requestor_uuid).info(
            "copy session %s for %s: %d bytes, log to %s",
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

    def _left(self, opening: asyncio.Future[CopySourceSession]) -> None:
        """End a session whose caller did not wait for it."""
        if not opening.cancelled() and opening.exception() is None:
            session_id = opening.result().manifest.session_id
            self._pool.submit(self._process.sessions.end, session_id, False)

    async def OpenFetch(self, request: pb.OpenFetchRequest, context: Context) -> pb.OpenFetchReply:
        """Return a ticket for one connection on which a session's files are fetched."""
        try:
            check_name(request.dest_uuid, self._process.uuid)
            # Reading the sessions may close expired ones, which writes to the disk.
            look = asyncio.get_running_loop().run_in_executor
            await look(self._pool, self._process.sessions.get, request.session_id)
            self.fetches.check_room(request.session_id)
        except ReplicaError as error:
            return pb.OpenFetchReply(error=error_to_pb(as_refusal(error, self._process.on_fatal)))
        port, ticket = self._grant_ticket(partial(self.fetches.taken, request.session_id), host_of_caller(context))
        return pb.OpenFetchReply(port=port, ticket=ticket)

    async def EndCopy(self, request: pb.EndCopyRequest, context: Context) -> pb.EndCopyReply:
        """Close a session. If the target names a block that arrived damaged, it is read here; if it is damaged here,
        too, this replica fails."""
        try:
            check_name(request.dest_uuid, self._process.uuid)
            await asyncio.get_running_loop().run_in_executor(self._pool, lambda: self._end(request))
        except ReplicaError as error:
            return pb.EndCopyReply(error=error_to_pb(as_refusal(error, self._process.on_fatal)))
        return pb.EndCopyReply()

    def _end(self, request: pb.EndCopyRequest) -> None:
        """End the session. In a thread, because it may read a whole block, for which the target need not wait."""
        sessions = self._process.sessions
        try:
            if request.doubted:
                session = sessions.get(request.session_id)
                tablet_id = session.tablet_id
                session.verify_block(request.doubted)
        except Corruption as error:
            self._on_unreadable(tablet_id, error)
        finally:
            sessions.end(request.session_id, request.success)

    def _session_unreadable(self, session_id: str, error: Corruption) -> None:
        """A block cannot be read for a copy: this replica fails, so that another one leads and serves."""
        for session in self._process.sessions.sessions():
            if session.manifest.session_id == session_id:
                self._on_unreadable(session.tablet_id, error)

    def serving(self) -> list[pb.CopyJob]:
        """The open sessions, for operators."""
        return [
            pb.CopyJob(
                tablet_id=s.tablet_id,
                source_uuid=self._process.uuid,
                target_uuid=s.requestor_uuid,
                phase="SERVING",
                bytes_done=s.bytes_served,
                bytes_total=s.manifest.size_bytes,
                started_us=started_us,
                idle_us=idle_us,
                ttl_us=s.manifest.ttl_us,
            )
            for s, started_us, idle_us in self._process.sessions.served()
        ]
