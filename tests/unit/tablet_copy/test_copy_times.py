"""Times of a copy that are too far ahead of the target's clock: no replica gets them."""

from __future__ import annotations

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import WitnessJoin
from nyala.replica.types import (
    Code,
    DataState,
    HybridClock,
    OpId,
    Refused,
    hybrid_from_us,
    limits,
)
from tests.harness.copies import (
    TABLET,
    Source,
    TestClock,
    attempt,
    copy_over,
    leading_source,
    new_disk,
    superblock,
    tombstone,
    write_entry,
)

WAL = f"wals/{TABLET}"
BOUND_US = limits.CLOCK_AHEAD_OF_PEERS_US_MAX


def source_at(hybrid_time: int, *, flushed: bool) -> Source:
    """A leader with an entry of that time in a block, or only in its log and with one of an earlier time after it."""
    source = leading_source(flushed=(([1], "a"),), logged=(([2], "b"),))
    replica = source.replica
    for time in (hybrid_time,) if flushed else (hybrid_time, 5 << 12):
        replica.index += 1
        entry = write_entry(replica.index, [replica.index], "far", 6)._replace(hybrid_time=time)
        replica.log.append([entry], lambda outcome: None)
        replica.log.drain()
        replica.tablet.apply([entry])
    if flushed:
        replica.tablet.flush()
    return source


def clock_at(wall_us: int) -> HybridClock:
    clock = TestClock()
    clock.wall_us = lambda: wall_us  # type: ignore[method-assign]
    return HybridClock(clock)


WALL_US = 1_000_000_000
FAR = {
    "as far as may be": (hybrid_from_us(WALL_US + BOUND_US), True),
    "a microsecond further": (hybrid_from_us(WALL_US + BOUND_US + 1), False),
    "decades further": (1 << 62, False),
}


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log", "in the rows"])
@pytest.mark.parametrize("what", FAR)
def test_copy_whose_times_are_too_far_ahead_installs_nothing(what: str, flushed: bool) -> None:
    """IN-50. Goal: a source's clock, or a forged log, does not come to a server by a copy. Method: a copy of an entry
    whose time is ahead of the target's clock by as much as a leader's may be, by a microsecond more, and by decades, in
    the log or in the rows, over a tombstone: beyond the bound the copy is refused, with the value and the distance. The
    target is a tombstone with the same promises, and its clock has not moved. Then a copy from an honest source
    succeeds."""
    time, good = FAR[what]
    disk, source, clock = new_disk(), source_at(time, flushed=flushed), clock_at(WALL_US)
    local = tombstone(disk, OpId(1, 1), term=5)
    copy = copy_over(local, attempt(disk, source.copy_source, ahead_us=clock.ahead_us), own_term=5)
    if good:
        assert copy.run().data_state is DataState.READY
    else:
        with pytest.raises(Refused) as refused:
            copy.run()
        told = str(refused.value)
        assert refused.value.code is Code.ILLEGAL_STATE and f"time={time}" in told and "ahead_s=" in told
        left = Superblock.load(disk, TABLET)
        assert (left.data_state, left.last_logged) == (DataState.DELETED, OpId(1, 1))
        assert (left == local) is flushed, "what the superblock tells is refused before anything changes"
        assert ConsensusMeta.load(disk, TABLET).term >= 5
        assert clock.ahead_us(hybrid_from_us(WALL_US)) == 0
        honest = leading_source()
        assert copy_over(left, attempt(disk, honest.copy_source, ahead_us=clock.ahead_us), own_term=5).run()
        honest.replica.close()
    source.replica.close()


@pytest.mark.parametrize("what", FAR)
def test_rows_whose_times_are_too_far_ahead_do_not_join_a_witness(what: str) -> None:
    """IN-50. Goal: the same for rows that are brought to a witness, whose log is its own. Method: a join from such a
    source: beyond the bound it is refused, no superblock is swapped, and no file of it is left."""
    time, good = FAR[what]
    disk, source, clock = new_disk(), source_at(time, flushed=True), clock_at(WALL_US)
    for folder in ("data", WAL):
        disk.mkdir(folder)
    witness = superblock().without_rows()
    witness.save(disk)
    swapped: list[Superblock] = []
    join = WitnessJoin(
        attempt(disk, source.copy_source, ahead_us=clock.ahead_us),
        witness=witness,
        await_log=lambda flushed: None,
        swap=swapped.append,
    )
    if good:
        join.run()
        assert len(swapped) == 1
    else:
        with pytest.raises(Refused, match="too far ahead"):
            join.run()
        assert swapped == [] and disk.listdir("data") == [] and Superblock.load(disk, TABLET) == witness
    source.replica.close()


@pytest.mark.parametrize("part", ["header", "block"])
def test_copied_log_that_does_not_open_is_refused(part: str) -> None:
    """TC-51. Goal: a source that offers what is no log leaves a tombstone, and no replica that cannot be opened.
    Method: a byte of a segment's header, or of its last block, is changed on the source's disk, and the manifest has
    the checksum of these bytes: refused as CORRUPTION of the source; then a copy from an honest source succeeds."""
    disk, source = new_disk(), leading_source()
    local, theirs = tombstone(disk, OpId(1, 1), term=5), source.replica.disk
    source.replica.log.roll()
    path = max((path for path in theirs.files if path.startswith(WAL)), key=theirs.size)
    theirs.corrupt(path, 3 if part == "header" else theirs.size(path) - 40)
    with pytest.raises(Refused) as refused:
        copy_over(local, attempt(disk, source.copy_source), own_term=5).run()
    assert refused.value.code is Code.CORRUPTION and "log cannot be read" in str(refused.value)
    left = Superblock.load(disk, TABLET)
    assert (left.data_state, left.last_logged) == (DataState.DELETED, OpId(1, 1))
    honest = leading_source()
    copy_over(left, attempt(disk, honest.copy_source), own_term=5).run()
    honest.replica.close()
    source.replica.close()
