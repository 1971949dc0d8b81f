"""Incoming streams: check who is meant, convert, hand to the tablet manager."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import grpc.aio

from nyala.replica.base import Address, Code, InvariantViolation, Refused, ReplicaError
from nyala.replica.raft import Message
from nyala.replica.rpc import address_from_pb, error_to_pb, message_from_pb, pb, pb_grpc

_log = logging.getLogger("nyala.peers")


class PeerServicer(pb_grpc.PeerServiceServicer):  # type: ignore[misc]
    """Server side of `PeerService`; register it with `pb_grpc.add_PeerServiceServicer_to_server`.

    Invariants: nothing of a batch is delivered before its `dest_uuid` was checked; a message that names other
    servers than its batch is dropped. Concurrency: the loop's thread; `deliver` is called there, in order per sender,
    all messages of a batch in one turn of the loop.
    """

    def __init__(
        self,
        local_uuid: str,
        deliver: Callable[[str, Message], None],
        on_peer: Callable[[str, Address], None] = lambda uuid, address: None,
        on_fatal: Callable[[BaseException], None] | None = None,
    ) -> None:
        """`deliver(tablet_id, message)`; `on_peer(uuid, address)`: where a sender says that it listens, once a stream.

        `on_fatal` gets what `deliver` must not raise (gRPC would swallow it); without it, that is raised into gRPC.
        """
        self._uuid = local_uuid
        self._deliver = deliver
        self._on_peer = on_peer
        self._on_fatal = on_fatal

    async def Exchange(self, _requests: Any, context: Any) -> None:
        """Take batches until the sender ends the stream or names another server."""
        received = 0
        while True:
            batch = await context.read()
            if batch is grpc.aio.EOF:
                return
            if batch.dest_uuid != self._uuid:
                await context.write(pb.PeerAck(error=error_to_pb(self._wrong_name(batch)), received=received))
                return
            if not received:
                if batch.from_address.port:
                    self._on_peer(batch.from_uuid, address_from_pb(batch.from_address))
                await context.write(pb.PeerAck(received=1))  # tells the sender that it found whom it looked for
            received += 1
            self._take(batch)

    def _wrong_name(self, batch: Any) -> Refused:
        return Refused(Code.INVALID_NAME, "this server has another uuid", meant=batch.dest_uuid, own=self._uuid)

    def _take(self, batch: Any) -> None:
        sender = batch.from_uuid
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
            except ReplicaError as error:
                if self._on_fatal is None:
                    raise
                self._on_fatal(error)
