"""Links between servers, asked for by real gRPC on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import grpc.aio
import pytest

from nyala.infra.local.ports import Ports
from nyala.replica.raft import AppendEntries, AppendReply, Message, VoteRequest
from nyala.replica.rows import crc32c
from nyala.replica.rpc import SERVER_OPTIONS, fill_message, frame, frame_parts, message_to_pb, pb, pb_grpc
from nyala.replica.transport import Listener, MicrotaskQueue, PeerNetwork, PeerOptions, PeerServicer, PeerStatus
from nyala.replica.transport.frame_reader import BUFFER_BYTES, Arrivals, FrameReader
from nyala.replica.types import Address, Code, Entry, EntryKind, Member, OpId, RaftConfig, Refused, limits
from tests.harness.links import trusting
from tests.harness.patience import patience_s

HERE = Address("127.0.0.1", 1)
PATIENT: dict[str, Any] = {"connect_timeout_ms": 60_000, "silence_ms": 60_000}
"""What waits for a link that is late is lost, and Raft says it again: not so here, where it is said once."""
QUICK = PeerOptions(backoff_first_ms=5, backoff_max_ms=20, **PATIENT)


class Inbox:
    """Collects what a servicer delivered, and can wait for it."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Message]] = []
        self.peers: list[tuple[str, Address]] = []
        self.heard: list[tuple[str, int]] = []
        self._news = asyncio.Event()

    def deliver(self, tablet_id: str, message: Message) -> None:
        self.messages.append((tablet_id, message))
        self._news.set()

    def hear(self, uuid: str, process: int) -> None:
        self.heard.append((uuid, process))
        self._news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(patience_s(60)):
            while not condition():
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def serving(
    uuid: str, inbox: Inbox, port: int = 0, check_caller: Callable[[str, int], None] = lambda uuid, takeover: None
) -> AsyncIterator[Address]:
    """A server with that uuid; yields its address."""
    server = grpc.aio.server(options=list(SERVER_OPTIONS))
    servicer = PeerServicer(
        uuid,
        inbox.deliver,
        trusting(lambda peer, address: inbox.peers.append((peer, address))),
        options=QUICK,
        on_heard=inbox.hear,
        check_caller=check_caller,
    )
    pb_grpc.add_PeerServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await servicer.listen("127.0.0.1")
    await server.start()
    try:
        yield Address("127.0.0.1", bound)
    finally:
        await server.stop(0)
        await servicer.close()


def vote(term: int, to: str = "b") -> VoteRequest:
    return VoteRequest(to_uuid=to, from_uuid="a", term=term, last=OpId(0, 0))


def append(index: int, payload: bytes, to: str = "b") -> AppendEntries:
    entry = Entry(OpId(1, index), EntryKind.WRITE, 7, 1, b"meta", payload, crc32c(payload))
    return AppendEntries(to_uuid=to, from_uuid="a", term=1, prev=OpId(1, index - 1), entries=(entry,), round=3)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


class States:
    """States that a network reported, and a way to wait for one, whatever came behind it."""

    def __init__(self) -> None:
        self.told: list[PeerStatus] = []
        self._news = asyncio.Event()

    def __call__(self, status: PeerStatus) -> None:
        self.told.append(status)
        self._news.set()

    async def until(self, condition: Callable[[PeerStatus], bool]) -> None:
        async with asyncio.timeout(patience_s(60)):
            while not any(condition(status) for status in self.told):
                self._news.clear()
                await self._news.wait()


async def say(network: PeerNetwork, message: Message, inbox: Inbox) -> None:
    """Again and again, as Raft does, until it has arrived: for networks that do not wait long for a link."""
    async with asyncio.timeout(patience_s(60)):
        while ("t1", message) not in inbox.messages:
            network.send([("t1", message)])
            await asyncio.sleep(0.05)


