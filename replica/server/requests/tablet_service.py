"""The TabletService: thin handlers that check the name, find the tablet, and turn outcomes into replies."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial, wraps
from itertools import chain, repeat
from typing import Any, TypeVar

from nyala.replica.fs import TABLET_SERVER
from nyala.replica.rpc import (
    Context,
    NamedRequest,
    as_refusal,
    caller_of,
    check_name,
    config_to_pb,
    edit_from_pb,
    error_to_pb,
    host_of_caller,
    opid_from_pb,
    opid_to_pb,
    page_of,
    pb,
    pb_grpc,
    source_to_pb,
)
from nyala.replica.tablet import SourceState
from nyala.replica.transport import GrantTicket, MicrotaskQueue
from nyala.replica.types import Code, HybridClock, Refused, ReplicaError, __version__
from nyala.schemas import build_level

from ..maintenance.maintenance import Maintenance
from ..runtime.gil_watch import GilWatch
from ..runtime.identity import Identity
from ..tablets.manager import TabletManager
from ..tablets.status import replica_status
from .creations import checked_creation
from .quarantine import quarantine_list, quarantine_purge
from .quiescing import Quiescing
from .request_deadline import RequestDeadline
from .scan_links import ScanLinks
from .scans import TIMEOUT_DEFAULT_S, Scans, when
from .write_links import WriteLinks
from .writes import Done, Writes

_log = logging.getLogger("nyala.server")
_Request = TypeVar("_Request", bound=NamedRequest)
_Reply = TypeVar("_Reply")
_Handler = Callable[["TabletServicer", _Request, Context], Awaitable[_Reply]]

CHANGE_TIMEOUT_S = 30.0
TRANSFER_TIMEOUT_S = 10.0
OTHERS_LED_S = 1.0
"""The time in which a server makes sure that it leads the other tablets that a call for its time names."""


def _answered(reply_type: Callable[..., _Reply]) -> Callable[[_Handler[_Request, _Reply]], _Handler[_Request, _Reply]]:
    """Check that the request is meant for this server, and turn an error into the reply's."""

    def wrap(handler: _Handler[_Request, _Reply]) -> _Handler[_Request, _Reply]:
        @wraps(handler)
        async def answer(self: TabletServicer, request: _Request, context: Context) -> _Reply:
            try:
                check_name(request.dest_uuid, self._manager.uuid)
                return await handler(self, request, context)
            except ReplicaError as error:
                return self._told(reply_type, error)

        return answer

    return wrap


