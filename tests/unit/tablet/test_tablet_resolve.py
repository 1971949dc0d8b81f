"""What is wrong with a row for itself, and how few steps a batch takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.rows import RowError, RowOp, TableSchema, WriteMeta, key_hash
from nyala.replica.tablet import Tablet
from nyala.replica.tablet.hash_index import rotate
from nyala.replica.tablet.resolve import WireRows, check_rows, in_passes
from nyala.replica.types import RowCode, limits
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import (
    INT_SCHEMA,
    STRING_SCHEMA,
    TEXT_SCHEMA,
    batch_of,
    rows_of,
    superblock,
    write_entry,
)


def wire(schema: TableSchema, rows: list[dict[str, Any]], names: list[str] | None = None, **marks: Any) -> WireRows:
    """The rows as they come, numbered from 0, upserts unless they say otherwise; of columns that do not begin where
    their buffers do."""
    names = list(schema.names) if names is None else names
    numbered = [{"op": RowOp.UPSERT, "offset": n, **row} for n, row in enumerate(rows)]
    batch = batch_of(schema, names, [numbered[0] | {"offset": -1}, *numbered]).slice(1)
    return WireRows.of_batch(batch, WriteMeta(schema.column_ids(names), len(rows), client_id="c", **marks))


def hashed(keys: list[Any]) -> Any:
    return key_hash(keys)


def errors(rows: WireRows, schema: TableSchema) -> list[RowError]:
    """The errors of rows in a tablet that may have all keys; the other rows are those that may be applied."""
    found = check_rows(rows, schema, hashed, None, 1 << 30)
    wrong = {error.offset for error in found.errors}
    assert found.rows.offsets.tolist() == [offset for offset in rows.offsets.tolist() if offset not in wrong]
    assert found.hashes.tolist() == rotate(key_hash(found.rows.keys(schema))).tolist()
    return sorted(found.errors)


def test_byte_that_is_no_operation_is_refused() -> None:
    """Goal: a row does what its operation says, or nothing. Method: each of the 256 bytes."""
    found = errors(wire(INT_SCHEMA, [{"op": op, "k": op, "s": "s", "r": 1} for op in range(256)]), INT_SCHEMA)
    unknown = [op for op in range(256) if op not in list(RowOp)]
    assert found == [RowError(op, RowCode.UNKNOWN_OPERATION, "") for op in unknown]


@pytest.mark.parametrize("key_max, row_max", [(10, 20), (20, 10), (10, 10)], ids=["key", "row", "same"])
def test_row_and_key_may_have_as_many_bytes_as_their_bounds(
    key_max: int, row_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a bound on bytes is exact, whatever else is in the batch. Method: keys and values of each length around
    both bounds, each row alone and all in one batch, beside short ones."""
    monkeypatch.setattr(limits, "KEY_SIZE_BYTES_MAX", key_max)
    monkeypatch.setattr(limits, "ROW_SIZE_BYTES_MAX", row_max)
    rows = [
        {"k": "k" * key, "k2": key, "s": "s" * value, "v": 1, "r": 1}
        for key in (0, 1, 9, 10, 11, 19, 20, 21)
        for value in (0, 1, 9, 10, 11, 20, 21)
    ]

    def expected(number: int, row: dict[str, Any]) -> list[RowError]:
        if len(row["k"]) > key_max:
            return [RowError(number, RowCode.ROW_TOO_LARGE, "k")]
        return [RowError(number, RowCode.ROW_TOO_LARGE, "")] * (len(row["k"]) + len(row["s"]) > row_max)

    for row in rows:
        size_bytes = len(row["k"]) + len(row["s"])
        found = check_rows(wire(STRING_SCHEMA, [row]), STRING_SCHEMA, hashed, None, size_bytes)
        assert found.errors == expected(0, row), row
    assert errors(wire(STRING_SCHEMA, rows), STRING_SCHEMA) == [e for n, r in enumerate(rows) for e in expected(n, r)]
    numbers = [{"k": n, "v": 1, "s": "s" * row_max, "r": 1} for n in range(3)]
    assert errors(wire(INT_SCHEMA, numbers), INT_SCHEMA) == [], "a key without texts"
    numbers[1]["s"] += "s"
    assert errors(wire(INT_SCHEMA, numbers), INT_SCHEMA) == [RowError(1, RowCode.ROW_TOO_LARGE, "")]