def test_messages_of_two_tablets_arrive_in_order_as_they_were() -> None:
    """CN-03, CN-24. Goal: one link carries the messages of many tablets, each to its own group. Method: send those of
    two tablets."""

    async def body() -> None:
        inbox = Inbox()
        async with serving("b", inbox) as address:
            network = PeerNetwork("a", HERE, QUICK)
            network.learn("b", [address])
            reply = AppendReply(to_uuid="b", from_uuid="a", term=2, last=OpId(1, 4), round=8)
            given = [("t1", append(5, b"x" * 1000)), ("t2", vote(3)), ("t1", reply), ("t2", append(9, b""))]
            network.send(given)
            await inbox.until(lambda: len(inbox.messages) == 4)
            assert inbox.messages == given
            assert inbox.peers == [("a", HERE)]
            [status] = network.status()
            assert (status.sent_batches, status.sent_messages, status.connected) == (1, 4, True)
            await network.close()

    run(body)


def test_stream_meant_for_another_uuid_delivers_nothing_and_tells_the_sender() -> None:
    """TC-22: the recipient's uuid is checked before anything else. Method: b's messages go to a server named c."""

    async def body() -> None:
        inbox = Inbox()
        async with serving("c", inbox) as address:
            states = States()
            network = PeerNetwork("a", HERE, QUICK, on_state=states)
            network.learn("b", [address])
            network.send([("t1", vote(3))])
            await states.until(lambda status: "INVALID_NAME" in status.error)
            assert inbox.messages == []
            await network.close()

    run(body)


def test_stream_after_the_address_changed_goes_to_the_new_address() -> None:
    """Goal: an update of the addresses is used at once. Method: learn another address on a live link."""

    async def body() -> None:
        old, new = Inbox(), Inbox()
        async with serving("b", old) as first, serving("b", new) as second:
            network = PeerNetwork("a", HERE, QUICK)
            config = RaftConfig(OpId(0, 0), (Member("a", (HERE,)), Member("b", (first,))))
            network.learn_config(config)
            network.send([("t1", vote(1))])
            await old.until(lambda: len(old.messages) == 1)
            network.learn("b", [second])
            network.learn_config(config)  # what a config says is older than what was learned
            network.send([("t1", vote(2))])
            await new.until(lambda: len(new.messages) == 1)
            assert len(old.messages) == 1
            await network.close()

    run(body)


def test_stream_after_the_server_came_back_carries_messages_again() -> None:
    """Goal: reconnection with back-off. Method: stop the server, wait until it is noticed, start it again."""

    async def body() -> None:
        states = States()
        network = PeerNetwork("a", HERE, QUICK, on_state=states)
        inbox = Inbox()
        ports = Ports()  # nobody else has it before the server is back
        async with serving("b", inbox, ports.free()) as address:
            network.learn("b", [address])
            network.send([("t1", vote(1))])
            await inbox.until(lambda: len(inbox.messages) == 1)
        await states.until(lambda status: not status.connected)
        again = Inbox()
        async with serving("b", again, address.port):
            network.send([("t1", vote(2))])
            await again.until(lambda: bool(again.messages))
            await network.close()
        ports.close()

    run(body)


def test_whoever_must_not_be_heard_any_more_is_not_heard_on_a_link_that_stands() -> None:
    """MF-10. Goal: a process that another one has replaced is not heard, neither by a new link nor by one that it has.
    Method: who shows a lower number than is asked for is refused, from one message to the next; what it says is not
    delivered, nor where it listens believed, until the number is asked for no more; one with the number is heard."""

    async def body() -> None:
        wanted, refused, inbox = [0], [0], Inbox()
        network = PeerNetwork("a", HERE, QUICK, takeover=1)

        def check(uuid: str, takeover: int) -> None:
            if takeover < wanted[0]:
                refused[0] += 1
                inbox.hear(uuid, 0)
                raise Refused(Code.ILLEGAL_STATE, "replaced")

        async with serving("b", inbox, check_caller=check) as address:
            network.learn("b", [address])
            network.send([("t1", vote(1))])
            await inbox.until(lambda: len(inbox.messages) == 1)
            wanted[0] = 2
            network.send([("t1", vote(2))])
            await inbox.until(lambda: refused[0] == 1)
            told = len(inbox.peers)
            async with asyncio.timeout(patience_s(60)):
                while refused[0] < 3:
                    network.send([("t1", vote(3))])
                    await asyncio.sleep(0.01)
            assert len(inbox.messages) == 1 and len(inbox.peers) == told
            wanted[0] = 1
            await say(network, vote(4), inbox)
            await network.close()

    run(body)


