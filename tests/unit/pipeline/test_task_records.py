"""The duty of one task: each of its records is in its tablet, or a letter that Kafka has, before the task succeeds."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from nyala import schemas
from nyala.pipeline import crash, worker
from nyala.pipeline import task as task_module
from nyala.pipeline.dead_letter_producer import DeadLetter
from nyala.pipeline.errors import TaskFailed
from nyala.pipeline.framing import Framing, wrap
from nyala.pipeline.row_schema import row_schema_json
from nyala.pipeline.task import Position, Task, TaskPlan, run_task
from nyala.pipeline.topics import TopicIdentity
from nyala.replica.client import TableHandle, TabletHandle, WireBatch, WriterSchemaInfo
from nyala.replica.rows import Column, ColumnType, PartitionSpec, RowError, TableSchema
from nyala.replica.types import RowCode
from tests.harness.row_keys import encode_key

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="id", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="v", type=ColumnType.STRING),
    ),
    ("id",),
)
ROW = row_schema_json(SCHEMA)
PARSED = schemas.parse_json(ROW)
TABLE = TableHandle(
    "id", "flights", SCHEMA, PartitionSpec(("id",), 1), 1, 0, 0, tablets=(TabletHandle("a", 0, 0, 0),),
    writer_schemas=(WriterSchemaInfo(schemas.fingerprint64(PARSED).hex(), 0, ROW),),
)  # fmt: skip
PLAN = TaskPlan(TABLE, TopicIdentity("c", "writes.flights", "x", 1), "m:1", "k:1", "letters", {0: Position(1, 0)}, {})


def records(offsets: list[int], partitions: list[int] | None = None, size: int = 1) -> Any:
    """Rows of these offsets, whose key is the offset."""
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([encode_key(SCHEMA, {"id": k}) for k in offsets], pa.binary()),
            "value": pa.array([event(k, size) for k in offsets], pa.binary()),
            "partition": pa.array(partitions or [0] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "op_header": pa.array([None] * len(offsets), pa.binary()),
        }
    )


def event(key: int, size: int = 1) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PARSED, {"id": key, "v": "x" * size, "op": "INSERT"})
    return wrap(Framing.SINGLE_OBJECT, out.getvalue(), fingerprint=schemas.fingerprint64(PARSED), registry_id=0)


class Tablet:
    """The client's writer of one source, whose tablet answers when it is flushed: rows of `failing` with an error."""

    def __init__(self, trail: list[str], *failing: int) -> None:
        self.acknowledged: dict[str, int] = {}
        self.row_errors: list[RowError] = []
        self.rows_applied = self.rows_replayed = 0
        self._trail = trail
        self._failing = failing
        self._sent: list[WireBatch] = []

    def send(self, batch: WireBatch) -> None:
        self._sent.append(batch)

    def flush(self) -> None:
        for batch in self._sent:
            within = [at for at in self._failing if batch.first_offset <= at <= batch.last_offset]
            self.row_errors += [RowError(at, RowCode.ALREADY_PRESENT) for at in within]
            self.acknowledged["a"] = batch.last_offset
            self.rows_applied += batch.rows - len(within)
        self._sent = []
        self._trail.append("tablets have all")

    def abandon(self) -> None:
        self._trail.append("end")


class Letters:
    """The dead-letter topic: what was put there, and whether Kafka has it."""

    def __init__(self, trail: list[str], broken: bool = False) -> None:
        self.letters: list[DeadLetter] = []
        self._trail = trail
        self._broken = broken

    def put(self, _: Any, letter: DeadLetter) -> None:
        self._trail.append(f"letter {letter.kafka_offset}")
        self.letters.append(letter)

    def flush(self) -> None:
        self._trail.append("Kafka has all letters")
        if self._broken:
            raise TaskFailed("no broker", fatal=False)


def made(trail: list[str], *failing: int, broken: bool = False) -> tuple[Task, Letters]:
    letters = Letters(trail, broken)
    return Task(PLAN, 0, writer=Tablet(trail, *failing), sink=letters), letters  # type: ignore[arg-type]


def test_task_succeeds_when_tablets_and_dead_letter_topic_have_all_records() -> None:
    """Goal: nothing is between a table and its letters when Spark moves on. Method: rows of which one fails at the
    tablet; the order of what the task waits for; then a broker that does not take the letter: no success."""
    trail: list[str] = []
    task, letters = made(trail, 5)
    begun = time.perf_counter()
    told = task.run(records([3, 4, 5]), iter([records([8, 9])])).to_pylist()
    took_us = (time.perf_counter() - begun) * 1e6
    assert trail == ["tablets have all", "letter 5", "Kafka has all letters", "end"]
    assert [(one.code, one.value) for one in letters.letters] == [(RowCode.ALREADY_PRESENT, event(5))]
    assert [(row["tablet_id"], row["acknowledged"], row["records"], row["applied"]) for row in told] == [
        ("a", 9, None, None), (None, None, 5, 4),
    ]  # fmt: skip
    assert told[-1]["dead_letters"] == 1 and 0 < told[-1]["decode_us"] <= told[-1]["task_us"] <= took_us
    trail.clear()
    with pytest.raises(TaskFailed, match=r"\[retryable\].*no broker"):
        made(trail, 5, broken=True)[0].run(records([3, 4, 5]), iter(()))
    assert trail[-1] == "end"


