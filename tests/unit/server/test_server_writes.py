"""Writes of one tablet from their arrival to their index."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.raft_driver.reads import Reads
from nyala.replica.rows import Column, ColumnType, RowOp
from nyala.replica.rpc import pb
from nyala.replica.server.requests.writes import INLINE_BYTES_MAX, ROW_ERROR_BYTES, Writes, need_same_generation
from nyala.replica.server.runtime.memory import MemoryGuard
from nyala.replica.types import (
    Applied,
    Code,
    OpId,
    RaftConfig,
    Refused,
    RowCode,
    generation_of,
    limits,
    next_generation,
)
from tests.harness.patience import patience_s
from tests.harness.rows import SCHEMA, batch, write_request
from tests.harness.server_pair import Pair, run_pair, until
from tests.harness.tablet_twin import batch_of


def writes_on(pool: ThreadPoolExecutor) -> Writes:
    return Writes(MemoryGuard(1 << 30, lambda: 0), pool, lambda time: None, lambda: None)


@pytest.mark.parametrize("how", ["refused", "cancelled"])
def test_write_that_gets_no_index_lets_nobody_overtake(how: str) -> None:
    """CN-25. Goal: writes keep their order of arrival. Method: a large write is being validated on a thread that is
    held up; one behind it is refused or given up by its caller, and a third one, of the first one's key, comes; once
    the thread goes on, the third one's value stands."""

    async def scenario(pair: Pair) -> None:
        hosted, held = pair.leader.hosted, threading.Event()
        pool = ThreadPoolExecutor(1)
        pool.submit(held.wait, patience_s(60))
        writes = writes_on(pool)

        def begin(value: str, **wrong: Any) -> asyncio.Task[Any]:
            request = write_request(pair.leader.uuid, hosted.tablet_id, batch([1], [value]))
            for name, wrongly in wrong.items():
                setattr(request, name, wrongly)
            return asyncio.create_task(writes.write(hosted, request))

        try:
            first = begin("x" * 2 * INLINE_BYTES_MAX)
            await asyncio.sleep(0)
            second = begin("y", **({"payload_crc": 1} if how == "refused" else {}))
            await asyncio.sleep(0)
            if how == "cancelled":
                second.cancel()
            with pytest.raises(Refused if how == "refused" else asyncio.CancelledError):
                await second
            third = begin("z")
            done, _ = await asyncio.wait([first, third], timeout=0.2)
            assert not done, "nobody has an index while the first one is validated"
        finally:
            held.set()
            pool.shutdown(wait=False)
        await asyncio.gather(first, third)
        tablet = hosted.tablet
        assert tablet is not None
        assert [v for found in tablet.scan() for v in found.column("v").to_pylist()] == ["z"]

    run_pair(scenario)


@pytest.mark.parametrize("size", [1, 2 * INLINE_BYTES_MAX])
def test_clients_number_that_was_answered_has_that_answer_whatever_body_comes(size: int) -> None:
    """CN-24: a client's operation has one outcome. Goal: the reply to its repetition is the first one, byte by byte.
    Method: an insert, half of whose rows is there; then its number with the same body, another one, and two that no
    validation passes, small and large. A number that was not answered, and no number, are refused for such a body."""

    async def scenario(pair: Pair) -> None:
        hosted = pair.leader.hosted
        with ThreadPoolExecutor(1) as pool:
            writes = writes_on(pool)

            async def say(keys: list[int], sequence: int, client: str = "one", **wrong: Any) -> bytes:
                rows = batch(keys, ["x" * size] * len(keys), RowOp.INSERT)
                named = {"client_id": client, "sequence": sequence}
                request = write_request(pair.leader.uuid, hosted.tablet_id, rows, **named)
                for name, value in wrong.items():
                    setattr(request, name, value)
                return bytes((await writes.write(hosted, request)).SerializeToString())

            await say([1], 1)
            first = await say([1, 2], 2)
            assert first == await say([1, 2], 2) == await say([3, 4, 5], 2)
            for wrong, code in (({"payload_crc": 1}, Code.INVALID_BATCH), ({"schema_id": 9}, Code.SCHEMA_MISMATCH)):
                assert await say([1, 2], 2, **wrong) == first
                for sequence, client in ((3, "one"), (2, "other"), (2, "")):
                    with pytest.raises(Refused) as refused:
                        await say([1, 2], sequence, client, **wrong)
                    assert refused.value.code is code

    run_pair(scenario)


