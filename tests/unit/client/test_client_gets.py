"""Reads of keys from several tablets, which a test holds in this process, by calls that answer little at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nyala.replica.client import ClientOptions, NotApplied, TableHandle, TabletHandle
from nyala.replica.client import gets as gets_module
from nyala.replica.client.gets import Gets
from nyala.replica.fs import RealDisk
from nyala.replica.rows import PartitionSpec, route
from nyala.replica.rpc import error_to_pb, pb
from nyala.replica.tablet import Tablet
from nyala.replica.types import Code, Entry, Refused, limits
from tests.harness.tablet_twin import STRING_SCHEMA, superblock, write_entry

TABLETS = 3
HANDLE = TableHandle(
    "id",
    "t",
    STRING_SCHEMA,
    PartitionSpec(("k", "k2"), TABLETS),
    3,
    0,
    0,
    tablets=tuple(TabletHandle(str(n), n, n, 0) for n in range(TABLETS)),
)


class Calls:
    """`TabletCalls` as far as gets use it: every tablet is here, and answers so many bytes at a time."""

    def __init__(self, tablets: list[Tablet], bytes_max: int) -> None:
        self.options = ClientOptions()
        self.time_seen = 0
        self.asked: list[tuple[str, int]] = []
        self.writes_after: list[Entry] = []
        """Applied to each tablet after its first reply."""
        self.pins = True
        """False: servers of an earlier build, which do not know `snapshot_time`."""
        self.gone = 0
        """The calls at a time that is given which find no history any more."""
        self._tablets = tablets
        self._bytes_max = bytes_max

    def observe(self, hybrid_time: int) -> None:
        self.time_seen = max(self.time_seen, hybrid_time)

    def Get(self, request: pb.GetRequest, timeout: float) -> pb.GetReply:
        tablet = self._tablets[int(request.tablet_id)]
        self.asked.append((request.tablet_id, request.count))
        keys = tablet.keys(request.keys)
        assert keys.rows == request.count
        if request.snapshot_time and self.gone:
            self.gone -= 1
            raise Refused(Code.HISTORY_GONE, "the history reaches back to a later time")
        at = request.snapshot_time if self.pins else 0
        rows, time = tablet.get(keys, request.columns, self._bytes_max, snapshot_time=at or None)
        if [tablet_id for tablet_id, _ in self.asked].count(request.tablet_id) == 1:
            tablet.apply(self.writes_after)
        return pb.GetReply(
            arrow_schema=rows.batch.schema.serialize().to_pybytes(),
            arrow_batch=rows.batch.serialize().to_pybytes(),
            found=rows.found.tolist(),
            answered=rows.answered,
            snapshot_time=time,
        )

    def at_leader(self, table: str, tablet_id: str, ask: Callable[[Any, str, float], Any], deadline: Any) -> Any:
        return ask(self, "uuid", 1.0)

    at_any = at_leader


def keys_of(pairs: list[tuple[str, int]]) -> pa.RecordBatch:
    columns = [pa.array([k for k, _ in pairs], pa.string()), pa.array([n for _, n in pairs], pa.int8())]
    return pa.RecordBatch.from_arrays(columns, names=["k", "k2"])


@pytest.fixture
def tablets(tmp_path: Path) -> list[Tablet]:
    """Three tablets with 60 rows, whose `r` is their number."""
    pairs = [(f"key {n}", n % 100) for n in range(60)]
    place, made = route(keys_of(pairs), STRING_SCHEMA, HANDLE.partition).tolist(), []
    for pos in range(TABLETS):
        disk = RealDisk(tmp_path / str(pos))
        disk.mkdir("tablet-meta")
        tablet = Tablet.create(disk, superblock(STRING_SCHEMA))
        mine = [n for n in range(60) if place[n] == pos]
        rows = [{"op": 1, "offset": n, "k": pairs[n][0], "k2": pairs[n][1], "r": n, "s": "s" * 200} for n in mine]
        tablet.apply([write_entry(1, STRING_SCHEMA, ["k", "k2", "r", "s"], rows)])
        made.append(tablet)
    return made


def test_rows_of_several_tablets_are_in_the_order_of_the_keys(tablets: list[Tablet]) -> None:
    """RD-02. Goal: the rows come in the order of the keys, with one call to each tablet. Method: keys of all tablets in
    any order, some twice, some that have no row."""
    calls = Calls(tablets, limits.GET_BYTES_MAX)
    numbers = [7, 59, 3, 1000, 7, 21, 2, 44, 1001, 0]
    asked = keys_of([(f"key {n}", n % 100) for n in numbers])
    table, positions = Gets(calls).rows(HANDLE, asked, ["r", "k"], 0)  # type: ignore[arg-type]
    assert table.column("r").to_pylist() == [7, 59, 3, 7, 21, 2, 44, 0]
    assert positions.tolist() == [0, 1, 2, 4, 5, 6, 7, 9] and table.schema.names == ["r", "k"]
    assert len(calls.asked) == len({tablet for tablet, _ in calls.asked}) == TABLETS
    assert calls.time_seen == tablets[0].applied_time
    none, _ = Gets(calls).rows(HANDLE, keys_of([("none", 1)]), None, 0)  # type: ignore[arg-type]
    assert none.num_rows == 0 and none.schema == STRING_SCHEMA.arrow


def test_keys_that_one_call_cannot_answer_are_asked_for_again(
    tablets: list[Tablet], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RD-02. Goal: a get may ask for any number of keys and any bytes of rows; the client splits it into calls. Method:
    tablets that answer two rows at a time, and calls that take five keys, or so few bytes; a key that is longer than a
    call is refused, and so is a server that answers nothing."""
    calls = Calls(tablets, 450)
    monkeypatch.setattr(gets_module.limits, "GET_KEYS_MAX", 5)
    asked = keys_of([(f"key {n}", n % 100) for n in range(60)])
    table, positions = Gets(calls).rows(HANDLE, asked, None, 0)  # type: ignore[arg-type]
    assert table.column("r").to_pylist() == list(range(60)) == positions.tolist()
    assert len(calls.asked) >= 30 and max(count for _, count in calls.asked) == 5
    monkeypatch.setattr(gets_module.limits, "GET_KEYS_BYTES_MAX", 500)
    assert Gets(calls).rows(HANDLE, asked, None, 0)[0].num_rows == 60  # type: ignore[arg-type]
    with pytest.raises(Refused) as refused:
        Gets(calls).rows(HANDLE, keys_of([("k" * 600, 1)]), None, 0)  # type: ignore[arg-type]
    assert refused.value.code is Code.TOO_LARGE
    calls.Get = lambda request, timeout: pb.GetReply()  # type: ignore[method-assign]
    with pytest.raises(Refused, match="answered no key"):
        Gets(calls).rows(HANDLE, keys_of([("k", 1)]), None, 0)  # type: ignore[arg-type]