def test_stream_to_a_name_that_does_not_resolve_is_tried_again_until_it_does() -> None:
    """Goal: scenario 99: a host name that does not resolve delays no vote of others, and is tried again. Method: a
    config that lists b at such a name: b is lost, again and again, while c is reached; then at a name that resolves,
    localhost, where b gets what is said next."""

    async def body() -> None:
        states, inbox, other = States(), Inbox(), Inbox()
        options = PeerOptions(backoff_first_ms=5, backoff_max_ms=20, connect_timeout_ms=500)
        async with serving("c", other) as beside, serving("b", inbox) as address:
            network = PeerNetwork("a", HERE, options, on_state=states)
            nowhere, there = Address("nowhere.invalid", address.port), Address("localhost", address.port)
            network.learn_config(RaftConfig(OpId(1, 1), (Member("b", (nowhere,)), Member("c", (beside,)))))
            for term in (1, 2):
                states.told.clear()
                network.send([("t1", vote(term)), ("t1", vote(term, "c"))])
                await states.until(lambda status: status.uuid == "b" and not status.connected and bool(status.error))
                await say(network, vote(term, "c"), other)
                assert network.unreachable() == ["b"] and inbox.messages == []
            network.learn_config(RaftConfig(OpId(1, 2), (Member("b", (there,)), Member("c", (beside,)))))
            await say(network, vote(3), inbox)
            assert network.unreachable() == [] and network.place(Member("b")) == there
            await network.close()

    run(body)


def test_queue_over_its_bound_drops_appends_and_keeps_votes() -> None:
    """Goal: bounded memory for a peer that is away. Method: no address is known and the loop does not turn."""

    async def body() -> None:
        options = PeerOptions(queue_bytes_max=10_000, batch_bytes_max=10_000)
        network = PeerNetwork("a", HERE, options)
        network.send([("t1", append(n, b"y" * 4000)) for n in range(1, 10)])
        network.send([("t1", vote(1))])
        [status] = network.status()
        assert status.queued_messages == 3  # two appends and the vote
        assert status.dropped_messages == 7
        assert status.queued_bytes <= 10_000 + 64
        await network.close()

    run(body)


def test_batch_larger_than_its_bound_is_split() -> None:
    """Goal: no gRPC message above its limit. Method: five appends of 4 kB with a 10 kB bound need three batches."""

    async def body() -> None:
        inbox = Inbox()
        async with serving("b", inbox) as address:
            network = PeerNetwork("a", HERE, PeerOptions(batch_bytes_max=10_000, **PATIENT))
            network.learn("b", [address])
            network.send([("t1", append(n, b"y" * 4000)) for n in range(1, 6)])
            await inbox.until(lambda: len(inbox.messages) == 5)
            assert network.status()[0].sent_batches == 3
            await network.close()

    run(body)


@pytest.mark.deep
def test_batch_of_more_messages_than_a_receiver_takes_is_split() -> None:
    """IN-50. Goal: a sender never makes a batch with more messages than a receiver accepts. Method: one turn has more
    messages than a batch may have, all small: two batches, and everything arrives in order."""

    async def body() -> None:
        inbox = Inbox()
        async with serving("b", inbox) as address:
            network = PeerNetwork("a", HERE, PeerOptions(**PATIENT))
            network.learn("b", [address])
            count = limits.PEER_BATCH_MESSAGES_MAX + 1
            network.send([("t1", vote(n + 1)) for n in range(count)])
            await inbox.until(lambda: len(inbox.messages) == count)
            assert network.status()[0].sent_batches == 2
            assert [message.term for _, message in inbox.messages] == list(range(1, count + 1))
            await network.close()

    run(body)


