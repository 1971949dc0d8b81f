"""Connections to the second port of a server, for links, and whether that port can be reached."""

from __future__ import annotations

import socket
import time

from nyala.replica.rpc import CLIENT_SILENCE_MS, HEAD_BYTES, Credentials, connection_to, frame, set_keep_alive
from nyala.replica.types import Address

CONNECT_S = 2.0
"""Bounds the time to connect. A firewall may drop packets to that port; then time is left for a gRPC call."""
CALLS_INSTEAD_S = 30.0
"""If the port could not be reached, the client makes gRPC calls instead for this time."""


class LinkPort:
    """The port of one server. Concurrency: any thread."""

    def __init__(self, address: Address, credentials: Credentials | None = None) -> None:
        self._address = address
        self._credentials = credentials
        self._not_until = 0.0

    @property
    def reachable(self) -> bool:
        """Whether the port may be reached, as far as is known."""
        return time.monotonic() >= self._not_until

    def avoid(self) -> None:
        """Make gRPC calls instead for some time."""
        self._not_until = time.monotonic() + CALLS_INSTEAD_S

    def connected(self, port: int, ticket: bytes, dest_uuid: str, timeout_s: float) -> socket.socket:
        """Return a connection whose ticket the server has accepted. If there is none in time, it raises OSError, and
        the port is avoided for some time."""
        try:
            left = min(CONNECT_S, max(0.001, timeout_s))
            sock = connection_to(self._address, port, ticket, dest_uuid, left, self._credentials)
            try:
                set_keep_alive(sock, CLIENT_SILENCE_MS)
                if sock.recv(HEAD_BYTES, socket.MSG_WAITALL) != frame(b""):
                    raise ConnectionError("the server did not take the ticket")
            except BaseException:
                sock.close()
                raise
        except OSError:
            self.avoid()  # a firewall that lets only the server's gRPC port through must not stop its callers
            raise
        return sock
