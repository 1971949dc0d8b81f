"""Checks that the cluster is as the catalog wants it: a view gathered from all servers, and a pure function over it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from nyala.replica.client import Client, TableHandle
from nyala.replica.rows import RowSum
from nyala.replica.rpc import address_from_pb, config_from_pb, opid_from_pb, pb
from nyala.replica.types import (
    MEMORY_MAPS,
    OPEN_FILES,
    Code,
    DataState,
    Refused,
    ResourceUse,
    generation_of,
    limits,
    read_number,
)

from .check_kafka import kafka_problems
from .evidence import of_status
from .living import living_majority
from .wanted import change_json, maintenance_words

REPLICAS_DIFFER = "replicas differ"
LAG_ENTRIES_MAX = 10_000
"""A voter that lags behind the committed entries by more than this is reported."""


class Severity(StrEnum):
    """The weight of a finding. ERROR: data, availability or redundancy is at risk. WARNING: something is out of
    order."""

    ERROR = "ERROR"
    WARNING = "WARNING"


@dataclass(frozen=True)
class Finding:
    """One defect."""

    severity: Severity
    subject: str
    what: str


@dataclass(frozen=True)
class ReplicaView:
    """One replica as its server reports it; `checksum` None if it was not requested or the server did not answer."""

    server_uuid: str
    status: pb.ReplicaStatus
    checksum: RowSum | None = None
    checksum_error: str = ""


@dataclass(frozen=True)
class MasterView:
    """One master of the masters' config, with its own answer. If it did not answer, `status` is None and `error` holds
    the reason."""

    uuid: str
    status: pb.MasterStatusReply | None
    error: str = ""

    @property
    def serves(self) -> bool:
        """Whether it answered, has the uuid of the config, and takes part in the catalog."""
        return self.status is not None and self.status.uuid == self.uuid and self.status.replica.phase != "FAILED"


@dataclass
class ClusterView:
    """The gathered state: masters, servers of the catalog, unreachable ones, tables with tablets, replicas by
    tablet."""

    cluster_id: str
    servers: list[pb.ServerInfo]
    masters: list[MasterView] = field(default_factory=list)
    unreachable: dict[str, str] = field(default_factory=dict)
    tables: list[TableHandle] = field(default_factory=list)
    replicas: dict[str, list[ReplicaView]] = field(default_factory=dict)
    checksum_time: int = 0
    foreign: list[pb.ServerInfo] = field(default_factory=list)
    """Servers of another cluster that report to these masters."""
    applicants: list[pb.ServerInfo] = field(default_factory=list)
    """Senders of heartbeats that the masters do not accept as servers; a part of all `applicants_total`."""
    applicants_total: int = 0
    wanted: dict[str, pb.TabletInfo] = field(default_factory=dict)
    """By tablet id, the tablet's state and desired state from the masters."""


def gather(client: Client, *, checksum: bool = False) -> ClusterView:
    """Call every master and every server. One that does not answer is noted and raises no error."""
    listing = client.list_servers()
    view = ClusterView(
        listing.cluster_id,
        list(listing.servers),
        ask_masters(client, listing),
        foreign=list(listing.foreign),
        applicants=list(listing.candidates),
        applicants_total=listing.candidates_total,
    )
    for server in view.servers:
        try:
            statuses = client.list_tablets(server)
        except Refused as error:
            view.unreachable[server.uuid] = str(error)
            continue
        for status in statuses:
            view.replicas.setdefault(status.tablet_id, []).append(ReplicaView(server.uuid, status))
    view.tables = [client.get_table(t.name) for t in client.list_tables()]
    view.wanted = {t.tablet_id: t for table in view.tables for t in client.tablet_infos(table.name)}
    if checksum:
        _add_checksums(client, view)
    return view


def ask_masters(client: Client, listing: pb.ListServersReply) -> list[MasterView]:
    """Call each master for its status: the leader that made the listing knows only the others' names."""
    found = []
    for master in listing.masters:
        try:
            if not master.addresses:
                raise Refused(Code.UNAVAILABLE, "the masters' config has no address of it")
            status = client.status_of_master(address_from_pb(master.addresses[0]))
            found.append(MasterView(master.uuid, status))
        except Refused as error:
            found.append(MasterView(master.uuid, None, str(error)))
    return found


