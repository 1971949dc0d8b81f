"""Requests that are begun and not finished: what the gRPC server of this product holds of them, and for how long."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.rpc import SERVER_OPTIONS, CallBounds, CallsInFlight, RequestChecks, error_from_pb, pb
from nyala.replica.rpc.checked_server import _Late, request_s
from nyala.replica.rpc.request_slots import RequestSlots, Slot, slots_to_end
from nyala.replica.types import Applied, Code, Refused, limits
from tests.harness.hostile_fields import Served
from tests.harness.patience import patience_s
from tests.harness.raw_http2 import RawCaller
from tests.harness.server_pair import until
from tests.unit.rpc.test_rpc_call_costs import METHODS, Calls, all_end

LONG_S = patience_s(60.0)
PROMPT_S = 0.05
WRITE = ("TabletService", "Write")
LEDGER = ("TabletService", "Ledger")
HALF = 1 << 20
"""A part of a request: far more than a server permits before it begins to receive one."""


def in_loop(scenario: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), LONG_S))


async def ask(work: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.to_thread(work, *arguments)


def checks_with(slots: int, per_host: int, **options: Any) -> RequestChecks:
    return RequestChecks(slots=partial(RequestSlots, slots, per_host, options.pop("wait_s", 1000.0)), **options)


def test_only_calls_with_a_slot_send_more_than_the_first_bytes() -> None:
    """IN-51, IN-60. Goal: half requests are bounded in number and bytes, in all and per host. Method: a server with
    three slots, two for a host, and byte by byte, calls from three addresses that each send half of a long request.
    Two of the first host's and one of the second's are received. The server permits the others no more than the first
    bytes. If the first host's connection ends, the second and the third host get its slots, and later calls are
    answered."""

    async def scenario() -> None:
        calls, under_way = Calls(), CallsInFlight()
        checks = checks_with(3, 2, under_way=under_way, request_s=lambda method: 1000.0)
        slots = checks.long_requests
        async with Served(calls.services, checks) as served:
            callers = [RawCaller(served.address, source=f"127.0.0.{n}") for n in (1, 2, 3)]
            halves = []
            for number, caller in enumerate(callers, 1):
                begun = [await ask(caller.begin, *WRITE, 2 * HALF) for _ in range(4)]
                await until(lambda: slots.taken + slots.waiting == 4 * number, "they are there")  # noqa: B023
                halves += [(caller, stream) for stream in begun]
            await until(lambda: under_way.bytes == 12 * limits.CALL_BEGUN_BYTES, "all are charged")

            async def only(*received: int) -> bool:
                """Whether the server permits these to send, and the others, when these have sent, no more bytes than
                at the beginning."""
                for n in received:
                    await ask(halves[n][0].send, halves[n][1], HALF)
                others = [half for n, half in enumerate(halves) if n not in received]
                return all([await ask(c.permitted, stream) < limits.REQUEST_WINDOW_BYTES for c, stream in others])

            assert await only(0, 1, 4) and (slots.taken, slots.waiting) == (3, 9)
            callers[0].close()
            await until(lambda: (slots.taken, slots.waiting) == (3, 5), "others have the slots")
            halves = halves[5:]
            assert await only(0, 3)
            for caller in callers[1:]:
                caller.close()
            await all_end(under_way)
            assert (slots.taken, slots.waiting, calls.begun) == (0, 0, 0)
            calls.go.set()
            assert not (await served.call(*WRITE, pb.WriteRequest(payload=bytes(HALF)))).error.code

    in_loop(scenario)


def test_short_calls_go_on_beside_long_requests_that_stop() -> None:
    """IN-51. Goal: a host whose long requests are slow still makes short calls, and the other way round. Method: half
    requests take all slots of the one kind: a call of the other kind is answered."""

    async def scenario() -> None:
        calls = Calls()
        calls.go.set()
        for stops, goes_on in ((WRITE, LEDGER), (LEDGER, WRITE)):
            checks = checks_with(2, 2, request_s=lambda method: 1000.0)
            async with Served(calls.services, checks) as served:
                caller = RawCaller(served.address)
                for _ in range(3):
                    caller.begin(*stops, HALF)
                slots = checks.long_requests if stops is WRITE else checks.short_requests
                await until(lambda: (slots.taken, slots.waiting) == (2, 1), "all slots are taken")  # noqa: B023
                kind = {WRITE: pb.WriteRequest, LEDGER: pb.LedgerRequest}[goes_on]
                assert not (await served.call(*goes_on, kind(tablet_id="t"))).error.code
                caller.close()

    in_loop(scenario)


@pytest.mark.parametrize("sent", ["nothing", "its length", "a part"])
def test_every_call_ends_if_its_request_is_not_whole_in_time(sent: str) -> None:
    """IN-51, IN-60. Goal: no half request is held without end, whatever the call. Method: byte by byte, every call of
    every service sends nothing, its length, or a part. The server ends each; no handler begins; nothing is charged and
    no slot is taken afterwards. The next call on the connection is answered."""

    async def scenario() -> None:
        calls, under_way = Calls(), CallsInFlight()
        checks = RequestChecks(under_way=under_way, request_s=lambda method: PROMPT_S)
        async with Served(calls.services, checks) as served:
            caller = RawCaller(served.address)

            def play() -> None:
                streams = []
                for method in METHODS:
                    streams.append(caller.begin(*method.split("."), None if sent == "nothing" else HALF))
                    if sent == "a part":
                        caller.send(streams[-1], 1000)
                for stream in streams:
                    caller.wait_ended(stream)

            await ask(play)
            await all_end(under_way)
            assert not calls.begun
            for slots in (checks.short_requests, checks.long_requests):
                assert (slots.taken, slots.waiting) == (0, 0)
            assert checks.late == len(METHODS)
            calls.go.set()
            stream = caller.call("TabletService", "ListTablets", pb.ListTabletsRequest())
            assert not (await ask(caller.answer, stream, pb.ListTabletsReply())).error.code
            caller.close()

    in_loop(scenario)


def test_longer_request_than_any_call_has_is_ended_by_the_length_that_it_announces() -> None:
    """IN-51, IN-60. Goal: no slot holds more bytes than stated. Method: a server that takes requests of a megabyte at
    most. Byte by byte, a request announces as many, and one announces one byte more: the server permits the former to
    go on, and ends the latter, though its time is not over. The server of a tablet server takes the longest request of
    its calls; a master's takes the longest of all."""
    tablets = ("TabletService", "CopyService", "PeerService")
    most = {kind: max(limits.REQUESTS[m].bytes_max for m in METHODS if (m.partition(".")[0] in tablets) == kind)
            for kind in (True, False)}  # fmt: skip
    assert (most[True], most[False]) == (limits.TABLET_REQUEST_BYTES_MAX, limits.GRPC_MESSAGE_BYTES_MAX)

    async def scenario() -> None:
        calls = Calls()
        checks = RequestChecks(request_s=lambda method: 1000.0)
        async with Served(calls.services, checks, request_bytes_max=HALF) as served:
            caller = RawCaller(served.address)
            whole, longer = caller.begin(*WRITE, HALF), caller.begin(*WRITE, HALF + 1)
            await ask(caller.wait_ended, longer)
            await until(lambda: checks.long_requests.taken == 1, "the other one has a slot")
            await ask(caller.send, whole, HALF)
            await until(lambda: calls.begun or not checks.long_requests.taken, "it is whole")
            caller.close()

    in_loop(scenario)


