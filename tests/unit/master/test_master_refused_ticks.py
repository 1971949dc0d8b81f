"""The leading master's tick goes on for all other tablets, whatever a server reports of one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.replica.master import MasterOptions
from nyala.replica.master import state as master_state
from nyala.replica.master.catalog.records import TABLET, Tablet, write
from nyala.replica.master.collection_pauses import CollectionPauses
from nyala.replica.master.decisions.reconciler import Reconciler, marked
from nyala.replica.master.group.entries import unfit_record
from nyala.replica.master.heartbeats.belief import reported_config
from nyala.replica.master.heartbeats.full_reports import BUSY_US, IDLE_US
from nyala.replica.master.heartbeats.soft_state import HEAR_FIRST_US, SoftState
from nyala.replica.master.metrics import Metrics
from nyala.replica.master.state import RefusedTicks
from nyala.replica.rpc import ConnectionBound, RequestChecks, check_reply, config_to_pb, pb, reported_replica_from_pb
from nyala.replica.tools import ClusterView, MasterView, judge
from nyala.replica.types import Address, Code, DataState, Decision, Member, OpId, RaftConfig, Refused, limits
from tests.harness.catalogs import table_info
from tests.harness.master_calls import MASTER, MasterWorld, S

MOST = (1 << 63) - 1
FAR = 1 << 40
"""A term that each of these replicas has entered."""


def alone(uuid: str, index: int = 2, *addresses: Address, **marks: Any) -> RaftConfig:
    """A config with that one voter."""
    return RaftConfig(OpId(1, index), (Member(uuid, addresses or (Address("h", 1),)),), **marks)


UNHELD: dict[str, RaftConfig] = {
    "no host": alone(S[0], 2, Address("", 1)),
    "no port": alone(S[0], 2, Address("h", 0)),
    "no host beside one": alone(S[0], 2, Address("h", 1), Address("", 1)),
    "a port too high": alone(S[0], 2, Address("h", 65536)),
    "a host too long": alone(S[0], 2, Address("h" * (limits.HOST_CHARS_MAX + 1), 1)),
    "too many addresses": alone(S[0], 2, *(Address("h", n + 1) for n in range(17))),
    "an index beyond the last": alone(S[0], limits.RAFT_INDEX_MAX + 1),
    "a decision beyond the last": alone(S[0], decision=(MOST, 1)),
    "a version beyond the last": alone(S[0], decision=(1, MOST)),
    "a decision before the first": alone(S[0], decision=(-1, 1)),
    "voters without data": RaftConfig(OpId(1, 2), (Member(S[0], (Address("h", 1),), holds_data=False),)),
}
"""Configs that no replica can hold."""


def status_of(uuid: str, tablet: str, config: RaftConfig, term: int = FAR) -> pb.ReplicaStatus:
    found = pb.ReplicaStatus(tablet_id=tablet, uuid=uuid, data_state=DataState.READY, phase="RUNNING", role="LEADER")
    found.term = term
    found.committed_config.CopyFrom(config_to_pb(config))
    return found


def record_of(config: RaftConfig) -> Tablet:
    """The record of a tablet with that config as its proven one."""
    members = alone(S[0]).members
    return marked(Tablet(table_id="t" * 32, members=members, bucket=0, range_pos=0), config)


@pytest.mark.parametrize("what", UNHELD)
def test_config_that_no_replica_can_hold_is_not_believed(what: str) -> None:
    """IN-40. Goal: the masters ignore a reported config that no replica can hold. Method: one that a replica can hold,
    with one change each."""
    told = reported_replica_from_pb(status_of(S[0], "t", alone(S[0])))
    assert reported_config(told) == alone(S[0])
    assert reported_config(reported_replica_from_pb(status_of(S[0], "t", UNHELD[what]))) is None


ADDRESSES = st.lists(
    st.builds(Address, st.sampled_from(["", "h", "h:1", "[::1]"]), st.integers(0, 1 << 16)), max_size=3
)
MEMBERS = st.lists(
    st.builds(Member, st.sampled_from(S), ADDRESSES.map(tuple), votes=st.booleans(), holds_data=st.booleans()),
    max_size=3,
    unique_by=lambda m: m.uuid,
)
NUMBERS = st.sampled_from([-1, 0, 1, limits.NUMBER_MAX, limits.NUMBER_MAX + 1, MOST])
CONFIGS = st.builds(
    RaftConfig, st.builds(OpId, NUMBERS, NUMBERS), MEMBERS.map(tuple), st.tuples(NUMBERS, NUMBERS), st.booleans()
)


@given(CONFIGS)
def test_catalog_can_hold_each_config_that_is_believed(config: RaftConfig) -> None:
    """IN-40. Goal: no reported config that the masters believe is one that the catalog refuses. Method: configs of
    random members, addresses, positions and decisions; the record of each that is believed."""
    if (told := reported_config(reported_replica_from_pb(status_of(S[0], "t", config, MOST)))) is not None:
        assert unfit_record(TABLET + "t", write(record_of(told))) == ""


async def with_two_tables(scenario: Callable[[MasterWorld, str, str], Any]) -> None:
    """Run `scenario(world, tablet, uuid)`: of a second table, its only tablet, whose only replica is on that server."""
    world = MasterWorld()
    await world.begin()
    try:
        info = table_info("alone", buckets=1)
        info.replication_factor = 1
        made = await world.done("CreateTable", pb.CreateTableRequest(table=info, request_id="two"))
        tablet = made.tablets[0]
        await scenario(world, tablet.tablet_id, tablet.config.members[0].uuid)
    finally:
        await world.end()


async def ticks(world: MasterWorld, reconciler: Reconciler, lies: Iterable[pb.ReplicaStatus]) -> None:
    """Heartbeats of all servers, with these replicas too, and ticks until nothing changes."""
    for _ in range(4):
        for uuid in S:
            beat = world.beat(uuid)
            beat.replicas.extend(lie for lie in lies if lie.uuid == uuid)
            world.servers.held[uuid] = {status.tablet_id: status for status in beat.replicas}
            await world.done("Heartbeat", beat)
        await reconciler.tick()
        await world.master.inquiries.settled()
        world.clock.now_us += 1_000_000


@pytest.mark.parametrize("what", ["no host", "no port", "an index beyond the last", "a decision beyond the last"])
def test_impossible_config_of_one_tablet_stops_no_other(what: str) -> None:
    """IN-40. Goal: a server that reports an impossible config of its own tablet does not keep the masters from another
    tablet. Method: the only replica of a tablet says the truth, then reports such a config; the other tablet's config
    changes, and the catalog gets it."""

    async def scenario(world: MasterWorld, tablet: str, liar: str) -> None:
        reconciler = Reconciler(world.master)
        await ticks(world, reconciler, [status_of(liar, tablet, alone(liar, 1))])
        bad = UNHELD[what]
        lie = RaftConfig(bad.opid, (Member(liar, bad.members[0].addresses),), bad.decision)
        world.members, world.config_index = S[:4], 7
        await ticks(world, reconciler, [status_of(liar, tablet, lie)])
        known = {t: world.master.known_config(t) for t in (world.tablet, tablet)}
        assert [c.opid.index for c in known.values() if c is not None] == [7, 1]

    asyncio.run(with_two_tables(scenario))


def test_record_that_cannot_be_kept_keeps_no_other_from_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """IN-40. Goal: if the catalog cannot hold a proven config, the others are kept, and a log line names the tablet
    once. Method: a proof with such a config, which belief would not let in."""

    async def scenario(world: MasterWorld, tablet: str, server: str) -> None:
        reconciler, inquiries = Reconciler(world.master), world.master.inquiries
        await ticks(world, reconciler, [status_of(server, tablet, alone(server, 1))])
        true, false = inquiries.proven, UNHELD["an index beyond the last"]
        inquiries.proven = lambda t: false if t == tablet else true(t)  # type: ignore[method-assign]
        world.members, world.config_index = S[:4], 7
        await ticks(world, reconciler, [status_of(server, tablet, alone(server, 3))])
        known = {t: world.master.known_config(t) for t in (world.tablet, tablet)}
        assert [c.opid.index for c in known.values() if c is not None] == [7, 1]

    with caplog.at_level(logging.WARNING, logger="nyala.master"):
        asyncio.run(with_two_tables(scenario))
    assert len([r for r in caplog.records if "is not kept" in r.getMessage()]) == 1


class Refusing(Reconciler):
    """A reconciler whose ticks are refused as a test wants; None: they succeed."""

    why: Refused | None = None

    async def tick(self) -> None:
        if self.why is not None:
            raise self.why


def test_tick_that_is_refused_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """IN-40. Goal: an operator sees that the masters make no decisions. Method: ticks refused for one reason, another,
    and the first again after a tick that succeeded; ordinary refusals of a master that does not lead."""
    state: Any = SimpleNamespace(options=MasterOptions(root="x"), ticks_refused=0, refused_ticks=None, mono_us=7)
    state.soft = SoftState(0, lambda tablet_id: None)
    reconciler = Refusing(state)
    bad = Refused(Code.INVALID_ARGUMENT, "bad")
    followers = [Refused(c, "not now") for c in (Code.NOT_LEADER, Code.NOT_READY, Code.UNAVAILABLE)]
    with caplog.at_level(logging.WARNING, logger="nyala.master"):
        for why in [bad, bad, *followers, bad, Refused(Code.NO_SPACE, "full"), None, bad]:
            reconciler.why = why
            asyncio.run(reconciler.try_tick())
    assert ["full" in record.getMessage() for record in caplog.records] == [False, True, False]
    assert state.ticks_refused == 5
    assert (state.refused_ticks.count, state.refused_ticks.since_us) == (1, 7) and "bad" in state.refused_ticks.why


def test_masters_status_and_the_check_tell_that_ticks_are_refused_again_and_again() -> None:
    """IN-40. Goal: `cluster check` names the master that makes no decisions, since when, why and what to do. Method: a
    leading master whose ticks are refused, once, then again with a text of many lines, then not; its status as a client
    reads it."""

    async def told(world: MasterWorld) -> list[str]:
        status = check_reply(await world.service.Status(pb.Empty(), None), "the master")
        view = ClusterView("c", [], [MasterView(MASTER, status)], tables=[], replicas={})
        return [f"{f.severity.name} {f.subject}: {f.what}" for f in judge(view) if f.subject == f"master {MASTER}"]

    async def scenario(world: MasterWorld, _tablet: str, _server: str) -> None:
        reconciler = Refusing(world.master)
        reconciler.why = Refused(Code.INVALID_ARGUMENT, "bad\n" * 5000)
        await reconciler.try_tick()
        assert await told(world) == [], "one may be refused"
        world.clock.now_us += 9_000_000
        await reconciler.try_tick()
        (line,) = await told(world)
        begin = f"ERROR master {MASTER}: leads, and has made no decision for any tablet for 9 s: its last 2 ticks"
        assert line.startswith(begin) and "bad" in line and "restart this master" in line
        assert line.isprintable() and len(line) < 3_000
        reconciler.why = None
        await reconciler.try_tick()
        assert await told(world) == []

    async def follows() -> None:
        world = MasterWorld(alone=False)
        await world.begin()
        world.master.refused_ticks = RefusedTicks("of a former leadership", 0, 9)
        assert await told(world) == []
        await world.end()

    asyncio.run(with_two_tables(scenario))
    asyncio.run(follows())


def test_refused_ticks_are_a_metric() -> None:
    """IN-40. Goal: monitoring sees refused ticks. Method: the families of a master with three of them."""

    async def scenario(world: MasterWorld, _tablet: str, _server: str) -> None:
        world.master.ticks_refused = 3
        with closing(RequestChecks()) as checks:
            metrics = Metrics(checks, ConnectionBound(1), CollectionPauses(), world.master)
            families = {f.name: f for f in metrics.collect()}
        assert families["nyala_master_ticks_refused"].samples[0].value == 3

    asyncio.run(with_two_tables(scenario))


def test_reports_are_metrics() -> None:
    """Goal: monitoring sees how many records a master publishes, and how old the oldest is. Method: the families of a
    master that has published none, and of one that has published records."""

    async def scenario(world: MasterWorld, _tablet: str, _server: str) -> None:
        def told(*names: str) -> list[float]:
            with closing(RequestChecks()) as checks:
                metrics = Metrics(checks, ConnectionBound(1), CollectionPauses(), world.master)
                families = {f.name: f for f in metrics.collect()}
            return [families[f"nyala_master_{name}"].samples[0].value for name in names]

        age, master = "report_age_seconds_max", world.master
        assert told("reports", "reports_compared", age) == [0, 0, -1]
        master.reports_published, master.reports_compared = 7, 9
        master.oldest_report_us = master.mono_us - 5_000_000
        assert [round(value) for value in told("reports", "reports_compared", age)] == [7, 9, 5]

    asyncio.run(with_two_tables(scenario))


class Counting(Reconciler):
    """A policy whose ticks are counted."""

    ticks = 0

    async def tick(self) -> None:
        self.ticks += 1


def test_policy_of_a_young_leadership_waits_while_full_reports_come() -> None:
    """IN-80. Goal: a new leading master computes the view of a tablet once all its replicas have been reported, and no
    server can hold the policy up. Method: ticks while a full report is under way, after its server has been silent for
    a second, at the next slice, after the last one; and while one is under way a minute after the election."""

    async def scenario(world: MasterWorld, _tablet: str, _server: str) -> None:
        reconciler, soft = Counting(world.master), world.master.soft
        soft.since_us = world.master.mono_us

        async def ticks(after_us: int = 0) -> int:
            world.clock.now_us += after_us
            before = reconciler.ticks
            await reconciler.try_tick()
            return reconciler.ticks - before

        assert await ticks() == 1
        assert soft.full_reports.may_send("f" * 32, world.master.mono_us)
        assert [await ticks(), await ticks(BUSY_US - 1), await ticks(1)] == [0, 0, 1]
        assert soft.full_reports.may_send("f" * 32, world.master.mono_us)
        assert await ticks() == 0
        soft.full_reports.end("f" * 32)
        assert await ticks() == 1
        uuids = [f"{n:032x}" for n in range(limits.FULL_REPORTS_MAX + 1)]
        assert [soft.full_reports.may_send(uuid, world.master.mono_us) for uuid in uuids][-1] is False
        for uuid in uuids[:-1]:
            soft.full_reports.end(uuid)
        assert [await ticks(), await ticks(IDLE_US - 1), await ticks(1)] == [0, 0, 1], "one waits for its turn"
        world.clock.now_us = soft.since_us + HEAR_FIRST_US
        assert soft.full_reports.may_send("f" * 32, world.master.mono_us)
        assert await ticks() == 1

    asyncio.run(with_two_tables(scenario))


def test_tick_ends_without_a_decision_when_full_reports_begin_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-80. Goal: a tick that began before the first report does not compute views that each report changes again.
    Method: a full report begins after the first of two steps of a tick's views: the tick ends there. The next one is
    made when the report is complete."""
    steps: list[bool] = []

    async def scenario(world: MasterWorld, _tablet: str, _server: str) -> None:
        reconciler, soft, looks = Reconciler(world.master), world.master.soft, list[int]()
        soft.since_us = world.master.mono_us
        refresh = world.master.kept.refresh

        def step(*arguments: Any) -> bool:
            if not steps:
                assert soft.full_reports.may_send("f" * 32, world.master.mono_us)
            steps.append(refresh(*arguments) and len(steps) > 0)
            return steps[-1]

        async def look(*_: object) -> None:
            looks.append(len(steps))

        reconciler.on_view = look
        with monkeypatch.context() as patched:
            patched.setattr(world.master.kept, "refresh", step)
            await reconciler.tick()
            assert (steps, looks) == ([False], [])
            await reconciler.try_tick()
            assert (steps, looks) == ([False], [])
            soft.full_reports.end("f" * 32)
            await reconciler.try_tick()
        assert len(steps) > 1 and looks == [len(steps)]

    asyncio.run(with_two_tables(scenario))


