"""Outgoing links to all other servers of the cluster."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from hashlib import blake2b

from nyala.replica.raft import Message
from nyala.replica.types import Address, Member, Post, RaftConfig, limits

from .options import PeerOptions
from .peer import Peer, PeerStatus


class PeerNetwork:
    """All outgoing links of one server, one for each other server, opened when there is something to send.

    Invariants: messages to one server are sent in the order of `send`; a message is sent at most once. Durability:
    none; Raft sends again what is lost. Concurrency: the loop's thread only.
    """

    def __init__(
        self,
        uuid: str,
        address: Address,
        options: PeerOptions | None = None,
        *,
        on_state: Callable[[PeerStatus], None] = lambda status: None,
        soon: Post | None = None,
        takeover: int = 0,
    ) -> None:
        """`address`: the one at which this server listens. `on_state`: a link found its server, or ended (`error`: the
        reason).

        `soon`: runs a function after the current event (`microtasks.py`), so that everything for one server leaves as
        one batch; by default, in the next iteration. `takeover`: for masters, the number of their directory's takeover.
        """
        self._uuid = uuid
        self._on_state = on_state
        self._soon = soon
        self._takeover = takeover
        self._address = address
        self._options = options or PeerOptions()
        self._peers: dict[str, Peer] = {}
        self._given: dict[str, tuple[Address, ...]] = {}
        self._hinted: dict[str, tuple[Address, ...]] = {}
        self._listed: dict[str, tuple[Address, ...]] = {}
        self._configured: dict[str, tuple[Address, ...]] = {}
        self._all_configured: dict[str, dict[Address, None]] = {}
        """The addresses of each server in all configs, the first ones of a bounded number."""
        self._unknown: dict[str, None] = {}
        """Servers with a link that neither a config here nor a master names, in the order in which the links were
        opened."""
        self._closed = False
        self._process = secrets.randbits(63) | 1
        """The number of this process, in every batch: another process of the server has another one."""
        self._secret = secrets.token_bytes(16)
        self.on_known: Callable[[str], None] = lambda uuid: None
        """Called when another address is known at which a server may be asked for."""

    def send(self, messages: Sequence[tuple[str, Message]]) -> None:
        """Queue (tablet id, message) pairs by their `to_uuid`.

        Never blocks, and never raises if a peer is away: messages that cannot be sent are dropped. All messages that
        one event causes for one server are sent as one batch.
        """
        if self._closed:
            return
        peers = self._peers
        for tablet_id, message in messages:
            peer = peers.get(message.to_uuid)
            if peer is None:
                peer = self._open(message.to_uuid)
            peer.put(tablet_id, message)

    def pulse(self, uuids: Sequence[str]) -> None:
        """Send an empty batch to each of these servers to which nothing was sent since the last call."""
        if self._closed:
            return
        for uuid in uuids:
            (self._peers.get(uuid) or self._open(uuid)).pulse()

    def learn(self, uuid: str, addresses: Sequence[Address]) -> None:
        """Note the address that the server `uuid` gave and where its process answered. If it changes, the link ends and
        connects there at once."""
        self._note(self._given, uuid, addresses)

    def hint(self, uuid: str, address: Address) -> None:
        """Note the address of an unknown server as the caller gives it, for answers; no known address comes after it.
        A bounded number is kept."""
        self._note(self._hinted, uuid, (address,))
        while len(self._hinted) > limits.PEERS_UNKNOWN_MAX:
            del self._hinted[next(iter(self._hinted))]

    def link_number_for(self, uuid: str) -> int:
        """The number of this process in its requests for links to that server; 0 to a server that is not known here.

        Each receiver gets another number, so none can use its own to open a link to a third one in our name.
        """
        if not self.knows(uuid):
            return 0  # the address may be anybody's
        return int.from_bytes(blake2b(uuid.encode(), key=self._secret, digest_size=8).digest()) | 1

    def knows(self, uuid: str) -> bool:
        """Whether a config here, or the masters, name that server."""
        return uuid in self._configured or uuid in self._listed

    def learn_listed(self, uuid: str, addresses: Sequence[Address]) -> None:
        """Note the address of `uuid` that the masters give: tried after its own, and before those in configs."""
        self._note(self._listed, uuid, addresses)

    def trusted(self, uuid: str) -> tuple[tuple[Address, ...], ...]:
        """The addresses at which `uuid` may be asked for: those of the masters, then those of all configs. Its own word
        for one is not among them."""
        configured = tuple(self._all_configured.get(uuid, ()))
        return tuple(known for known in (self._listed.get(uuid, ()), configured) if known)

    def unreachable(self) -> list[str]:
        """The sorted uuids of servers to which there is no link, because the last attempt failed or no address is
        known."""
        return sorted(uuid for uuid, peer in self._peers.items() if peer.unreachable)

    def place(self, member: Member) -> Address | None:
        """The address for calls to a member: that of the link to it, otherwise the first one that would be tried."""
        peer = self._peers.get(member.uuid)
        linked = peer.linked_to if peer is not None else None
        return linked or next(iter((*self.addresses(member.uuid), *member.addresses)), None)

    def learn_config(self, config: RaftConfig) -> None:
        """Note the addresses of the members of `config`: tried after those that the member or the masters gave."""
        for member in config.members:
            places = self._all_configured.setdefault(member.uuid, {})
            room = limits.SERVER_ADDRESSES_MAX - len(places)
            new = [place for place in member.addresses if place not in places][:room]
            self._note(self._configured, member.uuid, member.addresses)
            if new:
                places.update(dict.fromkeys(new))
                self.on_known(member.uuid)

    def addresses(self, uuid: str) -> tuple[Address, ...]:
        """The known addresses of `uuid`, in the order in which they are tried."""
        maps = (self._given, self._listed, self._configured)
        found = tuple(dict.fromkeys(address for known in maps for address in known.get(uuid, ())))
        return found or self._hinted.get(uuid, ())

    def _note(self, known: dict[str, tuple[Address, ...]], uuid: str, addresses: Sequence[Address]) -> None:
        if not addresses or uuid == self._uuid:
            return
        before, knew = self.addresses(uuid), self.knows(uuid)
        changed = known.pop(uuid, ()) != tuple(addresses)
        known[uuid] = tuple(addresses)
        after = self.addresses(uuid)
        peer = self._peers.get(uuid)
        if peer is not None and before != after:
            peer.move(after)
        if not knew and self.knows(uuid):
            self._hinted.pop(uuid, None)
            self.relink(uuid)  # with a number
        if changed and known is self._listed:
            self.on_known(uuid)

    def status(self) -> list[PeerStatus]:
        """The status of each link, sorted by uuid."""
        return [self._peers[uuid].status() for uuid in sorted(self._peers)]

    async def close(self) -> None:
        """End all links; queued messages are lost."""
        self._closed = True
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            await peer.close()

    def relink(self, uuid: str) -> None:
        """Give up the link to that server, if there is one, and connect anew for the next message."""
        if peer := self._peers.get(uuid):
            peer.relink()

    def _open(self, uuid: str) -> Peer:
        addresses = self.addresses(uuid)
        peer = Peer(
            self._uuid,
            self._address,
            uuid,
            addresses,
            self._options,
            self._on_state,
            self._process,
            self._soon,
            self._takeover,
            self.link_number_for,
        )
        self._peers[uuid] = peer
        if not self.knows(uuid):
            # It, or a forger in its name, sent a message once. It is enough to answer the latest of such servers.
            self._unknown = {u: None for u in self._unknown if u in self._peers and not self.knows(u)} | {uuid: None}
            for oldest in list(self._unknown)[: max(0, len(self._unknown) - limits.PEERS_UNKNOWN_MAX)]:
                self._peers.pop(oldest).end()
        return peer
