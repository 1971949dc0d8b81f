"""The memory store: Arrow batches in the order applied, with a version's times beside each row.

A row id is the row's position over all batches. A row is visible at T if ts <= T < superseded. A deletion adds no row:
it only ends the present version.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from nyala.replica.rows import INTEGER_LIKE, TableSchema, key_hash, mix_in_place
from nyala.replica.types import MAX_HYBRID_TIME

from .columns import Place, equal_rows, gathered, take
from .hash_index import I64, U64, Bools, HashIndex, rotate

_SECRET = secrets.token_bytes(16)
_ROWS_FIRST = 1 << 10
_CHUNK_ROWS_FULL = 8192
"""Batches of this many rows are never merged again."""
_MERGE_FANOUT = 32
_MERGED_BYTES_MAX = 8 << 20
"""The highest bytes of batches merged into one: concatenation copies, and few batches with long rows are cheap to
read."""


class Chunk(NamedTuple):
    """Rows `base` to `base + batch.num_rows`, in the columns of `schema`. `size_bytes`: bytes of the batch."""

    base: int
    batch: Any
    schema: TableSchema
    size_bytes: int


class Located(NamedTuple):
    """The rows of some keys in one memory store. All arrays of shape (rows,).

    `ids`: the newest row of the key, live or dead, -1 if there is none. `hashes`: the key's rotated hash in this store.
    `order` sorts them; None: unknown. `aliases`: whether some hash is not that of the key.
    """

    ids: I64
    slots: I64
    hashes: U64
    order: I64 | None
    aliases: bool = False


class MemView(NamedTuple):
    """A reader's view: rows `[0, rows)`. Later rows and later supersessions have later times."""

    chunks: tuple[Chunk, ...]
    rows: int
    ts: I64
    superseded: I64


def unique_by_hash(schema: TableSchema) -> bool:
    """Whether equal hashes mean equal keys: a key of one integer-like column."""
    return len(schema.key) == 1 and schema.key_columns[0].type in INTEGER_LIKE


class MemStore:
    """Versions in memory.

    Invariants: the index points at the newest row of each key; at most one live version per key; chunks are
    contiguous; chunks smaller than 8192 rows number less than 32 per power of 32, so one-row writes leave few batches,
    unless 32 of them hold more than 8 MiB.
    Concurrency: changed under the tablet's lock by one thread at a time; a MemView may be read without it.
    """

    def __init__(self, schema: TableSchema, expected_rows: int = 0) -> None:
        """`expected_rows`: room that is allocated at once; it is only address space until rows come."""
        capacity = max(_ROWS_FIRST, expected_rows)
        self.rows = 0
        self.payload_bytes = 0
        self.exact = unique_by_hash(schema)
        self.hashes: U64 = np.empty(capacity, dtype=np.uint64)
        self.ts: I64 = np.empty(capacity, dtype=np.int64)
        self.superseded: I64 = np.empty(capacity, dtype=np.int64)
        self.chunks: list[Chunk] = []
        self.unresolved: list[I64] = []
        """Ids of upserted rows whose older version in a block, if any, is not superseded yet."""
        self._index = HashIndex(expected_rows)
        self._aliases = False
        """Whether a key uses another hash instead of its own, which another key has here."""

    @property
    def memory_bytes(self) -> int:
        """Bytes in use: payload, 24 bytes of times and hash for each row, and the index."""
        return self.payload_bytes + 24 * self.rows + self._index.memory_bytes

    def reserve(self, more: int) -> None:
        """Make room for `more` rows, before `locate`."""
        if self.rows + more > len(self.ts):
            # Fresh pages cost nothing until they are written, so doubling costs address space, not memory.
            capacity = 1 << (self.rows + more).bit_length()
            for name in ("hashes", "ts", "superseded"):
                old = getattr(self, name)
                new = np.empty(capacity, dtype=old.dtype)
                new[: self.rows] = old[: self.rows]
                setattr(self, name, new)
        self._index.reserve(more, self.hashes)

    def locate(self, h: U64, keys: Sequence[Any], order: I64 | None = None) -> Located:
        """The newest row of each key; `h` are its rotated hashes, `order` sorts them, `keys` are its columns."""
        if order is None or len(h) == 1:
            ids, slots = self._index.find(h, self.hashes)
        else:
            sorted_ids, sorted_slots = self._index.find(h[order], self.hashes)
            ids, slots = np.empty_like(sorted_ids), np.empty_like(sorted_slots)
            ids[order] = sorted_ids
            slots[order] = sorted_slots
        if not self.exact:
            found = np.flatnonzero(ids >= 0)
            if len(found):
                mine = self.gather_keys(ids[found])
                theirs = keys if len(found) == len(ids) else [take(k, found) for k in keys]
                wrong = found[~equal_rows(mine, theirs)]
                if len(wrong):
                    return self._locate_collided(Located(ids, slots, h.copy(), None, aliases=True), wrong, keys)
        return Located(ids, slots, h, order)

    def _locate_collided(self, located: Located, wrong: I64, keys: Sequence[Any]) -> Located:
        """Find the keys of the rows `wrong`, whose hash another key has. Such a key uses one that no caller can know.
        If yet another key has that one, it uses the next hash that follows from it."""
        ids, slots, h = located.ids, located.slots, located.hashes
        h[wrong] = _secret_hash([take(k, wrong) for k in keys])
        while len(wrong):
            ids[wrong], slots[wrong] = self._index.find(h[wrong], self.hashes)
            wrong = wrong[ids[wrong] >= 0]
            if len(wrong):
                mine = self.gather_keys(ids[wrong])
                wrong = wrong[~equal_rows(mine, [take(k, wrong) for k in keys])]
                h[wrong] = mix_in_place(h[wrong])
        return located

    def append(self, batch: Any, schema: TableSchema, located: Located, ts: int | I64) -> I64:
        """Add one new live version per row and point the index at it; returns the new ids. After `reserve` and
        `locate`."""
        count = batch.num_rows
        first, end = self.rows, self.rows + count
        self.hashes[first:end] = located.hashes
        self.ts[first:end] = ts
        self.superseded[first:end] = MAX_HYBRID_TIME
        new_ids = np.arange(first, end, dtype=np.int64)
        self.rows = end
        self._aliases = self._aliases or located.aliases
        known = located.ids >= 0
        if known.any():
            self._index.point(located.slots[known], new_ids[known])
            absent = ~known
            self._index.insert(located.slots[absent], new_ids[absent], self.hashes)
        elif located.order is None or count == 1:
            self._index.insert(located.slots, new_ids, self.hashes)
        else:
            self._index.insert(located.slots[located.order], new_ids[located.order], self.hashes)
        self.chunks.append(Chunk(first, batch, schema, batch.nbytes))
        self.payload_bytes += self.chunks[-1].size_bytes
        self._merge_tail()
        return new_ids

    def slots_of(self, hashes: U64) -> I64:
        """The slots of the `hashes` of a `Located`, of whose rows some were appended. Then its own are void."""
        return self._index.find(hashes, self.hashes)[1]

    def supersede(self, ids: I64, ts: int | I64) -> None:
        """End these live rows at `ts`: one time, or one for each."""
        self.superseded[ids] = ts

    def view(self) -> MemView:
        """A consistent view for readers."""
        return MemView(tuple(self.chunks), self.rows, self.ts, self.superseded)

    def rotated_hashes_of(self, ids: I64 | slice) -> U64:
        """The rotated key hash of each of these rows, as a fresh array."""
        if self._aliases:
            return rotate(key_hash(self.gather_keys(np.arange(self.rows)[ids])))
        return self.hashes[ids].copy()

    def gather_keys(self, ids: I64) -> list[Any]:
        """The key columns of the rows `ids`, in that order."""
        return gather_keys(self.chunks, ids)

    def places(self, ids: I64) -> Iterator[Place]:
        """The places of the rows `ids`."""
        return places(self.chunks, ids)

    def _merge_tail(self) -> None:
        """Merge the last chunks if 32 of them in a row are of the newest one's size class or smaller."""
        limit = _size_class_end(self.chunks[-1].batch.num_rows)
        if limit is None or len(self.chunks) < _MERGE_FANOUT:
            return
        tail = self.chunks[-_MERGE_FANOUT:]
        schema = tail[0].schema
        if any(c.batch.num_rows >= limit or c.schema.schema_id != schema.schema_id for c in tail):
            return
        size_bytes = sum(c.size_bytes for c in tail)
        if size_bytes > _MERGED_BYTES_MAX:
            return
        # Concatenation copies, and so frees the messages from which the small batches were parsed.
        merged = pa.concat_batches([c.batch for c in tail])
        del self.chunks[-_MERGE_FANOUT:]
        self.chunks.append(Chunk(tail[0].base, merged, schema, merged.nbytes))
        self.payload_bytes += self.chunks[-1].size_bytes - size_bytes
        self._merge_tail()


