"""Records what was applied: for each Kafka source the last offset, for each client its results by sequence number.

It is part of the replicated state: it changes only in `apply`, expires by the entries' own hybrid time, and is saved
with the flush that its positions belong to. Records are immutable and replaced, so a capture is a shallow copy.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from nyala.replica.rows import RowError, SourceKey, WriteMeta
from nyala.replica.types import Code, Corruption, InvariantViolation, Refused, limits, us_of_hybrid

from .error_runs import I64, NO_ERRORS, ErrorRuns, PackedErrors

_CLIENT_BYTES = 800
_RESULT_BYTES = 700
"""The bytes that a client, or a result without errors, takes in memory, here and in the superblock."""
_SOURCE_RUN_BYTES = 22
"""The bytes of a source's run in this ledger only: writes that move `done` free room, so no estimate may refuse
them."""
_FORGOTTEN = -1
"""The number of rows of a write whose outcome was forgotten: the ledger knows only that there was such a write."""


class SourceState(NamedTuple):
    """One source: rows up to `last_offset` are applied (-1: none); errors from `done` on are remembered."""

    source: SourceKey
    generation: int
    last_offset: int
    done: int
    errors: ErrorRuns


class ClientResult(NamedTuple):
    """The remembered outcome of one client write, or only that there was one."""

    sequence: int
    hybrid_time: int
    rows_applied: int
    errors: PackedErrors

    @property
    def forgotten(self) -> bool:
        """Whether the outcome was forgotten to make room for others."""
        return self.rows_applied == _FORGOTTEN


class ClientState(NamedTuple):
    """One client. Results below `first_incomplete` are forgotten."""

    first_incomplete: int
    last_used: int
    results: dict[int, ClientResult]


class Ledger:
    """The positions of every source and client of one tablet.

    Invariants: `last_offset` and `done` of a generation never fall, nor does a source's generation. Errors of rows at
    or above `done` are never forgotten: a batch with new rows is refused instead, but never one that only repeats rows,
    or a replay could not pass it. Clients are in the order of their last use. The memory for clients' results is
    bounded over all clients, and an applied write is never applied again because its result was forgotten. Concurrency:
    under the tablet's lock.
    """

    def __init__(self) -> None:
        self._sources: dict[SourceKey, SourceState] = {}
        self._source_runs = 0
        # Ordered dicts, because their oldest member is found at once, however many were removed before it.
        self._clients: OrderedDict[str, ClientState] = OrderedDict()
        self._results: OrderedDict[tuple[str, int], None] = OrderedDict()
        """(client, sequence) of every result, the oldest first."""
        self._failed: OrderedDict[tuple[str, int], int] = OrderedDict()
        """The bytes of the errors of every result that has errors, the oldest first."""
        self._failed_bytes = 0

    @property
    def sources(self) -> list[SourceState]:
        """Every source, sorted by key."""
        return [self._sources[k] for k in sorted(self._sources)]

    @property
    def memory_bytes(self) -> int:
        """Bytes of the records of sources and clients. Any thread."""
        clients = _CLIENT_BYTES * len(self._clients) + _RESULT_BYTES * len(self._results)
        return clients + self._failed_bytes + _SOURCE_RUN_BYTES * self._source_runs

    # ------------------------------------------------------------------------------------------------ Kafka sources

    def admit_source(self, meta: WriteMeta) -> SourceState:
        """The state that applies to a batch of a source; changes nothing.

        Raises Refused(STALE_GENERATION or GAP). For a higher generation it is a fresh state.
        """
        source = meta.source
        if source is None:
            raise InvariantViolation("a batch of a source names it", client=meta.client_id)
        state = self._sources.get(source)
        if state is not None and meta.generation < state.generation:
            raise Refused(
                Code.STALE_GENERATION,
                "the source was reset after this query opened it: start the query again",
                detail=str(state.generation),
                generation=meta.generation,
                current=state.generation,
            )
        if state is None or meta.generation > state.generation:
            state = SourceState(source, meta.generation, -1, meta.done, ErrorRuns.none())
        if meta.after is not None and meta.after > state.last_offset:
            raise Refused(
                Code.GAP,
                "the batch builds on an offset that is not applied here",
                detail=str(state.last_offset),
                after=meta.after,
                last_offset=state.last_offset,
            )
        return _forget_below(state, meta.done)

    def check_room(self, state: SourceState, last_offset: int) -> None:
        """Raise Refused(OVERLOADED) if a batch up to `last_offset` has new rows and no more errors can be remembered.

        A query never gets this: between two advances of `done` there is one micro-batch, which has fewer offsets than
        the number of runs that are remembered.
        """
        if last_offset > state.last_offset and len(state.errors) >= limits.LEDGER_ERROR_RUNS_MAX:
            raise Refused(
                Code.OVERLOADED,
                "too many row errors wait for the source's done position to pass them",
                runs=len(state.errors),
                done=state.done,
            )

    def advance_source(self, state: SourceState, last_offset: int, errors: Sequence[RowError], offsets: I64) -> None:
        """Record a batch: `state` as admitted, its last offset, the `offsets` of its new rows and their errors, both
        ascending."""
        runs = state.errors.append(errors, offsets, after=state.last_offset).forget_below(state.done)
        self._put(state._replace(last_offset=max(state.last_offset, last_offset), errors=runs))

    def reset_source(self, source: SourceKey, generation: int, done: int) -> bool:
        """Start a source anew at a higher generation, or advance `done` in its own. False if `generation` is older."""
        state = self._sources.get(source)
        if state is not None and generation < state.generation:
            return False
        if state is not None and generation == state.generation:
            self._put(_forget_below(state, done))
        else:
            self._put(SourceState(source, generation, -1, done, ErrorRuns.none()))
        return True

    def _put(self, state: SourceState) -> None:
        old = self._sources.get(state.source)
        self._source_runs += len(state.errors) - (0 if old is None else len(old.errors))
        self._sources[state.source] = state

    # ------------------------------------------------------------------------------------------------- other clients

    def admit_client(self, meta: WriteMeta, now: int) -> ClientResult | None:
        """The remembered result of a repeated write, None for a new one. Expires old clients first.

        Raises Refused(EXPIRED) if the result is forgotten, OVERLOADED if too many clients are remembered.
        """
        self.expire(now)
        state = self._clients.get(meta.client_id)
        if state is None:
            if len(self._clients) >= limits.LEDGER_CLIENTS_MAX:
                raise Refused(Code.OVERLOADED, "too many clients wrote recently", clients=len(self._clients))
            return None
        known = state.results.get(meta.sequence)
        if meta.sequence < state.first_incomplete if known is None else known.forgotten:
            raise Refused(
                Code.EXPIRED,
                "the result of this write is forgotten",
                sequence=meta.sequence,
                first_incomplete=state.first_incomplete,
            )
        return known

    def client_result(self, client_id: str, sequence: int) -> ClientResult | None:
        """The remembered result; None if there is none. Changes nothing."""
        state = self._clients.get(client_id)
        known = None if state is None else state.results.get(sequence)
        return None if known is None or known.forgotten else known

    def new_writes(self, metas: Sequence[WriteMeta], times: Sequence[int]) -> int:
        """The number of these client writes, from the first on, that `admit_client` would find new, one after the
        other.

        The answer may be too low, but never too high. It stops where a client would expire or be one too many, and
        where a number would be forgotten to make room, because lower numbers are not new.
        """
        if self._due(times[-1]) is not None:
            return 0
        metas = metas[: limits.LEDGER_RESULTS_MAX - len(self._results)]
        seen: set[tuple[str, int]] = set()
        left: dict[str, int] = {}
        first_incomplete: dict[str, int] = {}
        room = limits.LEDGER_CLIENTS_MAX - len(self._clients)
        for count, meta in enumerate(metas):
            client, sequence = meta.client_id, meta.sequence
            state = self._clients.get(client)
            if state is None and client not in first_incomplete:
                room -= 1
            known = (client, sequence) in seen or (state is not None and sequence in state.results)
            low = first_incomplete.get(client, state.first_incomplete if state is not None else 0)
            results = 0 if state is None else len(state.results)
            left[client] = left.get(client, limits.LEDGER_RESULTS_PER_CLIENT_MAX - results) - 1
            if known or sequence < low or room < 0 or left[client] < 0:
                return count
            seen.add((client, sequence))
            first_incomplete[client] = max(low, meta.first_incomplete)
        return len(metas)

    def record_client(self, meta: WriteMeta, now: int, result: ClientResult | None) -> None:
        """Remember a new result, or that the client is alive; forget what it has acknowledged, and what is above the
        bounds."""
        client = meta.client_id
        state = self._clients.pop(client, None) or ClientState(0, now, {})
        results = state.results
        if result is not None:
            result = _fitting(result)
            results = {**results, result.sequence: result}
            self._count(client, result)
        self._clients[client] = ClientState(state.first_incomplete, max(now, state.last_used), results)
        first, excess = meta.first_incomplete, len(results) - limits.LEDGER_RESULTS_PER_CLIENT_MAX
        if excess > 0:
            first = max(first, sorted(results)[excess - 1] + 1)
        self._forget_results(client, first)
        self._make_room()

    def expire(self, now: int) -> None:
        """Forget the clients that were silent for their time to live. Call it for every applied entry."""
        while (client := self._due(now)) is not None:
            for sequence in self._clients.pop(client).results:
                self._discount(client, sequence)

    def _due(self, now: int) -> str | None:
        """The client that was silent for longest, if that is longer than its time to live; otherwise None."""
        oldest = next(iter(self._clients), None)
        if oldest is None:
            return None
        horizon = us_of_hybrid(now) - limits.LEDGER_CLIENT_TTL_US
        return oldest if us_of_hybrid(self._clients[oldest].last_used) < horizon else None

    def _make_room(self) -> None:
        """Forget the oldest results while all clients together have too many, or their row errors take too much.

        Errors are forgotten alone: the ledger still knows that there was a result, so the outcome of that write, and of
        others of the client, stays the same.
        """
        while len(self._results) > limits.LEDGER_RESULTS_MAX:
            client, sequence = next(iter(self._results))
            self._forget_results(client, sequence + 1)
        while self._failed_bytes > limits.LEDGER_ERRORS_BYTES_MAX:
            (client, sequence), size = self._failed.popitem(last=False)
            self._failed_bytes -= size
            state = self._clients[client]
            results = {**state.results, sequence: _outline(state.results[sequence])}
            self._clients[client] = state._replace(results=results)

    def _forget_results(self, client: str, first: int) -> None:
        """Forget a client's results below `first`, for good."""
        state = self._clients[client]
        if first <= state.first_incomplete:
            return
        results = {}
        for sequence, result in state.results.items():
            if sequence < first:
                self._discount(client, sequence)
            else:
                results[sequence] = result
        self._clients[client] = ClientState(first, state.last_used, results)

    def _count(self, client: str, result: ClientResult) -> None:
        key, size = (client, result.sequence), result.errors.size_bytes
        self._results[key] = None
        if size:
            self._failed[key] = size
            self._failed_bytes += size

    def _discount(self, client: str, sequence: int) -> None:
        key = client, sequence
        del self._results[key]
        self._failed_bytes -= self._failed.pop(key, 0)

    # ------------------------------------------------------------------------------------------------- saved state

    def capture(self) -> Ledger:
        """A copy that later changes do not affect. It is cheap, because the records are immutable."""
        copy = Ledger()
        copy._sources, copy._source_runs = dict(self._sources), self._source_runs
        copy._clients, copy._results = self._clients.copy(), self._results.copy()
        copy._failed, copy._failed_bytes = self._failed.copy(), self._failed_bytes
        return copy

    def to_avro(self) -> dict[str, Any]:
        """The ledger as `superblock.avsc` has it."""
        return {
            "sources": [
                {
                    "source": s.source._asdict(),
                    "generation": s.generation,
                    "last_offset": s.last_offset,
                    "done": s.done,
                    "errors": s.errors.to_avro(),
                }
                for s in self.sources
            ],
            "clients": [
                {
                    "client_id": client_id,
                    "first_incomplete": c.first_incomplete,
                    "last_used": c.last_used,
                    "results": [
                        {
                            "sequence": r.sequence,
                            "hybrid_time": r.hybrid_time,
                            "rows_applied": r.rows_applied,
                            "errors": r.errors.to_avro(),
                        }
                        for _, r in sorted(c.results.items())
                    ],
                }
                for client_id, c in self._clients.items()
            ],
        }

    @classmethod
    def from_avro(cls, raw: dict[str, Any]) -> Ledger:
        """The inverse of `to_avro`; Corruption for impossible values. The order of clients, by their last use, is kept.

        Results of an earlier build beyond the bounds are forgotten.
        """
        try:
            return cls._read(raw)
        except ValueError as error:
            raise Corruption("a ledger cannot be read", reason=str(error)) from error

    @classmethod
    def _read(cls, raw: dict[str, Any]) -> Ledger:
        ledger = cls()
        for s in raw["sources"]:
            key = SourceKey(**s["source"])
            errors = ErrorRuns.from_avro(s["errors"])
            last = -1 if s["last_offset"] is None else s["last_offset"]
            ledger._put(SourceState(key, s["generation"], last, s["done"], errors))
        for c in raw["clients"]:
            results = {
                r["sequence"]: _fitting(
                    ClientResult(
                        r["sequence"], r["hybrid_time"], r["rows_applied"], PackedErrors.from_avro(r["errors"])
                    )
                )
                for r in c["results"]
            }
            ledger._clients[c["client_id"]] = ClientState(c["first_incomplete"], c["last_used"], results)
        known = [(r.hybrid_time, client, r) for client, c in ledger._clients.items() for r in c.results.values()]
        for _, client, result in sorted(known):
            ledger._count(client, result)
        ledger._make_room()
        return ledger


def _outline(result: ClientResult) -> ClientResult:
    """The result without its outcome: only that there was one."""
    return result._replace(rows_applied=_FORGOTTEN, errors=NO_ERRORS)


def _fitting(result: ClientResult) -> ClientResult:
    """The result as it can be remembered: without errors that need more room than all results together may have."""
    return _outline(result) if result.errors.size_bytes > limits.LEDGER_ERRORS_BYTES_MAX else result


def _forget_below(state: SourceState, done: int) -> SourceState:
    if done <= state.done:
        return state
    return state._replace(done=done, errors=state.errors.forget_below(done))
