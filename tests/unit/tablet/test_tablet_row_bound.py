"""The length that a row may reach by batches with some of its columns only, and the cost of applying such a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.rows import Column, ColumnType, RowOp, TableSchema, crc32c, encode_batch, key_hash, lengths_at
from nyala.replica.tablet import Superblock, Tablet
from nyala.replica.tablet.block import needles_of
from nyala.replica.tablet.hash_index import rotate
from nyala.replica.tablet.kept import portions
from nyala.replica.types import Entry, RowCode, limits
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import batch_of, rows_of, schema_entry, superblock, write_entry

MOST = limits.ROW_SIZE_BYTES_MAX
LONG = "x" * 600_000
TEXTS = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.STRING, nullable=False),
        *(Column(id=n, name=f"t{n}", type=ColumnType.STRING) for n in range(2, 6)),
        Column(id=6, name="n", type=ColumnType.INT64),
    ),
    ("k",),
)
DEFAULTS = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="v", type=ColumnType.STRING),
        Column(id=3, name="d", type=ColumnType.BINARY, nullable=False, default=b"d" * 700_000),
    ),
    ("k",),
)
Rows = list[dict[str, Any]]
UPSERT, UPDATE, INSERT = RowOp.UPSERT, RowOp.UPDATE, RowOp.INSERT


class Life:
    """A tablet on a disk, and the log that it applied."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema, self.disk, self.log = schema, SimDisk(), list[Entry]()
        self.tablet = Tablet.create(self.disk, superblock(schema))
        self._offset = 0

    def write(self, names: list[str], rows: Rows, *, op: RowOp = UPSERT, bounded: bool = True, **meta: Any) -> Any:
        """The result of one batch of a source."""
        numbered = [{"op": op, **row, "offset": self._offset + n} for n, row in enumerate(rows)]
        self._offset += len(rows)
        entry = write_entry(len(self.log) + 1, self.schema, names, numbered, rows_bounded=bounded, **meta)
        return self.apply(entry)

    def apply(self, entry: Entry) -> Any:
        self.log.append(entry)
        (result,) = self.tablet.apply([entry])
        return result

    def reopen(self) -> None:
        """Open the tablet as after a kill: what was not flushed is applied again from the log."""
        self.tablet.close()
        self.tablet = Tablet.open(self.disk, Superblock.load(self.disk, self.tablet.tablet_id))
        self.tablet.apply(self.log)

    def lengths(self) -> dict[Any, int]:
        """By key: bytes of the row's texts."""
        rows = rows_of(self.tablet.scan(), self.schema)
        return {row["k"]: sum(len(v) for v in row.values() if isinstance(v, str | bytes)) for row in rows}


def errors_of(result: Any) -> list[tuple[int, RowCode, str]]:
    return [(e.offset, e.code, e.column) for e in result.row_errors]


@pytest.mark.parametrize("place", ["memory", "frozen", "block"])
@pytest.mark.parametrize("op", [UPSERT, UPDATE, RowOp.UPDATE_IGNORE])
def test_row_does_not_grow_past_its_bound_by_updates_of_single_columns(op: RowOp, place: str) -> None:
    """IN-60. Goal: no sum of writes makes a row that a scan cannot send: the one that would is an error of its row, and
    the rows beside it are applied. Method: a text of 600 KB in one column, wherever the tablet has it; then one in
    another column, between rows that are fine, one of them of exactly the bound."""
    life = Life(TEXTS)
    life.write(["k", "t2"], [{"k": key, "t2": LONG} for key in "abc"])
    if place == "block":
        life.tablet.flush()
    if place == "frozen":
        life.tablet._contents.freeze()
    full = "y" * (MOST - len(LONG) - 1)
    result = life.write(["k", "t3"], [{"k": "a", "t3": full}, {"k": "b", "t3": full + "y"}, {"k": "c"}], op=op)
    assert errors_of(result) == [(4, RowCode.ROW_TOO_LARGE, "")] and result.rows_applied == 2
    assert life.lengths() == {"a": MOST, "b": len(LONG) + 1, "c": len(LONG) + 1}
    assert not life.write(["k", "n"], [{"k": "a", "n": 7}]).row_errors, "what does not make it longer is applied"
    shorter = life.write(["k", "t2"], [{"k": "a", "t2": "short"}])
    assert not shorter.row_errors and life.lengths()["a"] == len(full) + 6
    life.disk.close()


