"""The moves of a rebalance plan, on clusters small enough to be checked by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from nyala.replica.policy import (
    Caps,
    ChangeKind,
    ClusterView,
    DesiredChange,
    Move,
    MoveKind,
    ServerView,
    TabletView,
    not_settled,
    plan_rebalance,
    skew,
)
from nyala.replica.policy.layout import Layout
from nyala.replica.policy.rebalance import LEFT_OUT_MAX, bounded
from nyala.replica.types import Member, OpId, RaftConfig
from tests.harness.policy_views import server, tablet

WIDE = Caps(moves_max=100, moves_per_server_max=100)


def host(word: str) -> ServerView:
    """A server from a word such as `a@x<3-`: name, `@` location, `<` most replicas; `-` is draining, `!` is silent,
    `~` is in maintenance."""
    head, _, most = word.rstrip("-!~").partition("<")
    name, _, location = head.partition("@")
    state = {"draining": "-" in word, "alive": "!" not in word, "maintenance": "~" in word}
    return server(name, location=location, tablets_max=int(most or 0), **state)


def held(line: str) -> TabletView:
    """A tablet from a line such as `T1 a:* b:F`: its name, which begins with its table's, and its members."""
    name, _, words = line.partition(" ")
    return tablet(words, name=name, table=name[0], rf=len(words.split()), bytes_on_disk=100)


def view_of(hosts: str, tablets: str) -> ClusterView:
    """Servers from words, tablets from lines that `,` separates."""
    return ClusterView(
        servers=tuple(map(host, hosts.split())), tablets=tuple(held(line.strip()) for line in tablets.split(","))
    )


def told(moves: list[Move]) -> str:
    """`T1 a>b` for a replica that moves, `T1 a=>b` for a leader."""
    signs = {MoveKind.REPLICA: ">", MoveKind.LEADER: "=>"}
    return ", ".join(f"{m.tablet_id} {m.from_uuid}{signs[m.kind]}{m.to_uuid}" for m in moves)


@pytest.mark.parametrize(
    ("hosts", "tablets", "moves"),
    [
        pytest.param("a b", "T1 a:*, T2 a:*, T3 a:*, T4 a:*", "T1 a>b, T2 a>b", id="a table is evened out"),
        pytest.param("a b", "T1 a:*, T2 a:*, T3 b:*", "", id="one more is even"),
        pytest.param("a b", "T1 a:*, T2 a:*, U1 b:*, U2 b:*", "T1 a>b, U1 b>a", id="each table for itself"),
        pytest.param("a b", "S1 a:*, S2 b:*, T1 a:*, U1 a:*", "T1 a>b", id="then the cluster, no even table for it"),
        pytest.param(
            "a b", "S1 b:*, T1 a:*, U1 a:*, V1 a:*", "T1 a>b", id="nor one that the emptier server has more of"
        ),
        pytest.param("a b c", "T1 a:* b, T2 a b:*, T3 a b:*", "T1 b>c, T2 a>c", id="followers before leaders, by name"),
        pytest.param("a b", "T1 a:*r b, T2 a:*, T3 a:*", "", id="who is to leave does not count"),
        pytest.param("a b-", "T1 a:*, T2 a:*", "", id="nothing goes to a draining server"),
        pytest.param("a b!", "T1 a:*, T2 a:*", "", id="nor to a silent one"),
        pytest.param("a b<2", "T1 a:*, T2 a:*, T3 a:*, T4 a:*, T5 a:*, T6 a:*", "T1 a>b, T2 a>b", id="up to its limit"),
        pytest.param("a@y c@y z@x", "T1 z:* a, T2 z a:*", "T1 a>c", id="no location is lost for evenness"),
        pytest.param("a@y c@w z@x", "T1 z:* a, T2 z a:*", "T2 z>c", id="another location is as good"),
        pytest.param("a@/d/1 c@/d/2 z@/e/1", "T1 z:* a, T2 z a:*", "T1 a>c", id="no wider location is lost"),
        pytest.param("a@/d/1 c@/f/1 z@/e/1", "T1 z:* a, T2 z a:*", "T2 z>c", id="another wider one is as good"),
        pytest.param("a b c z!", "T1 a:* z, T2 a:* z, T3 a:* z", "T1 a>b, T2 a>c", id="one member's server is silent"),
    ],
)
def test_replicas_move_from_the_fuller_server_to_the_emptier_one(hosts: str, tablets: str, moves: str) -> None:
    """OP-05. Goal: a plan's replica moves and their order are those that the rules name. Method: each rule alone."""
    assert told(plan_rebalance(view_of(hosts, tablets), WIDE)) == moves


