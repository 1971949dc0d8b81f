"""A link to a real server made by hand, to send messages that no server of ours would."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from nyala.replica.rpc import HEAD_BYTES, address_to_pb, body_length, frame, pb, pb_grpc
from nyala.replica.types import Address
from tests.harness.patience import patience_s

WAIT_S = patience_s(60.0)


def ask_for_link(channel: Any, sender: str, dest_uuid: str) -> Any:
    """Return the server's pb.OpenLinkReply."""
    stub: Any = pb_grpc.PeerServiceStub(channel)  # type: ignore[no-untyped-call]
    here = address_to_pb(Address("127.0.0.1", 1))
    return stub.OpenLink(pb.OpenLinkRequest(from_uuid=sender, dest_uuid=dest_uuid, from_address=here), timeout=WAIT_S)


def trusting(
    learn: Callable[[str, Address], None] = lambda uuid, address: None,
) -> Callable[[str, int, Address | None, str], Awaitable[bool]]:
    """Return an `is_member` of a servicer that takes every sender for the member that it names, where it says."""

    async def is_member(uuid: str, process: int, address: Address | None, host: str) -> bool:
        if address is not None:
            learn(uuid, address)
        return True

    return is_member


class HandMadeLink:
    """The sending end of a link that was granted."""

    def __init__(self, port: int, ticket: bytes) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self.send(ticket)

    def send(self, body: bytes) -> None:
        """Send one frame."""
        self.send_bytes(frame(body))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes that need not be a frame."""
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """Return the next frame that comes back."""
        return self._exactly(body_length(self._exactly(HEAD_BYTES)))

    def _exactly(self, length: int) -> bytes:
        """Read so many bytes, in however many pieces they come: a socket with a timeout does not wait for all of
        them."""
        found = b""
        while len(found) < length:
            piece = self._socket.recv(length - len(found))
            if not piece:
                raise ConnectionError("the server has closed its end within a frame")
            found += piece
        return found

    def close(self) -> None:
        """Close the link without notice."""
        self._socket.close()

    def finish(self) -> None:
        """Return once the server has read everything and closed its end."""
        self._socket.shutdown(socket.SHUT_WR)
        self.wait_ended()

    def wait_ended(self) -> None:
        """Return once the server has closed its end, by its own decision unless `finish` was called."""
        with suppress(ConnectionResetError):
            assert self._socket.recv(1) == b""
        self._socket.close()
