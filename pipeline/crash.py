"""Crash points of tasks. The ingest query has `pipeline.after_first_batch` and `pipeline.before_dead_letters`; the
decisions query has `pipeline.amid_decisions` and `pipeline.before_outcomes`.

Tasks of a batch write reach the first one, too.

They are like the crash points of a replica's disk: off by default, set in the environment of the worker process,
unsafe. A worker can also pause at such a point, so that a test can kill its driver then. With
`NYALA_PAUSE_POINT=name:file` the worker writes its pid into the file, and waits until it ends; it never goes on.
"""

from __future__ import annotations

import os
import threading
from functools import cache
from pathlib import Path

from nyala.replica.types import CRASH_EXIT_CODE, CrashPoints

PAUSE_VARIABLE = "NYALA_PAUSE_POINT"
PAUSE_S_MAX = 60.0
"""A paused worker ends after this time."""

AFTER_FIRST_BATCH = "pipeline.after_first_batch"
"""Reached when a tablet has acknowledged a batch of the task, and more batches follow; in a task's first attempt
only."""
BEFORE_DEAD_LETTERS = "pipeline.before_dead_letters"
"""Reached when a tablet has acknowledged a batch with a failed row, whose dead letter has not been sent to Kafka
yet."""
AMID_DECISIONS = "pipeline.amid_decisions"
"""Reached when the first decision of a task has ended, and others are under way or wait; in a task's first attempt
only."""
BEFORE_OUTCOMES = "pipeline.before_outcomes"
"""Reached when all decisions of a task have ended, and Kafka may have none of their outcomes; in a task's first attempt
only."""


def reach(name: str) -> None:
    """End the process if `name` is set in its environment and this is the pass that it counts down to."""
    armed, _, file = os.environ.get(PAUSE_VARIABLE, "").partition(":")
    if armed == name:
        Path(file).write_text(str(os.getpid()))
        threading.Event().wait(PAUSE_S_MAX)
        os._exit(CRASH_EXIT_CODE)
    _points().reach(name)


def reach_in_first_attempt(name: str) -> None:
    """Do the same as `reach`, but only in a task's first attempt."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None or context.attemptNumber() == 0:
        reach(name)


@cache
def _points() -> CrashPoints:
    return CrashPoints()
