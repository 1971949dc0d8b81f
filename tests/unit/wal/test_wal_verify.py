"""Closed segments are read again, a little at a time: whole ones pass, and any damage is found."""

from __future__ import annotations

import pytest

from nyala.replica.types import Corruption, Entry
from nyala.replica.wal import Log, SegmentInfo, WalOptions, verify_segment
from nyala.replica.wal.verify import STEP_BYTES
from tests.harness.sim_disk import SimDisk
from tests.harness.wal_entries import FOLDER, TABLET, append_now, entries, entry


def closed_segment(disk: SimDisk, *blocks: list[Entry]) -> SegmentInfo:
    """A log with one segment, which is closed."""
    log, _ = Log.open(disk, FOLDER, TABLET, WalOptions(segment_size_bytes_first=1 << 20), threaded=False)
    for block in blocks:
        append_now(log, block)
    log.roll()
    (info,) = log.segments()
    log.close()
    assert info.closed
    return info


@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_every_byte_of_a_closed_segment_is_checked(mask: int) -> None:
    """TC-63. Goal: no bit of a segment can change unseen. Method: each byte of a small one flipped in turn; whole
    again, it passes and all its bytes were told."""
    disk = SimDisk()
    info = closed_segment(disk, entries(1, 2), [entry(3, b"\0" * 700 + b"x")])
    for at in range(info.length_bytes):
        disk.corrupt(f"{FOLDER}/{info.name}", at, mask)
        with pytest.raises(Corruption):
            list(verify_segment(disk, FOLDER, TABLET, info))
        disk.corrupt(f"{FOLDER}/{info.name}", at, mask)
    assert sum(verify_segment(disk, FOLDER, TABLET, info)) == info.length_bytes
    with pytest.raises(Corruption, match="belongs elsewhere"):
        list(verify_segment(disk, FOLDER, "t2", info))


def test_segment_is_checked_a_little_at_a_time_and_its_file_closed_in_any_case() -> None:
    """TC-63. Goal: who checks can stop, and lets others in. Method: a segment of many small blocks: no step is longer
    than STEP_BYTES and one block; given up after the first, no file is open."""
    disk = SimDisk()
    info = closed_segment(disk, *(entries(n, n + 19) for n in range(1, 2001, 20)))
    steps = list(verify_segment(disk, FOLDER, TABLET, info))
    assert sum(steps) == info.length_bytes and len(steps) > 3 and max(steps) < STEP_BYTES + 4096
    given_up = verify_segment(disk, FOLDER, TABLET, info)
    assert next(given_up) == steps[0] and +disk.handles
    given_up.close()
    assert not +disk.handles
