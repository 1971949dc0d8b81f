"""Turns a batch of rows into changes of the stores: one decision for each row, made for all rows at once.

Rows of one batch share one time, and rows of different keys do not affect each other. So the batch is cut by how often
a key occurred before ("passes"). In one pass each key occurs once, and every decision is a vector operation. Doing the
passes one after the other equals applying the rows one at a time in offset order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nyala.replica.rows import (
    OFFSET_COLUMN,
    OP_COLUMN,
    VARIABLE_LENGTH,
    Column,
    RowError,
    RowOp,
    TableSchema,
    WriteMeta,
    lengths_at,
    offsets_of,
)
from nyala.replica.types import RowCode, limits

from .block import Needles, needles_of
from .columns import equal_rows, filled, take
from .hash_index import I64, U64, Bools, rotate
from .kept import kept_lengths, kept_values, portions
from .stores import Found, Stores

_BYTES = np.arange(256)
"""Each mask below has the shape (256,): whether a byte is one of the operations."""
_KNOWN = np.isin(_BYTES, [*RowOp])
INSERTS = np.isin(_BYTES, [RowOp.INSERT, RowOp.INSERT_IGNORE])
_UPDATES = np.isin(_BYTES, [RowOp.UPDATE, RowOp.UPDATE_IGNORE])
_DELETES = np.isin(_BYTES, [RowOp.DELETE, RowOp.DELETE_IGNORE])
LEAVES_NULLS = np.isin(_BYTES, [RowOp.UPSERT, RowOp.UPDATE, RowOp.UPDATE_IGNORE])
"""The operations for which a null means `unchanged`, in a batch that has this option."""
_MUST_EXIST = np.isin(_BYTES, [RowOp.UPDATE, RowOp.DELETE])
_NEVER_FAIL = np.isin(_BYTES, [RowOp.UPSERT, RowOp.INSERT_IGNORE, RowOp.UPDATE_IGNORE, RowOp.DELETE_IGNORE])
_SETTLE_ALL = np.isin(_BYTES, [RowOp.UPSERT, RowOp.DELETE_IGNORE])
"""Operations after which earlier ones on the same key have no effect; an upsert only if it gives all columns."""


class WireRows(NamedTuple):
    """Rows to apply. `columns`: pa.Array by column id, all of shape (rows,)."""

    columns: dict[int, Any]
    ops: npt.NDArray[np.uint8]
    offsets: I64
    ignore_null: bool = False
    """Whether upserts and updates leave a column unchanged if its value is null, as if it were not given."""
    bounded: bool = False
    """Whether a row that would become too long is an error; see `WriteMeta.rows_bounded`."""

    @classmethod
    def of_batch(cls, batch: Any, meta: WriteMeta) -> WireRows:
        """The rows of a decoded write batch."""
        columns = {column_id: batch.column(pos) for pos, column_id in enumerate(meta.column_ids)}
        ops, offsets = batch.column(OP_COLUMN).to_numpy(), batch.column(OFFSET_COLUMN).to_numpy()
        return cls(columns, ops, offsets, meta.ignore_null, meta.rows_bounded)

    def take(self, rows: I64) -> WireRows:
        """The rows at these positions."""
        if len(rows) == len(self.ops):
            return self
        if len(rows) and int(rows[-1]) - int(rows[0]) + 1 == len(rows):
            at, count = int(rows[0]), len(rows)  # zero-copy
            columns = {i: c.slice(at, count) for i, c in self.columns.items()}
            return self._replace(columns=columns, ops=self.ops[at : at + count], offsets=self.offsets[at : at + count])
        columns = {i: take(c, rows) for i, c in self.columns.items()}
        return self._replace(columns=columns, ops=self.ops[rows], offsets=self.offsets[rows])

    def keys(self, schema: TableSchema) -> list[Any]:
        """The key's columns in key order."""
        return [self.columns[c.id] for c in schema.key_columns]

    def gappy(self, schema: TableSchema) -> list[Column]:
        """The columns that some rows give and others leave unchanged."""
        if not self.ignore_null:
            return []
        return [c for c in schema.columns if c.id in self.columns and self.columns[c.id].null_count]


class Checked(NamedTuple):
    """Rows that may be applied, their rotated key hashes, and the errors of the others."""

    rows: WireRows
    hashes: U64
    errors: list[RowError]


