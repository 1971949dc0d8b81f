"""The CopyService of a tablet server."""

from __future__ import annotations

from nyala.replica.raft import too_far
from nyala.replica.rpc import (
    Context,
    addresses_from_pb,
    as_refusal,
    check_name,
    check_tablet_id,
    error_to_pb,
    host_of_caller,
    opid_from_pb,
    opid_to_pb,
    pb,
)
from nyala.replica.tablet_copy import CopyRequest, CopyWanted
from nyala.replica.tablet_copy.wire import SourceReplica, SourceServicer
from nyala.replica.transport import GrantTicket
from nyala.replica.types import Code, Corruption, DataState, InvariantViolation, Refused, ReplicaError, known_value

from ..maintenance.maintenance import Maintenance
from ..requests.scans import when
from ..runtime.lanes import drained
from ..tablets.hosted import CopyJob
from ..tablets.manager import TabletManager
from .copy_jobs import CopyJobs

FLUSH_WAIT_S = 30.0
"""The longest wait of a session that needs a flush for committed entries to be applied."""


class CopyServicer(SourceServicer):
    """Serves copies of this server's leaders, and starts copies into this server. Concurrency: the loop's thread."""

    def __init__(
        self, manager: TabletManager, jobs: CopyJobs, maintenance: Maintenance, grant_ticket: GrantTicket
    ) -> None:
        """`grant_ticket`: that of the listener for links."""
        super().__init__(manager, grant_ticket, self._ready, self._lost_here)
        self._manager = manager
        self._maintenance = maintenance
        self._jobs = jobs

    async def StartTabletCopy(self, request: pb.StartTabletCopyRequest, context: Context) -> pb.StartTabletCopyReply:
        """Check and start a copy into this server; answers before it runs."""
        try:
            check_name(request.dest_uuid, self._manager.uuid)
            check_tablet_id(request.tablet_id)
            wanted = CopyRequest(
                dest_uuid=request.dest_uuid,
                from_uuid=request.from_uuid,
                tablet_id=request.tablet_id,
                term=request.term,
                current_state=known_value(DataState, request.current_state, "the data state"),
                last_opid=opid_from_pb(request.last_opid) if request.HasField("last_opid") else None,
                log_only=request.log_only,
                config=opid_from_pb(request.config),
            )
            addresses = list(addresses_from_pb(request.from_addresses))
            if not addresses:
                raise Refused(Code.INVALID_ARGUMENT, "the source has no address", source=request.from_uuid)
            if too_far(self._jobs.local(request.tablet_id).term, request.term) or request.term < 0:
                raise Refused(Code.INVALID_ARGUMENT, "no group can have come to this term", term=request.term)
            before = self._jobs.start(wanted, addresses, host_of_caller(context))
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

    async def _ready(self, tablet_id: str, wanted: CopyWanted) -> SourceReplica:
        """Return a running replica, flushed and with its config saved as far as the copy needs. Refused if none runs
        here."""
        hosted = self._manager.get(tablet_id)
        replica, tablet = hosted.serving()
        if tablet.flush_opid < wanted.flushed and replica.is_leader:
            # Entries up to that position are committed here and will be applied; a flush writes what is applied.
            await when(lambda done: replica.wait_applied(wanted.flushed.index, done), FLUSH_WAIT_S, "entries to apply")
            await self._maintenance.flush(hosted)
            replica, tablet = hosted.serving()
        if wanted.log_only:
            # A config that was just committed is being saved. Without it the copy would need the whole log.
            await drained(hosted.meta_lane)
            replica, tablet = hosted.serving()
        cmeta, log = hosted.cmeta, hosted.log
        if cmeta is None or log is None:
            raise InvariantViolation("a running replica has its files", tablet=hosted.tablet_id)
        return SourceReplica(replica, tablet, cmeta, log)

    def _lost_here(self, tablet_id: str, error: Corruption) -> None:
        self._manager.post(lambda: self._fail(tablet_id, error))

    def _fail(self, tablet_id: str, error: Corruption) -> None:
        hosted = self._manager.tablets.get(tablet_id)
        if hosted is not None and hosted.replica is not None:
            self._manager.damaged(hosted, error)

    async def ListCopies(self, request: pb.ListCopiesRequest, context: Context) -> pb.ListCopiesReply:
        """Copies into this server, running ones first, and sessions that it serves."""
        try:
            check_name(request.dest_uuid, self._manager.uuid)
        except Refused as error:
            return pb.ListCopiesReply(error=error_to_pb(error))
        jobs = [_job(j) for j in (*self._jobs.running(), *reversed(self._jobs.ended))]
        return pb.ListCopiesReply(jobs=[*jobs, *self.serving()])

    async def CancelCopy(self, request: pb.CancelCopyRequest, context: Context) -> pb.CancelCopyReply:
        """End a copy into this server; answers when it has ended."""
        try:
            check_name(request.dest_uuid, self._manager.uuid)
            job = await self._jobs.cancel(request.tablet_id, request.started_us)
        except ReplicaError as error:
            return pb.CancelCopyReply(error=error_to_pb(as_refusal(error, self._manager.on_fatal)))
        return pb.CancelCopyReply(job=_job(job), data_state=int(self._jobs.local(request.tablet_id).data_state))


def _job(job: CopyJob) -> pb.CopyJob:
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
