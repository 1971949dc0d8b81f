"""Plans ask each pair of servers only as often as its answer can change, and are the same plans."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.pipeline.rebalance import Plan, describe
from nyala.replica.policy import Caps, ClusterView, Move, inputs_of, plan_rebalance
from nyala.replica.policy.layout import Layout
from nyala.replica.policy.leaders import Leaders, _direct_step, _path, plan_leaders
from nyala.replica.policy.rebalance import _even_cluster, _pairs, even
from nyala.replica.types import RaftConfig
from tests.harness.policy_views import server
from tests.unit.policy.test_policy_rebalance import settled
from tests.unit.policy.test_policy_rebalance_moves import view_of


class Forgetful(set[Any]):
    """Remembers nothing."""

    def __contains__(self, _: object) -> bool:
        return False


def crowded_view(seed: int, tablets: int = 60) -> ClusterView:
    """Racks of different sizes, servers with and without a limit, and tables that begin on few of them."""
    rng = random.Random(seed)
    hosts = tuple(
        server(f"s{n:02}", location=f"/rack{rng.choice((0, 0, 1, 2))}", tablets_max=rng.choice((0, 0, tablets // 4)))
        for n in range(rng.randint(4, 12))
    )
    names = [host.uuid for host in hosts]
    tables = rng.choice((5, 20, tablets))
    placed = []
    for n in range(tablets):
        pool = names[: rng.randint(3, len(names))]
        voters = rng.sample(pool, rng.choice((1, 3)))
        placed.append(settled(f"T{n:03}", f"table-{n % tables:02}", voters, voters[0]))
    return ClusterView(servers=hosts, tablets=tuple(placed))


def asked_each_time(layout: Layout) -> Iterator[Move]:
    """Even out each table, then the cluster: every pair of servers is asked anew at each step."""
    layout._never = Forgetful()
    for table in (*layout.tables, None):
        while (step := _first(layout, table)) is not None:
            yield layout.move(*step, "")


def _first(layout: Layout, table: str | None) -> tuple[str, str, str] | None:
    count = {u: layout.count(u, table) for u in layout.targets}
    order = sorted(count, key=lambda u: (count[u], layout.count(u), u))
    for source, target in _pairs(order, count):
        for each in layout.tables if table is None else [table]:
            if table is None and layout.count(source, each) <= layout.count(target, each):
                continue
            tablet = layout.movable(each, source, target)
            if tablet is not None:
                return tablet, source, target
    return None


@pytest.mark.deep
@settings(max_examples=200)
@given(st.integers(0, 1 << 30))
def test_plan_that_remembers_pairs_without_a_move_is_the_same_plan(seed: int) -> None:
    """Goal: a pair of servers that is not asked again had no move to give. Method: random clusters with racks of
    different sizes and full servers; beside the plan, one that asks all pairs at each step."""
    view = crowded_view(seed)
    layout = Layout(view)
    made = [move for table in layout.tables for move in even(layout, table)] + list(_even_cluster(layout))
    expected = list(asked_each_time(Layout(view)))
    assert [(m.tablet_id, m.from_uuid, m.to_uuid) for m in made] == [
        (m.tablet_id, m.from_uuid, m.to_uuid) for m in expected
    ]


@pytest.mark.deep
@settings(max_examples=200)
@given(st.integers(0, 1 << 30))
def test_chains_of_leader_moves_are_the_same_when_dead_ends_are_remembered(seed: int) -> None:
    """Goal: a server from which no chain of transfers led anywhere has none to give later either. Method: random
    clusters, some servers quiescing; at each step, the chain that is found beside that of a search that remembers
    nothing."""
    rng, view = random.Random(seed), crowded_view(seed)
    hosts = tuple(replace(host, quiescing=rng.random() < 0.2) for host in view.servers)
    leaders = Leaders(replace(view, servers=hosts))
    for table in leaders.tables:
        while step := _direct_step(leaders, table):
            leaders.transfer(*step)
        ended: set[str] = set()
        while True:
            path = _path(leaders, table, ended)
            assert path == _path(leaders, table, Forgetful())
            if path is None:
                break
            for each in path:
                leaders.transfer(*each)


class Looks(dict[str, list[str]]):
    """The voters of each tablet, with the number of the looks at them."""

    def __init__(self, leaders: Leaders) -> None:
        super().__init__(leaders.voters)
        self.of: Counter[str] = Counter()

    def __getitem__(self, name: str) -> list[str]:
        self.of[name] += 1
        return super().__getitem__(name)


def test_search_for_chains_looks_once_at_each_dead_end() -> None:
    """Goal: the search for the last chain of a table costs as much as the table has tablets, and no more for each
    server that could give one. Method: 101 servers that lead two tablets each, of which none can go to the one server
    without any; each could give its own to the next one, the last one to the middle of the row. The looks at the voters
    of a tablet are counted."""
    hosts = tuple(server(f"s{n:03}") for n in range(102))
    pairs = [(f"s{n:03}", f"s{n + 1 if n < 99 else 50:03}") for n in range(101)]
    placed = [settled(f"T{n:03}-{k}", "t", [*pair], pair[0]) for n, pair in enumerate(pairs) for k in range(2)]
    leaders = Leaders(ClusterView(servers=hosts, tablets=tuple(placed)))
    leaders.voters = looks = Looks(leaders)
    assert _path(leaders, "t", set()) is None
    assert looks.of == dict.fromkeys(leaders.tablets, 1)


def test_even_cluster_is_searched_for_no_chain() -> None:
    """Goal: a server that leads as much as all others costs no search over the cluster. Method: 40 servers that lead
    one tablet each, each of another table, which the next server could lead; the looks at its voters are counted."""
    hosts = tuple(server(f"s{n:02}") for n in range(40))
    pairs = [(f"s{n:02}", f"s{(n + 1) % 40:02}") for n in range(40)]
    placed = [settled(f"T{n:02}", f"t{n:02}", [*pair], pair[0]) for n, pair in enumerate(pairs)]
    leaders = Leaders(ClusterView(servers=hosts, tablets=tuple(placed)))
    leaders.voters = looks = Looks(leaders)
    assert list(plan_leaders(leaders)) == []
    assert max(looks.of.values()) <= 4, looks.of


@pytest.mark.deep
def test_plan_asks_few_questions_for_each_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the cost of a plan follows what it moves. Method: 1,500 replicas of 500 tables on 45 servers in three
    racks, where no replica may leave its rack: the questions about a pair of servers are counted."""
    rng = random.Random(7)
    hosts = tuple(server(f"s{n:02}", location=f"/rack{n % 3}") for n in range(45))
    racks = [[host.uuid for host in hosts if host.location == f"/rack{rack}"] for rack in range(3)]
    share = [1 / (1 + n) for n in range(15)]
    placed = []
    for n in range(500):
        voters = [rng.choices(rack, share)[0] for rack in racks]
        placed.append(settled(f"T{n:03}", f"table-{n:03}", voters, voters[0]))
    asked: Counter[str] = Counter()

    def counted(name: str) -> Any:
        original = getattr(Layout, name)

        def count(layout: Layout, *given: str) -> Any:
            asked[name] += 1
            return original(layout, *given)

        return count

    for name in ("movable", "open_tables"):
        monkeypatch.setattr(Layout, name, counted(name))
    view = ClusterView(servers=hosts, tablets=tuple(placed))
    moves = plan_rebalance(view, Caps(moves_max=10_000, moves_per_server_max=10_000))
    assert len(moves) >= 500 and asked.total() < 60 * len(moves), (len(moves), asked)


