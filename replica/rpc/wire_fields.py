"""Reads the fields of a serialised protobuf message, one after the other, without making objects. Pure."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def wire_fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield, for each field between `at` and `end`, its number, and where the bytes of a text or message begin and end.

    Both are 0 for a number. ValueError at the first bytes that are not a field. Nothing is read ahead, so a caller that
    stops has only the cost of the fields that it took.
    """
    while at < end:
        tag, at = _varint(data, at, end)
        form, begin, stop = tag & 7, 0, 0
        if form == _LENGTH:
            length, begin = _varint(data, at, end)
            at = stop = begin + length
        elif form == _VARINT:
            _, at = _varint(data, at, end)
        elif form in (_FIXED32, _FIXED64):
            at += 4 if form == _FIXED32 else 8
        else:
            raise ValueError(f"a field of form {form}, which no message has")
        if at > end:
            raise ValueError("a field ends behind its message")
        yield tag >> 3, begin, stop


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number has no end")
