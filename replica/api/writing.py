"""Converts users' rows into columns of the table, and writes them."""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
import pyarrow as pa

from nyala.replica.client import (
    Client,
    NotApplied,
    OnError,
    OutcomeUnknown,
    RowErrors,
    RowFailure,
    TableHandle,
    wire_batches,
)
from nyala.replica.rows import Column, Misfit, RowOp, TableSchema, array_of, cast_exactly, key_hash, python_rows
from nyala.replica.types import Applied, Refused, RowCode, as_given

from .argument_errors import invalid_argument, unknown_name
from .expressions import column_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class WriteResult:
    """The result of a write: every row is either applied or in `errors`."""

    applied: int
    errors: tuple[RowFailure, ...]
    hybrid_time: int = 0
    """A scan `at` this time, or later, sees the write."""
    failed: Any = field(default=None, repr=False, compare=False)
    """The rows that were not applied, as a pa.Table in the order of `errors`, in the types of the table's columns; of a
    delete it has the key columns alone. None if all were applied."""
    table: str = field(default="", repr=False, compare=False)
    op: RowOp | None = field(default=None, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether all rows were applied."""
        return not self.errors

    def raise_for_errors(self) -> WriteResult:
        """Return this result, or raise RowErrors with the rows that were not applied. The other rows are applied all
        the same."""
        if self.errors:
            raise RowErrors(
                self.errors,
                table=self.table,
                rows_applied=self.applied,
                rows=self.failed,
                advice=advice([failure.code for failure in self.errors], self.op),
            )
        return self


def advice(codes: Sequence[RowCode], op: RowOp | None) -> str:
    """Return a sentence on what a caller can do about the most frequent of these codes."""
    code = Counter(codes).most_common(1)[0][0]
    if code is RowCode.ALREADY_PRESENT:
        what = "A row with this key exists: use upsert to change it, or insert with ignore_existing=True to keep it."
    elif code is RowCode.NOT_FOUND and op is RowOp.DELETE:
        what = "No row has this key: use delete with ignore_missing=True to pass it over."
    elif code is RowCode.NOT_FOUND:
        what = "No row has this key: use upsert to add it, or update with ignore_missing=True to pass it over."
    elif code.name not in RowCode.__members__:
        what = "A newer server gave a reason that this program cannot name. Update it, and write these rows again."
    else:
        what = "Correct these rows and write them again; the others need no repetition."
    return f'{what} The exception has all of them in `errors` and `rows`; on_error="return" returns them instead.'


def checked_on_error(on_error: str) -> OnError:
    """Return `on_error`; NotApplied unless it is one of the two allowed values."""
    for known in get_args(OnError):
        if isinstance(on_error, str) and on_error == known:
            return cast(OnError, known)
    wrong = "there is no such on_error="
    raise invalid_argument(wrong, 'on_error= is "raise" or "return"', on_error=as_given(on_error))


def as_table(rows: Any, schema: TableSchema) -> Any:
    """Return a pa.Table of a user's rows, with the columns as given. The values of a list of dicts get the schema's
    types."""
    given, kind = rows, type(rows).__name__
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, Mapping):
        rows = [rows]
    if isinstance(rows, str | bytes):
        raise invalid_argument(
            "these are no rows", "rows are a pyarrow, pandas or polars table, or a list of dicts", got=as_given(rows)
        )
    if type(rows).__module__.split(".")[0] == "pandas" and hasattr(rows, "columns"):
        return _table_of_pandas(rows, schema)
    if hasattr(rows, "__arrow_c_stream__"):
        try:
            return pa.table(rows)
        except MemoryError:  # Arrow's, too, which is no fault of the rows
            raise
        except pa.ArrowException:  # One column of pandas, polars or Arrow.
            rows = None
    if isinstance(rows, Iterable):
        return _table_of_dicts(list(rows), schema)
    raise invalid_argument(
        "these are no rows",
        "rows are a pyarrow, pandas or polars table, or a list of dicts",
        got=kind,
        value=as_given(given),
    )


def _table_of_dicts(rows: list[Any], schema: TableSchema) -> Any:
    if not rows:
        return pa.table({})
    for pos, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise invalid_argument(
                "each row is a dict of column names and values", 'give it as in {"id": 1}', row=pos, got=as_given(row)
            )
        if row.keys() != rows[0].keys():
            odd = sorted(map(str, set(row) ^ set(rows[0])))
            raise invalid_argument(
                "all rows of one call have the same columns",
                "give None where a row has no value",
                row=pos,
                differs_in=", ".join(odd[:10]),
            )
    return pa.table({name: _array([row[name] for row in rows], column_of(schema, name)) for name in rows[0]})


def _table_of_pandas(frame: pd.DataFrame, schema: TableSchema) -> pa.Table:
    """The index is left out. NaN is a value of a float column, as in Arrow; elsewhere pandas means a missing value by
    it."""
    names, arrays = list(map(str, frame.columns)), []
    for pos, name in enumerate(names):
        column, series = column_of(schema, name), frame.iloc[:, pos]
        real = pa.types.is_floating(column.arrow_type)
        try:
            array = None if series.dtype == object else pa.array(series, from_pandas=not real)
        except MemoryError:  # Arrow's, too, which is no fault of the rows
            raise
        except (pa.ArrowException, TypeError, ValueError):  # Such as complex numbers.
            array = None
        if array is None:
            values = decimal.Decimal, *((float,) if real else ())
            pairs = zip(series, series.isna(), strict=True)
            array = _array([None if gone and not isinstance(v, values) else v for v, gone in pairs], column)
        arrays.append(array)
    return pa.table(arrays, names=names)


def _array(values: Sequence[object], column: Column) -> pa.Array:
    try:
        return array_of(values, column.arrow_type)
    except Misfit as e:
        raise _value_mistake(column, e) from e


def _value_mistake(column: Column, misfit: Misfit) -> NotApplied:
    return invalid_argument(
        "a value does not fit its column",
        "change it, or recreate the column with a type that holds it",
        column=column.name,
        type=str(column.arrow_type),
        row=misfit.row,
        value=as_given(misfit.value),
        value_type=type(misfit.value).__name__,
        reason=misfit.reason,
    )


def conform(table: Any, schema: TableSchema, op: RowOp) -> Any:
    """Return the columns to send, in the schema's types. NotApplied(INVALID_ARGUMENT) names column, row and value."""
    names = table.schema.names
    for name in names:
        if not schema.has(name):
            raise unknown_name("column", name, schema.names)
    repeated = sorted({n for n in names if names.count(n) > 1})
    if repeated:
        raise invalid_argument("a column comes twice", "leave one of them out", columns=", ".join(repeated))
    missing = [n for n in schema.key if n not in names]
    if missing:
        raise invalid_argument(
            "the rows lack key columns", "add them to each row", missing=", ".join(missing), key=", ".join(schema.key)
        )
    if op in (RowOp.DELETE, RowOp.DELETE_IGNORE):
        names = list(schema.key)
    if op in (RowOp.UPDATE, RowOp.UPDATE_IGNORE) and set(names) <= set(schema.key):
        raise invalid_argument(
            "an update needs a column besides the key", "add one that is to change", columns=", ".join(names)
        )
    if op in (RowOp.INSERT, RowOp.INSERT_IGNORE):
        lacking = [c.name for c in schema.columns if not c.nullable and c.default is None and c.name not in names]
        if lacking:
            raise invalid_argument(
                "the rows lack columns that must have a value", "add them to each row", missing=", ".join(lacking)
            )
    arrays = [_cast(table.column(n), schema.column(n)) for n in names]
    for name, array in zip(names, arrays, strict=True):
        if name in schema.key and array.null_count:
            row = array.is_null().to_pylist().index(True)
            raise invalid_argument("a key column has no value", "give each row its whole key", column=name, row=row)
    return pa.table(arrays, names=names)


def _cast(values: Any, column: Column) -> Any:
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    try:
        return cast_exactly(array, column.arrow_type)
    except Misfit as e:
        raise _value_mistake(column, e) from e


def write(client: Client, handle: TableHandle, rows: Any, op: RowOp, *, ignore_null: bool = False) -> WriteResult:
    """Write all rows. Row errors are in the result; anything else raises NotApplied or OutcomeUnknown.

    `ignore_null`: an upsert or update leaves a column whose value is null as it is.
    """
    if not _has_rows(rows):
        return WriteResult(0, ())
    columns = conform(as_table(rows, handle.schema), handle.schema, op)
    if columns.num_rows == 0:
        return WriteResult(0, ())
    todo = wire_batches(handle, columns, op, ignore_null=ignore_null)
    first, second = next(todo), next(todo, None)
    batches = 1
    writer = client.session_writer(handle, on_error="return")
    try:
        if second is None:
            writer.write(first)
        else:
            depth = 1 if _order_matters(columns, handle.schema) else None
            for batch in chain((first, second), todo):
                batches += 1
                writer.send(batch, depth=depth)
            writer.flush()
    except Refused as e:
        raise _half_way(e, columns.num_rows, batches, writer.rows_applied, len(writer.row_errors)) from e
    finally:
        writer.close()
    failures = sorted(writer.row_errors)
    if not failures:
        return WriteResult(columns.num_rows, (), writer.last_time)
    failed = columns.take(pa.array([f.offset for f in failures], pa.int64()))
    keys = python_rows(failed.select(list(handle.schema.key)))
    errors = tuple(RowFailure(f.offset, f.code, f.column, key) for f, key in zip(failures, keys, strict=True))
    return WriteResult(columns.num_rows - len(errors), errors, writer.last_time, failed, handle.name, op)


def _has_rows(rows: Any) -> bool:
    return not (isinstance(rows, list | tuple) and not rows)


def _order_matters(columns: Any, schema: TableSchema) -> bool:
    """Whether a key occurs twice: then batches must not overtake each other. Keys of one hash count as one."""
    hashes = key_hash([columns.column(n) for n in schema.key])
    return len(np.unique(hashes)) < len(hashes)


def _half_way(error: Refused, rows: int, batches: int, applied: int, failed: int) -> Refused:
    """Return the error of one batch as that of the whole write: it counts the rows that earlier batches have
    applied."""
    if batches <= 1 and error.applied is Applied.NOT_APPLIED:
        return NotApplied(error.code, error.what, detail=error.detail, **error.values)
    return OutcomeUnknown(
        error.code,
        f"{error.what}; the write stopped half-way: at least {applied} of {rows} rows are in the table"
        f"{f', and at least {failed} cannot be applied' if failed else ''}; "
        "writing all rows again with upsert is safe",
        detail=error.detail,
        **error.values,
    )
