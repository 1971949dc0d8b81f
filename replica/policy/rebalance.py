"""Plans the moves that spread replicas over the locations, and then even out replicas and leaders, per table and over
the cluster. It is greedy, deterministic and convergent.

A move that spreads a tablet lowers its crowding, and no other move raises it. Every other replica move goes from a
server to one with at least two fewer (of the table, or in all while the table's own skew does not grow), so the sum of
squares falls and the search ends. While the skew is two, there is a tablet on the fuller server that the emptier one
lacks, so the search ends at a skew of one at most. Only a shortage of locations or of room (the servers' limits) can
stop it earlier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cache, partial
from itertools import chain

from .even_bytes import even_bytes
from .layout import Layout
from .leaders import Leaders, plan_leaders
from .locations import Pairs, spreading_moves
from .views import Caps, ClusterView, Move, Moves

LEFT_OUT_MAX = 1000
"""When the caps are reached, a plan counts this many further moves, and then ends."""


def plan_rebalance(view: ClusterView, caps: Caps | None = None) -> Moves:
    """Return moves that make the cluster of `view` more even, the most useful first, cut to `caps`; empty if no move is
    needed.

    The order is: replicas leave draining servers, each tablet is spread over the locations, each table is evened out,
    then the cluster, then the bytes, then the leaders. Tablets of `not_settled` are not moved, and no replica goes to a
    full server. After a plan was carried out completely, the next one is shorter, until it is empty.
    """
    layout, caps = Layout(view), caps or Caps()
    steps = chain(((move,) for move in _plan_replicas(layout)), even_bytes(layout, caps))
    replica_bound = layout.fewest()
    moves = with_leaders(view, bounded(steps, caps), caps)
    moves.replica_bound = replica_bound
    return moves


def with_leaders(view: ClusterView, moves: Moves, caps: Caps, tables: Collection[str] | None = None) -> Moves:
    """Return the replica moves, and after them the leader moves that `caps` allow. Leader moves even out these tables,
    or if there are none, all tables and the cluster.

    They are planned for the layout after the replica moves. Only an existing replica can become leader, so a tablet
    that moves keeps its leader, unless that is the replica that leaves.
    """
    leaders = Leaders(view, moves)
    moves.leader_bound = leaders.fewest()
    led = bounded(((move,) for move in plan_leaders(leaders, tables)), caps.of_leaders)
    moves.leaders_left_out = led.left_out
    moves.extend(led)
    return moves


def _plan_replicas(layout: Layout) -> Iterable[Move]:
    yield from drain(layout)
    yield from spread_out(layout)
    for table in layout.tables:
        yield from even(layout, table)
    yield from _even_cluster(layout)


def bounded(steps: Iterable[Sequence[Move]], caps: Caps) -> Moves:
    """Return the moves of the steps that `caps` allow. `steps`: moves that belong together, which are taken or left out
    together.

    Each step is planned for the layout after the steps before it. If a step is left out, its source has more replicas
    than planned, and its target fewer. So a later step from such a target, or to such a source, is left out, too,
    because it might make the servers less even.
    """
    taken, size = Moves(), 0
    of_server: Counter[str] = Counter()
    sources: set[str] = set()
    targets: set[str] = set()
    for moves in steps:
        more, larger = len(taken) + len(moves), size + sum(move.bytes for move in moves)
        busier = Counter(uuid for move in moves for uuid in (move.from_uuid, move.to_uuid))
        fits = more <= caps.moves_max and larger <= caps.bytes_max
        fits = fits and all(of_server[uuid] + n <= caps.moves_per_server_max for uuid, n in busier.items())
        if fits and not any(move.from_uuid in targets or move.to_uuid in sources for move in moves):
            size = larger
            of_server.update(busier)
            taken.extend(moves)
            continue
        taken.left_out += len(moves)
        sources.update(move.from_uuid for move in moves)
        targets.update(move.to_uuid for move in moves)
        if len(taken) >= caps.moves_max and taken.left_out >= LEFT_OUT_MAX:
            break
    return taken


def drain(layout: Layout) -> Iterable[Move]:
    for source in sorted(u for u, s in layout.servers.items() if s.draining):
        for table in layout.tables:
            for tablet in sorted(layout.of_server[source][table] - layout.busy):
                fit = [u for u in layout.targets if u not in layout.holders[tablet] and layout.has_room(u)]
                fit = [u for u in fit if layout.is_fit(u, layout.size(tablet))] or fit
                fit = [u for u in fit if layout.keeps_spread(tablet, source, u)] or fit
                if fit:
                    target = min(fit, key=lambda u: (layout.count(u, table), layout.count(u), u))
                    yield layout.move(tablet, source, target, f"server {source} is draining")


def spread_out(layout: Layout) -> Iterable[Move]:
    """Plan moves of settled tablets whose replicas could be spread better over the servers' locations."""
    moves_of = cache(partial(spreading_moves, targets=frozenset(layout.servers[u].places for u in layout.targets)))
    for name in sorted(layout.tablets.keys() - layout.busy):
        holders = sorted(u for u in layout.holders[name] if u in layout.servers)
        for pairs in moves_of(tuple(sorted(layout.servers[u].places for u in holders))):
            if found := _best_of(layout, name, holders, pairs):
                source, target = found
                place = layout.servers[source].location
                yield layout.move(name, source, target, f"its replicas are crowded in location {place}")
                break


