"""Whole replicas (core, log, metadata, state machine, driver) on simulated disks, one network and one virtual clock.

Nothing here knows which faults a test needs: it offers crash, power loss, restart, cuts, flush, log GC and copies, and
checks what must always hold through `tests.harness.sim_verify`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.raft import AppendEntries, Message, RaftOptions, lease
from nyala.replica.raft_driver import DriverOptions, Environment, Files, Phase, Replica, no_replica_reply
from nyala.replica.server.tablets.opening import load_cmeta
from nyala.replica.types import (
    ZERO_OPID,
    Address,
    Code,
    Corruption,
    DataState,
    DiskFailure,
    Entry,
    HybridClock,
    Member,
    OpId,
    RaftConfig,
    Refused,
)
from nyala.replica.wal import Log, WalOptions, recovery
from tests.harness.sim_copy import SimCopies
from tests.harness.sim_disk import SimCrash, SimDisk
from tests.harness.sim_machine import CountingMachine
from tests.harness.sim_verify import Verifiers
from tests.harness.sim_world import FOR_GOOD_US, Faults, NodeClock, SimNetwork, World

TABLET = "tablet-1"
WAL_FOLDER = f"wals/{TABLET}"
TICK_US = 10_000
RAFT = RaftOptions(heartbeat_ticks=3, election_ticks_min=10, election_ticks_max=20)
WAL = WalOptions(segment_size_bytes_first=4 << 10, segment_size_bytes_max=16 << 10)
Flushed = Callable[[bool], None]
"""Called at the end of a flush, unless its process died, with whether the flush brought anything to the disk."""
DRIVER = DriverOptions(log_cache_bytes_max=2 << 10, log_retain_entries=8, log_retain_bytes_max=8 << 10)


class ProcessEnded(SimCrash):
    """The driver demanded the end of its process."""


class WatchedLog(Log):
    """The log; a test may let its queue have no room."""

    judge: Callable[[bool], bool] = staticmethod(bool)

    def has_room(self, size_bytes: int) -> bool:
        return self.judge(super().has_room(size_bytes))


class SimNode:
    """One server with one replica. Work of an earlier life never runs in a later one."""

    def __init__(self, cluster: SimCluster, uuid: str, skew_us: int) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.uuid = uuid
        self.disk = SimDisk()
        self.clock = NodeClock(cluster.world, skew_us)
        self._opened_at = ZERO_OPID
        self._leased = False
        self._torn_before = 0
        self.outage_until_us = 0
        """Until then its power may fail at any moment, and stays away."""
        self.life = 0
        self.up = False
        self.replica: Replica | None = None
        self.machine: Any = None
        self.log: Log | None = None
        self.cmeta: ConsensusMeta | None = None
        self._lane_free_us = {"heavy": 0, "meta": 0}
        self._heavy: list[Callable[[], None]] = []
        self._drain_scheduled = False
        self.paused_until_us = 0
        """Until then its process is stopped: nothing runs, nothing is lost, its clocks go on."""
        self.log_stuck_until_us = 0
        """Until then no sync of its log ends."""
        self.meta_stuck_until_us = 0
        """Until then nothing of its consensus metadata is written."""
        self._stuck_meta: list[Callable[[], None]] = []
        self.crowded_until_us = 0
        """Until then its log's queue has no room for entries of leaders."""
        self.refused_append = False
        """Whether it refused the last append with entries."""
        self._taking: Message | None = None
        self._hung_as_leader: bool | None = None
        """Whether it led when its log began to hang; None while the log does not."""
        self.fatal: Callable[[BaseException], None] = self._end
        """Called when the driver demands the end of its process."""
        self.hurt = False
        """Whether its disk may hold something else than was written: its replica may abstain, or fail."""
        self.struck = 0
        """How many writes of its disk went to a wrong place."""
        self._struck_before = 0
        self.failed = ""
        """The reason why its replica could not be opened."""
        self.gone = False
        """Whether its disk was lost, and its identity with it."""
        self.left = False
        """Whether, in the liveness phase, it is not healed yet while the others are."""
        self.hybrid_clock = HybridClock(self.clock)

    def create(self, config: RaftConfig) -> None:
        """Write the consensus metadata of a new tablet: from then on the replica exists."""
        ConsensusMeta.create(self.disk, TABLET, self.uuid, config)

    def start(self, *, campaign: bool = False) -> None:
        """Open what the disk holds, replay, join; it may die on the way, or be unable to."""
        try:
            self.begin(campaign)
        except SimCrash as crash:
            self.died(crash)
        except DiskFailure as error:
            self.died(ProcessEnded(str(error)))
        except Corruption as error:
            self.cannot_open(error)
        except Refused as error:
            if error.code is not Code.NO_SPACE:
                raise
            self.cluster.marks["start without room"] += 1
            self.crash(power=False)
            self.world.after(50_000, self._again)

    def begin(self, campaign: bool) -> None:
        """Do the start itself."""
        self.open()
        self.join(campaign=campaign)

    def cannot_open(self, error: Corruption) -> None:
        """Note that this replica has failed while its server lives. If the disk did what it should, that is a bug."""
        if not self.hurt:
            raise error
        self.failed = str(error)
        self.cluster.marks["replica failed at its start"] += 1
        for held in (self.log, self.machine):
            if held is not None:
                held.close()
        self.cluster.verify.down(self.uuid)
        self.replica = self.machine = self.log = None
        self.cmeta = None
        try:
            self.cmeta = load_cmeta(self.disk, TABLET)
        except DiskFailure as failure:
            self.died(ProcessEnded(str(failure)))

    @property
    def whole(self) -> bool:
        """Return whether its replica has all that was promised to it, as far as that can be known."""
        return self.exists() and not (self.hurt or self.failed or self.gone)

    def replace(self) -> None:
        """Replace a replica that has failed: its server gets another disk."""
        self.cluster.wipe(self, elsewhere=False)

    def join(self, *, campaign: bool = False) -> None:
        """Replay what `open` found, join, and tick from now on."""
        replica = self.replica
        assert replica is not None
        replica.bootstrap()
        if self.hurt and replica.withheld is None and self.struck == self._struck_before:
            self.hurt = False  # every byte was read, after whatever went wrong
            self.disk.heal()
        replica.start(campaign=campaign)
        self.do(lambda: None)
        self.world.after(self.world.rng.randint(1, TICK_US), self._mine(self.tick))

    def exists(self) -> bool:
        """Return whether the tablet ever was here."""
        return ConsensusMeta.exists(self.disk, TABLET)

    def open_machine(self, on_apply: Callable[[Entry], None]) -> Any:
        """Return the state machine as its last flush left it."""
        return CountingMachine(self.disk, TABLET, on_apply)

    def open(self) -> Replica:
        """Open what the disk holds; the replica is not bootstrapped yet."""
        self.up = True
        self.failed = ""
        self._struck_before = self.struck
        world, cluster = self.world, self.cluster
        self._lane_free_us = {"heavy": 0, "meta": 0}
        self._heavy = []
        self._drain_scheduled = False
        self.hybrid_clock = HybridClock(self.clock)
        self.cmeta = ConsensusMeta.load(self.disk, TABLET)
        self.machine = self.open_machine(lambda entry: cluster.verify.applied(self.uuid, entry, self.durable))
        self._opened_at = self.machine.flush_opid
        cluster.verify.reopened(self.uuid, self.cmeta, self.machine)
        if self.disk.exists(WAL_FOLDER) and self.disk.torn > self._torn_before:
            self._torn_before = self.disk.torn
            cluster.marks["torn tail"] += recovery.read_all(self.disk, WAL_FOLDER, TABLET)[1] is not None
        log, replay = WatchedLog.open(self.disk, WAL_FOLDER, TABLET, cluster.wal_options)
        log.judge = self._has_room  # type: ignore[attr-defined]
        self.log = log
        known_lost = replay.withheld if self.hurt and replay.withheld is not None else ZERO_OPID
        cluster.verify.log_found(self.uuid, self.log.last, self._opened_at, known_lost)
        if not self.hurt:
            cluster.verify.tail_found(self.uuid, replay.withheld)
        cluster.marks["replay"] += replay.last.index > self._opened_at.index
        self.replica = Replica(
            tablet_id=TABLET,
            uuid=self.uuid,
            files=Files(cmeta=self.cmeta, log=self.log, state_machine=self.machine),
            replay=replay,
            environment=Environment(
                hybrid_clock=self.hybrid_clock,
                rng=Random(world.rng.getrandbits(32)),
                post=self.post,
                timer=self,
                run_heavy=lambda function, done: self.run_lane("heavy", function, done),
                run_meta=lambda function, done: self.run_lane("meta", function, done),
                send=self.send,
                on_copy_needed=lambda tablet_id, need: cluster.tablet_copies.needed(self, need),
                on_fatal=lambda error: self.fatal(error),
                ticks_now=lambda: self.clock.monotonic_us() // TICK_US,
            ),
            raft_options=cluster.raft_options,
            options=cluster.driver_options,
        )
        return self.replica

    @property
    def durable(self) -> OpId:
        """Return the end of the durable log: with what log GC removed, if a leader's entries are to replace all that is
        left of it."""
        if self.log is None:
            return ZERO_OPID
        segments = self.log.segments()
        below = self.cluster.verify.history.get(segments[0].first_index - 1) if segments else None
        return self.log.last if self.log.last != ZERO_OPID or below is None else below.opid

    def _mine(self, function: Callable[[], None]) -> Callable[[], None]:
        """Return `function`, limited to the life that asked for it."""
        life = self.life

        def run() -> None:
            if self.paused:
                self.world.at(self.paused_until_us, run)
            elif self.up and self.life == life:
                self.do(function)

        return run

    @property
    def paused(self) -> bool:
        return self.world.now_us < self.paused_until_us

    def do(self, function: Callable[[], None]) -> None:
        """Run one step of this server; a crash point that fires ends its life here."""
        try:
            function()
            if self.replica is not None:
                self.cluster.verify.looked_at(self.replica)
            self._schedule_drain()
        except SimCrash as crash:
            self.died(crash)

    def died(self, crash: SimCrash) -> None:
        """Die at a crash point, by kill or by power; between a write and its sync, mostly by power."""
        if isinstance(crash, ProcessEnded):
            self.cluster.marks["process ended by its disk"] += 1
            self.crash(power=False)
            self.world.after(self.world.rng.randint(1_000, 60_000), self._again)
            return
        power = bool(self.world.rng.randint(0, 7 if str(crash).startswith("datasync") else 1)) or self.in_outage
        self.cluster.marks["crash point"] += 1
        self.cluster.marks["power loss" if power else "crash"] += 1
        self.crash(power=power)

    def _again(self) -> None:
        """Start it again, as its supervisor does."""
        if self.in_outage:
            self.world.at(self.outage_until_us, self._again)
        elif not self.up and not self.gone:
            self.start()

    def now_us(self) -> int:
        return self.world.now_us

    def after(self, delay_us: int, function: Callable[[], None]) -> None:
        self.world.after(delay_us + self.world.rng.randint(0, 50), self._mine(function))

    def post(self, function: Callable[[], None]) -> None:
        self.world.after(self.world.rng.randint(0, 50), self._mine(function))

    def run_lane(self, lane: str, function: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run work on a thread that does one thing at a time; mostly fast, sometimes held up."""
        rng = self.world.rng
        cost = rng.randint(20, 400) if rng.random() < 0.98 else rng.randint(1_000, 60_000)
        at = max(self.world.now_us, self._lane_free_us[lane]) + cost
        self._lane_free_us[lane] = at

        def work() -> None:
            try:
                result = function()
            except AssertionError:
                raise  # a verifier spoke: no owner is to decide about that
            except Exception as error:  # noqa: BLE001 - as lanes do: the owner decides
                result = error
            self.post(lambda: done(result))

        if lane == "meta":
            self.world.at(at, self._mine(lambda: self._write_meta(work)))
        else:
            self._heavy.append(work)
            self.world.at(at, self._mine(lambda: self._do_heavy(work)))

    def _do_heavy(self, work: Callable[[], None]) -> None:
        if work in self._heavy:  # else it was done when the replica stopped
            self._heavy.remove(work)
            work()

    def drain_heavy(self) -> None:
        """Do what a replica that stops has given its heavy lane, before its files are closed."""
        for work in list(self._heavy):
            self._do_heavy(work)

    def hang_meta(self, until_us: int) -> None:
        """Let its consensus metadata hang: a write of it neither ends nor fails."""
        self.meta_stuck_until_us = max(self.meta_stuck_until_us, until_us)
        if until_us < FOR_GOOD_US:
            self.world.at(until_us, self._mine(self._meta_goes_on))

    @property
    def meta_waits(self) -> bool:
        """Return whether something is to be written into consensus metadata that hangs."""
        return bool(self._stuck_meta)

    def _write_meta(self, work: Callable[[], None]) -> None:
        if not self._stuck_meta and self.world.now_us >= self.meta_stuck_until_us:
            work()
            return
        self.cluster.marks["hung metadata"] += not self._stuck_meta
        self._stuck_meta.append(work)

    def _meta_goes_on(self) -> None:
        if self.world.now_us >= self.meta_stuck_until_us:
            self.drain_meta()

    def drain_meta(self) -> None:
        """Do what the thread for consensus metadata does, whatever state its disk is in."""
        while self._stuck_meta:
            self._stuck_meta.pop(0)()

    def _schedule_drain(self) -> None:
        if self.up and self.log is not None and not self._drain_scheduled and self.log.queued_bytes:
            self._drain_scheduled = True
            rng = self.world.rng
            delay = rng.randint(50, 500) if rng.random() < 0.98 else rng.randint(1_000, 40_000)
            self.world.at(max(self.world.now_us + delay, self.log_stuck_until_us), self._mine(self._drain))

    def _drain(self) -> None:
        self._drain_scheduled = False
        if self.log_stuck_until_us < FOR_GOOD_US:
            self.drain()

    def drain(self) -> None:
        """Do what the log's thread does, whatever state its disk is in."""
        if self.log is not None:
            self.log.drain()

    def unjam(self) -> None:
        """Let its log and its metadata go on at once, with room."""
        self.crowded_until_us = self.meta_stuck_until_us = 0
        if self.up and self._stuck_meta:
            self.post(self.drain_meta)
        if self.log_stuck_until_us > self.world.now_us:
            self.log_stuck_until_us = 0
            if self.up:
                self.post(self._drain)

    def _has_room(self, room: bool) -> bool:
        if isinstance(self._taking, AppendEntries):
            room = room and self.world.now_us >= self.crowded_until_us
            self.refused_append = not room
            self.cluster.marks["append refused"] += not room
        return room

    def tick(self) -> None:
        self.world.after(TICK_US, self._mine(self.tick))
        if self.replica is not None:
            self.replica.tick()
            self._watch_lease(self.replica)
            self._watch_log(self.replica)

    def _watch_lease(self, replica: Replica) -> None:
        """Count the leases that end, by a pause, silence, a transfer, or the end of the leader."""
        if replica.is_leader and lease.holds(replica._executor.core._s):
            self._leased = True
        elif self._leased:
            self._leased = False
            self.cluster.marks["lease loss"] += 1

    def _watch_log(self, replica: Replica) -> None:
        """Count the logs that hang, and the leaders among them that let another lead."""
        hangs = replica._executor.persister.hangs
        if self._hung_as_leader and not replica.is_leader:
            self._hung_as_leader = False
            self.cluster.marks["hung leader gone"] += 1
        elif hangs and self._hung_as_leader is None:
            self._hung_as_leader = replica.is_leader
            self.cluster.marks["hung log"] += 1
        elif not hangs:
            self._hung_as_leader = None

    def send(self, messages: list[tuple[str, Message]]) -> None:
        for _, message in messages:
            self.cluster.network.send(self.uuid, message.to_uuid, message)

    def receive(self, message: Message) -> None:
        if self.paused:
            self.world.at(self.paused_until_us, lambda: self.receive(message))
        elif self.up and self.replica is not None:
            replica, self._taking = self.replica, message
            self.do(lambda: self._admit(replica.step(message), message))
            self._taking = None
        else:
            self.do(lambda: self.receive_absent(message))

    def _admit(self, refusal: str, message: Message) -> None:
        """Check a refusal. All servers here are honest: a refusal shows a bug, of the sender or of the refusal, or a
        wild clock."""
        if message.from_uuid == self.uuid:
            return  # its own answer: it stands where one was lost, to whom it has something to say as a leader
        if refusal and "ahead of the clock" not in refusal and not self.cluster.liars:
            raise AssertionError(f"{self.uuid} refused {message}: {refusal}")

    def receive_absent(self, message: Message) -> None:
        """Receive a message while no replica runs here. A server that is down does nothing."""
        if not self.exists():
            reply = no_replica_reply(message, uuid=self.uuid, data_state=DataState.DOES_NOT_EXIST)
            if reply is not None:
                self.cluster.network.send(self.uuid, reply.to_uuid, reply)
        elif self.up and self.failed:
            self.answer_failed(message)

    def answer_failed(self, message: Message) -> None:
        """Answer as a server does for a replica that it could not open."""
        term = self.cmeta.term if self.cmeta is not None else 0
        reply = no_replica_reply(message, uuid=self.uuid, data_state=DataState.READY, own_term=term, failed=True)
        if reply is not None:
            self.cluster.network.send(self.uuid, reply.to_uuid, reply)

    def _end(self, error: BaseException) -> None:
        if not isinstance(error, DiskFailure) or not any(kind == "EIO" for _, kind in self.disk.fired):
            raise AssertionError(f"{self.uuid} had to end its process: {error!r}") from error
        raise ProcessEnded(str(error))

    @property
    def in_outage(self) -> bool:
        return self.world.now_us < self.outage_until_us

    @property
    def may_abstain(self) -> bool:
        """Return whether a fault of its disk keeps it, or may keep it once it is opened, from voting."""
        return self.hurt or bool(self.failed) or self.gone

    def crash(self, *, power: bool) -> None:
        """End the process by kill -9, or by a power loss: what was not synced may be gone."""
        self.up = False
        self.paused_until_us = self.log_stuck_until_us = self.crowded_until_us = self.meta_stuck_until_us = 0
        self._stuck_meta.clear()
        self.refused_append, self._hung_as_leader = False, None
        self.life += 1
        if self.replica is not None:
            self.cluster.verify.down(self.uuid)
        self.replica = self.machine = self.log = self.cmeta = None
        if power:
            self.disk.power_loss(self.world.rng)
        else:
            self.disk.restart()

    def flush_now(self) -> None:
        """Flush the state machine, while nothing else runs."""
        if self.machine is not None:
            try:
                self.machine.flush()
            except DiskFailure as error:
                self.fatal(error)

    def flush(self, done: Flushed = lambda moved: None) -> None:
        """Flush the state machine in the heavy lane, then collect log."""
        machine, replica = self.machine, self.replica
        if machine is None or replica is None:
            return
        before = machine.flush_opid

        def flushed(result: Any) -> None:
            if isinstance(result, DiskFailure):
                self.fatal(result)
            self.cluster.verify.flushed(self.uuid, machine.flush_opid, self.durable, self._opened_at)
            done(machine.flush_opid > before)
            self.collect(replica)

        self.run_lane("heavy", machine.flush, flushed)

    def collect(self, replica: Replica) -> None:
        """Delete log that is no longer needed; marked if there was any."""

        def collected(freed_bytes: Any) -> None:
            self.cluster.marks["log GC"] += isinstance(freed_bytes, int) and freed_bytes > 0

        replica.gc(collected)


class SimCluster:
    """Nodes `a`, `b`, `c`, ... of which the first `voters` form the group; the others are spare, down until added."""

    def __init__(
        self,
        seed: int,
        *,
        voters: int = 3,
        spares: int = 0,
        faults: Faults | None = None,
        raft_options: RaftOptions = RAFT,
        wal_options: WalOptions = WAL,
        driver_options: DriverOptions = DRIVER,
        skew_us_max: int = 50_000,
        node_class: type[SimNode] = SimNode,
        copies_class: Callable[[SimCluster, str], Any] = SimCopies,
    ) -> None:
        self.seed = seed
        self.world = World(seed)
        self.raft_options = raft_options
        self.wal_options = wal_options
        self.driver_options = driver_options
        self.verify = Verifiers()
        self.network = SimNetwork(self.world, faults or Faults(), self._deliver)
        self.network.tap = self.verify.sent
        self.liars = False
        """Whether some of the messages that arrive were made up by the test."""
        self.copies = 0
        self.tablet_copies = copies_class(self, TABLET)
        self.marks: Counter[str] = Counter()
        """The marks of this history."""
        names = [chr(ord("a") + pos) for pos in range(voters + spares)]
        skew = self.world.rng.randint
        self.nodes = {name: node_class(self, name, skew(-skew_us_max, skew_us_max)) for name in names}
        self.gone: list[SimNode] = []
        """Servers that lost their disks, under their former names."""
        self.replacing = False
        """Whether one of them may still be a member that counts."""
        self._address: dict[str, str] = {name: name for name in names}
        self.initial = RaftConfig(OpId(0, 0), tuple(member(name) for name in names[:voters]))
        for name in names[:voters]:
            self.nodes[name].create(self.initial)

    @property
    def names(self) -> list[str]:
        return list(self.nodes)

    @property
    def everybody(self) -> list[SimNode]:
        """Return every server that exists or existed."""
        return [*self.nodes.values(), *self.gone]

    def wipe(self, node: SimNode, *, elsewhere: bool) -> SimNode:
        """Remove the server's disk for ever; it comes back blank under a new uuid, at its address or `elsewhere`."""
        node.crash(power=False)
        node.gone = True
        node.disk.close()
        self.gone.append(node)
        self.replacing = True
        del self.nodes[node.uuid]
        home = self._address[node.uuid]
        name = f"{home[0]}{len(self.gone)}"
        self._address[name] = name if elsewhere else home
        skew = node.clock.skew_us
        self.nodes[name] = type(node)(self, name, skew)
        self.network.rename(node.uuid, name)
        self.marks["wipe"] += 1
        return self.nodes[name]

    def at(self, uuid: str) -> SimNode | None:
        """Return the server at the address at which `uuid` was last known to be, whatever its uuid is now."""
        node = self.nodes.get(uuid)
        home = self._address.get(uuid)
        return node or next((n for n in self.nodes.values() if self._address[n.uuid] == home), None)

    @property
    def replicas(self) -> list[Replica]:
        """Return the replicas of the servers that are up, in order of name."""
        return [n.replica for n in self.nodes.values() if n.up and n.replica is not None]

    def start(self, *, hinted: str | None = None) -> None:
        """Boot every node that exists."""
        for name, node in self.nodes.items():
            if node.exists():
                node.start(campaign=name == hinted)

    def leader(self) -> Replica | None:
        """Return the leader of the highest term, of those that are to be healed."""
        leaders = [r for r in self.replicas if r.is_leader and r.phase is Phase.RUNNING and not self.nodes[r.uuid].left]
        return max(leaders, key=lambda r: r.term, default=None)

    def close(self) -> None:
        """End every process, and release the resources of the machine under the simulation."""
        for node in self.nodes.values():
            with suppress(AssertionError):  # what a piece of side work still had to say
                node.crash(power=False)
        for node in self.everybody:
            node.disk.close()

    def run_for(self, duration_us: int) -> None:
        self.world.run(self.world.now_us + duration_us)

    def run_until(self, done: Callable[[], bool], what: str, within_us: int = 20_000_000) -> None:
        """Run until `done()`; AssertionError reports that `what` never came, with the status of every server."""
        if not self.world.run(self.world.now_us + within_us, done):
            status = "\n".join(
                f"{r.uuid} {r.phase} {r.role} term={r.term} last={r.last_logged} applied={r.applied_index} {r.error}"
                for r in self.replicas
            )
            raise AssertionError(f"not within {within_us} us: {what}\n{status}")

    def _deliver(self, sender: str, receiver: str, message: Message) -> None:
        node = self.at(receiver)
        if node is not None:
            self.marks["meant for another"] += node.uuid != receiver
            node.receive(message)


def member(name: str, **marks: bool) -> Member:
    """Return a member whose uuid is its node's name."""
    return Member(name, (Address(name, 7050),), **marks)
