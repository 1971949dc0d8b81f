"""The descriptions of tablets and tablet servers that masters send to clients and operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nyala.replica.policy import DesiredChange
from nyala.replica.rpc import address_to_pb, config_to_pb, opid_to_pb, pb
from nyala.replica.types import Heartbeat, RaftConfig

from ..catalog.catalog import Catalog
from ..catalog.records import DESIRED_CHANGE, MAINTENANCE, RETIRED, Tablet
from ..heartbeats.applicants import Applicant
from ..heartbeats.soft_state import LIVE, SoftState
from ..state import MasterState
from ..tablets.draining import drain_of
from ..tablets.view import health_of, leader_of, server_view, wanted_voters

DOUBTS_MAX = 5
"""The most doubts about one server in a listing of servers."""


def tablets_after(
    catalog: Catalog, table_id: str, after: tuple[int, int] | None = None
) -> Iterator[tuple[str, Tablet]]:
    """(tablet id, record) of a table's tablets in order of position, after (range, bucket) `after`."""
    for tablet_id, tablet in catalog.tablets_of(table_id):
        if not tablet.dropped and (after is None or (tablet.range_pos, tablet.bucket) > after):
            yield tablet_id, tablet


def tablet_infos(master: MasterState, table_id: str) -> Iterator[pb.TabletInfo]:
    """The tablets of a table in order of position, with the known configs and leaders."""
    return (tablet_info(master, tablet_id, tablet) for tablet_id, tablet in tablets_after(master.catalog, table_id))


def tablet_info(master: MasterState, tablet_id: str, tablet: Tablet) -> pb.TabletInfo:
    """One tablet, with its known config and leader."""
    state = master.soft.tablets.get(tablet_id)
    config = state.config if state and state.config else tablet.known_config
    leader = leader_of(master.soft, state, master.options, master.mono_us)
    info = pb.TabletInfo(
        tablet_id=tablet_id,
        table_id=tablet.table_id,
        bucket=tablet.bucket,
        range_pos=tablet.range_pos,
        config=config_to_pb(_with_addresses(master.soft, config)),
        leader_uuid=leader or (state.leader_uuid if state else ""),
        term=max(state.leader_term, 0) if state else 0,
        running=bool(leader),
        replication_factor=wanted_voters(master.catalog, tablet_id),
        own_replication_factor=bool(tablet.replication_factor),
        wishes=tablet.wishes,
        health={
            m.uuid: health_of(master.soft, tablet_id, m.uuid, master.options, master.mono_us).name
            for m in config.members
        },
    )
    if (desired := master.catalog.get(DESIRED_CHANGE, tablet_id)) is not None:
        info.wish.CopyFrom(_change_info(desired))
    if (unproven := master.soft.unproven(tablet_id, master.mono_us)) is not None:
        info.unproven.CopyFrom(
            pb.UnprovenConfig(
                config=config_to_pb(unproven.config),
                known=opid_to_pb(unproven.recorded.opid),
                known_voters=unproven.recorded.voters,
                told_by=unproven.told_by,
                since_us_ago=unproven.since_us_ago,
                believed=unproven.believed,
            )
        )
    return info


def recorded_info(tablet_id: str, tablet: Tablet) -> pb.TabletInfo:
    """One tablet as a follower knows it: its place in the table, and its recorded config."""
    return pb.TabletInfo(
        tablet_id=tablet_id,
        table_id=tablet.table_id,
        bucket=tablet.bucket,
        range_pos=tablet.range_pos,
        config=config_to_pb(tablet.known_config),
    )


def _with_addresses(soft: SoftState, config: RaftConfig) -> RaftConfig:
    """The config with the addresses from which its servers were last heard."""
    members = []
    for member in config.members:
        server = soft.servers.get(member.uuid)
        members.append(replace(member, addresses=server.addresses) if server and server.addresses else member)
    return replace(config, members=tuple(members))