def test_batch_of_more_entries_than_one_iteration_takes_is_split() -> None:
    """IN-60. Goal: a receiver's loop takes a bounded number of entries at a time. Method: one turn has four appends of
    a third of that number: two batches, and everything arrives in order. One append alone is not cut."""

    async def body() -> None:
        inbox = Inbox()
        async with serving("b", inbox) as address:
            network = PeerNetwork("a", HERE, PeerOptions(**PATIENT))
            network.learn("b", [address])
            third = [append(1, b"").entries[0]] * (limits.PEER_BATCH_ENTRIES_SENT // 3)
            network.send([("t1", replace(append(n, b""), entries=tuple(third))) for n in range(1, 5)])
            await inbox.until(lambda: len(inbox.messages) == 4)
            assert network.status()[0].sent_batches == 2
            assert [message.prev.index for _, message in inbox.messages] == [0, 1, 2, 3]
            network.send([("t1", replace(append(5, b""), entries=tuple(third) * 4))])
            await inbox.until(lambda: len(inbox.messages) == 5)
            await network.close()

    run(body)


def test_message_from_another_sender_than_its_batch_is_dropped() -> None:
    """Goal: a link carries messages of its own server only. Method: a hand-made batch of a with a message from z."""

    async def body() -> None:
        inbox = Inbox()
        async with serving("b", inbox) as address, grpc.aio.insecure_channel(str(address)) as channel:
            stub = pb_grpc.PeerServiceStub(channel)  # type: ignore[no-untyped-call]
            granted = await stub.OpenLink(pb.OpenLinkRequest(from_uuid="a", dest_uuid="b"))
            _, writer = await asyncio.open_connection("127.0.0.1", granted.port)
            forged = VoteRequest(to_uuid="b", from_uuid="z", term=9, last=OpId(0, 0))
            messages = [message_to_pb("t1", forged), message_to_pb("t1", vote(1))]
            batch = pb.PeerBatch(from_uuid="a", dest_uuid="b", messages=messages)
            for body in (granted.ticket, batch.SerializeToString()):
                writer.write(frame(body))
            await inbox.until(lambda: bool(inbox.messages))
            assert inbox.messages == [("t1", vote(1))]
            writer.close()

    run(body)


@pytest.mark.parametrize("seed", range(6))
def test_frames_come_out_as_they_went_in_however_they_are_cut(seed: int) -> None:
    """Goal: frames of any length, small ones and ones beyond the buffer, over any cuts of the stream. Method: seeded
    frames and seeded cuts, among them one byte at a time."""
    random = Random(seed)
    sizes = [0, 1, 3, 4, BUFFER_BYTES - 4, BUFFER_BYTES, BUFFER_BYTES + 1, 3 * BUFFER_BYTES, 17, 0, 200_000]
    random.shuffle(sizes)
    given = [random.randbytes(size) for size in sizes]
    stream = b"".join(part for body in given for part in frame_parts(body))
    taken: list[bytes] = []
    errors: list[BaseException] = []
    loop = asyncio.new_event_loop()
    loop.close()  # nobody waits for it: what a frame asks for is done in its own turn

    class Taking(FrameReader):
        def on_frame(self, body: bytes) -> None:
            taken.append(body)

    reader = Taking(3 * BUFFER_BYTES, MicrotaskQueue(loop, errors.append), Arrivals())
    pos, cut_max = 0, 1 << random.randrange(10, 20)
    reader.transport = LiveTransport()
    while pos < len(stream):
        room = reader.get_buffer(-1)
        assert room
        cut = min(len(room), 1 if pos < 2000 else random.randint(1, cut_max), len(stream) - pos)
        room[:cut] = stream[pos : pos + cut]
        reader.buffer_updated(cut)
        pos += cut
    assert taken == given and not errors


def test_slow_receiver_holds_back_the_sender_and_loses_nothing() -> None:
    """Goal: bounded memory toward a receiver that does not read; all arrives once it does. Method: a raw receiver that
    takes the ticket and then stops reading while more is sent than network and link hold; the queue keeps the rest."""

    async def body() -> None:
        go_on, received = asyncio.Event(), bytearray()
        done = asyncio.Event()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(20)
            await go_on.wait()
            while data := await reader.read(1 << 20):
                received.extend(data)
                if len(received) >= total:
                    done.set()
            writer.close()

        class Granting(pb_grpc.PeerServiceServicer):  # type: ignore[misc]
            async def OpenLink(self, request: object, context: object) -> object:
                return pb.OpenLinkReply(port=port, ticket=bytes(16))

        raw = await asyncio.start_server(slow, "127.0.0.1", 0, limit=1 << 16)
        port = raw.sockets[0].getsockname()[1]
        server = grpc.aio.server(options=list(SERVER_OPTIONS))
        pb_grpc.add_PeerServiceServicer_to_server(Granting(), server)  # type: ignore[no-untyped-call]
        bound = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        states = States()
        network = PeerNetwork("a", HERE, PeerOptions(batch_bytes_max=1 << 20, **PATIENT), on_state=states)
        network.learn("b", [Address("127.0.0.1", bound)])
        messages = [("t1", append(n, b"y" * 1_000_000)) for n in range(1, 41)]
        network.send(messages[:1])
        await states.until(lambda status: status.connected)
        network.send(messages[1:])
        total = sum(len(pb_batch(m)) for m in messages)
        for _ in range(200):
            await asyncio.sleep(0)
        [status] = network.status()
        assert status.queued_messages > 20 and status.dropped_messages == 0
        go_on.set()
        async with asyncio.timeout(patience_s(60)):
            await done.wait()
        assert network.status()[0].queued_messages == 0
        await network.close()
        await server.stop(0)
        raw.close()

    run(body)


def test_link_of_the_same_sender_ends_the_one_before() -> None:
    """Goal: two servers have one link in each direction, even if the sender did not close the former one. Method: two
    networks of the same name; the first one's link is ended when the second one's is proven."""

    async def body() -> None:
        inbox, states = Inbox(), States()
        async with serving("b", inbox) as address:
            first = PeerNetwork("a", HERE, PeerOptions(backoff_first_ms=1000, **PATIENT), on_state=states)
            first.learn("b", [address])
            first.send([("t1", vote(1))])
            await inbox.until(lambda: len(inbox.messages) == 1)
            states.told.clear()
            second = PeerNetwork("a", HERE, QUICK)
            second.learn("b", [address])
            second.send([("t1", vote(2))])
            await inbox.until(lambda: len(inbox.messages) == 2)
            await states.until(lambda status: not status.connected)
            await first.close()
            await second.close()

    run(body)


@pytest.mark.parametrize("listen", ["::1", "::"])
def test_links_are_opened_over_ipv6_and_to_a_wildcard_of_both(listen: str) -> None:
    """Goal: any way of writing an address that gRPC takes is good for links. Method: a server at [::1] is asked by that
    literal, and one at the wildcard [::] by an IPv4 address."""

    async def body() -> None:
        inbox = Inbox()
        server = grpc.aio.server(options=list(SERVER_OPTIONS))
        servicer = PeerServicer("b", inbox.deliver, trusting())
        pb_grpc.add_PeerServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
        port = server.add_insecure_port(f"[{listen}]:0")
        await servicer.listen(f"[{listen}]")
        await server.start()
        network = PeerNetwork("a", HERE, QUICK)
        network.learn("b", [Address("[::1]" if listen == "::1" else "127.0.0.1", port)])
        network.send([("t1", vote(1))])
        await inbox.until(lambda: len(inbox.messages) == 1)
        await network.close()
        await server.stop(0)
        await servicer.close()

    run(body)


def test_connections_that_show_no_ticket_keep_nobody_out() -> None:
    """Goal: connections without a ticket do not keep a server's link out. Method: more idle connections than are kept,
    then a link."""

    async def body() -> None:
        inbox = Inbox()
        async with serving("b", inbox) as address, grpc.aio.insecure_channel(str(address)) as channel:
            stub = pb_grpc.PeerServiceStub(channel)  # type: ignore[no-untyped-call]
            port = (await stub.OpenLink(pb.OpenLinkRequest(from_uuid="z", dest_uuid="b"))).port
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(300)]
            network = PeerNetwork("a", HERE, QUICK)
            network.learn("b", [address])
            network.send([("t1", vote(1))])
            await inbox.until(lambda: len(inbox.messages) == 1)
            await network.close()
            for _, writer in idle:
                writer.close()

    run(body)


