"""Records for the topic `reports`: the state of each tablet and server, published on change, at a bounded rate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nyala.replica.policy import ServerView, TabletView
from nyala.replica.types import DataState, Member, ReplicaReport, Report

from ..catalog.records import TABLE, TABLET
from ..state import MasterState

SIZES_EVERY_US = 5_000_000
"""Sizes and row counts change all the time, so they are published at most once in this time."""


class Reporter:
    """Remembers the published records, and finds those that changed. Concurrency: the loop's thread."""

    def __init__(self, state: MasterState) -> None:
        self._state = state
        self.forget()

    def forget(self) -> None:
        """Forget the published records: everything is published anew, at the bounded rate."""
        self._published: dict[str, tuple[Report, int]] = {}
        self._gone: set[str] = set()
        """The dropped tablets that were told, whose records are there."""
        self._due: dict[str, None] | None = None
        """The tablets that may have news, the one that waits longest first; None: all."""

    def repeat(self, key: str) -> None:
        """Forget the report of that key, which another client overwrote, so that the next `changes` has it."""
        self._published.pop(key, None)
        self._gone.discard(key)
        if self._due is not None:
            self._due[key] = None

    def changes(self, servers: Sequence[ServerView], looked: Iterable[str]) -> dict[str, Report | None]:
        """By key, the reports to publish now; None for a dropped tablet. Servers first, then dropped tablets, then
        those of the others with news, in the order in which they were looked at. `looked`: the tablets that were looked
        at since the last call. Only the first call after `forget` walks over all tablets."""
        budget = max(1, self._state.options.reports_per_second_max * self._state.options.policy_ms // 1000)
        now_us = self._state.mono_us
        out: dict[str, Report | None] = {}
        for server in servers:
            if len(out) < budget:
                self._offer(f"server:{server.uuid}", self._server(server), now_us, out)
        catalog, views = self._state.catalog, self._state.kept.tablets
        if self._due is None:
            self._due = dict.fromkeys([*(t for t, _ in catalog.dropped()), *sorted(views)])
        due = self._due
        due.update(dict.fromkeys(sorted(looked)))
        for key in sorted(catalog.dropped_among(due.keys())):
            if len(out) < budget:
                del due[key]
                if key not in self._gone:
                    out[key] = None
                    self._gone.add(key)
                    self._published.pop(key, None)
        again = []
        while due and len(out) < budget:
            key = next(iter(due))
            del due[key]
            self._gone.discard(key)  # if the record of a dropped tablet was removed
            view = views.get(key)
            if view is not None and not self._offer(key, self._tablet(view), now_us, out):
                again.append(key)
        due.update(dict.fromkeys(again))
        return out

    def _offer(self, key: str, report: Report, now_us: int, out: dict[str, Report | None]) -> bool:
        """Publish a report if it is news; returns whether what is published is up to date now."""
        if self._is_news(key, report, now_us):
            self._published[key] = (report, now_us)
            out[key] = report
            return True
        return _sizes(self._published[key][0]) == _sizes(report)

    def _is_news(self, key: str, report: Report, now_us: int) -> bool:
        before = self._published.get(key)
        if before is None or _shape(before[0]) != _shape(report):
            return True
        return now_us - before[1] >= SIZES_EVERY_US and _sizes(before[0]) != _sizes(report)

    def _server(self, server: ServerView) -> Report:
        addresses = server.member.addresses
        return Report(
            server_uuid=server.uuid,
            server_address=str(addresses[0]) if addresses else "",
            alive=server.alive,
            location=server.location,
            limits={"tablets_max": server.tablets_max} if server.tablets_max else {},
            catalog_term=self._state.led_term,
            at_us=self._state.clock.wall_us(),
        )

    def _tablet(self, tablet: TabletView) -> Report:
        record = self._state.catalog.get(TABLET, tablet.tablet_id)
        table = self._state.catalog.get(TABLE, tablet.table_id)
        known = self._state.soft.tablets.get(tablet.tablet_id)
        return Report(
            tablet_id=tablet.tablet_id,
            table_id=tablet.table_id,
            table_name=table.name if table else "",
            range_pos=record.range_pos if record else 0,
            bucket=record.bucket if record else 0,
            replication_factor=tablet.replication_factor,
            config_opid=tablet.config.opid,
            pending_change=tablet.pending or tablet.desired is not None,
            leader_uuid=tablet.leader_uuid,
            term=max(known.leader_term, 0) if known else 0,
            replicas=tuple(self._replica(tablet, m) for m in tablet.config.members),
            catalog_term=self._state.led_term,
            at_us=self._state.clock.wall_us(),
        )

    def _replica(self, tablet: TabletView, member: Member) -> ReplicaReport:
        server = self._state.soft.servers.get(member.uuid)
        status = self._state.soft.replica(member.uuid, tablet.tablet_id)
        addresses = server.addresses if server else member.addresses
        return ReplicaReport(
            uuid=member.uuid,
            address=str(addresses[0]) if addresses else "",
            votes=member.votes,
            promote=member.promote,
            replace=member.replace,
            health=tablet.health_of(member.uuid).name,
            data_state=status.data_state if status else DataState.DOES_NOT_EXIST,
            bytes_on_disk=status.bytes_on_disk if status else 0,
            rows=status.rows if status else 0,
            is_leader=member.uuid == tablet.leader_uuid,
            location=server.said.location if server else "",
        )


def _shape(report: Report) -> Report:
    """The report without sizes and time."""
    replicas = tuple(replace(each, bytes_on_disk=0, rows=0) for each in report.replicas)
    return replace(report, at_us=0, replicas=replicas)


def _sizes(report: Report) -> list[tuple[int, int]]:
    return [(each.bytes_on_disk, each.rows) for each in report.replicas]
