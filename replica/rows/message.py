"""Reads the header of an Arrow IPC message without trusting a byte of it.

pyarrow's parser accepts many forms of a batch and guarantees nothing about a hostile header. So it gets only headers
that equal, byte by byte, those that it writes itself. For all others, this module reads the few needed FlatBuffers
fields and checks every position, and `batch.py` builds the arrays.

Layout (Arrow columnar format 1.0, metadata V5): 0xFFFFFFFF, int32 metadata length, Message table, padding to 8, body.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

CONTINUATION = 0xFFFFFFFF
METADATA_V5 = 4
HEADER_SCHEMA = 1
HEADER_RECORD_BATCH = 3
METADATA_SIZE_BYTES_MAX = 64 << 10

_U8 = struct.Struct("<B")
_U16 = struct.Struct("<H")
_I16 = struct.Struct("<h")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_I64 = struct.Struct("<q")


class MalformedMessage(Exception):
    """The bytes are not one whole uncompressed record batch message; the text says what is wrong."""


class BatchHeader(NamedTuple):
    """The fields of the header, checked against the buffer: all byte ranges are inside the body, and ascend."""

    rows: int
    nodes: npt.NDArray[np.int64]
    """Shape (fields, 2): length, null count."""
    buffers: npt.NDArray[np.int64]
    """Shape (buffers, 2): byte offset in the body, length in bytes."""
    body_start: int
    body_bytes: int


class Table:
    """One FlatBuffers table at an absolute position; every read is checked. MalformedMessage."""

    def __init__(self, data: memoryview, pos: int) -> None:
        self.data = data
        self.pos = pos
        self.vtable = pos - int(_read(_I32, data, pos))
        self.vtable_bytes = int(_read(_U16, data, self.vtable))
        self.table_bytes = int(_read(_U16, data, self.vtable + 2))
        if self.vtable_bytes < 4 or self.vtable_bytes % 2 or self.vtable + self.vtable_bytes > len(data):
            raise MalformedMessage(f"a vtable of {self.vtable_bytes} bytes")

    def field(self, number: int) -> int:
        """The absolute position of a field; 0 if it is absent."""
        slot = 4 + 2 * number
        if slot + 2 > self.vtable_bytes:
            return 0
        relative = int(_read(_U16, self.data, self.vtable + slot))
        return self.pos + relative if relative else 0

    def scalar(self, number: int, form: struct.Struct, default: int = 0) -> int:
        pos = self.field(number)
        return int(_read(form, self.data, pos)) if pos else default

    def child(self, number: int) -> int:
        """The absolute position to which an offset field points; 0 if it is absent."""
        pos = self.field(number)
        return pos + int(_read(_U32, self.data, pos)) if pos else 0

    def count(self, number: int) -> int:
        """The number of elements of a vector field; 0 if it is absent."""
        pos = self.child(number)
        return int(_read(_U32, self.data, pos)) if pos else 0

    def element(self, number: int, index: int) -> Table:
        """One table of a vector of tables."""
        pos = self.child(number) + 4 + 4 * index
        return Table(self.data, pos + int(_read(_U32, self.data, pos)))

    def text(self, number: int) -> str:
        """A string field; empty if it is absent."""
        pos = self.child(number)
        if not pos:
            return ""
        length = int(_read(_U32, self.data, pos))
        if pos + 4 + length > len(self.data):
            raise MalformedMessage(f"a text of {length} bytes does not fit into the metadata")
        return bytes(self.data[pos + 4 : pos + 4 + length]).decode("utf-8", "replace")

    def pairs(self, number: int, what: str) -> npt.NDArray[np.int64]:
        """A vector of structs of two int64. Shape (n, 2)."""
        pos = self.child(number)
        if not pos:
            return np.zeros((0, 2), dtype=np.int64)
        count = int(_read(_U32, self.data, pos))
        if pos + 4 + 16 * count > len(self.data):
            raise MalformedMessage(f"{count} {what} do not fit into the metadata")
        found: npt.NDArray[Any] = np.frombuffer(self.data, dtype="<i8", count=2 * count, offset=pos + 4)
        return found.reshape(count, 2)


def _read(form: struct.Struct, data: memoryview, pos: int) -> Any:
    if pos < 0 or pos + form.size > len(data):
        raise MalformedMessage(f"position {pos} lies outside {len(data)} bytes of metadata")
    return form.unpack_from(data, pos)[0]


def message_head_bytes(payload: memoryview) -> int:
    """The length of everything before the body. MalformedMessage."""
    size = len(payload)
    if size < 8 or _U32.unpack_from(payload, 0)[0] != CONTINUATION:
        raise MalformedMessage("no continuation marker at byte 0")
    metadata_bytes: int = _I32.unpack_from(payload, 4)[0]
    if not 8 <= metadata_bytes <= min(size - 8, METADATA_SIZE_BYTES_MAX) or metadata_bytes % 8:
        raise MalformedMessage(f"metadata of {metadata_bytes} bytes in a message of {size}")
    return 8 + metadata_bytes


def message_header(message: memoryview) -> tuple[Table, int, int]:
    """(header table, its kind, announced bytes of the body) of a message that begins at byte 0. MalformedMessage."""
    metadata = message[8 : message_head_bytes(message)]
    table = Table(metadata, int(_read(_U32, metadata, 0)))
    version = table.scalar(0, _I16)
    if version != METADATA_V5:
        raise MalformedMessage(f"metadata version {version + 1}, not 5")
    if table.field(4):
        raise MalformedMessage("custom metadata is not taken")
    header = table.child(2)
    if not header:
        raise MalformedMessage("the message has no header")
    return Table(metadata, header), table.scalar(1, _U8), table.scalar(3, _I64)


def read_header(payload: memoryview) -> BatchHeader:
    """The checked header of `payload`, which must be one message from its first to its last byte. MalformedMessage."""
    body_start = message_head_bytes(payload)
    batch, kind, body_bytes = message_header(payload)
    if kind != HEADER_RECORD_BATCH:
        raise MalformedMessage(f"header type {kind} is no record batch")
    if body_bytes != len(payload) - body_start:
        raise MalformedMessage(f"the header says {body_bytes} bytes of body, {len(payload) - body_start} follow")
    if batch.field(3):
        raise MalformedMessage("compressed buffers are not taken")
    if batch.field(4):
        raise MalformedMessage("variadic buffers are not taken")
    buffers = batch.pairs(2, "buffers")
    _check_ranges(buffers, body_bytes)
    return BatchHeader(batch.scalar(0, _I64), batch.pairs(1, "nodes"), buffers, body_start, body_bytes)


def _check_ranges(buffers: npt.NDArray[np.int64], body_bytes: int) -> None:
    """Check that the ranges ascend, do not overlap and are inside the body. In Python ints: int64 sums of hostile
    values could wrap."""
    end = 0
    for offset, length in buffers.tolist():
        if offset % 8 or length < 0 or offset < end or offset + length > body_bytes:
            raise MalformedMessage(f"a buffer at {offset} of {length} bytes in a body of {body_bytes}")
        end = offset + length