def test_replies_stay_with_their_numbers_whatever_order_they_come_in() -> None:
    """Goal: scenario 56. Method: a client's number 2 comes before 1, its repetition while 1 is held up by a validation
    and again behind it; then 3 says that all below it are known: their repetitions are refused and change nothing, also
    that of a number which never came, and 3 keeps its reply. Each number's rows fail in a way of their own."""

    async def scenario(pair: Pair) -> None:
        hosted, held = pair.leader.hosted, threading.Event()
        pool = ThreadPoolExecutor(1)
        writes = writes_on(pool)
        keys = {0: [9], 1: [1, 2, 3], 2: [2, 1, 2], 3: [4, 1, 2]}

        async def say(number: int, size: int = 1, first: int = 0) -> Any:
            rows = batch(keys[number], ["x" * size] * len(keys[number]), RowOp.INSERT)
            named = {"client_id": "one", "sequence": number, "first_incomplete": first}
            return await writes.write(hosted, write_request(pair.leader.uuid, hosted.tablet_id, rows, **named))

        try:
            second = await say(2)
            pool.submit(held.wait, patience_s(60))
            first = asyncio.create_task(say(1, INLINE_BYTES_MAX))
            await asyncio.sleep(0)
            again = [asyncio.create_task(say(number)) for number in (2, 1, 2)]
            await asyncio.sleep(0)
            held.set()
            third = await say(3, first=3)
            replies = await asyncio.gather(first, *again)
        finally:
            held.set()
            pool.shutdown()
        assert [[e.offset for e in r.row_errors] for r in (second, *replies[:1], third)] == [[2], [0, 1], [1, 2]]
        assert replies == [replies[0], second, replies[0], second]
        for number in (2, 0, 1):
            assert (await say(number)).error.code == Code.EXPIRED
        assert await say(3, first=3) == third
        assert sorted(k for found in hosted.tablet.scan() for k in found.column("k").to_pylist()) == [1, 2, 3, 4]

    run_pair(scenario)


def test_client_id_that_is_too_long_to_be_remembered_is_refused() -> None:
    """Goal: what tablets remember of their clients is bounded in bytes. Method: ids of the bound and one above it."""

    async def scenario(pair: Pair) -> None:
        hosted = pair.leader.hosted
        with ThreadPoolExecutor(1) as pool:
            writes = writes_on(pool)
            request = write_request(pair.leader.uuid, hosted.tablet_id, batch([1], ["v"]))
            request.client_id, request.sequence = "é" * 128, 1
            assert (await writes.write(hosted, request)).rows_applied == 1
            request.client_id += "é"
            with pytest.raises(Refused) as told:
                await writes.write(hosted, request)
            assert told.value.code is Code.INVALID_ARGUMENT

    run_pair(scenario)


