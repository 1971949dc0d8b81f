"""Server side of a write stream: many small writes of one client process, and their replies as they end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio

from nyala.replica.rpc import pb

_WRITES_MAX = 1024
"""Writes of one stream under way; beyond it the stream is not read, and flow control makes the client wait."""


class WriteStream:
    """One stream, from its first bundle to its last.

    Writes begin in the order in which they arrive, like calls. A stream that breaks leaves them running: what holds an
    index cannot be called back, and the ledger answers whoever repeats it. Concurrency: the loop's thread.
    """

    def __init__(self, context: Any, answer: Callable[[Any], Awaitable[Any]], running: set[asyncio.Task[Any]]) -> None:
        """`answer(WriteRequest) -> WriteReply` never raises what a client caused; `running` owns the writes."""
        self._context = context
        self._answer = answer
        self._running = running
        self._open = 0
        self._at_end = False
        self._ended: list[tuple[int, asyncio.Task[Any]]] = []
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    async def serve(self) -> None:
        """Until the client ends the stream and has all its replies, or until it breaks."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reply())
            while (bundle := await self._context.read()) is not grpc.aio.EOF:
                for write in bundle.writes:
                    self._begin(write.number, write.request)
                while self._open >= _WRITES_MAX:
                    self._room.clear()
                    await self._room.wait()
            self._at_end = True
            self._news.set()

    def _begin(self, number: int, request: Any) -> None:
        task = asyncio.ensure_future(self._answer(request))
        self._open += 1
        self._running.add(task)
        task.add_done_callback(lambda done: self._end(number, done))

    def _end(self, number: int, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        self._open -= 1
        self._ended.append((number, task))
        self._news.set()
        self._room.set()

    async def _reply(self) -> None:
        """All replies that are there leave in one message."""
        while self._open or self._ended or not self._at_end:
            await self._news.wait()
            self._news.clear()
            ended, self._ended = self._ended, []
            if ended:
                bundle = pb.ReplyBundle()
                for number, task in ended:
                    bundle.replies.add(number=number, reply=task.result())
                await self._context.write(bundle)
