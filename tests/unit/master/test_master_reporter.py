"""The order in which records of servers and tablets reach the topic `reports`, at a bounded rate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nyala.replica.master import MasterOptions
from nyala.replica.master.catalog.records import TABLET
from nyala.replica.master.decisions.reporter import SIZES_EVERY_US, Reporter
from nyala.replica.types import Report
from tests.harness.leading_master import Masters, S

BUDGET = 2
"""The records of one call."""


class Told:
    """A leading master of one tablet on four servers, its reporter, and what that publishes, call by call."""

    def __init__(self) -> None:
        self.m = Masters()
        self.m.state.options = MasterOptions(root="x", reports_per_second_max=2 * BUDGET, policy_ms=500)
        self.reporter = Reporter(self.m.state)

    def keys(self) -> list[str]:
        """Return the keys of the next call."""
        return [*self.call()]

    def call(self) -> dict[str, Report | None]:
        kept = self.m.state.kept
        kept.look(self.m.clock.now_us, self.m.clock.now_us)
        looked, kept.looked = kept.looked, set()
        found = self.reporter.changes(self.m.state.servers(), looked)
        assert len(found) <= BUDGET
        return found


def test_servers_come_first_and_every_record_comes_once() -> None:
    """Goal: a plan knows the servers however many tablets have news, and no record waits for ever. Method: at two
    records a call: the servers, then the tablet, each once; a lost server before the tablet that has news too; then an
    overwritten record again, and everything after a new connection."""
    told, servers = Told(), [f"server:{u}" for u in S[:4]]
    assert told.keys() + told.keys() == servers
    assert told.keys() == [told.m.tablet] and told.keys() == []
    told.m.clock.now_us += 10 * told.m.state.options.server_dead_ms * 1000
    told.m.index += 1
    told.m.report(only=S[0])
    told.m.report(only=S[1])
    assert told.keys() == servers[2:], "which are silent"
    assert told.keys() == [told.m.tablet] and told.keys() == []
    told.reporter.repeat(told.m.tablet)
    assert told.keys() == [told.m.tablet] and told.keys() == []
    told.reporter.forget()
    assert told.keys() + told.keys() + told.keys() == [*servers, told.m.tablet]


def test_sizes_wait_for_a_while_and_a_dropped_tablet_is_told_once() -> None:
    """Goal: sizes that change all the time fill no topic, and the last ones are published. Method: other rows, at once
    and after the pause; then the tablet is dropped."""
    told = Told()
    while told.keys():
        pass
    server = told.m.state.soft.servers[S[0]]
    server.replicas[told.m.tablet] = replace(server.replicas[told.m.tablet], rows=7)
    told.m.state.soft.touched.add(told.m.tablet)
    assert told.keys() == [], "too early"
    told.m.clock.now_us += SIZES_EVERY_US
    for each in told.m.state.soft.servers.values():
        each.last_heard_us = each.counted_us = told.m.clock.now_us  # silence is news, too
    found: dict[str, Report | None] = {}
    while calls := told.call():
        found |= calls
    report = found[told.m.tablet]
    assert report is not None and max(r.rows for r in report.replicas) == 7
    record = told.m.box.catalog.get(TABLET, told.m.tablet)
    assert record is not None
    told.m.box.commit(({TABLET + told.m.tablet: replace(record, dropped_us=1)}, [], "", None))
    while calls := told.call():
        found |= calls
    assert found[told.m.tablet] is None


def drop(told: Told, *tablets: str, holders: tuple[str, ...] | None = None) -> None:
    """Drop tablets that never had a report, as tables that were dropped long ago leave them."""
    record = told.m.box.catalog.get(TABLET, told.m.tablet)
    assert record is not None
    told.m.box.commit(({TABLET + t: replace(record, dropped_us=1, holders=holders) for t in tablets}, [], "", None))


def test_dropped_tablets_are_told_once_and_cost_nothing_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: tablets that were dropped long ago, which stay in the catalog for a while, cost no tick. Method: five of
    them before the first call, one later: each is told once, after the servers, two a call; nobody asks for all of them
    again. When the record of one is removed, nothing is remembered of it; after a new connection all come again."""
    told, old = Told(), [f"{n:032x}" for n in range(5)]
    drop(told, *old)
    first = [told.keys() for _ in range(6)]
    assert first[:2] == [[f"server:{u}" for u in S[n : n + 2]] for n in (0, 2)]
    assert [key for keys in first[2:] for key in keys] == [*old, told.m.tablet] and told.keys() == []
    with monkeypatch.context() as patched:
        patched.setattr(type(told.m.box.catalog), "dropped", None)
        drop(told, "f" * 32)
        assert told.call() == {"f" * 32: None} and told.call() == {}
        drop(told, *old, holders=())
        assert told.call() == {}, "another server confirmed that it has no replica"
        told.m.box.commit(({}, [TABLET + old[0]], "", None))
        assert told.call() == {}
        drop(told, old[0])
        assert told.call() == {old[0]: None}, "nothing was remembered of it"
    told.reporter.forget()
    again = [told.keys() for _ in range(6)]
    assert [key for keys in again for key in keys][4:] == [*old, "f" * 32, told.m.tablet]
