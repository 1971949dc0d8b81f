"""The TabletService: thin handlers that check the name, find the tablet, and turn outcomes into replies."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from nyala.replica.base import Code, DataState, HybridClock, OpId, Refused, ReplicaError, __version__
from nyala.replica.disk import TABLET_SERVER
from nyala.replica.peers import Taker, Turn
from nyala.replica.raft import ConfigEdit, EditKind
from nyala.replica.rows import SourceKey
from nyala.replica.rpc import (
    as_refusal,
    check_name,
    check_tablet_id,
    config_from_pb,
    config_to_pb,
    error_to_pb,
    member_from_pb,
    opid_from_pb,
    opid_to_pb,
    partition_from_pb,
    pb,
    pb_grpc,
    schema_from_pb,
    source_to_pb,
)
from nyala.replica.tablet import Superblock

from .gil_watch import GilWatch
from .leaders import with_leader_hint
from .maintenance import Maintenance
from .manager import TabletManager
from .quarantine import quarantine_list, quarantine_purge
from .scans import TIMEOUT_DEFAULT_S, Scans, when
from .status import replica_status
from .write_links import WriteLinks
from .writes import Writes

_log = logging.getLogger("nyala.server")

CHANGE_TIMEOUT_S = 30.0
TRANSFER_TIMEOUT_S = 10.0


class TabletServicer(pb_grpc.TabletServiceServicer):  # type: ignore[misc]
    """Every call names this server's uuid and is refused INVALID_NAME otherwise, before anything else is looked at.

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
        admit: Callable[[Taker], tuple[int, bytes]],
        turn: Turn,
        gil: GilWatch,
        cluster_id: Callable[[], str] = lambda: "",
    ) -> None:
        self._manager = manager
        self._writes = writes
        self._scans = scans
        self._maintenance = maintenance
        self._hybrid_clock = hybrid_clock
        self._cluster_id = cluster_id
        self._gil = gil
        self.write_links = WriteLinks(admit, self._begin_write, turn)

    async def GetIdentity(self, request: Any, context: Any) -> Any:
        """Who listens here."""
        return pb.IdentityReply(
            uuid=self._manager.uuid,
            kind=TABLET_SERVER,
            cluster_id=self._cluster_id(),
            version=__version__,
            pid=os.getpid(),
        )

    async def Write(self, request: Any, context: Any) -> Any:
        """Apply one batch at the tablet's leader."""

        async def act() -> Any:
            return await self._writes.write(self._manager.get(request.tablet_id), request)

        return await self._answer(request, pb.WriteReply, act)

    async def OpenWrites(self, request: Any, context: Any) -> Any:
        """A ticket for a connection on which small batches go to their tablets' leaders; replies come as they end."""

        async def act() -> Any:
            return self.write_links.grant()

        return await self._answer(request, pb.OpenWritesReply, act)

    def _begin_write(self, request: Any, done: Callable[[Any], None]) -> None:
        """As `Write`, without a task for each."""

        def ended(outcome: Any) -> None:
            done(self._told(pb.WriteReply, outcome) if isinstance(outcome, ReplicaError) else outcome)

        try:
            check_name(request.dest_uuid, self._manager.uuid)
            self._writes.begin(self._manager.get(request.tablet_id), request, ended)
        except ReplicaError as error:
            ended(error)

    async def Scan(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Rows of one tablet at one time."""
        try:
            check_name(request.dest_uuid, self._manager.uuid)
            async for chunk in self._scans.scan(self._manager.get(request.tablet_id), request):
                yield chunk
        except ReplicaError as error:
            yield pb.ScanChunk(error=error_to_pb(as_refusal(error, self._manager.on_fatal)), last=True)

    async def ListTablets(self, request: Any, context: Any) -> Any:
        """Status of all replicas, or of those asked for that are here."""

        async def act() -> Any:
            manager = self._manager
            wanted = list(request.tablet_ids) or sorted(manager.tablets)
            found = [manager.tablets[t] for t in wanted if t in manager.tablets]
            return pb.ListTabletsReply(
                replicas=[replica_status(h, manager.uuid, manager.options.tick_ms) for h in found]
            )

        return await self._answer(request, pb.ListTabletsReply, act)

    async def CreateTablet(self, request: Any, context: Any) -> Any:
        """Create a replica of a new tablet; the same again is a no-op."""
        return await self._answer(request, pb.CreateTabletReply, lambda: create_tablet(self._manager, request))

    async def DeleteTablet(self, request: Any, context: Any) -> Any:
        """Make the replica a tombstone."""
        return await self._answer(request, pb.DeleteTabletReply, lambda: delete_tablet(self._manager, request))

    async def ChangeConfig(self, request: Any, context: Any) -> Any:
        """Change the tablet's members by one; answers when the new config is committed."""

        async def act() -> Any:
            hosted = self._manager.get(request.tablet_id)
            replica, _ = hosted.serving()
            self._check_deadline(request.deadline_us)
            edits = [_edit(e) for e in request.edits]
            cas = opid_from_pb(request.committed_config_id) if request.has_cas else None
            decision = (request.decision_term, request.decision_version)
            if request.abort and edits:
                raise Refused(Code.INVALID_ARGUMENT, "an abort has no edits", edits=len(edits))

            def change(done: Callable[[Any], None]) -> None:
                if request.abort:
                    replica.abort_change(cas, done)
                else:
                    replica.change_config(edits, cas, decision, done)
                # Before this turn ends and its entry is sent; of what was refused, nothing is learned.
                self._manager.learn_config(replica.active_config)

            try:
                config = await when(
                    change,
                    CHANGE_TIMEOUT_S,
                    "the config change to commit",
                )
            except Refused as error:
                raise with_leader_hint(error, replica.active_config) from error
            return pb.ChangeConfigReply(config=config_to_pb(config))

        return await self._answer(request, pb.ChangeConfigReply, act)

    async def TransferLeadership(self, request: Any, context: Any) -> Any:
        """Hand the tablet's leadership over."""

        async def act() -> Any:
            replica, _ = self._manager.get(request.tablet_id).serving()
            self._check_deadline(request.deadline_us)
            cas = opid_from_pb(request.committed_config_id) if request.has_cas else None
            decision = (request.decision_term, request.decision_version)
            try:
                leader = await when(
                    lambda done: replica.transfer(request.target_uuid or None, done, cas=cas, decision=decision),
                    TRANSFER_TIMEOUT_S,
                    "the new leader",
                )
            except Refused as error:
                raise with_leader_hint(error, replica.active_config) from error
            return pb.TransferReply(new_leader_uuid=leader or "")

        return await self._answer(request, pb.TransferReply, act)

    async def Checksum(self, request: Any, context: Any) -> Any:
        """Checksum of this replica's rows at a time."""

        async def act() -> Any:
            return await self._scans.checksum(self._manager.get(request.tablet_id), request)

        return await self._answer(request, pb.ChecksumReply, act)

    async def ServerTime(self, request: Any, context: Any) -> Any:
        """A hybrid time above everything this server has seen."""

        async def act() -> Any:
            self._scans.observe(request.propagated_time)
            return pb.ServerTimeReply(hybrid_time=self._hybrid_clock.now())

        return await self._answer(request, pb.ServerTimeReply, act)

    async def Lateness(self, request: Any, context: Any) -> Any:
        """The longest lag of the event loop, and hold of the interpreter's lock, of the last seconds."""

        async def act() -> Any:
            lag_ms = self._manager.ticker.lags_ms.within(request.last_s)
            return pb.LatenessReply(loop_lag_ms=lag_ms, gil_hold_ms=self._gil.holds_ms.within(request.last_s))

        return await self._answer(request, pb.LatenessReply, act)

    async def Ledger(self, request: Any, context: Any) -> Any:
        """How far each source is applied, at the leader, after everything acknowledged before the call."""

        async def act() -> Any:
            replica, tablet = self._manager.get(request.tablet_id).serving()
            try:
                await when(replica.read_barrier, TIMEOUT_DEFAULT_S, "the read barrier")
            except Refused as error:
                raise with_leader_hint(error, replica.active_config) from error
            return pb.LedgerReply(sources=[_ledger_source(s) for s in tablet.ledger_sources()])

        return await self._answer(request, pb.LedgerReply, act)

    async def Flush(self, request: Any, context: Any) -> Any:
        """Flush, and compact if asked, now."""

        async def act() -> Any:
            hosted = self._manager.get(request.tablet_id)
            _, tablet = hosted.serving()
            await self._maintenance.flush(hosted)
            if request.compact:
                await self._maintenance.compact(hosted)
            return pb.FlushReply(flush_opid=opid_to_pb(tablet.flush_opid))

        return await self._answer(request, pb.FlushReply, act)

    async def ListQuarantine(self, request: Any, context: Any) -> Any:
        """What deletions have put aside."""
        return await self._answer(
            request, pb.ListQuarantineReply, lambda: quarantine_list(self._manager, request.tablet_id)
        )

    async def PurgeQuarantine(self, request: Any, context: Any) -> Any:
        """Remove what one tablet's deletions have put aside."""
        return await self._answer(
            request, pb.PurgeQuarantineReply, lambda: quarantine_purge(self._manager, request.tablet_id)
        )

    async def _answer(self, request: Any, reply: Any, act: Callable[[], Awaitable[Any]]) -> Any:
        try:
            check_name(request.dest_uuid, self._manager.uuid)
            return await act()
        except ReplicaError as error:
            return self._told(reply, error)

    def _told(self, reply: Any, error: ReplicaError) -> Any:
        return reply(error=error_to_pb(as_refusal(error, self._manager.on_fatal)))

    def _check_deadline(self, deadline_us: int) -> None:
        if deadline_us and self._manager.clock.wall_us() > deadline_us:
            raise Refused(Code.DEADLINE_PASSED, "the decision's deadline has passed", deadline_us=deadline_us)


async def create_tablet(manager: TabletManager, request: Any) -> Any:
    """Carry out a CreateTabletRequest, from whoever sent it; Refused as `TabletManager.create`. A tablet that is being
    copied here is as good as created."""
    check_tablet_id(request.tablet_id)
    table = request.table
    schema = schema_from_pb(table.schema)
    older = [schema_from_pb(s) for s in table.older_schemas]
    superblock = Superblock(
        tablet_id=request.tablet_id,
        table_id=table.table_id,
        table_name=table.name,
        data_state=DataState.READY,
        bucket=request.bucket,
        range_pos=request.range_pos,
        partition=partition_from_pb(table.partition, schema),
        table_schemas=(*older, schema),
        history_retention_us=table.history_retention_us,
    )
    config = config_from_pb(request.config).with_opid(OpId(0, 0))
    hosted = await manager.create(superblock, config, campaign=request.leader_hint == manager.uuid)
    # The others may have elected already, and found this replica missing: then their leader is bringing it.
    if hosted.replica is None and not hosted.opening and hosted.copy is None:
        raise Refused(Code.TABLET_FAILED, hosted.error or "the tablet could not be started", tablet=request.tablet_id)
    return pb.CreateTabletReply()


async def delete_tablet(manager: TabletManager, request: Any) -> Any:
    """Carry out a DeleteTabletRequest, from whoever sent it; Refused as `TabletManager.delete`."""
    cas = opid_from_pb(request.committed_config_id) if request.has_cas else None
    await manager.delete(request.tablet_id, cas, request.reason, committed=opid_from_pb(request.committed))
    return pb.DeleteTabletReply()


async def renew_tablet(manager: TabletManager, request: Any) -> Any:
    """Make room for a copy in the place of a damaged replica; Refused as `TabletManager.delete`."""
    cas = opid_from_pb(request.committed_config_id) if request.has_cas else None
    await manager.delete(request.tablet_id, cas, request.reason, damaged_only=True)
    return pb.DeleteTabletReply()


def _edit(message: Any) -> ConfigEdit:
    try:
        kind = EditKind(message.kind)
    except ValueError:
        raise Refused(Code.INVALID_ARGUMENT, "an edit is add, remove or change", kind=message.kind) from None
    return ConfigEdit(kind, member_from_pb(message.member))


def _ledger_source(state: Any) -> Any:
    source: SourceKey = state.source
    last = state.last_offset
    return pb.LedgerSource(
        source=source_to_pb(source),
        generation=state.generation,
        last_offset=last if last is not None else 0,
        has_last=last is not None,
    )