def _add_checksums(client: Client, view: ClusterView) -> None:
    servers = {s.uuid: s for s in view.servers}
    for table in view.tables:
        at = client.snapshot_time(table)
        view.checksum_time = max(view.checksum_time, at)
        for tablet in table.tablets:
            replicas = view.replicas.get(tablet.tablet_id, [])
            timeout_s = checksum_timeout_s([r.status for r in replicas], len(table.schema.columns))
            view.replicas[tablet.tablet_id] = [
                _with_checksum(client, servers[r.server_uuid], r, at, timeout_s) for r in replicas
            ]


def checksum_timeout_s(replicas: Iterable[pb.ReplicaStatus], columns: int) -> float:
    """Return how long the checksum of each replica of one tablet may take, by the sizes that they report."""
    return limits.CHECKSUM_WAIT_S + checksum_work_s(replicas, columns)


def checksum_work_s(replicas: Iterable[pb.ReplicaStatus], columns: int) -> float:
    """Return how long a server may work on the checksum of a replica of one tablet.

    The largest replica counts for all, because one that lags may catch up meanwhile. Rows in memory count too.
    """
    work_s = (
        (r.bytes_on_disk + r.memory_bytes) / limits.CHECKSUM_BYTES_PER_S_MIN
        + r.rows * columns / limits.CHECKSUM_CELLS_PER_S_MIN
        for r in replicas
    )
    return max(work_s, default=0.0)


def _with_checksum(
    client: Client, server: pb.ServerInfo, replica: ReplicaView, at: int, timeout_s: float
) -> ReplicaView:
    if replica.status.data_state != DataState.READY or replica.status.witness:
        return replica
    try:
        found = client.checksum(server, replica.status.tablet_id, at, timeout_s=timeout_s)
        return ReplicaView(replica.server_uuid, replica.status, found)
    except Refused as error:
        return ReplicaView(replica.server_uuid, replica.status, None, str(error))


def judge(view: ClusterView) -> list[Finding]:
    """Return every defect of the view, errors first; empty if there is none."""
    found = [_judge_master(m) for m in view.masters if not m.serves]
    found += [
        Finding(Severity.ERROR, f"master {m.uuid}", m.status.replica.error)
        for m in view.masters
        if m.status is not None and m.serves and m.status.replica.error
    ]
    found += [
        Finding(Severity.ERROR if serious else Severity.WARNING, f"master {m.uuid}", text)
        for m in view.masters
        if m.status is not None and m.serves
        for serious, text in kafka_problems(m.status)
    ]
    found += [
        Finding(Severity.ERROR, f"master {m.uuid}", _refused_ticks_text(m.status.refused_ticks))
        for m in view.masters
        if m.status is not None and m.serves and m.status.refused_ticks.count > 1
    ]
    found += [Finding(Severity.ERROR, f"server {u}", f"does not answer: {why}") for u, why in view.unreachable.items()]
    found += [
        Finding(Severity.ERROR, f"server {s.uuid}", "sends no heartbeats")
        for s in view.servers
        if not s.alive and s.uuid not in view.unreachable
    ]
    found += [
        Finding(Severity.WARNING, f"server {s.uuid}", f"{words}. Its replicas are not replaced meanwhile")
        for s in view.servers
        if (words := maintenance_words(s))
    ]
    found += [
        Finding(Severity.WARNING, f"server {s.uuid}", "quiesces, to be restarted; `nyala server quiesce stop` ends it")
        for s in view.servers
        if s.quiescing
    ]
    found += [
        Finding(
            Severity.ERROR if c.failures >= limits.COPY_FAILURES_MAX else Severity.WARNING,
            f"server {s.uuid}",
            f"copies of tablet {c.tablet_id} into it failed {c.failures} times: {c.error}",
        )
        for s in view.servers
        for c in s.copies_failing
    ]
    found += [
        Finding(Severity.WARNING, f"server {s.uuid}", text)
        for s in view.servers
        for name, use in ((OPEN_FILES, s.open_files), (MEMORY_MAPS, s.memory_maps))
        if (text := ResourceUse(use.used, use.limit).near_limit(name))
    ]
    found += [
        Finding(
            Severity.ERROR, f"server {s.uuid}", f"belongs to cluster {s.cluster_id} and is refused, with its tablets"
        )
        for s in view.foreign
    ]
    found += _judge_applicants(view)
    for table in view.tables:
        for tablet in table.tablets:
            info = view.wanted.get(tablet.tablet_id)
            wanted = (info.replication_factor if info is not None else 0) or table.replication_factor
            found += _judge_proof(f"tablet {tablet.tablet_id} of {table.name}", info)
            found += _judge_tablet(table, tablet.tablet_id, view.replicas.get(tablet.tablet_id, []), wanted)
    known = {t.tablet_id for table in view.tables for t in table.tablets}
    for tablet_id, replicas in sorted(view.replicas.items()):
        strays = [r for r in replicas if r.status.data_state != DataState.DELETED]
        if tablet_id not in known and strays:
            found.append(Finding(Severity.WARNING, f"tablet {tablet_id}", f"{len(strays)} replicas of no known table"))
    return sorted(found, key=lambda f: (f.severity is not Severity.ERROR, f.subject))


