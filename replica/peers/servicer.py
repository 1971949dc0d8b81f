"""Incoming links: check who is meant, convert, hand to the tablet manager."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from nyala.replica.base import Address, Code, InvariantViolation, Refused
from nyala.replica.raft import Message
from nyala.replica.rpc import address_from_pb, error_to_pb, message_from_pb, pb, pb_grpc

from .listener import Listener, Taker
from .options import PeerOptions
from .turn import Turn

_log = logging.getLogger("nyala.peers")


class PeerServicer(pb_grpc.PeerServiceServicer):  # type: ignore[misc]
    """Server side of `PeerService`; register it with `pb_grpc.add_PeerServiceServicer_to_server`.

    Invariants: a link is opened for a caller that names this server, and a batch that names another ends it, before
    anything of it is delivered; a message that names other servers than its link is dropped. Concurrency: the loop's
    thread; `deliver` is called there, in order per sender, all messages of a batch in one turn of the loop.
    """

    def __init__(
        self,
        local_uuid: str,
        deliver: Callable[[str, Message], None],
        on_peer: Callable[[str, Address], None] = lambda uuid, address: None,
        on_fatal: Callable[[BaseException], None] = lambda error: None,
        options: PeerOptions | None = None,
        on_heard: Callable[[str, int], None] = lambda uuid, process: None,
        turn: Turn | None = None,
        check_caller: Callable[[str, int], None] = lambda uuid, takeover: None,
    ) -> None:
        """`deliver(tablet_id, message)`; `on_peer(uuid, address)`: where a sender says that it listens, once a link.

        `on_heard(uuid, process)`: for each batch, empty ones too, before what it brings.
        `on_fatal` gets what `deliver` must not raise; the loop would only log it. `turn`: of whoever answers; what a
        batch brings about is carried to its end before the next one is read. `check_caller(uuid, takeover)`:
        Refused if that one must not be heard; asked for each link and each batch.
        """
        self._uuid = local_uuid
        self._deliver = deliver
        self._on_peer = on_peer
        self._on_fatal = on_fatal
        self._on_heard = on_heard
        self._check_caller = check_caller
        self._refused = ""
        self._listener = Listener(self._take, turn or Turn(asyncio.get_running_loop(), on_fatal), options)

    async def listen(self, host: str, port: int = 0) -> None:
        """Accept links, on a port of their own that callers of `OpenLink` are told. Refused if it is taken."""
        try:
            await self._listener.start(host.strip("[]"), port)
        except OSError as error:
            raise Refused(
                Code.ILLEGAL_STATE, "cannot listen for links of other servers; is the port taken?", host=host, port=port
            ) from error

    def admit(self, taker: Taker) -> tuple[int, bytes]:
        """(port, ticket) for one connection to the host of this server's links, which is handed to `taker`."""
        return self._listener.port, self._listener.ticket(taker)

    async def close(self) -> None:
        """End all links."""
        await self._listener.close()

    async def OpenLink(self, request: Any, context: Any) -> Any:
        """A ticket for one link from the caller to this server; INVALID_NAME if another server is meant."""
        if request.dest_uuid != self._uuid:
            refusal = Refused(
                Code.INVALID_NAME, "this server has another uuid", meant=request.dest_uuid, own=self._uuid
            )
            return pb.OpenLinkReply(error=error_to_pb(refusal))
        if not request.from_uuid:
            return pb.OpenLinkReply(error=error_to_pb(Refused(Code.INVALID_ARGUMENT, "a link names its sender")))
        try:
            self._check_caller(request.from_uuid, request.takeover)
        except Refused as error:
            if str(error) != self._refused:  # it asks again, for as long as it lives
                _log.warning("P %s refused a link of %s: %s", self._uuid, request.from_uuid, error)
            self._refused = str(error)
            return pb.OpenLinkReply(error=error_to_pb(error))
        if request.from_address.port:
            self._on_peer(request.from_uuid, address_from_pb(request.from_address))
        return pb.OpenLinkReply(port=self._listener.port, ticket=self._listener.ticket(request.from_uuid))

    def _take(self, sender: str, body: bytes) -> bool:
        try:
            batch = pb.PeerBatch.FromString(body)
        except DecodeError as error:
            _log.warning("P %s ended the link of %s: not a batch (%s)", self._uuid, sender, error)
            return False
        if batch.dest_uuid != self._uuid or batch.from_uuid != sender:
            text = "P %s ended the link of %s: its batch goes from %s to %s"
            _log.warning(text, self._uuid, sender, batch.from_uuid, batch.dest_uuid)
            return False
        try:
            self._check_caller(sender, batch.takeover)
        except Refused as error:
            _log.warning("P %s ended the link of %s: %s", self._uuid, sender, error)
            return False
        self._on_heard(sender, batch.process)
        for wire in batch.messages:
            if wire.from_uuid != sender or wire.to_uuid != self._uuid:
                _log.warning("P %s dropped a message from %s in a batch of %s", self._uuid, wire.from_uuid, sender)
                continue
            try:
                message = message_from_pb(wire)
            except (Refused, ValueError, InvariantViolation) as error:
                _log.warning("P %s dropped a message of %s that cannot be read: %s", self._uuid, sender, error)
                continue
            try:
                self._deliver(wire.tablet_id, message)
            except Exception as error:  # noqa: BLE001 - the last that sees it
                self._on_fatal(error)
        return True
