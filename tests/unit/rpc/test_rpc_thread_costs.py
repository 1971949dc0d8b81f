"""What scans and Gets cost the threads on which they run, in steps, beside what is stated."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.fs import RealDisk
from nyala.replica.rows import (
    Column,
    ColumnType,
    Predicate,
    RowOp,
    TableSchema,
    WriteMeta,
    crc32c,
    encode_batch,
)
from nyala.replica.rpc import predicate_to_pb, predicates_from_pb
from nyala.replica.tablet import Tablet
from nyala.replica.tablet.key_ranges import SEARCH_ROWS, SEARCHES_MAX
from nyala.replica.tablet.page_crcs import PAGE_BYTES
from nyala.replica.types import Entry, EntryKind, OpId, limits
from tests.harness.tablet_twin import SOURCE, colliding_key, superblock
from tests.unit.tablet.test_tablet_collisions import Life

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="a", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="b", type=ColumnType.INT64, nullable=False),
        Column(id=3, name="t", type=ColumnType.STRING, nullable=False),
        *(Column(id=n, name=f"c{n}", type=ColumnType.INT64) for n in range(4, 121)),
    ),
    ("a", "b", "t"),
)
ALL, EACH = 64, 256
"""Values of the first column of the key, and rows of each in a block."""
BLOCKS, BATCHES = 2, 31
"""As many batches in memory as are not merged into one."""
TYPES = {"a": pa.int64(), "b": pa.int64(), "t": pa.string()}


class Spent(NamedTuple):
    """On the thread of one call."""

    steps: int
    """Calls of functions."""
    longest: int
    """The most of them between two looks at the caller's deadline."""


def spent(work: Callable[[Callable[[], None]], Any]) -> Spent:
    """What `work(stop)` takes, without what the garbage collector calls for objects of earlier tests."""
    total = longest = since = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal since
        since += event in ("call", "c_call")

    def stop() -> None:
        nonlocal total, longest, since
        total, longest, since = total + since, max(longest, since), 0

    gc.disable()
    sys.setprofile(count)
    try:
        work(stop)
    finally:
        sys.setprofile(None)
        gc.enable()
    stop()
    return Spent(total, longest)


@pytest.fixture(scope="module")
def tablet(tmp_path_factory: pytest.TempPathFactory) -> Tablet:
    """A tablet with a key of three columns. Each block has all values of the first two, and a third of its own."""
    disk = RealDisk(tmp_path_factory.mktemp("steps"))
    disk.mkdir("tablet-meta")
    made = Tablet.create(disk, superblock(SCHEMA))
    for step in range(BLOCKS):
        write(made, step, step, np.repeat(np.arange(ALL), EACH), np.tile(np.arange(EACH), ALL))
        assert made.flush() is not None
    for step in range(BATCHES):
        write(made, BLOCKS, BLOCKS + step, np.arange(8), np.repeat(step, 8))
    return made


def write(tablet: Tablet, third: int, step: int, a: Any, b: Any) -> None:
    """Apply one batch of rows with these keys."""
    count = len(a)
    offsets = pa.array(np.arange(count) + step * ALL * EACH)
    arrays = [
        pa.array(a),
        pa.array(b),
        pa.array([f"text {third}"] * count),
        pa.array([int(RowOp.UPSERT)] * count, pa.uint8()),
    ]
    payload = encode_batch(pa.RecordBatch.from_arrays([*arrays, offsets], schema=SCHEMA.wire_schema((1, 2, 3))))
    meta = WriteMeta(column_ids=(1, 2, 3), rows=count, source=SOURCE).encode()
    tablet.apply([Entry(OpId(1, step + 1), EntryKind.WRITE, 1000 + step, 1, meta, payload, crc32c(payload))])


def lists(count: int, values: int, column: str = "b") -> list[Predicate]:
    return [Predicate(column, "in", tuple(range(values)))] * count