def test_small_answers_on_a_connection_do_not_wait_for_one_another() -> None:
    """Goal: two small replies in a row leave at once; by TCP's default the second one waits for the acknowledgement of
    the first, 40 ms from an end that has nothing to say. Method: a connection that is handed over on its ticket says
    that it is not to wait."""

    async def body() -> None:
        loop = asyncio.get_running_loop()
        listener = Listener(lambda *batch: True, MicrotaskQueue(loop, lambda error: None))
        await listener.start("127.0.0.1")
        taken: asyncio.Future[socket.socket] = loop.create_future()
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(frame(listener.ticket(taken.set_result, "h")))
        with await taken as sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        await listener.close()

    run(body)


def pb_batch(item: tuple[str, Message]) -> bytes:
    batch = pb.PeerBatch(from_uuid="a", dest_uuid="b")
    fill_message(batch.messages.add(), *item)
    return frame(batch.SerializeToString())


class LiveTransport(asyncio.Transport):
    """A transport that is never closing: all that a reader asks of one."""

    def is_closing(self) -> bool:
        return False


def test_pulse_is_an_empty_batch_that_names_the_process_and_only_where_nothing_else_went() -> None:
    """CN-28: servers whose groups are quiet still hear each other. Method: pulses beside a message: the first period
    has one already, the second brings an empty batch, of the same process; another process has another name."""

    async def body() -> None:
        inbox = Inbox()
        async with serving("b", inbox) as address:
            names = []
            for _ in range(2):
                network = PeerNetwork("a", HERE, QUICK)
                network.learn("b", [address])
                inbox.heard.clear()
                network.send([("t1", vote(1))])
                await inbox.until(lambda: len(inbox.heard) == 1)
                network.pulse(["b"])
                network.pulse(["b"])
                await inbox.until(lambda: len(inbox.heard) == 2)
                assert network.status()[0].sent_batches == 2 and network.status()[0].sent_messages == 1
                assert len(set(inbox.heard)) == 1 and inbox.heard[0][0] == "a"
                names.append(inbox.heard[0][1])
                await network.close()
            assert names[0] != names[1] and 0 not in names
            assert len(inbox.messages) == 2

    run(body)


