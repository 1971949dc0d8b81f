"""A test's log has nothing of the tests before it."""

from __future__ import annotations

import asyncio
import logging

import pytest

HANDLER = "Exception in callback PollerCompletionQueue._handle_events()()"


@pytest.mark.parametrize(
    ("what", "error", "told"),
    [
        (HANDLER, RuntimeError("Event loop is closed"), False),
        (HANDLER, RuntimeError("something else"), True),
        (HANDLER, ValueError("Event loop is closed"), True),
        ("Exception in callback work()", RuntimeError("Event loop is closed"), True),
    ],
)
def test_event_of_an_earlier_tests_call_is_no_line_of_this_test(
    what: str, error: Exception, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: gRPC's complaint that an earlier test's loop is closed is told of no later test, and each other error of a
    loop is. Method: what a loop logs of an error in a callback: the complaint, and all that are like it but for one
    word."""

    async def fail() -> None:
        asyncio.get_running_loop().call_exception_handler({"message": what, "exception": error})

    with caplog.at_level(logging.ERROR, logger="asyncio"):
        asyncio.run(fail())
    assert [r.message for r in caplog.records] == [what] * told
