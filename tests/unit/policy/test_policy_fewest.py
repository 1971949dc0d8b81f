"""The lower bound of moves: examples whose bound can be counted by hand, and all small clusters by brute force."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from itertools import product

import pytest

from nyala.replica.policy.fewest import fewest_moves

Held = Mapping[str, Mapping[str, int]]


def singles(**servers: int) -> dict[str, dict[str, int]]:
    """A table of one replica for each one that a server has: even by itself, wherever it is."""
    return {f"{server}{n}": {server: 1} for server, count in servers.items() for n in range(count)}


IMMOVABLE = {"t": {"a": 2}, "u": {"a": 2}}
EXAMPLES: dict[str, tuple[Held, Held | None, str, int]] = {
    "no server may have any": ({"t": {"a": 2}}, None, "", 0),
    "all is even": ({"t": {"a": 1, "b": 1}}, None, "ab", 0),
    "what is on other servers has to go": ({"t": {"x": 3}}, None, "abc", 3),
    # a has 4 of 8 in all, where 2 or 3 are even: one leaves it, beside the two of x.
    "too much in all, beside what has to go": (singles(a=4, b=1, c=1, x=2), None, "abc", 3),
    # One of t goes from b to a, which then has one too many in all and gives another one away.
    "too much in all after a gain": ({"t": {"b": 2, "c": 1}, **singles(a=4, b=2, c=2)}, None, "abc", 2),
    # One of t goes from a to b, after which a has one too few in all.
    "too little in all after a loss": ({"t": {"a": 2, "c": 1}, **singles(a=1, b=3, c=3)}, None, "abc", 2),
    # Two of t have to go and fill no lack of t; one of u has to come to c.
    "each table by itself": ({"t": {"x": 2}, "u": {"a": 2, "b": 2}}, None, "abc", 3),
    "what cannot move stays": ({**IMMOVABLE, **singles(b=2, c=2)}, {"t": {}, "u": {}, **singles(b=2, c=2)}, "abc", 0),
}


@pytest.mark.parametrize("case", EXAMPLES)
def test_bound_of_small_clusters_is_what_can_be_counted_by_hand(case: str) -> None:
    """Goal: a plan is judged by the moves that evenness needs, per table and in all, and those off servers that are no
    targets. Method: examples, each of which needs one part of the bound."""
    of_table, movable, targets, fewest = EXAMPLES[case]
    assert fewest_moves(of_table, of_table if movable is None else movable, set(targets)) == fewest


def least_moves(of_table: Held, targets: str) -> int:
    """The moves of a shortest way to evenness of each table and in all, with nothing left elsewhere, by search."""

    def uneven(counts: Mapping[str, int]) -> bool:
        here = [counts.get(u, 0) for u in targets]
        return max(here) - min(here) > 1 or any(n and u not in targets for u, n in counts.items())

    def state(held: Held) -> tuple[tuple[tuple[str, int], ...], ...]:
        return tuple(tuple(sorted((u, n) for u, n in held[t].items() if n)) for t in sorted(held))

    queue, seen = deque([(0, {t: dict(c) for t, c in of_table.items()})]), {state(of_table)}
    while queue:
        moves, held = queue.popleft()
        whole = Counter[str]()
        for counts in held.values():
            whole.update(counts)
        if not any(map(uneven, [whole, *held.values()])):
            return moves
        for table, counts in held.items():
            for source, target in product([u for u, n in counts.items() if n], targets):
                after = {**held, table: {**counts, source: counts[source] - 1, target: counts.get(target, 0) + 1}}
                if source != target and state(after) not in seen:
                    seen.add(state(after))
                    queue.append((moves + 1, after))
    raise AssertionError("a move never makes evenness impossible")


@pytest.mark.parametrize("tables", [1, 2])
def test_no_small_cluster_needs_fewer_moves_than_the_bound(tables: int) -> None:
    """Goal: the bound is one. Method: all tables of up to two replicas on each of two servers and on a third one that
    has to be emptied; the shortest way to evenness by brute force. One table alone needs as many as the bound says."""
    shapes = [dict(zip("abx", counts, strict=True)) for counts in product(range(3), repeat=3)]
    for found in product(shapes, repeat=tables):
        if list(found) == sorted(found, key=lambda each: tuple(each.values())):
            of_table = {f"t{n}": counts for n, counts in enumerate(found)}
            bound, least = fewest_moves(of_table, of_table, {"a", "b"}), least_moves(of_table, "ab")
            assert bound <= least and (tables > 1 or bound == least), of_table
