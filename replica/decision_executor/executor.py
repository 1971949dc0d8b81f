"""Carries decisions out on threads: inside a master as they come, in a task of the decisions query all that it got."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from nyala.replica.types import Code, Decision, Outcome, Refused
from nyala.replica.types.log_records import about

from .outcome import outcome_of
from .schedule import Bounds, Job, Schedule, target_of

_log = logging.getLogger("nyala.decisions")
CLOSE_WITHIN_S = 20.0


class DecisionExecutor:
    """Carries decisions out on threads of its own: the newest decision of each tablet, one at a time per tablet.

    After a temporary error, it tries again until the bounds, the deadline, a newer decision, or a withdrawal. It keeps
    nothing over a restart, because the masters decide again what is still needed. Concurrency: public methods from any
    thread.
    """

    def __init__(
        self, attempt: Callable[[Decision], Outcome], on_outcome: Callable[[Outcome], None], bounds: Bounds
    ) -> None:
        """`attempt` carries a decision out once; `on_outcome` gets its outcome. Both are called on the threads here."""
        self._attempt = attempt
        self._on_outcome = on_outcome
        self._ready = threading.Condition()
        self._schedule = Schedule(bounds)
        self._closing = False
        names = (f"decision-{n}" for n in range(bounds.workers))
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]

    def start(self) -> None:
        """Begin to work."""
        for thread in self._threads:
            thread.start()

    def accept(self, decisions: dict[str, Decision | None]) -> None:
        """Accept decisions. None withdraws one: if it waits it is dropped, if it runs it is not tried again."""
        with self._ready:
            for tablet_id, decision in decisions.items():
                if decision is None:
                    self._schedule.withdraw(tablet_id)
                else:
                    self._schedule.add(decision, time.monotonic())
            self._ready.notify_all()

    def close(self) -> None:
        """End the threads after their present work."""
        with self._ready:
            self._closing = True
            self._ready.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=CLOSE_WITHIN_S)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            outcome = self._outcome(job)
            with self._ready:
                last = self._schedule.finish(job, outcome, time.monotonic())
                self._ready.notify_all()
            about(_log, outcome.tablet_id).info("decision %s: %s", outcome.result, outcome.message)
            if last:
                try:
                    self._on_outcome(outcome)
                except Exception:  # noqa: BLE001 - the root of this thread: it must go on with the next decision
                    about(_log, outcome.tablet_id).exception("the outcome of a decision could not be reported")

    def _next(self) -> Job | None:
        with self._ready:
            while not self._closing:
                now_s = time.monotonic()
                job = self._schedule.take(now_s)
                if job is not None:
                    return job
                self._ready.wait(min(60.0, self._schedule.due_s() - now_s))
            return None

    def _outcome(self, job: Job) -> Outcome:
        decision = job.decision
        if job.late:
            what = f"other decisions of server {target_of(decision)} took all the time; the masters decide anew"
            return outcome_of(decision, Refused(Code.TIMED_OUT, what))
        try:
            return self._attempt(decision)
        except Exception as error:  # noqa: BLE001 - a decision that meets a defect must end neither thread nor query
            about(_log, decision.tablet_id).exception("a decision could not be carried out")
            return outcome_of(decision, Refused(Code.ILLEGAL_STATE, f"{type(error).__name__}: {error}"))


def carry_out_all(
    decisions: Sequence[Decision], attempt: Callable[[Decision], Outcome], bounds: Bounds
) -> Iterator[Outcome]:
    """Carry out decisions of distinct tablets; yields the outcome of each, in the order in which they end."""
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    fewer = replace(bounds, workers=min(bounds.workers, len(decisions)))
    executor = DecisionExecutor(attempt, outcomes.put, fewer)
    executor.accept({decision.tablet_id: decision for decision in decisions})
    executor.start()
    try:
        for _ in decisions:
            yield outcomes.get()
    finally:
        executor.close()
