"""The first micro-batch's one-time costs, paid while the query is still being opened.

Python workers start and import, and Spark loads and compiles what hands them Arrow: seconds for which otherwise the
first records wait. A tiny job of the same shape pays them beside the driver's own way to its first micro-batch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

from .task import RESULT_SCHEMA

_log = logging.getLogger(__name__)


def warm_workers(spark: Any) -> threading.Thread:
    """Run that job on a thread of its own, which nobody needs to wait for; if it fails, the query says why."""
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
    """No row. A worker that was handed this function has imported its module, and with it all that a task needs."""
    for _ in batches:
        yield from ()
