"""The tasks of a job that plans: some read and check the reports, one gets all of them and plans.

Spark passes the reports from task to task, so the driver gets only the result. One task makes the plan, because each
move is chosen for the layout after the moves before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

from nyala.replica.decision_executor import Unusable, read_record
from nyala.replica.types import Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

R = TypeVar("R")
REPORTS_PER_LIST = 500
"""The number of reports that Spark passes on as one value, so that words which they have in common are sent once."""


def newest_reports(rows: Iterable[tuple[bytes | None, bytes | None, int]]) -> Iterator[list[Report]]:
    """Yield the newest report of each key among these records (key, value, offset) of whole Kafka partitions, in lists
    of bounded length. A key without a value is deleted; foreign records under a key are ignored."""
    last: dict[bytes, tuple[int, Report | None]] = {}
    for key, value, offset in rows:
        if key is None or offset < last.get(key, (-1, None))[0]:
            continue
        report = None if value is None else read_record(Report, key, value)
        if not isinstance(report, Unusable):
            last[bytes(key)] = (offset, report)
    found = (report for _, report in last.values() if report is not None)
    while some := list(islice(found, REPORTS_PER_LIST)):
        yield some


def made_in_tasks(records: DataFrame, make: Callable[[Iterable[Report]], R]) -> R:
    """Return what `make` returns for the newest reports of `records`, which have columns key, value and offset.

    A key stays in one partition. Each of these is read by a task of its own; one further task calls `make`.
    """
    lists = records.select("key", "value", "offset").rdd.mapPartitions(newest_reports)
    (made,) = lists.repartition(1).mapPartitions(partial(_made, make)).collect()
    result: R = made
    return result


def _made(make: Callable[[Iterable[Report]], R], lists: Iterable[list[Report]]) -> Iterator[R]:
    yield make(chain.from_iterable(lists))
