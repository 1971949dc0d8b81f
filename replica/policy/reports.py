"""Builds a cluster view from the records of the `reports` topic, which the batch jobs read, if the records are complete
and recent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nyala.replica.types import Address, Member, RaftConfig, Report, some_of

from .views import ChangeKind, ClusterView, DesiredChange, Health, ServerView, TabletView, with_leaving_marked

SPARE_US = 60_000_000
"""The allowed difference between the clocks of the masters and of a job, with some more time for a record to come
again."""
WITHIN = "again_within_s"
"""The name of the number, in a record, that gives the seconds within which the record is published again."""

_JOINS, _LEAVES, _LEADS = "joins/", "leaves/", "leads/"
"""Beginnings of names of numbers in a tablet's record. A server's uuid follows; the number says what the desired change
makes of that server."""


@dataclass(frozen=True)
class Inputs:
    """The newest record of each server and tablet. If `lacks` is empty, a plan may be made of them.

    `lacks`: the problems with the records, with a remedy; `passing`: whether they may be over soon. `left_out`: servers
    whose record is out of date and that no tablet names, for example one of a former cluster. `newest_us`, `oldest_us`:
    the times of the newest and the oldest record, by the masters' wall clock. `dated`: whether the leading master's
    records say when they come again.
    """

    records: tuple[Report, ...]
    left_out: tuple[str, ...]
    newest_us: int
    oldest_us: int
    dated: bool
    lacks: str
    passing: bool


def inputs_of(reports: Iterable[Report], now_us: int) -> Inputs:
    """Return the inputs of a plan. Pure.

    A record names the time within which the next one comes. It is out of date if it is older than twice that time and a
    minute. Records of masters of an older build do not name it: while one of them leads, no age is judged.
    """
    newest = {(r.server_uuid, r.tablet_id): r for r in sorted(reports, key=_order)}
    tablets = [r for r in newest.values() if not r.server_uuid and r.tablet_id]
    named = {replica.uuid for tablet in tablets for replica in tablet.replicas}
    servers = {r.server_uuid: r for r in newest.values() if r.server_uuid}
    last = max(servers.values(), key=_order, default=None)
    dated = last is not None and WITHIN in last.numbers
    within_s = max((r.numbers.get(WITHIN, 0) for r in newest.values()), default=0)
    late = {key for key, r in newest.items() if dated and _is_old(r, now_us, within_s)}
    left_out = tuple(sorted(u for u in servers if u not in named and (u, "") in late))
    used = [*(r for u, r in sorted(servers.items()) if u not in left_out), *tablets]
    times = [r.at_us for r in used]
    old = [r for r in used if (r.server_uuid, r.tablet_id) in late]
    recent = [r for r in used if (r.server_uuid, r.tablet_id) not in late]
    lasting, passing = next(_conflicts(recent, now_us), ""), next(_gaps(used, old, named, now_us), "")
    return Inputs(
        records=tuple(used),
        left_out=left_out,
        newest_us=max(times, default=0),
        oldest_us=min(times, default=0),
        dated=dated,
        lacks=lasting or passing,
        passing=not lasting,
    )


def _order(report: Report) -> tuple[int, int]:
    return report.catalog_term, report.at_us


def _is_old(report: Report, now_us: int, within_s: int) -> bool:
    """Whether a record is out of date; `within_s` counts for one that does not say when the next comes."""
    within_s = report.numbers.get(WITHIN, within_s)
    return within_s > 0 and now_us - report.at_us > 2_000_000 * within_s + SPARE_US


def _conflicts(recent: Sequence[Report], now_us: int) -> Iterator[str]:
    """Yield the problems of these records that only an operator can solve."""
    ahead = max(recent, key=lambda r: r.at_us, default=None)
    if ahead is not None and ahead.at_us - now_us > SPARE_US:
        yield (
            f"the record of {_name(ahead)} is of {_seconds(ahead.at_us - now_us)} in the future: set the clocks of "
            "this machine and of the masters, then run the job again"
        )
    clusters = {r.numbers["cluster"] for r in recent if r.numbers.get("cluster")}
    if len(clusters) > 1:
        yield (
            f"the topic has recent records of {len(clusters)} clusters: give the masters of each cluster a "
            "--topic-prefix of its own, and delete this topic, which its masters make anew"
        )


def _gaps(used: Sequence[Report], old: Sequence[Report], named: Iterable[str], now_us: int) -> Iterator[str]:
    """Yield the problems of missing or outdated records, which may be over soon."""
    publish = (
        "look at `nyala cluster check`: a leading master has to reach this Kafka, with this --topic-prefix, to publish "
        "them. If it does, and the rest is of a former cluster, delete the topic, which the master makes anew"
    )
    servers = [r for r in used if r.server_uuid]
    if not servers:
        yield f"there are records of {len(used)} tablets and of no server: {publish}"
    if old:
        first = min(old, key=lambda r: r.at_us)
        within = (
            f", and a master publishes it again within {first.numbers[WITHIN]} s" if WITHIN in first.numbers else ""
        )
        yield (
            f"{len(old)} of {len(used)} records are out of date, the oldest is that of {_name(first)}: "
            f"{_seconds(now_us - first.at_us)} old{within}: {publish}"
        )
    unknown = sorted(set(named) - {r.server_uuid for r in servers})
    if unknown:
        yield f"there is no record of {len(unknown)} servers that have replicas ({some_of(unknown)}): {publish}"
    says = max(servers, key=_order, default=None)
    for what, count in (("servers", len(servers)), ("tablets", len(used) - len(servers))):
        stated = says.numbers.get(what, 0) if says is not None else 0
        if count < stated:
            yield f"there are records of {count} {what}, and the leading master publishes {stated}: {publish}"


def _name(report: Report) -> str:
    if report.server_uuid:
        return f"server {report.server_uuid}"
    return f"tablet {report.tablet_id} of table {report.table_name}"


def _seconds(us: int) -> str:
    return f"{us / 1e6:.0f} s"


def view_of_reports(reports: Iterable[Report], now_us: int, draining: Iterable[str] = ()) -> ClusterView:
    """Return the view that the newest report of each tablet and server gives.

    The masters empty retired servers. So the view has the members there as marked, and a plan does not move their
    tablets, unless the server is in `draining`.
    """
    servers: dict[str, ServerView] = {}
    tablets: dict[str, TabletView] = {}
    away = frozenset(draining)
    for report in sorted(reports, key=_order):
        if report.server_uuid:
            servers[report.server_uuid] = _server(report, away)
        elif report.tablet_id:
            tablets[report.tablet_id] = _tablet(report)
    leaving = frozenset(u for u, s in servers.items() if s.draining) - away
    return ClusterView(
        servers=tuple(servers[u] for u in sorted(servers)),
        tablets=tuple(with_leaving_marked(tablets[t], leaving) for t in sorted(tablets)),
        now_us=now_us,
    )


def desired_numbers(tablet: TabletView) -> dict[str, int]:
    """Return numbers for the tablet's record from which `view_of_reports` finds the servers of its desired change."""
    leads = tablet.leads_next if tablet.leads_next != tablet.leader_uuid else ""
    told = ((_JOINS, tablet.joins), (_LEAVES, tablet.leaves), (_LEADS, leads))
    return {name + uuid: 1 for name, uuid in told if uuid}


