"""The order in which records of servers and tablets reach the topic `reports`, at a bounded rate."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from nyala.replica.master import MasterOptions
from nyala.replica.master.catalog.records import TABLET
from nyala.replica.master.catalog.tables import create_table
from nyala.replica.master.decisions.decision_sinks import REPORTS_PER_STEP, REPORTS_WAITING_MAX, slices_of
from nyala.replica.master.decisions.reconciler import marked
from nyala.replica.master.decisions.reporter import SIZES_EVERY_US, Reporter
from nyala.replica.master.requests import desired
from nyala.replica.policy import ChangeKind, DesiredChange, ServerView
from nyala.replica.types import Address, DataState, FailingCopy, Heartbeat, Member, Report, ReportedReplica
from nyala.schemas import decode, encode_record, from_avro
from tests.harness.catalogs import new_table
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
        kept.refresh(self.m.clock.now_us, self.m.clock.now_us)
        looked, kept.refreshed = kept.refreshed, set()
        self.reporter.note(self.m.state.servers(), looked)
        found = self.reporter.take(BUDGET)
        assert len(found) <= BUDGET
        return found


def test_servers_come_first_and_every_record_comes_once() -> None:
    """Goal: a plan knows the servers however many tablets have news, and no record waits for ever. Method: at two
    records a call: the servers, then the tablet, each once; a lost server before the tablet that has news too; then an
    overwritten record again, and everything after a new connection."""
    told, servers = Told(), [f"server:{u}" for u in S[:4]]
    assert told.keys() + told.keys() == servers
    assert told.keys() == [told.m.tablet] and told.keys() == []
    told.m.clock.now_us += 4 * told.m.state.options.server_dead_ms * 1000
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
    assert sorted(key for keys in first[2:] for key in keys) == sorted([*old, told.m.tablet]) and told.keys() == []
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
    assert sorted([key for keys in again for key in keys][4:]) == sorted([*old, "f" * 32, told.m.tablet])


NEVER_MS = 10**9
"""The servers of the next test send one heartbeat, and count as alive for ever."""


class Large(Told):
    """A leading master of many tablets, all of which were reported, that ticks every half second."""

    def __init__(self, tablets: int, rate: int = 1_000) -> None:
        super().__init__()
        m = self.m
        m.state.options = MasterOptions(
            root="x", reports_per_second_max=rate, server_dead_ms=NEVER_MS, rereplicate_after_ms=NEVER_MS
        )
        m.state.kept._options = m.state.options
        hosts = [ServerView(uuid=u, member=Member(u, (Address("h", 1),))) for u in S[:3]]
        for first in range(0, tablets - 1, 1_000):
            table = new_table(f"many-{first}", buckets=min(1_000, tablets - 1 - first))
            m.box.commit(create_table(m.box.catalog, table, hosts, {}, 1))
        new = {TABLET + t: marked(r, None) for t, r in m.box.catalog.items(TABLET) if t != m.tablet}
        m.box.commit((new, [], "", None))
        known = {tablet_id: record.known_config for tablet_id, record in m.box.catalog.items(TABLET)}
        for uuid in S[:3]:
            self._beat(uuid, [self._replica(uuid, t, config=c, config_opid=c.opid) for t, c in known.items()])

    def hear(self, uuid: str, tablet_id: str, **fields: object) -> None:
        """A heartbeat of a server that reports one replica; the first server leads."""
        self._beat(uuid, [self._replica(uuid, tablet_id, **fields)])

    def busy(self, uuid: str, tablets: list[str], rows: int) -> None:
        """A heartbeat of a server that reports other rows of all of these."""
        self._beat(uuid, [self._replica(uuid, tablet_id, rows=rows) for tablet_id in tablets])

    def _beat(self, uuid: str, replicas: list[ReportedReplica]) -> None:
        self.m.state.soft.heartbeat(Heartbeat(server_uuid=uuid), lambda _: replicas, self.m.clock.now_us)

    def _replica(self, uuid: str, tablet_id: str, **fields: object) -> ReportedReplica:
        base = ReportedReplica(
            tablet_id=tablet_id, data_state=DataState.READY, phase="RUNNING", term=1, leader_uuid=S[0],
            role="LEADER" if uuid == S[0] else "FOLLOWER", commit_opid=(1, 1), config=None, config_opid=(0, 0),
            config_wire=b"", pending=False, peers=(), damaged=False, witness=False, rows=0, bytes_on_disk=0,
            wal_bytes=0,
        )  # fmt: skip
        return replace(self.m.state.soft.replica(uuid, tablet_id) or base, **fields)

    def tick(self, after_us: int = 500_000) -> dict[str, Report | None]:
        """One tick of the reconciler, so long after the last one."""
        self.m.clock.now_us += after_us
        kept = self.m.state.kept
        kept.refresh(self.m.clock.now_us, self.m.clock.now_us)
        looked, kept.refreshed = kept.refreshed, set()
        self.reporter.note(self.m.state.servers(), looked)
        found: dict[str, Report | None] = {}
        for most in slices_of(self.reporter.allowance(), 0):
            found |= self.reporter.take(most)
        return found


@pytest.mark.a_third
@pytest.mark.parametrize("tablets", [10, 1_000])
def test_every_record_is_published_again_within_its_time(tablets: int) -> None:
    """Goal: the age of a record shows whether the masters still publish, and a cluster at rest costs its number of
    records a round, at a small and at a medium size. Method: 90 minutes of ticks without any news. No record waits
    longer than it promises. Each round of 1,440 s has one record a tablet, and each 30 s one a server, and no more
    tablets are compared than published."""
    told, last = Large(tablets), dict[str, tuple[int, int]]()
    while found := told.tick():
        last |= {k: (r.at_us, r.numbers["again_within_s"]) for k, r in found.items() if r is not None}
    assert told.reporter.published == len(last) == tablets + 4 and told.reporter.visited <= 2 * tablets, (
        "each is looked at twice"
    )
    began_us, before = told.m.clock.now_us, (told.reporter.published, told.reporter.visited)
    while told.m.clock.now_us - began_us < 5_400_000_000:
        for key, report in told.tick(2_000_000).items():
            assert report is not None and report.numbers["again_within_s"] == (60 if report.server_uuid else 1_800)
            assert report.at_us - last[key][0] <= last[key][1] * 1_000_000
            last[key] = report.at_us, report.numbers["again_within_s"]
    assert all(told.m.clock.now_us - at_us <= within_s * 1_000_000 for at_us, within_s in last.values())
    published, visited = told.reporter.published - before[0], told.reporter.visited - before[1]
    assert visited <= tablets * (5_400 // 1_440 + 1) and published <= visited + 4 * (5_400 // 30 + 1)


def test_too_many_records_for_the_rate_promise_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: what a record promises is kept at any size. Method: 200 tablets at one record a second, too many for a
    round of 100 s: the records say how long it takes."""
    monkeypatch.setattr("nyala.replica.master.decisions.reporter.TABLET_WITHIN_S", 100)
    told = Large(200, rate=1)
    found: dict[str, Report | None] = {}
    for _ in range(20):
        found |= told.tick()
    assert len(found) == 10, "one record a second"
    assert {r.numbers["again_within_s"] for r in found.values() if r is not None} == {60, 250}


