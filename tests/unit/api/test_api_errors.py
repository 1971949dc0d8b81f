"""Errors that a caller may meet in another process than the one that raised them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala import pipeline
from nyala.pipeline.errors import TaskFailed
from nyala.replica.client import (
    Client,
    ClientOptions,
    NotApplied,
    OutcomeUnknown,
    RowErrors,
    RowFailure,
    ScanSpec,
    TableHandle,
    TabletHandle,
)
from nyala.replica.master.group.changing_members import MembersSilent
from nyala.replica.rows import Column, ColumnType, PartitionSpec, RowError, TableSchema
from nyala.replica.server.startup.replay_watch import EntryCrashesReplay
from nyala.replica.tablet_copy.downloads import DamagedFile
from nyala.replica.tablet_copy.manifest import CopyFile, FileKind
from nyala.replica.types import (
    Address,
    Applied,
    Code,
    Corruption,
    DiskFailure,
    InvariantViolation,
    LaterFormat,
    Refused,
    ReplicaError,
    ResourcesExhausted,
    RowCode,
)

FAILURE = RowFailure(3, RowCode.ALREADY_PRESENT, "", {"k": 3, "at": None})
ROWS = pa.table({"k": [3], "v": ["x"]})
DECIMAL = Column(id=2, name="v", type=ColumnType.DECIMAL, precision=9, scale=2)
SCHEMA = TableSchema(1, (Column(id=1, name="k", type=ColumnType.INT64, nullable=False), DECIMAL), ("k",))
TABLET = TabletHandle("0" * 32, 0, 0, 0)
TABLE = TableHandle("1" * 32, "t", SCHEMA, PartitionSpec(("k",), 1), 3, 0, 0, tablets=(TABLET,))
READS: dict[str, Callable[[nyala.Cluster, nyala.Table], object]] = {
    "names": lambda cluster, table: cluster.tables(),
    "look-up": lambda cluster, table: cluster.table("t"),
    "wrong name": lambda cluster, table: cluster.table(""),
    "scan": lambda cluster, table: table.scan().to_arrow(),
    "wrong column": lambda cluster, table: table.scan(columns=["nope"]),
    "count": lambda cluster, table: table.count(),
    "get": lambda cluster, table: table.get(7),
    "wrong key": lambda cluster, table: table.get("seven"),
    "time": lambda cluster, table: cluster.client.snapshot_time(table.handle),
    "part": lambda cluster, table: cluster.client.scan_tablet(table.handle, TABLET, ScanSpec()),
}
WRITES: dict[str, Callable[[nyala.Cluster, nyala.Table], object]] = {
    "insert": lambda cluster, table: table.insert([{"k": 1}]),
    "wrong row": lambda cluster, table: table.insert([{"k": "one"}]),
    "create": lambda cluster, table: cluster.create_table("t", {"k": "nothing"}, key="k"),
    "drop": lambda cluster, table: cluster.drop_table("t"),
}
ERRORS: list[ReplicaError] = [
    ReplicaError("what", a=1, b="two"),
    InvariantViolation("what", a=1),
    Corruption("what", path=Path("x")),
    LaterFormat("what", version=9),
    DiskFailure("what", errno=5),
    EntryCrashesReplay("what", index=7),
    DamagedFile(CopyFile(FileKind.BLOCK, "1.blk", 10, 7), 9, 8),
    Refused(Code.NOT_LEADER, "what", detail="uuid@h:1", applied=Applied.UNKNOWN, at=Address("h", 1)),
    ResourcesExhausted("what", files=9),
    MembersSilent(Code.ILLEGAL_STATE, "what", living=1),
    NotApplied(Code.NOT_FOUND, "what", detail="d", table="t"),
    OutcomeUnknown(Code.TIMED_OUT, "what", detail="d", timeout_s=1.5),
    RowErrors([FAILURE], table="t", rows_applied=4, rows=ROWS, failed=2, advice="Do this."),
    RowErrors([RowError(3, RowCode.NOT_FOUND)], table="t", rows_applied=0),
    nyala.TopicNotMade("t", "writes.t", "Kafka is away"),
    pipeline.QueryRefused("what", topic="t"),
    pipeline.QueryInterrupted("what"),
    TaskFailed("what", fatal=True),
    pipeline.RowMisfit(Code.INVALID_ARGUMENT, "what", column="c"),
    pipeline.PublishFailed(3, "why"),
    pipeline.LettersUnreadable("what"),
]


def kinds(of: type[Any]) -> Iterator[type[Any]]:
    """An error's class and all that are made of it."""
    yield of
    for each in of.__subclasses__():
        yield from kinds(each)


@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_errors_are_the_same_in_another_process(again: Any) -> None:
    """IN-11. Goal: an error of a worker process, as of multiprocessing or of Spark, reaches its parent with its kind,
    its text and all its fields. Method: one of each kind there is, with a note, pickled and copied."""
    assert {type(e) for e in ERRORS} == {kind for kind in kinds(ReplicaError) if kind.__module__.startswith("nyala.")}
    for error in ERRORS:
        error.add_note("a note")
        back = again(error)
        assert type(back) is type(error) and back is not error
        assert (str(back), back.args, vars(back)) == (str(error), error.args, vars(error))


@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_only_the_error_of_a_change_says_that_nothing_was_applied(name: str) -> None:
    """IN-82. Goal: an error of a call that asks for no change does not speak of changes, and every other one does.
    Method: each read and each change of a user, refused by the arguments' check, or because masters are away."""
    client = Client(["127.0.0.1:1"], ClientOptions(timeout_s=0.05, scan_timeout_s=0.05, backoff_first_s=0.01))
    with nyala.Cluster(client, "127.0.0.1:1") as cluster:
        table = nyala.Table(client, TABLE)
        assert repr(table) == "<nyala.Table t (k int64, v decimal(9,2)) key=(k)>"
        with pytest.raises(Refused) as refused:
            (READS | WRITES)[name](cluster, table)
    assert refused.value.applied is Applied.NOT_APPLIED
    assert str(refused.value).endswith("; nothing was applied") is (name in WRITES), str(refused.value)
