"""The policy's view of the cluster, from the catalog and the heartbeats."""

from __future__ import annotations

from nyala.replica.policy import Health, ServerView, TabletView
from nyala.replica.types import DataState, Member, PeerReport, RaftConfig, ReportedReplica, generation_of

from ..catalog.catalog import Catalog
from ..catalog.records import DESIRED_CHANGE, MAINTENANCE, RETIRED, TABLE, TABLET, Tablet
from ..heartbeats.belief import may_lead
from ..heartbeats.soft_state import LIVE, ServerState, SoftState, TabletState
from ..options import MasterOptions


def retired_servers(catalog: Catalog) -> frozenset[str]:
    """The uuids of the servers that are to be emptied."""
    return frozenset(uuid for uuid, _ in catalog.items(RETIRED))


def in_maintenance(catalog: Catalog, wall_us: int) -> frozenset[str]:
    """The uuids of the servers on which operators work at that wall-clock time."""
    return frozenset(uuid for uuid, record in catalog.items(MAINTENANCE) if wall_us < record.until_us)


def wanted_voters(catalog: Catalog, tablet_id: str) -> int:
    """The number of voters that are wanted of a tablet: its own number, or its table's."""
    tablet = catalog.get(TABLET, tablet_id)
    table = catalog.get(TABLE, tablet.table_id) if tablet is not None else None
    return (tablet.replication_factor if tablet else 0) or (table.replication_factor if table else 0)


def server_views(
    soft: SoftState,
    options: MasterOptions,
    mono_us: int,
    retired: frozenset[str] = frozenset(),
    maintenance: frozenset[str] = frozenset(),
) -> tuple[ServerView, ...]:
    """The views of all servers that sent heartbeats in this leadership. A booting server counts as alive."""
    return tuple(server_view(soft, s, options, mono_us, retired, maintenance) for _, s in sorted(soft.servers.items()))


def server_view(
    soft: SoftState,
    s: ServerState,
    options: MasterOptions,
    mono_us: int,
    retired: frozenset[str] = frozenset(),
    maintenance: frozenset[str] = frozenset(),
) -> ServerView:
    """The policy's view of one server."""
    return ServerView(
        uuid=s.uuid,
        member=Member(s.uuid, s.recorded_at),
        alive=soft.silent_us(s.uuid, mono_us) <= options.server_dead_ms * 1000,
        location=s.last_report.location,
        draining=s.uuid in retired,
        maintenance=s.uuid in maintenance,
        quiescing=s.last_report.quiescing,
        tablets_max=s.last_report.tablets_max,
        avoided=mono_us < s.avoided_until_us,
        disk_bytes_free=s.last_report.disk_bytes_free,
    )


def leader_of(soft: SoftState, state: TabletState | None, options: MasterOptions, mono_us: int) -> str:
    """The replica that reported itself as leader and was heard recently; empty otherwise."""
    if state is None or state.leader_status is None:
        return ""
    server = soft.servers.get(state.leader_uuid)
    fresh = server is not None and mono_us - server.counted_us <= options.server_dead_ms * 1000
    return state.leader_uuid if fresh else ""


def health_of(
    soft: SoftState,
    tablet_id: str,
    uuid: str,
    options: MasterOptions,
    mono_us: int,
    maintenance: frozenset[str] = frozenset(),
) -> Health:
    """The health of the member `uuid` of a tablet, judged by this master's heartbeats and the tablet's leader.

    While its server is in maintenance, only the server's own report that the replica has failed counts. Silence, a
    leader that does not reach it, and copies that fail are part of the operator's work: the health is UNKNOWN then.
    """
    health = _health_of(soft, tablet_id, uuid, options, mono_us)
    if uuid not in maintenance or not health.failed or _reports_failed(soft, tablet_id, uuid):
        return health
    return Health.UNKNOWN


def _reports_failed(soft: SoftState, tablet_id: str, uuid: str) -> bool:
    """Whether the server itself reports its replica as failed, so that only a restart or a copy may help."""
    server, replica = soft.servers.get(uuid), soft.replica(uuid, tablet_id)
    if server is None or server.instead_of:
        return False  # it may be another process
    return replica is not None and replica.phase == "FAILED" and not server.last_report.booting


