"""Moves that even out the bytes on the servers, and no number of replicas less even."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.pipeline.rebalance import Plan, describe
from nyala.replica.policy import Caps, ClusterView, MoveKind, inputs_of, plan_rebalance, skew
from nyala.replica.policy.even_bytes import UNEVEN_BYTES_MIN, UNEVEN_SHARE
from tests.harness.policy_views import server
from tests.unit.policy.test_policy_rebalance import WIDE, carry_out, settled
from tests.unit.policy.test_policy_rebalance_moves import told, view_of

GB = 1 << 30


def sized(view: ClusterView, **gigabytes: float) -> ClusterView:
    """The view with tablets of these sizes; others are empty."""
    tablets = (replace(t, bytes_on_disk=int(gigabytes.get(t.tablet_id, 0) * GB)) for t in view.tablets)
    return replace(view, tablets=tuple(tablets))


def bytes_of(view: ClusterView) -> Counter[str]:
    """The bytes on each server."""
    held: Counter[str] = Counter({s.uuid: 0 for s in view.servers})
    for tablet in view.tablets:
        held.update(dict.fromkeys(tablet.config.voters, tablet.bytes_on_disk))
    return held


def kept_sizes(view: ClusterView, moves: list[object]) -> ClusterView:
    """The view after the moves; each tablet keeps its size."""
    size = {t.tablet_id: t.bytes_on_disk for t in view.tablets}
    after = carry_out(view, moves)  # type: ignore[arg-type]
    return replace(after, tablets=tuple(replace(t, bytes_on_disk=size[t.tablet_id]) for t in after.tablets))


@pytest.mark.deep
@settings(max_examples=100)
@given(st.integers(0, 1 << 30))
def test_bytes_end_even_and_no_number_of_replicas_becomes_less_even(seed: int) -> None:
    """OP-09. Goal: plans end; in the end, tables and the cluster differ by one replica at most, and no exchange of two
    replicas of a table would lower the difference of two servers by what counts as uneven. Method: random clusters and
    sizes; after the last plan every exchange of every two servers is tried. While the numbers are even, no plan makes
    the bytes less even."""
    view = uneven_view(seed)
    names = [host.uuid for host in view.servers]
    for _ in range(40):
        if not (moves := plan_rebalance(view, WIDE)):
            break
        before, even = bytes_of(view), skew(view) <= 1 and all(skew(view, t.table_id) <= 1 for t in view.tablets)
        view = kept_sizes(view, list(moves))
        if even:
            squares = [sum(n * n for n in held.values()) for held in (bytes_of(view), before)]
            assert squares[0] <= squares[1]
    else:
        pytest.fail("the plans do not end")
    assert skew(view) <= 1 and all(skew(view, t.table_id) <= 1 for t in view.tablets)
    held = bytes_of(view)
    enough = max(UNEVEN_BYTES_MIN, UNEVEN_SHARE * sum(held.values()) / len(held))
    for source in names:
        for target in names:
            gap = held[source] - held[target]
            mine = [t for t in view.tablets if source in t.config.voters and target not in t.config.voters]
            theirs = [t for t in view.tablets if target in t.config.voters and source not in t.config.voters]
            for a in mine:
                for b in theirs:
                    left = abs(gap - 2 * (a.bytes_on_disk - b.bytes_on_disk))
                    assert gap - left < enough or a.table_id != b.table_id


@pytest.mark.parametrize(
    ("hosts", "tablets", "sizes", "moves"),
    [
        pytest.param(
            "a b", "T1 a:*, T2 a:*, T3 b:*, T4 b:*", {"T1": 30, "T2": 10}, "T2 a>b, T3 b>a", id="two are exchanged"
        ),
        pytest.param("a b", "T1 a:*, T2 a:*, T3 b:*", {"T1": 30, "T2": 10}, "T2 a>b", id="one goes to where fewer are"),
        pytest.param("a b", "T1 a:*, T3 b:*", {"T1": 30}, "", id="a large one alone stays"),
        pytest.param("a b", "T1 a:*, T2 a:*, T3 b:*, T4 b:*", {"T1": 0.9, "T2": 0.1}, "", id="less than a GiB is even"),
        pytest.param("a b", "T1 a:*, T2 a:*, T3 b:*, T4 b:*", {"T1": 5, "T2": 0.5}, "T2 a>b, T3 b>a", id="a GiB less"),
        pytest.param("a b", "T1 a:*, T2 a:*, T3 b:*, T4 b:*", {"T1": 5, "T2": 0.4}, "", id="not for less"),
        pytest.param("a b", "T1 a:*, T2 a:*, T3 a:*, T4 b:*, T5 b:*", {"T1": 20, "T2": 12, "T3": 8}, "T1 a>b",
                     id="the one that leaves least"),
        pytest.param("a b", "T1 a:*, T2 a:*, T3 a:*, T4 b:*, T5 b:*, T6 b:*", {"T1": 20, "T2": 15, "T3": 5},
                     "T1 a>b, T4 b>a", id="the exchange that leaves least"),
        pytest.param("a b", "T1 a:*, T2 a:*, T3 b:*, T4 b:*", {"T1": 30, "T2": 25, "T3": 10, "T4": 5},
                     "T2 a>b, T4 b>a", id="the exchange of fewer bytes"),
        pytest.param(
            "a b", "T1 a:*, T2 a:*, T3 b:*, T4 b:*", {"T1": 101, "T2": 9, "T3": 100, "T4": 1}, "", id="so is a tenth"
        ),
        pytest.param("a b", "T1 a:*, T2 a:*, U1 b:*, U2 b:*", {"T1": 30, "T2": 10}, "T1 a>b, U1 b>a", id="numbers"),
        pytest.param("a@x b@y c@x", "T1 a:* b, T2 a:* b, T3 c:* b, T4 c:* b", {"T1": 30, "T2": 10},
                     "T2 a>c, T3 c>a", id="within a location"),
        pytest.param("a b c", "T1 a:*, T2 a:*, T3 b:*, T4 b:*, T5 c:*, T6 c:*",
                     {"T1": 20, "T2": 20, "T5": 10, "T6": 10}, "T1 a>b, T3 b>a", id="the most uneven servers first"),
        pytest.param("a!", "T1 a:*", {"T1": 30}, "", id="without a server that could take any"),
        pytest.param("a b<2", "T1 a:*, T2 a:*, T3 b:*, T4 b:*", {"T1": 30, "T2": 10}, "", id="not without room"),
    ],
)  # fmt: skip
def test_bytes_are_evened_out(hosts: str, tablets: str, sizes: dict[str, float], moves: str) -> None:
    """OP-09. Goal: the moves for bytes are those that the rules name. Method: each rule alone."""
    view = sized(view_of(hosts, tablets), **sizes)
    assert told([m for m in plan_rebalance(view, WIDE) if m.kind == "REPLICA"]) == moves


def test_an_exchange_is_planned_whole_or_not_at_all() -> None:
    """OP-09. Goal: the caps do not cut an exchange in two, which would leave the servers less even, and the plan tells
    what it left out. Method: caps of one move in all, and of one on each server, beside such as let it pass."""
    view = sized(view_of("a b", "T1 a:*, T2 a:*, T3 b:*, T4 b:*"), T1=30, T2=10)
    for caps in (Caps(moves_max=1, moves_per_server_max=9), Caps(moves_max=9, moves_per_server_max=1)):
        cut = plan_rebalance(view, caps)
        assert (cut, cut.left_out) == ([], 2)
        plan = Plan("p", view, tuple(cut), {}, inputs_of((), 0), left_out=cut.left_out)
        assert "the caps leave out 2 moves or more" in describe(plan) and "nothing to move" not in describe(plan)
        assert not plan.complete
    whole = plan_rebalance(view, Caps(moves_max=2, moves_per_server_max=2))
    assert (len(whole), whole.left_out) == (2, 0)


@pytest.mark.parametrize(
    ("hosts", "tablets", "sizes", "caps", "moves", "left_out"),
    [
        pytest.param("a b", "T1 a:*, T2 a:*, T3 a:*, T4 b:*, T5 b:*", {"T1": 100, "T2": 50, "T3": 30, "T4": 10}, (9, 9),
                     "T1 a>b, T4 b>a", 0, id="an exchange is best"),
        pytest.param("a b", "T1 a:*, T2 a:*, T3 a:*, T4 b:*, T5 b:*", {"T1": 100, "T2": 60, "T3": 10, "T4": 30}, (2, 2),
                     "T1 a>b, T4 b>a", 0, id="where it fits, no other move comes first"),
        pytest.param("a b", "T1 a:*, T2 a:*, T3 a:*, T4 b:*, T5 b:*", {"T1": 100, "T2": 50, "T3": 30, "T4": 10}, (1, 9),
                     "T1 a>b", 1, id="where it never fits, one move"),
        pytest.param("a b", "T1 a:*, T2 a:*, T3 a:*, T4 b:*, T5 b:*", {"T1": 100, "T2": 50, "T3": 30, "T4": 10}, (9, 1),
                     "T1 a>b", 1, id="nor by the cap of a server"),
        pytest.param("a b c", "T1 a:*, T2 a:*, T3 a:*, T4 a:*, T5 a:*, T6 a:*", {}, (9, 1), "T1 a>b", 3,
                     id="a server's cap"),
        pytest.param("a b", "T1 a:*, T2 a:*, T3 a:*, T4 a:*", {}, (1, 9), "T1 a>b", 1, id="the cap of the plan"),
        pytest.param("a b", "T1 a:*, T2 a:*, T3 a:*, T4 a:*", {}, (2, 2), "T1 a>b, T2 a>b", 0, id="caps that suffice"),
    ],
)  # fmt: skip
def test_plan_tells_what_its_caps_left_out(
    hosts: str, tablets: str, sizes: dict[str, float], caps: tuple[int, int], moves: str, left_out: int
) -> None:
    """OP-09. Goal: a plan that its caps cut is not taken for an even cluster, and a step that is too large for them
    does not hide the others. Method: caps for a plan and for servers, with exchanges and without."""
    total, each = caps
    plan = plan_rebalance(sized(view_of(hosts, tablets), **sizes), Caps(moves_max=total, moves_per_server_max=each))
    assert (told(plan), plan.left_out) == (moves, left_out)


@pytest.mark.deep
@settings(max_examples=100)
@given(st.integers(0, 1 << 30), st.integers(1, 4), st.integers(1, 3))
def test_plans_cut_by_caps_end_where_others_do_or_tell_that_they_do_not(seed: int, total: int, each: int) -> None:
    """OP-09. Goal: each move of a plan that was cut makes the servers more even, so the rounds end, and the last one
    says whether something is left to do. Method: random clusters and sizes, small caps, round after round; the sum of
    squares of the replicas, of each table and in all, never grows, and where it stays, that of the bytes falls. The end
    is even in numbers, and a plan with wide caps has moves then only if the cut one told it."""
    view, caps = uneven_view(seed), Caps(moves_max=total, moves_per_server_max=each)
    for _ in range(200):
        moves = plan_rebalance(view, caps)
        replicas = [m for m in moves if m.kind is MoveKind.REPLICA]
        if not moves:
            break
        for move in replicas:
            after = kept_sizes(view, [move])
            if not move.reason.startswith("server"):
                assert squares(after) < squares(view), move
            view = after
        view = kept_sizes(view, [m for m in moves if m.kind is MoveKind.LEADER and m.tablet_id not in replicas])
    else:
        pytest.fail("the plans do not end")
    assert skew(view) <= 1 and all(skew(view, t.table_id) <= 1 for t in view.tablets)
    assert bool(plan_rebalance(view, WIDE)) == bool(moves.left_out)


def squares(view: ClusterView) -> tuple[int, int]:
    """The sums of the squared numbers of replicas, over tables and servers, and over servers."""
    of_table = Counter((t.table_id, u) for t in view.tablets for u in t.config.voters)
    whole = Counter(u for t in view.tablets for u in t.config.voters)
    return sum(n * n for n in of_table.values()), sum(n * n for n in whole.values())


def uneven_view(seed: int) -> ClusterView:
    """A random cluster with sizes."""
    rng = random.Random(seed)
    names = [f"s{n}" for n in range(rng.randint(2, 6))]
    tablets = []
    for number in range(rng.randint(2, 14)):
        rf = min(rng.choice([1, 3]), len(names))
        voters = rng.sample(names, rf)
        tablets.append(settled(f"T{number:02}", f"T{number % 2}", voters, min(voters)))
    view = ClusterView(servers=tuple(map(server, names)), tablets=tuple(tablets))
    return sized(view, **{t.tablet_id: rng.choice([0, 0.1, 1, 5, 30]) for t in tablets})
