"""Lets a bounded number of calls receive their requests at a time, per host and in all.

gRPC stores a request until it is whole, and its bytes can be counted only then. But it asks for more than
`limits.REQUEST_WINDOW_BYTES` of a request only when the server begins to read it. So a call takes a slot first. A call
that holds its slot for long makes room if other hosts wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nyala.replica.types import Code, Refused, limits


@dataclass(eq=False)
class Slot:
    """A slot that is taken."""

    host: str
    since_s: float
    end: Callable[[], None] | None = None
    """Ends the call, which gives the slot back soon; None: the call cannot be ended."""
    ending: bool = False


def slots_to_end(held: Sequence[Slot], waiting: Iterable[str], now_s: float, turn_s: float) -> list[Slot]:
    """The slots, of all that are taken, whose calls have had their turn of `turn_s`, and must make room: one for each
    waiting host that has fewer than theirs, first of the host that has most, and the oldest. Pure."""
    had_turn = [s for s in held if not s.ending and s.end is not None and now_s - s.since_s >= turn_s]
    counts = Counter(s.host for s in held if not s.ending)
    room_soon = sum(s.ending for s in held)
    found: list[Slot] = []
    for host in waiting:
        slot = min(had_turn, key=lambda s: (-counts[s.host], s.since_s), default=None)
        if slot is None or counts[slot.host] <= counts[host]:
            continue
        counts[host] += 1
        if room_soon:
            room_soon -= 1
            continue
        had_turn.remove(slot)
        counts[slot.host] -= 1
        found.append(slot)
    return found


class RequestSlots:
    """The calls whose requests the server receives now.

    Invariants: never more than the bounds, of one host and in all. If a slot is free, no call waits that may have it.
    Of the hosts that wait, the one with the fewest slots is next, and equals take turns; the calls of one host get
    their slots in the order in which they came. A host that waits beside hosts with more slots gets one when a call of
    theirs has had its turn. Concurrency: the loop's thread.
    """

    def __init__(
        self,
        slots_max: int = limits.REQUESTS_READ_MAX,
        slots_per_host_max: int = limits.REQUESTS_READ_PER_HOST_MAX,
        wait_s: float = limits.REQUEST_WAIT_S_MAX,
        turn_s: float = limits.LONG_REQUEST_TURN_S,
    ) -> None:
        self._slots_max = slots_max
        self._slots_per_host_max = slots_per_host_max
        self._wait_s = wait_s
        self._turn_s = turn_s
        self._held: dict[Slot, None] = {}
        """The taken slots, the oldest first."""
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, dict[asyncio.Future[Slot], None]] = {}
        """The waiting calls of each host, and first the host whose turn is next."""
        self._look: asyncio.TimerHandle | None = None

    @property
    def taken(self) -> int:
        """The number of taken slots. Any thread may read it."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """The number of calls that wait for a slot. Any thread may read it."""
        return sum(map(len, list(self._waiting.values())))

    async def take(self, host: str) -> Slot:
        """Take a slot, which the caller gives back; Refused OVERLOADED if none becomes free in time."""
        if self.taken < self._slots_max and self._taken[host] < self._slots_per_host_max:
            return self._hold(host)
        turn: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host, {})[turn] = None
        self._look_again()
        try:
            async with asyncio.timeout(self._wait_s):
                return await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give(turn.result())  # it came at the same moment
            else:
                self._forget(host, turn)
            if isinstance(error, TimeoutError):
                what = (
                    f"the server receives {self._slots_per_host_max} requests of a host, and {self._slots_max} in all, "
                    "at a time, and none was free in time: wait and try again, or make fewer calls at a time"
                )
                raise Refused(Code.OVERLOADED, what, host=host, seconds=self._wait_s) from None
            raise

    def give(self, slot: Slot) -> None:
        """Give a slot back; the next call that may have one gets it."""
        del self._held[slot]
        self._taken[slot.host] -= 1
        if not self._taken[slot.host]:
            del self._taken[slot.host]
        while self.taken < self._slots_max:
            next_host = min(self._waiting, key=self._taken.__getitem__, default=None)
            if next_host is None or self._taken[next_host] >= self._slots_per_host_max:
                return
            turn = next(iter(self._waiting[next_host]))
            self._forget(next_host, turn)
            if next_host in self._waiting:  # after all other hosts
                self._waiting[next_host] = self._waiting.pop(next_host)
            if not turn.done():  # its caller has not just left
                turn.set_result(self._hold(next_host))

    def _hold(self, host: str) -> Slot:
        slot = Slot(host, asyncio.get_running_loop().time())
        self._held[slot] = None
        self._taken[host] += 1
        return slot

    def _look_again(self) -> None:
        """Look, a part of a turn later, for calls that must make room, for as long as a host waits."""
        if self._look is None and self._waiting:
            self._look = asyncio.get_running_loop().call_later(self._turn_s / 4, self._make_room)

    def _make_room(self) -> None:
        self._look = None
        if self.taken == self._slots_max:
            for slot in slots_to_end(list(self._held), self._waiting, asyncio.get_running_loop().time(), self._turn_s):
                slot.ending = True
                if slot.end is not None:
                    slot.end()
        self._look_again()

    def _forget(self, host: str, turn: asyncio.Future[Slot]) -> None:
        """Remove a call that waits, if it still does."""
        waiting = self._waiting.get(host, {})
        waiting.pop(turn, None)
        if not waiting:
            self._waiting.pop(host, None)
