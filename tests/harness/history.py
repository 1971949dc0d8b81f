"""Decides whether one order explains what clients did to registers: linearizability, key by key.

A history of independent registers is linearizable if each register's part is, so keys are judged apart. Clients write
values that were never written before, so every read names the write that it saw. Therefore no search through orders is
needed (Wing and Gong 1993, Lowe 2017), which takes exponential time if many calls overlap; the question is one of
intervals (Gibbons and Korach, "Testing Shared Memories", 1997): values that must have been held for a time exclude each
other. It takes n log n, always ends with an answer, and a bad answer names the operations that contradict each other.

A read of bounded staleness may be of any moment up to that long before it began. Two rules apply to it. It is not older
than that: it is judged as a read that began so much earlier. And the reads of one client never go back: a read that
began later is of no earlier moment than what the same client had seen before, whatever the keys, its own writes
included. A read of a time that the caller chose breaks neither rule, but what comes after it is not older.

A write whose outcome is unknown stays open: it may take effect at any later time, or never. One that was never read can
be left out, because leaving it out breaks no order; one that was read took effect before the first of those reads
ended.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

ABSENT = None
"""The value that a read of a key returns that was never written."""


class NotLinearizable(AssertionError):
    """No order explains what clients saw; the text has the few operations that show it."""


class WentBack(NotLinearizable):
    """A client read something older than what it had read before."""


@dataclass(frozen=True)
class Operation:
    """One call of one client. `value`: what was written or read. Times are of one clock; `ended` inf: the outcome is
    unknown. `write` False: a read, which ended well. `staleness`: how old a read may be; inf for one of a time that the
    caller chose."""

    client: str
    key: Any
    write: bool
    value: Any
    began: float
    ended: float = math.inf
    staleness: float = 0.0


class Call:
    """A call under way; its maker ends it at most once. One that never ends has an unknown outcome."""

    def __init__(
        self, history: History, client: str, key: Any, write: bool, value: Any, staleness: float = 0.0
    ) -> None:
        self._history = history
        self._operation = Operation(client, key, write, value, history.now(), staleness=staleness)
        history.begun(self._operation)

    def returned(self, value: Any = None) -> None:
        """Note that the call was carried out; `value`: what a read saw."""
        done = replace(self._operation, ended=self._history.now())
        self._history.ended(self._operation, done if done.write else replace(done, value=value))

    def unknown(self) -> None:
        """Note that it is unknown whether the call was, or yet will be, carried out. A read is then dropped."""
        self._history.lost += 1
        self._history.ended(self._operation, self._operation if self._operation.write else None)

    def refused(self) -> None:
        """Note that the call was not carried out, and never will be."""
        self._history.refused += 1
        self._history.ended(self._operation, None)
        if self._operation.write:
            self._history.refused_writes.add((self._operation.key, self._operation.value))


class History:
    """All calls to all keys. `now`: one clock for all clients. Concurrency: any thread."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.operations: list[Operation] = []
        self.refused = self.lost = 0
        self.refused_writes: set[tuple[Any, Any]] = set()
        """(key, value) of each refused write."""
        self._open: set[Operation] = set()
        self._lock = threading.Lock()

    def write(self, client: str, key: Any, value: Any) -> Call:
        """Begin a write. The value must be new to the key."""
        return Call(self, client, key, True, value)

    def read(self, client: str, key: Any, staleness: float = 0.0) -> Call:
        """Begin a read; `staleness` as `Operation` has it."""
        return Call(self, client, key, False, None, staleness)

    def begun(self, operation: Operation) -> None:
        with self._lock:
            self._open.add(operation)

    def ended(self, operation: Operation, result: Operation | None) -> None:
        """End an operation; `result`: the operation to judge."""
        with self._lock:
            self._open.discard(operation)
            if result is not None:
                self.operations.append(result)

    def everything(self) -> list[Operation]:
        """Return the operations to judge: writes that are under way are open."""
        with self._lock:
            return [*self.operations, *(o for o in self._open if o.write)]

    def verify(self) -> int:
        """Return the number of operations judged. NotLinearizable reports the first key that no order explains,
        WentBack the first read that is older than what its client had read before."""
        operations = self.everything()
        widened = widened_reads(operations)
        for key, mine in sorted(by_key(widened).items(), key=lambda item: str(item[0])):
            if seen := contradiction(mine):
                shown = [widened[o] for o in seen]
                why = "".join(
                    f"\n{o.value!r} was read, but its write was refused as not applied"
                    for o in shown
                    if not o.write and (key, o.value) in self.refused_writes
                )
                raise NotLinearizable(f"key {key!r}: no order explains these {len(shown)}:\n{drawn(shown)}{why}")
            if back := gone_back(mine, widened):
                told = drawn([widened[o] for o in back])
                raise WentBack(f"key {key!r}: the last of these is older than what its client was told before:\n{told}")
        return len(operations)


