"""Batches that a tablet refuses as too large are sent in halves: in order, once, by every writer there is."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from random import Random
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.client import ClientOptions, NotApplied, OutcomeUnknown, TableHandle, TabletHandle, wire_batches
from nyala.replica.client.client_ids import ClientIds
from nyala.replica.client.writes import SessionWriter, SourceWriter, _split_of_source, halves, write_request
from nyala.replica.rows import Column, ColumnType, PartitionSpec, RowOp, SourceKey, TableSchema, WriteMeta
from nyala.replica.rpc import error_to_pb, pb, row_errors_to_pb
from nyala.replica.tablet import Given, Tablet
from nyala.replica.types import Address, Entry, EntryKind, OpId, Refused, limits
from tests.harness.seeds import few_then_deep
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import rows_of, superblock

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="text", type=ColumnType.STRING),
        Column(id=3, name="n", type=ColumnType.INT64),
    ),
    ("k",),
)
HANDLE = TableHandle(
    "b" * 32, "t", SCHEMA, PartitionSpec(("k",), 1), 1, 0, 0, tablets=(TabletHandle("a" * 32, 0, 0, 0),)
)
SOURCE = SourceKey("c" * 8, "t" * 8, 0)
TEXT = "x" * 1000


class Away(grpc.RpcError, grpc.Call):  # type: ignore[misc]
    """A server that did not answer."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "away"


class Leader:
    """A leader that applies at once what it accepts, and loses some replies."""

    def __init__(self, loses: Callable[[], bool] = lambda: False) -> None:
        self.tablet = Tablet.create(SimDisk(), superblock(SCHEMA))
        self.loses = loses
        self.rows: list[int] = []
        """Rows of each batch that was applied."""
        self.refused = 0
        self._index = 0
        self._queue: list[Future[Any]] = []
        here = Address("127.0.0.1", 1)
        locator = SimpleNamespace(
            version=lambda table: 1, leader=lambda tablet: ("u", here), leader_answered=lambda *_: None
        )
        stub = SimpleNamespace(Write=self)
        channels = SimpleNamespace(
            small_writes=lambda address: SimpleNamespace(begin=lambda *_: None), tablet_server=lambda address: stub
        )
        patient = ClientOptions(backoff_first_s=0.0001, backoff_max_s=0.0002)
        self.calls: Any = SimpleNamespace(
            options=patient, rng=Random(1), locator=locator, channels=channels, time_seen=0, observe=lambda _: None,
            ask_elsewhere=lambda *_: None,
        )  # fmt: skip

    def future(self, request: pb.WriteRequest, timeout: float) -> Future[Any]:
        answer: Future[Any] = Future()
        reply = self(request, timeout)
        if self.loses():
            answer.set_exception(Away())
        else:
            answer.set_result(reply)
        return answer

    def __call__(self, request: pb.WriteRequest, timeout: float) -> pb.WriteReply:
        source = request.source if request.HasField("source") else None
        meta = WriteMeta(
            tuple(request.column_ids), request.rows,
            None if source is None else SourceKey(source.cluster_id, source.topic_id, source.kafka_partition),
            request.generation, request.after if request.has_after else None, request.done, request.client_id,
            request.sequence, request.first_incomplete, request.ignore_null, rows_bounded=True,
        )  # fmt: skip
        ids = meta.column_ids
        try:
            batch = self.tablet.check_write(1, ids, request.payload, request.payload_crc, request.rows)
            given = Given(ids, batch, self.tablet.check_passes(meta, batch, len(request.payload)))
            if self.tablet.may_keep_much(meta):
                self.tablet.check_kept(meta, given, len(request.payload), [given])
        except Refused as error:
            self.refused += 1
            return pb.WriteReply(error=error_to_pb(error))
        self._index += 1
        (result,) = self.tablet.apply(
            [
                Entry(
                    OpId(1, self._index), EntryKind.WRITE, self._index * 1000, 1, meta.encode(), request.payload,
                    request.payload_crc,
                )
            ]
        )  # fmt: skip
        if result.error is None and result.rows_replayed < request.rows:
            self.rows.append(request.rows)
        return pb.WriteReply(
            error=error_to_pb(result.error),
            row_errors=row_errors_to_pb(result.row_errors),
            hybrid_time=result.hybrid_time,
            last_offset=-1 if result.last_offset is None else result.last_offset,
            rows_applied=result.rows_applied,
            rows_replayed=result.rows_replayed,
        )

    def session(self) -> SessionWriter:
        return SessionWriter(self.calls, HANDLE, ClientIds(), "return")

    def source(self) -> SourceWriter:
        return SourceWriter(self.calls, HANDLE, SOURCE, generation=0, done=0)

    def found(self) -> dict[int, tuple[Any, Any]]:
        return {row["k"]: (row["text"], row["n"]) for row in rows_of(self.tablet.scan(), SCHEMA)}


