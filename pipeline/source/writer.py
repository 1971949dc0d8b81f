"""Writing a DataFrame into a table. Each task attempt is a client of its own: at-least-once over attempts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from nyala.pipeline import crash
from nyala.replica.base import Code, Refused
from nyala.replica.client import SessionWriter, TableHandle, shared_client, wire_batches
from nyala.replica.rows import RowError, RowOp, key_hash

ERRORS_SHOWN_MAX = 5
KEYS_UNDER_WAY_MAX = 1 << 19
"""Rows between two flushes, 4 MiB of hashes; a flush costs a few hundredths of a second."""


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

    def __init__(self, table: str, op: RowOp, count: int, first: list[RowError]) -> None:
        shown = ", ".join(f"{e.code.name}{' in ' + e.column if e.column else ''}" for e in first)
        super().__init__(f"{count} rows were not applied to {table} by {op.name.lower()}: {shown}")


class KeysUnderWay:
    """Hashes of the keys that may still be under way, so that rows of one key do not overtake each other.

    A write that is refused for a moment is sent again, and those behind it in the tablet's window may be in by then.
    Invariants: sorted; `forget` follows a flush. Two keys of one hash only make a write wait for no reason.
    """

    def __init__(self) -> None:
        self._hashes = np.empty(0, np.uint64)

    @property
    def full(self) -> bool:
        """Whether it is time to flush and forget."""
        return len(self._hashes) >= KEYS_UNDER_WAY_MAX

    def forget(self) -> None:
        """Everything was acknowledged."""
        self._hashes = np.empty(0, np.uint64)

    def add(self, hashes: Any) -> bool:
        """Add an array (rows,); whether one of them is there already, or comes twice among them."""
        together = np.concatenate([self._hashes, np.sort(hashes)])
        # Two sorted runs: a stable sort only merges them.
        together.sort(kind="stable")
        again = together[1:] == together[:-1]
        repeats = bool(again.any())
        self._hashes = together[np.append(True, ~again)] if repeats else together
        return repeats


@dataclass
class Writer(DataSourceArrowWriter):  # type: ignore[misc]
    """Pickled from the driver to the tasks."""

    options: WriteOptions
    handle: TableHandle

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write one partition; returns when everything is acknowledged. RowsRefused or Refused."""
        client = shared_client(self.options.masters)
        with client.session_writer(self.handle) as writer:
            sending = Sending(self, writer)
            for batch in iterator:
                if batch.num_rows:
                    sending.send(batch)
                if writer.rows_applied:
                    crash.reach_in_first_attempt(crash.AFTER_FIRST_BATCH)
            sending.finish()
        return Written(sending.rows)


class Sending:
    """The rows of one partition on their way, in its order where it matters. Memory: keys under way, first errors."""

    def __init__(self, to: Writer, writer: SessionWriter) -> None:
        self._to = to
        self._writer = writer
        self._keys = KeysUnderWay()
        self._refused = 0
        self._first_refused: list[RowError] = []
        self.rows = 0

    def send(self, batch: Any) -> None:
        """Send a pa.RecordBatch of at least one row. Refused."""
        handle, options = self._to.handle, self._to.options
        table = pa.Table.from_batches([batch])
        if self._keys.full:
            self._writer.flush()
            self._keys.forget()
        # A key that came before, or comes twice here: each write waits for the one before it.
        repeats = self._keys.add(self._key_hashes(table))
        for wire in wire_batches(handle, table, options.op, ignore_null=options.ignore_null):
            self._writer.send(wire, depth=1 if repeats else None)
        self.rows += batch.num_rows
        self._settle()

    def finish(self) -> None:
        """Return when everything is acknowledged. RowsRefused if some rows were not applied."""
        self._writer.flush()
        self._settle()
        if self._refused:
            raise RowsRefused(self._to.options.table, self._to.options.op, self._refused, self._first_refused)

    def _key_hashes(self, table: Any) -> Any:
        columns = [column for column in self._to.handle.schema.key_columns if column.name in table.column_names]
        if len(columns) < len(self._to.handle.schema.key):
            return np.empty(0, np.uint64)  # `wire_batches` refuses these rows.
        return key_hash([table.column(c.name).cast(c.arrow_type).combine_chunks() for c in columns])

    def _settle(self) -> None:
        """Count what answers brought meanwhile; a million refused rows need not be kept to be told."""
        errors = self._writer.row_errors
        self._refused += len(errors)
        self._first_refused += errors[: ERRORS_SHOWN_MAX - len(self._first_refused)]
        errors.clear()
