"""Rows that cannot be applied, and batches that come twice, through client, leader, log, ledger and failover."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.client import NotApplied, ScanSpec, SourceWriter, TableHandle, wire_batches
from nyala.replica.rows import RowError, RowOp, SourceKey
from nyala.replica.types import Code, RowCode, limits
from tests.harness.stack import Stack

pytestmark = pytest.mark.process

SOURCE = SourceKey("cluster", "topic", 0)
BATCH_ROWS = 100
BATCHES = 30


def source_batch(number: int) -> tuple[pa.Table, np.ndarray]:
    """Return records `number * 100 ...` of a source: every tenth inserts the key of the one before it, which must fail;
    every twenty-fifth has a null in a column that allows none. The offsets skip every third number, as markers do."""
    at = np.arange(number * BATCH_ROWS, (number + 1) * BATCH_ROWS)
    keys = np.where(at % 10 == 9, at - 1, at)
    must = pa.array([None if n % 25 == 7 else 1 for n in at.tolist()], pa.int32())
    return pa.table({"k": keys, "v": [f"record {n}" for n in at.tolist()], "must": must}), at + at // 2


def expected_errors(numbers: range) -> dict[int, RowError]:
    """Return the errors of these batches applied one row at a time, by offset."""
    found, present = {}, set()
    for number in numbers:
        columns, offsets = source_batch(number)
        for key, must, offset in zip(
            *columns.select(["k", "must"]).to_pydict().values(), offsets.tolist(), strict=True
        ):
            if must is None:
                found[offset] = RowError(offset, RowCode.NULL_IN_REQUIRED_COLUMN, "must")
            elif key in present:
                found[offset] = RowError(offset, RowCode.ALREADY_PRESENT, "")
            else:
                present.add(key)
    return found


def send(handle: TableHandle, writer: SourceWriter, numbers: range) -> None:
    for number in numbers:
        columns, offsets = source_batch(number)
        for batch in wire_batches(handle, columns, RowOp.INSERT, offsets):
            writer.send(batch)


def errors_of(writer: SourceWriter) -> dict[int, RowError]:
    """Return the errors by offset; no offset comes twice."""
    found = {e.offset: e for e in writer.row_errors}
    assert len(found) == len(writer.row_errors)
    return found


def test_source_batches_replayed_over_a_failover_return_the_same_errors(stack: Stack) -> None:
    """Goal: a replay doubles nothing and reports the same errors, whichever server leads (scenario 63). Method: inserts
    that must fail; kill -9 a leader half-way; then all again from a cold start, from a warm middle, and in other
    batches."""
    handle = stack.new_table("replayed")
    expected = expected_errors(range(BATCHES))
    writer = stack.client.source_writer(handle, SOURCE, generation=1, done=0)
    before = stack.pids()
    victim = stack.leader(handle.tablets[0].tablet_id)
    send(handle, writer, range(BATCHES // 2))
    stack.kill(victim)
    send(handle, writer, range(BATCHES // 2, BATCHES))
    writer.flush()
    stored = BATCHES * BATCH_ROWS - len(expected)
    assert errors_of(writer) == expected
    assert stack.count(handle) == stored

    stack.wait_replaced(before, victim)
    stack.kill(stack.leader(handle.tablets[1].tablet_id))
    cold = stack.client.source_writer(handle, SOURCE, generation=1, done=0)
    send(handle, cold, range(BATCHES))
    cold.flush()
    assert (cold.rows_applied, errors_of(cold)) == (0, expected)
    assert cold.acknowledged == writer.acknowledged

    middle = stack.client.source_writer(handle, SOURCE, generation=1, done=0, acknowledged=writer.acknowledged)
    send(handle, middle, range(10, 20))
    middle.flush()
    low, high = source_batch(10)[1][0], source_batch(19)[1][-1]
    assert middle.rows_applied == 0
    assert errors_of(middle) == {o: e for o, e in expected.items() if low <= o <= high}

    other = stack.client.source_writer(handle, SOURCE, generation=1, done=0)
    tables, offsets = zip(*(source_batch(n) for n in range(BATCHES + 2)), strict=True)
    for batch in wire_batches(handle, pa.concat_tables(tables), RowOp.INSERT, np.concatenate(offsets)):
        other.send(batch)
    other.flush()
    assert errors_of(other) == expected_errors(range(BATCHES + 2))
    fresh = 2 * BATCH_ROWS - (len(errors_of(other)) - len(expected))
    assert other.rows_applied == fresh and stack.count(handle) == stored + fresh


def update(number: int) -> dict[str, object]:
    """Return record `number` of a topic in which each of 40 keys comes again and again, at times with a null in a
    column that allows none."""
    return {"k": number % 40, "v": f"record {number}", "must": None if number % 25 == 7 else number}


def send_updates(handle: TableHandle, writer: SourceWriter, first: int, end: int, size: int) -> None:
    schema = pa.schema([pa.field(n, handle.schema.arrow.field(n).type) for n in ("k", "v", "must")])
    for at in range(first, end, size):
        numbers = np.arange(at, min(at + size, end), dtype=np.int64)
        columns = pa.Table.from_pylist([update(n) for n in numbers.tolist()], schema=schema)
        for batch in wire_batches(handle, columns, RowOp.UPSERT, numbers):
            writer.send(batch)


def updated(end: int) -> dict[int, tuple[object, object]]:
    """Return the rows by key after the records below `end` were applied one by one."""
    good = [r for r in map(update, range(end)) if r["must"] is not None]
    return {r["k"]: (r["v"], r["must"]) for r in good}  # type: ignore[misc]


def test_two_attempts_at_one_task_at_once_and_a_displaced_owner_change_nothing_twice(stack: Stack) -> None:
    """Goal: scenarios 59, 64, 65: whoever believes that a Kafka partition is his, the tablets take each offset once; of
    a key that comes many times in a batch and over batches the last offset stands. Method: two attempts write the same
    records at the same time in batches of other sizes, one is cut off half-way; then an owner of the next generation
    reads on from a little below, under an older one that is in mid-batch and is refused; at the end everything comes
    once more, late."""
    handle = stack.new_table("attempts", 2)
    source = SourceKey("cluster", "attempts", 0)
    start = threading.Barrier(2)

    def writer(generation: int) -> SourceWriter:
        return stack.client.source_writer(handle, source, generation=generation, done=0)

    def rows() -> dict[int, tuple[object, object]]:
        parts = [b for p in stack.client.scan(handle, ScanSpec(columns=("k", "v", "must"))) for b in p.batches]
        listed = [(r["k"], (r["v"], r["must"])) for b in parts for r in b.to_pylist()]
        assert len(dict(listed)) == len(listed)
        return dict(listed)

    loser, winner = writer(1), writer(1)

    def lose() -> None:
        start.wait(60)
        send_updates(handle, loser, 0, 1000, 70)
        loser.abandon()

    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(lose)
        start.wait(60)
        send_updates(handle, winner, 0, 2000, 110)
        winner.flush()
        lost.result()
    failed = {n: RowError(n, RowCode.NULL_IN_REQUIRED_COLUMN, "must") for n in range(2000) if n % 25 == 7}
    assert errors_of(winner) == failed and rows() == updated(2000)
    assert winner.rows_applied + winner.rows_replayed >= 2000 - len(failed)

    old, new = winner, writer(2)

    def displaced() -> None:
        start.wait(60)
        send_updates(handle, old, 2000, 20_000, 30)
        old.flush()

    with ThreadPoolExecutor(1) as pool:
        fenced = pool.submit(displaced)
        start.wait(60)
        send_updates(handle, new, 1900, 3000, 50)
        new.flush()
        with pytest.raises(NotApplied) as refused:
            fenced.result()
    assert refused.value.code is Code.STALE_GENERATION
    old.abandon()
    send_updates(handle, new, 3000, 20_000, 1000)
    new.flush()
    assert rows() == updated(20_000)
    late = writer(2)
    send_updates(handle, late, 0, 20_000, 5000)
    late.flush()
    assert late.rows_applied == 0 and rows() == updated(20_000)
    stack.verify_replicas()


def test_source_gap_and_older_generation_are_refused_and_change_nothing(stack: Stack) -> None:
    """Goal: never silently short, never two readers of one source. Method: `after` ahead of what is applied is GAP;
    after a batch of generation 2, one of generation 1 is STALE_GENERATION; counts stay, and the right chain goes on."""
    handle = stack.new_table("chained", 1)
    (tablet,) = (t.tablet_id for t in handle.tablets)
    first = stack.client.source_writer(handle, SOURCE, generation=1, done=0)
    send(handle, first, range(2))
    first.flush()
    count, last = stack.count(handle), first.acknowledged[tablet]

    ahead = stack.client.source_writer(handle, SOURCE, generation=1, done=0, acknowledged={tablet: last + 1})
    with pytest.raises(NotApplied) as gap:
        send(handle, ahead, range(3, 4))
        ahead.flush()
    assert gap.value.code is Code.GAP and stack.count(handle) == count

    second = stack.client.source_writer(handle, SOURCE, generation=2, done=0)
    send(handle, second, range(2, 3))
    second.flush()
    assert second.rows_applied > 0
    count = stack.count(handle)
    with pytest.raises(NotApplied) as stale:
        send(handle, first, range(3, 4))
        first.flush()
    assert stale.value.code is Code.STALE_GENERATION and stack.count(handle) == count

    send(handle, second, range(3, 4))
    second.flush()
    assert stack.count(handle) == count + BATCH_ROWS - len(expected_errors(range(3, 4)))


def test_rows_that_fail_do_not_keep_the_rest_of_their_batch_out(stack: Stack) -> None:
    """Goal: one bad row costs itself only. Method: batches in which every kind of bad row is between good ones; each
    bad one is named by offset, code and column, all others are stored, and the replicas agree."""
    handle = stack.new_table("bad-rows")
    table = handle.schema.arrow

    def write(rows: list[dict[str, object]], ops: list[RowOp], *names: str) -> dict[int, tuple[RowCode, str]]:
        schema = pa.schema([pa.field(n, table.field(n).type) for n in names])
        writer = stack.client.session_writer(handle, on_error="return")
        codes = np.array([int(op) for op in ops], np.uint8)
        for batch in wire_batches(handle, pa.Table.from_pylist(rows, schema=schema), codes):
            writer.send(batch)
        writer.flush()
        return {e.offset: (e.code, e.column) for e in writer.row_errors}

    def row(k: int | None, v: str | None = "v", must: int | None = 1) -> dict[str, object]:
        return {"k": k, "v": v, "must": must}

    names = ("k", "v", "must")
    assert write([row(k) for k in range(5)], [RowOp.INSERT] * 5, *names) == {}
    big = "x" * (limits.ROW_SIZE_BYTES_MAX + 1)
    rows = [row(10), row(1), row(11), row(12, must=None), row(13), row(14, v=big), row(15), row(None), row(16)]
    rows += [row(17), row(99), row(2, v="new"), row(98), row(3), row(18)]
    ops = [RowOp.INSERT] * 10 + [RowOp.UPDATE, RowOp.UPDATE, RowOp.DELETE, RowOp.DELETE, RowOp.UPSERT]
    assert write(rows, ops, *names) == {
        1: (RowCode.ALREADY_PRESENT, ""),
        3: (RowCode.NULL_IN_REQUIRED_COLUMN, "must"),
        5: (RowCode.ROW_TOO_LARGE, ""),
        7: (RowCode.NULL_KEY, "k"),
        10: (RowCode.NOT_FOUND, ""),
        12: (RowCode.NOT_FOUND, ""),
    }
    # The column that every row needs is not in the batch at all: only rows that exist can be changed.
    partial = [{"k": 4, "v": "partial"}, {"k": 20, "v": "none"}]
    assert write(partial, [RowOp.UPSERT, RowOp.INSERT], "k", "v") == {1: (RowCode.NULL_IN_REQUIRED_COLUMN, "must")}
    parts = [b for p in stack.client.scan(handle, ScanSpec(columns=("k", "v", "n"))) for b in p.batches]
    found = {r["k"]: (r["v"], r["n"]) for b in parts for r in b.to_pylist()}
    expected = dict.fromkeys((0, 1, 10, 11, 13, 15, 16, 17, 18), ("v", 7))
    assert found == {**expected, 2: ("new", 7), 4: ("partial", 7)}
    stack.verify_replicas()


def test_unknown_operation_is_an_error_of_its_row(stack: Stack) -> None:
    """Goal: a newer client's operation harms no other row. Method: operation 77 between two inserts."""
    handle = stack.new_table("operations", 1)
    columns = pa.table({"k": [1, 2, 3], "must": pa.array([1, 1, 1], pa.int32())})
    writer = stack.client.session_writer(handle, on_error="return")
    for batch in wire_batches(handle, columns, np.array([1, 77, 1], np.uint8)):
        writer.send(batch)
    writer.flush()
    assert [(e.offset, e.code) for e in writer.row_errors] == [(1, RowCode.UNKNOWN_OPERATION)]
    assert stack.count(handle) == 2
