"""SQL over tables: DuckDB plans and computes, and tablets send the columns and rows that it asks for."""

from __future__ import annotations

import itertools
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nyala.replica.client import Client, NotApplied, ScanSpec
from nyala.replica.types import Code, as_given, check_kind, check_text

from .argument_errors import invalid_argument, valid
from .dataset import NyalaDataset
from .table import Table

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

QUERY_LENGTH_MAX = 1 << 20
_BATCH_ROWS = 65_536
_REASON_CHARS = 600
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
"""DuckDB fetches no extension from the network, and reads no variable of the calling program as a table."""
_FILE = re.compile(r"[./:]")
"""In a name that is no table's: DuckDB looks for a file of that name."""

Parameters = Sequence[object] | Mapping[str, object] | None


class Query:
    """A query in SQL; `Cluster.sql` returns it. Each call of a method below that returns rows runs it anew.

    All tables of one run are read as of one hybrid time. Without `at`, that time is at or above that of every write
    acknowledged before. Concurrency: any thread, one run at a time.
    """

    def __init__(
        self, client: Client, open_table: Callable[[str], Table], text: str, parameters: Parameters, at: int
    ) -> None:
        """`at`: hybrid time, 0 for the latest. `open_table` raises NOT_FOUND. Refusals: see `Cluster.sql`."""
        if find_spec("duckdb") is None:
            raise ModuleNotFoundError(
                "SQL needs DuckDB, which is not installed: `pip install duckdb`, or nyala with its extra `sql`",
                name="duckdb",
            )
        self._client = client
        self._text = text
        self._parameters = parameters
        self._at = at
        self._tables = _opened(tables_named(text), open_table)
        self.snapshot_time = at
        """The hybrid time of the last run: pass it as `at=` to read the same again. 0 before the first run."""

    @contextmanager
    def _running(self) -> Iterator[duckdb.DuckDBPyRelation]:
        """Yield DuckDB's relation of the query, which runs when its rows are asked for."""
        import duckdb

        failures: list[BaseException] = []
        times = [self._at] if self._at else [self._client.snapshot_time(t.handle) for t in self._tables.values()]
        self.snapshot_time = max(times, default=0)
        with tempfile.TemporaryDirectory(prefix="nyala-sql-", ignore_cleanup_errors=True) as spilled:
            connection = duckdb.connect(config={**_SETTINGS, "temp_directory": spilled})
            try:
                connection.execute("SET TimeZone = 'UTC'")
                for name, table in self._tables.items():
                    spec = ScanSpec(snapshot_time=self.snapshot_time)
                    connection.register(name, NyalaDataset(self._client, table.handle, spec, failures.append))
                yield self._planned(connection)
            except MemoryError:
                raise
            except (duckdb.Error, pa.ArrowException) as error:
                raise (failures[0] if failures else _refused(error)) from error
            finally:
                connection.close()

    def _planned(self, connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
        try:
            return connection.sql(self._text, params=self._parameters)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            what = "DuckDB does not take a value of parameters="
            raise invalid_argument(
                what,
                "give numbers, texts, times and the like",
                reason=_one_line(str(error)),
                got=as_given(self._parameters),
            ) from error

    def reader(self) -> pa.RecordBatchReader:
        """Run the query, and return a pa.RecordBatchReader of its rows, which are not in memory all at once.

        Columns of one name get numbers, as in id, id_1."""
        with ExitStack() as stack:
            found = stack.enter_context(self._running()).to_arrow_reader(_BATCH_ROWS)
            kept = stack.pop_all()
        schema = pa.schema(list(map(pa.Field.with_name, found.schema, unique_names(found.schema.names))))

        def batches() -> Iterator[pa.RecordBatch]:
            with kept:
                yield from (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in found)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield pa.RecordBatch objects."""
        yield from self.reader()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches()

    def to_arrow(self) -> pa.Table:
        """Return a pa.Table of all rows."""
        return self.reader().read_all()

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas DataFrame of all rows. ModuleNotFoundError if pandas is not installed."""
        return self.to_arrow().to_pandas(date_as_object=False)

    def to_polars(self) -> pl.DataFrame:
        """Return a polars DataFrame of all rows."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        return frame if isinstance(frame, polars.DataFrame) else frame.to_frame()

    def __repr__(self) -> str:
        return f"<nyala.Query of {', '.join(self._tables) or 'no table'}>"


def unique_names(names: Sequence[str]) -> list[str]:
    """Return the names, with numbers behind those that occur again. Pure."""
    found: list[str] = []
    for name in names:
        others = (f"{name}_{n}" for n in itertools.count(1))
        found.append(name if name not in found else next(each for each in others if each not in (*found, *names)))
    return found


def checked_parameters(parameters: object) -> Parameters:
    """Return the values for a query's parameters; NotApplied for anything but a list, a tuple, a dict or None."""
    if parameters is None or isinstance(parameters, list | tuple):
        return parameters
    if isinstance(parameters, dict) and all(isinstance(name, str) for name in parameters):
        return parameters
    what = "parameters= takes a list of values, or a dict of them with their names"
    raise invalid_argument(what, "give one, as in parameters=[3]", got=as_given(parameters))


def tables_named(text: str) -> list[str]:
    """Return the names of the tables that a query reads, without those that its WITH clauses make. NotApplied unless
    the text is one query that only reads."""
    import duckdb

    valid(check_text, valid(check_kind, text, str, "a query"), "a query", length_max=QUERY_LENGTH_MAX)
    with duckdb.connect(config=_SETTINGS) as connection:
        row = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
    try:
        tree = json.loads(row[0]) if row else {}
        nodes = list(_nodes_of(tree))
    except RecursionError:
        what = "the query has too many expressions within one another"
        raise invalid_argument(what, "divide it, or replace long sums by lists", query=as_given(text)) from None
    if tree.get("error"):
        reason = str(tree.get("error_message", ""))
        if "Only SELECT" in reason:
            what = "sql() takes a query that only reads"
            raise invalid_argument(
                what, "give a SELECT; insert, upsert, update and delete write rows", query=as_given(text)
            )
        raise invalid_argument(
            "the query is no SQL that DuckDB knows", "correct it", query=as_given(text), reason=_one_line(reason)
        )
    if len(tree.get("statements", ())) != 1:
        raise invalid_argument(
            "sql() takes one query", "give one SELECT", queries=len(tree.get("statements", ())), query=as_given(text)
        )
    named = {n["table_name"] for n in nodes if n.get("type") in ("BASE_TABLE", "SHOW_REF") and n.get("table_name")}
    with_names = {each["key"] for n in nodes for each in n.get("cte_map", {}).get("map", ())}
    return sorted(named - with_names)


def _nodes_of(node: object) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from _nodes_of(each)


def _opened(names: Sequence[str], open_table: Callable[[str], Table]) -> dict[str, Table]:
    """Return the tables of these names. Names of files are left to DuckDB."""
    found = {}
    for name in names:
        try:
            found[name] = open_table(name)
        except NotApplied as error:
            if error.code is not Code.NOT_FOUND or not _FILE.search(name):
                raise
    return found


def _refused(error: Exception) -> NotApplied:
    return invalid_argument("DuckDB cannot run the query", "correct it", reason=_one_line(str(error)))


def _one_line(text: str) -> str:
    """An error of DuckDB has several lines, with a mark under the place of the mistake."""
    lines = [line.strip() for line in text.splitlines()]
    return " / ".join(line for line in lines if line.strip("^"))[:_REASON_CHARS]
