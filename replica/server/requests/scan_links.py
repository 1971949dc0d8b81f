"""The connections on which the rows of scans leave a server: Arrow IPC messages, without gRPC.

A scan goes on as a gRPC call, which carries the request, refusals, the schema, the first batch and the end. If there
are more batches, the call offers a ticket for one connection, and the rest goes there. The server reads nothing on it.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pyarrow as pa

from nyala.replica.rpc import (
    CLIENT_SILENCE_MS,
    HEAD_BYTES,
    Named,
    credentials_of_process,
    frame,
    secured,
    set_keep_alive,
)
from nyala.replica.transport import GrantTicket
from nyala.replica.types import Code, Refused, limits, started_pool

COME_S = 4.0
"""The time in which a client must open the connection. A client gives up earlier, and the ticket expires earlier."""
_TURN_S = 0.02
"""If the network takes no bytes for this time, the thread serves another scan."""
_BUFFERS_MAX = 512
"""The most buffers of one call of the kernel (at most IOV_MAX, which is 1024)."""


class ScanLinks:
    """Grants connections for scans. Each open scan has at most one, so their number is bounded with that of scans.

    Concurrency: the loop's thread.
    """

    def __init__(self, grant_ticket: GrantTicket, come_s: float = COME_S) -> None:
        """`grant_ticket`: that of the listener for links."""
        self._grant_ticket = grant_ticket
        self._come_s = come_s
        self._credentials = credentials_of_process()
        self._handshakes = started_pool(limits.SCAN_HANDSHAKES, "scan-tls") if self._credentials is not None else None

    def offer(self, host: str, caller: Named | None) -> ScanLink:
        """Offer a connection that the caller may open. With TLS, it must use the certificate of its call."""
        link = ScanLink(self._come_s)
        link.port, link.ticket = self._grant_ticket(partial(self._taken, link, caller), host)
        return link

    def _taken(self, link: ScanLink, caller: Named | None, sock: socket.socket) -> None:
        if link.closed:
            sock.close()
        elif self._handshakes is None:
            link.opened(sock)
        else:
            loop = asyncio.get_running_loop()
            secure = loop.run_in_executor(self._handshakes, self._secured, sock, caller)
            secure.add_done_callback(link.secured)

    def _secured(self, sock: socket.socket, caller: Named | None) -> socket.socket:
        if self._credentials is None:
            return sock
        made, holder = secured(sock, self._credentials)
        if holder != caller:
            made.close()
            raise ConnectionError("it came with another certificate than its scan")
        return made

    def close(self) -> None:
        """Refuse further handshakes."""
        if self._handshakes is not None:
            self._handshakes.shutdown(wait=False, cancel_futures=True)


class ScanLink:
    """One connection, until its scan ends.

    Concurrency: the loop's thread; `put` and `send` on one other thread at a time.
    """

    def __init__(self, come_s: float = COME_S) -> None:
        """`come_s`: the time in which the client opens it."""
        self._come_s = come_s
        self.port, self.ticket = 0, b""
        self.rows = 0
        """The rows that were given to the network."""
        self.closed = False
        self._sock: socket.socket | None = None
        self._come: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._unsent: list[memoryview] = []
        self._messages = _Gathered()

    def opened(self, sock: socket.socket) -> None:
        """Use this connection, whose ticket was right."""
        try:
            sock.setblocking(False)
            set_keep_alive(sock, CLIENT_SILENCE_MS)
            sock.send(frame(b""))  # the first bytes on a connection always fit into its buffer
        except OSError:
            sock.close()
            return
        if self._come.done():
            sock.close()
            return
        self._sock = sock
        self._come.set_result(True)

    def secured(self, made: asyncio.Future[socket.socket]) -> None:
        """Use the connection after its handshake, if that succeeded."""
        if made.cancelled() or made.exception() is not None:
            return  # the call brings the client its rows instead
        if self.closed:
            made.result().close()
        else:
            self.opened(made.result())

    async def wait_opened(self) -> bool:
        """Whether the client has opened the connection, in time."""
        try:
            async with asyncio.timeout(self._come_s):
                return await self._come
        except TimeoutError:
            self.close()
            return False

    def put(self, batch: pa.RecordBatch) -> None:
        """Take one more batch to send. Its buffers are not copied."""
        self._unsent = self._messages.framed(batch)
        self.rows += batch.num_rows

    def send(self, stop: Callable[[], None]) -> bool:
        """Give the batch to the network; returns whether the network took all of it. Refused UNAVAILABLE if the client
        is gone."""
        if self._sock is None:
            return not self._unsent
        poll = select.poll()
        poll.register(self._sock, select.POLLOUT)
        try:
            while self._unsent:
                stop()
                try:
                    self._sent(_give(self._sock, self._unsent))
                except BlockingIOError:
                    if not poll.poll(1000 * _TURN_S):
                        return False
        except OSError as error:
            raise Refused(Code.UNAVAILABLE, "the client closed the connection for rows", reason=str(error)) from error
        return True

    def _sent(self, count: int) -> None:
        done = 0
        while done < len(self._unsent) and count >= self._unsent[done].nbytes:
            count -= self._unsent[done].nbytes
            done += 1
        del self._unsent[:done]
        if count:
            self._unsent[0] = self._unsent[0][count:]

    async def writable(self) -> None:
        """Wait until the network takes more."""
        if self._sock is None:
            return
        loop, fd = asyncio.get_running_loop(), self._sock.fileno()
        ready: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_writer(fd, tell)
        try:
            await ready
        finally:
            loop.remove_writer(fd)

    def close(self) -> None:
        """End the connection, now or as soon as the client opens it."""
        self.closed = True
        if not self._come.done():
            self._come.set_result(False)
        self._unsent = []
        if self._sock is not None:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)
            self._sock.close()


def _give(sock: socket.socket, parts: list[memoryview]) -> int:
    if isinstance(sock, ssl.SSLSocket):
        return sock.send(parts[0])
    return sock.sendmsg(parts[:_BUFFERS_MAX])


class _Gathered:
    """A file that keeps the buffers of one Arrow message instead of copying them."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[memoryview] = []
        self._writer: pa.RecordBatchStreamWriter | None = None

    def readable(self) -> bool:
        """Return False: Arrow only writes here."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return False."""
        return False

    def write(self, data: bytes | pa.Buffer) -> int:
        """Keep what Arrow writes."""
        part = memoryview(data).cast("B")
        if part.nbytes:
            self._parts.append(part)
        return part.nbytes

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def framed(self, batch: pa.RecordBatch) -> list[memoryview]:
        """The frame of a batch as a list of buffers, with small neighbours joined. All batches have one schema."""
        if self._writer is None:
            self._writer = pa.ipc.new_stream(pa.PythonFile(self, "w"), batch.schema)
            self._writer.write_batch(batch.slice(0, 0))  # after the message of the schema, which the client has
        self._parts = []
        self._writer.write_batch(batch)
        size = sum(part.nbytes for part in self._parts)
        return _joined([memoryview(size.to_bytes(HEAD_BYTES)), *self._parts])


def _joined(parts: list[memoryview], small_bytes: int = 4096) -> list[memoryview]:
    """The same bytes; neighbours that are small are one buffer, because each buffer has a cost of its own."""
    found: list[memoryview] = []
    run = bytearray()
    for part in parts:
        if part.nbytes <= small_bytes:
            run += part
            continue
        if run:
            found.append(memoryview(bytes(run)))
            run = bytearray()
        found.append(part)
    if run:
        found.append(memoryview(bytes(run)))
    return found
