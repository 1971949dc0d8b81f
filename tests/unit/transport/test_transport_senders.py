"""The sender of a link is a member once its process answered at an address where the receiver knows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.consensus_metadata import encode_config
from nyala.replica.raft import AppendEntries, AppendReply, Message, TimeoutNow, VoteReply, VoteRequest, needs_proof
from nyala.replica.rpc import SERVER_OPTIONS, frame, message_to_pb, pb, pb_grpc
from nyala.replica.transport import Listener, MicrotaskQueue, PeerNetwork, PeerOptions, PeerServicer, SenderCheck
from nyala.replica.transport.sender_check import Answer, is_proven
from nyala.replica.types import Address, Code, Entry, EntryKind, Member, OpId, RaftConfig, limits
from tests.harness.copies import TABLET
from tests.harness.links import trusting
from tests.harness.patience import patience_s
from tests.harness.played_replica import CAMPAIGNS, FOLLOWS, LEADER, LEADS, ME, THIRD, World, with_replica
from tests.harness.server_pair import until

A, B, C, LIAR = "a" * 32, "b" * 32, "c" * 32, "f" * 32
NOWHERE = Address("127.0.0.1", 1)


class Former(pb_grpc.PeerServiceServicer):  # type: ignore[misc]
    """A server of 0.2.0: it knows no IsProcess, and opens links without a number."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.asked: list[pb.OpenLinkRequest] = []

    async def OpenLink(self, request: Any, context: Any) -> pb.OpenLinkReply:
        self.asked.append(request)
        wrong = request.dest_uuid != self.uuid
        return pb.OpenLinkReply(error=pb.Error(code=Code.INVALID_NAME) if wrong else None, port=1, ticket=b"t" * 16)

    async def IsProcess(self, request: Any, context: Any) -> pb.ProcessReply:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "")
        raise AssertionError


@asynccontextmanager
async def listening(servicer: Any) -> AsyncIterator[Address]:
    server = grpc.aio.server(options=list(SERVER_OPTIONS))
    pb_grpc.add_PeerServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield Address("127.0.0.1", port)
    finally:
        await server.stop(0)


def process_of(uuid: str, knows: str = B) -> tuple[PeerServicer, PeerNetwork]:
    """A process of a server that knows the receiver."""
    network = PeerNetwork(uuid, NOWHERE)
    network.learn_config(RaftConfig(OpId(0, 0), (Member(knows, (NOWHERE,)),)))
    return PeerServicer(
        uuid, lambda tablet_id, message: None, trusting(), link_number_for=network.link_number_for
    ), network


def config(uuid: str, *addresses: Address) -> RaftConfig:
    return RaftConfig(OpId(1, 1), (Member(uuid, addresses),))


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), patience_s(60)))  # type: ignore[arg-type]


@pytest.mark.parametrize("masters", [(), *product(Answer), *product(Answer, repeat=2)])
def test_first_source_at_which_the_uuid_answers_decides(masters: tuple[Answer, ...]) -> None:
    """IN-50. Goal: answers of its process alone prove a sender; the masters' word counts more than configs. Method: all
    pairs of answers at the masters' addresses, with each answer at a config's."""
    for configured in product(Answer):
        found = masters if set(masters) - {Answer.ABSENT} else configured
        expected = {Answer.SAME} <= set(found) <= {Answer.SAME, Answer.ABSENT}
        assert is_proven([masters, configured]) is expected
    assert not is_proven([])


