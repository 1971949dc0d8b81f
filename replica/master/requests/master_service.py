"""MasterService. With few exceptions only the leading master answers requests, and it answers a change after its
commit."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import TypeVar

from nyala.replica.fs import MASTER
from nyala.replica.raft import Message
from nyala.replica.rpc import (
    Context,
    address_from_pb,
    address_to_pb,
    config_from_pb,
    config_to_pb,
    description_to_pb,
    error_to_pb,
    heartbeat_from_pb,
    host_of_caller,
    info_from_json,
    opid_from_pb,
    opid_to_pb,
    page_of,
    pb,
    pb_grpc,
    place_to_pb,
    proposal_from_pb,
    source_from_pb,
    writer_schema_from_pb,
)
from nyala.replica.types import (
    Address,
    Applied,
    Code,
    DataState,
    RaftConfig,
    Refused,
    ReplicaError,
    __version__,
    kafka_topics,
    new_uuid,
)
from nyala.replica.types.log_records import about
from nyala.schemas import build_level

from ..catalog import sources, tables
from ..catalog.catalog import CATALOG_ID
from ..catalog.read_times import agree, agreed_time
from ..catalog.records import DESIRED_CHANGE, TABLE, write
from ..catalog.tables import Change
from ..group.forming import MasterBuild, ask_build
from ..group.joining import Joining
from ..group.takeovers import next_takeover
from ..kafka.kafka_status import kafka_status
from ..state import MasterState
from ..tablets.dropped import holders_of
from ..tablets.orders import orders_for
from . import change_requests, desired, lists, replacing
from .changing_masters import add_master, remove_master
from .confirming import confirm_config
from .conversions import check_writer_schemas, checked_table, position_to_pb, positions_to_pb, read_time_from_pb
from .forgetting import forget_server
from .infos import tablet_infos
from .upgrading import check_server, finalize_upgrade, finalized_level

TABLETS_AT_ONCE = 32
"""The number of tablets that are named in the log before other work of the loop runs."""
_log = logging.getLogger("nyala.master")
_Request = TypeVar("_Request")
_Reply = TypeVar("_Reply")
_Method = Callable[["MasterService", _Request], Awaitable[_Reply]]
_Handler = Callable[["MasterService", _Request, Context], Awaitable[_Reply]]


def _named(reply_type: Callable[..., _Reply]) -> Callable[[_Handler[_Request, _Reply]], _Handler[_Request, _Reply]]:
    """Check that the request is meant for this master; turn a refusal into the reply's error."""

    def wrap(method: _Handler[_Request, _Reply]) -> _Handler[_Request, _Reply]:
        @wraps(method)
        async def answer(self: MasterService, request: _Request, context: Context) -> _Reply:
            try:
                self._check_name(getattr(request, "dest_uuid", ""))
                return await method(self, request, context)
            except Refused as error:
                return reply_type(error=error_to_pb(error))
            except ReplicaError as error:
                _log.exception("P %s %s failed", self.uuid, method.__name__)
                unknown = Refused(Code.UNAVAILABLE, str(error), applied=Applied.UNKNOWN)
                return reply_type(error=error_to_pb(unknown))

        return answer

    return wrap


def _answered(reply_type: Callable[..., _Reply]) -> Callable[[_Method[_Request, _Reply]], _Handler[_Request, _Reply]]:
    """As `_named`, and check that this master leads."""

    def wrap(method: _Method[_Request, _Reply]) -> _Handler[_Request, _Reply]:
        @wraps(method)
        async def answer(self: MasterService, request: _Request, _context: Context) -> _Reply:
            await self.state.lead()
            return await method(self, request)

        return _named(reply_type)(answer)

    return wrap


