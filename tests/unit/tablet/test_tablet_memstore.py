"""The memory store by itself: keys of one hash, few batches, memory that is counted."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.rows import Column, ColumnType, TableSchema, key_hash
from nyala.replica.tablet import memstore
from nyala.replica.tablet.hash_index import rotate
from nyala.replica.tablet.memstore import MemStore, places, unique_by_hash, visible_mask
from nyala.replica.types import MAX_HYBRID_TIME
from tests.harness.tablet_twin import INT_SCHEMA, PAIR_SCHEMA, STRING_SCHEMA, colliding_key

DAY_SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="day", type=ColumnType.DATE, nullable=False),
        Column(id=2, name="name", type=ColumnType.STRING, nullable=False),
    ),
    ("day", "name"),
)
DAYS = [(dt.date(2026, 11, day), name) for day in (1, 2) for name in ("a", "b", "c")]


def add(store: MemStore, schema: TableSchema, rows: list[dict[str, Any]], hashes: list[int], ts: int = 1) -> list[int]:
    """Add a version of each row, whose key has this hash; return the new ids."""
    batch = pa.RecordBatch.from_pylist(rows, schema=schema.arrow)
    store.reserve(len(rows))
    h = np.array(hashes, dtype=np.uint64)
    located = store.locate(h, [batch.column(name) for name in schema.key])
    return store.append(batch, schema, located, ts).tolist()


def ints(store: MemStore, count: int, schema: TableSchema = INT_SCHEMA) -> list[int]:
    """Add one batch of that many new keys."""
    keys = range(store.rows, store.rows + count)
    return add(store, schema, [{"k": key, "v": 1, "s": "text", "r": 1} for key in keys], list(keys))


def test_hashes_that_a_store_has_are_not_computed_again() -> None:
    """Goal: a flush spends no time on the hashes of keys, unless one of them is not that of its key. Method: made-up
    hashes; then a key whose hash another one has."""
    store, made_up = MemStore(PAIR_SCHEMA), [7, 8, 9]
    rows = [{"k": k, "k2": k, "v": 1, "s": "text", "r": 1} for k in range(4)]
    add(store, PAIR_SCHEMA, rows[:3], made_up)
    assert store.rotated_hashes_of(slice(0, 3)).tolist() == made_up
    assert store.rotated_hashes_of(np.array([2, 0])).tolist() == [9, 7]
    add(store, PAIR_SCHEMA, rows[3:], made_up[:1])
    own = rotate(key_hash([pa.array([row["k"] for row in rows], pa.int64())] * 2))
    assert store.rotated_hashes_of(slice(0, 4)).tolist() == own.tolist()


def sizes(store: MemStore) -> list[int]:
    """The rows of each batch; together they are all rows, and their bytes are those that the store counts."""
    rows = [chunk.batch.num_rows for chunk in store.chunks]
    assert [chunk.base for chunk in store.chunks] == np.cumsum([0, *rows]).tolist()[:-1]
    assert store.payload_bytes == sum(chunk.batch.nbytes for chunk in store.chunks)
    return rows


@pytest.mark.parametrize(
    "schema, exact",
    [(INT_SCHEMA, True), (PAIR_SCHEMA, False), (STRING_SCHEMA, False), (DAY_SCHEMA, False)],
    ids=["int", "pair", "string and int", "date and string"],
)
def test_only_one_integer_is_known_by_its_hash(schema: TableSchema, exact: bool) -> None:
    """Goal: only a hash that no two keys share stands for a key. Method: one integer, two, and texts."""
    assert unique_by_hash(schema) is exact
    text = TableSchema(1, tuple(c for c in STRING_SCHEMA.columns if c.name != "k2"), ("k",))
    assert not unique_by_hash(text)


@pytest.mark.parametrize("secret", ["another one each", "the same for all", "that of the first key"])
def test_keys_of_one_hash_are_each_found(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: keys that share a hash stay apart, also when the hash that they get instead is another key's. Method: six
    keys of a date and a text under one hash, added one by one and then looked up together; the hash instead is a real
    one, always 5, or that which they share."""
    if secret != "another one each":
        instead = 5 if secret == "the same for all" else 7
        monkeypatch.setattr(memstore, "_secret_hash", lambda keys: np.full(len(keys[0]), instead, np.uint64))
    store = MemStore(DAY_SCHEMA)
    rows = [{"day": day, "name": name} for day, name in DAYS]
    for number, row in enumerate(rows):
        assert add(store, DAY_SCHEMA, [row], [7]) == [number]
    batch = pa.RecordBatch.from_pylist(rows, schema=DAY_SCHEMA.arrow)
    located = store.locate(np.full(6, 7, np.uint64), [batch.column(name) for name in DAY_SCHEMA.key])
    assert located.ids.tolist() == list(range(6)) and located.aliases


