"""Finds the rows of some keys as of one hybrid time: in memory under the tablet's lock, in the blocks without it.

A block is searched by its sidecar's Bloom filter and hashes, as for a write by key. But a write trusts the sidecar
until the scrub has read it again, while a look-up checks every page before it uses it.

The indexes of memory and of sidecars have no version that a later one has replaced. So if a key may have been written
after the time of the look-up, its row at that time is found without them: in a block, which is sorted by key and time,
by a binary search, and in memory, which is bounded, by reading all keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from nyala.replica.rows import (
    VARIABLE_LENGTH,
    Column,
    Conditions,
    ScanSpec,
    TableSchema,
    key_hash,
    lengths_at,
    never_stop,
)

from .block import Block, Deltas, Needles, bloom_bits, needles_of
from .columns import KeyNumbers, Place, gathered, key_arrays, take
from .hash_index import I64, U64, Bools, rotate
from .memstore import Chunk, places, visible_mask
from .page_crcs import PageChecks
from .scan import View, pieces
from .stores import Stores


class Keys(NamedTuple):
    """Keys of a look-up, of which some may be equal.

    `columns`: the key's, in key order. `hashes`: rotated, in the order of the keys; `needles`: the same, sorted.
    """

    columns: Sequence[pa.Array]
    hashes: U64
    needles: Needles

    @property
    def rows(self) -> int:
        """The number of keys."""
        return len(self.hashes)


class Rows(NamedTuple):
    """Found rows. `batch`: pa.RecordBatch with one row for each of `found`, which are positions of keys, ascending.

    `answered`: the look-up is complete for so many keys, from the first on.
    """

    batch: Any
    found: I64
    answered: int


def keys_of(columns: Sequence[pa.Array]) -> Keys:
    """Make `Keys` of the key's columns, which have no nulls and are in key order."""
    hashes = rotate(key_hash(columns))
    return Keys(columns, hashes, needles_of(hashes))


