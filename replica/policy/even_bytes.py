"""Plans moves that even out the bytes on the servers' disks, at no cost to the evenness of their replicas."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest, nsmallest
from itertools import product

from .layout import Layout
from .views import Move

UNEVEN_BYTES_MIN = 1 << 30
UNEVEN_SHARE = 0.1
"""Two servers are even if their bytes differ by no more than this, or by no more than this share of the mean: data that
is merged and deleted would otherwise keep replicas on the move."""
_SERVERS = 8
"""So many of the fullest servers are compared with so many of the emptiest ones."""
_TABLETS = 16
"""So many of the largest tablets of a table on the fuller server are compared with so many of the smallest ones of the
emptier one."""
_Step = tuple[tuple[str, str, str], ...]
"""Replica moves that belong together: tablet, source, target."""


def even_bytes(layout: Layout) -> Iterator[tuple[Move, ...]]:
    """Plan moves, and exchanges of two replicas of one table, from servers with more bytes to servers with fewer.

    A move goes only where fewer replicas are, of the table and in all; an exchange changes no number. Each lowers the
    sum of the squared bytes, so the plans end.
    """
    held = {u: sum(map(layout.size, layout.on(u))) for u in layout.targets}
    even = max(UNEVEN_BYTES_MIN, UNEVEN_SHARE * sum(held.values()) / max(1, len(held)))
    while step := _best_step(layout, held, even):
        (_, fuller, emptier), *_ = step
        text = f"server {fuller} has {held[fuller] / 1e9:.1f} GB, {emptier} {held[emptier] / 1e9:.1f} GB"
        for tablet, source, target in step:
            held[source] -= layout.size(tablet)
            held[target] += layout.size(tablet)
        yield tuple(layout.move(*each, text) for each in step)


def _best_step(layout: Layout, held: dict[str, int], even: float) -> _Step | None:
    """Return the best step between the two most uneven servers that have one; None if there is none."""
    order = sorted(held, key=lambda u: (held[u], u))
    for source in order[: -_SERVERS - 1 : -1]:
        for target in order[:_SERVERS]:
            gap = held[source] - held[target]
            if gap <= even:
                break
            if found := min(_steps(layout, source, target, gap), default=None):
                return found[-1]
    return None


def _steps(layout: Layout, source: str, target: str, gap: int) -> Iterator[tuple[int, int, _Step]]:
    """Yield (the gap that is left, bytes moved, step) of each step after which the servers differ by less."""
    emptier = layout.count(source) > layout.count(target)
    for table in layout.tables:
        large = nlargest(_TABLETS, sorted(layout.free(table, source, target)), layout.size)
        if emptier and layout.count(source, table) > layout.count(target, table):
            for tablet in large:
                if 0 < (size := layout.size(tablet)) < gap:
                    yield abs(gap - 2 * size), size, ((tablet, source, target),)
        small = nsmallest(_TABLETS, sorted(layout.free(table, target, source)), layout.size) if large else []
        for tablet, other in product(large, small):
            if 0 < (more := layout.size(tablet) - layout.size(other)) < gap:
                size = layout.size(tablet) + layout.size(other)
                yield abs(gap - 2 * more), size, ((tablet, source, target), (other, target, source))
