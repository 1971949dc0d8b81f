"""Measures how many stored bytes the rows of one batch keep; the leader does so before the batch is in the log.

A batch of 8 MiB that gives one number for each of its rows stores each row anew, with all values that the row keeps: a
row of twenty bytes in the batch may keep a megabyte. Replicas apply a batch as a whole, so the sum over all of its rows
is bounded. Only the leader checks the bound: an entry in the log is applied, whoever wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from nyala.replica.rows import VARIABLE_LENGTH, Column, TableSchema, lengths_at
from nyala.replica.types import limits

from .block import needles_of
from .columns import Longest, equal_rows, longest_values, take
from .hash_index import I64, U64
from .kept import kept_lengths
from .resolve import INSERTS, LEAVES_NULLS, WireRows, left_as_it_is
from .stores import Stores


@dataclass(frozen=True, eq=False, slots=True)
class Given:
    """The values of one write that the stores may not have yet. `batch`: decoded; its first columns are `column_ids`.

    `hashes`: the key hash of each row, if they were needed so far.
    """

    column_ids: tuple[int, ...]
    batch: pa.RecordBatch
    hashes: U64 | None = None


def longest_given(writes: Iterable[Given]) -> Longest:
    """The longest value that the writes give, by column id."""
    return longest_of(longest_values(zip(write.column_ids, write.batch.columns, strict=False)) for write in writes)


def longest_of(found: Iterable[Longest]) -> Longest:
    """The longest value of each column in all of them."""
    longest: Longest = {}
    for one in found:
        for column_id, most in one.items():
            longest[column_id] = max(longest.get(column_id, 0), most)
    return longest


def kept_ceiling(schema: TableSchema, rows: WireRows, longest: Longest) -> int:
    """An upper bound of `kept_bytes`, from the longest values alone: it is cheap, and for most batches below the
    limit."""
    given = longest_values(rows.columns.items())
    of_row = sum(max(c.default_length, longest.get(c.id, 0), given.get(c.id, 0)) for c in _left(schema, rows))
    return len(rows.ops) * of_row


def _left(schema: TableSchema, rows: WireRows) -> list[Column]:
    """The columns of variable length that some or all rows leave unchanged."""
    gappy = rows.gappy(schema)
    return [c for c in schema.columns if c.type in VARIABLE_LENGTH and (c.id not in rows.columns or c in gappy)]


def kept_bytes(stores: Stores, schema: TableSchema, rows: WireRows, hashes: U64, longest_before: Longest) -> int:
    """An upper bound of the bytes of variable length that checked rows have after they are applied, without those
    given.

    `longest_before`: the longest values of writes that will be applied before these rows and that the stores may not
    have; any row may have got them. If a key comes several times, each of its rows counts. Call it under the tablet's
    lock; it changes nothing.
    """
    by_hash, first, key_of_row = np.unique(hashes, return_index=True, return_inverse=True)
    if len(by_hash) < len(hashes) and _collide(rows.keys(schema), hashes):
        return len(hashes) * limits.ROW_SIZE_BYTES_MAX
    keys = [take(column, first) for column in rows.keys(schema)]
    found = stores.find(by_hash, keys, np.zeros(len(by_hash), dtype=np.bool_), needles_of(by_hash))
    left = _left(schema, rows)
    live = np.flatnonzero(found.live)
    stored = kept_lengths(stores, found, live, left)
    total = 0
    for column in left:
        lengths: I64 = np.full(len(by_hash), max(column.default_length, longest_before.get(column.id, 0)))
        lengths[live] = np.maximum(lengths[live], stored[column.id])
        array = rows.columns.get(column.id)
        if array is not None:
            np.maximum.at(lengths, key_of_row, lengths_at(array, np.arange(len(hashes))))
            total += int(lengths[key_of_row[left_as_it_is(array, rows)]].sum())
        else:
            total += int(lengths[key_of_row[LEAVES_NULLS[rows.ops]]].sum())
            total += int(np.count_nonzero(INSERTS[rows.ops])) * column.default_length
    return total


def _collide(keys: list[pa.Array], hashes: U64) -> bool:
    """Whether different keys have one hash. Then the stored values of one key say nothing about the other."""
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    return not equal_rows(*([take(key, order[at]) for key in keys] for at in (same, same + 1))).all()
