"""Changes Protobuf messages by their descriptors: every field of every depth, and the form on the wire."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.fuzz.spoil import INPUT_BYTES_MAX, spoilt

INTEGERS = {
    "int32": (0, 1, -1, 2**31 - 1, -(2**31), 255, 65536, 1000),
    "int64": (0, 1, -1, 2**63 - 1, -(2**63), 2**62, 2**62 + 1, 2**53, 2**32, 2**31, 1000, 1_000_000),
    "uint32": (0, 1, 2**32 - 1, 2**31, 65535, 65536, 1000),
    "uint64": (0, 1, 2**64 - 1, 2**63, 2**62, 2**32),
}
DOUBLES = (0.0, -0.0, 1.0, -1.0, float("nan"), float("inf"), float("-inf"), 1e308, 5e-324)
TEXTS = (
    "", "a", "..", "../../x", "/etc/x", "a\0b", "a\nb", "\x1b[2J", "x" * 128, "x" * 129, "x" * 257, "x" * 5000,
    "x" * 70_000, "\u0442\u0430\u0431", "\U0001f600", "0" * 32, "f" * 32, "NaN", "null", "[" * 500, '{"a":' * 300,
    '[]', '[[1]]', '{"type":"record","name":"r","fields":[]}', "1e999", "-1", "INT64", "ADD", "REMOVE", "=", "in",
    "LEADER", "127.0.0.1", "::1", "%s%n", "\ud7ff", "\uffff",
)  # fmt: skip
"""Some are our own names: a mutation that no check refuses at once goes further."""
BYTES = (b"", b"\0", b"\xff" * 8, b"{}", b"[]", b"null", b"1", b'"x"', b"[" * 500, bytes(5000), b"\xff" * 70_000)


def _sites(message: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Yield every (message, field) in the message, absent fields too; absent parts are not entered."""
    for field in message.DESCRIPTOR.fields:
        yield message, field
        if field.message_type is None or depth > 8:
            continue
        if field.is_repeated:
            for part in list(getattr(message, field.name))[:4]:
                yield from _sites(part, depth + 1)
        elif message.HasField(field.name):
            yield from _sites(getattr(message, field.name), depth + 1)


def _value(field: Any, rng: random.Random) -> Any:
    kind = field.cpp_type
    if kind == field.CPPTYPE_STRING:
        if field.type == field.TYPE_BYTES:
            return rng.choice(BYTES) if rng.random() < 0.8 else rng.randbytes(rng.randrange(64))
        return rng.choice(TEXTS)
    if kind == field.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if kind in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        return rng.choice(DOUBLES)
    if kind == field.CPPTYPE_ENUM:
        return rng.choice((0, 1, 2, 7, 99, -1, 2**31 - 1))
    name = {field.CPPTYPE_INT32: "int32", field.CPPTYPE_INT64: "int64", field.CPPTYPE_UINT32: "uint32"}
    return rng.choice(INTEGERS[name.get(kind, "uint64")])


def _put(message: Any, field: Any, rng: random.Random) -> None:
    if field.message_type is not None:
        if field.is_repeated:
            getattr(message, field.name).add()
        else:
            getattr(message, field.name).SetInParent()
        return
    value = _value(field, rng)
    if not field.is_repeated:
        setattr(message, field.name, value)
        return
    items = getattr(message, field.name)
    if items and rng.random() < 0.5:
        items[rng.randrange(len(items))] = value
    else:
        items.append(value)


def _near(message: Any, field: Any, rng: random.Random) -> None:
    """Change a number a little, or one character of a text."""
    if field.message_type is not None or field.is_repeated:
        _put(message, field, rng)
        return
    value = getattr(message, field.name)
    if isinstance(value, bool):
        value = not value
    elif isinstance(value, int):
        value = value + rng.choice((-2, -1, 1, 2))
    elif isinstance(value, bytes):
        value = spoilt(value, rng)
    elif isinstance(value, str) and value:
        at = rng.randrange(len(value))
        value = value[:at] + rng.choice("0aZ_.-/ \0é") + value[at + 1 :]
    try:
        setattr(message, field.name, value)
    except ValueError:  # beyond the type's range: its last value
        message.ClearField(field.name)