def test_key_that_has_its_own_hash_is_no_alias() -> None:
    """Goal: what a look-up was given stays as it was, in its order, unless two keys share a hash. Method: two keys with
    hashes of their own are looked up with a third."""
    store = MemStore(DAY_SCHEMA)
    rows = [{"day": day, "name": name} for day, name in DAYS[:3]]
    add(store, DAY_SCHEMA, rows[:2], [30, 20])
    batch = pa.RecordBatch.from_pylist(rows, schema=DAY_SCHEMA.arrow)
    h, order = np.array([30, 20, 10], np.uint64), np.array([2, 1, 0])
    located = store.locate(h, [batch.column(name) for name in DAY_SCHEMA.key], order)
    assert located.ids.tolist() == [0, 1, -1]
    assert located.hashes is h and located.order is order and not located.aliases


def test_batch_of_known_and_new_keys_is_found_again() -> None:
    """Goal: each key leads to its newest row. Method: two keys, then one of them with two new ones."""
    store = MemStore(INT_SCHEMA)
    rows = [{"k": key, "v": 1, "s": "text", "r": 1} for key in (1, 2, 2, 3, 4)]
    add(store, INT_SCHEMA, rows[:2], [1, 2])
    add(store, INT_SCHEMA, rows[2:], [2, 3, 4])
    located = store.locate(np.array([1, 2, 3, 4, 5], np.uint64), [pa.array([1, 2, 3, 4, 5])])
    assert located.ids.tolist() == [0, 2, 3, 4, -1]


def test_natural_hash_of_a_row_is_that_of_its_key_whatever_it_is_found_by() -> None:
    """Goal: a key's versions in blocks are looked for by the hash that blocks know. Method: three keys of one hash and
    one of another, written one after the other; the hashes of some rows, in any order."""
    store = MemStore(PAIR_SCHEMA)
    keys = [colliding_key(1), colliding_key(2), colliding_key(3), (5, 6)]
    natural = rotate(key_hash([pa.array([k for k, _ in keys]), pa.array([k for _, k in keys])])).tolist()
    assert natural[0] == natural[1] == natural[2] != natural[3]
    for (k, k2), h in zip(keys, natural, strict=True):
        add(store, PAIR_SCHEMA, [{"k": k, "k2": k2, "v": 1, "s": "text", "r": 1}], [h])
    assert store.hashes[:4].tolist() != natural, "two of them are found by another hash"
    assert store.rotated_hashes_of(np.array([3, 1, 2])).tolist() == [natural[3], natural[1], natural[2]]
    assert store.rotated_hashes_of(slice(0, 4)).tolist() == natural


def test_room_is_doubled_when_it_is_needed() -> None:
    """Goal: rows are not moved before there is no room, and then there is room for as many again. Method: 1,024 rows
    fit at first, and one more does not."""
    store = MemStore(INT_SCHEMA)
    first = store.ts
    assert ints(store, 1000) == list(range(1000))
    store.reserve(24)
    assert store.ts is first
    store.reserve(25)
    assert len(store.ts) == len(store.hashes) == len(store.superseded) == 2048
    assert store.ts[:1000].tolist() == [1] * 1000


def test_memory_is_what_rows_times_and_index_take() -> None:
    """Goal: a flush begins at the bytes that are in use. Method: three rows; batch, 24 bytes a row, and the index."""
    store = MemStore(INT_SCHEMA)
    ints(store, 3)
    assert store.memory_bytes == store.chunks[0].batch.nbytes + 3 * 24 + store._index.memory_bytes
    assert store._index.memory_bytes > 0


