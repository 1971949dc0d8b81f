"""The gRPC server of masters and tablet servers, around handlers that the test makes."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import grpc
import grpc.aio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nyala.replica.rpc import (
    Call,
    CallBounds,
    CallsInFlight,
    RequestChecks,
    error_from_pb,
    pb,
    pb_grpc,
)
from nyala.replica.rpc.hosts import host_of_peer
from nyala.replica.types import Applied, Code, Refused, ResourcesExhausted, limits
from tests.harness.hostile_fields import Served
from tests.harness.patience import patience_s
from tests.harness.server_pair import until

LONG_S = patience_s(60.0)


class Waiting(pb_grpc.TabletServiceServicer):  # type: ignore[misc]
    """Answers nothing, ever, and tells when its caller was given up."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    async def Ledger(self, request: Any, context: Any) -> Any:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


def test_call_without_a_deadline_ends_after_what_is_stated() -> None:
    """IN-60, IN-62. Goal: a call without a deadline ends after a stated time. Method: a handler that never answers and
    a bound of no time to speak of: the handler ends, and the caller is told that the outcome is unknown."""

    async def scenario() -> None:
        waiting = Waiting()
        async with Served({"TabletService": waiting}, RequestChecks(lambda method: 0.01)) as served:
            reply = await served.call("TabletService", "Ledger", pb.LedgerRequest(tablet_id="t"), timeout_s=None)
            await waiting.ended.wait()
        error = error_from_pb(reply.error)
        assert error is not None and (error.code, error.applied) == (Code.TIMED_OUT, Applied.UNKNOWN)

    asyncio.run(asyncio.wait_for(scenario(), LONG_S))


def test_handler_ends_when_its_caller_leaves() -> None:
    """IN-62. Goal: work of a caller that is gone stops. Method: a call that waits is cancelled by its caller."""

    async def scenario() -> None:
        waiting = Waiting()
        async with Served({"TabletService": waiting}) as served:
            call = asyncio.create_task(served.call("TabletService", "Ledger", pb.LedgerRequest(tablet_id="t")))
            await waiting.begun.wait()
            call.cancel()
            await waiting.ended.wait()

    asyncio.run(asyncio.wait_for(scenario(), LONG_S))


class Held(pb_grpc.TabletServiceServicer):  # type: ignore[misc]
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = asyncio.Event()

    async def ListTablets(self, request: Any, context: Any) -> Any:
        self.begun += 1
        await self.go.wait()
        return pb.ListTabletsReply(next="answered")

    async def Scan(self, request: Any, context: Any) -> Any:
        self.begun += 1
        yield pb.ScanChunk(rows=1)
        await self.go.wait()
        yield pb.ScanChunk(last=True)

    async def GetIdentity(self, request: Any, context: Any) -> Any:
        return pb.IdentityReply()


def test_calls_of_one_host_are_bounded_in_number_until_they_end() -> None:
    """IN-51, IN-60. Goal: one host cannot have any number of calls at a server. Method: over gRPC, as many calls as a
    host may have, streams among them, are held. One more is refused as overloaded and not applied, whatever its kind.
    Once one has left, or has its answer, the next is taken. Nothing is kept."""

    async def scenario() -> None:
        held, under_way = Held(), CallsInFlight(CallBounds(9, 3))
        checks = RequestChecks(under_way=under_way)
        async with Served({"TabletService": held}, checks) as served:

            async def call(method: str = "ListTablets") -> Any:
                request = pb.ScanRequest() if method == "Scan" else pb.ListTabletsRequest()
                return await served.call("TabletService", method, request)

            calls = [asyncio.create_task(call(m)) for m in ("ListTablets", "ListTablets", "Scan")]
            await until(lambda: held.begun == 3, "they are under way")
            for method in ("ListTablets", "Scan"):
                error = error_from_pb((await call(method)).error)
                assert error is not None and (error.code, error.applied) == (Code.OVERLOADED, Applied.NOT_APPLIED)
                assert "from host 127.0.0.1" in str(error) and "calls_max=3" in str(error)
            with pytest.raises(grpc.aio.AioRpcError, match="too many calls") as caught:
                await served.call("TabletService", "GetIdentity", pb.Empty())
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            for left, count in ((calls[2], 2), (calls[0], 1)):
                left.cancel()
                await until(lambda count=count: under_way.calls == count, "one has left")  # type: ignore[misc]
            held.go.set()
            assert (await call()).next == (await calls[1]).next == "answered"
            await until(lambda: not under_way.calls, "all have ended")
            assert (under_way.bytes, under_way.hosts, under_way.refused) == (0, 0, 3)

    asyncio.run(asyncio.wait_for(scenario(), LONG_S))


