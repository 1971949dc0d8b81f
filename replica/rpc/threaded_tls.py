"""A TLS connection that threads use like a socket."""

from __future__ import annotations

import socket
import ssl
import threading
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class ThreadedTls(ssl.SSLSocket):
    """A TLS connection of which one thread may read while another one sends, while its time-out is 0.

    Then both raise BlockingIOError if they would have to wait, as a socket does. Flags for the kernel are ignored.
    Concurrency: OpenSSL is called by one thread at a time.
    """

    one_at_a_time: threading.Lock

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """[socket] Receive decrypted bytes, at most those of one record (16 KiB)."""
        try:
            with self.one_at_a_time:
                return super().recv(buflen)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError("no whole record has come") from error

    def send(self, data: ReadableBuffer, flags: int = 0) -> int:
        """[socket] Encrypt bytes and send them; returns how many."""
        try:
            with self.one_at_a_time:
                return super().send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError("the network takes nothing") from error

    def sendall(self, data: ReadableBuffer, flags: int = 0) -> None:
        """[socket] Encrypt and send all bytes."""
        super().sendall(data)

    def shutdown(self, how: int) -> None:
        """[socket] End the connection. The one of `ssl` would let a thread that still sends go on in the clear."""
        socket.socket.shutdown(self, how)


def handshaken(sock: socket.socket, context: ssl.SSLContext, expected: str | None) -> ThreadedTls:
    """The connection after its handshake, for which the socket's time-out counts as a whole; OSError.

    `expected`: the DNS name of the process that accepts it; None at its own end.
    """
    context.sslsocket_class = ThreadedTls
    wrapped = context.wrap_socket(
        sock, server_side=expected is None, server_hostname=expected, do_handshake_on_connect=False
    )
    made = cast(ThreadedTls, wrapped)
    made.one_at_a_time = threading.Lock()
    try:
        made.do_handshake()
    except BaseException:
        made.close()
        raise
    return made
