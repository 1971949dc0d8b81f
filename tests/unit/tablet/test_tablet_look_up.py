"""Reads by key: the row as it is, from wherever its newest version lies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.fs import RealDisk
from nyala.replica.rows import Column, ColumnType, RowOp, TableSchema, encode_batch
from nyala.replica.tablet import Tablet, page_crcs
from nyala.replica.tablet import block as block_module
from nyala.replica.tablet.look_up import LookUp, Rows, keys_of
from nyala.replica.tablet.memstore import MemStore
from nyala.replica.tablet.scan import View
from nyala.replica.types import Code, Corruption, Refused, limits
from tests.harness.seeds import few_then_deep
from tests.harness.tablet_twin import (
    INT_SCHEMA,
    PAIR_SCHEMA,
    STRING_SCHEMA,
    Twin,
    colliding_key,
    schema_entry,
    superblock,
    write_entry,
)

KEYS: dict[str, tuple[TableSchema, list[tuple[Any, ...]]]] = {
    "number": (INT_SCHEMA, [(k,) for k in range(-20, 20)]),
    "text-and-number": (STRING_SCHEMA, [(f"key {k // 5}", k % 5) for k in range(40)]),
    "one-hash": (PAIR_SCHEMA, [colliding_key(k) for k in range(8)]),
}


def tablet_of(root: Path, schema: TableSchema) -> Tablet:
    disk = RealDisk(root)
    disk.mkdir("tablet-meta")
    return Tablet.create(disk, superblock(schema))


def as_columns(schema: TableSchema, keys: list[tuple[Any, ...]]) -> list[Any]:
    columns = zip(*keys, strict=True)
    return [pa.array(values, schema.column(n).arrow_type) for n, values in zip(schema.key, columns, strict=True)]


def got(
    tablet: Tablet, schema: TableSchema, keys: list[tuple[Any, ...]], time: int | None = None
) -> list[dict[str, Any] | None]:
    """Return the result of a read for each key, as of now or of a time."""
    rows, at = tablet.get(keys_of(as_columns(schema, keys)), snapshot_time=time)
    assert rows.answered == len(keys) and at == (tablet.applied_time if time is None else time)
    found: list[dict[str, Any] | None] = [None] * len(keys)
    for pos, row in zip(rows.found.tolist(), rows.batch.to_pylist(), strict=True):
        found[pos] = row
    return found


@pytest.mark.a_third
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("seed", few_then_deep(2, 4))
def test_rows_by_key_are_those_of_the_twin(kind: str, seed: int, tmp_path: Path) -> None:
    """RD-02. Goal: a read by key returns the last written row, whatever was flushed and merged. Method: random inserts,
    upserts, updates and deletes beside a slow twin, with flushes and compactions between; after each step, all keys,
    some of them twice, and keys that were never written, in one read and one by one."""
    schema, keys = KEYS[kind]
    tablet, twin, rng = tablet_of(tmp_path, schema), Twin(schema), np.random.default_rng(seed)
    # Upserts of whole rows do not look the blocks up.
    names, offset = [*schema.key, "r", "s", *(["v"] if seed % 2 else [])], 0
    for step in range(1, 30):
        rows = []
        for pos in rng.choice(len(keys), size=int(rng.integers(1, 12))).tolist():
            op = RowOp(int(rng.choice([1, 2, 2, 2, 3, 4, 4])))
            key = dict(zip(schema.key, keys[pos], strict=True))
            rows.append({"op": op, "offset": offset, **key, "r": step, "s": f"s{step} {offset}"})
            offset += 1
        tablet.apply([write_entry(step, schema, names, rows)])
        twin.apply(names, rows, step * 1000, None, 0)
        match int(rng.integers(0, 6)):
            case 0:
                tablet.flush()
            case 1:
                tablet.flush()
                tablet.compact()
        asked = [*keys, *keys[::3]]
        wanted = [twin.current(key) for key in asked]
        assert got(tablet, schema, asked) == wanted, step
        assert [got(tablet, schema, [key])[0] for key in keys[::5]] == wanted[: len(keys) : 5]


@pytest.mark.a_third
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("seed", few_then_deep(1, 2))
def test_rows_by_key_of_an_earlier_time_are_those_of_the_twin(kind: str, seed: int, tmp_path: Path) -> None:
    """RD-02. Goal: a read by key at a time returns the rows of that time, whatever was written, flushed and merged
    since. Method: random writes beside a slow twin; after each step, keys, some of them twice, and keys that were never
    written, at each of the last times and at some older ones; then the history is gone."""
    schema, keys = KEYS[kind]
    tablet, twin, rng = tablet_of(tmp_path, schema), Twin(schema), np.random.default_rng(seed)
    names, offset, asked = [*schema.key, "r", "s", *(["v"] if seed % 2 else [])], 0, [*keys, *keys[::3]]
    for step in range(1, 25):
        rows = []
        for pos in rng.choice(len(keys), size=int(rng.integers(1, 6))).tolist():
            key = dict(zip(schema.key, keys[pos], strict=True))
            op = RowOp(int(rng.choice([1, 2, 2, 2, 3, 4, 4])))
            rows.append({"op": op, "offset": offset, **key, "r": step, "s": f"s{step} {offset}"})
            offset += 1
        tablet.apply([write_entry(step, schema, names, rows)])
        twin.apply(names, rows, step * 1000, None, 0)
        match int(rng.integers(0, 8)):
            case 0:
                tablet.flush()
            case 1:
                tablet.flush()
                tablet.compact()
            case 2:
                with tablet._contents.maintenance:
                    tablet._contents.freeze()  # a flush that is under way
        for back in (1, 3, int(rng.integers(0, step))):
            time = max(0, step - back) * 1000
            then = {twin.key(row): row for row in twin.at(time)}
            assert got(tablet, schema, asked, time) == [then.get(key) for key in asked], (step, back)
            assert got(tablet, schema, [keys[step % len(keys)]], time) == [then.get(keys[step % len(keys)])]
    last = tablet.applied_time
    for horizon in (5000, last + 1):
        tablet._contents.forget_history(horizon)
        with pytest.raises(Refused) as refused:
            got(tablet, schema, asked, horizon - 1)
        assert refused.value.code is Code.HISTORY_GONE
    assert got(tablet, schema, asked, last + 1) == [twin.current(key) for key in asked]


def test_row_by_key_is_that_of_the_moment_whatever_comes_after(tmp_path: Path) -> None:
    """RD-02. Goal: a read by key returns the rows of the moment when it began. Method: between its reads of memory
    under the lock and of the blocks, every row is replaced or deleted, flushed and merged."""
    tablet = tablet_of(tmp_path, INT_SCHEMA)
    names, keys = ["k", "r", "s"], list(range(40))

    def put(index: int, op: RowOp, some: list[int]) -> None:
        rows = [{"op": op, "offset": index * 100 + k, "k": k, "r": index, "s": f"of {index}"} for k in some]
        tablet.apply([write_entry(index, INT_SCHEMA, names, rows)])

    put(1, RowOp.INSERT, keys)
    tablet.flush()
    put(2, RowOp.UPSERT, keys[::2])
    tablet.flush()
    put(3, RowOp.DELETE, keys[::5])
    contents = tablet._contents
    with contents.lock:
        look_up = LookUp(contents.stores, INT_SCHEMA, contents.time, keys_of([pa.array(keys, pa.int64())]))
    put(4, RowOp.UPSERT, keys[1::2])
    put(5, RowOp.DELETE, [k for k in keys if k % 2 == 0 and k % 5])
    tablet.flush()
    tablet.compact()
    rows = look_up.rows(INT_SCHEMA.columns, limits.GET_BYTES_MAX, lambda: tablet._view(look_up.at)[0])
    assert rows.found.tolist() == [k for k in keys if k % 5]
    assert [row["r"] for row in rows.batch.to_pylist()] == [2 if k % 2 == 0 else 1 for k in keys if k % 5]


def test_rows_that_a_flush_has_in_hand_are_found_by_key(tmp_path: Path) -> None:
    """RD-02. Goal: a read by key finds rows that are being flushed. Method: a store that is frozen and not yet a block,
    with rows that later entries replace, delete and leave alone."""
    tablet = tablet_of(tmp_path, STRING_SCHEMA)
    names = ["k", "k2", "r", "s"]
    keys: list[tuple[Any, ...]] = [(f"key {k}", k) for k in range(12)]
    rows = [{"op": 1, "offset": n, "k": k, "k2": k2, "r": 1, "s": "x"} for n, (k, k2) in enumerate(keys)]
    tablet.apply([write_entry(1, STRING_SCHEMA, names, rows)])
    contents = tablet._contents
    with contents.lock:
        contents.stores.frozen, contents.stores.active = contents.stores.active, MemStore(STRING_SCHEMA)
    rows = [{**rows[0], "op": 2, "offset": 20, "r": 2}, {**rows[1], "op": 4, "offset": 21}]
    tablet.apply([write_entry(2, STRING_SCHEMA, names, rows)])
    found = got(tablet, STRING_SCHEMA, keys)
    assert [row and row["r"] for row in found] == [2, None, *[1] * 10]


def test_rows_beyond_the_bound_are_for_the_next_read(tmp_path: Path) -> None:
    """RD-02. Goal: an answer is bounded whatever the rows' lengths, and tells how many keys it covers. Method: rows of
    1 to 300 KB, in memory and in a block; each answer has as many keys as fit, one at least, and all together have each
    row."""
    tablet = tablet_of(tmp_path, INT_SCHEMA)
    sizes = [1000, 300_000, 1000, 250_000, 300_000, 10, 90_000, 299_000]
    for index, half in ((1, range(0, 8, 2)), (2, range(1, 8, 2))):
        rows = [{"op": 1, "offset": 10 * index + k, "k": k, "r": k, "s": "x" * sizes[k]} for k in half]
        tablet.apply([write_entry(index, INT_SCHEMA, ["k", "r", "s"], rows)])
        if index == 1:
            tablet.flush()
    keys, at, answers = pa.array([0, 1, 2, 3, 99, 4, 5, 6, 7], pa.int64()), 0, []
    while at < len(keys):
        rows, _ = tablet.get(keys_of([keys.slice(at)]), ["s", "k"], 260_000)
        assert rows.answered >= 1 and (len(rows.found) == 1 or rows.batch.nbytes < 261_000)
        answers.append(rows.batch.column(1).to_pylist())
        at += rows.answered
    assert answers == [[0], [1], [2, 3], [4], [5, 6], [7]]


def looked(
    tablet: Tablet,
    keys: list[int],
    names: tuple[str, ...] = ("r",),
    *,
    at: int | None = None,
    most: int = 1 << 20,
    view: Callable[[View], View] = lambda view: view,
) -> tuple[int, Rows]:
    """How often a look-up asks whether to stop, and what it finds. `view`: the history that it reads."""
    contents, looks = tablet._contents, list[None]()
    with contents.lock:
        time = contents.time if at is None else at
        asked, flushed = keys_of([pa.array(keys, pa.int64())]), contents.superblock.flush_time
        look_up = LookUp(contents.stores, contents.schema, time, asked, flushed)
    columns = [contents.schema.column(name) for name in names]
    rows = look_up.rows(columns, most, lambda: view(tablet._view(time)[0]), lambda: looks.append(None))
    return len(looks), rows


def test_row_by_key_counts_as_the_bytes_of_its_columns(tmp_path: Path) -> None:
    """RD-02. Goal: a page of rows may have all the bytes that are allowed, and no more. Method: two rows of a block;
    columns of each width, a text, and one that came later; the least bytes for which both are in one page."""
    tablet = tablet_of(tmp_path, INT_SCHEMA)
    rows = [{"op": 1, "offset": k, "k": k, "v": 7, "r": 1, "s": "abc"} for k in range(2)]
    tablet.apply([write_entry(1, INT_SCHEMA, ["k", "v", "r", "s"], rows)])
    tablet.flush()
    later = (
        Column(id=5, name="flag", type=ColumnType.BOOL),
        Column(id=6, name="note", type=ColumnType.STRING, nullable=False, default="noted"),
        Column(id=7, name="price", type=ColumnType.DECIMAL, precision=38, scale=2),
    )
    tablet.apply([schema_entry(2, TableSchema(2, (*INT_SCHEMA.columns, *later), ("k",)))])
    for names, size in ((("k",), 8), (("v", "r"), 4 + 4), (("s",), 4 + 3), (("k", "s"), 15), (("note",), 4 + 5)):
        assert looked(tablet, [0, 1], names, most=2 * size)[1].answered == 2, names
        assert looked(tablet, [0, 1], names, most=2 * size - 1)[1].answered == 1, names
    rows_of_flags = [{"op": 1, "offset": k, "k": k, "flag": True, "r": 1} for k in range(2, 4)]
    tablet.apply([write_entry(3, tablet._contents.schema, ["k", "flag", "r", "price"], rows_of_flags)])
    assert [looked(tablet, [2, 3], ("flag",), most=most)[1].answered for most in (2, 1)] == [2, 1]
    assert [looked(tablet, [2, 3], ("price",), most=most)[1].answered for most in (32, 31)] == [2, 1]


def test_look_up_asks_whether_to_stop_before_each_step_and_takes_none_in_vain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-60, RD-02. Goal: a read by key ends soon after its caller has left, and does nothing that no key needs.
    Method: two blocks and two batches in memory; the questions are counted: for a key in memory, for one that is
    nowhere, and for what another place, another page or another row adds."""
    tablet = tablet_of(tmp_path, INT_SCHEMA)

    def put(index: int, op: RowOp, keys: range, time: int | None = None) -> None:
        rows = [{"op": op, "offset": index * 100 + k, "k": k, "r": index, "s": "x" * 100} for k in keys]
        names = ["k"] if op is RowOp.DELETE else ["k", "r", "s"]
        tablet.apply([write_entry(index, INT_SCHEMA, names, rows, time=time)])

    monkeypatch.setattr(page_crcs, "PAGE_BYTES", 64)
    for index in (1, 2):
        put(index, RowOp.INSERT, range(20 * index, 20 * index + 10))
        tablet.flush()
    put(3, RowOp.INSERT, range(60, 70))
    put(4, RowOp.INSERT, range(80, 90))
    assert looked(tablet, [60])[0] == 2, "its size, its values"
    assert looked(tablet, [99])[0] == 2, "the blocks"
    stores = tablet._contents.stores
    both, found = looked(tablet, [41])
    stores.blocks, blocks = stores.blocks[1:], stores.blocks
    assert both == looked(tablet, [41])[0] and len(found.found) == 1, "an older block is not asked for it"
    stores.blocks = blocks
    whole, page = looked(tablet, [60, 41]), looked(tablet, [60, 41], most=4)
    assert (whole[1].answered, page[1].answered) == (2, 1) and whole[0] == page[0] + 1, "values of an answered key only"
    # The history: nothing is read of it unless a key may have been written since.
    assert looked(tablet, [99], at=2000, view=lambda view: pytest.fail("it was read"))[0] == 2
    none, bare = (looked(tablet, [99], at=500, view=view)[0] for view in (lambda v: v, lambda v: v._replace(blocks=())))
    assert none == bare + 2, "each block"
    put(5, RowOp.UPSERT, range(60, 61))
    first, *rest = tablet._view(None)[0].memory
    one = first._replace(chunks=(first.chunks[0], first.chunks[2]))
    with_other, found = looked(tablet, [60], at=4000)
    assert found.batch.to_pylist() == [{"r": 3}]
    assert with_other == looked(tablet, [60], at=4000, view=lambda v: v._replace(memory=(one, *rest)))[0] + 1
    # Pages of the columns that are read are checked in blocks that the history leads to as well.
    for index in (6, 7):
        put(index, RowOp.UPSERT, range(20, 21))
    tablet.flush()
    few, many = (looked(tablet, [20], names, at=6000) for names in (("k",), ("k", "s")))
    assert many[1].batch.to_pylist() == [{"k": 20, "s": "x" * 100}] and many[0] > few[0]