@pytest.mark.parametrize(
    ("hosts", "tablets", "moves"),
    [
        pytest.param("a- b c", "T1 a:*, T2 a:*, T3 a:*", "T1 a>b, T2 a>c, T3 a>b", id="all of it, evenly"),
        pytest.param("a- b c d", "S1 d:*, S2 c:*, T1 a:*, T2 b:*, U1 c:*", "T1 a>d", id="by table, then by all"),
        pytest.param("a- b- c d", "T1 a:*, U1 b:*", "T1 a>c, U1 b>d", id="two of them, and to neither"),
        pytest.param("a- b c", "T1 a:* b c", "", id="each other server has the tablet"),
        pytest.param("a- b<1 c<2 d<1", "T1 a:*, T2 a:*, T3 b:*", "T1 a>c, T2 a>d", id="where there is room"),
        pytest.param("a@x- b@y c@y d@x", "T1 a b:*, U1 d:*, V1 c:*", "T1 a>d", id="no location is lost"),
        pytest.param("a@x- b@y c@y", "T1 a b:*", "T1 a>c", id="unless there is no other server"),
        pytest.param("a- b c", "T1 a:*F, T2 a:*", "T2 a>b", id="but for what is not settled"),
    ],
)
def test_replicas_leave_a_draining_server(hosts: str, tablets: str, moves: str) -> None:
    """Goal: the place of each replica that leaves. Method: each rule alone."""
    told_now = told([m for m in plan_rebalance(view_of(hosts, tablets), WIDE) if m.kind is MoveKind.REPLICA])
    assert told_now == moves


@pytest.mark.parametrize(
    ("hosts", "tablets", "moves"),
    [
        pytest.param("a b", "T1 a:* b, T2 a:* b", "T1 a=>b", id="a table is evened out"),
        pytest.param("a b", "T1 a:* b, T2 a:* b, T3 a b:*", "", id="one more is even"),
        pytest.param("a b", "T1 a:* b, T2 a:* b, U1 a b:*, U2 a b:*", "T1 a=>b, U1 b=>a", id="each table for itself"),
        pytest.param(
            "a b c",
            "T1 a:* b, T2 a:* b, T3 b:* c, T4 a c",
            "T1 a=>b, T3 b=>c",
            id="over a server that keeps its number",
        ),
        pytest.param("a b c", "T1 a:* b c, T2 a:* b c, T3 a:* b c, T4 a b:* c", "T1 a=>c", id="to who leads least"),
        pytest.param(
            "a<4 b<3 c<7",
            "T1 a:* c, T2 a:* c, T3 a:* c, T4 a:* c, T5 b:* c, T6 b:* c, T7 b:* c, T8 c:*",
            "T1 a=>c",
            id="from who leads most",
        ),
        pytest.param(
            "a! b<4 c<6",
            "T0 b c:*, T1 b:* c, T2 b:* c, T3 b:* c, T4 a:* c, T5 a:* c",
            "T4 a=>c, T5 a=>c",
            id="from a silent one before the others are counted",
        ),
        pytest.param(
            "a<4 b<2 c<2", "S1 a:* b, S2 a b:*, T1 a:* c, T2 a:* c", "T1 a=>c", id="by moves of the table itself"
        ),
        pytest.param("a b", "T1 a:* b, U1 a:* b", "T1 a=>b", id="then the cluster"),
        pytest.param("a<3 b<2 c<1", "T1 a:* b c, U1 a:*, V1 a:*, W1 b:*", "T1 a=>c", id="to who leads least of all"),
        pytest.param("a b", "S1 a:* b, S2 a b:*, T1 a:* b, U1 a:* b", "T1 a=>b", id="no even table for it"),
        pytest.param(
            "a b", "S1 a:* b, T1 a:* b, U1 a:* b, V1 a:* b, W1 a:* b", "S1 a=>b, T1 a=>b", id="as long as it helps"
        ),
        pytest.param("a- b c", "T1 a:* b c, U1 a b:* c", "T1 a=>c", id="none stays on a draining one"),
        pytest.param("a b-", "T1 a:* b, T2 a:* b, U1 a:* b", "", id="none goes to a draining one"),
        pytest.param("a b!", "T1 a:* b, T2 a:* b, U1 a:* b", "", id="or to a silent one"),
        pytest.param(
            "a b", "T1 a:*F b, T2 a b:*, U1 a b:*, V1 a b:*", "U1 b=>a", id="what is not settled stays and counts"
        ),
        pytest.param("a b", "T1 a:* b:n, T2 a:* b:n", "", id="a member without a vote leads nothing"),
    ],
)
def test_leaders_move_without_data(hosts: str, tablets: str, moves: str) -> None:
    """Goal: transfers even a table out, then the cluster. Method: each rule alone, replicas even from the start."""
    assert told(plan_rebalance(view_of(hosts, tablets), WIDE)) == moves