def test_server_that_is_nowhere_where_it_is_known_is_found_where_the_masters_say() -> None:
    """CN-34. Goal: if all servers moved at the same time, they find each other by the addresses of the masters. Method:
    the config's address is another server's now: lost. The masters' address is tried next, and found; calls go there;
    what it says itself comes first."""

    async def body() -> None:
        inbox, other, states = Inbox(), Inbox(), States()
        async with serving("c", other) as stale, serving("b", inbox) as moved:
            member = Member("b", (stale,))
            network = PeerNetwork("a", HERE, QUICK, on_state=states)
            network.learn_config(RaftConfig(OpId(1, 1), (member,)))
            assert network.unreachable() == [] and network.place(member) == stale
            network.send([("t1", vote(3))])
            await states.until(lambda status: "INVALID_NAME" in status.error)
            assert network.unreachable() == ["b"]
            network.learn_listed("b", [moved])
            assert network.addresses("b") == (moved, stale)
            network.send([("t1", vote(4))])
            await inbox.until(lambda: bool(inbox.messages))
            assert network.unreachable() == [] and network.place(member) == moved and other.messages == []
            network.learn("b", [HERE])
            assert network.addresses("b") == (HERE, moved, stale)
            assert network.place(Member("d", (stale,))) == stale and network.place(Member("d")) is None
            network.send([("t1", vote(5, "d"))])
            assert network.unreachable() == ["d"], "nobody knows where it is"
            await network.close()

    run(body)
