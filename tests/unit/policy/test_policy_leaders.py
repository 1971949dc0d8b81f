"""Leader moves: few, within caps, and for the layout that the replica moves of the plan leave."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.pipeline.rebalance import Plan, describe
from nyala.replica.policy import Caps, ClusterView, MoveKind, inputs_of, plan_rebalance
from nyala.replica.policy.fewest import fewest_moves
from nyala.replica.policy.leaders import Leaders, plan_leaders
from tests.harness.policy_views import server
from tests.unit.policy.test_policy_rebalance import WIDE, carry_out, settled
from tests.unit.policy.test_policy_rebalance_moves import told, view_of

Costs = tuple[int, int, int]


def small_view(seed: int) -> ClusterView:
    """A few tablets of three replicas, or two, on a few servers, led from anywhere."""
    rng = random.Random(seed)
    names = [f"s{n}" for n in range(rng.randint(2, 5))]
    tablets = []
    for number in range(rng.randint(2, 7)):
        voters = rng.sample(names, min(len(names), rng.choice([2, 3])))
        tablets.append(settled(f"T{number}", f"T{rng.randrange(3)}", voters, rng.choice(voters[:2])))
    return ClusterView(servers=tuple(map(server, names)), tablets=tuple(tablets))


def costs(view: ClusterView, led: list[str]) -> Costs:
    """The squares of leaderships of tables, of servers, and the transfers, if these are the leaders."""
    of_table = Counter((t.table_id, u) for t, u in zip(view.tablets, led, strict=True))
    moved = sum(t.leader_uuid != u for t, u in zip(view.tablets, led, strict=True))
    return sum(n * n for n in of_table.values()), sum(n * n for n in Counter(led).values()), moved


@pytest.mark.deep
def test_leader_moves_are_as_few_as_can_be() -> None:
    """OP-09. Goal: leaderships end as even as they can be, with as few transfers as that needs. Method: 300 small
    random clusters and each choice of leaders: the tables are always as even as can be; servers are so, with the fewest
    transfers for that, in all clusters but one in twenty, and there it is one more; the printed bound is never above
    the fewest for clusters that end even."""
    worse = Counter[str]()
    for seed in range(300):
        view = small_view(seed)
        leaders = Leaders(view)
        bound = leaders.fewest()
        moves = list(plan_leaders(leaders))
        targets = {m.tablet_id: m.to_uuid for m in moves}
        mine = costs(view, [targets.get(t.tablet_id, t.leader_uuid) for t in view.tablets])
        best = min(costs(view, list(led)) for led in product(*(t.config.voters for t in view.tablets)))
        assert mine[0] == best[0], seed
        worse["servers"] += mine[1] > best[1]
        worse["transfers"] += mine[1] == best[1] and mine[2] > best[2]
        assert mine[1] > best[1] or mine[2] <= best[2] + 1, (seed, mine, best)
        count = {s.uuid: leaders.whole[s.uuid] for s in view.servers}
        of_table = [[c[s.uuid] for s in view.servers] for c in leaders.of_table.values()]
        if all(max(c) - min(c) <= 1 for c in (*of_table, [*count.values()])):
            assert bound <= best[2], (seed, bound, best)
    assert worse["servers"] <= 0 and worse["transfers"] <= 15, worse


@pytest.mark.a_third
@pytest.mark.parametrize("tables", [30, 300, 1000])
def test_leader_moves_of_a_large_cluster_are_close_to_the_bound(tables: int) -> None:
    """OP-09. Goal: transfers are within a fiftieth of the bound that is printed, and leaderships end even. Method:
    3,000 tablets on 60 servers in three racks, three fifths of them led from one rack."""
    rng = random.Random(1)
    hosts = [server(f"s{n:02}", location=f"/r{n % 3}") for n in range(60)]
    tablets = []
    for number in range(3000):
        table, row = number % tables, number // tables
        places = ((row * (rack + 1) + table * 7 + row // 20) % 20 for rack in range(3))
        voters = [f"s{place * 3 + rack:02}" for rack, place in enumerate(places)]
        tablets.append(settled(f"T{number:04}", f"U{table:03}", voters, rng.choice([*voters, *voters[:1] * 2])))
    leaders = Leaders(ClusterView(servers=tuple(hosts), tablets=tuple(tablets)))
    bound = leaders.fewest()
    moves = list(plan_leaders(leaders))
    for count in (leaders.whole, *leaders.of_table.values()):
        held = [count[host.uuid] for host in hosts]
        assert max(held) - min(held) <= 1
    assert bound <= len(moves) <= 1.02 * bound, (bound, len(moves))


@settings(max_examples=60)
@given(st.integers(0, 1 << 30), st.integers(1, 3), st.integers(1, 2))
def test_leader_moves_keep_their_caps_and_the_rounds_end(seed: int, total: int, each: int) -> None:
    """OP-09. Goal: no plan moves more leaderships than its caps allow, it tells what it left out, and the rounds end
    where a plan without caps has nothing to do. Method: small random clusters, round after round."""
    view = small_view(seed)
    caps = replace(WIDE, leader_moves_max=total, leader_moves_per_server_max=each)
    for _ in range(60):
        moves = plan_rebalance(view, caps)
        led = [m for m in moves if m.kind is MoveKind.LEADER]
        touched = Counter(u for m in led for u in (m.from_uuid, m.to_uuid))
        assert len(led) <= total and max(touched.values(), default=0) <= each
        whole = plan_rebalance(view, WIDE)
        assert len(led) + moves.leaders_left_out == sum(m.kind is MoveKind.LEADER for m in whole)
        if not moves:
            break
        view = carry_out(view, moves)
    else:
        pytest.fail("the plans do not end")
    assert plan_rebalance(view, WIDE) == []


def test_leaders_are_planned_for_the_layout_after_the_replica_moves() -> None:
    """OP-09. Goal: the plan does not hand leaderships over that a replica move hands over anyway, and counts those that
    stay. Method: a server leads two tablets of one table; the replica of one moves away, so only one is left."""
    view = view_of("a- b c", "T1 a:*, T2 b:* c, T3 b c:*")
    assert told(plan_rebalance(view, WIDE)) == "T1 a>b"
    view = view_of("a b", "T1 a:*, T2 a:*, T3 a:* b, T4 a:* b")
    moves = plan_rebalance(view, WIDE)
    assert told(moves) == "T1 a>b, T3 a=>b", told(moves)


@pytest.mark.parametrize(
    ("counts", "moves"),
    [
        ({"T": "4 0"}, 2),
        ({"T": "3 2"}, 0),
        ({"T": "3 1 1 1"}, 1),
        ({"T": "2 2 2 0"}, 1),
        ({"T": "3 0 0", "U": "0 3 0"}, 4),
        ({"T": "1 0", "U": "1 0"}, 1),
        ({"T": "2 0 0 1", "U": "0 1 1 1"}, 1),
        ({"T": "2 0 0", "U": "0 2 2"}, 2),
        ({"T": "1 0 0 0", "U": "1 0 0 0", "V": "1 1 1 1"}, 1),
        ({"T": "1 1 1 0", "U": "1 1 1 0"}, 1),
    ],
)
def test_bound_is_what_the_counts_need(counts: dict[str, str], moves: int) -> None:
    """OP-09. Goal: the bound counts what tables and servers have too much of and too little, once. Method: by hand."""
    of_table = {t: {f"s{n}": int(c) for n, c in enumerate(text.split())} for t, text in counts.items()}
    targets = {u for count in of_table.values() for u in count}
    assert fewest_moves(of_table, of_table, targets) == moves


def test_plan_tells_its_bounds_and_what_the_caps_of_leaders_left_out() -> None:
    """OP-09. Goal: text and status show how far a plan is from even. Method: six leaders on one server of two, a cap of
    one."""
    view = view_of("a b", ", ".join(f"T{n} a:* b" for n in range(6)))
    moves = plan_rebalance(view, Caps(leader_moves_max=1))
    assert (moves.replica_bound, moves.leader_bound, moves.leaders_left_out) == (0, 3, 2)
    plan = Plan("p", view, tuple(moves), {}, inputs_of((), 0), leader_bound=3, replica_bound=0, leaders_left_out=2)
    assert not plan.complete and moves[0].reason == "table T: 6 leaders against 0, in all 6 against 0"
    assert "leader moves: 1 in this plan; at least 3 are needed until numbers are even" in describe(plan)
    assert "the caps leave out 2 leader moves" in describe(plan)


def transfers(hosts: str, tablets: str) -> str:
    """The leader moves of a cluster whose replicas stay."""
    return told(list(plan_leaders(Leaders(view_of(hosts, tablets)))))


@pytest.mark.parametrize(
    ("hosts", "tablets", "moves"),
    [
        pytest.param("a b c", "T1 a:* c, T2 a:* c, T3 b:* c, T4 b:* c, U1 b:*", "T3 b=>c",
                     id="of two that lead as much of a table, from the one that leads most in all"),
        pytest.param("a b c d e", "P1 a:*, Q1 b:*, R1 a:*, S1 a:* c, T1 b:* c", "S1 a=>c",
                     id="in all, the server that leads most gives first"),
        pytest.param("a b c d e", "S1 a:* e, T1 a:* b, V1 a:*, V2 a:* b c, V3 c e:*, W1 c e:*", "T1 a=>b, V2 a=>c",
                     id="in all, a server that is even gives nothing while another one can"),
        pytest.param("a b c", "P1 b:* c, Q1 b:* c, U1 a b c:*, W1 c:*", "U1 c=>a",
                     id="in all, one transfer comes before a chain of two"),
    ],
)  # fmt: skip
def test_server_that_leads_most_gives_first(hosts: str, tablets: str, moves: str) -> None:
    """OP-09. Goal: leaderships end even with few transfers. Method: clusters in which another order of the servers that
    give needs one more."""
    assert transfers(hosts, tablets) == moves


@pytest.mark.parametrize(
    ("hosts", "tablets", "fewest"),
    [
        pytest.param("a b", "T1 a:* b, T2 a:* b", 1, id="half of them go"),
        pytest.param("a b", "T1 a:*, T2 a:*", 0, id="no other replica could lead"),
        pytest.param("a- b", "T1 a:* b, U1 a:* b", 2, id="all leave a server to empty"),
        pytest.param("a- b- c", "T1 a:* b", 0, id="but for another such one"),
    ],
)
def test_bound_counts_leaders_that_another_replica_can_follow(hosts: str, tablets: str, fewest: int) -> None:
    """OP-09. Goal: the bound counts a leadership as movable if another server may lead the tablet. Method: each case by
    hand."""
    assert Leaders(view_of(hosts, tablets)).fewest() == fewest