@pytest.mark.parametrize(
    "unsettled",
    [
        held("T1 a:*U"),
        held("T1 a:* b:p"),
        held("T1 a:* b:n"),
        held("T1 a:*r"),
        held("T1 a"),
        replace(held("T1 a:*"), pending=True),
        replace(held("T1 a:*"), desired=DesiredChange(kind=ChangeKind.ADD, wish_id="w", to_uuid="b")),
        replace(held("T1 a:* b"), config=RaftConfig(OpId(1, 1), (Member("a"), Member("b", holds_data=False)))),
    ],
    ids=["unknown health", "a learner", "a member without a vote", "one to be replaced", "no leader", "a change",
         "a desired change", "a witness"],
)  # fmt: skip
def test_a_tablet_that_is_not_settled_is_named_and_stays(unsettled: TabletView) -> None:
    """Goal: a plan does not move a tablet while its config changes. Method: a fuller server whose first tablet is
    unsettled in each way; the plan moves the next ones, and the first one is among those left alone."""
    view = view_of("a b c", "T1 a, T2 a:*, T3 a:*, T4 a:*")
    view = replace(view, tablets=(unsettled, *view.tablets[1:]))
    assert not_settled(view) == ("T1",)
    assert {m.tablet_id for m in plan_rebalance(view, WIDE)} == {"T2", "T3"}


@pytest.mark.parametrize(
    ("caps", "moves"),
    [
        (Caps(moves_max=2, moves_per_server_max=9), "T1 a>d, T2 a>e"),
        (Caps(moves_max=9, moves_per_server_max=2), "T1 a>d, T2 a>e, U1 b>d, U2 b>e"),
        (Caps(moves_max=9, moves_per_server_max=9, bytes_max=300), "T1 a>d, T2 a>e, T3 a>f"),
        (Caps(moves_max=9, moves_per_server_max=9, bytes_max=299), "T1 a>d, T2 a>e"),
        (Caps(moves_max=2, moves_per_server_max=1), "T1 a>d, U2 b>e"),
        (Caps(moves_max=9, moves_per_server_max=1, bytes_max=200), "T1 a>d, U2 b>e"),
    ],
    ids=["moves", "moves of a server", "bytes", "a byte less", "moves but for those left out", "bytes but for those"],
)
def test_a_plan_is_as_long_as_its_caps_allow(caps: Caps, moves: str) -> None:
    """Goal: caps stop a plan where they are reached, not before; a server that is busy stops only its own moves."""
    assert told(plan_rebalance(view_of("a- b- d e f", "T1 a:*, T2 a:*, T3 a:*, U1 b:*, U2 b:*"), caps)) == moves


def test_a_move_says_what_it_costs_and_on_which_config_it_rests() -> None:
    """Goal: executors can refuse a move that is out of date, and caps can count bytes: a leader's move copies none."""
    copied, led = plan_rebalance(view_of("a b c", "T1 a:* b, T2 a:* b, T3 a:* b"), WIDE)[::2]
    assert replace(copied, reason="") == Move(
        kind=MoveKind.REPLICA, tablet_id="T1", table_id="T", from_uuid="b", to_uuid="c",
        config_opid=OpId(1, 1), bytes=100, reason="",
    )  # fmt: skip
    assert (led.kind, led.bytes) == (MoveKind.LEADER, 0)