def test_nulls_that_leave_a_column_as_it_is_count_what_stays() -> None:
    """IN-60. Goal: `ignore_null` is no way round the bound. Method: one batch gives two columns in turns, null in the
    other; a null of an insert is a null, and counts nothing."""
    life = Life(TEXTS)
    rows = [{"k": "a", "t2": LONG, "t3": None}, {"k": "a", "t2": None, "t3": LONG}, {"k": "b", "t2": None, "t3": LONG}]
    result = life.write(["k", "t2", "t3"], rows, ignore_null=True)
    assert errors_of(result) == [(1, RowCode.ROW_TOO_LARGE, "")]
    result = life.write(["k", "t2", "t3"], [{"k": "c", "t2": LONG, "t3": None}], op=INSERT, ignore_null=True)
    assert not result.row_errors and life.lengths() == {"a": 600_001, "b": 600_001, "c": 600_001}
    life.disk.close()


@pytest.mark.parametrize("op", [UPSERT, INSERT, RowOp.INSERT_IGNORE])
def test_default_counts_for_the_bound_of_a_new_row(op: RowOp) -> None:
    """IN-60. Goal: the default of a column that is left out counts as if it were given. Method: a default of 700 KB
    beside texts of 300 and 400 KB; and a later deletion of the key in the same batch does not hide the error."""
    life = Life(DEFAULTS)
    rows: Rows = [{"k": 1, "v": "x" * 300_000}, {"k": 2, "v": "x" * 400_000}, {"k": 2, "op": RowOp.DELETE_IGNORE}]
    result = life.write(["k", "v"], rows, op=op)
    assert errors_of(result) == [(1, RowCode.ROW_TOO_LARGE, "")] and list(life.lengths()) == [1]
    life.disk.close()


def test_entries_of_before_the_rule_keep_their_outcome() -> None:
    """IN-21. Goal: a log of an older build gives the rows that it gave, and entries after it are bounded. Method: the
    same batches with and without the leader's mark, applied and applied again."""
    life = Life(TEXTS)
    for name in ("t2", "t3", "t4"):
        assert not life.write(["k", name], [{"k": "a", name: LONG}], bounded=False).row_errors
    result = life.write(["k", "t5"], [{"k": "a", "t5": "z"}])
    assert errors_of(result) == [(3, RowCode.ROW_TOO_LARGE, "")]
    before = life.tablet.checksum()
    for _ in range(2):
        assert life.lengths() == {"a": 1_800_001}
        life.reopen()
        assert life.tablet.checksum() == before
        life.tablet.flush()
    life.disk.close()


@pytest.mark.parametrize("flushed", [False, True])
def test_batch_of_a_source_that_comes_again_has_the_same_row_errors(flushed: bool) -> None:
    """CN-24. Goal: exactly once holds for rows that are too long: a batch that comes again is told the same, also if
    the row has become shorter meanwhile, and changes nothing. Method: repeat it after a later write, and after a
    restart from the log or from a flush."""
    life = Life(TEXTS)
    life.write(["k", "t2"], [{"k": key, "t2": LONG} for key in "ab"])
    names, rows = ["k", "t3"], [{"k": "a", "t3": LONG}, {"k": "b", "t3": "fine"}]
    first = life.write(names, rows)
    again = [{**row, "op": UPSERT, "offset": 2 + n} for n, row in enumerate(rows)]
    life.write(["k", "t2"], [{"k": "a", "t2": "short"}])
    for _ in range(2):
        result = life.apply(write_entry(len(life.log) + 1, TEXTS, names, again, rows_bounded=True))
        assert result.row_errors == first.row_errors != () and result.rows_replayed == 2 and not result.rows_applied
        assert life.lengths() == {"a": 6, "b": 600_005}
        if flushed:
            life.tablet.flush()
        life.reopen()
    life.disk.close()


