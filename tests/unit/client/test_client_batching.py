"""Rows split by tablet keep their order and their tablets; pruning never drops a tablet that is needed."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.client import TableHandle, TabletHandle, positions, wire_batches
from nyala.replica.rows import (
    Column,
    ColumnType,
    PartitionSpec,
    Predicate,
    RowOp,
    TableSchema,
    crc32c,
    decode_batch,
    predicate_mask,
    route,
)
from nyala.replica.types import Code, Refused, limits

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="day", type=ColumnType.STRING, nullable=False),
        Column(id=3, name="v", type=ColumnType.STRING),
    ),
    ("k", "day"),
)


def table_handle(spec: PartitionSpec) -> TableHandle:
    tablets = [TabletHandle(f"t{i}", i, b, r) for i, (b, r) in enumerate(spec.partitions)]
    return TableHandle("id", "name", SCHEMA, spec, 3, 0, 0, tablets=tuple(tablets))


def rows(count: int, width: int = 5) -> pa.Table:
    days = [f"d{i % 10}" for i in range(count)]
    return pa.table({"v": ["x" * width] * count, "k": np.arange(count) % 97, "day": days})


@pytest.mark.parametrize("buckets", [1, 4])
def test_wire_batches_together_are_the_rows_in_order(buckets: int) -> None:
    """Goal: nothing lost, doubled or reordered within a tablet. Method: decode all, compare with the routed rows."""
    handle = table_handle(PartitionSpec(("k",), buckets, range_column="day", range_splits=("d3", "d7")))
    given = rows(5000)
    got: dict[int, list[int]] = {}
    for batch in wire_batches(handle, given, RowOp.UPSERT, target_bytes=4096):
        assert batch.payload_crc == crc32c(batch.payload)
        decoded = decode_batch(batch.payload, SCHEMA.wire_schema(batch.column_ids))
        offsets = decoded["__offset"].to_pylist()
        assert (offsets[0], offsets[-1], len(offsets)) == (batch.first_offset, batch.last_offset, batch.rows)
        assert decoded["k"].to_pylist() == given["k"].take(offsets).to_pylist()
        assert set(decoded["__op"].to_pylist()) == {int(RowOp.UPSERT)}
        got.setdefault(batch.pos, []).extend(offsets)
    position = route(given, SCHEMA, handle.partition)
    assert got == {p: np.flatnonzero(position == p).tolist() for p in np.unique(position).tolist()}


def test_wire_batches_take_operations_and_offsets_of_their_own() -> None:
    """Goal: a Kafka source gives each row its offset and operation. Method: both handed in, read back."""
    handle = table_handle(PartitionSpec((), 1))
    ops = np.array([1, 4, 2], dtype=np.uint8)
    (batch,) = wire_batches(handle, rows(3), ops, np.array([10, 12, 99]))
    decoded = decode_batch(batch.payload, SCHEMA.wire_schema(batch.column_ids))
    assert (decoded["__op"].to_pylist(), decoded["__offset"].to_pylist()) == ([1, 4, 2], [10, 12, 99])


def test_wire_batches_refuse_a_row_that_no_batch_can_hold() -> None:
    """Goal: the size is refused before it is sent, with the row's position. Method: one huge row among small ones."""
    given = pa.table({"k": [1, 2], "day": ["a", "b"], "v": ["x", "y" * (limits.BATCH_SIZE_BYTES_MAX + 1)]})
    with pytest.raises(Refused) as caught:
        list(wire_batches(table_handle(PartitionSpec((), 1)), given, RowOp.INSERT))
    assert caught.value.code is Code.TOO_LARGE and caught.value.values["row"] == 1


def test_wire_batches_of_no_rows_are_none() -> None:
    """Goal: an empty write sends nothing. Method: no rows."""
    assert list(wire_batches(table_handle(PartitionSpec((), 1)), rows(0), RowOp.INSERT)) == []


def test_pruned_positions_hold_every_matching_row() -> None:
    """Goal: pruning never loses a row. Method: random conditions; matching rows against the positions kept."""
    spec = PartitionSpec(("k",), 4, range_column="day", range_splits=("d3", "d7"))
    given = rows(970).combine_chunks().to_batches()[0]
    position = route(given, SCHEMA, spec)
    rng = random.Random(3)
    pruned = 0
    for _ in range(300):
        conditions = []
        for column, pick in (("k", lambda: rng.randrange(110)), ("day", lambda: f"d{rng.randrange(12)}")):
            op = rng.choice(["=", "!=", "<", "<=", ">", ">=", "in", "is_not_null", ""])
            if op:
                count = {"in": rng.randint(0, 3), "is_not_null": 0}.get(op, 1)
                conditions.append(Predicate(column, op, tuple(pick() for _ in range(count))))
        kept = positions(SCHEMA, spec, conditions)
        matching = set(position[predicate_mask(given, conditions).to_numpy(zero_copy_only=False)].tolist())
        assert matching <= set(kept), conditions
        pruned += 12 - len(kept)
    assert pruned > 500
