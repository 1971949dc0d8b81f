"""Single rows and whole batches that are wrong; schema versions; reading options; holding files; threads."""

from __future__ import annotations

import random
import re
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.rows import (
    Column,
    ColumnType,
    ConditionValues,
    PartitionSpec,
    Predicate,
    RowOp,
    TableSchema,
    crc32c,
    route,
)
from nyala.replica.tablet import Superblock, Tablet
from nyala.replica.types import Code, Refused, RowCode, hybrid_from_us
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import (
    INT_SCHEMA,
    PAIR_SCHEMA,
    batch_of,
    colliding_key,
    rows_of,
    schema_entry,
    superblock,
    write_entry,
)

NAMES = ["k", "v", "s", "r"]


def _row(offset: int, key: int, op: int = RowOp.UPSERT, **more: Any) -> dict[str, Any]:
    return {"op": op, "offset": offset, "k": key, "v": offset, "s": "abc", "r": 1, **more}


def _filled(count: int = 100, **more: Any) -> tuple[SimDisk, Tablet]:
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA, **more))
    tablet.apply([write_entry(1, INT_SCHEMA, NAMES, [_row(i, i) for i in range(count)])])
    return disk, tablet


@pytest.mark.deep
def test_check_write_hostile_bytes_are_refused_and_leave_no_trace() -> None:
    """Goal: flipped, cut and extended payloads with right CRCs are refused or decode to a batch that can be applied;
    the server lives and a refused one changes nothing. Method: 400 random damages, each applied as an entry too."""
    rng = random.Random(11)
    disk, tablet = _filled(3)
    good = write_entry(2, INT_SCHEMA, NAMES, [_row(10 + i, i) for i in range(4)])
    ids = INT_SCHEMA.column_ids(NAMES)
    refused = 0
    index = 1
    for _ in range(400):
        data = bytearray(good.payload)
        for _ in range(rng.choice([1, 1, 2, 8])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        payload = bytes(data[: rng.choice([len(data), len(data), rng.randrange(len(data))])])
        before = tablet.checksum()
        index += 1
        entry = good._replace(opid=good.opid._replace(index=index), payload=payload, payload_crc=crc32c(payload))
        try:
            tablet.check_write(1, ids, payload, crc32c(payload), 4)
        except Refused as e:
            assert e.code in (Code.INVALID_BATCH, Code.TOO_LARGE)
            refused += 1
            (result,) = tablet.apply([entry])
            assert result.error is not None and tablet.checksum() == before
        else:
            tablet.apply([entry])
    assert refused > 130
    with pytest.raises(Refused) as wrong_crc:
        tablet.check_write(1, ids, good.payload, good.payload_crc ^ 1, 4)
    assert wrong_crc.value.code is Code.INVALID_BATCH
    disk.close()


def test_check_write_wrong_schema_or_columns_is_refused() -> None:
    """Goal: what cannot be applied gets no index. Method: unknown schema, unknown column, no key, wrong row count."""
    _, tablet = _filled(1)
    entry = write_entry(2, INT_SCHEMA, NAMES, [_row(1, 1)])
    ids = INT_SCHEMA.column_ids(NAMES)
    cases = [(7, ids, 1), (1, (1, 2, 3, 99), 1), (1, (2, 3, 4), 1), (1, (1, 1, 3, 4), 1)]
    for schema_id, column_ids, rows in cases:
        with pytest.raises(Refused) as refused:
            tablet.check_write(schema_id, column_ids, entry.payload, entry.payload_crc, rows)
        assert refused.value.code is Code.SCHEMA_MISMATCH
    with pytest.raises(Refused) as refused:
        tablet.check_write(1, ids, entry.payload, entry.payload_crc, 2)
    assert refused.value.code is Code.INVALID_BATCH


def test_rows_too_large_fail_alone() -> None:
    """Goal: an oversized row or key is that row's error. Method: a value above 1 MB, a key above 16 KB, good rows."""
    schema = TableSchema(
        1,
        (
            Column(id=1, name="k", type=ColumnType.STRING, nullable=False),
            Column(id=2, name="s", type=ColumnType.STRING),
        ),
        ("k",),
    )
    tablet = Tablet.create(SimDisk(), superblock(schema))
    rows = [
        {"op": 1, "offset": 1, "k": "a", "s": "x" * (1 << 20)},
        {"op": 1, "offset": 2, "k": "b" * (17 << 10), "s": ""},
        {"op": 1, "offset": 3, "k": "c", "s": "fine"},
    ]
    (result,) = tablet.apply([write_entry(1, schema, ["k", "s"], rows)])
    assert [(e.offset, e.code) for e in result.row_errors] == [
        (1, RowCode.ROW_TOO_LARGE),
        (2, RowCode.ROW_TOO_LARGE),
    ]
    assert [r["k"] for r in rows_of(tablet.scan(), schema)] == ["c"]


def test_rows_of_another_tablet_fail_alone() -> None:
    """Goal: a row that hashes to another tablet is refused by row. Method: four buckets, one tablet, all keys."""
    spec = PartitionSpec(("k",), 4)
    tablet = Tablet.create(SimDisk(), superblock(INT_SCHEMA, partition=spec, bucket=2))
    rows = [_row(i, i) for i in range(64)]
    (result,) = tablet.apply([write_entry(1, INT_SCHEMA, NAMES, rows)])
    mine = route(batch_of(INT_SCHEMA, NAMES, rows), INT_SCHEMA, spec) == 2
    assert [e.offset for e in result.row_errors] == np.flatnonzero(~mine).tolist()
    assert {e.code for e in result.row_errors} == {RowCode.WRONG_TABLET}
    assert [r["k"] for r in rows_of(tablet.scan(), INT_SCHEMA)] == np.flatnonzero(mine).tolist()


def test_schema_change_fills_added_columns_of_old_rows_and_old_batches() -> None:
    """Goal: blocks, memory and batches of an older schema read as the current one, also after replay.
    Method: rows in a block and in memory, a schema that renames, drops and adds, then batches of both versions."""
    disk, tablet = _filled(2)
    tablet.flush()
    newer = TableSchema(
        2,
        (
            Column(id=1, name="key", type=ColumnType.INT64, nullable=False),
            Column(id=4, name="r", type=ColumnType.INT32, nullable=False),
            Column(id=7, name="extra", type=ColumnType.STRING, nullable=False, default="none"),
            Column(id=8, name="more", type=ColumnType.DOUBLE),
        ),
        ("key",),
    )
    log = [
        write_entry(2, INT_SCHEMA, NAMES, [_row(200, 2)]),
        schema_entry(3, newer),
        write_entry(4, INT_SCHEMA, NAMES, [_row(201, 3), _row(202, 0, r=9)]),
        write_entry(
            5,
            newer,
            ["key", "r", "extra"],
            [
                {"op": 2, "offset": 203, "key": 4, "r": 4, "extra": "e"},
                {"op": 3, "offset": 204, "key": 1, "r": 5, "extra": "u"},
            ],
        ),
    ]
    want = [
        {"key": 0, "r": 9, "extra": "none", "more": None},
        {"key": 1, "r": 5, "extra": "u", "more": None},
        {"key": 2, "r": 1, "extra": "none", "more": None},
        {"key": 3, "r": 1, "extra": "none", "more": None},
        {"key": 4, "r": 4, "extra": "e", "more": None},
    ]
    assert [r.error for r in tablet.apply(log)] == [None] * 4
    assert rows_of(tablet.scan(), newer) == want
    again = Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))
    again.apply(log)
    again.flush()
    again = Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))
    assert again.schema == newer
    assert rows_of(again.scan(), newer) == want
    assert again.checksum() == tablet.checksum()
    disk.close()


