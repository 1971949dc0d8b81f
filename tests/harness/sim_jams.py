"""Jams: logs and metadata that hang, queues without room, ways that lose one type of message or hold all of them back.

All is drawn from a stream of its own, so that a history without jams is the same as if jams did not exist.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from nyala.replica.raft import AppendEntries, AppendReply, Role, TimeoutNow, VoteReply
from tests.harness.sim_cluster import WAL_FOLDER, SimNode

if TYPE_CHECKING:
    from tests.harness.sim_workload import Workload

LOST = ("appends", "acknowledgements", "heartbeats", "votes", "hand-overs")
"""Types of message; a way may lose all of one and none of the others."""


def kind_of(message: Any) -> str:
    """Return the type of a message, as `LOST` has it. An append without entries is a heartbeat."""
    if isinstance(message, AppendEntries):
        return "appends" if message.entries else "heartbeats"
    if isinstance(message, AppendReply):
        return "acknowledgements"
    return "hand-overs" if isinstance(message, TimeoutNow) else "votes"


def drawn(seed: int) -> dict[str, int]:
    """Return the periods of a history's jams, as options of a swarm: each kind on in two of three, at least one on."""
    rng = Random(f"jam {seed}")
    kinds = ("hang_period_us", "crowd_period_us", "lose_period_us", "clog_period_us")
    on = {kind for kind in kinds if rng.random() < 0.6} | {rng.choice(kinds)}
    periods = {kind: rng.randint(300_000, 1_000_000) for kind in kinds if kind in on}
    meta = Random(f"metadata {seed}")
    return periods | ({"hang_meta_period_us": meta.randint(200_000, 700_000)} if meta.random() < 0.5 else {})


