"""Rows as columns: taken, gathered, carried to another schema, and their keys numbered, against plain Python."""

from __future__ import annotations

from datetime import date
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.rows import Column, ColumnType, TableSchema
from nyala.replica.tablet import columns as module
from nyala.replica.tablet.columns import (
    KeyNumbers,
    Place,
    conform,
    equal_rows,
    filled,
    gathered,
    key_arrays,
    longest_values,
    select,
    take,
    take_batch,
)
from tests.harness.tablet_twin import STRING_SCHEMA

OLD = TableSchema(1, STRING_SCHEMA.columns, STRING_SCHEMA.key)
NEW = TableSchema(
    2,
    (
        Column(id=6, name="note", type=ColumnType.STRING, nullable=False, default="none"),
        *(column for column in reversed(OLD.columns) if column.name != "v"),
        Column(id=7, name="late", type=ColumnType.INT32),
    ),
    OLD.key,
)
MANY = 4096
"""As many rows or more are taken in another way if their values are equally long."""


def _batch(rows: int, first: int = 0) -> Any:
    numbers = range(first, first + rows)
    values: dict[str, list[Any]] = {
        "v": [None if n % 3 == 0 else n for n in numbers],
        "k": [f"key {n}" for n in numbers],
        "s": ["x" * (n % 4) for n in numbers],
        "k2": [n % 100 for n in numbers],
        "r": [-n for n in numbers],
    }
    arrays = [pa.array(values[c.name], c.arrow_type) for c in OLD.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=OLD.arrow)


def test_longest_values_are_counted_in_bytes_for_texts_and_binaries_only() -> None:
    """Goal: the leader's ceiling of what rows keep is never below what they keep. Method: texts of several bytes a
    letter, a slice, an array without a row, and a column that has no length."""
    columns = [
        (1, pa.array(["a", "ééé", None])),
        (2, pa.array([b"12345", b""])),
        (3, pa.array([1, 2], pa.int64())),
        (4, pa.array([], pa.string())),
        (5, pa.array(["long", "a", "bb"]).slice(1)),
    ]
    assert longest_values(columns) == {1: 6, 2: 5, 4: 0, 5: 2}


VALUES: dict[str, list[Any]] = {
    "one byte": [chr(97 + n % 26) for n in range(50)],
    "one length": [f"{n:05d}" for n in range(50)],
    "one length on the average": ["ab", "a", "abc"] * 17,
    "a length that does not come out": ["ab", "abc"] * 25,
    "nothing": [""] * 50,
    "with nulls": ["abc", None, "xyz"] * 17,
    "long": ["x" * 256 + "ab"[n % 2] for n in range(50)],
    "as long as may be": ["x" * 255 + "ab"[n % 2] for n in range(50)],
    "bytes": [bytes([n]) * 3 for n in range(50)],
    "numbers": list(range(50)),
    "what looks like offsets": [date.fromordinal(719_163 + n) for n in range(0, 150, 3)],
}
QUICK = ("one byte", "one length", "as long as may be", "bytes")


def _taken(array: Any, at: list[int]) -> tuple[Any, bool]:
    """The rows at these positions, and whether they were taken in the quick way: Arrow has allocated nothing."""
    positions, before = np.array(at, np.int64), pa.total_allocated_bytes()
    taken = take(array, positions)
    return taken, bool(at) and pa.total_allocated_bytes() == before


@pytest.mark.parametrize("name", VALUES)
def test_rows_are_taken_as_they_are_however_many(name: str) -> None:
    """Goal: the quick way takes what the other takes. Method: values of each sort, whole and as a slice, few and many
    positions in any order, against Python."""
    rng, whole = Random(3), VALUES[name]
    for start in (0, 7):
        array, values = pa.array(whole).slice(start, 30), whole[start : start + 30]
        for count in (0, 1, MANY - 1, MANY):
            at = [rng.randrange(30) for _ in range(count)]
            taken, quick = _taken(array, at)
            taken.validate(full=True)
            assert taken.type == array.type and taken.to_pylist() == [values[pos] for pos in at]
            assert quick == (name in QUICK and count == MANY)
            assert not quick or taken.buffers()[1].size == 4 * (count + 1)
    empty = take(pa.array(whole).slice(0, 0), np.empty(0, np.int64))
    assert len(empty) == 0


def test_quick_way_leaves_nulls_and_what_is_too_long_to_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: as above, where the values are equally long. Method: bytes beneath a null; as many bytes as offsets of 32
    bits can tell, which are fewer here, and one value more."""
    texts = pa.array(["abc"] * 30)
    valid = pa.array([n != 7 for n in range(30)])
    masked = pa.StringArray.from_buffers(30, *texts.buffers()[1:], valid.buffers()[1])
    taken, quick = _taken(masked, [6, 7] * MANY)
    assert not quick and taken.to_pylist() == ["abc", None] * MANY
    monkeypatch.setattr(module, "_TAKEN_BYTES_MAX", 3 * MANY)
    assert _taken(texts, [0] * MANY)[1] and not _taken(texts, [0] * (MANY + 1))[1]


def test_rows_of_a_batch_are_taken_together() -> None:
    """Goal: a row's values stay side by side. Method: rows in another order, and rows of no column."""
    batch = _batch(20)
    at = np.array([7, 0, 7, 19])
    assert take_batch(batch, at).to_pylist() == [batch.to_pylist()[pos] for pos in at.tolist()]
    assert take_batch(batch, at).schema == batch.schema
    assert take_batch(batch.select([]), at).shape == (4, 0)
    texts, before = pa.record_batch({"k": pa.array(["abc"] * 30)}), pa.total_allocated_bytes()
    taken = take_batch(texts, np.zeros(MANY, np.int64))
    assert taken.num_rows == MANY and pa.total_allocated_bytes() == before, "in the quick way"


