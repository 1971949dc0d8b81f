"""Sends small writes to one server over one connection. The writing threads themselves send and read; there is no other
thread.

1. A thread that writes sends its request itself, unless another thread is sending: then that thread sends it too.
2. A thread that waits for an outcome reads replies until its own arrives, unless another thread is reading: then that
thread passes it on.

A gRPC call would cost several thread switches on both sides, which is more than the write itself costs.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from nyala.replica.rpc import (
    HEAD_BYTES,
    Credentials,
    body_length,
    frame,
    pb,
    raise_if_error,
)
from nyala.replica.types import Address, Applied, Code, Refused, limits

from .link_ports import CONNECT_S, LinkPort
from .retry import NO_ANSWER, refusal_of_rpc_error

_PAYLOAD_BYTES_MAX = 16 << 10
"""Larger writes go as gRPC calls: they gain nothing from a link, and would delay the small ones."""
_BUNDLE_WRITES_MAX = 256
_READ_BYTES = 64 << 10


class _Waiting:
    """One write, the thread that made it, and the reply. Every method except `sleep` is called under the link's
    lock."""

    __slots__ = ("_awake", "_ready", "error", "number", "present", "reply")

    def __init__(self) -> None:
        self.number = 0
        self._ready = threading.Lock()
        self._ready.acquire()
        self._awake = False
        self.present = False
        """Whether its thread waits in `finish`, so that it can be woken to send or read."""
        self.reply: pb.WriteReply | None = None
        self.error: Exception | None = None

    @property
    def settled(self) -> bool:
        return self.reply is not None or self.error is not None

    def wake(self) -> None:
        """Wake the thread: its outcome is known, or it must send or read."""
        if not self._awake:
            self._awake = True
            self._ready.release()

    def woken(self) -> None:
        """Note that the thread is awake and looks for work now."""
        if self._awake:
            self._awake = False
            self._ready.acquire()

    def sleep(self, timeout_s: float) -> None:
        """Block the thread until `wake`, or for `timeout_s`."""
        if self._ready.acquire(timeout=timeout_s):
            self._ready.release()


class _Link:
    """One connection, until it breaks.

    Invariants: at most one thread sends and at most one reads; while a request is queued or a reply is awaited, some
    thread sends or reads, or has been woken to do so. Concurrency: any thread.
    """

    def __init__(self, sock: socket.socket) -> None:
        """`sock`: connected, not blocking; the server has accepted the ticket."""
        self._sock = sock
        self._lock = threading.Lock()
        self._queue: list[tuple[int, pb.WriteRequest]] = []
        self._waiting: dict[int, _Waiting] = {}
        """Writes whose outcome is not known, the oldest first."""
        self._number = 0
        self._sender: _Waiting | None = None
        self._reader: _Waiting | None = None
        self._buffer = bytearray()
        self.broken = False

    def begin(self, request: pb.WriteRequest, timeout_s: float) -> _Waiting | None:
        """Send the request, or leave it to the thread that is sending; returns the argument for `finish` or `forget`.

        None if the link was broken before; then nothing was sent.
        """
        waiting = _Waiting()
        with self._lock:
            if self.broken:
                return None
            self._number += 1
            waiting.number = self._number
            self._waiting[waiting.number] = waiting
            self._queue.append((waiting.number, request))
            send = self._sender is None
            if send:
                self._sender = waiting
        self._send_while(send, waiting, time.monotonic() + timeout_s)
        return waiting

    def finish(self, waiting: _Waiting, timeout_s: float) -> pb.WriteReply:
        """Return the reply. If it is late, Refused TIMED_OUT, with outcome UNKNOWN if the request was sent or is being
        sent."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            waiting.present = True
        try:
            self._work_until_settled(waiting, deadline)
            taken = self._leave(waiting, deadline)
        except BaseException:
            self.fail(_lost("a thread was interrupted at its work"))  # perhaps amid a message
            raise
        if waiting.error is not None:
            raise waiting.error
        if waiting.reply is None:
            applied = Applied.UNKNOWN if taken else Applied.NOT_APPLIED
            raise Refused(Code.TIMED_OUT, NO_ANSWER, applied=applied)
        return waiting.reply

    def forget(self, waiting: _Waiting) -> None:
        """Give up waiting for the outcome. A request that has not left yet is not sent."""
        self._leave(waiting, time.monotonic() + CONNECT_S)

    def _leave(self, waiting: _Waiting, deadline: float) -> bool:
        """End the wait. Returns whether the request was taken to be sent; a queued one is removed."""
        with self._lock:
            self._waiting.pop(waiting.number, None)
            queued = len(self._queue)
            if not waiting.settled:
                self._queue = [one for one in self._queue if one[0] != waiting.number]
            taken = len(self._queue) == queued
            waiting.present = False
            send = self._pass_on(waiting)
        self._send_while(send, waiting, deadline)
        return taken

    def _send_while(self, send: bool, sender: _Waiting, deadline: float) -> None:
        """Send queued requests as long as `sender` is the one that sends. Its thread returns afterwards, so it must
        leave no requests in the queue."""
        try:
            while send:
                self._send(deadline)
                with self._lock:
                    send = self._pass_on(sender)
        except BaseException:
            self.fail(_lost("a thread was interrupted at its work"))  # perhaps amid a message
            raise

    def fail(self, error: Exception) -> None:
        """Note that the connection is broken; the outcome of every request that was sent is unknown."""
        with self._lock:
            if self.broken:
                return
            self.broken = True
            self._queue.clear()
            for waiting in self._waiting.values():
                waiting.error = error
                waiting.wake()
            self._waiting.clear()
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that sends or reads, which then closes
            self._close_if_unused()

    def _work_until_settled(self, waiting: _Waiting, deadline: float) -> None:
        """Send queued requests, or read replies, unless other threads do both. Returns when `waiting` is settled or
        late."""
        while (left := deadline - time.monotonic()) > 0:
            with self._lock:
                waiting.woken()
                if waiting.settled:
                    return
                send = bool(self._queue) and self._sender is None
                read = not send and self._reader is None
                if send:
                    self._sender = waiting
                if read:
                    self._reader = waiting
            if send:
                self._send(deadline)
            elif read:
                self._read(waiting, deadline)
            else:
                waiting.sleep(left)

    def _pass_on(self, leaving: _Waiting) -> bool:
        """Under the lock: wake a waiting thread for sending or reading, if no thread does it. Returns whether `leaving`
        must send.

        A thread that reads waits for the socket and cannot be woken. If no other thread waits, the leaving one sends
        the queued requests.
        """
        send = bool(self._queue) and self._sender is None
        if not send and self._reader is not None:
            return False
        for waiting in self._waiting.values():
            if waiting.present and waiting is not self._reader and waiting is not self._sender:
                waiting.wake()
                return False
        if send:
            self._sender = leaving
        return send

    def _send(self, deadline: float) -> None:
        """Send all queued requests in one message."""
        try:
            with self._lock:
                taken, self._queue = self._queue[:_BUNDLE_WRITES_MAX], self._queue[_BUNDLE_WRITES_MAX:]
            bundle = pb.WriteBundle()
            for number, request in taken:
                bundle.writes.add(number=number, request=request)
            _send_all(self._sock, frame(bundle.SerializeToString()), deadline)
        except OSError as error:
            self.fail(_lost(error))  # a message that is half sent too
        finally:
            with self._lock:
                self._sender = None
                self._close_if_unused()

    def _read(self, waiting: _Waiting, deadline: float) -> None:
        """Read replies and record the outcomes of their writes, until `waiting` has its own, a request is queued, or
        the time is over."""
        try:
            while not waiting.settled and not (self._queue and self._sender is None) and self._receive(deadline):
                pass
        except (OSError, ValueError, DecodeError) as error:
            self.fail(_lost(error))
        finally:
            with self._lock:
                self._reader = None
                self._close_if_unused()

    def _close_if_unused(self) -> None:
        """Under the lock: close a broken connection if this thread is the last that uses it."""
        if self.broken and self._sender is None and self._reader is None:
            self._sock.close()

    def _receive(self, deadline: float) -> bool:
        """Read the bytes that have arrived, and record outcomes by complete replies; False if none came in time."""
        data = _receive_some(self._sock, deadline)
        if data is None:
            return False
        self._buffer += data
        begin = 0
        while len(self._buffer) - begin >= HEAD_BYTES:
            first = begin + HEAD_BYTES
            length = body_length(self._buffer[begin:first])
            if length > limits.GRPC_MESSAGE_BYTES_MAX:
                raise ValueError(f"a frame of {length} bytes")
            if len(self._buffer) < first + length:
                break
            begin = first + length
            self._settle(pb.ReplyBundle.FromString(bytes(self._buffer[first:begin])))
        del self._buffer[:begin]
        return True

    def _settle(self, bundle: pb.ReplyBundle) -> None:
        with self._lock:
            for item in bundle.replies:
                waiting = self._waiting.pop(item.number, None)
                if waiting is not None:
                    waiting.reply = item.reply
                    waiting.wake()


