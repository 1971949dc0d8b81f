"""Seeds that once failed stay green, and a run of the simulators must show enough."""

from __future__ import annotations

import io
from collections import Counter
from functools import cache

import pytest
from rich.console import Console

from tests.sim import coverage
from tests.sim.__main__ import finish, kept, parse
from tests.sim.runs import SIMULATORS, Job, Outcome, Tally, run


@cache
def seen(simulator: str, seed: int) -> Outcome:
    """Return the outcome of one run, which several tests use."""
    return run(simulator, seed)


@pytest.mark.deep
@pytest.mark.parametrize("job", kept(), ids=lambda job: f"{job[0]}:{job[1]}")
def test_seed_that_once_failed_holds(job: Job) -> None:
    """Goal: a bug found by a seed stays fixed. Method: run the seeds of seeds.txt."""
    outcome = run(*job)
    assert not outcome.failure, outcome.trace


@pytest.mark.deep
@pytest.mark.parametrize("simulator", sorted(SIMULATORS))
def test_seed_run_twice_comes_across_the_same(simulator: str) -> None:
    """Goal: a red run is replayable. Method: two runs of a seed both hold, deliver as many messages, and come across
    the same marks."""
    outcome = seen(simulator, 5)
    assert not outcome.failure and outcome.delivered, outcome.trace
    assert run(simulator, 5) == outcome


def full_tally() -> Tally:
    """Return a tally of as much as CI demands, and no more."""
    tally = Tally()
    for name, verifiers in coverage.WATCHED.items():
        demanded = {"core": coverage.OF_CORES, "driver": coverage.DEMANDED}.get(name, ())
        watching = [f"{verifier} looked" for verifier in verifiers]
        marks = Counter(dict.fromkeys([*demanded, *watching], coverage.MARK_MIN))
        tally.add(Outcome(name, 0, coverage.DELIVERED_MIN // len(coverage.WATCHED), marks))
        tally.seeds[name] = coverage.SEEDS_MIN // len(coverage.WATCHED)
    return tally


def test_run_that_saw_enough_is_green_and_any_lack_is_red() -> None:
    """Goal: an idle simulator, or verifier, turns CI red. Method: one seed, one message, one occurrence of each mark or
    one comparison of each verifier is taken away."""
    assert coverage.shortfalls(full_tally()) == []
    for mark in coverage.DEMANDED:
        tally = full_tally()
        tally.marks["driver"][mark] -= 1
        assert [text for text in coverage.shortfalls(tally) if mark in text], mark
    for mark in coverage.OF_CORES:
        tally = full_tally()
        tally.marks["core"][mark] -= 1
        assert [text for text in coverage.shortfalls(tally) if mark in text], mark
    for name, verifiers in coverage.WATCHED.items():
        for verifier in verifiers:
            tally = full_tally()
            tally.marks[name][f"{verifier} looked"] -= 1
            assert coverage.shortfalls(tally) == [f"{verifier} looked 19 times in {name}, wanted 20"]
    tally = full_tally()
    tally.seeds["core"] -= 1
    tally.delivered["core"] -= 1
    assert len(coverage.shortfalls(tally)) == 2


@pytest.mark.parametrize("simulator", sorted(SIMULATORS))
def test_every_verifier_of_a_simulator_is_fed(simulator: str) -> None:
    """CN-26. Goal: a verifier that stops comparing is noticed at once, also if only its connection to the harness is
    cut. Method: a few seeds of each simulator; each of its verifiers compared something."""
    marks: Counter[str] = Counter()
    for seed in (5, 0, 1, 2):
        outcome = seen(simulator, seed)
        assert not outcome.failure, outcome.trace
        marks += outcome.marks
        idle = [v for v in coverage.WATCHED[simulator] if not marks[f"{v} looked"]]
        if not idle:
            return
    assert idle == []


@pytest.mark.parametrize("simulator", sorted(SIMULATORS))
def test_table_of_one_simulator_alone_is_shown(simulator: str) -> None:
    """Goal: a few seeds of one simulator can be run by hand. Method: such a run ends with its table."""
    tally, shown = Tally(), Console(file=io.StringIO(), width=160)
    for seed in range(2):
        tally.add(Outcome(simulator, seed, 10, Counter(drop=1)))
    assert finish(tally, shown, whole=False, t=0.0) == 0
    assert "20 messages delivered" in shown.file.getvalue()  # type: ignore[attr-defined]


def test_seeds_are_named_as_they_are_printed() -> None:
    """Goal: the seeds that a failure prints can be pasted. Method: parse ranges, lists and single seeds."""
    assert parse(["driver:17", "core:3-5,9"]) == [("driver", 17), *(("core", s) for s in (3, 4, 5, 9))]
    with pytest.raises(SystemExit, match="write SIMULATOR:SEEDS"):
        parse(["disk:1"])
