"""Clients of a simulated cluster that write and read a few registers; their history is judged from outside.

Unlike the verifiers, which look into replicas, the history knows only what clients could know: when a call began, when
it ended, and its answer. A register is a key of what replicas apply, in the order in which they apply it.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any

from google_crc32c import value as crc

from nyala.replica.raft_driver import Replica
from nyala.replica.types import Applied, Code, EntryKind, Refused, limits
from nyala.replica.types.freshness import time_needed
from tests.harness.history import ABSENT, Call, History
from tests.harness.sim_cluster import SimCluster, SimNode

TIMEOUT_US = 400_000
"""The time after which a client gives a call up as lost; it may yet take effect."""
ROAD_US = (100, 3_000)
"""The delay between a client and a server, one way."""
STALENESS_US = (600_000, 900_000, 1_500_000)
"""The stalenesses of reads at any server; the day of a simulation lasts two seconds."""


class RegisterClients:
    """A few clients, one call each at a time, at servers that some server believes lead, now and then at others.

    A share of the reads may be stale: at any server, and no older than what the client has seen, which is sent along
    with each call as the product's clients send it.
    """

    def __init__(
        self, cluster: SimCluster, *, clients: int = 4, keys: int = 2, pause_us: int = 10_000, stale_share: float = 0.0
    ) -> None:
        self.acknowledged: list[tuple[int, int]] = []
        """(virtual time in us, index) of every write that was acknowledged to a client."""
        self.cluster = cluster
        self.history = History(lambda: cluster.world.now_us / 1e6)
        self.stopped = False
        self._clients = [f"client-{n}" for n in range(clients)]
        self._keys = [b"r%d" % n for n in range(keys)]
        self._pause_us = pause_us
        self._values = 0
        self._stale_share = stale_share
        self.stale_reads = 0
        self.seen = dict.fromkeys(self._clients, 0)
        """For each client the highest hybrid time that it received."""
        self._settled_to = 0
        self._written: dict[bytes, list[tuple[int, bytes]]] = {key: [] for key in self._keys}
        """For each key (index, value) in the order of the log."""

    def begin(self) -> None:
        """Start every client; `stopped` ends them."""
        for name in self._clients:
            self._later(name)

    def _later(self, name: str) -> None:
        world = self.cluster.world
        world.after(world.rng.randint(1, 2 * self._pause_us), lambda: None if self.stopped else self._call(name))

    def _call(self, name: str) -> None:
        """Make one call: it travels, waits if the server is stopped, is answered or lost, and the next one follows."""
        world, key = self.cluster.world, self.cluster.world.rng.choice(self._keys)
        write = world.rng.random() < 0.5
        stale = not write and self._stale_share and world.rng.random() < self._stale_share
        staleness_us = world.rng.choice(STALENESS_US) if stale else 0
        node = self._whom(0.0 if staleness_us else 0.9)
        if node is None:
            self._later(name)
            return
        if write:
            self._values += 1
            value = b"%d" % self._values
            call = self.history.write(name, key, value)
        else:
            value = b""
            call = self.history.read(name, key, staleness_us / 1e6)
        seen = self.seen[name]
        ended: list[bool] = []

        def end(how: Callable[[], None]) -> None:
            if not ended:
                ended.append(True)
                how()
                self._later(name)

        def arrived() -> None:
            if node.paused and world.now_us < node.paused_until_us - 1:
                # Its sockets have no order among each other: half of these are read ahead of all that peers have sent.
                world.at(node.paused_until_us - world.rng.randint(0, 1), arrived)
            elif node.up and node.replica is not None:
                replica = node.replica
                send = lambda how: self._travel(lambda: end(how))  # noqa: E731
                answer = self._answer(name, call, replica, key, write, send)
                if self._stale_share and not self._observe(node, seen):
                    send(call.refused)
                elif staleness_us:
                    node.do(lambda: self._read_stale(node, replica, staleness_us, seen, answer))
                elif write:
                    payload = key + b"=" + value
                    node.do(lambda: replica.write(EntryKind.WRITE, 1, b"", payload, crc(payload), answer))
                else:
                    node.do(lambda: replica.read_barrier(answer))

        world.after(TIMEOUT_US, lambda: end(call.unknown))
        self._travel(arrived)

    def _observe(self, node: SimNode, seen: int) -> bool:
        """Return whether the server accepts the caller's time, as `server.requests.scans` decides."""
        clock = node.hybrid_clock
        ahead = clock.ahead_of_wall_us(seen) > limits.CLOCK_AHEAD_OF_CALLERS_US_MAX
        if seen and ahead and clock.ahead_us(seen) > limits.CLOCK_DIFFERENCE_US_MAX:
            return False
        clock.observe(seen)
        return True

    def _read_stale(
        self, node: SimNode, replica: Replica, staleness_us: int, seen: int, answer: Callable[[Any], None]
    ) -> None:
        """Read as `server.requests.scans` does, without the wait for newer data."""
        clock = node.hybrid_clock
        if clock.ahead_of_wall_us() > limits.CLOCK_DIFFERENCE_US_MAX:
            replica.read_barrier(answer)
        elif replica.applied_time < (needed := time_needed(clock.now(), staleness_us, seen)):
            answer(Refused(Code.LAGGING, "older than asked for"))
        else:
            self.stale_reads += 1
            replica.wait_safe(needed, answer)

    def _whom(self, leading_share: float) -> SimNode | None:
        """Return mostly a server that believes that it leads: a client cannot know better. Any server for a stale
        read."""
        nodes, rng = [n for n in self.cluster.nodes.values() if n.up], self.cluster.world.rng
        leading = [n for n in nodes if n.replica is not None and n.replica.is_leader]
        choice = leading if leading and rng.random() < leading_share else nodes
        return rng.choice(choice) if choice else None

    def _travel(self, function: Callable[[], None]) -> None:
        self.cluster.world.after(self.cluster.world.rng.randint(*ROAD_US), function)

    def _answer(
        self,
        name: str,
        call: Call,
        replica: Replica,
        key: bytes,
        write: bool,
        send: Callable[[Callable[[], None]], None],
    ) -> Callable[[Any], None]:
        """Send the server's result to the client."""

        def done(result: Any) -> None:
            if isinstance(result, Refused):
                send(call.unknown if result.applied is Applied.UNKNOWN else call.refused)
            elif write:
                send(lambda: self._told(name, call, result))
            else:
                found, of_time = self._at(key, replica.applied_index), replica.applied_time
                send(lambda: self._read(name, call, found, of_time))

        return done

    def _told(self, name: str, call: Call, result: Any) -> None:
        call.returned()
        self.seen[name] = max(self.seen[name], self.cluster.verify.history[result.opid.index].hybrid_time)
        self.acknowledged.append((self.cluster.world.now_us, result.opid.index))

    def _read(self, name: str, call: Call, found: bytes | None, of_time: int) -> None:
        call.returned(found)
        self.seen[name] = max(self.seen[name], of_time)

    def _at(self, key: bytes, index: int) -> bytes | None:
        """Return the register after the entry at `index`: replicas equal each other there, which the verifiers
        check."""
        applied = self.cluster.verify.history
        while self._settled_to + 1 in applied:
            self._settled_to += 1
            name, equals, value = applied[self._settled_to].payload.partition(b"=")
            if equals and name in self._written:
                self._written[name].append((self._settled_to, value))
        written = self._written[key]
        pos = bisect.bisect_right(written, index, key=lambda item: item[0])
        return written[pos - 1][1] if pos else ABSENT
