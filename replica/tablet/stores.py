"""The places where a key's live version can be: the active memory store, a frozen one, and the blocks.

A key has at most one live version over all of them, with one exception: an upsert may leave the version that it
replaced in a block alive until `Resolver` ends it. So the memory stores are searched first, and what they have is
right.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nyala.replica.rows import TableSchema
from nyala.replica.types import MAX_HYBRID_TIME

from .block import Block, Needles, bloom_bits, bloom_bits_one, needles_of
from .columns import Longest, Place, longest_values, take
from .hash_index import I64, U64, Bools
from .memstore import Located, MemStore, gather_keys

_NOWHERE, _ACTIVE, _FROZEN = -1, -2, -3


class Found(NamedTuple):
    """The places of the keys of one pass. All arrays of shape (rows,).

    `where`: a block's position in `blocks`, or one of the negative marks; `at`: the row there. `unknown`: not searched
    in blocks.
    """

    located: Located
    live: Bools
    where: npt.NDArray[np.int32]
    at: I64
    unknown: Bools | None
    blocks: tuple[Block, ...]


class Stores:
    """Versions of one tablet, in memory and in blocks.

    Concurrency: every change needs the tablet's lock.
    """

    def __init__(self, schema: TableSchema, blocks: Sequence[Block] = ()) -> None:
        self.active = MemStore(schema)
        self.frozen: MemStore | None = None
        self.blocks: tuple[Block, ...] = tuple(blocks)
        self.live_rows = sum(b.rows - b.dead_rows for b in blocks)
        """An estimate: upserts that are not resolved count as new rows."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of the memory stores and of the supersessions of rows in blocks."""
        return self.store_bytes + sum(b.memory_bytes for b in self.blocks)

    @property
    def store_bytes(self) -> int:
        """Bytes of the memory stores."""
        return self.active.memory_bytes + (self.frozen.memory_bytes if self.frozen is not None else 0)

    def longest(self, lock: threading.Lock) -> list[Longest]:
        """The longest values of each part of the stores, dead versions included. Holds the lock briefly."""
        with lock:
            chunks = [c for store in (self.frozen, self.active) if store is not None for c in store.chunks]
            blocks = self.blocks
        in_memory = [longest_values(zip(c.schema.ids, c.batch.columns, strict=True)) for c in chunks]
        return in_memory + [block.longest for block in blocks]

    def locate(self, h: U64, keys: Sequence[pa.Array], lazy: Bools, needles: Needles) -> Found:
        """The live version of each key, before new versions are added; see `find`."""
        self.active.reserve(len(h))
        return self.find(h, keys, lazy, needles)

    def find(self, h: U64, keys: Sequence[pa.Array], lazy: Bools, needles: Needles) -> Found:
        """The live version of each key; rows marked `lazy` are not searched in blocks. `needles` are `h`, sorted."""
        rows = len(h)
        located = self.active.locate(h, keys, needles.order)
        known = located.ids >= 0
        where = np.full(rows, _NOWHERE, dtype=np.int32)
        # A copy, because rows that are found elsewhere must not look like rows of the active store.
        at = located.ids.copy()
        live = np.zeros(rows, dtype=np.bool_)
        if known.any():
            live = known & (self.active.superseded[at] == MAX_HYBRID_TIME)
            where[live] = _ACTIVE
        if self.frozen is not None and self.frozen.rows:
            known = self._locate_frozen(self.frozen, h, keys, known, (where, at, live))
        if not self.blocks:
            return Found(located, live, where, at, None, ())
        pending = ~known & ~lazy
        if pending.any():
            locate_in_blocks(self.blocks, needles, keys, pending, where, at)
            live |= where >= 0
        unknown = ~known & lazy
        return Found(located, live, where, at, unknown if unknown.any() else None, self.blocks)

    def _locate_frozen(
        self, frozen: MemStore, h: U64, keys: Sequence[Any], known: Bools, out: tuple[npt.NDArray[np.int32], I64, Bools]
    ) -> Bools:
        where, at, live = out
        missed = np.flatnonzero(~known)
        if not len(missed):
            return known
        some = keys if len(missed) == len(h) else [take(k, missed) for k in keys]
        ids = frozen.locate(h[missed], some).ids
        hit = ids >= 0
        if not hit.any():
            return known
        rows, ids = missed[hit], ids[hit]
        known = known.copy()
        known[rows] = True
        alive = frozen.superseded[ids] == MAX_HYBRID_TIME
        rows, ids = rows[alive], ids[alive]
        where[rows], at[rows], live[rows] = _FROZEN, ids, True
        return known

    def places(self, found: Found, hit: I64) -> Iterator[Place]:
        """The places of the versions that were live for the rows `hit`; they can still be read after they ended."""
        where, at = found.where[hit], found.at[hit]
        for place in np.unique(where).tolist():
            mine = np.flatnonzero(where == place)
            if place >= 0:
                block = found.blocks[place]
                yield Place(mine, block.batch, block.schema, at[mine])
            elif (store := self.active if place == _ACTIVE else self.frozen) is not None:
                for part in store.places(at[mine]):
                    yield part._replace(mine=mine[part.mine])

    def end(self, found: Found, hit: I64, ts: int | I64) -> None:
        """End the live versions of the rows `hit` at `ts`: one time for all of them, or one for each."""
        where, at = found.where[hit], found.at[hit]
        self.live_rows -= len(hit)
        for place in np.unique(where).tolist():
            mine = where == place
            rows, when = at[mine], ts if isinstance(ts, int) else ts[mine]
            if place == _ACTIVE:
                self.active.supersede(rows, when)
            elif place == _FROZEN and self.frozen is not None:
                self.frozen.supersede(rows, when)
            else:
                found.blocks[place].supersede(rows, np.full(len(rows), when, dtype=np.int64))

    def add(self, found: Found, hit: I64, batch: Any, schema: TableSchema, ts: int | I64) -> None:
        """Add new versions of the rows `hit`; `batch` has them in that order, `ts` is one time or one for each."""
        located = found.located
        if len(hit) != len(located.ids):
            hashes = located.hashes[hit]  # for other rows, slots may have been chosen anew meanwhile
            located = Located(located.ids[hit], self.active.slots_of(hashes), hashes, None, located.aliases)
        ids = self.active.append(batch, schema, located, ts)
        self.live_rows += len(hit)
        if found.unknown is not None:
            self.active.unresolved.append(ids[found.unknown[hit]])


