"""Decisions carried out inside a master: repeated as long as they are needed, and no longer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nyala.replica.decision_executor import Bounds, DecisionExecutor
from nyala.replica.types import Action, Code, Decision, Outcome, Result
from tests.harness.patience import patience_s

WAIT_S = patience_s(150.0)


class Tries:
    """Attempts at decisions, each of which waits to be told how it ends, and what was told of them: `happened`."""

    def __init__(self) -> None:
        self.happened: queue.Queue[tuple[str, int]] = queue.Queue()
        self._ends: queue.Queue[Outcome] = queue.Queue()

    def attempt(self, decision: Decision) -> Outcome:
        self.happened.put(("tried", decision.version))
        return self._ends.get(timeout=WAIT_S)

    def told(self, outcome: Outcome) -> None:
        self.happened.put((outcome.result.value, outcome.version))

    def end(self, version: int, *, well: bool = False) -> None:
        """The attempt under way, or the next one, ends so: well, or by what may pass."""
        result, code = (Result.DONE, Code.OK) if well else (Result.FAILED, Code.NOT_READY)
        self._ends.put(
            Outcome(
                subject_id="t", tablet_id="t", catalog_term=1, version=version, plan_id="", result=result, code=code,
                message="",
            )
        )  # fmt: skip

    def next(self) -> tuple[str, int]:
        """Return the next event."""
        return self.happened.get(timeout=WAIT_S)


@contextmanager
def executor() -> Iterator[tuple[DecisionExecutor, Tries]]:
    tries = Tries()
    made = DecisionExecutor(tries.attempt, tries.told, Bounds(workers=3, per_target_max=2))
    made.start()
    try:
        yield made, tries
    finally:
        threads = threading.active_count()
        made.close()
        assert threading.active_count() < threads, "nothing is left running"


def decision(version: int) -> dict[str, Decision | None]:
    return {"t": Decision(tablet_id="t", table_id="b", action=Action.CHANGE_CONFIG, version=version)}


def test_decision_that_fails_is_tried_again_until_it_is_carried_out() -> None:
    """TC-67. Goal: the executor repeats a decision after a temporary error, and reports one outcome. Method: two
    temporary failures, then success."""
    with executor() as (made, tries):
        made.accept(decision(1))
        for well in (False, False, True):
            assert tries.next() == ("tried", 1)
            tries.end(1, well=well)
        assert tries.next() == ("DONE", 1)


def test_decision_that_is_withdrawn_while_it_is_tried_is_not_tried_again() -> None:
    """TC-65, TC-67. Goal: a withdrawn decision is not tried again. Method: it is withdrawn during an attempt that then
    fails with a temporary error; a later decision for the tablet is tried."""
    with executor() as (made, tries):
        made.accept(decision(1))
        assert tries.next() == ("tried", 1)
        made.accept({"t": None})
        tries.end(1)
        assert tries.next() == ("FAILED", 1)
        made.accept(decision(2))
        assert tries.next() == ("tried", 2)
        tries.end(2, well=True)
        assert tries.next() == ("DONE", 2)


def test_decision_that_is_overtaken_while_it_is_tried_gives_way() -> None:
    """TC-67. Goal: the newest decision for a tablet is the one in force. Method: a later decision arrives during an
    attempt, with and without a withdrawal between them; the earlier attempt fails with a temporary error and is not
    repeated."""
    for withdrawn in (False, True):
        with executor() as (made, tries):
            made.accept(decision(1))
            assert tries.next() == ("tried", 1)
            if withdrawn:
                made.accept({"t": None})
            made.accept(decision(2))
            tries.end(1)
            told = [("FAILED", 1)] if withdrawn else []
            assert sorted(tries.next() for _ in range(1 + len(told))) == [*told, ("tried", 2)]
            tries.end(2, well=True)
            assert tries.next() == ("DONE", 2)
