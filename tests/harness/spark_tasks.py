"""This process as a task of a Spark query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext


@contextmanager
def in_query(number: int | None) -> Iterator[None]:
    """Be a task of the query of that number, or of no query but an RDD, meanwhile."""
    before = TaskContext._taskContext
    TaskContext._taskContext = None
    TaskContext(localProperties={} if number is None else {"spark.sql.execution.id": str(number)})  # type: ignore[arg-type]
    try:
        yield
    finally:
        TaskContext._taskContext = before