def _refused_ticks_text(refused: pb.RefusedTicks) -> str:
    return (
        f"leads, and has made no decision for any tablet for {refused.since_us_ago // 1_000_000} s: its last "
        f"{refused.count} ticks were refused ({refused.why}). No lost replica is replaced and no desired change is "
        "carried out meanwhile. Remove the cause that the refusal names; if that does not help, restart this master, "
        "so that another one leads"
    )


def _judge_proof(subject: str, info: pb.TabletInfo | None) -> list[Finding]:
    """Report a config that the masters cannot confirm by themselves, because no member is left, or willing, to confirm
    it."""
    if info is None or not info.HasField("unproven"):
        return []
    told = info.unproven
    config, by = config_from_pb(told.config), ", ".join(told.told_by)
    known = opid_from_pb(told.known)
    known_text = f"config {known}" + (f" (voters {', '.join(told.known_voters)})" if told.known_voters else "")
    what = (
        f"config {config.opid} (voters {', '.join(config.voters)}), told by {by or 'nobody now'} for "
        f"{told.since_us_ago // 1_000_000} s, is not proven: members of {known_text}, the last one that the masters "
        "know, do not confirm it"
    )
    if told.believed:
        what += "; what former members hold is kept"
    else:
        what += ", and nobody who tells of it is a member of that one: it is not believed"
    forced = config.unsafe or generation_of(config.opid.term) != generation_of(known.term)
    if forced or not told.believed:
        only_if = "only if you forced this config (`nyala unsafe recover`, `nyala cmeta rewrite`)"
    else:
        voters = {*config.voters, *told.known_voters}
        silent = ", ".join(sorted(voters - set(told.told_by))) or "a voter that it leaves out"
        only_if = f"nothing is to be done if {silent} comes back; only if that server is lost for good"
    server = told.told_by[0] if told.told_by else "<a server that holds it>"
    command = f"nyala unsafe confirm-config --tablet {info.tablet_id} --server {server}"
    what += f"; {only_if}, confirm the config with `{command}`"
    return [Finding(Severity.WARNING if told.believed else Severity.ERROR, subject, what)]


def _judge_applicants(view: ClusterView) -> list[Finding]:
    """Report senders of heartbeats that the masters do not accept: each listed one, and the number of others. Report
    too what the masters do not believe of tablets: for a moment after a change that is normal, for longer it is a
    defect."""
    doubts = [
        Finding(Severity.WARNING, f"server {s.uuid}", f"is not believed: {what}")
        for s in view.servers
        for what in s.doubts
    ]
    found = [Finding(Severity.WARNING, f"server {s.uuid}", f"does not count: {s.not_counted}") for s in view.applicants]
    if (more := view.applicants_total - len(found)) > 0:
        found.append(Finding(Severity.WARNING, "servers", f"{more} more senders of heartbeats do not count"))
    return found + doubts


