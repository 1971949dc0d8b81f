"""Decodes one bare Avro datum from an untrusted writer. Every length is compared with the bytes that are there before
anything is read or kept, so that time and memory are bounded by the datum's size."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from .loader import record

VARINT_BYTES_MAX = 10
_INT_BITS = {"int": 32, "long": 64}


class NoDatum(ValueError):
    """The bytes are no datum of the schema. `fields`: those that were read before the fault, in their order."""

    def __init__(self, what: str, fields: dict[str, Any]) -> None:
        super().__init__(what)
        self.fields = fields


class _Cursor:
    """A place in the bytes, and the bounds of what is read from there."""

    def __init__(self, data: bytes, text_bytes_max: int, items_max: int, types: Mapping[str, object]) -> None:
        self.data = data
        self.types = types
        self.pos = 0
        self.text_bytes_max = text_bytes_max
        self.items_max = items_max

    @property
    def left(self) -> int:
        return len(self.data) - self.pos

    def number(self, bits: int) -> int:
        """Read a zigzag varint of `bits` bits."""
        value = 0
        for count in range(VARINT_BYTES_MAX):
            if not self.left:
                raise ValueError(f"the bytes end inside a number, at byte {self.pos}")
            byte = self.data[self.pos]
            self.pos += 1
            value |= (byte & 0x7F) << (7 * count)
            if byte < 0x80:
                if value >> bits:
                    raise ValueError(f"a number has more than {bits} bits, before byte {self.pos}")
                return (value >> 1) ^ -(value & 1)
        raise ValueError(f"a number has more than {VARINT_BYTES_MAX} bytes, before byte {self.pos}")

    def truth(self) -> bool:
        flag = self.data[self.pos : self.pos + 1]
        self.pos += 1
        if flag not in (b"\0", b"\1"):
            raise ValueError(f"a truth value is 0 or 1, at byte {self.pos - 1}")
        return flag == b"\1"

    def blob(self) -> bytes:
        size = self.number(64)
        if not 0 <= size <= min(self.left, self.text_bytes_max):
            bound = f"{self.left} are left and {self.text_bytes_max} are allowed"
            raise ValueError(f"a value says that it has {size} bytes, {bound}, before byte {self.pos}")
        found = self.data[self.pos : self.pos + size]
        self.pos += size
        return found

    def blocks(self, read_item: Any) -> None:
        """Read the items of an array or map, block by block."""
        total = 0
        while count := self.number(64):
            if count < 0:
                count = -count
                self.number(64)  # the block's size in bytes, which only a reader that skips needs
            total += count
            if total > self.items_max:
                raise ValueError(f"a list has {total} items or more, {self.items_max} are allowed, at byte {self.pos}")
            for _ in range(count):
                read_item()


def decode_bounded(name: str, data: bytes, *, text_bytes_max: int, items_max: int) -> dict[str, Any]:
    """Return the dict of one bare datum of schema `name`, as `decode` returns it; NoDatum for any other bytes.

    A text or byte string has at most `text_bytes_max` bytes, an array or map at most `items_max` items. Bytes after the
    datum are an error, and so are `reserved` bytes, because only a later build knows what they mean.
    """
    cursor, fields = _Cursor(data, text_bytes_max, items_max, _types_of(name)), dict[str, Any]()
    try:
        _record(cursor, record(name), fields)
        if cursor.left:
            raise ValueError(f"{cursor.left} bytes are behind the record")
    except ValueError as error:
        raise NoDatum(f"{len(data)} bytes are no {name}: {error}", fields) from error
    return fields


@cache
def _types_of(name: str) -> Mapping[str, object]:
    """Return the named types that schema `name` defines, for the places where it uses one again."""
    found: dict[str, object] = {}

    def look(at: object) -> None:
        if isinstance(at, dict):
            if "name" in at and "type" in at and at["type"] in ("record", "enum"):
                found[at["name"]] = at
            for inner in (at.get("type"), at.get("items"), at.get("values"), *at.get("fields", ())):
                look(inner)

    look(record(name))
    return found


def _record(cursor: _Cursor, schema: Any, into: dict[str, Any]) -> None:
    for field in schema["fields"]:
        value = _value(cursor, field["type"])
        if field["name"] == "reserved" and value:
            raise ValueError(f"{len(value)} reserved bytes are used, as by a later version, before byte {cursor.pos}")
        into[field["name"]] = value


def _value(cursor: _Cursor, schema: Any) -> Any:
    schema = cursor.types.get(schema, schema) if isinstance(schema, str) else schema
    kind = schema["type"] if isinstance(schema, dict) else schema
    match kind:
        case "string":
            return cursor.blob().decode()  # a UnicodeDecodeError is a ValueError
        case "bytes":
            return cursor.blob()
        case "int" | "long":
            return cursor.number(_INT_BITS[kind])
        case "boolean":
            return cursor.truth()
        case "enum":
            at = cursor.number(32)
            if not 0 <= at < len(schema["symbols"]):
                raise ValueError(f"there is no symbol number {at}, before byte {cursor.pos}")
            return schema["symbols"][at]
        case "record":
            found: dict[str, Any] = {}
            _record(cursor, schema, found)
            return found
        case "array":
            items: list[Any] = []
            cursor.blocks(lambda: items.append(_value(cursor, schema["items"])))
            return items
        case "map":
            pairs: dict[str, Any] = {}
            cursor.blocks(lambda: pairs.update({cursor.blob().decode(): _value(cursor, schema["values"])}))
            return pairs
    raise KeyError(f"schema type {kind!r} is not used on the masters' topics")
