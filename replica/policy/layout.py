"""The replicas of each server as they will be after planned moves, and which tablets may move."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain

from nyala.replica.types import OpId

from .fewest import fewest_moves
from .locations import keeps_crowding
from .placement import replica_load
from .views import ClusterView, Health, Move, MoveKind, ServerView, TabletView


class Layout:
    """The replicas of each server, as they will be after the changes that are under way or desired, and after the moves
    planned so far. So a plan that is made while another one is carried out does not repeat its moves."""

    def __init__(self, view: ClusterView) -> None:
        self.servers: dict[str, ServerView] = {s.uuid: s for s in view.servers if s.alive}
        self.tablets: dict[str, TabletView] = {}
        self.holders: dict[str, set[str]] = {}
        """Tablet -> servers, after the changes that are under way or desired, and before the plan's moves. A tablet
        moves at most once in a plan, so this is right for each tablet that may still move."""
        self.of_server: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        """server uuid -> table id -> tablet ids"""
        self._counts: Counter[str] = Counter()
        """The replicas of each server in `of_server`: a plan asks for them at every step."""
        self.held: Counter[str] = replica_load(view)
        """The number of replicas per server, to compare with its limit. A replica that moves away counts until it has
        left; one that is planned to arrive counts already."""
        self.coming: Counter[str] = Counter()
        """The bytes that copies will still write to each server."""
        self.busy: set[str] = set()
        self._never: set[tuple[str, str, str]] = set()
        """The (table, source, target) for which no tablet can move. During a plan they only become more."""
        self._open: dict[tuple[str, str], list[str]] = {}
        """(source, target) -> the tables of which `free` may have tablets, sorted."""
        for tablet in view.tablets:
            self._add(tablet)
        self.targets = sorted(u for u, s in self.servers.items() if s.takes_replicas)
        self.tables = sorted({t.table_id for t in self.tablets.values()})

    def _add(self, tablet: TabletView) -> None:
        name = tablet.tablet_id
        self.tablets[name] = tablet
        self.holders[name] = {m.uuid for m in tablet.config.members if not m.replace}
        for uuid in tablet.copying:
            self.coming[uuid] += tablet.bytes_on_disk
        if joins := tablet.joins:
            self.holders[name].add(joins)
            if tablet.config.member(joins) is None:
                self.held[joins] += 1
                self.coming[joins] += tablet.bytes_on_disk
        self.holders[name].discard(tablet.leaves)
        for uuid in self.holders[name]:
            self.of_server[uuid][tablet.table_id].add(name)
            self._counts[uuid] += 1
        if not is_settled(tablet):
            self.busy.add(name)

    def count(self, uuid: str, table: str | None = None) -> int:
        """Return the number of replicas on a server, of one table or of all."""
        return len(self.of_server[uuid].get(table, ())) if table is not None else self._counts[uuid]

    def fewest(self) -> int:
        """Return the least number of moves after which the replicas are even, of each table and in all."""
        there = {t: Counter[str]() for t in self.tables}
        movable = {t: Counter[str]() for t in self.tables}
        targets = set(self.targets)
        for uuid in targets.union(u for u, s in self.servers.items() if s.draining):
            for table, names in self.of_server[uuid].items():
                there[table][uuid] = len(names)
                movable[table][uuid] = len(names - self.busy)
        return fewest_moves(there, movable, targets)

    def on(self, uuid: str) -> Iterator[str]:
        """The tablets of which the server has a replica."""
        return chain.from_iterable(self.of_server[uuid].values())

    def size(self, tablet: str) -> int:
        """The bytes of one replica on disk."""
        return self.tablets[tablet].bytes_on_disk

    def keeps_spread(self, tablet: str, source: str, target: str) -> bool:
        """Whether the tablet's replicas are spread over the locations as well after the move as before."""
        others = [self.servers[u].places for u in self.holders[tablet] if u in self.servers and u != source]
        return keeps_crowding(tuple(sorted(others)), self.servers[source].places, self.servers[target].places)

    def has_room(self, uuid: str) -> bool:
        """Whether the server's limit allows one more replica, besides those that it holds and is planned to get."""
        return self.servers[uuid].has_room(self.held[uuid])

    def is_fit(self, uuid: str, bytes_wanted: int) -> bool:
        """Whether copies into the server do not fail, and its disk is not nearly full after a copy of that size and the
        planned ones."""
        server = self.servers[uuid]
        return not server.avoided and not server.nearly_full(self.coming[uuid] + bytes_wanted)

    def free(self, table: str, source: str, target: str) -> list[str]:
        """Return the settled tablets of `table` on `source` that can move to `target`, in no particular order.

        Planned moves only make targets fuller and tablets busy. So if no tablet can move now, none can later in the
        plan.
        """
        if not self.is_open(table, source, target):
            return []
        there = self.of_server[source][table] - self.of_server[target][table] if self.has_room(target) else ()
        found = [
            t
            for t in there
            if t not in self.busy and self.is_fit(target, self.size(t)) and self.keeps_spread(t, source, target)
        ]
        if not found:
            self._never.add((table, source, target))
        return found

    def is_open(self, table: str, source: str, target: str) -> bool:
        """Whether `free` may still return tablets: it returned some at its last call, or was not called yet."""
        return (table, source, target) not in self._never

    def open_tables(self, source: str, target: str) -> list[str]:
        """Return the tables of which a tablet on `source` may be able to move to `target`, sorted.

        A tablet that comes to `source` by a planned move is busy, so the tables only become fewer.
        """
        known = self._open.get((source, target))
        if known is None:
            known = sorted(self.of_server[source])
        found = [table for table in known if self.is_open(table, source, target)]
        self._open[source, target] = found
        return found

    def movable(self, table: str, source: str, target: str) -> str | None:
        """Return the best of `free`: followers before leaders, then by id; None if there is none."""
        found = self.free(table, source, target)
        return min(found, key=lambda t: (self.tablets[t].leader_uuid == source, t), default=None)

    def move(self, tablet: str, source: str, target: str, reason: str) -> Move:
        """Apply one replica move to the layout; each tablet moves at most once in a plan."""
        view = self.tablets[tablet]
        self.held[target] += 1
        self.coming[target] += view.bytes_on_disk
        self.of_server[source][view.table_id].discard(tablet)
        self.of_server[target][view.table_id].add(tablet)
        self._counts[source] -= 1
        self._counts[target] += 1
        self.busy.add(tablet)
        return move_of(MoveKind.REPLICA, view, source, target, reason)