def test_a_change_comes_before_old_records_and_those_before_sizes() -> None:
    """Goal: what changed does not wait for a round, and sizes keep no record from its repetition. Method: a change, an
    old record, and another one's rows, at one record a call: the servers, then these three in this order."""
    told = Large(3)
    while told.tick():
        pass
    first, second, third = sorted(told.m.state.kept.tablets)
    told.m.clock.now_us += 100_000_000
    told.reporter.repeat(second), told.reporter.repeat(third)
    assert told.tick().keys() == {second, third, *(f"server:{u}" for u in S[:4])}
    told.m.clock.now_us += 1_350_000_000
    told.hear(S[1], third, rows=7)
    told.hear(S[2], second, data_state=DataState.COPYING)
    kept = told.m.state.kept
    kept.refresh(told.m.clock.now_us, told.m.clock.now_us)
    told.reporter.note(told.m.state.servers(), kept.refreshed)
    keys = [key for _ in range(9) for key in told.reporter.take(1)]
    assert keys == [*(f"server:{u}" for u in S[:4]), second, first, third]


def test_records_of_servers_have_what_a_plan_needs() -> None:
    """Goal: a plan knows the free disk, failing copies, retirements and maintenance, and how many records there are.
    Method: one server with all of them, another with none; an unheard-of location is empty."""
    told = Told()
    told.m.retire(S[3])
    told.m.box.commit(desired.maintain(told.m.state, S[3], 60, owner="o"))
    beat = Heartbeat(
        server_uuid=S[3], location="/dc1/rack3", disk_bytes_free=7 << 30, tablets_max=9, quiescing=True,
        copies_failing=(FailingCopy("t", 3, "no"), FailingCopy("u", 1, "no")), full_report=True,
    )  # fmt: skip
    told.m.state.soft.heartbeat(beat, lambda _: [], told.m.clock.now_us)
    found = told.call() | told.call() | told.call()
    report, other = found[f"server:{S[3]}"], found[f"server:{S[0]}"]
    assert report is not None and other is not None
    both = {"again_within_s": 60, "cluster": 0, "servers": 4, "tablets": 1}
    assert report.location == "/dc1/rack3" and report.numbers == both | {
        "disk_bytes_free": 7 << 30, "tablets_max": 9, "copies_failing": 2, "avoided": 1, "retired": 1,
        "maintenance": 1, "quiescing": 1,
    }  # fmt: skip
    assert other.numbers == both | {"disk_bytes_free": 0}
    assert found[told.m.tablet].numbers == {"again_within_s": 1_800, "cluster": 0}  # type: ignore[union-attr]