@pytest.mark.parametrize("ignore_null", [False, True])
def test_required_column_is_given_or_left_as_the_operation_allows(ignore_null: bool) -> None:
    """Goal: no row without a required value is stored. Method: each operation with a null in a required column, and
    without the column; only a deletion needs none, an operation that leaves nulls as they are may have them, and an
    upsert or update may leave the column out."""
    inserts = (RowOp.INSERT, RowOp.INSERT_IGNORE)
    deletes = (RowOp.DELETE, RowOp.DELETE_IGNORE)
    null = [{"op": op, "k": op, "s": "s", "r": None} for op in RowOp]
    wrong = [op for op in RowOp if op not in deletes and (op in inserts or not ignore_null)]
    found = errors(wire(INT_SCHEMA, null, ignore_null=ignore_null), INT_SCHEMA)
    assert found == [RowError(op - 1, RowCode.NULL_IN_REQUIRED_COLUMN, "r") for op in wrong]
    found = errors(wire(INT_SCHEMA, null, ["k", "s"], ignore_null=ignore_null), INT_SCHEMA)
    assert found == [RowError(op - 1, RowCode.NULL_IN_REQUIRED_COLUMN, "r") for op in inserts]
    assert errors(wire(INT_SCHEMA, null, ["k", "r"], ignore_null=True), INT_SCHEMA) != [], "a default helps no null"


@pytest.mark.parametrize("mine", [[], [0], [1, 3], [0, 1, 2, 3]], ids=str)
@pytest.mark.parametrize("known", [False, True], ids=["hashed here", "hashes are known"])
def test_rows_of_other_tablets_are_told_and_left_out(mine: list[int], known: bool) -> None:
    """Goal: a row is applied where its key belongs, with its own hash. Method: of five rows one is wrong for itself,
    and of the others some or all or none belong here; the hashes are computed once, of the rows that are left."""
    rows = wire(INT_SCHEMA, [{"k": k, "s": "s", "r": None if k == 9 else 1} for k in (0, 1, 9, 2, 3)])
    natural = key_hash(rows.keys(INT_SCHEMA)) if known else None
    asked: list[Any] = []

    def hash_keys(keys: list[Any]) -> Any:
        asked.append(keys[0].to_pylist())
        return key_hash(keys)

    def belongs(batch: Any, hashes: Any) -> Any:
        assert batch.schema.names == ["k"] and hashes.tolist() == key_hash(batch.columns).tolist()
        return np.isin(batch.column(0).to_numpy(), mine)

    found = check_rows(rows, INT_SCHEMA, hash_keys, belongs, 0, natural)
    offset = {0: 0, 1: 1, 2: 3, 3: 4}
    others = [RowError(offset[k], RowCode.WRONG_TABLET, "") for k in range(4) if k not in mine]
    assert sorted(found.errors) == sorted([RowError(2, RowCode.NULL_IN_REQUIRED_COLUMN, "r"), *others])
    assert found.rows.offsets.tolist() == [offset[k] for k in mine]
    assert found.rows.columns[1].to_pylist() == mine and len(found.rows.ops) == len(mine)
    assert found.hashes.tolist() == rotate(key_hash([pa.array(mine, pa.int64())])).tolist()
    assert asked == ([] if known else [[0, 1, 2, 3]])


def test_batch_without_a_good_row_is_hashed_by_nobody() -> None:
    """Goal: a batch of errors ends with its errors. Method: one row, without a required value."""

    def never(*_: Any) -> Any:
        raise AssertionError("no row is left")

    found = check_rows(wire(INT_SCHEMA, [{"k": 1, "s": "s", "r": None}]), INT_SCHEMA, never, never, 0)
    assert [e.code for e in found.errors] == [RowCode.NULL_IN_REQUIRED_COLUMN]
    assert not len(found.rows.ops) and not len(found.hashes)


