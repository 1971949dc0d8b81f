"""Rows of one Kafka partition -> write batches at the tablets' leaders, with the ledger's `after` chain.

One batch at a time is under way for each tablet, so `after` is always acknowledged and a GAP is never our own doing;
tablets are served side by side. All state belongs to the task's thread; worker threads only send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from nyala.replica.base import Refused, limits
from nyala.replica.client import TableHandle
from nyala.replica.rows import OFFSET_COLUMN, OP_COLUMN, RowError, TableSchema, encode_batch, route

from .errors import RETRYABLE, TaskFailed

HELD_BYTES_MAX = 48 << 20
"""Rows and Kafka records that a task keeps until they are acknowledged."""
SEND_DEADLINE_S = 120.0


class WriteResult(NamedTuple):
    """What a tablet answered to one batch."""

    row_errors: tuple[RowError, ...]
    rows_applied: int
    rows_replayed: int


class Target(Protocol):
    """Where batches go; `after` None is a cold start. Called from several threads.

    Retries what may be retried until `timeout_s` is over, then raises the last Refused.
    """

    def write(
        self,
        tablet_id: str,
        column_ids: tuple[int, ...],
        payload: bytes,
        rows: int,
        after: int | None,
        timeout_s: float,
    ) -> WriteResult:
        """Send one batch to the tablet's leader and wait for its answer."""


@dataclass
class _Chunk:
    """One batch to send: rows of one tablet with one set of columns."""

    rows: Any
    first_offset: int
    last_offset: int


@dataclass
class _Lane:
    """One tablet's rows on their way. Offsets ascend from `sending` over `ready` to `gathered`."""

    tablet_id: str
    after: int | None
    gathered: list[Any] = field(default_factory=list)
    gathered_bytes: int = 0
    ready: deque[_Chunk] = field(default_factory=deque)
    sending: _Chunk | None = None

    def oldest(self) -> int | None:
        """Lowest offset that is not acknowledged."""
        if self.sending:
            return self.sending.first_offset
        if self.ready:
            return self.ready[0].first_offset
        return _offset(self.gathered[0], 0) if self.gathered else None


@dataclass
class Totals:
    """What a task did."""

    rows_sent: int = 0
    rows_applied: int = 0
    rows_replayed: int = 0
    batches: int = 0
    bytes_sent: int = 0


