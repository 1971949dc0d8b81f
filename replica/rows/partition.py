"""Decides which tablet a row belongs to: hash buckets from the hash's high bits, and optional range splits."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nyala.replica.types import check

from .conversion import check_decimals
from .hashing import HASH_VERSION, U64, key_hash
from .schema import TableSchema
from .types import ColumnType, invalid, json_text, json_whole, value_from_json, value_to_json

BUCKETS_MAX = 4096


@dataclass(frozen=True)
class PartitionSpec:
    """How a table is cut into tablets.

    `range_splits` are sorted values of `range_column`. n splits make n+1 ranges; each range begins at its split,
    inclusive. Tablet position = range_pos * buckets + bucket.
    """

    hash_columns: tuple[str, ...]
    buckets: int
    hash_version: int = HASH_VERSION
    range_column: str = ""
    range_splits: tuple[object, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.buckets <= BUCKETS_MAX:
            raise invalid(f"a table has 1 to {BUCKETS_MAX} hash buckets", buckets=self.buckets)
        if self.buckets > 1 and not self.hash_columns:
            raise invalid("more than one bucket needs columns to hash", buckets=self.buckets)
        if self.hash_version != HASH_VERSION:
            raise invalid("this build knows only hash version 1", hash_version=self.hash_version)
        if self.range_splits and not self.range_column:
            raise invalid("range splits need a range column")
        splits: list[Any] = list(self.range_splits)
        try:
            ascending = all(a < b for a, b in itertools.pairwise(splits))
        except (TypeError, ArithmeticError) as e:
            raise invalid("range splits are values of one type, which can be ordered", range_splits=splits[:5]) from e
        if not ascending:
            raise invalid("range splits ascend, without repeats", range_splits=splits[:5])

    @property
    def tablets(self) -> int:
        """The number of tablets, which may be forty million in a request: count before you enumerate them."""
        return self.buckets * (len(self.range_splits) + 1)

    @property
    def partitions(self) -> list[tuple[int, int]]:
        """(bucket, range_pos) of each tablet, in order of tablet position."""
        return [(b, r) for r in range(len(self.range_splits) + 1) for b in range(self.buckets)]

    def validate_for(self, schema: TableSchema) -> None:
        """Refused(INVALID_ARGUMENT) unless this cuts tables of `schema`: its columns are key columns, splits fit."""
        for name in (*self.hash_columns, *((self.range_column,) if self.range_column else ())):
            if name not in schema.key:
                raise invalid("a partition column must be in the key", column=name, key=",".join(schema.key))
        if self.range_column:
            arrow_type = schema.column(self.range_column).arrow_type
            for split in self.range_splits:
                if split is None:
                    raise invalid("a range begins at a value, and null is none", column=self.range_column, split=split)
                try:
                    check_decimals([split])
                    pa.scalar(split, type=arrow_type)
                except MemoryError:  # Arrow's, too, which is no fault of the split
                    raise
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
                    raise invalid(
                        "a split is not of the range column's type", column=self.range_column, split=split
                    ) from e

    def check_position(self, bucket: int, range_pos: int) -> None:
        """Refused(INVALID_ARGUMENT) for the bucket and range of a tablet that no such table has."""
        if not (0 <= bucket < self.buckets and 0 <= range_pos <= len(self.range_splits)):
            raise invalid(
                "the table has no tablet of this bucket and range",
                bucket=bucket,
                buckets=self.buckets,
                range_pos=range_pos,
                ranges=len(self.range_splits) + 1,
            )

    def to_json(self, schema: TableSchema) -> str:
        """One line of JSON; `schema` gives the type of the splits."""
        kind = schema.column(self.range_column).type if self.range_column else ColumnType.INT64
        return json.dumps(
            {
                "hash_columns": list(self.hash_columns),
                "buckets": self.buckets,
                "hash_version": self.hash_version,
                "range_column": self.range_column,
                "range_splits": [value_to_json(kind, v) for v in self.range_splits],
            }
        )

    @classmethod
    def from_json(cls, text: str, schema: TableSchema) -> PartitionSpec:
        """The inverse of `to_json`; Refused(INVALID_ARGUMENT) if `text` is something else."""
        try:
            raw = json.loads(text)
            range_column = json_text(raw["range_column"])
            kind = schema.column(range_column).type if range_column else ColumnType.INT64
            splits = tuple(value_from_json(kind, v) for v in raw["range_splits"])
            hashed = tuple(map(json_text, raw["hash_columns"]))
            return cls(hashed, json_whole(raw["buckets"]), json_whole(raw["hash_version"]), range_column, splits)
        except (KeyError, TypeError, ValueError, RecursionError) as e:
            raise invalid("not a partition spec's JSON", text=text[:200], reason=str(e)) from e


def bucket_of(hashes: U64, buckets: int) -> npt.NDArray[np.int32]:
    """The bucket of each hash: its high 32 bits scaled to 0 ... buckets-1. Hash tables within a tablet use the low
    bits."""
    return ((hashes >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(np.int32)


def slice_of(hashes: U64, slices: int) -> npt.NDArray[np.int32]:
    """The slice of each key hash, by its low 32 bits, because within one tablet the high bits hardly differ."""
    return ((hashes & np.uint64(0xFFFFFFFF)) * np.uint64(slices) >> np.uint64(32)).astype(np.int32)


def route(batch: Any, schema: TableSchema, spec: PartitionSpec, key_hashes: U64 | None = None) -> npt.NDArray[np.int32]:
    """The tablet position of each row of a pa.RecordBatch or pa.Table that has the partition columns. Shape (rows,).

    `key_hashes`: `key_hash` of each row's whole key, if the caller has it: most tables are partitioned by that.
    """
    if spec.buckets > 1:
        if key_hashes is None or spec.hash_columns != schema.key:
            key_hashes = key_hash([_typed(batch, schema, n) for n in spec.hash_columns])
        position = bucket_of(key_hashes, spec.buckets)
    else:
        position = np.zeros(batch.num_rows, dtype=np.int32)
    if spec.range_splits:
        values = _typed(batch, schema, spec.range_column)
        arrow_type = schema.column(spec.range_column).arrow_type
        for split in spec.range_splits:
            above = pc.fill_null(pc.greater_equal(values, pa.scalar(split, type=arrow_type)), False)
            position += above.to_numpy(zero_copy_only=False).astype(np.int32) * np.int32(spec.buckets)
    check(len(position) == batch.num_rows, "each row has one tablet", rows=batch.num_rows, routed=len(position))
    return position


def _typed(batch: Any, schema: TableSchema, name: str) -> Any:
    """The column as one array of exactly the schema's type, because a decimal of another scale would hash
    differently."""
    column = batch.column(name)
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    wanted = schema.column(name).arrow_type
    return array if array.type == wanted else array.cast(wanted)
