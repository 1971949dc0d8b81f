"""A master bounds and checks what a tablet server answers before it uses any of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from nyala.replica.master.group.forming import ask_build
from nyala.replica.master.group.joining import look_at
from nyala.replica.master.heartbeats.tablet_servers import GrpcTabletServers, Identity
from nyala.replica.rpc import pb
from nyala.replica.transport import PeerOptions
from nyala.replica.transport.link import Link, open_link
from nyala.replica.types import Address, Code, DataState, Refused, limits

UUID, OTHER = "a" * 32, "b" * 32
EMPTY_STATUS = b"\x12\x00"


class Answers(grpc.GenericRpcHandler):
    """A process that answers every call with the same bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def service(self, handler_call_details: Any) -> Any:
        async def answer(request: bytes, context: Any) -> bytes:
            return self._data

        return grpc.unary_unary_rpc_method_handler(answer, None, None)


async def asked(data: bytes, ask: Callable[[GrpcTabletServers, Address], Any]) -> Any:
    """What a caller gets, or the Refused, of a process that answers with `data`."""
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers((Answers(data),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        return await ask(GrpcTabletServers(), Address("127.0.0.1", port))
    except Refused as refused:
        return refused
    finally:
        await server.stop(None)


def of_tablet(answer: pb.ListTabletsReply | bytes) -> Any:
    data = answer if isinstance(answer, bytes) else answer.SerializeToString()
    return asyncio.run(asked(data, lambda servers, at: servers.replicas(UUID, [at], ["t"])))


def status(**fields: Any) -> pb.ReplicaStatus:
    found = pb.ReplicaStatus(**{"tablet_id": "t", "uuid": UUID, "data_state": DataState.READY, "term": 1} | fields)
    member = found.committed_config.members.add(uuid=UUID, votes=True)
    member.addresses.add(host="h", port=1)
    return found


def at_host(host: str) -> pb.ListTabletsReply:
    made = status()
    made.committed_config.members[0].addresses[0].host = host
    return pb.ListTabletsReply(replicas=[made])


BAD: dict[str, tuple[pb.ListTabletsReply | bytes, Code]] = {
    "a million statuses": (EMPTY_STATUS * 1_000_000, Code.UNAVAILABLE),
    "one byte too long": (bytes(limits.ANSWER_BYTES_MAX + 1), Code.UNAVAILABLE),
    "as many statuses as fit": (EMPTY_STATUS * (limits.ANSWER_BYTES_MAX // 2), Code.CORRUPTION),
    "one status too many": (pb.ListTabletsReply(replicas=[status(), status()]), Code.CORRUPTION),
    "a host that is none": (at_host("h\x00\n"), Code.CORRUPTION),
    "a host too long": (at_host("h" * 256), Code.CORRUPTION),
    "a host of megabytes": (at_host("h" * 14_000_000), Code.UNAVAILABLE),
    "another server's replica": (pb.ListTabletsReply(replicas=[status(uuid=OTHER)]), Code.INVALID_ARGUMENT),
    "a long status": (pb.ListTabletsReply(replicas=[status(error="x" * (64 << 10))]), Code.INVALID_ARGUMENT),
    "a negative term": (pb.ListTabletsReply(replicas=[status(commit_term=-1)]), Code.INVALID_ARGUMENT),
    "a phase of two lines": (pb.ListTabletsReply(replicas=[status(phase="a\nb")]), Code.CORRUPTION),
}


@pytest.mark.parametrize("what", BAD)
def test_answer_about_a_tablet_that_no_server_sends_is_refused(what: str) -> None:
    """IN-82, IN-60. Goal: no answer of a process that calls itself a tablet server costs a master more than a bounded
    time, and none of an impossible answer is used. Method: a process over gRPC that answers with too many bytes, too
    many statuses, and impossible fields."""
    answer, code = BAD[what]
    refused = of_tablet(answer)
    assert isinstance(refused, Refused) and refused.code is code
    assert "nothing was applied" in str(refused) and len(str(refused)) < 600


def test_honest_answers_are_used() -> None:
    """IN-82. Goal: what a server sends passes the checks. Method: its status with the longest error, an identity, and
    the answer whether a process is its own."""
    longest = status(error="x" * (limits.REPLICA_STATUS_BYTES_MAX - 200))
    (told,) = of_tablet(pb.ListTabletsReply(replicas=[longest]))
    assert told.tablet_id == "t" and told.config is not None and told.config.voters == (UUID,)
    identity = pb.IdentityReply(uuid=UUID, kind="server", cluster_id=OTHER, version="0.3.0", pid=1 << 22)
    found = asyncio.run(asked(identity.SerializeToString(), lambda servers, at: servers.identity(at)))
    assert found == Identity(UUID, "server", OTHER)
    same = pb.ProcessReply(same=True).SerializeToString()
    assert asyncio.run(asked(same, lambda servers, at: servers.is_process(UUID, at, 1))) is True


def test_identity_and_process_are_checked_too() -> None:
    """IN-82. Goal: the other answers of tablet servers are checked in the same way. Method: a uuid with NUL, a long
    error, and both with too many bytes."""
    identity = lambda servers, at: servers.identity(at)  # noqa: E731
    process = lambda servers, at: servers.is_process(UUID, at, 1)  # noqa: E731
    bad = pb.IdentityReply(uuid="\x00", kind="server").SerializeToString()
    long = pb.ProcessReply(error=pb.Error(code=4, message="x" * 5000)).SerializeToString()
    much = bytes(limits.ANSWER_BYTES_MAX + 1)
    codes = [asyncio.run(asked(d, ask)).code for d, ask in ((bad, identity), (long, process))]
    assert codes == [Code.CORRUPTION, Code.CORRUPTION]
    assert [asyncio.run(asked(much, ask)).code for ask in (identity, process)] == [Code.UNAVAILABLE] * 2


def test_identity_of_a_master_is_checked() -> None:
    """IN-82. Goal: masters use no impossible identity of another process at a master's address. Method: an honest
    identity, and one with a version of 5,000 characters, asked for a build and by a master that joins."""
    good = pb.IdentityReply(uuid=UUID, kind="master", version="0.3.0", feature_level=1)
    found = asyncio.run(asked(good.SerializeToString(), lambda _, at: ask_build(at)))
    assert (found.uuid, found.version) == (UUID, "0.3.0")
    bad = pb.IdentityReply(uuid=UUID, kind="master", cluster_id=OTHER, version="v" * 5000).SerializeToString()
    assert asyncio.run(asked(bad, lambda _, at: ask_build(at))).code is Code.CORRUPTION
    assert asyncio.run(asked(bad, lambda _, at: look_at(at))) is None


def test_long_ticket_of_a_link_is_refused_before_anything_is_sent() -> None:
    """IN-60. Goal: another server cannot make this one send a ticket of megabytes. Method: a process that answers
    OpenLink with one byte more than a ticket may have, and names a port at which no process listens."""

    async def opened(_: GrpcTabletServers, at: Address) -> None:
        link = Link(PeerOptions(), lambda: None)
        await open_link(at, UUID, Address("h", 1), OTHER, PeerOptions(), link)

    reply = pb.OpenLinkReply(port=1, ticket=b"t" * (limits.TICKET_BYTES_MAX + 1))
    assert asyncio.run(asked(reply.SerializeToString(), opened)).code is Code.CORRUPTION