def test_senders_of_one_host_cause_few_calls_at_once_and_others_are_still_proven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """IN-50. Goal: a host that opens links without end makes a server ask for its sender a bounded number of times at
    once, and keeps no sender of another host out. Method: a server that answers only when it is told; one more link of
    a host than the bound, then one of another host; all are proven when the server answers, but for the one."""

    monkeypatch.setattr("nyala.replica.transport.sender_check.ASK_TIMEOUT_S", patience_s(30.0))

    async def body() -> None:
        a, a_network = process_of(A)
        begun, answer = 0, asyncio.Event()

        class Slow(PeerServicer):
            async def IsProcess(self, request: Any, context: Any) -> pb.ProcessReply:
                nonlocal begun
                begun += 1
                await answer.wait()
                return await a.IsProcess(request, context)

        slow = Slow(A, lambda tablet_id, message: None, trusting(), link_number_for=a_network.link_number_for)
        async with listening(slow) as at:
            network = PeerNetwork(B, NOWHERE)
            network.learn_config(config(A, at))
            check = SenderCheck(B, network, ())
            number, most = a_network.link_number_for(B), limits.LINK_CALLS_PER_HOST_MAX
            waiting = [asyncio.ensure_future(check.is_member(A, number, None, "one")) for _ in range(most)]
            await until(lambda: begun == most, "the server is asked")
            assert not await check.is_member(A, number, None, "one")
            waiting.append(asyncio.ensure_future(check.is_member(A, number, None, "another")))
            await until(lambda: begun == most + 1, "it is asked for the other host's")
            answer.set()
            assert await asyncio.gather(*waiting) == [True] * (most + 1)
            await network.close()

    run(body)


def test_sender_counts_only_if_its_process_answers_where_it_is_known() -> None:
    """IN-50, CN-34. Goal: neither a uuid nor an address that the sender gives makes it a member. Method: a server that
    knows a; requests by a itself and by others under its uuid, with each kind of number and address, while a answers at
    the address of a config, of the masters, of the command line, or nowhere. Then what is known of a's address."""

    async def body() -> None:
        a, a_network = process_of(A)
        liar, liar_network = process_of(A)
        async with listening(a) as at, listening(liar) as elsewhere:
            number, false = a_network.link_number_for(B), liar_network.link_number_for(B)

            async def asked(
                process: int, given: Address | None, *, in_config: Address | None = at, listed: Address | None = None,
                told: Address | None = None, other_config: Address | None = None,
            ) -> tuple[bool, tuple[Address, ...]]:  # fmt: skip
                network = PeerNetwork(B, NOWHERE)
                if in_config is not None:
                    network.learn_config(config(A, in_config))
                if other_config is not None:
                    network.learn_config(config(A, other_config))
                if listed is not None:
                    network.learn_listed(A, (listed,))
                check = SenderCheck(B, network, () if told is None else (told,))
                found = await check.is_member(A, process, given, "host")
                await network.close()
                return found, network.addresses(A)

            assert await asked(number, at) == (True, (at,))
            assert await asked(number, None) == (True, (at,))
            assert await asked(number, elsewhere) == (True, (at,)), "the address that it gives is another process's"
            assert await asked(false, elsewhere) == (False, (at,))
            assert await asked(false, at) == (False, (at,))
            assert await asked(0, elsewhere) == (False, (at,))
            assert await asked(a_network.link_number_for(C), at) == (False, (at,)), "a number for another receiver"
            assert await asked(number, at, in_config=NOWHERE, listed=at) == (True, (at, NOWHERE))
            assert await asked(false, elsewhere, in_config=NOWHERE) == (False, (NOWHERE,)), "while a is down"
            assert await asked(number, at, in_config=NOWHERE) == (False, (NOWHERE,)), "only the masters may say so"
            assert await asked(number, at, listed=elsewhere) == (False, (elsewhere, at)), "two processes of a"
            for first, second in ((at, elsewhere), (elsewhere, at)):
                for each in (number, false):
                    proven, _ = await asked(each, None, in_config=first, other_config=second)
                    assert not proven, "two processes, and configs disagree"
                    proven, _ = await asked(each, None, in_config=first, other_config=second, listed=at)
                    assert proven is (each == number), "the masters decide"
            for places in ((at, NOWHERE), (NOWHERE, at)):
                proven, _ = await asked(number, None, in_config=places[0], other_config=places[1])
                assert proven, "it has moved, and only one config has its present address"
            assert await asked(number, at, in_config=None) == (False, (at,)), "an unknown server is answered"
            assert await asked(number, at, in_config=None, told=at) == (True, (at,))
            assert await asked(false, elsewhere, in_config=None, told=at) == (False, (elsewhere,))
        for network in (a_network, liar_network):
            await network.close()

    run(body)


