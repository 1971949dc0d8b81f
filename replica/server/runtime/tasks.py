"""Work on the loop that goes on without a caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from nyala.replica.types import Corruption, Refused

T = TypeVar("T")


async def on_thread(pool: ThreadPoolExecutor, work: Callable[[], T], left: Callable[[BaseException], None]) -> T:
    """Run `work` on the pool and return its result. If the caller is cancelled before the work begins, it does not
    begin. If the caller is cancelled while it runs, `left` gets its error, which would otherwise be lost."""
    job = pool.submit(work)
    future = asyncio.wrap_future(job)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if not job.cancel():
            future.add_done_callback(lambda ended: tell_error(ended, left))
        raise


def tell_error(ended: asyncio.Future[Any], tell: Callable[[BaseException], None]) -> None:
    """Call `tell` with the error of a future that has ended, if it has one."""
    if not ended.cancelled() and (error := ended.exception()) is not None:
        tell(error)


class Tasks:
    """Keeps tasks until they end. `on_error` gets a task's exception at once; the loop would only log it, and later.

    Concurrency: the loop's thread.
    """

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin `work`."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end, and return its result if the caller still waits for it. If the caller is cancelled
        meanwhile, a refusal or a corruption is dropped, because it was the answer to that caller. `on_error` gets any
        other exception."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._left)
            raise

    def _left(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and not isinstance(error := task.exception(), Refused | Corruption | None):
            self._on_error(error)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        tell_error(task, self._on_error)

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._running:
            task.cancel()

    async def ended(self) -> None:
        """Return when no task runs; tasks that begin meanwhile count, too."""
        while self._running:
            await asyncio.wait(self._running)