class TabletServicer(pb_grpc.TabletServiceServicer):
    """The handlers. A call that does not name this server's uuid is refused INVALID_NAME before anything else.

    Concurrency: the loop's thread.
    """

    def __init__(
        self,
        *,
        manager: TabletManager,
        writes: Writes,
        scans: Scans,
        maintenance: Maintenance,
        hybrid_clock: HybridClock,
        grant_ticket: GrantTicket,
        microtasks: MicrotaskQueue,
        gil: GilWatch,
        identity: Identity,
        quiescing: Quiescing,
        process: int = 0,
    ) -> None:
        """`process`: the number that this process's heartbeats carry."""
        self._manager = manager
        self._writes = writes
        self._scans = scans
        self._maintenance = maintenance
        self._hybrid_clock = hybrid_clock
        self._identity = identity
        self._gil = gil
        self._process = process
        self._quiescing = quiescing
        self.write_links = WriteLinks(grant_ticket, self._begin_write, microtasks)
        self.scan_links = ScanLinks(grant_ticket)

    async def GetIdentity(self, request: pb.Empty, context: Context) -> pb.IdentityReply:
        """The uuid, cluster and build of this server."""
        return pb.IdentityReply(
            uuid=self._manager.uuid,
            kind=TABLET_SERVER,
            cluster_id=self._identity.cluster_id,
            version=__version__,
            pid=os.getpid(),
            feature_level=build_level(),
            finalized_level=self._identity.feature_level,
        )

    @_answered(pb.WriteReply)
    async def Write(self, request: pb.WriteRequest, context: Context) -> pb.WriteReply:
        """Apply one batch at the tablet's leader."""
        return await self._writes.write(self._manager.get(request.tablet_id), request)

    @_answered(pb.OpenWritesReply)
    async def OpenWrites(self, request: pb.OpenWritesRequest, context: Context) -> pb.OpenWritesReply:
        """Return a ticket for a connection on which small batches go to their tablets' leaders."""
        return self.write_links.grant(host_of_caller(context), caller_of(context))

    def _begin_write(self, request: pb.WriteRequest, done: Done) -> Callable[[], None] | None:
        """Begin one write, as `Write` but without a task. If the write has to wait for its index, returns a function
        that gives it up."""

        def ended(outcome: Any) -> None:
            done(self._told(pb.WriteReply, outcome) if isinstance(outcome, ReplicaError) else outcome)

        try:
            check_name(request.dest_uuid, self._manager.uuid)
            hosted = self._manager.get(request.tablet_id)
            arrival = self._writes.begin(hosted, request, ended)
        except ReplicaError as error:
            ended(error)
            return None
        return None if arrival is None else partial(hosted.arrivals.leave, arrival)

    async def Scan(self, request: pb.ScanRequest, context: Context) -> AsyncIterator[pb.ScanChunk]:
        """Return rows of one tablet at one time."""
        try:
            check_name(request.dest_uuid, self._manager.uuid)
            deadline = RequestDeadline.of(context, request.timeout_us)
            link = partial(self.scan_links.offer, deadline.host, caller_of(context)) if request.by_link else None
            async for chunk in self._scans.scan(self._manager.get(request.tablet_id), request, deadline, link):
                yield chunk
        except ReplicaError as error:
            yield pb.ScanChunk(error=error_to_pb(as_refusal(error, self._manager.on_fatal)), last=True)

    @_answered(pb.GetReply)
    async def Get(self, request: pb.GetRequest, context: Context) -> pb.GetReply:
        """Return the rows of some keys of one tablet."""
        deadline = RequestDeadline.of(context, request.timeout_us)
        return await self._scans.get(self._manager.get(request.tablet_id), request, deadline)

    @_answered(pb.ListTabletsReply)
    async def ListTablets(self, request: pb.ListTabletsRequest, context: Context) -> pb.ListTabletsReply:
        """Return the status of all replicas, or of the requested ones that are here."""
        manager = self._manager
        wanted = list(request.tablet_ids) or sorted(manager.tablets)
        found = (
            (t, replica_status(manager.tablets[t], manager.uuid, manager.options.tick_ms))
            for t in sorted(set(wanted))
            if t in manager.tablets and t > request.after
        )
        page, last = await page_of(found, request.limit_bytes)
        return pb.ListTabletsReply(replicas=page, next=last)

    @_answered(pb.CreateTabletReply)
    async def CreateTablet(self, request: pb.CreateTabletRequest, context: Context) -> pb.CreateTabletReply:
        """Create a replica of a new tablet; a repeated call changes nothing."""
        return await create_tablet(self._manager, request)

    @_answered(pb.DeleteTabletReply)
    async def DeleteTablet(self, request: pb.DeleteTabletRequest, context: Context) -> pb.DeleteTabletReply:
        """Make the replica a tombstone."""
        return await delete_tablet(self._manager, request)

    @_answered(pb.ChangeConfigReply)
    async def ChangeConfig(self, request: pb.ChangeConfigRequest, context: Context) -> pb.ChangeConfigReply:
        """Change the tablet's members by one; answers when the new config is committed."""
        hosted = self._manager.get(request.tablet_id)
        replica, _ = hosted.serving()
        self._check_deadline(request.deadline_us)
        edits = [edit_from_pb(e) for e in request.edits]
        cas = opid_from_pb(request.committed_config_id) if request.has_cas else None
        decision = (request.decision_term, request.decision_version)
        self._check_term(request.decision_term)
        if request.abort and edits:
            raise Refused(Code.INVALID_ARGUMENT, "an abort has no edits", edits=len(edits))

        def change(done: Callable[[Any], None]) -> None:
            if request.abort:
                replica.abort_change(cas, done)
            else:
                replica.change_config(edits, cas, decision, done)
            # The addresses are learned before this iteration of the loop ends, so before the entry is sent. Those of a
            # refused change are not learned.
            self._manager.learn_config(replica.active_config)

        config = await when(change, CHANGE_TIMEOUT_S, "the config change to commit")
        return pb.ChangeConfigReply(config=config_to_pb(config))

    @_answered(pb.TransferReply)
    async def TransferLeadership(self, request: pb.TransferRequest, context: Context) -> pb.TransferReply:
        """Hand the tablet's leadership over."""
        replica, _ = self._manager.get(request.tablet_id).serving()
        self._check_deadline(request.deadline_us)
        cas = opid_from_pb(request.committed_config_id) if request.has_cas else None
        decision = (request.decision_term, request.decision_version)
        self._check_term(request.decision_term)
        leader = await when(
            lambda done: replica.transfer(request.target_uuid or None, done, cas=cas, decision=decision),
            TRANSFER_TIMEOUT_S,
            "the new leader",
        )
        return pb.TransferReply(new_leader_uuid=leader or "")

    @_answered(pb.ChecksumReply)
    async def Checksum(self, request: pb.ChecksumRequest, context: Context) -> pb.ChecksumReply:
        """Return the checksum of this replica's rows at a time."""
        deadline = RequestDeadline.of(context, request.timeout_us)
        return await self._scans.checksum(self._manager.get(request.tablet_id), request, deadline)

    @_answered(pb.ServerTimeReply)
    async def ServerTime(self, request: pb.ServerTimeRequest, context: Context) -> pb.ServerTimeReply:
        """Return a hybrid time above every time that this server has seen, after it has made sure that it leads the
        named tablets."""
        self._scans.observe(request.propagated_time)
        led = await self._led_here(request.tablet_ids)
        return pb.ServerTimeReply(hybrid_time=self._hybrid_clock.now(), led=led)

    async def _led_here(self, tablet_ids: Sequence[str]) -> list[str]:
        """Return those of the tablets that this server leads, as the read barrier of each confirms. If it does not lead
        the first one, that refusal is raised."""

        async def lead(tablet_id: str, timeout_s: float) -> str:
            replica, _ = self._manager.get(tablet_id).serving()
            await when(replica.read_barrier, timeout_s, "the leader's read barrier")
            return tablet_id

        waits_s = chain([TIMEOUT_DEFAULT_S], repeat(OTHERS_LED_S))
        found = await asyncio.gather(*map(lead, tablet_ids, waits_s), return_exceptions=True)
        for pos, each in enumerate(found):
            if isinstance(each, BaseException) and not (pos and isinstance(each, Refused)):
                raise each
        return [each for each in found if isinstance(each, str)]

    @_answered(pb.LatenessReply)
    async def Lateness(self, request: pb.LatenessRequest, context: Context) -> pb.LatenessReply:
        """Return the longest lag of the event loop, and the longest hold of the interpreter's lock, in the last
        seconds."""
        lag_ms = self._manager.ticker.lags_ms.within(request.last_s)
        return pb.LatenessReply(loop_lag_ms=lag_ms, gil_hold_ms=self._gil.holds_ms.within(request.last_s))

    @_answered(pb.ProcessReply)
    async def IsProcess(self, request: pb.ProcessRequest, context: Context) -> pb.ProcessReply:
        """Return whether this process sends the heartbeats with that number. A master asks before it believes such a
        heartbeat."""
        return pb.ProcessReply(same=request.process == self._process)

    @_answered(pb.QuiesceReply)
    async def Quiesce(self, request: pb.QuiesceRequest, context: Context) -> pb.QuiesceReply:
        """Begin or end quiescing, or neither; answer with its state."""
        if request.HasField("quiesce"):
            self._quiescing.want(request.quiesce, request.seen)
        return pb.QuiesceReply(**self._quiescing.progress()._asdict())

    @_answered(pb.LedgerReply)
    async def Ledger(self, request: pb.LedgerRequest, context: Context) -> pb.LedgerReply:
        """Return the applied offset of each source, at the leader, after everything acknowledged before the call."""
        replica, tablet = self._manager.get(request.tablet_id).serving()
        await when(replica.read_barrier, TIMEOUT_DEFAULT_S, "the read barrier")
        return pb.LedgerReply(sources=[_ledger_source(s) for s in tablet.ledger_sources()])

    @_answered(pb.FlushReply)
    async def Flush(self, request: pb.FlushRequest, context: Context) -> pb.FlushReply:
        """Flush now, and if requested compact."""
        hosted = self._manager.get(request.tablet_id)
        _, tablet = hosted.serving()
        await self._maintenance.flush(hosted)
        if request.compact:
            await self._maintenance.compact(hosted)
        return pb.FlushReply(flush_opid=opid_to_pb(tablet.flush_opid))

    @_answered(pb.ListQuarantineReply)
    async def ListQuarantine(self, request: pb.QuarantineRequest, context: Context) -> pb.ListQuarantineReply:
        """Return the quarantines that deletions have left."""
        return await quarantine_list(self._manager, request, RequestDeadline.of(context))

    @_answered(pb.PurgeQuarantineReply)
    async def PurgeQuarantine(self, request: pb.QuarantineRequest, context: Context) -> pb.PurgeQuarantineReply:
        """Remove one tablet's quarantines."""
        return await quarantine_purge(self._manager, request.tablet_id, RequestDeadline.of(context))

    def _told(self, reply: Callable[..., _Reply], error: ReplicaError) -> _Reply:
        return reply(error=error_to_pb(as_refusal(error, self._manager.on_fatal)))

    def _check_deadline(self, deadline_us: int) -> None:
        if deadline_us and self._manager.clock.wall_us() > deadline_us:
            raise Refused(
                Code.DEADLINE_PASSED,
                "the decision's deadline has passed: ask for the change again",
                deadline_us=deadline_us,
            )

    def _check_term(self, decision_term: int) -> None:
        """Raise Refused(NOT_READY) for a decision of a term that no master has named to this server.

        The tablet remembers the highest decision that it carried out, and refuses lower ones for ever. So it must never
        see a term that a caller made up. A master decides after it heard from the tablet's leader, which got the
        master's term in the reply. If that reply was lost, the next one has the term.
        """
        known = self._manager.catalog_term
        if self._manager.options.masters and decision_term > known:
            what = "no master of this cluster has named the decision's term to this server; nothing was changed"
            raise Refused(Code.NOT_READY, what, term=decision_term, known=known)


