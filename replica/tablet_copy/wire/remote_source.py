"""The target's access to the CopyService of another process, and the connections on which it fetches files."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import grpc

from nyala.replica.rpc import (
    COPY_CHANNEL_OPTIONS,
    channel_to,
    check_reply,
    connection_to,
    opid_from_pb,
    opid_to_pb,
    pb,
    pb_grpc,
    raise_if_error,
)
from nyala.replica.tablet_copy import WHOLE, CopyFile, CopyManifest, CopyWanted, FileKind
from nyala.replica.types import ZERO_OPID, Address, Applied, Code, Refused, known_value, limits, new_uuid
from nyala.replica.types.names import shown

from .fetch_patience import FetchPatience
from .fetch_serving import close_connection
from .fetch_wire import receive, receive_message, send_message, set_timeouts


@cache
def _run_of(_pid: int) -> str:
    """The name of this process. Sources end the sessions of the server's former process by it."""
    return new_uuid()


class Attempts:
    """Numbers this server's attempts: each above all before, and above those of its earlier processes.

    A number is the wall clock's time. If the clock was set back, the source returns the last number that it has seen.
    Concurrency: any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self, *, above: int = 0) -> int:
        """The next number, which is also above `above`."""
        with self._lock:
            self._last = max(self._last + 1, above + 1, time.time_ns() // 1000)
            return self._last


ATTEMPTS = Attempts()
_SENDER = "the copy source"


class RemoteCopySource:
    """A `CopySource` over another server's CopyService; blocking calls, for threads of a copy job."""

    OPEN_TIMEOUT_S = 10.0
    """The time-out for the ticket of a connection, and again for connecting."""
    SILENCE_S = 30
    """The longest silence of a source. One that waits for its rate sends an empty part every few seconds."""
    IDLE_S = 10.0
    """A connection that was idle for so long is not used again, because the source may be about to end it."""

    def __init__(self, uuid: str, addresses: list[Address], begin_s: float = limits.COPY_BEGIN_S_MAX) -> None:
        """`begin_s`: the time that the source has to open a session, besides that of a flush."""
        self._uuid = uuid
        self._begin_s = begin_s
        self._channel = channel_to(addresses[0], COPY_CHANNEL_OPTIONS, to=uuid)
        self._stub = pb_grpc.CopyServiceStub(self._channel)
        self._address = addresses[0]
        self._lock = threading.Lock()
        self._calls: set[Any] = set()
        self._connections: set[socket.socket] = set()
        self._idle: list[tuple[socket.socket, float]] = []
        """Idle connections, with the monotonic time since which they are idle; the one that was used last comes
        last."""
        self._aborted = False

    def wait_connected(self, timeout_s: float) -> None:
        """Wait until the connection is open; Refused UNAVAILABLE if it is not in time. For callers that do not
        retry."""
        try:
            grpc.channel_ready_future(self._channel).result(timeout_s)
        except grpc.FutureTimeoutError as error:
            raise _unanswered(error) from error

    def begin(
        self, tablet_id: str, requestor_uuid: str, allow_leaderless: bool, wanted: CopyWanted = WHOLE
    ) -> CopyManifest:
        """Open a session at the source; Refused UNAVAILABLE if it takes longer than it may."""
        until_s = time.monotonic() + self._begin_s + (limits.COPY_BEGIN_FLUSH_S if wanted.flushed > ZERO_OPID else 0.0)
        request = pb.BeginCopyRequest(
            dest_uuid=self._uuid,
            requestor_uuid=requestor_uuid,
            tablet_id=tablet_id,
            allow_leaderless=allow_leaderless,
            log_only=wanted.log_only,
            acknowledged=opid_to_pb(wanted.acknowledged),
            flushed=opid_to_pb(wanted.flushed),
            requestor_run=_run_of(os.getpid()),
            attempt=ATTEMPTS.next(),
        )
        try:
            return self._begin(request, until_s)
        except Refused as error:
            if error.code is not Code.CAS_FAILED:
                raise
            # This attempt is the latest one: an earlier process of this server had a clock that was ahead.
            request.attempt = ATTEMPTS.next(above=_later_attempt(error.detail))
            return self._begin(request, until_s)

    def _begin(self, request: pb.BeginCopyRequest, until_s: float) -> CopyManifest:
        left_s = max(0.0, until_s - time.monotonic())
        call = self._abortable(lambda: self._stub.BeginCopy.future(request, timeout=left_s))
        try:
            reply = _answered(call.result)
        finally:
            self._over(call)
        raise_if_error(check_reply(reply, _SENDER).error)
        return CopyManifest(
            session_id=reply.session_id,
            superblock=reply.superblock,
            cmeta=reply.cmeta,
            files=tuple(_file(f) for f in reply.files),
            last_opid=opid_from_pb(reply.last_opid),
            first_retained_index=reply.first_retained_index,
            is_leader=reply.is_leader,
            ttl_us=reply.ttl_us,
        )

    def fetch(self, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int) -> Iterator[bytes]:
        """The bytes of one file in order, requested in bounded ranges, one after the other on one connection."""
        end = byte_offset + length_bytes
        sock, whole = self._connection(session_id), False
        try:
            for start in range(byte_offset, end, limits.COPY_FETCH_BYTES):
                length = min(limits.COPY_FETCH_BYTES, end - start)
                yield from self._piece(sock, session_id, file, start, length)
            whole = True
        except OSError as error:
            raise _unanswered(error) from error
        finally:
            self._give_back(sock, whole)

    def _piece(
        self, sock: socket.socket, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int
    ) -> Iterator[bytes]:
        request = pb.FetchRequest(
            dest_uuid=self._uuid,
            session_id=session_id,
            kind=int(file.kind),
            name=file.name,
            byte_offset=byte_offset,
            length_bytes=length_bytes,
        )
        send_message(sock, request)
        at, end, patience = byte_offset, byte_offset + length_bytes, FetchPatience()
        while at < end:
            part = patience.wait(lambda until_s: receive_message(sock, pb.FetchPart, until_s))
            if part is None:
                raise ConnectionError("the source closed the connection")
            raise_if_error(check_reply(part, _SENDER).error)
            if not part.length_bytes:
                patience.received(0)  # the source is alive, and waits for its rate
                continue
            if part.byte_offset != at or not 0 < part.length_bytes <= end - at:
                what = "the source sent other bytes than it was asked for"
                sent = f"{part.length_bytes} from {part.byte_offset}"
                raise Refused(Code.CORRUPTION, what, name=file.name, wanted_offset=at, sent=sent)
            part_end = at + part.length_bytes
            while at < part_end:
                length = min(limits.COPY_READ_BYTES, part_end - at)
                data = patience.wait(partial(receive, sock, length))
                patience.received(length)
                at += length
                yield data

    def _connection(self, session_id: str) -> socket.socket:
        """An idle connection, or a new one."""
        oldest = time.monotonic() - self.IDLE_S
        with self._lock:
            stale = [sock for sock, since in self._idle if since < oldest]
            self._idle = [(sock, since) for sock, since in self._idle if since >= oldest]
            free = self._idle.pop()[0] if self._idle else None
        for sock in stale:
            self._drop(sock)
        return free or self._connect(session_id)

    def _connect(self, session_id: str) -> socket.socket:
        request = pb.OpenFetchRequest(dest_uuid=self._uuid, session_id=session_id)
        call = self._abortable(lambda: self._stub.OpenFetch.future(request, timeout=self.OPEN_TIMEOUT_S))
        try:
            granted = _answered(call.result)
        finally:
            self._over(call)
        raise_if_error(check_reply(granted, _SENDER).error)
        if not granted.port:
            raise Refused(Code.CORRUPTION, "the source names no port to fetch from", port=granted.port)
        try:
            sock = connection_to(self._address, granted.port, granted.ticket, self._uuid, self.OPEN_TIMEOUT_S)
        except OSError as error:
            raise _unanswered(error) from error
        with self._lock:
            self._connections.add(sock)
            aborted = self._aborted
        try:
            if aborted:
                raise _cancelled()
            set_timeouts(sock, self.SILENCE_S)
            if receive_message(sock, pb.FetchPart, time.monotonic() + self.OPEN_TIMEOUT_S) is None:
                raise ConnectionError("the source did not let the connection in")
        except BaseException as error:
            self._drop(sock)
            if isinstance(error, OSError):
                raise _unanswered(error) from error
            raise
        return sock

    def _give_back(self, sock: socket.socket, usable: bool) -> None:
        if usable:
            with self._lock:
                self._idle.append((sock, time.monotonic()))
        else:
            self._drop(sock)

    def _drop(self, sock: socket.socket) -> None:
        with self._lock:
            self._connections.discard(sock)
            sock.close()

    def end(self, session_id: str, success: bool, doubted: str = "") -> None:
        """Close the session; the source then checks its block `doubted`."""
        timeout_s = 2.0 if self._aborted else 10.0
        request = pb.EndCopyRequest(dest_uuid=self._uuid, session_id=session_id, success=success, doubted=doubted)
        reply = _answered(lambda: self._stub.EndCopy(request, timeout=timeout_s))
        raise_if_error(check_reply(reply, _SENDER).error)

    def abort(self) -> None:
        """End all calls that wait for the source, now and later, except those of `end`. Any thread."""
        with self._lock:
            self._aborted = True
            calls = list(self._calls)
            for sock in self._connections:
                close_connection(sock)
        for call in calls:
            call.cancel()

    def _abortable(self, start: Callable[[], Any]) -> Any:
        with self._lock:
            if self._aborted:
                raise _cancelled()
            call = start()
            self._calls.add(call)
            return call

    def _over(self, call: Any) -> None:
        with self._lock:
            self._calls.discard(call)

    def close(self) -> None:
        """Close all connections."""
        self._channel.close()
        for sock in list(self._connections):
            self._drop(sock)


