"""Connections of a server: how many there may be, what they may hold, how long, and what a closed one leaves."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.raft import AppendReply
from nyala.replica.rpc import SERVER_OPTIONS, frame
from nyala.replica.server.requests.write_links import WriteLink, WriteLinks
from nyala.replica.transport import ConnectionQuota, Listener, MicrotaskQueue, PeerNetwork, PeerOptions
from nyala.replica.transport.connection_quota import Bounds
from nyala.replica.transport.frame_reader import Arrivals, FrameReader
from nyala.replica.transport.listener import _TICKETS_MAX, _Incoming
from nyala.replica.types import Address, Member, OpId, RaftConfig, limits
from tests.harness.patience import patience_s
from tests.harness.server_pair import until

BOUNDS = Bounds(connections_max=6, connections_per_address_max=4, bytes_max=100, bytes_per_address_max=60)


def _raised(error: BaseException) -> None:
    raise error


class Fake:
    """A connection that notes how it ended."""

    def __init__(self) -> None:
        self.idle = True
        self.ended = ""

    def fail(self, error: Exception) -> None:
        self.ended = str(error)


def opened(share: ConnectionQuota, address: str, count: int) -> list[Fake]:
    made = [Fake() for _ in range(count)]
    for connection in made:
        share.add(connection, address)
    return made


def test_one_connection_too_many_ends_the_one_that_was_idle_longest() -> None:
    """IN-51. Goal: connections are bounded in all and for each address; the one that was idle longest is closed, and
    those in use stay. Method: by hand: one too many of an address ends its oldest idle one; one too many in all ends
    one of the address that has most, and not of those that have few; used ones are the youngest, busy ones stay as long
    as an idle one is there."""
    share = ConnectionQuota(BOUNDS, lambda: 0.0)
    first = opened(share, "a", 4)
    first[0].idle = False
    share.used(first[1])
    opened(share, "a", 1)
    assert [bool(c.ended) for c in first] == [False, False, True, False] and "at most 4" in first[2].ended
    few = opened(share, "b", 2)
    assert len(share) == 6
    few += opened(share, "c", 1)
    assert len(share) == 6 and not any(c.ended for c in few) and first[3].ended and share.ended == 2
    for connection in share.connections:
        connection.idle = False  # type: ignore[misc]
    opened(share, "a", 1)
    assert len(share) == 6 and first[0].ended, "where all are busy the oldest goes"


def test_begun_frames_are_bounded_in_bytes_and_in_time() -> None:
    """Goal: IN-51: half frames hold bounded memory for a bounded time. Method: by hand, with the clock: more bytes than
    an address may hold, and than all may, are refused to who asks for more; a frame that is not whole in its time ends
    its connection, a long one has time by its length; a whole one begins anew."""
    now = [0.0]
    share = ConnectionQuota(BOUNDS, lambda: now[0])
    [a, b], [c] = opened(share, "x", 2), opened(share, "y", 1)
    assert share.hold(a, 40, 40) == "" and "of x wait already" in share.hold(b, 30, 30)
    assert share.hold(c, 50, 50) == "" and "in all" not in share.hold(b, 5, 5) and share.bytes == 95
    assert "at most 100" in share.hold(b, 20, 20)
    assert share.hold(a, 0, 4) == "" and share.hold(b, 20, 20) == ""
    now[0] = limits.FRAME_S_MAX
    assert share.end_overdue() is False and b.ended and c.ended and not a.ended and share.bytes == 0
    share = ConnectionQuota(
        Bounds(connections_max=2, connections_per_address_max=2, bytes_max=1, bytes_per_address_max=1), lambda: now[0]
    )
    [slow] = opened(share, "x", 1)
    long = int(limits.FRAME_BYTES_PER_S_MIN * limits.FRAME_S_MAX * 3)
    assert share.hold(slow, 1, long) == ""
    now[0] += limits.FRAME_S_MAX * 2.9
    assert share.end_overdue() and not slow.ended
    now[0] += limits.FRAME_S_MAX
    assert not share.end_overdue() and slow.ended


@settings(max_examples=80)
@given(st.lists(st.tuples(st.sampled_from("aurhl"), st.integers(0, 7), st.integers(0, 70)), max_size=60))
def test_share_is_never_over_its_bounds_whatever_happens(steps: list[tuple[str, int, int]]) -> None:
    """IN-51. Goal: the quota's sums are right after any order of events. Method: connections of three addresses come,
    are used, hold, end, grow old at random; bounds hold, and the totals equal a recount."""
    now = [0.0]
    share = ConnectionQuota(BOUNDS, lambda: now[0])
    for kind, pick, size in steps:
        live: list[Any] = share.connections
        if kind == "a":
            opened(share, "xyz"[pick % 3], 1)
        elif kind == "l":
            now[0] += size
            share.end_overdue()
        elif live:
            connection = live[pick % len(live)]
            if kind == "u":
                share.used(connection)
            elif kind == "r":
                share.remove(connection)
            else:
                share.hold(connection, size, size)
        counts = {a: len(of.connections) for a, of in share._addresses.items()}
        held = {a: sum(share._held[c].bytes for c in of.connections) for a, of in share._addresses.items()}
        assert sum(counts.values()) == len(share) <= 6 and all(0 < n <= 4 for n in counts.values())
        assert sum(held.values()) == share.bytes <= 100 and all(n <= 60 for n in held.values())
        assert held == {a: of.bytes for a, of in share._addresses.items()}
        assert set(share._begun) <= set(share._held)


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Only what nobody refers to is freed."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def in_loop(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), patience_s(60)))  # type: ignore[arg-type]


def listener(**fields: Any) -> Listener:
    turn = MicrotaskQueue(asyncio.get_running_loop(), _raised)
    return Listener(lambda *batch: True, turn, PeerOptions(connect_timeout_ms=60_000), **fields)


def test_host_that_asks_for_too_many_tickets_loses_its_own() -> None:
    """IN-51. Goal: a host that asks for very many tickets does not invalidate those of others. Method: one host asks
    for three times as many as there may be, and others for a few before, amid and after that: theirs are good, once; of
    its own the latest are, as many as are left; nothing is kept of a host that has none."""

    async def scenario() -> None:
        links = listener()
        await links.start("127.0.0.1")
        honest, greedy = [links.ticket(lambda sock: None, f"h{n}") for n in range(3)], []
        for n in range(3 * _TICKETS_MAX):
            greedy.append(links.ticket(lambda sock: None, "greedy"))
            if n % _TICKETS_MAX == 7:
                honest.append(links.ticket(lambda sock: None, "h1"))
        honest.append(links.ticket(lambda sock: None, "h9"))
        connection = _Incoming(links)

        def good(ticket: bytes) -> bool:
            links.accepted(connection, "x")
            return links.use_ticket(connection, ticket) is not None

        assert [good(t) for t in honest] == [True] * 7 and not any(good(t) for t in honest)
        left = _TICKETS_MAX - len(honest)
        assert [good(t) for t in greedy] == [False] * (len(greedy) - left) + [True] * left
        assert not links._tickets and not links._of_hosts
        await links.close()

    in_loop(scenario)


@pytest.mark.usefixtures("without_collector")
def test_closed_link_is_free_at_once() -> None:
    """Goal: IN-51: the memory of closed connections does not wait for a collection of garbage. Method: without one, a
    link of a server, one that never showed its ticket, and one for writes, each in the middle of a frame; when they
    have ended, nothing refers to them any more."""

    async def scenario() -> None:
        links = listener()
        await links.start("127.0.0.1")
        begins = frame(b"x" * 100_000)[:50_000]
        _, proven = await asyncio.open_connection("127.0.0.1", links.port)
        proven.write(frame(links.ticket("a" * 32, "h")) + begins)
        _, silent = await asyncio.open_connection("127.0.0.1", links.port)
        await until(lambda: links.begun_bytes >= 50_000 and len(links.without_ticket) == 1, "it has come to that")
        refs = [weakref.ref(c) for share in (links.servers, links.without_ticket) for c in share.connections]
        assert len(refs) == 2 and isinstance(refs[0](), _Incoming)
        for writer in (proven, silent):
            writer.close()
        await until(lambda: not links.connections, "it has come to that")
        await asyncio.sleep(0)
        assert [ref() for ref in refs] == [None, None] and links.begun_bytes == 0
        await links.close()

        writes = WriteLinks(
            lambda taker: (1, b"t"), lambda request, done: None, MicrotaskQueue(asyncio.get_running_loop(), _raised)
        )
        here, there = socket.socketpair()
        writes._take(there)
        await until(lambda: len(writes.open) == 1, "it has come to that")
        here.sendall(begins)
        await until(lambda: writes.quota.bytes >= 50_000, "it has come to that")
        ref = weakref.ref(next(iter(writes.open)))
        assert isinstance(ref(), WriteLink)
        here.close()
        await until(lambda: not writes.open, "it has come to that")
        await asyncio.sleep(0)
        assert ref() is None and writes.quota.bytes == 0
        writes.close()

    in_loop(scenario)


def test_idle_link_holds_no_buffer_and_a_long_frame_only_what_has_come() -> None:
    """IN-51. Goal: a connection takes memory only for bytes that have arrived, not for those that it announces. Method:
    the head of a frame of 16 MB, then some of it, then all: the buffer grows with what has come; afterwards there is
    none."""
    taken: list[int] = []

    class Taking(FrameReader):
        def on_frame(self, body: bytes) -> None:
            taken.append(len(body))

    loop = asyncio.new_event_loop()
    loop.close()
    reader = Taking(16 << 20, MicrotaskQueue(loop, _raised), Arrivals())
    reader.transport = type("Live", (), {"is_closing": lambda self: False})()
    stream, sizes = frame(bytes(16 << 20)), []
    pos = 0
    while pos < len(stream):
        room = reader.get_buffer(-1)
        cut = min(len(room), len(stream) - pos, 4 if not pos else 1 << 20)
        room[:cut] = stream[pos : pos + cut]
        reader.buffer_updated(cut)
        pos += cut
        sizes.append(len(reader._begun or b""))
        assert sizes[-1] <= max(64 << 10, 2 * pos)
    assert sizes[0] <= 64 << 10 and sizes[-1] == 0 and taken == [16 << 20]


def test_flood_of_silent_connections_keeps_no_server_out() -> None:
    """Goal: IN-51: connections without a ticket are few, and links of servers have a share of their own. Method: more
    connections than may be unproven say nothing; strangers with tickets open more links than their share; a known
    server's link opened before them all is still there, and another one opens and is heard."""

    async def scenario() -> None:
        heard: list[str] = []
        turn = MicrotaskQueue(asyncio.get_running_loop(), _raised)
        known = {"a", "b"}
        links = Listener(
            lambda sender, body, proven: heard.append(sender) or True,  # type: ignore[func-returns-value]
            turn,
            PeerOptions(connect_timeout_ms=60_000),
            knows=known.__contains__,
        )
        await links.start("127.0.0.1")
        writers = []

        async def open_link(uuid: str) -> asyncio.StreamWriter:
            _, writer = await asyncio.open_connection("127.0.0.1", links.port)
            writer.write(frame(links.ticket(uuid, "h", proven=uuid in known)))
            writers.append(writer)
            return writer

        first = await open_link("a")
        await until(lambda: len(links.servers) == 1, "it has come to that")
        for _ in range(limits.CONNECTIONS_WITHOUT_TICKET_MAX + 40):
            writers.append((await asyncio.open_connection("127.0.0.1", links.port))[1])
        for number in range(limits.LINKS_OF_STRANGERS_MAX + 10):
            await open_link(f"stranger {number}")
            await until(
                lambda number=number: len(links.strangers) + links.strangers.ended > number, "it has come to that"
            )
        await until(lambda: links.strangers.ended == 10 and links.without_ticket.ended >= 40, "it has come to that")
        assert len(links.without_ticket) <= limits.CONNECTIONS_WITHOUT_TICKET_MAX
        assert len(links.strangers) == limits.LINKS_OF_STRANGERS_MAX
        second = await open_link("b")
        for writer in (first, second):
            writer.write(frame(b"a batch"))
        await until(lambda: {"a", "b"} <= set(heard), "it has come to that")
        assert len(links.servers) == 2
        for writer in writers:
            writer.close()
        await links.close()

    in_loop(scenario)


