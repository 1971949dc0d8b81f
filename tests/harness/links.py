"""A link to a real server made by hand, to send messages that no server of ours would."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from nyala.replica.rpc import HEAD_BYTES, address_to_pb, body_length, frame, pb, pb_grpc
from nyala.replica.types import Address
from tests.harness.patience import patience_s
from tests.harness.played_grpc import listening

WAIT_S = patience_s(60.0)
NUMBER = 7
"""The number of the process in requests for links that are made by hand."""


def ask_for_link(channel: Any, sender: str, dest_uuid: str, at: Address = Address("127.0.0.1", 1)) -> Any:
    """Return the server's pb.OpenLinkReply."""
    stub: Any = pb_grpc.PeerServiceStub(channel)  # type: ignore[no-untyped-call]
    here = address_to_pb(at)
    request = pb.OpenLinkRequest(from_uuid=sender, dest_uuid=dest_uuid, from_address=here, process=NUMBER)
    return stub.OpenLink(request, timeout=WAIT_S)


class PlayedSender(pb_grpc.PeerServiceServicer):  # type: ignore[misc]
    """Answers as the process of every server whose links are made by hand, and grants links that lead nowhere."""

    def __init__(self) -> None:
        self.asked_for_links: list[pb.OpenLinkRequest] = []

    def IsProcess(self, request: Any, context: Any) -> pb.ProcessReply:
        return pb.ProcessReply(same=request.process == NUMBER)

    def OpenLink(self, request: Any, context: Any) -> pb.OpenLinkReply:
        self.asked_for_links.append(request)
        return pb.OpenLinkReply(port=1, ticket=b"t" * 16)


@contextmanager
def played_sender() -> Iterator[tuple[PlayedSender, Address]]:
    """A played sender, and the address at which it listens."""
    played = PlayedSender()
    with listening(played) as address:
        yield played, address


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
