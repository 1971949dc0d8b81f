"""Sends the rows of one Kafka partition to the tablets' leaders as write batches.

For each tablet it collects about a megabyte of rows, or the rest of the task's rows. It encodes them once, and passes
them to the client's SourceWriter. That keeps a window of batches under way, each naming the one before it by `after`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from nyala.replica.client import TableHandle, WireBatch, cut
from nyala.replica.rows import OFFSET_COLUMN, OP_COLUMN, RowError, TableSchema, route
from nyala.replica.types import Refused, limits

from .errors import RETRYABLE, TaskFailed


class Writer(Protocol):
    """The interface of the client's SourceWriter: batches in offset order per tablet; errors are Refused."""

    acknowledged: dict[str, int]
    """Tablet id -> highest offset acknowledged."""
    row_errors: list[RowError]
    rows_applied: int
    rows_replayed: int

    def send(self, batch: WireBatch) -> None:
        """Send one batch; may wait for older ones."""

    def flush(self) -> None:
        """Return when all sent batches are acknowledged."""

    def abandon(self) -> None:
        """Stop waiting."""


@dataclass
class _TabletBuffer:
    """One tablet's rows that wait to be sent."""

    pos: int
    tablet_id: str
    gathered: list[Any] = field(default_factory=list)
    gathered_bytes: int = 0


@dataclass
class Totals:
    """The totals of a task."""

    rows: int = 0
    batches: int = 0
    bytes: int = 0


class Sender:
    """Sends one task's rows. Use: `push` in offset order, then `flush`.

    `on_error` receives each row's error once for each answer. TaskFailed is fatal for a GAP and other refusals that a
    repetition would meet again; it is retryable if the client's deadline has passed. Concurrency: one thread.
    """

    def __init__(
        self,
        table: TableHandle,
        writer: Writer,
        on_error: Callable[[RowError], None],
        *,
        batch_bytes: int = limits.BATCH_TARGET_BYTES,
        ignore_null: bool = False,
    ) -> None:
        """`ignore_null`: upserts and updates leave a column whose value is null as it is."""
        self._schema: TableSchema = table.schema
        self._partition = table.partition
        self._buffers = [_TabletBuffer(tablet.pos, tablet.tablet_id) for tablet in table.tablets]
        self._writer = writer
        self._known_before = dict(writer.acknowledged)
        self._on_error = on_error
        self._errors_seen = 0
        self._batch_bytes = batch_bytes
        self._ignore_null = ignore_null
        self.totals = Totals()

    @property
    def acknowledged(self) -> dict[str, int]:
        """Return the highest offset acknowledged to this task, by tablet id; only of tablets to which it has sent
        rows."""
        before = self._known_before
        return {t: offset for t, offset in self._writer.acknowledged.items() if before.get(t) != offset}

    def push(self, rows: Any) -> None:
        """Add a pa.RecordBatch of columns of the table, `__op` and `__offset`, in offset order."""
        if len(self._buffers) == 1:
            self._gather(self._buffers[0], rows)
        else:
            positions = route(rows, self._schema, self._partition)
            order = np.argsort(positions, kind="stable")
            edges = np.searchsorted(positions[order], np.arange(len(self._buffers) + 1))
            for pos, buffer in enumerate(self._buffers):
                if edges[pos] < edges[pos + 1]:
                    self._gather(buffer, rows.take(pa.array(order[edges[pos] : edges[pos + 1]])))
        self._settle()

    def flush(self) -> None:
        """Send all collected rows; return when all are acknowledged and `on_error` has received every row error."""
        for buffer in self._buffers:
            self._cut(buffer)
        self._call(self._writer.flush)
        self._settle()

    def close(self) -> None:
        """Abandon the writes under way, without a wait."""
        self._writer.abandon()

    def _gather(self, buffer: _TabletBuffer, rows: Any) -> None:
        if buffer.gathered and buffer.gathered[0].schema.names != rows.schema.names:
            self._cut(buffer)
        buffer.gathered.append(rows)
        buffer.gathered_bytes += rows.nbytes
        if buffer.gathered_bytes >= self._batch_bytes:
            self._cut(buffer)

    def _cut(self, buffer: _TabletBuffer) -> None:
        """Send the rows of one buffer as a batch."""
        if not buffer.gathered:
            return
        whole = buffer.gathered[0] if len(buffer.gathered) == 1 else pa.concat_batches(buffer.gathered)
        buffer.gathered, buffer.gathered_bytes = [], 0
        names = [name for name in whole.schema.names if name not in (OP_COLUMN, OFFSET_COLUMN)]
        column_ids = self._schema.column_ids(names)
        whole = pa.RecordBatch.from_arrays(whole.columns, schema=self._schema.wire_schema(column_ids))

        def send() -> None:
            for batch in cut(self._schema, buffer.pos, column_ids, whole, self._batch_bytes, self._ignore_null):
                self._writer.send(batch)
                self.totals.rows += batch.rows
                self.totals.batches += 1
                self.totals.bytes += len(batch.payload)

        self._call(send)

    def _settle(self) -> None:
        """Pass the row errors of the answers so far to `on_error`."""
        errors = self._writer.row_errors
        for error in errors[self._errors_seen :]:
            self._on_error(error)
        self._errors_seen = len(errors)

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Refused as error:
            raise TaskFailed(f"a batch was refused: {error}", fatal=error.code not in RETRYABLE) from error
