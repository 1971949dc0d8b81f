"""A Spark task of the ingest query: decode one Kafka partition's records, send rows, write dead letters, report."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from nyala.replica.client import TableHandle
from nyala.replica.rows import RowError, SourceKey
from nyala.replica.types import PLAINTEXT, KafkaSecurity, RowCode, known_value, limits

from . import crash, worker
from .dead_letter_producer import DeadLetter, DeadLetterSink, Origin
from .decode import RowDecoder, WriterSchema
from .errors import TaskFailed
from .framing import Framing
from .kafka_timeouts import KAFKA_TIMEOUT_S
from .row_schema import OP_HEADER
from .sender import Sender, Writer
from .topics import TopicIdentity

HELD_BYTES_MAX = 48 << 20
"""Bounds the Kafka records that a task keeps until their rows are acknowledged."""
SEND_DEADLINE_S = 120.0

KAFKA_COLUMNS = (
    "key",
    "value",
    "partition",
    "offset",
    f"try_element_at(transform(filter(headers, h -> h.key = '{OP_HEADER}'), h -> coalesce(h.value, binary(''))), -1)"
    " AS op_header",
)
"""The columns that a task reads from Spark's Kafka source, as SQL. Of several headers of one name the last counts, as
in Kafka.

The headers are not passed as they are: Spark checks the size of the Arrow batch after each row, and for a list of
structs that takes time in proportion to the rows before it."""

RESULT_SCHEMA = (
    "kafka_partition int, tablet_id string, acknowledged bigint, records bigint, rows bigint, applied bigint, "
    "replayed bigint, dead_letters bigint, batches bigint, bytes bigint, decode_us bigint, task_us bigint"
)
_RESULT_ARROW = pa.schema(
    [("kafka_partition", pa.int32()), ("tablet_id", pa.string())]
    + [(name.split()[0], pa.int64()) for name in RESULT_SCHEMA.split(", ")[2:]]
)


class Position(NamedTuple):
    """The position of one Kafka partition as a source, from the catalog."""

    generation: int
    done: int


@dataclass(frozen=True)
class TaskPlan:
    """The input that the driver sends to the tasks of one micro-batch."""

    table: TableHandle
    topic: TopicIdentity
    masters: str
    bootstrap: str
    dead_letter_topic: str
    positions: Mapping[int, Position]
    known: Mapping[int, Mapping[str, int]]
    """By Kafka partition, the highest offset that each tablet has acknowledged to this driver."""
    batch_bytes: int = limits.BATCH_TARGET_BYTES
    ignore_null: bool = False
    deadline_s: float = SEND_DEADLINE_S
    """The deadline of one batch with all its retries."""
    kafka_timeout_s: float = KAFKA_TIMEOUT_S
    security: KafkaSecurity = PLAINTEXT
    tls: str = ""
    """The directory of the client's credentials on each executor; empty: that of NYALA_TLS there."""


@dataclass
class _Records:
    """Kafka records kept until their rows are acknowledged, because a row's error needs the record's bytes.

    An acknowledged offset is not enough to drop the records up to it. On a replay, a tablet acknowledges the highest
    offset that it ever applied, and later answers may still have errors of rows below it.
    """

    kept: list[tuple[int, int, Any]] = field(default_factory=list)
    bytes_held: int = 0

    def add(self, first: int, last: int, batch: Any) -> None:
        self.kept.append((first, last, batch))
        self.bytes_held += batch.nbytes

    def clear(self) -> None:
        self.kept.clear()
        self.bytes_held = 0

    def letter(self, offset: int, code: RowCode, column: str) -> DeadLetter | None:
        """Return the record as a dead letter; None if it is not one of this task's."""
        for first, last, batch in self.kept:
            if first <= offset <= last:
                offsets = batch.column("offset").to_numpy()
                pos = int(np.searchsorted(offsets, offset))
                if offsets[pos] == offset:
                    return _letter(batch, pos, offset, code, column)
        return None


def _letter(batch: Any, pos: int, offset: int, code: RowCode, column: str) -> DeadLetter:
    key, value, op = (batch.column(name)[pos].as_py() for name in ("key", "value", "op_header"))
    return DeadLetter(offset, code, column, key, value, op)


def decoder_of(plan: TaskPlan) -> RowDecoder:
    """Return the decoder that the table's source declares; it asks the master again when a schema is unknown."""
    table = plan.table

    def ask_again() -> list[WriterSchema]:
        fresh = worker.client_for(plan.masters, plan.deadline_s, plan.tls).get_table(table.name)
        return [WriterSchema(each.avro_json, each.registry_id) for each in fresh.writer_schemas]

    known = [WriterSchema(each.avro_json, each.registry_id) for each in table.writer_schemas]
    framing = known_value(Framing, table.source.framing, f"the framing of topic {table.source.topic}")
    return RowDecoder(table.schema, framing, known, bare_schema=table.source.reader_schema, lookup=ask_again)


