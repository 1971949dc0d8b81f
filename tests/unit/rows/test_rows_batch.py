"""decode_batch accepts exactly what encode_batch makes and survives everything else."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import struct
import subprocess
import sys

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from nyala.replica.rows import BatchDecoder, Column, ColumnType, TableSchema, decode_batch, encode_batch
from nyala.replica.rows import batch as batch_module
from nyala.replica.types import Code, Refused, limits

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="s", type=ColumnType.STRING),
        Column(id=3, name="d", type=ColumnType.DECIMAL, precision=10, scale=2),
        Column(id=4, name="t", type=ColumnType.TIMESTAMP),
        Column(id=5, name="b", type=ColumnType.BOOL),
        Column(id=6, name="f", type=ColumnType.FLOAT),
        Column(id=7, name="day", type=ColumnType.DATE),
        Column(id=8, name="raw", type=ColumnType.BINARY),
    ),
    ("k",),
)
WIRE = SCHEMA.wire_schema(range(1, 9))


def sample(rows: int = 5) -> pa.RecordBatch:
    """A batch of every column type, with nulls."""
    when = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)
    columns = [
        range(rows),
        [None if i % 3 == 1 else f"text {i} é" for i in range(rows)],
        [decimal.Decimal(i) / 4 if i % 2 else None for i in range(rows)],
        [when + dt.timedelta(hours=i) for i in range(rows)],
        [i % 2 == 0 for i in range(rows)],
        [i / 3 for i in range(rows)],
        [dt.date(2013, 1, 1 + i % 28) for i in range(rows)],
        [bytes([i % 256]) * (i % 7) for i in range(rows)],
        [2] * rows,
        [10 + 3 * i for i in range(rows)],
    ]
    return pa.record_batch([pa.array(c, type=f.type) for c, f in zip(columns, WIRE, strict=True)], schema=WIRE)


def refusal(payload: bytes, schema: pa.Schema = WIRE) -> Refused:
    with pytest.raises(Refused) as caught:
        decode_batch(payload, schema)
    return caught.value


@pytest.mark.parametrize("start, rows", [(0, 50), (3, 17), (8, 8), (49, 1)])
def test_decode_of_an_encoded_batch_gives_it_back(start: int, rows: int) -> None:
    """Goal: nothing is lost, also from slices whose bitmaps begin mid-byte. Method: round trip of all types."""
    batch = sample(50).slice(start, rows)
    assert decode_batch(encode_batch(batch), WIRE).equals(batch)


def test_decode_of_a_projection_follows_the_announced_columns() -> None:
    """Goal: a batch holds the announced columns and no others. Method: the same bytes under two schemas."""
    wire = SCHEMA.wire_schema([2, 1])
    batch = sample().select(["s", "k", "__op", "__offset"])
    payload = encode_batch(batch)
    assert decode_batch(payload, wire).schema.names == ["s", "k", "__op", "__offset"]
    assert refusal(payload).code is Code.INVALID_BATCH


def test_decode_of_an_unaligned_buffer_gives_aligned_arrays() -> None:
    """Goal: a batch in an unaligned buffer is decoded correctly. Method: a buffer that starts at an odd address."""
    payload = pa.py_buffer(b"x" + encode_batch(sample())).slice(1)
    batch = decode_batch(payload, WIRE)
    assert batch.equals(sample())
    assert all(b is None or b.address % 8 == 0 for c in batch.columns for b in c.buffers())


@pytest.mark.parametrize("offsets", [[1, 1, 2], [3, 2, 4], [-1, 0, 1]])
def test_decode_refuses_offsets_that_do_not_ascend(offsets: list[int]) -> None:
    """Goal: the ledger's order is the batch's order. Method: repeated, falling and negative offsets."""
    wire = SCHEMA.wire_schema([1])
    arrays = [pa.array([1, 2, 3]), pa.array([1] * 3, pa.uint8()), pa.array(offsets)]
    assert refusal(encode_batch(pa.record_batch(arrays, schema=wire)), wire).code is Code.INVALID_BATCH


@pytest.mark.parametrize("column", [1, 2])
def test_decode_refuses_nulls_in_system_columns(column: int) -> None:
    """Goal: every row has an operation and an offset. Method: a null in either."""
    wire = SCHEMA.wire_schema([1])
    arrays = [pa.array([1, 2]), pa.array([1, 2], pa.uint8()), pa.array([1, 2])]
    arrays[column] = pa.array([1, None], arrays[column].type)
    loose = pa.schema([pa.field(f.name, f.type) for f in wire])
    assert refusal(encode_batch(pa.record_batch(arrays, schema=loose)), wire).code is Code.INVALID_BATCH


def test_decode_refuses_batches_over_the_limits() -> None:
    """Goal: size is bounded before anything is parsed. Method: a payload one byte too long, and a batch of no rows."""
    assert refusal(b"\0" * (limits.BATCH_SIZE_BYTES_MAX + 1)).code is Code.TOO_LARGE
    assert refusal(encode_batch(sample().slice(0, 0))).code is Code.INVALID_BATCH


def test_decode_refuses_compression_dictionaries_and_other_messages() -> None:
    """Goal: a batch has exactly one accepted form. Method: a compressed batch, a schema message, a dictionary column,
    two messages in a row."""
    batch = sample()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue()
    schema_bytes = batch.schema.serialize().size
    compressed = stream.slice(schema_bytes, stream.size - schema_bytes - 8).to_pybytes()
    assert "compressed" in str(refusal(compressed))
    assert refusal(batch.schema.serialize().to_pybytes()).code is Code.INVALID_BATCH
    encoded = pa.record_batch([batch.column(1).dictionary_encode()], names=["s"])
    assert refusal(encode_batch(encoded)).code is Code.INVALID_BATCH
    assert refusal(encode_batch(batch) * 2).code is Code.INVALID_BATCH


def test_decode_of_hostile_string_offsets_refuses_what_crashes_a_reader() -> None:
    """Goal: a wrong string offset never reaches a sort. Method: the offsets of a good batch are overwritten."""
    wire = SCHEMA.wire_schema([1, 2])
    arrays = [pa.array([1, 2, 3]), pa.array(["aa", "bb", "cc"]), pa.array([1] * 3, pa.uint8()), pa.array([1, 2, 3])]
    payload = bytearray(encode_batch(pa.record_batch(arrays, schema=wire)))
    at = payload.find(struct.pack("<iiii", 0, 2, 4, 6))
    assert at > 0
    for bad in ((0, 2, 400_000_000, 800_000_000), (0, -5, 4, 6), (0, 4, 2, 6), (6, 4, 2, 0), (-(2**31), 2, 4, 6)):
        payload[at : at + 16] = struct.pack("<iiii", *bad)
        assert refusal(bytes(payload), wire).code is Code.INVALID_BATCH


def exercise(batch: pa.RecordBatch) -> None:
    """Touch every value in the ways the tablet does: take, sort, polars."""
    batch.take(pa.array(np.arange(batch.num_rows)[::-1]))
    pl.from_arrow(batch).sort("s", "raw")
    batch.column(1).to_pylist()


def mutate(payload: bytes, rng: random.Random) -> bytes:
    """One hostile variation: flipped bits, cut, grown, or a word of the header replaced by an extreme."""
    data = bytearray(payload)
    how = rng.randrange(5)
    if how == 0:
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == 1:
        del data[rng.randrange(len(data)) :]
    elif how == 2:
        data += rng.randbytes(rng.randint(1, 64))
    else:
        extreme = rng.choice([-1, 0, 1, 2**31 - 1, -(2**31), 2**62, -(2**62), 2**63 - 1, -(2**63), len(data), 1 << 40])
        width = 8 if how == 3 else 4
        span = min(len(data), 1024) if rng.random() < 0.8 else len(data)
        at = rng.randrange(0, max(1, (span - width) // 4)) * 4
        data[at : at + width] = (extreme % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(data)


def decoded(decoder: BatchDecoder, data: bytes) -> pa.RecordBatch | None:
    """The batch; None if it is refused."""
    try:
        return decoder.decode(data)
    except Refused as error:
        assert error.code in (Code.INVALID_BATCH, Code.TOO_LARGE)
        return None


def fuzz(seed: int, rounds: int) -> int:
    """Feeds mutations to a new decoder and to one that knows their layout, touches what they accept; returns how many
    were refused."""
    rng = random.Random(seed)
    payload = encode_batch(sample(23) if seed % 2 else plain(23))
    refused = 0
    for number in range(rounds):
        if number % 50 == 0:
            knowing = BatchDecoder(WIRE)
            knowing.decode(payload)
        data = payload
        for _ in range(rng.randint(1, 3)):
            data = mutate(data, rng) or b"\0"
        batch, again = decoded(BatchDecoder(WIRE), data), decoded(knowing, data)
        if batch is None or again is None:
            assert batch is again, "both refuse, or neither"
            refused += 1
            continue
        exercise(again)
        assert encode_batch(again) == encode_batch(batch)
    return refused


def plain(rows: int) -> pa.RecordBatch:
    """Without nulls: the fourth row of the sample over and over."""
    return pa.record_batch(
        [sample().column(n).take(pa.array([3] * rows)) for n in range(8)]
        + [pa.array([2] * rows, pa.uint8()), pa.array(range(rows), pa.int64())],
        schema=WIRE,
    )


def test_decode_leaves_to_pyarrow_only_headers_that_it_writes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: pyarrow parses only headers that are byte for byte what it writes itself. Method: batches, each decoded
    twice: a plain one, one with nulls, and a plain one whose header is as good but was written by another hand, with
    some padding behind."""
    parsed = []
    parse = batch_module._parse
    monkeypatch.setattr(batch_module, "_parse", lambda buffer, schema: parsed.append(1) or parse(buffer, schema))
    ours, nulls = encode_batch(plain(3)), encode_batch(sample(3))
    length = struct.unpack_from("<i", ours, 4)[0]
    other = ours[:4] + struct.pack("<i", length + 8) + ours[8 : 8 + length] + bytes(8) + ours[8 + length :]
    for payload, expected in ((ours, 1), (nulls, 0), (other, 0)):
        decoder = BatchDecoder(WIRE)
        parsed.clear()
        assert decoder.decode(payload).equals(decoder.decode(payload))
        assert len(parsed) == expected
    assert decode_batch(other, WIRE).equals(plain(3))


@pytest.mark.deep
def test_decode_of_fuzzed_bytes_refuses_or_returns_a_batch_that_is_safe_to_use() -> None:
    """Goal: no bytes take the process down. Method: 2,000 seeded mutations in a child process, accepted ones sorted."""
    code = "from tests.unit.rows.test_rows_batch import fuzz; print(sum(fuzz(s, 1000) for s in range(2)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 1000
