"""The bytes of a segment: an Avro object container file whose blocks we frame ourselves, because it is preallocated.

The header is fastavro's own. A block is one group commit: the number of entries and of bytes as Avro longs, the
entries, the file's sync marker. The last entry may end in a trailer of zero sectors (zeros.py). A large payload is
never copied into another buffer. The small records beside the segments are sealed with a CRC.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import fastavro
import google_crc32c

from nyala.replica.types import Corruption, Entry, EntryKind, LaterFormat, OpId, check, new_uuid
from nyala.schemas import parse_json, record

from . import zeros

VERSION = 1
MAGIC = b"Obj\x01"
MARKER_BYTES = 16
HEADER_BYTES_MAX = 64 << 10
PAYLOAD_BYTES_JOINED_MAX = 16 << 10
"""Payloads up to this size are cheaper to copy than to write as a separate part."""

BAD_AVRO = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error)
"""The errors that fastavro raises on bytes that are no datum."""

_HEADER = {
    "type": "record",
    "name": "org.apache.avro.file.Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": MARKER_BYTES}},
    ],
}
_HEADER_SCHEMA = fastavro.parse_schema(_HEADER)
_ENTRY_SCHEMA = record("wal_entry")
_BEFORE_PAYLOAD = ("term", "index", "kind", "hybrid_time", "schema_id", "flags", "meta")
_SHORT_LONGS = [bytes([2 * value]) for value in range(64)]
_IDENTITY = struct.Struct("<qqiqiiIQ")
_SEGMENT = struct.Struct("<Q")
_SEAL = struct.Struct("<I")


def seal(body: bytes) -> bytes:
    """`body` and its CRC-32C, for a small file that is replaced in one step."""
    return body + _SEAL.pack(google_crc32c.value(body))


def unseal(data: bytes) -> bytes | None:
    """The body that `seal` got; None if the data are damaged."""
    body = data[: -_SEAL.size]
    return body if seal(body) == data else None


def _head_schema() -> Any:
    """The schema of an entry's fields before its payload: a record is encoded as its fields, one after the other."""
    plain = json.loads(json.dumps({k: v for k, v in _ENTRY_SCHEMA.items() if not k.startswith("__")}))
    names = [field["name"] for field in plain["fields"]]
    check(names[: len(_BEFORE_PAYLOAD)] == list(_BEFORE_PAYLOAD), "wal_entry.avsc begins as coded", fields=names)
    check(names[7:] == ["payload", "payload_crc", "identity_crc", "reserved"], "wal_entry.avsc ends as coded")
    return fastavro.parse_schema(plain | {"name": "nyala.v1.WalEntryHead", "fields": plain["fields"][:7]})


_HEAD_SCHEMA = _head_schema()
_DEFAULTS = {"flags": 0, "reserved": b""}
"""The defaults of wal_entry.avsc, for entries of segments whose schema does not have these fields."""


@dataclass(frozen=True)
class Header:
    """The tablet and place of a segment, and how to read it."""

    tablet_id: str
    segment: int
    first_index: int
    marker: bytes
    schema_text: str
    length_bytes: int
    has_trailers: bool = False
    """Whether blocks with zero sectors end in a trailer; in segments of earlier builds, any block may have some."""
    after: OpId | None = None
    """The entry that was written last before this segment; None in segments of earlier builds."""


class EncodedEntry(NamedTuple):
    """One entry, without the part that depends on its segment."""

    head: bytes
    """The bytes up to and including the payload's length; a small payload is included, too."""
    payload: bytes
    """The payload; empty if it is in `head`."""
    payload_crc: int
    identity: int
    """The CRC of everything that identifies the entry, except its segment."""
    needs_trailer: bool
    """Whether the block must end in a trailer, because the entry has a long run of zeros or may replace another."""

    @property
    def length_bytes(self) -> int:
        """The encoded length without the last fields."""
        return len(self.head) + len(self.payload)


def encode_long(value: int) -> bytes:
    """Encode an Avro int or long."""
    if 0 <= value < 64:
        return _SHORT_LONGS[value]
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest & ~0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def decode_long(data: bytes, byte_offset: int) -> tuple[int, int]:
    """(value, offset after it); ValueError if it does not end within ten bytes or the data."""
    value = shift = 0
    for position in range(byte_offset, min(byte_offset + 10, len(data))):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
    raise ValueError(f"no Avro long at byte {byte_offset}")


