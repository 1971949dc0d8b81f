"""Writes a DataFrame into a table. Each task attempt is a client of its own: at-least-once over attempts."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from nyala.pipeline import crash
from nyala.replica.client import RowErrors, RowFailure, SessionWriter, TableHandle, shared_client, wire_batches
from nyala.replica.rows import RowOp, key_hash, python_rows
from nyala.replica.types import Code, Refused

from .application_time import observe_time

ERRORS_SHOWN_MAX = 5
ADVICE = (
    "These numbers are of one partition of the DataFrame; other partitions may be in the table too. With the option "
    "op = upsert, insert_ignore, update_ignore or delete_ignore, rows that are there already, or are missing, are no "
    "errors, also when Spark repeats a task. With the option onError = ignore the job goes on without such rows."
)
_log = logging.getLogger(__name__)
KEYS_UNDER_WAY_MAX = 1 << 19
"""The number of rows between two flushes, 4 MiB of hashes; a flush costs a few hundredths of a second."""


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write, from strings."""

    masters: str
    table: str
    op: RowOp = RowOp.UPSERT
    ignore_null: bool = False
    """Whether columns whose value is null stay as they are in the table."""
    on_error: str = "raise"
    """With "raise" the job fails if a row cannot be applied. With "ignore" it goes on, and its log counts these
    rows."""
    tls: str = ""
    """As of a read."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """Parse the options of `df.write`; Refused(INVALID_ARGUMENT) names the one that is wrong or missing."""
        known = {"masters", "table", "op", "ignore_null", "onerror", "tls", "path"}
        if unknown := sorted(set(map(str.lower, options)) - known):
            named = ", ".join(sorted(known - {"path", "onerror"} | {"onError"}))
            raise _invalid(f"no option {unknown[0]!r}; there are {named}")
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
        # Spark passes options in lower case; a plain dict has them as they were written.
        on_error = next((value for key, value in options.items() if key.lower() == "onerror"), "raise").lower()
        if on_error not in ("raise", "ignore"):
            raise _invalid(
                "onError is raise (the job fails if a row cannot be applied) or ignore (it goes on, and its log counts "
                f"such rows), not {on_error!r}"
            )
        return cls(masters, table, RowOp[name], ignore == "true", on_error, options.get("tls", ""))


def _invalid(why: str) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, why)


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """The result of one task that wrote. `hybrid_time`: a read at or after it sees all of the task's rows."""

    rows: int
    hybrid_time: int = 0
    ignored: int = 0
    """The number of rows that were not applied, if the job goes on."""
    first_ignored: str = ""


class KeysUnderWay:
    """Hashes of the keys that may still be under way, so that rows of one key do not overtake each other.

    A write that is refused for a moment is sent again; later writes in the tablet's window may be applied by then.
    Invariants: the hashes are sorted; `forget` follows a flush. If two keys have one hash, a write waits without need.
    """

    def __init__(self) -> None:
        self._hashes = np.empty(0, np.uint64)

    @property
    def full(self) -> bool:
        """Whether it is time to flush and forget."""
        return len(self._hashes) >= KEYS_UNDER_WAY_MAX

    def forget(self) -> None:
        """Remove all keys, because all writes were acknowledged."""
        self._hashes = np.empty(0, np.uint64)

    def add(self, hashes: Any) -> bool:
        """Add an array (rows,); returns whether one of the hashes is there already, or comes twice among them."""
        together = np.concatenate([self._hashes, np.sort(hashes)])
        # Two sorted runs: a stable sort only merges them.
        together.sort(kind="stable")
        again = together[1:] == together[:-1]
        repeats = bool(again.any())
        self._hashes = together[np.append(True, ~again)] if repeats else together
        return repeats