@pytest.mark.a_third
@pytest.mark.parametrize("staleness_us", [0, 5_000_000])
def test_rows_of_one_tablet_are_of_one_moment_in_several_calls(tablets: list[Tablet], staleness_us: int) -> None:
    """RD-02. Goal: a get that needs several calls to a tablet returns rows of one moment. Method: tablets that answer
    two rows at a time; after the first answer of each, every row is replaced or deleted, and flushed. Servers that do
    not know the time answer as long as nothing was written; then the client refuses, and returns nothing."""
    calls = Calls(tablets, 450)
    asked = keys_of([(f"key {n}", n % 100) for n in range(60)])
    rows = [
        {"op": 4 if n % 3 == 0 else 2, "offset": 100 + n, "k": f"key {n}", "k2": n % 100, "r": -n, "s": "t" * 200}
        for n in range(60)
    ]
    calls.pins = False
    assert Gets(calls).rows(HANDLE, asked, None, staleness_us)[0].num_rows == 60  # type: ignore[arg-type]
    calls.pins, calls.asked = True, []
    calls.writes_after = [write_entry(2, STRING_SCHEMA, ["k", "k2", "r", "s"], rows)]
    table, positions = Gets(calls).rows(HANDLE, asked, None, staleness_us)  # type: ignore[arg-type]
    assert table.column("r").to_pylist() == list(range(60)) == positions.tolist()
    assert len(calls.asked) >= 30
    assert Gets(calls).rows(HANDLE, asked, ["s"], staleness_us)[0].num_rows == 40  # type: ignore[arg-type]
    calls.pins, calls.asked = False, []
    calls.writes_after = [write_entry(3, STRING_SCHEMA, ["k", "k2", "r", "s"], rows[1:2])]
    with pytest.raises(Refused, match="a server of an earlier build") as refused:
        Gets(calls).rows(HANDLE, asked, None, staleness_us)  # type: ignore[arg-type]
    assert refused.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("staleness_us", [0, 5_000_000])
def test_tablet_whose_history_is_dropped_meanwhile_is_read_anew(tablets: list[Tablet], staleness_us: int) -> None:
    """RD-02. Goal: a get of many keys succeeds although the table keeps its history for a shorter time than the calls
    take, and its rows are still of one moment; if that happens again and again, the error says what to do. Method: the
    first tablet replaces its rows after its first answer and has then no history for the time of that answer; the
    second time it has. Then it never has."""
    calls = Calls(tablets, 450)
    pairs = [(f"key {n}", n % 100) for n in range(60)]
    asked = keys_of(pairs)
    place = route(asked, STRING_SCHEMA, HANDLE.partition).tolist()
    first = [n for n in range(60) if place[n] == 0]
    rows = [{"op": 2, "offset": 100 + n, "k": pairs[n][0], "k2": pairs[n][1], "r": -n, "s": "t" * 200} for n in first]
    calls.writes_after, calls.gone = [write_entry(2, STRING_SCHEMA, ["k", "k2", "r", "s"], rows)], 1
    one = TableHandle("id", "t", STRING_SCHEMA, PartitionSpec(("k", "k2"), 1), 3, 0, 0, tablets=HANDLE.tablets[:1])
    of_first = keys_of([pairs[n] for n in first])
    table, positions = Gets(calls).rows(one, of_first, None, staleness_us)  # type: ignore[arg-type]
    assert table.column("r").to_pylist() == [-n for n in first] and positions.tolist() == list(range(len(first)))
    assert calls.gone == 0 and len(first) > 4
    calls.gone, calls.asked = 1000, []
    with pytest.raises(NotApplied, match=f"4 times in a row; ask for fewer keys at a time.*keys={len(first)}") as gone:
        Gets(calls).rows(one, of_first, None, staleness_us)  # type: ignore[arg-type]
    assert gone.value.code is Code.HISTORY_GONE and len(calls.asked) == 8
    calls.Get = lambda request, timeout: pb.GetReply(error=error_to_pb(Refused(Code.NOT_FOUND, "no")))  # type: ignore[method-assign]
    with pytest.raises(Refused) as other:
        Gets(calls).rows(one, of_first, None, staleness_us)  # type: ignore[arg-type]
    assert other.value.code is Code.NOT_FOUND
