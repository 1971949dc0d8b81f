"""Every call is charged for the memory that it may take, from its bytes until its reply has left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from nyala.replica.client.retry import refusal_of_rpc_error
from nyala.replica.rpc import (
    CHANNEL_OPTIONS,
    SERVER_OPTIONS,
    CallBounds,
    CallsInFlight,
    RequestChecks,
    channel_for_one_call,
    channel_to,
    checked_server,
    error_from_pb,
    pb,
    pb_grpc,
)
from nyala.replica.rpc.call_costs import arrival_cost, reply_bytes, request_cost
from nyala.replica.rpc.connection_options import receiving, replaced
from nyala.replica.types import Address, Applied, Code, Refused, limits
from tests.harness.hostile_fields import Served
from tests.harness.patience import patience_s
from tests.harness.raw_http2 import RawCaller
from tests.harness.server_pair import until
from tests.unit.rpc.test_rpc_request_bounds import message_of, unknown

LONG_S = patience_s(60.0)
METHODS = {
    f"{service.name}.{method.name}": method
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
ENOUGH = CallBounds(bytes_max=1 << 40, bytes_per_host_max=1 << 40)


class Calls:
    """Handlers of all calls. Each says that it has begun, waits for the test's word, and answers what `reply` makes."""

    def __init__(self, reply: Callable[[Any], Any] = lambda kind: kind()) -> None:
        self.begun = 0
        self.begin, self.go = asyncio.Event(), asyncio.Event()
        self.services = {name: self._service(name, reply) for name in pb.DESCRIPTOR.services_by_name}

    def _service(self, name: str, reply: Callable[[Any], Any]) -> Any:
        calls = self

        def handler(kind: Any, streams: bool) -> Any:
            async def unary(self: Any, request: Any, context: Any) -> Any:
                calls.begun += 1
                calls.begin.set()
                await calls.go.wait()
                return reply(kind)

            async def stream(self: Any, request: Any, context: Any) -> Any:
                yield await unary(self, request, context)

            return stream if streams else unary

        methods = {
            m.name: handler(getattr(pb, m.output_type.name), m.name == "Scan")
            for m in pb.DESCRIPTOR.services_by_name[name].methods
        }
        return type(name, (getattr(pb_grpc, f"{name}Servicer"),), methods)()


def cost_of(method: str, request: Any) -> int:
    size = request.ByteSize()
    return (
        limits.CALL_BEGUN_BYTES + arrival_cost(method, size, request.DESCRIPTOR) + request_cost(method, request, size)
    )


async def refusal(served: Served, method: str, request: Any, **options: Any) -> Refused | None:
    """How the call is refused; a reply without room for an error is gRPC's own."""
    try:
        reply = await served.call(*method.split("."), request, **options)
    except grpc.aio.AioRpcError as error:
        codes = {grpc.StatusCode.UNAVAILABLE: Code.OVERLOADED, grpc.StatusCode.INVALID_ARGUMENT: Code.TOO_LARGE}
        return Refused(codes[error.code()], str(error.details()))
    return error_from_pb(reply.error) if "error" in reply.DESCRIPTOR.fields_by_name else None


async def all_end(under_way: CallsInFlight) -> None:
    """Wait until no call is under way; then nothing is charged."""
    await until(lambda: not under_way.calls, "all have ended")
    assert (under_way.bytes, under_way.hosts) == (0, 0)


@pytest.mark.a_third
@pytest.mark.parametrize("method", METHODS)
def test_every_call_is_charged_what_its_row_says(method: str) -> None:
    """IN-60. Goal: no call begins without its memory. Method: over gRPC, every call of every service, where one
    host may take as much as one such call: a second one beside it is OVERLOADED with nothing applied, and its
    handler does not begin. Where a byte less is there, the first one already is TOO_LARGE, because it can never
    fit. At the end nothing is charged."""

    async def scenario() -> None:
        request = message_of(method)()
        cost = cost_of(method, request)
        assert cost > 0
        for room in (cost, cost - 1):
            calls, under_way = Calls(), CallsInFlight(CallBounds(bytes_per_host_max=room))
            async with Served(calls.services, RequestChecks(under_way=under_way)) as served:
                if room < cost:
                    error = await refusal(served, method, request)
                    assert error is not None and error.code is Code.TOO_LARGE and not calls.begun
                else:
                    first = asyncio.create_task(refusal(served, method, request))
                    await calls.begin.wait()
                    assert under_way.bytes == cost
                    error = await refusal(served, method, request)
                    assert error is not None and error.code is Code.OVERLOADED and calls.begun == 1
                    assert error.applied is Applied.NOT_APPLIED
                    calls.go.set()
                    assert await first is None
                await all_end(under_way)
                assert under_way.refused == 1

    asyncio.run(asyncio.wait_for(scenario(), LONG_S))


