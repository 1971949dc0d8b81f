"""Compares all replicas of chosen tables as of one hybrid time: which replicas to read, and what the checksums mean."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nyala.replica.client import Client
from nyala.replica.rows import RowSum
from nyala.replica.rpc import config_from_pb, pb
from nyala.replica.types import Code, DataState, Refused, limits, read_number, us_of_hybrid

from .check import REPLICAS_DIFFER, ClusterView, Finding, ReplicaView, Severity, checksum_work_s, gather, judge

LOOK_PERIOD_S = 0.3


@dataclass(frozen=True)
class ReplicaSum:
    """The result of reading one replica: its checksum, or why there is none."""

    server_uuid: str
    tablet_id: str
    checksum: RowSum | None
    error: str = ""


def only_tables(view: ClusterView, names: Sequence[str]) -> ClusterView:
    """Return the view without other tables; all stay if `names` is empty. Refused(NOT_FOUND) for a table that does not
    exist."""
    known = {table.name for table in view.tables}
    if missing := [name for name in names if name not in known]:
        raise Refused(Code.NOT_FOUND, "no such table; `nyala table list` shows the tables", table=missing[0])
    tables = [table for table in view.tables if not names or table.name in names]
    kept = {tablet.tablet_id for table in tables for tablet in table.tablets}
    replicas = {tablet_id: found for tablet_id, found in view.replicas.items() if tablet_id in kept}
    return replace(view, tables=tables, replicas=replicas)


def readable(view: ClusterView) -> list[tuple[pb.ServerInfo, str]]:
    """Return (server, tablet id) of each replica that has rows to read, neighbours on different servers."""
    servers = {server.uuid: server for server in view.servers}
    return [
        (servers[replica.server_uuid], tablet_id)
        for tablet_id, found in sorted(view.replicas.items())
        for replica in found
        if replica.status.data_state == DataState.READY
        and not replica.status.witness
        and replica.server_uuid in servers
    ]


def with_sums(view: ClusterView, sums: Iterable[ReplicaSum], at: int) -> ClusterView:
    """Return the view with these checksums; replicas without one are left as they are."""
    by_place = {(one.server_uuid, one.tablet_id): one for one in sums}

    def filled(tablet_id: str, replica: ReplicaView) -> ReplicaView:
        one = by_place.get((replica.server_uuid, tablet_id))
        return replica if one is None else replace(replica, checksum=one.checksum, checksum_error=one.error)

    replicas = {tablet_id: [filled(tablet_id, r) for r in found] for tablet_id, found in view.replicas.items()}
    return replace(view, replicas=replicas, checksum_time=at)


def unread(view: ClusterView) -> dict[str, str]:
    """Return by tablet id what is missing, for each tablet without a checksum of every voter."""
    found: dict[str, str] = {}
    for table in view.tables:
        for tablet in table.tablets:
            replicas = view.replicas.get(tablet.tablet_id, [])
            read = {r.server_uuid for r in replicas if r.checksum is not None}
            leaders = [r.status for r in replicas if r.status.role == "LEADER"]
            if not leaders:
                found[tablet.tablet_id] = "nobody leads it, so nobody says who its voters are"
                continue
            config = config_from_pb(max(leaders, key=lambda status: status.term).committed_config)
            if missing := sorted(m.uuid for m in config.members if m.votes and m.holds_data and m.uuid not in read):
                found[tablet.tablet_id] = f"{len(missing)} voters were not compared: {', '.join(missing)}"
    return found


def left_out(view: ClusterView) -> list[str]:
    """Return each replica of a table without a checksum, in a few words: a witness, one being copied, one that returned
    none."""
    return [
        f"{tablet.tablet_id[:8]} on {r.server_uuid[:8]} ({'WITNESS' if r.status.witness else state.name})"
        for table in view.tables
        for tablet in table.tablets
        for r in view.replicas.get(tablet.tablet_id, [])
        if r.checksum is None and (state := read_number(DataState, r.status.data_state)) is not DataState.DELETED
    ]


def to_read(view: ClusterView) -> set[str]:
    """Return the tablets that are to be read, or read again: a voter is missing, or a replica returned no checksum."""
    failed = {tablet_id for tablet_id, found in view.replicas.items() for r in found if r.checksum_error}
    return failed | set(unread(view))


def next_reads(
    view: ClusterView, at_a_time: int, timeout_s: float | None = None
) -> list[tuple[pb.ServerInfo, str, float]]:
    """Return (server, tablet id, seconds) of each replica that is to be read now; `at_a_time` are read at once.

    Seconds: `timeout_s`; else as `checksum_timeout_s` has it, plus the time of the largest replicas that the server may
    read before.
    """
    columns = {t.tablet_id: len(table.schema.columns) for table in view.tables for t in table.tablets}
    missing, work = to_read(view), dict[str, list[float]]()
    reads = [(server, tablet_id) for server, tablet_id in readable(view) if tablet_id in missing]
    for server, tablet_id in reads:
        statuses = [replica.status for replica in view.replicas[tablet_id]]
        work.setdefault(server.uuid, []).append(checksum_work_s(statuses, columns.get(tablet_id, 0)))
    # The largest of a server hold each one of its replicas, or one that is as large.
    most = {uuid: sum(sorted(each, reverse=True)[: max(1, at_a_time)]) for uuid, each in work.items()}
    return [(server, id_, timeout_s or limits.CHECKSUM_WAIT_S + most[server.uuid]) for server, id_ in reads]


def judge_compared(view: ClusterView) -> list[Finding]:
    """Return the findings of `judge`, and an ERROR for each tablet with a voter that could not be compared."""
    names: Mapping[str, str] = {t.tablet_id: table.name for table in view.tables for t in table.tablets}
    missing = [
        Finding(Severity.ERROR, f"tablet {tablet_id} of {names[tablet_id]}", what)
        for tablet_id, what in unread(view).items()
    ]
    return sorted([*judge(view), *missing], key=lambda f: (f.severity is not Severity.ERROR, f.subject))


def checked(
    client: Client, *, checksum: bool = False, wait_s: float = 0.0, servers: int = 0
) -> tuple[ClusterView, list[Finding]]:
    """Return the cluster and its findings; that fewer than `servers` tablet servers are alive is one. While there are
    any, the check is repeated for `wait_s`, because an election or a copy may be about to end. Replicas that differ at
    one time differ for good and are reported at once. Refused if the masters did not answer the last time."""
    deadline, tick = time.monotonic() + wait_s, threading.Event()
    while True:
        over = time.monotonic() >= deadline
        try:
            view = gather(client, checksum=checksum)
            findings = _judge_number(view, servers) + (judge_compared(view) if checksum else judge(view))
            if not findings or over or any(REPLICAS_DIFFER in f.what for f in findings):
                return view, findings
        except Refused:
            if over:
                raise
        tick.wait(LOOK_PERIOD_S)


def _judge_number(view: ClusterView, servers: int) -> list[Finding]:
    """The finding that fewer tablet servers are alive than the caller expects."""
    alive = sum(server.alive for server in view.servers)
    if alive >= servers:
        return []
    what = f"{alive} tablet servers are alive, and {servers} were expected: the log of a missing one says why"
    return [Finding(Severity.ERROR, "servers", what)]


def plan_text(view: ClusterView) -> str:
    """Return a line for each tablet that would be read, for an operator."""
    places: dict[str, list[str]] = {}
    for server, tablet_id in readable(view):
        places.setdefault(tablet_id, []).append(server.uuid)
    lines = [
        f"{table.name}: tablet {tablet.tablet_id} on {', '.join(places.get(tablet.tablet_id, ['no server']))}"
        for table in view.tables
        for tablet in table.tablets
    ]
    count = sum(map(len, places.values()))
    return "\n".join([*lines, f"would read {count} replicas of {len(lines)} tablets at the time of the run"])


def table_lines(view: ClusterView) -> list[str]:
    """Return a line for each table, for an operator."""
    when = dt.datetime.fromtimestamp(us_of_hybrid(view.checksum_time) / 1e6, dt.UTC)
    lines = [f"at {when.isoformat()} (hybrid time {view.checksum_time})"]
    for table in view.tables:
        found = [[r.checksum for r in view.replicas.get(t.tablet_id, []) if r.checksum] for t in table.tablets]
        rows = sum(sums[0].rows for sums in found if sums)
        same = sum(len(set(sums)) == 1 for sums in found)
        read = sum(map(len, found))
        lines.append(f"{table.name}: {rows:,} rows, {read} replicas read, {same} of {len(found)} tablets the same")
    return lines
