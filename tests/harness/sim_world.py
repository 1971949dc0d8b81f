"""Virtual time, a network that loses and reorders, and random numbers: one seed makes one history."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

WALL_ERROR_US_MAX = 12_000_000
"""Bounds the error of a wall clock: two that are wrong in opposite directions stay within
CLOCK_AHEAD_OF_PEERS_US_MAX."""
FOR_GOOD_US = 1 << 60
"""The time at which a process, or a log, goes on that never does."""
CLOGGED_MIN = 5
"""The number of messages that must have waited for a way to count as clogged."""


class World:
    """Events in virtual microseconds. Events at one instant run in the order in which they were made."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.now_us = 0
        self.events = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0

    def at(self, time_us: int, function: Callable[[], None]) -> None:
        """Run `function` at `time_us`, not before now."""
        self._serial += 1
        heapq.heappush(self._heap, (max(time_us, self.now_us), self._serial, function))

    def after(self, delay_us: int, function: Callable[[], None]) -> None:
        """Run `function` in `delay_us`."""
        self.at(self.now_us + delay_us, function)

    def run(self, until_us: int, done: Callable[[], bool] | None = None) -> bool:
        """Run events up to `until_us`, or until `done()`; returns whether `done()` held."""
        while self._heap and self._heap[0][0] <= until_us:
            if done is not None and done():
                return True
            self.now_us, _, function = heapq.heappop(self._heap)
            self.events += 1
            function()
        self.now_us = until_us
        return done is not None and done()


class NodeClock:
    """One server's two clocks: the wall is off by `skew_us`."""

    def __init__(self, world: World, skew_us: int) -> None:
        self._world = world
        self.skew_us = skew_us

    def wall_us(self) -> int:
        return 1_700_000_000_000_000 + self._world.now_us + self.skew_us

    def jump(self, by_us: int, within_us: int = WALL_ERROR_US_MAX) -> None:
        """Set the wall clock, as by hand or by NTP; it stays within what the servers' limits allow for."""
        self.skew_us = max(-within_us, min(within_us, self.skew_us + by_us))

    def monotonic_us(self) -> int:
        return self._world.now_us


@dataclass
class Faults:
    """The faults of the network, and how often they occur. Probabilities per message; times in microseconds."""

    drop: float = 0.0
    duplicate: float = 0.0
    delay_us_min: int = 100
    delay_us_max: int = 2_000
    slow: float = 0.0
    """Probability of a delay of up to `slow_us_max`: such messages arrive out of order."""
    slow_us_max: int = 200_000


class SimNetwork:
    """Carries messages between named nodes. Cuts are one-way; `tap(sender, receiver, message)` sees what is sent."""

    def __init__(self, world: World, faults: Faults, deliver: Callable[[str, str, Any], None]) -> None:
        self._world = world
        self._deliver = deliver
        self.faults = faults
        self.cuts: set[tuple[str, str]] = set()
        self.slow_until_us: dict[str, int] = {}
        """Until then messages from and to that node take up to `slow_us_max`."""
        self.tap: Callable[[str, str, Any], None] = lambda sender, receiver, message: None
        self.losing: dict[tuple[str, str], tuple[str, int]] = {}
        """Way -> the type of message that it loses, and until when."""
        self.held: dict[tuple[str, str], list[tuple[Any, int]]] = {}
        """Clogged way -> the messages that wait there, in order."""
        self.kind_of: Callable[[Any], str] = lambda message: ""
        """Returns the type of a message, in the words of `losing`."""
        self.sent = self.delivered = 0
        self.marks: Counter[str] = Counter()
        self._arrived: dict[tuple[str, str], int] = {}

    def send(self, sender: str, receiver: str, message: Any) -> None:
        """Deliver the message later, twice, or never."""
        self.tap(sender, receiver, message)
        self.sent += 1
        serial, rng, faults = self.sent, self._world.rng, self.faults
        way = (sender, receiver)
        if way in self.cuts:
            return
        kind, until_us = self.losing.get(way, ("", 0))
        if self._world.now_us < until_us and self.kind_of(message) == kind:
            self.marks[f"lost {kind}"] += 1
            return
        if way in self.held:
            self.held[way].append((message, serial))
            return
        if rng.random() < faults.drop:
            self.marks["drop"] += 1
            return
        copies = 2 if rng.random() < faults.duplicate else 1
        self.marks["duplicate"] += copies - 1
        slow = self._world.now_us < max(self.slow_until_us.get(sender, 0), self.slow_until_us.get(receiver, 0))
        for _ in range(copies):
            top = faults.slow_us_max if slow or rng.random() < faults.slow else faults.delay_us_max
            delay = rng.randint(faults.delay_us_min, top)
            self._world.after(delay, lambda: self._arrive(sender, receiver, message, serial))

    def _arrive(self, sender: str, receiver: str, message: Any, serial: int) -> None:
        way = (sender, receiver)
        if way in self.cuts:
            return
        latest = self._arrived.get(way, 0)
        self.marks["reorder"] += serial < latest
        self._arrived[way] = max(serial, latest)
        self.delivered += 1
        self._deliver(sender, receiver, message)

    def release(self, way: tuple[str, str]) -> None:
        """Free the way: the messages that waited there arrive now."""
        held = self.held.pop(way, [])
        self.marks["clogged way"] += len(held) >= CLOGGED_MIN
        for message, serial in held:
            self._arrive(*way, message, serial)

    def isolate(self, node: str, others: list[str], *, inbound: bool = True, outbound: bool = True) -> None:
        """Cut `node` off, in one direction or both."""
        self.marks["partition" if inbound and outbound else "one-way cut"] += 1
        for other in others:
            if other != node:
                if inbound:
                    self.cuts.add((other, node))
                if outbound:
                    self.cuts.add((node, other))

    def rename(self, old: str, new: str) -> None:
        """Rename the server `old` to `new`; its cuts stay."""
        self.cuts |= {(new if s == old else s, new if r == old else r) for s, r in self.cuts if old in (s, r)}

    def heal(self) -> None:
        """Let every message arrive again, once, soon."""
        self.cuts.clear()
        self.slow_until_us.clear()
        self.losing.clear()
        for way in list(self.held):
            self._world.after(0, lambda way=way: self.release(way))  # type: ignore[misc]
        self.faults = Faults()
