"""Reads the rows of a scan on the connection that its server offers. Each frame is an Arrow IPC message; it is read
into one buffer, to which the batch refers."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator

import pyarrow as pa

from nyala.replica.rpc import HEAD_BYTES, body_length
from nyala.replica.types import Code, Refused, limits

WAKE_S = 1.0
"""The seconds between two calls of `stop` while no bytes arrive."""


def batches_on(sock: socket.socket, schema: pa.Schema, stop: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    """Yield the batches until the server closes the connection. Only the end of the scan's call says whether these are
    all.

    `stop` is called at least every WAKE_S, and an error that it raises ends this. Refused UNAVAILABLE if the connection
    breaks, CORRUPTION for bytes that are no batch of the schema.
    """
    sock.settimeout(WAKE_S)
    head = memoryview(bytearray(HEAD_BYTES))
    while True:
        stop()
        try:
            if not _fill(sock, head, stop):
                return
            length = body_length(bytes(head))
            if not 0 < length <= limits.SCAN_CHUNK_BYTES_MAX:
                what = "the server sent a frame of rows of an impossible length; scan again"
                raise Refused(Code.CORRUPTION, what, bytes=length, limit=limits.SCAN_CHUNK_BYTES_MAX)
            body = pa.allocate_buffer(length)
            if not _fill(sock, memoryview(body), stop):
                raise ConnectionError("it ended within a frame")
        except OSError as error:
            what = "the connection for a scan's rows broke; scan again"
            raise Refused(Code.UNAVAILABLE, what, reason=str(error)) from error
        yield _batch(body, schema)


def _batch(body: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    try:
        batch = pa.ipc.read_record_batch(body, schema)
        batch.validate()
    except MemoryError:  # Arrow's, too, which is no fault of the batch
        raise
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        what = "the server sent a batch of rows that cannot be read; scan again"
        raise Refused(Code.CORRUPTION, what, bytes=body.size, reason=str(error)) from error
    return batch


def _fill(sock: socket.socket, view: memoryview, stop: Callable[[], None]) -> bool:
    """Receive exactly the bytes of `view`; False if the connection ended before the first one."""
    flags = 0 if isinstance(sock, ssl.SSLSocket) else socket.MSG_WAITALL
    got = 0
    while got < len(view):
        try:
            count = sock.recv_into(view[got:], 0, flags)
        except TimeoutError:
            stop()
            continue
        if not count:
            if got:
                raise ConnectionError(f"it ended after {got} of {len(view)} bytes")
            return False
        got += count
    return True