def test_skew_of_a_cluster_without_servers_is_none() -> None:
    """Goal: an empty report is no error, nor is a table of which no tablet is reported."""
    empty = ClusterView(servers=(), tablets=())
    assert (skew(empty), skew(empty, "T")) == (0, 0)


@pytest.mark.parametrize(
    ("hosts", "tablets", "fewest"),
    [
        pytest.param("a b", "T1 a:*, T2 a:*, T3 a:*, T4 a:*", 2, id="half of them go"),
        pytest.param("a b", "T1 a:*, T2 a:*, T3 a:*F, T4 a:*F", 2, id="what is not settled counts"),
        pytest.param("a b", "T1 a:*F, T2 a:*F", 0, id="and cannot go"),
        pytest.param("a- b", "T1 a:*, U1 a:*", 2, id="all leave a server to empty"),
        pytest.param("a! b c", "T1 a:*, T2 a:*, T3 b:*", 0, id="none leaves a silent one"),
        pytest.param("a~ b c", "T1 a:*, T2 a:*, T3 b:*", 0, id="nor one that an operator works on"),
    ],
)
def test_bound_counts_the_replicas_that_have_to_move(hosts: str, tablets: str, fewest: int) -> None:
    """OP-09. Goal: the bound of replica moves counts what is on servers that get replicas, or are emptied. Method: each
    case by hand."""
    assert Layout(view_of(hosts, tablets)).fewest() == fewest


SMALL, LARGE = 10, 100


def steps_of(text: str) -> list[tuple[Move, ...]]:
    """Steps from words such as `a>b` or `a>b+b>a`: moves that belong together, each of ten bytes; `A>b` of 100."""
    steps = []
    for n, step in enumerate(text.split()):
        moves = []
        for word in step.split("+"):
            source, _, target = word.partition(">")
            size = LARGE if source.isupper() else SMALL
            fields = {"tablet_id": f"T{n}", "table_id": "T", "config_opid": OpId(1, 1), "reason": ""}
            ends = {"from_uuid": source.lower(), "to_uuid": target}
            moves.append(Move(kind=MoveKind.REPLICA, bytes=size, **fields, **ends))
        steps.append(tuple(moves))
    return steps


@pytest.mark.parametrize(
    ("steps", "taken", "left_out"),
    [
        pytest.param("a>b c>d", "a>b c>d", 0, id="all that fit"),
        pytest.param("A>b c>d", "c>d", 1, id="a later one, after one that does not fit"),
        pytest.param("A>b a>c d>b", "a>c d>b", 1, id="from its source and to its target"),
        pytest.param("A>b c>a", "", 2, id="none to its source"),
        pytest.param("A>b b>c", "", 2, id="none from its target"),
        pytest.param("A>b b>c d>c c>e", "d>c", 3, id="nor from the target of one that was left out for this"),
        pytest.param("A>b c>d+d>c", "c>d d>c", 1, id="an exchange of others"),
        pytest.param("A>b a>c+c>a", "", 3, id="no exchange with its source"),
        pytest.param("A>b b>c+c>b", "", 3, id="nor with its target"),
    ],
)
def test_step_that_rests_on_one_left_out_is_left_out(steps: str, taken: str, left_out: int) -> None:
    """OP-09. Goal: each move of a plan that its caps cut makes the servers more even. Method: steps by hand, of which
    the first may be too large: its source has more then, and its target less than the later steps assume."""
    moves = bounded(steps_of(steps), Caps(moves_max=9, moves_per_server_max=9, bytes_max=50))
    assert " ".join(f"{m.from_uuid}>{m.to_uuid}" for m in moves) == taken
    assert (moves.left_out, moves.leaders_left_out) == (left_out, 0)


def test_full_plan_counts_so_many_further_moves_and_ends() -> None:
    """OP-09. Goal: a plan that is full costs no more than it counts; one that is not yet full goes on. Method: steps
    without an end, of which one is taken; as many too large ones before one that fits."""
    caps = Caps(moves_max=1, bytes_max=50)
    endless = (step for _ in count() for step in steps_of("a>b"))
    full = bounded(endless, caps)
    assert (len(full), full.left_out) == (1, LEFT_OUT_MAX)
    late = bounded([*steps_of("A>b") * (LEFT_OUT_MAX + 9), *steps_of("c>d e>f")], caps)
    assert ([m.from_uuid for m in late], late.left_out) == (["c"], LEFT_OUT_MAX + 10)