def _best_of(layout: Layout, name: str, holders: Sequence[str], pairs: Pairs) -> tuple[str, str] | None:
    """Return the best move between these locations, as (source, target); None if no server there may get a replica."""
    tablet = layout.tablets[name]

    def order(move: tuple[str, str]) -> tuple[object, ...]:
        source, target = move
        fewer, more = layout.count(target, tablet.table_id), layout.count(source, tablet.table_id)
        return tablet.leader_uuid == source, fewer, layout.held[target], -more, source, target

    fit = [u for u in layout.targets if u not in holders and layout.has_room(u)]
    places = {u: layout.servers[u].places for u in (*fit, *holders)}
    moves = [(s, t) for s in holders for t in fit if (places[s], places[t]) in pairs]
    return min((m for m in moves if layout.is_fit(m[1], layout.size(name))), key=order, default=None)


def _pairs(order: list[str], count: dict[str, int]) -> Iterable[tuple[str, str]]:
    """Yield pairs (fuller, emptier) that differ by two at least, the most uneven first."""
    for source in reversed(order):
        for target in order:
            if count[source] - count[target] < 2:
                break
            yield source, target


def even(layout: Layout, table: str) -> Iterable[Move]:
    while True:
        count = {u: layout.count(u, table) for u in layout.targets}
        order = sorted(count, key=lambda u: (count[u], layout.count(u), u))
        for source, target in _pairs(order, count):
            tablet = layout.movable(table, source, target)
            if tablet is not None:
                yield layout.move(
                    tablet, source, target, f"table {table}: {count[source]} replicas against {count[target]}"
                )
                break
        else:
            return


def _even_cluster(layout: Layout) -> Iterable[Move]:
    moved: Counter[str] = Counter()
    without: dict[tuple[str, str], tuple[int, int]] = {}
    """The pairs of servers between which no move was found, each with the numbers of moves of its two servers at that
    time. Only a further move of one of them can change that."""
    while True:
        count = {u: layout.count(u) for u in layout.targets}
        order = sorted(count, key=lambda u: (count[u], u))
        for source, target in _pairs(order, count):
            if without.get((source, target)) == (moved[source], moved[target]):
                continue
            tablet = _of_fuller_table(layout, source, target)
            if tablet is not None:
                moved.update((source, target))
                yield layout.move(tablet, source, target, f"cluster: {count[source]} replicas against {count[target]}")
                break
            without[source, target] = moved[source], moved[target]
        else:
            return


def _of_fuller_table(layout: Layout, source: str, target: str) -> str | None:
    """Return a tablet, which can move, of a table of which `source` has more replicas than `target`."""
    for table in layout.open_tables(source, target):
        if layout.count(source, table) > layout.count(target, table):
            tablet = layout.movable(table, source, target)
            if tablet is not None:
                return tablet
    return None


def skew(view: ClusterView, table: str | None = None) -> int:
    """Return the number of replicas on the fullest live server minus that on the emptiest, of one table or of all."""
    return skews(view).get(table, 0)


def skews(view: ClusterView) -> dict[str | None, int]:
    """Return the skew of each table by its id, and the skew of the whole cluster under None."""
    layout = Layout(view)
    found = {}
    for table in (None, *layout.tables):
        counts = [layout.count(u, table) for u in layout.targets]
        found[table] = max(counts, default=0) - min(counts, default=0)
    return found