Belongs = Callable[[Any, U64], Bools]
"""Maps a pa.RecordBatch of key columns, with their hashes, to a mask of the rows that belong to this tablet."""


def check_rows(
    rows: WireRows,
    schema: TableSchema,
    hash_keys: Callable[[list[Any]], U64],
    belongs: Belongs | None,
    size_bytes: int,
    natural: U64 | None = None,
) -> Checked:
    """Find the errors of rows that do not depend on the tablet's rows. The first reason in the order of the code
    counts.

    `size_bytes` is an upper bound of all rows together; `belongs` is None for a table of one tablet. `natural`: the key
    hashes of all rows, if they are known.
    """
    errors: list[RowError] = []
    good = np.ones(len(rows.ops), dtype=np.bool_)

    def fail(bad: Any, code: RowCode, column: str = "") -> None:
        nonlocal good
        hit = np.flatnonzero(bad & good)
        errors.extend(RowError(o, code, column) for o in rows.offsets[hit].tolist())
        good[hit] = False

    fail(~_KNOWN[rows.ops], RowCode.UNKNOWN_OPERATION)
    for column in schema.key_columns:
        array = rows.columns[column.id]
        if array.null_count:
            fail(_as_mask(pc.is_null(array)), RowCode.NULL_KEY, column.name)
    if size_bytes > min(limits.KEY_SIZE_BYTES_MAX, limits.ROW_SIZE_BYTES_MAX):
        _check_sizes(rows, schema, fail)
    _check_required(rows, schema, fail)
    if errors:
        rows = rows.take(np.flatnonzero(good))
        natural = None if natural is None else natural[good]
    keys = rows.keys(schema)
    if not len(rows.ops):
        return Checked(rows, np.empty(0, dtype=np.uint64), errors)
    natural = hash_keys(keys) if natural is None else natural
    hashes = rotate(natural)
    if belongs is None:
        return Checked(rows, hashes, errors)
    mine = belongs(pa.RecordBatch.from_arrays(keys, names=list(schema.key)), natural)
    if not mine.all():
        errors.extend(RowError(o, RowCode.WRONG_TABLET, "") for o in rows.offsets[~mine].tolist())
        hashes = hashes[mine]
        rows = rows.take(np.flatnonzero(mine))
    return Checked(rows, hashes, errors)


def _as_mask(array: Any) -> Bools:
    mask: Bools = array.to_numpy(zero_copy_only=False)
    return mask


def _check_sizes(rows: WireRows, schema: TableSchema, fail: Callable[..., None]) -> None:
    """Check the bounds per row and per key on values of variable length. Skipped if the whole batch is below a
    bound."""
    by_id = {c.id: c for c in schema.columns if c.type in VARIABLE_LENGTH}
    offsets = {i: offsets_of(array) for i, array in rows.columns.items() if i in by_id}
    total = sum(int(o[-1]) - int(o[0]) for o in offsets.values())
    if total <= min(limits.KEY_SIZE_BYTES_MAX, limits.ROW_SIZE_BYTES_MAX):
        return
    sizes = {i: np.diff(o).astype(np.int64) for i, o in offsets.items()}
    key_ids = [c.id for c in schema.key_columns if c.id in sizes]
    if key_ids:
        in_key = np.add.reduce([sizes[i] for i in key_ids])
        fail(in_key > limits.KEY_SIZE_BYTES_MAX, RowCode.ROW_TOO_LARGE, by_id[key_ids[0]].name)
    fail(np.add.reduce(list(sizes.values())) > limits.ROW_SIZE_BYTES_MAX, RowCode.ROW_TOO_LARGE)


def _check_required(rows: WireRows, schema: TableSchema, fail: Callable[..., None]) -> None:
    """Check required columns: no null is given for one, and an insert gives it or there is a default."""
    for column in schema.columns:
        array = rows.columns.get(column.id)
        if column.nullable:
            continue
        if array is None:
            if column.default is None:
                fail(INSERTS[rows.ops], RowCode.NULL_IN_REQUIRED_COLUMN, column.name)
        elif array.null_count:
            bad = _as_mask(pc.is_null(array)) & ~_DELETES[rows.ops]
            if rows.ignore_null:
                bad &= ~LEAVES_NULLS[rows.ops]
            fail(bad, RowCode.NULL_IN_REQUIRED_COLUMN, column.name)