def test_charge_ends_with_the_call_however_it_ends() -> None:
    """IN-60, IN-62. Goal: nothing stays charged. Method: over gRPC, calls and streams whose caller leaves, whose
    deadline passes, whose handler raises, and whose connection breaks: each is charged before, and nothing is after."""

    def fails(kind: Any) -> Any:
        raise RuntimeError("on purpose")

    async def scenario(method: str, how: str) -> None:
        calls, under_way = Calls(fails), CallsInFlight()
        async with Served(calls.services, RequestChecks(under_way=under_way)) as served:
            request = message_of(method)()
            timeout_s = 0.2 if how == "deadline" else None
            caller = asyncio.create_task(served.call(*method.split("."), request, timeout_s=timeout_s))
            await until(lambda: calls.begun == 1 and under_way.bytes == cost_of(method, request), "it is charged")
            if how == "leaves":
                caller.cancel()
            elif how == "raises":
                calls.go.set()
            elif how == "breaks":
                await served.channel.close()
            await all_end(under_way)
            assert not under_way.refused
            await asyncio.gather(caller, return_exceptions=True)

    for method in ("TabletService.Ledger", "TabletService.Scan"):
        for how in ("leaves", "deadline", "raises", "breaks"):
            asyncio.run(asyncio.wait_for(scenario(method, how), LONG_S))


def test_reply_is_charged_until_its_caller_has_taken_it() -> None:
    """IN-60. Goal: a reply counts for the memory of calls until its caller has read it. Method: over a connection whose
    other end takes no byte: a call that is answered stays under way, charged for its reply alone, and ends when the
    reply is taken; another one that never is ends when its time is over, and so does a refusal; a third one ends with
    its connection."""
    long = 200_000

    row = limits.REQUESTS["TabletService.ListTablets"]
    charged = limits.CALL_BEGUN_BYTES + row.fixed_bytes + limits.REPLY_COPIES * long

    async def scenario(end: str) -> None:
        calls, under_way = Calls(lambda kind: kind(next="x" * long)), CallsInFlight()
        calls.go.set()
        checks = RequestChecks(under_way=under_way, reply_s=0.2 if "late" in end else 1000.0)
        async with Served(calls.services, checks) as served:
            caller = RawCaller(served.address, window=0)
            if end == "a refusal, late":
                caller.call("TabletService", "Ledger", pb.LedgerRequest(tablet_id="no/id"))
                await until(lambda: under_way.calls == 1, "it is refused")
            else:
                number = caller.call("TabletService", "ListTablets", pb.ListTabletsRequest())
                await until(lambda: charged <= under_way.bytes < charged + 100, "it is answered")
                if end == "taken":
                    caller.let_go_on(number)
                elif end == "closed":
                    caller.close()
            await all_end(under_way)
            caller.close()

    for end in ("taken", "late", "a refusal, late", "closed"):
        asyncio.run(asyncio.wait_for(scenario(end), LONG_S))