def _health_of(soft: SoftState, tablet_id: str, uuid: str, options: MasterOptions, mono_us: int) -> Health:
    silent_us = soft.silent_us(uuid, mono_us)
    server, replica, peer = soft.servers.get(uuid), soft.replica(uuid, tablet_id), soft.peer_report(tablet_id, uuid)
    if _reports_failed(soft, tablet_id, uuid):
        return Health.FAILED_UNRECOVERABLE  # whatever happens to its server
    if soft.missed_us(uuid, tablet_id, mono_us) > options.rereplicate_after_ms * 1000:
        return _lost(peer)
    if server is None or server.last_report.booting or not server.reported or silent_us > options.server_dead_ms * 1000:
        return Health.UNKNOWN
    health = _as_reported(server, replica, peer, tablet_id, options, mono_us)
    if health.failed and _follows_another(soft, tablet_id, replica, options, mono_us):
        health = Health.UNKNOWN
    return Health.FAILED_UNRECOVERABLE if health is Health.UNKNOWN and server.copies_fail(tablet_id) else health


def _follows_another(
    soft: SoftState, tablet_id: str, replica: ReportedReplica | None, options: MasterOptions, mono_us: int
) -> bool:
    """Whether the replica follows another voter than the known leader, and that voter reports that it leads.

    Then the known leader's report that it does not reach the replica does not count. Otherwise a voter that falsely
    reports that it leads, in a high term, could have healthy replicas replaced. A voter that no leader reaches soon
    follows none.
    """
    state, named = soft.tablets[tablet_id], replica.leader_uuid if replica is not None else ""
    other = soft.replica(named, tablet_id)
    leads = other is not None and other.role == "LEADER" and may_lead(state.config, named)
    return leads and named != state.leader_uuid and soft.silent_us(named, mono_us) <= options.server_dead_ms * 1000


def _as_reported(
    server: ServerState,
    replica: ReportedReplica | None,
    peer: PeerReport | None,
    tablet_id: str,
    options: MasterOptions,
    mono_us: int,
) -> Health:
    if replica is None:
        return Health.UNKNOWN  # its leader will copy it there
    if replica.role == "LEADER":
        return Health.HEALTHY
    if tablet_id not in server.open_us:
        return Health.UNKNOWN  # slow to start is not dead
    return _as_leader_sees(peer, replica, mono_us - server.open_us[tablet_id], options)


def _as_leader_sees(
    peer: PeerReport | None, replica: ReportedReplica, open_for_us: int, options: MasterOptions
) -> Health:
    """The health of an open replica as its leader reports it.

    If the leader has not reached it for long, it counts as lost like a silent one, although its server sends
    heartbeats. The leader's reports from before it was open do not count.
    """
    if peer is None:
        return Health.UNKNOWN
    if peer.health in ("OK", "LAGGING", "HEALTHY"):
        return Health.HEALTHY if replica.phase == "RUNNING" else Health.UNKNOWN
    out_of_touch_us = min(peer.last_contact_us_ago, open_for_us)
    return _lost(peer) if out_of_touch_us > options.rereplicate_after_ms * 1000 else Health.UNKNOWN


def _lost(peer: PeerReport | None) -> Health:
    """The health of a replica that was silent for too long: unrecoverable if its leader's log cannot continue its
    own."""
    behind = peer is not None and peer.health == "NEEDS_COPY"
    return Health.FAILED_UNRECOVERABLE if behind else Health.FAILED


def is_damaged(soft: SoftState, uuid: str, tablet_id: str) -> bool:
    """Whether the server's replica has FAILED, and a copy in its place would heal it."""
    replica = soft.replica(uuid, tablet_id)
    return replica is not None and replica.data_state == DataState.READY and replica.damaged


def _has_no_replica(soft: SoftState, uuid: str, tablet_id: str) -> bool:
    server = soft.servers.get(uuid)
    if server is None or not server.reported:
        return False
    replica = server.replicas.get(tablet_id)
    return replica is None or replica.data_state != DataState.READY


