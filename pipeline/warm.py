"""Starts Spark's workers while the query opens, so that the first records need not wait for them.

Python workers start and import modules, and Spark compiles the plan that passes Arrow batches to them; together this
takes seconds. An empty job of the same shape does all that while the driver prepares its first micro-batch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

from .task import RESULT_SCHEMA

_log = logging.getLogger(__name__)


def warm_workers(spark: Any) -> threading.Thread:
    """Run that job on a thread of its own, without waiting for it. If it fails, the query itself will report the
    cause."""
    thread = threading.Thread(target=_warm, args=(spark,), name="warm", daemon=True)
    thread.start()
    return thread


def _warm(spark: Any) -> None:
    try:
        workers = spark.sparkContext.defaultParallelism
        spark.range(0, workers, 1, workers).mapInArrow(_nothing, RESULT_SCHEMA).collect()
    except Exception as error:  # noqa: BLE001 - only time is lost
        _log.info("the workers were not warmed: %s", error)


def _nothing(batches: Iterator[Any]) -> Iterator[Any]:
    """Return no row. A worker that received this function has imported its module, and with it all that a task
    needs."""
    for _ in batches:
        yield from ()
