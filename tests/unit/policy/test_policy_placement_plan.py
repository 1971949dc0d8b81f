"""Replicas over locations, and plans for one purpose."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.policy import (
    Caps,
    ChangeKind,
    ClusterView,
    DesiredChange,
    Goals,
    MoveKind,
    lost_replicas,
    plan_placement,
    plan_rebalance,
)
from nyala.replica.policy.locations import crowding, spreading_moves
from nyala.replica.policy.views import DISK_BYTES_SPARE
from tests.harness.policy_views import server, tablet
from tests.unit.policy.test_policy_rebalance import WIDE, carry_out, settled
from tests.unit.policy.test_policy_rebalance_moves import told, view_of

PLACES = ("/d/1", "/d/2", "/e/1", "/f/1", "")


def crooked(seed: int, racks: int) -> ClusterView:
    """A cluster of several locations whose tablets stand on few servers, most of them in one location."""
    rng = random.Random(seed)
    hosts = [server(f"s{n:02}", location=PLACES[rng.randrange(racks)]) for n in range(rng.randint(3, 9))]
    names = sorted((s.uuid for s in hosts), key=lambda u: next(s.location for s in hosts if s.uuid == u))
    tablets = []
    for number in range(rng.randint(1, 8)):
        rf = rng.choice([n for n in (1, 3, 5) if n <= len(names)])
        pool = names[: rng.randint(rf, len(names))]
        voters = rng.sample(pool, rf)
        tablets.append(settled(f"T{number:02}", f"T{number % 2}", voters, min(voters)))
    return ClusterView(servers=tuple(hosts), tablets=tuple(tablets))


def crowding_of(view: ClusterView, uuids: tuple[str, ...]) -> tuple[int, int]:
    """The crowding of replicas on these servers."""
    places = {s.uuid: s.places for s in view.servers}
    return crowding(places[u] for u in uuids)


def best(view: ClusterView, replicas: int) -> tuple[int, int]:
    """The least crowding of so many replicas: all sets of servers are tried."""
    uuids = sorted(s.uuid for s in view.servers if s.takes_replicas)
    return min(crowding_of(view, chosen) for chosen in combinations(uuids, replicas))


@pytest.mark.deep
@settings(max_examples=120)
@given(seed=st.integers(0, 1 << 30), racks=st.integers(1, len(PLACES)), goals=st.sampled_from(["spread", "all"]))
def test_replicas_of_every_tablet_end_as_spread_as_the_servers_allow(seed: int, racks: int, goals: str) -> None:
    """OP-07. Goal: plans that are carried out end when no location could hold fewer replicas of any tablet, and no step
    crowds one; the placement job moves nothing else, and no more than it must. Method: random clusters in up to five
    locations; all sets of servers are tried for each tablet. Each move of the placement lowers the crowding of its
    tablet; of a plan for the whole cluster, none raises it."""
    view = crooked(seed, racks)
    for _ in range(20):
        if goals == "spread":
            moves = plan_placement(view, Goals(spread=True), WIDE)
        else:
            moves = plan_rebalance(view, WIDE)
        if not moves:
            break
        before = {t.tablet_id: crowding_of(view, t.config.voters) for t in view.tablets}
        view = carry_out(view, moves)
        after = {t.tablet_id: crowding_of(view, t.config.voters) for t in view.tablets}
        assert all(after[t] <= before[t] for t in after)
        if goals == "spread":
            assert {m.tablet_id for m in moves} == {t for t in after if after[t] < before[t]}
    else:
        pytest.fail("the plans do not end")
    for each in view.tablets:
        assert crowding_of(view, each.config.voters) == best(view, len(each.config.voters))


def test_moves_that_spread_are_grouped_by_what_they_bring() -> None:
    """OP-07. Goal: the best move is known by the locations alone. Method: five replicas in three data centers: no data
    center keeps a majority; then a rack is left within one."""
    d1, d2, e1, f1 = (server("x", location=place).places for place in PLACES[:4])
    first, *_ = spreading_moves([d1, d1, d2, e1, f1], {d1, d2, e1, f1})
    assert first == {(d1, e1), (d1, f1)}, "from the fullest rack of the fullest data center"
    assert spreading_moves([d1, d1, e1], {d1, d2, e1}) == [frozenset({(d1, d2)})]
    assert spreading_moves([d1, e1, f1], {d1, d2, e1, f1}) == []


@pytest.mark.parametrize(
    ("hosts", "tablets", "moves"),
    [
        pytest.param("a@x b@x c@x d@y e@z", "T1 a:* b c", "T1 b>d", id="one at a time, the leader last"),
        pytest.param("a@x b@x d@y e@y", "T1 a:* b, T2 a:* b", "T1 b>d, T2 b>e", id="to where fewer are"),
        pytest.param("a@x b@x d@y<1 e@y", "T1 a:* b, T2 a:* b, U1 d:*", "T1 b>e, T2 b>e", id="where room is"),
        pytest.param("a@x b@x d@y!", "T1 a:* b", "", id="not to a silent server"),
        pytest.param("a@x b@x d@y-", "T1 a:* b", "", id="nor to one that is emptied"),
        pytest.param("a@x b@x c@x d@y", "T1 a:* b:F c", "", id="not while a replica is lost"),
        pytest.param("a@x b@x c@x d@y", "T1 a:* b c, T2 c:*", "T1 c>d", id="from the server with more of the table"),
    ],
)
def test_a_crowded_location_is_left(hosts: str, tablets: str, moves: str) -> None:
    """OP-07. Goal: the moves of a spread are those that the rules name. Method: each rule alone."""
    view = view_of(hosts, tablets)
    assert told(plan_placement(view, Goals(spread=True), WIDE)) == moves
    assert told(plan_placement(view, Goals(tables=frozenset("TU")), WIDE)).startswith(moves)
    assert ":F" in tablets or plan_placement(view, Goals(under_replicated=True, drain=True), WIDE) == []


def test_a_crowded_location_is_not_left_for_a_nearly_full_disk() -> None:
    """OP-07. Goal: a spread fills no disk. Method: the only server in another rack has no room for the tablet, then it
    has; then copies into it fail."""
    view = view_of("a@x b@x d@y", "T1 a:* b")
    for change, moves in (
        ({"disk_bytes_free": DISK_BYTES_SPARE + 99}, ""),
        ({"disk_bytes_free": DISK_BYTES_SPARE + 100}, "T1 b>d"),
        ({"avoided": True}, ""),
    ):
        *others, last = view.servers
        changed = replace(view, servers=(*others, replace(last, **change)))
        assert told(plan_placement(changed, Goals(spread=True), WIDE)) == moves


@pytest.mark.parametrize(
    ("hosts", "tablets", "moves"),
    [
        pytest.param("a b c d", "T1 a:* b c:F", "T1 c>d", id="a lost replica"),
        pytest.param("a b c d e", "T3 a:* b c d:F", "T3 d>e", id="where it has none"),
        pytest.param(
            "a b c d e f g", "T1 a:* b c d e:F, T2 a:* b c:F", "T2 c>f, T1 e>g", id="those with the least to lose first"
        ),
        pytest.param(
            "a b c d e f",
            "T0 a:* b c d e:F, T1 a:* b c d:F e:F, T2 a:* b c d:F, T3 a:* b c:F",
            "T1 d>f, T2 d>f, T3 c>e, T0 e>f",
            id="by the voters that it can lose, not by their number",
        ),
        pytest.param("a b c d e", "S1 e:*, T1 a:* b c:F, T2 a:* b c:F", "T1 c>d, T2 c>d", id="to the least loaded"),
        pytest.param("a b c d", "T1 a:* b:F c:F", "", id="not without a majority"),
        pytest.param("a b c d", "T1 a b c:F", "", id="not without a leader"),
        pytest.param("a b c d e", "T1 a:* b c:F d:p", "", id="not while another one is copied"),
        pytest.param("a b c d!", "T1 a:* b c:F", "", id="not to a silent server"),
        pytest.param("a@x b@y c@z d@x e@z", "T1 a:* b c:F", "T1 c>e", id="in the location of the lost one"),
    ],
)
def test_a_lost_replica_gets_a_place(hosts: str, tablets: str, moves: str) -> None:
    """OP-08. Goal: the places of lost replicas, and their order, are those that the rules name. Method: each rule
    alone; a tablet with a change under way, or with a desired one, is left to it."""
    view = view_of(hosts, tablets)
    assert told(plan_placement(view, Goals(under_replicated=True), WIDE)) == moves
    wanted = DesiredChange(kind=ChangeKind.REMOVE, wish_id="w", from_uuid="a")
    for change in ({"pending": True}, {"desired": wanted}):
        busy = replace(view, tablets=tuple(replace(t, **change) for t in view.tablets))
        assert plan_placement(busy, Goals(under_replicated=True), WIDE) == []


def test_many_lost_replicas_are_spread_over_the_servers_that_are_left() -> None:
    """OP-08. Goal: the copies after a loss do not all go to one server. Method: twelve tablets lose a member, three
    servers are free: each gets four; within the caps, each gets one."""
    hosts = tuple(server(u) for u in "abcdef")
    tablets = tuple(tablet("a:* b c:F", name=f"t{n:02}", bytes_on_disk=1) for n in range(12))
    view = ClusterView(servers=hosts, tablets=tablets)
    goals = Goals(under_replicated=True)
    moves = plan_placement(view, goals, Caps(moves_max=100, moves_per_server_max=100))
    assert Counter(m.to_uuid for m in moves) == {"d": 4, "e": 4, "f": 4}
    assert {m.kind for m in moves} == {MoveKind.REPLICA} and {m.from_uuid for m in moves} == {"c"}
    assert lost_replicas(view) == {t.tablet_id: ("c",) for t in tablets}
    assert len(plan_placement(view, goals, Caps(moves_max=2, moves_per_server_max=5))) == 2


@pytest.mark.parametrize(
    ("hosts", "moves"), [("a- b c d<1 e", "T1 c>d, T2 a>b, T3 a>c"), ("a- b c d<2 e", "T1 c>d, T2 a>d, T3 a>b")]
)
def test_places_that_a_plan_gave_away_are_taken(hosts: str, moves: str) -> None:
    """OP-08. Goal: a plan for two goals gives no place twice. Method: a lost replica goes to a server with room for one
    or for two, then a server is emptied."""
    view = view_of(hosts, "T1 b:* e c:F, T2 a:*, T3 a:*")
    found = plan_placement(view, Goals(under_replicated=True, drain=True), WIDE)
    assert told(found) == moves


def test_placement_of_a_table_touches_no_other_table() -> None:
    """OP-08. Goal: a table is spread and evened out, its leaders too, and all others stay. Method: two tables on one
    server of two, one of them named; then with a lost replica of the other one, and with a server to empty."""
    view = view_of("a b", "T1 a:*, T2 a:*, U1 a:*, U2 a:*")
    assert told(plan_placement(view, Goals(tables=frozenset("T")), WIDE)) == "T1 a>b"
    led = view_of("a b", "T1 a:* b, T2 a:* b, U1 a:* b, U2 a:* b")
    assert told(plan_placement(led, Goals(tables=frozenset("T")), WIDE)) == "T1 a=>b"
    lost = view_of("a b c d", "T1 a:* b c:F, U1 a:* b c:F")
    assert told(plan_placement(lost, Goals(tables=frozenset("U"), under_replicated=True), WIDE)) == "U1 c>d"
    drained = view_of("a- b", "T1 a:*, U1 a:*")
    assert told(plan_placement(drained, Goals(tables=frozenset("U"), drain=True), WIDE)) == "U1 a>b"
    assert told(plan_placement(drained, Goals(drain=True), WIDE)) == "T1 a>b, U1 a>b"
    assert plan_placement(drained, Goals(spread=True, under_replicated=True), WIDE) == []


def test_whole_cluster_is_spread_before_it_is_evened_out() -> None:
    """OP-07. Goal: the rebalance job moves replicas out of a crowded location though all servers have as many. Method:
    two tablets, each with all replicas in one rack of two, the same number on every server."""
    view = view_of("a@x b@x c@y d@y", "T1 a:* b, T2 c:* d")
    assert told(plan_rebalance(view, WIDE)) == "T1 b>c, T2 d>b"
