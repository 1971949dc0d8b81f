"""The source's end of the connections on which copies are fetched."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nyala.replica.base import Corruption, ReplicaError, limits
from nyala.replica.copy import SessionFile
from nyala.replica.rpc import as_refusal, check_name, error_to_pb, pb

from .fetch_wire import be_patient, receive_message, send_message
from .hosting import CopyHost

_log = logging.getLogger("nyala.copywire")

PATIENCE_S = limits.COPY_SESSION_TTL_US // 1_000_000
"""A target that takes nothing, or asks for nothing, for as long as a session lives unasked for, is gone."""
SIGN_OF_LIFE_S = 5.0
"""A target that must wait for this server's rate hears so often that it is not forgotten."""


class FetchServing:
    """Answers requests for ranges of files: the bytes go from the file to the socket within the kernel.

    Invariants: each request names this server and a session that is alive, and that is checked before anything is read.
    What is refused is told where a part would begin; within a part the connection ends. Bounded: COPY_FETCHES_MAX
    connections, a thread each; what the network does not take stays in the file.
    Concurrency: `taken` from the loop's thread, `close` from any.
    """

    def __init__(self, host: CopyHost, on_lost: Callable[[str, Corruption], None]) -> None:
        """`on_lost(session id, why)`: a block cannot be read; called on the connection's thread."""
        self._host = host
        self._on_lost = on_lost
        self._pool = ThreadPoolExecutor(limits.COPY_FETCHES_MAX, thread_name_prefix="copy-serve")
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._closing = threading.Event()

    @property
    def full(self) -> bool:
        """Whether one more connection would be ended at once."""
        return len(self._connections) >= limits.COPY_FETCHES_MAX

    def taken(self, sock: socket.socket) -> None:
        """A connection whose ticket was for a copy."""
        with self._lock:
            room = not self._closing.is_set() and not self.full
            if room:
                self._connections.add(sock)
                self._pool.submit(self._serve, sock)
        if not room:
            sock.close()

    def close(self) -> None:
        """End all connections, now and later."""
        with self._lock:
            self._closing.set()
            for sock in self._connections:
                hang_up(sock)
        self._pool.shutdown(wait=False)

    def _serve(self, sock: socket.socket) -> None:
        try:
            be_patient(sock, PATIENCE_S)
            send_message(sock, pb.FetchPart())
            while (request := receive_message(sock, pb.FetchRequest)) is not None:
                self._answer(sock, request)
        except (OSError, ReplicaError) as error:
            _log.info("P %s a connection of a copy has ended: %s", self._host.uuid, error)
        except Exception as error:  # noqa: BLE001 - the root of the connection's thread
            self._host.on_fatal(error)
        finally:
            with self._lock:
                self._connections.discard(sock)
                sock.close()

    def _answer(self, sock: socket.socket, request: Any) -> None:
        between_parts = True
        try:
            check_name(request.dest_uuid, self._host.uuid)
            at, end = request.byte_offset, request.byte_offset + request.length_bytes
            session = self._host.sessions.get(request.session_id)
            with session.opened(request.kind, request.name, at, request.length_bytes) as file:
                while at < end:
                    part = pb.FetchPart(byte_offset=at, length_bytes=min(limits.COPY_CHUNK_BYTES, end - at))
                    self._wait_for_turn(sock, request.session_id, part.length_bytes)
                    file.check_length(at + part.length_bytes)
                    between_parts = False
                    self._send(sock, request, file, part)
                    between_parts = True
                    at += part.length_bytes
        except ReplicaError as error:
            if isinstance(error, Corruption):
                self._on_lost(request.session_id, error)
            refusal = as_refusal(error, self._host.on_fatal)
            if not between_parts:
                raise refusal from error
            send_message(sock, pb.FetchPart(error=error_to_pb(refusal)))

    def _send(self, sock: socket.socket, request: Any, file: SessionFile, part: Any) -> None:
        send_message(sock, part, bytes_follow=True)
        file.send(sock.fileno(), part.byte_offset, part.length_bytes)

    def _wait_for_turn(self, sock: socket.socket, session_id: str, length_bytes: int) -> None:
        """Until the rate allows so many bytes; a long download keeps its session."""
        host, waited_s = self._host, 0.0
        host.sessions.get(session_id)
        ticket = host.copy_rate.ticket(length_bytes)
        while pause_s := host.copy_rate.pause_s(ticket):
            if self._closing.wait(pause_s):
                raise ConnectionAbortedError("the server stops")
            waited_s += pause_s
            if waited_s >= SIGN_OF_LIFE_S:
                waited_s = 0.0
                host.sessions.get(session_id)
                send_message(sock, pb.FetchPart())


def hang_up(sock: socket.socket) -> None:
    """End a connection under whoever reads or writes it; its owner closes it."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has ended already
