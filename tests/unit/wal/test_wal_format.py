"""Bytes of a segment: longs, seals, headers, entries and blocks, against fastavro and byte by byte."""

from __future__ import annotations

import io
import itertools
from typing import Any

import fastavro
import pytest

from nyala.replica.types import Corruption, Entry, EntryKind, LaterFormat, OpId
from nyala.replica.wal.format import (
    _ENTRY_SCHEMA,
    _HEADER_SCHEMA,
    MARKER_BYTES,
    PAYLOAD_BYTES_JOINED_MAX,
    Header,
    _container_header,
    _head_schema,
    _header_crc,
    _identity,
    _raw_header,
    decode_entry,
    decode_header,
    decode_long,
    encode_block,
    encode_entry,
    encode_header,
    encode_long,
    encode_tail,
    entry_schema,
    identity_in,
    new_marker,
    seal,
    unseal,
)
from nyala.replica.wal.zeros import TRAILER_BYTES, ZeroSectors, count_zero_sectors, decode_trailer
from tests.harness.wal_entries import TABLET, entry

MARKER = bytes(range(1, 17))
NAME = "wal-000000007"
BYTES = encode_header(TABLET, 7, 5, MARKER, OpId(2, 4))
HEADER = decode_header(BYTES, NAME)


@pytest.mark.parametrize("value", [0, 1, 2, 63, 64, 65, 8191, 8192, 1 << 31, (1 << 63) - 1])
def test_longs_are_avros(value: int) -> None:
    """Goal: any Avro tool reads a frame's numbers. Method: a value, and the negative one below zero, as fastavro writes
    them; read back from the middle of other bytes."""
    for signed in (value, -value - 1):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, "long", signed)
        encoded = encode_long(signed)
        assert encoded == out.getvalue()
        assert decode_long(b"\xff\xff" + encoded + b"\x01", 2) == (signed, 2 + len(encoded))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9, b"\x80" * 10 + b"\x01"])
def test_bytes_that_do_not_end_a_long_are_none(data: bytes) -> None:
    """Goal: a number without an end is damage, and is read to a bound only. Method: nothing, unfinished ones, and one
    of eleven bytes."""
    with pytest.raises(ValueError, match="no Avro long at byte 3"):
        decode_long(b"abc" + data, 3)


def test_sealed_bytes_read_back_only_whole() -> None:
    """Goal: a record with a checksum is read only if it is whole. Method: damage each byte; cut one; none."""
    data = seal(b"a body")
    assert (unseal(data), len(data)) == (b"a body", 10)
    for at in range(len(data)):
        assert unseal(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) is None
    assert unseal(data[:-1]) is None and unseal(b"") is None


def test_head_of_an_entry_is_what_a_whole_one_begins_with() -> None:
    """Goal: an entry in three parts is one Avro record. Method: the first fields by a schema of their own."""
    fields: dict[str, Any] = {
        "term": 1,
        "index": 2,
        "kind": 3,
        "hybrid_time": 4,
        "schema_id": 5,
        "flags": 6,
        "meta": b"m",
    }
    head, whole = io.BytesIO(), io.BytesIO()
    fastavro.schemaless_writer(head, _head_schema(), fields)
    more = {"payload": b"p", "payload_crc": 7, "identity_crc": 8, "reserved": b""}
    fastavro.schemaless_writer(whole, _ENTRY_SCHEMA, fields | more)
    assert whole.getvalue() == head.getvalue() + b"\x02p" + encode_long(7) + encode_long(8) + b"\0"


def test_marker_is_new_and_has_no_zero() -> None:
    """Goal: each segment has a marker of its own without zero bytes, so a zero sector at a block's end shows a torn
    write. Method: many."""
    markers = [new_marker() for _ in range(200)]
    assert len(set(markers)) == 200 and all(len(one) == MARKER_BYTES and 0 not in one for one in markers)


def test_header_says_who_a_segment_belongs_to() -> None:
    """Goal: a header reads back, also by fastavro and with bytes behind it. Method: one, and one of a build that stated
    no zero sectors and named no entry before."""
    text = HEADER.schema_text
    expected = Header(TABLET, 7, 5, MARKER, text, len(BYTES), True, OpId(2, 4))
    assert encode_header(TABLET, 7, 5, MARKER, OpId(2, 4)) == BYTES
    assert [HEADER, decode_header(BYTES + b"more", NAME)] == [expected, expected]
    assert entry_schema(text + " ")["name"] == "nyala.v1.WalEntry"
    assert fastavro.reader(io.BytesIO(BYTES)).writer_schema["name"] == "nyala.v1.WalEntry"  # type: ignore[index, call-overload]
    assert decode_header(_with({"nyala.zero_sectors": "silent"}, without="nyala.after"), NAME) == Header(
        TABLET, 7, 5, MARKER, text, HEADER.length_bytes - len("nyala.after") - len("2.4") - 2, False, None
    )


