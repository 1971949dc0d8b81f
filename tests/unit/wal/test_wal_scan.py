"""How a segment's blocks are walked over: in windows, by their frames, with what they state."""

from __future__ import annotations

from pathlib import Path

import pytest

from nyala.replica.fs import RealDisk
from nyala.replica.types import Entry, OpId
from nyala.replica.wal import Log, dump_segment, scan
from nyala.replica.wal.appender import _gather
from nyala.replica.wal.format import HEADER_BYTES_MAX, decode_header, encode_block, encode_entry, encode_long
from nyala.replica.wal.newest import NEWEST_NAME
from nyala.replica.wal.reservation import Reservation
from nyala.replica.wal.zeros import STATEMENT_BYTES
from tests.harness.sim_disk import SimDisk
from tests.harness.wal_entries import (
    FOLDER,
    SMALL,
    TABLET,
    append_now,
    block_ends,
    build,
    entries,
    entry,
    segment_paths,
)


def _closed(*groups: tuple[int, int]) -> tuple[SimDisk, str]:
    disk = SimDisk()
    build(disk, lambda log: [append_now(log, entries(*group)) for group in groups])
    (path,) = segment_paths(disk)
    return disk, path


def _opened(disk: SimDisk) -> tuple[list[Entry], OpId | None]:
    _, replay = Log.open(disk, FOLDER, TABLET, SMALL, threaded=False)
    return list(replay.entries), replay.withheld


@pytest.mark.parametrize(("window", "reads"), [(64, None), (1000, None), (1 << 20, 3)])
def test_segment_is_read_in_windows_whatever_crosses_their_bounds(
    window: int, reads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a block is read whole, and small ones many at a time. Method: windows that are smaller than most blocks,
    than one, and larger than all; the header, one window and the look behind the end are three reads."""
    monkeypatch.setattr(scan, "_WINDOW_BYTES", window)
    disk = SimDisk()
    held = [entry(index, bytes([index]) * (3000 if index == 7 else 10 * index)) for index in range(1, 21)]
    build(disk, lambda log: [append_now(log, [one]) for one in held[:12]])
    path, before = segment_paths(disk)[0], disk.count("pread")
    told = [item["opid"].index for item in dump_segment(disk, path) if item["kind"] == "entry"]
    assert told == list(range(1, len(told) + 1)) and 7 in told
    assert reads is None or disk.count("pread") - before == reads
    assert _opened(disk) == (held[:12], None)


@pytest.mark.parametrize(
    ("at", "data"),
    [(0, b"\x00"), (0, b"\x07"), (1, b"\x81"), (1, b"\x80\x00")],
    ids=["no entries", "a negative count", "a negative size", "no size"],
)
def test_frame_that_can_begin_no_block_costs_none_of_its_entries(at: int, data: bytes) -> None:
    """CN-22. Goal: a frame is believed only if it can be one; else the entries tell what there is. Method: count and
    size of the last block, damaged; its entries and its marker are whole."""
    disk, path = _closed((1, 1), (2, 4))
    whole, frame = disk.read(path), block_ends(disk, path)[1]
    assert whole[frame] == 6 and whole[frame + 1] & 0x80, "three entries; a size of two bytes"
    disk.poke(path, whole[: frame + at] + data + whole[frame + at + len(data) :])
    assert _opened(disk) == (entries(1, 4), None)


def test_frame_that_claims_more_than_any_file_is_not_read(tmp_path: Path) -> None:
    """CN-22. Goal: one flipped byte asks for no memory that nobody has. Method: a size of 2 to the power of 60 in the
    last block's frame, on a real disk."""
    disk = RealDisk(tmp_path)
    build(disk, lambda log: [append_now(log, entries(1, 1)), append_now(log, entries(2, 4))])
    (path,) = segment_paths(disk)
    data, frame = disk.read(path), block_ends(disk, path)[1]
    huge = encode_long(1 << 60)
    (tmp_path / path).write_bytes(data[: frame + 1] + huge + data[frame + 1 + len(huge) :])
    _, replay = Log.open(disk, FOLDER, TABLET, SMALL, threaded=False)
    assert (list(replay.entries), replay.withheld) == (entries(1, 1), OpId(1, 4))


def test_last_block_whose_entry_and_marker_are_damaged_may_have_been_acknowledged() -> None:
    """CN-22. Goal: a block of full length is no tear, also without its marker. Method: both damaged in a file that ends
    with the block, and no record that says how far the log reached."""
    disk, path = _closed((1, 1), (2, 4))
    disk.corrupt(path, disk.read(path).index(b"payload 1.4"))
    disk.corrupt(path, disk.size(path) - 1)
    disk.remove(f"{FOLDER}/{NEWEST_NAME}")
    assert _opened(disk) == (entries(1, 3), OpId(1, 4))


def _encoded(group: list[Entry], *, stated: bool) -> tuple[list[bytes], int]:
    slot = Reservation(group)
    slot.encoded = [encode_entry(TABLET, one) for one in group]
    parts, lengths = _gather([slot], 1)
    return parts, sum(lengths) + STATEMENT_BYTES * stated


@pytest.mark.parametrize("where", ["at the end", "before the end"])
def test_statement_that_no_entry_asks_for_is_no_statement(where: str) -> None:
    """CN-22. Goal: a block is what this code writes, or damaged. Method: two entries without a run of zeros, one of
    which carries a statement of them, every checksum right."""
    disk, path = _closed((1, 1))
    data = disk.read(path)
    header = decode_header(data[:HEADER_BYTES_MAX], "wal-000000001")
    if where == "at the end":
        parts, length = _encoded(entries(2, 3), stated=True)
        block = encode_block(header, len(data), 2, parts, length, stated=True)
    else:
        parts, length = _encoded([entry(2)], stated=True)
        _, *first, _ = encode_block(header, len(data), 1, parts, length, stated=True)
        last, more = _encoded([entry(3)], stated=False)
        block = encode_block(header, len(data), 2, [*first, *last], length + more, stated=False)
    disk.poke(path, data + b"".join(block))
    kinds = [item["kind"] for item in dump_segment(disk, path)]
    assert kinds == ["header", "entry", "damage"]