def test_what_a_new_leader_never_heard_of_is_reported_as_silent() -> None:
    """Goal: servers and tablets that were lost before a failover have records of the new leader, which does not call
    them lost before it led for the re-replication delay; a forgotten server's record is deleted. Method: a new
    leadership in which only the server without a replica is heard."""
    told = Told()
    told.m.lead()
    told.m.state.options = MasterOptions(root="x", reports_per_second_max=2 * BUDGET, policy_ms=500)
    told.reporter = Reporter(told.m.state)
    told.m.state.soft.reset(told.m.clock.now_us)
    told.m.report(only=S[3])
    assert told.keys() == [f"server:{S[3]}"] and told.keys() == []
    told.m.clock.now_us += told.m.state.options.rereplicate_after_ms * 1000 + 1
    told.m.state.soft.servers[S[3]].last_heard_us = told.m.clock.now_us
    found = told.call() | told.call() | told.call()
    assert {*found} == {told.m.tablet, *(f"server:{u}" for u in S[:4])}
    assert [r.alive for _, r in sorted(found.items()) if r is not None and r.server_uuid] == [False] * 3 + [True]
    lost = found[told.m.tablet]
    assert lost is not None and lost.leader_uuid == "" and lost.replication_factor == 3
    assert [r.health for r in lost.replicas] == ["UNKNOWN"] * 3
    del told.m.state.soft.servers[S[3]]
    assert told.call() == {f"server:{S[3]}": None} and told.call() == {}


def test_reports_are_made_in_bounded_steps() -> None:
    """Goal: no step of the loop makes many reports, and what Kafka does not take is not made. Method: the numbers of
    the steps for a rate and for what waits."""
    assert slices_of(0, 0) == [] and slices_of(2 * REPORTS_PER_STEP + 3, 0) == [REPORTS_PER_STEP, REPORTS_PER_STEP, 3]
    assert slices_of(100, REPORTS_WAITING_MAX - 1) == [1] and slices_of(100, REPORTS_WAITING_MAX + 1) == []