@pytest.mark.parametrize(
    ("request_bytes", "reply_bytes", "may_send", "may_receive", "server_sends", "code", "applied"),
    [
        (3000, 9, 5000, 5000, 5000, Code.TOO_LARGE, Applied.NOT_APPLIED),
        (3000, 9, 1000, 5000, 5000, Code.TOO_LARGE, Applied.NOT_APPLIED),
        (9, 3000, 5000, 1000, 5000, Code.CORRUPTION, Applied.UNKNOWN),
        (9, 3000, 5000, 5000, 1000, Code.CORRUPTION, Applied.UNKNOWN),
    ],
)
def test_message_that_is_too_long_is_told_as_what_it_is(
    monkeypatch: pytest.MonkeyPatch,
    request_bytes: int,
    reply_bytes: int,
    may_send: int,
    may_receive: int,
    server_sends: int,
    code: Code,
    applied: Applied,
) -> None:
    """IN-60, IN-82. Goal: a caller knows whether its request or the answer was too long, because after an answer the
    call may have been carried out. Method: over gRPC, in its own words: a request that the server does not take, or
    the caller may not send; an answer that the caller does not take, or the server may not send."""
    monkeypatch.setattr(
        checked_server, "SERVER_OPTIONS", replaced(SERVER_OPTIONS, "grpc.max_send_message_length", server_sends)
    )

    async def scenario() -> None:
        calls = Calls(lambda kind: kind.FromString(unknown(reply_bytes)))
        calls.go.set()
        options = receiving(replaced(CHANNEL_OPTIONS, "grpc.max_send_message_length", may_send), may_receive)
        async with Served(calls.services, request_bytes_max=2000) as served:
            address = Address.given(served.address)
            request = pb.LedgerRequest.FromString(unknown(request_bytes))
            with pytest.raises(Refused) as caught:
                async with channel_for_one_call(address, options) as channel:
                    await pb_grpc.TabletServiceStub(channel).Ledger(request, timeout=LONG_S)
            assert caught.value.code is code and str(served.address) in str(caught.value)

            def as_a_client() -> Refused:
                with channel_to(address, options) as channel, pytest.raises(grpc.RpcError) as failed:
                    pb_grpc.TabletServiceStub(channel).Ledger(request, timeout=LONG_S)
                return refusal_of_rpc_error(failed.value, mutates=True)

            assert (await asyncio.to_thread(as_a_client)).applied is applied
        assert bool(calls.begun) is (applied is Applied.UNKNOWN)

    asyncio.run(asyncio.wait_for(scenario(), LONG_S))


@pytest.mark.a_third
@pytest.mark.parametrize("method", METHODS)
def test_reply_is_no_longer_than_its_row_says(method: str) -> None:
    """IN-60, IN-80. Goal: no reply exceeds the bound of its call. Method: over gRPC, every call of every service is
    answered with just as many bytes as its row allows, which arrive, and with one more, which is refused as TOO_LARGE
    with an unknown outcome; nothing is charged afterwards. (A manifest, which may be far longer than other replies, is
    bounded by gRPC too.)"""
    most = limits.REQUESTS[method].reply_bytes
    if most > limits.GRPC_MESSAGE_BYTES_MAX:
        assert method == "CopyService.BeginCopy" and dict(SERVER_OPTIONS)["grpc.max_send_message_length"] == most
        return

    async def scenario() -> None:
        for size in (most, most + 1):
            padding = next(p for n in range(12) if len(p := unknown(size - n)) == size)
            calls, under_way = Calls(lambda kind: kind.FromString(padding)), CallsInFlight(ENOUGH)  # noqa: B023
            calls.go.set()
            async with Served(calls.services, RequestChecks(under_way=under_way)) as served:
                error = await refusal(served, method, message_of(method)())
                assert (error is None) if size == most else (error is not None and error.code is Code.TOO_LARGE)
                if error is not None and "error" in METHODS[method].output_type.fields_by_name:
                    assert error.applied is Applied.UNKNOWN
                await all_end(under_way)

    asyncio.run(asyncio.wait_for(scenario(), LONG_S))


def test_long_page_and_late_reply_are_charged_once_they_are_there() -> None:
    """IN-60. Goal: a reply that is longer than expected is charged before it is sent. Method: over gRPC, a page that is
    longer than its caller asked for, and a manifest: with room for it, it arrives; with less, it is refused as
    OVERLOADED, with an unknown outcome, and nothing is charged afterwards."""

    async def scenario() -> None:
        size = 3 << 20
        for method, request in (
            ("TabletService.ListTablets", pb.ListTabletsRequest(limit_bytes=1)),
            ("CopyService.BeginCopy", pb.BeginCopyRequest()),
        ):
            assert cost_of(method, request) < 2 * size
            for room, code in ((10 * size, None), (2 * size, Code.TOO_LARGE)):
                calls = Calls(lambda kind: kind.FromString(unknown(size)))
                calls.go.set()
                under_way = CallsInFlight(CallBounds(bytes_per_host_max=room))
                async with Served(calls.services, RequestChecks(under_way=under_way)) as served:
                    error = await refusal(served, method, request)
                    assert (error and error.code) == code
                    assert error is None or error.applied is Applied.UNKNOWN
                    await all_end(under_way)

    asyncio.run(asyncio.wait_for(scenario(), LONG_S))


