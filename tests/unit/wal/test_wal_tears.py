"""A power cut leaves sectors unwritten, damage changes bytes: a log's end shows which it was, whatever its entries
hold."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from nyala.replica.types import Corruption, Entry, OpId
from nyala.replica.wal import Log, dump_segment
from nyala.replica.wal.zeros import SECTOR_BYTES
from tests.harness.sim_disk import SimCrash, SimDisk
from tests.harness.wal_entries import FOLDER, SMALL, TABLET, append_now, entry, open_log, segment_paths, tears


def lone(size: int, step: int) -> bytes:
    """Zeros, with a byte that is none every `step` bytes."""
    return b"".join(b"\x08".ljust(step, b"\0") for _ in range(size // step))


PAYLOADS = {
    "no zeros": [Random(1).randbytes(2500)],
    "zeros": [bytes(2600)],
    "zeros in the middle of many": [b"\x05" * 300, bytes(900), b"\x06" * 300, bytes(600)],
    "one byte in a sector": [lone(2500, 600)],
    "a lone byte among zero sectors": [bytes(1100) + b"\x10" + bytes(1400)],
    "many small ones": [b"%d" % n * 9 for n in range(30)],
    "an empty one behind zeros": [bytes(1500), b""],
    "zeros almost everywhere": [b"\x01" + bytes(700), bytes(700) + b"\x01", bytes(700)],
}


def group(name: str) -> list[Entry]:
    """The last group commit of a log that holds one entry before it."""
    return [entry(index, payload) for index, payload in enumerate(PAYLOADS[name], start=2)]


def len_with(size: int) -> tuple[SimDisk, int, Log]:
    """(disk, content in bytes, log) of a log with one entry of so many bytes."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1, b"\x07" * size)])
    return disk, log.segments()[-1].length_bytes, log


def in_flight(name: str, gap: int) -> tuple[str, bytes, bytes]:
    """(path, the file before, the file after) a group commit that begins `gap` bytes before a sector's bound."""
    length = len_with(600)[1]
    # The lengths of two fields may grow with the payload, and that of its checksum varies.
    disk, _, log = next(
        one
        for size in range(600 + (-length - gap) % SECTOR_BYTES - 2, 1700)
        if -(one := len_with(size))[1] % SECTOR_BYTES == gap
    )
    (path,) = segment_paths(disk)
    before = disk.read(path)
    disk.arm("wal.after_write_before_sync")
    with pytest.raises(SimCrash):
        append_now(log, group(name))
    return path, before, disk.read(path)


def found(path: str, data: bytes) -> tuple[list[Entry], OpId | None, SimDisk]:
    """Return the result of opening a log of that one file, and its disk afterwards."""
    disk = SimDisk()
    disk.mkdir(FOLDER)
    disk.poke(path, data)
    log, replay = Log.open(disk, FOLDER, TABLET, SMALL)
    survivors = list(replay.entries)
    log.close()
    return survivors, replay.withheld, disk


@pytest.mark.deep
@pytest.mark.parametrize("name", PAYLOADS)
@pytest.mark.parametrize("unit_bytes", [512, 4096])
def test_any_sectors_of_the_last_commit_may_be_lost_and_none_of_it_is_withheld(name: str, unit_bytes: int) -> None:
    """CN-22. Goal: after a power cut of all servers each one may vote, because unsynced entries were never
    acknowledged. Method: every set of sectors, or of pages, of an unsynced block that begins at several places in its
    first."""
    seen: Counter[int] = Counter()
    for gap in (0, 1, 2, 3, 17, 256, 511):
        path, before, after = in_flight(name, gap)
        for data in tears(before, after, 128, unit_bytes):
            survivors, withheld, disk = found(path, data)
            assert withheld is None, f"{gap} bytes before a sector"
            assert survivors[1:] == group(name)[: len(survivors) - 1]
            assert len(survivors) > len(group(name)) or data != after
            seen[len(survivors)] += 1
            assert found(path, disk.read(path))[:2] == (survivors, None), "a second start says the same"
    assert seen[1] > 0 and seen[1 + len(group(name))] > 0