def _secret_hash(keys: Sequence[pa.Array]) -> U64:
    """A hash of each key that nobody outside of this process can compute; the same for the same key."""
    # A date or a time may be one that Python has no object for.
    plain = [key.cast(f"int{key.type.bit_width}") if pa.types.is_temporal(key.type) else key for key in keys]
    digests = (
        blake2b(repr(key).encode(), digest_size=8, key=_SECRET).digest()
        for key in zip(*(column.to_pylist() for column in plain), strict=True)
    )
    return np.array([int.from_bytes(digest, "little") for digest in digests], dtype=np.uint64)


def gather_keys(chunks: Sequence[Chunk], ids: I64) -> list[Any]:
    """The key columns of the rows `ids` of a store with these chunks, in that order."""
    return gathered(places(chunks, ids), lambda place: place.keys)


def places(chunks: Sequence[Chunk], ids: I64) -> Iterator[Place]:
    """The places of the rows `ids` of a store with these chunks, chunk by chunk."""
    bases = np.fromiter((c.base for c in chunks), dtype=np.int64, count=len(chunks))
    where = np.searchsorted(bases, ids, side="right") - 1
    if len(ids) and int(where.min()) == int(where.max()):
        chunk = chunks[int(where[0])]
        yield Place(np.arange(len(ids)), chunk.batch, chunk.schema, ids - chunk.base)
        return
    order = np.argsort(where, kind="stable")
    cuts = np.searchsorted(where[order], np.arange(len(chunks) + 1))
    for pos in np.flatnonzero(cuts[1:] > cuts[:-1]).tolist():
        part, chunk = order[cuts[pos] : cuts[pos + 1]], chunks[pos]
        yield Place(part, chunk.batch, chunk.schema, ids[part] - chunk.base)


def _size_class_end(rows: int) -> int | None:
    """The number of rows at which the next larger class of chunk sizes begins; None for chunks that are never
    merged."""
    for end in (32, 1024, _CHUNK_ROWS_FULL):
        if rows < end:
            return end
    return None


def visible_mask(ts: I64, superseded: I64, at: int) -> Bools:
    """Mask of shape (rows,) of the versions that are visible at time `at`."""
    mask: Bools = ts <= at
    mask &= superseded > at
    return mask