def test_time_of_a_request_grows_with_the_longest_one_of_its_call() -> None:
    """IN-51. Goal: a request that arrives slowly has the time that its bytes need. Method: the time of every call: its
    longest request at the lowest rate, and the time of a frame."""
    for method in METHODS:
        most = limits.REQUESTS[method].bytes_max
        assert request_s(method) == limits.FRAME_S_MAX + most / limits.REQUEST_BYTES_PER_S_MIN
    assert request_s("TabletService.Write") > 60.0 > request_s("TabletService.GetIdentity")


def test_request_that_is_whole_at_the_last_moment_is_not_ended() -> None:
    """IN-60, IN-62. Goal: a call whose request is there is never told that nothing was applied, because its handler
    runs. Method: the time is over, and the request whole before the call is ended: gRPC's context is not asked to end
    it. Otherwise it is."""

    class Context:
        ended = 0

        async def abort(self, code: grpc.StatusCode, what: str) -> None:
            self.ended += 1

    async def scenario() -> None:
        for whole in (True, False):
            context = Context()
            late = _Late(context, 1000.0)  # type: ignore[arg-type]
            late.end()
            if whole:
                late.stop()
            await late._ending
            late.stop()
            assert context.ended == (not whole)

    in_loop(scenario)


class Requests:
    """The requests of one call: the given ones, and then the stream ends, or stays open."""

    def __init__(self, *requests: bytes, ends: bool) -> None:
        self._requests = requests
        self._ends = ends

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for request in self._requests:
            yield request
        if not self._ends:
            await asyncio.Event().wait()