@pytest.mark.deep
@pytest.mark.parametrize("name", PAYLOADS)
def test_any_byte_of_the_last_commit_may_be_damaged_and_nothing_of_it_is_lost_without_a_word(name: str) -> None:
    """CN-22. Goal: zero sectors that the entries themselves made are not taken for a tear. Method: every byte of a
    synced last block but those deep in zeros, flipped, and made zero; what is not there must be withheld."""
    seen: Counter[str] = Counter()
    for gap in (1, 256):
        path, before, after = in_flight(name, gap)
        start, end = (len(data.rstrip(b"\0")) for data in (before, after))
        for position in range(start, end, 3 if after.count(0, start, end) < 300 else 1):
            around = after[position - 3 : position + 4]
            if not any(around) and position % 37:
                continue
            byte = after[position]
            for other in {0, byte ^ 1 << position % 8} - {byte}:
                data = after[:position] + bytes([other]) + after[position + 1 :]
                where = f"byte {position}: {byte} is {other}, begun {gap} bytes before a sector"
                try:
                    survivors, withheld, _ = found(path, data)
                except Corruption:
                    seen["refused"] += 1  # a frame that says the block ends before it does
                    continue
                assert survivors[1:] == group(name)[: len(survivors) - 1], where
                gone = len(survivors) <= len(group(name))
                assert not gone or (withheld is not None and withheld.index > len(group(name))), where
                seen["withheld" if gone else "whole"] += 1
    assert seen["withheld"] > 50 and seen["whole"] > 10 and seen["refused"] < 30, seen


@pytest.mark.deep
def test_what_a_start_keeps_of_a_torn_block_is_as_safe_as_before() -> None:
    """CN-22. Goal: the block that a start writes in place of a torn one states its zero sectors too: its entries may be
    acknowledged next. Method: a tear loses the last of four entries; then each byte of what was kept is damaged."""
    name = "zeros in the middle of many"
    path, before, after = in_flight(name, 256)
    whole = group(name)
    rows = [row for row in dump(path, after) if row["kind"] == "entry"]
    lost_at = (rows[-1]["byte_offset"] // SECTOR_BYTES + 1) * SECTOR_BYTES
    torn = after[:lost_at].ljust(len(after), b"\0")
    survivors, withheld, disk = found(path, torn)
    assert (survivors[1:], withheld) == (whole[:3], None)
    kept = disk.read(path)
    assert [row["kind"] for row in dump(path, kept)][-1] == "tail"
    start = len(before.rstrip(b"\0"))
    for position in range(start, len(kept), 3):
        data = kept[:position] + bytes([kept[position] ^ 0x10]) + kept[position + 1 :]
        survivors, withheld, _ = found(path, data)
        assert len(survivors) == 4 or (withheld is not None and withheld.index == 4), position


def test_frame_over_a_sectors_bound_costs_none_of_the_entries_before_the_damage() -> None:
    """CN-22. Goal: only a frame whose second sector was never written hides where its entries begin. Method: a block of
    thirty small entries whose frame lies in two sectors, one in its middle damaged."""
    name = "many small ones"
    for gap in (1, 2):
        path, _, after = in_flight(name, gap)
        at = after.index(b"20" * 9)
        survivors, withheld, _ = found(path, after[:at] + b"x" + after[at + 1 :])
        assert survivors[1:] == group(name)[:20]
        assert withheld is not None and withheld.index == len(group(name)) + 1


def dump(path: str, data: bytes) -> list[dict[str, object]]:
    """Return the output of `dump_segment` for a file."""
    disk = SimDisk()
    disk.mkdir(FOLDER)
    disk.poke(path, data)
    return list(dump_segment(disk, path))


def test_lone_byte_that_was_lost_is_put_back() -> None:
    """CN-22. Goal: the one case that damage and a tear share loses nothing: a sector of one byte that is zero now.
    Method: that byte is damaged to zero, or its sector lost; the log has all entries, and goes on."""
    name = "a lone byte among zero sectors"
    path, _, after = in_flight(name, 256)
    at = after.index(b"\x10" + bytes(1400))
    assert after[at] == 0x10
    survivors, withheld, disk = found(path, after[:at] + b"\0" + after[at + 1 :])
    assert (survivors[1:], withheld) == (group(name), None)
    assert dump(path, disk.read(path))[-1]["kind"] == "tail"
