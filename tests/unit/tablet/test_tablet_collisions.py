"""Keys that are made up to have one hash, or to go to one slot of the index: they cost about as much as others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.fs import RealDisk
from nyala.replica.rows import Column, ColumnType, RowOp, TableSchema, key_hash
from nyala.replica.tablet import Tablet
from nyala.replica.tablet.hash_index import HashIndex, rotate
from nyala.replica.tablet.look_up import keys_of
from nyala.replica.types import Entry
from tests.harness.tablet_twin import PAIR_SCHEMA, colliding_key, last_of_key, superblock, write_entry

FAR = 1024
"""Slots that a probe passes by at most."""


def alike(rows: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Rotated hashes of different keys whose upper half is the same, as anybody can find them."""
    return (np.uint64(77) << np.uint64(32)) | np.arange(rows, dtype=np.uint64)


def furthest(index: HashIndex, hashes: Any) -> int:
    """How far the hash is from its slot that is furthest from it."""
    taken = np.flatnonzero(index._slots)
    home = index._home(hashes[index._slots[taken].astype(np.int64) - 1])
    return int(((taken - home) & (len(index._slots) - 1)).max())


@pytest.mark.parametrize("batch_rows", [1, 100, 20_000], ids=lambda rows: f"{rows}-at-a-time")
def test_hashes_of_one_slot_do_not_stay_in_one_place(batch_rows: int) -> None:
    """IN-60. Goal: keys that were made to hash to one slot do not make each write pass all of them. Method: up to
    20,000 such hashes among others, one by one, in small batches or in one; no hash is far from its slot at any time,
    each is found, and those that are not there are not."""
    rows = min(20_000, 1500 * batch_rows)
    hashes = np.concatenate([alike(rows), rotate(key_hash([pa.array(np.arange(rows))]))])
    hashes = hashes.reshape(2, rows).T.reshape(-1).copy()
    index = HashIndex(len(hashes))
    for first in range(0, len(hashes), 2 * batch_rows):
        h = hashes[first : first + 2 * batch_rows]
        index.reserve(len(h), hashes)
        ids, slots = index.find(h, hashes)
        assert (ids == -1).all()
        index.insert(slots, np.arange(first, first + len(h)), hashes)
        assert batch_rows == 1 or furthest(index, hashes) < FAR
    assert furthest(index, hashes) < FAR
    ids, _ = index.find(hashes, hashes)
    assert (ids == np.arange(len(hashes))).all()
    few, _ = index.find(hashes[-3:], hashes)
    assert few.tolist() == ids[-3:].tolist()
    other = alike(2 * rows)[rows:]
    assert (index.find(other, hashes)[0] == -1).all() and (index.find(other[:2], hashes)[0] == -1).all()


def test_hashes_of_usual_keys_stay_in_order() -> None:
    """Goal: for usual keys, a batch passes through the index from one end to the other. Method: 300,000 numbers."""
    hashes = rotate(key_hash([pa.array(np.arange(300_000))]))
    index = HashIndex()
    for first in range(0, len(hashes), 10_000):
        h = hashes[first : first + 10_000]
        index.reserve(len(h), hashes)
        index.insert(index.find(h, hashes)[1], np.arange(first, first + len(h)), hashes)
    assert index._secret is None and furthest(index, hashes) < 256


