"""A group of consensus cores in one thread: a network that a test drives, and disks that remember only what was synced.

Each node is a driver in miniature: it carries out `Ready` as its docstring demands, with a queue of those that are not
durable yet. A crash loses them, or any prefix of their writes.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from nyala.replica.raft import (
    AppendEntries,
    AppendReply,
    HardState,
    MemoryLogView,
    Message,
    RaftCore,
    RaftOptions,
    Ready,
    Role,
)
from nyala.replica.types import (
    ZERO_OPID,
    Code,
    DataState,
    Entry,
    EntryKind,
    Member,
    OpId,
    RaftConfig,
    Refused,
)
from tests.harness.raft_verify import Verifiers

OPTIONS = RaftOptions(
    heartbeat_ticks=1,
    election_ticks_min=5,
    election_ticks_max=9,
    append_batch_bytes_max=300,
    probe_bytes_max=150,
    append_batch_bytes_min=0,
    inflight_messages_max=4,
    inflight_bytes_max=900,
    promote_round_ticks_max=5,
    copy_retry_ticks_min=4,
    copy_retry_ticks_max=16,
)


def encode_config(config: RaftConfig) -> bytes:
    """Return readable bytes of a config; enough for one process."""
    members = [f"{m.uuid}:{m.votes:d}{m.promote:d}{m.holds_data:d}{m.replace:d}" for m in config.members]
    return f"{config.decision[0]},{config.decision[1]}|{' '.join(members)}".encode()


def decode_config(meta: bytes) -> RaftConfig:
    decision, _, members = meta.decode().partition("|")
    term, version = decision.split(",")
    return RaftConfig(
        ZERO_OPID,
        tuple(
            Member(name, (), *(mark == "1" for mark in marks))
            for name, _, marks in (m.partition(":") for m in members.split())
        ),
        (int(term), int(version)),
    )


def config_of(voters: Iterable[str], learners: Iterable[str] = ()) -> RaftConfig:
    members = [Member(v) for v in voters] + [Member(n, votes=False) for n in learners]
    return RaftConfig(ZERO_OPID, tuple(sorted(members, key=lambda m: m.uuid)))


@dataclass
class Durable:
    """The state that one node finds again after power loss."""

    hard: HardState
    config: RaftConfig
    boundary: OpId = ZERO_OPID
    entries: list[Entry] = field(default_factory=list)
    flushed: int = 0
    """The index through which the state machine is durable; replay begins after it."""
    withheld: OpId | None = None
    no_data: bool = False
    """Whether it is a witness: no rows are here, and its log is kept from `flushed` on until they are."""

    def write(self, ready: Ready) -> None:
        """Write the WAL part of a `Ready`."""
        if ready.truncate_from is not None:
            del self.entries[ready.truncate_from - self.boundary.index - 1 :]
        if ready.entries:
            del self.entries[ready.entries[0].opid.index - self.boundary.index - 1 :]
            self.entries += ready.entries


class Node:
    """One replica: core, log view, durable part, `Ready` objects on their way to disk, and what it applied."""

    def __init__(self, net: Net, uuid: str, durable: Durable, *, restarted: bool = False) -> None:
        self.net, self.uuid, self.durable = net, uuid, durable
        self.log = MemoryLogView(durable.entries, boundary=durable.boundary)
        self.core = net.core_class(
            uuid=uuid,
            term=durable.hard.term,
            voted_for=durable.hard.voted_for,
            committed_config=durable.config,
            pending_config=None,
            log=self.log,
            commit_index=durable.flushed,
            options=net.options,
            rng=random.Random(f"{net.seed}/{uuid}/{net.restarts}"),
            encode_config=encode_config,
            decode_config=decode_config,
            hybrid_now=net.hybrid_now,
            withhold_votes=restarted,
            withheld=durable.withheld,
            no_data=durable.no_data,
        )
        self.clock = 0
        """This server's monotonic clock, in ticks. It goes on while the process is stopped."""
        self.ticked = 0
        """The value of `clock` at the last tick."""
        self.pending: deque[Ready] = deque()
        self.reads: dict[int, int] = {}
        self.trace: list[str] = []
        self.moves: list[tuple[Role, Role]] = []
        net.verify.on_restart(uuid, durable.flushed)

    @property
    def now(self) -> int | None:
        """Return the time that the core receives."""
        return self.clock if self.net.leases else None

    def tick(self) -> None:
        """One tick of this server's clock."""
        self.clock += 1
        self.core.tick(self.now)
        self.drain()

    def drain(self) -> None:
        """Take every `Ready`: send, apply and queue it for the disk."""
        while (ready := self.core.ready()) is not None:
            self.pending.append(ready)
            self.trace += ready.trace
            for msg in ready.messages_now:
                self.net.send(msg)
            if ready.committed:
                self._apply(*ready.committed)
            if ready.config_committed:
                self.net.verify.on_config(ready.config_committed)
                self.durable.config = ready.config_committed
            for token, index in ready.read_states:
                self.net.verify.on_read(index, self.reads.pop(token))
                self.net.reads_done.append((self.uuid, token, index))
            for token, code in ready.read_failures:
                self.reads.pop(token, None)
                self.net.reads_failed.append((self.uuid, token, code))
            for copy in ready.copies_needed:
                self.net.on_copy_needed(self.uuid, copy.peer_uuid, copy.current_state, copy.last_opid)
            for needed in ready.entries_needed:
                self.log.load([e for e in self.durable.entries if e.opid.index >= needed.lo])
                self.core.entries_loaded()
            if ready.role_change:
                self.moves.append(ready.role_change)

    def persist(self, count: int | None = None) -> bool:
        """Let the disk finish the oldest `Ready` objects, all of them by default. True if there were any."""
        moved = False
        while self.pending and (count is None or count > 0) and self.uuid not in self.net.stalled:
            ready = self.pending.popleft()
            if ready.hard_state:
                self.net.verify.on_hard_state(self.uuid, ready.hard_state)
                self.durable.hard = ready.hard_state
            if ready.truncate_from is not None:
                cut = [e for e in self.durable.entries if e.opid.index >= ready.truncate_from]
                self.net.marks["truncated"] += 1
                self.net.marks["rolled back"] += any(e.kind is EntryKind.CONFIG for e in cut)
            self.durable.write(ready)
            for msg in ready.messages_after_persist:
                self.net.send(msg)
            self.core.advance(ready)
            if self.core.withheld is None:
                self.net.marks["healed"] += self.durable.withheld is not None
                self.durable.withheld = None
            count, moved = None if count is None else count - 1, True
            self.drain()
        return moved

    def _apply(self, lo: int, hi: int) -> None:
        index = lo
        while index < hi:
            for entry in self.log.entries(index, hi, 1 << 20):
                self.net.verify.on_apply(self.uuid, entry)
                waiting = self.net.waiting.pop(entry.opid, None)
                if waiting is not None and waiting[0] == self.uuid:
                    self.net.verify.on_ack(waiting[1], entry.opid)
                index = entry.opid.index + 1
        self.core.applied_index = hi - 1

    @property
    def durable_last(self) -> OpId:
        return self.durable.entries[-1].opid if self.durable.entries else self.durable.boundary


