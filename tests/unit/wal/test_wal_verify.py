"""Closed segments are read again, a little at a time: whole ones pass, and any damage is found."""

from __future__ import annotations

import pytest

from nyala.replica.types import Corruption, Entry
from nyala.replica.wal import Log, SegmentInfo, WalOptions, verify, verify_segment
from nyala.replica.wal.verify import STEP_BYTES
from tests.harness.sim_disk import SimDisk
from tests.harness.wal_entries import FOLDER, TABLET, append_now, entries, entry


def closed_segment(disk: SimDisk, *blocks: list[Entry]) -> SegmentInfo:
    """A log with one segment, which is closed."""
    log, _ = Log.open(disk, FOLDER, TABLET, WalOptions(segment_size_bytes_first=1 << 20))
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
    """TC-63. Goal: a check of a segment can stop after each step, and closes its file. Method: a segment of many small
    blocks: no step is longer than STEP_BYTES and one block; given up after the first, no file is open."""
    disk = SimDisk()
    info = closed_segment(disk, *(entries(n, n + 19) for n in range(1, 2001, 20)))
    steps = list(verify_segment(disk, FOLDER, TABLET, info))
    assert sum(steps) == info.length_bytes and len(steps) > 3 and max(steps) < STEP_BYTES + 4096
    given_up = verify_segment(disk, FOLDER, TABLET, info)
    assert next(given_up) == steps[0] and +disk.handles
    given_up.close()
    assert not +disk.handles


def test_step_has_as_many_blocks_as_reach_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """TC-63. Goal: a step of a check has a bounded length, and counts each byte once. Method: eight blocks of one
    length, alone, in steps of exactly two of them, and of two and a byte; the last step is what is left."""
    disk = SimDisk()
    info = closed_segment(disk, *([entry(index)] for index in range(1, 9)))

    def steps(step_bytes: int) -> list[int]:
        monkeypatch.setattr(verify, "STEP_BYTES", step_bytes)
        return list(verify_segment(disk, FOLDER, TABLET, info))

    first, *blocks = steps(1)
    (block,) = set(blocks)
    assert first + 7 * block == info.length_bytes and len(blocks) == 7, "the header goes with the first block"
    assert steps(2 * block) == ([first] if first >= 2 * block else [first + block]) + [2 * block] * 3 + [block]
    assert steps(2 * block + 1)[-2:] == [3 * block, block]


def test_check_at_rest_leaves_nothing_in_the_cache() -> None:
    """TC-63. Goal: the disk is what is checked, and the check pushes nothing else out of the cache. Method: the calls,
    first and last."""
    disk = SimDisk()
    info = closed_segment(disk, entries(1, 2))
    disk.calls.clear()
    list(verify_segment(disk, FOLDER, TABLET, info))
    called = [call.operation for call in disk.calls]
    assert called[:2] == ["open", "uncache"] and called[-1] == "uncache" and called.count("uncache") == 2


@pytest.mark.parametrize("operation", ["open", "pread"])
def test_segment_that_cannot_be_read_or_is_gone_is_corruption(operation: str) -> None:
    """TC-63. Goal: the scrub tells a lost segment as it tells a damaged one. Method: EIO at each call; no file."""
    disk = SimDisk()
    info = closed_segment(disk, entries(1, 2))
    disk.fail_on(operation, "*")
    with pytest.raises(Corruption, match="cannot be read"):
        list(verify_segment(disk, FOLDER, TABLET, info))
    disk.remove(f"{FOLDER}/{info.name}")
    with pytest.raises(Corruption, match="is missing"):
        list(verify_segment(disk, FOLDER, TABLET, info))