def test_server_of_the_former_build_is_proven_by_its_uuid() -> None:
    """IN-50. Goal: a server of 0.2.0, which has no number, is a member where it is known, and nobody else is by its
    silence. Method: such a server at the address of a, of another uuid, and one of this build that is sent no number.
    It learns no address by the call."""

    async def body() -> None:
        former, other, (a, a_network) = Former(A), Former(C), process_of(A)
        async with listening(former) as at, listening(other) as others, listening(a) as new:
            for address, process, member in (
                (at, 0, True), (at, 7, False), (others, 0, False), (new, 0, False), (NOWHERE, 0, False),
            ):  # fmt: skip
                network = PeerNetwork(B, NOWHERE)
                network.learn_config(config(A, address))
                assert await SenderCheck(B, network).is_member(A, process, None, "host") is member
                await network.close()
        assert former.asked and not any(r.HasField("from_address") or r.from_uuid != B for r in former.asked)
        await a_network.close()

    run(body)


def test_numbers_are_of_one_receiver_and_none_for_a_server_that_is_not_known() -> None:
    """IN-50. Goal: a receiver cannot use its number at another one, and a process at an unproven address gets none.
    Method: two networks of one uuid, three receivers, one of them unknown, until a config names it."""

    async def body() -> None:
        numbers = set()
        for _ in range(2):
            network = PeerNetwork(A, NOWHERE)
            network.learn_config(RaftConfig(OpId(1, 1), (Member(B, (NOWHERE,)), Member(C, (NOWHERE,)))))
            numbers |= {network.link_number_for(B), network.link_number_for(C)}
            network.hint(LIAR, NOWHERE)
            assert network.link_number_for(LIAR) == 0 and network.link_number_for(B) == network.link_number_for(B)
            network.learn_listed(LIAR, (NOWHERE,))
            assert network.link_number_for(LIAR)
            await network.close()
        assert len(numbers) == 4 and 0 not in numbers

    run(body)


def test_address_that_only_its_sender_gives_is_used_for_no_known_server() -> None:
    """IN-50. Goal: an unproven address is used for answers to an unknown server, and ends as soon as another is known.
    Method: a hint before and after a config names the server; the callback is called when it is known, once."""

    async def body() -> None:
        known: list[str] = []
        network, real = PeerNetwork(B, NOWHERE), Address("127.0.0.1", 2)
        network.on_known = known.append
        network.hint(A, Address("127.0.0.1", 3))
        assert [a.port for a in network.addresses(A)] == [3] and network.trusted(A) == () and known == []
        network.learn_config(config(A, real))
        network.learn_config(config(A, real))
        network.hint(A, Address("127.0.0.1", 3))
        assert network.addresses(A) == (real,) and network.trusted(A) == ((real,),) and known == [A]
        network.learn(A, (Address("127.0.0.1", 4),))
        assert [a.port for a in network.addresses(A)] == [4, 2] and network.trusted(A) == ((real,),)
        await network.close()

    run(body)