def test_row_that_had_ended_in_memory_is_not_found_at_a_later_time(tmp_path: Path) -> None:
    """RD-02. Goal: a read by key at a time sees no version that had ended by then. Method: of two rows of one batch,
    one is deleted and written again, and is read between."""
    tablet = tablet_of(tmp_path, INT_SCHEMA)
    for index, op, keys in ((1, RowOp.INSERT, (1, 2)), (2, RowOp.DELETE, (2,)), (3, RowOp.INSERT, (2,))):
        rows = [{"op": op, "offset": 10 * index + k, "k": k, "r": index} for k in keys]
        tablet.apply([write_entry(index, INT_SCHEMA, ["k"] if op is RowOp.DELETE else ["k", "r"], rows)])
    found = [row and row["r"] for row in got(tablet, INT_SCHEMA, [(1,), (2,)], 2000)]
    assert found == [1, None]
    assert [row and row["r"] for row in got(tablet, INT_SCHEMA, [(1,), (2,)], 1000)] == [1, 1]


def test_keys_that_are_none_are_refused(tmp_path: Path) -> None:
    """IN-60. Goal: invalid lists of keys are refused. Method: too many, too long, with a null, and no batch at all."""
    tablet = tablet_of(tmp_path, INT_SCHEMA)

    def keys(*values: Any) -> bytes:
        return encode_batch(pa.record_batch([pa.array(values, pa.int64())], names=["k"]))

    assert tablet.keys(keys(1, 2)).rows == 2
    for payload, code in (
        (keys(*range(limits.GET_KEYS_MAX + 1)), Code.TOO_LARGE),
        (b"x" * (limits.GET_KEYS_BYTES_MAX + 1), Code.TOO_LARGE),
        (keys(1, None), Code.INVALID_BATCH),
        (b"nothing", Code.INVALID_BATCH),
        (b"", Code.INVALID_BATCH),
    ):
        with pytest.raises(Refused) as refused:
            tablet.keys(payload)
        assert refused.value.code is code, refused.value


