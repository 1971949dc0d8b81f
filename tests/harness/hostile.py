"""Bytes that a well-meaning client would never send, made from a good batch by a seeded generator."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from nyala.replica.rows import crc32c, encode_batch
from tests.harness.rows import SCHEMA, batch


class Payload(NamedTuple):
    """A payload to send. `must_fail`: no reading of these bytes is a valid batch of `rows` rows."""

    name: str
    data: bytes
    crc: int
    rows: int
    must_fail: bool


def good(first: int = 0, rows: int = 40) -> pa.RecordBatch:
    """Return a batch with strings and a null."""
    values: list[str | None] = [f"value {k}" for k in range(first, first + rows)]
    values[3] = None
    return batch(list(range(first, first + rows)), values)


def poisoned_offsets() -> Iterator[Payload]:
    """Yield string offsets that point far outside, backwards and below zero: cheap checks pass, a sort or a copy
    crashes."""
    data = encode_batch(batch([1, 2, 3], ["aa", "bb", "cc"]))
    at = data.index(struct.pack("<iiii", 0, 2, 4, 6))
    for offsets in (
        (0, 2, 400_000_000, 800_000_000),
        (0, 2, 400_000_000, 6),
        (0, 4, 2, 6),
        (0, -2, 4, 6),
        (-8, 2, 4, 6),
        (0, 2, 4, 7),
        (0, 2, 4, 2**31 - 1),
    ):
        poisoned = data[:at] + struct.pack("<iiii", *offsets) + data[at + 16 :]
        yield Payload(f"offsets {offsets}", poisoned, crc32c(poisoned), 3, True)
    text = data.replace(b"aabbcc", b"a\xffb\xc3\x28c")
    assert text != data
    yield Payload("text that is no UTF-8", text, crc32c(text), 3, True)


def other_messages() -> Iterator[Payload]:
    """Yield valid Arrow that is not one plain record batch of the announced columns."""
    rows = good()
    data = encode_batch(rows)
    reordered = rows.select([1, 0, 2, 3])
    doubled = pa.RecordBatch.from_arrays([*rows.columns[:3], rows.column(0)], schema=SCHEMA.wire_schema((1, 2)))
    back = doubled.set_column(3, rows.schema.field(3), rows.column(3).take(pa.array(range(39, -1, -1))))
    same = doubled.set_column(3, rows.schema.field(3), pa.array([5] * 40, pa.int64()))
    below = doubled.set_column(3, rows.schema.field(3), pa.array(range(-1, 39), pa.int64()))
    no_op = pa.RecordBatch.from_arrays(
        [*rows.columns[:2], pa.array([None] * 40, pa.uint8()), rows.column(3)], names=rows.schema.names
    )
    for name, bad in {
        "nothing": b"",
        "the schema": rows.schema.serialize().to_pybytes(),
        "a whole stream": _stream(rows),
        "two messages": data + data,
        "a byte more": data + b"\0",
        "compressed": _compressed(rows),
        "columns in another order": encode_batch(reordered),
        "a column less": encode_batch(rows.select([0, 1, 2])),
        "a column more": encode_batch(rows.append_column("x", rows.column(0))),
        "no rows": encode_batch(rows.slice(0, 0)),
        "offsets that fall": encode_batch(back),
        "equal offsets": encode_batch(same),
        "an offset below zero": encode_batch(below),
        "null operations": encode_batch(no_op),
        "zeros": bytes(len(data)),
        "text": b"INSERT INTO things VALUES (1)",
    }.items():
        yield Payload(name, bad, crc32c(bad), 40, True)
    yield Payload("fewer rows than said", data, crc32c(data), 41, True)
    yield Payload("more rows than said", data, crc32c(data), 39, True)
    yield Payload("rows below zero", data, crc32c(data), -1, True)
    yield Payload("another CRC", data, crc32c(data) ^ 1, 40, True)


def mutations(seed: int, count: int) -> Iterator[Payload]:
    """Yield cut, flipped, overwritten and spliced bytes with right CRCs; some flips only change a value, and are
    legal."""
    rng = random.Random(seed)
    data = encode_batch(good())
    interesting = [0, 1, 7, 8, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1]
    for number in range(count):
        bad, must_fail = bytearray(data), False
        kind = ("cut", "flip", "flip", "word", "long", "splice", "unsummed")[number % 7]
        at = rng.randrange(len(data))
        if kind == "cut":
            bad, must_fail = bad[:at], True
        elif kind in ("flip", "unsummed"):
            for _ in range(rng.choice((1, 1, 2, 8))):
                bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        elif kind == "word":
            at &= ~3
            bad[at : at + 4] = struct.pack("<I", rng.choice(interesting))
        elif kind == "long":
            at = min(at & ~7, len(bad) - 8)
            bad[at : at + 8] = struct.pack(
                "<q", rng.choice((-1, -(2**63), 2**63 - 1, 2**62, 2**40, rng.getrandbits(62)))
            )
        else:
            length = rng.randrange(1, 64)
            source = rng.randrange(len(data))
            bad[at : at + length] = data[source : source + length]
            bad = bad[: len(data)]
        crc = crc32c(bytes(bad))
        if kind == "unsummed":
            must_fail, crc = bytes(bad) != data, crc32c(data)
        yield Payload(f"{kind} {number} of seed {seed}", bytes(bad), crc, 40, must_fail)


def _compressed(rows: pa.RecordBatch) -> bytes:
    reader = pa.ipc.MessageReader.open_stream(_stream(rows, pa.ipc.IpcWriteOptions(compression="lz4")))
    reader.read_next_message()
    return bytes(reader.read_next_message().serialize())


def _stream(rows: pa.RecordBatch, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())