def _of_former_generation(soft: SoftState, state: TabletState, tablet_id: str, config: RaftConfig) -> frozenset[str]:
    generation = generation_of(config.opid.term)
    former = [u for u, told in state.told.items() if generation_of(told.opid.term) < generation]
    found = ((u, soft.replica(u, tablet_id)) for u in former if config.member(u) is None)
    return frozenset(u for u, replica in found if replica is not None and replica.data_state in LIVE)


def tablet_view(
    catalog: Catalog,
    soft: SoftState,
    tablet_id: str,
    tablet: Tablet,
    options: MasterOptions,
    mono_us: int,
    maintenance: frozenset[str] = frozenset(),
) -> TabletView | None:
    """The policy's view of one tablet; None if it was dropped, never formed, or no server reported its config."""
    state = soft.tablets.get(tablet_id)
    table = catalog.get(TABLE, tablet.table_id)
    if table is None or state is None or state.config is None or not tablet.formed or tablet.dropped:
        return None
    config: RaftConfig = state.config
    leader = leader_of(soft, state, options, mono_us)
    status = state.leader_status
    return TabletView(
        tablet_id=tablet_id,
        table_id=tablet.table_id,
        replication_factor=wanted_voters(catalog, tablet_id),
        config=config,
        leader_uuid=leader if config.member(leader) else "",
        pending=status is not None and status.pending,
        health={m.uuid: health_of(soft, tablet_id, m.uuid, options, mono_us, maintenance) for m in config.members},
        bytes_on_disk=max(
            (r.bytes_on_disk for m in config.members if (r := soft.replica(m.uuid, tablet_id)) is not None), default=0
        ),
        desired=catalog.get(DESIRED_CHANGE, tablet_id),
        damaged=frozenset(m.uuid for m in config.members if is_damaged(soft, m.uuid, tablet_id)),
        without_replica=frozenset(m.uuid for m in config.members if _has_no_replica(soft, m.uuid, tablet_id)),
        caught_up=frozenset({leader, *(p.uuid for p in status.peers if p.health == "OK")} if status else ()),
        former_generation=_of_former_generation(soft, state, tablet_id, config),
        by_witness=options.heal_by_witness,
    )


def standing_of(soft: SoftState, uuid: str, options: MasterOptions, mono_us: int) -> tuple[object, ...]:
    """The facts about a server on which the views and records of its tablets depend. A view changes only if these facts
    change, if something of the tablet itself changes, or at the time `changes_at`."""
    silent_us, server = soft.silent_us(uuid, mono_us), soft.servers.get(uuid)
    dead_us = options.server_dead_ms * 1000
    silent = silent_us > dead_us, silent_us > options.rereplicate_after_ms * 1000
    if server is None:
        return silent
    heard = mono_us - server.counted_us <= dead_us
    failing = frozenset(f.tablet_id for f in server.last_report.copies_failing if server.copies_fail(f.tablet_id))
    last = server.last_report.booting, server.last_report.location, server.addresses, server.instead_of
    return *silent, heard, *last, server.reported, server.back_us, failing


def changes_at(soft: SoftState, view: TabletView, options: MasterOptions, mono_us: int) -> int | None:
    """The next time at which the view may change although nothing is reported and `standing_of` each server is the
    same."""
    after_us, found = options.rereplicate_after_ms * 1000, []
    state = soft.tablets[view.tablet_id]
    leader = soft.servers.get(state.leader_uuid)
    for member in view.config.members:
        if leader is not None and soft.silent_us(member.uuid, mono_us) > after_us:
            found.append(leader.back_us)  # its silence counts from the time of the leader's return
        server, peer = soft.servers.get(member.uuid), soft.peer_report(view.tablet_id, member.uuid)
        if peer is not None and server is not None and peer.last_contact_us_ago > after_us:
            found.append(server.open_us.get(view.tablet_id, mono_us))
    return min((at + after_us + 1 for at in found if at + after_us >= mono_us), default=None)
