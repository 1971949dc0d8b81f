"""Turns of the loop: the effects of an event are finished before the loop polls its sockets again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nyala.replica.transport import MicrotaskQueue
from nyala.replica.transport.microtasks import _FUNCTIONS_MAX


def run(
    scenario: Callable[[MicrotaskQueue, list[str], list[BaseException]], object],
) -> tuple[list[str], list[BaseException]]:
    """Return what was seen in the turn of `scenario` and in the three after it; each later turn is noted as `|`."""
    seen: list[str] = []
    errors: list[BaseException] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        microtasks = MicrotaskQueue(loop, errors.append)
        scenario(microtasks, seen, errors)
        for _ in range(3):
            seen.append("|")
            await asyncio.sleep(0)

    asyncio.run(main())
    return seen, errors


def test_microtasks_what_an_event_asks_for_is_done_in_its_own_turn_and_in_order() -> None:
    """Goal: a message that makes a replica speak leaves in the turn in which it came. Method: an event that asks for
    two functions, of which one asks for a third."""

    def scenario(microtasks: MicrotaskQueue, seen: list[str], _: list[BaseException]) -> None:
        def first() -> None:
            seen.append("first")
            microtasks.soon(lambda: seen.append("third"))

        def event() -> None:
            microtasks.soon(first)
            microtasks.soon(lambda: seen.append("second"))
            microtasks.run(lambda: seen.append("event within"))
            seen.append("event")

        microtasks.run(event)

    assert run(scenario)[0] == ["event within", "event", "first", "second", "third", "|", "|", "|"]


def test_microtasks_what_is_asked_outside_of_one_gets_the_next_or_that_of_an_event_before_it() -> None:
    """Goal: nothing is lost and nothing runs within its caller. Method: ask outside of a turn, with and without an
    event before the loop's next turn."""

    def alone(microtasks: MicrotaskQueue, seen: list[str], _: list[BaseException]) -> None:
        microtasks.soon(lambda: seen.append("asked"))
        microtasks.soon(lambda: seen.append("again"))

    def before_an_event(microtasks: MicrotaskQueue, seen: list[str], _: list[BaseException]) -> None:
        microtasks.soon(lambda: seen.append("asked"))
        microtasks.run(lambda: seen.append("event"))

    assert run(alone)[0] == ["|", "asked", "again", "|", "|"]
    assert run(before_an_event)[0] == ["event", "asked", "|", "|", "|"]


def test_turn_function_that_raises_goes_to_the_error_handler_and_the_next_still_runs() -> None:
    """Goal: what a turn breaks is not only logged. Method: an event and a function that raise, with others behind."""

    def scenario(microtasks: MicrotaskQueue, seen: list[str], _: list[BaseException]) -> None:
        def broken(what: str) -> None:
            raise RuntimeError(what)

        def event() -> None:
            microtasks.soon(lambda: broken("function"))
            microtasks.soon(lambda: seen.append("after"))
            broken("event")

        microtasks.run(event)

    seen, errors = run(scenario)
    assert seen == ["after", "|", "|", "|"]
    assert [str(e) for e in errors] == ["event", "function"]


def test_turn_chain_without_end_leaves_the_loop_its_sockets() -> None:
    """Goal: a microtask that queues itself for ever does not keep other callbacks of the loop from running. Method: a
    function that asks for itself for ever: other callbacks of the loop run meanwhile."""

    def scenario(microtasks: MicrotaskQueue, seen: list[str], _: list[BaseException]) -> None:
        calls = [0]

        def again() -> None:
            calls[0] += 1
            if calls[0] % _FUNCTIONS_MAX == 0:
                seen.append("a thousand")
            microtasks.soon(again)

        microtasks.run(again)

    seen, _ = run(scenario)
    assert seen[:7] == ["a thousand", "|", "a thousand", "|", "a thousand", "|", "a thousand"]
