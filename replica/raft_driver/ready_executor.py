"""The ready executor: carries out each `Ready` in order, and receives completions, ticks and messages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from nyala.replica.raft import AppendEntries, AppendReply, Message, RaftCore, RaftOptions, Ready, Role
from nyala.replica.types import Code, Entry, OpId, Refused, is_transient
from nyala.replica.types.log_records import about

from .applier import Applier
from .callers import Callers
from .environment import Environment, Files
from .fit_check import FitCheck
from .lifecycle import Lifecycle
from .loader import Loader
from .log_cache import LogCache
from .options import DriverOptions
from .persister import Persister
from .status import Phase, leader_hint
from .times import Times
from .writer import Writer

_log = logging.getLogger("nyala.raft_driver")

_RETRY_TICKS = 20
"""Ticks between two attempts on a stalled disk: one second, with ticks of 50 ms. Leadership is offered as often."""
_WARNING_TICKS = 6000
"""Ticks between two log messages that the disk is still full: five minutes, with ticks of 50 ms."""
_BATCHING_TICKS = 4
"""Ticks after which a follower applies a few small writes that wait for more."""


class ReadyExecutor:
    """Carries out each `Ready` of the core in the order that it prescribes, and receives completions.

    Invariants: a vote, a vote request and an acknowledgement are sent only when what they say is durable here; entries
    are applied in order, each once, only when committed; after a failure nothing is sent, applied or answered.
    Concurrency: the owner's thread; completions arrive through `post`.
    """

    def __init__(
        self,
        *,
        tablet_id: str,
        core: RaftCore,
        cache: LogCache,
        files: Files,
        environment: Environment,
        life: Lifecycle,
        times: Times,
        raft_options: RaftOptions,
        options: DriverOptions,
    ) -> None:
        self.tablet_id = tablet_id
        self.core = core
        self.cache = cache
        self._files = files
        self._environment = environment
        self._life = life
        self._times = times
        self._options = options
        self._ticked = True
        """Whether the owner ticks this replica."""
        self._resting_since: int | None = None
        """The time since which the owner does not tick this replica, if the owner has a clock."""
        self._pump_scheduled = False
        self._executing = False
        """Whether `pump` runs. `pump_soon` schedules nothing meanwhile, because `pump` asks the core again before it
        ends."""
        self._committed = 0
        """The highest index that the core has given out to be applied. The core's commit index may be above it: entries
        that the others committed wait until the log here has them durably. Otherwise a flush could run ahead of the
        log."""
        self._seen: tuple[object, ...] = ()
        """What `on_change` reported last: phase, role, term, leader and configs; empty before the first time."""
        self._warning_due_tick = 0
        """The tick from which on the log may report again that the disk is full."""
        self._withheld_in_log = core.withheld is not None
        """Whether the log has the mark of a damaged tail (`withheld`)."""
        self.persister = Persister(
            cmeta=files.cmeta,
            log=files.log,
            run_meta=environment.meta_lane,
            post=environment.post,
            on_entries=self._entries_durable,
            on_durable=self._ready_durable,
            on_error=life.fail,
            hang_ticks=2 * raft_options.election_ticks_max,
        )
        self.applier = Applier(
            state_machine=files.state_machine,
            cache=cache,
            log=files.log,
            run_heavy=environment.run_heavy,
            bytes_max=options.apply_bytes_max,
            inline_bytes_max=options.apply_inline_bytes_max,
            on_applied=self._applied,
            on_error=lambda error: life.fail_at_entry(files.state_machine.applied_opid.index + 1, error),
        )
        self.loader = Loader(
            log=files.log,
            cache=cache,
            life=life,
            run_heavy=environment.run_heavy,
            bytes_max=options.load_bytes_max,
            on_loaded=self._loaded,
        )
        self.fit_check = FitCheck(files=files, life=life, run_heavy=environment.run_heavy, step_again=self.step)
        self.writer = Writer(
            core=core,
            persister=self.persister,
            log=files.log,
            times=times,
            environment=environment,
            options=options,
            pump_soon=self.pump_soon,
        )
        self.callers = Callers(
            core=core,
            persister=self.persister,
            times=times,
            environment=environment,
            options=options,
            transfer_ticks_max=2 * raft_options.election_ticks_max,
            pump_soon=self.pump_soon,
        )

    # --------------------------------------------------------------------------------------------------- execution

    def mark_active(self) -> None:
        """Make the owner tick this replica again, because an input arrived."""
        if not self._ticked:
            self._ticked = True
            self._environment.on_awake(self.tablet_id)

    def pump_soon(self) -> None:
        """Call `pump` at the end of this iteration."""
        self.mark_active()
        if not self._pump_scheduled and not self._executing:
            self._pump_scheduled = True
            self._environment.own_thread(self._run_scheduled_pump)

    def _run_scheduled_pump(self) -> None:
        self._pump_scheduled = False
        self.pump()

    def pump(self) -> None:
        """Carry out every `Ready` that the core has now."""
        self.mark_active()
        if not self._life.serving:
            return
        changed = not self._seen
        self._executing = True
        try:
            while self._life.serving and (ready := self.core.ready()) is not None:
                changed = True
                self._execute(ready)
        finally:
            self._executing = False
        self.writer.batch_left()
        if self._life.serving:
            self.callers.answer_transfers()
            if changed:
                self._update_phase()

    def _execute(self, ready: Ready) -> None:
        """Carry out one `Ready`: send what may be sent now, begin the writes, apply the committed entries."""
        if ready.entries:
            self._times.observe(ready.entries)
        if ready.safe_time is not None:
            self._environment.hybrid_clock.observe(ready.safe_time[1])
            self._times.note_safe_time(*ready.safe_time, self.applier.applied_index)
        self._send(ready.messages_now)
        self.persister.submit(ready)
        if ready.role_change is not None and ready.role_change[0] is Role.LEADER:
            self._leadership_lost()
        if ready.config_committed is not None:
            self.persister.save_config(ready.config_committed)
            self.callers.config_committed(ready.config_committed)
        if ready.committed is not None:
            self._committed = ready.committed[1] - 1
            if not self._may_wait():
                self.apply_committed()
        for token, index in ready.read_states:
            self.callers.reads.confirmed(token, index, self.callers.tick, self.applier.applied_index)
        for token, code in ready.read_failures:
            self.callers.reads.refused(token, code, leader_hint(self.core))
        for need in ready.copies_needed:
            self._environment.on_copy_needed(self.tablet_id, need)
        for missing in ready.entries_needed:
            self.loader.load(missing.lo)

    def _send(self, messages: Sequence[Message]) -> None:
        if messages:
            self._environment.send([(self.tablet_id, message) for message in messages])

    def apply_committed(self) -> None:
        """Apply committed entries now, even those that may wait for more."""
        if self.applier.applied_index < self._committed:
            self.applier.advance(self._committed)

    def _may_wait(self) -> bool:
        """Whether committed entries may wait some ticks for more.

        Many small writes together cost little more than one. They do not wait if a caller waits for them: on a leader,
        after leadership was lost, or for an index or a time.
        """
        if self.core.role is Role.LEADER or self.writer.indexed or self.callers.any_waits_to_be_applied:
            return False
        return self.applier.may_wait(self._committed)

    def _update_phase(self) -> None:
        """Enter the phase that fits the present state, and call `on_change` if anything changed."""
        core = self.core
        if core.role is Role.LEADER:
            running = core.term_committed
        else:
            running = core.leader_uuid is not None and self.cache.term_at(core.commit_index) == core.term
        self._life.enter(Phase.RUNNING if running else Phase.CONFIGURING)
        phase = self._life.phase
        seen = (phase, core.role, core.term, core.leader_uuid, core.committed_config.opid, core.pending_config)
        if seen != self._seen:
            self._seen = seen
            self._environment.on_change(self.tablet_id)
        if self._withheld_in_log and core.withheld is None:
            self._withheld_in_log = False
            self._environment.run_heavy(self._files.log.forget_withheld, self._withheld_forgotten)

    # ------------------------------------------------------------------------------------------------ completions

    def _entries_durable(self, opid: OpId) -> None:
        self.core.persisted(opid)
        # Unapplied entries are bounded too, because a follower accepts entries as fast as it logs them, not as it
        # applies them.
        unapplied_bytes_max = self._options.log_cache_bytes_max + self._options.write_bytes_pending_max
        self.cache.trim(self.core.persisted_index, unapplied_bytes_max)

    def _ready_durable(self, ready: Ready) -> None:
        self._send(ready.messages_after_persist)
        self.core.advance(ready)
        self.pump_soon()

    def _applied(self, entries: Sequence[Entry], results: list[Any]) -> None:
        index = self.core.applied_index = entries[-1].opid.index
        self._times.applied = max(self._times.applied, max(entry.hybrid_time for entry in entries))
        self.writer.finish(entries, results)
        self.cache.trim(index)
        self.callers.reads.applied(index, self._times.applied)
        if self._life.serving:
            self.writer.applied(index)
            self.apply_committed()

    def _loaded(self) -> None:
        self.core.entries_loaded()
        self.pump()

    def _withheld_forgotten(self, result: BaseException | None) -> None:
        if is_transient(result):
            self._withheld_in_log = True
            return
        if isinstance(result, BaseException):
            self._life.fail(result)

    # ------------------------------------------------------------------------------------------------------- time

    def tick(self) -> None:
        """Advance by one tick of the owner's timer."""
        self.callers.tick += 1
        retry_due = self.callers.tick % _RETRY_TICKS == 0
        if self.callers.tick % _BATCHING_TICKS == 0 or not self._may_wait():
            self.apply_committed()
        if not self._held_up():
            self.core.tick(self._environment.ticks_now())
        self.callers.expire()
        self.persister.tick()
        if self._disk_stalled and retry_due:
            self._handle_stalled_disk()
        if self.loader.missed and retry_due:
            self.loader.missed = False
            self.core.entries_loaded()
        self.pump()

    @property
    def may_rest(self) -> bool:
        """Whether the replica needs no ticks now: its group is quiet, nothing waits to be written or applied, and no
        caller waits."""
        behind = self.persister.waiting or self.applier.applied_index < self._committed
        waits = len(self.writer) or self.callers.waiting
        soon = self._pump_scheduled or self.persister.full or self.loader.missed
        return self.core.quiet and not behind and not waits and not soon

    def rest(self) -> None:
        """Note that the owner stops ticking this replica, until `on_awake`."""
        self._ticked = False
        self._resting_since = self._environment.ticks_now()

    @property
    def rested_ticks(self) -> int:
        """The ticks of the monotonic clock since the owner stopped ticking; 0 while it ticks, or has no clock."""
        now = self._environment.ticks_now()
        return 0 if self._ticked or now is None or self._resting_since is None else now - self._resting_since

    def pump_if_awake(self) -> None:
        if not self.core.quiet:
            self.pump_soon()

    # --------------------------------------------------------------------------------------------------- messages

    def step(self, message: Message) -> str:
        """Handle one message of a peer; see `Replica.step`."""
        if self._held_up():
            return ""  # an answer would have to wait for room anyway; the sender tries again
        if refusal := self.core.refusal(message):
            return refusal
        append = message if type(message) is AppendEntries and message.to_uuid == self.core.uuid else None
        if append is not None:
            if append.entries and not self.persister.has_room(sum(entry.size_bytes for entry in append.entries)):
                return ""  # the leader sends it again; blocking here would stop every tablet of this server
            new = [entry for entry in append.entries if self.cache.term_at(entry.opid.index) != entry.opid.term]
            unfit = self.fit_check.refusal(append, new)
            if unfit is None:
                return ""  # the message is stepped again when its entries are decoded
            if refusal := unfit or self._times.from_the_future(append):
                return refusal
        self.core.step(message)
        if append is not None and append.entries:
            # The core may have ignored the message; its times count only if its entries are in the log.
            last = append.entries[-1].opid
            if self.core.log.term_at(last.index) == last.term:
                self._times.observe(append.entries)
        self.pump_soon()
        return ""

    # ---------------------------------------------------------------------------------------------------- faults

    @property
    def _disk_stalled(self) -> bool:
        """Whether writes make no progress: the disk has no room or hangs, or another resource is exhausted."""
        return self.persister.full or self.persister.hangs

    def _held_up(self) -> bool:
        """Whether so many writes wait for the disk that this replica must send nothing, because they take memory."""
        return self._disk_stalled and self.persister.waiting >= self._options.held_readies_max

    def _handle_stalled_disk(self) -> None:
        """Offer leadership, because writers would wait here in vain, and try the disk again.

        If the disk hangs, leadership is offered only if the others are ahead, because all disks may be slow.
        """
        core = self.core
        if self.persister.full and self.callers.tick >= self._warning_due_tick:
            self._warning_due_tick = self.callers.tick + _WARNING_TICKS
            what = (
                "cannot write its log or its metadata: %s. Nothing that was acknowledged is lost. It tries "
                "again each second and refuses writes until it succeeds: free space or the resource that is named"
            )
            about(_log, self.tablet_id, core.uuid).warning(what, self.persister.refusal)
        if core.role is not Role.LEADER:
            self._leadership_lost()  # it may have been lost before we noticed that the disk makes no progress
        elif core.transfer_target is None and (self.persister.full or core.commit_index > core.persisted_index):
            with suppress(Refused):
                core.transfer_leadership(None)
        self.persister.retry()

    def _leadership_lost(self) -> None:
        hint = leader_hint(self.core)
        self.writer.leadership_lost(hint)
        answered_when_applied = self.core.commit_index
        if self._disk_stalled:
            # Entries that are durable on the others only are applied when the disk goes on, which is too late for
            # callers.
            answered_when_applied = min(answered_when_applied, self.core.persisted_index)
        for callers in (self.writer, self.callers):
            callers.answer_known_outcomes(answered_when_applied, self.cache.term_at, hint)

    def end_serving(self, phase: Phase, served: bool, code: Code, what: str) -> None:
        """End the executor: callers get `code` and `what` now, and after that nothing is sent, applied or answered.

        `phase`: the one in which the replica ends. `served`: whether it served until now.
        """
        if served:
            self._wake_members(phase)
        self.persister.stop()
        self.applier.stop()
        self.writer.fail_all(code, what)
        self.callers.fail_all(code, what)

    def _wake_members(self, phase: Phase) -> None:
        """Send the other members a message when this replica ends: a quiet group watches servers only, and this
        server may live on.

        Any message would do, because it wakes its receiver. Replicas that are awake ignore this one. A leader sends it
        even if it is not quiet, because its followers may be quiet already. A follower sends it only if it fails in a
        quiet group; in any other group the leader soon misses its replies.
        """
        core = self.core
        if core.role is not Role.LEADER and not (core.quiet and phase is Phase.FAILED):
            return
        others = [member.uuid for member in core.active_config.members if member.uuid != core.uuid]
        self._send(
            [AppendReply(to_uuid=o, from_uuid=core.uuid, term=core.term, code=Code.TABLET_FAILED) for o in others]
        )