def by_key(operations: Iterable[Operation]) -> dict[Any, list[Operation]]:
    """Return the operations of each key."""
    found: dict[Any, list[Operation]] = defaultdict(list)
    for operation in operations:
        found[operation.key].append(operation)
    return dict(found)


def widened_reads(operations: Iterable[Operation]) -> dict[Operation, Operation]:
    """Return each operation -> its call, by order of begin. A stale read begins at the earliest moment that it may be
    of: so much earlier, but not before the moment that the same client knew already, by any key."""
    found: dict[Operation, Operation] = {}
    wrote = {(o.key, o.value): o.began for o in operations if o.write}
    told: dict[str, list[tuple[float, float]]] = defaultdict(list)
    """For each client a heap of (when it got an answer, a moment that the answer is not older than)."""
    floor: dict[str, float] = defaultdict(lambda: -math.inf)
    for o in sorted(operations, key=lambda one: (one.began, one.ended)):
        heap = told[o.client]
        while heap and heap[0][0] < o.began:
            floor[o.client] = max(floor[o.client], heapq.heappop(heap)[1])
        earliest = o.began
        if o.staleness:
            earliest = min(
                o.began, max(o.began - o.staleness, floor[o.client] if o.staleness < math.inf else -math.inf)
            )
        not_before = o.began if o.write else max(earliest, wrote.get((o.key, o.value), -math.inf))
        heapq.heappush(heap, (o.ended, not_before))
        found[replace(o, began=earliest)] = o
    return found


def gone_back(operations: Sequence[Operation], called: Mapping[Operation, Operation]) -> list[Operation]:
    """Return, of one register, widened and without a contradiction: what a client was told, and an older value that it
    read after that; none if there is none. `called`: as `widened_reads` returns it.

    A value is older than another one if an operation of it ended before an operation of the other began."""
    lows: dict[Any, float] = defaultdict(lambda: math.inf)
    highs: dict[Any, float] = defaultdict(lambda: -math.inf)
    lows[ABSENT] = -math.inf
    for o in operations:
        lows[o.value], highs[o.value] = min(lows[o.value], o.ended), max(highs[o.value], o.began)
    told: dict[str, list[tuple[float, int, Operation]]] = defaultdict(list)
    newest: dict[str, list[Operation]] = defaultdict(list)
    """For each client its operations of the two values that began last."""
    for number, o in enumerate(sorted(operations, key=lambda one: called[one].began)):
        heap = told[o.client]
        while heap and heap[0][0] < called[o].began:
            _, _, before = heapq.heappop(heap)
            values = {one.value: one for one in (*newest[o.client], before)}
            newest[o.client] = sorted(values.values(), key=lambda one: highs[one.value])[-2:]
        if not o.write and o.staleness < math.inf:
            for before in newest[o.client]:
                if before.value != o.value and lows[o.value] < highs[before.value]:
                    return [before, o]
        heapq.heappush(heap, (o.ended, number, o))
    return []


def linearizable(operations: Sequence[Operation]) -> bool:
    """Return whether one order of one register's operations explains all reads, and keeps what came after what.

    ValueError if a value was written twice: then a read does not show which write it saw.
    """
    return not contradiction(operations)


