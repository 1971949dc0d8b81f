"""Scans with conditions that bound the place of rows in the key's order: the same rows are found, and few are read."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nyala.replica.fs import RealDisk
from nyala.replica.rows import (
    Conditions,
    Predicate,
    RowOp,
    ScanSpec,
    TableSchema,
    Term,
    WriteMeta,
    crc32c,
    encode_batch,
)
from nyala.replica.tablet import Tablet
from nyala.replica.tablet import key_ranges as module
from nyala.replica.tablet.page_crcs import PAGE_BYTES, PageChecks
from nyala.replica.tablet.scan import View, pieces
from nyala.replica.types import Entry, EntryKind, OpId
from tests.harness.every_type import KEYS, Kind, values
from tests.harness.tablet_twin import INT_SCHEMA, SOURCE, STRING_SCHEMA, rows_of, superblock, write_entry

OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
TEXTS = ["", "a", "ab", "b", "b\0", "ba", "zürich", "\U0001f600", "￿"]


def tablet_of(root: Path, schema: TableSchema) -> Tablet:
    disk = RealDisk(root)
    disk.mkdir("tablet-meta")
    return Tablet.create(disk, superblock(schema))


def entry_of(schema: TableSchema, names: list[str], batch: Any) -> Entry:
    """The WRITE entry of a batch."""
    payload = encode_batch(batch)
    meta = WriteMeta(column_ids=schema.column_ids(names), rows=batch.num_rows, source=SOURCE)
    return Entry(OpId(1, 1), EntryKind.WRITE, 1000, schema.schema_id, meta.encode(), payload, crc32c(payload))


def meets(row: dict[str, Any], predicates: tuple[Predicate, ...]) -> bool:
    return all(
        row[p.column] in p.values if p.op == "in" else OPERATORS[p.op](row[p.column], p.values[0]) for p in predicates
    )


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tablet, list[int]]:
    """(tablet of keys (text, small number), hybrid times): two blocks whose rows were partly replaced and deleted, and
    rows in memory."""
    tablet = tablet_of(tmp_path_factory.mktemp("pairs"), STRING_SCHEMA)
    names, offset, times = ["k", "k2", "r"], 0, []
    keys = [(text, number) for text in TEXTS for number in range(-6, 6)]
    for step, some in enumerate((keys, keys[::3], keys[1::4], keys[::5]), 1):
        op = RowOp.DELETE if step == 3 else RowOp.UPSERT
        rows = [{"op": op, "offset": offset + n, "k": k, "k2": k2, "r": step} for n, (k, k2) in enumerate(some)]
        offset += len(rows)
        tablet.apply([write_entry(step, STRING_SCHEMA, names[:2] if op is RowOp.DELETE else names, rows)])
        times.append(tablet.applied_time)
        if step in (1, 3):
            assert tablet.flush() is not None
    return tablet, times


CONDITIONS = st.one_of(
    st.builds(Predicate, st.just("k"), st.sampled_from([*OPERATORS]), st.tuples(st.sampled_from([*TEXTS, "aa", "c"]))),
    st.builds(Predicate, st.just("k2"), st.sampled_from([*OPERATORS]), st.tuples(st.integers(-8, 8))),
    st.builds(Predicate, st.just("k"), st.just("in"), st.lists(st.sampled_from([*TEXTS, "aa"]), max_size=6).map(tuple)),
    st.builds(Predicate, st.just("k2"), st.just("in"), st.lists(st.integers(-8, 8), max_size=6).map(tuple)),
    st.builds(Predicate, st.just("r"), st.sampled_from([*OPERATORS]), st.tuples(st.integers(0, 5))),
)


@pytest.mark.deep
@settings(max_examples=300, deadline=None)
@example(
    predicates=(Predicate("k", "in", ("", "a")), Predicate("k2", "in", (-6, -4))), when=3, fence=1, searched=1
)  # runs of one block, some of whose rows were replaced
@given(
    predicates=st.lists(CONDITIONS, max_size=4).map(tuple),
    when=st.integers(0, 3),
    fence=st.sampled_from([1, 3, 50]),
    searched=st.sampled_from([1, 9]),
)
def test_conditions_on_a_key_of_two_columns_find_what_a_filter_finds(
    predicates: tuple[Predicate, ...], when: int, fence: int, searched: int, pairs: tuple[Tablet, list[int]]
) -> None:
    """RD-01. Goal: a search by the order of the key finds exactly the rows that a filter finds. Method: any conditions
    on both columns of a key and on another column, at each time of the table's history, with fences, searches and
    joined runs of a few rows; the reference filters all rows in Python."""
    tablet, times = pairs
    before = module.FENCE_ROWS, module.JOINED_ROWS, module.SEARCH_ROWS
    module.FENCE_ROWS, module.JOINED_ROWS, module.SEARCH_ROWS = fence, fence - 1, searched
    try:
        for block in tablet._contents.stores.blocks:
            block._fences = None
        found = rows_of(tablet.scan(None, predicates, times[when]), STRING_SCHEMA)
        counted = rows_of(tablet.scan(None, (), times[when]), STRING_SCHEMA)
    finally:
        module.FENCE_ROWS, module.JOINED_ROWS, module.SEARCH_ROWS = before
    assert sorted(map(str, found)) == sorted(str(row) for row in counted if meets(row, predicates))


@pytest.mark.a_third
@pytest.mark.parametrize("kind", KEYS, ids=lambda kind: kind.name)
def test_conditions_on_a_key_of_any_type_find_what_a_filter_finds(kind: Kind, tmp_path: Path) -> None:
    """RD-01. Goal: every type that a key may have is searched in the order in which blocks are sorted. Method: a
    block of the type's extreme values and others; each of them in every comparison, and in lists of a few and of many
    values; the reference is Arrow's own comparison of all rows."""
    schema = TableSchema(1, (kind.column(1, "c", nullable=False), *INT_SCHEMA.columns[3:]), ("c",))
    keys = pc.unique(values(kind, 400))
    tablet = tablet_of(tmp_path, schema)
    wire = schema.wire_schema(schema.column_ids(["c", "r"]))
    count = len(keys)
    arrays = [keys, pa.array(range(count), pa.int32()), pa.repeat(pa.scalar(2, pa.uint8()), count)]
    batch = pa.RecordBatch.from_arrays([*arrays, pa.array(range(count), pa.int64())], schema=wire)
    tablet.apply([entry_of(schema, ["c", "r"], batch)])
    assert tablet.flush() is not None
    few = [keys[pos].as_py() for pos in (0, 1, count // 2, count - 1)]
    comparisons = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
    for value in few:
        for op, compare in comparisons.items():
            wanted = set(pc.indices_nonzero(compare(keys, pa.scalar(value, kind.arrow))).to_pylist())
            assert numbers(tablet, Predicate("c", op, (value,))) == wanted, (op, value)
    assert numbers(tablet, Predicate("c", "in", tuple(few))) == {
        keys.index(pa.scalar(v, kind.arrow)).as_py() for v in few
    }
    every = tuple(keys.to_pylist())
    assert numbers(tablet, Predicate("c", "in", every)) == set(range(count))
    assert numbers(tablet, Predicate("c", "in", every * 3)) == set(range(count))
    if kind.name == "decimal_12_2":  # a float is no value of the column, and equals one all the same
        assert numbers(tablet, Predicate("c", "in", (0.0, few[0]))) == {0, keys.index(pa.scalar(0, kind.arrow)).as_py()}


def numbers(tablet: Tablet, predicate: Predicate) -> set[int]:
    """Column `r` of the rows that meet it."""
    found = [n for batch in tablet.scan(["r"], (predicate,)) for n in batch.column(0).to_pylist()]
    assert len(set(found)) == len(found)
    return set(found)


def looked_at(tablet: Tablet, *predicates: Predicate) -> int:
    """How many rows a scan with these conditions asks."""
    view, at = tablet._view(None)
    assert isinstance(view, View)
    conditions = Conditions(predicates, view.schema.arrow)
    spec = ScanSpec(("r",), predicates, at)
    return sum(piece.batch.num_rows for piece in pieces(view, spec, conditions))


def test_scan_by_key_looks_at_few_rows(tmp_path: Path) -> None:
    """RD-01. Goal: the cost of a read by key follows the number of rows asked for, not of those in the table. Method:
    the rows that are looked at, of 100,000 in one block, are counted."""
    tablet = tablet_of(tmp_path, INT_SCHEMA)
    rows = [{"op": RowOp.INSERT, "offset": k, "k": k * 2, "r": k} for k in range(100_000)]
    tablet.apply([write_entry(1, INT_SCHEMA, ["k", "r"], rows)])
    assert tablet.flush() is not None
    assert looked_at(tablet) == 100_000
    assert looked_at(tablet, Predicate("k", "=", (84_000,))) == 1
    assert looked_at(tablet, Predicate("k", "=", (84_001,))) == 0
    assert looked_at(tablet, Predicate("k", "in", (2, 84_000, 84_006, 199_998))) == 1 + 4 + 1
    assert looked_at(tablet, Predicate("k", ">=", (50_000,)), Predicate("k", "<", (52_000,))) == 1000
    assert looked_at(tablet, Predicate("k", ">", (199_998,))) == 0
    assert looked_at(tablet, Predicate("k", "in", tuple(range(100_000, 110_000)))) == 5000
    assert looked_at(tablet, Predicate("k", "in", ())) == 0
    assert looked_at(tablet, Predicate("k", "=", (1.5,))) == 0


@pytest.mark.parametrize("listed", [(), (128, 128), (64,) * 4, (4,) * 50], ids=str)
def test_lists_on_a_key_are_searched_no_more_often_than_pays(listed: tuple[int, ...]) -> None:
    """IN-60, RD-01. Goal: conditions of few bytes hold no thread: what the search costs follows the rows, not the
    lists times one another. Method: a block of 65,536 rows with a key of two columns; a list of 64 values on the
    first, several on the second; `stop` counts the searches, and the runs have every row that meets the lists."""
    columns = [pa.array(np.repeat(np.arange(64), 1024)), pa.array(np.tile(np.arange(1024), 64))]
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    lists = [Predicate("b", "in", tuple(range(0, 1024, 1024 // count))) for count in listed]
    conditions = Conditions([Predicate("a", "in", tuple(range(0, 64, 8))), *lists], schema)
    looks: list[None] = []
    key = module.SortedKey(columns, module.fences_of(columns), PageChecks("none", pa.py_buffer(b"\0"), []))
    runs = key.runs([conditions.terms(name) for name in schema.names], lambda: looks.append(None))
    assert len(looks) <= 65_536 // module.SEARCH_ROWS
    rows = {row for start, end in runs for row in range(start, end)}
    met = conditions.mask(pa.record_batch(columns, schema=schema))
    assert rows >= set(pc.indices_nonzero(met).to_pylist())
    assert len(rows) <= 8 * 1024


def test_fences_are_the_first_row_the_last_and_some_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """RD-01. Goal: a search reads the rows between two fences at most. Method: blocks of one row, of as many as lie
    between two fences, and of some more; the keys are those rows', column by column."""
    monkeypatch.setattr(module, "FENCE_ROWS", 3)
    for count, rows in ((1, [0]), (3, [0, 2]), (4, [0, 3]), (8, [0, 3, 6, 7])):
        fences = module.fences_of([pa.array(range(count)), pa.array([str(n) for n in range(count)])])
        assert fences.rows == rows
        assert [list(keys) for keys in fences.keys] == [rows, [str(row) for row in rows]]


TWO = {
    "one value": ([Term("in", (2,))], [Term("in", (1, 3))], [(9, 10), (11, 12)]),
    "one value, then a range": ([Term("in", (2,))], [Term(">", (1,)), Term("<=", (2,))], [(10, 11)]),
    "a list, then a list": ([Term("in", (0, 3))], [Term("in", (0,))], [(0, 1), (12, 13)]),
    "a range, then a value": ([Term(">", (0,)), Term("<", (3,))], [Term("in", (2,))], [(4, 12)]),
    "a value that is not there": ([Term("in", (7,))], [Term("in", (0,))], []),
    "nothing, then a value": ([], [Term("in", (2,))], [(0, 16)]),
    "neighbours": ([Term("in", (1, 2))], [], [(4, 12)]),
}


@pytest.mark.parametrize("case", TWO)
def test_second_column_is_searched_where_the_first_has_one_value_and_nowhere_else(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RD-01. Goal: no row is missed because a column does not ascend, and few rows are read where it does. Method:
    sixteen rows of two columns of four values; `stop` is called before each search that is made."""
    for name in ("SEARCH_ROWS", "FENCE_ROWS"):
        monkeypatch.setattr(module, name, 1)
    monkeypatch.setattr(module, "JOINED_ROWS", 0)
    columns = [pa.array(np.repeat(np.arange(4), 4)), pa.array(np.tile(np.arange(4), 4))]
    key = module.SortedKey(columns, module.fences_of(columns), PageChecks("none", pa.py_buffer(b"\0"), []))
    first, second, runs = TWO[case]
    looks: list[None] = []
    assert key.runs([first, second], lambda: looks.append(None)) == runs
    assert bool(looks) == bool(first)


def test_search_reads_and_checks_only_rows_between_two_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    """RD-01. Goal: a search reads one page of a block, and no byte that was not checked. Method: a block of 60 rows
    with a fence at every fourth; the cells that are checked for each value and operator, one at a time, lie between
    the same two fences."""
    monkeypatch.setattr(module, "FENCE_ROWS", 4)
    monkeypatch.setattr(module, "SEARCH_ROWS", 1)
    column, cells = pa.array(range(60)), list[Any]()

    class Checks(PageChecks):
        def check(self, columns: Any) -> None:
            cells.extend(columns)

    fences = module.fences_of([column])
    key = module.SortedKey([column], fences, Checks("none", pa.py_buffer(b"\0"), []))
    for value in range(60):
        for op in ("<", "<=", ">", ">="):
            cells.clear()
            [(start, end)] = key.runs([[Term(op, (value,))]]) or [(0, 0)]
            assert all(OPERATORS[op](row, value) == (start <= row < end) for row in range(60))
            assert {len(cell) for cell in cells} <= {1}
            read = {cell[0].as_py() for cell in cells}
            assert len({row // 4 for row in read}) <= 1 and not read.intersection(fences.rows), (op, value)
            assert read or value in fences.rows


def test_search_is_bounded_whatever_the_block_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-60. Goal: as above, in a block of any length. Method: a bound of 8 searches, and lists of 8 and of 9."""
    monkeypatch.setattr(module, "SEARCHES_MAX", 8)
    columns = [pa.array(np.arange(100_000))]
    key = module.SortedKey(columns, module.fences_of(columns), PageChecks("none", pa.py_buffer(b"\0"), []))
    assert len(key.runs([[Term("in", range(0, 80_000, 10_000))]])) == 8
    assert key.runs([[Term("in", range(0, 90_000, 10_000))]]) == [(0, 100_000)]


def test_scan_looks_at_the_deadline_before_each_page_that_it_checks(tmp_path: Path) -> None:
    """IN-60. Goal: a scan whose caller has left checks no further page of a block. Method: a block whose key fills
    several pages; `stop` counts."""
    tablet = tablet_of(tmp_path, INT_SCHEMA)
    rows = [{"op": RowOp.INSERT, "offset": k, "k": k, "r": k} for k in range(40_000)]
    tablet.apply([write_entry(1, INT_SCHEMA, ["k", "r"], rows)])
    assert tablet.flush() is not None
    looks: list[None] = []
    [block] = tablet._contents.stores.blocks
    assert block.batch.column(0).nbytes > 4 * PAGE_BYTES
    block.sorted_key(block.page_checks(lambda: looks.append(None)))
    assert len(looks) >= 4
