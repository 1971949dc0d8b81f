"""Reads the values of one condition, an Arrow IPC stream of one column, without trusting a byte of it.

pyarrow's stream reader expands a stream before any check can run. A null column of two thousand million values takes
two hundred bytes on the wire, run-ends and dictionaries repeat one value any number of times, and compressed buffers
expand. So this module reads the schema message itself, accepts only the plain types that a column's value can have, and
requires that each value has its own bytes in the body. The array is never larger than a small multiple of the stream.
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from nyala.replica.types import limits

from .batch import buffer_sizes
from .message import (
    HEADER_RECORD_BATCH,
    HEADER_SCHEMA,
    MalformedMessage,
    Table,
    message_head_bytes,
    message_header,
    read_header,
)

_END = struct.pack("<Ii", 0xFFFFFFFF, 0)
_U8, _I16, _I32 = struct.Struct("<B"), struct.Struct("<h"), struct.Struct("<i")
_INT, _FLOAT, _BINARY, _UTF8, _BOOL, _DECIMAL, _DATE, _TIMESTAMP = 2, 3, 4, 5, 6, 7, 8, 10
_NAMES = {
    1: "null", 9: "time", 11: "interval", 12: "list", 13: "struct", 14: "union", 15: "fixed-size binary",
    16: "fixed-size list", 17: "map", 18: "duration", 19: "large binary", 20: "large string", 21: "large list",
    22: "run-end encoded", 23: "binary view", 24: "string view", 25: "list view", 26: "large list view",
}  # fmt: skip
_INTEGERS = {(b, s): getattr(pa, f"{'int' if s else 'uint'}{b}")() for b in (8, 16, 32, 64) for s in (False, True)}
_FLOATS = (pa.float16(), pa.float32(), pa.float64())
_UNITS = ("s", "ms", "us", "ns")
COLUMN = "v"
"""The name of the only column."""


def read_values(data: bytes) -> Any:
    """The values as a pa.Array. MalformedMessage unless `data` is a stream of one column `v` of a plain type, in one
    uncompressed batch without nulls, of at most SCAN_VALUES_MAX values, with its end."""
    buffer = pa.py_buffer(data)
    if buffer.address % 8:
        buffer = pa.py_buffer(bytearray(data))
    stream = memoryview(buffer)
    head = message_head_bytes(stream)
    kind = _column_type(stream[:head])
    rest = stream[head:]
    if bytes(rest[-len(_END) :]) != _END:
        raise MalformedMessage("the stream has no end")
    batch = rest[: -len(_END)]
    header = read_header(batch)
    rows = header.rows
    if not 0 <= rows <= limits.SCAN_VALUES_MAX:
        raise MalformedMessage(f"{rows} values; a scan has at most {limits.SCAN_VALUES_MAX}")
    if len(header.nodes) != 1 or header.nodes.tolist() != [[rows, 0]]:
        raise MalformedMessage("not one column of values without nulls")
    sizes = buffer_sizes(kind, rows)
    if len(header.buffers) != 1 + len(sizes):
        raise MalformedMessage(f"{len(header.buffers)} buffers do not make a column of {kind}")
    if not rows:
        return pa.array([], type=kind)
    parts = [None]
    for (at, got), needed in zip(header.buffers.tolist()[1:], sizes, strict=True):
        if got < needed:
            raise MalformedMessage(f"a buffer of {got} bytes where {rows} values need {needed}")
        parts.append(buffer.slice(head + header.body_start + at, got))
    array = pa.Array.from_buffers(kind, rows, parts, 0)
    array.validate(full=True)
    return array


def _column_type(message: memoryview) -> Any:
    """The type of the stream's one column, from its schema message."""
    table, kind, body_bytes = message_header(message)
    if kind != HEADER_SCHEMA or body_bytes:
        wanted = "a record batch" if kind == HEADER_RECORD_BATCH else f"header type {kind}"
        raise MalformedMessage(f"the stream begins with {wanted}, not with a schema")
    if table.scalar(0, _I16):
        raise MalformedMessage("big-endian values are not taken")
    if table.field(2) and table.count(2):
        raise MalformedMessage("custom metadata is not taken")
    if table.count(1) != 1:
        raise MalformedMessage(f"{table.count(1)} columns of values, not one")
    field = table.element(1, 0)
    if field.text(0) != COLUMN:
        raise MalformedMessage("the column of values has another name than v")
    if field.field(4):
        raise MalformedMessage("a dictionary is not taken")
    if field.count(5):
        raise MalformedMessage("nested values are not taken")
    if field.count(6):
        raise MalformedMessage("extension types and custom metadata are not taken")
    number = field.scalar(2, _U8)
    if not field.child(3):
        raise MalformedMessage(f"values of Arrow type {number} without its details")
    return _plain_type(number, Table(field.data, field.child(3)))


def _plain_type(number: int, details: Table) -> Any:
    if number == _INT:
        wanted = (details.scalar(0, _I32), bool(details.scalar(1, _U8)))
        if wanted in _INTEGERS:
            return _INTEGERS[wanted]
        raise MalformedMessage(f"integers of {wanted[0]} bits are not taken")
    if number == _FLOAT:
        return _FLOATS[_chosen(details.scalar(0, _I16), len(_FLOATS), "a float's precision")]
    if number == _DECIMAL:
        return _decimal(details)
    if number == _DATE:
        if details.scalar(0, _I16, 1):
            raise MalformedMessage("dates in milliseconds are not taken")
        return pa.date32()
    if number == _TIMESTAMP:
        zone = details.text(1)
        if zone not in ("", "UTC"):
            raise MalformedMessage("timestamps are without a zone, or in UTC")
        return pa.timestamp(_UNITS[_chosen(details.scalar(0, _I16), len(_UNITS), "a unit")], tz=zone or None)
    if number in (_BINARY, _UTF8, _BOOL):
        return {_BINARY: pa.binary(), _UTF8: pa.string(), _BOOL: pa.bool_()}[number]
    raise MalformedMessage(f"values of type {_NAMES.get(number, number)} are not taken")


def _decimal(details: Table) -> Any:
    precision, scale, bits = details.scalar(0, _I32), details.scalar(1, _I32), details.scalar(2, _I32, 128)
    most = {128: 38, 256: 76}.get(bits, 0)
    if not (1 <= precision <= most and -most <= scale <= most):
        raise MalformedMessage(f"no decimal has {bits} bits, {precision} digits and a scale of {scale}")
    return pa.decimal128(precision, scale) if bits == 128 else pa.decimal256(precision, scale)


def _chosen(number: int, count: int, what: str) -> int:
    if not 0 <= number < count:
        raise MalformedMessage(f"{what} has no number {number}")
    return number