def _desired(numbers: Mapping[str, int]) -> DesiredChange | None:
    def told(name: str) -> str:
        return next((each.removeprefix(name) for each in sorted(numbers) if each.startswith(name)), "")

    joins, leaves, leads = told(_JOINS), told(_LEAVES), told(_LEADS)
    if joins or leaves:
        kind = ChangeKind.REMOVE if not joins else ChangeKind.MOVE if leaves else ChangeKind.ADD
        return DesiredChange(kind=kind, wish_id="", from_uuid=leaves, to_uuid=joins)
    return DesiredChange(kind=ChangeKind.TRANSFER, wish_id="", to_uuid=leads) if leads else None


def _addresses(text: str) -> tuple[Address, ...]:
    return (Address.parse(text),) if text else ()


def _server(report: Report, away: frozenset[str]) -> ServerView:
    numbers: Mapping[str, int] = report.numbers
    return ServerView(
        uuid=report.server_uuid,
        member=Member(report.server_uuid, _addresses(report.server_address)),
        alive=report.alive,
        location=report.location,
        draining=report.server_uuid in away or bool(numbers.get("retired")),
        maintenance=bool(numbers.get("maintenance")),
        quiescing=bool(numbers.get("quiescing")),
        tablets_max=numbers.get("tablets_max", 0),
        avoided=bool(numbers.get("avoided")),
        disk_bytes_free=numbers.get("disk_bytes_free"),
    )


def _tablet(report: Report) -> TabletView:
    members = tuple(
        Member(
            r.uuid,
            _addresses(r.address),
            votes=r.votes,
            promote=r.promote,
            holds_data=not (r.votes and r.promote),  # only a witness that waits for its data has both
            replace=r.replace,
        )
        for r in report.replicas
    )
    return TabletView(
        tablet_id=report.tablet_id,
        table_id=report.table_id,
        replication_factor=report.replication_factor,
        config=RaftConfig(report.config_opid, members),
        leader_uuid=report.leader_uuid,
        pending=report.pending_change,
        health={r.uuid: Health.__members__.get(r.health, Health.UNKNOWN) for r in report.replicas},
        bytes_on_disk=max((r.bytes_on_disk for r in report.replicas), default=0),
        desired=_desired(report.numbers),
    )
