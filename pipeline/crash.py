"""Crash points of the ingest query's tasks: `pipeline.after_first_batch` and `pipeline.before_dead_letters`.

Armed by the environment of the worker process, off by default, unsafe: what the replica's disk has, for the pipeline.
"""

from __future__ import annotations

from functools import cache

from nyala.replica.base import CrashPoints

AFTER_FIRST_BATCH = "pipeline.after_first_batch"
"""A tablet has acknowledged a batch of the task; more is to be sent. Reached in a task's first attempt only."""
BEFORE_DEAD_LETTERS = "pipeline.before_dead_letters"
"""Every row is acknowledged; no dead letter of the task is flushed yet."""


def reach(name: str) -> None:
    """Die here if `name` is armed in this process and this is the pass it waits for; otherwise nothing."""
    _points().reach(name)


def reach_in_first_attempt(name: str) -> None:
    """As `reach`, but a task that Spark repeats lives."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None or context.attemptNumber() == 0:
        reach(name)


@cache
def _points() -> CrashPoints:
    return CrashPoints()
