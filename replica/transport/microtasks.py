"""What an event brings about, carried to its end before the loop looks at its sockets again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

_FUNCTIONS_MAX = 1000
"""Functions of one iteration; the rest wait for the next, so that no chain of them keeps the loop from its sockets."""


class MicrotaskQueue:
    """Functions that run at the end of the iteration in which they were asked for.

    asyncio runs what `call_soon` was given after another look at all sockets: a system call, and a moment in which
    another thread takes the interpreter. A message makes a replica speak, that makes a link write: what goes out would
    wait for both twice. Whoever brings an event in therefore does so through `run`.
    Invariants: functions run in the order of `soon`, each once; what is asked for outside of an iteration gets one
    of its own. Concurrency: the loop's thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_error: Callable[[BaseException], None]) -> None:
        """`on_error` gets what they raise: the loop would only log it, and go on with what was half done."""
        self._loop = loop
        self._on_error = on_error
        self._functions: deque[Callable[[], None]] = deque()
        self._running = self._scheduled = False

    def soon(self, function: Callable[[], None]) -> None:
        """Run `function` at the end of this iteration."""
        self._functions.append(function)
        if not self._running:
            self._schedule()

    def run(self, event: Callable[[], None]) -> None:
        """Run `event` now, and then all that was asked for."""
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
