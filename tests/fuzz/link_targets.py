"""Every framed link: between servers, of clients that write, and of targets that fetch a copy.

An input is all bytes of one connection, from the first to the last: whole and half frames, also with false lengths.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Sequence
from typing import Any

from nyala.replica.client.scan_links import batches_on
from nyala.replica.rpc import HEAD_BYTES, body_length, frame, message_to_pb, pb
from nyala.replica.server.requests.write_links import WriteLink
from nyala.replica.server.runtime.lanes import drained
from nyala.replica.tablet_copy.wire.fetch_wire import set_timeouts
from nyala.replica.transport.listener import _Incoming
from nyala.replica.types import OpId, Refused
from tests.fuzz.rpc_targets import ServerCalls, row_of_server, within_server
from tests.fuzz.sessions import pure
from tests.fuzz.spoil import spoilt
from tests.fuzz.spoil_proto import spoilt_message
from tests.fuzz.target import Broken, Scenario, Target
from tests.fuzz.value_targets import ROWS, spoilt_values
from tests.harness.copies import TABLET, superblock
from tests.harness.played_replica import (
    CONFIG,
    FOLLOWS,
    LEADER,
    ME,
    ROUNDS,
    THIRD,
    World,
    append,
    candidate,
    hand_over,
    matched,
    noop,
    vote,
    with_replica,
)
from tests.harness.server_calls import ServerWorld
from tests.unit.server.test_server_requests_table import begin, put, read

GUARD = "guard"
PIECES = (1, 3, 5, 100, 5000, 1 << 18)
"""Bytes that arrive at once; the input's length decides which of them."""
STUCK_S = 60.0


