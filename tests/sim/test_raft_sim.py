"""Random histories of a group of consensus cores, under the verifiers V1-V4, I1, I4 and READ, ending in liveness."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.harness.raft_sim import FAILURES, MARKS, explain, run_seed, seeds_from

pytestmark = pytest.mark.deep

SEEDS = list(seeds_from(os.environ.get("NYALA_RAFT_SEEDS", ""), 1000))
BLOCK = 100
SEEN_MIN = 2
"""How often each block must come across each mark: twenty times in all."""


@pytest.mark.parametrize("block", range(0, len(SEEDS), BLOCK))
def test_group_under_random_faults_keeps_every_promise_and_recovers(block: int) -> None:
    """Goal: CN-26, CC-05, CC-23 and CN-29 hold under any schedule, and a healed group makes progress. Method: each seed
    draws loss, duplication, reordering, cuts, crashes that lose what was not persisted, pauses, log GC, member changes
    and transfers; NYALA_RAFT_SEEDS=17 | 3,17 | 0-999 chooses the seeds."""
    marks: Counter[str] = Counter()
    seeds = SEEDS[block : block + BLOCK]
    for seed in seeds:
        try:
            marks += run_seed(seed).marks
        except FAILURES as e:
            pytest.fail(explain(seed, e))
    print(f"seeds {seeds[0]}-{seeds[-1]}: " + ", ".join(f"{marks[name]} {name}" for name in MARKS))
    if len(seeds) == BLOCK:
        assert [name for name in MARKS if marks[name] < SEEN_MIN] == [], "an idle simulation proves nothing"


def test_seed_run_twice_gives_the_same_history() -> None:
    """Goal: a red run is replayable. Method: two runs of one seed end with the same log on the same tick."""
    first, second = run_seed(11), run_seed(11)
    assert first.verify.canonical == second.verify.canonical
    assert (first.clock, first.status()) == (second.clock, second.status())
