"""What one task owes for its records: each is in its tablet, or a letter that Kafka has, before the task succeeds."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from nyala import schemas
from nyala.pipeline import task as task_module
from nyala.pipeline.dead_letters import DeadLetter
from nyala.pipeline.errors import TaskFailed
from nyala.pipeline.framing import Framing, wrap
from nyala.pipeline.row_schema import encode_key, row_schema_json
from nyala.pipeline.task import Position, Task, TaskPlan, run_task
from nyala.pipeline.topics import TopicIdentity
from nyala.replica.client import TableHandle, TabletHandle, WireBatch, WriterSchemaInfo
from nyala.replica.rows import Column, ColumnType, PartitionSpec, RowError, TableSchema
from nyala.replica.types import RowCode

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
    told = task.run(records([3, 4, 5]), iter([records([8, 9])])).to_pylist()
    assert trail == ["tablets have all", "letter 5", "Kafka has all letters", "end"]
    assert [(one.code, one.value) for one in letters.letters] == [(RowCode.ALREADY_PRESENT, event(5))]
    assert [(row["tablet_id"], row["acknowledged"], row["records"], row["applied"]) for row in told] == [
        ("a", 9, None, None), (None, None, 5, 4),
    ]  # fmt: skip
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


def test_error_of_a_row_that_is_not_the_tasks_is_no_letter_of_it() -> None:
    """Goal: a replayed batch, which another attempt had cut elsewhere, brings no letter without a record.

    Method: errors before, between and after the task's offsets."""
    task, letters = made([], 4, 7)
    task._row_failed(RowError(2, RowCode.NOT_FOUND))
    task.run(records([3, 4]), iter([records([6, 8])]))
    task._row_failed(RowError(9, RowCode.NOT_FOUND))
    assert [one.kafka_offset for one in letters.letters] == [4]


@pytest.mark.parametrize(
    ("first", "then", "says"),
    [
        (([5, 4], None), [], "out of offset order"),
        (([5, 5], None), [], "out of offset order"),
        (([5, 6], None), [([6, 7], None)], "out of offset order"),
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
