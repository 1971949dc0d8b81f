"""Decides which decision is carried out next: one at a time of each tablet, a few at a time of each target server.

Pure: the caller passes the time, and holds a lock if several threads call.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import count

from nyala.replica.types import Decision, EditKind, Outcome

RETRY_FIRST_S = 0.25
RETRY_MAX_S = 4.0


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How many decisions are carried out at a time, and for how long."""

    workers: int
    """The threads: the decisions that are under way at a time."""
    per_target_max: int
    """Of these, so many of one target server. A server that does not answer thus keeps few threads."""
    start_within_s: float = math.inf
    """A decision that has not been tried by then is given up."""
    retry_for_s: float = math.inf
    """The time, from its first attempt, after which a decision that fails is not tried again."""


def target_of(decision: Decision) -> str:
    """Return the server that bears the work of a decision: the one that gets a copy, else the leader that is called.

    A decision that names neither is bounded by its tablet alone.
    """
    added = next((edit.member.uuid for edit in decision.edits if edit.kind is EditKind.ADD), "")
    return added or decision.leader_uuid or f"tablet {decision.tablet_id}"


@dataclass(eq=False)
class Job:
    """A decision that waits or is under way."""

    decision: Decision
    target: str
    start_by_s: float
    number: int
    retry_until_s: float = 0.0
    """0 before the first attempt."""
    wait_s: float = RETRY_FIRST_S
    late: bool = False
    """Whether it waited too long for its first attempt: it is not tried."""
    withdrawn: bool = False


@dataclass(eq=False)
class Schedule:
    """The decisions that wait. Invariant: a tablet has at most one job that waits and one that is under way."""

    bounds: Bounds
    _waiting: dict[str, Job] = field(default_factory=dict)
    """By tablet; jobs elsewhere that are not here were replaced or withdrawn."""
    _ready: dict[str, dict[str, Job]] = field(default_factory=dict)
    """By target, in the order in which the targets come next: its jobs that are due, by tablet."""
    _later: list[tuple[float, int, Job]] = field(default_factory=list)
    """A heap of retries. A retry that was replaced leaves it when it is due, so after RETRY_MAX_S at most."""
    _running: dict[str, Job] = field(default_factory=dict)
    _load: Counter[str] = field(default_factory=Counter)
    _numbers: count[int] = field(default_factory=count)

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self._waiting and not self._running

    def add(self, decision: Decision, now_s: float) -> None:
        """Let a decision wait, in the place of an earlier one of its tablet that waits."""
        self.withdraw(decision.tablet_id, waiting_only=True)
        job = Job(decision, target_of(decision), now_s + self.bounds.start_within_s, next(self._numbers))
        self._waiting[decision.tablet_id] = job
        self._make_ready(job)

    def withdraw(self, tablet_id: str, *, waiting_only: bool = False) -> None:
        """Drop the decision of a tablet if it waits. If it is under way, it is not tried again."""
        job = self._waiting.pop(tablet_id, None)
        if job is not None:
            self._leave(job)
        if tablet_id in self._running and not waiting_only:
            self._running[tablet_id].withdrawn = True

    def take(self, now_s: float) -> Job | None:
        """Return the job to carry out now, which is under way from now on; None if there is none.

        The targets take turns. The jobs of a target go in the order in which they came, but for those that are tried
        again.
        """
        while self._later and self._later[0][0] <= now_s:
            job = heapq.heappop(self._later)[2]
            if self._waiting.get(job.decision.tablet_id) is job:
                self._make_ready(job)
        for target, jobs in self._ready.items():
            if self._load[target] < self.bounds.per_target_max:
                free = next((each for tablet_id, each in jobs.items() if tablet_id not in self._running), None)
                if free is not None:
                    self._begin(free, now_s)
                    return free
        return None

    def due_s(self) -> float:
        """Return when the next retry is due; infinity if none waits for its time."""
        return self._later[0][0] if self._later else math.inf

    def finish(self, job: Job, outcome: Outcome, now_s: float) -> bool:
        """Note the end of an attempt; returns whether the outcome is the decision's last one.

        It is not if the decision is tried again, or a newer one of the tablet came meanwhile that replaces it.
        """
        tablet_id = job.decision.tablet_id
        del self._running[tablet_id]
        self._load[job.target] -= 1
        if not self._load[job.target]:
            del self._load[job.target]
        if job.late or not outcome.retryable or job.withdrawn or now_s >= job.retry_until_s:
            return True
        if tablet_id not in self._waiting:
            self._waiting[tablet_id] = job
            heapq.heappush(self._later, (now_s + job.wait_s, job.number, job))
            job.wait_s = min(job.wait_s * 2, RETRY_MAX_S)
        return False

    def _begin(self, job: Job, now_s: float) -> None:
        tablet_id = job.decision.tablet_id
        del self._waiting[tablet_id]
        rest = self._leave(job)
        if rest:  # the target's next turn comes after those of the others
            self._ready[job.target] = self._ready.pop(job.target)
        self._running[tablet_id] = job
        self._load[job.target] += 1
        if not job.retry_until_s:
            job.late = now_s >= job.start_by_s
            job.retry_until_s = now_s + self.bounds.retry_for_s

    def _make_ready(self, job: Job) -> None:
        self._ready.setdefault(job.target, {})[job.decision.tablet_id] = job

    def _leave(self, job: Job) -> bool:
        """Take a job from those that are due; returns whether its target has others."""
        jobs = self._ready.get(job.target, {})
        jobs.pop(job.decision.tablet_id, None)
        if not jobs:
            self._ready.pop(job.target, None)
        return bool(jobs)