FIRST = lists(1, ALL, "a")
SCANS: dict[str, list[Predicate]] = {
    "one list on each column": FIRST + lists(1, 256),
    "two lists on the second column": FIRST + lists(2, 128),
    "many lists of a few values": FIRST + lists(900, 4),
    "many lists of many values": FIRST + lists(389, 256),
    "many lists on the first column": lists(390, 256, "a"),
    "one list of all values": lists(1, limits.SCAN_VALUES_MAX),
    "few lists of very many values": lists(4, limits.SCAN_VALUES_MAX // 4, "a"),
    "comparisons": [Predicate("a", op, (n,)) for n in range(250) for op in (">", "<", "=", "!=")],
    "lists of texts": FIRST + [Predicate("t", "in", tuple(map(str, range(k, k + 256)))) for k in range(380)],
    "values of another type": FIRST + [Predicate("b", "in", (0.5, *range(99)))] * 100,
}
GETS = {"of a block": "text 0", "of memory": f"text {BLOCKS}", "of no row": "nothing"}


@pytest.mark.deep
@pytest.mark.parametrize("name", SCANS, ids=lambda name: name.replace(" ", "-"))
def test_scan_takes_no_more_steps_of_a_thread_than_is_stated(name: str, tablet: Tablet) -> None:
    """IN-60. Goal: a scan's steps on its thread are bounded, in total and after its caller has left. Method: of a table
    with a key of several columns, the conditions that multiply most; steps are counted, in total and between two looks
    at the caller's deadline."""
    predicates = SCANS[name]
    messages = [predicate_to_pb(p, pa.float64() if 0.5 in p.values else TYPES[p.column]) for p in predicates]

    def scan(stop: Callable[[], None]) -> None:
        list(tablet.scan(None, predicates_from_pb(messages, stop), count_only=True, stop=stop))

    found = spent(scan)
    searched = BLOCKS * 2 * min(SEARCHES_MAX, ALL * EACH // SEARCH_ROWS)
    values = sum(len(p.values) for p in predicates)
    bound, conditions = limits.THREADS["scan"], len(predicates) * (BLOCKS + BATCHES + 1)
    steps = bound.most(values=values, conditions_of_pieces=conditions, searches=searched)
    assert found.longest <= bound.look, found
    assert found.steps <= steps, f"{found} of {steps}"


TIMES = {"now": None, "before a flush": 1000, "before writes in memory": 1000 + BLOCKS + 2}


def most_of_get(tablet: Tablet, of_one_hash: int = 0) -> int:
    """The steps that a Get may take in this tablet, at whatever time."""
    blocks, columns = tablet._contents.stores.blocks, len(tablet.schema.key) + 1
    return limits.THREADS["get"].most(
        keys_of_one_hash=of_one_hash,
        columns_of_halvings=columns * sum(block.rows.bit_length() for block in blocks),
        pieces=BATCHES + 1,
        pages=sum(-(-length // PAGE_BYTES) for block in blocks for _, length, _ in block.info.files),
    )


@pytest.mark.a_third
@pytest.mark.parametrize("time", TIMES, ids=lambda time: time.replace(" ", "-"))
@pytest.mark.parametrize("name", GETS, ids=lambda name: name.replace(" ", "-"))
def test_get_takes_no_more_steps_of_a_thread_than_is_stated(name: str, time: str, tablet: Tablet) -> None:
    """IN-60. Goal and method: as above, for the most keys that one call may have, in a block, in many batches in
    memory, and in none; as of now and as of earlier times."""
    count = limits.GET_KEYS_MAX
    keys = [pa.array(np.arange(count) % 64), pa.array(np.arange(count) // 64), pa.array([GETS[name]] * count)]
    payload = encode_batch(pa.record_batch(keys, names=["a", "b", "t"]))
    found = spent(lambda stop: tablet.get(tablet.keys(payload), stop=stop, snapshot_time=TIMES[time]))
    assert found.longest <= limits.THREADS["get"].look, found
    assert found.steps <= most_of_get(tablet), found


@pytest.mark.a_third
@pytest.mark.parametrize(("width", "rows"), [(1, 1 << 17), (200, 1 << 11)], ids=["many-rows", "wide-key"])
def test_get_of_an_earlier_time_does_not_read_the_table(width: int, rows: int, tmp_path: Path) -> None:
    """IN-60. Goal: a Get with a snapshot time costs as much as the keys that it gives, however many rows there are.
    Method: keys that a block does not have, read as of before the last flush, so that any block and memory may have had
    them; of one column, and of many that are equal in all but the last. Steps are counted."""
    key = [Column(id=n, name=f"k{n}", type=ColumnType.INT64, nullable=False) for n in range(1, width + 1)]
    schema = TableSchema(1, tuple(key), tuple(column.name for column in key))
    disk = RealDisk(tmp_path)
    disk.mkdir("tablet-meta")
    made, ids = Tablet.create(disk, superblock(schema)), tuple(column.id for column in key)
    for step, numbers in enumerate((2 * np.arange(rows), np.array([-1]), np.array([-2]))):
        count = len(numbers)
        arrays = [pa.array(np.zeros(count, np.int64))] * (width - 1) + [pa.array(numbers)]
        arrays += [pa.array([int(RowOp.UPSERT)] * count, pa.uint8()), pa.array(np.arange(count) + step * rows)]
        payload = encode_batch(pa.RecordBatch.from_arrays(arrays, schema=schema.wire_schema(ids)))
        meta = WriteMeta(column_ids=ids, rows=count, source=SOURCE).encode()
        made.apply([Entry(OpId(1, step + 1), EntryKind.WRITE, 1000 + step, 1, meta, payload, crc32c(payload))])
        assert step == 2 or made.flush() is not None
    asked = pa.array(np.linspace(0, 2 * rows - 8, 256).astype(np.int64) | 1)
    others = [pa.array(np.zeros(256, np.int64))] * (width - 1)
    keys = made.keys(encode_batch(pa.record_batch([*others, asked], names=list(schema.key))))
    found = spent(lambda stop: made.get(keys, stop=stop, snapshot_time=1000))
    assert found.longest <= limits.THREADS["get"].look, found
    assert found.steps <= most_of_get(made), f"{found} of {most_of_get(made)}"


@pytest.mark.deep
def test_get_of_many_keys_of_one_hash_takes_as_many_steps_as_others(tmp_path: Path) -> None:
    """IN-60. Goal: keys that are made up to have one hash are not compared one by one with every row that has it.
    Method: the most keys of one call, all of one hash, read at a time before later versions; some have rows, in
    two blocks and in many batches in memory. Steps are counted."""
    keys, stored = [colliding_key(number) for number in range(limits.GET_KEYS_MAX)], 100 * BATCHES
    life, at = Life(tmp_path), 0
    for step in range(BLOCKS):
        life.write(keys[step:stored:BLOCKS])
        assert life.tablet.flush() is not None
    for step in range(BATCHES):
        life.write(keys[step:stored:BATCHES])
        at = at if step > BATCHES // 2 else life.tablet.applied_time
    payload = encode_batch(pa.RecordBatch.from_arrays([pa.array(k) for k in zip(*keys, strict=True)], ["k", "k2"]))
    rows = 0

    def get(stop: Callable[[], None]) -> None:
        nonlocal rows
        rows = life.tablet.get(life.tablet.keys(payload), stop=stop, snapshot_time=at)[0].batch.num_rows

    found, bound = spent(get), limits.THREADS["get"]
    assert rows == stored
    assert found.longest <= bound.look + bound.each["keys_of_one_hash"] * len(keys), found
    assert found.steps <= most_of_get(life.tablet, len(keys)), found


def test_checksum_takes_no_more_steps_of_a_thread_than_is_stated(tmp_path: Path) -> None:
    """IN-60. Goal: a checksum ends soon after its caller has left. Method: of a table of 300 columns, of which batches
    have one and a bit of each of the others, or nothing; steps are counted, in total and between two looks at the
    deadline."""
    columns = tuple(Column(id=n, name=f"c{n}", type=ColumnType.BOOL) for n in range(2, 301))
    schema = TableSchema(1, (Column(id=1, name="k", type=ColumnType.INT64, nullable=False), *columns), ("k",))
    disk = RealDisk(tmp_path)
    disk.mkdir("tablet-meta")
    made, count = Tablet.create(disk, superblock(schema)), 30_000
    arrays = [pa.array(np.arange(count)), pa.array([int(RowOp.UPSERT)] * count, pa.uint8()), pa.array(np.arange(count))]
    payload = encode_batch(pa.RecordBatch.from_arrays(arrays, schema=schema.wire_schema((1,))))
    meta = WriteMeta(column_ids=(1,), rows=count, source=SOURCE).encode()
    made.apply([Entry(OpId(1, 1), EntryKind.WRITE, 1000, 1, meta, payload, crc32c(payload))])
    found, bound = spent(lambda stop: made.checksum(stop=stop)), limits.THREADS["checksum"]
    pieces = 3  # of at most a megabyte
    assert found.longest <= bound.look, found
    assert found.steps <= bound.most(pieces=pieces, columns_of_pieces=pieces * 300), found