def texts(keys: list[int]) -> Any:
    return pa.table({"k": pa.array(keys, pa.int64()), "text": [TEXT] * len(keys)})


def numbers(keys: list[int], values: list[int]) -> Any:
    return pa.table({"k": pa.array(keys, pa.int64()), "n": pa.array(values, pa.int64())})


def test_batch_whose_rows_keep_too_much_goes_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-60. Goal: a client splits a batch that a server refuses as too large. Method: rows of 1,000 bytes and a bound
    of 3,500; a number for each of ten rows, in one write, goes in parts of three rows at most; and many numbers for one
    row come in their order, so that the last one stands."""
    leader = Leader()
    writer = leader.session()
    writer.write(next(wire_batches(HANDLE, texts(list(range(10))), RowOp.UPSERT)))
    monkeypatch.setattr(limits, "BATCH_KEPT_BYTES_MAX", 3500)
    writer.write(next(wire_batches(HANDLE, numbers(list(range(10)), list(range(10))), RowOp.UPSERT)))
    assert leader.rows == [10, 2, 3, 2, 3] and leader.refused == 3
    assert leader.found() == {n: (TEXT, n) for n in range(10)}
    writer.write(next(wire_batches(HANDLE, numbers([4] * 10, list(range(10))), RowOp.UPDATE)))
    assert leader.found()[4] == (TEXT, 9) and writer.rows_applied == 30 and not writer.row_errors
    assert not writer._open, "each number is acknowledged"


@pytest.mark.a_third
@pytest.mark.parametrize("kind", ["source", "session"])
def test_batch_that_writes_one_key_too_often_goes_in_halves(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-60, CN-24. Goal: a client splits a batch that writes one key too often, and keeps the order. Method: a bound
    of three; 100 rows of one key among others, in two batches, the later behind the earlier: inserts, of which the
    first one is applied, then numbers, of which the last one stands."""
    monkeypatch.setattr(limits, "BATCH_PASSES_MAX", 3)
    leader = Leader()
    keys = [7 if n % 2 else n for n in range(200)]
    inserts = list(wire_batches(HANDLE, numbers(keys, list(range(200))), RowOp.INSERT))
    updates = list(wire_batches(HANDLE, numbers(keys, list(range(200))), RowOp.UPDATE, np.arange(200, 400)))
    errors = sent(leader, kind, [*inserts, *updates])
    assert [error.offset for error in errors] == list(range(3, 200, 2)), "the first insert of the key is applied"
    assert leader.found() == {n: (None, 199 if n == 7 else n) for n in keys}
    assert max(leader.rows) <= 7 and sum(leader.rows) == 400


