"""Callers that wait for the outcome of their entry, or until an index or a time is applied."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, NamedTuple

from nyala.replica.types import Applied, Code, OpId, Refused

Done = Callable[[Any], None]


class PendingEntry(NamedTuple):
    """A proposal of this leader whose caller has no answer yet."""

    opid: OpId
    size_bytes: int
    done: Done


class PendingEntries:
    """Proposals by index. Invariant: `bytes` is the sum of the waiting proposals; each `done` is called exactly
    once."""

    def __init__(self) -> None:
        self._by_index: dict[int, PendingEntry] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._by_index)

    def add(self, opid: OpId, size_bytes: int, done: Done) -> None:
        """Let `done` wait for the entry at `opid`. A caller that waited for an overwritten entry there gets UNKNOWN."""
        old = self._by_index.pop(opid.index, None)
        if old is not None:
            self.bytes -= old.size_bytes
            old.done(_overwritten(old.opid))
        self._by_index[opid.index] = PendingEntry(opid, size_bytes, done)
        self.bytes += size_bytes

    def finish(self, opid: OpId, result: object) -> None:
        """Answer with `result`: the entry at `opid` is committed and applied, so no other entry at that index ever will
        be."""
        entry = self._by_index.pop(opid.index, None)
        if entry is None:
            return
        self.bytes -= entry.size_bytes
        entry.done(result if entry.opid == opid else _replaced(entry.opid))

    def finish_configs_up_to(self, opid: OpId, result: object, aborted: OpId | None) -> None:
        """Answer the callers of entries up to `opid` with `result`, because these are committed with it. The entry at
        `opid` took back the entry `aborted`. The caller of that one gets CAS_FAILED, because another config is
        committed now: clients do not repeat the call, and masters decide anew.
        """
        for index in sorted(i for i in self._by_index if i < opid.index):
            taken_back = Refused(
                Code.CAS_FAILED, "not committed in time, and taken back", opid=self._by_index[index].opid
            )
            entry = self._by_index.pop(index)
            self.bytes -= entry.size_bytes
            entry.done(taken_back if entry.opid == aborted else result)

    def leadership_lost(
        self, answered_when_applied: int, term_at: Callable[[int], int | None], leader_hint: str
    ) -> None:
        """Answer each caller whether its entry is gone from the log, or its outcome unknown. Callers of committed
        entries wait on. `answered_when_applied`: up to this index everything is committed and will be applied here
        soon, so these callers wait.
        """
        for index in sorted(self._by_index):
            entry = self._by_index[index]
            if index <= answered_when_applied:
                if term_at(index) == entry.opid.term:
                    continue
                answer = _replaced(entry.opid)
            elif term_at(index) != entry.opid.term:
                answer = _overwritten(entry.opid)
            else:
                answer = Refused(
                    Code.NOT_LEADER,
                    "leadership was lost before the entry took effect here",
                    applied=Applied.UNKNOWN,
                    detail=leader_hint,
                    opid=entry.opid,
                )
            del self._by_index[index]
            self.bytes -= entry.size_bytes
            entry.done(answer)

    def fail_all(self, code: Code, what: str) -> None:
        """Answer all callers with an unknown outcome."""
        entries, self._by_index, self.bytes = self._by_index, {}, 0
        for index in sorted(entries):
            entries[index].done(Refused(code, what, applied=Applied.UNKNOWN, opid=entries[index].opid))


def _replaced(opid: OpId) -> Refused:
    return Refused(Code.NOT_LEADER, "another leader's entry was committed in the place of this one", opid=opid)


def _overwritten(opid: OpId) -> Refused:
    """The refusal for an entry that is gone from this log, while the one in its place is not committed. A replica that
    still has it may lead."""
    what = "another leader's entry took the place of this one here"
    return Refused(Code.NOT_LEADER, what, applied=Applied.UNKNOWN, opid=opid)


class Waiters:
    """Callers that wait until a rising number reaches their target, or until their deadline tick.

    Invariant: at most `count_max` wait; each `done` is called exactly once.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._heap: list[tuple[int, int, int, Done]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, target: int, deadline_tick: int, done: Done) -> None:
        """Call `done(target)` when the number is at least `target`, or `done(Refused)`: OVERLOADED now, or TIMED_OUT
        later."""
        if len(self._heap) >= self._count_max:
            done(Refused(Code.OVERLOADED, "too many callers wait", waiting=len(self._heap)))
            return
        self._serial += 1
        heappush(self._heap, (target, self._serial, deadline_tick, done))

    def reached(self, value: int) -> None:
        """Note that the number is now `value`."""
        while self._heap and self._heap[0][0] <= value:
            target, _, _, done = heappop(self._heap)
            done(target)

    def expire(self, tick: int) -> None:
        """Answer the callers whose deadline has come."""
        late = [waiter for waiter in self._heap if waiter[2] <= tick]
        if not late:
            return
        self._heap = sorted(waiter for waiter in self._heap if waiter[2] > tick)  # a sorted list is a heap
        for target, _, _, done in late:
            done(Refused(Code.TIMED_OUT, "not applied here in time", waited_for=target))

    def fail_all(self, code: Code, what: str) -> None:
        """Answer all callers with a refusal. Nothing of theirs was applied, because they only waited."""
        waiting, self._heap = self._heap, []
        for _, _, _, done in sorted(waiting):
            done(Refused(code, what))
