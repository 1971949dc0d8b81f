"""Work on the loop that nobody awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Tasks:
    """Keeps tasks until they end. What one raises goes to `on_error`: the loop would only log it, and some time later.

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
        """End all of them where they wait."""
        for task in self._running:
            task.cancel()

    async def ended(self) -> None:
        """Return when none runs any more, of those that begin meanwhile either."""
        while self._running:
            await asyncio.wait(self._running)
