"""The Write call. Every check runs before the write gets an index."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from nyala.replica.rows import SourceKey, TableSchema, WriteMeta
from nyala.replica.rpc import error_to_pb, pb, row_errors_to_pb
from nyala.replica.tablet import ApplyResult, Given
from nyala.replica.types import (
    Code,
    EntryKind,
    RaftConfig,
    Refused,
    check_id,
    check_number,
    check_token,
    generation_of,
    limits,
)

from ..runtime.memory import MemoryGuard
from ..tablets.hosted import HostedTablet
from ..tablets.write_order import Arrival, WriteOrder

INLINE_BYTES_MAX = 16 << 10
"""Batches up to this size are validated on the loop: a thread's round trip would cost more."""
ROW_ERROR_BYTES = 20
"""The most bytes of one row's error in a reply, without the name of its column."""
_NUMBERS = ("schema_id", "rows", "generation", "after", "done", "sequence", "first_incomplete", "config_term")
_known_client = lru_cache(maxsize=4096)(partial(check_token, length_max=limits.LEDGER_CLIENT_ID_CHARS_MAX))
"""Checks a client's id. Valid ones are remembered, because a client sends many writes."""


@lru_cache(maxsize=4096)
def _known_source(cluster_id: str, topic_id: str, kafka_partition: int) -> SourceKey:
    """The source, as it is in the log and the ledger; Refused if its names or its number are invalid. Valid ones are
    remembered, because a source sends many writes."""
    for name, value in (("cluster_id", cluster_id), ("topic_id", topic_id)):
        if value:
            check_id(value, name)
    check_number(kafka_partition, "kafka_partition", 0, (1 << 31) - 1)
    return SourceKey(cluster_id, topic_id, kafka_partition)


@lru_cache(maxsize=4096)
def _longest_name(schema: TableSchema) -> int:
    """The bytes of the longest column name."""
    return max(len(column.name.encode()) for column in schema.columns)


Done = Callable[[Any], None]
"""Called with the pb.WriteReply, or with the error of the write."""


