"""Plans moves that even out the bytes on the servers' disks. They do not make the numbers of replicas less even."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest, nsmallest
from itertools import product
from statistics import fmean

from .layout import Layout
from .views import Caps, Move

UNEVEN_BYTES_MIN = 1 << 30
UNEVEN_SHARE = 0.1
"""A step is planned only if it lowers the difference of two servers by this many bytes, and by this share of the mean.
With lower bounds, each compaction or deletion would cause moves."""
_SERVERS = 8
"""The number of fullest servers that are compared with as many of the emptiest ones."""
_TABLETS = 16
"""The number of a table's largest tablets on the fuller server that are compared with as many of its smallest ones on
the emptier server."""
_Step = tuple[tuple[str, str, str], ...]
"""Replica moves that belong together: tablet, source, target."""


def even_bytes(layout: Layout, caps: Caps) -> Iterator[tuple[Move, ...]]:
    """Plan moves, and exchanges of two replicas of one table, from servers with more bytes to servers with fewer.

    A move goes only to a server with fewer replicas, both of the table and in all. An exchange changes no number. Each
    step lowers the difference of two servers, and so the sum of the squared bytes, by a minimum. So plans come to an
    end. If `caps` allow no exchange at all, single moves come first, and the exchanges that are left come last.
    """
    if min(caps.moves_max, caps.moves_per_server_max) < 2:
        yield from _evened(layout, exchanges=False)
    yield from _evened(layout, exchanges=True)


def _evened(layout: Layout, *, exchanges: bool) -> Iterator[tuple[Move, ...]]:
    held = {u: sum(map(layout.size, layout.on(u))) for u in layout.targets}
    if not held:
        return
    uneven = max(UNEVEN_BYTES_MIN, UNEVEN_SHARE * fmean(held.values()))
    while step := _best_step(layout, held, uneven, exchanges=exchanges):
        (_, fuller, emptier), *_ = step
        text = f"server {fuller} has {held[fuller] / 1e9:.1f} GB, {emptier} {held[emptier] / 1e9:.1f} GB"
        for tablet, source, target in step:
            held[source] -= layout.size(tablet)
            held[target] += layout.size(tablet)
        yield tuple(layout.move(*each, text) for each in step)


def _best_step(layout: Layout, held: dict[str, int], uneven: float, *, exchanges: bool) -> _Step | None:
    """Return the best step between the two most uneven servers that have one; None if there is none."""
    order = sorted(held, key=lambda u: (held[u], u))
    for source, target in product(order[::-1][:_SERVERS], order[:_SERVERS]):
        gap = held[source] - held[target]
        found = (
            (abs(gap - 2 * more), copied, step)
            for more, copied, step in _steps(layout, source, target, exchanges=exchanges)
        )
        if best := min((each for each in found if gap - each[0] >= uneven), default=None):
            return best[-1]
    return None


def _steps(layout: Layout, source: str, target: str, *, exchanges: bool) -> Iterator[tuple[int, int, _Step]]:
    """Yield, for each step that may be planned: (the bytes by which the target grows, the bytes to copy, the step)."""
    fewer = layout.count(source) > layout.count(target)
    for table in layout.tables:
        large = nlargest(_TABLETS, sorted(layout.free(table, source, target)), layout.size)
        if fewer and layout.count(source, table) > layout.count(target, table):
            for tablet in large:
                yield layout.size(tablet), layout.size(tablet), ((tablet, source, target),)
        if not exchanges:
            continue
        small = nsmallest(_TABLETS, sorted(layout.free(table, target, source)), layout.size)
        for tablet, other in product(large, small):
            sizes = layout.size(tablet), layout.size(other)
            yield sizes[0] - sizes[1], sum(sizes), ((tablet, source, target), (other, target, source))
