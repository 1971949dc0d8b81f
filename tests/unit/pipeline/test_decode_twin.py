"""The vectorised decoder against fastavro, its slow twin, on random rows and on mangled bytes."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import math
import struct
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala import schemas
from nyala.pipeline.decode import RowDecoder, WriterSchema
from nyala.pipeline.framing import Framing, wrap
from nyala.pipeline.row_schema import row_schema_json
from nyala.replica.rows import Column, ColumnType, TableSchema
from tests.harness.row_keys import encode_key

TYPES = [each for each in ColumnType if each is not ColumnType.DECIMAL]
SCHEMA = TableSchema(
    1,
    (
        Column(id=0, name="k", type=ColumnType.INT64, nullable=False),
        *(Column(id=pos + 1, name=f"c_{each.value}", type=each) for pos, each in enumerate(TYPES)),
        Column(id=90, name="d", type=ColumnType.DECIMAL, precision=20, scale=3),
    ),
    ("k",),
)
WRITER = row_schema_json(SCHEMA)
PARSED = schemas.parse_json(WRITER)
FINGERPRINT = schemas.fingerprint64(PARSED)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "c_bool": st.booleans(),
    "c_int8": st.integers(-128, 127),
    "c_int16": st.integers(-(1 << 15), (1 << 15) - 1),
    "c_int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "c_int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "c_float": st.floats(width=32, allow_nan=False),
    "c_double": st.floats(allow_nan=False),
    "c_string": st.text(max_size=40),
    "c_binary": st.binary(max_size=40),
    "c_date": st.dates(),
    "c_timestamp": st.integers(-(10**15), 10**15).map(lambda us: _EPOCH + dt.timedelta(microseconds=us)),
    "d": st.integers(-(10**19), 10**19).map(lambda n: decimal.Decimal(n).scaleb(-3)),
}
ROWS = st.lists(
    st.fixed_dictionaries(
        {"k": st.integers(-(1 << 63), (1 << 63) - 1), "op": st.sampled_from(["UPSERT", "INSERT"])}
        | {name: st.none() | each for name, each in VALUES.items()}
    ),
    max_size=20,
)


def frame(row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PARSED, row)
    return wrap(Framing.SINGLE_OBJECT, out.getvalue(), fingerprint=FINGERPRINT)


def decode(keys: list[bytes | None], values: list[bytes | None]) -> Any:
    decoder = RowDecoder(SCHEMA, Framing.SINGLE_OBJECT, [WriterSchema(WRITER)])
    offsets = np.arange(len(values), dtype=np.int64)
    return decoder.decode(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), offsets)


@pytest.mark.deep
@settings(max_examples=60)
@given(ROWS, st.integers(0, 3))
def test_random_rows_decode_as_fastavro_reads_them(rows: list[dict[str, Any]], skipped: int) -> None:
    """IN-02. Goal: same values as the reference for every column type, nulls included, sliced arrays too. Method:
    twin."""
    values = [frame(row) for row in rows]
    keys = [encode_key(SCHEMA, row) for row in rows]
    decoder = RowDecoder(SCHEMA, Framing.SINGLE_OBJECT, [WriterSchema(WRITER)])
    sliced = [pa.array([b"zz"] * skipped + each, pa.binary()).slice(skipped) for each in (keys, values)]
    decoded = decoder.decode(sliced[0], sliced[1], np.arange(len(rows), dtype=np.int64))
    assert decoded.faults == []
    found = [each for batch in decoded.batches for each in batch.to_pylist()]
    for batch in decoded.batches:
        batch.validate(full=True)
    for got, data in zip(found, values, strict=True):
        expected = fastavro.schemaless_reader(io.BytesIO(data[10:]), PARSED, None)
        expected.pop("op")
        assert {name: each for name, each in got.items() if not name.startswith("__")} == expected


def test_signalling_nan_is_a_nan_and_no_warning() -> None:
    """Goal: any four bytes are a float. Method: the signalling NaN of least payload, which any arithmetic reports to
    numpy, in a float column and in a double column."""
    row: dict[str, Any] = {"k": 1, "op": "UPSERT", **dict.fromkeys(VALUES)}
    cases = (("c_float", struct.pack("<f", 1.25), b"\x01\x00\x80\x7f"),)
    cases += (("c_double", struct.pack("<d", 1.25), b"\x01\x00\x00\x00\x00\x00\xf0\x7f"),)
    for name, plain, signalling in cases:
        value = frame({**row, name: 1.25})
        assert value.count(plain) == 1
        decoded = decode([encode_key(SCHEMA, row)], [value.replace(plain, signalling)])
        assert decoded.faults == []
        (found,) = (each for batch in decoded.batches for each in batch.to_pylist())
        assert math.isnan(found[name])


@pytest.mark.deep
@settings(max_examples=60)
@given(ROWS.filter(bool), st.data())
def test_mangled_bytes_never_change_other_rows_nor_crash(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    """Goal: damaged bytes of one value affect at most its own row. Method: cut, flip or replace one value; others must
    be equal."""
    values: list[bytes | None] = [frame(row) for row in rows]
    keys: list[bytes | None] = [encode_key(SCHEMA, row) for row in rows]
    whole = [each for batch in decode(keys, values).batches for each in batch.to_pylist()]
    victim = data.draw(st.integers(0, len(rows) - 1))
    original = values[victim] or b""
    kind = data.draw(st.sampled_from(["cut", "flip", "random"]))
    if kind == "cut":
        mangled = original[: data.draw(st.integers(0, len(original) - 1))]
    elif kind == "flip":
        at = data.draw(st.integers(0, len(original) - 1))
        mangled = original[:at] + bytes([original[at] ^ data.draw(st.integers(1, 255))]) + original[at + 1 :]
    else:
        mangled = original[:10] + data.draw(st.binary(max_size=60))
    values[victim] = mangled
    decoded = decode(keys, values)
    for batch in decoded.batches:
        batch.validate(full=True)
    offsets = {offset for batch in decoded.batches for offset in batch.column("__offset").to_pylist()}
    # The victim's row may hold a date that Arrow knows and Python does not.
    others = [batch.filter(pc.field("__offset") != victim) for batch in decoded.batches]
    found = {each["__offset"]: each for batch in others for each in batch.to_pylist()}
    faults = {fault.offset for fault in decoded.faults}
    assert faults <= {victim}
    assert offsets | faults == set(range(len(rows)))
    for each in whole:
        if each["__offset"] != victim:
            assert found[each["__offset"]] == each