def _judge_master(master: MasterView) -> Finding:
    if master.status is None:
        what = f"does not answer: {master.error}"
    elif master.status.uuid != master.uuid:
        what = f"another master, {master.status.uuid or 'one that is starting'}, answers at its address"
    else:
        what = f"its catalog FAILED: {master.status.replica.error}"
    return Finding(Severity.ERROR, f"master {master.uuid}", what)


def _judge_tablet(table: TableHandle, tablet_id: str, replicas: Iterable[ReplicaView], wanted: int) -> list[Finding]:
    subject = f"tablet {tablet_id} of {table.name}"
    live = [r for r in replicas if r.status.data_state != DataState.DELETED]
    found = [
        Finding(Severity.ERROR, subject, f"replica on {r.server_uuid} FAILED: {r.status.error}")
        for r in live
        if r.status.phase == "FAILED"
    ]
    leaders = [r for r in live if r.status.role == "LEADER"]
    if not leaders:
        found.append(Finding(Severity.ERROR, subject, f"no leader among {len(live)} replicas"))
        return [*found, *_judge_lost_ends(subject, tablet_id, live)]
    leader = max(leaders, key=lambda r: r.status.term)
    config = config_from_pb(leader.status.committed_config)
    voters = [m.uuid for m in config.members if m.votes]
    present = {r.server_uuid: r for r in live}
    absent = [u for u in voters if u not in present]
    standing = [present[u] for u in voters if u in present]
    out = [r for r in standing if not _takes_part(r.status)]
    if len(standing) - len(out) < config.majority:
        gone = len(absent) + len(out)
        found.append(Finding(Severity.ERROR, subject, f"no majority: {gone} of {len(voters)} voters take no part"))
    if absent:
        found.append(Finding(Severity.ERROR, subject, f"voters without a replica: {', '.join(absent)}"))
    found += _judge_voters(subject, standing, committed_index(live))
    if len(voters) < wanted:
        found.append(Finding(Severity.ERROR, subject, f"{len(voters)} voters of {wanted} wanted"))
    standing_in = sorted(r.server_uuid for r in live if r.status.witness and r.server_uuid in voters)
    if standing_in:
        what = f"{', '.join(standing_in)} votes as a witness: fewer than {wanted} replicas have the rows"
        found.append(Finding(Severity.WARNING, subject, what))
    extra = [u for u in present if config.member(u) is None]
    if extra:
        found.append(Finding(Severity.WARNING, subject, f"replicas outside the config: {', '.join(sorted(extra))}"))
    return found + _judge_checksums(subject, live)


def _judge_lost_ends(subject: str, tablet_id: str, live: Iterable[ReplicaView]) -> list[Finding]:
    """Report a tablet that cannot get a leader, because voters that it needs have lost the ends of their logs."""
    seen = [of_status(r.server_uuid, "", r.status) for r in live]
    living, lost = living_majority(seen), [r for r in seen if r.withheld > r.last]
    if living is None or living.goes_on or not lost:
        return []
    best = max(lost, key=lambda r: r.last)
    command = f"nyala unsafe recover --root <directory of {best.server_uuid}> --tablet {tablet_id}"
    what = (
        f"{living.what}. What is lost may have been acknowledged. If no other server and no backup has it, stop server "
        f"{best.server_uuid}, and go on without it with `{command}`, which first says what is lost"
    )
    return [Finding(Severity.ERROR, subject, what)]


def _takes_part(status: pb.ReplicaStatus) -> bool:
    """Return whether the replica votes and logs: it is open, and its data is complete."""
    return status.data_state == DataState.READY and status.phase in ("CONFIGURING", "RUNNING")