async def create_tablet(manager: TabletManager, request: pb.CreateTabletRequest) -> pb.CreateTabletReply:
    """Carry out a CreateTabletRequest of a call or of an order; Refused as `checked_creation` and
    `TabletManager.create`. It succeeds if the tablet is being copied here."""
    superblock, config = checked_creation(request)
    hosted = await manager.create(superblock, config, campaign=request.leader_hint == manager.uuid)
    # The other members may have elected a leader that found this replica missing, and copies it.
    if hosted.replica is None and not hosted.opening and hosted.copy is None:
        raise Refused(Code.TABLET_FAILED, hosted.error or "the tablet could not be started", tablet=request.tablet_id)
    return pb.CreateTabletReply()


async def delete_tablet(manager: TabletManager, request: pb.DeleteTabletRequest) -> pb.DeleteTabletReply:
    """Carry out a DeleteTabletRequest of a call or of an order; Refused as `TabletManager.delete`."""
    cas = opid_from_pb(request.committed_config_id) if request.has_cas else None
    await manager.delete(request.tablet_id, cas, request.reason, committed=opid_from_pb(request.committed))
    return pb.DeleteTabletReply()


async def renew_tablet(manager: TabletManager, request: pb.DeleteTabletRequest) -> pb.DeleteTabletReply:
    """Make a damaged replica a tombstone, so that a copy can replace it; Refused as `TabletManager.delete`."""
    cas = opid_from_pb(request.committed_config_id) if request.has_cas else None
    await manager.delete(request.tablet_id, cas, request.reason, damaged_only=True)
    return pb.DeleteTabletReply()


def _ledger_source(state: SourceState) -> pb.LedgerSource:
    last = state.last_offset
    return pb.LedgerSource(
        source=source_to_pb(state.source),
        generation=state.generation,
        last_offset=max(last, 0),
        has_last=last >= 0,
    )