def test_small_writes_with_and_without_the_mark_are_not_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a write that is applied together with others has its own rule. Method: a bound of 8 bytes; writes of
    clients in one call, every other one marked, each of which makes its row longer."""
    monkeypatch.setattr(limits, "ROW_SIZE_BYTES_MAX", 8)
    life = Life(TEXTS)
    life.write(["k", "t2"], [{"k": f"{n}", "t2": "four"} for n in range(8)])
    log = [
        write_entry(2 + n, TEXTS, ["k", "t3"], [{"op": UPSERT, "offset": 0, "k": f"{n}", "t3": "four"}], source=None,
                    client_id="c", sequence=n + 1, rows_bounded=n % 4 < 2)
        for n in range(8)
    ]  # fmt: skip
    assert [bool(r.row_errors) for r in life.tablet.apply(log)] == [n % 4 < 2 for n in range(8)]
    life.disk.close()


def hidden(key: str, value: str) -> Any:
    """A batch of one row whose `t2` is null, over bytes that are not."""
    batch = batch_of(TEXTS, ["k", "t2"], [{"op": INSERT, "offset": 0, "k": key, "t2": value}])
    _, offsets, data = batch.column(1).buffers()
    null = pa.Array.from_buffers(pa.string(), 1, [pa.py_buffer(b"\x00"), offsets, data])
    return pa.RecordBatch.from_arrays([batch.column(0), null, *batch.columns[2:]], schema=batch.schema)


def test_bytes_beneath_a_null_do_not_count_on_any_replica() -> None:
    """CN-24. Goal: the bytes beneath a null do not count for a row's length, because a replica that has flushed or
    copied the row no longer has them. Method: 600 KB beneath a null; then a text of 600 KB, on a replica that has the
    row as it came and on one that has it in a block."""
    batch = hidden("a", LONG)
    assert lengths_at(batch.column(1), np.zeros(1, np.int64)).tolist() == [0]
    first = write_entry(1, TEXTS, ["k", "t2"], [{"op": INSERT, "offset": 0, "k": "a"}])
    payload = encode_batch(batch)
    first = first._replace(payload=payload, payload_crc=crc32c(payload))
    second = write_entry(2, TEXTS, ["k", "t3"], [{"op": UPSERT, "offset": 1, "k": "a", "t3": LONG}], rows_bounded=True)
    sums = []
    for flush in (False, True):
        disk = SimDisk()
        tablet = Tablet.create(disk, superblock(TEXTS))
        tablet.apply([first])
        if flush:
            tablet.flush()
        (result,) = tablet.apply([second])
        assert not result.row_errors
        sums.append(tablet.checksum())
        disk.close()
    assert sums[0] == sums[1]


def test_lengths_are_those_of_the_values_wherever_an_array_begins() -> None:
    """Goal: a slice counts its own nulls and values. Method: every slice of an array, against Python."""
    values = ["", None, "é", "abc", None, "x" * 40, None, "", "ab", None, "z"]
    array = pa.array(values)
    want = [len((v or "").encode()) for v in values]
    for start in range(len(values)):
        at = np.arange(len(values) - start)[::-1]
        assert lengths_at(array.slice(start), at).tolist() == want[start:][::-1]


MARKS = {
    ("t2",): True, ("t2", "t3", "t4", "t5"): False, ("t2", "t3", "t4", "t5", "n"): False, ("n",): False, (): False,
}  # fmt: skip


@pytest.mark.parametrize("given", MARKS)
def test_leader_marks_batches_by_which_a_row_may_become_too_long(given: tuple[str, ...]) -> None:
    """Goal: what cannot make a row longer is not measured. Method: batches of all texts, of some, of none; where nulls
    leave columns as they are, every batch of texts may; where a default may be long, every batch that leaves it out."""
    ids = TEXTS.column_ids(("k", *given))
    assert TEXTS.left_out(ids).may_grow == MARKS[given]
    assert TEXTS.left_out(ids, ignore_null=True).may_grow == ("t2" in given)
    assert DEFAULTS.left_out((1,)).may_grow and DEFAULTS.left_out((1, 2)).may_grow
    assert not DEFAULTS.left_out((1, 2, 3)).may_grow and DEFAULTS.left_out((1, 2, 3), ignore_null=True).may_grow


# ------------------------------------------------------------------------------------------------------------- memory


POOLS: list[Any] = []
"""What was measured with them may be freed later than the test ends."""


def peak_of(life: Life, entry: Entry) -> tuple[int, int]:
    """Bytes of Arrow memory that stay when the entry was applied, and those that were needed for a moment beyond."""
    former = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(former)
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        life.apply(entry)
    finally:
        pa.set_memory_pool(former)
    return pool.bytes_allocated(), pool.max_memory() - pool.bytes_allocated()


@pytest.mark.deep
@pytest.mark.parametrize("place", ["memory", "block"])
def test_update_of_one_column_of_long_rows_copies_a_few_at_a_time(place: str) -> None:
    """IN-60. Goal: what applying a batch takes for a moment does not grow with the rows that it completes. Method: a
    number in each of 40 and 160 rows of 400 KB, in memory and in a block; Arrow's own count of its memory."""
    spare = {}
    for rows in (40, 160):
        life = Life(TEXTS)
        for n in range(0, rows, 20):
            life.write(["k", "t2"], [{"k": f"{m}", "t2": LONG[:400_000]} for m in range(n, n + 20)])
        if place == "block":
            life.tablet.flush()
        numbers = [{"op": UPSERT, "offset": 1000 + n, "k": f"{n}", "n": n} for n in range(rows)]
        stays, spare[rows] = peak_of(life, write_entry(len(life.log) + 1, TEXTS, ["k", "n"], numbers))
        assert stays >= rows * 400_000
        found = rows_of(life.tablet.scan(), TEXTS)
        assert {(r["k"], r["n"], len(r["t2"])) for r in found} == {(f"{n}", n, 400_000) for n in range(rows)}
        before = life.tablet.checksum()
        life.tablet.flush()
        assert life.tablet.checksum() == before
        life.disk.close()
    assert max(spare.values()) < 3 * limits.KEPT_BYTES_MAX, spare


