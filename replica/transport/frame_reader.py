"""The receiving end of frames on a connection of asyncio."""

from __future__ import annotations

import asyncio
from functools import partial

from nyala.replica.rpc import HEAD_BYTES, body_length

from .connection_quota import ConnectionQuota
from .microtasks import MicrotaskQueue

BUFFER_BYTES = 256 << 10
_BEGUN_BYTES = 64 << 10


class Arrivals:
    """The buffer into which all connections of one loop read. The bytes of each one are handled before the next one
    reads."""

    def __init__(self) -> None:
        self.buffer = bytearray(BUFFER_BYTES)


class FrameReader(asyncio.BufferedProtocol):
    """Cuts arriving bytes into frames, and passes each on in the iteration of the loop in which it became whole.

    Memory: none while no frame is begun; then at most twice the bytes that have arrived, or 64 KiB if that is more, and
    never more than the frame's length. No object refers to a closed connection, so it is freed at once.
    Concurrency: the loop's thread.
    """

    def __init__(self, frame_bytes_max: int, microtasks: MicrotaskQueue, arrivals: Arrivals) -> None:
        """A frame longer than `frame_bytes_max` ends the connection."""
        self._microtasks = microtasks
        self._arrivals = arrivals
        self.frame_bytes_max = frame_bytes_max
        self.quota: ConnectionQuota | None = None
        """The quota of its kind of connections, which bounds its memory; None: no bound."""
        self._begun: bytearray | None = None
        self._end = 0
        self.transport: asyncio.Transport | None = None
        self.error: Exception | None = None

    def on_frame(self, body: bytes) -> None:
        """Handle one whole frame. Must not raise."""
        raise NotImplementedError

    @property
    def idle(self) -> bool:
        """Whether the server owes no reply on this connection."""
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """[asyncio] Store the transport."""
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """[asyncio] Drop everything that belongs to the connection."""
        if self.quota is not None:
            self.quota.remove(self)
        self.transport = self.quota = self._begun = None

    def get_buffer(self, sizehint: int) -> memoryview:
        """[asyncio] The memory for the next bytes; never empty."""
        if self._begun is None:
            return memoryview(self._arrivals.buffer)
        return memoryview(self._begun)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """[asyncio] Pass on every frame that is whole now, and make room for the rest of the next one."""
        if self._begun is None:
            data, end = self._arrivals.buffer, nbytes
        else:
            data, end = self._begun, self._end + nbytes
        self._microtasks.run(partial(self._hand_over, data, end))

    def _hand_over(self, data: bytearray, end: int) -> None:
        begin, needed = 0, HEAD_BYTES
        while end - begin >= HEAD_BYTES:
            first = begin + HEAD_BYTES
            length = body_length(data[begin:first])
            if length > self.frame_bytes_max:
                self.fail(ValueError(f"a frame of {length} bytes, more than {self.frame_bytes_max}"))
                return
            if end - first < length:
                needed = HEAD_BYTES + length
                break
            begin = first + length
            if self.quota is not None:
                self.quota.used(self)
            self.on_frame(bytes(memoryview(data)[first:begin]))
            if self.transport is None or self.transport.is_closing():
                self._begun = None
                return
        self._keep(data, begin, end, needed)

    def _keep(self, data: bytearray, begin: int, end: int, needed: int) -> None:
        """Move the begun frame to the front of a buffer with room for its rest, and for no other frame."""
        rest = self._end = end - begin
        if not rest:
            self._begun = None
        elif begin or data is not self._begun or rest == len(data):
            self._begun = bytearray(min(needed, max(_BEGUN_BYTES, 2 * rest)))
            self._begun[:rest] = memoryview(data)[begin:end]
        if self.quota is not None:
            size = len(self._begun) if self._begun is not None else 0
            if refusal := self.quota.hold(self, size, needed):
                self.fail(ConnectionError(refusal))

    def fail(self, error: Exception) -> None:
        """End the connection; `error` has the reason."""
        self.error, self._begun = error, None
        if self.transport is not None:
            self.transport.abort()
