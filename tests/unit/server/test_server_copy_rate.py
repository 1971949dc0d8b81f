"""The bucket of tablet copies, on a clock that the test moves: holds within 10 %, yields to writes, comes back."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import pytest

from nyala.replica.tablet_copy.wire.copy_rate import PAUSE_S_MAX, WRITING_US, CopyRate, rate_allowed
from tests.harness.copies import TestClock

CHUNK = 1 << 20
MB = 1_000_000


class Streams:
    """Streams that move chunks as fast as a rate lets them, on a simulated clock. `moved` notes (time in s, bytes)."""

    def __init__(self, rate: CopyRate, clock: TestClock, count: int, *, chunk: int = CHUNK, seed: int = 0) -> None:
        self.moved: list[tuple[float, int]] = []
        self._rate, self._clock, self._chunk = rate, clock, chunk
        self._rng = random.Random(seed)
        self._began_us = clock.now_us
        self._due: list[tuple[int, int, int | None]] = [(clock.now_us, pos, None) for pos in range(count)]

    def run(self, seconds: float, *, each: Callable[[], None] = lambda: None, chunk_us: int = 500) -> None:
        """Until so much time has passed. `each` runs at every step; a chunk takes `chunk_us` to move, and a sleeper
        wakes up to a fifth late."""
        end_us = self._clock.now_us + int(seconds * 1_000_000)
        while self._due[0][0] < end_us:
            at, who, drawn = heapq.heappop(self._due)
            self._clock.now_us = max(self._clock.now_us, at)
            each()
            if drawn is None:
                drawn = self._rate.draw(self._chunk)
            pause_s = self._rate.pause_s(drawn)
            assert pause_s <= PAUSE_S_MAX
            if pause_s:
                late = 1 + self._rng.random() / 5
                heapq.heappush(self._due, (self._clock.now_us + int(pause_s * late * 1_000_000) + 1, who, drawn))
            else:
                self.moved.append(((self._clock.now_us - self._began_us) / 1_000_000, self._chunk))
                heapq.heappush(self._due, (self._clock.now_us + chunk_us, who, None))
        self._clock.now_us = max(self._clock.now_us, end_us)

    def bytes_between(self, first_s: float, last_s: float) -> int:
        return sum(size for at, size in self.moved if first_s <= at < last_s)


@pytest.mark.a_third
@pytest.mark.parametrize("streams", [1, 4, 8])
@pytest.mark.parametrize("rate", [10 * MB, 64 * MB, 400 * MB])
def test_cap_holds_within_ten_percent(rate: int, streams: int) -> None:
    """TC-11. Goal: the rate that an operator sets is the rate that copies use. Method: so many streams, whose sleeps
    end late, for 20 s: from the third second on every 5 s hold the rate within 10 %; no second exceeds it by more than
    burst and chunks."""
    clock = TestClock()
    moving = Streams(CopyRate(clock, rate, 0), clock, streams)
    moving.run(20)
    for first in (2, 7, 12):
        assert 0.9 * rate <= moving.bytes_between(first, first + 5) / 5 <= 1.1 * rate
    for first in range(20):
        assert moving.bytes_between(first, first + 1) <= 1.1 * rate + streams * CHUNK


def test_copies_yield_to_writes_and_come_back_a_second_later() -> None:
    """TC-11. Goal: copies slow down while clients write, and speed up a second after the last write. Method: full
    speed, then a write every 100 ms for ten seconds, then quiet: the busy rate holds within 10 % while there are
    writes, the full one before and from a second after the last one."""
    clock = TestClock()
    rate = CopyRate(clock, 200 * MB, 20 * MB)
    moving = Streams(rate, clock, 4)
    moving.run(5)
    last = clock.now_us

    def write() -> None:
        nonlocal last
        while clock.now_us - last >= 100_000:
            last += 100_000
            rate.written()

    rate.written()
    moving.run(10, each=write)
    moving.run(6)
    assert 0.9 * 200 * MB <= moving.bytes_between(1, 5) / 4 <= 1.1 * 200 * MB
    assert 0.9 * 20 * MB <= moving.bytes_between(6, 15) / 9 <= 1.1 * 20 * MB
    assert 0.9 * 200 * MB <= moving.bytes_between(17, 21) / 4 <= 1.1 * 200 * MB


def test_copies_without_a_bound_wait_for_nobody_until_a_write_comes() -> None:
    """TC-11. Goal: without a rate, copies run at full speed while no client writes. Method: no rate, only a busy one:
    no pause at all; after a write what was moved before is not charged, and the busy rate holds."""
    clock = TestClock()
    rate = CopyRate(clock, 0, 20 * MB)
    for _ in range(1000):
        assert rate.pause_s(rate.draw(CHUNK)) == 0.0
    rate.written()
    moving = Streams(rate, clock, 4)
    moving.run(5, each=rate.written)
    assert 0.9 * 20 * MB <= moving.bytes_between(0, 5) / 5 <= 1.1 * 20 * MB


def test_copy_that_comes_after_a_rest_does_not_make_up_for_it() -> None:
    """TC-11. Goal: the rate holds for any second, also after a minute without copies. Method: nothing is copied for a
    minute, then eight streams: the first second takes no more than the rate, a burst and their chunks."""
    clock = TestClock()
    rate = CopyRate(clock, 20 * MB, 0)
    rate.draw(CHUNK)
    clock.now_us += 60 * 1_000_000
    moving = Streams(rate, clock, 8)
    moving.run(1)
    assert moving.bytes_between(0, 1) <= 1.1 * 20 * MB + 8 * CHUNK


def test_streams_share_the_rate_in_turn() -> None:
    """Goal: waiting streams share the rate evenly. Method: eight draws at once at eight chunks a second: they are paid
    one after the other, an eighth of a second apart."""
    clock = TestClock()
    rate = CopyRate(clock, 8 * CHUNK, 0)
    draws = [rate.draw(CHUNK) for _ in range(8)]
    paid = []
    for _ in range(9):
        paid.append(sum(rate.pause_s(drawn) == 0.0 for drawn in draws))
        clock.now_us += 125_000
    assert paid == [0, 1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("full", "busy", "since_write_us", "allowed"),
    [
        (0, 0, None, 0),
        (0, 5, None, 0),
        (9, 5, None, 9),
        (9, 5, 0, 5),
        (9, 5, WRITING_US - 1, 5),
        (9, 5, WRITING_US, 9),
        (0, 5, 0, 5),
        (3, 5, 0, 3),
        (9, 0, 0, 9),
        (0, 0, 0, 0),
    ],
)
def test_rate_is_the_lower_bound_while_clients_write(
    full: int, busy: int, since_write_us: int | None, allowed: int
) -> None:
    """Goal: while clients write, the lower of the two options holds. Method: each option alone and both, before, at and
    after the second."""
    assert rate_allowed(full, busy, since_write_us) == allowed