class _Wire(asyncio.Transport):
    """The product's end of a connection without a network."""

    def __init__(self, protocol: Any) -> None:
        super().__init__()
        self._protocol = protocol
        self._socket, self._other = socket.socketpair()
        self._closing = False
        self.written = bytearray()
        protocol.connection_made(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"socket": self._socket, "peername": ("127.0.0.1", 5)}.get(name, default)

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: Any) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Do nothing: bytes that are here already are read all the same."""

    def resume_reading(self) -> None:
        """Do nothing: nothing was held back."""

    def abort(self) -> None:
        if not self._closing:
            self._closing = True
            self._protocol.connection_lost(None)
            self._socket.close()
            self._other.close()

    close = abort

    def feed(self, data: bytes) -> None:
        """Deliver the bytes, in pieces, until the product ends the connection."""
        at, piece = 0, PIECES[len(data) % len(PIECES)]
        while at < len(data) and not self._closing:
            room = self._protocol.get_buffer(-1)
            size = min(len(room), piece, len(data) - at)
            if not size:
                raise Broken("there is no room for what arrives")
            room[:size] = data[at : at + size]
            del room
            self._protocol.buffer_updated(size)
            at += size


def _framed(bodies: Sequence[bytes], rng: random.Random) -> bytes:
    """Return the bodies as frames; now and then a length is false, or a frame is cut, doubled or empty."""
    parts = [frame(body) for body in bodies]
    if rng.random() < 0.25:
        at = rng.randrange(len(parts))
        way = rng.randrange(5)
        if way == 0:
            said = rng.choice(
                (0, 1, len(bodies[at]) - 1, len(bodies[at]) + 1, 1 << 20, 1 << 24, (1 << 24) + 1, 2**32 - 1)
            )
            parts[at] = max(0, said).to_bytes(HEAD_BYTES, "big") + bodies[at]
        elif way == 1:
            parts[at] = parts[at][: rng.randrange(len(parts[at]))]
        elif way == 2:
            parts.insert(at, parts[at])
        elif way == 3:
            parts.insert(at, frame(b""))
        else:
            parts[at] = spoilt(parts[at], rng, parts)
    return b"".join(parts)


# ------------------------------------------------------------------------------------------------ between servers


def _messages() -> list[Any]:
    found = [
        append(3, (3, 2), noop(3, 3), noop(3, 4), commit=2), append(3, (3, 2)), append(4, (0, 0), noop(4, 1)),
        matched(4, (4, 3)), candidate(THIRD, 4), candidate(LEADER, 5), vote(4), vote(4, pre_vote=True), hand_over(3),
    ]  # fmt: skip
    return [message_to_pb(TABLET, message) for message in found]


class _Peers:
    """A replica of three, and one of the guard's tablet beside it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kinds = _messages()
        self.seeds = [
            pb.PeerBatch(from_uuid=each.from_uuid, dest_uuid=ME, messages=[each]).SerializeToString()
            for each in self._kinds
        ]
        self._others = [pb.PeerBatch.FromString(seed) for seed in self.seeds]
        self._index = 2

    async def begin(self) -> None:
        await self._world.manager.create(superblock(tablet_id=GUARD), CONFIG, campaign=False)
        self._say(append(3, (0, 0), noop(3, 1), noop(3, 2), commit=2))
        await self._guard()

    def mutate(self, rng: random.Random) -> bytes:
        """Return an input whose first byte states whose link it is, or that it has no ticket."""
        whose = rng.choice((0, 0, 0, 1, 2, 3))
        bodies = [
            spoilt_message(pb.PeerBatch, self.seeds, rng, self._others)
            if rng.random() < 0.8
            else rng.choice(self.seeds)
            for _ in range(rng.choice((1, 1, 2, 3)))
        ]
        return bytes([whose]) + _framed(bodies, rng)

    async def deliver(self, data: bytes) -> None:
        listener = self._world.peers.listener
        wire = _Wire(_Incoming(listener))
        whose = data[0] % 4 if data else 3
        if whose < 3:
            wire.feed(frame(listener.ticket((LEADER, THIRD, ME)[whose], "127.0.0.1")))
        wire.feed(data[1:])
        await asyncio.sleep(0)
        wire.abort()
        await asyncio.sleep(0)
        if listener.connections or listener.begun_bytes:
            raise Broken(f"{listener.connections} ended connections are kept, {listener.begun_bytes} bytes of them")

    def _say(self, message: Any) -> None:
        """Send one honest message for the guard's tablet, on a link of its sender."""
        listener = self._world.peers.listener
        wire = _Wire(_Incoming(listener))
        wire.feed(frame(listener.ticket(message.from_uuid, "127.0.0.1")))
        batch = pb.PeerBatch(from_uuid=message.from_uuid, dest_uuid=ME, messages=[message_to_pb(GUARD, message)])
        wire.feed(frame(batch.SerializeToString()))
        wire.abort()

    async def _guard(self) -> None:
        hosted = self._world.manager.get(GUARD)
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
            await asyncio.to_thread(hosted.log.drain)
            await drained(hosted.meta_lane)
            await drained(hosted.lane)
        replica = hosted.replica
        assert replica is not None
        found = (replica.last_logged, replica.commit_index, replica.term)
        if found != (OpId(3, self._index), self._index, 3):
            raise Broken(f"the guard's replica is at {found}, and should be at index {self._index} of term 3")

    async def check(self) -> None:
        if self._world.fatal:
            raise Broken(f"the server would have ended: {self._world.fatal!r}") from self._world.fatal[0]
        await self._guard()
        before, self._index = self._index, self._index + 1
        self._say(append(3, (3, before), noop(3, self._index), commit=self._index))
        await self._guard()


def _within_peers(scenario: Scenario) -> None:
    async def life(world: World) -> None:
        session = _Peers(world)
        await session.begin()
        await scenario(session)

    with_replica(FOLLOWS, life)


# ------------------------------------------------------------------------------------------------------ small writes


class _Writes(ServerCalls):
    """A client's link for small writes."""

    def __init__(self, world: ServerWorld) -> None:
        super().__init__(row_of_server("TabletService.Write"), world)
        requests = [put("a")(world), read(3, 4)(world), put("b", client_id="d", sequence=9)(world)]
        self.seeds = [
            pb.WriteBundle(writes=[pb.NumberedWrite(number=1, request=r)]).SerializeToString() for r in requests
        ]
        two = [pb.NumberedWrite(number=n, request=r) for n, r in enumerate(requests)]
        self.seeds.append(pb.WriteBundle(writes=two).SerializeToString())
        self._bundles = [pb.WriteBundle.FromString(seed) for seed in self.seeds]

    def mutate(self, rng: random.Random) -> bytes:
        bodies = [
            spoilt_message(pb.WriteBundle, self.seeds, rng, self._bundles)
            if rng.random() < 0.8
            else rng.choice(self.seeds)
            for _ in range(rng.choice((1, 1, 2, 3)))
        ]
        return _framed(bodies, rng)

    async def deliver(self, data: bytes) -> None:
        links = self.world.services()["TabletService"].write_links
        link = WriteLink(links)
        wire = _Wire(link)
        wire.feed(data)
        for _ in range(50):
            await asyncio.sleep(0)
            if link.idle:
                break
        wire.abort()
        await asyncio.sleep(0)
        if links.open or links.quota.bytes:
            raise Broken(f"{len(links.open)} ended links are kept, {links.quota.bytes} bytes of them")
        if wire.written:
            _check_frames(bytes(wire.written), pb.ReplyBundle)


