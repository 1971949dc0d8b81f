"""The hybrid time of one Spark query. All tasks of the query, on all hosts, agree on it.

Spark 4.2 calls a reader's `partitions` once for each `load()`, and keeps the answer for all later queries of the
DataFrame. So the planner does not know the queries. The tasks know the number of their query
(`spark.sql.execution.id`), and tasks of a repeated stage have the same number. The masters' catalog keeps the first
time that a task of the query proposes. If the tasks cannot agree, the query is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark import TaskContext

from nyala.replica.client import Client, ReadLoad
from nyala.replica.types import Code, Refused, new_uuid, only_reads

from .application_time import application_folder

_ADVICE = 'load() the DataFrame with the option at = "now", and anew for each query that is to see newer rows'


@dataclass(frozen=True)
class QueryTimes:
    """The times of the queries of one `load()`. It is pickled from the driver to the tasks."""

    folder: str
    """The folder of Spark's driver; empty if it has none."""
    load: ReadLoad

    @classmethod
    def new(cls, client: Client) -> QueryTimes:
        """[driver] Return an object for a new `load()`. Refused if the masters keep no times of queries."""
        place = application_folder()
        folder = "" if place is None else str(place)
        application = hashlib.sha256(folder.encode()).hexdigest()[:32] if folder else new_uuid()
        return cls(folder, ReadLoad(application, new_uuid(), client.catalog_position()))

    @property
    def beside_driver(self) -> bool:
        """Whether this process is on the host of Spark's driver, and so knows the times that the application has read
        and written. True if Spark names no folder, because one process does everything then."""
        return not self.folder or Path(self.folder).is_dir()

    @only_reads()
    def agreed(self, client: Client, choose: Callable[[], int]) -> int:
        """[task] Return the time of the query of this task. If no other task has proposed one, `choose` does. Refused
        if the tasks of the query cannot agree on one."""
        query = _running_query()
        return client.agree_read_time(self.load, query) or client.agree_read_time(self.load, query, choose())


def _running_query() -> int:
    """Return Spark's number of the query that this task belongs to; Refused if it belongs to none."""
    context = TaskContext.get()
    query = context.getLocalProperty("spark.sql.execution.id") if context is not None else None
    if query is None:
        what = (
            "this task belongs to no query of Spark SQL but to an RDD (df.rdd, df.foreach), which may be computed again"
        )
        raise Refused(Code.INVALID_ARGUMENT, f"{what} and must not change: {_ADVICE}")
    return int(query)
