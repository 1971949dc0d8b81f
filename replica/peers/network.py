"""Outgoing streams to all other servers of the cluster."""

from __future__ import annotations

from collections.abc import Sequence

from nyala.replica.base import Address, RaftConfig
from nyala.replica.raft import Message

from .channel import PeerChannel, PeerChannelStatus
from .options import PeerOptions


class PeerNetwork:
    """All outgoing streams of one server, one for each other server, opened when there is something to send.

    Invariants: messages to one server leave in the order in which they were given; a message is sent at most once.
    Durability: none; Raft sends again what is lost. Concurrency: the loop's thread only.
    """

    def __init__(self, uuid: str, address: Address, options: PeerOptions | None = None) -> None:
        self._uuid = uuid
        self._address = address
        self._options = options or PeerOptions()
        self._channels: dict[str, PeerChannel] = {}
        self._addresses: dict[str, tuple[Address, ...]] = {}
        self._closed = False

    def send(self, messages: Sequence[tuple[str, Message]]) -> None:
        """Queue (tablet id, message) pairs by their `to_uuid`.

        Never blocks and never raises for a peer that is away: what cannot be sent is dropped. Everything that is given
        in one turn of the loop goes out as one batch per server.
        """
        if self._closed:
            return
        channels = self._channels
        for tablet_id, message in messages:
            channel = channels.get(message.to_uuid)
            if channel is None:
                channel = self._open(message.to_uuid)
            channel.put(tablet_id, message)

    def learn(self, uuid: str, addresses: Sequence[Address]) -> None:
        """Where the server `uuid` listens. If it differs from what was known, the next connect uses it, at once."""
        new = tuple(addresses)
        if not new or uuid == self._uuid or self._addresses.get(uuid) == new:
            return
        self._addresses[uuid] = new
        channel = self._channels.get(uuid)
        if channel is not None:
            channel.move(new)

    def learn_config(self, config: RaftConfig) -> None:
        """Addresses of all members of `config`, for those of whom nothing newer was said."""
        for member in config.members:
            if member.uuid not in self._addresses:
                self.learn(member.uuid, member.addresses)

    def addresses(self, uuid: str) -> tuple[Address, ...]:
        """What is known of where `uuid` listens."""
        return self._addresses.get(uuid, ())

    def status(self) -> list[PeerChannelStatus]:
        """One line per stream, sorted by uuid."""
        return [self._channels[uuid].status() for uuid in sorted(self._channels)]

    async def close(self) -> None:
        """End all streams; queued messages are lost."""
        self._closed = True
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    def _open(self, uuid: str) -> PeerChannel:
        channel = PeerChannel(self._uuid, self._address, uuid, self._addresses.get(uuid, ()), self._options)
        self._channels[uuid] = channel
        return channel
