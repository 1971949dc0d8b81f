"""The hybrid time of one Spark query, which all tasks of the query agree on, whichever asks first.

Spark 4.2 calls a reader's `partitions` once for each `load()`, and keeps the answer for all later queries of the
DataFrame. So the time of a query is not known there. Its tasks know the query's number (`spark.sql.execution.id`), and
those of a repeated stage have the same. They keep its time in a file in the folder of Spark's driver, which is there
for all of them if Spark runs on one host. If they cannot agree, the query is refused.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark import TaskContext

from nyala.replica.types import Code, Refused, only_reads

from .application_time import application_folder

QUERIES_KEPT = 10_000
"""Bounds the file: the times of so many queries of the application are kept, the newest; one row is about 60 bytes."""
_WAIT_S = 60.0
_ADVICE = 'load() the DataFrame with the option at = "now", and anew for each query that is to see newer rows'


@dataclass(frozen=True)
class QueryTimes:
    """The times of the queries of one `load()`. It is pickled from the driver to the tasks."""

    folder: str
    """The folder of Spark's driver; empty if it has none."""
    load_id: str

    @classmethod
    def new(cls) -> QueryTimes:
        """[driver] Return an object for a new `load()`, and create the application's file if it is not there."""
        folder = application_folder()
        if folder is not None:
            with _opened(_file(folder), "rwc") as db:
                columns = "query INTEGER, load_id TEXT, time INTEGER, PRIMARY KEY (query, load_id)"
                db.execute(f"CREATE TABLE IF NOT EXISTS times ({columns})")
        return cls("" if folder is None else str(folder), uuid.uuid4().hex)

    @only_reads()
    def agreed(self, choose: Callable[[], int]) -> int:
        """[task] Return the time of the query of this task. If no other task has set it, `choose` does. Refused if
        the tasks of the query cannot agree on one."""
        query = _running_query()
        file = _file(Path(self.folder))
        if not self.folder or not file.exists():
            what = (
                f"the tasks of a query agree on its time in {file}, a file of Spark's driver, which is not on this "
                f"host ({os.uname().nodename}): {_ADVICE}"
            )
            raise Refused(Code.INVALID_ARGUMENT, what)
        with _opened(file, "rw") as db:
            return self._kept(db, query) or self._keep(db, query, choose())

    def _kept(self, db: sqlite3.Connection, query: int) -> int:
        found = db.execute("SELECT time FROM times WHERE query = ? AND load_id = ?", (query, self.load_id)).fetchone()
        return int(found[0]) if found else 0

    def _keep(self, db: sqlite3.Connection, query: int, time: int) -> int:
        """Return the time that the first task has set, which may be this one."""
        db.execute("BEGIN IMMEDIATE")
        (newest,) = db.execute("SELECT max(query) FROM times").fetchone()
        forgotten = max(newest or 0, query) - QUERIES_KEPT
        if query <= forgotten:
            what = f"query {query} began {QUERIES_KEPT} queries ago, and its time is no longer kept: run it again"
            raise Refused(Code.EXPIRED, what)
        db.execute("INSERT OR IGNORE INTO times VALUES (?, ?, ?)", (query, self.load_id, time))
        db.execute("DELETE FROM times WHERE query <= ?", (forgotten,))
        agreed = self._kept(db, query)
        db.execute("COMMIT")
        return agreed


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


def _file(folder: Path) -> Path:
    return folder / "nyala-query-times"


@contextmanager
def _opened(file: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """Yield the application's file. What is not committed is undone. Refused if it cannot be read or written."""
    uri = f"{file.absolute().as_uri()}?mode={mode}"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=_WAIT_S, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = OFF")  # The file does not outlive the application.
            yield db
    except sqlite3.Error as error:
        what = f"{error} in {file}, where the tasks of a query agree on its time: give the folder room and rights"
        raise Refused(Code.UNAVAILABLE, what) from error
