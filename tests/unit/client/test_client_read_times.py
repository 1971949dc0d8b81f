"""Times of Spark queries, asked of masters of two builds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import permutations
from typing import Any

import grpc
import pytest

from nyala.replica.client import Client, ReadLoad
from nyala.replica.rpc import address_to_pb, error_to_pb, pb, pb_grpc
from nyala.replica.types import Address, Code, OpId, Refused
from tests.harness.played_grpc import listening

LOAD = ReadLoad("a" * 32, "b" * 32, OpId(1, 1))


class _Master(pb_grpc.MasterServiceServicer):
    """A master of this build: it leads, follows, or refuses."""

    def __init__(self, refusal: Refused | None = None) -> None:
        self.refusal = refusal
        self.asked = 0

    def AgreeReadTime(self, request: Any, context: Any) -> pb.AgreeReadTimeReply:
        self.asked += 1
        if self.refusal is not None:
            return pb.AgreeReadTimeReply(error=error_to_pb(self.refusal))
        return pb.AgreeReadTimeReply(snapshot_time=70 + request.query)


class _Elected(_Master):
    """A follower without a leader, until it is elected after it was asked so many times."""

    def __init__(self, times: int) -> None:
        super().__init__(Refused(Code.NOT_LEADER, "the masters elect"))
        self.times = times

    def AgreeReadTime(self, request: Any, context: Any) -> pb.AgreeReadTimeReply:
        if self.asked == self.times:
            self.refusal = None
        return super().AgreeReadTime(request, context)


class _Upgraded(_Master):
    """A master that is of an earlier build when it is asked for the first time."""

    def AgreeReadTime(self, request: Any, context: Any) -> pb.AgreeReadTimeReply:
        if not self.asked:
            self.asked = 1
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        return super().AgreeReadTime(request, context)


class _Earlier(_Master):
    """A master of a build without the call."""

    members: Sequence[Address] = ()
    allowed_s = 0.0

    def Status(self, request: Any, context: Any) -> pb.MasterStatusReply:
        self.allowed_s = context.time_remaining()
        members = [pb.Member(uuid=f"{n:032x}", addresses=[address_to_pb(a)]) for n, a in enumerate(self.members)]
        return pb.MasterStatusReply(replica=pb.ReplicaStatus(committed_config=pb.RaftConfig(members=members)))

    def AgreeReadTime(self, request: Any, context: Any) -> pb.AgreeReadTimeReply:
        self.asked += 1
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")


@contextmanager
def client_of(*masters: pb_grpc.MasterServiceServicer) -> Iterator[Client]:
    with ExitStack() as stack:
        addresses = [stack.enter_context(listening(master)) for master in masters]
        client = Client(addresses)
        stack.callback(client.close)
        yield client


def test_follower_of_an_earlier_build_hides_no_leader() -> None:
    """Goal: while masters are upgraded one by one, Spark reads go on as soon as the leading master has this build.
    Method: three real gRPC servers: a follower of an earlier build, one of this build, and the leader. The query gets
    its time, and the next call goes to the leader at once."""
    follower, leader = _Master(Refused(Code.NOT_LEADER, "it follows")), _Master()
    with client_of(_Earlier(), follower, leader) as client:
        assert client.agree_read_time(LOAD, 7) == 77
        assert (follower.asked, leader.asked) == (1, 1)
        assert client.agree_read_time(LOAD, 8) == 78
        assert (follower.asked, leader.asked) == (1, 2)


@pytest.mark.parametrize("earlier", [1, 2])
def test_election_beside_masters_of_an_earlier_build_is_waited_for(earlier: int) -> None:
    """Goal: masters of two builds that elect are asked again, as masters of one build are. Method: the masters that are
    listed first lack the call, and are asked once; the other one is elected when it is asked for the fourth time."""
    others, elected = [_Earlier() for _ in range(earlier)], _Elected(3)
    with client_of(*others, elected) as client:
        assert client.agree_read_time(LOAD, 7) == 77
        assert elected.asked == 4 and [other.asked for other in others] == [1] * earlier


def test_master_that_is_upgraded_while_it_is_asked_is_found() -> None:
    """Goal: a master that lacked the call before its restart leads afterwards. Method: it lacks the call once, and the
    follower names it; also if the follower has no leader to name at first."""
    for follower in (_Master(), _Elected(2)):
        leader = _Upgraded()
        with listening(leader) as address, listening(follower) as other:
            named = Refused(Code.NOT_LEADER, "it follows", detail=f"uuid@{address}")
            follower.refusal = named if type(follower) is _Master else Refused(Code.NOT_LEADER, "the masters elect")
            client = Client([address, other])
            try:
                assert client.agree_read_time(LOAD, 7) == 77
            finally:
                client.close()
        assert leader.asked == (2 if type(follower) is _Master else 1)


def test_leader_is_found_that_only_a_follower_of_an_earlier_build_knows() -> None:
    """Goal: one master's address is enough, also while the masters are upgraded. Method: the client knows a follower of
    an earlier build alone, which tells of the leader in its status."""
    with listening(_Master()) as leader:
        follower = _Earlier()
        with listening(follower) as known:
            follower.members = [known, leader]
            client = Client([known])
            try:
                assert client.agree_read_time(LOAD, 7) == 77
                assert client.agree_read_time(LOAD, 8) == 78 and follower.asked == 1
            finally:
                client.close()


@pytest.mark.parametrize("order", [*permutations(range(3))], ids=str)
def test_hint_that_is_old_hides_no_leader(order: Sequence[int]) -> None:
    """Goal: a follower that still names an earlier build's master, which has just stepped down, does not end a call
    that a master of this build would answer. Method: the three are listed in each order."""
    old, leader = _Earlier(), _Master()
    with listening(old) as of_old, listening(leader) as of_leader:
        follower = _Master(Refused(Code.NOT_LEADER, "it follows", detail=f"uuid@{of_old}"))
        with listening(follower) as of_follower:
            listed = [of_follower, of_old, of_leader]
            client = Client([listed[at] for at in order])
            try:
                assert client.agree_read_time(LOAD, 7) == 77
                assert leader.asked == 1 and follower.asked <= 1 and old.asked <= 2
            finally:
                client.close()


def test_addresses_are_asked_for_within_the_time_of_the_call() -> None:
    """Goal: a call keeps its deadline while the masters are upgraded. Method: the only master lacks the call; it gets
    no more time to name the others than the call has."""
    only = _Earlier()
    with client_of(only) as client:
        with pytest.raises(Refused, match="does not offer this call"):
            client._masters.call("AgreeReadTime", pb.AgreeReadTimeRequest(), timeout_s=0.5)
        assert 0 < only.allowed_s <= 0.5


def test_leading_master_of_an_earlier_build_is_told_and_a_refusal_stays_one() -> None:
    """Goal: the error says what to do. Method: all masters are of an earlier build, or one that leads, as a follower
    says: upgrade them. The leader refuses the query's time: its refusal arrives as it is."""
    with client_of(_Earlier(), _Earlier()) as client:
        with pytest.raises(Refused, match=r"the leading master is of a version before 0\.3\.0") as told:
            client.agree_read_time(LOAD, 7)
        assert told.value.code is Code.ILLEGAL_STATE
    with listening(_Earlier()) as leader:
        follower = _Master(Refused(Code.NOT_LEADER, "it follows", detail=f"uuid@{leader}"))
        for order in (0, 1):
            with listening(follower) as other:
                client = Client([leader, other] if order else [other, leader])
                try:
                    with pytest.raises(Refused, match=r"the leading master is of a version before 0\.3\.0"):
                        client.agree_read_time(LOAD, 7)
                finally:
                    client.close()
        assert follower.asked == 2, "once each time"
    with (
        client_of(_Earlier(), _Master(Refused(Code.EXPIRED, "forgotten"))) as client,
        pytest.raises(Refused, match="forgotten") as told,
    ):
        client.agree_read_time(LOAD, 7)
    assert told.value.code is Code.EXPIRED
