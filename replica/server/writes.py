"""The Write call: everything that can be refused is refused before an index is reserved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nyala.replica.base import Code, EntryKind, Refused, limits
from nyala.replica.host import Replica
from nyala.replica.rows import WriteMeta
from nyala.replica.rpc import error_to_pb, pb, row_errors_to_pb, source_from_pb
from nyala.replica.tablet import ApplyResult

from .arrivals import Arrival, Arrivals
from .hosted import HostedTablet
from .leaders import with_leader_hint
from .memory import MemoryGuard

INLINE_BYTES_MAX = 16 << 10
"""Batches up to this size are validated on the loop: a thread's round trip would cost more."""
Done = Callable[[Any], None]
"""Takes the pb.WriteReply, or what the write raised."""


class Writes:
    """Validates, keeps the order of arrival per tablet, replicates, answers.

    Concurrency: the loop's thread; large batches are validated on `pool`.
    """

    def __init__(
        self,
        memory: MemoryGuard,
        pool: ThreadPoolExecutor,
        observe: Callable[[int], None],
        written: Callable[[], None],
    ) -> None:
        """`observe(hybrid time)`: let the clock run ahead of what a caller has seen; Refused for the far future.

        `written()` is called for each write that is taken: what can wait may make room for it.
        """
        self._memory = memory
        self._pool = pool
        self._observe = observe
        self._written = written
        self.batches = 0
        self.rows = 0
        self.validating_bytes = 0

    async def write(self, hosted: HostedTablet, request: Any) -> Any:
        """The reply to one request for a tablet that is here. Given up by its caller, it gets no index any more."""
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
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

    def begin(self, hosted: HostedTablet, request: Any, done: Done) -> Arrival | None:
        """Take one request for a tablet that is here, and call `done` once, perhaps before this returns; or raise.

        The arrival, if it has to wait for its index.
        """
        replica, tablet = hosted.serving(request.table_id)
        if not request.table_id:
            raise Refused(Code.WRONG_TABLE, "a write names its table id", tablet=request.tablet_id)
        if not replica.is_leader:
            refusal = Refused(Code.NOT_LEADER, "writes go to the leader", detail=replica.leader_uuid or "")
            raise with_leader_hint(refusal, replica.active_config)
        self._observe(request.propagated_time)
        self._memory.admit(len(request.payload) + self.validating_bytes)
        self._written()
        # Read once: each read of this field makes other bytes, and the tablet knows a checked batch by its identity.
        payload = request.payload
        size = len(payload)
        meta, column_ids = _meta(request), tuple(request.column_ids)

        def check() -> None:
            """Refused SCHEMA_MISMATCH, INVALID_BATCH or TOO_LARGE; also what routing would have prevented."""
            tablet.check_write(request.schema_id, column_ids, payload, request.payload_crc, request.rows)

        def go() -> None:
            try:
                replica.write(
                    EntryKind.WRITE,
                    request.schema_id,
                    meta.encode(),
                    payload,
                    request.payload_crc,
                    lambda result: done(self._reply(replica, result)),
                )
            except BaseException as error:  # noqa: BLE001 - whoever asked decides; others go on behind it
                done(error)

        def bad(error: Refused) -> None:
            """A number that was answered before has that answer, whatever comes with it now."""
            if not meta.client_id:
                done(error)
                return

            def confirmed(index: int | Refused) -> None:
                known = None if isinstance(index, Refused) else tablet.remembered(meta.client_id, meta.sequence)
                done(self._reply(replica, index if isinstance(index, Refused) else known or error))

            replica.read_barrier(confirmed)

        if size > limits.BATCH_SIZE_BYTES_MAX:
            bad(Refused(Code.TOO_LARGE, "the batch is too large", bytes=size, limit=limits.BATCH_SIZE_BYTES_MAX))
            return None
        if size > INLINE_BYTES_MAX:
            return self._check_elsewhere(hosted.arrivals, size, check, go, done, bad)
        try:
            check()
        except Refused as error:
            bad(error)
            return None
        if not hosted.arrivals:
            go()
            return None
        arrival = hosted.arrivals.join()
        hosted.arrivals.ready(arrival, go)
        return arrival

    def _check_elsewhere(
        self,
        arrivals: Arrivals,
        size: int,
        check: Callable[[], None],
        go: Callable[[], None],
        done: Done,
        bad: Callable[[Refused], None],
    ) -> Arrival:
        checking = asyncio.get_running_loop().run_in_executor(self._pool, check)
        self.validating_bytes += size
        arrival = arrivals.join()

        def checked(ended: asyncio.Future[None]) -> None:
            self.validating_bytes -= size
            error = None if ended.cancelled() else ended.exception()
            if ended.cancelled() or error is not None:
                arrivals.leave(arrival)
                if isinstance(error, Refused):
                    bad(error)
                else:
                    done(error or Refused(Code.NOT_READY, "the server is stopping"))
            else:
                arrivals.ready(arrival, go)

        checking.add_done_callback(checked)
        return arrival

    def _reply(self, replica: Replica, result: ApplyResult | Refused) -> Any:
        if isinstance(result, Refused):
            return with_leader_hint(result, replica.active_config)
        self.batches += 1
        self.rows += result.rows_applied
        return pb.WriteReply(
            error=error_to_pb(result.error),
            row_errors=row_errors_to_pb(result.row_errors),
            hybrid_time=result.hybrid_time,
            last_offset=result.last_offset if result.last_offset is not None else -1,
            rows_applied=result.rows_applied,
            # A client's write that comes again has the bytes of the first reply; a source's batch may be new in part.
            rows_replayed=result.rows_replayed if result.last_offset is not None else 0,
        )


def _meta(request: Any) -> WriteMeta:
    from_source = request.HasField("source")
    if from_source and request.client_id:
        raise Refused(Code.INVALID_ARGUMENT, "a batch comes from a source or from a client, not from both")
    if len(request.client_id) > limits.LEDGER_CLIENT_ID_CHARS_MAX:
        what = f"a client id has at most {limits.LEDGER_CLIENT_ID_CHARS_MAX} characters: tablets remember it"
        raise Refused(Code.INVALID_ARGUMENT, what, characters=len(request.client_id))
    return WriteMeta(
        column_ids=tuple(request.column_ids),
        rows=request.rows,
        source=source_from_pb(request.source) if from_source else None,
        generation=request.generation,
        after=request.after if request.has_after else None,
        done=request.done,
        client_id=request.client_id,
        sequence=request.sequence,
        first_incomplete=request.first_incomplete,
        ignore_null=request.ignore_null,
    )