class Writes:
    """Validates writes, keeps the order of arrival per tablet, replicates, answers.

    Concurrency: the loop's thread; large batches are validated on `pool`.
    """

    def __init__(
        self, memory: MemoryGuard, pool: ThreadPoolExecutor, observe: Callable[[int], None], written: Callable[[], None]
    ) -> None:
        """`observe(hybrid time)` pushes the clock above a time that a caller has seen; Refused for the far future.

        `written()` is called for each accepted write, so that copies slow down.
        """
        self._memory = memory
        self._pool = pool
        self._observe = observe
        self._written = written
        self.batches = 0
        self.rows = 0
        self.validating_bytes = 0

    async def write(self, hosted: HostedTablet, request: pb.WriteRequest) -> pb.WriteReply:
        """Carry out one request for a tablet of this server, and return its reply. If the caller is cancelled before
        the write has an index, the write is dropped."""
        outcome: asyncio.Future[pb.WriteReply | BaseException] = asyncio.get_running_loop().create_future()
        arrival = self.begin(hosted, request, lambda result: None if outcome.done() else outcome.set_result(result))
        try:
            result = await outcome
        except asyncio.CancelledError:
            if arrival is not None:
                hosted.arrivals.leave(arrival)
            raise
        if isinstance(result, BaseException):
            raise result
        return result

    def begin(self, hosted: HostedTablet, request: pb.WriteRequest, done: Done) -> Arrival | None:
        """Accept one request for a tablet of this server, and call `done` once, perhaps before this returns. Raises if
        it does not accept the request; `done` is not called then.

        If the write has to wait for its index, returns its `Arrival`.
        """
        replica, tablet = hosted.serving(request.table_id)
        if not request.table_id:
            raise Refused(Code.WRONG_TABLE, "a write names its table id", tablet=request.tablet_id)
        if not replica.is_leader:
            raise Refused(Code.NOT_LEADER, "writes go to the leader", detail=replica.leader_hint)
        if request.HasField("source"):
            need_same_generation(request, replica.active_config)
        self._observe(request.propagated_time)
        self._memory.admit(len(request.payload) + self.validating_bytes)
        self._written()
        # Read once, because each read of this field makes another bytes object. The tablet recognises a checked batch
        # by the identity of this object.
        payload = request.payload
        size = len(payload)
        meta = _meta(request, tablet.schema)
        column_ids = meta.column_ids

        def check() -> Given:
            """Validate the batch. Raises Refused SCHEMA_MISMATCH, INVALID_BATCH or TOO_LARGE, also for rows that belong
            to another tablet."""
            batch = tablet.check_write(
                request.schema_id, column_ids, payload, request.payload_crc, request.rows, meta.ignore_null
            )
            return Given(column_ids, batch, tablet.check_passes(meta, batch, size))

        def go(checked: Given) -> None:
            given = checked if checked.hashes is None else replace(checked, hashes=None)

            def answered(result: ApplyResult | Refused) -> None:
                hosted.under_way.discard(given)
                done(self._reply(result))

            hosted.under_way.add(given)
            try:
                replica.write(EntryKind.WRITE, request.schema_id, meta.encode(), payload, request.payload_crc, answered)
            except BaseException as error:  # noqa: BLE001 - the caller decides; later writes go on
                hosted.under_way.discard(given)
                done(error)

        def bad(error: Refused) -> None:
            """If this sequence number was answered before, repeat that answer; otherwise refuse with `error`."""
            if not meta.client_id:
                done(error)
                return

            def confirmed(index: int | Refused) -> None:
                if isinstance(index, Refused):
                    what = f"{index.what}: the leader knows whether it answered this write before; if not, {error.what}"
                    done(Refused(index.code, what, index.values, detail=index.detail))
                    return
                done(self._reply(tablet.remembered(meta.client_id, meta.sequence) or error))

            replica.read_barrier(confirmed)

        if size > limits.BATCH_SIZE_BYTES_MAX:
            bad(
                Refused(
                    Code.TOO_LARGE,
                    "the batch is too large. Nothing was applied. Send its rows in several batches",
                    bytes=size,
                    limit=limits.BATCH_SIZE_BYTES_MAX,
                )
            )
            return None
        reply_bytes = request.rows * (ROW_ERROR_BYTES + _longest_name(tablet.schema))
        if reply_bytes > limits.WRITE_REPLY_BYTES_MAX:
            what = "the batch has too many rows to report an error of each. Nothing was applied. Send several"
            bad(Refused(Code.TOO_LARGE, what, rows=request.rows, bytes=reply_bytes, limit=limits.WRITE_REPLY_BYTES_MAX))
            return None
        if not tablet.may_keep_much(meta):
            if size > INLINE_BYTES_MAX:
                arrival = hosted.arrivals.join()
                self._elsewhere(hosted.arrivals, arrival, size, check, go, done, bad)
                return arrival
            try:
                given = check()
            except Refused as error:
                bad(error)
                return None
            if not hosted.arrivals:
                go(given)
                return None
            arrival = hosted.arrivals.join()
            hosted.arrivals.ready(arrival, partial(go, given))
            return arrival
        arrival = hosted.arrivals.join()

        def measure(given: Given) -> None:
            """Measure the kept values when all earlier writes have their index, because the result depends on those
            writes.

            When the read barrier is passed, the entries of earlier leaders are applied. This leader's own entries are
            in `under_way` until they are applied.
            """
            term = replica.term

            def confirmed(index: int | Refused) -> None:
                if isinstance(index, Refused):
                    hosted.arrivals.leave(arrival)
                    done(index)
                    return
                under_way = tuple(hosted.under_way)

                def look() -> Given:
                    tablet.check_kept(meta, given, size, under_way)
                    return given

                def go_in_this_term(given: Given) -> None:
                    if replica.is_leader and replica.term == term:
                        go(given)
                    else:
                        done(Refused(Code.NOT_LEADER, "leadership changed meanwhile", detail=replica.leader_hint))

                self._elsewhere(hosted.arrivals, arrival, size, look, go_in_this_term, done, bad)

            replica.read_barrier(confirmed)

        self._elsewhere(hosted.arrivals, arrival, size, check, measure, done, bad, first=True)
        return arrival

    def _elsewhere(
        self,
        arrivals: WriteOrder,
        arrival: Arrival,
        size: int,
        check: Callable[[], Given],
        then: Callable[[Given], None],
        done: Done,
        bad: Callable[[Refused], None],
        *,
        first: bool = False,
    ) -> None:
        """Call `check` on a thread. When all earlier writes have their index, call `then`. Without `first`, `then`
        gives the write its index. With `first`, `then` checks it once more, and later writes wait meanwhile."""
        checking = asyncio.get_running_loop().run_in_executor(self._pool, check)
        self.validating_bytes += size

        def checked(ended: asyncio.Future[Given]) -> None:
            self.validating_bytes -= size
            error = None if ended.cancelled() else ended.exception()
            if ended.cancelled() or error is not None:
                arrivals.leave(arrival)
                if isinstance(error, Refused):
                    bad(error)
                else:
                    done(error or Refused(Code.NOT_READY, "the server is stopping"))
            else:
                (arrivals.when_first if first else arrivals.ready)(arrival, partial(then, ended.result()))

        checking.add_done_callback(checked)

    def _reply(self, result: ApplyResult | Refused) -> pb.WriteReply | Refused:
        if isinstance(result, Refused):
            return result
        self.batches += 1
        self.rows += result.rows_applied
        return pb.WriteReply(
            error=error_to_pb(result.error),
            row_errors=row_errors_to_pb(result.row_errors),
            hybrid_time=result.hybrid_time,
            last_offset=result.last_offset if result.last_offset is not None else -1,
            rows_applied=result.rows_applied,
            # A client's repeated write gets the bytes of the first reply. A source's batch may have been applied in
            # part before.
            rows_replayed=result.rows_replayed if result.last_offset is not None else 0,
        )


