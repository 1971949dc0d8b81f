"""Tables and scans as users use them."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from numbers import Integral
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from nyala.replica.client import Client, OnError, ScanSpec, TableHandle, result_schema
from nyala.replica.rows import RowOp, TableSchema, python_rows, python_values
from nyala.replica.types import (
    LOGICAL_BITS,
    MAX_HYBRID_TIME,
    as_given,
    check_flag,
    check_names,
    check_whole,
    hybrid_from_us,
    limits,
    only_reads,
    real_of,
    staleness_problem,
)

from .argument_errors import invalid_argument, valid
from .expressions import Where, as_condition, bound, column_of
from .keys import Key, Row, keys_of
from .writing import WriteResult, checked_on_error, write

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from .dataset import NyalaDataset

EARLIEST_HYBRID_TIME = hybrid_from_us(946_684_800_000_000)
"""The year 2000. A smaller number is refused: it is probably seconds or microseconds, used by mistake."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def hybrid_time_of(at: dt.datetime | int | None) -> int:
    """Return the hybrid time of `at=`. A datetime must have a zone, and includes its whole microsecond; None is 0."""
    if at is None:
        return 0
    if isinstance(at, dt.datetime):
        if at.utcoffset() is None:
            raise invalid_argument(
                "at= needs a time zone", "give one, as in datetime.now(timezone.utc)", at=as_given(at)
            )
        us = (at - _EPOCH) // dt.timedelta(microseconds=1)
        hybrid = hybrid_from_us(us) | (1 << LOGICAL_BITS) - 1
    elif isinstance(at, Integral) and not isinstance(at, bool):
        hybrid = int(at)
    else:
        raise invalid_argument(
            "at= takes a datetime with its zone, or a hybrid time", "give one of them", at=as_given(at)
        )
    if not EARLIEST_HYBRID_TIME <= hybrid <= MAX_HYBRID_TIME:
        raise invalid_argument(
            "at= is no time since the year 2000", "hybrid times are microseconds * 4096", at=as_given(at)
        )
    return hybrid


def staleness_us_of(staleness: float) -> int:
    """Return the microseconds of `staleness=` seconds; refused unless above the most that servers' clocks may
    differ."""
    seconds = real_of(staleness)
    if math.isnan(seconds):
        raise invalid_argument(
            "staleness= is a number of seconds", "give one, as in staleness=5", staleness=as_given(staleness)
        )
    us = 1e6 * max(-1.0, min(seconds, limits.STALENESS_US_MAX))
    if problem := staleness_problem(us):
        raise invalid_argument(
            problem, "give one between them, or leave it out for a strong read", staleness=as_given(staleness)
        )
    return int(us)


def named(columns: Sequence[str] | None, schema: TableSchema) -> tuple[str, ...] | None:
    """Return the names in `columns=`, None for all; NotApplied unless each is a column and comes once."""
    names = None if columns is None else valid(check_names, columns, "columns=", limits.COLUMNS_MAX)
    for name in names or ():
        column_of(schema, name)
    if names is not None and (not names or len(set(names)) < len(names)):
        raise invalid_argument(
            "columns= names at least one column, and each once", "leave it out for all columns", got=as_given(columns)
        )
    return names


