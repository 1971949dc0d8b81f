"""A lower bound of the moves that make counts even."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping


def fewest_moves(
    of_table: Mapping[str, Mapping[str, int]], movable: Mapping[str, Mapping[str, int]], targets: Collection[str]
) -> int:
    """Return a number of moves below which `targets` cannot differ by one at most, per table and in all. Pure.

    By table and server, `of_table` is the number of replicas there, and `movable` is how many of them can move. On a
    server that is no target, all movable replicas have to leave. A target loses its surplus of each table, and more if
    it still has too many in all. It gains in the same way. Each move is one loss and one gain.
    """
    if not targets:
        return 0
    whole, can, over, under = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    tables = 0
    for table, count in of_table.items():
        out, into = _uneven(count, movable[table], targets)
        tables += max(out.total(), into.total())
        whole.update(count)
        can.update(movable[table])
        over.update(out)
        under.update(into)
    least, most = _range(whole, can, targets)
    losses = sum(min(can[u], max(over[u], whole[u] + under[u] - most)) for u in targets)
    gains = sum(max(under[u], least - whole[u] + over[u]) for u in targets)
    losses += sum(n for u, n in can.items() if u not in targets)
    return min(can.total(), max(tables, losses, gains))


def _range(count: Mapping[str, int], movable: Mapping[str, int], targets: Collection[str]) -> tuple[int, int]:
    """Return the lowest and the highest number of each target once all are even."""
    leaving = sum(n for uuid, n in movable.items() if uuid not in targets)
    least, rest = divmod(sum(count.get(uuid, 0) for uuid in targets) + leaving, len(targets))
    return least, least + bool(rest)


def _uneven(
    count: Mapping[str, int], movable: Mapping[str, int], targets: Collection[str]
) -> tuple[Counter[str], Counter[str]]:
    """Return, by server, how many have to leave, and how many each target lacks."""
    least, most = _range(count, movable, targets)
    out, into = Counter[str](), Counter[str]()
    for uuid in {*targets, *movable}:
        if uuid not in targets:
            out[uuid] = movable.get(uuid, 0)
        elif (held := count.get(uuid, 0)) > most:
            out[uuid] = min(movable.get(uuid, 0), held - most)
        elif held < least:
            into[uuid] = least - held
    return out, into
