"""Rows to write batches: split by tablet, gathered by size, offsets in order, errors passed on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.pipeline.errors import QueryInterrupted, QueryRefused, TaskFailed, of_spark
from nyala.pipeline.sender import Sender
from nyala.replica.client import TableHandle, TabletHandle, WireBatch
from nyala.replica.rows import Column, ColumnType, PartitionSpec, RowError, TableSchema, decode_batch, route
from nyala.replica.types import Code, Refused, RowCode, limits

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="b", type=ColumnType.BINARY),
    ),
    ("k",),
)
SPEC = PartitionSpec(("k",), 3)
TABLE = TableHandle("id", "t", SCHEMA, SPEC, 3, 0, 0, tablets=tuple(TabletHandle(f"t{n}", n, n, 0) for n in range(3)))


class RecordingWriter:
    """Acknowledges at flush, as the client's writer may; keeps what it was given."""

    def __init__(self, refuse: Refused | None = None, errors: list[RowError] | None = None) -> None:
        self.sent: list[WireBatch] = []
        self.acknowledged: dict[str, int] = {}
        self.row_errors: list[RowError] = []
        self.rows_applied = 0
        self.rows_replayed = 0
        self._refuse = refuse
        self._errors = errors or []

    def send(self, batch: WireBatch) -> None:
        self.sent.append(batch)

    def flush(self) -> None:
        if self._refuse:
            raise self._refuse
        for batch in self.sent:
            self.acknowledged[f"t{batch.pos}"] = batch.last_offset
        self.row_errors += self._errors
        self._errors = []

    def abandon(self) -> None:
        pass


def rows(keys: list[int], first_offset: int, size: int = 4, with_b: bool = True) -> Any:
    count = len(keys)
    columns = {"k": pa.array(keys, pa.int64())}
    if with_b:
        columns["b"] = pa.array([b"x" * size] * count, pa.binary())
    columns["__op"] = pa.array(np.full(count, 2, np.uint8))
    columns["__offset"] = pa.array(np.arange(first_offset, first_offset + count, dtype=np.int64))
    return pa.RecordBatch.from_pydict(columns)


def test_rows_reach_their_tablet_in_offset_order_exactly_once() -> None:
    """Goal: nothing is lost, doubled or out of order on the way to a tablet. Method: many small pushes, decoded."""
    writer = RecordingWriter()
    sender = Sender(TABLE, writer, lambda _: None, batch_bytes=2000)
    keys = np.random.default_rng(5).integers(0, 1 << 40, 1000).tolist()
    for start in range(0, 1000, 37):
        sender.push(rows(keys[start : start + 37], start))
    sender.flush()
    expected = route(rows(keys, 0), SCHEMA, SPEC)
    for pos in range(3):
        offsets: list[int] = []
        for batch in (each for each in writer.sent if each.pos == pos):
            decoded = decode_batch(batch.payload, SCHEMA.wire_schema(batch.column_ids))
            offsets += decoded.column("__offset").to_pylist()
            assert (batch.first_offset, batch.last_offset) == (offsets[-batch.rows], offsets[-1])
        assert offsets == np.flatnonzero(expected == pos).tolist()
    assert sender.acknowledged == writer.acknowledged
    assert sender.totals.rows == 1000


def test_column_sets_are_not_mixed_in_one_batch() -> None:
    """Goal: a partial update stays partial. Method: push full, partial and full rows of one tablet."""
    writer = RecordingWriter()
    sender = Sender(TABLE, writer, lambda _: None)
    sender.push(rows([7], 0))
    sender.push(rows([7], 1, with_b=False))
    sender.push(rows([7], 2))
    sender.flush()
    assert [batch.column_ids for batch in writer.sent] == [(1, 2), (1,), (1, 2)]


def test_large_rows_never_make_a_batch_too_large() -> None:
    """Goal: skewed row sizes stay below the wire's limit. Method: tiny rows with a few of nearly a megabyte."""
    writer = RecordingWriter()
    sender = Sender(TABLE, writer, lambda _: None)
    for number in range(40):
        sender.push(rows([7], number, size=(limits.ROW_SIZE_BYTES_MAX - 100) if number % 2 else 1))
    sender.flush()
    assert max(len(batch.payload) for batch in writer.sent) <= limits.BATCH_SIZE_BYTES_MAX
    assert sum(batch.rows for batch in writer.sent) == 40


def test_row_errors_are_passed_on_once() -> None:
    """Goal: each answered row error is handed on exactly once. Method: two flushes."""
    seen: list[RowError] = []
    writer = RecordingWriter(errors=[RowError(0, RowCode.ALREADY_PRESENT)])
    sender = Sender(TABLE, writer, seen.append)
    sender.push(rows([7], 0))
    sender.flush()
    sender.flush()
    assert seen == [RowError(0, RowCode.ALREADY_PRESENT)]


@pytest.mark.parametrize(
    ("code", "kind"),
    [(Code.GAP, QueryRefused), (Code.STALE_GENERATION, QueryRefused), (Code.OVERLOADED, QueryInterrupted)],
)
def test_refusal_keeps_its_meaning_through_sparks_text(code: Code, kind: type[Exception]) -> None:
    """Goal: a task's refusal keeps its code although Spark passes only text on. Method: wrap it as Spark does."""
    sender = Sender(TABLE, RecordingWriter(refuse=Refused(code, "why")), lambda _: None)
    sender.push(rows([7], 0))
    with pytest.raises(TaskFailed) as raised:
        sender.flush()
    spark_text = f"Job aborted\nTraceback (most recent call last):\nnyala.pipeline.errors.TaskFailed: {raised.value}\n"
    assert type(of_spark(RuntimeError(spark_text))) is kind