def _clear(message: Any, field: Any, rng: random.Random) -> None:
    message.ClearField(field.name)


def _blow_up(message: Any, field: Any, rng: random.Random) -> None:
    """Repeat the items of a repeated field many times."""
    if not field.is_repeated:
        _clear(message, field, rng)
        return
    items = getattr(message, field.name)
    if not items:
        _put(message, field, rng)
    times = rng.choice((2, 3, 17, 65, 300, 1001, 5000))
    one = items[0]
    size = one.ByteSize() if field.message_type is not None else len(one) if isinstance(one, str | bytes) else 2
    items.extend([one] * min(times, (INPUT_BYTES_MAX // 4) // max(1, size)))


def _from_another(message: Any, field: Any, rng: random.Random, others: Sequence[Any]) -> None:
    """Set the value of some field of the same type in another valid message."""
    wanted = (field.type, field.message_type, field.is_repeated)
    found = [(m, f) for m, f in _sites(rng.choice(others)) if (f.type, f.message_type, f.is_repeated) == wanted]
    if not found:
        return
    source, its = rng.choice(found)
    value = getattr(source, its.name)
    if field.is_repeated:
        getattr(message, field.name).extend(list(value))
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)


_FIELD_WAYS: tuple[Callable[[Any, Any, random.Random], None], ...] = (_put, _put, _put, _near, _near, _clear, _blow_up)


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _unknown(rng: random.Random) -> bytes:
    """Return a field that no message here has, in any wire type, whole or not."""
    number = rng.choice((0, 1, 15, 16, 99, 19_000, 2**29 - 1))
    kind = rng.randrange(8)
    tag = _varint(number << 3 | kind)
    if kind == 0:
        return tag + rng.choice((b"\x01", b"\xff" * 9 + b"\x01", b"\xff" * 11))
    if kind == 1:
        return tag + bytes(8)
    if kind == 2:
        size = rng.choice((0, 1, 100, 2**31 - 1, 2**32, 2**63))
        return tag + _varint(size) + bytes(min(size, 100))
    if kind == 3:  # groups within groups
        depth = rng.choice((1, 50, 101, 5000))
        return tag * depth + _varint(number << 3 | 4) * (depth - rng.randrange(2))
    return tag + bytes(4)


def _nested(cls: Any, rng: random.Random) -> bytes:
    """Return a part within a part, far deeper than any message, by its field's number."""
    parts = [f.number for f in cls.DESCRIPTOR.fields if f.message_type is not None] or [1]
    data, number = b"", rng.choice(parts)
    for _ in range(rng.choice((3, 99, 101, 300))):
        data = _varint(number << 3 | 2) + _varint(len(data)) + data
    return data


def spoilt_message(cls: Any, seeds: Sequence[bytes], rng: random.Random, others: Sequence[Any] = ()) -> bytes:
    """Return bytes of a message of that kind: one of the seeds, with one to four fields changed, or its bytes, or both.

    `others`: messages of any kind, from which values are taken.
    """
    message = cls.FromString(rng.choice(seeds))
    way = rng.random()
    if way < 0.85:
        for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
            sites = list(_sites(message))
            if not sites:
                break
            where, field = rng.choice(sites)
            if others and rng.random() < 0.15:
                _from_another(where, field, rng, others)
            else:
                rng.choice(_FIELD_WAYS)(where, field, rng)
    data: bytes = message.SerializeToString()
    if way < 0.7:
        return data[:INPUT_BYTES_MAX]
    if way < 0.78:
        return (data + b"".join(_unknown(rng) for _ in range(rng.choice((1, 1, 3)))))[:INPUT_BYTES_MAX]
    if way < 0.82:
        return _nested(cls, rng)
    return spoilt(data, rng, seeds)