class MasterService(pb_grpc.MasterServiceServicer):
    """The gRPC handlers of one master. Concurrency: the loop's thread."""

    def __init__(
        self,
        uuid: str,
        stored: RaftConfig | None = None,
        *,
        ask_master: Callable[[Address], Awaitable[MasterBuild]] = ask_build,
    ) -> None:
        """`stored`: the config of the group to which this master's directory belongs; `ask_master`: asks for the build
        of the master at an address."""
        self.uuid = uuid
        self._stored = stored
        self._ask_master = ask_master
        self._state: MasterState | None = None
        self.joining: Joining | None = None
        """The `Joining` of a new master that waits for its group; None for any other master."""

    def open(self, state: MasterState) -> None:
        """Answer requests from now on; until then only `GetIdentity` and `Status` are answered."""
        self._state = state

    @property
    def state(self) -> MasterState:
        """The master's knowledge; Refused(NOT_READY) while it starts."""
        if self._state is None:
            raise Refused(Code.NOT_READY, "this master is starting, or waits for the other masters")
        return self._state

    def _check_name(self, dest_uuid: str) -> None:
        """Raise Refused INVALID_NAME if the request names another master. A request without a name is for the leading
        one."""
        if dest_uuid and dest_uuid != self.uuid:
            raise Refused(Code.INVALID_NAME, "this master has another uuid", meant=dest_uuid, own=self.uuid)

    def deliver(self, tablet_id: str, message: Message) -> str:
        """Deliver a message of another master. Before the group is open, the message is dropped; its sender repeats it.

        Returns why the message was refused, as `Replica.step`.
        """
        if tablet_id != CATALOG_ID:
            return f"masters have no tablet {tablet_id}"
        return self._state.group.replica.step(message) if self._state is not None else ""

    async def GetIdentity(self, _request: pb.Empty, _context: Context) -> pb.IdentityReply:
        """The uuid, cluster and build of this master; answered by any master, at any time."""
        cluster_id = self._state.cluster_id if self._state else ""
        return pb.IdentityReply(
            uuid=self.uuid,
            kind=MASTER,
            cluster_id=cluster_id,
            version=__version__,
            pid=os.getpid(),
            feature_level=build_level(),
            finalized_level=finalized_level(self._state.catalog) if self._state else 0,
            joining=self._joining(),
            takes_changes=True,
        )

    def _joining(self) -> pb.Joining | None:
        joining = self.joining
        if joining is None or self._state is not None:
            return None
        return pb.Joining(cluster_id=joining.cluster_id, address=address_to_pb(joining.own.addresses[0]))

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatReply:
        """Process a server's report; answer with its orders."""
        reply = pb.HeartbeatReply(master_uuid=self.uuid)
        try:
            self._check_name(request.dest_uuid)
            state = self.state
            reply.cluster_id = state.cluster_id
            reply.masters.extend(place_to_pb(m.uuid, m.addresses) for m in state.group.masters)
            if not request.server_uuid:
                raise Refused(Code.INVALID_ARGUMENT, "a heartbeat names its server")
            await state.lead()
            beat, reports = heartbeat_from_pb(request)
            if beat.cluster_id not in ("", state.cluster_id):
                state.other_clusters.note(beat, state.mono_us)
                raise Refused(
                    Code.WRONG_CLUSTER,
                    "the server belongs to another cluster",
                    server=request.server_uuid,
                    cluster=request.cluster_id,
                    own=state.cluster_id,
                )
            check_server(state.catalog, beat.feature_level, beat.version)
            await state.admission.admit(beat, host_of_caller(context), state.cluster_id)
            reply.catalog_term = await state.lead()  # the call took time
            reply.finalized_level = finalized_level(state.catalog)
            reply.need_full_report = state.soft.heartbeat(beat, reports, state.mono_us)
            reply.takes_slices, reply.heard_until = True, state.soft.servers[request.server_uuid].heard_until
            if reply.need_full_report:
                reply.full_report_waits = not state.soft.full_reports.may_send(request.server_uuid, state.mono_us)
            # Only members get addresses, because a server accepts messages of the servers whose addresses it gets here.
            sought = [uuid for uuid in request.seeking if state.catalog.tablets_with(uuid)]
            reply.found.extend(place_to_pb(m.uuid, m.addresses) for m in state.soft.places(sought))
            await state.descriptions.make_for(state.catalog, state.soft, request.server_uuid)
            await state.lead()  # the descriptions took time
            grace_us = state.options.abandoned_copy_grace_ms * 1000
            known = state.catalog, state.soft, state.inquiries, state.descriptions
            reply.orders.extend(orders_for(*known, request.server_uuid, state.mono_us, grace_us))
        except Refused as error:
            reply.error.CopyFrom(error_to_pb(error))
        return reply

    @_answered(pb.CreateTableReply)
    async def CreateTable(self, request: pb.CreateTableRequest) -> pb.CreateTableReply:
        """Assign ids, place the tablets, commit. A repeated request id gets the table that was created the first
        time."""
        state, asked = self.state, checked_table(request.table, self.state.options.topic_prefix)
        if asked.writer_schemas or asked.source.framing == "bare":
            await asyncio.to_thread(check_writer_schemas, asked.writer_schemas, asked.source)

        def created() -> Callable[[], Change]:
            return partial(
                tables.create_table,
                state.catalog,
                asked,
                state.servers(),
                state.replica_load(),
                state.clock.wall_us(),
                request_id=request.request_id,
                more_may_come=state.servers_may_come,
            )

        table_id = await state.group.change_aside(created, state.refresh_views)
        table = state.catalog.get(TABLE, table_id)
        if table is None:
            raise Refused(Code.NOT_FOUND, "the table of this request was dropped", request_id=request.request_id)
        reply = pb.CreateTableReply(table=info_from_json(write(table)))
        tablets, _ = await page_of(((t.tablet_id, t) for t in tablet_infos(state, table_id)), 0, reply.ByteSize())
        reply.tablets.extend(tablets)
        return reply

    @_answered(pb.SimpleReply)
    async def DropTable(self, request: pb.TableRequest) -> pb.SimpleReply:
        """Commit the drop; servers delete their replicas when they next report them."""
        state = self.state

        def dropped() -> Callable[[], Change]:
            found, _ = tables.find_table(state.catalog, request.name, request.table_id)
            tablets = state.catalog.tablets_of(found)
            holders = {t: holders_of(tablet, state.soft, t) for t, tablet in tablets if not tablet.dropped}
            wanted = request.name, request.table_id, state.clock.wall_us(), holders
            return partial(tables.drop_table, state.catalog, *wanted)

        await state.group.change_aside(dropped)
        return pb.SimpleReply()

    @_named(pb.TableReply)
    async def GetTable(self, request: pb.TableRequest, _context: Context) -> pb.TableReply:
        """A table by name or id; if requested, with its tablets and their places. A follower answers from its catalog
        if the request says how old that may be."""
        if request.staleness_us and not self.state.group.is_leader:
            self.state.group.check_fresh(request.staleness_us)
            return await lists.recorded_page(self.state, request)
        await self.state.lead()
        return await lists.table_page(self.state, request)

    @_answered(pb.ListTablesReply)
    async def ListTables(self, request: pb.TableRequest) -> pb.ListTablesReply:
        """Tables, by name."""
        return await lists.tables_page(self.state, request)

    @_answered(pb.ListServersReply)
    async def ListServers(self, request: pb.ListServersRequest) -> pb.ListServersReply:
        """Tablet servers and masters."""
        return await lists.servers_page(self.state, request)

    @_answered(pb.AddWriterSchemaReply)
    async def AddWriterSchema(self, request: pb.AddWriterSchemaRequest) -> pb.AddWriterSchemaReply:
        """Add a writer schema, or remove one; idempotent."""
        state, adds = self.state, request.HasField("schema") or not request.forget
        schema, _ = writer_schema_from_pb(request.schema), tables.find_table(state.catalog, request.table)
        if adds:
            await asyncio.to_thread(check_writer_schemas, (schema,))
        if request.forget:
            table = await state.group.change(
                lambda: tables.forget_writer_schema(state.catalog, request.table, request.forget)
            )
        if adds:
            table = await state.group.change(lambda: tables.add_writer_schema(state.catalog, request.table, schema))
        return pb.AddWriterSchemaReply(table=description_to_pb(table))

    @_answered(pb.OpenSourcesReply)
    async def OpenSources(self, request: pb.OpenSourcesRequest) -> pb.OpenSourcesReply:
        """Give a query its sources, all or none."""
        state = self.state

        def opened() -> Change:  # also converts beside the loop: there may be thousands
            own = kafka_topics.control_topics(state.options.topic_prefix)
            puts, deletes, once, made = sources.open_sources(state.catalog, request, state.clock.wall_us(), own)
            return puts, deletes, once, pb.OpenSourcesReply(table_id=made[0], positions=positions_to_pb(made[1]))

        reply: pb.OpenSourcesReply = await state.group.change_aside(lambda: opened)
        return reply

    @_answered(pb.AdvanceSourcesReply)
    async def AdvanceSources(self, request: pb.AdvanceSourcesRequest) -> pb.AdvanceSourcesReply:
        """Advance `done`; renew or release the lease."""
        state = self.state

        def advanced() -> Change:
            puts, deletes, once, moved = sources.advance_sources(state.catalog, request, state.clock.wall_us())
            return puts, deletes, once, pb.AdvanceSourcesReply(positions=positions_to_pb(moved))

        reply: pb.AdvanceSourcesReply = await state.group.change_aside(lambda: advanced)
        return reply

    @_answered(pb.ListSourcesReply)
    async def ListSources(self, request: pb.ListSourcesRequest) -> pb.ListSourcesReply:
        """Positions of one table or of all."""
        return await lists.sources_page(self.state, request)

    @_answered(pb.ResetSourceReply)
    async def ResetSource(self, request: pb.ResetSourceRequest) -> pb.ResetSourceReply:
        """Begin a new generation of a source at another offset, or lower `done` in the present generation."""
        state = self.state

        def reset() -> Change:
            if request.keep_generation:
                return sources.lower_source(state.catalog, request)
            return sources.reset_source(state.catalog, request, state.clock.wall_us())

        return pb.ResetSourceReply(position=position_to_pb(await state.group.change(reset)))

    async def _want(
        self, request_of: Callable[[MasterState, change_requests.Request], Change], request: pb.ReplicaRequest
    ) -> None:
        wanted = change_requests.Request(request.tablet_id, request.server_uuid, request.role, _seen(request))
        await self.state.group.change(lambda: request_of(self.state, wanted), self.state.refresh_views)

    @_answered(pb.SimpleReply)
    async def MoveReplica(self, request: pb.MoveReplicaRequest) -> pb.SimpleReply:
        """Store as desired that the replica of one server moves to another; with an empty `from`, that the server
        leads."""
        asked, seen = proposal_from_pb(request, new_uuid()), _seen(request)
        await self.state.group.change(lambda: change_requests.move(self.state, asked, seen), self.state.refresh_views)
        return pb.SimpleReply()

    @_answered(pb.SimpleReply)
    async def AddReplica(self, request: pb.ReplicaRequest) -> pb.SimpleReply:
        """Store as desired one more member. A voter joins as a learner first."""
        await self._want(change_requests.add, request)
        return pb.SimpleReply()

    @_answered(pb.SimpleReply)
    async def RemoveReplica(self, request: pb.ReplicaRequest) -> pb.SimpleReply:
        """Store as desired that the member leaves. If it is needed, it leaves after its replacement votes."""
        await self._want(change_requests.remove, request)
        return pb.SimpleReply()

    @_answered(pb.SimpleReply)
    async def ChangeRole(self, request: pb.ReplicaRequest) -> pb.SimpleReply:
        """Store as desired that the member votes, or stays without a vote."""
        await self._want(change_requests.change_role, request)
        return pb.SimpleReply()

    @_answered(pb.SimpleReply)
    async def CancelChange(self, request: pb.ReplicaRequest) -> pb.SimpleReply:
        """Cancel the desired change of a tablet; its effects so far are taken back."""
        await self._want(change_requests.cancel, request)
        return pb.SimpleReply()

    @_answered(pb.SimpleReply)
    async def SetReplication(self, request: pb.SetReplicationRequest) -> pb.SimpleReply:
        """Set the wanted number of voters, of a table or of one tablet."""
        seen = request.seen_changes if request.HasField("seen_changes") else None
        given = {"table": request.table, "tablet_id": request.tablet_id}
        wanted = lambda: desired.set_replication(self.state, request.replicas, seen=seen, **given)  # noqa: E731
        await self.state.group.change(wanted, self.state.refresh_views)
        return pb.SimpleReply()

    @_answered(pb.SimpleReply)
    async def RetireServer(self, request: pb.RetireServerRequest) -> pb.SimpleReply:
        """Set that a server is to be emptied and gets no replicas; or end that."""
        seen = request.seen_changes if request.HasField("seen_changes") else None
        uuid, undo, reason = request.server_uuid, request.undo, request.reason
        wanted = lambda: desired.retire(self.state, uuid, undo=undo, reason=reason, seen=seen)  # noqa: E731
        await self.state.group.change(wanted, self.state.refresh_views)
        return pb.SimpleReply()

    @_answered(pb.SimpleReply)
    async def MaintainServer(self, request: pb.MaintainServerRequest) -> pb.SimpleReply:
        """Put a server in maintenance for some seconds; with 0 seconds, end that."""
        seen = request.seen_changes if request.HasField("seen_changes") else None
        uuid, seconds, owner, reason = request.server_uuid, request.seconds, request.owner, request.reason
        await self.state.group.change(
            lambda: desired.maintain(self.state, uuid, seconds, owner=owner, reason=reason, seen=seen)
        )
        return pb.SimpleReply()

    @_answered(pb.SimpleReply)
    async def ForgetServer(self, request: pb.ForgetServerRequest) -> pb.SimpleReply:
        """Forget a tablet server that is gone for good."""
        seen = request.seen_changes if request.HasField("seen_changes") else None
        if await forget_server(self.state, request.server_uuid, seen):
            log = about(_log, process=self.uuid, peer=request.server_uuid)
            log.warning("tablet server %s was forgotten by an operator", request.server_uuid)
        return pb.SimpleReply()

    @_answered(pb.ReplaceTabletsReply)
    async def ReplaceTablets(self, request: pb.ReplaceTabletsRequest) -> pb.ReplaceTabletsReply:
        """Unsafe: put empty tablets in the place of lost ones, all or none. A repeated request gets the same
        tablets."""
        state = self.state
        ids, despite = request.tablet_ids, request.despite_replicas
        floors = {source_from_pb(floor.source): floor.offset for floor in request.floors}
        made, lowered = await state.group.change_aside(
            lambda: replacing.replace_tablets(state, ids, floors, despite_replicas=despite), state.refresh_views
        )
        for pos, (old, new) in enumerate(made.items(), 1):
            about(_log, old, self.uuid).warning("is given up, the empty tablet %s is in its place", new)
            if pos % TABLETS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return pb.ReplaceTabletsReply(
            replacements=[pb.Replacement(tablet_id=old, new_tablet_id=new) for old, new in made.items()],
            lowered=positions_to_pb(lowered),
        )

    @_answered(pb.SimpleReply)
    async def ConfirmConfig(self, request: pb.ConfirmConfigRequest) -> pb.SimpleReply:
        """Store a tablet's committed config that an operator confirms. From now on its members are believed."""
        state, tablet_id, config = self.state, request.tablet_id, config_from_pb(request.config)
        if await state.group.change(lambda: confirm_config(state.catalog, tablet_id, config, state.group.term)):
            about(_log, tablet_id, self.uuid).warning("config %s was confirmed by an operator", config.opid)
        return pb.SimpleReply()

    @_answered(pb.FinalizeUpgradeReply)
    async def FinalizeUpgrade(self, request: pb.FinalizeUpgradeRequest) -> pb.FinalizeUpgradeReply:
        """Raise the feature level: the cluster writes its new formats, and no process can go back to an earlier
        build."""
        level, before = await finalize_upgrade(self.state, request.level, request.without, self._ask_master)
        if level > before:
            _log.warning("P %s the cluster's feature level is %d from now on, it was %d", self.uuid, level, before)
        return pb.FinalizeUpgradeReply(level=level, before=before)

    @_answered(pb.ChangeMastersReply)
    async def ChangeMasters(self, request: pb.ChangeMastersRequest) -> pb.ChangeMastersReply:
        """Add a new master, or remove one. That is one change of the group's config, if it is still the one that the
        caller saw."""
        seen = opid_from_pb(request.seen)
        if request.HasField("add") == bool(request.remove):
            raise Refused(Code.INVALID_ARGUMENT, "a change of the masters adds one or removes one; nothing was changed")
        if request.remove:
            done = await remove_master(self.state, request.remove, seen, self._ask_master)
        else:
            done = await add_master(self.state, address_from_pb(request.add), seen, self._ask_master)
        if done.changed:
            _log.warning("P %s the masters' config is %s: %s", self.uuid, done.config.opid, done.words)
        return pb.ChangeMastersReply(config=config_to_pb(done.config), uuid=done.uuid, already=not done.changed)

    @_named(pb.AgreeReadTimeReply)
    async def AgreeReadTime(self, request: pb.AgreeReadTimeRequest, context: Context) -> pb.AgreeReadTimeReply:
        """Return the time at which all tasks of a Spark query read. The first committed proposal holds for ever."""
        known = self.state.catalog.read_times.of(request.load_id, request.query)
        if known is not None:  # It never changes, so this master need not lead.
            return pb.AgreeReadTimeReply(snapshot_time=known.time)
        await self.state.lead()
        group, catalog = self.state.group, self.state.catalog
        if not request.load_id:
            return pb.AgreeReadTimeReply(position=opid_to_pb(catalog.applied_opid))
        asked, made = read_time_from_pb(request, host_of_caller(context)), opid_from_pb(request.made)
        if not asked.time:
            return pb.AgreeReadTimeReply(snapshot_time=agreed_time(catalog, asked.load_id, made, asked.query))
        return pb.AgreeReadTimeReply(snapshot_time=await group.change(lambda: agree(catalog, asked, made)))

    @_answered(pb.TakeOverReply)
    async def TakeOver(self, request: pb.TakeOverRequest) -> pb.TakeOverReply:
        """Commit that a directory, which will get a copy, takes over a master's uuid. Messages of the uuid's earlier
        directories are refused from then on."""
        group = self.state.group

        def one_more() -> tables.Change:
            config = group.replica.committed_config
            puts, number = next_takeover(group.catalog, config, request.uuid, request.seen, group.in_touch)
            return puts, [], "", number

        number: int = await group.change(one_more)
        log = about(_log, process=self.uuid, peer=request.uuid)
        log.warning("master %s is taken over by another directory, number %d", request.uuid, number)
        return pb.TakeOverReply(number=number, index=group.catalog.applied_opid.index)

    async def Status(self, _request: pb.Empty, _context: Context) -> pb.MasterStatusReply:
        """The status of this master; answered by any master."""
        if self._state is None:
            known = pb.ReplicaStatus(committed_config=config_to_pb(self._stored) if self._stored else None)
            return pb.MasterStatusReply(uuid=self.uuid, replica=known)
        state = self._state
        status = state.group.replica.status()
        replica = pb.ReplicaStatus(
            tablet_id=CATALOG_ID,
            table_name="catalog",
            uuid=state.uuid,
            data_state=DataState.READY,
            phase=str(status.phase),
            role=str(status.role),
            term=status.term,
            leader_uuid=status.leader_uuid,
            last_logged=opid_to_pb(status.last_logged),
            commit_index=status.commit_index,
            applied_index=status.applied_index,
            committed_config=config_to_pb(status.committed_config),
            wal_bytes=status.wal_bytes,
            flush_index=status.flush_index,
            error=status.error or state.group.trouble,
        )
        return pb.MasterStatusReply(
            uuid=state.uuid,
            leader_uuid=status.leader_uuid,
            catalog_term=status.term,
            replica=replica,
            decisions_published=state.decisions_published,
            moves_active=state.catalog.count(DESIRED_CHANGE),
            refused_ticks=_refused_ticks(state),
            **kafka_status(state.kafka, state.mono_us),
        )


def _refused_ticks(state: MasterState) -> pb.RefusedTicks | None:
    """The refused ticks of a master that leads; None if the last one was not refused."""
    refused = state.refused_ticks
    if refused is None or not state.group.is_leader:
        return None
    return pb.RefusedTicks(count=refused.count, since_us_ago=state.mono_us - refused.since_us, why=refused.why)


def _seen(request: pb.MoveReplicaRequest | pb.ReplicaRequest) -> change_requests.Seen | None:
    seen = request.seen
    return (
        change_requests.Seen(opid_from_pb(seen.committed_config_id), seen.wishes) if request.HasField("seen") else None
    )