HOSTS = {
    "ipv4:10.1.2.3:4711": "10.1.2.3",
    "ipv6:%5B::ffff:10.1.2.3%5D:4711": "10.1.2.3",
    "ipv6:[2001:db8:1:2:a:b:c:d]:4711": "2001:db8:1:2::/64",
    "ipv6:%5B2001:db8:1:2::9%5D:1": "2001:db8:1:2::/64",
    "ipv6:%5B2001:db8:1:3::9%5D:1": "2001:db8:1:3::/64",
    "ipv6:%5Bfe80::1%25eth0%5D:1": "fe80::/64",
    "ipv6:%5B::1%5D:1": "::1",
    "unix:": "unix",
    "unix:/tmp/x": "unix",
    "": "",
}


@pytest.mark.parametrize("peer", HOSTS)
def test_host_has_one_name_however_many_addresses_it_has(peer: str) -> None:
    """IN-51. Goal: a bound for each host holds for one that makes up IPv6 addresses of its network. Method: what gRPC
    calls the other ends of connections."""
    assert host_of_peer(peer) == HOSTS[peer]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "add", "become", "end"]),
        st.sampled_from("abc"),
        st.sampled_from([0, 1, 10, 40, 60, 105]),
    )
)
"""What is done, a host, and how much; of calls that are there already, the last of that host's."""
ONE_TOO_MANY = [("begin", host, 0) for host in "abcab"]
"""The fifth call of all hosts, while no host has as many as one may have."""


@pytest.mark.deep
@settings(max_examples=200)
@given(STEPS)
@example(ONE_TOO_MANY)
def test_calls_under_way_never_exceed_their_bounds(steps: list[tuple[str, str, int]]) -> None:
    """IN-51, IN-60. Goal: the bounds hold for every order of calls, charges and ends. Method: calls of three hosts
    begin, are charged more and less, and end at random, beside a plain list; what is refused is exactly what would
    be too much, says whether it could ever fit, and changes nothing; in the end nothing is left."""
    under_way, running = CallsInFlight(CallBounds(4, 3, 110, 100)), list[Call]()
    for step, host, size in steps:
        mine = [c for c in running if c.host == host]
        if step != "begin" and not mine:
            continue
        if step == "end":
            mine[-1].end()
            mine[-1].end()
            running.remove(mine[-1])
        else:
            of_call = mine[-1].bytes if step != "begin" else 0
            more = size - of_call if step == "become" else size
            fits = of_call + more <= 100
            fits = more <= 0 or (fits and sum(c.bytes for c in mine) + more <= 100)
            fits = more <= 0 or (fits and sum(c.bytes for c in running) + more <= 110)
            fits = fits and (step != "begin" or (len(mine) < 3 and len(running) < 4))
            ever = of_call + more <= 100 or (step == "begin" and (len(mine) == 3 or len(running) == 4))
            try:
                if step == "begin":
                    running.append(under_way.begin(host, size))
                elif step == "add":
                    mine[-1].add(size)
                else:
                    mine[-1].become(size, Applied.UNKNOWN)
            except Refused as error:
                assert not fits and error.code is (Code.OVERLOADED if ever else Code.TOO_LARGE)
                assert error.applied is (Applied.UNKNOWN if step == "become" else Applied.NOT_APPLIED)
            else:
                assert fits
        charged = sum(c.bytes for c in running)
        assert (under_way.calls, under_way.bytes) == (len(running), charged) and charged <= 110
        assert under_way.hosts == len({c.host for c in running})
    for call in running:
        call.end()
        call.add(1000)
    assert (under_way.calls, under_way.bytes, under_way.hosts) == (0, 0, 0)


class Listing(pb_grpc.TabletServiceServicer):  # type: ignore[misc]
    """Answers every call for a list."""

    async def ListTablets(self, request: Any, context: Any) -> Any:
        return pb.ListTabletsReply(next=str(len(request.tablet_ids)))


def test_large_request_needs_no_thread_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-60. Goal: a machine that gives no more threads does not make a server fail calls. Method: a server, and then
    no thread any more: a request of many parts is answered; the checks of one more server cannot begin; and behind the
    server its thread ends."""

    def refuses(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scenario() -> None:
        before = set(threading.enumerate())
        checks = RequestChecks()
        own = [t for t in threading.enumerate() if t not in before]
        assert [t.name.rpartition("_")[0] for t in own] == ["read-request"]
        async with Served({"TabletService": Listing()}, checks) as served:
            request = pb.ListTabletsRequest(tablet_ids=["t" * 100] * 1000)
            assert request.ByteSize() > limits.REQUEST_SMALL_BYTES
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", refuses)
                assert (await served.call("TabletService", "ListTablets", request)).next == "1000"
                with pytest.raises(ResourcesExhausted, match="read-request"):
                    RequestChecks()
        for thread in own:
            await asyncio.to_thread(thread.join, 10)
            assert not thread.is_alive()

    asyncio.run(asyncio.wait_for(scenario(), LONG_S))