def need_same_generation(request: pb.WriteRequest, config: RaftConfig) -> None:
    """Raise Refused(STALE_GENERATION) if the tablet was recovered from a survivor after the query opened its source.

    Such a query may have begun after rows that the survivor does not have. Its first batch names no `after`. If the
    tablet applied it, a later query would read those rows again, and the tablet would drop them as replays. A recovery
    moves the source's position back, then reports the forced config to the masters, and then lets servers start. So a
    query that knows the forced config read the position after it was moved back.
    """
    if generation_of(config.opid.term) > generation_of(request.config_term):
        what = (
            "the tablet went on from a survivor since this query opened its source, and rows before this batch may be "
            "lost; start the query again: it reads them again. Refused again, it came before the masters knew the "
            "tablet's config: look at `nyala cluster check`"
        )
        raise Refused(
            Code.STALE_GENERATION, what, tablet=request.tablet_id, query=request.config_term, now=config.opid.term
        )


def _meta(request: pb.WriteRequest, schema: TableSchema) -> WriteMeta:
    """The `WriteMeta` for the log and the ledger; Refused if a field of it is invalid.

    Writes on links are not checked field by field before, so these fields are checked here, for all writes.
    """
    from_source = request.HasField("source")
    if from_source and request.client_id:
        raise Refused(Code.INVALID_ARGUMENT, "a batch comes from a source or from a client, not from both")
    if request.client_id:
        _known_client(request.client_id, "client_id")
    for name in _NUMBERS:
        if not 0 <= getattr(request, name) <= limits.NUMBER_MAX:
            what = f"{name}: a number from 0 to {limits.NUMBER_MAX}"
            raise Refused(Code.INVALID_ARGUMENT, what, value=getattr(request, name))
    if len(request.column_ids) > limits.COLUMNS_MAX:
        what = f"column_ids: at most {limits.COLUMNS_MAX} of them"
        raise Refused(Code.INVALID_ARGUMENT, what, value=len(request.column_ids))
    source, column_ids = request.source, tuple(request.column_ids)
    return WriteMeta(
        column_ids=column_ids,
        rows=request.rows,
        source=_known_source(source.cluster_id, source.topic_id, source.kafka_partition) if from_source else None,
        generation=request.generation,
        after=request.after if request.has_after else None,
        done=request.done,
        client_id=request.client_id,
        sequence=request.sequence,
        first_incomplete=request.first_incomplete,
        ignore_null=request.ignore_null,
        rows_bounded=schema.left_out(column_ids, request.ignore_null).may_grow,
    )
