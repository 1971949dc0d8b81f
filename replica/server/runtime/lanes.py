"""Heavy work on threads. Each tablet has one ordered lane on a shared pool; results are posted to the loop in order."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from nyala.replica.transport import MicrotaskQueue

T = TypeVar("T")

_SLICE_TASKS = 16
"""The most tasks of one lane that run before another lane gets the thread."""


class LoopPost:
    """Runs functions on the loop's thread, in the order in which they were posted.

    Concurrency: any thread. Many posts between two iterations of the loop cost one wake-up.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_error: Callable[[BaseException], None]) -> None:
        self._loop = loop
        self._on_error = on_error
        self.microtasks = MicrotaskQueue(loop, on_error)
        self._queue: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._scheduled = False
        self._closed = False

    def __call__(self, function: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                return
            self._queue.append(function)
            wake, self._scheduled = not self._scheduled, True
            if wake:
                self._loop.call_soon_threadsafe(self.microtasks.run, self._drain)

    def close(self) -> None:
        """Drop later posts, because the process is stopping and the loop may be gone."""
        with self._lock:
            self._closed = True
            self._queue.clear()

    def _drain(self) -> None:
        with self._lock:
            work = list(self._queue)
            self._queue.clear()
            self._scheduled = False
        for function in work:
            try:
                function()
            except BaseException as error:  # noqa: BLE001 - the root of every posted completion
                self._on_error(error)


class LoopTimer:
    """Runs functions on the loop's thread later, each in its own iteration. Concurrency: the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, microtasks: MicrotaskQueue) -> None:
        self._loop = loop
        self._microtasks = microtasks

    def now_us(self) -> int:
        """The time of the loop's clock, in microseconds."""
        return int(self._loop.time() * 1_000_000)

    def after(self, delay_us: int, function: Callable[[], None]) -> None:
        """Run `function` after this delay."""
        self._loop.call_later(delay_us / 1_000_000, self._microtasks.run, function)


class Lane:
    """One tablet's heavy work, one task at a time, in order; results are posted in order.

    Concurrency: `run` from any thread; tasks run on the shared pool, never two of one lane at once.
    """

    def __init__(self, pool: ThreadPoolExecutor, post: Callable[[Callable[[], None]], None]) -> None:
        self._pool = pool
        self._post = post
        self._tasks: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()
        self._lock = threading.Lock()
        self._running = False

    def run(self, function: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Queue `function`; `done` gets its result, or its error, on the loop's thread."""
        with self._lock:
            self._tasks.append((function, done))
            if self._running:
                return
            self._running = True
        try:
            self._pool.submit(self._run_slice)
        except RuntimeError:  # the pool is shut down: the process is stopping
            with self._lock:
                self._tasks.clear()
                self._running = False

    @property
    def depth(self) -> int:
        """The number of waiting tasks."""
        return len(self._tasks)

    def _run_slice(self) -> None:
        for _ in range(_SLICE_TASKS):
            with self._lock:
                if not self._tasks:
                    self._running = False
                    return
                function, done = self._tasks.popleft()
            result: Any
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001 - handed to the owner, who decides
                result = error
            self._post(lambda done=done, result=result: done(result))  # type: ignore[misc]
        try:
            self._pool.submit(self._run_slice)
        except RuntimeError:
            with self._lock:
                self._tasks.clear()
                self._running = False


async def drained(lane: Lane) -> None:
    """Return when all tasks of the lane have run."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    # The caller may have been cancelled meanwhile; then the future is done already.
    lane.run(lambda: None, lambda result: None if done.done() else done.set_result(None))
    await done
