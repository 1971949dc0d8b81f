"""Two tablet managers in one loop: their Raft messages are passed directly, their copies travel over real gRPC."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import grpc.aio

from nyala.replica.fs import TABLET_SERVER, Instance
from nyala.replica.raft import AppendEntries, Message, RaftOptions
from nyala.replica.raft_driver import Phase
from nyala.replica.rows import WriteMeta, crc32c, encode_batch
from nyala.replica.rpc import RequestChecks, frame, new_server, pb_grpc
from nyala.replica.server.copies.copy_jobs import CopyJobs, CopyRequester
from nyala.replica.server.copies.copy_service import CopyServicer
from nyala.replica.server.copies.witness_data import WitnessDataJobs
from nyala.replica.server.maintenance.maintenance import Maintenance
from nyala.replica.server.options import ServerOptions
from nyala.replica.server.runtime.channels import Channels
from nyala.replica.server.runtime.identity import Identity
from nyala.replica.server.runtime.lanes import LoopPost
from nyala.replica.server.runtime.machine import UNKNOWN
from nyala.replica.server.runtime.memory import MemoryGuard
from nyala.replica.server.runtime.sizing import sized
from nyala.replica.server.tablets.hosted import HostedTablet
from nyala.replica.server.tablets.manager import TabletManager
from nyala.replica.tablet_copy import SessionFile
from nyala.replica.tablet_copy.wire.fetch_serving import FetchServing
from nyala.replica.tablet_copy.wire.remote_source import RemoteCopySource
from nyala.replica.tablet_copy.wire.source_process import SourceProcess
from nyala.replica.transport import ConnectionHandler, Listener, PeerOptions
from nyala.replica.types import (
    Address,
    Clock,
    ConfigEdit,
    EditKind,
    EntryKind,
    HybridClock,
    Member,
    OpId,
    RaftConfig,
    Refused,
    SystemClock,
    limits,
)
from tests.harness.copies import SOURCE_UUID, TABLET, TARGET_UUID, new_disk, superblock
from tests.harness.patience import patience_s
from tests.harness.rows import batch
from tests.harness.sim_disk import SimDisk
from tests.harness.wal_entries import log_threads

TIMEOUT_S = patience_s(60.0)
RAFT = RaftOptions(
    election_ticks_min=1000, election_ticks_max=2000, promote_round_ticks_max=1000, config_abort_ticks=6000
)
"""Options that are patient for many seconds: the leader changes when a test demands it, not because a thread or a
restart was slow."""
Seen = tuple[str, str, Any]
"""The receiver, the kind, and the request or message."""


async def until(condition: Callable[[], Any], what: str) -> Any:
    """Return the first truthy value of `condition`; AssertionError naming `what` after the deadline."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + TIMEOUT_S
    while not (value := condition()):
        if loop.time() > deadline:
            raise AssertionError(f"gave up after {TIMEOUT_S:g} s waiting until {what}")
        await asyncio.sleep(0.005)
    return value


def identity_of(uuid: str, cluster_id: str = "c" * 32) -> Identity:
    """Return the identity of a server whose directory has nothing but its instance file."""
    return Identity(new_disk(), Instance(uuid, TABLET_SERVER, cluster_id, 0))


class Part(NamedTuple):
    """A part of a file on its way: its message, serialised, and the bytes after it."""

    head: bytes
    data: bytes


def as_it_is(request: Any, part: Part) -> Part | None:
    """Return the part as it was sent."""
    return part


class _TracedFetches(FetchServing):
    """The product's end of the connections; its bytes may be changed on their way. Its threads call this."""

    def __init__(self, server: PairedServer, copies: CopyServicer) -> None:
        super().__init__(
            server.manager,
            lambda session, why: server.manager.post(lambda: copies._session_unreadable(session, why)),
            limits.COPY_FETCHES_PER_SESSION_MAX,
        )
        self._server = server

    def _answer(self, sock: socket.socket, request: Any) -> None:
        self._server.note("Fetch", request)
        self._server.pair.on_request(request)
        super()._answer(sock, request)

    def _send(self, sock: socket.socket, request: Any, file: SessionFile, part: Any) -> None:
        if self._server.pair.on_part is as_it_is:
            super()._send(sock, request, file, part)
            return
        data = file.read(part.byte_offset, part.length_bytes)
        on_its_way = self._server.pair.on_part(request, Part(part.SerializeToString(), data))
        if on_its_way is None:
            raise ConnectionError("cut by the test")
        sock.sendall(frame(on_its_way.head) + on_its_way.data)
        if len(on_its_way.data) < len(data):
            raise ConnectionError("cut by the test")