def server_infos(master: MasterState, uuids: Sequence[str]) -> list[pb.ServerInfo]:
    """The descriptions of these tablet servers for operators."""
    infos = []
    for server in (master.soft.servers[u] for u in uuids if u in master.soft.servers):
        view = server_view(master.soft, server, master.options, master.mono_us)
        live = [r for r in server.replicas.values() if r.data_state in LIVE]
        infos.append(
            pb.ServerInfo(
                uuid=server.uuid,
                addresses=[address_to_pb(a) for a in server.addresses],
                last_heartbeat_us_ago=max(0, master.mono_us - server.last_heard_us),
                alive=view.alive,
                quiescing=view.quiescing,
                location=server.last_report.location,
                replicas=len(live),
                leaders=sum(r.role == "LEADER" for r in live),
                bytes_on_disk=sum(r.bytes_on_disk + r.wal_bytes for r in live),
                memory_bytes=server.last_report.memory_bytes,
                version=server.last_report.version,
                feature_level=server.last_report.feature_level,
                finalized_level=server.last_report.finalized_level,
                loop_lag_ms_max=server.last_report.loop_lag_ms_max,
                gil_hold_ms_max=server.last_report.gil_hold_ms_max,
                open_files=pb.ResourceUse(**server.last_report.open_files._asdict()),
                memory_maps=pb.ResourceUse(**server.last_report.memory_maps._asdict()),
                tablets_max=server.last_report.tablets_max,
                copies_failing=[pb.FailingCopy(**copy._asdict()) for copy in server.last_report.copies_failing],
                avoided=view.avoided,
                doubts=master.soft.doubts(server.uuid, master.mono_us)[:DOUBTS_MAX],
            )
        )
    known = {i.uuid for i in infos}
    infos += [pb.ServerInfo(uuid=u) for u in uuids if u not in known and RETIRED + u in master.catalog]
    for info in infos:
        _add_drain(master, info)
        _add_maintenance(master, info)
    return sorted(infos, key=lambda info: info.uuid)


def _add_drain(master: MasterState, info: pb.ServerInfo) -> None:
    retired = master.catalog.get(RETIRED, info.uuid)
    if retired is None:
        return
    drain = drain_of(master.catalog, master.soft, master.kept, info.uuid)
    info.draining, info.drained = True, drain.done
    info.tablets_left, info.tablets_unreported = drain.left, drain.unreported
    info.tablets_at_first = max(retired.tablets_at_first, drain.left)
    info.drain_reason = retired.reason


def _add_maintenance(master: MasterState, info: pb.ServerInfo) -> None:
    works = master.catalog.get(MAINTENANCE, info.uuid)
    if works is not None and master.clock.wall_us() < works.until_us:
        info.maintenance_until_us = works.until_us
        info.maintenance_owner, info.maintenance_reason = works.owner, works.reason


def _change_info(desired: DesiredChange) -> pb.DesiredChangeInfo:
    """A desired change of the catalog, for operators."""
    return pb.DesiredChangeInfo(
        kind=desired.kind,
        from_uuid=desired.from_uuid,
        to_uuid=desired.to_uuid,
        deadline_us=desired.deadline_us,
        reason=desired.reason,
        plan_id=desired.plan_id,
        cancelled=desired.cancelled,
    )


def foreign_info(beat: Heartbeat) -> pb.ServerInfo:
    """A tablet server of another cluster, as its own heartbeat describes it."""
    return pb.ServerInfo(
        uuid=beat.server_uuid,
        addresses=map(address_to_pb, beat.addresses),
        alive=True,
        location=beat.location,
        version=beat.version,
        cluster_id=beat.cluster_id,
    )


def applicant_info(applicant: Applicant, now_us: int) -> pb.ServerInfo:
    """A sender of heartbeats that does not count."""
    return pb.ServerInfo(
        uuid=applicant.uuid,
        addresses=map(address_to_pb, applicant.addresses),
        last_heartbeat_us_ago=now_us - applicant.heard_us,
        alive=True,
        not_counted=applicant.not_counted,
    )
