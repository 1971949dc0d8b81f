"""The gRPC server of masters and tablet servers, around handlers that the test makes."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from typing import Any

import grpc
import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.base import Applied, Code, Refused, ResourcesExhausted, limits
from nyala.replica.rpc import (
    CallBounds,
    CallsUnderWay,
    RequestChecks,
    error_from_pb,
    host_of_peer,
    pb,
    pb_grpc,
)
from tests.harness.hostile_fields import Served
from tests.harness.server_pair import until

LONG_S = 60.0


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
    """IN-60, IN-62. Goal: a caller who names no deadline holds nothing for ever. Method: a handler that never answers
    and a bound of no time to speak of: the handler ends, and the caller is told that the outcome is unknown."""

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


def test_calls_of_one_host_are_bounded_in_number_and_bytes_until_they_end() -> None:
    """IN-51, IN-60. Goal: one host cannot have any number of requests in a server's memory. Method: over gRPC, as many
    calls as a host may have, streams among them, are held. One more is refused as overloaded and not applied, whatever
    its kind. Once one has left, or has its answer, the next is taken. The same for bytes. Nothing is kept."""

    async def scenario() -> None:
        held, under_way = Held(), CallsUnderWay(CallBounds(9, 3, 10**6, 2000))
        checks = RequestChecks(under_way=under_way)
        async with Served({"TabletService": held}, checks) as served:

            async def call(size: int = 1, method: str = "ListTablets") -> Any:
                if method == "Scan":
                    return await served.call("TabletService", method, pb.ScanRequest(columns=["c" * size]))
                return await served.call("TabletService", method, pb.ListTabletsRequest(tablet_ids=["t"] * size))

            calls = [asyncio.create_task(call(method=m)) for m in ("ListTablets", "ListTablets", "Scan")]
            await until(lambda: held.begun == 3, "they are under way")
            for method in ("ListTablets", "Scan"):
                error = error_from_pb((await call(method=method)).error)
                assert error is not None and (error.code, error.applied) == (Code.OVERLOADED, Applied.NOT_APPLIED)
                assert "from host 127.0.0.1" in str(error) and "calls_max=3" in str(error)
            with pytest.raises(grpc.aio.AioRpcError, match="too many calls") as caught:
                await served.call("TabletService", "GetIdentity", pb.Empty())
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            for left, count in ((calls[2], 2), (calls[0], 1)):
                left.cancel()
                await until(lambda count=count: under_way.calls == count, "one has left")  # type: ignore[misc]
            assert error_from_pb((await call(1000)).error).code is Code.OVERLOADED  # type: ignore[union-attr]
            held.go.set()
            assert (await call(10)).next == (await calls[1]).next == "answered"
            await until(lambda: not under_way.calls, "all have ended")
            assert (under_way.bytes, under_way.hosts, under_way.refused) == (0, 0, 4)

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


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.booleans()), max_size=30)


@settings(max_examples=50, derandomize=True, deadline=None)
@given(STEPS)
def test_calls_under_way_never_exceed_their_bounds(steps: list[tuple[str, int, bool]]) -> None:
    """IN-51. Goal: the bounds hold for every order of calls and ends. Method: calls of three hosts begin and end at
    random, beside a plain count; a call is refused exactly if it is one too many, and nothing is left in the end."""
    bounds = CallBounds(6, 4, 150, 100)
    under_way, running = CallsUnderWay(bounds), list[tuple[str, int, Any]]()
    for host, size, ends in steps:
        if ends and running:
            running.pop(size % len(running))[2].close()
            continue
        mine = [s for h, s, _ in running if h == host]
        fits = len(mine) < 4 and sum(mine) + size <= 100 and len(running) < 6
        fits = fits and sum(s for _, s, _ in running) + size <= 150
        stack = ExitStack()
        try:
            stack.enter_context(under_way.one(host, size))
        except Refused as error:
            assert error.code is Code.OVERLOADED and not fits
            continue
        assert fits
        running.append((host, size, stack))
        assert (under_way.calls, under_way.bytes) == (len(running), sum(s for _, s, _ in running))
    for _, _, stack in running:
        stack.close()
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
