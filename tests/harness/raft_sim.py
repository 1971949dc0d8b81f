"""One seed, one history: random faults on a group of cores, then a healed core that must make progress.

Phase 1 (safety) loses, doubles, delays and reorders messages, cuts ways in one or both directions, crashes, restarts
and pauses nodes, drops logs, changes members, transfers leadership, writes and reads. Phase 2 (liveness) heals, in a
quarter of the seeds, a drawn majority first, and then everything, and demands each time a leader, a committed write
and equal logs within a bounded number of ticks. Every choice is drawn from the seed; swarm testing: each seed also
draws which faults it uses and how often.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import replace

from nyala.replica.raft import RaftCore, Role, lease
from nyala.replica.raft.options import CLOCK_DRIFT_PERCENT
from nyala.replica.types import ConfigEdit, DataState, EditKind, Member, OpId, Refused, ReplicaError
from tests.harness import majority
from tests.harness.raft_days import bad_day
from tests.harness.raft_net import OPTIONS, Net, Node, config_of
from tests.harness.raft_verify import Violation

NAMES = "abcdefghijkl"
SAFETY_TICKS = 240
LIVENESS_TICKS = 400
MARKS = (
    *("drop", "duplicate", "reorder", "partition", "one-way cut", "pause", "power loss", "torn write", "torn tail"),
    *("woke leading", "lease loss", "healed", "truncated", "log GC", "evicted", "tablet copy", "config change"),
    *("promotion", "rolled back", "transfer", "two leaders", "read by lease", "read by a round", "read refused"),
    *("leader fell", "links frayed", "outnumbered", "majority alone"),
)
WITNESS_MARKS = ("witness votes", "witness whole", "lost voter demoted", "demoted voter restored", "witness left")
"""The stages of witnesses; a third of the seeds that are no bad day has any."""
PATIENT = replace(OPTIONS, heartbeat_ticks=2, election_ticks_min=12, election_ticks_max=24)
"""Options with time enough to elect a leader over slow disks and ways, and for a stale one to go on beside it."""


class SimNet(Net):
    """A Net whose messages take a drawn time, get lost and come twice."""

    quiet_after_ticks = 0

    def __init__(self, seed: int, core_class: Callable[..., RaftCore] = RaftCore) -> None:
        self.core_class = core_class
        self.due: list[tuple[int, int, object]] = []
        self.clock = 0
        self.order = 0
        self.delivered = 0
        self.leased: dict[str, int] = {}
        """Server -> the term in which it held a lease at its last tick."""
        rng = random.Random(f"swarm/{seed}")
        voters = rng.choice([1, 2, 3, 3, 3, 4, 5])
        options = replace(PATIENT, append_batch_bytes_min=rng.choice([0, 0, 200, 64 << 10]))
        self.day = day = bad_day(seed)
        learners = 0
        if day is not None:
            voters, learners = day.voters, day.learners
            options = replace(day.options, append_batch_bytes_min=options.append_batch_bytes_min)
        options = replace(options, quiet_after_ticks=self.quiet_after_ticks)
        super().__init__(config_of(NAMES[:voters], NAMES[voters : voters + learners]), seed=seed, options=options)
        self.fresh = voters + learners
        self.later: list[tuple[int, int, Callable[[], None]]] = []
        """The faults that this day still has, by the tick in which they happen."""
        self.paused: dict[str, int] = {}
        self.writes = 0
        self.healed = False
        self.majority = majority.ODDS
        """The probability that a majority is healed before the others are."""
        self.left: set[str] = set()
        """The servers that are not healed yet, while the others are."""
        self.loss = rng.choice([0, 0, 0.05, 0.25])
        self.double = rng.choice([0, 0, 0.1, 0.4])
        self.delay = rng.choice([0, 1, 2, 4])
        self.disk = rng.choice([1.0, 0.7, 0.3])
        self.odds = {
            "crash": rng.choice([0, 0.02, 0.06]),
            "cut": rng.choice([0, 0.03, 0.1]),
            "pause": rng.choice([0, 0, 0.03]),
            "config": rng.choice([0, 0.05, 0.15]),
            "transfer": rng.choice([0, 0, 0.05]),
            "compact": rng.choice([0, 0.1]),
            "campaign": rng.choice([0, 0, 0.04]),
            "evict": rng.choice([0, 0.1]),
            "witness": random.Random(f"witness/{seed}").choice([0, 0, 0.3]),
        }
        self.joining = 0.3
        """The share of the steps about witnesses that brings one its data."""
        self.leases = rng.random() < 0.7
        if rng.random() < 0.25:
            # Quiet but for leaders that are stopped, cut off or asked to hand over: what leases are about.
            self.loss, self.delay, self.disk, self.leases = 0, rng.choice([0, 1, 3]), 1.0, True
            self.odds.update(
                crash=rng.choice([0, 0.02]), cut=rng.choice([0, 0.03]), pause=0.04, transfer=0.03, campaign=0
            )
        self.lull_until = 0
        """Until then clients write nothing."""
        self.late_odds, self.late_ticks = 0.02, 15
        if day is not None:
            self.loss, self.double, self.delay, self.disk = 0, 0, day.delay, day.disk
            self.leases, self.late_odds, self.late_ticks = day.leases, day.late_odds, day.late_ticks
            self.odds.update({"witness": 0} | day.odds)
        spread = CLOCK_DRIFT_PERCENT / 2.1 / 100
        self.speed = {name: rng.uniform(1 - spread, 1 + spread) for name in NAMES}
        """How fast each server's clock runs."""

    def send(self, msg: object) -> None:
        self.verify.on_send(msg)  # type: ignore[arg-type]
        copies = 1
        if not self.healed:
            if self.rng.random() < self.loss:
                self.marks["drop"] += 1
                return
            copies += self.rng.random() < self.double
            self.marks["duplicate"] += copies - 1
        for _ in range(copies):
            late = 0 if self.healed or not self.delay else self.rng.randint(0, self.delay)
            if not self.healed and self.delay and self.rng.random() < self.late_odds:
                late += self.late_ticks
                self.marks["reorder"] += 1
            self.order += 1
            heapq.heappush(self.due, (self.clock + 1 + late, self.order, msg))

    def run_tick(self) -> None:
        """Run one tick: messages due, then time, then a bit of disk on every node."""
        self.clock += 1
        for uuid in sorted(self.nodes):
            node = self.nodes[uuid]
            node.clock = int(self.clock * self.speed[uuid])
            if self.paused.get(uuid) == self.clock and node.core.role is Role.LEADER:
                # The first thing that a stopped process does is to answer a read that waited in its socket.
                self.marks["woke leading"] += 1
                self._read(uuid)
        while self.due and self.due[0][0] <= self.clock:
            msg = heapq.heappop(self.due)[2]
            if self.paused.get(msg.to_uuid, 0) > self.clock:  # type: ignore[attr-defined]
                self.order += 1
                again = self.paused[msg.to_uuid] if self.healed else self.clock + 1  # type: ignore[attr-defined]
                heapq.heappush(self.due, (again, self.order, msg))
                continue
            self.delivered += 1
            self.deliver(msg)  # type: ignore[arg-type]
        for uuid in sorted(self.nodes):
            node = self.nodes[uuid]
            if self.paused.get(uuid, 0) > self.clock or uuid in self.copying:
                continue
            self._tick(node)
            if self.healed or self.rng.random() < self.disk:
                node.persist(None if self.healed else self.rng.randint(1, 4))
            self.verify.looks["ROWS"] += node.durable.no_data
            if node.durable.no_data and node.core.role is Role.LEADER:
                raise Violation("ROWS", f"{uuid} leads term {node.core.term} without rows")
        self.carry_out_copies()
        self.marks["two leaders"] += sum(n.core.role is Role.LEADER for n in self.nodes.values()) > 1

    def _tick(self, node: Node) -> None:
        """Let the time pass that its clock shows; after a pause, only one late tick is made up for."""
        for _ in range(min(2, node.clock - node.ticked)):
            node.core.tick(node.now)
            node.drain()
            if self.leases and (node.uuid in self.leased or node.core.role is Role.LEADER):
                self._watch_lease(node)
        node.ticked = node.clock

    def _watch_lease(self, node: Node) -> None:
        if lease.holds(node.core._s):
            self.leased[node.uuid] = node.core.term
        elif self.leased.pop(node.uuid, None) is not None:
            self.marks["lease loss"] += 1

    def carry_out_copies(self) -> None:
        """Carry StartTabletCopy out as the servers do: compare-and-set on the target's state, then COPYING for a
        while."""
        asked, self.copies = self.copies, []
        for source, target, state, last in asked:
            node = self.nodes.get(target)
            actual = DataState.DOES_NOT_EXIST if node is None else DataState.READY
            if target in self.copying or target in self.crashed or actual is not state:
                continue
            if node is not None and last != node.core.last:
                continue
            if self.copy(source, target):
                self.marks["tablet copy"] += 1
                self.nodes[target].drain()

    # -------------------------------------------------------------------------------------------------- faults

    def at(self, clock: int, function: Callable[[], None]) -> None:
        """Call the function in that tick, unless everything is healed by then."""
        self.order += 1
        heapq.heappush(self.later, (clock, self.order, function))

    def disturb(self) -> None:
        """Draw this tick's faults and load."""
        while self.later and self.later[0][0] <= self.clock:
            heapq.heappop(self.later)[2]()
        if self.day is not None:
            self.day.strike(self, self.day.rng)
        actions: list[tuple[str, Callable[[], None]]] = [
            ("crash", self._crash_or_restart),
            ("cut", self._cut_or_heal),
            ("pause", self._pause),
            ("config", self._change_config),
            ("transfer", self._transfer),
            ("compact", self._compact),
            ("campaign", self._campaign),
            ("evict", self._evict),
            ("witness", self._witness),
        ]
        for name, action in actions:
            if self.odds[name] and self.rng.random() < self.odds[name]:
                action()
        leaders = [n.uuid for n in self._up() if n.core.role is Role.LEADER]
        for uuid in leaders:
            if self.rng.random() < self.load_odds:
                self._load(uuid)

    @property
    def load_odds(self) -> float:
        """Return how often a leader gets a request."""
        return 0.6

    def _load(self, uuid: str) -> None:
        try:
            for _ in range(self.rng.randint(1, 3) if self.clock >= self.lull_until else 0):
                self.writes += 1
                self.write(uuid, b"w%d" % self.writes)
        except Refused:
            pass
        if self.rng.random() < 0.4:
            self._read(uuid)
        self.nodes[uuid].drain()

    def _read(self, uuid: str) -> None:
        node = self.nodes[uuid]
        token = self.read(uuid)
        node.drain()
        if len(node.core.active_config.voters) > 1:
            self.marks["read by lease"] += token not in node.reads and node.core.role is Role.LEADER

    def _up(self) -> list:  # type: ignore[type-arg]
        return [
            n for u, n in sorted(self.nodes.items()) if u not in self.copying and self.paused.get(u, 0) <= self.clock
        ]

    def _pick(self, *, leader_odds: float = 0.0) -> str | None:
        up = self._up()
        leaders = [n for n in up if n.core.role is Role.LEADER]
        if leaders and self.rng.random() < leader_odds:
            up = leaders
        return up[self.rng.randint(0, len(up) - 1)].uuid if up else None

    def _crash_or_restart(self) -> None:
        if self.crashed and self.rng.random() < 0.6:
            self.restart(sorted(self.crashed)[self.rng.randint(0, len(self.crashed) - 1)])
            return
        uuid = self._pick(leader_odds=0.5)
        if uuid is not None:
            node = self.nodes[uuid]
            applied = min(self.verify.applied.get(uuid, 0), node.durable_last.index)
            if self.rng.random() < 0.5 and not node.durable.no_data:
                node.durable.flushed = max(node.durable.flushed, self.rng.randint(0, applied))
            torn = self.rng.random() < 0.3
            self.crash(uuid, written=self.rng.randint(0, len(node.pending)), torn=torn)
            self.marks["power loss"] += 1
            self.marks["torn write"] += torn
            held = [d for d in [*self.crashed.values(), *(n.durable for n in self.nodes.values())] if d.withheld]
            # One damaged tail at a time, and a majority without one: more would be a loss that cannot be repaired.
            calm = not (self.odds["config"] or self.odds["witness"])
            if not held and calm and len(self.first_config.voters) >= 3 and self.rng.random() < 0.3:
                self.marks["torn tail"] += self.damage(uuid)

    def _cut_or_heal(self) -> None:
        if self.cuts and self.rng.random() < 0.6:
            self.heal()
            return
        uuid = self._pick(leader_odds=0.5)
        if uuid is None:
            return
        shape = self.rng.random()
        self.marks["partition" if shape < 0.7 else "one-way cut"] += 1
        for other in self.everyone():
            if other != uuid and (shape < 0.4 or self.rng.random() < 0.5):
                if shape < 0.7:
                    self.cut(uuid, other)
                else:
                    pair = (uuid, other) if self.rng.random() < 0.5 else (other, uuid)
                    self.cut(*pair, one_way=True)

    def _pause(self) -> None:
        uuid = self._pick(leader_odds=0.5)
        if uuid is not None:
            self.marks["pause"] += 1
            self.paused[uuid] = self.clock + self.rng.randint(3, 45)

    def _campaign(self) -> None:
        uuid = self._pick()
        if uuid is not None:
            self.nodes[uuid].core.campaign()
            self.nodes[uuid].drain()

    def _compact(self) -> None:
        uuid = self._pick()
        if uuid is not None:
            before = self.nodes[uuid].log.first_index
            self.compact(uuid, self.verify.applied.get(uuid, 0) - self.rng.randint(0, 8))
            self.marks["log GC"] += self.nodes[uuid].log.first_index > before

    def _evict(self) -> None:
        uuid = self._pick()
        if uuid is not None:
            node = self.nodes[uuid]
            self.marks["evicted"] += 1
            node.log.drop_loaded()
            # Only what is durable, and already applied, may leave memory.
            node.log.evict_below(min(node.core.persisted_index, self.verify.applied.get(uuid, 0)) + 1)

    def _transfer(self) -> None:
        leader, target = self.leader(), self._pick()
        if leader is not None and self.paused.get(leader.uuid, 0) <= self.clock:
            with contextlib.suppress(Refused):
                leader.core.transfer_leadership(target if self.rng.random() < 0.7 else None)
                self.marks["transfer"] += leader.core.transfer_target is not None
            leader.drain()

    def _change_config(self) -> None:
        leader = self.leader()
        if leader is None or self.paused.get(leader.uuid, 0) > self.clock:
            return
        config = leader.core.active_config
        members = [m.uuid for m in config.members]
        draw = self.rng.random()
        if draw < 0.45 and len(members) < 6 and self.fresh < len(NAMES):
            edit = ConfigEdit(EditKind.ADD, Member(NAMES[self.fresh], votes=False, promote=True))
        elif draw < 0.8 and len(members) > 1:
            edit = ConfigEdit(EditKind.REMOVE, Member(members[self.rng.randint(0, len(members) - 1)]))
        else:
            uuid = members[self.rng.randint(0, len(members) - 1)]
            member = config.member(uuid)
            assert member is not None
            edit = ConfigEdit(EditKind.CHANGE, Member(uuid, votes=not member.votes, promote=False))
        cas: OpId | None = leader.core.committed_config.opid if self.rng.random() < 0.8 else None
        try:
            leader.core.propose_config([edit], cas)
        except Refused:
            return
        self.marks["config change"] += 1
        if edit.kind is EditKind.ADD:
            self.fresh += 1
        leader.drain()

    # ----------------------------------------------------------------------------------------------- witnesses

    def copies_rows(self, source: str, target: str) -> bool:
        """Return the answer by the leader's config of the target."""
        member = self.nodes[source].core.active_config.member(target)
        return member is None or member.holds_data

    def _witness(self) -> None:
        """Bring data to a witness, or give the leader the next step of the policy's table, right or wrong."""
        if self.rng.random() < self.joining:
            self._join()
            return
        leader = self.leader()
        if leader is None or self.paused.get(leader.uuid, 0) > self.clock:
            return
        steps = self._steps(leader)
        if not steps:
            return
        edits = steps[self.rng.randint(0, len(steps) - 1)]
        try:
            leader.core.propose_config(edits, leader.core.committed_config.opid)
        except Refused:
            return
        self.marks["config change"] += 1
        self.fresh += edits[0].kind is EditKind.ADD
        leader.drain()

    def _steps(self, leader: Node) -> list[list[ConfigEdit]]:
        """Return the steps that the policy's table (`replica/policy/DESIGN.md`) could take in this config, if any
        member was lost."""
        members = leader.core.active_config.members
        others = [m for m in members if m.uuid != leader.uuid]
        stand_ins = [m for m in others if not m.holds_data]
        demoted = [m for m in others if m.holds_data and not m.votes and m.replace]
        returning = [m for m in others if m.holds_data and not m.votes and m.promote]
        steps: list[list[ConfigEdit]] = []
        if not stand_ins:
            steps += [[ConfigEdit(EditKind.REMOVE, m)] for m in demoted]
            if self.fresh < len(NAMES) and not demoted:
                joining = Member(NAMES[self.fresh], votes=False, promote=True, holds_data=False)
                steps.append([ConfigEdit(EditKind.ADD, joining)])
        for stand_in in stand_ins:
            if stand_in.votes and stand_in.promote and not demoted:
                for m in (m for m in others if m.votes and m.holds_data):
                    lost = replace(m, votes=False, promote=False, replace=True)
                    steps.append([ConfigEdit(EditKind.CHANGE, lost)])
            away = replace(stand_in, promote=False, replace=True)
            for m in demoted:
                back = replace(m, promote=True, replace=False)
                steps.append([ConfigEdit(EditKind.CHANGE, back), ConfigEdit(EditKind.CHANGE, away)])
            for m in returning:
                lost = replace(m, promote=False, replace=True)
                here = replace(stand_in, promote=True, replace=False)
                steps.append([ConfigEdit(EditKind.CHANGE, lost), ConfigEdit(EditKind.CHANGE, here)])
            if not returning and not demoted and (stand_in.replace or not stand_in.votes):
                steps.append([ConfigEdit(EditKind.REMOVE, stand_in)])
        return steps

    def _join(self) -> None:
        """Bring a leader's flush to a witness, which has that position as committed in its log, and starts with it:
        what follows there is replayed (`replica/tablet_copy/DESIGN.md`)."""
        leader = self.leader()
        waiting = [n for n in self._up() if n.durable.no_data]
        if leader is None or not waiting:
            return
        node = waiting[self.rng.randint(0, len(waiting) - 1)]
        member = node.core.active_config.member(node.uuid)
        flush = self.verify.applied.get(leader.uuid, 0)
        if member is None or not (member.promote or member.holds_data):
            return
        if not node.durable.flushed <= flush <= min(self.verify.applied.get(node.uuid, 0), node.durable_last.index):
            return
        self.crash(node.uuid, written=len(node.pending))
        self.crashed[node.uuid].no_data = False
        self.crashed[node.uuid].flushed = flush
        self.restart(node.uuid)

    def count_marks(self) -> None:
        """Count the marks that are seen in the cores' output."""
        self.marks["read by a round"] += len(self.reads_done) - self.marks["read by lease"]
        self.marks["read refused"] += len(self.reads_failed)
        self.marks.update({f"{verifier} looked": count for verifier, count in self.verify.looks.items()})
        voters = [config.voters for config in self.verify.configs]
        self.marks["promotion"] += sum(len(after) > len(before) for before, after in itertools.pairwise(voters))
        demoted: set[str] = set()
        for before, after in itertools.pairwise(self.verify.configs):
            for old in before.members:
                new = after.member(old.uuid)
                self.marks["witness left"] += new is None and old.votes and not old.holds_data
                if new is None:
                    continue
                self.marks["witness votes"] += new.votes and not old.votes and not new.holds_data
                self.marks["witness whole"] += new.holds_data and not old.holds_data
                self.marks["demoted voter restored"] += new.votes and not old.votes and new.uuid in demoted
                if old.votes and not new.votes and new.replace:
                    demoted.add(new.uuid)
                    self.marks["lost voter demoted"] += 1

    # ------------------------------------------------------------------------------------------------ liveness

    def heal_majority(self) -> bool:
        """Heal a drawn core with a quorum of every config that may be in force, and leave the others as they are drawn
        to be: dead, cut off, deaf, mute, paused, or with a disk that finishes nothing. False if it is not drawn."""
        rng = random.Random(f"majority/{self.seed}")
        if rng.random() >= self.majority:
            return False
        self.heal_everything()
        cores = {uuid: node.core for uuid, node in self.nodes.items()}
        stacks = [core._s.hard.configs for core in cores.values()]
        configs = majority.in_force([stack[0] for stack in stacks], [c for stack in stacks for c in stack])
        able = {uuid for uuid, node in self.nodes.items() if node.durable.withheld is None}
        witnesses = {m.uuid for config in configs for m in config.members if not m.holds_data}
        witnesses |= {uuid for uuid, node in self.nodes.items() if node.durable.no_data}

        def has_rows(core: set[str]) -> bool:
            """Return whether the core has rows. What a witness holds is on one disk with rows, and no more is promised:
            that one is not left out."""
            logs = [cores[uuid].last for uuid in core & able]
            return max(logs) == max(cores[uuid].last for uuid in core & able - witnesses)

        core = majority.draw(rng, configs, able, has_rows if witnesses else lambda core: True)
        if not core:
            return False
        self.left = set(self.everyone()) - core
        if witnesses:
            self.due = [item for item in self.due if item[2].from_uuid not in self.left]  # type: ignore[attr-defined]
            heapq.heapify(self.due)
        for uuid in sorted(self.left & self.nodes.keys()):
            self._leave(uuid, rng.choice(("dead", "cut off", "paused") if witnesses else majority.LOSSES))
        self.marks["majority alone"] += 1
        return True

    def _leave(self, uuid: str, loss: str) -> None:
        if loss == "disk" and self.nodes[uuid].core.role in (Role.FOLLOWER, Role.LEARNER, Role.NON_PARTICIPANT):
            self.stalled.add(uuid)
        elif loss == "paused":
            self.paused[uuid] = self.clock + 2 * LIVENESS_TICKS
        elif loss in ("cut off", "deaf", "mute"):
            for other in self.everyone():
                if other != uuid and loss != "mute":
                    self.cut(other, uuid, one_way=True)
                if other != uuid and loss != "deaf":
                    self.cut(uuid, other, one_way=True)
        else:
            self.crash(uuid)

    def heal_everything(self) -> None:
        self.healed = True
        self.heal()
        self.paused.clear()
        self.stalled.clear()
        self.left.clear()
        for uuid in sorted(self.crashed):
            self.restart(uuid)

    def leading(self) -> Node | None:
        """Return the leader of the highest term among those that are healed."""
        leaders = [n for u, n in self.nodes.items() if u not in self.left and n.core.role is Role.LEADER]
        return max(leaders, key=lambda n: n.core.term, default=None)

    def converged(self, payload: bytes) -> bool:
        """Return whether the last write is acknowledged and each healed member of the leader's config holds and knows
        the same log."""
        leader = self.leading()
        if leader is None or payload not in self.verify.acked or leader.core.pending_config is not None:
            return False
        members = [m.uuid for m in leader.core.active_config.members if m.uuid not in self.left]
        cores = [self.nodes[u].core if u in self.nodes else None for u in members]
        return all(c and c.last == leader.core.last and c.commit_index == leader.core.commit_index for c in cores)

    def converge(self, who: str) -> None:
        """Demand a leader, a write that is acknowledged and equal logs of all that are healed; then the verifiers."""
        payload = b""
        for tick in range(LIVENESS_TICKS):
            self.run_tick()
            leader = self.leading()
            if leader is not None and payload not in self.verify.acked and tick % 5 == 0:
                try:
                    self.writes += 1
                    payload = b"w%d" % self.writes
                    self.write(leader.uuid, payload)
                    leader.drain()
                except Refused:
                    pass
            if payload and self.converged(payload):
                self.at_end()
                return
        raise AssertionError(f"the healed {who} does not converge:\n" + "\n".join(self.status()))