def test_reply_is_foreseen_by_what_the_request_asks_for() -> None:
    """IN-60. Goal: a call that asks for little is charged little. Method: pages by the size that their caller asks for,
    writes by the rows that they say they have, and no more rows than their bytes can hold."""
    lists = {n for n, m in METHODS.items() if "limit_bytes" in m.input_type.fields_by_name}
    assert {n.partition(".")[2] for n in lists} >= {
        "ListTablets",
        "ListTables",
        "ListServers",
        "ListSources",
        "GetTable",
    }
    for method in lists & {n for n in METHODS if limits.REQUESTS[n].reply_bytes > limits.PAGE_BYTES_MAX}:
        kind = message_of(method)
        sizes = [reply_bytes(method, kind(limit_bytes=n), 10) for n in (1, limits.PAGE_BYTES, 4 << 20, 0)]
        assert sizes == [limits.REPLY_PAGE_BYTES_MIN] * 2 + [4 << 20, limits.PAGE_BYTES_MAX], method
    few, bound = limits.REPLY_SHORT_BYTES, limits.REQUESTS["TabletService.Write"]
    for rows, size, counted in ((0, 900, 0), (7, 900, 7), (10**9, 900, 100)):
        request = pb.WriteRequest(rows=rows)
        reply = few + counted * bound.reply_item_bytes
        assert reply_bytes("TabletService.Write", request, size) == reply
        expected = counted * bound.item_bytes + limits.REPLY_COPIES * reply
        assert request_cost("TabletService.Write", request, size) == expected
    assert reply_bytes("TabletService.Write", pb.WriteRequest(rows=10**6), 10**7) == bound.reply_bytes


def test_parts_of_a_long_request_are_charged_before_it_is_parsed() -> None:
    """IN-60. Goal: a request that becomes a hundred times as large when it is parsed is charged for that, not for its
    bytes alone. Method: over gRPC, a report of many empty items beside one that is as long and has few: where the
    latter fits, the former is refused, in the thread that counts as well as on the loop."""

    async def scenario() -> None:
        many = pb.HeartbeatRequest(replicas=[pb.ReplicaStatus()] * 9_000, seeking=["t"] * 9_000 + ["t" * 40_000])
        few = pb.HeartbeatRequest(replicas=[pb.ReplicaStatus()], version="v")
        few.MergeFromString(unknown(many.ByteSize() - few.ByteSize() - 5))
        method, calls = "MasterService.Heartbeat", Calls()
        calls.go.set()
        room = arrival_cost(method, many.ByteSize(), many.DESCRIPTOR) + (1 << 20)
        checks = RequestChecks(under_way=CallsInFlight(CallBounds(bytes_per_host_max=room)))
        async with Served(calls.services, checks) as served:
            assert await refusal(served, method, few) is None
            error = await refusal(served, method, many)
            assert error is not None and error.code is Code.TOO_LARGE and calls.begun == 1

    asyncio.run(asyncio.wait_for(scenario(), LONG_S))


def test_another_hosts_calls_find_room_beside_those_of_a_greedy_one() -> None:
    """IN-51, IN-60. Goal: one host cannot take what another needs. Method: over gRPC from two addresses: one holds as
    many calls as it is let, until it is refused; the same call from the other address is taken."""

    async def scenario() -> None:
        calls = Calls()
        under_way = CallsInFlight()
        async with Served(calls.services, RequestChecks(under_way=under_way)) as served:
            held = []
            while not any(task.done() for task in held):
                held += [asyncio.create_task(refusal(served, "TabletService.Ledger", pb.LedgerRequest()))]
                await until(lambda: calls.begun == len(held) or held[-1].done(), "it is held or refused")  # noqa: B023
            error = held[-1].result()
            assert error is not None and error.code is Code.OVERLOADED and "from host 127.0.0.1" in str(error)
            assert under_way.bytes > 0.9 * limits.CALLS_MEMORY_PER_HOST_BYTES_MAX
            other = RawCaller(served.address, source="127.0.0.2")
            stream = other.call("TabletService", "Ledger", pb.LedgerRequest())
            await until(lambda: calls.begun == len(held), "the other host's call is taken")
            assert under_way.hosts == 2
            calls.go.set()
            reply = await asyncio.to_thread(other.answer, stream, pb.LedgerReply())
            assert not reply.error.code
            await asyncio.gather(*held)
            other.close()

    asyncio.run(asyncio.wait_for(scenario(), LONG_S))
