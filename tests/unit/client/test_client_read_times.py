"""Times of Spark queries, asked of masters of two builds."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import pytest

from nyala.replica.client import Client, ReadLoad
from nyala.replica.rpc import error_to_pb, pb, pb_grpc
from nyala.replica.types import Address, Code, OpId, Refused

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


class _Earlier(pb_grpc.MasterServiceServicer):
    """A master of a build without the call."""


@contextmanager
def listening(master: pb_grpc.MasterServiceServicer) -> Iterator[Address]:
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        pb_grpc.add_MasterServiceServicer_to_server(master, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield Address("127.0.0.1", port)
        finally:
            server.stop(None).wait()


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


def test_leading_master_of_an_earlier_build_is_told_and_a_refusal_stays_one() -> None:
    """Goal: the error says what to do. Method: no master of this build leads: upgrade them. The leader refuses the
    query's time: its refusal arrives as it is."""
    with client_of(_Earlier(), _Master(Refused(Code.NOT_LEADER, "it follows"))) as client:
        with pytest.raises(Refused, match=r"the leading master is of a version before 0\.3\.0") as told:
            client.agree_read_time(LOAD, 7)
        assert told.value.code is Code.ILLEGAL_STATE
    with (
        client_of(_Earlier(), _Master(Refused(Code.EXPIRED, "forgotten"))) as client,
        pytest.raises(Refused, match="forgotten") as told,
    ):
        client.agree_read_time(LOAD, 7)
    assert told.value.code is Code.EXPIRED