def run_seed(
    seed: int,
    core_class: Callable[..., RaftCore] = RaftCore,
    net_class: type[SimNet] | None = None,
    *,
    odds: dict[str, float] | None = None,
    **tuned: float,
) -> SimNet:
    """Run one seed; raises Violation, InvariantViolation, or AssertionError for a group that does not recover.

    `tuned` (loss, double, delay, disk, leases, joining, majority) and `odds` replace what the seed draws.
    """
    net = (net_class or SimNet)(seed, core_class)
    net.odds.update(odds or {})
    for name, value in tuned.items():
        setattr(net, name, value)
    for _ in range(SAFETY_TICKS):
        net.run_tick()
        net.disturb()
    if net.heal_majority():
        net.converge("majority")
    net.heal_everything()
    net.converge("group")
    net.count_marks()
    return net


def explain(seed: int, error: BaseException, net_status: str = "") -> str:
    """Return the text of a failing seed: the command that runs it again."""
    return f"seed {seed}: {type(error).__name__}: {error}\n{net_status}  run it again: python -m tests.sim core:{seed}"


def seeds_from(text: str, default: int) -> range | list[int]:
    """Return the seeds of `17`, `3,17`, `0-999` or, if empty, the first `default` seeds."""
    if not text:
        return range(default)
    if "-" in text:
        lo, hi = text.split("-")
        return range(int(lo), int(hi) + 1)
    return [int(part) for part in text.split(",")]


FAILURES = (Violation, ReplicaError, AssertionError)


def main(argv: list[str]) -> int:
    """Run the seeds given and print the trace of the first that fails."""
    for seed in seeds_from(argv[0] if argv else "", 1000):
        try:
            run_seed(seed)
        except FAILURES as e:
            print(explain(seed, e))
            return 1
    print("all seeds hold")
    return 0


if __name__ == "__main__":
    import sys

    raise SystemExit(main(sys.argv[1:]))
