"""Changes Avro data by their schemas: its own writer writes what no other writer of Avro would."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

from nyala import schemas
from tests.fuzz.spoil import INPUT_BYTES_MAX, spoilt
from tests.fuzz.spoil_proto import TEXTS

NUMBERS = (
    0,
    1,
    -1,
    2,
    63,
    64,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32,
    2**53,
    2**62,
    2**63 - 1,
    -(2**63),
    2**63,
    2**64,
    2**70,
)
BLOBS = (b"", b"\0", b"\xff", b"{}", b"[]", b"[" * 500, b'{"a":1}', bytes(700), b"\xff" * 5000, b"\xc3\x28")
LIES = (-1, 1, 2**31, 2**62, -(2**62), 10**6)


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 127)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number & 0x7F)
    return bytes(out)


class Writer:
    """Writes a value by its schema; each part is changed with the probability `share`."""

    def __init__(self, rng: random.Random, share: float, named: dict[str, Any] | None = None) -> None:
        self._rng = rng
        self._share = share
        self._named = named or {}

    def _spoils(self) -> bool:
        return self._rng.random() < self._share

    def _number(self, value: int) -> bytes:
        rng = self._rng
        if self._spoils():
            value = rng.choice((rng.choice(NUMBERS), value + rng.choice((-1, 1))))
        return _varint(value)

    def _blob(self, data: bytes) -> bytes:
        said = len(data) + self._rng.choice(LIES) if self._spoils() else len(data)
        return _varint(said) + data

    def _items(self, items: list[bytes]) -> bytes:
        """Return the blocks of an array or a map: several, doubled, with a size in bytes, or with a false count."""
        rng = self._rng
        if items and self._spoils():
            items = items * rng.choice((2, 17, 300, 3000))
            items = items[: max(1, INPUT_BYTES_MAX // 4 // max(1, max(map(len, items))))]
        count, body = len(items), b"".join(items)
        if self._spoils():
            count += rng.choice(LIES)
        if self._spoils():
            return _varint(-count) + _varint(rng.choice((len(body), *LIES))) + body + b"\0"
        return (_varint(count) + body if count else b"") + (b"" if self._spoils() else b"\0")

    def write(self, schema: Any, value: Any) -> bytes:
        """Return the value's bytes."""
        rng = self._rng
        if isinstance(schema, list):
            return self._union(schema, value)
        schema = self._named.get(schema, schema) if isinstance(schema, str) else schema
        kind = schema["type"] if isinstance(schema, dict) else schema
        match kind:
            case "record":
                parts = [self.write(f["type"], value.get(f["name"])) for f in schema["fields"]]
                if self._spoils():
                    parts = rng.choice((parts[:-1], parts * 2, parts[1:], sorted(parts)))
                return b"".join(parts)
            case "string":
                text = rng.choice(TEXTS) if self._spoils() else value or ""
                return self._blob(text.encode(errors="surrogatepass"))
            case "bytes" | "fixed":
                data = rng.choice(BLOBS) if self._spoils() else value or b""
                if data[:1] in b"{[" and self._spoils():
                    data = spoilt_json(data, rng)
                return data if kind == "fixed" else self._blob(data)
            case "int" | "long":
                return self._number(value or 0)
            case "boolean":
                return rng.choice((b"\2", b"\xff", b"\1", b"\0")) if self._spoils() else bytes([bool(value)])
            case "enum":
                return self._number(schema["symbols"].index(value) if value in schema["symbols"] else 0)
            case "array":
                return self._items([self.write(schema["items"], each) for each in value or ()])
            case "map":
                pairs = (value or {}).items()
                return self._items([self.write("string", k) + self.write(schema["values"], v) for k, v in pairs])
            case "float" | "double":
                number = rng.choice((0.0, float("nan"), float("inf"), -1.0)) if self._spoils() else value or 0.0
                return struct.pack("<f" if kind == "float" else "<d", number)
            case "null":
                return b""
        raise KeyError(f"no schema type {kind!r} is known here")

    def _union(self, branches: list[Any], value: Any) -> bytes:
        at = next((pos for pos, b in enumerate(branches) if (b == "null") == (value is None)), 0)
        if self._spoils():
            return _varint(self._rng.choice((at + 1, at - 1, 99, -1, 2**40))) + self.write(branches[at], value)
        return _varint(at) + self.write(branches[at], value)


def spoilt_json(data: bytes, rng: random.Random) -> bytes:
    """Return a JSON text with one of its values in another's place, or another type of value, or changed as bytes."""
    try:
        found = json.loads(data)
    except ValueError:
        return spoilt(data, rng)
    if rng.random() < 0.15:
        return spoilt(data, rng)
    for _ in range(rng.choice((1, 1, 2, 3))):
        sites = list(_json_sites(found))
        if not sites:
            break
        where, key = rng.choice(sites)
        values = (None, True, 0, -1, 1, 2**31, 2**63, 2**70, 1.5, 1e308, "", "x", "9" * 400, [], {}, [[]], "\ud800")
        way = rng.randrange(5)
        if way == 0 and isinstance(where, dict):
            del where[key]
        elif way == 1:
            other, its = rng.choice(sites)
            where[key] = json.loads(json.dumps(other[its]))
        elif way == 2 and isinstance(where[key], int | float) and not isinstance(where[key], bool):
            where[key] += rng.choice((-1, 1))
        else:
            where[key] = rng.choice(values)
    return json.dumps(found).encode()[:INPUT_BYTES_MAX]


def _json_sites(found: Any) -> Any:
    """Return every (container, key) within it."""
    inside = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, value in list(inside):
        yield found, key
        yield from _json_sites(value)


def _named(schema: Any) -> dict[str, Any]:
    """Return the types that a schema defines, by name."""
    inside = schema if isinstance(schema, list) else list(schema.values()) if isinstance(schema, dict) else []
    found = {schema["name"]: schema} if isinstance(schema, dict) and schema.get("type") in ("record", "enum") else {}
    for each in inside:
        if isinstance(each, dict | list):
            found |= _named(each)
    return found


def spoilt_datum(name: str, value: Any, rng: random.Random) -> bytes:
    """Return a bare datum of that schema with some parts changed, its bytes, or both."""
    way = rng.random()
    share = 0.0 if way < 0.2 else rng.choice((0.01, 0.03, 0.1))
    data = Writer(rng, share, _named(schemas.record(name))).write(schemas.record(name), value)
    if way < 0.3:
        data = spoilt(data, rng)
    return data[:INPUT_BYTES_MAX]