def test_rows_of_an_older_schema_are_carried_by_column_id() -> None:
    """Goal: a column is the same one under a later schema, wherever it stands, and a later column has its default.
    Method: rows in the columns of a schema that dropped one, reversed the others, and added two."""
    batch = _batch(6)
    carried = conform(batch, OLD, NEW)
    assert carried.schema == NEW.arrow
    kept = [column.name for column in NEW.columns if OLD.has(column.name)]
    assert carried.select(kept).to_pydict() == batch.select(kept).to_pydict()
    assert carried["note"].to_pylist() == ["none"] * 6 and carried["late"].to_pylist() == [None] * 6
    assert conform(batch, OLD, OLD) is batch
    some = select(batch, OLD, NEW, ["late", "k", "note"])
    assert some.to_pydict() == {"late": [None] * 6, "k": batch["k"].to_pylist(), "note": ["none"] * 6}
    assert some.schema.field("note") == NEW.arrow.field("note")
    assert select(batch, OLD, NEW, ["k"])["k"].buffers()[2].address == batch["k"].buffers()[2].address, "no copy"
    assert filled(NEW.column("note"), 3).to_pylist() == ["none"] * 3
    assert [array.to_pylist()[0] for array in key_arrays(batch, OLD)] == ["key 0", 0]


def test_rows_of_several_places_come_in_the_order_of_the_look_up() -> None:
    """Goal: each row of a look-up gets its own values. Method: rows of two batches, one of an older schema, shuffled;
    all rows in one place."""
    old, new = _batch(10), conform(_batch(10, first=10), OLD, NEW)
    columns = [NEW.column(name) for name in ("r", "note", "k")]
    places = [
        Place(np.array([3, 0]), old, OLD, np.array([9, 2])),
        Place(np.array([1, 4, 2]), new, NEW, np.array([0, 0, 5])),
    ]
    found = gathered(places, lambda place: place.values(columns))
    assert [array.to_pylist() for array in found] == [
        [-2, -10, -15, -9, -10],
        ["none"] * 5,
        ["key 2", "key 10", "key 15", "key 9", "key 10"],
    ]
    (alone,) = gathered(places[:1], lambda place: place.values(columns[:1]))
    assert alone.to_pylist() == [-9, -2]
    assert [array.to_pylist() for array in places[1].keys] == [["key 10", "key 10", "key 15"], [10, 10, 15]]
    assert places[0].column(6) is None and places[1].column(6) is not None


@pytest.mark.parametrize("seed", range(10))
def test_keys_are_numbered_and_found_by_all_of_their_columns(seed: int) -> None:
    """Goal: a read of an earlier time finds the rows of its keys and no others. Method: keys of three columns that
    share parts, some twice, and rows of the same parts, of which some are asked for, against Python."""
    rng = Random(seed)

    def some(count: int, texts: str) -> list[tuple[str, int, str]]:
        return [(rng.choice(texts), rng.randrange(4), rng.choice("xyz")) for _ in range(count)]

    def columns_of(keys: list[tuple[str, int, str]]) -> list[Any]:
        return [
            pa.array([key[pos] for key in keys], kind)
            for pos, kind in enumerate((pa.string(), pa.int64(), pa.string()))
        ]

    looks: list[None] = []
    keys, rows = some(rng.randrange(1, 20), "abc"), some(60, "abcd")
    numbers = KeyNumbers(columns_of(keys), lambda: looks.append(None))
    assert len(looks) == 3, "before each column"
    number_of = dict(zip(keys, numbers.of_keys.tolist(), strict=True))
    assert [number_of[key] for key in keys] == numbers.of_keys.tolist()
    assert len(set(number_of.values())) == len(number_of)
    asked = sorted(rng.sample(range(60), 40))
    at, found = numbers.find(columns_of(rows), np.array(asked))
    expected = [(pos, number_of[rows[pos]]) for pos in asked if rows[pos] in number_of]
    assert list(zip(at.tolist(), found.tolist(), strict=True)) == expected
    none, _ = numbers.find(columns_of(rows), np.empty(0, np.int64))
    assert len(none) == 0
    assert KeyNumbers(columns_of(keys)[:1], lambda: None).find(columns_of(rows)[:1], np.array([], int))[0].size == 0


def test_rows_are_equal_if_all_columns_are() -> None:
    """Goal: a key is another if one of its columns is. Method: each column alone different, both, and none."""
    left = [pa.array(["a", "a", "a", "a"]), pa.array([1, 1, 1, 1])]
    right = [pa.array(["a", "b", "a", "b"]), pa.array([1, 1, 2, 2])]
    assert equal_rows(left, right).tolist() == [True, False, False, False]
    assert equal_rows(left[:1], right[:1]).tolist() == [True, False, True, False]
