"""Callers of config changes, transfers, reads and waits: each gets one answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nyala.replica.raft import RaftCore, Role
from nyala.replica.types import Code, ConfigEdit, EntryKind, OpId, RaftConfig, Refused

from .environment import Environment
from .options import DriverOptions
from .pending import Done, PendingEntries
from .persister import Persister
from .reads import Reads
from .status import with_hint
from .times import Times
from .transfer import Transfer


@dataclass(eq=False, kw_only=True)
class Callers:
    """All callers that wait for an answer, except writers.

    Invariant: each `done` is called once; a change's or a transfer's never before the call returns.
    Concurrency: the owner's thread.
    """

    core: RaftCore
    persister: Persister
    times: Times
    environment: Environment
    options: DriverOptions
    transfer_ticks_max: int
    pump_soon: Callable[[], None]
    _changes: PendingEntries = field(default_factory=PendingEntries, init=False)
    tick: int = field(default=0, init=False)
    """The ticks so far; waits are measured in them."""

    def __post_init__(self) -> None:
        self._transfer = Transfer(wait_ticks_max=self.transfer_ticks_max)
        self.reads = Reads(waiters_max=self.options.waiters_max, wait_ticks_max=self.options.wait_ticks_max)

    @property
    def waiting(self) -> int:
        """Callers that are not answered yet."""
        return len(self._changes) + self.reads.waiting + self._transfer.waiting

    @property
    def any_waits_to_be_applied(self) -> bool:
        return bool(len(self.reads.by_index) or len(self.reads.by_time))

    # ------------------------------------------------------------------------------------------------------ calls

    def change_config(
        self, edits: Sequence[ConfigEdit], cas: OpId | None, decision: tuple[int, int], done: Done
    ) -> None:
        """See `Replica.change_config`."""
        self._change(lambda: self.core.propose_config(edits, cas, decision), done)

    def abort_change(self, pending: OpId | None, done: Done) -> None:
        """See `Replica.abort_change`."""
        self._change(lambda: self.core.abort_config(pending), done)

    def _change(self, propose: Callable[[], OpId], done: Done) -> None:
        try:
            opid = propose()
        except Refused as error:
            self._refuse(done, error)
        else:
            self._changes.add(opid, 0, done)
        self.pump_soon()

    def transfer(self, target: str | None, done: Done, cas: OpId | None, decision: tuple[int, int]) -> None:
        """See `Replica.transfer`."""
        try:
            self._check_decision(cas, decision)
            self.core.transfer_leadership(target)
        except Refused as error:
            self._refuse(done, error)
            return
        self._transfer.begin(self.tick, self.core.term, target, done)
        self.pump_soon()

    def read_barrier(self, done: Done) -> None:
        """See `Replica.read_barrier`."""
        self.reads.barrier(lambda token: self.core.read_index(token, self.environment.ticks_now()), self.tick, done)
        self.pump_soon()

    def refuse_snapshot(self, hybrid_time: int) -> Refused | None:
        """Make a snapshot at `hybrid_time` safe: a leader without an entry that late replicates an empty one.

        Returns the refusal if it cannot, or None.
        """
        times, clock = self.times, self.environment.hybrid_clock
        if max(times.applied, times.last) >= hybrid_time or self.core.role is not Role.LEADER:
            return None
        if hybrid_time > clock.now() + self.options.future_time_max:
            return Refused(Code.INVALID_ARGUMENT, "the time lies in the future", hybrid_time=hybrid_time)
        if self.persister.full:
            return self.persister.refusal
        clock.observe(hybrid_time)
        time = clock.now()
        try:
            self.core.propose(EntryKind.NOOP, time, 0, b"", b"", 0)
        except Refused as error:
            return with_hint(error, self.core)
        times.last = time
        self.pump_soon()
        return None

    def _refuse(self, done: Done, error: Refused) -> None:
        refusal = with_hint(error, self.core)
        self.environment.own_thread(lambda: done(refusal))

    def _check_decision(self, cas: OpId | None, decision: tuple[int, int]) -> None:
        config = self.core.committed_config
        if cas is not None and cas != config.opid:
            raise Refused(Code.CAS_FAILED, "another config is in force", detail=str(config.opid), expected=cas)
        if decision != (0, 0) and decision < config.decision:
            raise Refused(Code.STALE_DECISION, "a later decision was carried out", decision=config.decision)

    # ---------------------------------------------------------------------------------------------------- answers

    def expire(self) -> None:
        """Answer the callers that have waited too long."""
        if late := self.reads.expire(self.tick):
            self.core.drop_reads(late)

    def answer_transfers(self) -> None:
        """Answer the callers of a transfer whose outcome is known."""
        self._transfer.answer_if_known(self.core, self.tick)

    def config_committed(self, config: RaftConfig) -> None:
        """Answer the callers that wait for this config, or for the change that it took back."""
        self._changes.finish(config.opid, config)
        self._changes.finish_configs_up_to(config.opid, config, self.core.aborted)

    def answer_known_outcomes(
        self, answered_when_applied: int, term_at: Callable[[int], int | None], hint: str
    ) -> None:
        """Answer the callers because leadership is lost; see `PendingEntries.leadership_lost`."""
        self._changes.leadership_lost(answered_when_applied, term_at, hint)

    def fail_all(self, code: Code, what: str) -> None:
        """Answer all callers because the replica stops serving."""
        self._changes.fail_all(code, what)
        self.reads.fail_all(code, what)
        self._transfer.fail(code, what)