def test_values_that_rows_keep_are_copied_in_portions_as_long_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-60. Goal: a portion stays below its bound, and is not shorter than it must be. Method: rows in memory and in a
    block, whose values take as many bytes as two of them may, one more, and more than a portion alone; a column that
    the older rows do not have counts by its default. Rows without any such column are one portion."""
    flag = Column(id=7, name="flag", type=ColumnType.BOOL)
    note = Column(id=8, name="note", type=ColumnType.STRING, nullable=False, default="noted")
    flagged = TableSchema(1, (*TEXTS.columns[:2], TEXTS.columns[5], flag), ("k",))
    noted = TableSchema(2, (*flagged.columns, note), ("k",))
    kept, fixed = noted.columns[1:], 2 * 4 + 8 + 1 + len("noted")
    monkeypatch.setattr(limits, "KEPT_BYTES_MAX", 1000)
    life = Life(flagged)
    lengths = [500, 500, 400, 601, 1001, 999, 1, 500, 500, 500, 250, 250, 250, 250]
    texts = [{"k": f"{n:02d}", "t2": "x" * (length - fixed)} for n, length in enumerate(lengths) if length > 1]
    life.write(["k", "t2"], texts[:6])
    life.tablet.flush()
    life.write(["k", "t2"], [*texts[6:], {"k": "06"}])
    life.apply(schema_entry(len(life.log) + 1, noted))
    lengths[6] = fixed
    stores = life.tablet._contents.stores
    keys = [pa.array([f"{n:02d}" for n in range(len(lengths))])]
    hashes = rotate(key_hash(keys))
    found = stores.find(hashes, keys, np.zeros(len(hashes), dtype=np.bool_), needles_of(hashes))
    cut = [part.tolist() for part in portions(stores, found, np.arange(len(hashes)), kept)]
    assert cut == [[0, 1], [2], [3], [4], [5], [6, 7], [8, 9], [10, 11, 12, 13]]
    assert [portion.tolist() for portion in portions(stores, found, np.array([4]), kept)] == [[4]]
    assert [*portions(stores, found, np.array([], np.int64), kept)] == []
    assert [len(part) for part in portions(stores, found, np.arange(14), [])] == [14]
    assert [part.tolist() for part in portions(stores, found, np.array([2, 3]), kept)] == [[2], [3]]


def test_few_long_batches_are_not_merged_into_one() -> None:
    """Goal: small batches are merged, and long ones not: a copy of them gains nothing. Method: 33 batches of one row of
    400 KB, then 33 of a byte."""
    for size, chunks in ((400_000, 33), (1, 2)):
        life = Life(TEXTS)
        for n in range(33):
            life.write(["k", "t2"], [{"k": f"{n}", "t2": LONG[:size]}])
        store = life.tablet._contents.stores.active
        assert len(store.chunks) == chunks
        assert store.payload_bytes == sum(c.batch.nbytes for c in store.chunks)
        life.disk.close()