def test_row_errors_of_halves_are_told_by_the_offsets_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: row errors have the offsets of the caller's rows, however the batch was split. Method: updates of which
    every third one has no row."""
    leader = Leader()
    writer = leader.session()
    writer.write(next(wire_batches(HANDLE, texts([n for n in range(30) if n % 3]), RowOp.UPSERT)))
    monkeypatch.setattr(limits, "BATCH_KEPT_BYTES_MAX", 3500)
    writer.write(next(wire_batches(HANDLE, numbers(list(range(30)), [1] * 30), RowOp.UPDATE)))
    assert len(leader.rows) > 5
    assert [error.offset for error in writer.row_errors] == list(range(0, 30, 3)) and writer.rows_applied == 40


@pytest.mark.a_third
@pytest.mark.parametrize("kind", ["source", "session"])
@pytest.mark.parametrize("seed", few_then_deep(20, 200))
def test_rows_are_applied_once_and_in_order_when_batches_are_halved(
    seed: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CN-24, IN-60. Goal: exactly once, and in the order of a source or a session, also for batches that go in halves.
    Method: random batches of two kinds with keys that come twice, several under way, replies that are lost; inserts
    that would fail if they came twice. A tablet without a bound, which loses nothing, gets the same: rows and errors
    are the same. A session whose reply was lost does not halve, and says that the outcome is unknown."""
    monkeypatch.setattr(limits, "BATCH_KEPT_BYTES_MAX", 3500)
    rng = Random(seed)
    monkeypatch.setattr(limits, "BATCH_PASSES_MAX", rng.choice([2, 1000]))
    lossy = rng.random() < 0.6
    plain, leader = Leader(), Leader(lambda: lossy and rng.random() < 0.1)
    ends = []
    batches = []
    for n in range(12):
        keys = [rng.randrange(12) for _ in range(rng.randrange(1, 9))]
        rows = texts(keys) if rng.random() < 0.4 else numbers(keys, [rng.randrange(99) for _ in keys])
        op = rng.choice([RowOp.UPSERT, RowOp.UPDATE, RowOp.INSERT] if "n" in rows.column_names else [RowOp.UPSERT])
        offsets = np.arange(n * 10, n * 10 + len(keys), dtype=np.int64)
        batches += list(wire_batches(HANDLE, rows, op, offsets))
    for one in (plain, leader):
        if one is plain:
            with monkeypatch.context() as patch:
                patch.setattr(limits, "BATCH_KEPT_BYTES_MAX", 1 << 40)
                patch.setattr(limits, "BATCH_PASSES_MAX", 1000)
                ends.append(sent(one, kind, batches))
        else:
            ends.append(sent(one, kind, batches))
    assert plain.refused == 0
    if isinstance(ends[1], OutcomeUnknown):
        assert kind == "session" and lossy
        return
    assert ends[0] == ends[1]
    assert plain.found() == leader.found()
    assert sum(plain.rows) == sum(leader.rows), "every row once"


