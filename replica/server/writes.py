"""The Write call: everything that can be refused is refused before an index is reserved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nyala.replica.base import Applied, Code, EntryKind, Refused, limits
from nyala.replica.host import Replica
from nyala.replica.rows import WriteMeta
from nyala.replica.rpc import error_to_pb, pb, row_errors_to_pb, source_from_pb
from nyala.replica.tablet import ApplyResult, Tablet

from .hosted import HostedTablet
from .leaders import with_leader_hint
from .memory import MemoryGuard

INLINE_BYTES_MAX = 16 << 10
"""Batches up to this size are validated on the loop: a thread's round trip would cost more."""


class Writes:
    """Validates, keeps the order of arrival per tablet, replicates, answers.

    Concurrency: the loop's thread; large batches are validated on `pool`.
    """

    def __init__(
        self,
        uuid: str,
        memory: MemoryGuard,
        pool: ThreadPoolExecutor,
        observe: Callable[[int], None],
        written: Callable[[], None],
    ) -> None:
        """`observe(hybrid time)`: let the clock run ahead of what a caller has seen; Refused for the far future.

        `written()` is called for each write that is taken: what can wait may make room for it.
        """
        self._uuid = uuid
        self._memory = memory
        self._pool = pool
        self._observe = observe
        self._written = written
        self.batches = 0
        self.rows = 0
        self.validating_bytes = 0

    async def write(self, hosted: HostedTablet, request: Any) -> Any:
        """The reply to one request for a tablet that is here."""
        replica, tablet = hosted.serving(request.table_id)
        try:
            if not request.table_id:
                raise Refused(Code.WRONG_TABLE, "a write names its table id", tablet=request.tablet_id)
            if not replica.is_leader:
                raise Refused(Code.NOT_LEADER, "writes go to the leader", detail=replica.leader_uuid or "")
            self._observe(request.propagated_time)
            self._memory.admit(len(request.payload) + self.validating_bytes)
            self._written()
            result = await self._replicate(hosted, replica, tablet, request)
        except Refused as error:
            raise with_leader_hint(error, replica.active_config) from error
        self.batches += 1
        self.rows += result.rows_applied
        return pb.WriteReply(
            error=error_to_pb(result.error),
            row_errors=row_errors_to_pb(result.row_errors),
            hybrid_time=result.hybrid_time,
            last_offset=result.last_offset if result.last_offset is not None else -1,
            rows_applied=result.rows_applied,
            rows_replayed=result.rows_replayed,
        )

    async def _replicate(self, hosted: HostedTablet, replica: Replica, tablet: Tablet, request: Any) -> ApplyResult:
        loop = asyncio.get_running_loop()
        before, mine = hosted.write_tail, loop.create_future()
        hosted.write_tail = mine
        done: asyncio.Future[ApplyResult | Refused] = loop.create_future()
        # Read once: each read of this field makes other bytes, and the tablet knows a checked batch by its identity.
        payload = request.payload
        try:
            await self._validate(tablet, request, payload)
            meta = _meta(request).encode()
            if before is not None and not before.done():
                await asyncio.wait([before])
            replica.write(
                EntryKind.WRITE,
                request.schema_id,
                meta,
                payload,
                request.payload_crc,
                lambda result: None if done.done() else done.set_result(result),
            )
        finally:
            # Also for a write that gets no index, and so did not wait: those behind it wait for those before it.
            if before is None or before.done():
                mine.set_result(None)
            else:
                before.add_done_callback(lambda _: mine.set_result(None))
        result = await done
        if isinstance(result, Refused):
            raise result
        return result

    async def _validate(self, tablet: Tablet, request: Any, payload: bytes) -> None:
        """Refused SCHEMA_MISMATCH, INVALID_BATCH or TOO_LARGE; also what routing would have prevented."""
        size = len(payload)
        if size > limits.BATCH_SIZE_BYTES_MAX:
            raise Refused(Code.TOO_LARGE, "the batch is too large", bytes=size, limit=limits.BATCH_SIZE_BYTES_MAX)
        column_ids = tuple(request.column_ids)

        def check() -> None:
            tablet.check_write(request.schema_id, column_ids, payload, request.payload_crc, request.rows)

        if size <= INLINE_BYTES_MAX:
            check()
            return
        self.validating_bytes += size
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, check)
        finally:
            self.validating_bytes -= size


def _meta(request: Any) -> WriteMeta:
    from_source = request.HasField("source")
    if from_source and request.client_id:
        raise Refused(Code.INVALID_ARGUMENT, "a batch comes from a source or from a client, not from both")
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


def outcome_unknown(what: str) -> Refused:
    """A write that holds an index and whose end this server will not see."""
    return Refused(Code.TIMED_OUT, what, applied=Applied.UNKNOWN)
