"""Routing: each row has one tablet, the same however the rows arrive."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.rows import Column, ColumnType, PartitionSpec, TableSchema, bucket_of, key_hash, route, slice_of
from nyala.replica.types import Code, Refused

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="day", type=ColumnType.STRING, nullable=False),
        Column(id=3, name="v", type=ColumnType.DOUBLE),
    ),
    ("k", "day"),
)
ROWS = pa.record_batch({"k": np.arange(9000), "day": [f"2013-{i % 12:02}" for i in range(9000)], "v": [0.5] * 9000})


def test_route_by_hash_and_range_gives_each_partition_its_position() -> None:
    """Goal: position = range_pos * buckets + bucket. Method: against the parts computed apart, row by row."""
    spec = PartitionSpec(("k",), 3, range_column="day", range_splits=("2013-04", "2013-08"))
    spec.validate_for(SCHEMA)
    position = route(ROWS, SCHEMA, spec)
    assert len(spec.partitions) == 9
    buckets = bucket_of(key_hash([ROWS["k"]]), 3)
    for pos, bucket, day in zip(position.tolist(), buckets.tolist(), ROWS["day"].to_pylist(), strict=True):
        range_pos = 0 if day < "2013-04" else 1 if day < "2013-08" else 2
        assert spec.partitions[pos] == (bucket, range_pos)


def test_route_of_chunked_and_differently_typed_columns_is_the_same() -> None:
    """Goal: the way rows arrive never moves them. Method: a table in chunks with int32 and large strings."""
    spec = PartitionSpec(("k", "day"), 5)
    table = pa.Table.from_batches([ROWS.slice(0, 100), ROWS.slice(100)])
    table = table.set_column(0, "k", table["k"].cast(pa.int32())).set_column(
        1, "day", table["day"].cast("large_string")
    )
    assert (route(table, SCHEMA, spec) == route(ROWS, SCHEMA, spec)).all()


def test_buckets_and_slices_are_even_and_independent() -> None:
    """Goal: tablets are even, and so are slices inside one tablet. Method: dense keys, 3 buckets by 4 slices."""
    hashes = key_hash([pa.array(np.arange(60_000))])
    pairs = np.bincount(bucket_of(hashes, 3) * 4 + slice_of(hashes, 4), minlength=12)
    assert pairs.sum() == 60_000 and pairs.min() > 4700 and pairs.max() < 5300


def test_route_with_one_partition_sends_all_rows_there() -> None:
    """Goal: an unpartitioned table needs no hash. Method: no hash columns, one bucket."""
    assert not route(ROWS, SCHEMA, PartitionSpec((), 1)).any()


def test_partition_spec_that_cannot_be_is_refused() -> None:
    """Goal: an invalid partition spec is refused. Method: one case for each rule; JSON keeps a good one."""
    for spec in (
        lambda: PartitionSpec(("k",), 0),
        lambda: PartitionSpec((), 2),
        lambda: PartitionSpec(("k",), 2, hash_version=2),
        lambda: PartitionSpec(("k",), 2, range_splits=(1,)),
        lambda: PartitionSpec(("k",), 2, range_column="k", range_splits=(2, 1)),
        lambda: PartitionSpec(("v",), 2).validate_for(SCHEMA),
        lambda: PartitionSpec((), 1, range_column="k", range_splits=("x",)).validate_for(SCHEMA),
    ):
        with pytest.raises(Refused):
            spec()
    good = PartitionSpec(("k",), 2, range_column="day", range_splits=("a", "b"))
    assert PartitionSpec.from_json(good.to_json(SCHEMA), SCHEMA) == good


def test_route_by_the_keys_hashes_at_hand_is_the_same_and_used_only_where_the_whole_key_decides() -> None:
    """Goal: known hashes of the keys give the same routes, and are used only if the table is partitioned by its whole
    key. Method: routes with and without those hashes, for a table cut by its whole key, by a part of it, and by the key
    in another order."""
    schema = TableSchema(
        1,
        (
            Column(id=1, name="a", type=ColumnType.INT64, nullable=False),
            Column(id=2, name="b", type=ColumnType.INT64, nullable=False),
        ),
        ("a", "b"),
    )
    rows = pa.record_batch({"a": pa.array(range(500)), "b": pa.array(range(500, 0, -1))})
    hashes = key_hash([rows["a"], rows["b"]])
    for columns in (("a", "b"), ("a",), ("b",), ("b", "a")):
        spec = PartitionSpec(columns, 7)
        assert route(rows, schema, spec, hashes).tolist() == route(rows, schema, spec).tolist(), columns


@pytest.mark.parametrize("buckets", [1, 2, 7])
@pytest.mark.parametrize("splits", [(), ("a",), ("a", "b", "c")])
def test_tablets_are_counted_and_each_has_a_bucket_and_a_range(buckets: int, splits: tuple[str, ...]) -> None:
    """IN-60, IN-82. Goal: the number of tablets equals those that there are, and no other position passes. Method:
    every bucket and range around those that there are."""
    spec = PartitionSpec(("k",), buckets, range_column="day" if splits else "", range_splits=splits)
    assert spec.tablets == len(spec.partitions)

    def passes(bucket: int, range_pos: int) -> bool:
        try:
            spec.check_position(bucket, range_pos)
        except Refused as refused:
            assert refused.code is Code.INVALID_ARGUMENT
            return False
        return True

    around = itertools.product(range(-1, buckets + 2), range(-1, len(splits) + 3))
    assert {place for place in around if passes(*place)} == set(spec.partitions)
