"""Lets a bounded number of calls receive their requests at a time, per host and in all.

gRPC stores a request until it is whole, and its bytes can be counted only then. But it asks for more than
`limits.REQUEST_WINDOW_BYTES` of a request only when the server begins to read it. So a call takes a slot first.
"""

from __future__ import annotations

import asyncio

from nyala.replica.types import Code, Refused, limits


class RequestSlots:
    """The calls whose requests the server receives now.

    Invariants: never more than the bounds, of one host and in all. If a slot is free, no call waits that may have it.
    The hosts that wait take turns; the calls of one host get their slots in the order in which they came. Concurrency:
    the loop's thread.
    """

    def __init__(
        self,
        slots_max: int = limits.REQUESTS_READ_MAX,
        slots_per_host_max: int = limits.REQUESTS_READ_PER_HOST_MAX,
        wait_s: float = limits.REQUEST_WAIT_S_MAX,
    ) -> None:
        self._slots_max = slots_max
        self._slots_per_host_max = slots_per_host_max
        self._wait_s = wait_s
        self._taken: dict[str, int] = {}
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        """The waiting calls of each host, and first the host whose turn is next."""
        self.taken = 0
        """The number of taken slots."""

    @property
    def waiting(self) -> int:
        """The number of calls that wait for a slot. Any thread may read it."""
        return sum(map(len, list(self._waiting.values())))

    async def take(self, host: str) -> None:
        """Take a slot, which the caller gives back; Refused OVERLOADED if none becomes free in time."""
        if self.taken < self._slots_max and self._taken.get(host, 0) < self._slots_per_host_max:
            self._count(host, 1)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host, {})[turn] = None
        try:
            async with asyncio.timeout(self._wait_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give(host)  # it came at the same moment
            else:
                self._forget(host, turn)
            if isinstance(error, TimeoutError):
                what = (
                    f"the server receives {self._slots_per_host_max} requests of a host, and {self._slots_max} in all, "
                    "at a time, and none of them ended in time: wait and try again, or make fewer calls at a time"
                )
                raise Refused(Code.OVERLOADED, what, host=host, seconds=self._wait_s) from None
            raise

    def give(self, host: str) -> None:
        """Give a slot back; the next call that may have one gets it."""
        self._count(host, -1)
        while self.taken < self._slots_max:
            turns = (h for h in self._waiting if self._taken.get(h, 0) < self._slots_per_host_max)
            next_host = next(turns, None)
            if next_host is None:
                return
            turn = next(iter(self._waiting[next_host]))
            self._forget(next_host, turn)
            if next_host in self._waiting:  # after all other hosts
                self._waiting[next_host] = self._waiting.pop(next_host)
            if not turn.done():  # its caller has not just left
                self._count(next_host, 1)
                turn.set_result(None)

    def _count(self, host: str, more: int) -> None:
        self.taken += more
        self._taken[host] = self._taken.get(host, 0) + more
        if not self._taken[host]:
            del self._taken[host]

    def _forget(self, host: str, turn: asyncio.Future[None]) -> None:
        """Remove a call that waits, if it still does."""
        waiting = self._waiting.get(host, {})
        waiting.pop(turn, None)
        if not waiting:
            self._waiting.pop(host, None)
