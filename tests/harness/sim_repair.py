"""The actions of operators and masters on servers of a simulated cluster: scrub, delete and copy again, wipe, replace.

They go on in the liveness phase: a group with a sound majority must heal.
"""

from __future__ import annotations

from nyala.replica.policy import Advice, Health, Need, TabletView, advise
from nyala.replica.raft_driver import Phase, Replica
from nyala.replica.types import ConfigEdit, EditKind, Refused
from tests.harness.sim_cluster import TABLET, SimCluster, SimNode, member
from tests.harness.sim_media import sound

TURN_US = 20_000
SCRUB_AFTER_US = 200_000


class Repairs:
    """Checks every server now and then."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.hurried = False
        """Whether nothing is waited for, as in the liveness phase."""
        self._seen_us: dict[str, int] = {}
        self._wanted = 0

    def begin(self) -> None:
        self.cluster.world.after(TURN_US, self._turn)

    @property
    def done(self) -> bool:
        """Return whether every member is whole, and every server that was lost is replaced."""
        leader = self.cluster.leader()
        if leader is None or leader.active_config != leader.committed_config or self._lost(leader):
            return False
        members = [n for n in self.cluster.nodes.values() if leader.active_config.member(n.uuid) is not None]
        return all(n.up and n.whole and not self._has_failed(n) for n in members)

    def wipe_one(self) -> None:
        """Remove a server's disk; it comes back with another identity, mostly at its old address."""
        rng = self.cluster.world.rng
        node = rng.choice(list(self.cluster.nodes.values()))
        if node.whole and sound(self.cluster, but=node):
            self.cluster.wipe(node, elsewhere=rng.random() < 0.3)

    def _turn(self) -> None:
        self.begin()
        for node in list(self.cluster.nodes.values()):
            self._look_at(node)
        leader = self.cluster.leader()
        if leader is not None and not self.cluster.nodes[leader.uuid].paused and self._lost(leader):
            self._replace(leader)
        elif self.cluster.replacing and sound(self.cluster):
            self.cluster.replacing = False

    def _has_failed(self, node: SimNode) -> bool:
        return bool(node.failed) or (node.replica is not None and node.replica.phase is Phase.FAILED)

    def _look_at(self, node: SimNode) -> None:
        world = self.cluster.world
        if not node.hurt or not node.up or node.paused:
            self._seen_us.pop(node.uuid, None)
            return
        since = self._seen_us.setdefault(node.uuid, world.now_us)
        patience = 0 if self.hurried else world.rng.randint(0, SCRUB_AFTER_US)
        if world.now_us - since < patience:
            return
        if self._has_failed(node):
            self._seen_us.pop(node.uuid, None)
            node.replace()
        elif node.replica is None or node.replica.withheld is not None:
            # A tombstone, or a log whose end is lost: its leader copies, or sends what is missing. To start it again
            # would end the copy, and show the same.
            self._seen_us.pop(node.uuid, None)
        elif world.now_us - since >= (0 if self.hurried else SCRUB_AFTER_US):
            self._seen_us.pop(node.uuid, None)
            node.crash(power=False)
            node.start()  # which reads every byte
            self.cluster.marks["scrub"] += 1

    # ---- the masters' part: members that are gone

    def _lost(self, leader: Replica) -> bool:
        return any(m.uuid not in self.cluster.nodes for m in leader.active_config.members)

    def _replace(self, leader: Replica) -> None:
        """Take the step that the production policy advises."""
        cluster, config = self.cluster, leader.committed_config
        view = TabletView(
            tablet_id=TABLET,
            table_id="t",
            replication_factor=len(cluster.initial.voters),
            config=config,
            leader_uuid=leader.uuid,
            pending=leader.active_config != config,
            health={m.uuid: self._health(m.uuid) for m in config.members},
        )
        advice = advise(view)
        edit = self._edit(advice, leader)
        if advice.need is Need.TRANSFER:
            cluster.nodes[leader.uuid].do(lambda: leader.transfer(advice.uuid, lambda result: None))
        elif edit is not None:

            def done(result: object) -> None:
                cluster.marks["replacement step"] += not isinstance(result, Refused)

            cluster.nodes[leader.uuid].do(lambda: leader.change_config([edit], config.opid, (0, 0), done))

    def _edit(self, advice: Advice, leader: Replica) -> ConfigEdit | None:
        if advice.need is Need.EVICT:
            return ConfigEdit(EditKind.REMOVE, member(advice.uuid))
        if advice.need is not Need.ADD:
            return None
        outside = [n for n in self.cluster.nodes.values() if leader.active_config.member(n.uuid) is None]
        fit = [n.uuid for n in outside if not n.hurt and not n.failed]
        if not fit:
            return None
        return ConfigEdit(EditKind.ADD, member(self.cluster.world.rng.choice(fit), votes=False, promote=True))

    def _health(self, uuid: str) -> Health:
        node = self.cluster.nodes.get(uuid)
        if node is None:
            return Health.FAILED
        running = node.up and not node.paused and node.replica is not None and node.replica.phase is Phase.RUNNING
        return Health.HEALTHY if running else Health.UNKNOWN
