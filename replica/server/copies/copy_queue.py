"""The places of a server for copies that run, and the copies that wait for one."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from nyala.replica.types import Code, Refused, limits

from ..tablets.hosted import CopyJob


def check_waiting(jobs: Iterable[CopyJob], host: str) -> None:
    """Raise Refused(OVERLOADED) if the queue is full, in all or for this host. Pure."""
    waiting = [job.host for job in jobs if job.progress.waits and job.host]
    for whose, count, most in (
        ("", len(waiting), limits.COPIES_WAITING_MAX),
        (f" that host {host} asked for", waiting.count(host), limits.COPIES_WAITING_PER_HOST_MAX),
    ):
        if count >= most and host:
            what = f"the queue of copies{whose} is full here; nothing was changed: ask again when some have ended"
            raise Refused(Code.OVERLOADED, what, waiting=count, max=most)


class CopyQueue:
    """Gives each free place to the host with the fewest running copies. If several hosts have equally few, the one that
    has waited longest since its last place gets it. So a host that asks for many copies delays another host by one copy
    at most.

    The server's own jobs bring rows to witnesses. They count as those of one more host, with an empty name.
    Concurrency: the loop's thread.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By host; the host that got a place longest ago comes first."""

    @asynccontextmanager
    async def place(self, job: CopyJob) -> AsyncIterator[bool]:
        """Wait for a place for the job, and hold it within the block. Yields whether there is one: False if `job.place`
        was cancelled."""
        job.place = place = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job.host, deque()).append(place)
        self._grant()
        try:
            await asyncio.wait([place])
            yield not place.cancelled()
        finally:
            if place.done() and not place.cancelled():
                self._free += 1
                self._running -= Counter([job.host])
                self._grant()
            else:
                self._forget(job.host, place)

    def _grant(self) -> None:
        while self._free and (host := min(self._waiting, key=self._running.__getitem__, default=None)) is not None:
            place = self._waiting[host][0]
            self._waiting[host] = self._waiting.pop(host)  # behind the others
            self._forget(host, place)
            if not place.cancelled():
                self._free -= 1
                self._running[host] += 1
                place.set_result(None)

    def _forget(self, host: str, place: asyncio.Future[None]) -> None:
        """Take a place out of the queue, if it is still there."""
        queue = self._waiting.get(host, deque())
        if place in queue:
            queue.remove(place)
            if not queue:
                del self._waiting[host]