def _check_frames(data: bytes, kind: Any) -> list[Any]:
    """Return the messages that the product sent."""
    found = []
    while data:
        size = body_length(data[:HEAD_BYTES])
        found.append(kind.FromString(data[HEAD_BYTES : HEAD_BYTES + size]))
        data = data[HEAD_BYTES + size :]
    return found


# ------------------------------------------------------------------------------------------------------------ copies


class _Fetches(ServerCalls):
    """A target's connection to the source of a copy."""

    def __init__(self, world: ServerWorld, session_id: str, file: Any) -> None:
        super().__init__(row_of_server("CopyService.OpenFetch"), world, [session_id])
        self._session_id = session_id
        self._listening = socket.create_server(("127.0.0.1", 0))
        fields = {"dest_uuid": world.uuid, "session_id": session_id, "kind": file.kind, "name": file.name}
        ranges = [(0, file.length_bytes), (0, 1), (file.length_bytes - 1, 1), (10, 100)]
        requests = [pb.FetchRequest(**fields, byte_offset=at, length_bytes=size) for at, size in ranges]
        self.seeds = [self.placed(r.SerializeToString()) for r in requests]

    def mutate(self, rng: random.Random) -> bytes:
        bodies = [
            spoilt_message(pb.FetchRequest, self.seeds, rng) if rng.random() < 0.8 else rng.choice(self.seeds)
            for _ in range(rng.choice((1, 1, 2, 3)))
        ]
        return _framed(bodies, rng)

    async def deliver(self, data: bytes) -> None:
        fetches = self.world.services()["CopyService"].fetches
        here = socket.create_connection(self._listening.getsockname())
        there, _ = self._listening.accept()
        fetches.taken(self._session_id, there)
        await asyncio.wait_for(asyncio.to_thread(_talk, here, self.own(data)), STUCK_S)

    def close(self) -> None:
        super().close()
        self._listening.close()


def _talk(sock: socket.socket, data: bytes) -> None:
    """Send it all, and read what comes until the other end is done."""
    with sock:
        set_timeouts(sock, int(STUCK_S))
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass
        except OSError:  # it has ended the connection already
            return


def _within_writes(scenario: Scenario) -> None:
    async def made(world: ServerWorld) -> ServerCalls:
        return _Writes(world)

    within_server(row_of_server("TabletService.Write"), scenario, made)


def _within_fetches(scenario: Scenario) -> None:
    async def made(world: ServerWorld) -> ServerCalls:
        await world.write([1, 2, 3], "v")
        begun = await world.done("CopyService", "BeginCopy", begin()(world))
        return _Fetches(world, begun.session_id, begun.files[0])

    within_server(row_of_server("CopyService.OpenFetch"), scenario, made)


# ------------------------------------------------------------------------------------------------------ rows of scans


class _Rows:
    """A client's end of the connection on which a server sends the rows of a scan. (A server reads nothing there.)"""

    def __init__(self) -> None:
        rows = [ROWS, ROWS.slice(0, 1), ROWS.slice(1, 0)]
        self._bodies = [batch.serialize().to_pybytes() for batch in rows]
        self.seeds = [frame(body) for body in self._bodies] + [b"".join(map(frame, self._bodies)), b""]

    def mutate(self, rng: random.Random) -> bytes:
        count = rng.choice((1, 1, 2, 3))
        bodies = [
            spoilt_values(body, rng) if rng.random() < 0.8 else body for body in rng.choices(self._bodies, k=count)
        ]
        return _framed(bodies, rng)

    def read(self, data: bytes) -> object:
        """Return the rows that the client takes, or its refusal; the rest of what the server sent is dropped."""
        here, there = socket.socketpair()
        with here:
            with there:
                there.sendall(data)
            try:
                return [batch.num_rows for batch in batches_on(here, ROWS.schema, lambda: None)]
            except Refused as error:
                return error.code


def targets() -> list[Target]:
    """Return one target for every kind of link."""
    rows = _Rows()
    return [
        pure("link/rows", rows.seeds, rows.mutate, rows.read),
        Target(name="link/raft", within=_within_peers, brief=150),
        Target(name="link/writes", within=_within_writes, brief=150),
        Target(name="link/copy", within=_within_fetches, brief=100),
    ]