def test_schema_change_that_breaks_rows_is_refused() -> None:
    """Goal: a schema that old rows cannot satisfy changes nothing. Method: another key, a type, a required column."""
    _, tablet = _filled(2)
    columns = INT_SCHEMA.columns
    bad = [
        TableSchema(2, (Column(id=1, name="k", type=ColumnType.INT32, nullable=False), *columns[1:]), ("k",)),
        TableSchema(2, (columns[0], Column(id=2, name="v", type=ColumnType.STRING), *columns[2:]), ("k",)),
        TableSchema(2, (*columns, Column(id=9, name="z", type=ColumnType.INT32, nullable=False)), ("k",)),
        INT_SCHEMA,
    ]
    results = tablet.apply([schema_entry(2 + i, s) for i, s in enumerate(bad)])
    assert all(r.error is not None for r in results)
    assert tablet.schema is INT_SCHEMA or tablet.schema == INT_SCHEMA


def test_scan_predicates_limit_and_columns_agree_with_plain_filtering() -> None:
    """IN-61. Goal: pruning by block never loses a row. Method: rows in two blocks and in memory, every operator and
    bound, and lists as they come over the network."""
    disk, tablet = _filled(40)
    tablet.flush()
    tablet.apply([write_entry(2, INT_SCHEMA, NAMES, [_row(100 + i, 40 + i) for i in range(40)])])
    tablet.flush()
    tablet.apply([write_entry(3, INT_SCHEMA, NAMES, [_row(200 + i, 75 + i) for i in range(20)])])
    keys = list(range(95))
    tests = {"<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__, "=": int.__eq__, "!=": int.__ne__}
    for bound in (-1, 0, 39, 40, 41, 79, 94, 95):
        for op, holds in tests.items():
            got = [r["k"] for r in rows_of(tablet.scan(predicates=[Predicate("k", op, (bound,))]), INT_SCHEMA)]
            assert got == [k for k in keys if holds(k, bound)], (op, bound)
        # As a list comes over the network: both ends of every block, and beyond them.
        listed = Predicate("k", "in", ConditionValues(pa.array([bound, 1000], pa.int64())))
        found = [r["k"] for r in rows_of(tablet.scan(predicates=[listed]), INT_SCHEMA)]
        assert found == [k for k in keys if k == bound], bound
    got = rows_of(tablet.scan(["k"], [Predicate("k", "in", (3, 50, 94, 200))]), INT_SCHEMA)
    assert got == [{"k": 3}, {"k": 50}, {"k": 94}]
    assert sum(b.num_rows for b in tablet.scan(limit=50)) == 50
    with pytest.raises(Refused):
        tablet.scan(["nope"])
    disk.close()


def test_refusal_of_a_read_below_the_history_speaks_of_days_and_times() -> None:
    """IN-71. Goal: a person learns how far back the history reaches and what to do, not two raw numbers. Method: a row
    written at a known second, read an hour before it."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA, retention_us=60_000_000))
    at_us = 1_000_000_000_000_000
    tablet.apply([write_entry(1, INT_SCHEMA, NAMES, [_row(1, 0)], time=hybrid_from_us(at_us))])
    with pytest.raises(Refused) as refused:
        tablet.scan(snapshot_time=hybrid_from_us(at_us - 3_600_000_000))
    said = str(refused.value)
    assert "reaches back to 2001-09-09T01:45:40.000000Z, and the read is of 2001-09-09T00:46:40.000000Z" in said
    assert "read a later time" in said and "history_retention_s" in said
    assert not re.search(r"\d{15}", said)
    disk.close()


def test_scan_below_the_history_horizon_is_refused_not_partial() -> None:
    """CN-24: a snapshot older than the retention is refused, at the horizon it is whole, also after compaction.
    Method: overwrite a key over time, compact, read at each time."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA, retention_us=2))
    for index in range(1, 9):
        rows = [_row(10 * index, 0), _row(10 * index + 1, index)]
        tablet.apply([write_entry(index, INT_SCHEMA, NAMES, rows, time=index << 12)])
        tablet.flush()
    while tablet.compact():
        pass
    horizon = tablet.history_horizon
    assert horizon >= 6 << 12
    with pytest.raises(Refused) as refused:
        tablet.scan(snapshot_time=horizon - 1)
    assert refused.value.code is Code.HISTORY_GONE and refused.value.detail == str(horizon)
    for index in (6, 7, 8):
        if index << 12 >= horizon:
            (row,) = rows_of(tablet.scan(snapshot_time=index << 12, predicates=[Predicate("k", "=", (0,))]), INT_SCHEMA)
            assert row["v"] == 10 * index
    disk.close()


def test_hold_keeps_named_files_through_a_compaction() -> None:
    """Goal: a copy session can read every file of its superblock to the end. Method: compact inside the hold."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    for index in range(1, 5):
        tablet.apply([write_entry(index, INT_SCHEMA, NAMES, [_row(index, index)])])
        tablet.flush()
    with tablet.hold() as held:
        assert tablet.compact()
        assert len(tablet.superblock.blocks) == 1
        for block in held.blocks:
            assert all(disk.size(path) == length for path, length, _ in block.files)
        assert Tablet.open(disk, held).checksum() == tablet.checksum()
    assert {f"data/{n}" for n in disk.listdir("data")} == {p for p, _, _ in tablet.block_files()}
    disk.close()


def test_closed_tablet_leaves_the_files_alone_and_answers_nobody_with_less_than_its_rows() -> None:
    """TC-39, TC-40. Goal: a flush, a compaction, a scan or a copy session that comes late touches nothing: the files
    may be a tombstone's by now, or another object's. Method: four blocks that are worth a compaction and rows that
    are worth a flush, a scan that has begun; close."""
    disk, tablet = _filled(0)
    for index in range(2, 6):
        tablet.apply([write_entry(index, INT_SCHEMA, NAMES, [_row(index, index)])])
        tablet.flush()
    tablet.apply([write_entry(6, INT_SCHEMA, NAMES, [_row(6, 6)])])
    assert tablet.wants_compaction()
    begun, before, files = tablet.scan(), Superblock.load(disk, tablet.tablet_id), disk.listdir("data")
    tablet.close()
    assert tablet.closed and tablet.flush() is None and not tablet.compact()
    assert Superblock.load(disk, tablet.tablet_id) == before == tablet.superblock and disk.listdir("data") == files
    assert sum(batch.num_rows for batch in begun) == 5, "its own blocks and rows"
    for late in (tablet.scan, tablet.checksum, lambda: tablet.hold().__enter__()):
        with pytest.raises(Refused) as refused:
            late()
        assert refused.value.code is Code.NOT_READY
    disk.close()


@pytest.mark.deep
def test_one_row_writes_leave_few_batches_and_bounded_memory() -> None:
    """Goal: 1000 one-row writes are not 1000 batches, and a row costs a bounded number of bytes beyond its payload.
    Method: count chunks, and memory against the rows' own bytes."""
    tablet = Tablet.create(SimDisk(), superblock(INT_SCHEMA))
    for index in range(1, 1001):
        tablet.apply([write_entry(index, INT_SCHEMA, NAMES, [_row(index, index)])])
    assert len(tablet._contents.stores.active.chunks) < 100
    assert tablet.memory_bytes < 1000 * (1.3 * 40 + 48)


def test_keys_of_one_hash_stay_apart_everywhere() -> None:
    """Goal: a true hash collision never merges two keys. Method: 50 keys of one hash, in memory, then in a block, each
    updated and every other deleted by its own key."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(PAIR_SCHEMA))
    names = ["k", "k2", "v", "r"]

    def rows(base: int, op: int, numbers: range) -> list[dict[str, Any]]:
        return [
            {"op": op, "offset": base + n, "k": colliding_key(n)[0], "k2": colliding_key(n)[1], "v": n, "r": base}
            for n in numbers
        ]

    tablet.apply([write_entry(1, PAIR_SCHEMA, names, rows(0, RowOp.INSERT, range(50)))])
    tablet.flush()
    (result,) = tablet.apply([write_entry(2, PAIR_SCHEMA, names, rows(100, RowOp.DELETE, range(0, 50, 2)))])
    assert result.row_errors == ()
    (result,) = tablet.apply([write_entry(3, PAIR_SCHEMA, names, rows(200, RowOp.INSERT, range(50)))])
    assert [e.offset for e in result.row_errors] == [200 + n for n in range(1, 50, 2)]
    assert [r["r"] for r in rows_of(tablet.scan(), PAIR_SCHEMA)] == [200, 0] * 25
    disk.close()


@pytest.mark.deep
def test_scans_beside_apply_flush_and_compaction_see_one_moment() -> None:
    """Goal: every scan sees whole batches: all keys carry the value of one batch. Method: a writer upserts 200 keys
    with one value per batch and deletes or re-inserts a marker, while others scan, flush and compact."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    tablet.apply([write_entry(1, INT_SCHEMA, NAMES, [_row(i, i, v=0) for i in range(200)])])
    failures: list[BaseException] = []
    stop = threading.Event()

    def guarded(work: Any) -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as e:  # noqa: BLE001  A thread's failure is the test's.
            failures.append(e)

    def scan() -> None:
        values = [v for b in tablet.scan(["v"]) for v in b.column(0).to_pylist()]
        assert len(values) == 200 and len(set(values)) == 1

    def maintain() -> None:
        tablet.flush()
        tablet.compact()

    threads = [threading.Thread(target=guarded, args=(w,)) for w in (scan, scan, maintain)]
    for thread in threads:
        thread.start()
    for index in range(2, 150):
        tablet.apply([write_entry(index, INT_SCHEMA, NAMES, [_row(1000 * index + i, i, v=index) for i in range(200)])])
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert {r["v"] for r in rows_of(tablet.scan(), INT_SCHEMA)} == {149}
    disk.close()


def test_ignore_null_leaves_columns_as_they_are_row_by_row() -> None:
    """Goal: with `ignore_null`, a null of an upsert or update leaves the stored value, a new key gets defaults, and
    rows of one key are applied in order; in inserts and other batches a null is a null. Method: one batch of all kinds,
    sources and columns that hold each pattern of nulls, then the table."""
    _, tablet = _filled(4)
    nothing = {"v": None, "s": None, "r": None}
    rows = [
        _row(100, 0, **nothing),
        _row(101, 1, **{**nothing, "v": 7}),
        _row(102, 1, **{**nothing, "r": 8}),
        _row(103, 2, RowOp.UPDATE, **{**nothing, "s": "new"}),
        _row(104, 20, **{**nothing, "r": 5}),
        _row(105, 21, **{**nothing, "v": 5}),
        _row(106, 22, RowOp.INSERT, **{**nothing, "s": "x", "r": 1}),
        _row(107, 23, RowOp.INSERT, **{**nothing, "r": 1}),
        _row(108, 3, RowOp.DELETE, **nothing),
    ]
    (result,) = tablet.apply([write_entry(2, INT_SCHEMA, NAMES, rows, ignore_null=True)])
    required = RowCode.NULL_IN_REQUIRED_COLUMN
    assert [(e.offset, e.code, e.column) for e in result.row_errors] == [(105, required, "r"), (107, required, "s")]
    assert [(r["k"], r["v"], r["s"], r["r"]) for r in rows_of(tablet.scan(), INT_SCHEMA)] == [
        (0, 0, "abc", 1), (1, 7, "abc", 8), (2, 2, "new", 1), (20, None, "-", 5), (22, None, "x", 1),
    ]  # fmt: skip
    (result,) = tablet.apply([write_entry(3, INT_SCHEMA, NAMES, [_row(200, 1, v=None)])])
    assert not result.row_errors and rows_of(tablet.scan(), INT_SCHEMA)[1]["v"] is None