@pytest.mark.parametrize("method", ["Write", "Scan", "GetIdentity"])
def test_callers_that_send_no_request_or_several_get_their_reason(method: str) -> None:
    """IN-60, IN-62. Goal: a caller learns why its call ended, and that nothing was applied; a call is for its first
    request alone. Method: over gRPC, a stream of requests to calls with one reply and with several: one that stays
    empty, one that ends empty, one that its caller's deadline ends, one request without an end of the stream, and
    several requests."""

    async def scenario() -> None:
        calls, under_way = Calls(), CallsInFlight()
        calls.go.set()
        slow = RequestChecks(under_way=under_way)
        prompt = RequestChecks(under_way=under_way, request_s=lambda method: PROMPT_S)

        async def outcome(served: Served, requests: Requests, timeout_s: float) -> tuple[grpc.StatusCode, str]:
            call = served.channel.stream_unary(f"/nyala.v1.TabletService/{method}")(
                requests.__aiter__(), timeout=timeout_s
            )
            with suppress(grpc.aio.AioRpcError):
                await call
            return await call.code(), await call.details()

        async with Served(calls.services, prompt) as served:
            code, why = await outcome(served, Requests(ends=False), LONG_S)
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert re.match(r"the request was not whole after 0\.0[\d]+ s: nothing was applied; ", why), why
            await all_end(under_way)
        async with Served(calls.services, slow) as served:
            code, why = await outcome(served, Requests(ends=True), LONG_S)
            assert (code, why) == (
                grpc.StatusCode.INVALID_ARGUMENT,
                "the call has no request: nothing was applied",
            )
            code, why = await outcome(served, Requests(ends=False), 0.2)
            assert code is grpc.StatusCode.DEADLINE_EXCEEDED and not calls.begun
            await all_end(under_way)
            for requests in (Requests(b"", ends=False), Requests(b"", b"", b"\xff" * 1000, ends=True)):
                assert (await outcome(served, requests, LONG_S))[0] is grpc.StatusCode.OK
                await all_end(under_way)
            assert calls.begun == 2

    in_loop(scenario)


