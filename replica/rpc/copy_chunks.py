"""Chunks of a tablet copy on the wire: the bytes of a `FetchChunk`, written and read without protobuf's copies.

A protobuf message would copy a megabyte when its field is set, when it is serialised, when it is parsed and when the
field is read. Here a chunk is joined once behind a few bytes of header, and cut off them once. The bytes are those of
the message in `schemas/nyala.proto`, so either side may use the generated code instead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import grpc
from google.protobuf.message import DecodeError

from nyala.replica.base import Code, Refused, check

from . import nyala_pb2 as pb
from . import nyala_pb2_grpc as pb_grpc
from .errors import raise_if_error

_SERVICE = pb.DESCRIPTOR.services_by_name["CopyService"]
_FETCH = "Fetch"
_OFFSET, _DATA, _CRC = b"\x10", b"\x1a", b"\x25"
"""Field number and wire type of `byte_offset` (2, varint), `data` (3, length-delimited) and `crc` (4, fixed32)."""
_VARINT_BYTES_MAX = 10


class Chunk(NamedTuple):
    """A piece of a file: where it begins, its bytes, and their CRC-32C as the sender computed it."""

    byte_offset: int
    data: bytes
    crc: int


def chunk_to_wire(chunk: Chunk) -> bytes:
    """The serialised `FetchChunk`, with the data as its last field."""
    check(chunk.byte_offset >= 0, "a chunk begins inside of its file", byte_offset=chunk.byte_offset)
    header = _OFFSET + _varint(chunk.byte_offset) + _CRC + chunk.crc.to_bytes(4, "little")
    return b"".join((header, _DATA, _varint(len(chunk.data)), chunk.data))


def chunk_from_wire(message: bytes) -> Chunk:
    """The chunk, whatever the order of its fields.

    Refused: what the sender refused, or CORRUPTION if this is no chunk.
    """
    if message[:1] == _OFFSET:
        byte_offset, at = _read_varint(message, 1)
        if message[at : at + 1] == _CRC and message[at + 5 : at + 6] == _DATA:
            length, begins = _read_varint(message, at + 6)
            if length and begins + length == len(message):
                return Chunk(byte_offset, message[begins:], int.from_bytes(message[at + 1 : at + 5], "little"))
    try:
        parsed = pb.FetchChunk.FromString(message)
    except DecodeError as error:
        raise Refused(Code.CORRUPTION, "a chunk cannot be read", bytes=len(message), reason=str(error)) from error
    raise_if_error(parsed.error)
    return Chunk(parsed.byte_offset, parsed.data, parsed.crc)


def fetch_call(channel: grpc.Channel) -> Any:
    """`CopyService.Fetch` over `channel`: takes a FetchRequest, yields messages for `chunk_from_wire`."""
    return channel.unary_stream(f"/{_SERVICE.full_name}/{_FETCH}", request_serializer=pb.FetchRequest.SerializeToString)


class _Collected:
    """Stands for a server to the generated code, which hands over the handlers that it made."""

    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """The same ones once more."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        self.handlers = handlers


def add_copy_service(servicer: Any, server: Any) -> None:
    """Serve the CopyService; its `Fetch` yields serialised messages. `server` is one of gRPC's for asyncio."""
    collected = _Collected()
    pb_grpc.add_CopyServiceServicer_to_server(servicer, collected)  # type: ignore[no-untyped-call]
    check(_FETCH in collected.handlers, "the generated code hands its handlers over", found=sorted(collected.handlers))
    raw = grpc.unary_stream_rpc_method_handler(servicer.Fetch, request_deserializer=pb.FetchRequest.FromString)
    handlers = {**collected.handlers, _FETCH: raw}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE.full_name, handlers),))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """(number, where it ends); (0, len(message)) if it does not end in time, so that nothing fits behind it."""
    number = 0
    for pos, byte in enumerate(message[at : at + _VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << 7 * pos
        if byte < 0x80:
            return number, at + pos + 1
    return 0, len(message)