class Net:
    """The group. Messages wait in `wire` until the test delivers, drops or delays them."""

    core_class: Callable[..., RaftCore] = RaftCore

    def __init__(self, config: RaftConfig, *, seed: int = 0, options: RaftOptions = OPTIONS) -> None:
        self.options, self.seed, self.rng = options, seed, random.Random(seed)
        self.first_config = config
        self.restarts = 0
        self.marks: Counter[str] = Counter()
        """The marks of this history."""
        self.leases = False
        """Whether cores receive the time, which a lease needs."""
        self.verify = Verifiers()
        self.wire: deque[Message] = deque()
        self.cuts: set[tuple[str, str]] = set()
        self.waiting: dict[OpId, tuple[str, bytes]] = {}
        self.reads_done: list[tuple[str, int, int]] = []
        self.reads_failed: list[tuple[str, int, Code]] = []
        self.copies: list[tuple[str, str, DataState, OpId]] = []
        self.copying: set[str] = set()
        self.stalled: set[str] = set()
        """Nodes whose disk finishes nothing."""
        self.deleted: set[str] = set()
        self.crashed: dict[str, Durable] = {}
        self.log_of_messages: list[Message] = []
        self._time = 0
        self._token = 0
        self.nodes: dict[str, Node] = {}
        for member in config.members:
            self.nodes[member.uuid] = Node(self, member.uuid, Durable(HardState(0, None), config))

    def hybrid_now(self) -> int:
        self._time += 1
        return self._time

    # ------------------------------------------------------------------------------------------------- network

    def send(self, msg: Message) -> None:
        self.verify.on_send(msg)
        self.log_of_messages.append(msg)
        self.wire.append(msg)

    def deliver(self, msg: Message) -> None:
        """Deliver one message to its receiver, unless the way is cut or no process is there."""
        if (msg.from_uuid, msg.to_uuid) in self.cuts or msg.to_uuid in self.crashed:
            return
        node = self.nodes.get(msg.to_uuid)
        if node is None or msg.to_uuid in self.copying:
            self._answer_without_replica(msg)
            return
        refusal = node.core.refusal(msg)
        assert not refusal, f"an honest peer is refused: {refusal} ({msg})"
        node.core.step(msg)
        node.drain()

    def _answer_without_replica(self, msg: Message) -> None:
        if not isinstance(msg, AppendEntries):
            return
        code, state = Code.TABLET_NOT_FOUND, DataState.DOES_NOT_EXIST
        if msg.to_uuid in self.copying:
            code, state = Code.NOT_READY, DataState.COPYING
        elif msg.to_uuid in self.deleted:
            code, state = Code.TABLET_DELETED, DataState.DELETED
        self.send(
            AppendReply(
                to_uuid=msg.from_uuid,
                from_uuid=msg.to_uuid,
                term=msg.term,
                code=code,
                round=msg.round,
                data_state=state,
            )
        )

    def cut(self, a: str, b: str, *, one_way: bool = False) -> None:
        self.cuts.add((a, b))
        if not one_way:
            self.cuts.add((b, a))

    def isolate(self, uuid: str) -> None:
        for other in self.everyone():
            if other != uuid:
                self.cut(uuid, other)

    def heal(self) -> None:
        self.cuts.clear()

    def everyone(self) -> list[str]:
        return sorted({*self.nodes, *self.crashed, *(m.uuid for m in self.first_config.members)})

    def settle(self, *, persist: bool = True, limit: int = 20_000) -> None:
        """Deliver in order and persist until nothing moves. No time passes."""
        for _ in range(limit):
            for uuid in sorted(self.nodes):
                self.nodes[uuid].drain()
            moved = persist and sum(node.persist() for _, node in sorted(self.nodes.items())) > 0
            if self.wire:
                self.deliver(self.wire.popleft())
            elif not moved:
                return
        raise AssertionError("the group does not settle")

    def tick(self, count: int = 1, *, only: Iterable[str] | None = None, settle: bool = True) -> None:
        for _ in range(count):
            for uuid in sorted(self.nodes) if only is None else only:
                self.nodes[uuid].tick()
            if settle:
                self.settle()

    # ------------------------------------------------------------------------------------------------- actions

    def leader(self) -> Node | None:
        """Return the leader of the highest term, if any."""
        leaders = [n for n in self.nodes.values() if n.core.role is Role.LEADER and n.uuid not in self.copying]
        return max(leaders, key=lambda n: n.core.term) if leaders else None

    def elect(self, uuid: str) -> Node:
        """Let this node campaign after the election timeouts of all others have passed."""
        self.settle()
        wire, told = self.wire.copy(), len(self.log_of_messages)
        for node in [self.nodes[name] for name in sorted(self.nodes)]:
            while (
                node.core._s.election.ticks_since_leader < self.options.election_ticks_min
                and node.core.role is not Role.LEADER
            ):
                node.tick()
        # A node whose timeout passed meanwhile asked too early: one candidate at a time.
        self.wire = wire
        del self.log_of_messages[told:]
        self.nodes[uuid].core.campaign()
        self.settle()
        return self.nodes[uuid]

    def write(self, uuid: str, payload: bytes) -> OpId:
        """Propose at this node; Refused with the core's reason. Acknowledged when this node applies it."""
        node = self.nodes[uuid]
        opid = node.core.propose(EntryKind.WRITE, self.hybrid_now(), 1, b"", payload, 0)
        self.waiting[opid] = (uuid, payload)
        return opid

    def read(self, uuid: str) -> int:
        self._token += 1
        self.nodes[uuid].reads[self._token] = self.verify.acked_index
        self.nodes[uuid].core.read_index(self._token, self.nodes[uuid].now)
        return self._token

    def crash(self, uuid: str, *, written: int = 0, torn: bool = False) -> None:
        """Lose power: of each `Ready` under way the first `written` reached the disk; with `torn`, the entries of the
        next one did and its hard state did not. Nothing that waited for them was sent."""
        node = self.nodes.pop(uuid)
        for pos, ready in enumerate(node.pending):
            if pos < written:
                node.durable.hard = ready.hard_state or node.durable.hard
                node.durable.write(ready)
            elif torn and pos == written:
                node.durable.write(ready)
        self.crashed[uuid] = node.durable
        self.waiting = {o: w for o, w in self.waiting.items() if w[0] != uuid}

    def restart(self, uuid: str) -> Node:
        self.restarts += 1
        durable = self.crashed.pop(uuid)
        durable.flushed = min(
            durable.flushed, (durable.entries[-1].opid if durable.entries else durable.boundary).index
        )
        node = self.nodes[uuid] = Node(self, uuid, durable, restarted=True)
        node.drain()
        return node

    def damage(self, uuid: str) -> bool:
        """Damage the last entry on this crashed node's disk: its checksum is wrong, it is cut, and its OpId kept
        apart."""
        durable = self.crashed[uuid]
        if not durable.entries or durable.flushed >= durable.entries[-1].opid.index:
            return False
        durable.withheld = durable.entries.pop().opid
        return True

    def compact(self, uuid: str, index: int) -> None:
        """Flush and log GC through index, as far as it is applied and durable here."""
        node = self.nodes[uuid]
        if node.durable.no_data:
            return
        index = min(index, self.verify.applied.get(uuid, 0), node.durable_last.index)
        if index < node.log.first_index or index <= node.durable.boundary.index:
            return
        opid = OpId(node.log.term_at(index) or 0, index)
        node.durable.flushed = max(node.durable.flushed, index)
        node.durable.entries = [e for e in node.durable.entries if e.opid.index > index]
        node.durable.boundary = opid
        node.log.compact(index, opid.term)

    def on_copy_needed(self, source: str, target: str, state: DataState, last: OpId) -> None:
        self.copies.append((source, target, state, last))

    def copies_rows(self, source: str, target: str) -> bool:
        """Return whether a copy brings rows; otherwise it makes a witness."""
        return True

    def copy(self, source: str, target: str) -> bool:
        """Copy a whole tablet at once: data through the source's applied index, its durable log, merged election
        history (TC-53). Refused if the source's log is older than what the target holds (TC-58)."""
        src = self.nodes.get(source)
        if src is None or target in self.crashed or source == target:
            return False
        old = self.nodes.get(target)
        hard = HardState(src.durable.hard.term, None)
        if old is not None:
            old.persist()
            if max(old.core.last, old.durable.withheld or ZERO_OPID) > src.durable_last:
                return False
            if old.durable.hard.term >= hard.term:
                hard = old.durable.hard
        applied = min(self.verify.applied.get(source, 0), src.durable_last.index)
        src_config = src.durable.config
        self.nodes[target] = Node(
            self,
            target,
            Durable(
                hard,
                src_config,
                src.durable.boundary,
                list(src.durable.entries),
                max(applied, src.durable.boundary.index),
                no_data=not self.copies_rows(source, target),
            ),
        )
        return True

    def status(self) -> list[str]:
        """Return one line for each node, for scripts and messages of failures."""
        lines = []
        for uuid in sorted(self.nodes):
            core = self.nodes[uuid].core
            rests = " quiet" if core.quiet else ""
            lines.append(f"{uuid} {core.role} term={core.term} last={core.last} commit={core.commit_index}{rests}")
        return lines + [f"{uuid} down" for uuid in sorted(self.crashed)]

    def at_end(self) -> None:
        durable = {uuid: node.durable for uuid, node in self.nodes.items()} | self.crashed
        self.verify.at_end({uuid: d.entries for uuid, d in sorted(durable.items())})


def refused(call: Callable[[], object]) -> Code:
    """Return the code with which a call is refused; OK if it is not."""
    try:
        call()
    except Refused as e:
        return e.code
    return Code.OK
