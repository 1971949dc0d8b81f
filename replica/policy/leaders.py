"""Plans transfers that even out leaderships, per table and over the cluster. It plans few, and no data moves."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import product
from math import ceil, floor, inf

from .fewest import fewest_moves
from .layout import Layout, move_of
from .views import ClusterView, Move, MoveKind

_Step = tuple[str, str]
"""A transfer: tablet, target."""
_Edge = tuple[tuple[int, ...], str, str]
"""A transfer that a chain may take: rank, tablet, target."""


class Leaders:
    """The leader of each tablet, as it will be after the planned replica moves and the transfers planned so far."""

    def __init__(self, view: ClusterView, moves: Iterable[Move] = ()) -> None:
        layout = Layout(view)
        left = {m.tablet_id: m.from_uuid for m in moves}
        self.targets = {u for u in layout.targets if not layout.servers[u].quiescing}
        self.tables = layout.tables
        self.tablets = {n: t for n, t in sorted(layout.tablets.items()) if n not in layout.busy and n not in left}
        """Tablets whose leader may change; all others count for their leader, if it stays a member."""
        self.voters = {n: sorted(self.targets.intersection(t.config.voters)) for n, t in self.tablets.items()}
        self.leader = {n: t.leader_uuid for n, t in self.tablets.items()}
        self.led: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        """server uuid -> table id -> those of `tablets` that it leads"""
        self.whole: Counter[str] = Counter()
        self.of_table: dict[str, Counter[str]] = {table: Counter() for table in layout.tables}
        for name, tablet in layout.tablets.items():
            if tablet.leads_next not in (left.get(name), tablet.leaves):
                self._count(tablet.table_id, tablet.leads_next, 1)
            if name in self.tablets:
                self.led[tablet.leader_uuid][tablet.table_id].add(name)

    def was(self, name: str) -> str:
        """The present leader."""
        return self.tablets[name].leader_uuid

    def transfer(self, name: str, target: str) -> None:
        """Apply one transfer to these counts."""
        source, table = self.leader[name], self.tablets[name].table_id
        self._count(table, source, -1)
        self._count(table, target, 1)
        self.led[source][table].discard(name)
        self.led[target][table].add(name)
        self.leader[name] = target

    def _count(self, table: str, leader: str, more: int) -> None:
        self.whole[leader] += more
        self.of_table[table][leader] += more

    def fewest(self) -> int:
        """Return the least number of transfers after which leaderships are even, of each table and in all."""
        movable = {table: Counter[str]() for table in self.tables}
        for name, leader in self.leader.items():
            movable[self.tablets[name].table_id][leader] += any(u != leader for u in self.voters[name])
        return fewest_moves(self.of_table, movable, self.targets)


def plan_leaders(leaders: Leaders, tables: Collection[str] | None = None) -> Iterator[Move]:
    """Plan leadership transfers that even out each of the tables; without `tables`, each one and then the cluster."""
    before = {table: count.copy() for table, count in leaders.of_table.items()}
    whole = leaders.whole.copy()
    for table in (t for t in leaders.tables if tables is None or t in tables):
        while step := _direct_step(leaders, table):
            leaders.transfer(*step)
        ended: set[str] = set()
        while path := _path(leaders, table, ended):
            for each in path:
                leaders.transfer(*each)
    if tables is None:
        _even_cluster(leaders)
    for name, tablet in leaders.tablets.items():
        source, target = tablet.leader_uuid, leaders.leader[name]
        if source != target:
            count = before[tablet.table_id]
            text = f"table {tablet.table_id}: {count[source]} leaders against {count[target]}"
            yield move_of(
                MoveKind.LEADER, tablet, source, target, f"{text}, in all {whole[source]} against {whole[target]}"
            )


def _direct_step(leaders: Leaders, table: str) -> _Step | None:
    """Return a transfer from the server that leads most of the table to one that leads at least two fewer. If several
    fit, take the servers that differ most in all their leaderships. A server that is no target comes first, and gives
    away all that it can."""
    count, whole, targets = leaders.of_table[table], leaders.whole, leaders.targets
    for source in sorted(count, key=lambda u: (u in targets, -count[u], -whole[u], u)):
        steps = (
            (count[u], whole[u], name, u)
            for name in leaders.led[source].get(table, ())
            for u in leaders.voters[name]
            if source not in targets or count[source] - count[u] >= 2
        )
        if best := min(steps, default=None):
            return best[2:]
    return None


def _path(leaders: Leaders, table: str, ended: set[str]) -> list[_Step] | None:
    """Return the shortest chain of transfers of the table from a server to one that leads two fewer. The servers
    between them keep their number. After the direct steps, a server that is no target has nothing left to give.

    `ended`: the servers from which no chain leads to such a server; the function adds to it. All chains from these
    servers stay within the set. No later transfer changes that: it concerns no server of the set, and sources that are
    tried later do not lead more than those before.
    """
    count = leaders.of_table[table]

    def edges(here: str) -> Iterable[_Edge]:
        return (((count[u],), name, u) for name in leaders.led[here].get(table, ()) for u in leaders.voters[name])

    for source in sorted(count, key=lambda u: (-count[u], u)):
        if source not in ended and (path := _chain(source, count, edges, ended)):
            return path
    return None


def _chain(
    source: str, count: Mapping[str, int], edges: Callable[[str], Iterable[_Edge]], ended: set[str]
) -> list[_Step] | None:
    """Return the shortest chain of transfers from the source to a server whose `count` is at least two less; None if
    there is none. Then all servers that can be reached are added to `ended`, through which no chain is searched.

    `edges` returns the transfers that a server may give away; the least comes first.
    """
    came: dict[str, _Step | None] = {source: None}
    queue = [source]
    for here in queue:
        for _, name, there in sorted(edges(here)):
            if there in came or there in ended:
                continue
            came[there] = (name, here)
            queue.append(there)
            if count[source] - count[there] >= 2:
                path = []
                while step := came[there]:
                    path.append((step[0], there))
                    there = step[1]
                return path
    ended.update(queue)
    return None


def _even_cluster(leaders: Leaders) -> None:
    """Even out the leaderships of the servers in all, by transfers that make no table less even.

    Transfers from servers above the mean to servers below it come first, then those to or from other servers. So no
    server gives away more than it must.
    """
    if not leaders.targets:
        return
    mean = sum(leaders.whole[u] for u in leaders.targets) / len(leaders.targets)
    for most, least in product((ceil(mean), -inf), (floor(mean), inf)):
        moved = True
        while moved:
            moved = False
            for source in sorted(leaders.led, key=lambda u: (-leaders.whole[u], u)):
                while leaders.whole[source] > most and (step := _cluster_step(leaders, source, least)):
                    leaders.transfer(*step)
                    moved = True
    for source in sorted(leaders.led, key=lambda u: (-leaders.whole[u], u)):
        while path := _cluster_path(leaders, source):
            for each in path:
                leaders.transfer(*each)


def _cluster_path(leaders: Leaders, source: str) -> list[_Step] | None:
    """Return a chain of transfers from the server to one that leads two fewer in all; the servers between keep their
    number, and no table becomes less even."""
    whole = leaders.whole
    if whole[source] - min(whole[u] for u in leaders.targets) < 2:
        return None

    def edges(here: str) -> Iterable[_Edge]:
        return (
            ((whole[u], leaders.leader[name] == leaders.was(name)), name, u)
            for table, names in leaders.led[here].items()
            for name in names
            for u in leaders.voters[name]
            if leaders.of_table[table][here] > leaders.of_table[table][u]
        )

    return _chain(source, whole, edges, set())


def _cluster_step(leaders: Leaders, source: str, least: float) -> _Step | None:
    """Return a transfer from the server to one that leads two fewer in all, and fewer than `least`, if the table does
    not become less even. A transfer that takes an earlier one back is preferred, then one that only changes the target
    of an earlier one."""
    whole, most = leaders.whole, min(leaders.whole[source] - 1, least)
    fit = {u for u in leaders.targets if whole[u] < most}
    steps = (
        ((u != leaders.was(name)) - (source != leaders.was(name)), whole[u], name, u)
        for table, names in leaders.led[source].items()
        for name in names
        for u in leaders.voters[name]
        if u in fit and leaders.of_table[table][source] > leaders.of_table[table][u]
    )
    best = min(steps, default=None)
    return best and best[2:]