def test_rates_are_in_the_records_of_tablets() -> None:
    """Goal: a plan by load knows how much each tablet is written and read. Method: followers apply the leader's rows,
    and all replicas are read. Rates alone are published like sizes."""
    told = Large(2)
    while told.tick():
        pass
    for uuid, read in zip(S[:3], (5, 0, 2), strict=True):
        told.hear(uuid, told.m.tablet, write_rows_per_s=100, read_rows_per_s=read)
    found = [told.tick() for _ in range(11)]
    reports = [call[told.m.tablet] for call in found if told.m.tablet in call]
    assert [r and {n: r.numbers.get(n) for n in ("write_rows_per_s", "read_rows_per_s")} for r in reports] == [
        {"write_rows_per_s": 100, "read_rows_per_s": 7}
    ]


def test_a_server_that_lies_about_its_load_ends_no_tick() -> None:
    """Goal: a record can be written whatever servers report of themselves. Method: the highest numbers of all replicas
    and of a server, encoded and decoded."""
    told, most = Large(2), 2**63 - 1
    for uuid in S[:3]:
        numbers = dict.fromkeys(("rows", "bytes_on_disk", "wal_bytes", "write_rows_per_s", "read_rows_per_s"), most)
        told.hear(uuid, told.m.tablet, **numbers)
    said = told.m.state.soft.servers[S[0]]
    said.last_report = replace(said.last_report, disk_bytes_free=most, memory_bytes=most, tablets_max=2**31 - 1)
    for report in told.tick().values():
        assert report is not None and from_avro(Report, decode("report", encode_record(report))) == report


@pytest.mark.deep
def test_busy_tablets_use_a_tenth_of_the_rate() -> None:
    """Goal: sizes that change all the time cost a bounded part of the rate, and all of them are published in turn.
    Method: 90 tablets whose rows change every two seconds, for a minute: 10 of 100 records a second, and each tablet's
    in turn; one of which more changed comes at once."""
    told = Large(90, rate=100)
    while told.tick():
        pass
    tablets, before, counts = sorted(told.m.state.kept.tablets), told.reporter.published, Counter[str]()
    for n in range(120):
        if n % 4 == 0:
            told.busy(S[1], tablets, n)
        counts.update(told.tick().keys())
    assert told.reporter.published - before <= 60 * 10 + 4 * 3
    assert min(counts[t] for t in tablets) >= 4 and max(counts[t] for t in tablets) <= 8
    told.hear(S[1], tablets[0], data_state=DataState.COPYING)
    assert tablets[0] in told.tick()


def test_record_says_where_a_desired_change_leads() -> None:
    """OP-09. Goal: jobs count a tablet where its desired change leads, before its config shows it. Method: a move is
    wanted of a quiet tablet: its record comes again at once with both ends, and without them when it was taken back."""
    told = Told()
    while told.keys():
        pass
    wish = DesiredChange(kind=ChangeKind.MOVE, wish_id="w", from_uuid=S[2], to_uuid=S[3])
    tablet = told.m.state.kept.tablets[told.m.tablet]
    for wanted, ends in ((wish, [f"joins/{S[3]}", f"leaves/{S[2]}"]), (replace(wish, cancelled=True), [])):
        told.m.state.kept.tablets[told.m.tablet] = replace(tablet, desired=wanted)
        told.reporter.note(told.m.state.servers(), {told.m.tablet})
        report = told.reporter.take(BUDGET)[told.m.tablet]
        assert report is not None and report.pending_change
        read = from_avro(Report, decode("report", encode_record(report)))
        assert [name for name in sorted(read.numbers) if "/" in name] == ends