def new_marker() -> bytes:
    """A sync marker that no other file has. It has no zero byte: so one zero sector at a block's end shows a tear."""
    return hashlib.blake2b(new_uuid().encode(), digest_size=MARKER_BYTES).digest().replace(b"\0", b"\x01")


def _header_crc(meta: dict[str, str], marker: bytes) -> int:
    text = "\n".join(f"{key}={meta[key]}" for key in sorted(meta) if key != "nyala.header_crc")
    return int(google_crc32c.value(text.encode() + marker))


def _container_header(metadata: dict[str, str], marker: bytes) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, _ENTRY_SCHEMA, [], metadata=metadata, sync_marker=marker)
    return out.getvalue()


def _raw_header(data: bytes) -> tuple[dict[str, str], bytes, int]:
    # First, because a length that fastavro reads in other bytes would be told as the cause.
    if not data.startswith(MAGIC):
        raise ValueError(f"it begins with {data[:4]!r}, an Avro object container file with {MAGIC!r}")
    stream = io.BytesIO(data[:HEADER_BYTES_MAX])
    value: Any = fastavro.schemaless_reader(stream, _HEADER_SCHEMA, None)
    return {key: bytes(text).decode() for key, text in value["meta"].items()}, value["sync"], stream.tell()


def encode_header(tablet_id: str, segment: int, first_index: int, marker: bytes, after: OpId) -> bytes:
    """The first bytes of a segment. Their number does not depend on the marker, so a repeated simulation tears the same
    sectors."""
    metadata = {
        "nyala.version": str(VERSION),
        "nyala.tablet": tablet_id,
        "nyala.segment": str(segment),
        "nyala.first_index": str(first_index),
        "nyala.incompatible_features": "",
        "nyala.zero_sectors": "stated",
        "nyala.after": str(after),
    }
    whole, _, _ = _raw_header(_container_header(metadata, marker))
    return _container_header(metadata | {"nyala.header_crc": f"{_header_crc(whole, marker):010d}"}, marker)


def decode_header(data: bytes, name: str) -> Header:
    """Read a segment's first bytes; Corruption says what is wrong; LaterFormat if they are intact and of a later
    build."""
    try:
        meta, marker, length = _raw_header(data)
        if int(meta["nyala.header_crc"]) != _header_crc(meta, marker):
            raise ValueError("the header's CRC-32C is wrong")
        if int(meta["nyala.version"]) != VERSION or meta["nyala.incompatible_features"]:
            raise LaterFormat(
                f"a segment's format version {meta['nyala.version']} with features "
                f"{meta['nyala.incompatible_features']!r} is not readable by this build, which knows version {VERSION}",
                segment=name,
            )
        if meta.get("avro.codec", "null") != "null":
            raise ValueError(f"codec {meta['avro.codec']!r}")
        entry_schema(meta["avro.schema"])
        return Header(
            meta["nyala.tablet"],
            int(meta["nyala.segment"]),
            int(meta["nyala.first_index"]),
            marker,
            meta["avro.schema"],
            length,
            meta.get("nyala.zero_sectors") == "stated",
            OpId(*map(int, meta["nyala.after"].split("."))) if "nyala.after" in meta else None,
        )
    except BAD_AVRO as error:
        raise Corruption("a segment's header does not read back", segment=name, cause=str(error)) from error


@lru_cache(maxsize=16)
def entry_schema(text: str) -> Any:
    """The parsed writer's schema of a segment."""
    return parse_json(text)


def _identity(tablet_id: str, entry: Entry, flags: int) -> int:
    tablet = tablet_id.encode()
    fixed = _IDENTITY.pack(
        entry.opid.term,
        entry.opid.index,
        entry.kind,
        entry.hybrid_time,
        entry.schema_id,
        flags,
        entry.payload_crc,
        len(entry.meta),
    )
    return int(google_crc32c.value(b"".join((_SEGMENT.pack(len(tablet)), tablet, fixed, entry.meta))))