class LinkedWrite:
    """A write that was sent, or soon is. Call `result` or `cancel` once. Concurrency: one thread."""

    def __init__(self, writes: SmallWrites, link: _Link, waiting: _Waiting, timeout_s: float) -> None:
        self._writes, self._link, self._waiting, self._timeout_s = writes, link, waiting, timeout_s

    def result(self) -> pb.WriteReply:
        """Return the pb.WriteReply. A Refused has outcome UNKNOWN unless it states otherwise."""
        try:
            reply = self._link.finish(self._waiting, self._timeout_s)
        finally:
            self._writes.ended()
        self._writes.linked += 1
        return reply

    def cancel(self) -> None:
        """Give up waiting for the outcome."""
        self._link.forget(self._waiting)
        self._writes.ended()


class SmallWrites:
    """Small writes to one server. Concurrency: any thread."""

    def __init__(self, stub: Any, address: Address, credentials: Credentials | None = None) -> None:
        self.stub = stub
        """The calls by which links are requested; replaced when the credentials change."""
        self._port = LinkPort(address, credentials)
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._link: _Link | None = None
        self._closed = False
        self.linked = 0
        """The number of writes so far that went over a link."""
        self.under_way = 0
        """The number of writes that have begun and whose outcome the caller has not read yet."""

    def begin(self, request: pb.WriteRequest, timeout_s: float) -> LinkedWrite | None:
        """Send the write. None if it must go as a gRPC call, because it is large or there is no link.

        Refused if the server refuses a link.
        """
        if len(request.payload) > _PAYLOAD_BYTES_MAX:
            return None
        deadline = time.monotonic() + timeout_s
        while (link := self._open(request.dest_uuid, deadline)) is not None:
            waiting = link.begin(request, deadline - time.monotonic())
            if waiting is not None:
                with self._lock:
                    self.under_way += 1
                return LinkedWrite(self, link, waiting, timeout_s)
        return None

    def ended(self) -> None:
        """Note that one write's outcome was read or given up."""
        with self._lock:
            self.under_way -= 1

    def close(self) -> None:
        """End the link; writes under way on it end with an unknown outcome."""
        self._closed = True
        if self._link is not None:
            self._link.fail(_lost("the client was closed"))

    def _open(self, dest_uuid: str, deadline: float) -> _Link | None:
        """Return the link, opened if there is none; None if the port cannot be reached. Refused if the server
        refuses."""
        link = self._link
        if link is not None and not link.broken:
            return link
        with self._opening:
            link = self._link
            if link is not None and not link.broken:
                return link
            if self._closed or not self._port.reachable:
                return None
            left = max(0.001, deadline - time.monotonic())
            try:
                granted = self.stub.OpenWrites(pb.OpenWritesRequest(dest_uuid=dest_uuid), timeout=left)
            except grpc.RpcError as error:
                if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    self._port.avoid()  # a server of an earlier build
                    return None
                raise refusal_of_rpc_error(error, mutates=False) from error
            raise_if_error(granted.error)
            try:
                sock = self._port.connected(granted.port, granted.ticket, dest_uuid, deadline - time.monotonic())
            except OSError:
                return None
            sock.setblocking(False)
            self._link = _Link(sock)
            if self._closed:
                self.close()  # which came too early for this one
            return self._link


def _send_all(sock: socket.socket, data: bytes, deadline: float) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[sock.send(view) :]
        except BlockingIOError:
            if not _await(sock, select.POLLOUT, deadline):
                raise TimeoutError("the server takes nothing") from None


def _receive_some(sock: socket.socket, deadline: float) -> bytes | None:
    """Return at least one received byte; None if none came in time. ConnectionError if the peer has closed."""
    if not _await(sock, select.POLLIN, deadline):
        return None
    try:
        data = sock.recv(_READ_BYTES)
    except BlockingIOError:
        return b""
    if not data:
        raise ConnectionError("the server closed it")
    return data


def _await(sock: socket.socket, event: int, deadline: float) -> bool:
    poll = select.poll()
    poll.register(sock, event)
    return bool(poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))))


def _lost(why: object) -> Refused:
    return Refused(Code.UNAVAILABLE, f"the connection for writes was lost: {why}", applied=Applied.UNKNOWN)