@pytest.mark.a_third
@pytest.mark.parametrize(
    "written, left",
    [
        ([1] * 31, [1] * 31),
        ([1] * 32, [32]),
        ([1] * 33, [32, 1]),
        ([1] * 1023, [32] * 31 + [1] * 31),
        ([1] * 1024, [1024]),
        ([31] * 32, [992]),
        ([32] * 32, [1024]),
        ([1023] * 32, [32736]),
        ([1024] * 32, [32768]),
        ([8191] * 32, [8191 * 32]),
        ([8192] * 32, [8192] * 32),
        ([1] * 31 + [8192], [1] * 31 + [8192]),
        ([9000] + [1] * 32, [9000, 32]),
        ([32] + [1] * 31, [32] + [1] * 31),
        ([31] + [1] * 31, [62]),
        ([1024] + [32] * 31, [1024] + [32] * 31),
        ([1023] + [32] * 31, [1023 + 31 * 32]),
        ([8192] + [1024] * 31, [8192] + [1024] * 31),
        ([1] * 31 + [40], [71]),
    ],
    ids=lambda rows: f"{len(rows)} from {rows[0]} to {rows[-1]}",
)
def test_small_batches_become_few(written: list[int], left: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a reader never has to go through many small batches, and a large one is never copied again. Method: batches
    of the sizes at which a class of sizes begins or ends, and what is left of them."""
    monkeypatch.setattr(memstore, "_MERGED_BYTES_MAX", 1 << 40)
    store = MemStore(INT_SCHEMA)
    for count in written:
        ints(store, count)
    assert sizes(store) == left


@pytest.mark.parametrize("first", [1, 31])
def test_batches_of_two_schemas_are_not_merged(first: int) -> None:
    """Goal: a batch has one schema. Method: 32 rows, of which the first ones were written before a column came."""
    column = Column(id=9, name="more", type=ColumnType.INT32)
    wider = replace(INT_SCHEMA, schema_id=2, columns=(*INT_SCHEMA.columns, column))
    store = MemStore(INT_SCHEMA)
    for number in range(32):
        ints(store, 1, INT_SCHEMA if number < first else wider)
    assert sizes(store) == [1] * 32
    for _ in range(first):
        ints(store, 1, wider)
    assert sizes(store) == [1] * first + [32]


def test_batches_are_merged_up_to_the_bytes_that_may_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the copy of a merge is bounded. Method: 32 rows of as many bytes as the bound, and of one more."""
    for spare, left in ((0, [32]), (-1, [1] * 32)):
        store = MemStore(INT_SCHEMA)
        for _ in range(31):
            ints(store, 1)
        monkeypatch.setattr(memstore, "_MERGED_BYTES_MAX", store.payload_bytes // 31 * 32 + spare)
        ints(store, 1)
        assert sizes(store) == left


@pytest.mark.parametrize("ids", [[], [3], [0, 1, 2, 9], [9, 2, 3, 0, 9], [5, 4]], ids=str)
def test_places_are_each_batch_that_has_one_of_the_rows(ids: list[int]) -> None:
    """Goal: rows are gathered from the batches that have them, and from no other. Method: batches of 3, 2, 4
    and 1 rows."""
    store = MemStore(INT_SCHEMA)
    for count in (3, 2, 4, 1):
        ints(store, count)
    found = list(places(store.chunks, np.array(ids, dtype=np.int64)))
    assert all(len(place.mine) for place in found)
    keys = {
        int(mine): place.batch.column(0)[int(row)].as_py()
        for place in found
        for mine, row in zip(place.mine, place.at, strict=True)
    }
    assert [keys[pos] for pos in range(len(ids))] == ids
    assert len(found) == len({(i >= 3) + (i >= 5) + (i >= 9) for i in ids})


def test_version_is_visible_from_its_time_until_it_is_superseded() -> None:
    """Goal: a row is read at T if it was written at or before T and ended after T. Method: each side of both ends."""
    ts, ended = np.array([10, 10, 20]), np.array([20, MAX_HYBRID_TIME, MAX_HYBRID_TIME])
    for at, visible in ((9, [0, 0, 0]), (10, [1, 1, 0]), (19, [1, 1, 0]), (20, [0, 1, 1]), (21, [0, 1, 1])):
        assert visible_mask(ts, ended, at).tolist() == [bool(v) for v in visible], at
