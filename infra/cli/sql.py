"""`nyala sql`"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from .context import Json, Masters, cluster, print_table
from .row_output import At, Csv, Limit, moment_of, one_form, print_csv, print_json_rows, rows_wanted

if TYPE_CHECKING:
    import pyarrow as pa


def _first(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """The first rows; what is behind them is not asked for."""
    for batch in batches:
        yield batch.slice(0, most)
        most -= batch.num_rows
        if most <= 0:
            return


def sql(
    query: Annotated[str, typer.Argument(help='such as "select carrier, count(*) from flights group by carrier"')],
    at: At = "",
    limit: Limit = None,
    csv: Csv = False,
    masters: Masters = "",
    as_json: Json = False,
) -> None:
    """Answer a query in SQL. It reads tables and changes nothing."""
    one_form(csv, as_json)
    moment, most = moment_of(at), rows_wanted(limit, csv or as_json)
    with cluster(masters) as connected:
        reader = connected.sql(query, at=moment).reader()
        batches = _first(reader, most) if most else reader
        if csv:
            print_csv(reader.schema, batches)
        elif as_json:
            print_json_rows(batches)
        else:
            from nyala.replica.rows import python_rows

            rows = [row for batch in batches for row in python_rows(batch)]
            title = f"{len(rows)} row{'' if len(rows) == 1 else 's'}"
            print_table(title, reader.schema.names, [list(row.values()) for row in rows])
            if most and len(rows) == most:
                typer.echo(f"the first {most} rows; --limit 0 shows all")