def test_leader_sees_to_it_that_rows_do_not_grow_past_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-60, CN-24. Goal: the leader bounds the length of rows, whatever the client says, and a repeated write gets the
    same reply. Method: 600 KB in one column of two rows, then in another one beside a row that is fine, also as a batch
    in which nulls leave columns as they are; then a number that was answered, again."""
    columns = (*SCHEMA.columns, Column(id=3, name="w", type=ColumnType.STRING))
    wider = replace(SCHEMA, columns=columns)
    monkeypatch.setattr("tests.harness.copies.SCHEMA", wider)
    long = "x" * 600_000

    async def scenario(pair: Pair) -> None:
        with ThreadPoolExecutor(1) as pool:
            writes = writes_on(pool)

            async def say(sequence: int, rows: list[dict[str, Any]], *names: str, ignore_null: bool = False) -> Any:
                ids = wider.column_ids(["k", *names])
                numbered = [{"op": RowOp.UPSERT, "offset": n, **row} for n, row in enumerate(rows)]
                request = write_request(
                    pair.leader.uuid, pair.leader.hosted.tablet_id, batch_of(wider, ["k", *names], numbered)
                )
                request.column_ids[:] = ids
                request.client_id, request.sequence, request.ignore_null = "one", sequence, ignore_null
                return await writes.write(pair.leader.hosted, request)

            await say(1, [{"k": 1, "v": long}, {"k": 2, "v": "short"}], "v")
            grown = [{"k": 1, "w": long}, {"k": 2, "w": long}]
            replies = [
                await say(2, grown, "w"),
                await say(3, grown, "v", "w", ignore_null=True),
                await say(2, grown, "w"),
            ]
            for reply in replies:
                assert [(e.offset, e.code) for e in reply.row_errors] == [(0, RowCode.ROW_TOO_LARGE)]
                assert reply.rows_applied == 1
            assert replies[2] == replies[0]
            tablet = pair.leader.hosted.tablet
            assert tablet is not None
            found = {r["k"]: (r["v"], r["w"]) for rows in tablet.scan() for r in rows.to_pylist()}
            assert found == {1: (long, None), 2: ("short", long)}

    run_pair(scenario)


def test_batch_whose_rows_keep_too_much_is_refused_whatever_is_under_way_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """IN-60, CN-25. Goal: a batch does not get past the bound behind a write that makes its rows long, and nothing
    overtakes it while it is measured. Method: while nothing can be committed, and the leader's lease lasts, these come:
    a long value, whose validation takes long, a batch that keeps it many times, and a later value of the same row. The
    batch is refused. Then the others are committed: the later value stands. A batch that comes after them is taken, and
    so is one row."""
    wider = replace(SCHEMA, columns=(*SCHEMA.columns, Column(id=3, name="n", type=ColumnType.INT64)))
    monkeypatch.setattr("tests.harness.copies.SCHEMA", wider)
    monkeypatch.setattr(limits, "BATCH_KEPT_BYTES_MAX", 100_000)

    async def scenario(pair: Pair) -> None:
        hosted = pair.leader.hosted
        tablet, held, checked = hosted.tablet, threading.Event(), list[int]()
        assert tablet is not None
        check_write = tablet.check_write

        def held_up(*args: Any) -> Any:
            checked.append(len(args[2]))
            if len(args[2]) > INLINE_BYTES_MAX:
                held.wait(60)
            return check_write(*args)

        monkeypatch.setattr(tablet, "check_write", held_up)
        await pair.add_other()
        await pair.voting()
        with ThreadPoolExecutor(2) as pool:
            writes = writes_on(pool)

            def begin(name: str, values: list[Any]) -> asyncio.Task[Any]:
                rows = [{"op": RowOp.UPSERT, "offset": n, "k": 1, name: value} for n, value in enumerate(values)]
                request = write_request(pair.leader.uuid, hosted.tablet_id, batch_of(wider, ["k", name], rows))
                request.column_ids[:] = wider.column_ids(["k", name])
                return asyncio.create_task(writes.write(hosted, request))

            pair.cut = True
            first, large, last = begin("v", ["x" * 40_000]), begin("n", list(range(50))), begin("v", ["short"])
            await until(lambda: len(checked) == 3, "all are looked at, and the first one is held up")
            done, _ = await asyncio.wait([first, large, last], timeout=0.2)
            assert not done
            held.set()
            with pytest.raises(Refused, match="two batches") as refused:
                await large
            assert refused.value.code is Code.TOO_LARGE
            assert not first.done() and not last.done()
            pair.cut = False
            assert (await first).rows_applied == (await last).rows_applied == 1
            assert [row for rows in tablet.scan() for row in rows.to_pylist()] == [{"k": 1, "v": "short", "n": None}]
            assert (await begin("n", list(range(50)))).rows_applied == 50
            assert (await begin("v", ["x" * 200_000])).rows_applied == (await begin("n", [7])).rows_applied == 1
            assert not hosted.under_way, "what is answered is let go of"

    run_pair(scenario)


@pytest.mark.parametrize("value", ["x", "x" * 100], ids=["on the loop", "on a thread"])
def test_batch_that_writes_one_key_too_often_is_refused_before_it_has_an_index(value: str) -> None:
    """IN-60, CN-24. Goal: no batch holds the tablet of every replica for long, and its writer can send it in halves.
    Method: inserts of one key, one more than the bound, small enough to be checked on the loop, and larger; the log
    gets nothing. Either half is taken, and the number of a batch that was answered has its answer also for such a
    body."""

    async def scenario(pair: Pair) -> None:
        hosted = pair.leader.hosted
        with ThreadPoolExecutor(1) as pool:
            writes = writes_on(pool)

            async def say(sequence: int, rows: int) -> Any:
                rows_of_one_key = batch([7] * rows, [value] * rows, RowOp.INSERT)
                request = write_request(pair.leader.uuid, hosted.tablet_id, rows_of_one_key)
                request.client_id, request.sequence = "one", sequence
                assert (len(request.payload) > INLINE_BYTES_MAX) == (len(value) > 1 or rows > 700)
                return await writes.write(hosted, request)

            most, before = limits.BATCH_PASSES_MAX, hosted.tablet.applied_opid
            with pytest.raises(Refused, match=r"in two batches.*nothing was applied") as refused:
                await say(1, most + 1)
            assert refused.value.code is Code.TOO_LARGE
            assert hosted.tablet.applied_opid == before
            assert (await say(1, most // 2)).rows_applied == 1
            second = await say(2, most // 2 + 1)
            assert (second.rows_applied, len(second.row_errors)) == (0, most // 2 + 1)
            assert await say(2, most + 1) == second
            assert not hosted.arrivals and not hosted.under_way

    run_pair(scenario)


@pytest.mark.parametrize("ends", ["the caller leaves", "leadership moves"])
def test_measured_batch_that_does_not_go_on_holds_nobody_up(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CN-25. Goal: a batch gets its index only from the leader that measured it, and if it is given up, those behind it
    go on. Method: the measure is held up; then its caller gives up, or another term begins."""
    wider = replace(SCHEMA, columns=(*SCHEMA.columns, Column(id=3, name="n", type=ColumnType.INT64)))
    monkeypatch.setattr("tests.harness.copies.SCHEMA", wider)
    monkeypatch.setattr(limits, "BATCH_KEPT_BYTES_MAX", 100_000)

    async def scenario(pair: Pair) -> None:
        hosted, measuring, held = pair.leader.hosted, threading.Event(), threading.Event()
        tablet, replica = hosted.tablet, hosted.replica
        assert tablet is not None and replica is not None
        check_kept = tablet.check_kept

        def held_up(*args: Any) -> None:
            measuring.set()
            held.wait(60)
            check_kept(*args)

        monkeypatch.setattr(tablet, "check_kept", held_up)
        with ThreadPoolExecutor(2) as pool:
            writes = writes_on(pool)

            def begin(name: str, values: list[Any]) -> asyncio.Task[Any]:
                rows = [{"op": RowOp.UPSERT, "offset": n, "k": 1, name: value} for n, value in enumerate(values)]
                request = write_request(pair.leader.uuid, hosted.tablet_id, batch_of(wider, ["k", name], rows))
                request.column_ids[:] = wider.column_ids(["k", name])
                return asyncio.create_task(writes.write(hosted, request))

            large, behind = begin("n", list(range(50))), begin("v", ["behind"])
            await until(measuring.is_set, "the batch is measured")
            assert not behind.done()
            if ends == "the caller leaves":
                large.cancel()
                assert (await behind).rows_applied == 1
                held.set()
                with pytest.raises(asyncio.CancelledError):
                    await large
            else:
                with monkeypatch.context() as patch:
                    patch.setattr(type(replica), "term", property(lambda _: 99))
                    held.set()
                    with pytest.raises(Refused) as refused:
                        await large
                assert refused.value.code is Code.NOT_LEADER
                assert (await behind).rows_applied == 1
            assert [row for rows in tablet.scan() for row in rows.to_pylist()] == [{"k": 1, "v": "behind", "n": None}]

    run_pair(scenario)


