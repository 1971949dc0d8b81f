"""Measures how the replicas of a tablet are spread over the locations, and finds the moves that would spread them
better."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from functools import lru_cache

Places = tuple[str, ...]
"""A location and those around it, the widest first (`ServerView.places`)."""
Pairs = frozenset[tuple[Places, Places]]
"""Moves between locations: from, to."""


def crowding(places: Iterable[Places]) -> tuple[int, int]:
    """Return the sums of the squared numbers of replicas per location, from the widest locations to the narrowest ones.

    `places`: those of a tablet's replicas. A layout with a lower tuple is spread better: fewer replicas are in the
    fullest location, so fewer are lost with it.
    """
    known = list(places)
    wide = Counter(each[0] for each in known)
    return sum(n * n for n in wide.values()), sum(n * n for n in Counter(known).values())


@lru_cache(1 << 16)
def keeps_crowding(others: tuple[Places, ...], source: Places, target: Places) -> bool:
    """Whether a replica that goes from `source` to `target` leaves its tablet spread as well as before. `others`: the
    places of the tablet's other replicas, in order."""
    return crowding([*others, target]) <= crowding([*others, source])


def spreading_moves(places: Sequence[Places], targets: Set[Places]) -> list[Pairs]:
    """Return the moves of one replica that lower the crowding: those that lower it most first, equally good ones in one
    set. Pure.

    `places`: those of the tablet's replicas; `targets`: where replicas may go.
    """
    now = crowding(places)
    found: dict[tuple[int, int], set[tuple[Places, Places]]] = {}
    for source in set(places):
        others = list(places)
        others.remove(source)
        for target in targets:
            after = crowding([*others, target])
            if after < now:
                found.setdefault(after, set()).add((source, target))
    return [frozenset(found[after]) for after in sorted(found)]