# ------------------------------------------------------------------------------------------------------------- passes


def apply_distinct(stores: Stores, schema: TableSchema, rows: WireRows, h: U64, times: I64) -> list[RowError] | None:
    """Apply checked rows of different keys, each at its own time. If a key comes twice, nothing is done, and the result
    is None.

    `times`: hybrid times, ascending, shape (rows,). The errors of rows that failed are in no order.
    """
    errors: list[RowError] = []
    needles = needles_of(h)
    if needles.repeat:
        return None
    _apply_pass(stores, schema, rows, h, needles, times, errors)
    return errors


def apply_rows(stores: Stores, schema: TableSchema, rows: WireRows, h: U64, ts: int) -> list[RowError]:
    """Apply checked rows at time `ts`; returns the errors of the failed rows, in no order."""
    errors: list[RowError] = []
    needles = needles_of(h)
    if not needles.repeat:
        _apply_pass(stores, schema, rows, h, needles, ts, errors)
        return errors
    for part, hashes in _passes(rows, h, schema):
        _apply_pass(stores, schema, part, hashes, needles_of(hashes), ts, errors)
    return errors


def _passes(rows: WireRows, h: U64, schema: TableSchema) -> list[tuple[WireRows, U64]]:
    """Cut into parts in which each hash occurs once."""
    order, rank = in_passes(rows, h, schema)
    by_rank = np.argsort(rank, kind="stable")
    cuts = np.cumsum(np.bincount(rank))
    parts = []
    for chosen in np.split(order[by_rank], cuts[:-1]):
        chosen.sort()
        parts.append((rows.take(chosen), h[chosen]))
    return parts


def in_passes(rows: WireRows, h: U64, schema: TableSchema) -> tuple[I64, I64]:
    """(positions of the rows that count, the pass in which each of them is applied, from 0 on), of the same shape.

    Rows that a later one of their key makes pointless are left out. In one pass each hash occurs once.
    """
    order = np.argsort(h, kind="stable")
    same_as_next = np.append(h[order[1:]] == h[order[:-1]], False)
    full = all(c.id in rows.columns for c in schema.columns) and not rows.gappy(schema)
    never_fail, settle = _NEVER_FAIL[rows.ops], _SETTLE_ALL[rows.ops]
    if not full:
        # A partial upsert reads the row before it, and fails on an absent one that it cannot complete.
        never_fail, settle = never_fail & (rows.ops != RowOp.UPSERT), settle & (rows.ops != RowOp.UPSERT)
        if rows.bounded:
            # The values that complete a row may make it too long: only a deletion cannot fail.
            never_fail &= _DELETES[rows.ops]
    pointless = same_as_next & never_fail[order] & np.append(settle[order[1:]], False)
    hit = np.flatnonzero(pointless)
    if len(hit):
        # Equal hashes of different keys must not drop each other.
        keys = rows.keys(schema)
        left, right = ([take(k, order[at]) for k in keys] for at in (hit, hit + 1))
        order = np.delete(order, hit[equal_rows(left, right)])
    starts = np.flatnonzero(np.append(True, h[order[1:]] != h[order[:-1]]))
    counts = np.diff(np.append(starts, len(order)))
    rank = np.arange(len(order)) - np.repeat(starts, counts)
    return order, rank


