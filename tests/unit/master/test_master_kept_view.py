"""The kept view beside its slow twin: after any history, each look finds what a walk over all tablets finds."""

from __future__ import annotations

from functools import cache

import pytest

from nyala.replica.policy import ChangeKind, Need
from tests.harness.kept_worlds import World
from tests.harness.seeds import few_then_deep

HISTORIES, ROUNDS = 64, 60


@pytest.mark.deep
@pytest.mark.parametrize("block", few_then_deep(3, HISTORIES // 8))
def test_kept_view_decides_what_a_walk_over_all_tablets_decides(block: int) -> None:
    """Goal: a master visits only tablets that may have changed, and decides as if it had visited all. Method: random
    histories of reports, silences, restarts, changes of the catalog, leaderships and times at the edges of all delays.
    After each look, the views, the lists of tablets, the loads, decisions and renewals equal those of a walk."""
    for seed in range(8 * block, 8 * block + 8):
        history(seed)


@cache
def history(seed: int) -> set[str]:
    """One random history, run once in a process; returns the kinds of its decisions."""
    world = World(seed)
    for _ in range(ROUNDS):
        world.round()
    return world.reached


@pytest.mark.deep
def test_histories_reach_every_kind_of_decision() -> None:
    """Goal: the comparison with a walk is empty of no decision that the policy knows, of today or of later. Method: the
    kinds of all histories together, beside the policy's lists of advice and of desired changes."""
    reached: set[str] = set()
    for seed in range(HISTORIES):
        reached |= history(seed)
    advice = {*Need} - {Need.NOTHING}
    wished = {f"desired {kind.lower()}" for kind in ChangeKind}
    assert reached == advice | wished | {"desired cancelled", "copy in place"}