class _TracedCopies(CopyServicer):
    """The product's servicer, which also records the calls."""

    def __init__(self, server: PairedServer) -> None:
        self._server = server
        super().__init__(server.manager, server.jobs, server.maintenance, server.grant_ticket)
        self._note = server.note
        self._pair = server.pair

    def _fetches_of(self, process: SourceProcess) -> FetchServing:
        return _TracedFetches(self._server, self)

    async def StartTabletCopy(self, request: Any, context: Any) -> Any:
        if self._pair.cut and context is not None:  # not a test's own call
            await context.abort(grpc.StatusCode.UNAVAILABLE, "cut by the test")
        if self._pair.starts_lost and context is not None:
            self._pair.starts_lost -= 1
            self._note("LostStartTabletCopy", self._pair.clock.monotonic_us())
            await context.abort(grpc.StatusCode.UNAVAILABLE, "lost by the test")
        self._note("StartTabletCopy", request)
        return await super().StartTabletCopy(request, context)

    async def BeginCopy(self, request: Any, context: Any) -> Any:
        self._note("BeginCopy", request)
        return await super().BeginCopy(request, context)

    async def OpenFetch(self, request: Any, context: Any) -> Any:
        self._note("OpenFetch", request)
        return await super().OpenFetch(request, context)

    async def EndCopy(self, request: Any, context: Any) -> Any:
        self._note("EndCopy", request)
        return await super().EndCopy(request, context)


class PairedServer:
    """One of the two servers: its manager, its copy jobs, its requests to the other, and a listening CopyService."""

    def __init__(self, pair: Pair, name: str, uuid: str, disk: SimDisk) -> None:
        loop, clock = asyncio.get_running_loop(), pair.clock
        self.name = name
        self.uuid = uuid
        self.disk = disk
        self.pair = pair
        self.places: dict[str, tuple[Address, ...]] = {}
        """The addresses of members, as far as configs have them."""
        self.channels = Channels()
        self.heavy = ThreadPoolExecutor(4)
        post = LoopPost(loop, pair.fatal.append)
        self.manager = TabletManager(
            disk=disk,
            uuid=uuid,
            options=sized(
                ServerOptions(
                    root="unused",
                    tick_ms=10,
                    heartbeat_ms=100,
                    log_cache_bytes=1000,
                    log_retain_bytes=0,
                    log_retain_entries=0,
                ),
                UNKNOWN,
            ),
            clock=clock,
            hybrid_clock=HybridClock(clock),
            post=post,
            heavy=self.heavy,
            log_threads=log_threads(),
            send=lambda messages: loop.call_soon(pair.carry, list(messages)),
            learn_config=lambda config: self.places.update((m.uuid, m.addresses) for m in config.members),
            on_copy_needed=lambda tablet_id, need: self.requests.needed(tablet_id, need),
            on_fatal=pair.fatal.append,
            raft_options=RAFT,
        )
        self.jobs = CopyJobs(self.manager, RemoteCopySource)
        self.checks = RequestChecks()
        self.listener = new_server(self.checks)
        self.address = Address("127.0.0.1", self.listener.add_insecure_port("127.0.0.1:0"))
        self.requests = CopyRequester(
            self.manager, self.channels, self.address, lambda member: next(iter(member.addresses), None)
        )
        self.maintenance = Maintenance(self.manager, MemoryGuard(1 << 40, lambda: 0))
        self.joins = WitnessDataJobs(self.manager, self.jobs, lambda member: next(iter(member.addresses), None))
        tickets = PeerOptions(connect_timeout_ms=int(1000 * TIMEOUT_S))
        self.links = Listener(lambda *batch: False, post.microtasks, tickets)
        self.copies = _TracedCopies(self)
        pb_grpc.add_CopyServiceServicer_to_server(self.copies, self.listener)  # type: ignore[no-untyped-call]

    def grant_ticket(self, handler: ConnectionHandler, host: str) -> tuple[int, bytes]:
        return self.links.port, self.links.ticket(handler, host)

    def note(self, what: str, request: Any) -> None:
        self.pair.trace.append((self.name, what, request))

    async def start(self) -> None:
        await self.manager.start()
        await self.links.start("127.0.0.1")
        await self.listener.start()
        self._ticking = asyncio.create_task(self.manager.ticker.run_forever(lambda: self.manager.stopping))
        self._joining = asyncio.create_task(self.joins.run_forever())
        await asyncio.gather(*self.manager.open_all())

    async def stop(self) -> None:
        """End in order, once; `disk` keeps what was written."""
        if self.manager.stopping:
            return
        self.manager.stopping = True
        await self.jobs.stop()
        self.copies.close()
        await self.links.close()
        await self.listener.stop(grace=0)
        self.checks.close()
        self._ticking.cancel()
        self._joining.cancel()
        self.maintenance.close()
        await self.manager.stop()
        await self.channels.close()
        self.heavy.shutdown(wait=False)

    def member(self, *, votes: bool = True, promote: bool = False, holds_data: bool = True) -> Member:
        return Member(self.uuid, (self.address,), votes=votes, promote=promote, holds_data=holds_data)

    @property
    def hosted(self) -> HostedTablet:
        return self.manager.get(TABLET)

    @property
    def has_tablet(self) -> bool:
        return TABLET in self.manager.tablets

    @property
    def serving(self) -> bool:
        """Return whether the replica runs and takes part."""
        return self.has_tablet and self.hosted.replica is not None and self.hosted.replica.phase is Phase.RUNNING

    def rows(self) -> list[int]:
        """Return the keys that the running replica has applied."""
        tablet = self.hosted.tablet
        assert tablet is not None
        return sorted(key for found in tablet.scan() for key in found.column("k").to_pylist())