def _apply_pass(
    stores: Stores,
    schema: TableSchema,
    rows: WireRows,
    h: U64,
    needles: Needles,
    ts: int | I64,
    errors: list[RowError],
) -> None:
    """One pass: decide for each row from whether its key is live, then change the stores."""
    ops = rows.ops
    missing, gappy = [c for c in schema.columns if c.id not in rows.columns], rows.gappy(schema)
    upsert = ops == RowOp.UPSERT
    # A full upsert need not know which version it replaces: blocks are searched later, for many rows at once, before a
    # read.
    lazy = upsert if not missing and not gappy else np.zeros(len(ops), dtype=np.bool_)
    found = stores.locate(h, rows.keys(schema), lazy, needles)
    live, inserts = found.live, INSERTS[ops]
    known = bool(live.any())
    failed = (live & (ops == RowOp.INSERT)) | (~live & _MUST_EXIST[ops]) if known else _MUST_EXIST[ops]
    if failed.any():
        # Read once, because an enum's member costs as much as the rest of a row's work.
        present, absent = RowCode.ALREADY_PRESENT, RowCode.NOT_FOUND
        inserted, offsets = (ops[failed] == RowOp.INSERT).tolist(), rows.offsets[failed].tolist()
        errors.extend(RowError(o, present if i else absent, "") for o, i in zip(offsets, inserted, strict=True))
    fresh = ~live & (inserts | upsert) if known else inserts | upsert
    required = next((c for c in missing if not c.nullable and c.default is None), None)
    if required is not None and fresh.any():
        bad = fresh & upsert
        errors.extend(RowError(o, RowCode.NULL_IN_REQUIRED_COLUMN, required.name) for o in rows.offsets[bad].tolist())
        fresh &= ~bad
    for column in (c for c in gappy if not c.nullable and c.default is None):
        bad = fresh & upsert & _as_mask(pc.is_null(rows.columns[column.id]))
        errors.extend(RowError(o, RowCode.NULL_IN_REQUIRED_COLUMN, column.name) for o in rows.offsets[bad].tolist())
        fresh &= ~bad
    if not known and not missing and not gappy:
        _append(stores, schema, rows, None, np.flatnonzero(fresh), found, ts)
        return
    over = live & (upsert | _UPDATES[ops])
    if rows.bounded and (missing or gappy):
        too_long = _too_long(stores, schema, rows, missing + gappy, found, over, fresh)
        errors.extend(RowError(o, RowCode.ROW_TOO_LARGE) for o in rows.offsets[too_long].tolist())
        over[too_long] = fresh[too_long] = False
    # Old versions end before new ones are added. Their values can be read until a flush or compaction drops them.
    dead = np.flatnonzero(over | (live & _DELETES[ops]))
    if len(dead):
        stores.end(found, dead, _at(ts, dead))
    if not missing and not gappy:
        _append(stores, schema, rows, None, np.flatnonzero(fresh | over), found, ts)
        return
    for hit in portions(stores, found, np.flatnonzero(over), missing + gappy):
        _append(stores, schema, rows, kept_values(stores, found, hit, missing + gappy), hit, found, ts)
    _append(stores, schema, rows, None, np.flatnonzero(fresh), found, ts)


def _too_long(
    stores: Stores, schema: TableSchema, rows: WireRows, left: list[Column], found: Found, over: Bools, fresh: Bools
) -> I64:
    """The positions of the rows that would be longer than a row may be, with the values that they keep (`over`) or get
    (`fresh`).

    `left`: the columns that some or all rows leave out.
    """
    hit = np.flatnonzero(over | fresh)
    old = np.flatnonzero(over[hit])
    kept = kept_lengths(stores, found, hit[old], left)
    size = np.zeros(len(hit), dtype=np.int64)
    for column in schema.columns:
        if column.type not in VARIABLE_LENGTH:
            continue
        array = rows.columns.get(column.id)
        if column.id not in kept:
            size += lengths_at(array, hit)
            continue
        stays = np.full(len(hit), column.default_length)
        stays[old] = kept[column.id]
        size += stays if array is None else np.where(left_as_it_is(array, rows)[hit], stays, lengths_at(array, hit))
    return hit[size > limits.ROW_SIZE_BYTES_MAX]


def _append(
    stores: Stores,
    schema: TableSchema,
    rows: WireRows,
    old: dict[int, Any] | None,
    hit: I64,
    found: Found,
    ts: int | I64,
) -> None:
    """Add versions of the rows `hit`; `old` has their values in the columns that not every row gives, or None if they
    are new."""
    if not len(hit):
        return
    part = rows.take(hit)
    arrays = []
    for column in schema.columns:
        array = part.columns.get(column.id)
        if array is None or (part.ignore_null and array.null_count):
            stays = old[column.id] if old else filled(column, len(hit))
            array = stays if array is None else pc.if_else(pa.array(left_as_it_is(array, part)), stays, array)
        arrays.append(array)
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
    stores.add(found, hit, batch, schema, _at(ts, hit))


def left_as_it_is(array: pa.Array, rows: WireRows) -> Bools:
    """Mask of the nulls in a column that mean `unchanged`."""
    return LEAVES_NULLS[rows.ops] & _as_mask(pc.is_null(array))


def _at(ts: int | I64, rows: I64) -> int | I64:
    """The times of some rows: one for all, or one for each."""
    return ts if isinstance(ts, int) else ts[rows]
