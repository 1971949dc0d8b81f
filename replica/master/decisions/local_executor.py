"""The decision executor inside a master, for clusters without a decisions query."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from nyala.replica.types import Decision, Outcome, ReplicaError

_log = logging.getLogger("nyala.master")
WORKERS = 3
RETRY_FIRST_S = 0.25
RETRY_MAX_S = 4.0


@dataclass
class _Job:
    decision: Decision
    due_s: float
    wait_s: float


class LocalExecutor:
    """Carries decisions out on threads of its own: the newest decision of each tablet, one at a time per tablet.

    After a temporary error, it tries again until the deadline, a newer decision, or a withdrawal. It keeps nothing over
    a restart, because the masters decide again what is still needed. Concurrency: public methods from any thread.
    """

    def __init__(self, attempt: Callable[[Decision], Outcome], on_outcome: Callable[[Outcome], None]) -> None:
        """`attempt` carries a decision out once; `on_outcome` gets its outcome. Both are called on the threads here."""
        self._attempt = attempt
        self._on_outcome = on_outcome
        self._ready = threading.Condition()
        self._jobs: dict[str, _Job] = {}
        self._running: set[str] = set()
        self._withdrawn: set[str] = set()
        """Tablets whose running decision is not to be tried again."""
        self._closing = False
        self._threads = [threading.Thread(target=self._work, name=f"decision-{n}", daemon=True) for n in range(WORKERS)]

    def start(self) -> None:
        """Begin to work."""
        for thread in self._threads:
            thread.start()

    def accept(self, decisions: dict[str, Decision | None]) -> None:
        """Accept decisions. None withdraws one: if it waits it is dropped, if it runs it is not tried again."""
        with self._ready:
            for tablet_id, decision in decisions.items():
                if decision is None:
                    self._jobs.pop(tablet_id, None)
                    self._withdrawn |= self._running & {tablet_id}
                else:
                    self._jobs[tablet_id] = _Job(decision, time.monotonic(), RETRY_FIRST_S)
            self._ready.notify_all()

    def close(self) -> None:
        """End the threads after their present work."""
        with self._ready:
            self._closing = True
            self._ready.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=20)

    def _work(self) -> None:
        while True:
            job = self._next()
            if job is None:
                return
            tablet_id = job.decision.tablet_id
            outcome: Outcome | None = None
            try:
                outcome = self._attempt(job.decision)
            except ReplicaError as error:
                _log.warning("T %s a decision could not be carried out: %s", tablet_id, error)
            except Exception:  # noqa: BLE001 - the root of this thread: one bad decision must not end the executor
                _log.exception("T %s a decision could not be carried out", tablet_id)
            try:
                self._finish(tablet_id, job, outcome)
            except Exception:  # noqa: BLE001 - as above: who is told of an outcome must not end the executor
                _log.exception("T %s the outcome of a decision could not be told", tablet_id)

    def _next(self) -> _Job | None:
        with self._ready:
            while not self._closing:
                now_s = time.monotonic()
                waiting = {t: j for t, j in self._jobs.items() if t not in self._running}
                for tablet_id, job in waiting.items():
                    if job.due_s <= now_s:
                        del self._jobs[tablet_id]
                        self._running.add(tablet_id)
                        return job
                soonest_s = min((j.due_s for j in waiting.values()), default=now_s + 60)
                self._ready.wait(soonest_s - now_s)
            return None

    def _finish(self, tablet_id: str, job: _Job, outcome: Outcome | None) -> None:
        with self._ready:
            may_pass = outcome is not None and outcome.retryable
            again = may_pass and tablet_id not in self._withdrawn
            self._running.discard(tablet_id)
            self._withdrawn.discard(tablet_id)
            if again and tablet_id not in self._jobs:
                self._jobs[tablet_id] = _Job(
                    job.decision, time.monotonic() + job.wait_s, min(job.wait_s * 2, RETRY_MAX_S)
                )
            self._ready.notify_all()
        if outcome is not None:
            _log.info("T %s decision %s: %s", tablet_id, outcome.result, outcome.message)
            if not again:
                self._on_outcome(outcome)
