"""Writing a DataFrame into a table. Each task attempt is a client of its own: at-least-once over attempts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from nyala.replica.base import Code, Refused
from nyala.replica.client import SessionWriter, TableHandle, shared_client, wire_batches
from nyala.replica.rows import RowError, RowOp

ERRORS_SHOWN_MAX = 5


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write, from strings."""

    masters: str
    table: str
    op: RowOp = RowOp.UPSERT
    ignore_null: bool = False
    """Leave columns whose value is null as they are in the table."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """From the options of `df.write`; Refused(INVALID_ARGUMENT) names the one that is wrong or missing."""
        known = {"masters", "table", "op", "ignore_null", "path"}
        if unknown := sorted(set(options) - known):
            raise _invalid(f"no option {unknown[0]!r}; there are {', '.join(sorted(known - {'path'}))}")
        table = options.get("table") or options.get("path") or ""
        masters = options.get("masters") or ""
        if not table or not masters:
            raise _invalid("say which table to write: option masters is host:port[,host:port], option table its name")
        name = options.get("op", "upsert").upper()
        if name not in RowOp.__members__:
            raise _invalid(f"no operation {name.lower()!r}; there are {', '.join(op.name.lower() for op in RowOp)}")
        ignore = options.get("ignore_null", "false").lower()
        if ignore not in ("true", "false"):
            raise _invalid(f"ignore_null is true or false, not {ignore!r}")
        return cls(masters, table, RowOp[name], ignore == "true")


def _invalid(why: str) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, why)


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """What one task wrote."""

    rows: int


class RowsRefused(Exception):
    """Some rows were not applied; those before and after them are. Inserts may meet what an earlier attempt wrote."""

    def __init__(self, table: str, op: RowOp, errors: list[RowError]) -> None:
        shown = ", ".join(f"{e.code.name}{' in ' + e.column if e.column else ''}" for e in errors[:ERRORS_SHOWN_MAX])
        super().__init__(f"{len(errors)} rows were not applied to {table} by {op.name.lower()}: {shown}")


@dataclass
class Writer(DataSourceArrowWriter):  # type: ignore[misc]
    """Pickled from the driver to the tasks."""

    options: WriteOptions
    handle: TableHandle

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write one partition; returns when everything is acknowledged. RowsRefused or Refused."""
        client = shared_client(self.options.masters)
        rows = 0
        with client.session_writer(self.handle) as writer:
            for batch in iterator:
                if batch.num_rows:
                    self._send(writer, batch)
                    rows += batch.num_rows
        if writer.row_errors:
            raise RowsRefused(self.options.table, self.options.op, writer.row_errors)
        return Written(rows)

    def _send(self, writer: SessionWriter, batch: Any) -> None:
        table = pa.Table.from_batches([batch])
        for wire in wire_batches(self.handle, table, self.options.op, ignore_null=self.options.ignore_null):
            writer.send(wire)
