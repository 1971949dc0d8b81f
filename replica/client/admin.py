"""Thin typed methods for the calls to masters and single servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.message import Message

from nyala.replica.rows import (
    CHECKSUM_DEFINITION,
    PartitionSpec,
    RowSum,
    SourceFormat,
    SourceKey,
    TableDescription,
    TableSchema,
    WriterSchemaInfo,
)
from nyala.replica.rpc import (
    NamedRequest,
    address_from_pb,
    address_to_pb,
    config_from_pb,
    config_to_pb,
    description_to_pb,
    edit_to_pb,
    opid_from_pb,
    opid_to_pb,
    pb,
    raise_if_error,
    source_to_pb,
    writer_schema_to_pb,
)
from nyala.replica.types import Address, Applied, Code, ConfigEdit, DataState, OpId, RaftConfig, Refused, new_uuid

from .calls import TabletCalls
from .masters import Masters
from .paging import NamedListRequest, pages_of
from .retry import Deadline, refusal_of_rpc_error
from .tables import TableHandle, locations_from_pb, table_from_pb


def row_sum_from_pb(reply: pb.ChecksumReply, definition: int) -> RowSum:
    """Return the checksum that a server sent; Refused(INVALID_ARGUMENT) if it has another definition than the caller
    requested.

    Servers from before definitions had numbers use definition 1: they ignore the number, and send none.
    """
    given = reply.definition or 1
    if given != definition:
        what = "the server defines checksums differently, so its checksum cannot be compared: upgrade the server"
        raise Refused(Code.INVALID_ARGUMENT, what, given=given, asked=definition)
    return RowSum(reply.checksum | reply.checksum_high << 64, reply.rows)


class Admin:
    """Catalog and cluster operations; every method raises NotApplied or OutcomeUnknown when it does not succeed.

    Concurrency: any thread.
    """

    def __init__(self, masters: Masters, calls: TabletCalls) -> None:
        self._masters = masters
        self._calls = calls

    # ---- tables

    def list_tables(self) -> list[TableHandle]:
        """Return all tables by name, without their tablets."""
        pages = self._masters.pages("ListTables", pb.TableRequest())
        return [table_from_pb(t) for page in pages for t in page.tables]

    def table_names(self) -> list[str]:
        """Return the names of all tables, sorted."""
        return [t.name for page in self._masters.pages("ListTables", pb.TableRequest(brief=True)) for t in page.tables]

    def get_table(self, name: str = "", *, table_id: str = "", timeout_s: float | None = None) -> TableHandle:
        """Return one table with its tablets, by name or id; NOT_FOUND if there is none. The client learns the leaders'
        addresses from it."""
        request = pb.TableRequest(name=name, table_id=table_id, with_tablets=True)
        reply = self._masters.whole_table(request, timeout_s=timeout_s)
        self._calls.locator.remember(locations_from_pb(reply))
        return table_from_pb(reply.table, list(reply.tablets), reply.cluster_id)

    def tablet_infos(self, name: str) -> list[pb.TabletInfo]:
        """Return the state and the desired state of each tablet of a table, from the masters."""
        return list(self._masters.whole_table(pb.TableRequest(name=name, with_tablets=True)).tablets)

    def create_table(
        self,
        name: str,
        schema: TableSchema,
        partition: PartitionSpec,
        *,
        replication_factor: int = 3,
        history_retention_us: int = 0,
        source: SourceFormat | None = None,
        writer_schemas: Sequence[WriterSchemaInfo] = (),
        request_id: str = "",
        timeout_s: float | None = None,
    ) -> TableHandle:
        """Create a table; a repeated `request_id` returns the table that it made. ALREADY_EXISTS for a taken name."""
        table = TableDescription(
            "",
            name,
            schema,
            partition,
            replication_factor,
            history_retention_us,
            created_us=0,
            source=source or SourceFormat(),
            writer_schemas=tuple(writer_schemas),
        )
        request = pb.CreateTableRequest(table=description_to_pb(table), request_id=request_id or new_uuid())
        reply = self._masters.call("CreateTable", request, timeout_s=timeout_s)
        return table_from_pb(reply.table, list(reply.tablets))

    def drop_table(self, name: str) -> None:
        """Drop the table that has this name now. NOT_FOUND if none has it."""
        table_id = self._masters.call("GetTable", pb.TableRequest(name=name)).table.table_id
        try:
            self._masters.call("DropTable", pb.TableRequest(name=name, table_id=table_id))
        except Refused as e:
            # By id: if a repetition after a lost answer finds no table, the first call has dropped it.
            if not (e.applied is Applied.UNKNOWN and e.code in (Code.NOT_FOUND, Code.WRONG_TABLE)):
                raise
        self._calls.locator.forget_table(name)

    def add_writer_schema(self, table: str, schema: WriterSchemaInfo) -> TableHandle:
        """Register one writer schema of the table's topic with the masters."""
        request = pb.AddWriterSchemaRequest(table=table, schema=writer_schema_to_pb(schema))
        return table_from_pb(self._masters.call("AddWriterSchema", request).table)

    def forget_writer_schema(self, table: str, fingerprint: str) -> TableHandle:
        """Forget one writer schema, if it is known: events written with it become dead letters from now on."""
        request = pb.AddWriterSchemaRequest(table=table, forget=fingerprint)
        return table_from_pb(self._masters.call("AddWriterSchema", request).table)

    # ---- servers

    def list_servers(self) -> pb.ListServersReply:
        """Return the tablet servers, the masters and the cluster id."""
        first, *others = self._masters.pages("ListServers", pb.ListServersRequest())
        whole: pb.ListServersReply = first
        for page in others:
            whole.servers.extend(page.servers)
        whole.next = ""
        return whole

    def _desired_changes(self) -> int:
        """Return the number of changes of desired state so far."""
        reply = self._masters.call("ListServers", pb.ListServersRequest(limit_bytes=1))
        return int(reply.desired_changes)

    def status_of_master(self, address: Address, *, timeout_s: float = 5.0) -> pb.MasterStatusReply:
        """Return the status of the master at this address, whether it leads or not; Refused if it does not answer."""
        reply: pb.MasterStatusReply = self._masters.ask(address, "Status", pb.Empty(), timeout_s)
        return reply

    def identity_of_master(self, address: Address, *, timeout_s: float = 5.0) -> pb.IdentityReply:
        """Return the identity and feature levels of the master at this address; Refused if it does not answer."""
        reply: pb.IdentityReply = self._masters.ask(address, "GetIdentity", pb.Empty(), timeout_s)
        return reply

    def finalize_upgrade(self, level: int = 0, *, without: Sequence[str] = ()) -> tuple[int, int]:
        """Raise the cluster's feature level, to that of the masters' build if `level` is 0; returns it and the former
        one.

        Afterwards no process can go back to a build that does not know the level. Refused(ILLEGAL_STATE) if a process
        runs such a build, or if one does not answer and is not in `without` (uuids of tablet servers).
        """
        request = pb.FinalizeUpgradeRequest(level=level, without=without)
        reply = self._masters.call("FinalizeUpgrade", request)
        return reply.level, reply.before

    def check_masters(self) -> None:
        """Return once a leading master has answered. The answer has at most one table's name, so it is cheap."""
        self._masters.call("ListTables", pb.TableRequest(brief=True, limit_bytes=1))

    def kafka_of_masters(self, *, timeout_s: float = 5.0) -> str:
        """Return the Kafka that the masters were started with, "host:port[,host:port]"; empty if none of them names
        one."""
        for address in self._masters.addresses:
            with suppress(Refused):
                if named := self.status_of_master(address, timeout_s=timeout_s).kafka_bootstrap:
                    return named
        return ""

    def catalog_term(self, *, timeout_s: float = 5.0) -> int:
        """Return the highest term that any master has reached; 0 if none answers."""
        terms = [0]
        for address in self._masters.addresses:
            with suppress(Refused):
                terms.append(self.status_of_master(address, timeout_s=timeout_s).catalog_term)
        return max(terms)

    def list_tablets(self, server: pb.ServerInfo, tablet_ids: Sequence[str] = ()) -> list[pb.ReplicaStatus]:
        """Return the replicas on one server, all or the named ones."""
        request = pb.ListTabletsRequest(tablet_ids=tablet_ids)
        return [r for page in self._server_pages(server, "ListTablets", request) for r in page.replicas]

    def lateness(self, server: pb.ServerInfo, last_s: float) -> pb.LatenessReply:
        """Return how late a server's event loop was at most in these seconds, and how long one thread held its
        interpreter's lock."""
        reply: pb.LatenessReply = self._server(server, "Lateness", pb.LatenessRequest(last_s=last_s))
        return reply

    def checksum(
        self,
        server: pb.ServerInfo,
        tablet_id: str,
        snapshot_time: int,
        *,
        definition: int = CHECKSUM_DEFINITION,
        timeout_s: float = 60.0,
    ) -> RowSum:
        """Return the checksum of one replica's rows as of one hybrid time. Refused(INVALID_ARGUMENT) unless the server
        uses that definition: checksums of two definitions cannot be compared."""
        request = pb.ChecksumRequest(
            tablet_id=tablet_id, snapshot_time=snapshot_time, timeout_us=int(timeout_s * 1e6), definition=definition
        )
        reply = self._server(server, "Checksum", request, timeout_s=timeout_s + 5)
        return row_sum_from_pb(reply, definition)

    def flush(self, server: pb.ServerInfo, tablet_id: str, *, compact: bool = False) -> OpId:
        """Flush one replica's memory store, and compact its blocks if requested. Returns the flush OpId."""
        reply = self._server(server, "Flush", pb.FlushRequest(tablet_id=tablet_id, compact=compact), timeout_s=300)
        return opid_from_pb(reply.flush_opid)

    def list_quarantine(self, server: pb.ServerInfo, tablet_id: str = "") -> list[pb.QuarantineItem]:
        """Return the quarantined folders of deletions on one server, of one tablet or of all."""
        request = pb.QuarantineRequest(tablet_id=tablet_id)
        return [q for page in self._server_pages(server, "ListQuarantine", request, timeout_s=60) for q in page.items]

    def purge_quarantine(self, server: pb.ServerInfo, tablet_id: str) -> pb.PurgeQuarantineReply:
        """Remove the quarantined folders of one tablet on one server; its tombstone stays."""
        request = pb.QuarantineRequest(tablet_id=tablet_id)
        reply: pb.PurgeQuarantineReply = self._server(server, "PurgeQuarantine", request, timeout_s=300)
        return reply

    def _server(
        self, server: pb.ServerInfo, method: str, request: NamedRequest, *, timeout_s: float | None = None
    ) -> Any:
        return self._calls.at_server(_address(server), server.uuid, method, request, timeout_s=timeout_s)

    def _server_pages(
        self, server: pb.ServerInfo, method: str, request: NamedListRequest, *, timeout_s: float | None = None
    ) -> Iterator[Any]:
        return pages_of(lambda asked: self._server(server, method, asked, timeout_s=timeout_s), request)

    def list_copies(self, server: pb.ServerInfo, *, timeout_s: float = 5.0) -> list[pb.CopyJob]:
        """Return the tablet copies into a server, those that ended lately included."""
        request = pb.ListCopiesRequest(dest_uuid=server.uuid)
        return list(self._copier(server, "ListCopies", request, mutates=False, timeout_s=timeout_s).jobs)

    def start_copy(
        self, server: pb.ServerInfo, source: pb.ServerInfo, leader: pb.ReplicaStatus, current_state: DataState
    ) -> None:
        """Begin a copy into a server from another one, which must lead the tablet by its own status.

        `current_state`: the state of the target's replica as the caller knows it; the target compares it. Refused
        BAD_TERM, ILLEGAL_STATE or ALREADY_INPROGRESS: no copy was begun.
        """
        request = pb.StartTabletCopyRequest(
            dest_uuid=server.uuid,
            from_uuid=source.uuid,
            from_addresses=source.addresses,
            tablet_id=leader.tablet_id,
            term=leader.term,
            current_state=int(current_state),
            config=leader.committed_config.opid,
        )
        self._copier(server, "StartTabletCopy", request, mutates=True, timeout_s=5.0)

    def cancel_copy(self, server: pb.ServerInfo, tablet_id: str, *, started_us: int = 0) -> pb.CancelCopyReply:
        """End the copy of a tablet into a server. Returns the job and the replica's state after the copy has ended.

        `started_us` identifies the job, so that the call may be repeated; 0: any that runs. NOT_FOUND if none runs.
        """
        request = pb.CancelCopyRequest(dest_uuid=server.uuid, tablet_id=tablet_id, started_us=started_us)
        reply: pb.CancelCopyReply = self._copier(server, "CancelCopy", request, mutates=True, timeout_s=30.0)
        return reply

    def _copier(self, server: pb.ServerInfo, method: str, request: Message, *, mutates: bool, timeout_s: float) -> Any:
        stub = self._calls.channels.copier(_address(server))
        try:
            reply = getattr(stub, method)(request, timeout=timeout_s)
        except grpc.RpcError as e:
            raise refusal_of_rpc_error(e, mutates=mutates) from e
        raise_if_error(reply.error)
        return reply

    # ---- sources

    def open_sources(
        self,
        table: str,
        opens: Sequence[pb.SourceOpen],
        *,
        owner_run: str,
        lease_us: int,
        checkpoint_table_id: str = "",
    ) -> pb.OpenSourcesReply:
        """Take ownership of the named sources for one run of a query. Refused SOURCE_OWNED, SOURCE_POSITION or
        WRONG_TABLE."""
        request = pb.OpenSourcesRequest(
            table=table, checkpoint_table_id=checkpoint_table_id, opens=opens, owner_run=owner_run, lease_us=lease_us
        )
        reply: pb.OpenSourcesReply = self._masters.call("OpenSources", request)
        return reply

    def advance_sources(
        self,
        table_id: str,
        advances: Sequence[pb.SourceAdvance],
        *,
        owner_run: str,
        lease_us: int,
        release: bool = False,
        timeout_s: float | None = None,
    ) -> list[pb.SourcePosition]:
        """Move `done` forward, and renew or release the lease. SOURCE_OWNED if another run owns it."""
        request = pb.AdvanceSourcesRequest(
            table_id=table_id, owner_run=owner_run, lease_us=lease_us, advances=advances, release=release
        )
        return list(self._masters.call("AdvanceSources", request, timeout_s=timeout_s).positions)

    def list_sources(self, table: str = "") -> list[pb.SourcePosition]:
        """Return the source positions of one table, or of all."""
        pages = self._masters.pages("ListSources", pb.ListSourcesRequest(table=table))
        return [p for page in pages for p in page.positions]

    def reset_source(
        self,
        table: str,
        source: SourceKey,
        to_offset: int,
        *,
        force: bool = False,
        topic: str = "",
        generation: int = 0,
    ) -> pb.SourcePosition:
        """Begin a new generation of a source at another offset. `topic`: its name, for a source of a new topic id.

        `generation`: the present one as the caller knows it; refused if it has changed meanwhile. 0: any.
        """
        request = pb.ResetSourceRequest(
            table=table,
            source=source_to_pb(source),
            to_offset=to_offset,
            force=force,
            topic=topic,
            generation=generation,
        )
        reply: pb.ResetSourceReply = self._masters.call("ResetSource", request)
        return reply.position

    def lower_source(self, table: str, source: SourceKey, to_offset: int) -> pb.SourcePosition:
        """Lower a source's done position to `to_offset`; a lower one stays. The source's owner loses the lease."""
        request = pb.ResetSourceRequest(
            table=table, source=source_to_pb(source), to_offset=to_offset, keep_generation=True
        )
        reply: pb.ResetSourceReply = self._masters.call("ResetSource", request)
        return reply.position

    def masters_status(self) -> pb.MasterStatusReply:
        """Return the status of the leading master, with the masters' committed config."""
        self._masters.call("ListServers", pb.ListServersRequest())
        reply: pb.MasterStatusReply = self._masters.ask(self._masters.current, "Status", pb.Empty(), 5.0)
        return reply

    def change_masters(
        self, seen: OpId, *, add: Address | None = None, remove: str = "", timeout_s: float | None = None
    ) -> pb.ChangeMastersReply:
        """Add the new master that waits at an address, or remove one by its uuid: one change of the masters' config.

        `seen`: the committed config's OpId that the caller knows; CAS_FAILED if another one is in force. An added
        master votes once it has caught up. If the config is as wanted already, nothing is changed, and the reply says
        so.
        """
        request = pb.ChangeMastersRequest(
            add=None if add is None else address_to_pb(add), remove=remove, seen=opid_to_pb(seen)
        )
        reply: pb.ChangeMastersReply = self._masters.call("ChangeMasters", request, timeout_s=timeout_s)
        return reply

    def confirm_config(self, tablet_id: str, config: RaftConfig) -> None:
        """Make this the tablet's committed config at the masters. From then on they believe its members, and no other
        server.

        It is for a config that was forced. Refused(CAS_FAILED) if the masters know one at the same or a later position.
        """
        self._masters.call("ConfirmConfig", pb.ConfirmConfigRequest(tablet_id=tablet_id, config=config_to_pb(config)))

    # ---- placement, by way of the masters

    # With `seen` (from `tablet_infos`) a request holds for that state of the tablet only: a late one, or a repetition
    # after the change was made and undone, is refused with CAS_FAILED.

    def move_replica(
        self, tablet_id: str, from_uuid: str, to_uuid: str, *, reason: str = "", seen: pb.TabletInfo | None = None
    ) -> None:
        """Request that one replica moves to another server; with an empty `from_uuid`, that another member leads.
        Desired state."""
        request = pb.MoveReplicaRequest(
            tablet_id=tablet_id, from_uuid=from_uuid, to_uuid=to_uuid, reason=reason, seen=_seen(seen)
        )
        self._masters.call("MoveReplica", request)

    def add_replica(self, tablet_id: str, server_uuid: str, role: str, *, seen: pb.TabletInfo | None = None) -> None:
        """Request one more member. Desired state."""
        request = pb.ReplicaRequest(tablet_id=tablet_id, server_uuid=server_uuid, role=role, seen=_seen(seen))
        self._masters.call("AddReplica", request)

    def remove_replica(self, tablet_id: str, server_uuid: str, *, seen: pb.TabletInfo | None = None) -> None:
        """Request the removal of one member. Desired state."""
        request = pb.ReplicaRequest(tablet_id=tablet_id, server_uuid=server_uuid, seen=_seen(seen))
        self._masters.call("RemoveReplica", request)

    def change_role(self, tablet_id: str, server_uuid: str, role: str, *, seen: pb.TabletInfo | None = None) -> None:
        """Request that a member votes (`VOTER`), or stays without a vote (`NON_VOTER`). Desired state."""
        request = pb.ReplicaRequest(tablet_id=tablet_id, server_uuid=server_uuid, role=role, seen=_seen(seen))
        self._masters.call("ChangeRole", request)

    def cancel_change(self, tablet_id: str, *, seen: pb.TabletInfo | None = None) -> None:
        """Withdraw the desired change of a tablet. NOT_FOUND if there is none, ILLEGAL_STATE if it is too late."""
        self._masters.call("CancelChange", pb.ReplicaRequest(tablet_id=tablet_id, seen=_seen(seen)))

    def set_replication(self, table: str, replicas: int, *, tablet_id: str = "") -> None:
        """Set the desired number of voters of a table, or of one tablet (0: its table's number). Desired state.

        CAS_FAILED if another caller has changed desired state since this call began.
        """
        request = pb.SetReplicationRequest(
            table=table, tablet_id=tablet_id, replicas=replicas, seen_changes=self._desired_changes()
        )
        self._masters.call("SetReplication", request)

    def retire_server(self, server_uuid: str, *, undo: bool = False, reason: str = "") -> None:
        """Request that a tablet server is emptied; with `undo`, withdraw that. Desired state; CAS_FAILED as in
        `set_replication`."""
        request = pb.RetireServerRequest(
            server_uuid=server_uuid, undo=undo, reason=reason, seen_changes=self._desired_changes()
        )
        self._masters.call("RetireServer", request)

    def maintain_server(self, server_uuid: str, seconds: int, *, owner: str = "", reason: str = "") -> None:
        """Put a tablet server in maintenance by `owner` for so many seconds from now on; 0 ends it.

        Meanwhile its replicas are not replaced, whether it is silent or not, and it gets no new ones. A repeated call
        sets a new end. INVALID_ARGUMENT for more than 30 days; CAS_FAILED as in `set_replication`.
        """
        request = pb.MaintainServerRequest(
            server_uuid=server_uuid,
            seconds=seconds,
            owner=owner,
            reason=reason,
            seen_changes=self._desired_changes(),
        )
        self._masters.call("MaintainServer", request)

    def forget_server(self, server_uuid: str) -> None:
        """Make the masters forget a tablet server that is gone for good. If they do not know it, nothing changes.

        ILLEGAL_STATE if it sends heartbeats, answers at its address, or is a member of a tablet; NOT_READY while the
        leading master cannot know that yet; CAS_FAILED as in `set_replication`.
        """
        request = pb.ForgetServerRequest(server_uuid=server_uuid, seen_changes=self._desired_changes())
        self._masters.call("ForgetServer", request)

    def quiesce_server(self, server: pb.ServerInfo, quiesce: bool | None = None) -> pb.QuiesceReply:
        """Make a tablet server's process begin or end to quiesce; None: neither. Returns its progress.

        CAS_FAILED if another caller changed that meanwhile, or the server was restarted; INVALID_ARGUMENT if its build
        cannot quiesce.
        """
        address = address_from_pb(server.addresses[0])
        status: pb.QuiesceReply = self._calls.at_server(address, server.uuid, "Quiesce", pb.QuiesceRequest())
        if quiesce is None or status.quiescing == quiesce:
            return status
        wanted = pb.QuiesceRequest(quiesce=quiesce, seen=status.changes)
        reply: pb.QuiesceReply = self._calls.at_server(address, server.uuid, "Quiesce", wanted)
        return reply

    def replace_tablets(
        self,
        tablet_ids: Sequence[str],
        *,
        floors: Mapping[SourceKey, int] | None = None,
        despite_replicas: bool = False,
    ) -> pb.ReplaceTabletsReply:
        """Unsafe: replace lost tablets by empty ones, all or none, and lower their tables' source positions.

        `floors`: the first offset that Kafka still has, by source. For a tablet that was replaced before, the answer
        has its replacement. ILLEGAL_STATE while a live server holds rows of one of them, unless `despite_replicas`.
        """
        request = pb.ReplaceTabletsRequest(
            tablet_ids=tablet_ids,
            floors=[pb.SourceFloor(source=source_to_pb(s), offset=offset) for s, offset in (floors or {}).items()],
            despite_replicas=despite_replicas,
        )
        reply: pb.ReplaceTabletsReply = self._masters.call("ReplaceTablets", request)
        return reply

    # ---- a tablet's leader

    def change_config(
        self,
        table_name: str,
        tablet_id: str,
        edits: Sequence[ConfigEdit],
        *,
        cas: OpId | None = None,
        timeout_s: float | None = None,
    ) -> RaftConfig:
        """Propose one config change at the leader; returns the committed config.

        With `cas` the call may be repeated, because a second attempt is refused CAS_FAILED; without it, a call whose
        outcome is unknown is not repeated.
        """
        request = pb.ChangeConfigRequest(
            tablet_id=tablet_id,
            edits=map(edit_to_pb, edits),
            committed_config_id=None if cas is None else opid_to_pb(cas),
            has_cas=cas is not None,
        )
        reply = self._at_leader(table_name, tablet_id, "ChangeConfig", request, cas is not None, timeout_s)
        return config_from_pb(reply.config)

    def abort_change(self, table_name: str, tablet_id: str) -> RaftConfig:
        """Make the leader withdraw a config change that it cannot commit; returns the config in force again.

        NOT_FOUND if none is under way.
        """
        request = pb.ChangeConfigRequest(tablet_id=tablet_id, abort=True)
        reply = self._at_leader(table_name, tablet_id, "ChangeConfig", request, False, None)
        return config_from_pb(reply.config)

    def transfer_leadership(self, table_name: str, tablet_id: str, target_uuid: str = "") -> str:
        """Transfer leadership to a member, or to the most up-to-date one; returns the uuid of the new leader."""
        request = pb.TransferRequest(tablet_id=tablet_id, target_uuid=target_uuid)
        reply = self._at_leader(table_name, tablet_id, "TransferLeadership", request, bool(target_uuid), None)
        return str(reply.new_leader_uuid)

    def ledger(self, table_name: str, tablet_id: str) -> list[pb.LedgerSource]:
        """Return the tablet's ledger, one part for each source."""
        reply = self._at_leader(table_name, tablet_id, "Ledger", pb.LedgerRequest(tablet_id=tablet_id), True, None)
        return list(reply.sources)

    def _at_leader(
        self,
        table_name: str,
        tablet_id: str,
        method: str,
        request: NamedRequest,
        retry_safe: bool,
        timeout_s: float | None,
    ) -> Any:
        def ask(stub: Any, uuid: str, attempt_timeout_s: float) -> Any:
            request.dest_uuid = uuid
            reply = getattr(stub, method)(request, timeout=attempt_timeout_s)
            raise_if_error(reply.error)
            return reply

        deadline = Deadline(timeout_s or self._calls.options.timeout_s)
        mutates = method != "Ledger"
        return self._calls.at_leader(
            table_name, tablet_id, ask, deadline=deadline, mutates=mutates, retry_safe=retry_safe
        )


def _seen(info: pb.TabletInfo | None) -> pb.TabletSeen | None:
    return None if info is None else pb.TabletSeen(committed_config_id=info.config.opid, wishes=info.wishes)


def _address(server: pb.ServerInfo) -> Address:
    if not server.addresses:
        raise Refused(
            Code.UNAVAILABLE,
            "no address of this server is known; it has to send a heartbeat first: `nyala server list`",
            uuid=server.uuid,
        )
    return address_from_pb(server.addresses[0])
