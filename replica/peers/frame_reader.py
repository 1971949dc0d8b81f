"""The receiving end of frames on a connection of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nyala.replica.rpc import HEAD_BYTES, body_length

from .turn import Turn

BUFFER_BYTES = 256 << 10


class FrameReader(asyncio.BufferedProtocol):
    """Cuts what arrives into frames and hands each over, whole, in the turn of the loop in which it became whole.

    Memory: one buffer of `BUFFER_BYTES`, while a longer frame is on its way one of its length. Concurrency: the loop's
    thread.
    """

    def __init__(self, on_frame: Callable[[bytes], None], frame_bytes_max: int, turn: Turn) -> None:
        """`on_frame` must not raise. A frame longer than `frame_bytes_max` ends the connection."""
        self._on_frame = on_frame
        self._turn = turn
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray(BUFFER_BYTES)
        self._begin = self._end = 0
        self.transport: asyncio.Transport | None = None
        self.error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """[asyncio] Keep the transport."""
        self.transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        """[asyncio] Where to put what comes next; never empty."""
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """[asyncio] Hand over every frame that is whole now, and make room for the rest of the next."""
        self._end += nbytes
        self._turn.run(self._hand_over)

    def _hand_over(self) -> None:
        needed = HEAD_BYTES
        while self._end - self._begin >= HEAD_BYTES:
            first = self._begin + HEAD_BYTES
            length = body_length(self._buffer[self._begin : first])
            if length > self.frame_bytes_max:
                self.fail(ValueError(f"a frame of {length} bytes, more than {self.frame_bytes_max}"))
                return
            if self._end - first < length:
                needed = HEAD_BYTES + length
                break
            self._begin = first + length
            self._on_frame(bytes(memoryview(self._buffer)[first : self._begin]))
            if self.transport is None or self.transport.is_closing():
                return
        self._make_room(needed)

    def _make_room(self, needed: int) -> None:
        """The frame that is begun goes to the front of a buffer that holds it whole."""
        size, rest = max(BUFFER_BYTES, needed), self._end - self._begin
        if size != len(self._buffer):
            fresh = bytearray(size)
            fresh[:rest] = memoryview(self._buffer)[self._begin : self._end]
            self._buffer = fresh
        elif self._begin:
            self._buffer[:rest] = self._buffer[self._begin : self._end]
        self._begin, self._end = 0, rest

    def fail(self, error: Exception) -> None:
        """End the connection; `error` says why."""
        self.error = error
        if self.transport is not None:
            self.transport.abort()