def _later_attempt(detail: str) -> int:
    """The number of a later attempt that a source has seen; Refused(CORRUPTION) for one that this server cannot have
    made, because every attempt from now on will have a higher one."""
    number = int(detail) if detail.isascii() and detail.isdecimal() and len(detail) < 20 else 0
    if not 0 < number < time.time_ns() // 1000 + limits.COPY_ATTEMPT_AHEAD_US_MAX:
        what = "the copy source names an attempt that this server cannot have made, nothing was copied"
        raise Refused(Code.CORRUPTION, what, attempt=shown(detail))
    return number


def _file(message: Any) -> CopyFile:
    kind = known_value(FileKind, message.kind, "the kind of a file that the source offers")
    if not message.name:
        raise Refused(Code.CORRUPTION, "the source offers a file without a name", kind=kind.name)
    return CopyFile(kind, message.name, message.length_bytes, message.crc)


def _answered(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (grpc.RpcError, grpc.FutureCancelledError) as error:
        raise _unanswered(error) from error


def _cancelled() -> Refused:
    return Refused(Code.UNAVAILABLE, "the copy was cancelled")


def _unanswered(error: Any) -> Refused:
    status = error.code().name if hasattr(error, "code") and error.code() else str(error) or type(error).__name__
    if isinstance(error, BlockingIOError):
        status = f"silent for {RemoteCopySource.SILENCE_S} s"
    what = "the copy source does not answer"
    return Refused(Code.UNAVAILABLE, what, applied=Applied.NOT_APPLIED, status=status)
