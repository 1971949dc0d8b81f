"""Builds a cluster view from the records of the `reports` topic, as the batch jobs read them."""

from __future__ import annotations

from collections.abc import Iterable

from nyala.replica.types import Address, Member, RaftConfig, Report

from .views import ClusterView, Health, ServerView, TabletView


def view_of_reports(reports: Iterable[Report], now_us: int, draining: Iterable[str] = ()) -> ClusterView:
    """Return the view by the newest report of each tablet and server."""
    servers: dict[str, ServerView] = {}
    tablets: dict[str, TabletView] = {}
    away = frozenset(draining)
    for report in sorted(reports, key=lambda r: (r.catalog_term, r.at_us)):
        if report.server_uuid:
            servers[report.server_uuid] = _server(report, away)
        elif report.tablet_id:
            tablets[report.tablet_id] = _tablet(report)
    return ClusterView(
        servers=tuple(servers[u] for u in sorted(servers)),
        tablets=tuple(tablets[t] for t in sorted(tablets)),
        now_us=now_us,
    )


def _addresses(text: str) -> tuple[Address, ...]:
    return (Address.parse(text),) if text else ()


def _server(report: Report, away: frozenset[str]) -> ServerView:
    return ServerView(
        uuid=report.server_uuid,
        member=Member(report.server_uuid, _addresses(report.server_address)),
        alive=report.alive,
        location=report.location,
        draining=report.server_uuid in away or bool(report.numbers.get("retired")),
        maintenance=bool(report.numbers.get("maintenance")),
        quiescing=bool(report.numbers.get("quiescing")),
        tablets_max=report.numbers.get("tablets_max", 0),
        avoided=bool(report.numbers.get("avoided")),
        disk_bytes_free=report.numbers.get("disk_bytes_free"),
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
    )
