"""Merges many parts into one sorted block, for flush and compaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from nyala.replica.rows import TableSchema, key_hash
from nyala.replica.types import MAX_HYBRID_TIME

from .block import bloom_bits
from .block_file import BlockContent
from .columns import key_arrays, take_batch
from .hash_index import I64, U64, rotate

_BLOOM_BITS_PER_ROW = 16


class Part(NamedTuple):
    """Versions to merge: a pa.RecordBatch in the target schema's columns, and arrays of shape (rows,).

    `hashes` are rotated (see `hash_index.py`); if they are missing, they are computed.
    """

    batch: Any
    ts: I64
    superseded: I64 | None
    hashes: U64 | None = None


class Merged(NamedTuple):
    """The block's content without deltas, and for each part the new position of each of its rows, -1 if dropped."""

    content: BlockContent
    positions: list[I64]


def merge_parts(parts: Sequence[Part], schema: TableSchema, horizon: int) -> Merged:
    """Sort by key, then time; drop versions that ended at or before `horizon`, or at the moment they began."""
    kept: list[I64 | None] = []
    for part in parts:
        keep = None
        if part.superseded is not None:
            mask = (part.superseded > horizon) & (part.superseded > part.ts)
            keep = None if mask.all() else np.flatnonzero(mask)
        kept.append(keep)
    batches = [p.batch if k is None else take_batch(p.batch, k) for p, k in zip(parts, kept, strict=True)]
    first, *more = batches
    batch = pa.concat_batches(batches) if more else first
    ts = np.concatenate([p.ts if k is None else p.ts[k] for p, k in zip(parts, kept, strict=True)])
    superseded = _superseded(parts, kept)
    hashes = _hashes(parts, kept, batch, schema)
    order = _sort_order(key_arrays(batch, schema), ts)
    content = _content(take_batch(batch, order), schema, ts[order], superseded, hashes, order)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    positions, at = [], 0
    for part, keep in zip(parts, kept, strict=True):
        count = part.batch.num_rows if keep is None else len(keep)
        moved = back[at : at + count]
        at += count
        if keep is not None:
            full = np.full(part.batch.num_rows, -1, dtype=np.int64)
            full[keep] = moved
            moved = full
        positions.append(moved)
    return Merged(content, positions)


def _superseded(parts: Sequence[Part], kept: Sequence[I64 | None]) -> I64 | None:
    arrays = []
    for part, keep in zip(parts, kept, strict=True):
        if part.superseded is None:
            arrays.append(np.full(part.batch.num_rows, MAX_HYBRID_TIME, dtype=np.int64))
        else:
            arrays.append(part.superseded if keep is None else part.superseded[keep])
    result = np.concatenate(arrays)
    return None if bool((result == MAX_HYBRID_TIME).all()) else result


def _hashes(parts: Sequence[Part], kept: Sequence[I64 | None], batch: Any, schema: TableSchema) -> U64:
    given = [
        part.hashes if keep is None else part.hashes[keep]
        for part, keep in zip(parts, kept, strict=True)
        if part.hashes is not None
    ]
    return np.concatenate(given) if len(given) == len(parts) else rotate(key_hash(key_arrays(batch, schema)))


def _sort_order(keys: Sequence[Any], ts: npt.NDArray[np.int64]) -> I64:
    columns = {f"k{pos}": pl.from_arrow(array) for pos, array in enumerate(keys)}
    frame = pl.DataFrame({**columns, "ts": pl.Series(ts)})
    order: I64 = frame.select(pl.arg_sort_by(list(frame.columns))).to_series().to_numpy().astype(np.int64)
    return order


def _content(batch: Any, schema: TableSchema, ts: I64, superseded: I64 | None, hashes: U64, order: I64) -> BlockContent:
    """Add the sidecar's arrays; `superseded` and `hashes` are in the order before sorting."""
    rotated = hashes[order]
    if superseded is not None:
        superseded = superseded[order]
        live = np.flatnonzero(superseded == MAX_HYBRID_TIME)
        rotated = rotated[live]
    by_hash = np.argsort(rotated)
    rotated = rotated[by_hash]
    positions = (by_hash if superseded is None else live[by_hash]).astype(np.uint32)
    return BlockContent(batch, schema, ts, superseded, rotated, positions, _bloom(rotated), {})


def _bloom(rotated: U64) -> U64:
    """One word for every two to four rows. The hashes are sorted, so the rows of one word stand together."""
    words = 1 << max(1, len(rotated) * _BLOOM_BITS_PER_ROW // 64 - 1).bit_length()
    bloom = np.zeros(words, dtype=np.uint64)
    if len(rotated):
        word = rotated >> np.uint64(64 - (words - 1).bit_length())
        starts = np.flatnonzero(np.concatenate([[True], word[1:] != word[:-1]]))
        bloom[word[starts].astype(np.int64)] = np.bitwise_or.reduceat(bloom_bits(rotated), starts)
    return bloom
