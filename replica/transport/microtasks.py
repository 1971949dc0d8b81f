"""Runs functions right after the event that queued them, before the event loop polls its sockets again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

_FUNCTIONS_MAX = 1000
"""The most functions that run after one event. The rest wait for the next iteration of the loop, so that it polls its
sockets."""


class MicrotaskQueue:
    """Functions that run right after the event in which they were queued.

    asyncio polls all sockets before it runs the functions of `call_soon`. The poll is a system call, in which another
    thread may take the interpreter. A message makes a replica answer, and the answer makes a link write, so an answer
    would wait for two polls. Therefore code that receives an event handles it through `run`.
    Invariants: functions run in the order of `soon`, each once; if `soon` is called outside of `run`, they run in the
    loop's next iteration. Concurrency: the loop's thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_error: Callable[[BaseException], None]) -> None:
        """`on_error` gets the errors of the functions; the loop would only log them and go on with half-done work."""
        self._loop = loop
        self._on_error = on_error
        self._functions: deque[Callable[[], None]] = deque()
        self._running = self._scheduled = False

    def soon(self, function: Callable[[], None]) -> None:
        """Run `function` after the current event; in the next iteration if no event is handled through `run`."""
        self._functions.append(function)
        if not self._running:
            self._schedule()

    def run(self, event: Callable[[], None]) -> None:
        """Run `event` now, and then all functions queued by `soon`."""
        if self._running:
            event()
            return
        self._functions.appendleft(event)
        self._end()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._scheduled_end)

    def _scheduled_end(self) -> None:
        self._scheduled = False
        self._end()

    def _end(self) -> None:
        functions, self._running = self._functions, True
        for _ in range(_FUNCTIONS_MAX):
            if not functions:
                break
            function = functions.popleft()
            try:
                function()
            except BaseException as error:  # noqa: BLE001 - the root of what nobody awaits
                self._on_error(error)
        self._running = False
        if functions:
            self._schedule()