def run_task(plan: TaskPlan, batches: Iterator[Any]) -> Iterator[Any]:
    """Run a task; the function for `mapInArrow`. Yields one row for each tablet that acknowledged rows, and one with
    the task's totals.

    It succeeds only if every record is in its tablet or acknowledged by the dead-letter topic. TaskFailed otherwise.
    """
    for first in batches:
        if first.num_rows:
            task = Task(plan, int(first.column("partition")[0].as_py()))
            yield task.run(first, batches)


class Task:
    """One attempt at one Kafka partition's share of a micro-batch."""

    def __init__(
        self, plan: TaskPlan, partition: int, *, writer: Writer | None = None, sink: DeadLetterSink | None = None
    ) -> None:
        """`writer` and `sink` come from this process's kept client and producer unless given."""
        position = plan.positions.get(partition)
        if position is None:
            raise TaskFailed(f"Kafka partition {partition} of {plan.topic.topic} was not opened", fatal=True)
        self._partition = partition
        source = SourceKey(plan.topic.cluster_id, plan.topic.topic_id, partition)
        self._origin = Origin(plan.table.name, plan.table.table_id, plan.topic.topic, source, position.generation)
        self._records = _Records()
        self._sink = sink or worker.sink_for(
            plan.bootstrap, plan.dead_letter_topic, plan.kafka_timeout_s, plan.security
        )
        self._decoder = decoder_of(plan)
        known = plan.known.get(partition, {})
        writer = writer or worker.client_for(plan.masters, plan.deadline_s, plan.tls).source_writer(
            plan.table, source, generation=position.generation, done=position.done, acknowledged=known
        )
        self._sender = Sender(
            plan.table, writer, self._row_failed, batch_bytes=plan.batch_bytes, ignore_null=plan.ignore_null
        )
        self._writer = writer
        self._record_count = 0
        self._dead = 0
        self._decode_s = 0.0
        self._last_offset = -1

    def run(self, first: Any, rest: Iterator[Any]) -> Any:
        """Process all batches; returns the result as a pa.RecordBatch."""
        started = time.perf_counter()
        try:
            self._take(first)
            for batch in rest:
                if batch.num_rows:
                    self._take(batch)
            self._sender.flush()
            # Before the task succeeds, because otherwise a record that is neither in a table nor a dead letter would be
            # lost.
            self._sink.flush()
        finally:
            self._sender.close()
        return self._result(time.perf_counter() - started)

    def _take(self, batch: Any) -> None:
        offsets = batch.column("offset").to_numpy()
        self._check_order(batch, offsets)
        self._records.add(int(offsets[0]), int(offsets[-1]), batch)
        started = time.perf_counter()
        decoded = self._decoder.decode(batch.column("key"), batch.column("value"), offsets, batch.column("op_header"))
        self._decode_s += time.perf_counter() - started
        for fault in decoded.faults:
            self._put_dead_letter(fault.offset, fault.code, fault.column)
        for rows in decoded.batches:
            self._sender.push(rows)
            if self._writer.rows_applied:
                crash.reach_in_first_attempt(crash.AFTER_FIRST_BATCH)
        self._record_count += batch.num_rows
        if self._records.bytes_held > HELD_BYTES_MAX:
            self._sender.flush()
            self._records.clear()

    def _check_order(self, batch: Any, offsets: Any) -> None:
        partitions = batch.column("partition").to_numpy()
        if (partitions != self._partition).any():
            raise TaskFailed(
                "a task got records of two Kafka partitions: nothing may shuffle before the sink", fatal=True
            )
        if offsets[0] <= self._last_offset or (np.diff(offsets) <= 0).any():
            raise TaskFailed("a task got records out of offset order: nothing may sort before the sink", fatal=True)
        self._last_offset = int(offsets[-1])

    def _row_failed(self, error: RowError) -> None:
        crash.reach(crash.BEFORE_DEAD_LETTERS)
        self._put_dead_letter(error.offset, error.code, error.column)

    def _put_dead_letter(self, offset: int, code: RowCode, column: str) -> None:
        # The answer to a replayed batch may name rows that this task does not have, because an earlier attempt cut its
        # batches at other rows.
        letter = self._records.letter(offset, code, column)
        if letter is not None:
            self._sink.put(self._origin, letter)
            self._dead += 1

    def _result(self, task_s: float) -> Any:
        totals = self._sender.totals
        rows = [
            {"kafka_partition": self._partition, "tablet_id": tablet, "acknowledged": offset}
            for tablet, offset in sorted(self._sender.acknowledged.items())
        ]
        rows.append(
            {
                "kafka_partition": self._partition,
                "records": self._record_count,
                "rows": totals.rows,
                "applied": self._writer.rows_applied,
                "replayed": self._writer.rows_replayed,
                "dead_letters": self._dead,
                "batches": totals.batches,
                "bytes": totals.bytes,
                "decode_us": int(self._decode_s * 1e6),
                "task_us": int(task_s * 1e6),
            }
        )
        return pa.RecordBatch.from_pylist(rows, schema=_RESULT_ARROW)
