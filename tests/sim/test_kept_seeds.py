"""Seeds that once failed, and what a run of the simulators must show."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim import coverage
from tests.sim.__main__ import kept, parse
from tests.sim.runs import SIMULATORS, Job, Outcome, Tally, run


@pytest.mark.parametrize("job", kept(), ids=lambda job: f"{job[0]}:{job[1]}")
def test_seed_that_once_failed_holds(job: Job) -> None:
    """Goal: a bug found by a seed stays fixed. Method: run the seeds of seeds.txt."""
    outcome = run(*job)
    assert not outcome.failure, outcome.trace


@pytest.mark.parametrize("simulator", sorted(SIMULATORS))
def test_seed_run_twice_comes_across_the_same(simulator: str) -> None:
    """Goal: a red run is replayable. Method: two runs of a seed hold, deliver as many messages, see the same marks."""
    outcome = run(simulator, 5)
    assert not outcome.failure and outcome.delivered, outcome.trace
    assert run(simulator, 5) == outcome


def full_tally() -> Tally:
    """As much as CI demands, and no more."""
    tally = Tally()
    for name, seeds in (("core", 1_000), ("host", 500)):
        marks = Counter(dict.fromkeys(coverage.DEMANDED + coverage.OF_CORES, coverage.MARK_MIN))
        tally.add(Outcome(name, 0, 1_000_000, marks))
        tally.seeds[name] = seeds
    return tally


def test_run_that_saw_enough_is_green_and_any_lack_is_red() -> None:
    """Goal: an idle simulator turns CI red. Method: take one seed, one message, or one sighting of each mark away."""
    assert coverage.shortfalls(full_tally()) == []
    for mark in coverage.DEMANDED:
        tally = full_tally()
        tally.marks["host"][mark] -= 1
        assert [text for text in coverage.shortfalls(tally) if mark in text], mark
    for mark in coverage.OF_CORES:
        tally = full_tally()
        tally.marks["core"][mark] -= 1
        assert [text for text in coverage.shortfalls(tally) if mark in text], mark
    tally = full_tally()
    tally.seeds["core"] -= 1
    tally.delivered["core"] -= 1
    assert len(coverage.shortfalls(tally)) == 2


def test_seeds_are_named_as_they_are_printed() -> None:
    """Goal: what a failure prints can be pasted. Method: parse ranges, lists and single seeds."""
    assert parse(["host:17", "core:3-5,9"]) == [("host", 17), *(("core", s) for s in (3, 4, 5, 9))]
    with pytest.raises(SystemExit, match="write SIMULATOR:SEEDS"):
        parse(["disk:1"])