def _with(changed: dict[str, str], *, without: str = "") -> bytes:
    """The header with other metadata, its checksum right."""
    meta, _, _ = _raw_header(BYTES)
    told = {key: text for key, text in meta.items() if key.startswith("nyala.") and key != without} | changed
    whole, _, _ = _raw_header(_container_header(told, MARKER))
    told["nyala.header_crc"] = f"{_header_crc(whole, MARKER):010d}"
    return _container_header(told, MARKER)


def _told(**changed: str) -> bytes:
    """The header with another schema or codec, its checksum right."""
    meta, _, _ = _raw_header(BYTES)
    meta |= {f"avro.{key}": text for key, text in changed.items()}
    meta["nyala.header_crc"] = f"{_header_crc(meta, MARKER):010d}"
    out = io.BytesIO()
    header = {"magic": b"Obj\x01", "meta": {key: text.encode() for key, text in meta.items()}, "sync": MARKER}
    fastavro.schemaless_writer(out, _HEADER_SCHEMA, header)
    return out.getvalue()


def test_damaged_header_is_corruption_and_a_later_one_is_said_to_be_later() -> None:
    """Goal: a damaged header and one of a newer build raise different errors. Method: each byte of what the checksum
    covers, the magic, a segment that ends in its header, another codec; a later version, a feature that must be
    known."""
    for at in [*range(40), *range(40, len(BYTES), 7), *range(len(BYTES) - 20, len(BYTES))]:
        with pytest.raises(Corruption, match="header does not read back"):
            decode_header(BYTES[:at] + bytes([BYTES[at] ^ 0x10]) + BYTES[at + 1 :], NAME)
    assert decode_header(_told(), NAME) == HEADER
    other = BYTES.replace(b"nyala.tablet\x04t1", b"nyala.tablet\x04t2")
    assert other != BYTES
    for data in (BYTES[:-1], b"", other, _told(codec="deflate"), _told(schema="{")):
        with pytest.raises(Corruption):
            decode_header(data, NAME)
    for later in ({"nyala.version": "2"}, {"nyala.incompatible_features": "x"}):
        with pytest.raises(LaterFormat):
            decode_header(_with(later), NAME)


def test_each_flipped_bit_of_a_header_is_damage_or_nothing() -> None:
    """IN-21. Goal: no flipped bit of a segment's header reads as a later build's, which nothing heals, or as another
    header. Method: every bit: Corruption, or what was written (a zero of the checksum's number became a space)."""
    read_well = 0
    for bit in range(8 * len(BYTES)):
        flipped = bytearray(BYTES)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert decode_header(bytes(flipped), NAME) == HEADER, bit
            read_well += 1
        except Corruption as error:
            assert not isinstance(error, LaterFormat), bit
    assert read_well <= 10


def _bytes(one: Entry, *, placed: bool = False, segment: int = 7) -> bytes:
    encoded = encode_entry(TABLET, one, placed=placed)
    assert encoded.length_bytes == len(encoded.head + encoded.payload)
    return encoded.head + encoded.payload + encode_tail(encoded, segment)


@pytest.mark.parametrize("size", [0, 5, PAYLOAD_BYTES_JOINED_MAX, PAYLOAD_BYTES_JOINED_MAX + 1])
def test_entry_reads_back_and_a_large_payload_is_a_part_of_its_own(size: int) -> None:
    """Goal: what is read is what was written. Method: payloads up to what is copied, and a byte more."""
    one = entry(9, b"\5" * size)
    assert bool(encode_entry(TABLET, one).payload) == (size > PAYLOAD_BYTES_JOINED_MAX)
    assert decode_entry(io.BytesIO(_bytes(one)), HEADER) == (one, "", False, b"")


@pytest.mark.parametrize(
    ("one", "placed", "needs_trailer"),
    [
        (entry(9), False, False),
        (entry(9), True, True),
        (entry(9, bytes(200)), False, True),
        (entry(9, meta=bytes(200)), False, True),
    ],
    ids=["plain", "placed", "zeros in the payload", "zeros in the metadata"],
)
def test_entry_that_needs_a_trailer_says_so(one: Entry, placed: bool, needs_trailer: bool) -> None:
    """Goal: a reader knows which blocks end in a trailer. Method: entries with and without a long run."""
    assert encode_entry(TABLET, one, placed=placed).needs_trailer == needs_trailer
    assert decode_entry(io.BytesIO(_bytes(one, placed=placed)), HEADER) == (one, "", needs_trailer, b"")