class Scan:
    """A read. Each call of a method below that returns rows reads the table anew, all rows as of one time."""

    def __init__(self, client: Client, handle: TableHandle, spec: ScanSpec) -> None:
        self._client = client
        self._handle = handle
        self._spec = spec
        self.snapshot_time = spec.snapshot_time
        """The hybrid time of the last run: pass it as `at=` to read the same again. 0 before the first run."""

    @property
    def schema(self) -> Any:
        """Return the pa.Schema of the rows."""
        return result_schema(self._handle, self._spec)

    def batches(self) -> Iterator[Any]:
        """Yield pa.RecordBatch objects. A tablet's rows come after that tablet has been read completely."""
        left = self._spec.limit
        schema = self.schema
        for part in self._client.scan(self._handle, self._spec):
            self.snapshot_time = part.snapshot_time or self.snapshot_time
            for batch in part.batches:
                if self._spec.limit:
                    batch = batch.slice(0, left)
                    left -= batch.num_rows
                if batch.num_rows:
                    yield batch if batch.schema == schema else pa.RecordBatch.from_arrays(batch.columns, schema=schema)
            if self._spec.limit and left <= 0:
                return

    def __iter__(self) -> Iterator[Any]:
        return self.batches()

    def to_arrow(self) -> Any:
        """Return a pa.Table of all rows."""
        return pa.Table.from_batches(list(self.batches()), schema=self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas DataFrame of all rows. ModuleNotFoundError, before anything is read, if pandas is not
        installed."""
        if find_spec("pandas") is None:
            raise ModuleNotFoundError(
                "to_pandas() needs pandas, which is not installed: `pip install pandas`, or nyala with its extra "
                "`spark`, which brings it; to_arrow() and to_polars() do without",
                name="pandas",
            )
        table = self.to_arrow()
        frame = table.to_pandas(date_as_object=False)
        for field in table.schema:
            if pa.types.is_date(field.type):
                frame[field.name] = python_values(table.column(field.name))
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Return a polars DataFrame of all rows."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        return frame if isinstance(frame, polars.DataFrame) else frame.to_frame()

    def count(self) -> int:
        """Return the number of rows; the servers send numbers, no rows."""
        return self._client.count(self._handle, self._spec)

    def __repr__(self) -> str:
        parts = [f"columns={list(self._spec.columns)}"] if self._spec.columns is not None else []
        parts += [f"where={len(self._spec.predicates)} conditions"] if self._spec.predicates else []
        parts += [f"limit={self._spec.limit}"] if self._spec.limit else []
        return f"<nyala.Scan of {self._handle.name} {' '.join(parts)}>"


class Table:
    """One table. `Cluster.table` returns it. Concurrency: any thread."""

    def __init__(self, client: Client, handle: TableHandle) -> None:
        self._client = client
        self._handle = handle
        self.topic_partitions: int | None = None
        """The partitions of the Kafka topic, if `create_table` made it or found it; else None."""

    @property
    def name(self) -> str:
        """Return the table's name."""
        return self._handle.name

    @property
    def handle(self) -> TableHandle:
        """Return the table's description in the catalog."""
        return self._handle

    @property
    def schema(self) -> Any:
        """Return the pa.Schema of the columns."""
        return self._handle.schema.arrow

    @property
    def key(self) -> tuple[str, ...]:
        """Return the names of the primary key's columns."""
        return self._handle.schema.key

    @only_reads()
    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Where = None,
        at: dt.datetime | int | None = None,
        limit: int | None = None,
        staleness: float | None = None,
    ) -> Scan:
        """Return a read of the table.

        `columns`: their names, default all. `where`: see `nyala.col`, or text. `at`: a datetime with its zone, or a
        hybrid time, for example `Scan.snapshot_time`; default: the latest, with every write acknowledged before.
        `limit`: at most this number of rows, any of them.
        `staleness`: seconds, more than 0.5, which is the most that servers' clocks may differ. Any replica may answer;
        the leader is called last. The rows include every write acknowledged longer ago than that, this cluster object's
        own writes, and all that it has read before. A replica with older data answers LAGGING with the age, and another
        is called; the scan raises LAGGING if no replica answers in time. Without it reads are linearizable.
        Wrong arguments raise NotApplied here, before anything is read.
        """
        schema = self._handle.schema
        names = named(columns, schema)
        most = 0 if limit is None else valid(check_whole, limit, "limit=", 1, limits.NUMBER_MAX)
        if at is not None and staleness is not None:
            raise invalid_argument(
                "at= and staleness= exclude each other",
                "give one of them",
                at=as_given(at),
                staleness=as_given(staleness),
            )
        spec = ScanSpec(
            names,
            bound(as_condition(where), schema),
            hybrid_time_of(at),
            most,
            staleness_us=0 if staleness is None else staleness_us_of(staleness),
        )
        return Scan(self._client, self._handle, spec)

    def to_arrow_dataset(self, at: dt.datetime | int | None = None) -> NyalaDataset:
        """Return the table as a pyarrow.dataset.Dataset, for DuckDB, polars and others that read such; `at` as in
        `scan`. Each read sends its columns, and what tablets can evaluate of its filter, to the tablets."""
        from .dataset import NyalaDataset

        return NyalaDataset(self._client, self._handle, ScanSpec(snapshot_time=hybrid_time_of(at)))

    @overload
    def get(self, key: Key, columns: Sequence[str] | None = None, staleness: float | None = None) -> Row | None: ...

    @overload
    def get(
        self,
        key: list[Key] | pa.Table | pa.RecordBatch,
        columns: Sequence[str] | None = None,
        staleness: float | None = None,
    ) -> pa.Table: ...

    @only_reads()
    def get(
        self,
        key: Key | list[Key] | pa.Table | pa.RecordBatch,
        columns: Sequence[str] | None = None,
        staleness: float | None = None,
    ) -> Row | pa.Table | None:
        """Return the row of a key as a dict, or None; for a list of keys, a pa.Table of the rows that exist.

        A key is its column's value; of a key of several columns, a tuple of them in key order, or a dict. Many keys are
        a list of these, or a pyarrow, pandas or polars table of the key's columns; the rows come in the order of the
        keys, and keys without a row are left out. `columns`, `staleness`: as in `scan`. Each tablet is called once, or
        more often for more than 4,096 keys or 4 MiB of rows, and a row's cost does not depend on the table's size. All
        rows of one tablet are of one moment after the call began; for several tablets at one time, scan with a
        condition on the key. If that moment's rows are dropped between two calls, the tablet is read anew, at most four
        times; then NotApplied (HISTORY_GONE).
        """
        schema = self._handle.schema
        keys, single = keys_of(key, schema)
        us = 0 if staleness is None else staleness_us_of(staleness)
        rows, _ = self._client.get(self._handle, keys, named(columns, schema), us)
        if not single:
            return rows
        return python_rows(rows)[0] if rows.num_rows else None

    def count(self, where: Where = None, at: dt.datetime | int | None = None, staleness: float | None = None) -> int:
        """Return the number of rows that meet the condition; arguments as in `scan`."""
        return self.scan(where=where, at=at, staleness=staleness).count()

    def insert(self, rows: Any, *, ignore_existing: bool = False, on_error: OnError = "raise") -> WriteResult:
        """Add rows. A row whose key exists is an error of that row; with `ignore_existing` it is left out.

        `rows`: a pyarrow Table or RecordBatch, a pandas or polars DataFrame, a list of dicts, or one dict.
        If rows could not be applied, RowErrors has these rows, the reason of each, and the number of the others, which
        are applied and stay so. With `on_error="return"` the result has all that instead. A call that fails as a whole
        raises NotApplied or OutcomeUnknown.
        """
        valid(check_flag, ignore_existing, "ignore_existing=")
        return self._write(rows, RowOp.INSERT_IGNORE if ignore_existing else RowOp.INSERT, on_error)

    def upsert(self, rows: Any, *, ignore_null: bool = False, on_error: OnError = "raise") -> WriteResult:
        """Add rows; if the key exists, set the given columns. Rows and `on_error` as in `insert`.

        `ignore_null`: a null leaves the column as it is; if the key is new, the column gets its default.
        """
        return self._write(rows, RowOp.UPSERT, on_error, ignore_null)

    def update(
        self, rows: Any, *, ignore_missing: bool = False, ignore_null: bool = False, on_error: OnError = "raise"
    ) -> WriteResult:
        """Set the given columns; a key that does not exist is an error of that row. Rows and `on_error` as in `insert`.

        `ignore_null`: a null leaves the column as it is.
        """
        valid(check_flag, ignore_missing, "ignore_missing=")
        return self._write(rows, RowOp.UPDATE_IGNORE if ignore_missing else RowOp.UPDATE, on_error, ignore_null)

    def delete(self, rows: Any, *, ignore_missing: bool = False, on_error: OnError = "raise") -> WriteResult:
        """Remove the rows of these keys; other columns are ignored. Rows and `on_error` as in `insert`."""
        valid(check_flag, ignore_missing, "ignore_missing=")
        return self._write(rows, RowOp.DELETE_IGNORE if ignore_missing else RowOp.DELETE, on_error)

    def _write(self, rows: Any, op: RowOp, on_error: OnError, ignore_null: bool = False) -> WriteResult:
        how = checked_on_error(on_error)
        valid(check_flag, ignore_null, "ignore_null=")
        result = write(self._client, self._handle, rows, op, ignore_null=ignore_null)
        return result if how == "return" else result.raise_for_errors()

    def __repr__(self) -> str:
        columns = ", ".join(f"{c.name} {c.type_text}" for c in self._handle.schema.columns[:8])
        more = ", ..." if len(self._handle.schema.columns) > 8 else ""
        return f"<nyala.Table {self.name} ({columns}{more}) key=({', '.join(self.key)})>"
