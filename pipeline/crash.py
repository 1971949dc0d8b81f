"""Crash points of the ingest query's tasks: `pipeline.after_first_batch` and `pipeline.before_dead_letters`.

Tasks of a batch write reach the first of them too.

Armed by the environment of the worker process, off by default, unsafe: what the replica's disk has, for the pipeline.
At the same points a worker can be told to pause instead, so that its driver can be killed just there:
`NYALA_PAUSE_POINT=name:file` writes the worker's pid into the file and waits; a paused worker never goes on.
"""

from __future__ import annotations

import os
import threading
from functools import cache
from pathlib import Path

from nyala.replica.types import CRASH_EXIT_CODE, CrashPoints

PAUSE_VARIABLE = "NYALA_PAUSE_POINT"
PAUSE_S_MAX = 60.0
"""After which a paused worker dies, should nobody have killed it."""

AFTER_FIRST_BATCH = "pipeline.after_first_batch"
"""A tablet has acknowledged a batch of the task; more is to be sent. Reached in a task's first attempt only."""
BEFORE_DEAD_LETTERS = "pipeline.before_dead_letters"
"""A tablet has acknowledged a batch and told of a row that failed; its dead letter is not handed to Kafka yet."""


def reach(name: str) -> None:
    """Die here if `name` is armed in this process and this is the pass it waits for; otherwise nothing."""
    armed, _, file = os.environ.get(PAUSE_VARIABLE, "").partition(":")
    if armed == name:
        Path(file).write_text(str(os.getpid()))
        threading.Event().wait(PAUSE_S_MAX)
        os._exit(CRASH_EXIT_CODE)
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