class _Cluster:
    """All operations of one value: its write and the reads that saw it.

    One of them ended at `low` and one began at `high`. If `low` is before `high`, the register must have held the value
    all that time; if not, all of them overlap, and one moment between `high` and `low` is enough for them.
    """

    def __init__(self, write: Operation | None, reads: Sequence[Operation]) -> None:
        # The initial value's write is before everything. An open write's own end is unknown; the end of a read of it
        # counts.
        ends = [(-math.inf if write is None else write.ended, write), *((o.ended, o) for o in reads)]
        begins = [(write.began if write else -math.inf, write), *((o.began, o) for o in reads)]
        self.low, first = min(ends, key=lambda item: item[0])
        self.high, last = max(begins, key=lambda item: item[0])
        self.holds = self.low < self.high
        self.shown = [o for o in dict.fromkeys((write, first, last)) if o is not None]
        too_early = [o for o in reads if write is not None and o.ended < write.began]
        self.from_the_future = [write, too_early[0]] if write is not None and too_early else []


def contradiction(operations: Sequence[Operation]) -> list[Operation]:
    """Return a few operations of one register that no order explains, the earliest there are; none if there are
    none."""
    reads: dict[Any, list[Operation]] = defaultdict(list)
    writes: dict[Any, Operation] = {}
    for o in operations:
        if not o.write:
            reads[o.value].append(o)
        elif o.value in writes or o.value is ABSENT:
            raise ValueError(f"{o.value!r} was written twice to {o.key!r}")
        else:
            writes[o.value] = o
    found = [[o] for value, seen in reads.items() if value is not ABSENT and value not in writes for o in seen]
    clusters = [_Cluster(None, reads.get(ABSENT, []))]
    for value, write in writes.items():
        seen = reads.get(value, [])
        if write.ended < math.inf or seen:
            clusters.append(_Cluster(write, seen))
    found += [c.from_the_future for c in clusters if c.from_the_future]
    holding = sorted((c for c in clusters if c.holds), key=lambda c: c.low)
    for one, other in itertools.pairwise(holding):
        if other.low < one.high:
            found.append([*one.shown, *other.shown])
    found += _swallowed(holding, [c for c in clusters if not c.holds])
    few = min(found, key=lambda some: max(o.began for o in some), default=[])
    return sorted(few, key=lambda o: (o.began, o.ended))


def _swallowed(holding: Sequence[_Cluster], brief: Sequence[_Cluster]) -> list[list[Operation]]:
    """Return each value that had no moment left for it, because another one held all the time. `holding`: by time."""
    found = []
    lows = [c.low for c in holding]
    furthest = list(itertools.accumulate(holding, lambda a, b: a if a.high >= b.high else b))
    for cluster in brief:
        pos = bisect.bisect_left(lows, cluster.high) - 1
        if pos >= 0 and cluster.low < furthest[pos].high:
            found.append([*furthest[pos].shown, *cluster.shown])
    return found


def drawn(operations: Sequence[Operation]) -> str:
    """Return one line for each operation: when it began and ended, a bar beside those of the others, its client and
    call."""
    times = sorted({t for o in operations for t in (o.began, o.ended)} - {math.inf})
    column = {t: 3 * pos for pos, t in enumerate(times)}
    width = 3 * len(times)
    lines = []
    for o in operations:
        left, right = column[o.began], column.get(o.ended, width)
        bar = " " * left + "[" + "=" * (right - left - 1) + ("]" if o.ended < math.inf else "=?")
        ended = f"{o.ended:.6f}" if o.ended < math.inf else "unknown"
        what = f"wrote {o.value!r}" if o.write else f"read {o.value!r}"
        if o.staleness:
            what += f" (may be {o.staleness:g} old)" if o.staleness < math.inf else " (of a time it chose)"
        lines.append(f"  {o.began:.6f} .. {ended:<14} {bar:<{width + 2}} {o.client} {what}")
    return "\n".join(lines)
