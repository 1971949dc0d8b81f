"""Writes: one at a time, or a pipelined window of them per tablet, retried in order until their outcome is known.

Every write names its origin: a Kafka source with offsets, or a client with a sequence number. By the origin, a tablet's
ledger recognises writes that were applied before and drops them. So a write may always be repeated.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import grpc

from nyala.replica.rows import RowError, SourceKey, WriteMeta, decode_batch
from nyala.replica.rpc import pb, raise_if_error, row_errors_from_pb, source_to_pb
from nyala.replica.types import Address, Code, InvariantViolation, Refused

from .batching import WireBatch, wire_batch
from .calls import TabletCalls
from .client_ids import ClientId, ClientIds
from .retry import Attempts, Deadline, NotApplied, final, refusal_of_rpc_error
from .row_errors import OnError, RowErrors
from .tables import TableHandle
from .write_links import LinkedWrite

GAP_RETRIES_MAX = 3
"""The number of retries after a GAP: right after a failover it may come from a leader that has not applied all of its
log yet."""


@dataclass(frozen=True)
class WriteOutcome:
    """The outcome of one batch. `rows_replayed`: the number of rows that the tablet had already. `last_offset`: the
    last offset of the source, if it has one."""

    tablet_id: str
    rows: int
    rows_applied: int
    rows_replayed: int
    row_errors: tuple[RowError, ...]
    last_offset: int
    hybrid_time: int


def write_request(handle: TableHandle, batch: WireBatch, meta: WriteMeta) -> pb.WriteRequest:
    """Return a request without destination; origin, chain and sequence as in `meta`."""
    tablet = handle.tablets[batch.pos]
    return pb.WriteRequest(
        tablet_id=tablet.tablet_id,
        table_id=handle.table_id,
        schema_id=handle.schema.schema_id,
        column_ids=batch.column_ids,
        payload=batch.payload,
        payload_crc=batch.payload_crc,
        rows=batch.rows,
        ignore_null=batch.ignore_null,
        config_term=tablet.config_term if meta.source else 0,
        source=None if meta.source is None else source_to_pb(meta.source),
        generation=meta.generation,
        done=meta.done,
        has_after=meta.after is not None,
        after=meta.after or 0,
        client_id=meta.client_id,
        sequence=meta.sequence,
        first_incomplete=meta.first_incomplete,
    )


def halves(handle: TableHandle, whole: pb.WriteRequest) -> tuple[WireBatch, WireBatch]:
    """Split the rows of a request, at least two, into two batches, in order."""
    tablet = handle.tablet(whole.tablet_id)
    if tablet is None:
        raise InvariantViolation("a write goes to a tablet of its table", tablet=whole.tablet_id)
    column_ids = tuple(whole.column_ids)
    batch = decode_batch(whole.payload, handle.schema.wire_schema(column_ids))
    half = batch.num_rows // 2
    parts = batch.slice(0, half), batch.slice(half)
    first, second = (wire_batch(tablet.pos, column_ids, part, whole.ignore_null) for part in parts)
    return first, second


def _part_request(whole: pb.WriteRequest, part: WireBatch) -> pb.WriteRequest:
    """Return the request for some of the rows of another one; all else is the same."""
    request = pb.WriteRequest()
    request.CopyFrom(whole)
    request.payload, request.payload_crc, request.rows = part.payload, part.payload_crc, part.rows
    return request


class _CallWhenAsked:
    """A call that begins only when the caller requests its outcome.

    If the thread sends nothing else meanwhile, a blocking call costs half as much as one that runs in gRPC's threads.
    """

    def __init__(self, write: Any, request: pb.WriteRequest, timeout_s: float) -> None:
        self._write, self._request, self._timeout_s = write, request, timeout_s

    def result(self) -> Any:
        return self._write(self._request, timeout=self._timeout_s)

    def cancel(self) -> None:
        """Do nothing: no call is under way."""


@dataclass
class _InFlight:
    """One write under way.

    `is_oldest`: when it was last sent, every earlier write to the tablet was acknowledged. `behind_linked`: the write
    before it goes over the link. If the write before it is a gRPC call, it must be a call, too, because it would
    overtake that write over the link.
    """

    request: pb.WriteRequest
    deadline: Deadline
    attempts: Attempts
    size_bytes: int
    alone: bool = False
    behind_part: bool = False
    """Whether it is a part of a halved batch of which other rows are applied already."""
    put_order: int = 0
    """Its position in the order in which the caller put writes into the window; not its sequence number."""
    call: Any = None
    error: Refused | None = None
    uuid: str = ""
    version: int = 0
    is_oldest: bool = False
    behind_linked: bool = False
    gaps: int = 0


@dataclass
class _TabletQueue:
    """The writes to one tablet, oldest first."""

    tablet_id: str
    writes: deque[_InFlight] = field(default_factory=deque)


def _first_put(tablet: _TabletQueue) -> int:
    return tablet.writes[0].put_order


Split = Callable[[pb.WriteRequest, WireBatch, WireBatch], tuple[pb.WriteRequest, pb.WriteRequest]]
"""Takes a request that was refused as too large, and its rows in two parts; returns the two requests that replace
it."""


class WriteWindow:
    """Pipelined writes to the tablets of one table. The outcomes of a tablet's writes are read in order, the oldest
    first.

    A tablet may refuse a batch as too large, because its rows would keep too many stored values, or write one key too
    often. Then two halves replace the batch. The second half is sent when the first one is acknowledged.

    Invariants: at most `writes_inflight_per_tablet_max` writes a tablet, `writes_inflight_max` writes and
    `write_bytes_inflight_max` bytes in all are under way; writes to one tablet are acknowledged in the order in which
    they were put in.
    Concurrency: one thread.
    """

    def __init__(
        self,
        calls: TabletCalls,
        handle: TableHandle,
        on_outcome: Callable[[WriteOutcome], None],
        split: Split | None = None,
    ) -> None:
        """Without `split`, a batch that is too large is refused."""
        self._calls = calls
        self._handle = handle
        self._on_outcome = on_outcome
        self._split = split
        self._queues: dict[str, _TabletQueue] = {}
        self._bytes = self._writes = self._put = 0

    def put(self, request: pb.WriteRequest, *, depth: int | None = None, alone: bool = False) -> None:
        """Send a write. If the bounds demand it, the outcomes of older writes are read first. `depth` lowers the bound
        for the tablet.

        `alone`: the caller adds no other write before it calls `drain`. Raises the error of an older write: NotApplied
        or OutcomeUnknown.
        """
        options = self._calls.options
        tablet = self._queues.setdefault(request.tablet_id, _TabletQueue(request.tablet_id))
        size = len(request.payload)
        while len(tablet.writes) >= (depth or options.writes_inflight_per_tablet_max):
            self._settle_oldest(tablet)
        while self._writes >= options.writes_inflight_max:
            self._settle_oldest(min((one for one in self._queues.values() if one.writes), key=_first_put))
        while self._bytes and self._bytes + size > options.write_bytes_inflight_max:
            self._settle_oldest(max(self._queues.values(), key=lambda one: len(one.writes)))
        item = self._item(request, alone)
        item.is_oldest = not tablet.writes
        item.behind_linked = bool(tablet.writes) and isinstance(tablet.writes[-1].call, LinkedWrite)
        self._put += 1
        item.put_order = self._put
        self._bytes += size
        self._writes += 1
        tablet.writes.append(item)
        self._send(item)

    def drain(self) -> None:
        """Read the outcomes of all writes. Raises the error of a write, and the same at each later call: the outcomes
        of the writes after that one are not read, and the caller can only `abandon` them."""
        for tablet in self._queues.values():
            while tablet.writes:
                self._settle_oldest(tablet)

    def abandon(self) -> None:
        """Cancel the writes under way; their outcomes stay unknown, and the ledger makes a later repetition safe."""
        for tablet in self._queues.values():
            for item in tablet.writes:
                if item.call is not None:
                    item.call.cancel()
            tablet.writes.clear()
        self._bytes = self._writes = 0

    def _item(self, request: pb.WriteRequest, alone: bool) -> _InFlight:
        options = self._calls.options
        deadline = Deadline(options.write_timeout_s)
        return _InFlight(request, deadline, Attempts(options, deadline, self._calls.rng), len(request.payload), alone)

    def _send(self, item: _InFlight) -> None:
        """Begin one attempt; never raises. `_settle_oldest` reads its outcome."""
        item.call, item.error = None, None
        item.version = self._calls.locator.version(self._handle.name)
        try:
            item.uuid, address = self._calls.locator.leader(item.request.tablet_id)
            item.request.dest_uuid = item.uuid
            item.request.propagated_time = self._calls.time_seen
            item.call = self._begin(address, item, item.attempts.timeout_s)
        except Refused as e:
            item.error = e

    def _begin(self, address: Address, item: _InFlight, timeout_s: float) -> Any:
        channels, request = self._calls.channels, item.request
        if item.is_oldest or item.behind_linked:
            linked = channels.small_writes(address).begin(request, timeout_s)
            if linked is not None:
                return linked
        write = channels.tablet_server(address).Write
        return _CallWhenAsked(write, request, timeout_s) if item.alone else write.future(request, timeout=timeout_s)

    def _settle_oldest(self, tablet: _TabletQueue) -> None:
        """Wait for the oldest write's outcome, and send it again as long as `reaction_to` its error demands it."""
        item = tablet.writes[0]
        if item.attempts.count == 0:
            # The time that earlier writes took does not count towards this one's deadline.
            item.deadline.restart()
        while True:
            if item.call is None and item.error is None:
                self._send(item)  # a half: the writes before it are acknowledged by now
            try:
                reply = self._reply(item)
                break
            except Refused as error:
                if self._split is not None and self._may_be_halved(item, error):
                    item = self._halve(tablet, self._split)
                else:
                    self._again_or_raise(item, error)
        tablet.writes.popleft()
        self._bytes -= item.size_bytes
        self._writes -= 1
        self._calls.observe(reply.hybrid_time)
        self._calls.locator.leader_answered(tablet.tablet_id, item.uuid)
        self._on_outcome(
            WriteOutcome(
                tablet_id=tablet.tablet_id,
                rows=item.request.rows,
                rows_applied=reply.rows_applied,
                rows_replayed=reply.rows_replayed,
                row_errors=tuple(row_errors_from_pb(reply.row_errors)),
                last_offset=reply.last_offset,
                hybrid_time=reply.hybrid_time,
            )
        )

    def _may_be_halved(self, item: _InFlight, error: Refused) -> bool:
        """Return whether the write may be halved. An earlier attempt with an unknown outcome may still be applied; then
        the rows of a half with another sequence number would be applied twice. Rows of a source are recognised by their
        offsets, so a source's write may always be halved."""
        known = not item.attempts.unknown or item.request.HasField("source")
        return error.code is Code.TOO_LARGE and item.request.rows > 1 and known

    def _halve(self, tablet: _TabletQueue, split: Split) -> _InFlight:
        """Replace the oldest write by its two halves; returns the first of them."""
        whole = tablet.writes.popleft()
        parts = [self._item(one, whole.alone) for one in split(whole.request, *halves(self._handle, whole.request))]
        for part in parts:
            part.put_order, part.is_oldest = whole.put_order, True
        parts[0].behind_part, parts[1].behind_part = whole.behind_part, True
        tablet.writes.extendleft(reversed(parts))
        self._bytes += sum(part.size_bytes for part in parts) - whole.size_bytes
        self._writes += 1
        return parts[0]

    def _reply(self, item: _InFlight) -> Any:
        if item.error is not None:
            raise item.error
        try:
            reply = item.call.result()
        except grpc.FutureCancelledError as e:
            raise refusal_of_rpc_error(e, mutates=True) from e
        except grpc.RpcError as e:
            raise refusal_of_rpc_error(e, mutates=True) from e
        raise_if_error(reply.error)
        return reply

    def _again_or_raise(self, item: _InFlight, error: Refused) -> None:
        if error.code is Code.GAP and (not item.is_oldest or item.gaps < GAP_RETRIES_MAX):
            # This write overtook an earlier one that had to be sent again. That one is acknowledged by now.
            item.gaps += item.is_oldest
            time.sleep(self._calls.options.backoff_first_s * (1 << item.gaps) if item.is_oldest else 0.0)
        else:
            try:
                delay_s = item.attempts.failed(error, retry_safe=True)
            except NotApplied as refused:
                if item.behind_part:
                    raise final(refused, unknown=True, why="rows before these in their batch are applied") from error
                raise
            try:
                self._calls.ask_elsewhere(
                    self._handle.name, item.request.tablet_id, item.uuid, error, item.version, delay_s
                )
            except Refused as gone:
                raise final(gone, unknown=item.attempts.unknown or item.behind_part) from error
        item.is_oldest = True
        self._send(item)


