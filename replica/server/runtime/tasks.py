"""Work on the loop that no caller awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Tasks:
    """Keeps tasks until they end. `on_error` gets a task's exception at once; the loop would only log it, and later.

    Concurrency: the loop's thread.
    """

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin `work`."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._running:
            task.cancel()

    async def ended(self) -> None:
        """Return when no task runs; tasks that begin meanwhile count, too."""
        while self._running:
            await asyncio.wait(self._running)