class Asked(Layout):
    """Counts the tablets that it looks at, and the tables."""

    asked: ClassVar[Counter[str]] = Counter()

    def keeps_spread(self, tablet: str, source: str, target: str) -> bool:
        self.asked[tablet] += 1
        return super().keeps_spread(tablet, source, target)

    def is_open(self, table: str, source: str, target: str) -> bool:
        self.asked[table] += 1
        return super().is_open(table, source, target)


def test_pair_of_servers_without_a_move_costs_no_second_search() -> None:
    """Goal: tablets and tables that cannot move between two servers are not looked at again. Method: two tablets of one
    table that may not leave their location beside one of another table that may: what is looked at, the first time and
    then."""
    layout = Asked(view_of("a@x b@y c@y d@x", "S1 a:* b, S2 a:* b, T1 a:*"))
    layout.asked.clear()
    assert layout.free("S", "a", "c") == [] and layout.asked == {"S": 1, "S1": 1, "S2": 1}
    assert layout.free("S", "a", "c") == [] and layout.asked == {"S": 2, "S1": 1, "S2": 1}
    layout.asked.clear()
    assert layout.open_tables("a", "c") == ["T"] and layout.asked == {"S": 1, "T": 1}
    assert layout.open_tables("a", "c") == ["T"] and layout.asked == {"S": 1, "T": 2}
    assert layout.free("T", "a", "c") == ["T1"] and layout.open_tables("a", "d") == ["S", "T"]


def test_plan_is_told_at_a_cost_that_follows_the_tablets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the text of a plan costs no pass over all tablets for each table or server. Method: the layouts that are
    built, and the looks at a tablet's members, are counted for few tables and servers and for many."""
    built: Counter[str] = Counter()
    original, member = Layout.__init__, RaftConfig.member

    def build(layout: Layout, view: ClusterView) -> None:
        built["layouts"] += 1
        original(layout, view)

    def look(config: RaftConfig, uuid: str) -> Any:
        built["looks"] += 1
        return member(config, uuid)

    monkeypatch.setattr(Layout, "__init__", build)
    monkeypatch.setattr(RaftConfig, "member", look)
    told = []
    for count in (2, 40):
        hosts = tuple(server(f"s{n:02}") for n in range(count))
        tablets = tuple(settled(f"T{n}", f"t{n % count}", [f"s{n % count:02}"], f"s{n % count:02}") for n in range(80))
        view = ClusterView(servers=hosts, tablets=tablets)
        names = {f"t{n}": f"table-{n}" for n in range(count)}
        built.clear()
        text = describe(Plan("p", view, (), names, inputs_of((), 0)))
        assert text.count("replica skew of table") == count and f"s01 {80 // count:>15} {80 // count:>7}  alive" in text
        told.append(dict(built))
    assert told[0] == told[1] and told[0]["layouts"] <= 1, told
