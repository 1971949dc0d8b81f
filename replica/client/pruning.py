"""Finds the tablets that can hold rows which meet the conditions: a scan reads no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from nyala.replica.rows import PartitionSpec, Predicate, TableSchema, bucket_of, check_decimals, key_hash

ALTERNATIVES_MAX = 256
"""Longer `in` lists than this are not used for pruning."""


def positions(schema: TableSchema, spec: PartitionSpec, predicates: Sequence[Predicate]) -> list[int]:
    """Return the positions of all tablets that may hold matching rows, ascending; a few others may be among them."""
    buckets = _buckets(schema, spec, predicates)
    ranges = _ranges(spec, predicates)
    return [r * spec.buckets + b for r in ranges for b in buckets]


def _buckets(schema: TableSchema, spec: PartitionSpec, predicates: Sequence[Predicate]) -> list[int]:
    """Return the buckets that may hold matching rows: all, unless every hash column has an `=`, or a single one an
    `in`."""
    every = list(range(spec.buckets))
    if spec.buckets == 1:
        return every
    pinned: list[Sequence[object]] = []
    for name in spec.hash_columns:
        found = [p.values for p in predicates if p.column == name and p.op in ("=", "in")]
        if not found:
            return every
        pinned.append(min(found, key=len))
    rows = len(pinned[0])
    if rows > ALTERNATIVES_MAX or any(len(values) != rows for values in pinned) or (len(pinned) > 1 and rows != 1):
        return every
    arrays = []
    for name, values in zip(spec.hash_columns, pinned, strict=True):
        array = _exact(values, schema.column(name).arrow_type)
        if array is None:
            return every
        arrays.append(array)
    return sorted(set(bucket_of(key_hash(arrays), spec.buckets).tolist())) if rows else []


def _exact(values: Sequence[object], data_type: Any) -> Any:
    """Return the values in the column's type, or None if the type cannot hold one of them exactly."""
    try:
        check_decimals(values)
        array = pa.array(list(values), type=data_type)
    except MemoryError:  # Arrow's, too, which is no fault of the values
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    return array if array.null_count == 0 and array.to_pylist() == list(values) else None


def _ranges(spec: PartitionSpec, predicates: Sequence[Predicate]) -> list[int]:
    """Return the range positions between the lowest and the highest value that the conditions allow."""
    count = len(spec.range_splits) + 1
    low, high = 0, count - 1
    splits: list[Any] = list(spec.range_splits)
    for predicate in predicates:
        if predicate.column != spec.range_column or not predicate.values:
            continue
        try:
            at = [sum(1 for split in splits if value >= split) for value in predicate.values]
        except TypeError:
            continue
        if predicate.op in ("=", "in", ">", ">="):
            low = max(low, min(at))
        if predicate.op in ("=", "in", "<", "<="):
            high = min(high, max(at))
    return list(range(low, high + 1))