def test_unproven_link_ends_no_other_and_ends_itself_once_its_sender_is_known() -> None:
    """IN-50, IN-51. Goal: a forger cannot end a member's link, and an honest sender connects anew when it is known.
    Method: a member's link, then two under its uuid that are not proven: all go on; they end when their sender is known
    and the member's goes on. A proven link ends the member's former one."""

    async def body() -> None:
        taken: list[tuple[str, bytes, bool]] = []

        def take(sender: str, body: bytes, proven: bool) -> bool:
            taken.append((sender, body, proven))
            return True

        known: set[str] = set()
        loop = asyncio.get_running_loop()
        links = Listener(take, MicrotaskQueue(loop, lambda error: None), PeerOptions(), known.__contains__)
        await links.start("127.0.0.1")

        async def opened(proven: bool, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", links.port)
            writer.write(frame(links.ticket(A, "h", proven=proven)) + frame(text))
            await until(lambda: (A, text, proven) in taken, "the link is heard")
            return reader, writer

        honest = await opened(True, b"1")
        forged = [await opened(False, b"2"), await opened(False, b"3")]
        for number, (_, writer) in enumerate((honest, *forged)):
            writer.write(frame(b"again %d" % number))
        await until(lambda: len(taken) == 6, "all three are heard again")
        assert (len(links.servers), len(links.strangers), links.unproven_senders) == (1, 2, {A})
        known.add(A)
        for reader, _ in forged:
            assert await reader.read() == b""
        assert (len(links.servers), len(links.strangers), links.unproven_senders) == (1, 0, set())
        second = await opened(True, b"4")
        assert await honest[0].read() == b"" and len(links.servers) == 1
        for _, writer in (honest, *forged, second):
            writer.close()
        await links.close()

    run(body)


def message(kind: int, sender: str, term: int, index: int, commit: int, flag: bool) -> Message:
    """One of all kinds, forged by `sender`."""
    ends: dict[str, Any] = {"to_uuid": ME, "from_uuid": sender, "term": term}
    entry = Entry(OpId(term, index + 1), EntryKind.NOOP, 1, 0, b"", b"", 0)
    meta = encode_config(config(sender, NOWHERE))
    edit = Entry(OpId(term, index + 1), EntryKind.CONFIG, 1, 0, meta, b"", 0)
    made: list[Message] = [
        AppendEntries(**ends, prev=OpId(3, index), entries=(edit if flag else entry,), commit_index=commit),
        AppendEntries(**ends, prev=OpId(3, index), entries=(), commit_index=commit, quiet=flag, safe_time=1),
        AppendReply(**ends, last=OpId(min(term, 4), index), commit_index=0, round=commit),
        AppendReply(**ends, code=Code.TABLET_DELETED if flag else Code.INVALID_TERM),
        VoteRequest(**ends, last=OpId(term - 1, index + 9), pre_vote=flag, transfer=not flag),
        VoteReply(**ends, granted=flag, pre_vote=commit > 2, code=Code.OK),
        TimeoutNow(**ends, last=OpId(term, index)),
    ]
    return made[kind]


FORGED = st.builds(
    message,
    st.integers(0, 6),
    st.sampled_from([LEADER, THIRD, LIAR]),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(0, 5),
    st.booleans(),
)


@settings(max_examples=60)
@given(st.sampled_from([FOLLOWS, CAMPAIGNS, LEADS]), st.lists(FORGED, max_size=12))
@pytest.mark.deep
def test_strangers_link_changes_no_log_no_commit_and_no_clock(
    before: tuple[Message, ...], forged: list[Message]
) -> None:
    """IN-50. Goal: whatever comes on a link that is not proven, under any uuid, the log keeps its entries, and the
    commit index, the configs and the clock stay; only terms, and what they decide, may change. Method: sequences of all
    kinds of messages at a follower, a candidate and a leader. A new leader's own empty entry is its own."""

    async def scenario(world: World) -> None:
        await world.settled()
        was, clock = world.state(), world.memory()["clock"]
        for one in forged:
            goes_on, _ = await world.receive(one.from_uuid, message_to_pb(TABLET, one), proven=False)
            assert goes_on and world.fatal == []
            for what in ("the log's end", "what is committed", "members"):
                assert world.state()[what] == was[what], (what, one)
            assert world.memory()["clock"] == clock
            assert world.state()["term and role"][1] != "LEADER" or before is LEADS

    with_replica(before, scenario)


def test_each_kind_of_message_that_a_leader_or_voter_alone_sends_needs_proof() -> None:
    """IN-50. Goal: a link that is not proven carries requests for votes, denials and answers without a log, and nothing
    else. Method: one message of each kind, each flag both ways."""
    found = {
        (kind, flag): needs_proof(message(kind, THIRD, 5, 2, 0, flag)) for kind in range(7) for flag in (True, False)
    }
    assert {key for key, needs in found.items() if not needs} == {
        (3, True), (3, False), (4, True), (4, False), (5, False),
    }  # fmt: skip
