"""nyala-hash-1 is the same for ever, fast and slow alike."""

from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.rows import ColumnType as T
from nyala.replica.rows import key_hash
from nyala.replica.types import Refused, limits
from tests.harness.hash_twin import key_hash_one

GOLDEN = [
    ([T.INT64], [0], 0xE220A8397B1DCDAF),
    ([T.INT64], [1], 0x910A2DEC89025CC1),
    ([T.INT64], [-1], 0xE4D971771B652C20),
    ([T.INT8], [-1], 0xE4D971771B652C20),
    ([T.INT64], [9223372036854775807], 0x2A67D7552E039EA7),
    ([T.INT64], [-9223372036854775808], 0x481EC0A212A9F3DB),
    ([T.STRING], [""], 0xE220A8397B1DCDAF),
    ([T.STRING], ["a"], 0x0AAF13BEFB3CF82E),
    ([T.STRING], ["12345678"], 0x3298E097EFBDA54C),
    ([T.STRING], ["123456789"], 0x577C620841929406),
    ([T.STRING], ["Zürich"], 0x348E8A0872E8E3B3),
    ([T.BINARY], [b"\x00"], 0x9BD62A87CA2E2A9F),
    ([T.BINARY], [b"\x00\x00"], 0x8B6CA82A431572DD),
    ([T.DATE], [dt.date(2013, 1, 1)], 0xC2D4B737258FAAE5),
    ([T.TIMESTAMP], [dt.datetime(2013, 1, 1, 5, 0, tzinfo=dt.UTC)], 0xC8C6C81FADAFB65E),
    ([T.DECIMAL], [decimal.Decimal("-12345")], 0x5A749CAA8B3026C5),
    ([T.TIMESTAMP, T.STRING, T.INT64], [dt.datetime(2013, 1, 1, 5, 0, tzinfo=dt.UTC), "UA", 1545], 0xD7475FF06B2918E9),
    ([T.INT64, T.INT64], [1, 2], 0x94DD1BAB3800E32A),
    ([T.INT64, T.INT64], [2, 1], 0x249633E4DAC80939),
]
"""(types, values, hash). The first is splitmix64's own published first output for seed 0. Never edit a line."""

ARROW = {
    T.INT8: pa.int8(),
    T.INT64: pa.int64(),
    T.STRING: pa.string(),
    T.BINARY: pa.binary(),
    T.DATE: pa.date32(),
    T.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    T.DECIMAL: pa.decimal128(38, 0),
}
WHOLE_DECIMALS = st.integers(-(10**37), 10**37).map(decimal.Decimal)
VALUES = {
    T.INT8: st.integers(-128, 127),
    T.INT64: st.integers(-(2**63), 2**63 - 1),
    T.STRING: st.text(max_size=40),
    T.BINARY: st.binary(max_size=70),
    T.DATE: st.dates(),
    T.TIMESTAMP: st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC)),
    T.DECIMAL: WHOLE_DECIMALS,
}


@pytest.mark.parametrize("types, values, expected", GOLDEN)
def test_key_hash_golden_vectors_never_change(types: list[T], values: list[object], expected: int) -> None:
    """Goal: a key's hash never changes, so rows stay in their tablets. Method: recorded hashes, by the fast and by the
    slow function."""
    arrays = [pa.array([v], ARROW[t]) for t, v in zip(types, values, strict=True)]
    assert key_hash_one(values, types) == expected
    assert key_hash(arrays).tolist() == [expected]


@pytest.mark.deep
@settings(max_examples=150)
@given(st.data())
def test_key_hash_of_columns_equals_its_scalar_twin(data: st.DataObject) -> None:
    """Goal: the vectorised function is the documented one. Method: random types, rows and slices against the twin."""
    types = data.draw(st.lists(st.sampled_from(sorted(ARROW)), min_size=1, max_size=3))
    rows = data.draw(st.lists(st.tuples(*(VALUES[t] for t in types)), min_size=1, max_size=20))
    skip = data.draw(st.integers(0, len(rows) - 1))
    arrays = [pa.array([r[i] for r in rows], ARROW[t]).slice(skip) for i, t in enumerate(types)]
    assert key_hash(arrays).tolist() == [key_hash_one(r, types) for r in rows[skip:]]


