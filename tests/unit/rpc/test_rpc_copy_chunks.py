"""Chunks of a copy are the protobuf message's bytes, written and read by hand; damage is a refusal."""

from __future__ import annotations

import random

import pytest

from nyala.replica.base import Code, InvariantViolation, Refused
from nyala.replica.rpc import Chunk, chunk_from_wire, chunk_to_wire, error_to_pb, pb

CHUNKS = [
    Chunk(0, b"a", 0),
    Chunk(0, b"", 7),
    Chunk(1, b"x" * 127, 0xFFFFFFFF),
    Chunk(127, b"x" * 128, 1),
    Chunk(128, b"x" * 16384, 0x80000000),
    Chunk((1 << 62) + 5, random.Random(1).randbytes(1 << 20), 0x12345678),
]


@pytest.mark.parametrize("chunk", CHUNKS, ids=lambda c: f"{c.byte_offset}-{len(c.data)}")
def test_chunk_is_the_message_of_the_generated_code(chunk: Chunk) -> None:
    """Goal: either side may be a build that uses the generated code. Method: write by hand and parse, serialise and
    read by hand, and both by hand: the same chunk."""
    written = chunk_to_wire(chunk)
    parsed = pb.FetchChunk.FromString(written)
    assert (parsed.byte_offset, parsed.data, parsed.crc) == chunk and not parsed.HasField("error")
    assert chunk_from_wire(written) == chunk
    assert (
        chunk_from_wire(pb.FetchChunk(byte_offset=chunk[0], data=chunk[1], crc=chunk[2]).SerializeToString()) == chunk
    )


def test_chunk_that_is_cut_or_flipped_is_another_chunk_or_a_refusal() -> None:
    """Goal: a hostile or broken source ends a copy and nothing else. Method: cut a chunk at every length, flip bits,
    append bytes, send noise: Refused, or some chunk, whose CRC its reader compares."""
    whole, rng = chunk_to_wire(Chunk(300, b"payload" * 30, 99)), random.Random(7)
    attempts = [whole[:length] for length in range(len(whole))]
    attempts += [
        bytes(b ^ (1 << rng.randrange(8)) if pos == at else b for pos, b in enumerate(whole)) for at in range(20)
    ]
    attempts += [
        whole + b"\x00",
        whole + whole,
        b"\xff" * 40,
        b"\x10" + b"\x80" * 20,
        b"\x10\x05\x25\x00\x00\x00\x00\x1a",
    ]
    attempts += [rng.randbytes(rng.randrange(60)) for _ in range(2000)]
    refused = 0
    for message in attempts:
        try:
            assert isinstance(chunk_from_wire(message).data, bytes)
        except Refused as refusal:
            refused += refusal.code is Code.CORRUPTION
    assert refused > len(whole) // 2


def test_refusal_in_place_of_a_chunk_is_raised() -> None:
    """Goal: the source's word reaches the copy's end. Method: an error in place of data; an offset that is none."""
    error = Refused(Code.EXPIRED, "no such copy session", session="s")
    with pytest.raises(Refused) as refused:
        chunk_from_wire(pb.FetchChunk(error=error_to_pb(error)).SerializeToString())
    assert refused.value.code is Code.EXPIRED
    with pytest.raises(InvariantViolation):
        chunk_to_wire(Chunk(-1, b"", 0))