@pytest.mark.parametrize("kind", ["source", "session"])
def test_batch_that_may_yet_be_applied_is_halved_by_a_source_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CN-24. Goal: a batch whose first attempt may still be applied is split only by a source, so that no row is
    applied twice. Method: nothing is heard of the first attempt, and the second one is refused as too large. A source's
    halves have the offsets of the whole; a session cannot halve it, and says that the outcome is unknown."""
    lost: list[bool] = []
    leader = Leader(lambda: bool(lost) and lost.pop())
    setup = leader.session()
    setup.write(next(wire_batches(HANDLE, texts(list(range(6))), RowOp.UPSERT)))
    monkeypatch.setattr(limits, "BATCH_KEPT_BYTES_MAX", 3500)
    lost.append(True)
    end = sent(leader, kind, list(wire_batches(HANDLE, numbers(list(range(6)), [7] * 6), RowOp.UPDATE)))
    if kind == "source":
        assert end == [] and leader.rows == [6, 3, 3]
    else:
        assert isinstance(end, OutcomeUnknown) and "TOO_LARGE" in str(end) and leader.rows == [6]


def test_halves_of_a_source_are_a_chain() -> None:
    """CN-24. Goal: a tablet that lacks the first half refuses the second one. Method: the requests in the place of one
    with and without an `after`, of batches whose offsets have holes."""
    (batch,) = wire_batches(HANDLE, numbers([1, 2, 3], [1, 2, 3]), RowOp.UPSERT, np.array([10, 20, 30]))
    for after in (None, 5, 25):
        meta = WriteMeta(batch.column_ids, batch.rows, SOURCE, 7, after, 3)
        whole = write_request(HANDLE, batch, meta)
        one, two = _split_of_source(whole, *halves(HANDLE, whole))
        assert (one.rows, one.has_after, one.after) == (1, after is not None, after or 0)
        assert (two.rows, two.has_after, two.after) == (2, True, max(10, after or 0))
        for part in (one, two):
            assert (part.source, part.generation, part.done) == (whole.source, 7, 3)


def test_session_halves_batches_while_others_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """CN-24. Goal: a number that is open is not called forgotten although halves have later numbers than what is behind
    them. Method: batches of different keys, several under way; some are refused, up to twice, and others never."""
    leader = Leader()
    writer = leader.session()
    keys = [list(range(n, n + rows)) for n, rows in zip(range(0, 240, 10), [8, 8, 8, 2] * 6, strict=True)]
    writer.write(next(wire_batches(HANDLE, texts(list(range(240))), RowOp.UPSERT)))
    monkeypatch.setattr(limits, "BATCH_KEPT_BYTES_MAX", 3500)
    for some in keys:
        for batch in wire_batches(HANDLE, numbers(some, some), RowOp.UPDATE):
            writer.send(batch)
    writer.flush()
    assert leader.refused == 3 * 18 and leader.rows[1:] == [2] * (4 * 18 + 6)
    assert [n for n, (_, number) in leader.found().items() if number == n] == [n for some in keys for n in some]
    assert not writer._open and not writer.row_errors


def sent(leader: Leader, kind: str, batches: list[Any]) -> Any:
    """The errors of all rows, or why it ended."""
    writer: Any = leader.source() if kind == "source" else leader.session()
    try:
        for batch in batches:
            if kind == "source":
                writer.send(batch)
            else:
                writer.send(batch, depth=1)
        writer.flush()
    except Refused as error:
        return error
    assert kind == "session" or writer.acknowledged == {"a" * 32: batches[-1].last_offset}
    return sorted(writer.row_errors)


def test_half_that_is_refused_behind_an_applied_one_is_no_write_without_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CN-24. Goal: the client does not report NOT_APPLIED if some rows of the batch were applied. Method: the tablet
    refuses the second half for good; of a batch that is refused as a whole, or one whose first half is, nothing is
    applied."""
    for good in (0, 1):
        leader = Leader()
        writer = leader.session()
        writer.write(next(wire_batches(HANDLE, texts(list(range(4))), RowOp.UPSERT)))
        monkeypatch.setattr(limits, "BATCH_KEPT_BYTES_MAX", 2500)
        check, seen = leader.tablet.check_write, []

        def refusing(*args: Any, check: Any = check, seen: list[int] = seen, good: int = good) -> Any:
            seen.append(1)
            return check(*args) if len(seen) <= 1 + good else check(9, *args[1:])

        monkeypatch.setattr(leader.tablet, "check_write", refusing)
        with pytest.raises(OutcomeUnknown if good else NotApplied) as told:
            writer.write(next(wire_batches(HANDLE, numbers(list(range(4)), [1] * 4), RowOp.UPSERT)))
        assert ("rows before these" in str(told.value)) == bool(good)
        assert [n for _, n in leader.found().values()].count(1) == 2 * good
        monkeypatch.undo()


def test_batch_of_one_row_that_is_too_large_is_refused() -> None:
    """IN-60. Goal: a batch of one row is not split any further. Method: one row, for which the leader has no room
    whatever is sent."""
    leader = Leader()
    batch = next(wire_batches(HANDLE, texts([1]), RowOp.UPSERT))
    with pytest.raises(NotApplied, match="TOO_LARGE"):
        leader.session().write(batch._replace(rows=limits.BATCH_ROWS_MAX + 1)._replace(payload=bytes(9 << 20), rows=1))