@dataclass
class Writer(DataSourceArrowWriter):  # type: ignore[misc]
    """A writer of a DataFrame. It is pickled from the driver to the tasks."""

    options: WriteOptions
    handle: TableHandle

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write one partition; returns when all its rows are acknowledged. RowErrors, or another Refused."""
        client = shared_client(self.options.masters, self.options.tls)
        with client.session_writer(self.handle, on_error="return") as writer:
            sending = Sending(self, writer, client.options.writes_inflight_max)
            for batch in iterator:
                if batch.num_rows:
                    sending.send(batch)
                if writer.rows_applied:
                    crash.reach_in_first_attempt(crash.AFTER_FIRST_BATCH)
            sending.finish()
        return Written(sending.rows, writer.last_time, sending.failed, "; ".join(map(str, sending.first_failed)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """[driver] All tasks have written: stale reads of this Spark application see their rows from now on."""
        told = [message for message in messages if isinstance(message, Written)]
        newest = max((message.hybrid_time for message in told), default=0)
        observe_time(self.handle, self.options.masters, newest)
        if ignored := sum(message.ignored for message in told):
            _log.warning(
                "%d of %d rows were not applied to table %s by %s (option onError is ignore); the first: %s",
                ignored,
                sum(message.rows for message in told),
                self.options.table,
                self.options.op.name.lower(),
                next(message.first_ignored for message in told if message.ignored),
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """[driver] A task failed. The rows that the others wrote are in the table, and stale reads see them."""
        self.commit(messages)


class _KeysOfBatches:
    """Keys of the rows whose outcome is not known yet, to name those that fail.

    It is bounded: it keeps the keys of as many encoded batches as may be under way. The outcomes of earlier batches are
    known.
    """

    def __init__(self, key: tuple[str, ...], inflight_max: int) -> None:
        self._key = list(key)
        self._inflight_max = inflight_max
        self._kept: deque[tuple[int, int, Any]] = deque()
        """(number of the first row, number of encoded batches sent with the last row, table of keys), oldest first."""

    def add(self, first_row: int, sent: int, table: Any) -> None:
        """Add rows that were just sent."""
        self._kept.append((first_row, sent, table.select(self._key)))

    def settled(self, sent: int) -> None:
        """Note that so many encoded batches were sent in all, and drop the keys whose outcomes are known."""
        while self._kept and self._kept[0][1] <= sent - self._inflight_max:
            self._kept.popleft()

    def of(self, row: int) -> dict[str, Any]:
        """Return the key of a row by its number in the partition."""
        first, _, table = next(one for one in reversed(self._kept) if one[0] <= row)
        return python_rows(table.slice(row - first, 1))[0]


class Sending:
    """Sends the rows of one partition, in the partition's order where it matters. In memory it keeps the keys under way
    and the first errors."""

    def __init__(self, to: Writer, writer: SessionWriter, inflight_max: int) -> None:
        self._to = to
        self._writer = writer
        self._keys = KeysUnderWay()
        self._named = _KeysOfBatches(to.handle.schema.key, inflight_max)
        self._sent = 0
        self.rows = 0
        self.failed = 0
        self.first_failed: list[RowFailure] = []

    def send(self, batch: Any) -> None:
        """Send a pa.RecordBatch of at least one row. Refused."""
        handle, options = self._to.handle, self._to.options
        table = pa.Table.from_batches([batch])
        if self._keys.full:
            self._writer.flush()
            self._keys.forget()
        # A key is under way already, or comes twice here, so each write waits for the one before it.
        repeats = self._keys.add(self._key_hashes(table))
        numbers = np.arange(self.rows, self.rows + batch.num_rows, dtype=np.int64)
        for wire in wire_batches(handle, table, options.op, numbers, ignore_null=options.ignore_null):
            self._writer.send(wire, depth=1 if repeats else None)
            self._sent += 1
        self._named.add(self.rows, self._sent, table)
        self.rows += batch.num_rows
        self._settle()

    def finish(self) -> None:
        """Return when all rows are acknowledged. RowErrors if some rows were not applied and the job is to fail."""
        self._writer.flush()
        self._settle()
        if self.failed and self._to.options.on_error == "raise":
            raise RowErrors(
                self.first_failed,
                table=self._to.options.table,
                rows_applied=self.rows - self.failed,
                failed=self.failed,
                advice=ADVICE,
            )

    def _key_hashes(self, table: Any) -> Any:
        columns = [column for column in self._to.handle.schema.key_columns if column.name in table.column_names]
        if len(columns) < len(self._to.handle.schema.key):
            return np.empty(0, np.uint64)  # `wire_batches` refuses these rows.
        return key_hash([table.column(c.name).cast(c.arrow_type).combine_chunks() for c in columns])

    def _settle(self) -> None:
        """Count what the answers so far reported, so that a million failed rows need not be kept until the end."""
        errors = self._writer.row_errors
        self.failed += len(errors)
        for error in errors[: ERRORS_SHOWN_MAX - len(self.first_failed)]:
            self.first_failed.append(RowFailure(error.offset, error.code, error.column, self._named.of(error.offset)))
        errors.clear()
        self._named.settled(self._sent)