def test_key_hash_does_not_depend_on_how_a_string_is_stored() -> None:
    """Goal: large, view, dictionary and chunked strings hash alike. Method: one list in each form, empty ones too."""
    words = ["", "a", "12345678", "123456789", "é" * 9, "", "x" * 100]
    expected = [key_hash_one([w], [T.STRING]) for w in words]
    forms = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()]
    for form in forms:
        assert key_hash([pa.array(words, pa.string()).cast(form)]).tolist() == expected
    assert key_hash([pa.array(words).dictionary_encode()]).tolist() == expected
    assert key_hash([pa.chunked_array([words[:3], words[3:]])]).tolist() == expected


def test_key_hash_of_many_rows_equals_the_hash_of_each_part() -> None:
    """Goal: working in chunks changes nothing. Method: 100,000 rows at once and in odd parts."""
    numbers = pa.array(np.random.default_rng(5).integers(-(2**62), 2**62, 100_000))
    names = pa.array([f"n{i % 977}" * (i % 5) for i in range(100_000)])
    whole = key_hash([numbers, names])
    parts = [key_hash([numbers.slice(a, 7777), names.slice(a, 7777)]) for a in range(0, 100_000, 7777)]
    assert (whole == np.concatenate(parts)).all()


def test_key_hash_of_long_and_short_values_together_equals_the_twin() -> None:
    """Goal: however many rows still have words, few or many, each hash is the documented one. Method: 33 and more
    values that are longer than all others, values of one length, and a single long one, up to the longest key."""
    rng = np.random.default_rng(7)
    cases = [
        [rng.bytes(n) for n in (16_384, 0, 1, 7, 8, 9, 16, 300)],
        [rng.bytes(n) for n in rng.integers(0, 120, 200)],
        [rng.bytes(24) for _ in range(40)],
        [rng.bytes(n) for n in (*range(800, 840), *range(40), 8, 8, 8)],
        [b"", b""],
    ]
    for values in cases:
        padded = pa.array([b"12345", *values], pa.binary()).slice(1)
        assert key_hash([padded]).tolist() == [key_hash_one([v], [T.BINARY]) for v in values]


def test_key_hash_of_one_integer_is_a_bijection_and_spreads() -> None:
    """Goal: equal hashes mean equal integer keys, and high bits spread. Method: dense keys, distinct and even."""
    hashes = key_hash([pa.array(np.arange(200_000))])
    assert len(np.unique(hashes)) == 200_000
    counts = np.bincount((hashes >> np.uint64(60)).astype(np.int64), minlength=16)
    assert counts.min() > 12_000 and counts.max() < 13_000


def test_key_hash_of_a_null_ignores_the_bytes_under_it() -> None:
    """Goal: the bytes under a null do not change the hash. Method: two arrays that differ only there."""
    bitmap = pa.py_buffer(bytes([0b01]))
    made = [pa.Array.from_buffers(pa.int64(), 2, [bitmap, pa.py_buffer(np.array([7, x]))]) for x in (1, 2)]
    assert key_hash([made[0]]).tolist() == key_hash([made[1]]).tolist()


def test_key_hash_refuses_what_is_no_key() -> None:
    """Goal: floats and empty keys are refused. Method: both."""
    for columns in ([], [pa.array([1.5])]):
        with pytest.raises(Refused):
            key_hash(columns)


def test_every_byte_of_a_key_that_can_be_stored_counts() -> None:
    """IN-01. Goal: the longest key has its whole hash, whatever rows are beside it. Method: keys of the most bytes, in
    one column and in two, that differ in the last byte; alone, and beside a longer one; the twin gives their hashes."""
    most = limits.KEY_SIZE_BYTES_MAX
    for sizes in ((most,), (most - 9, 9), (9, most - 9)):
        keys = [[b"x" * (size - 1) + last for size in sizes] for last in (b"a", b"b")]
        wanted = [key_hash_one(key, [T.BINARY] * len(sizes)) for key in keys]
        assert wanted[0] != wanted[1]
        for beside in ([], [[b"y" * (2 * most)] * len(sizes)]):
            columns = [pa.array(values, pa.binary()) for values in zip(*keys, *beside, strict=True)]
            assert key_hash(columns)[:2].tolist() == wanted, (sizes, bool(beside))
