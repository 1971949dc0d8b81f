"""The source's end of the connections on which copies are fetched."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable

from nyala.replica.rpc import (
    as_refusal,
    check_fields,
    check_name,
    credentials_of_process,
    error_to_pb,
    may_speak,
    pb,
    secured,
)
from nyala.replica.tablet_copy import SessionFile
from nyala.replica.types import Code, Corruption, Refused, ReplicaError, limits, started_pool

from .fetch_wire import receive_message, send_message, set_timeouts
from .source_process import SourceProcess

_log = logging.getLogger("nyala.tablet_copy")

PATIENCE_S = limits.COPY_SESSION_TTL_US // 1_000_000
"""A target that takes no bytes and sends no request for this time counts as gone; an unused session lives as long."""
SIGN_OF_LIFE_S = 5.0
"""A target that waits for this server's rate gets an empty part this often."""


class FetchServing:
    """Answers requests for ranges of files: the bytes go from the file to the socket within the kernel.

    Invariants: each request names this server and a live session, and both are checked before anything is read. A
    refusal is sent where a part would begin; within a part the connection ends. Bounded: each session has at most
    COPY_FETCHES_PER_SESSION_MAX connections, all have COPY_FETCHES_MAX threads; nothing is read from a file before the
    network takes it.
    Concurrency: `taken` from the loop's thread, `close` from any.
    """

    def __init__(
        self,
        process: SourceProcess,
        on_unreadable: Callable[[str, Corruption], None],
        threads: int = limits.COPY_FETCHES_MAX,
    ) -> None:
        """`on_unreadable(session id, why)`: a block cannot be read; called on the connection's thread."""
        self._process = process
        self._on_unreadable = on_unreadable
        self._pool = started_pool(threads, "copy-serve")
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, str] = {}
        """The connections, each with the session of its ticket."""
        self._closing = threading.Event()
        self.credentials = credentials_of_process()

    def check_room(self, session_id: str) -> None:
        """Refused OVERLOADED if one more connection of this session would be ended at once."""
        with self._lock:
            count = list(self._connections.values()).count(session_id)
        if count >= limits.COPY_FETCHES_PER_SESSION_MAX:
            what = "too many connections of this copy session: close one, or try again when one has ended"
            raise Refused(Code.OVERLOADED, what, limit=limits.COPY_FETCHES_PER_SESSION_MAX)

    def taken(self, session_id: str, sock: socket.socket) -> None:
        """Serve a connection whose ticket was for this session, after ending the connections of sessions that are
        over."""
        alive = {session.manifest.session_id for session in self._process.sessions.sessions()}
        with self._lock:
            for other, its_session in self._connections.items():
                if its_session not in alive:
                    close_connection(other)
            count = list(self._connections.values()).count(session_id)
            room = session_id in alive and count < limits.COPY_FETCHES_PER_SESSION_MAX and not self._closing.is_set()
            if room:
                self._connections[sock] = session_id
                self._pool.submit(self._serve, session_id, sock)
        if not room:
            sock.close()

    def close(self) -> None:
        """End all connections, now and later."""
        with self._lock:
            self._closing.set()
            for sock in self._connections:
                close_connection(sock)
        self._pool.shutdown(wait=False)

    def _secured(self, session_id: str, sock: socket.socket) -> socket.socket:
        """The connection from now on: after its handshake, if this process speaks TLS."""
        if self.credentials is None:
            return sock
        secure, holder = secured(sock, self.credentials)
        try:
            requestor = self._process.sessions.get(session_id).requestor_uuid
            if not may_speak(holder, requestor, (self.credentials.own.role,)):
                raise ConnectionError(f"it came with the certificate of {holder}, which did not open the session")
        except BaseException:
            secure.close()
            raise
        with self._lock:
            del self._connections[sock]
            self._connections[secure] = session_id
            if self._closing.is_set():
                close_connection(secure)
        return secure

    def _serve(self, session_id: str, sock: socket.socket) -> None:
        try:
            sock = self._secured(session_id, sock)
            set_timeouts(sock, PATIENCE_S)
            send_message(sock, pb.FetchPart())
            while (request := receive_message(sock, pb.FetchRequest)) is not None:
                self._answer(sock, request)
        except (OSError, MemoryError, ReplicaError) as error:
            _log.info("P %s a connection of a copy has ended: %s", self._process.uuid, error)
        except Exception as error:  # noqa: BLE001 - the root of the connection's thread
            self._process.on_fatal(error)
        finally:
            with self._lock:
                del self._connections[sock]
                sock.close()

    def _answer(self, sock: socket.socket, request: pb.FetchRequest) -> None:
        between_parts = True
        try:
            check_fields(request)
            check_name(request.dest_uuid, self._process.uuid)
            at, end = request.byte_offset, request.byte_offset + request.length_bytes
            session = self._process.sessions.get(request.session_id)
            with session.opened(request.kind, request.name, at, request.length_bytes) as file:
                while at < end:
                    part = pb.FetchPart(byte_offset=at, length_bytes=min(limits.COPY_CHUNK_BYTES, end - at))
                    self._wait_for_rate(sock, request.session_id, part.length_bytes)
                    file.check_length(at + part.length_bytes)
                    between_parts = False
                    self._send(sock, request, file, part)
                    between_parts = True
                    at += part.length_bytes
        except ReplicaError as error:
            if isinstance(error, Corruption):
                self._on_unreadable(request.session_id, error)
            refusal = as_refusal(error, self._process.on_fatal)
            if not between_parts:
                raise refusal from error
            send_message(sock, pb.FetchPart(error=error_to_pb(refusal)))

    def _send(self, sock: socket.socket, request: pb.FetchRequest, file: SessionFile, part: pb.FetchPart) -> None:
        send_message(sock, part, bytes_follow=True)
        if not isinstance(sock, ssl.SSLSocket):
            file.send(sock.fileno(), part.byte_offset, part.length_bytes)
            return
        at, end = part.byte_offset, part.byte_offset + part.length_bytes
        while at < end:
            data = file.read(at, end - at)
            sock.sendall(data)
            at += len(data)

    def _wait_for_rate(self, sock: socket.socket, session_id: str, length_bytes: int) -> None:
        """Wait until the rate allows so many bytes. The session is kept alive meanwhile."""
        process, waited_s = self._process, 0.0
        process.sessions.get(session_id)
        drawn = process.copy_rate.draw(length_bytes)
        while pause_s := process.copy_rate.pause_s(drawn):
            if self._closing.wait(pause_s):
                raise ConnectionAbortedError("the server stops")
            waited_s += pause_s
            if waited_s >= SIGN_OF_LIFE_S:
                waited_s = 0.0
                process.sessions.get(session_id)
                send_message(sock, pb.FetchPart())


def close_connection(sock: socket.socket) -> None:
    """End a connection that another thread may be reading or writing. That thread closes it."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has ended already