def is_settled(tablet: TabletView) -> bool:
    """Whether the tablet needs nothing and nothing is under way: it has a leader, healthy voters and no change."""
    voting = all(m.votes and m.holds_data and not m.replace for m in tablet.config.members)
    well = all(tablet.health_of(m.uuid) is Health.HEALTHY for m in tablet.config.members)
    return bool(voting and well and tablet.leader_uuid) and not (tablet.pending or tablet.desired)


def not_settled(view: ClusterView) -> tuple[str, ...]:
    """Return the tablets that no plan moves now, because they have a change under way, a desired change, a member that
    is not healthy, or no leader; sorted.

    Only if this is empty does a plan without moves mean that the cluster is even.
    """
    return tuple(sorted(t.tablet_id for t in view.tablets if not is_settled(t)))


def move_of(kind: MoveKind, tablet: TabletView, source: str, target: str, reason: str) -> Move:
    """Return a move of the tablet, based on its present config."""
    opid: OpId = tablet.config.opid
    size = tablet.bytes_on_disk if kind is MoveKind.REPLICA else 0
    return Move(
        kind=kind,
        tablet_id=tablet.tablet_id,
        table_id=tablet.table_id,
        from_uuid=source,
        to_uuid=target,
        config_opid=opid,
        bytes=size,
        reason=reason,
    )