class SourceWriter:
    """Writes of one task: the records of one Kafka partition, in order, to the tablets that they belong to.

    `after` of each batch is the last offset of the batch before it to that tablet. For the first batch it is the
    highest offset that the tablet acknowledged. By `after`, the tablet notices a missing batch.
    Concurrency: one thread.
    """

    def __init__(
        self,
        calls: TabletCalls,
        handle: TableHandle,
        source: SourceKey,
        *,
        generation: int,
        done: int,
        acknowledged: Mapping[str, int] | None = None,
    ) -> None:
        self._handle = handle
        self._source = source
        self._generation = generation
        self._done = done
        self._after: dict[str, int] = dict(acknowledged or {})
        self._window = WriteWindow(calls, handle, self._take, _split_of_source)
        self.acknowledged: dict[str, int] = dict(acknowledged or {})
        """Tablet id -> highest offset acknowledged."""
        self.row_errors: list[RowError] = []
        self.rows_applied = 0
        self.rows_replayed = 0

    def send(self, batch: WireBatch) -> None:
        """Send one batch; offsets ascend from batch to batch of a tablet. NotApplied or OutcomeUnknown."""
        tablet_id = self._handle.tablets[batch.pos].tablet_id
        after = self._after.get(tablet_id)
        meta = WriteMeta(batch.column_ids, batch.rows, self._source, self._generation, after, self._done)
        self._after[tablet_id] = max(batch.last_offset, after if after is not None else batch.last_offset)
        self._window.put(write_request(self._handle, batch, meta))

    def flush(self) -> None:
        """Return when all sent batches are acknowledged. NotApplied or OutcomeUnknown."""
        self._window.drain()

    def abandon(self) -> None:
        """Stop waiting."""
        self._window.abandon()

    def _take(self, outcome: WriteOutcome) -> None:
        self.rows_applied += outcome.rows_applied
        self.rows_replayed += outcome.rows_replayed
        self.row_errors.extend(outcome.row_errors)
        known = self.acknowledged.get(outcome.tablet_id, -1)
        self.acknowledged[outcome.tablet_id] = max(known, outcome.last_offset)


