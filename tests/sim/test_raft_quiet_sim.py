"""The random histories again, of groups that go quiet whenever the load pauses."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.harness.raft_quiet import QUIET_MARKS, QuietNet
from tests.harness.raft_sim import FAILURES, explain, run_seed, seeds_from

pytestmark = pytest.mark.deep

SEEDS = list(seeds_from(os.environ.get("NYALA_RAFT_SEEDS", ""), 300))


def test_quiet_groups_under_random_faults_keep_every_promise_and_recover() -> None:
    """CN-24, CN-28: resting breaks no promise, reads under a lease included, and a resting member wakes when it is
    needed. Method: the histories of test_raft_sim with lulls, and links whose pulses are lost, delayed and cut like all
    other messages; a healed group must commit again. Every way of falling asleep and of waking occurs twenty times."""
    marks: Counter[str] = Counter()
    for seed in SEEDS:
        try:
            marks += run_seed(seed, net_class=QuietNet).marks
        except FAILURES as error:
            pytest.fail(explain(seed, error).replace("test_raft_sim", "test_raft_quiet_sim"))
    print(", ".join(f"{marks[name]} {name}" for name in QUIET_MARKS))
    if len(SEEDS) >= 300:
        assert [name for name in QUIET_MARKS if marks[name] < 20] == [], "an idle simulation proves nothing"