class LookUp:
    """One look-up. The constructor needs the tablet's lock; everything else runs without it, on one thread."""

    def __init__(self, stores: Stores, schema: TableSchema, at: int, keys: Keys, flush_time: int = 0) -> None:
        """`at`: the hybrid time at which the rows are read, at most the latest applied one. `flush_time`: the highest
        time of an entry in the blocks."""
        self.at = at
        self._schema = schema
        self._keys = keys
        self._flushed_since = flush_time > at
        self._replaced: Bools = np.zeros(keys.rows, dtype=np.bool_)
        """The keys whose newest version in memory began after `at`."""
        self._left: Bools = np.ones(keys.rows, dtype=np.bool_)
        """The keys that are not in memory. For others memory decides: a block may still have a version that an upsert
        replaced."""
        self._memory: list[tuple[I64, tuple[Chunk, ...], I64]] = []
        self._blocks: tuple[tuple[Block, tuple[Deltas, ...]], ...] = tuple((b, b.deltas) for b in stores.blocks)
        for store in (stores.active, stores.frozen):
            rows = np.flatnonzero(self._left)
            if store is None or not store.rows or not len(rows):
                continue
            newest = store.locate(keys.hashes[rows], [take(column, rows) for column in keys.columns]).ids
            known = newest >= 0
            self._left[rows[known]] = False
            self._replaced[rows[known]] = store.ts[newest[known]] > at
            live = known & visible_mask(store.ts[newest], store.superseded[newest], at)
            if live.any():
                self._memory.append((rows[live], tuple(store.chunks), newest[live]))

    def rows(
        self,
        columns: Sequence[Column],
        bytes_max: int,
        view: Callable[[], View],
        stop: Callable[[], None] = never_stop,
    ) -> Rows:
        """These columns of the rows, for as many keys as fit into about `bytes_max`, but at least for one.

        `view()`: the tablet at the time of the look-up; it is called only if a key may have been written since. `stop`
        is called before each block, page and batch; an error that it raises ends the look-up. Corruption if a page has
        changed.
        """
        found = [
            Place(mine[place.mine], place.batch, place.schema, place.at)
            for mine, chunks, ids in self._memory
            for place in places(chunks, ids)
        ]
        bits, order = bloom_bits(self._keys.needles.rotated), self._keys.needles.order
        left = self._left[order]
        for block, deltas in reversed(self._blocks):
            if not left.any():
                break
            stop()
            checks = block.page_checks(stop)
            asked, at = block.find(self._keys.needles, bits, left, self._keys.columns, checks)
            live = block.visible_at(deltas, at, self.at, checks)
            asked, at = asked[live], at[live]
            left[asked] = False
            if len(asked):
                place = Place(order[asked], block.batch, block.schema, at)
                _check(place, columns, checks)
                found.append(place)
        replaced = self._replaced.copy()
        if self._flushed_since:  # a version that ended since may lie in a block whose sidecar does not have it
            replaced[order[left]] = True
        if replaced.any():
            found.extend(self._from_history(np.flatnonzero(replaced), view(), columns, stop))
        return self._fitting(found, columns, bytes_max, stop)

    def _from_history(
        self, rows: I64, view: View, columns: Sequence[Column], stop: Callable[[], None]
    ) -> Iterator[Place]:
        """The places of the visible versions of the keys `rows`: in blocks by the order of their rows, in memory by
        reading all keys."""
        keys = [take(column, rows) for column in self._keys.columns]
        for block, deltas in view.blocks:
            stop()
            checks = block.page_checks(stop)
            asked, at = block.versions_at(deltas, keys, self.at, checks)
            if len(asked):
                place = Place(rows[asked], block.batch, block.schema, at)
                _check(place, columns, checks)
                yield place
        numbers = KeyNumbers(keys, stop)
        order = np.argsort(numbers.of_keys)
        ascending = numbers.of_keys[order]
        conditions = Conditions((), view.schema.arrow, stop)
        for batch, schema, mask, _ in pieces(
            view._replace(blocks=()), ScanSpec(view.schema.key, (), self.at), conditions, stop
        ):
            some = np.arange(batch.num_rows) if mask is None else np.flatnonzero(mask)
            at, found = numbers.find(key_arrays(batch, schema), some)
            if not len(at):
                continue
            # A key may be asked for more than once, but it has one visible row.
            first = np.searchsorted(ascending, found)
            count = np.searchsorted(ascending, found, side="right") - first
            mine = np.repeat(first - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
            yield Place(rows[order[mine]], batch, schema, np.repeat(at, count))

    def _fitting(
        self, found: Sequence[Place], columns: Sequence[Column], bytes_max: int, stop: Callable[[], None]
    ) -> Rows:
        names = [column.name for column in columns]
        schema = pa.schema([self._schema.arrow.field(name) for name in names])
        sizes = np.zeros(self._keys.rows, dtype=np.int64)
        has_row = np.zeros(self._keys.rows, dtype=np.bool_)
        for place in found:
            stop()
            sizes[place.mine] = _bytes_of(place, columns)
            has_row[place.mine] = True
        beyond = np.flatnonzero(np.cumsum(sizes) > bytes_max)
        answered = max(1, int(beyond[0])) if len(beyond) else self._keys.rows
        rows = np.flatnonzero(has_row[:answered])
        if not len(rows):
            return Rows(pa.RecordBatch.from_pylist([], schema=schema), rows, answered)
        wanted = [_until(place, answered) for place in found]
        ranked = [place._replace(mine=np.searchsorted(rows, place.mine)) for place in wanted if len(place.mine)]

        def values(place: Place) -> list[pa.Array]:
            stop()
            return place.values(columns)

        arrays = gathered(ranked, values)
        return Rows(pa.RecordBatch.from_arrays(arrays, schema=schema), rows, answered)


def _until(place: Place, answered: int) -> Place:
    """The rows of the place whose keys are answered, in the order of the keys."""
    order = np.argsort(place.mine)
    order = order[place.mine[order] < answered]
    return place._replace(mine=place.mine[order], at=place.at[order])


def _check(place: Place, columns: Sequence[Column], checks: PageChecks) -> None:
    arrays = (place.column(column.id) for column in columns)
    checks.check_rows((array for array in arrays if array is not None), place.at)


def _bytes_of(place: Place, columns: Sequence[Column]) -> I64:
    """The approximate bytes of each row in these columns, without bitmaps."""
    sizes = np.zeros(len(place.at), dtype=np.int64)
    for column in columns:
        array = place.column(column.id)
        if array is None:
            sizes += place._replace(at=place.at[:1]).values([column])[0].nbytes
        elif column.type in VARIABLE_LENGTH:
            sizes += 4 + lengths_at(array, place.at)
        else:
            sizes += -(-array.type.bit_width // 8)
    return sizes