def identity_in(segment: int, identity: int) -> int:
    """The identity CRC of an entry in `segment`."""
    return int(google_crc32c.extend(identity, _SEGMENT.pack(segment)))


def encode_entry(tablet_id: str, entry: Entry, *, placed: bool = False) -> EncodedEntry:
    """Serialise the part that does not depend on the segment. `placed`: its block must end in a trailer,
    whatever its bytes."""
    out = io.BytesIO()
    needs_trailer = placed or zeros.has_run(entry.payload) or zeros.has_run(entry.meta)
    flags = zeros.ZERO_RUN_FLAG if needs_trailer else 0
    fastavro.schemaless_writer(
        out,
        _HEAD_SCHEMA,
        {
            "term": entry.opid.term,
            "index": entry.opid.index,
            "kind": int(entry.kind),
            "hybrid_time": entry.hybrid_time,
            "schema_id": entry.schema_id,
            "flags": flags,
            "meta": entry.meta,
        },
    )
    out.write(encode_long(len(entry.payload)))
    identity = _identity(tablet_id, entry, flags)
    if len(entry.payload) > PAYLOAD_BYTES_JOINED_MAX:
        return EncodedEntry(out.getvalue(), entry.payload, entry.payload_crc, identity, needs_trailer)
    out.write(entry.payload)
    return EncodedEntry(out.getvalue(), b"", entry.payload_crc, identity, needs_trailer)


def encode_tail(entry: EncodedEntry, segment: int) -> bytes:
    """The fields after the payload, for an entry in `segment`."""
    return encode_long(entry.payload_crc) + encode_long(identity_in(segment, entry.identity)) + b"\0"


def encode_block(
    header: Header, byte_offset: int, count: int, parts: Sequence[bytes], length_bytes: int, *, with_trailer: bool
) -> list[bytes]:
    """A block of `count` entries, whose bytes are `parts` joined, for the place `byte_offset`.

    `with_trailer`: an entry needs a trailer, so TRAILER_BYTES of `length_bytes` are not in `parts` yet.
    """
    frame = encode_long(count) + encode_long(length_bytes)
    if not with_trailer:
        return [frame, *parts, header.marker]
    parts = [frame, *parts[:-1], parts[-1][:-1]]  # without the length byte of an empty `reserved`
    end = byte_offset + len(frame) + length_bytes + MARKER_BYTES
    trailer = zeros.encode_trailer(zeros.count_zero_sectors(parts, byte_offset), header.segment, byte_offset, end)
    return [*parts, encode_long(len(trailer)), trailer, header.marker]


class Decoded(NamedTuple):
    """One entry as it was read."""

    entry: Entry
    problem: str
    """What is wrong with the entry; empty if nothing."""
    needs_trailer: bool
    trailer: bytes


def decode_entry(stream: io.BytesIO, header: Header) -> Decoded:
    """The next entry of `stream`, read by the schema of its segment; one of BAD_AVRO if it is no entry at all.

    LaterFormat if the entry is intact but of a newer build.
    """
    written: Any = fastavro.schemaless_reader(stream, entry_schema(header.schema_text), None)
    value: Any = _DEFAULTS | written
    opid = OpId(value["term"], value["index"])
    known = value["kind"] in EntryKind._value2member_map_
    kind = EntryKind(value["kind"]) if known else value["kind"]
    entry = Entry(
        opid, kind, value["hybrid_time"], value["schema_id"], value["meta"], value["payload"], value["payload_crc"]
    )
    needs_trailer, problem = value["flags"] == zeros.ZERO_RUN_FLAG, ""
    if identity_in(header.segment, _identity(header.tablet_id, entry, value["flags"])) != value["identity_crc"]:
        problem = "identity CRC"
    elif not known or value["flags"] not in (0, zeros.ZERO_RUN_FLAG):
        raise LaterFormat("an entry of a newer build", opid=opid, kind=value["kind"], flags=value["flags"])
    elif len(value["reserved"]) not in (0, zeros.TRAILER_BYTES):
        problem = "reserved bytes"
    elif google_crc32c.value(entry.payload) != entry.payload_crc:
        problem = "payload CRC"
    return Decoded(entry, problem, needs_trailer, value["reserved"])