def test_refresh_of_views_leaves_half_of_the_time_to_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-80. Goal: heartbeats are not late while many views are computed. Method: three steps of 12 ms each, played;
    the loop is free for as long after each but the last."""
    pauses: list[float] = []
    steps = [False, False, True]

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def scenario(world: MasterWorld, _tablet: str, _server: str) -> None:
        def refresh(*_: object) -> bool:
            world.clock.now_us += 12_000
            return steps.pop(0)

        with monkeypatch.context() as patched:
            patched.setattr(world.master.kept, "refresh", refresh)
            patched.setattr(master_state, "asyncio", SimpleNamespace(sleep=sleep))
            await world.master.refresh_views()

    asyncio.run(with_two_tables(scenario))
    assert pauses == [0.012, 0.012] and not steps


def test_sinks_of_a_tick_get_the_same_decisions() -> None:
    """Goal: the outcome of the master's own executor names the decision that is in Kafka. Method: a tablet without
    two of its members, and two sinks of one reconciler; the connection of the second one is made anew between ticks."""

    async def scenario(world: MasterWorld, tablet: str, server: str) -> None:
        reconciler, connections = Reconciler(world.master), [1, 1]
        got: list[list[Decision]] = [[], []]
        for sent, connection in zip(got, (lambda: connections[0], lambda: connections[1]), strict=True):
            reconciler.add_sink(lambda found, sent=sent: sent.extend(filter(None, found.values())), connection)  # type: ignore[misc]
        world.members, world.config_index = S[:1], 7
        await ticks(world, reconciler, [status_of(server, tablet, alone(server, 1))])
        assert got[0] and got[0] == got[1]
        first = len(got[0])
        connections[1] = 2
        await ticks(world, reconciler, [])
        versions = [one.version for one in got[1][first:]]
        assert versions and min(versions) > max(one.version for one in got[0][:first])

    asyncio.run(with_two_tables(scenario))
