"""Writes of callers: bounded, combined into batches, given an index and a time in order, each answered once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nyala.replica.raft import RaftCore
from nyala.replica.types import Code, Entry, EntryKind, Refused
from nyala.replica.wal import Log

from .environment import Environment
from .options import DriverOptions
from .pending import Done, PendingEntries
from .persister import Persister
from .status import with_hint
from .times import Times
from .write_batcher import WRITE_BYTES_MAX, Write, WriteBatcher


@dataclass(eq=False, kw_only=True)
class Writer:
    """Proposes writes and answers them.

    Invariants: writes get their indexes in the order in which they came; unanswered writes, with an index or without
    one, are bounded; each `done` is called once, never before `write` returns. Concurrency: the owner's thread.
    """

    core: RaftCore
    persister: Persister
    log: Log
    times: Times
    environment: Environment
    options: DriverOptions
    pump_soon: Callable[[], None]
    _writes: PendingEntries = field(default_factory=PendingEntries, init=False)
    _batcher: WriteBatcher = field(default_factory=WriteBatcher, init=False)

    def __len__(self) -> int:
        """The number of writes that are not answered yet."""
        return len(self._writes) + len(self._batcher)

    @property
    def indexed(self) -> int:
        """The number of unanswered writes that have an index."""
        return len(self._writes)

    def write(self, kind: EntryKind, schema_id: int, meta: bytes, payload: bytes, payload_crc: int, done: Done) -> None:
        """Propose one entry, or let it wait for the batch under way; see `Replica.write`."""
        size = len(meta) + len(payload) + 64
        refusal = self._admit(size)
        if refusal is not None:
            self.environment.own_thread(lambda: done(refusal))
            return
        write = Write(kind, schema_id, meta, payload, payload_crc, size, done)
        if not self._batcher.hold_back(write):
            self._propose([*self._batcher.take(), write])

    def batch_left(self) -> None:
        """Note that the proposed writes have left as one batch."""
        self._batcher.leave()

    def finish(self, entries: Sequence[Entry], results: Sequence[object]) -> None:
        """Answer the writers whose entries are applied."""
        for entry, result in zip(entries, results, strict=True):
            self._writes.finish(entry.opid, result)

    def applied(self, index: int) -> None:
        """If the batch ends with `index`, propose the waiting writes: now, or after a wait for the writers just
        answered."""
        if not self._batcher.applied(index):
            return
        timer = self.environment.timer
        wait = self._batcher.end(timer.now_us() if timer is not None else None)
        if wait is None or timer is None:
            self._propose_batched()
        else:
            timer.after(wait.limit_us, lambda: self._waited_for_more(wait.number))

    def leadership_lost(self, hint: str) -> None:
        """Answer the writes without an index: they will never get one here."""
        for write in self._batcher.abandon():
            write.done(Refused(Code.NOT_LEADER, "leadership was lost before the write got an index", detail=hint))

    def answer_known_outcomes(
        self, answered_when_applied: int, term_at: Callable[[int], int | None], hint: str
    ) -> None:
        """Answer the writes with an index whose outcome is known now; see `PendingEntries.leadership_lost`."""
        self._writes.leadership_lost(answered_when_applied, term_at, hint)

    def fail_all(self, code: Code, what: str) -> None:
        """Answer all writes because the replica stops serving. A write without an index was not applied; for the others
        the outcome is unknown."""
        for write in self._batcher.abandon():
            write.done(Refused(code, what))
        self._writes.fail_all(code, what)

    def _waited_for_more(self, number: int) -> None:
        if self._batcher.waited(number):
            self._propose_batched()

    def _propose_batched(self) -> None:
        if gathered := self._batcher.take():
            self._propose(gathered)

    def _propose(self, writes: Sequence[Write]) -> None:
        """Give each write its index and time, in order, and let them leave together. A refused write is answered
        soon."""
        timer = self.environment.timer
        for write in writes:
            refusal = self._no_room(write.size_bytes)
            if refusal is None:
                try:
                    time = self.environment.hybrid_clock.now()
                    opid = self.core.propose(
                        write.kind, time, write.schema_id, write.meta, write.payload, write.payload_crc
                    )
                except Refused as error:
                    refusal = with_hint(error, self.core)
                else:
                    self.times.last = time
                    self._writes.add(opid, write.size_bytes, write.done)
                    if write.size_bytes <= WRITE_BYTES_MAX:
                        self._batcher.proposed(opid.index, timer.now_us() if timer else 0)
                    continue
            self.environment.own_thread(lambda done=write.done, refusal=refusal: done(refusal))  # type: ignore[misc]
        self.pump_soon()

    def _admit(self, size_bytes: int) -> Refused | None:
        """The refusal if a write gets no index now; otherwise None."""
        options = self.options
        size = self._writes.bytes + self._batcher.bytes
        if len(self) >= options.writes_pending_max or (
            size + size_bytes > options.write_bytes_pending_max and len(self)
        ):
            return Refused(Code.OVERLOADED, "too many writes wait", writes=len(self), bytes=size)
        return self._no_room(size_bytes)

    def _no_room(self, size_bytes: int) -> Refused | None:
        """The refusal if the log has no room for a write of this size now; otherwise None."""
        if self.persister.full:
            return self.persister.refusal
        if not self.persister.has_room(size_bytes):
            return Refused(Code.OVERLOADED, "the log's queue is full", queued_bytes=self.log.queued_bytes)
        return None
