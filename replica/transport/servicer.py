"""Grants incoming links; checks and converts their messages, and passes them to the tablet manager."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from google.protobuf.message import DecodeError

from nyala.replica.fs import exhausted
from nyala.replica.raft import Message, needs_proof
from nyala.replica.rpc import (
    Context,
    address_from_pb,
    check_name,
    check_tablet_id,
    error_to_pb,
    host_of_caller,
    message_from_pb,
    pb,
    pb_grpc,
)
from nyala.replica.types import PORT_MAX, Address, Code, InvariantViolation, Refused, limits
from nyala.replica.types.log_records import about

from .batch_bounds import too_many_parts
from .listener import ConnectionHandler, Listener
from .microtasks import MicrotaskQueue
from .options import PeerOptions
from .refusals import Refusals

_log = logging.getLogger("nyala.transport")


class PeerServicer(pb_grpc.PeerServiceServicer):
    """The server's side of `PeerService`; register it with `pb_grpc.add_PeerServiceServicer_to_server`.

    Invariants: a link is opened for a caller that names this server; a batch that names another server ends it, before
    any of its messages is delivered; a message that names other servers than its link is refused; on a link whose
    sender is not proven, no message reaches a running replica that only a member may send. Concurrency: the loop's
    thread; `deliver` is called there, in order per sender, all messages of a batch in one iteration of the loop.
    """

    def __init__(
        self,
        local_uuid: str,
        deliver: Callable[[str, Message], str | None],
        is_member: Callable[[str, int, Address | None, str], Awaitable[bool]],
        on_fatal: Callable[[BaseException], None] = lambda error: None,
        options: PeerOptions | None = None,
        on_heard: Callable[[str, int], None] = lambda uuid, process: None,
        microtasks: MicrotaskQueue | None = None,
        check_caller: Callable[[str, int], None] = lambda uuid, takeover: None,
        knows: Callable[[str], bool] = lambda uuid: True,
        link_number_for: Callable[[str], int] = lambda uuid: 0,
        is_absent: Callable[[str], bool] = lambda tablet_id: False,
    ) -> None:
        """`deliver(tablet_id, message)`: returns why it refused the message, as one that no honest peer sends; empty or
        None if it accepted it. `is_member(uuid, number, address, host)`: whether the sender of a request for a link is
        the member that it names (`SenderCheck.is_member`). `link_number_for(uuid)`: as `PeerNetwork.link_number_for`.
        `is_absent(tablet_id)`: whether no replica of it runs here, so that every message for it is only answered.

        `on_heard(uuid, process)`: called for each batch of a member, even an empty one, before its messages are
        delivered.
        `on_fatal` gets any exception of `deliver`, which must not raise; the loop would only log it. `microtasks`: the
        queue of the code that answers, so that all answers to a batch leave before the next is read.
        `check_caller(uuid, takeover)`: raises Refused if messages of that sender must be refused; called for each link
        and batch. `knows(uuid)`: whether a config here or the masters name that server.
        """
        self._uuid = local_uuid
        self._deliver = deliver
        self._is_member = is_member
        self._link_number_for = link_number_for
        self._is_absent = is_absent
        self._on_fatal = on_fatal
        self._on_heard = on_heard
        self._check_caller = check_caller
        self._refused = ""
        self.refusals = Refusals(local_uuid, asyncio.get_running_loop().time)
        self.listener = Listener(
            self._take, microtasks or MicrotaskQueue(asyncio.get_running_loop(), on_fatal), options, knows
        )

    async def listen(self, host: str, port: int = 0) -> None:
        """Accept links on a separate port, which callers of `OpenLink` get. Refused if the port is taken."""
        try:
            await self.listener.start(host.strip("[]"), port)
        except OSError as error:
            raise Refused(
                Code.ILLEGAL_STATE, "cannot listen for links of other servers; is the port taken?", host=host, port=port
            ) from error

    def grant_ticket(self, handler: ConnectionHandler, host: str) -> tuple[int, bytes]:
        """(port, ticket) for one connection to the port of this server's links, which is passed to `handler`."""
        return self.listener.port, self.listener.ticket(handler, host)

    async def close(self) -> None:
        """End all links."""
        await self.listener.close()

    async def OpenLink(self, request: pb.OpenLinkRequest, context: Context) -> pb.OpenLinkReply:
        """Return a ticket for one link from the caller to this server; INVALID_NAME if the call names another
        server."""
        try:
            check_name(request.dest_uuid, self._uuid)
        except Refused as error:
            return pb.OpenLinkReply(error=error_to_pb(error))
        if not 0 < len(request.from_uuid) <= limits.NAME_LENGTH_MAX:
            return pb.OpenLinkReply(error=error_to_pb(Refused(Code.INVALID_ARGUMENT, "a link names its sender")))
        if len(request.from_address.host) > limits.HOST_CHARS_MAX or request.from_address.port > PORT_MAX:
            where = f"{request.from_address.host[:64]}:{request.from_address.port}"
            return pb.OpenLinkReply(error=error_to_pb(Refused(Code.INVALID_ARGUMENT, "no address", address=where)))
        try:
            self._check_caller(request.from_uuid, request.takeover)
        except Refused as error:
            if str(error) != self._refused:  # it repeats the call as long as it lives
                log = about(_log, process=self._uuid, peer=request.from_uuid)
                log.warning("refused a link of %s: %s", request.from_uuid, error)
            self._refused = str(error)
            return pb.OpenLinkReply(error=error_to_pb(error))
        address = address_from_pb(request.from_address) if request.from_address.port else None
        host = host_of_caller(context)
        proven = await self._is_member(request.from_uuid, request.process, address, host)
        ticket = self.listener.ticket(request.from_uuid, host, proven=proven)
        return pb.OpenLinkReply(port=self.listener.port, ticket=ticket)

    async def IsProcess(self, request: pb.ProcessRequest, context: Context) -> pb.ProcessReply:
        """Return whether this process opens its links to the caller with that number; INVALID_NAME if the call names
        another server."""
        try:
            check_name(request.dest_uuid, self._uuid)
        except Refused as error:
            return pb.ProcessReply(error=error_to_pb(error))
        own = self._link_number_for(request.from_uuid)
        return pb.ProcessReply(same=bool(own) and own == request.process)

    def seeking(self) -> list[str]:
        """The sorted uuids of servers whose open links are not proven. The masters may give their addresses."""
        return sorted(self.listener.unproven_senders)

    def _take(self, sender: str, body: bytes, proven: bool) -> bool:
        if why := too_many_parts(body):
            self.refusals.note(sender, "a batch", why)
            return False
        try:
            batch = pb.PeerBatch.FromString(body)
        except DecodeError as error:
            self.refusals.note(sender, "a batch", str(exhausted(error) or f"it cannot be read ({error})"))
            return False
        if batch.dest_uuid != self._uuid or batch.from_uuid != sender:
            why = f"it goes from {batch.from_uuid[:64]!r} to {batch.dest_uuid[:64]!r}"
            self.refusals.note(sender, "a batch", why)
            return False
        try:
            self._check_caller(sender, batch.takeover)
        except Refused as error:
            self.refusals.note(sender, "a batch", str(error))
            return False
        if proven:
            self._on_heard(sender, batch.process)
        if len(batch.messages) > limits.PEER_BATCH_MESSAGES_MAX:
            why = f"{len(batch.messages)} messages, more than {limits.PEER_BATCH_MESSAGES_MAX}"
            self.refusals.note(sender, "a batch", why)
            return False
        for wire in batch.messages:
            if why := self._deliver_one(sender, wire, proven):
                self.refusals.note(sender, f"{wire.WhichOneof('body')} for tablet {wire.tablet_id[:64]!r}", why)
        return True

    def _deliver_one(self, sender: str, wire: pb.RaftMessage, proven: bool) -> str:
        """The reason why one message was refused; empty if it was accepted."""
        if wire.from_uuid != sender or wire.to_uuid != self._uuid:
            return f"it goes from {wire.from_uuid[:64]!r} to {wire.to_uuid[:64]!r}"
        try:
            check_tablet_id(wire.tablet_id)
            message = message_from_pb(wire)
        except (Refused, ValueError, InvariantViolation) as error:
            return str(error)
        if not proven and needs_proof(message) and not self._is_absent(wire.tablet_id):
            return ""  # it comes again on a link that is proven
        try:
            return self._deliver(wire.tablet_id, message) or ""
        except Exception as error:  # noqa: BLE001 - no caller would see it
            self._on_fatal(error)
            return ""