class Jams:
    """The jams of one history: things that get stuck, without being lost or refused for good."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.cluster = workload.cluster
        self.world = workload.cluster.world
        self.rng = Random(f"jams {workload.cluster.seed}")
        self.meta_rng = Random(f"metadata jams {workload.cluster.seed}")

    def begin(self) -> None:
        """Watch servers that vote while they refuse appends; the verifiers record that."""
        tap = self.cluster.network.tap
        self.cluster.network.kind_of = kind_of

        def seen(sender: str, receiver: str, message: Any) -> None:
            tap(sender, receiver, message)
            if isinstance(message, VoteReply) and message.granted and not message.pre_vote:
                node = self.cluster.nodes.get(sender)
                self.cluster.marks["vote while refusing"] += node is not None and node.refused_append

        self.cluster.network.tap = seen

    def leaves_hung(self, node: SimNode) -> str:
        """Return the defect of a server that is left out of the healed majority, if it is a disk that hangs for good. A
        leader that is silent because of all that its disk holds up proves little, so in most histories that bound is
        far away. One whose metadata alone hangs leads on, as it should, because it no longer needs them."""
        leads = node.replica is not None and node.replica.is_leader
        follows = node.replica is None or node.replica._executor.core.role is Role.FOLLOWER
        if self.workload.swarm.hang_period_us > 0 and self.rng.random() < (0.9 if leads else 0.4):
            return "hung log"
        hangs = self.workload.swarm.hang_meta_period_us > 0 and self.meta_rng.random() < 0.3
        return "hung metadata" if hangs and follows else ""

    def hang(self) -> None:
        """Let a log's syncs neither end nor fail for up to some seconds, mostly a leader's; at times the process dies
        then: what it had written is on the disk or not."""
        node = self._node(leader_odds=0.6)
        if node is None:
            return
        life, lasts_us = node.life, self.rng.randint(300_000, 2_500_000)
        node.log_stuck_until_us = max(node.log_stuck_until_us, self.world.now_us + lasts_us)
        if self.rng.random() < 0.4:
            self.world.after(self.rng.randint(50_000, lasts_us), lambda: self._die(node, life))

    def _die(self, node: SimNode, life: int) -> None:
        if self.workload.stopped or not node.up or node.life != life or node.paused:
            return
        self.cluster.marks["died while its log hung"] += node.log is not None and node.log.queued_bytes > 0
        node.disk.fail_on("datasync", f"{WAL_FOLDER}/*", "CRASH")
        node.do(node.drain)  # written, and never synced
        node.disk.forget("CRASH")
        if node.up:
            node.crash(power=self.rng.random() < 0.5)
        self.world.after(self.rng.randint(1_000, 400_000), lambda: self.workload.boot(node))

    def hang_meta(self) -> None:
        """Let a write of consensus metadata neither end nor fail for up to some seconds, while the log goes on. Only
        terms, votes and configs are written there, so the leader is stopped or asked to transfer leadership meanwhile.
        At times the process dies then: what it would have written is on the disk or not."""
        rng = self.meta_rng
        up = [n for n in self.cluster.nodes.values() if n.up and not n.paused and n.replica is not None]
        if not up:
            return
        node = rng.choice(up)
        life, lasts_us = node.life, rng.randint(200_000, 2_000_000)
        node.hang_meta(self.world.now_us + lasts_us)
        leaders = [n for n in up if n.replica is not None and n.replica.is_leader]
        if leaders and rng.random() < 0.5:
            leaders[0].paused_until_us = self.world.now_us + rng.randint(150_000, 600_000)
        elif rng.random() < 0.7:
            self.world.after(
                rng.randint(1_000, 100_000), lambda: None if self.workload.stopped else self.workload.transfer()
            )
        if rng.random() < 0.4:
            self.world.after(rng.randint(50_000, lasts_us), lambda: self._die_at_meta(node, life))

    def _die_at_meta(self, node: SimNode, life: int) -> None:
        if self.workload.stopped or not node.up or node.life != life or node.paused:
            return
        self.cluster.marks["died while its metadata hung"] += node.meta_waits
        if node.meta_waits and self.meta_rng.random() < 0.5:
            node.disk.arm("disk.before_rename_sync")
            node.do(node.drain_meta)  # written, and not synced
        if node.up:
            node.crash(power=self.meta_rng.random() < 0.5)
        self.world.after(self.meta_rng.randint(1_000, 400_000), lambda: self.workload.boot(node))

    def crowd(self) -> None:
        """Leave a follower without room for entries for a while, though its disk is well; its leader is stopped
        meanwhile."""
        node, leader = self._node(leader_odds=0.0), self._node(leader_odds=1.0)
        if node is None or leader is None or node is leader:
            return
        lasts_us = self.rng.randint(300_000, 900_000)
        node.crowded_until_us = self.world.now_us + lasts_us

        def stop() -> None:
            if leader.up and not self.workload.stopped:
                leader.paused_until_us = self.world.now_us + self.rng.randint(200_000, 600_000)

        if self.rng.random() < 0.7:
            self.world.after(self.rng.randint(20_000, lasts_us // 2), stop)

    def lose(self) -> None:
        """Lose messages of one type from or to one server for a while, and no others."""
        kind = self.rng.choice(LOST)
        ways, until_us = self._ways(), self.world.now_us + self.rng.randint(100_000, 800_000)
        for way in ways:
            self.cluster.network.losing[way] = (kind, until_us)
        if kind == "hand-overs":
            for delay_us in (1_000, 60_000, 150_000, 300_000):
                self.world.after(delay_us, lambda: None if self.workload.stopped else self.workload.transfer())

    def clog(self) -> None:
        """Hold back what one server sends, or receives; all of it comes at once and in order when the way is free."""
        network = self.cluster.network
        ways = [way for way in self._ways() if way not in network.held]
        for way in ways:
            network.held[way] = []
            self.world.after(self.rng.randint(150_000, 1_500_000), lambda way=way: network.release(way))  # type: ignore[misc]

    def _ways(self) -> list[tuple[str, str]]:
        """Return the ways from one server, to it, or both; to all others, or to one of them."""
        names = self.cluster.names
        one, shape = self.rng.choice(names), self.rng.randint(0, 2)
        others = [name for name in names if name != one]
        if self.rng.random() < 0.4:
            others = [self.rng.choice(others)]
        ways = [(one, other) for other in others if shape != 0]
        return ways + [(other, one) for other in others if shape != 1]

    def _node(self, *, leader_odds: float) -> SimNode | None:
        """Return a server that runs: with these odds the leader's, otherwise one that does not lead."""
        up = [n for n in self.cluster.nodes.values() if n.up and not n.paused and n.replica is not None]
        leads = self.rng.random() < leader_odds
        fit = [n for n in up if n.replica is not None and n.replica.is_leader == leads]
        return self.rng.choice(fit) if fit else None
