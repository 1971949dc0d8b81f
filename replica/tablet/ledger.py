"""What was applied already: per Kafka source the last offset, per client the results by sequence number.

Part of the replicated state: it changes only in `apply`, expires by the entries' own hybrid time, and is saved with the
flush that its positions belong to. Records are immutable and replaced, so a capture is a shallow copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from nyala.replica.base import Code, InvariantViolation, Refused, RowCode, limits, us_of_hybrid
from nyala.replica.rows import RowError, SourceKey, WriteMeta

from .error_runs import I64, ErrorRuns

_ERROR_BYTES = 24
"""What one remembered error of a client counts against the bound, without its column's name."""


class SourceState(NamedTuple):
    """One source: rows up to `last_offset` are applied, -1 if none; errors from `done` on are remembered."""

    source: SourceKey
    generation: int
    last_offset: int
    done: int
    errors: ErrorRuns


class ClientResult(NamedTuple):
    """The remembered outcome of one client write."""

    sequence: int
    hybrid_time: int
    rows_applied: int
    errors: tuple[RowError, ...]


class ClientState(NamedTuple):
    """One client. Results below `first_incomplete` are forgotten."""

    first_incomplete: int
    last_used: int
    results: dict[int, ClientResult]
    error_bytes: int


def error_bytes(errors: Sequence[RowError]) -> int:
    """What remembering these errors costs."""
    return sum(_ERROR_BYTES + len(e.column) for e in errors)


