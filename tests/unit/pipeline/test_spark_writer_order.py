"""Writes of one Spark partition: those with a key in common do not overtake each other, all others may."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.pipeline.source import writer as source_writer
from nyala.pipeline.source.writer import KeysUnderWay, RowsRefused, Sending, WriteOptions, Writer
from nyala.replica.base import RowCode
from nyala.replica.client import TableHandle, TabletHandle, WireBatch
from nyala.replica.rows import Column, ColumnType, PartitionSpec, RowError, TableSchema

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

    def __init__(self, errors_each: int = 0) -> None:
        self.said: list[object] = []
        self.row_errors: list[RowError] = []
        self._errors_each = errors_each

    def send(self, batch: WireBatch, *, depth: int | None = None) -> None:
        self.said.append(depth)
        self.row_errors += [RowError(n, RowCode.ALREADY_PRESENT, "") for n in range(self._errors_each)]

    def flush(self) -> None:
        self.said.append("flush")


def sending(to: Recording) -> Sending:
    return Sending(Writer(WriteOptions("h:1", "t"), TABLE), to)  # type: ignore[arg-type]


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
    """Goal: memory does not grow with the partition. Method: a bound of four keys; flushed, a key is new again."""
    monkeypatch.setattr(source_writer, "KEYS_UNDER_WAY_MAX", 4)
    to = Recording()
    send = sending(to)
    for k in (1, 2, 3, 4, 1):
        send.send(rows(k))
    assert to.said == [None, None, None, None, "flush", None]


def test_refused_rows_are_counted_and_only_the_first_are_kept() -> None:
    """Goal: a million refused rows are a number, not a list. Method: three writes of four errors each."""
    to = Recording(errors_each=4)
    send = sending(to)
    for k in range(3):
        send.send(rows(k * 2))
        assert to.row_errors == []
    with pytest.raises(RowsRefused, match=r"^12 rows were not applied to t by upsert: (ALREADY_PRESENT(, )?){5}$"):
        send.finish()


def test_keys_under_way_agree_with_a_set() -> None:
    """Goal: the sorted array is a set. Method: random small arrays beside Python's own."""
    rng = np.random.default_rng(7)
    keys, twin = KeysUnderWay(), set[int]()
    for _ in range(300):
        new = rng.integers(0, 2000, rng.integers(1, 8)).astype(np.uint64)
        values = new.tolist()
        assert keys.add(new) == (bool(twin & set(values)) or len(set(values)) < len(values))
        twin |= set(values)
