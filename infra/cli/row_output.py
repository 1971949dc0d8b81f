"""Options and forms of output of the commands that print rows: a table, CSV or JSON."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import polars
    import pyarrow as pa

ROWS_SHOWN = 20
At = Annotated[str, typer.Option(help="read as of this time, ISO 8601 with its zone")]
Csv = Annotated[bool, typer.Option("--csv", help="comma-separated values on standard output")]
Limit = Annotated[
    int | None,
    typer.Option(
        min=0, help=f"rows at most; 0 is all; default {ROWS_SHOWN}, with --csv and --json all", show_default=False
    ),
]


def one_form(csv: bool, as_json: bool) -> None:
    """BadParameter if both forms were asked for."""
    if csv and as_json:
        raise typer.BadParameter("--csv and --json are two forms of one output: choose one")


def rows_wanted(limit: int | None, whole: bool) -> int:
    """Return the number of rows to print, 0 for all; without `--limit`, those that are shown, or all if `whole`."""
    # A file that is silently cut off would be worse than a long one.
    return limit if limit is not None else 0 if whole else ROWS_SHOWN


def moment_of(at: str) -> dt.datetime | None:
    """The time that `--at` names."""
    if not at:
        return None
    try:
        moment = dt.datetime.fromisoformat(at)
    except ValueError as error:
        raise typer.BadParameter(f"--at {at!r} is no ISO 8601 time, such as 2026-01-31T12:00:00+00:00") from error
    if moment.tzinfo is None:
        raise typer.BadParameter(f"--at {at!r} names no time zone: say {moment.isoformat()}+00:00 for UTC")
    if moment.year < 2000:
        raise typer.BadParameter(f"--at {at!r} is before the year 2000: no table is as old")
    return moment


def print_csv(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Print one batch at a time, because all rows may not fit in memory."""
    import polars

    sys.stdout.write(polars.DataFrame(schema.empty_table()).write_csv())
    for batch in batches:
        columns = dict(zip(batch.schema.names, map(_csv_column, batch.columns), strict=True))
        sys.stdout.write(polars.DataFrame(columns).write_csv(include_header=False))


def _csv_column(values: pa.Array) -> polars.Series:
    """A column as polars can print it. It prints no bytes: these are the text that `--json` has. At years that it does
    not know it ends in a panic: a column with a date or time that Python cannot hold is text in polars' form."""
    import polars
    import pyarrow as pa
    import pyarrow.compute as pc

    from nyala.replica.rows import iso_text, python_value

    if pa.types.is_binary(values.type):
        return polars.Series([None if v is None else str(v) for v in values.to_pylist()], dtype=polars.String)
    temporal = pa.types.is_temporal(values.type)
    if not temporal or not any(isinstance(python_value(end), str) for end in pc.min_max(values).values()):
        return polars.Series(values)
    return polars.Series([iso_text(v).replace("+00:00", "+0000") if v.is_valid else None for v in values])


def print_json_rows(batches: Iterable[pa.RecordBatch]) -> None:
    """Print one JSON array, one batch at a time."""
    from nyala.replica.rows import python_rows

    between = "["
    for batch in batches:
        for row in python_rows(batch):
            sys.stdout.write(between + json.dumps(row, default=str))
            between = ",\n"
    sys.stdout.write("[]\n" if between == "[" else "]\n")