def _split_of_source(
    whole: pb.WriteRequest, first: WireBatch, second: WireBatch
) -> tuple[pb.WriteRequest, pb.WriteRequest]:
    """Split a source's request. The first half has the `after` of the whole batch, and the second half has the last
    offset of the first. Later batches name the last offset of the whole batch, so they are refused with a gap until
    both halves are applied."""
    one, two = (_part_request(whole, part) for part in (first, second))
    two.has_after, two.after = True, max(first.last_offset, whole.after if whole.has_after else -1)
    return one, two


class SessionWriter:
    """Writes of a client that is no Kafka source: a client id of its own, and a sequence number for each batch.

    A row error has the offset that its row has in its batch. `flush`, `write` and the end of a `with` block raise each
    error once, as RowErrors; with `on_error="return"` they are in `row_errors` alone. Concurrency: one thread.
    """

    def __init__(
        self, calls: TabletCalls, handle: TableHandle, client_ids: ClientIds, on_error: OnError = "raise"
    ) -> None:
        self._handle = handle
        self._on_error = on_error
        self._raised = self._raised_applied = 0
        self._client_ids = client_ids
        self._identity: ClientId | None = client_ids.take()
        self._open: deque[tuple[str, int]] = deque()
        self._window = WriteWindow(calls, handle, self._take, self._split)
        self.row_errors: list[RowError] = []
        """All row errors so far, raised or not."""
        self.rows_applied = 0
        self.last_time = 0
        """The highest hybrid time acknowledged: a scan at or after it sees these writes."""

    def send(self, batch: WireBatch, *, depth: int | None = None) -> None:
        """Send one batch. With `depth=1` it waits until the batch before it to the same tablet is acknowledged.

        NotApplied or OutcomeUnknown, of this batch or of an earlier one.
        """
        self._window.put(self._request(batch), depth=depth)

    def write(self, batch: WireBatch) -> None:
        """Send one batch, and return when it and all earlier ones are acknowledged. For a single batch this is the
        fastest way.

        NotApplied or OutcomeUnknown, of this batch or of an earlier one; RowErrors.
        """
        self._window.drain()
        self._window.put(self._request(batch), alone=True)
        self.flush()

    def flush(self) -> None:
        """Return when all sent batches are acknowledged. NotApplied or OutcomeUnknown; RowErrors."""
        self._window.drain()
        errors, applied = self.row_errors[self._raised :], self.rows_applied - self._raised_applied
        if errors and self._on_error == "raise":
            self._raised, self._raised_applied = len(self.row_errors), self.rows_applied
            raise RowErrors(sorted(errors), table=self._handle.name, rows_applied=applied)

    def close(self) -> None:
        """Abandon the writes under way and release the client id; a second call does nothing.

        It does not wait: call `flush` before, or leave the writer's `with` block without an error.
        """
        identity, self._identity = self._identity, None
        self._window.abandon()
        if identity is not None and not self._open:
            self._client_ids.give_back(identity)

    def __enter__(self) -> SessionWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def _request(self, batch: WireBatch) -> pb.WriteRequest:
        identity = self._identity
        if identity is None:
            raise Refused(Code.ILLEGAL_STATE, "the writer is closed; open another one", table=self._handle.name)
        tablet_id = self._handle.tablets[batch.pos].tablet_id
        sequence = identity.next_sequence()
        self._open.append((tablet_id, sequence))
        meta = WriteMeta(batch.column_ids, batch.rows, client_id=identity.client_id, sequence=sequence)
        return write_request(self._handle, batch, replace(meta, first_incomplete=min(s for _, s in self._open)))

    def _split(
        self, whole: pb.WriteRequest, first: WireBatch, second: WireBatch
    ) -> tuple[pb.WriteRequest, pb.WriteRequest]:
        """Split a client's request. The first half has the sequence number of the whole batch, under which no log has
        an entry. The second half has a new number, and its outcome is read right after the first half's."""
        identity = self._identity
        if identity is None:
            raise InvariantViolation("a writer that reads outcomes is open", table=self._handle.name)
        one, two = (_part_request(whole, part) for part in (first, second))
        two.sequence = identity.next_sequence()
        self._open.insert(self._open.index((whole.tablet_id, whole.sequence)) + 1, (whole.tablet_id, two.sequence))
        return one, two

    def _take(self, outcome: WriteOutcome) -> None:
        self.rows_applied += outcome.rows_applied
        self.row_errors.extend(outcome.row_errors)
        self.last_time = max(self.last_time, outcome.hybrid_time)
        # A tablet's writes are acknowledged in order, so this one is the oldest open one of its tablet.
        settled = next(i for i, (tablet_id, _) in enumerate(self._open) if tablet_id == outcome.tablet_id)
        del self._open[settled]