def test_records_are_kept_until_the_tablets_have_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a letter has its record's bytes, though a task keeps only so many of them. Method: batches of more than the
    bound, each with a row that fails late."""
    monkeypatch.setattr(task_module, "HELD_BYTES_MAX", 1000)
    task, letters = made([], 1, 3, 5)
    task.run(records([0, 1], size=900), iter([records([2, 3], size=900), records([4, 5], size=10)]))
    assert [(one.kafka_offset, one.value) for one in letters.letters] == [
        (1, event(1, 900)), (3, event(3, 900)), (5, event(5, 10)),
    ]  # fmt: skip


def test_record_that_is_no_row_is_a_letter_and_the_others_are_written() -> None:
    """Goal: what cannot be decoded is not lost. Method: a value that is no datum between two good ones."""
    trail: list[str] = []
    task, letters = made(trail)
    batch = records([3, 4, 5])
    batch = batch.set_column(1, "value", pa.array([event(3), b"junk", event(5)], pa.binary()))
    told = task.run(batch, iter(())).to_pylist()
    assert [(one.kafka_offset, one.code, one.value) for one in letters.letters] == [(4, RowCode.UNDECODABLE, b"junk")]
    assert (told[-1]["records"], told[-1]["applied"], told[-1]["dead_letters"]) == (3, 2, 1)


def test_kept_records_are_bounded_and_dropped_once_their_rows_are_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a task's memory does not grow with its share of a micro-batch. Method: a batch of more than the bound, then
    one of just the bound, which waits for nobody, and one more; the crash points lie before and behind an answer."""
    batches = [records([1, 2], size=2000), records([3, 4], size=900), records([5])]
    monkeypatch.setattr(task_module, "HELD_BYTES_MAX", batches[1].nbytes)
    trail: list[str] = []
    task, _ = made(trail, 5)
    monkeypatch.setattr(crash, "reach", trail.append)
    kept = []

    def rest() -> Iterator[Any]:
        for batch in batches[1:]:
            kept.append(len(task._records.kept))
            yield batch
        kept.append(len(task._records.kept))

    task.run(batches[0], rest())
    assert kept == [0, 1, 0], "dropped, kept at the bound, dropped above it"
    flushed, acknowledged, failed = "tablets have all", crash.AFTER_FIRST_BATCH, crash.BEFORE_DEAD_LETTERS
    assert trail == [
        flushed, acknowledged, acknowledged, flushed, failed, "letter 5", flushed, "Kafka has all letters", "end",
    ]  # fmt: skip


def test_task_asks_the_master_for_a_schema_that_was_registered_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a query need not be started again for a new schema; writer and look-up show the plan's certificate. Method:
    records of a schema that the plan's table lacks and the master has; an empty batch comes before, and the task ends
    with what it says of all others."""
    other = ROW.replace('"Row"', '"Other"')
    parsed = schemas.parse_json(other)
    now = replace(TABLE, writer_schemas=(WriterSchemaInfo(schemas.fingerprint64(parsed).hex(), 0, other),))
    trail: list[str] = []
    shown: list[str] = []
    client = SimpleNamespace(get_table=lambda _: now, source_writer=lambda *_, **__: Tablet(trail))
    monkeypatch.setattr(worker, "client_for", lambda *given: shown.append(given[2]) or client)
    monkeypatch.setattr(worker, "sink_for", lambda *_: Letters(trail))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, {"id": 7, "v": "x", "op": "INSERT"})
    framed = wrap(Framing.SINGLE_OBJECT, out.getvalue(), fingerprint=schemas.fingerprint64(parsed), registry_id=0)
    batch = records([7]).set_column(1, "value", pa.array([framed], pa.binary()))
    (told,) = run_task(replace(PLAN, tls="its directory"), iter([records([]), batch, records([]), records([8])]))
    assert [(row["records"], row["applied"], row["dead_letters"]) for row in told.to_pylist()[1:]] == [(2, 2, 0)]
    assert shown == ["its directory"] * 2


def test_error_of_a_row_that_is_not_the_tasks_is_no_letter_of_it() -> None:
    """Goal: a replayed batch, which another attempt had cut elsewhere, brings no letter without a record.

    Method: errors before, between and after the task's offsets, and of the first and the last of a batch."""
    task, letters = made([], 3, 4, 7)
    task._row_failed(RowError(2, RowCode.NOT_FOUND))
    task.run(records([3, 4]), iter([records([6, 8])]))
    task._row_failed(RowError(9, RowCode.NOT_FOUND))
    assert [one.kafka_offset for one in letters.letters] == [3, 4]


@pytest.mark.parametrize(
    ("first", "then", "says"),
    [
        (([5, 4], None), [], "out of offset order"),
        (([5, 5], None), [], "out of offset order"),
        (([5, 6], None), [([6, 7], None)], "out of offset order"),
        (([5, 6, 9], None), [([8], None)], "out of offset order"),
        (([5, 6], [0, 1]), [], "of two Kafka partitions"),
        (([5, 6], None), [([1], [1])], "of two Kafka partitions"),
    ],
)
def test_records_that_were_sorted_or_shuffled_end_the_query(first: Any, then: list[Any], says: str) -> None:
    """Goal: a ledger counts offsets of one partition upwards, so nothing else may come in.

    Method: each disorder, within a batch and between two; it is fatal, for a repetition would bring the same."""
    trail: list[str] = []
    task, _ = made(trail)
    with pytest.raises(TaskFailed, match=rf"\[fatal\].*{says}"):
        task.run(records(*first), iter([records(*each) for each in then]))
    assert trail == ["end"], "nothing is waited for"


def test_task_of_a_partition_that_was_not_opened_ends_the_query() -> None:
    """Goal: no rows of a source that the catalog does not know. Method: records of a second partition, after a batch
    without any."""
    with pytest.raises(TaskFailed, match=r"\[fatal\].*partition 1 of writes.flights was not opened"):
        list(run_task(PLAN, iter([records([]), records([0], [1])])))
