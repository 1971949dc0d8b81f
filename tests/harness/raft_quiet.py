"""Histories of groups that go quiet: links between servers, whose pulses the same network loses, delays and cuts."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

from nyala.replica.raft import Message, RaftCore, Role
from nyala.replica.transport import PeerLiveness
from tests.harness.raft_net import Node
from tests.harness.raft_sim import SimNet

PULSE_TICKS = 4
CHECK_TICKS = 60
BUSY_TICKS, IDLE_TICKS = 15, 60
QUIET_MARKS = ("quiet leader", "quiet follower", "link lost", "link found", "woken by silence", "looked around")


class Pulse(NamedTuple):
    """A sign of life of one server's process."""

    from_uuid: str
    to_uuid: str
    process: int


class QuietNet(SimNet):
    """A SimNet with lulls in the load, whose cores may rest, and whose servers watch each other as servers do."""

    quiet_after_ticks = 4

    def __init__(self, seed: int, core_class: Callable[..., RaftCore] = RaftCore) -> None:
        self.liveness: dict[str, tuple[Node, int, PeerLiveness]] = {}
        super().__init__(seed, core_class)

    @property
    def load_odds(self) -> float:
        return 0.6 if self.clock % (BUSY_TICKS + IDLE_TICKS) < BUSY_TICKS else 0.0

    def _liveness_of(self, uuid: str) -> tuple[int, PeerLiveness]:
        """Return its process, which a restart replaces by another one, and what it knows of the others."""
        known = self.liveness.get(uuid)
        if known is None or known[0] is not self.nodes[uuid]:
            known = self.nodes[uuid], self.clock + 1, PeerLiveness(self.options.election_ticks_min)
            self.liveness[uuid] = known
        return known[1], known[2]

    def deliver(self, msg: Message | Pulse) -> None:
        uuid, sender = msg.to_uuid, msg.from_uuid
        if (sender, uuid) not in self.cuts and uuid in self.nodes:
            process = msg.process if isinstance(msg, Pulse) else self._process_of(sender)
            self._liveness_of(uuid)[1].heard(sender, process)
        if not isinstance(msg, Pulse):
            super().deliver(msg)

    def _process_of(self, uuid: str) -> int:
        return self.liveness[uuid][1] if uuid in self.liveness else 0

    def run_tick(self) -> None:
        for uuid in sorted(self.nodes):
            if self.paused.get(uuid, 0) <= self.clock and self.clock % PULSE_TICKS == 0:
                self._pulse(uuid)
        super().run_tick()
        for node in self.nodes.values():
            if node.core.quiet:
                self.marks["quiet leader" if node.core.role is Role.LEADER else "quiet follower"] += 1

    def _pulse(self, uuid: str) -> None:
        process, _ = self._liveness_of(uuid)
        for other in self.everyone():
            if other != uuid and (self.healed or self.rng.random() >= self.loss):
                self.order += 1
                late = 0 if self.healed or not self.delay else self.rng.randint(0, self.delay)
                heapq.heappush(self.due, (self.clock + 1 + late, self.order, Pulse(uuid, other, process)))

    def _tick(self, node: Node) -> None:
        _, liveness = self._liveness_of(node.uuid)
        liveness.watch(other for other in self.everyone() if other != node.uuid)
        for _ in range(min(2, node.clock - node.ticked)):
            for change in liveness.tick():
                self.marks["link found" if change.up else "link lost"] += 1
                rested = node.core.quiet
                if change.up:
                    node.core.server_heard(change.uuid)
                else:
                    node.core.server_silent(change.uuid, change.silent_ticks, self.rng.randint(0, 3))
                    self.marks["woken by silence"] += rested and not node.core.quiet
            if (self.clock + len(node.uuid)) % CHECK_TICKS == 0:
                self.marks["looked around"] += node.core.quiet
                node.core.probe_quiet_group()
            node.drain()
            node.core.tick(node.now)
            node.drain()
        node.ticked = node.clock
