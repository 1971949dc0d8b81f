"""Loads, fingerprints, encodes and decodes. Durable files are framed: magic, version, length, CRC-32C, then Avro."""

from __future__ import annotations

import copy
import io
import json
import struct
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import google_crc32c
from fastavro.schema import SchemaParseException, fingerprint, parse_schema, to_parsing_canonical_form

from .feature_level import level_features

_FOLDER = Path(__file__).resolve().parent / "avro"
_FRAME = struct.Struct("<4sIQI")
_MAGIC = b"NYLA"
_VERSION = 1


_NO_DATUM = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, struct.error)
"""The errors that the reader of data raises over bytes that are no datum."""


NAME_CHARS_MAX = 256
"""Bounds each name and namespace. The canonical form has the namespace at each name, so long ones would multiply."""
CANONICAL_CHARS_MAX = 512 << 10
"""Bounds the canonical form, of which the fingerprint is computed byte by byte without a pause."""

_NO_SCHEMA = (SchemaParseException, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""The errors that the parser raises over JSON that is no Avro schema."""


class UnsupportedFrame(ValueError):
    """A framed file has a format version or a feature that this build does not support; nothing is damaged.

    The codec does not know whose file it is. The reader of the file turns this into `LaterFormat` of `replica.types` (a
    replica fails) or into a refusal to start."""


@cache
def record(name: str) -> Any:
    """Return the parsed schema `name`; KeyError if there is none."""
    path = _FOLDER / f"{name}.avsc"
    if not path.exists():
        raise KeyError(f"no Avro schema named {name!r} in {_FOLDER}")
    return parse_json(path.read_text())


def parse_json(text: str) -> Any:
    """Parse a schema's JSON on its own, without fastavro's global table of names."""
    return parse_schema(json.loads(text), named_schemas={}, _write_hint=True)


@cache
def _for_writing(name: str) -> Any:
    """Return the schema `name` for the writer of single data; it cannot be written as JSON any more."""
    schema = copy.deepcopy(record(name))
    _make_bytes_defaults_bytes(schema)
    return schema


def _make_bytes_defaults_bytes(node: Any) -> None:
    """Convert the defaults of bytes fields to bytes: JSON has them as text, and the writer needs bytes if the value is
    missing."""
    if isinstance(node, list):
        for item in node:
            _make_bytes_defaults_bytes(item)
    elif isinstance(node, dict):
        if node.get("type") == "bytes" and isinstance(node.get("default"), str):
            node["default"] = node["default"].encode("latin-1")
        for item in node.values():
            if isinstance(item, dict | list):
                _make_bytes_defaults_bytes(item)


_KNOWN_FEATURES = {"superblock": ("last-logged-unknown", "witness"), "instance": ("inherited-uuid",)}
"""By schema: features that not every build of this format version knows, and this one does."""


def fingerprint64(schema: Any) -> bytes:
    """Return the CRC-64-AVRO of the parsing canonical form, little-endian: the eight bytes of single-object framing."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


def parse_writer_schema(text: str) -> tuple[object, bytes]:
    """Return (the parsed schema of a producer, its fingerprint as `fingerprint64` gives it); ValueError says why `text`
    is none. Time and memory are bounded by the length of the text."""
    try:
        found = json.loads(text)
        _check_names(found)
        # By force, because the parser believes a mark in the JSON that it has parsed it before.
        parsed = parse_schema(found, named_schemas={}, _write_hint=True, _force=True)
        canonical = to_parsing_canonical_form(parsed)
        if len(canonical) > CANONICAL_CHARS_MAX:
            raise ValueError(f"its canonical form has {len(canonical)} characters, more than {CANONICAL_CHARS_MAX}")
        return parsed, bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))
    except _NO_SCHEMA as error:
        raise ValueError(f"{type(error).__name__}: {str(error)[:300]}") from error


def _check_names(schema: object) -> None:
    waiting: list[object] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            for name in ("name", "namespace"):
                if isinstance(part.get(name), str) and len(part[name]) > NAME_CHARS_MAX:
                    raise ValueError(f"a {name} of {len(part[name])} characters, more than {NAME_CHARS_MAX}")
        if isinstance(part, dict | list):
            waiting.extend(part.values() if isinstance(part, dict) else part)


def encode(name: str, value: dict[str, Any]) -> bytes:
    """Return one bare Avro datum of schema `name`."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _for_writing(name), value)
    return out.getvalue()


def decode(name: str, data: bytes) -> dict[str, Any]:
    """Return the dict of one bare Avro datum; ValueError if `data` is no such datum, whatever else it is."""
    schema = record(name)
    try:
        value: dict[str, Any] = fastavro.schemaless_reader(io.BytesIO(data), schema, None)
    except _NO_DATUM as error:
        raise ValueError(f"{name}: {len(data)} bytes are no such datum: {type(error).__name__} {error}") from error
    return value


def frame(name: str, value: dict[str, Any]) -> bytes:
    """Return a durable file's bytes: magic, format version, length and CRC-32C of the datum, then the datum."""
    datum = encode(name, value)
    return _FRAME.pack(_MAGIC, _VERSION, len(datum), google_crc32c.value(datum)) + datum


def unframe(name: str, data: bytes) -> dict[str, Any]:
    """Return the record of a framed file; ValueError describes the defect and its place, UnsupportedFrame what a later
    build wrote.

    The CRC-32C of version 1 does not cover the version, and that of each later format does. So a later version whose
    length and CRC are those of version 1 is a damaged number.
    """
    if len(data) < _FRAME.size:
        raise ValueError(f"{name}: {len(data)} bytes are shorter than the {_FRAME.size}-byte header")
    magic, version, length, crc = _FRAME.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError(f"{name}: magic {magic!r} at byte 0 is not {_MAGIC!r}")
    datum = data[_FRAME.size :]
    found = google_crc32c.value(datum)
    if version != _VERSION:
        what = f"{name}: format version {version} at byte 4"
        if version < _VERSION or (len(datum), found) == (length, crc):
            raise ValueError(f"{what} is damaged: it is {_VERSION}, as length and CRC-32C show")
        raise UnsupportedFrame(f"{what} is not readable by this build, which knows {_VERSION}")
    if len(datum) != length:
        raise ValueError(f"{name}: {len(datum)} bytes from byte {_FRAME.size}, {length} were written")
    if found != crc:
        raise ValueError(
            f"{name}: CRC-32C {found:08x} of bytes {_FRAME.size} to {len(data)} is not the recorded {crc:08x}"
        )
    value = decode(name, datum)
    known = {*_KNOWN_FEATURES.get(name, ()), *level_features()}
    unknown = [f for f in value.get("incompatible_features") or [] if f not in known]
    if unknown:
        raise UnsupportedFrame(f"{name}: written with features this build does not know: {', '.join(unknown)}")
    return value