@pytest.mark.deep
@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(INT_SCHEMA, id="number", marks=pytest.mark.deep),
        pytest.param(STRING_SCHEMA, id="text"),
        pytest.param(PAIR_SCHEMA, id="few-hashes", marks=pytest.mark.deep),
    ],
)
def test_rot_of_a_block_or_its_sidecar_hides_no_row_by_key(
    schema: TableSchema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TC-51, scenario 158. Goal: scenario 158: a read by key of a damaged block is right or raises Corruption. Method:
    each page of both files of a block is spoilt in turn under an open tablet, which checks pages of sidecars each time;
    keys together and one by one, as of now and as of before the last flush. The block has older versions of some of
    these keys, and one that was deleted."""
    monkeypatch.setattr(block_module, "CHECKED_FOR_S", -1.0)
    tablet = tablet_of(tmp_path, schema)
    make: dict[int, Any] = {
        id(INT_SCHEMA): lambda k: (k,),
        id(STRING_SCHEMA): lambda k: (f"key {k // 5:06d}", k % 5),
        id(PAIR_SCHEMA): lambda k: colliding_key(k, target=k % 7),
    }
    keys = [make[id(schema)](k) for k in range(60_000)]
    rows = [
        {"op": 1, "offset": n, **dict(zip(schema.key, key, strict=True)), "r": n, "s": "x"}
        for n, key in enumerate(keys)
    ]
    tablet.apply([write_entry(1, schema, [*schema.key, "r", "s"], rows)])
    update = RowOp.UPDATE
    again = [{**row, "op": update, "offset": row["r"] + 60_000, "r": -row["r"]} for row in rows[6006 :: 2 * 5999]]
    gone = {**rows[9], "op": RowOp.DELETE, "offset": 150_000}
    tablet.apply([write_entry(2, schema, [*schema.key, "r", "s"], [*again, gone])])
    assert tablet.flush() is not None
    tablet.apply([write_entry(3, schema, [*schema.key, "r", "s"], [{**rows[11], "op": update, "offset": 160_000}])])
    assert tablet.flush() is not None
    absent = {id(INT_SCHEMA): (-1,), id(STRING_SCHEMA): ("none", 0), id(PAIR_SCHEMA): colliding_key(70_000, target=3)}
    asked = [*keys[7::5999], keys[9], absent[id(schema)]]
    before = got(tablet, schema, asked)
    assert before[-2:] == [None, None] and None not in before[:-2]
    assert [row["r"] for row in before if row and row["r"] < 0] == [row["r"] for row in again]
    assert got(tablet, schema, asked, 2000) == before
    seen: Counter[tuple[int | None, str]] = Counter()
    for path in (tmp_path / name for block in tablet._contents.superblock.blocks for name, _, _ in block.files):
        size = path.stat().st_size
        for at in range(0, size, 1 << 16):
            places = range(at + 7, min(size, at + (1 << 16)), 8)
            data = bytearray(path.read_bytes())
            clean = bytes(data)
            for place in places:
                data[place] ^= 0x55
            with path.open("r+b") as file:
                file.write(data)
            for first, end in ((0, len(asked)), *((n, n + 1) for n in range(len(asked)))):
                for time in (None, 2000):
                    try:
                        assert got(tablet, schema, asked[first:end], time) == before[first:end]
                        seen[time, "right"] += 1
                    except Corruption as error:
                        assert path.name in str(error)
                        seen[time, "corruption"] += 1
            with path.open("r+b") as file:
                file.write(clean)
    assert seen[None, "corruption"] > 5 and seen[2000, "corruption"] > 5
    assert got(tablet, schema, asked) == before