def locate_in_blocks(
    blocks: Sequence[Block],
    needles: Needles,
    keys: Sequence[Any],
    pending: Bools,
    where: npt.NDArray[np.int32],
    at: I64,
) -> None:
    """Search the blocks for the pending rows, newest block first; sets `where` and `at` of those whose live version is
    found."""
    if len(needles.rotated) == 1:
        one = int(needles.rotated[0])
        bits_of_one = bloom_bits_one(one)
        if not any(block.may_hold(one, bits_of_one) for block in blocks):
            return
    bits = bloom_bits(needles.rotated)
    left = pending[needles.order]
    for pos in range(len(blocks) - 1, -1, -1):
        who, positions = blocks[pos].locate(needles, bits, left, keys)
        if len(who):
            rows = needles.order[who]
            where[rows] = pos
            at[rows] = positions
            left[who] = False
            if not left.any():
                return


class Resolver:
    """Ends the versions in blocks that lazy upserts replaced without a look-up.

    Only a memory store's first version of a key can be unresolved, and a later write of that key finds it in the memory
    store. So no other code ends the version in the block, and the look-up can run beside `apply`. Concurrency: one
    resolver at a time (`guard`); code that replaces blocks takes `guard`, too. Lock order: guard, lock.
    """

    def __init__(self, lock: threading.Lock, guard: threading.Lock) -> None:
        self._lock = lock
        self.guard = guard

    def resolve(self, stores: Stores) -> None:
        """Resolve everything that is unresolved when this is called."""
        with self.guard:
            with self._lock:
                todo = [(s, s.unresolved) for s in (stores.frozen, stores.active) if s is not None and s.unresolved]
                work = [(s, np.concatenate(ids)) for s, ids in todo]
                blocks = stores.blocks
                found = [
                    (s, tuple(s.chunks), ids, s.rotated_hashes_of(ids), s.ts[ids], len(s.unresolved)) for s, ids in work
                ]
            for store, chunks, ids, hashes, times, taken in found:
                where = np.full(len(ids), _NOWHERE, dtype=np.int32)
                at = np.empty(len(ids), dtype=np.int64)
                keys = [] if store.exact else gather_keys(chunks, ids)
                locate_in_blocks(blocks, needles_of(hashes), keys, np.ones(len(ids), dtype=np.bool_), where, at)
                with self._lock:
                    for pos in np.unique(where[where >= 0]).tolist():
                        mine = where == pos
                        blocks[pos].supersede(at[mine], times[mine])
                    stores.live_rows -= int((where >= 0).sum())
                    del store.unresolved[:taken]