class Life:
    """A tablet with keys of one hash."""

    def __init__(self, root: Path, schema: TableSchema = PAIR_SCHEMA) -> None:
        disk = RealDisk(root)
        disk.mkdir("tablet-meta")
        self.schema, self.index, self.tablet = schema, 0, Tablet.create(disk, superblock(schema))

    def entry(self, keys: Sequence[tuple[int, ...]], op: RowOp, value: int) -> Entry:
        self.index += 1
        rows = [
            {"op": op, "offset": 100_000 * self.index + n, "r": value, **dict(zip(self.schema.key, key, strict=True))}
            for n, key in enumerate(keys)
        ]
        return write_entry(self.index, self.schema, [*self.schema.key, "r"], rows)

    def write(self, keys: Sequence[tuple[int, ...]], op: RowOp = RowOp.UPSERT, value: int = 1, failed: int = 0) -> None:
        (result,) = self.tablet.apply([self.entry(keys, op, value)])
        assert result.error is None and len(result.row_errors) == failed

    def found(self, keys: Sequence[tuple[int, ...]]) -> dict[int, int]:
        """By the first column of the keys that are there: the value."""
        columns = [
            pa.array(values, pa.int64()).cast(self.schema.column(name).arrow_type)
            for name, values in zip(self.schema.key, zip(*keys, strict=True), strict=True)
        ]
        rows, _ = self.tablet.get(keys_of(columns), ["k", "r"])
        return dict(zip(rows.batch["k"].to_pylist(), rows.batch["r"].to_pylist(), strict=True))


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called while `work` runs."""
    count = 0

    def called(frame: Any, event: str, what: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.fixture(scope="module")
def some() -> Iterator[list[tuple[int, int]]]:
    yield [colliding_key(number) for number in range(301)]


@pytest.mark.parametrize("place", ["memory", "block"])
def test_key_costs_as_much_however_many_have_its_hash(place: str, some: list[tuple[int, int]], tmp_path: Path) -> None:
    """IN-60. Goal: keys that were made to have one hash do not make later reads and writes of them slow. Method: the
    functions called for a read, an update and a new key of a hash that 30 keys have, and of one that 300 have; twice as
    many at most, and no hash is far from its slot in the index."""
    costs = []
    for rows in (30, 300):
        (tmp_path / str(rows)).mkdir()
        life = Life(tmp_path / str(rows))
        for first in range(0, rows, 200):
            life.write(some[first : min(rows, first + 200)])
        store = life.tablet._contents.stores.active
        assert furthest(store._index, store.hashes) < FAR
        if place == "block":
            life.tablet.flush()
        last, new = some[rows - 1 : rows], some[rows : rows + 1]
        update, insert = life.entry(last, RowOp.UPDATE, 2), life.entry(new, RowOp.INSERT, 3)
        costs.append(
            [
                calls_of(lambda life=life, last=last: life.found(last)),
                calls_of(lambda life=life, update=update: life.tablet.apply([update])),
                calls_of(lambda life=life, insert=insert: life.tablet.apply([insert])),
            ]
        )
        assert life.found([*some[:2], *last, *new]) == {0: 1, 1: 1, rows - 1: 2, rows: 3}
    for few, many in zip(*costs, strict=True):
        assert many <= 2 * few, costs


def test_keys_of_one_hash_are_told_apart_wherever_they_are(some: list[tuple[int, int]], tmp_path: Path) -> None:
    """IN-60. Goal: keys with the same hash are distinct in memory, in blocks and between them. Method: 300 such keys
    are written, some changed or deleted before a flush and after it, others written again, then merged."""
    life, keys = Life(tmp_path), some[:300]
    life.write(keys)
    life.write(keys[::3], RowOp.UPDATE, 2)
    life.write(keys[::7], RowOp.DELETE)
    want = {n: 2 if n % 3 == 0 else 1 for n in range(300) if n % 7}
    assert life.found(keys) == want
    life.tablet.flush()
    assert life.found(keys) == want
    life.write(keys[1::5], RowOp.UPSERT, 3)
    life.write([key for n, key in enumerate(keys) if n % 11 == 0 and n % 7 and n % 5 != 1], RowOp.DELETE)
    want |= dict.fromkeys(range(1, 300, 5), 3)
    want = {n: value for n, value in want.items() if n % 11 or n % 5 == 1}
    assert life.found(keys) == want
    life.tablet.flush()
    assert life.found(keys) == want
    scanned = [row for batch in life.tablet.scan(["k", "r"]) for row in batch.to_pylist()]
    assert {row["k"]: row["r"] for row in scanned} == want and len(scanned) == len(want)


def test_times_that_python_has_no_object_for_may_share_a_hash(some: list[tuple[int, int]], tmp_path: Path) -> None:
    """IN-60. Goal: times beyond Python's range may share a hash without an error. Method: keys of one hash whose second
    column is a time, most of them far beyond the year 9999."""
    columns = tuple(
        Column(id=c.id, name=c.name, type=ColumnType.TIMESTAMP if c.name == "k2" else c.type, nullable=c.nullable)
        for c in PAIR_SCHEMA.columns
        if c.name != "s"
    )
    life = Life(tmp_path, TableSchema(1, columns, PAIR_SCHEMA.key))
    life.write(some[:20])
    life.write(some[5:15], RowOp.UPDATE, 2)
    assert life.found(some[:21]) == {n: 2 if 5 <= n < 15 else 1 for n in range(20)}


def test_no_key_is_lost_when_the_index_chooses_its_slots_anew_within_a_batch(tmp_path: Path) -> None:
    """IN-60. Goal: keys that were made to go to one slot are found after any batch. Method: 600 such keys in a block
    are updated in one batch, which makes the index of memory choose its slots anew, and ten new ones are inserted by
    it; all are found, and none is inserted again."""
    life, keys = Life(tmp_path), [colliding_key(n, 77 | n << 32) for n in range(610)]
    life.write(keys[:600])
    life.tablet.flush()
    life.write(keys, value=2)
    assert life.tablet._contents.stores.active._index._secret is not None
    assert life.found(keys) == dict.fromkeys(range(610), 2)
    life.write(keys, RowOp.INSERT, value=3, failed=610)


def test_keys_that_differ_in_the_last_column_are_found(tmp_path: Path) -> None:
    """IN-60. Goal: among keys of one hash, all columns decide. Method: keys of three columns, of which the first one or
    the second one too are the same; each is found in a block, and those between them are not."""
    columns = (*PAIR_SCHEMA.columns, Column(id=6, name="k3", type=ColumnType.INT64, nullable=False))
    life = Life(tmp_path, TableSchema(1, columns, ("k2", "k", "k3")))
    keys = [(7, n, last_of_key((7, n))) for n in range(40)]
    keys += [(8, 5, last_of_key((8, 5), target)) for target in range(40)]
    life.write(keys)
    life.write(keys[::2], RowOp.UPDATE, 2)
    life.tablet.flush()
    for n, key in enumerate(keys):
        rows, _ = life.tablet.get(keys_of([pa.array([value], pa.int64()) for value in key]), ["k3", "r"])
        assert rows.batch.to_pylist() == [{"k3": key[2], "r": 1 if n % 2 else 2}]
    assert life.found([(7, n, last_of_key((7, n))) for n in range(40, 60)]) == {}


def test_aliases_of_rows_that_are_added_beside_errors_are_known(some: list[tuple[int, int]], tmp_path: Path) -> None:
    """IN-60. Goal: a block finds each of its keys by the key's own hash. Method: the one key of a batch that shares its
    hash is added, while an insert beside it fails, and the other key of the hash goes; it is found in memory and in the
    block."""
    life, other = Life(tmp_path), colliding_key(9999, target=1)
    life.write([some[0], other])
    life.write([some[1], other], RowOp.INSERT, 2, failed=1)
    life.write(some[:1], RowOp.DELETE)
    for _ in range(2):
        assert life.found([some[1]]) == {1: 2}
        life.tablet.flush()
