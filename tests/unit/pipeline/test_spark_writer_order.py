"""Writes of one Spark partition: those with a key in common do not overtake each other, all others may."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.pipeline.source import writer as source_writer
from nyala.pipeline.source.writer import KeysUnderWay, Sending, WriteOptions, Writer, Written
from nyala.replica.client import RowErrors, TableHandle, TabletHandle, WireBatch
from nyala.replica.rows import OFFSET_COLUMN, Column, ColumnType, PartitionSpec, RowError, TableSchema, decode_batch
from nyala.replica.types import Applied, Refused, RowCode

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="v", type=ColumnType.STRING),
    ),
    ("k",),
)
TABLE = TableHandle(
    "id",
    "t",
    SCHEMA,
    PartitionSpec(("k",), 2),
    3,
    0,
    0,
    tablets=tuple(TabletHandle(f"t{n}", n, n, 0) for n in range(2)),
)


class Recording:
    """The client's session writer as far as it is used here: which depth each write had, and when it was flushed."""

    def __init__(self, failing: set[int] | None = None) -> None:
        self.said: list[object] = []
        self.row_errors: list[RowError] = []
        self._failing = failing or set()
        self._under_way: deque[list[RowError]] = deque()

    def send(self, batch: WireBatch, *, depth: int | None = None) -> None:
        self.said.append(depth)
        if self._failing:
            decoded = decode_batch(batch.payload, SCHEMA.wire_schema(batch.column_ids))
            told = zip(decoded[0].to_pylist(), decoded[OFFSET_COLUMN].to_pylist(), strict=True)
            self._under_way.append([RowError(n, RowCode.ALREADY_PRESENT) for k, n in told if k in self._failing])
            while len(self._under_way) > 2:
                self.row_errors += self._under_way.popleft()

    def flush(self) -> None:
        self.said.append("flush")
        while self._under_way:
            self.row_errors += self._under_way.popleft()


def sending(to: Recording) -> Sending:
    return Sending(Writer(WriteOptions("h:1", "t"), TABLE), to, 4)  # type: ignore[arg-type]


def rows(*keys: int, kind: Any = None) -> Any:
    return pa.RecordBatch.from_pydict({"k": pa.array(keys, kind or pa.int64()), "v": pa.array(["v"] * len(keys))})


def test_write_with_a_key_of_an_earlier_one_waits_for_it() -> None:
    """Goal: the newer row of a key wins. Method: batches without and with a common key; depth 1 is `one at a time`."""
    to = Recording()
    send = sending(to)
    for batch in (rows(1), rows(2), rows(2), rows(3, kind=pa.int32()), rows(3), rows(4)):
        send.send(batch)
    assert to.said == [None, None, 1, None, 1, None]


def test_key_twice_in_one_batch_keeps_its_writes_apart() -> None:
    """Goal: a batch that is cut into several writes keeps its order too. Method: a repeated key, on two tablets."""
    to = Recording()
    sending(to).send(rows(*range(10), 5))
    assert to.said == [1, 1]


def test_keys_under_way_are_bounded_by_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the memory for keys under way is bounded. Method: a bound of four keys; flushed, a key is new again."""
    monkeypatch.setattr(source_writer, "KEYS_UNDER_WAY_MAX", 4)
    to = Recording()
    send = sending(to)
    for k in (1, 2, 3, 4, 1):
        send.send(rows(k))
    assert to.said == [None, None, None, None, "flush", None]


def failing(keys: set[int], on_error: str = "raise", inflight_max: int = 4) -> tuple[Recording, Sending]:
    """A sending whose rows of these keys fail, each two writes late."""
    to = Recording(failing=keys)
    return to, Sending(Writer(WriteOptions("h:1", "t", on_error=on_error), TABLE), to, inflight_max)  # type: ignore[arg-type]


def test_failed_rows_are_counted_and_only_the_first_are_kept_with_their_keys() -> None:
    """IN-11. Goal: a million failed rows are a number and five examples, each with its place in the partition and its
    key, though answers come late; the error says that the others are in. Method: nine writes of eight rows, of which
    every third fails; answers two writes later."""
    to, send = failing(set(range(0, 1000, 3)))
    for first in range(0, 72, 8):
        send.send(rows(*range(100 + first, 108 + first)))
        assert to.row_errors == []
    with pytest.raises(RowErrors) as caught:
        send.finish()
    error = caught.value
    assert (error.failed, error.rows_applied) == (24, 48) and error.applied is Applied.UNKNOWN
    assert sorted((e.row, e.key["k"]) for e in error.errors) == [(n, 100 + n) for n in (2, 5, 8, 11, 14)]  # type: ignore[union-attr]
    assert str(error).startswith(
        "ALREADY_EXISTS: table 't': 24 of 72 rows were not applied, the other 48 were: row 2 (k=102): "
    )
    assert "; and 19 more. " in str(error) and "onError" in str(error)


def test_failed_rows_are_left_out_if_the_option_says_so() -> None:
    """IN-11. Goal: option onError = ignore lets the job go on, and keeps count. Method: one row of three fails."""
    _, send = failing({102}, "ignore")
    send.send(rows(101, 102, 103))
    send.finish()
    assert send.failed == 1 and [str(each) for each in send.first_failed] == ["row 1 (k=102): ALREADY_PRESENT"]


def test_job_that_left_rows_out_says_so_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """IN-11. Goal: a job logs how many rows it left out. Method: messages of two tasks; one left out two of ten."""
    writer = Writer(WriteOptions("h:1", "t", on_error="ignore"), TABLE)
    writer.commit([Written(5), Written(10, 7, 2, "row 1 (k=102): ALREADY_PRESENT"), None])
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("2 of 15 rows were not applied to table t by upsert") and "row 1 (k=102)" in said
    caplog.clear()
    writer.commit([Written(5)])
    assert not caplog.records


@pytest.mark.parametrize("key", ["onError", "onerror"])
def test_write_option_on_error_is_one_of_two_words(key: str) -> None:
    """IN-11. Goal: a misspelt option is refused with the valid words. Method: both words, none, and another one."""
    base = {"masters": "h:1", "table": "t"}
    assert WriteOptions.of(base).on_error == "raise"
    assert [WriteOptions.of({**base, key: word}).on_error for word in ("raise", "IGNORE")] == ["raise", "ignore"]
    with pytest.raises(Refused, match=r"onError is raise .* or ignore .* not 'skip'"):
        WriteOptions.of({**base, key: "skip"})


def test_keys_under_way_agree_with_a_set() -> None:
    """Goal: the sorted array is a set. Method: random small arrays beside Python's own."""
    rng = np.random.default_rng(7)
    keys, twin = KeysUnderWay(), set[int]()
    for _ in range(300):
        new = rng.integers(0, 2000, rng.integers(1, 8)).astype(np.uint64)
        values = new.tolist()
        assert keys.add(new) == (bool(twin & set(values)) or len(set(values)) < len(values))
        twin |= set(values)
