"""Clients and faults for a simulated cluster, all drawn from its seed."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from random import Random
from typing import Any

from google_crc32c import value as crc

from nyala.replica.consensus_metadata import decode_config
from nyala.replica.raft_driver import Phase, Replica
from nyala.replica.types import Applied, ConfigEdit, EditKind, EntryKind, Refused
from nyala.replica.wal.reader import Survivors
from tests.harness import majority, sim_leaks
from tests.harness.sim_cluster import TABLET, WAL_FOLDER, SimCluster, SimNode, member
from tests.harness.sim_jams import Jams
from tests.harness.sim_media import WALS, fail, stray
from tests.harness.sim_media import count as count_disks
from tests.harness.sim_repair import Repairs
from tests.harness.sim_world import FOR_GOOD_US, Faults

MARKS = (
    *("drop", "duplicate", "reorder", "partition", "one-way cut", "crash", "power loss", "torn write", "outage"),
    *("crash point", "pause", "disk full", "metadata full", "slow disk", "slow network", "clock jump", "lease loss"),
    *("replay", "flush during faults", "log GC", "transfer", "config change", "promotion", "tablet copy"),
    *("read at once", "read waited", "read refused", "snapshot", "acknowledged", "unknown outcome"),
)
"""The marks that the histories of a run must come across, or they prove little."""


@dataclass
class Swarm:
    """The kinds of fault of one history. Periods in microseconds; 0: never."""

    faults: Faults
    crash_period_us: int = 0
    power: bool = True
    cut_period_us: int = 0
    flush_period_us: int = 0
    transfer_period_us: int = 0
    full_period_us: int = 0
    stall_period_us: int = 0
    change_period_us: int = 0
    pause_period_us: int = 0
    strand_period_us: int = 0
    jump_period_us: int = 0
    slow_network_period_us: int = 0
    eio_period_us: int = 0
    stray_period_us: int = 0
    wipe_period_us: int = 0
    crash_point: str = ""
    padding: int = 0
    """The bytes that make each write longer: writes of many sectors can be torn."""
    outage_period_us: int = 0
    """The period of power losses of all servers at once."""
    flap: bool = False
    """Whether a server that comes back may lose its power within moments: what it found was not yet durable."""
    hang_period_us: int = 0
    crowd_period_us: int = 0
    lose_period_us: int = 0
    clog_period_us: int = 0
    hang_meta_period_us: int = 0
    """The periods of these five jams (`sim_jams`)."""
    majority: float = majority.ODDS
    """The probability that a majority is healed before the others are."""

    @classmethod
    def draw(cls, cluster: SimCluster) -> Swarm:
        """Draw some kinds on, others off, so that each seed is a different sort of bad day."""
        rng, media = cluster.world.rng, Random(f"media/{cluster.world.seed}")

        def maybe(low_us: int, high_us: int, odds: float, rng: Random = rng) -> int:
            return rng.randint(low_us, high_us) if rng.random() < odds else 0

        faults = Faults(
            drop=rng.choice([0.0, 0.01, 0.1]),
            duplicate=rng.choice([0.0, 0.05]),
            slow=rng.choice([0.0, 0.02, 0.1]),
        )
        # Drawn apart, so that a history without one is what it is without this kind.
        apart, sort = Random(f"outage {cluster.seed}"), Random(f"sort {cluster.seed}")
        swarm = cls(
            faults=faults,
            crash_period_us=maybe(200_000, 900_000, 0.7),
            power=rng.random() < 0.7,
            cut_period_us=maybe(200_000, 900_000, 0.5),
            flush_period_us=maybe(100_000, 400_000, 0.6),
            transfer_period_us=maybe(200_000, 600_000, 0.3),
            full_period_us=maybe(200_000, 600_000, 0.3),
            stall_period_us=maybe(100_000, 400_000, 0.4),
            change_period_us=maybe(100_000, 300_000, 0.5),
            pause_period_us=maybe(200_000, 600_000, 0.5),
            strand_period_us=maybe(700_000, 1_000_000, 0.2),
            jump_period_us=maybe(200_000, 600_000, 0.3),
            slow_network_period_us=maybe(300_000, 700_000, 0.2),
            eio_period_us=maybe(100_000, 400_000, 0.3, media),
            stray_period_us=maybe(200_000, 500_000, 0.2, media),
            wipe_period_us=maybe(200_000, 600_000, 0.2, media),
            crash_point=rng.choice(["", "cmeta.before_flush", "cmeta.after_flush", "disk.before_rename_sync"]),
            padding=rng.choice([0, 0, 300, 2_000]),
            outage_period_us=apart.randint(300_000, 800_000) if apart.random() < 0.4 else 0,
        )
        draw = sort.random()
        if draw < 0.2:
            swarm.flap, swarm.power = True, True
            swarm.crash_period_us = sort.randint(60_000, 200_000)
            swarm.crash_point = sort.choice(["disk.before_rename_sync", "disk.before_rename_sync", "cmeta.after_flush"])
        elif draw < 0.35:
            # One rotten disk after the other, and elections meanwhile: whoever forgot something is asked about it.
            swarm.eio_period_us = swarm.wipe_period_us = 0
            swarm.stray_period_us = sort.randint(80_000, 150_000)
            swarm.crash_period_us = sort.randint(200_000, 300_000)
            swarm.cut_period_us = sort.randint(200_000, 350_000)
            swarm.crash_point = ""
        return swarm


class Workload:
    """Writes unique values at servers that may lead, reads through barriers, takes snapshots, and makes faults."""

    def __init__(self, cluster: SimCluster, swarm: Swarm, *, write_period_us: int = 8_000) -> None:
        self.cluster = cluster
        self.swarm = swarm
        self.write_period_us = write_period_us
        self.written = 0
        self.stopped = False
        self.repairs = Repairs(cluster)
        self.jams = Jams(self)
        self._flaps = Random(f"flaps {cluster.seed}")
        cluster.network.faults = swarm.faults

    def begin(self) -> None:
        """Schedule everything; `end` stops it."""
        self._every(self.write_period_us, self.write)
        self._every(25_000, self.read)
        self._every(60_000, self.snapshot)
        self._every(self.swarm.crash_period_us, self.crash)
        self._every(self.swarm.outage_period_us, self.outage)
        self._every(self.swarm.cut_period_us, self.cut)
        self._every(self.swarm.flush_period_us, self.flush)
        self._every(self.swarm.transfer_period_us, self.transfer)
        self._every(self.swarm.full_period_us, self.fill)
        self._every(self.swarm.stall_period_us, self.stall)
        self._every(self.swarm.change_period_us, self.change)
        self._every(self.swarm.pause_period_us, self.pause)
        self._every(self.swarm.strand_period_us, self.strand)
        self._every(self.swarm.jump_period_us, self.jump)
        self._every(self.swarm.slow_network_period_us, self.slow_network)
        self._every(self.swarm.eio_period_us, lambda: fail(self.cluster))
        self._every(self.swarm.stray_period_us, lambda: stray(self.cluster))
        self._every(self.swarm.wipe_period_us, self.repairs.wipe_one)
        self._every(self.swarm.hang_period_us, self.jams.hang)
        self._every(self.swarm.crowd_period_us, self.jams.crowd)
        self._every(self.swarm.lose_period_us, self.jams.lose)
        self._every(self.swarm.clog_period_us, self.jams.clog)
        self._every(self.swarm.hang_meta_period_us, self.jams.hang_meta)
        self.jams.begin()
        if self.swarm.eio_period_us or self.swarm.stray_period_us or self.swarm.wipe_period_us:
            self.repairs.begin()

    def end(self) -> None:
        """End all clients and faults."""
        self.stopped = self.repairs.hurried = True

    def heal(self) -> None:
        """Heal the network and boot every server that has data."""
        self.cluster.network.heal()
        for node in self.cluster.nodes.values():
            if node.left and node.paused:
                node.crash(power=False)  # stopped for good: it is not woken, but killed
            if node.left or self.swarm.hang_period_us or self.swarm.hang_meta_period_us:
                node.unjam()
            node.left = False
            node.crowded_until_us = 0
            node.disk.disarm()
            node.disk.heal()
            node.outage_until_us = 0
            node.log_stuck_until_us = node.meta_stuck_until_us = 0
            if not node.up and node.exists():
                node.start()

    def drained(self) -> bool:
        """Return after `end` whether no client waits for anything."""
        return True

    def last_write(self, leader: Replica, done: Any) -> None:
        """Make one more write, to show that the healed group accepts writes."""
        self.written += 1
        payload = b"the last value %d" % self.written

        def answered(result: Any) -> None:
            self.cluster.verify.answered(payload, result)
            done(result)

        self._do(leader, lambda: leader.write(EntryKind.WRITE, 1, b"", payload, crc(payload), answered))

    def at_end(self) -> None:
        """Check after convergence what this kind of workload checks beyond the verifiers."""

    def _every(self, period_us: int, function: Any) -> None:
        if not period_us:
            return
        world = self.cluster.world

        def again() -> None:
            if not self.stopped:
                function()
                world.after(world.rng.randint(period_us // 2, period_us * 3 // 2), again)

        world.after(world.rng.randint(0, period_us), again)

    def _somebody(self) -> Replica | None:
        """Return mostly a server that believes it leads, sometimes any."""
        up = [r for r in self.cluster.replicas if not self.cluster.nodes[r.uuid].paused]
        if not up:
            return None
        leaders = [r for r in up if r.is_leader]
        rng = self.cluster.world.rng
        return rng.choice(leaders if leaders and rng.random() < 0.9 else up)

    def _led_by(self) -> Replica | None:
        leader = self.cluster.leader()
        return None if leader is None or self.cluster.nodes[leader.uuid].paused else leader

    def _do(self, replica: Replica, function: Any) -> None:
        self.cluster.nodes[replica.uuid].do(function)

    def write(self) -> None:
        """Write one to four unique values at once."""
        replica = self._somebody()
        if replica is None:
            return
        for _ in range(self.cluster.world.rng.randint(1, 4)):
            self.written += 1
            payload = b"value-%d" % self.written + bytes(self.swarm.padding)

            def done(result: Any, payload: bytes = payload) -> None:
                self.cluster.marks["unknown outcome"] += (
                    isinstance(result, Refused) and result.applied is Applied.UNKNOWN
                )
                self.cluster.verify.answered(payload, result)

            self._do(replica, lambda p=payload, d=done: replica.write(EntryKind.WRITE, 1, b"", p, crc(p), d))

    def read(self, replica: Replica | None = None) -> None:
        """Read strongly; the read must see what was acknowledged before it began."""
        replica = replica or self._somebody()
        if replica is None:
            return
        begun_with, begun_us = self.cluster.verify.newest_acknowledged(), self.cluster.world.now_us

        def done(result: Any) -> None:
            if isinstance(result, Refused):
                self.cluster.marks["read refused"] += 1
                return
            # Less time than a message and its answer need: the lease answered.
            at_once = self.cluster.world.now_us - begun_us < 2 * self.swarm.faults.delay_us_min
            self.cluster.marks["read at once" if at_once else "read waited"] += 1
            self.cluster.verify.read_served(replica, begun_with)

        self._do(replica, lambda: replica.read_barrier(done))

    def snapshot(self) -> None:
        """Take a snapshot at this server's present, which must be the same for ever."""
        replica = self._somebody()
        if replica is None:
            return
        time = self.cluster.nodes[replica.uuid].hybrid_clock.now()

        def done(result: Any) -> None:
            if not isinstance(result, Refused):
                self.cluster.verify.snapshot_served(replica, time)

        self._do(replica, lambda: replica.wait_safe(time, done))

    def crash(self) -> None:
        """Stop one server, by kill, power or crash point; it comes back."""
        world, nodes = self.cluster.world, list(self.cluster.nodes.values())
        down = [n for n in nodes if not n.up and n.life]
        for node in down:
            if world.rng.random() < 0.5:
                self.boot(node)
        up = [n for n in nodes if n.up]
        if not up or (len(down) >= len(nodes) // 2 and world.rng.random() < 0.7):
            return
        node = world.rng.choice(up)
        draw = world.rng.random()
        if self.swarm.crash_point and draw < 0.4:
            node.disk.arm(self.swarm.crash_point, world.rng.randint(1, 2))
        elif draw > 0.6:
            # Written, and not synced yet.
            node.disk.fail_on("datasync", f"{WAL_FOLDER}/*", "CRASH", skip=world.rng.randint(0, 3))
        else:
            power = self.swarm.power and world.rng.random() < 0.8
            node.crash(power=power)
            self.cluster.marks["power loss" if power else "crash"] += 1
        world.after(world.rng.randint(1_000, 400_000), lambda: self.boot(node))

    def boot(self, node: SimNode) -> None:
        """Start it again; at times it dies at its next promise."""
        if node.up or node.gone or self.stopped or node.in_outage:
            return
        if self.swarm.crash_point and self.cluster.world.rng.random() < 0.5:
            node.disk.arm(self.swarm.crash_point, self.cluster.world.rng.randint(1, 2))
        node.start()
        if self.swarm.flap and self._flaps.random() < 0.5:
            life = node.life
            self.cluster.world.after(self._flaps.randint(5_000, 150_000), lambda: self._flap(node, life))

    def _flap(self, node: SimNode, life: int) -> None:
        """Cut the power of a server that came back a moment ago."""
        if self.stopped or not node.up or node.life != life or node.gone:
            return
        node.crash(power=True)
        self.cluster.marks["power loss"] += 1
        self.cluster.world.after(self._flaps.randint(1_000, 60_000), lambda: self.boot(node))

    def outage(self) -> None:
        """Cut the power of all servers, or of all but one; most of them have just written, and not synced yet."""
        world, marks = self.cluster.world, self.cluster.marks
        struck = [n for n in self.cluster.nodes.values() if n.life or n.up]
        if len(struck) > 2 and world.rng.random() < 0.2:
            struck.remove(world.rng.choice(struck))
        torn_before = [n.disk.torn for n in struck]
        for node in struck:
            node.outage_until_us = world.now_us + 20_000
            if node.up:
                node.disk.fail_on("datasync", f"{WAL_FOLDER}/*", "CRASH", skip=world.rng.randint(0, 1))

        def dark() -> None:
            if self.stopped:
                return
            for node in struck:
                node.disk.forget("CRASH")
                if node.up:
                    node.crash(power=True)
                world.after(world.rng.randint(1_000, 300_000), lambda node=node: self.boot(node))
            marks["outage"] += 1
            marks["torn outage"] += sum(n.disk.torn > t for n, t in zip(struck, torn_before, strict=True)) > 1

        world.after(20_000, dark)

    def cut(self) -> None:
        """Isolate one server, one way or both, or heal."""
        network, rng = self.cluster.network, self.cluster.world.rng
        if network.cuts:
            network.cuts.clear()
            return
        kind = rng.randint(0, 2)
        network.isolate(rng.choice(self.cluster.names), self.cluster.names, inbound=kind != 1, outbound=kind != 2)

    def flush(self) -> None:
        """Flush one replica and collect its log."""
        up = [n for n in self.cluster.nodes.values() if n.up]
        if up:
            node = self.cluster.world.rng.choice(up)
            trouble = network_trouble(self.cluster) or len(up) < len(self.cluster.nodes)

            def done(moved: bool) -> None:
                self.cluster.marks["flush during faults" if trouble else "flush"] += moved

            node.do(lambda: node.flush(done))

    def fill(self) -> None:
        """Leave one server's log, or its metadata, or both without room for a few writes."""
        rng = self.cluster.world.rng
        node, kind = rng.choice(list(self.cluster.nodes.values())), rng.randint(0, 2)
        if kind != 1:
            node.disk.fail_on("pwrite", f"{WAL_FOLDER}/*", "ENOSPC", times=rng.randint(1, 4))
        if kind != 0:
            for folder in ("consensus-meta", "tablet-meta"):
                node.disk.fail_on("replace", f"{folder}/*", "ENOSPC", times=rng.randint(1, 4))

    def stall(self) -> None:
        """Slow one server's log down: its syncs take long, while everything else goes on, and it is flushed then."""
        world = self.cluster.world
        up = [n for n in self.cluster.nodes.values() if n.up]
        if not up:
            return
        node = world.rng.choice(up)
        node.log_stuck_until_us = world.now_us + world.rng.randint(10_000, 300_000)
        world.at(node.log_stuck_until_us - 1_000, lambda: node.do(node.flush) if node.up and not node.paused else None)
        self.cluster.marks["slow disk"] += 1

    def jump(self) -> None:
        """Set one server's wall clock, a little or a lot off; its monotonic clock goes on."""
        rng = self.cluster.world.rng
        node = rng.choice(list(self.cluster.nodes.values()))
        far = rng.choice([1_000, 100_000, 3_000_000, 12_000_000])
        node.clock.jump(rng.randint(-far, far))
        self.cluster.marks["clock jump"] += 1

    def slow_network(self) -> None:
        """Let every message from and to one server take long for a while."""
        world, network = self.cluster.world, self.cluster.network
        network.slow_until_us[world.rng.choice(self.cluster.names)] = world.now_us + world.rng.randint(50_000, 400_000)
        self.cluster.marks["slow network"] += 1

    def change(self) -> None:
        """Add a server that is to be promoted, or remove one if there are enough."""
        leader = self._led_by()
        if leader is None:
            return
        config, rng = leader.committed_config, self.cluster.world.rng
        outside = [name for name in self.cluster.names if config.member(name) is None]
        if len(config.voters) > 3 or (outside == [] and len(config.members) > len(config.voters)):
            # Never down to two voters, of which none can do anything while the other is away.
            some = [m.uuid for m in config.members if len(config.voters) > 3 or not m.votes]
            edit = ConfigEdit(EditKind.REMOVE, member(rng.choice(some)))
        elif outside:
            edit = ConfigEdit(EditKind.ADD, member(rng.choice(outside), votes=False, promote=True))
        else:
            return

        def done(result: Any) -> None:
            if not isinstance(result, Refused):
                self.cluster.marks["config change"] += 1

        self._do(leader, lambda: leader.change_config([edit], config.opid, (0, 0), done))

    def pause(self) -> None:
        """Stop a process, mostly a leader's, and let it go on; its first act then is to answer a read."""
        replica = self._somebody()
        if replica is None:
            return
        node, world = self.cluster.nodes[replica.uuid], self.cluster.world
        node.paused_until_us = world.now_us + world.rng.randint(5_000, 600_000)
        life = node.life
        self.cluster.marks["pause"] += 1

        def read_first() -> None:
            if node.up and node.life == life and node.replica is replica:
                self.read(replica)

        world.at(node.paused_until_us, read_first)

    def strand(self) -> None:
        """Let a follower fall behind its leader's log; the leader asks it to copy, is stopped, and wakes up deposed."""
        leader, world = self._led_by(), self.cluster.world
        if leader is None:
            return
        node, network = self.cluster.nodes[leader.uuid], self.cluster.network
        others = [m.uuid for m in leader.committed_config.members if m.uuid != leader.uuid]
        if not others:
            return
        left = world.rng.choice(others)
        network.isolate(left, self.cluster.names)
        self.cluster.marks["stranded"] += 1

        def back() -> None:
            if not self.stopped:
                network.cuts.clear()
            world.after(world.rng.randint(5_000, 60_000), stop)

        def stop() -> None:
            if node.up and not self.stopped:
                node.paused_until_us = world.now_us + world.rng.randint(300_000, 600_000)

        for delay_us in (100_000, 200_000, 300_000):
            world.after(delay_us, lambda: node.do(node.flush) if node.up and not node.paused else None)
        world.after(world.rng.randint(310_000, 400_000), back)

    def transfer(self) -> None:
        """Ask the leader to transfer leadership."""
        leader = self._led_by()
        if leader is not None:
            self._do(leader, lambda: leader.transfer(None, self._transferred))

    def _transferred(self, result: Any) -> None:
        self.cluster.marks["transfer"] += not isinstance(result, Refused)


def converge(cluster: SimCluster, workload: Workload) -> None:
    """Run phase two: a majority is healed alone if that is drawn, then all are; each time a leader, a fresh
    acknowledged write, equal replicas; then all verifiers."""
    workload.end()
    workload.heal()
    verify = cluster.verify
    if leave_some(cluster, workload):
        _proceed(cluster, workload, "the healed majority: ")
        _level(cluster, "the healed majority: ")
        cluster.marks["majority alone"] += 1
        workload.heal()
    _proceed(cluster, workload)
    cluster.run_until(workload.drained, "every client answered")
    cluster.run_until(lambda: workload.repairs.done, "every server whole, and every lost one replaced")
    _level(cluster)
    workload.at_end()
    here = list(cluster.nodes.values())
    cluster.run_until(lambda: all(sim_leaks.idle(n) for n in here), "V8: every caller answered, all work ended")
    cluster.world.now_us += sim_leaks.LATE_US
    for node in here:
        verify.looks["V8"] += sim_leaks.at_rest(node, TABLET)
    _count_marks(cluster)
    count_disks(cluster)


def leave_some(cluster: SimCluster, workload: Workload) -> bool:
    """Leave some servers unhealed in histories that draw it, of sound disks: all but a core with a quorum of every
    config that may be in force are dead, cut off, deaf, mute, stopped for good, or have a disk that fails."""
    rng, nodes = Random(f"majority {cluster.seed}"), cluster.nodes
    if rng.random() >= workload.swarm.majority or cluster.replacing or any(n.hurt or n.failed for n in nodes.values()):
        return False
    replicas = cluster.replicas
    stacks = [replica._executor.core._s.hard.configs for replica in replicas]
    if not stacks:
        return False
    configs = majority.in_force([stack[0] for stack in stacks], [c for stack in stacks for c in stack])
    able = {r.uuid for r in replicas if r.phase is not Phase.FAILED and r.withheld is None}
    core = majority.draw(rng, configs, able)
    members = {m.uuid for config in configs for m in config.members}
    for node in [nodes[uuid] for uuid in sorted(members - core) if core and uuid in nodes]:
        node.left = True
        loss = rng.choice(majority.LOSSES)
        _leave(cluster, node, workload.jams.leaves_hung(node) or loss, rng)
    return bool(core)


def _leave(cluster: SimCluster, node: SimNode, loss: str, rng: Random) -> None:
    if loss == "paused":
        node.paused_until_us = FOR_GOOD_US
    elif loss == "hung log":
        node.log_stuck_until_us = FOR_GOOD_US
    elif loss == "hung metadata":
        node.hang_meta(FOR_GOOD_US)
    elif loss in ("cut off", "deaf", "mute"):
        cluster.network.isolate(node.uuid, cluster.names, inbound=loss != "mute", outbound=loss != "deaf")
    elif loss == "disk" and rng.random() < 0.5:
        node.disk.fail_on("datasync", WALS, times=None)
    elif loss == "disk":
        for operation, pattern in (("pwrite", WALS), ("replace", "*-meta/*")):
            node.disk.fail_on(operation, pattern, "ENOSPC", times=None)
    else:
        node.crash(power=True)


def _proceed(cluster: SimCluster, workload: Workload, who: str = "") -> None:
    """Check that there is a leader, and a write that is acknowledged. A server whose disk fails may lead until it has
    to write."""

    def leading() -> Replica | None:
        leaders = [r for r in cluster.replicas if r.is_leader and not cluster.nodes[r.uuid].paused]
        return cluster.leader() if not who else max(leaders, key=lambda r: r.term, default=None)

    cluster.run_until(lambda: leading() is not None, f"{who}a leader")
    state: dict[str, Any] = {"asked": False, "done": False}

    def written() -> bool:
        leader = leading()
        life = leader and (leader.uuid, cluster.nodes[leader.uuid].life)
        if leader is not None and state["asked"] != life and not state["done"]:
            state["asked"] = life  # a server that was scrubbed since answers nobody

            def done(result: Any) -> None:
                state["asked"] = False
                state["done"] = state["done"] or not isinstance(result, Refused)

            workload.last_write(leader, done)
        return bool(state["done"])

    cluster.run_until(written, f"{who}an acknowledged write after healing")


def _level(cluster: SimCluster, who: str = "") -> None:
    """Check that all healed members hold the same; then run the verifiers."""
    verify = cluster.verify

    def here() -> list[SimNode]:
        # One whose disk would fail leads on if nothing is written: who the members are, it knows as well.
        leads = [r for r in cluster.replicas if r.is_leader]
        leader = max(leads, key=lambda r: r.term, default=None) if who else cluster.leader()
        members = {m.uuid for m in leader.active_config.members} if leader is not None else set()
        return [n for n in cluster.nodes.values() if n.uuid in members and not n.left]

    def level() -> bool:
        nodes = here()
        return bool(nodes) and all(
            n.up
            and n.replica is not None
            and n.replica.phase is Phase.RUNNING
            and n.machine is not None
            and n.machine.applied_opid.index == max(verify.history)
            for n in nodes
        )

    cluster.run_until(level, f"{who}all members level")
    digests = [n.machine.digest for n in here() if n.machine is not None]
    verify.looks["V6"] += len(digests)
    assert len(set(digests)) == 1, f"level replicas differ: {set(digests)}"
    for node in cluster.nodes.values():
        if node.log is not None and node.replica is not None and node.log.first_index and not node.left:
            on_disk = Survivors(node.log.read, node.log.first_index, node.log.last.index)
            verify.log_holds(node.uuid, on_disk, node.replica.commit_index)
    verify.configs_stand(cluster.initial)
    verify.writes_stand()
    verify.snapshots_stand()


def network_trouble(cluster: SimCluster) -> bool:
    """Return whether messages are being lost or cut off, or a process is stopped, at this moment."""
    network = cluster.network
    return bool(network.cuts or network.faults.drop or any(n.paused for n in cluster.nodes.values()))


def _count_marks(cluster: SimCluster) -> None:
    """Count the marks that are seen in what is left at the end."""
    marks, verify = cluster.marks, cluster.verify
    marks.update(cluster.network.marks)
    marks["torn write"] += sum(n.disk.torn for n in cluster.everybody)
    marks["tablet copy"] += cluster.copies
    for mark, operation in (("disk full", "pwrite"), ("metadata full", "replace")):
        marks[mark] += sum(n.disk.fired[operation, "ENOSPC"] for n in cluster.everybody)
    marks.update({f"{verifier} looked": count for verifier, count in verify.looks.items()})
    marks["snapshot"] += len(verify.snapshots)
    marks["acknowledged"] += len(verify.acknowledged)
    entries = [verify.history[index] for index in sorted(verify.history)]
    metas = [entry.meta for entry in entries if entry.kind is EntryKind.CONFIG]
    voters = [cluster.initial.voters, *(decode_config(meta).voters for meta in metas)]
    marks["promotion"] += sum(len(after) > len(before) for before, after in itertools.pairwise(voters))
