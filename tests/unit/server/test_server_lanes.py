"""Ordered lanes, posts to the loop, and memory's guard."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from nyala.replica.server.runtime.lanes import Lane, LoopPost, LoopTimer, drained
from nyala.replica.server.runtime.memory import MemoryGuard
from nyala.replica.transport import MicrotaskQueue
from nyala.replica.types import Code, Refused
from tests.harness.patience import patience_s


def never(error: BaseException) -> None:
    raise AssertionError(error)


def test_lane_keeps_its_order_while_lanes_overlap() -> None:
    """Goal: one tablet's work never overlaps or overtakes; two tablets' do overlap. Method: two lanes on two threads,
    a barrier that only overlap can pass, and a hundred tasks whose completions must come in order."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        post = LoopPost(loop, never)
        barrier = threading.Barrier(2)
        finished: list[int] = []
        met: list[object] = []
        all_done = asyncio.Event()
        inside = threading.Lock()

        def task(n: int) -> int:
            assert inside.acquire(blocking=False), "two tasks of one lane at once"
            inside.release()
            return n

        def done(result: int | BaseException) -> None:
            assert isinstance(result, int)
            finished.append(result)
            if result == 99:
                all_done.set()

        with ThreadPoolExecutor(2) as pool:
            first, second = Lane(pool, post), Lane(pool, post)
            for lane in (first, second):
                lane.run(lambda: barrier.wait(patience_s(60)), met.append)
            for n in range(100):
                first.run(lambda n=n: task(n), done)  # type: ignore[misc]
            await asyncio.wait_for(all_done.wait(), patience_s(120))
            await asyncio.wait_for(drained(second), patience_s(120))
        assert finished == list(range(100)) and set(met) == {0, 1}

    asyncio.run(run())


def test_caller_that_left_while_it_waited_for_a_lane_ends_nothing() -> None:
    """IN-62. Goal: a call that is given up is no fault of the server. Method: a task that waits for the lane is
    cancelled while other work holds the lane; nothing is reported as an error, and the next one that waits is told."""

    async def run() -> list[BaseException]:
        errors: list[BaseException] = []
        post = LoopPost(asyncio.get_running_loop(), errors.append)
        go_on = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            lane = Lane(pool, post)
            lane.run(lambda: go_on.wait(patience_s(60)), lambda result: None)
            waiting = asyncio.create_task(drained(lane))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            go_on.set()
            await asyncio.wait_for(drained(lane), patience_s(60))
        return errors

    assert asyncio.run(run()) == []


def test_lane_hands_an_exception_to_its_owner_and_goes_on() -> None:
    """Goal: a failing task is the owner's business. Method: raise, then return."""

    async def run() -> list[object]:
        post = LoopPost(asyncio.get_running_loop(), never)
        results: list[object] = []
        ended = asyncio.Event()

        def fail() -> None:
            raise ValueError("no")

        with ThreadPoolExecutor(1) as pool:
            lane = Lane(pool, post)
            lane.run(fail, results.append)
            lane.run(lambda: 7, lambda result: (results.append(result), ended.set()))
            await asyncio.wait_for(ended.wait(), patience_s(60))
        return results

    error, value = asyncio.run(run())
    assert isinstance(error, ValueError) and value == 7


def test_post_that_raises_goes_to_the_error_handler_and_the_next_still_runs() -> None:
    """Goal: no completion is lost silently. Method: post a function that raises between two that do not."""

    async def run() -> tuple[list[str], list[BaseException]]:
        seen: list[str] = []
        errors: list[BaseException] = []
        post = LoopPost(asyncio.get_running_loop(), errors.append)
        ended = asyncio.Event()

        def broken() -> None:
            raise RuntimeError("broken")

        post(lambda: seen.append("before"))
        post(broken)
        post(lambda: (seen.append("after"), ended.set()))  # type: ignore[arg-type,return-value]
        await asyncio.wait_for(ended.wait(), patience_s(60))
        post.close()
        post(lambda: seen.append("closed"))
        return seen, errors

    seen, errors = asyncio.run(run())
    assert seen == ["before", "after"]
    assert [str(e) for e in errors] == ["broken"]


def test_timer_that_raises_goes_to_the_error_handler_and_the_next_still_runs() -> None:
    """Goal: what a round's timer breaks is not only logged. Method: a function that raises, and one behind it."""

    async def run() -> list[BaseException]:
        errors: list[BaseException] = []
        loop = asyncio.get_running_loop()
        timer, ended = LoopTimer(loop, MicrotaskQueue(loop, errors.append)), asyncio.Event()

        def broken() -> None:
            raise RuntimeError("later")

        timer.after(1_000, broken)
        timer.after(2_000, ended.set)
        await asyncio.wait_for(ended.wait(), patience_s(60))
        return errors

    assert [str(e) for e in asyncio.run(run())] == ["later"]


def test_memory_over_the_limit_refuses_before_anything_is_applied() -> None:
    """Goal: writes slow down instead of failing. Method: a guard whose tracked memory the test sets."""
    used = [0]
    guard = MemoryGuard(1 << 40, lambda: used[0])
    guard.refresh()
    guard.admit(1000)
    used[0] = (1 << 40) - 10
    guard.refresh()
    guard.admit(10)
    with pytest.raises(Refused) as refused:
        guard.admit(11)
    assert refused.value.code is Code.OVERLOADED and not refused.value.applied
    assert guard.refused == 1 and 0.99 < guard.pressure <= 1.0
