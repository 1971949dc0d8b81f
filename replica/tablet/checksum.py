"""A checksum of the visible rows that does not depend on where they lie: equal replicas, equal number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nyala.replica.rows import key_hash

from .hash_index import U64

_ODD = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD6E8FEB86659FD93)


def batch_checksum(batch: Any) -> int:
    """Sum over the rows, modulo 2**64, of a hash of the row's values in column order."""
    rows: U64 = np.zeros(batch.num_rows, dtype=np.uint64)
    for column in batch.columns:
        rows = _mix(rows * _ODD + _column_hash(column))
    return int(np.add.reduce(rows, dtype=np.uint64)) if len(rows) else 0


def _column_hash(column: Any) -> U64:
    kind = column.type
    nulls = column.null_count
    if pa.types.is_floating(kind):
        # By bits, after every NaN is made the same one and -0.0 stays apart from 0.0.
        values = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False).astype(np.float64)
        values[np.isnan(values)] = np.nan
        hashes = _mix(values.view(np.uint64).copy())
    elif pa.types.is_boolean(kind):
        hashes = _mix(pc.fill_null(column, False).to_numpy(zero_copy_only=False).astype(np.uint64))
    else:
        hashes = key_hash([column])
    if nulls:
        hashes[pc.is_null(column).to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _mix(x: U64) -> U64:
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xFF51AFD7ED558CCD)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xC4CEB9FE1A85EC53)
    x ^= x >> np.uint64(33)
    return x
