"""Full garbage collections of a master, which visit an object that lives long once and not again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nyala.replica.master.collection_pauses import LONG_S, CollectionPauses
from tests.harness.kept_worlds import World

LIVE = 200_000


@contextmanager
def measured(took_s: float) -> Iterator[CollectionPauses]:
    """Pauses of a process where each full collection takes that long."""
    times = iter(range(1 << 30))
    with CollectionPauses(lambda: next(times) * took_s) as pauses:
        yield pauses


def visited() -> int:
    """Return how many objects the next full collection visits."""
    return sum(len(gc.get_objects(generation)) for generation in range(3))


@pytest.mark.deep
def test_what_a_long_collection_found_alive_is_not_visited_again() -> None:
    """Goal: the event loop of a master with very many tablets is not held up by a full collection, again and again.
    Method: many records, and a full collection that takes long by the clock: the next one visits what was made since;
    what is no longer referred to is freed all the same, and a cycle that was made since is found."""
    live = [{"record": [number]} for number in range(LIVE)]
    with measured(2 * LONG_S) as pauses:
        assert visited() > LIVE
        gc.collect()
        assert visited() < LIVE / 10 and pauses.longest_s == 2 * LONG_S
        frozen = gc.get_freeze_count()
        del live[LIVE // 2 :]
        assert gc.get_freeze_count() <= frozen - LIVE
        cycle: list[object] = []
        cycle.append(cycle)
        del cycle
        assert gc.collect() >= 1


@pytest.mark.a_third
@pytest.mark.parametrize("generation", [0, 1, 2])
def test_short_collection_leaves_everything_to_the_next_one(generation: int) -> None:
    """Goal: an object is kept from collections only if they are long. Method: a full collection that is as long as one
    may be, and a partial one that is longer: nothing is frozen, and partial ones are not measured."""
    before = gc.get_freeze_count()
    with measured(LONG_S if generation == 2 else 10 * LONG_S) as pauses:
        gc.collect(generation)
        assert gc.get_freeze_count() <= before and pauses.longest_s == (LONG_S if generation == 2 else 0)


def test_records_and_reports_of_a_master_form_no_cycles() -> None:
    """Goal: what a master no longer refers to is freed without a collection, which may not visit it any more. Method:
    a random history of reports, losses, decisions and changes of the catalog, without collections; then everything
    that a full one would free, of which nothing is the project's own."""
    world = World(3)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(40):
            world.round()
        gc.collect()
        assert [found for found in gc.garbage if type(found).__module__.startswith("nyala.")] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_collections_are_watched_only_while_the_master_runs() -> None:
    """Goal: a process that has ended its master is as it was. Method: the list of those who watch collections."""
    before = list(gc.callbacks)
    with measured(0.0):
        assert len(gc.callbacks) == len(before) + 1
    assert gc.callbacks == before