class Sender:
    """Sends one task's rows. Use: `push` in offset order, then `finish`, then read `acknowledged` and `totals`.

    `known`: highest offset that each tablet has acknowledged, by tablet id. `on_error` gets each row's error once per
    answer. `release` is told the lowest unacknowledged offset, or None, when it moves.
    Raises TaskFailed: fatal for GAP and other refusals that a repeat cannot cure, else retryable after the deadline.
    """

    def __init__(
        self,
        table: TableHandle,
        target: Target,
        known: Mapping[str, int],
        on_error: Callable[[RowError], None],
        *,
        batch_bytes: int = limits.BATCH_TARGET_BYTES,
        deadline_s: float = SEND_DEADLINE_S,
        threads: int = 4,
    ) -> None:
        self._schema: TableSchema = table.schema
        self._partition = table.partition
        self._lanes = [_Lane(t.tablet_id, known.get(t.tablet_id)) for t in table.tablets]
        self._target = target
        self._on_error = on_error
        self._batch_bytes = batch_bytes
        self._deadline_s = deadline_s
        self._pool = ThreadPoolExecutor(max_workers=max(1, min(threads, len(self._lanes))), thread_name_prefix="send")
        self._under_way: dict[Future[WriteResult], _Lane] = {}
        self.acknowledged: dict[str, int] = {}
        self.totals = Totals()

    def push(self, rows: Any) -> None:
        """Take a pa.RecordBatch of the table's columns, `__op` and `__offset`, in offset order."""
        positions = route(rows, self._schema, self._partition)
        if len(self._lanes) == 1:
            self._gather(self._lanes[0], rows)
        else:
            order = np.argsort(positions, kind="stable")
            edges = np.searchsorted(positions[order], np.arange(len(self._lanes) + 1))
            for pos, lane in enumerate(self._lanes):
                if edges[pos] < edges[pos + 1]:
                    self._gather(lane, rows.take(pa.array(order[edges[pos] : edges[pos + 1]])))
        self._reap(block=False)

    def oldest(self) -> int | None:
        """Lowest offset that no tablet has acknowledged yet; None if there is none."""
        waiting = [offset for lane in self._lanes if (offset := lane.oldest()) is not None]
        return min(waiting) if waiting else None

    def relieve(self) -> None:
        """Memory is short: get the oldest rows on their way and wait until something was acknowledged."""
        oldest = self.oldest()
        for lane in self._lanes:
            if lane.gathered and lane.oldest() == oldest:
                self._cut(lane)
        self._start_all()
        self._reap(block=True)

    def finish(self) -> None:
        """Send what is left and return when all is acknowledged."""
        for lane in self._lanes:
            self._cut(lane)
        self._start_all()
        while self._under_way:
            self._reap(block=True)

    def close(self) -> None:
        """Wait for nothing, start nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _gather(self, lane: _Lane, rows: Any) -> None:
        if lane.gathered and lane.gathered[0].schema.names != rows.schema.names:
            self._cut(lane)
        lane.gathered.append(rows)
        lane.gathered_bytes += rows.nbytes
        if lane.gathered_bytes >= self._batch_bytes:
            self._cut(lane)
            self._start_all()

    def _cut(self, lane: _Lane) -> None:
        """Move what was gathered into batches that are ready to send."""
        if not lane.gathered:
            return
        whole = lane.gathered[0] if len(lane.gathered) == 1 else pa.concat_batches(lane.gathered)
        lane.gathered, lane.gathered_bytes = [], 0
        for piece in _pieces(whole, self._batch_bytes):
            lane.ready.append(_Chunk(piece, _offset(piece, 0), _offset(piece, piece.num_rows - 1)))

    def _start_all(self) -> None:
        for lane in self._lanes:
            if lane.sending is None and lane.ready:
                lane.sending = lane.ready.popleft()
                self._under_way[self._pool.submit(self._send, lane.tablet_id, lane.sending, lane.after)] = lane

    def _reap(self, *, block: bool) -> None:
        """Take in what was answered; with `block`, wait for at least one answer if any is due."""
        if not self._under_way:
            return
        done, _ = wait(self._under_way, timeout=None if block else 0, return_when=FIRST_COMPLETED)
        for future in done:
            lane = self._under_way.pop(future)
            chunk, lane.sending = lane.sending, None
            result = future.result()
            if chunk is None:
                continue
            for error in result.row_errors:
                self._on_error(error)
            lane.after = chunk.last_offset
            self.acknowledged[lane.tablet_id] = chunk.last_offset
            self.totals.rows_sent += chunk.rows.num_rows
            self.totals.rows_applied += result.rows_applied
            self.totals.rows_replayed += result.rows_replayed
            self.totals.batches += 1
            self.totals.bytes_sent += chunk.rows.nbytes
        self._start_all()

    def _send(self, tablet_id: str, chunk: _Chunk, after: int | None) -> WriteResult:
        """On a worker thread: encode once; the target repeats the same bytes until they are acknowledged."""
        names = [name for name in chunk.rows.schema.names if name not in (OP_COLUMN, OFFSET_COLUMN)]
        column_ids = self._schema.column_ids(names)
        payload = encode_batch(
            pa.RecordBatch.from_arrays(chunk.rows.columns, schema=self._schema.wire_schema(column_ids))
        )
        try:
            return self._target.write(tablet_id, column_ids, payload, chunk.rows.num_rows, after, self._deadline_s)
        except Refused as error:
            raise TaskFailed(
                f"tablet {tablet_id} refused the batch after offset {after}: {error}", fatal=error.code not in RETRYABLE
            ) from error


def _offset(rows: Any, pos: int) -> int:
    return int(rows.column(rows.num_columns - 1)[pos].as_py())


def _pieces(whole: Any, target_bytes: int) -> Iterator[Any]:
    """Cut by the average row, then halve pieces that a few large rows made too large for the wire."""
    average = max(1, whole.nbytes // max(1, whole.num_rows))
    step = max(1, min(limits.BATCH_ROWS_MAX, round(target_bytes * 1.25) // average))
    if whole.num_rows <= step * 1.2:
        step = whole.num_rows
    for start in range(0, whole.num_rows, step):
        yield from _halve(whole.slice(start, min(step, whole.num_rows - start)))


def _halve(piece: Any) -> Iterator[Any]:
    if piece.num_rows == 1 or (
        piece.nbytes <= limits.BATCH_SIZE_BYTES_MAX // 2 and piece.num_rows <= limits.BATCH_ROWS_MAX
    ):
        yield piece
        return
    middle = piece.num_rows // 2
    yield from _halve(piece.slice(0, middle))
    yield from _halve(piece.slice(middle))