def test_bad_batch_at_a_leader_without_followers_is_told_of_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the refusal of a write speaks of the write, and of what is wrong with its batch, and of no read. Method: a
    damaged batch comes to a leader that cannot say whether it answered the write before, because its leadership is not
    confirmed, or not in time."""

    async def scenario(pair: Pair) -> None:
        request = write_request(pair.leader.uuid, pair.leader.hosted.tablet_id, batch([1], ["x"]))
        request.payload_crc, request.client_id, request.sequence = 1, "c1", 1
        replica = pair.leader.hosted.replica
        assert replica is not None
        for code, end in (
            (Code.NOT_LEADER, lambda reads: reads.refused(1, Code.NOT_LEADER, "other@h:1")),
            (Code.TIMED_OUT, lambda reads: reads.expire(2)),
        ):

            def barrier(_: object, done: Any, end: Any = end) -> None:
                reads = Reads(waiters_max=1, wait_ticks_max=1)
                reads.barrier(lambda token: None, 0, done)
                end(reads)

            monkeypatch.setattr(type(replica), "read_barrier", barrier)
            with ThreadPoolExecutor(1) as pool, pytest.raises(Refused) as caught:
                await writes_on(pool).write(pair.leader.hosted, request)
            error = caught.value
            assert error.code is code and error.applied is Applied.NOT_APPLIED
            assert error.detail == ("other@h:1" if code is Code.NOT_LEADER else "")
            assert "not what its sender summed up" in error.what and " read" not in error.what, error.what

    run_pair(scenario)


def test_batch_of_a_source_that_was_opened_before_a_forced_recovery_is_refused() -> None:
    """CC-44. Goal: a query that began before a forced recovery is refused, because the survivor may lack rows that it
    has written; one that knows the tablet's generation is not. Method: every pair of generations and terms that the
    query and the tablet may know."""
    second = next_generation(7)
    terms = [0, 1, 7, second, second + 3, next_generation(second)]
    for known in terms:
        for now in terms:
            request = pb.WriteRequest(tablet_id="t", config_term=known)
            config = RaftConfig(OpId(now, 9), ())
            if generation_of(now) <= generation_of(known):
                need_same_generation(request, config)
                continue
            with pytest.raises(Refused, match=r"start the query again.*nothing was applied") as refused:
                need_same_generation(request, config)
            assert refused.value.code is Code.STALE_GENERATION and f"now={now}" in str(refused.value)


def test_batch_whose_errors_fit_into_no_reply_is_refused() -> None:
    """IN-60. Goal: the reply to a write is bounded before the write gets an index. Method: batches that say that
    they have as many rows as could all fail in one reply, and one more: only the latter is refused for it. The
    longest error of a row is measured."""
    name = "n" * 256
    longest = pb.RowErrorPb(offset=2**63 - 1, code=max(RowCode), column=name)
    assert pb.WriteReply(row_errors=[longest]).ByteSize() <= ROW_ERROR_BYTES + len(name)

    async def scenario(pair: Pair) -> None:
        hosted, most = pair.leader.hosted, limits.WRITE_REPLY_BYTES_MAX // (ROW_ERROR_BYTES + 1)
        with ThreadPoolExecutor(1) as pool:
            for rows, code in ((most, Code.INVALID_BATCH), (most + 1, Code.TOO_LARGE)):
                request = write_request(pair.leader.uuid, hosted.tablet_id, batch([1], ["v"]))
                request.rows = rows
                with pytest.raises(Refused) as caught:
                    await writes_on(pool).write(hosted, request)
                assert caught.value.code is code and caught.value.applied is Applied.NOT_APPLIED

    run_pair(scenario)