def tablet_with(schema: TableSchema, row: dict[str, Any]) -> Tablet:
    """A tablet with one row, in a block."""
    tablet = Tablet.create(SimDisk(), superblock(schema))
    tablet.apply([write_entry(1, schema, list(schema.names), [{"op": RowOp.INSERT, "offset": 1, **row}])])
    tablet.flush()
    return tablet


def test_upsert_with_nulls_that_keep_looks_for_its_row_in_blocks() -> None:
    """Goal: a null that means `unchanged` keeps what is in a block. Method: an upsert of all columns, one of them null,
    of a key that is in a block only; without the mark the null is stored."""
    for ignore_null, left in ((True, 7), (False, None)):
        tablet = tablet_with(INT_SCHEMA, {"k": 1, "v": 7, "s": "old", "r": 1})
        row = {"op": RowOp.UPSERT, "offset": 2, "k": 1, "v": None, "s": "new", "r": 2}
        tablet.apply([write_entry(2, INT_SCHEMA, list(INT_SCHEMA.names), [row], ignore_null=ignore_null)])
        assert rows_of(tablet.scan(), INT_SCHEMA) == [{"k": 1, "v": left, "s": "new", "r": 2}]


def test_upsert_without_a_null_makes_those_before_it_pointless_whatever_nulls_would_mean() -> None:
    """Goal: a batch that writes one key again and again is one pass. Method: three upserts of all columns of one key,
    where a null would mean `unchanged`: without a null, and with one in the last row."""
    for last, count in ((7, 1), (None, 3)):
        rows = wire(INT_SCHEMA, [{"k": 1, "v": v, "s": "s", "r": 1} for v in (5, 6, last)], ignore_null=True)
        order, rank = in_passes(rows, rotate(key_hash(rows.keys(INT_SCHEMA))), INT_SCHEMA)
        assert order.tolist() == list(range(3 - count, 3)) and rank.tolist() == list(range(count))


def test_default_that_makes_a_new_row_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a bounded row is bounded with what it is filled with. Method: a new row, all columns given, with a null
    that becomes a default of 17 bytes; at the bound, and one byte above."""
    default = TEXT_SCHEMA.column("u").default_length
    for text, wrong in (("x" * 10, False), ("x" * 11, True)):
        monkeypatch.setattr(limits, "ROW_SIZE_BYTES_MAX", default + 2 + 10)
        tablet = Tablet.create(SimDisk(), superblock(TEXT_SCHEMA))
        row = {"op": RowOp.UPSERT, "offset": 1, "k": "k", "v": 1, "s": "s", "r": 1, "t": text, "u": None}
        marks = {"ignore_null": True, "rows_bounded": True}
        (result,) = tablet.apply([write_entry(1, TEXT_SCHEMA, list(TEXT_SCHEMA.names), [row], **marks)])
        assert [error.code for error in result.row_errors] == [RowCode.ROW_TOO_LARGE] * wrong


def test_no_empty_batch_is_kept() -> None:
    """Goal: readers pass over batches with rows only. Method: writes of which each row is new, or none, or none counts:
    by all columns, and by some."""
    tablet = Tablet.create(SimDisk(), superblock(INT_SCHEMA))
    index = 0
    for names in (list(INT_SCHEMA.names), ["k", "r"]):
        for op in (RowOp.UPSERT, RowOp.UPSERT, RowOp.UPDATE, RowOp.DELETE, RowOp.DELETE_IGNORE, RowOp.UPDATE):
            index += 1
            row = {"op": op, "offset": index, "k": 1, "v": 1, "s": "s", "r": index}
            tablet.apply([write_entry(index, INT_SCHEMA, names, [row])])
    chunks = tablet._contents.stores.active.chunks
    assert [chunk.batch.num_rows for chunk in chunks] == [1] * 6