class Ledger:
    """The positions of every source and client of one tablet.

    Invariants: `last_offset` and `done` of a generation never fall, nor does a source's generation; errors of rows
    above `done` are never forgotten (a batch with new rows is refused instead; one that only repeats rows never is, or
    a replay could not get past it); clients stand in order of last use.
    Concurrency: under the tablet's lock.
    """

    def __init__(self) -> None:
        self._sources: dict[SourceKey, SourceState] = {}
        self._clients: dict[str, ClientState] = {}

    @property
    def sources(self) -> list[SourceState]:
        """Every source, sorted by key."""
        return [self._sources[k] for k in sorted(self._sources)]

    # ------------------------------------------------------------------------------------------------ Kafka sources

    def admit_source(self, meta: WriteMeta) -> SourceState:
        """The state that a batch of a source meets; changes nothing.

        Refused(STALE_GENERATION or GAP): nothing moves. A higher generation meets a fresh state.
        """
        source = meta.source
        if source is None:
            raise InvariantViolation("a batch of a source names it", client=meta.client_id)
        state = self._sources.get(source)
        if state is not None and meta.generation < state.generation:
            raise Refused(
                Code.STALE_GENERATION,
                "the source was reset since",
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
        """Refused(OVERLOADED) if a batch up to `last_offset` has new rows and no more errors may be remembered.

        A query never meets this: between two advances of `done` lies one micro-batch, whose offsets are fewer than the
        runs that are remembered.
        """
        if last_offset > state.last_offset and len(state.errors) >= limits.LEDGER_ERROR_RUNS_MAX:
            raise Refused(
                Code.OVERLOADED,
                "too many row errors wait for the source's done position to pass them",
                runs=len(state.errors),
                done=state.done,
            )

    def advance_source(self, state: SourceState, last_offset: int, errors: Sequence[RowError], offsets: I64) -> None:
        """Record a batch: `state` as admitted, its last offset, its new rows' `offsets` and errors, both ascending."""
        if errors and errors[-1].offset >= state.done:
            runs = state.errors.append(errors, offsets, after=state.last_offset)
            state = state._replace(errors=runs.forget_below(state.done))
        self._sources[state.source] = state._replace(last_offset=max(state.last_offset, last_offset))

    def reset_source(self, source: SourceKey, generation: int, done: int) -> bool:
        """Start a source anew at a higher generation, or advance `done` at its own; False if `generation` is older."""
        state = self._sources.get(source)
        if state is not None and generation < state.generation:
            return False
        if state is not None and generation == state.generation:
            self._sources[source] = _forget_below(state, done)
        else:
            self._sources[source] = SourceState(source, generation, -1, done, ErrorRuns.none())
        return True

    # ------------------------------------------------------------------------------------------------- other clients

    def admit_client(self, meta: WriteMeta, now: int) -> ClientResult | None:
        """The remembered result of a replayed write, None for a new one. Expires old clients first.

        Refused(EXPIRED) if the result is forgotten, OVERLOADED if too many clients are remembered.
        """
        self._expire(now)
        state = self._clients.get(meta.client_id)
        if state is None:
            if len(self._clients) >= limits.LEDGER_CLIENTS_MAX:
                raise Refused(Code.OVERLOADED, "too many clients wrote recently", clients=len(self._clients))
            return None
        known = state.results.get(meta.sequence)
        if known is None and meta.sequence < state.first_incomplete:
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
        return None if state is None else state.results.get(sequence)

    def new_writes(self, metas: Sequence[WriteMeta], times: Sequence[int]) -> int:
        """How many of these client writes, from the first on, `admit_client` would find new, one after the other.

        It is enough that the answer is never too high: it stops where a client would expire or be one too many, and
        where a number would be forgotten to make room, for older ones than that are not new.
        """
        if self._clients:
            oldest = self._clients[next(iter(self._clients))]
            if us_of_hybrid(oldest.last_used) < us_of_hybrid(times[-1]) - limits.LEDGER_CLIENT_TTL_US:
                return 0
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
        """Remember a new result, or only that the client is alive; forget what it says it knows."""
        state = self._clients.pop(meta.client_id, None) or ClientState(0, now, {}, 0)
        first, size, results = max(state.first_incomplete, meta.first_incomplete), state.error_bytes, state.results
        if result is not None:
            results = {**results, result.sequence: result}
            size += error_bytes(result.errors)
        forget = [s for s in results if s < first]
        excess = len(results) - len(forget) - limits.LEDGER_RESULTS_PER_CLIENT_MAX
        if excess > 0:
            forget = sorted(results)[: len(forget) + excess]
        while size - sum(error_bytes(results[s].errors) for s in forget) > limits.LEDGER_ERRORS_BYTES_MAX and (
            len(forget) < len(results) - 1
        ):
            forget = sorted(results)[: len(forget) + 1]
        if forget:
            size -= sum(error_bytes(results[s].errors) for s in forget)
            first = max(first, max(forget) + 1)
            results = {s: r for s, r in results.items() if s not in forget}
        self._clients[meta.client_id] = ClientState(first, max(now, state.last_used), results, size)

    def _expire(self, now: int) -> None:
        horizon = us_of_hybrid(now) - limits.LEDGER_CLIENT_TTL_US
        while self._clients:
            oldest = next(iter(self._clients))
            if us_of_hybrid(self._clients[oldest].last_used) >= horizon:
                return
            del self._clients[oldest]

    # ------------------------------------------------------------------------------------------------- saved state

    def capture(self) -> Ledger:
        """A copy that later changes leave alone; cheap, for the records are immutable."""
        copy = Ledger()
        copy._sources = dict(self._sources)
        copy._clients = dict(self._clients)
        return copy

    def to_avro(self) -> dict[str, Any]:
        """As `superblock.avsc` has it."""
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
                            "errors": [_error_to_avro(e) for e in r.errors],
                        }
                        for _, r in sorted(c.results.items())
                    ],
                }
                for client_id, c in self._clients.items()
            ],
        }

    @classmethod
    def from_avro(cls, raw: dict[str, Any]) -> Ledger:
        """The inverse of `to_avro`; the order of clients, which is that of last use, is kept."""
        ledger = cls()
        for s in raw["sources"]:
            key = SourceKey(s["source"]["cluster_id"], s["source"]["topic_id"], s["source"]["kafka_partition"])
            errors = ErrorRuns.from_avro(s["errors"])
            last = -1 if s["last_offset"] is None else s["last_offset"]
            ledger._sources[key] = SourceState(key, s["generation"], last, s["done"], errors)
        for c in raw["clients"]:
            results = {
                r["sequence"]: ClientResult(
                    r["sequence"], r["hybrid_time"], r["rows_applied"], tuple(_error_from_avro(e) for e in r["errors"])
                )
                for r in c["results"]
            }
            size = sum(error_bytes(r.errors) for r in results.values())
            ledger._clients[c["client_id"]] = ClientState(c["first_incomplete"], c["last_used"], results, size)
        return ledger


def _forget_below(state: SourceState, done: int) -> SourceState:
    if done <= state.done:
        return state
    return state._replace(done=done, errors=state.errors.forget_below(done))


def _error_to_avro(error: RowError) -> dict[str, Any]:
    return {"offset": error.offset, "code": int(error.code), "column": error.column}


def _error_from_avro(raw: dict[str, Any]) -> RowError:
    return RowError(raw["offset"], RowCode(raw["code"]), raw["column"])
