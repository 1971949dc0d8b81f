"""Reads rows as of one hybrid time: filters memory batches and blocks, and never merges them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nyala.replica.rows import (
    Conditions,
    ScanSpec,
    TableSchema,
    key_hash,
    never_stop,
    slice_of,
)

from .block import Block, Deltas
from .columns import key_arrays, select
from .cuts import RunSizes, runs
from .hash_index import Bools
from .memstore import MemView, visible_mask
from .page_crcs import PageChecks

COUNT_SCHEMA = pa.schema([pa.field("count", pa.int64(), nullable=False)])


class View(NamedTuple):
    """A consistent state of the tablet, taken under its lock; it stays valid for every time up to that moment."""

    schema: TableSchema
    memory: tuple[MemView, ...]
    blocks: tuple[tuple[Block, tuple[Deltas, ...]], ...]


class Piece(NamedTuple):
    """Some rows of one place, and a mask of those that are visible (None: all). `checks`: for data on disk."""

    batch: Any
    schema: TableSchema
    mask: Bools | None
    checks: PageChecks | None


class Scan(Iterator[Any]):
    """Iterator of pa.RecordBatch. `snapshot_time`: the hybrid time it reads at.

    `schema`: the schema of each batch; `column_ids`: the requested columns, in order. Rows come in no order. A count
    yields one batch of one row with the column `count`.
    Concurrency: one reader; independent of what is applied, flushed or compacted meanwhile.
    """

    def __init__(self, view: View, spec: ScanSpec, stop: Callable[[], None] = never_stop) -> None:
        """Refused(INVALID_ARGUMENT) if a condition cannot be compared with its column. `stop` is called before each
        step of at most a few milliseconds; an error that it raises ends the scan."""
        names = _names(spec, view.schema)
        self.snapshot_time = spec.snapshot_time
        self.column_ids = tuple(view.schema.column(name).id for name in names)
        conditions = Conditions(spec.predicates, view.schema.arrow, stop)
        if spec.count_only:
            self.schema = COUNT_SCHEMA
            self._batches = _count(view, spec, conditions, stop)
        else:
            self.schema = pa.schema([view.schema.arrow.field(name) for name in names])
            self._batches = _rows(view, spec, conditions, stop)

    def __next__(self) -> Any:
        return next(self._batches)


def _names(spec: ScanSpec, schema: TableSchema) -> Sequence[str]:
    return schema.names if spec.columns is None else spec.columns


def _needed(spec: ScanSpec, schema: TableSchema) -> set[int]:
    """The ids of the columns that are read."""
    names = {p.column for p in spec.predicates}
    names.update(() if spec.count_only else _names(spec, schema), schema.key if spec.slice_count > 1 else ())
    return {schema.column(name).id for name in names}


def pieces(
    view: View, spec: ScanSpec, conditions: Conditions, stop: Callable[[], None] = never_stop
) -> Iterator[Piece]:
    """All rows that may be visible at the snapshot, in pieces as `runs` cuts them in the columns that are read; `stop`
    is called before each. Of a block, only rows whose key may meet the conditions."""
    at, needed = spec.snapshot_time, _needed(spec, view.schema)
    terms = [conditions.terms(name, stop) for name in view.schema.key]
    for block, deltas in view.blocks:
        stop()
        if not block.rows or block.info.min_time > at:
            continue
        checks = block.page_checks(stop)
        wanted = block.sorted_key(checks).runs(terms, stop) if terms[0] else [(0, block.rows)]
        if not wanted:
            continue
        first, last, visible = wanted[0][0], wanted[-1][1], None
        if not block.all_visible(deltas, at):
            checks.check(times[first:last] for times in block.times_read(at))
            visible = block.visible(deltas, at, first, last)
        sizes = RunSizes(block.batch, block.schema, view.schema, needed)
        for start, end in chain.from_iterable(runs(sizes, *run) for run in wanted):
            stop()
            mask = None if visible is None else visible[start - first : end - first]
            yield from _piece(block.batch.slice(start, end - start), block.schema, mask, checks)
    for memory in view.memory:
        for chunk in memory.chunks:
            sizes = RunSizes(chunk.batch, chunk.schema, view.schema, needed)
            for start, end in runs(sizes, 0, chunk.batch.num_rows):
                stop()
                low, high = chunk.base + start, chunk.base + end
                mask = visible_mask(memory.ts[low:high], memory.superseded[low:high], at)
                yield from _piece(chunk.batch.slice(start, end - start), chunk.schema, mask, None)


def _piece(batch: Any, schema: TableSchema, mask: Bools | None, checks: PageChecks | None) -> Iterator[Piece]:
    if mask is None or mask.all():
        yield Piece(batch, schema, None, checks)
    elif mask.any():
        yield Piece(batch, schema, mask, checks)


def _masked(
    piece: Piece, view: View, spec: ScanSpec, conditions: Conditions, stop: Callable[[], None]
) -> tuple[Any, Any | None]:
    """(the needed columns, mask of the wanted rows or None for all)."""
    if piece.checks is not None:
        needed = _needed(spec, view.schema)
        piece.checks.check(piece.batch.column(pos) for pos, c in enumerate(piece.schema.columns) if c.id in needed)
    mask = None if piece.mask is None else pa.array(piece.mask)
    if spec.slice_count > 1:
        mine = slice_of(key_hash(key_arrays(piece.batch, piece.schema)), spec.slice_count) == spec.slice_pos
        mask = _both(mask, pa.array(mine))
    if spec.predicates:
        names = list(dict.fromkeys(p.column for p in spec.predicates))
        met = conditions.mask(select(piece.batch, piece.schema, view.schema, names), stop)
        mask = _both(mask, met)
    return piece.batch, mask


def _both(left: Any | None, right: Any) -> Any:
    return right if left is None else pc.and_(left, right)


def _rows(view: View, spec: ScanSpec, conditions: Conditions, stop: Callable[[], None]) -> Iterator[Any]:
    left = spec.limit if spec.limit > 0 else None
    for piece in pieces(view, spec, conditions, stop):
        batch, mask = _masked(piece, view, spec, conditions, stop)
        result = select(batch, piece.schema, view.schema, _names(spec, view.schema))
        if mask is not None:
            result = result.filter(mask)
        if left is not None:
            result = result.slice(0, left)
            left -= result.num_rows
        if result.num_rows:
            yield result
        if left == 0:
            return


def _count(view: View, spec: ScanSpec, conditions: Conditions, stop: Callable[[], None]) -> Iterator[Any]:
    total = 0
    for piece in pieces(view, spec, conditions, stop):
        batch, mask = _masked(piece, view, spec, conditions, stop)
        total += batch.num_rows if mask is None else int(np.count_nonzero(mask.to_numpy(zero_copy_only=False)))
        if 0 < spec.limit <= total:
            total = spec.limit
            break
    yield pa.RecordBatch.from_arrays([pa.array([total], pa.int64())], schema=COUNT_SCHEMA)