def _judge_voters(subject: str, voters: Iterable[ReplicaView], committed: int) -> list[Finding]:
    """Report voters that have a replica and take no part in the group, or hardly any. FAILED ones are reported
    elsewhere."""
    found = []
    for voter in voters:
        status, on = voter.status, f"voter on {voter.server_uuid}"
        behind = lag(status, committed) or 0
        if not _takes_part(status):
            if status.phase != "FAILED":
                state = f"{read_number(DataState, status.data_state).name}, {status.phase}"
                found.append(Finding(Severity.ERROR, subject, f"{on} takes no part: {state}"))
        elif status.phase != "RUNNING":
            severity, whom = Severity.WARNING if status.leader_uuid else Severity.ERROR, status.leader_uuid or "nobody"
            what = f"{on} is {status.phase}: in term {status.term} it follows {whom} and has seen nothing committed"
            found.append(Finding(severity, subject, what))
        elif behind > LAG_ENTRIES_MAX:
            found.append(Finding(Severity.WARNING, subject, f"{on} is {behind:,} entries behind"))
    return found


def committed_index(replicas: Iterable[ReplicaView]) -> int:
    """Return the last entry of a tablet that any replica, and so its leader, knows to be committed."""
    return max((r.status.commit_index for r in replicas), default=0)


def lag(status: pb.ReplicaStatus, committed: int) -> int | None:
    """Return how many committed entries a replica has not applied; None for a tombstone, which applies none."""
    return None if status.data_state == DataState.DELETED else committed - int(status.applied_index)


def _judge_checksums(subject: str, live: Iterable[ReplicaView]) -> list[Finding]:
    asked = [r for r in live if r.checksum is not None or r.checksum_error]
    found = [
        Finding(Severity.ERROR, subject, f"no checksum from {r.server_uuid}: {r.checksum_error}")
        for r in asked
        if r.checksum_error
    ]
    sums = {r.checksum for r in asked if r.checksum is not None}
    if len(sums) > 1:
        detail = ", ".join(
            f"{r.server_uuid[:8]} {r.checksum.total:032x} ({r.checksum.rows} rows)" for r in asked if r.checksum
        )
        found.append(Finding(Severity.ERROR, subject, f"{REPLICAS_DIFFER}: {detail}"))
    return found


def as_json(view: ClusterView, findings: list[Finding]) -> dict[str, Any]:
    """Return the view and the findings as JSON."""
    return {
        "cluster_id": view.cluster_id,
        "healthy": not any(f.severity is Severity.ERROR for f in findings),
        "findings": [{"severity": f.severity, "subject": f.subject, "what": f.what} for f in findings],
        "masters": [{"uuid": m.uuid, "alive": m.serves} for m in view.masters],
        "servers": [{"uuid": s.uuid, "alive": s.alive and s.uuid not in view.unreachable} for s in view.servers],
        "tablets": [
            {
                "tablet_id": tablet.tablet_id,
                "table": table.name,
                **change_json(view.wanted.get(tablet.tablet_id)),
                "replicas": _replicas_json(view.replicas.get(tablet.tablet_id, [])),
            }
            for table in view.tables
            for tablet in table.tablets
        ],
    }


def _replicas_json(replicas: list[ReplicaView]) -> list[dict[str, Any]]:
    committed = committed_index(replicas)
    return [replica_json(r, committed) for r in replicas]


def bytes_on_disk(status: pb.ReplicaStatus) -> int:
    """Return the bytes of a replica on its disk: blocks and log, which the status counts separately. Rows that were not
    flushed yet are in the log alone."""
    return int(status.bytes_on_disk + status.wal_bytes)


def replica_json(replica: ReplicaView, committed: int) -> dict[str, Any]:
    """Return one replica as JSON; `committed`: the last committed entry of its tablet."""
    status = replica.status
    return {
        "server": replica.server_uuid,
        "role": status.role,
        "witness": status.witness,
        "data_state": read_number(DataState, status.data_state).name,
        "phase": status.phase,
        "term": status.term,
        "withheld": str(opid_from_pb(status.withheld)) if status.HasField("withheld") else None,
        "last_logged": f"{status.last_logged.term}.{status.last_logged.index}",
        "commit_index": status.commit_index,
        "applied_index": status.applied_index,
        "lag": lag(status, committed),
        "rows": status.rows,
        "rows_is_estimate": True,
        "bytes_on_disk": bytes_on_disk(status),
        "block_bytes": status.bytes_on_disk,
        "wal_bytes": status.wal_bytes,
        "checksum": f"{replica.checksum.total:032x}" if replica.checksum else None,
        "error": status.error,
    }
