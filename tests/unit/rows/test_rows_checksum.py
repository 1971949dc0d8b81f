"""The checksum of rows against its definition, whatever their order and place; what it distinguishes; what it costs."""

from __future__ import annotations

import decimal
import itertools
import math
import struct
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.replica.rows import CHECKSUM_DEFINITION, NO_ROWS, RowSum, checksum, sum_of_rows
from nyala.replica.rows.hashing import mix_one
from tests.harness.every_type import KINDS, ROW_COUNTS, Kind, forms, memory_of, values
from tests.harness.hash_twin import integer_of, unscaled_decimal

MASK = (1 << 64) - 1
GOLDEN_SUMS = [
    316276331192840455694254799751680151314,
    305475997602806841325120910899287608668,
    213756363959132924176579537345157946791,
]
"""Never edit a line."""


def stir(x: int) -> int:
    x = x * 0x2545F4914F6CDD1D & MASK
    x = (x ^ x >> 32) * 0x9FB21C651E98DF25 & MASK
    return x ^ x >> 29


def raw(value: Any, kind: Any) -> int:
    """Compute the sum as the module's head defines it, one value at a time. `value` is a pa.Scalar that is not null."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        data = value.as_py() if pa.types.is_binary(kind) else value.as_py().encode()
        words = [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8)]
        return len(data) * 0xA24BAED4963EE407 + sum(
            stir((w + (j + 1) * 0xD1342543DE82EF95) & MASK) for j, w in enumerate(words)
        )
    if pa.types.is_decimal(kind):
        number = unscaled_decimal(value.as_py())
        return mix_one(number & MASK) ^ (number >> 64 & MASK)
    if pa.types.is_floating(kind):
        form = "<f" if kind == pa.float32() else "<d"
        data = struct.pack(form, value.as_py())
        # NaN in Python has one form, and so have the NaNs of these tests.
        return int.from_bytes(data, "little", signed=True)
    return integer_of(int(value.as_py()) if pa.types.is_boolean(kind) else value.as_py())


def twin(batch: pa.RecordBatch, ids: list[int]) -> RowSum:
    """The definition, one cell at a time."""
    low = high = 0
    for row in range(batch.num_rows):
        cells = 0
        for column, column_id in zip(batch.columns, ids, strict=True):
            if column[row].is_valid:
                cells += mix_one((raw(column[row], column.type) & MASK) ^ mix_one(column_id))
        r = mix_one(cells & MASK)
        low, high = low + r & MASK, high + mix_one(r) & MASK
    return RowSum(low | high << 64, batch.num_rows)


def of(*columns: Any, ids: list[int] | None = None) -> RowSum:
    """The checksum of these columns."""
    arrays = [c if isinstance(c, pa.Array) else pa.array(c) for c in columns]
    batch = pa.RecordBatch.from_arrays(arrays, names=[str(i) for i in range(len(arrays))])
    return sum_of_rows(batch, ids or list(range(1, len(arrays) + 1)))


@pytest.mark.a_third
@pytest.mark.parametrize("kind", KINDS, ids=attrgetter("name"))
def test_checksum_of_every_type_is_the_defined_one_and_changes_nothing(kind: Kind) -> None:
    """IN-01, IN-04. Goal: the vectorised sum is the documented one for every type, however its column lies in memory.

    Method: 0, 1, 2, 16,384 and 16,385 rows, with and without nulls, in every form of an array. The first hundred rows
    against the definition, cell by cell; the whole against its parts; each form against the others; nothing is written.
    """
    for rows in ROW_COUNTS:
        for nulls in (False, True):
            plain, numbers = values(kind, rows, nulls=nulls), pa.array(np.arange(rows))
            found = set()
            for form, array in forms(plain):
                before = memory_of(array, numbers)
                batch = pa.RecordBatch.from_arrays([array, numbers], names=["c", "n"])
                found.add(sum_of_rows(batch, [7, 8]))
                first = batch.slice(0, 100)
                assert sum_of_rows(first, [7, 8]) == twin(first, [7, 8]), f"{form}, {rows} rows"
                assert memory_of(array, numbers) == before, f"{form}, {rows} rows"
            assert len(found) == 1
            cuts = sorted({0, rows, min(rows, 1), min(rows, 5000), max(0, rows - 1)})
            batch = pa.RecordBatch.from_arrays([plain, numbers], names=["c", "n"])
            parts = [sum_of_rows(batch.slice(a, b - a), [7, 8]) for a, b in itertools.pairwise(cuts)]
            assert {sum(parts, NO_ROWS)} == found


def random_column(kind: Kind, rows: int, longest: int, rng: np.random.Generator) -> pa.Array:
    """`rows` values of the type, a slice of a longer array, with nulls or not. Texts have up to `longest` bytes."""
    before, after = rng.integers(0, 5, 2).tolist()
    if kind.name in ("string", "binary"):
        lengths = rng.integers(0, longest, before + rows + after, endpoint=True).tolist()
        array = pa.array([rng.integers(1, 128, n, np.uint8).tobytes() for n in lengths], pa.binary()).cast(kind.arrow)
    else:
        array = values(kind, before + rows + after)
        array = array.take(pa.array(rng.permutation(len(array))))
    if rng.random() < 0.5:
        array = pa.compute.if_else(pa.array(rng.random(len(array)) < 0.3), pa.scalar(None, kind.arrow), array)
    return array.slice(before, rows)


@pytest.mark.deep
@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=4, unique=True),
    st.integers(1, 9),
    st.integers(1, 60),
    st.integers(0, 300),
    st.integers(0, 1 << 32),
)
def test_checksum_is_the_defined_one_however_cells_are_put_together(
    kinds: list[Kind], columns: int, rows: int, longest: int, seed: int
) -> None:
    """IN-01, IN-04. Goal: joined columns, values gathered by their number of words, padded ones and those read in
    pieces add up to the sum of the definition. Method: random types, lengths, nulls and slices, with bounds so small
    that each way of handling cells is taken, against the definition cell by cell."""
    rng = np.random.default_rng(seed)
    names = [kinds[i] for i in rng.integers(0, len(kinds), columns)]
    arrays = [random_column(kind, rows, longest, rng) for kind in names]
    batch = pa.RecordBatch.from_arrays(arrays, names=[str(i) for i in range(columns)])
    ids = (rng.permutation(columns) + 1).tolist()
    with pytest.MonkeyPatch.context() as patch:
        # The words of the longest texts here are more than are handled together.
        patch.setattr(checksum, "_CELLS_TOGETHER", 64)
        patch.setattr(checksum, "_WORDS_TOGETHER", 32)
        patch.setattr(checksum, "_GATHERED_MIN", 3)
        patch.setattr(checksum, "_tiled_places", checksum._tiled_places.__wrapped__)
        assert sum_of_rows(batch, ids) == twin(batch, ids)


def test_checksum_never_changes_within_a_definition() -> None:
    """IN-04. Goal: replicas of two builds with one definition compare. Method: recorded sums. A changed line is another
    definition."""
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([1, -1, None], pa.int32()),
            pa.array(["", "a text of twenty-two", None]),
            pa.array([decimal.Decimal("-1.50"), None, decimal.Decimal("99.99")], pa.decimal128(4, 2)),
            pa.array([0.5, -0.0, math.inf]),
            pa.array([True, False, None]),
        ],
        names=list("abcde"),
    )
    sums = [sum_of_rows(batch.slice(row, 1), [1, 2, 3, 4, 300]).total for row in range(3)]
    assert (CHECKSUM_DEFINITION, sums) == (2, GOLDEN_SUMS)


def test_checksum_does_not_depend_on_the_order_of_rows_and_columns() -> None:
    """IN-04. Goal: where rows lie decides nothing. Method: shuffled rows, cut into batches at random, columns turned
    around with their ids; a column that is null throughout is like none."""
    rng = np.random.default_rng(3)
    texts = ["x" * int(n) for n in rng.integers(0, 300, 5000)]
    numbers = pa.array(rng.integers(0, 100, 5000), mask=rng.random(5000) < 0.2)
    batch = pa.RecordBatch.from_arrays([pa.array(texts), numbers], names=["t", "n"])
    whole = sum_of_rows(batch, [1, 2])
    shuffled = batch.take(pa.array(rng.permutation(5000)))
    cuts = [0, *sorted(rng.integers(0, 5000, 20).tolist()), 5000]
    parts = [sum_of_rows(shuffled.slice(a, b - a), [1, 2]) for a, b in itertools.pairwise(cuts)]
    assert sum(parts, NO_ROWS) == whole
    assert sum_of_rows(batch.select(["n", "t"]), [2, 1]) == whole
    assert of(texts, numbers, pa.nulls(5000, pa.float64())) == whole


def test_checksum_tells_rows_apart() -> None:
    """IN-04. Goal: different rows have different checksums. Method: sets of rows that differ in one small thing each: a
    null or an empty value, a value's place, its column or its row, the end of a string, bits that compare as equal, one
    row twice, words of a long value that changed places, also between the pieces in which it is read."""
    word = b"12345678"
    far = b"\0" * (8 * checksum._WORDS_TOGETHER - 8)
    piece = b"\0" * 8 + far
    nans = pa.array(np.array([0x7FF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64))
    binary = pa.binary()
    texts: list[RowSum] = [
        NO_ROWS,
        *(of(pa.array([v], binary)) for v in (None, b"", b"\0", b"\0" * 8, b"\0" * 9, b"\0" * 16, b"a", b"a\0", b"aa")),
        *(of(pa.array([v], binary)) for v in (word + b"\0" * 8, b"\0" * 8 + word, word * 2, word * 3)),
        *(of(pa.array([v], binary)) for v in (far + word * 2, word + far + word, word * 2 + far, far * 2 + word * 2)),
        *(of(pa.array([v], binary)) for v in (word + far + piece, piece + word + far)),
        of(["ab"], ["c"]),
        of(["a"], ["bc"]),
        of(["c"], ["ab"]),
        of([""], ["abc"]),
        of(["ab"], pa.nulls(1, pa.string())),
        of(pa.nulls(1, pa.string()), ["ab"]),
        of(["ab"], ids=[3]),
        of(["ab", "ab"]),
        of(["ab", "ab", "ab"]),
        of(["ab", "ab", "c", "c"]),
    ]
    numbers = [
        NO_ROWS,
        of([1, 2], [3, 4]),
        of([1, 2], [4, 3]),
        of([2, 1], [4, 4]),
        of([0]),
        of([0, 0]),
        of([-1]),
        of(pa.nulls(1, pa.int64())),
    ]
    reals = [of([0.0]), of([-0.0]), of(nans.slice(0, 1)), of(nans.slice(1, 1)), of(pa.nulls(1, pa.float64()))]
    decimals = [of([decimal.Decimal(n)]) for n in (0, 1, 1 << 64, -1, (1 << 64) - 1)]
    # What one column holds as a number, another holds as a bool; and null is like no column: equal by definition.
    assert of([False]) == of([0]) and of(pa.nulls(1, pa.string()), ["ab"]) == of(["ab"], ids=[2])
    for sums in (texts, numbers, reals, decimals):
        assert len({each.total for each in sums}) == len(sums)


@pytest.mark.deep
def test_checksum_costs_as_much_as_there_are_bytes_whatever_is_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-04. Goal: the cost of a checksum follows the bytes; one long value does not make the others expensive. Method:
    16,384 values of three bytes, alone and with one of a megabyte among them: how many words are mixed, and in how many
    calls; 2,000 values of 200 bytes; and 64 values of a megabyte."""
    seen: list[int] = []
    stir_all = checksum._stir

    def counted(words: Any) -> Any:
        seen.append(len(words))
        return stir_all(words)

    monkeypatch.setattr(checksum, "_stir", counted)
    long = "y" * (1 << 20)
    for texts in (["abc"] * 16_384, ["abc"] * 9000 + [long] + ["abc"] * 7384, ["x" * 200] * 2000, [long] * 64):
        seen.clear()
        of(texts)
        words = sum(-(-len(text) // 8) for text in texts)
        assert sum(seen) == words
        assert len(seen) <= 3 * (1 + words // checksum._WORDS_TOGETHER)


def test_checksum_handles_many_cells_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-04. Goal: a step that costs as much as hundreds of cells is for thousands of them: also in a batch of 300
    columns, which has few rows, and if texts have many lengths. The columns of one long row are not copied.
    Method: the columns of each step, and the texts that Arrow pads."""
    steps: list[int] = []
    padded: list[int] = []
    cells_of, pad = checksum._cells, checksum._aligned

    def counted_cells(columns: list[Any], salts: Any) -> Any:
        steps.append(len(columns))
        return cells_of(columns, salts)

    def counted_pad(array: Any, *more: Any) -> Any:
        padded.append(len(array))
        return pad(array, *more)

    monkeypatch.setattr(checksum, "_cells", counted_cells)
    monkeypatch.setattr(checksum, "_aligned", counted_pad)
    rng = np.random.default_rng(5)
    of(*(rng.integers(0, 1 << 60, 400) for _ in range(300)))
    assert steps == [81, 81, 81, 57]  # 81 columns of 400 rows are 32,400 cells
    steps.clear()
    texts = [b"x" * n for n in rng.integers(1, 129, 16_384).tolist()]
    of(*(pa.array(texts[:50], pa.binary()) for _ in range(300)))
    assert steps == [300]
    of(pa.array(texts * 2, pa.binary()))
    # Those whose last word may end after the buffer does, or of which there are few.
    assert sum(padded) < 100
    steps.clear()
    of(*(pa.array([b"x" * 300_000]) for _ in range(9)))
    assert steps == [1] * 9


def test_sums_of_two_parts_add_up_in_each_half() -> None:
    """IN-04. Goal: the halves do not run into each other. Method: halves that overflow."""
    assert RowSum(MASK, 1) + RowSum(1, 2) == RowSum(0, 3)
    assert RowSum(MASK << 64 | 5, 1) + RowSum(1 << 64 | 6, 1) == RowSum(11, 2)