def test_memory_of_requests_that_end_before_they_are_whole_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-51. Goal: what half requests took goes back to the kernel soon after they end, and whole ones cost nothing for
    that. Method: a whole request; then callers that send half of a long one and close their connection, twice: memory
    is given back after each, in a thread."""
    monkeypatch.setattr(limits, "GIVE_BACK_S", PROMPT_S)

    async def scenario() -> None:
        calls, under_way, given = Calls(), CallsInFlight(), list[str]()
        calls.go.set()
        checks = checks_with(
            9, 9, under_way=under_way, request_s=lambda method: 1000.0,
            give_back=lambda: given.append(threading.current_thread().name),
        )  # fmt: skip
        async with Served(calls.services, checks) as served:
            assert not (await served.call(*WRITE, pb.WriteRequest(tablet_id="t"))).error.code
            await all_end(under_way)
            for _ in range(2):
                before, caller = len(given), RawCaller(served.address, source="127.0.0.2")
                await ask(caller.send, await ask(caller.begin, *WRITE, 2 * HALF), HALF)
                await until(lambda: checks.long_requests.taken == 1, "it has a slot")
                assert len(given) == before
                await ask(caller.close)
                await until(lambda: len(given) > before, "memory is given back")  # noqa: B023
                await all_end(under_way)
        assert all(name.startswith("read-request") for name in given)

    in_loop(scenario)


def test_call_that_gets_no_slot_in_time_is_refused_and_may_come_again() -> None:
    """IN-51. Goal: nothing waits without end for a slot, and a client knows that it may try again. Method: a half
    request has the only slot; another host's write is OVERLOADED with nothing applied after the time of a wait, and a
    call that is ended by its caller's deadline leaves the queue. Behind the half request's end the write is taken."""

    async def scenario() -> None:
        calls, under_way = Calls(), CallsInFlight()
        calls.go.set()
        checks = checks_with(1, 1, under_way=under_way, request_s=lambda method: 1000.0, wait_s=PROMPT_S)
        async with Served(calls.services, checks) as served:
            caller, slots = RawCaller(served.address, source="127.0.0.2"), checks.long_requests
            caller.begin(*WRITE, HALF)
            await until(lambda: slots.taken == 1, "it has the slot")
            request = pb.WriteRequest(payload=bytes(HALF))
            error = error_from_pb((await served.call(*WRITE, request)).error)
            assert error is not None and (error.code, error.applied) == (Code.OVERLOADED, Applied.NOT_APPLIED)
            assert "wait and try again" in str(error) and slots.waiting == 0 and not calls.begun
            checks.long_requests = slots = RequestSlots(0, 1, 1000.0)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await served.call(*WRITE, request, timeout_s=0.2)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await until(lambda: under_way.calls == 1, "it is gone")
            assert slots.waiting == 0
            caller.close()
            await all_end(under_way)

    in_loop(scenario)


def test_calls_that_wait_for_their_request_are_counted() -> None:
    """IN-51, IN-60. Goal: a host's half requests are bounded in number like its whole ones, and charged for what is
    held of each. Method: a host may have three calls; it begins three and sends nothing: the fourth is refused at once,
    and taken when one has left. With memory for two, the third is refused."""

    async def scenario() -> None:
        charge = limits.CALL_BEGUN_BYTES
        for bounds, most in ((CallBounds(9, 3), 3), (CallBounds(bytes_per_host_max=3 * charge - 1), 2)):
            calls, under_way = Calls(), CallsInFlight(bounds)
            async with Served(calls.services, RequestChecks(under_way=under_way)) as served:
                callers = [RawCaller(served.address) for _ in range(most)]
                for caller in callers:
                    caller.begin(*WRITE)
                await until(lambda: under_way.bytes == most * charge, "they are counted")  # noqa: B023
                error = error_from_pb((await served.call(*WRITE, pb.WriteRequest())).error)
                assert error is not None and error.code is Code.OVERLOADED and under_way.refused == 1
                for caller in callers:
                    caller.close()
                await all_end(under_way)

    in_loop(scenario)


def test_many_large_requests_of_one_host_wait_for_one_another_and_are_all_answered() -> None:
    """IN-51. Goal: an honest host sends as many large requests at a time as it likes. Method: over gRPC, a host with
    two slots makes forty writes of a megabyte at once: never more than two are received at a time, and each is
    answered."""

    async def scenario() -> None:
        calls, most = Calls(), 0
        calls.go.set()
        checks = checks_with(3, 2)
        take = checks.long_requests.take

        async def taken(host: str) -> Slot:
            nonlocal most
            slot = await take(host)
            most = max(most, checks.long_requests.taken)
            return slot

        checks.long_requests.take = taken  # type: ignore[method-assign]
        async with Served(calls.services, checks) as served:
            request = pb.WriteRequest(payload=bytes(1 << 20))
            replies = await asyncio.gather(*(served.call(*WRITE, request) for _ in range(40)))
            assert not any(reply.error.code for reply in replies) and calls.begun == 40
            assert most == 2 and checks.long_requests.taken == 0

    in_loop(scenario)


@pytest.mark.parametrize("method", [WRITE, LEDGER], ids=["long", "short"])
def test_half_requests_of_many_hosts_that_hold_all_slots_make_room_for_another_host(method: tuple[str, str]) -> None:
    """IN-51, IN-60. Goal: half requests of a few addresses keep no other host out. Method: a server with four slots,
    two for a host. From two addresses come six half requests, whose own time is far away, and begin again when they are
    ended; a call of a third host is answered, again and again."""

    async def scenario() -> None:
        calls = Calls()
        calls.go.set()
        checks = RequestChecks(
            slots=lambda turn_s: RequestSlots(4, 2, 1000.0, turn_s=0.2), request_s=lambda method: 1000.0
        )
        slots = checks.long_requests if method is WRITE else checks.short_requests
        async with Served(calls.services, checks) as served:
            callers = [RawCaller(served.address, source=f"127.0.0.{n}") for n in (2, 3)]
            for caller in callers:
                for _ in range(6):
                    caller.begin(*method, HALF)
            await until(lambda: slots.taken == 4 and slots.waiting == 8, "they have all slots, and wait for more")
            request = pb.WriteRequest() if method is WRITE else pb.LedgerRequest()
            for _ in range(3):
                await served.call(*method, request, patience_s(15.0))
                for caller in callers:
                    caller.begin(*method, HALF)
            assert calls.begun == 3 and 3 <= checks.late <= 6
            for caller in callers:
                caller.close()

    in_loop(scenario)


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 20), st.sampled_from(["", "ending", "no end"]))),
    st.permutations("abcde").flatmap(lambda hosts: st.integers(0, 5).map(lambda n: hosts[:n])),
)
def test_calls_that_make_room_had_their_turn_and_belong_to_hosts_with_more(
    taken: list[tuple[str, int, str]], waiting: list[str]
) -> None:
    """IN-51. Goal: no call is ended without need. Method: slots of four hosts with calls of any age, of which some end
    already, and hosts that wait. Those that are ended had their turn, and are no more than the waiting hosts with fewer
    slots, beyond those that end already; at least one is, if there is such a host. No host falls below the one that
    waits with fewest."""
    held = [Slot(host, float(at), None if how == "no end" else int, how == "ending") for host, at, how in taken]
    found = slots_to_end(held, waiting, 20.0, 5.0)
    had_turn = [s for s in held if s.end is not None and not s.ending and s.since_s <= 15.0]
    assert set(found) <= set(had_turn) and len(set(found)) == len(found)
    before, after = (Counter(s.host for s in held if not s.ending and s not in f) for f in ([], found))
    ending = sum(s.ending for s in held)
    poorer = [h for h in waiting if any(before[s.host] > before[h] for s in had_turn)]
    assert max(0, min(1, len(poorer) - ending)) <= len(found) <= max(0, len(poorer) - ending)
    fewest = min((before[h] for h in waiting), default=0)
    assert all(after[s.host] >= fewest for s in found)


STEPS = st.lists(st.tuples(st.sampled_from(["take", "take", "give", "leave"]), st.sampled_from("abc")), max_size=60)


@pytest.mark.deep
@settings(max_examples=200)
@given(STEPS)
def test_slots_never_exceed_their_bounds_and_none_is_free_while_a_call_may_have_it(
    steps: list[tuple[str, str]],
) -> None:
    """IN-51. Goal: for every order of calls, ends and departures, the bounds hold, no slot is lost, no call waits for a
    slot that it may have, calls of one host come in their order, and hosts take turns. Method: calls of three hosts
    take, give back and leave at random, beside plain lists; in the end all leave, and all slots are free."""

    async def scenario() -> None:
        slots, taken, waiting = RequestSlots(4, 3, 1000.0), list[Slot](), list[tuple[str, asyncio.Task[Slot]]]()

        def hosts() -> list[str]:
            return [slot.host for slot in taken]

        async def settle() -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            for each in [w for w in waiting if w[1].done()]:
                ahead = [w for w in waiting[: waiting.index(each)] if w[0] == each[0] and not w[1].done()]
                assert not ahead, "of one host, the first is first"
                waiting.remove(each)
                taken.append(each[1].result())
            assert (slots.taken, slots.waiting) == (len(taken), len(waiting))
            assert len(taken) <= 4 and all(hosts().count(h) <= 3 for h in "abc")
            assert not any(len(taken) < 4 and hosts().count(h) < 3 for h, _ in waiting), "a slot is free"

        for step, host in steps:
            mine = [w for w in waiting if w[0] == host]
            if step == "take":
                waiting.append((host, asyncio.create_task(slots.take(host))))
            elif step == "give" and host in hosts():
                slots.give(taken.pop(hosts().index(host)))
                if mine and steps.index((step, host)) % 2:  # it leaves at the moment at which its turn may have come
                    mine[0][1].cancel()
                    waiting.remove(mine[0])
            elif step == "leave" and mine:
                mine[-1][1].cancel()
                waiting.remove(mine[-1])
            await settle()
        for _, task in waiting:
            task.cancel()
        waiting.clear()
        for slot in taken:
            slots.give(slot)
        taken.clear()
        await settle()
        assert not slots._taken and not slots._waiting

    in_loop(scenario)


def test_hosts_take_turns() -> None:
    """IN-51. Goal: a host with thousands of calls does not keep another one waiting for all of them. Method: of two
    slots one is of a third host; two hosts wait, the first with ten calls before the second has one. As slots become
    free, the hosts get them in turn."""

    async def scenario() -> None:
        slots, order = RequestSlots(1, 1, 1000.0), list[str]()

        async def call(host: str) -> None:
            slot = await slots.take(host)
            order.append(host)
            await asyncio.sleep(0)
            slots.give(slot)

        first = await slots.take("c")
        tasks = [asyncio.create_task(call(host)) for host in "aaaaaaaaaabb"]
        await until(lambda: slots.waiting == 12, "all wait")
        slots.give(first)
        await asyncio.gather(*tasks)
        assert "".join(order) == "ababaaaaaaaa"

    in_loop(scenario)


def test_slots_of_a_server_are_those_that_are_stated() -> None:
    """IN-51. Goal: the stated sum of bytes is that of every server. Method: the bounds of the checks as servers make
    them, and the options that keep gRPC from storing more than the first bytes of a request that nothing reads."""

    async def scenario() -> None:
        checks = RequestChecks()
        for slots in (checks.short_requests, checks.long_requests):
            tasks = []
            for hosts in range(1, 6):
                tasks += [asyncio.create_task(slots.take(str(hosts))) for _ in range(limits.REQUESTS_READ_MAX)]
                await asyncio.sleep(0)
                most = min(hosts * limits.REQUESTS_READ_PER_HOST_MAX, limits.REQUESTS_READ_MAX)
                assert sum(t.done() for t in tasks) == most
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        checks.close()
        options = dict(SERVER_OPTIONS)
        assert options["grpc.http2.bdp_probe"] == 0
        assert options["grpc.http2.lookahead_bytes"] == limits.REQUEST_WINDOW_BYTES

    in_loop(scenario)


def test_refusal_of_a_call_without_a_slot_is_that_of_a_busy_server() -> None:
    """IN-51. Goal: the refusal says what was wrong and what to do. Method: its text."""

    async def scenario() -> None:
        slots = RequestSlots(1, 1, 0.0)
        await slots.take("a")
        with pytest.raises(Refused, match="receives 1 requests of a host, and 1 in all") as caught:
            await slots.take("b")
        assert caught.value.code is Code.OVERLOADED and slots.waiting == 0

    in_loop(scenario)
