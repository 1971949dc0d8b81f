"""Carrying out `Ready`: what may leave now, what must be durable first, what is committed, and what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nyala.replica.base import (
    Code,
    Corruption,
    DiskFailure,
    Entry,
    HybridClock,
    InvariantViolation,
    OpId,
    Post,
    Refused,
    Rng,
    Timer,
    check,
)
from nyala.replica.cmeta import ConsensusMeta
from nyala.replica.raft import (
    AppendReply,
    CopyNeeded,
    EntriesNeeded,
    Message,
    RaftCore,
    RaftOptions,
    Ready,
    Role,
)
from nyala.replica.wal import Log, Replay

from .applier import Applier
from .bootstrap import Recovered
from .gathering import WRITE_BYTES_MAX, Gathering, Write
from .log_cache import LogCache
from .options import HostOptions
from .pending import PendingEntries
from .persister import Persister
from .reads import Reads
from .state_machine import RunHeavy, StateMachine
from .status import PHASE_MOVES, Phase
from .transfer import Transfer

Send = Callable[[list[tuple[str, Message]]], None]


class Carrier:
    """Carries out what the core wants, in the order that `Ready` prescribes, and takes the completions.

    Invariants: messages that promise something leave only when it is durable here; entries are applied in order, each
    once, only when committed; after a failure nothing is sent, applied or answered again.
    Concurrency: the owner's thread; completions arrive through `post`.
    """

    # Set by `Replica.start`; `_started` says whether.
    _core: RaftCore
    _cache: LogCache
    _persister: Persister
    _applier: Applier

    def __init__(
        self,
        *,
        tablet_id: str,
        uuid: str,
        cmeta: ConsensusMeta,
        log: Log,
        replay: Replay,
        state_machine: StateMachine,
        hybrid_clock: HybridClock,
        raft_options: RaftOptions,
        rng: Rng,
        post: Post,
        run_heavy: RunHeavy,
        send: Send,
        on_copy_needed: Callable[[str, CopyNeeded], None],
        on_fatal: Callable[[BaseException], None],
        on_change: Callable[[str], None] = lambda tablet_id: None,
        run_meta: RunHeavy | None = None,
        soon: Post | None = None,
        timer: Timer | None = None,
        ticks_now: Callable[[], int] | None = None,
        on_awake: Callable[[str], None] = lambda tablet_id: None,
        no_data: bool = False,
        options: HostOptions | None = None,
    ) -> None:
        """`send([(tablet_id, message)])` must not block. `on_copy_needed(tablet_id, CopyNeeded)`.

        `on_fatal`: a DiskFailure or InvariantViolation, after which the process must end. `on_change(tablet_id)`: role,
        term, leader, config or phase changed. `run_meta`: the ordered lane of consensus metadata, so that a vote never
        waits for an apply; by default `run_heavy`. `soon`: a cheaper `post` for the owner's own thread. `timer`:
        without it, a round of small writes waits for nobody who was just answered. `ticks_now`: the monotonic clock,
        pauses and suspends included, in ticks; leases are judged by it, and without it every strong read takes a
        round. `on_awake(tablet_id)`: a replica that `rest` was true of must be ticked again. `no_data`: a witness,
        whose state machine only counts; it never leads.
        """
        self.tablet_id = tablet_id
        self.uuid = uuid
        self.phase = Phase.BOOTSTRAPPING
        self.error = ""
        self.damaged = False
        """It has failed because its files are not what was written."""
        self.options = options or HostOptions()
        self._cmeta = cmeta
        self._log = log
        self._replay: Replay | None = replay
        self._state_machine = state_machine
        self._clock = hybrid_clock
        self._raft_options = raft_options
        self._rng = rng
        self._post = post
        self._soon = soon or post
        self._timer = timer
        self._ticks_now = ticks_now or _no_clock
        self._run_heavy = run_heavy
        self._run_meta = run_meta or run_heavy
        self._send = send
        self._on_copy_needed = on_copy_needed
        self._on_fatal = on_fatal
        self._on_change = on_change
        self._on_awake = on_awake
        self._no_data = no_data
        self._ticked = True
        """Whether the owner ticks this replica."""
        self._resting_since: int | None = None
        """Since when it does not, if the host shows a clock."""
        self._recovered: Recovered | None = None
        self._tick = 0
        self._pump_scheduled = False
        self._carrying = False
        """Whether bundles are carried out just now: what asks for a pump meanwhile is seen at the end of it."""
        self._gc_running = False
        self._started = False
        self._writes = PendingEntries()
        self._gathering = Gathering()
        self._changes = PendingEntries()
        wait_ticks = self.options.wait_ticks_max
        self._reads = Reads(waiters_max=self.options.waiters_max, wait_ticks_max=wait_ticks)
        self._transfer = Transfer(wait_ticks_max=2 * raft_options.election_ticks_max)
        self._loading: set[int] = set()
        self._applied_time = 0
        self._committed = 0
        """Highest index that the core has handed out to be applied. The core's commit index may be above it: what the
        others committed before the log here holds it durably must wait, or a flush would run ahead of the log."""
        self._last_time = 0
        self._told_future = False
        self._seen: tuple[object, ...] = ()
        self._marked = False
        """Whether the log bears the mark of a lost end."""

    @property
    def _serving(self) -> bool:
        return self.phase is Phase.CONFIGURING or self.phase is Phase.RUNNING

    def _enter(self, phase: Phase) -> None:
        if phase is not self.phase:
            check(phase in PHASE_MOVES[self.phase], "a legal move of phases", old=self.phase, new=phase)
            self.phase = phase

    @property
    def _disk_stands(self) -> bool:
        """Whether what waits for the disk waits long: there is no room, or it hangs."""
        return self._persister.full or self._persister.hangs

    def _stir(self) -> None:
        """Something came in: time matters here again."""
        if not self._ticked:
            self._ticked = True
            self._on_awake(self.tablet_id)

    def _pump_soon(self) -> None:
        self._stir()
        if not self._pump_scheduled and not self._carrying:
            self._pump_scheduled = True
            self._soon(self._pump_scheduled_now)

    def _pump_scheduled_now(self) -> None:
        self._pump_scheduled = False
        self._pump()

    def _pump(self) -> None:
        """Carry out everything that the core wants now."""
        self._stir()
        if not self._serving:
            return
        news = not self._seen
        self._carrying = True
        try:
            while self._serving and (ready := self._core.ready()) is not None:
                news = True
                self._carry_out(ready)
        finally:
            self._carrying = False
        self._gathering.leave()
        if self._serving:
            self._transfer.look(self._core, self._tick)
            if news:
                self._look()

    def _carry_out(self, ready: Ready) -> None:
        """In the order that `Ready` prescribes: what may leave now, what must be durable first, what is committed."""
        if ready.entries:
            self._observe(ready.entries)
        if ready.safe_time is not None:
            self._clock.observe(ready.safe_time[1])
        if ready.messages_now:
            self._send([(self.tablet_id, message) for message in ready.messages_now])
        self._persister.submit(ready)
        if ready.role_change is not None and ready.role_change[0] is Role.LEADER:
            self._leadership_lost()
        if ready.config_committed is not None:
            self._persister.save_config(ready.config_committed)
            self._changes.finish(ready.config_committed.opid, ready.config_committed)
            self._changes.finish_below(ready.config_committed.opid, ready.config_committed, self._core.aborted)
        if ready.committed is not None:
            self._committed = ready.committed[1] - 1
            if not self._may_wait():
                self._apply_committed()
        for token, index in ready.read_states:
            self._reads.confirmed(token, index, self._tick, self.applied_index)
        for token, code in ready.read_failures:
            self._reads.refused(token, code, self._leader_hint())
        for need in ready.copies_needed:
            self._on_copy_needed(self.tablet_id, need)
        for missing in ready.entries_needed:
            self._load(missing)

    def _apply_committed(self) -> None:
        if self._applier.applied_index < self._committed:
            self._applier.advance(self._committed)

    def _may_wait(self) -> bool:
        """Whether what is committed may wait for company, for some ticks.

        On a follower nobody waits for a small write to be applied, and many cost little more than one.
        """
        if self._core.role is Role.LEADER or len(self._writes) or len(self._reads.by_index) or len(self._reads.by_time):
            return False
        return self._applier.is_little(self._committed)

    def _entries_durable(self, opid: OpId) -> None:
        self._core.persisted(opid)
        # What waits to be applied is bounded too: a follower takes entries as fast as it logs, not as it applies.
        unapplied_bytes_max = self.options.log_cache_bytes_max + self.options.write_bytes_pending_max
        self._cache.trim(self._core.persisted_index, unapplied_bytes_max)

    def _ready_durable(self, ready: Ready) -> None:
        if ready.messages_after_persist:
            self._send([(self.tablet_id, message) for message in ready.messages_after_persist])
        self._core.advance(ready)
        self._pump_soon()

    def _applied(self, entries: Sequence[Entry], results: list[Any]) -> None:
        self._core.applied_index = entries[-1].opid.index
        self._applied_time = max(self._applied_time, max(entry.hybrid_time for entry in entries))
        for entry, result in zip(entries, results, strict=True):
            self._writes.finish(entry.opid, result)
        self._cache.trim(self.applied_index)
        self._reads.applied(self.applied_index, self._applied_time)
        if self._serving:
            if self._gathering.applied(self.applied_index):
                self._round_ended()
            self._apply_committed()

    def _round_ended(self) -> None:
        """What waits goes now, or with those who were just answered and come again."""
        timer = self._timer
        wait = self._gathering.end(timer.now_us() if timer is not None else None)
        if wait is None or timer is None:
            self._propose_gathered()
        else:
            timer.after(wait.limit_us, lambda: self._waited_for_company(wait.number))

    def _waited_for_company(self, number: int) -> None:
        if self._gathering.waited(number):
            self._propose_gathered()

    def _propose_gathered(self) -> None:
        if gathered := self._gathering.take():
            self._propose(gathered)

    def _propose(self, writes: Sequence[Write]) -> None:
        """Give each write its index and time, in order; what gets none is answered soon. They leave together."""
        for write in writes:
            refusal = self._no_room(write.size_bytes)
            if refusal is None:
                try:
                    time = self._clock.now()
                    opid = self._core.propose(
                        write.kind, time, write.schema_id, write.meta, write.payload, write.payload_crc
                    )
                except Refused as error:
                    refusal = self._with_hint(error)
                else:
                    self._last_time = time
                    self._writes.add(opid, write.size_bytes, write.done)
                    if write.size_bytes <= WRITE_BYTES_MAX:
                        self._gathering.proposed(opid.index, self._timer.now_us() if self._timer else 0)
                    continue
            self._soon(lambda done=write.done, refusal=refusal: done(refusal))  # type: ignore[misc]
        self._pump_soon()

    def _no_room(self, size_bytes: int) -> Refused | None:
        """Why the log takes no more now, or None."""
        if self._persister.full:
            return Refused(Code.NO_SPACE, "the disk is full")
        if not self._persister.has_room(size_bytes):
            return Refused(Code.OVERLOADED, "the log's queue is full", queued_bytes=self._log.queued_bytes)
        return None

    def _load(self, missing: EntriesNeeded) -> None:
        """Read entries that left memory back from the log, for a peer that lags."""
        lo = missing.lo
        if lo in self._loading:
            return
        self._loading.add(lo)
        hi = self._cache.cached_from

        def loaded(result: list[Entry] | BaseException) -> None:
            self._loading.discard(lo)
            if not self._serving:
                return
            if isinstance(result, Refused) and result.code is Code.NOT_FOUND:
                result = []  # log GC was faster: the core will see it and ask for a copy
            if isinstance(result, BaseException):
                self._failed(result)
                return
            self._cache.load(result)
            self._core.entries_loaded()
            self._pump()

        self._run_heavy(lambda: self._log.read(lo, hi, self.options.load_bytes_max), loaded)

    def _observe(self, entries: Sequence[Entry]) -> None:
        time = max(entry.hybrid_time for entry in entries)
        self._last_time = max(self._last_time, time)
        self._clock.observe(time)

    def _look(self) -> None:
        """Settle the phase and tell who watches what changed."""
        core = self._core
        if core.role is Role.LEADER:
            running = core.term_committed
        else:
            running = core.leader_uuid is not None and self._cache.term_at(core.commit_index) == core.term
        self._enter(Phase.RUNNING if running else Phase.CONFIGURING)
        seen = (self.phase, core.role, core.term, core.leader_uuid, core.committed_config.opid, core.pending_config)
        if seen != self._seen:
            self._seen = seen
            self._on_change(self.tablet_id)
        if self._marked and core.withheld is None:
            self._marked = False
            self._run_heavy(self._log.forget_withheld, self._forgotten)

    def _forgotten(self, result: BaseException | None) -> None:
        if isinstance(result, BaseException):
            self._failed(result)

    def _leadership_lost(self) -> None:
        hint = self._leader_hint()
        for write in self._gathering.abandon():
            write.done(Refused(Code.NOT_LEADER, "leadership was lost before the write got an index", detail=hint))
        told_later = self._core.commit_index
        if self._disk_stands:
            # What only the others hold durably takes effect here when the disk goes on: too late for who waits.
            told_later = min(told_later, self._core.persisted_index)
        for pending in (self._writes, self._changes):
            pending.leadership_lost(told_later, self._cache.term_at, hint)

    def _failed(self, error: BaseException) -> None:
        """Corruption and what cannot be applied or written end this replica; our bugs and bad disks end the process."""
        if self.phase is Phase.STOPPED or self.phase is Phase.FAILED:
            return
        if not _is_fatal(error):
            self.error = f"{type(error).__name__}: {error}"
            self.damaged = isinstance(error, Corruption) and error.copy_heals
            self._fall_silent(Phase.FAILED, Code.TABLET_FAILED, self.error)
            self._on_change(self.tablet_id)
        else:
            self._fall_silent(Phase.STOPPED, Code.UNAVAILABLE, "the server is stopping")
            self._on_fatal(error)

    def _fall_silent(self, phase: Phase, code: Code, what: str) -> None:
        if self._serving:
            self._say_goodbye(phase)
        self._enter(phase)
        if self._started:
            self._persister.stop()
            self._applier.stop()
        for write in self._gathering.abandon():
            write.done(Refused(code, what))
        self._writes.fail_all(code, what)
        self._changes.fail_all(code, what)
        self._reads.fail_all(code, what)
        self._transfer.fail(code, what)

    def _say_goodbye(self, phase: Phase) -> None:
        """A quiet group does not notice that a replica ended while its server lives on: it is told.

        Any message would do, for it wakes who gets it. A leader's followers may rest one echo before it does; others
        take the message for nothing. A follower that stops is missed soon enough.
        """
        core = self._core
        if core.role is not Role.LEADER and not (core.quiet and phase is Phase.FAILED):
            return
        others = [member.uuid for member in core.active_config.members if member.uuid != self.uuid]
        news = [AppendReply(to_uuid=o, from_uuid=self.uuid, term=core.term, code=Code.TABLET_FAILED) for o in others]
        self._send([(self.tablet_id, message) for message in news])

    def _with_hint(self, error: Refused) -> Refused:
        if error.code is Code.NOT_LEADER:
            error.detail = self._leader_hint()
        return error

    def _leader_hint(self) -> str:
        """`uuid@host:port` of the leader as far as known; empty if not."""
        leader = self.leader_uuid
        if not leader or leader == self.uuid:
            return ""
        member = self._core.active_config.member(leader)
        return f"{leader}@{member.addresses[0]}" if member is not None and member.addresses else leader

    @property
    def leader_uuid(self) -> str | None:
        return self._core.leader_uuid if self._serving else None

    @property
    def applied_index(self) -> int:
        return self._applier.applied_index if self._started else self._state_machine.applied_opid.index


def _no_clock() -> None:
    return None


def _is_fatal(error: BaseException) -> bool:
    return isinstance(error, InvariantViolation | DiskFailure) or not isinstance(error, Exception)