def _raw(one: Entry, *, reserved: bytes = b"", flags: int = 0, kind: int | None = None, damaged: str = "") -> bytes:
    """An entry as fastavro alone writes it, its identity right unless it is what is `damaged`."""
    changed = one if kind is None else one._replace(kind=kind)  # type: ignore[arg-type]
    row = {
        "term": one.opid.term,
        "index": one.opid.index,
        "kind": int(changed.kind),
        "hybrid_time": one.hybrid_time,
        "schema_id": one.schema_id,
        "flags": flags,
        "meta": one.meta,
        "payload": one.payload + (b"x" if damaged == "payload CRC" else b""),
        "payload_crc": one.payload_crc,
        "identity_crc": identity_in(7, _identity(TABLET, changed, flags)) ^ (damaged == "identity CRC"),
        "reserved": reserved,
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _ENTRY_SCHEMA, row)
    return out.getvalue()


def test_what_is_wrong_with_an_entry_is_told() -> None:
    """CN-22. Goal: the check of an entry tells which part is damaged, because that decides whether the entry's OpId can
    be believed. Method: its identity, its payload, a trailer of a wrong length, each alone and together; an entry of
    another segment and tablet."""
    one = entry(9)
    whole = decode_entry(io.BytesIO(_raw(one)), HEADER)
    assert (whole, type(whole.entry.kind)) == ((one, "", False, b""), EntryKind)
    for reserved, damaged, problem in (
        (b"", "identity CRC", "identity CRC"),
        (b"", "payload CRC", "payload CRC"),
        (b"r", "", "reserved bytes"),
        (b"r" * TRAILER_BYTES, "", ""),
        (b"r", "identity CRC", "identity CRC"),
        (b"r", "payload CRC", "reserved bytes"),
    ):
        found = decode_entry(io.BytesIO(_raw(one, reserved=reserved, damaged=damaged)), HEADER)
        assert (found.problem, found.trailer) == (problem, reserved)
    assert decode_entry(io.BytesIO(_bytes(one, segment=8)), HEADER).problem == "identity CRC"
    other = encode_entry("t2", one)
    assert decode_entry(io.BytesIO(other.head + encode_tail(other, 7)), HEADER).problem == "identity CRC"


def test_entry_of_a_newer_build_is_not_taken_for_damage() -> None:
    """Goal: an entry that this build cannot apply ends in another error than damage does. Method: an unknown
    kind, an unknown flag, each with an identity that is right and one that is not."""
    unknown = max(EntryKind) + 1
    for row in ({"kind": unknown}, {"flags": 2}, {"flags": 3}):
        with pytest.raises(LaterFormat):
            decode_entry(io.BytesIO(_raw(entry(9), **row)), HEADER)
        assert decode_entry(io.BytesIO(_raw(entry(9), damaged="identity CRC", **row)), HEADER).problem == "identity CRC"


def test_block_is_its_frame_its_entries_and_the_marker() -> None:
    """Goal: a block is what any Avro tool reads. Method: two entries, as one part and as three, without a trailer."""
    first, second = _bytes(entry(5)), _bytes(entry(6))
    length = len(first + second)
    block = encode_block(HEADER, 100, 2, [first, second], length, with_trailer=False)
    assert b"".join(block) == encode_long(2) + encode_long(length) + first + second + MARKER
    rows = list(fastavro.reader(io.BytesIO(BYTES + b"".join(block))))
    assert [row["index"] for row in rows if isinstance(row, dict)] == [5, 6]


@pytest.mark.parametrize("cuts", [[], [10], [10, 40, 41]])
def test_block_with_zeros_ends_in_a_trailer_of_them(cuts: list[int]) -> None:
    """CN-22. Goal: a block with zero sectors ends in a trailer of them and of its place. Method: an entry of zeros in
    one, two and four parts, at a place where three sectors of it are zeros; the trailer stands in for the entry's
    empty last field."""
    one = _bytes(entry(5, bytes(2100)))
    bounds = [0, *cuts, len(one)]
    parts = [one[start:end] for start, end in itertools.pairwise(bounds)]
    length = len(one) + TRAILER_BYTES
    block = b"".join(encode_block(HEADER, 600, 1, parts, length, with_trailer=True))
    frame = encode_long(1) + encode_long(length)
    end_at = len(frame) + len(one) - 1
    assert block[:end_at] == frame + one[:-1] and block[-MARKER_BYTES:] == MARKER
    assert len(block) == len(frame) + length + MARKER_BYTES
    found = decode_entry(io.BytesIO(block[len(frame) :]), HEADER)
    assert (found.entry, found.problem, found.needs_trailer) == (entry(5, bytes(2100)), "", True)
    assert decode_trailer(found.trailer, 7, 600, 600 + len(block)) == count_zero_sectors([block[:end_at]], 600)
    assert count_zero_sectors([block[:end_at]], 600) == ZeroSectors(3, 0)
