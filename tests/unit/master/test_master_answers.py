"""A master bounds and checks what a tablet server answers before it uses any of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from nyala.replica.fs import MASTER
from nyala.replica.master.group.forming import ask_build, form
from nyala.replica.master.group.joining import ask_master
from nyala.replica.master.heartbeats.tablet_servers import GrpcTabletServers, Identity
from nyala.replica.rpc import pb
from nyala.replica.transport import PeerOptions
from nyala.replica.transport.link import Link, open_link
from nyala.replica.types import Address, Code, DataState, Member, Refused, limits

UUID, OTHER = "a" * 32, "b" * 32
EMPTY_STATUS = b"\x12\x00"


class Answers(grpc.GenericRpcHandler):
    """A process that answers every call with the same bytes, or those of the method's name."""

    def __init__(self, data: bytes | dict[str, bytes]) -> None:
        self._data = data

    def service(self, handler_call_details: Any) -> Any:
        method = handler_call_details.method.rpartition("/")[2]

        async def answer(request: bytes, context: Any) -> bytes:
            return self._data if isinstance(self._data, bytes) else self._data[method]

        return grpc.unary_unary_rpc_method_handler(answer, None, None)


async def asked(data: bytes | dict[str, bytes], ask: Callable[[GrpcTabletServers, Address], Any]) -> Any:
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
    "a million statuses": (EMPTY_STATUS * 1_000_000, Code.CORRUPTION),
    "one byte too long": (bytes(limits.ANSWER_BYTES_MAX + 1), Code.CORRUPTION),
    "as many statuses as fit": (EMPTY_STATUS * (limits.ANSWER_BYTES_MAX // 2), Code.CORRUPTION),
    "one status too many": (pb.ListTabletsReply(replicas=[status(), status()]), Code.CORRUPTION),
    "a host that is none": (at_host("h\x00\n"), Code.CORRUPTION),
    "a host too long": (at_host("h" * 256), Code.CORRUPTION),
    "a host of megabytes": (at_host("h" * 14_000_000), Code.CORRUPTION),
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
    long = f"more than {limits.ANSWER_BYTES_MAX} bytes, none of it was used"
    size = len(answer) if isinstance(answer, bytes) else answer.ByteSize()
    assert (long in str(refused)) is (size > limits.ANSWER_BYTES_MAX)


def test_process_that_does_not_answer_is_told_apart_from_one_that_answers_too_much() -> None:
    """IN-82. Goal: an operator is not sent to look for a process that is there. Method: an address at which no process
    listens."""
    with pytest.raises(Refused) as refused:
        asyncio.run(GrpcTabletServers().identity(Address("127.0.0.1", 1)))
    assert refused.value.code is Code.UNAVAILABLE and "nobody answers there" in str(refused.value)


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
    assert [asyncio.run(asked(much, ask)).code for ask in (identity, process)] == [Code.CORRUPTION] * 2


def test_identity_of_a_master_is_checked() -> None:
    """IN-82. Goal: masters use no impossible identity of another process at a master's address. Method: an honest
    identity, and one with a version of 5,000 characters, asked for a build and by a master that joins."""
    good = pb.IdentityReply(uuid=UUID, kind="master", version="0.3.0", feature_level=1)
    found = asyncio.run(asked(good.SerializeToString(), lambda _, at: ask_build(at)))
    assert (found.uuid, found.version) == (UUID, "0.3.0")
    bad = pb.IdentityReply(uuid=UUID, kind="master", cluster_id=OTHER, version="v" * 5000).SerializeToString()
    assert asyncio.run(asked(bad, lambda _, at: ask_build(at))).code is Code.CORRUPTION
    assert asyncio.run(asked(bad, lambda _, at: ask_master(at))) is None


ALONE = pb.IdentityReply(uuid=OTHER, kind=MASTER, version="0.3.0").SerializeToString()
OF_GROUP = pb.IdentityReply(uuid=OTHER, kind=MASTER, cluster_id=UUID, version="0.3.0").SerializeToString()
LONG = pb.IdentityReply(uuid=OTHER, kind=MASTER, cluster_id=UUID, version="v" * 5000).SerializeToString()
NOT_FORMED = pb.MasterStatusReply(uuid=OTHER, replica=pb.ReplicaStatus()).SerializeToString()
FORMED = pb.MasterStatusReply(uuid=OTHER, replica=pb.ReplicaStatus(role="LEADER"))
FORMED.replica.committed_config.members.add(uuid=OTHER, votes=True).addresses.add(host="h", port=1)
NO_MASTERS: dict[str, dict[str, bytes]] = {
    "an identity with a long version": {
        "GetIdentity": LONG,
        "Status": FORMED.SerializeToString(),
    },
    "a status with a role of two lines": {
        "GetIdentity": OF_GROUP,
        "Status": pb.MasterStatusReply(replica=pb.ReplicaStatus(role="a\nb")).SerializeToString(),
    },
    "a status with members that are none": {
        "GetIdentity": OF_GROUP,
        "Status": pb.MasterStatusReply(
            replica=pb.ReplicaStatus(committed_config=pb.RaftConfig(members=[pb.Member(uuid="\x00")]))
        ).SerializeToString(),
    },
    "a long status": {"GetIdentity": OF_GROUP, "Status": bytes(limits.ANSWER_BYTES_MAX + 1)},
}


@pytest.mark.parametrize("what", NO_MASTERS)
def test_master_that_begins_uses_no_impossible_answer_of_another(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """IN-82. Goal: neither a group nor a new master's address list is formed from an answer that no master sends; the
    log says why it waits, in one bounded line. Method: such an identity or status, to a master that forms a group and
    to one that joins; then honest ones."""
    member = Member(UUID, (Address("h", 2),))

    async def forms(_: GrpcTabletServers, at: Address) -> Any:
        try:
            return await asyncio.wait_for(form(member, [at]), 0.5)
        except TimeoutError:
            return None

    with caplog.at_level(logging.INFO, logger="nyala.master"):
        assert asyncio.run(asked(NO_MASTERS[what], forms)) is None
    assert asyncio.run(asked(NO_MASTERS[what], lambda _, at: ask_master(at))) is None
    (line,) = [r.getMessage() for r in caplog.records if "waiting for the master" in r.getMessage()]
    assert line.isprintable() and len(line) < 600 and "none of it was used" in line
    config = asyncio.run(asked({"GetIdentity": ALONE, "Status": NOT_FORMED}, forms))
    assert config.voters == (UUID, OTHER)
    seen = asyncio.run(
        asked({"GetIdentity": OF_GROUP, "Status": FORMED.SerializeToString()}, lambda _, at: ask_master(at))
    )
    assert seen is not None and seen.config.voters == (OTHER,)


def test_long_ticket_of_a_link_is_refused_before_anything_is_sent() -> None:
    """IN-60. Goal: another server cannot make this one send a ticket of megabytes. Method: a process that answers
    OpenLink with one byte more than a ticket may have, and names a port at which no process listens."""

    async def opened(_: GrpcTabletServers, at: Address) -> None:
        link = Link(PeerOptions(), lambda: None)
        await open_link(at, UUID, Address("h", 1), OTHER, PeerOptions(), link)

    reply = pb.OpenLinkReply(port=1, ticket=b"t" * (limits.TICKET_BYTES_MAX + 1))
    assert asyncio.run(asked(reply.SerializeToString(), opened)).code is Code.CORRUPTION