def test_connection_that_shows_no_ticket_in_time_ends() -> None:
    """IN-51. Goal: a connection that sends no ticket, or half of one, is closed in time. Method: a listener that waits
    50 ms."""

    async def scenario() -> None:
        turn = MicrotaskQueue(asyncio.get_running_loop(), _raised)
        links = Listener(lambda *batch: True, turn, PeerOptions(connect_timeout_ms=50))
        await links.start("127.0.0.1")
        silent, _a = await asyncio.open_connection("127.0.0.1", links.port)
        half, writer = await asyncio.open_connection("127.0.0.1", links.port)
        writer.write(frame(bytes(16))[:9])
        for reader in (silent, half):
            with pytest.raises(ConnectionResetError):
                assert await reader.read() == b""
                raise ConnectionResetError
        await until(lambda: not links.connections, "it has come to that")
        _a.close()
        writer.close()
        await links.close()

    in_loop(scenario)


@pytest.mark.deep
def test_made_up_servers_leave_bounded_addresses_and_links() -> None:
    """IN-51. Goal: false server names take bounded memory. Method: thousands of servers say where they listen and are
    answered; addresses and links stay within the bound, those of a config's members are kept."""

    async def scenario() -> None:
        network = PeerNetwork("me", Address("127.0.0.1", 1))
        member = Member("b" * 32, (Address("127.0.0.1", 2),))
        network.learn_config(RaftConfig(OpId(0, 0), (member,)))
        for number in range(3000):
            uuid = f"{number:032x}" if number else member.uuid
            network.hint(uuid, Address("127.0.0.1", 3))
            network.send([("t", AppendReply(to_uuid=uuid, from_uuid="me", term=1))])
        assert len(network._hinted) <= limits.PEERS_UNKNOWN_MAX
        assert len(network.status()) <= limits.PEERS_UNKNOWN_MAX + 1
        assert [a.port for a in network.addresses(member.uuid)] == [2]
        assert member.uuid in [s.uuid for s in network.status()]
        await network.close()

    in_loop(scenario)


def test_grpc_servers_bound_connections_and_calls() -> None:
    """Goal: IN-51: gRPC's own connections are bounded as far as it can. Method: the one set of options that every
    server of ours is made with."""
    options = dict(SERVER_OPTIONS)
    assert options["grpc.max_allowed_incoming_connections"] == limits.GRPC_CONNECTIONS_MAX
    assert options["grpc.max_concurrent_streams"] == limits.GRPC_STREAMS_PER_CONNECTION_MAX
    assert options["grpc.server_handshake_timeout_ms"] == limits.GRPC_HANDSHAKE_MS_MAX
    assert options["grpc.max_connection_idle_ms"] == limits.GRPC_IDLE_MS_MAX
