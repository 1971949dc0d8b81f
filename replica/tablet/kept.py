"""The values that stored rows keep when a batch gives some columns only: their lengths, and copies of them.

A row of a few bytes in a batch may keep a megabyte of stored values. So the stored values are measured without a copy,
and copied for a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from nyala.replica.rows import VARIABLE_LENGTH, Column, lengths_at
from nyala.replica.types import limits

from .columns import gathered
from .hash_index import I64
from .stores import Found, Stores


def kept_lengths(stores: Stores, found: Found, hit: I64, columns: Sequence[Column]) -> dict[int, I64]:
    """The bytes of the value that each row `hit` has, by column id, for those of `columns` that have variable length.

    `found` has the places of the rows' live versions. Nothing is copied. The result is the same on every replica.
    """
    found_lengths = {c.id: np.full(len(hit), c.default_length) for c in columns if c.type in VARIABLE_LENGTH}
    if found_lengths:
        for place in stores.places(found, hit):
            for column_id, lengths in found_lengths.items():
                array = place.column(column_id)
                if array is not None:
                    lengths[place.mine] = lengths_at(array, place.at)
    return found_lengths


def kept_values(stores: Stores, found: Found, hit: I64, columns: Sequence[Column]) -> dict[int, pa.Array]:
    """A pa.Array of the values that the rows `hit` have, by column id."""
    arrays = gathered(stores.places(found, hit), lambda place: place.values(columns))
    return {c.id: array for c, array in zip(columns, arrays, strict=True)}


def portions(stores: Stores, found: Found, hit: I64, columns: Sequence[Column]) -> Iterator[I64]:
    """The rows `hit`, in order, in portions: each has at most KEPT_BYTES_MAX in `columns`, or is one longer row."""
    if len(hit) < 2:
        yield from [hit] * len(hit)
        return
    lengths = kept_lengths(stores, found, hit, columns)
    fixed = sum(c.arrow_type.bit_width for c in columns if c.id not in lengths)
    ends = np.cumsum(sum(lengths.values(), np.full(len(hit), 4 * len(lengths) + -(-fixed // 8))))
    start = 0
    while start < len(hit):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + limits.KEPT_BYTES_MAX, side="right")))
        yield hit[start:end]
        start = end
