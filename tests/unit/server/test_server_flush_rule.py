"""When a tablet is flushed: the rule alone, a day of rows by it, and a server that follows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from nyala.replica.server.maintenance.maintenance import Maintenance
from nyala.replica.server.runtime.memory import MemoryGuard
from nyala.replica.server.tablets.flush_rule import AGE_S, SMALL_AGE_S, SMALL_BYTES, FlushHistory, Unflushed, urgency
from nyala.replica.types import OpId, limits
from tests.harness.server_pair import Pair, run_pair

INFINITE = float("inf")
YOUNG = Unflushed(memory_bytes=100, store_bytes=100, log_bytes=0, age_s=1.0, idle_s=0.0, since_flush_s=INFINITE)
LARGE = replace(YOUNG, memory_bytes=SMALL_BYTES, store_bytes=SMALL_BYTES)
WAL = 64 << 20


def due(held: Unflushed, pressed_bytes: int = 0) -> bool:
    return urgency(held, flush_wal_bytes=WAL, pressed_bytes=pressed_bytes) >= 1.0


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        (YOUNG, False),
        (replace(YOUNG, memory_bytes=limits.MEMSTORE_FLUSH_BYTES), True),
        (replace(YOUNG, log_bytes=WAL), True),
        (replace(YOUNG, memory_bytes=0, store_bytes=0, log_bytes=WAL), True),
        (replace(LARGE, age_s=AGE_S - 1), False),
        (replace(LARGE, age_s=AGE_S), True),
        (replace(YOUNG, age_s=AGE_S), False),
        (replace(YOUNG, age_s=AGE_S, idle_s=AGE_S), True),
        (replace(YOUNG, age_s=AGE_S, idle_s=AGE_S, since_flush_s=SMALL_AGE_S - 1), False),
        (replace(YOUNG, age_s=SMALL_AGE_S), True),
        (replace(YOUNG, age_s=1e9, idle_s=1e9, memory_bytes=0, store_bytes=0), False),
        # What is remembered about rows of blocks is not worth a block by its size.
        (replace(YOUNG, memory_bytes=SMALL_BYTES, age_s=AGE_S), False),
    ],
)
def test_flush_is_due_by_size_by_log_and_by_age(held: Unflushed, wanted: bool) -> None:
    """Goal: a flush is due if the store is large, the log is long, or the oldest row is old. Method: a table; a tablet
    that holds nothing is left alone."""
    assert due(held) is wanted


def test_flush_under_pressure_takes_the_largest_store_and_nothing_empty() -> None:
    """Goal: if memory is short, the largest store is flushed first, and no empty one. Method: three stores while memory
    is short."""
    scores = [
        urgency(replace(YOUNG, memory_bytes=size), flush_wal_bytes=WAL, pressed_bytes=1000) for size in (0, 100, 900)
    ]
    assert scores[0] < 1.0 <= scores[1] < scores[2]


def test_full_store_goes_before_an_old_one() -> None:
    """Goal: a full store is flushed before old ones. Method: both scores."""
    full = replace(YOUNG, memory_bytes=2 * limits.MEMSTORE_FLUSH_BYTES)
    assert urgency(full, flush_wal_bytes=WAL) > urgency(replace(YOUNG, age_s=1e6), flush_wal_bytes=WAL)


def flushes(entries: Iterator[tuple[float, int]], until_s: float, step_s: float = 10.0) -> list[float]:
    """When a tablet is flushed that applies (at_s, bytes) in turn and is looked at every `step_s`."""
    watch, applied, flushed, stored, log, found = FlushHistory(0), 0, 0, 0, 0, []
    at, size = next(entries)
    for step in range(int(until_s / step_s)):
        now = step * step_s
        while at <= now:
            applied, stored, log = applied + 1, stored + size, log + size
            at, size = next(entries, (INFINITE, 0))
        watch = watch.after_check(OpId(1, applied), OpId(1, flushed), log, now)
        if watch.first_s is not None and due(watch.unflushed(stored, stored, log, now)):
            found.append(now)
            flushed, stored = applied, 0
            watch = watch.after_flush(log, now)
    return found


@pytest.mark.a_third
@pytest.mark.parametrize("every_s", [1.0, 60.0, 150.0, 1000.0])
def test_trickle_of_rows_writes_few_blocks(every_s: float) -> None:
    """Goal: a day of small rows, however they come, makes four blocks an hour at most, and none waits for longer than
    a quarter of one. Method: rows of 100 bytes through the rule."""
    day = 86_400.0
    found = flushes(((n * every_s, 100) for n in range(int(day / every_s))), day)
    assert len(found) <= 4 * 24
    assert all(b - a <= max(every_s, SMALL_AGE_S) + AGE_S + 20 for a, b in zip([0.0, *found], found, strict=False))


def test_few_rows_are_flushed_once_and_then_the_tablet_is_left_alone() -> None:
    """Goal: few rows are flushed by their age, even if no more come. Method: ten rows, then a day of nothing."""
    (at,) = flushes(((float(n), 100) for n in range(10)), 86_400.0)
    assert AGE_S <= at <= AGE_S + 30


def test_steady_load_is_flushed_every_two_minutes() -> None:
    """Goal: the log that a restart replays is bounded in time. Method: 20 KB a second for an hour."""
    found = flushes(((float(n), 20_000) for n in range(3600)), 3600.0)
    assert 26 <= len(found) <= 30


def test_log_that_others_hold_is_no_reason_to_flush_again() -> None:
    """Goal: a log that is kept for a copy session does not cause more flushes. Method: a log that never gets shorter,
    after its flush; another one that log GC made shorter."""
    held = FlushHistory(0).after_check(OpId(1, 9), OpId(1, 0), 5 * WAL, 0.0).after_flush(5 * WAL, 0.0)
    held = held.after_check(OpId(1, 10), OpId(1, 9), 5 * WAL + 100, 1.0)
    assert held.unflushed(100, 100, 5 * WAL + 100, 1.0).log_bytes == 100
    collected = held.after_check(OpId(1, 11), OpId(1, 9), 1000, 2.0)
    assert collected.unflushed(100, 100, WAL + 1000, 3.0).log_bytes == WAL


def test_flush_that_failed_is_tried_again_by_age() -> None:
    """Goal: a failed flush is repeated after a pause, not four times a second. Method: a failed flush of an old store;
    its log counts."""
    watch = (
        FlushHistory(0)
        .after_check(OpId(1, 9), OpId(1, 0), 500, 0.0)
        .after_flush(None, 5000.0)
        .after_check(OpId(1, 9), OpId(1, 0), 500, 5001.0)
    )
    held = watch.unflushed(100, 100, 500, 5001.0)
    assert (held.age_s, held.log_bytes) == (0.0, 500)


@pytest.mark.deep
def test_server_folds_a_trickle_into_few_blocks_and_then_rests() -> None:
    """Goal: six hours of a row every two minutes leave few blocks and a log that starts at the last flush; idle hours
    after them write nothing. Method: a real tablet and its maintenance, with a clock that the test moves."""

    async def scenario(pair: Pair) -> None:
        clock = [0.0]
        manager, hosted = pair.leader.manager, pair.leader.hosted
        maintenance = Maintenance(manager, MemoryGuard(1 << 30, lambda: 0), now=lambda: clock[0])

        async def go_on(seconds: float) -> None:
            clock[0] += seconds
            while await maintenance.once():
                pass

        try:
            for key in range(180):
                await pair.put(key)
                await go_on(120.0)
            tablet = hosted.tablet
            assert tablet is not None and hosted.log is not None
            assert 20 <= maintenance.flushes <= 24
            assert len(tablet.superblock.blocks) <= 4
            for _ in range(60):
                await go_on(60.0)
            rested = maintenance.flushes
            assert tablet.flush_opid == tablet.applied_opid
            for _ in range(60):
                await go_on(600.0)
            assert maintenance.flushes == rested <= 25
            assert pair.leader.rows() == list(range(180))
        finally:
            maintenance.close()

    run_pair(scenario)


def test_refused_flush_does_not_keep_a_merge_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-32. Goal: merges, which give memory maps back, go on where flushes are refused for want of maps. Method: a
    real tablet with enough blocks for a merge and an old row in memory; no share of the maps may be used for flushes.
    One step of the maintenance merges; with maps again, one step flushes."""

    async def scenario(pair: Pair) -> None:
        clock, tablet = [0.0], pair.leader.hosted.tablet
        assert tablet is not None
        maintenance = Maintenance(pair.leader.manager, MemoryGuard(1 << 30, lambda: 0), now=lambda: clock[0])
        try:
            for key in range(20):
                await pair.put(key)
                tablet.flush()
            assert tablet.wants_compaction()
            await pair.put(20)
            maintenance.most_urgent_flush()
            clock[0] += AGE_S + SMALL_AGE_S
            assert maintenance.most_urgent_flush() is pair.leader.hosted
            with monkeypatch.context() as patch:
                patch.setattr(limits, "MAPS_SHARE_TO_FLUSH_MAX", 0.0)
                assert await maintenance.once()
                assert (maintenance.flushes, maintenance.compactions) == (0, 1)
            maintenance.most_urgent_flush()
            clock[0] += AGE_S + SMALL_AGE_S
            assert await maintenance.once()
            assert maintenance.flushes == 1
        finally:
            maintenance.close()

    run_pair(scenario)