class Pair:
    """`leader` hosts the tablet alone; `other` is blank until the test adds it. `trace` has what both received."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.trace: list[Seen] = []
        self.fatal: list[BaseException] = []
        self.cut = False
        """Whether Raft messages between the two are lost, and a leader's requests for copies too."""
        self.starts_lost = 0
        """The number of requests for a copy that are to be lost, each noted with its time."""
        self.on_request: Callable[[Any], None] = lambda request: None
        """Called before a request for bytes is answered, on the connection's thread; so is `on_part`."""
        self.on_part: Callable[[Any, Part], Part | None] = as_it_is
        """Returns a part of a file on its way as it shall arrive; for None, or fewer bytes, the connection ends
        there."""
        self.leader = PairedServer(self, "leader", SOURCE_UUID, new_disk())
        self.other = PairedServer(self, "other", TARGET_UUID, new_disk())

    def carry(self, messages: list[tuple[str, Message]]) -> None:
        """Pass messages on, and note the appends."""
        for tablet_id, message in messages:
            receiver = self.leader if message.to_uuid == self.leader.uuid else self.other
            if self.cut or receiver.manager.stopping:
                continue
            if isinstance(message, AppendEntries):
                receiver.note("AppendEntries", message)
            receiver.manager.deliver(tablet_id, message)

    async def begin(self) -> None:
        for server in (self.leader, self.other):
            await server.start()
        config = RaftConfig(OpId(0, 0), (self.leader.member(),))
        await self.leader.manager.create(superblock(), config, campaign=True)
        await until(lambda: self.leader.serving, "the tablet serves")

    async def restart_other(self) -> None:
        """End the other server in order and start it on its disk."""
        await self.other.stop()
        self.other = PairedServer(self, "other", TARGET_UUID, self.other.disk)
        await self.other.start()

    async def restart_leader(self) -> None:
        """End the server that leads in order and start it on its disk."""
        await self.leader.stop()
        self.leader = PairedServer(self, "leader", SOURCE_UUID, self.leader.disk)
        await self.leader.start()

    async def _done(self, ask: Callable[[Callable[[Any], None]], None]) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        ask(answer.set_result)
        return await asyncio.wait_for(answer, TIMEOUT_S)

    async def put(self, *keys: int) -> OpId:
        """Write rows until they are acknowledged; returns the last OpId of the leader's log."""
        replica = self.leader.hosted.replica
        assert replica is not None
        payload = encode_batch(batch(list(keys), ["v"] * len(keys)))
        meta = WriteMeta((1, 2), len(keys)).encode()
        done = await self._done(lambda done: replica.write(EntryKind.WRITE, 1, meta, payload, crc32c(payload), done))
        assert not isinstance(done, BaseException), done
        return replica.last_logged

    async def change(self, kind: EditKind, member: Member) -> RaftConfig:
        """Commit one config change."""
        replica = self.leader.hosted.replica
        assert replica is not None
        done = await self._done(lambda done: replica.change_config([ConfigEdit(kind, member)], None, (0, 0), done))
        assert not isinstance(done, Refused), done
        config: RaftConfig = done
        return config

    async def add_other(self) -> None:
        """Add the other server, as a non-voter that is promoted once it has caught up."""
        await self.change(EditKind.ADD, self.other.member(votes=False, promote=True))

    async def voting(self) -> None:
        """Wait until the other server is a voter."""

        def votes() -> bool:
            replica = self.leader.hosted.replica
            member = replica.committed_config.member(self.other.uuid) if replica is not None else None
            return member is not None and member.votes

        await until(votes, "the other server is a voter")

    def request(self, name: str) -> Any:
        """Return the first call of that name."""
        found = [request for _, what, request in self.trace if what == name]
        assert found, f"no {name} among {[what for _, what, _ in self.trace]}"
        return found[0]

    def calls(self, server: str) -> list[str]:
        """Return the calls that a server received, in order, without repetitions."""
        names = [what for who, what, _ in self.trace if who == server]
        return [n for pos, n in enumerate(names) if pos == 0 or names[pos - 1] != n]


def run_pair(scenario: Callable[[Pair], Coroutine[Any, Any, None]], clock: Clock | None = None) -> None:
    """Run `scenario(pair)` and stop both servers; nothing fatal may have happened."""

    async def all_of_it() -> None:
        pair = Pair(clock)
        await pair.begin()
        try:
            await scenario(pair)
        finally:
            for server in (pair.leader, pair.other):
                await server.stop()
        assert pair.fatal == []

    asyncio.run(all_of_it())
