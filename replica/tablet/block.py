"""An immutable block: one Arrow IPC file sorted by key, its sidecar, and in memory what was superseded since.

`data/<tablet>-<number>.arrow` holds one record batch: the table's columns, `__ts`, and `__superseded` if any row was
dead when the block was written. `data/<tablet>-<number>.idx`, the sidecar, holds

- the rotated key hashes of the rows that were live, sorted, with their positions, and a Bloom filter with one 64-bit
  word per probe;
- for each older block its rows that were superseded by the flush of this block: (positions, times).

So opening a tablet finds the superseded rows without a key look-up, and a deletion needs no row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nyala.replica.fs import exhausted
from nyala.replica.rows import TableSchema
from nyala.replica.types import MAX_HYBRID_TIME, Corruption, Disk, check

from .block_file import SUPERSEDED_COLUMN, TS_COLUMN, checked_pages, mapped_pages, read_sidecar
from .columns import Longest, equal_rows, key_arrays, longest_values, take
from .hash_index import I64, U64, Bools
from .key_ranges import FENCE_ROWS, Fences, SortedKey, fences_of
from .page_crcs import PageChecks
from .superblock import BlockInfo

U32 = npt.NDArray[np.uint32]
CHECKED_FOR_S = 60.0
"""After this time, reads by key check a page of a sidecar again. Every read checks its pages of the data file."""
MAPS_PER_BLOCK = 2
"""An open block maps both files."""
Deltas = tuple[I64, I64]
"""Positions and times of rows that were superseded after the block was written."""


class Needles(NamedTuple):
    """Rotated key hashes in ascending order, and the order that sorted them. Both of shape (rows,)."""

    order: I64
    rotated: U64

    @property
    def repeat(self) -> bool:
        """Whether a hash occurs more than once."""
        return len(self.rotated) > 1 and bool((self.rotated[1:] == self.rotated[:-1]).any())


def bloom_bits(rotated: U64) -> U64:
    """The bits that a key sets in its word of a Bloom filter. The word is chosen by the upper bits of the hash."""
    one, six = np.uint64(1), np.uint64(63)
    bits = one << (rotated & six)
    bits |= one << ((rotated >> np.uint64(6)) & six)
    bits |= one << ((rotated >> np.uint64(12)) & six)
    bits |= one << ((rotated >> np.uint64(33)) & six)
    return bits


def bloom_bits_one(rotated: int) -> int:
    """The same as `bloom_bits`, for one hash."""
    return 1 << (rotated & 63) | 1 << (rotated >> 6 & 63) | 1 << (rotated >> 12 & 63) | 1 << (rotated >> 33 & 63)


def _beyond(
    columns: Sequence[pa.Array], rows: I64, wanted: Sequence[pa.Array], todo: I64, checks: PageChecks | None
) -> Bools:
    """Shape (rows,): whether each of the rows comes, column by column, after that of `wanted` at the place `todo`."""
    result, undecided = np.zeros(len(rows), dtype=np.bool_), np.ones(len(rows), dtype=np.bool_)
    for column, values in zip(columns, wanted, strict=True):
        if checks is not None:
            checks.check_rows((column,), rows)
        ours, theirs = take(column, rows), values if len(todo) == len(values) else take(values, todo)
        result |= undecided & pc.greater(ours, theirs).to_numpy(zero_copy_only=False)
        undecided &= pc.equal(ours, theirs).to_numpy(zero_copy_only=False)
        if not undecided.any():
            break
    return result


def needles_of(h: U64) -> Needles:
    """Sort the rotated hashes `h`."""
    if len(h) == 1:
        return Needles(np.zeros(1, dtype=np.int64), h)
    order = np.argsort(h)
    return Needles(order, h[order])


class Block:
    """One open block.

    Invariants: a position is superseded at most once, and never becomes live again; the files never change.
    Concurrency: `supersede` under the tablet's lock; everything else may run beside it, and a `deltas` tuple that was
    taken under the lock stays true for every time up to that moment.
    """

    def __init__(
        self,
        disk: Disk,
        info: BlockInfo,
        schema: TableSchema,
        *,
        exact: bool,
        verify: bool,
        pages: list[int] | None = None,
    ) -> None:
        """`verify`: read both files and check them. `pages`: CRCs of the data file's pages, if they are known."""
        sidecar_pages = None
        if verify:
            pages, sidecar_pages = (checked_pages(disk, *file) for file in info.files)
        self._pages = pages
        self._sidecar_pages = sidecar_pages
        self.info = info
        self.schema = schema
        self.exact = exact
        try:
            with pa.memory_map(disk.real_path(info.name)) as source:
                self._mapped = source.read_buffer()
            with pa.ipc.open_file(self._mapped) as reader:
                batch = reader.get_batch(0)
            self.sidecar = read_sidecar(disk, info)
        except (OSError, MemoryError, pa.ArrowException, ValueError, KeyError) as e:
            wanted = exhausted(e)
            if wanted is not None:  # no map, no file, no memory: the block is as good as before
                raise wanted from e
            raise Corruption("a block cannot be read", block=info.name, reason=str(e)) from e
        if batch.num_rows != info.rows:
            raise Corruption("a block holds other rows than recorded", block=info.name, rows=batch.num_rows)
        own = {field.name: field.type for field in batch.schema}
        others = [c.name for c in schema.columns if own.get(c.name) != c.arrow_type]
        if others:
            what = "a block has not the columns of the schema that the superblock gives it"
            raise Corruption(what, block=info.name, schema_id=schema.schema_id, column=others[0])
        self.ts: I64 = batch.column(TS_COLUMN).to_numpy()
        has_dead = SUPERSEDED_COLUMN in batch.schema.names
        self.written_superseded: I64 | None = batch.column(SUPERSEDED_COLUMN).to_numpy() if has_dead else None
        self.batch = batch.select(list(schema.names))
        self.deltas: tuple[Deltas, ...] = ()
        self.dead_rows = info.dead_rows
        self._dead: Bools | None = None
        self._fences: Fences | None = None
        self._hash_fences: U64 | None = None
        self._sidecar_checks: tuple[PageChecks, float] | None = None
        """The checks that all readers share, and the time at which they began."""
        self._shift = np.uint64(64 - (len(self.sidecar.bloom) - 1).bit_length())

    @property
    def rows(self) -> int:
        """The number of all versions in the block."""
        return self.info.rows

    @property
    def memory_bytes(self) -> int:
        """Bytes held in memory; the files are mapped."""
        return sum(p.nbytes + t.nbytes for p, t in self.deltas) + (0 if self._dead is None else self._dead.nbytes)

    @cached_property
    def longest(self) -> Longest:
        """The longest values of the block, which never changes."""
        return longest_values(zip(self.schema.ids, self.batch.columns, strict=True))

    def page_checks(self, stop: Callable[[], None]) -> PageChecks:
        """The page checks of one reader, which must check the pages that it uses; `stop` is called before each.
        Corruption if the file is damaged and was not checked before."""
        if self._pages is None:
            self._pages = mapped_pages(self.info.name, self._mapped, self.info.crc)
        return PageChecks(self.info.name, self._mapped, self._pages, stop)

    def sorted_key(self, checks: PageChecks) -> SortedKey:
        """The sorted key of the block, for the reader of `checks`. The first call reads the key's columns."""
        columns = key_arrays(self.batch, self.schema)
        if self._fences is None:
            checks.check(columns)
            self._fences = fences_of(columns)
        return SortedKey(columns, self._fences, checks)

    def may_hold(self, rotated: int, bits: int) -> bool:
        """Whether the Bloom filter may contain one hash; scalar, for batches of one row."""
        return int(self.sidecar.bloom[rotated >> int(self._shift)]) & bits == bits

    def locate(self, needles: Needles, bits: U64, pending: Bools, keys: Sequence[Any]) -> tuple[I64, I64]:
        """(needle positions, row positions) of the pending needles whose live version is here.

        `bits` are the needles' `bloom_bits`. `pending`, shape (rows,), is in the order of the needles; `keys` are the
        key columns in the caller's order.
        """
        words = self.sidecar.bloom[(needles.rotated >> self._shift).view(np.int64)]
        asked = np.flatnonzero(((words & bits) == bits) & pending)
        if not len(asked):
            return asked, asked
        at = np.searchsorted(self.sidecar.hashes, needles.rotated[asked])
        asked, positions = self._with_keys(needles, asked, at, keys, None)
        if self._dead is not None:
            live = ~self._dead[positions]
            asked, positions = asked[live], positions[live]
        return asked, positions

    def find(
        self, needles: Needles, bits: U64, pending: Bools, keys: Sequence[pa.Array], checks: PageChecks
    ) -> tuple[I64, I64]:
        """Like `locate`, for the reader of `checks`, and including versions that ended since the block was written.

        Corruption if a page that it uses has changed; a page of the sidecar is checked once in CHECKED_FOR_S.
        """
        bloom, asked, of_sidecar = self.sidecar.bloom, np.flatnonzero(pending), self._checks_of_sidecar()
        words = (needles.rotated[asked] >> self._shift).view(np.int64)
        of_sidecar.check_rows((bloom,), words)
        asked = asked[(bloom[words] & bits[asked]) == bits[asked]]
        if not len(asked):
            return asked, asked
        at = self._searched(needles.rotated[asked], of_sidecar)
        return self._with_keys(needles, asked, at, keys, (checks, of_sidecar))

    def _checks_of_sidecar(self) -> PageChecks:
        now = time.monotonic()
        if self._sidecar_checks is None or now - self._sidecar_checks[1] > CHECKED_FOR_S:
            info, mapped = self.info, self.sidecar.mapped
            if self._sidecar_pages is None:
                self._sidecar_pages = mapped_pages(info.sidecar_name, mapped, info.sidecar_crc)
            self._sidecar_checks = PageChecks(info.sidecar_name, mapped, self._sidecar_pages), now
        return self._sidecar_checks[0]

    def _searched(self, wanted: U64, checks: PageChecks) -> I64:
        """The place of each hash among the sidecar's, or the place where it would be. The pages there are checked. A
        damaged page on the way may lead to a wrong place, which is then not between the fences that must enclose it."""
        hashes = self.sidecar.hashes
        if self._hash_fences is None:
            checks.check((hashes,))
            self._hash_fences = hashes[::FENCE_ROWS].copy()
        low = np.maximum(np.searchsorted(self._hash_fences, wanted) - 1, 0) * FENCE_ROWS
        high = np.minimum(low + FENCE_ROWS, len(hashes))
        checks.check_rows((hashes,), np.concatenate([low, np.minimum(high, len(hashes) - 1)]))
        at = np.searchsorted(hashes, wanted)
        if bool(((at < low) | (at > high)).any()):
            raise Corruption("a block's file has changed since it was checked", path=self.info.sidecar_name)
        return at

    def _with_keys(
        self,
        needles: Needles,
        asked: I64,
        at: I64,
        keys: Sequence[pa.Array],
        checks: tuple[PageChecks, PageChecks] | None,
    ) -> tuple[I64, I64]:
        """(needle positions, row positions) of those needles `asked` that the sidecar has.

        `at`: the places of their hashes, or where they would be. `checks`: a reader's, of the data file and the
        sidecar.
        """
        sidecar = self.sidecar
        at = np.minimum(at, len(sidecar.hashes) - 1)
        hit = sidecar.hashes[at] == needles.rotated[asked]
        asked, at = asked[hit], at[hit]
        if checks is not None:
            checks[1].check_rows((sidecar.positions,), at)
        positions = sidecar.positions[at].astype(np.int64)
        if not self.exact:
            if checks is not None:
                checks[0].check_rows(key_arrays(self.batch, self.schema), positions)
            asked, positions = self._same_keys(needles, asked, positions, keys, None if checks is None else checks[0])
        return asked, positions

    def _same_keys(
        self, needles: Needles, asked: I64, positions: I64, keys: Sequence[Any], checks: PageChecks | None
    ) -> tuple[I64, I64]:
        """Those needles whose key is here. `positions`: of a row with the hash of each."""
        rows = needles.order[asked]
        theirs = [take(k, rows) for k in keys]
        same = equal_rows([take(k, positions) for k in key_arrays(self.batch, self.schema)], theirs)
        if same.all():
            return asked, positions
        # A true collision: the key has one of the next rows of this hash, or none.
        wrong = np.flatnonzero(~same)
        positions[wrong], same[wrong] = self._last_versions([take(k, wrong) for k in theirs], checks)
        return asked[same], positions[same]

    def versions_at(
        self, deltas: tuple[Deltas, ...], keys: Sequence[pa.Array], at: int, checks: PageChecks
    ) -> tuple[I64, I64]:
        """(positions of keys, row positions) of all versions that are visible at time `at`, given the deltas taken
        under the lock; including those that had ended when the block was written. It reads as many rows as a binary
        search for each key does."""
        if not self.rows or self.info.min_time > at:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        times = pa.array(np.full(len(keys[0]), at, dtype=np.int64))
        last, found = self._last_rows(keys, checks, up_to=(pa.array(self.ts), times))
        asked = np.flatnonzero(found)
        if self.written_superseded is not None:
            checks.check_rows((self.written_superseded,), last[asked])
            asked = asked[self.written_superseded[last[asked]] > at]
        live = self.visible_at(deltas, last[asked], at, checks)
        return asked[live], last[asked[live]]

    def _last_versions(self, keys: Sequence[pa.Array], checks: PageChecks | None) -> tuple[I64, Bools]:
        """(the row of each key that was live when the block was written; whether there is one): found by the order of
        the keys, so it costs as much however many keys have one hash."""
        last, found = self._last_rows(keys, checks)
        if self.written_superseded is not None:
            if checks is not None:
                checks.check_rows((self.written_superseded,), last)
            found &= self.written_superseded[last] == MAX_HYBRID_TIME
        return last, found

    def _last_rows(
        self, keys: Sequence[pa.Array], checks: PageChecks | None, up_to: tuple[pa.Array, ...] = ()
    ) -> tuple[I64, Bools]:
        """(the last row, in the block's order, that does not come after each key; whether it has that key).

        `up_to`: (the column that sorts the rows of one key, its last value that counts for each key).
        """
        of_key = key_arrays(self.batch, self.schema)
        columns, wanted = [*of_key, *up_to[:1]], [*keys, *up_to[1:]]
        low, high = np.zeros(len(keys[0]), dtype=np.int64), np.full(len(keys[0]), self.rows, dtype=np.int64)
        todo = np.arange(len(low))
        while len(todo):
            middle = (low[todo] + high[todo]) // 2
            beyond = _beyond(columns, middle, wanted, todo, checks)
            high[todo[beyond]], low[todo[~beyond]] = middle[beyond], middle[~beyond] + 1
            todo = todo[low[todo] < high[todo]]
        last = np.maximum(low - 1, 0)
        if checks is not None:
            checks.check_rows(of_key, last)
        return last, equal_rows([take(column, last) for column in of_key], keys)

    def supersede(self, positions: I64, times: I64) -> None:
        """End these live rows at these times."""
        if not len(positions):
            return
        if self._dead is None:
            # Untouched zero pages cost no memory.
            self._dead = np.zeros(self.rows, dtype=np.bool_)
        check(not self._dead[positions].any(), "a version ends once", block=self.info.name)
        self._dead[positions] = True
        self.dead_rows += len(positions)
        older = list(self.deltas)
        # Geometric merging keeps the list short: one-row updates leave few arrays.
        while older and len(older[-1][0]) < 2 * len(positions):
            before, at = older.pop()
            positions, times = np.concatenate([before, positions]), np.concatenate([at, times])
        self.deltas = (*older, (positions, times))

    def collectable(self, horizon: int) -> int:
        """The number of versions that ended at or before `horizon`."""
        count = sum(int((times <= horizon).sum()) for _, times in self.deltas)
        if self.written_superseded is not None and self.info.min_time <= horizon:
            count += int((self.written_superseded <= horizon).sum())
        return count

    def all_visible(self, deltas: tuple[Deltas, ...], at: int) -> bool:
        """Whether every row of the block is visible at time `at`; False may also mean unknown."""
        return self.written_superseded is None and self.info.max_time <= at and not deltas

    def times_read(self, at: int) -> tuple[I64, ...]:
        """The arrays of the file that `visible` reads for time `at`."""
        ts = (self.ts,) if self.info.max_time > at else ()
        return ts if self.written_superseded is None else (*ts, self.written_superseded)

    def visible(self, deltas: tuple[Deltas, ...], at: int, start: int, end: int) -> Bools:
        """Mask of shape (end - start,) of the versions from row `start` to before `end` that are visible at time `at`,
        given the deltas taken under the lock."""
        if self.info.max_time <= at:
            mask: Bools = np.ones(end - start, dtype=np.bool_)
        else:
            mask = self.ts[start:end] <= at
        if self.written_superseded is not None:
            mask &= self.written_superseded[start:end] > at
        for positions, times in deltas:
            ended = positions[times <= at]
            mask[ended[(ended >= start) & (ended < end)] - start] = False
        return mask

    def visible_at(self, deltas: tuple[Deltas, ...], positions: I64, at: int, checks: PageChecks) -> Bools:
        """Mask, in the shape of `positions`, of the versions, live when the block was written, that are visible at time
        `at`, given the deltas taken under the lock; for the reader of `checks`."""
        mask: Bools = np.ones(len(positions), dtype=np.bool_)
        if self.info.max_time > at:
            checks.check_rows((self.ts,), positions)
            mask = self.ts[positions] <= at
        if self._dead is not None:  # it may have changed after the lock was released, but nothing of before is missing
            ended = np.flatnonzero(self._dead[positions])
            for rows, times in deltas if len(ended) else ():
                mask[ended[np.isin(positions[ended], rows[times <= at])]] = False
        return mask

    def superseded_at(self, deltas: tuple[Deltas, ...], up_to: int) -> I64 | None:
        """Shape (rows,): the time at which each version ended, by supersessions up to time `up_to`; None if none
        ended."""
        positions, times = deltas_between(deltas, 0, up_to)
        if self.written_superseded is not None:
            result = self.written_superseded.copy()
        elif len(positions):
            result = np.full(self.rows, MAX_HYBRID_TIME, dtype=np.int64)
        else:
            return None
        result[positions] = times
        return result


def deltas_between(deltas: Sequence[Deltas], after: int, up_to: int) -> Deltas:
    """The supersessions with after < time <= up_to."""
    none = np.empty(0, dtype=np.int64)
    picked = [(none, none), *((p[m], t[m]) for p, t in deltas for m in [(t > after) & (t <= up_to)])]
    return np.concatenate([p for p, _ in picked]), np.concatenate([t for _, t in picked])
