"""The scan of a segment's blocks: in windows, by their frames, with the values that they state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nyala.replica.fs import RealDisk
from nyala.replica.types import ZERO_OPID, Corruption, Entry, OpId
from nyala.replica.wal import Log, dump_segment, scan
from nyala.replica.wal.appender import _gather
from nyala.replica.wal.format import (
    HEADER_BYTES_MAX,
    decode_header,
    encode_block,
    encode_entry,
    encode_header,
    encode_long,
    encode_tail,
    new_marker,
)
from nyala.replica.wal.index import SeenOpIds
from nyala.replica.wal.newest import NEWEST_NAME
from nyala.replica.wal.reservation import Reservation
from nyala.replica.wal.scan import (
    Damage,
    Frame,
    _ends_in_zeros,
    _frame_is_torn,
    _may_end_at,
    _named_in_order,
    _parse,
    judge,
    read_frame,
)
from nyala.replica.wal.zeros import SECTOR_BYTES, TRAILER_BYTES
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
    without_after,
)


def _closed(*groups: tuple[int, int]) -> tuple[SimDisk, str]:
    disk = SimDisk()
    build(disk, lambda log: [append_now(log, entries(*group)) for group in groups])
    (path,) = segment_paths(disk)
    return disk, path


def _opened(disk: SimDisk) -> tuple[list[Entry], OpId | None]:
    _, replay = Log.open(disk, FOLDER, TABLET, SMALL)
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
    """CN-22. Goal: a flipped byte in a frame's size does not make a start ask for more memory than there is. Method: a
    size of 2 to the power of 60 in the last block's frame, on a real disk."""
    disk = RealDisk(tmp_path)
    build(disk, lambda log: [append_now(log, entries(1, 1)), append_now(log, entries(2, 4))])
    (path,) = segment_paths(disk)
    data, frame = disk.read(path), block_ends(disk, path)[1]
    huge = encode_long(1 << 60)
    (tmp_path / path).write_bytes(data[: frame + 1] + huge + data[frame + 1 + len(huge) :])
    _, replay = Log.open(disk, FOLDER, TABLET, SMALL)
    assert (list(replay.entries), replay.withheld) == (entries(1, 1), OpId(1, 4))


def test_last_block_whose_entry_and_marker_are_damaged_may_have_been_acknowledged() -> None:
    """CN-22. Goal: a block of full length is no tear, also without its marker. Method: both damaged in a file that ends
    with the block, and no record that says how far the log reached."""
    disk, path = _closed((1, 1), (2, 4))
    disk.corrupt(path, disk.read(path).index(b"payload 1.4"))
    disk.corrupt(path, disk.size(path) - 1)
    disk.remove(f"{FOLDER}/{NEWEST_NAME}")
    assert _opened(disk) == (entries(1, 3), OpId(1, 4))


def _encoded(group: list[Entry], *, with_trailer: bool) -> tuple[list[bytes], int]:
    slot = Reservation(group)
    slot.encoded = [encode_entry(TABLET, one) for one in group]
    parts, lengths = _gather([slot], 1)
    return parts, sum(lengths) + TRAILER_BYTES * with_trailer


@pytest.mark.parametrize("where", ["at the end", "before the end"])
def test_trailer_that_no_entry_asks_for_is_no_trailer(where: str) -> None:
    """CN-22. Goal: a block is what this code writes, or damaged. Method: two entries without a run of zeros, one of
    which carries a trailer of them, every checksum right."""
    disk, path = _closed((1, 1))
    data = disk.read(path)
    header = decode_header(data[:HEADER_BYTES_MAX], "wal-000000001")
    if where == "at the end":
        parts, length = _encoded(entries(2, 3), with_trailer=True)
        block = encode_block(header, len(data), 2, parts, length, with_trailer=True)
    else:
        parts, length = _encoded([entry(2)], with_trailer=True)
        _, *first, _ = encode_block(header, len(data), 1, parts, length, with_trailer=True)
        last, more = _encoded([entry(3)], with_trailer=False)
        block = encode_block(header, len(data), 2, [*first, *last], length + more, with_trailer=False)
    disk.poke(path, data + b"".join(block))
    kinds = [item["kind"] for item in dump_segment(disk, path)]
    assert kinds == ["header", "entry", "damage"]


def _unclosed(*groups: list[Entry]) -> tuple[SimDisk, str, bytes, int]:
    """A log of a build that kept no record of how far it reaches: disk, the only segment's path, its bytes, and where
    its last block begins."""
    disk = SimDisk()
    build(disk, lambda log: [append_now(log, group) for group in groups])
    disk.remove(f"{FOLDER}/{NEWEST_NAME}")
    (path,) = segment_paths(disk)
    return disk, path, disk.read(path), block_ends(disk, path)[-2]


def test_frame_that_counts_one_entry_too_few_hides_none() -> None:
    """CN-22. Goal: an entry that was acknowledged is not skipped because the frame before it does not count it. Method:
    three entries of which the frame counts two; alone, and with the third one's term damaged too: what is withheld lies
    above what is left. Where another block follows it is Corruption."""
    disk, path, data, frame = _unclosed(entries(1, 1), entries(2, 4))
    assert data[frame] == 6
    fewer = data[:frame] + b"\x04" + data[frame + 1 :]
    disk.poke(path, fewer)
    assert _opened(disk) == (entries(1, 3), OpId(1, 4))
    last_at = [item["byte_offset"] for item in dump_segment(disk_with(path, data), path) if item["kind"] == "entry"][-1]
    hurt = disk_with(path, fewer)
    hurt.corrupt(path, last_at)
    assert _opened(hurt) == (entries(1, 3), OpId(1, 4))
    _, path, data, _ = _unclosed(entries(1, 1), entries(2, 4), entries(5, 5))
    frame = block_ends(disk_with(path, data), path)[1]
    with pytest.raises(Corruption):
        _opened(disk_with(path, data[:frame] + b"\x04" + data[frame + 1 :]))


def disk_with(path: str, data: bytes) -> SimDisk:
    disk = SimDisk()
    disk.mkdir(FOLDER)
    disk.poke(path, data)
    return disk


def test_frame_that_says_the_block_is_longer_costs_none_of_its_entries() -> None:
    """CN-22. Goal: entries that are whole up to the marker are kept, whatever length the frame has; the mark is above
    them, because the frame may be right, and a dump says what is damaged. Method: a last block that would be longer
    than the file, its entries and its marker whole."""
    disk, path, data, frame = _unclosed(entries(1, 1), entries(2, 4))
    assert data[frame + 1] & 0x80 and not data[frame + 2] & 0x80, "a size of two bytes"
    disk.poke(path, data[: frame + 2] + b"\x7f" + data[frame + 3 :])
    told = [item["what"] for item in dump_segment(disk, path) if item["kind"] == "damage"]
    assert told == ["the last block is damaged: the frame's length"]
    assert _opened(disk) == (entries(1, 4), OpId(1, 5))


def test_entry_that_runs_over_its_frames_end_is_not_whole() -> None:
    """CN-22. Goal: an entry is kept only if the frame may be right about it. Method: two entries of which a frame ends
    in the second one's last byte, at its end, and behind it."""
    slot = Reservation(entries(2, 3))
    slot.encoded = [encode_entry(TABLET, one) for one in slot.entries]
    (block,), (first, second) = _gather([slot], 1)
    end = first + second
    for frame_end, kept, problem in ((end - 1, 1, "length is wrong"), (end, 2, ""), (end + 1, 2, "bytes after")):
        found, what = _parse(block + b"\0", Frame(2, 0, frame_end), HEADER)
        assert ([start for _, start, _ in found], problem in what) == ([0, first][:kept], True)


def test_lost_marker_costs_none_of_the_blocks_entries() -> None:
    """CN-22. Goal: nothing is withheld that is there. Method: one byte of the last block's marker is damaged."""
    disk, path, data, _ = _unclosed(entries(1, 1), entries(2, 4))
    disk.corrupt(path, len(data) - 5)
    assert _opened(disk) == (entries(1, 4), None)


def test_block_without_a_whole_entry_is_withheld_by_its_count_or_by_what_its_entries_name() -> None:
    """CN-22, D-7. Goal: the mark is the last of what may have been acknowledged. Method: three entries of a later term;
    the first one's identity is damaged, so that the count alone tells where they end, then the payloads of all."""
    _, path, data, frame = _unclosed(entries(1, 1), entries(2, 4, term=2))
    disk = disk_with(path, data)
    disk.corrupt(path, frame + 3)
    assert _opened(disk) == (entries(1, 1), OpId(1, 4))
    disk = disk_with(path, data)
    for index in (2, 3, 4):
        disk.corrupt(path, data.index(b"payload 2.%d" % index))
    assert _opened(disk) == (entries(1, 1), OpId(2, 4))


def test_count_that_runs_into_the_size_costs_no_entry() -> None:
    """CN-22. Goal: if the fields of a damaged frame cannot be told apart, the entries are searched for. Method: the
    highest bit of the count is set, so that the size belongs to it and the first entry's term, a large one, is the
    size."""
    disk, path, data, frame = _unclosed(entries(1, 1), entries(2, 4, term=5000))
    disk.poke(path, data[:frame] + bytes([data[frame] | 0x80]) + data[frame + 1 :])
    found, withheld = _opened(disk)
    assert found == [entry(1), *entries(2, 4, term=5000)] and withheld is not None and withheld.index > 4


def test_smallest_block_whose_frame_and_payload_are_damaged_is_withheld_by_what_its_entry_names() -> None:
    """CN-22, D-7. Goal: an entry begins behind a frame of two bytes at the earliest. Method: the last block holds one
    short entry of a later term; its frame is lost: it is whole all the same. Its payload is damaged too: the mark is
    its OpId. Its identity is: the mark is the next index."""
    last = entry(2, b"short", term=3)
    _, path, data, frame = _unclosed(entries(1, 1), [last])
    assert max(data[frame : frame + 2]) < 0x80
    lost = data[:frame] + b"\0\0" + data[frame + 2 :]
    assert _opened(disk_with(path, lost)) == ([entry(1), last], None)
    hurt = disk_with(path, lost)
    hurt.corrupt(path, lost.index(b"short"))
    assert _opened(hurt) == (entries(1, 1), OpId(3, 2))
    hurt = disk_with(path, lost)
    hurt.corrupt(path, frame + 2)
    assert _opened(hurt) == (entries(1, 1), OpId(1, 2))


def test_damaged_entry_that_names_a_later_term_is_withheld_with_that_term() -> None:
    """CN-22, D-7. Goal: the mark is not of an earlier term than what was acknowledged. Method: a block of two leaders'
    entries, the payload of the later one's damaged."""
    disk, path, data, _ = _unclosed(entries(1, 1), [*entries(2, 3), entry(4, term=2)])
    disk.corrupt(path, data.index(b"payload 2.4"))
    assert _opened(disk) == (entries(1, 3), OpId(2, 4))


def test_marker_where_a_block_should_begin_is_damage() -> None:
    """CN-22. Goal: nothing tears a block so that its end is left at its start: it may have been acknowledged. Method: a
    segment's marker once more behind its last block, and with one byte behind it."""
    _, path, data, _ = _unclosed(entries(1, 2))
    marker = decode_header(data[:HEADER_BYTES_MAX], "wal-000000001").marker
    found, withheld = _opened(disk_with(path, data + marker))
    assert found == entries(1, 2) and withheld is not None and withheld.index > 2
    with pytest.raises(Corruption, match="more follows"):
        _opened(disk_with(path, data + marker + b"\x01"))


def test_lost_block_that_had_replaced_others_is_withheld_above_them() -> None:
    """CN-22, D-7. Goal: if the entries of a later leader are lost, those that they had replaced count again, and the
    vote is withheld up to an OpId above them. Method: entries 4 and 5 of a later leader in a segment of their own,
    damaged; the log holds nine of the earlier one again."""
    disk = SimDisk()
    build(disk, lambda log: append_now(log, entries(1, 9)))
    build(disk, lambda log: append_now(log, entries(4, 5, term=2)))
    disk.remove(f"{FOLDER}/{NEWEST_NAME}")
    path = segment_paths(disk)[-1]
    disk.corrupt(path, disk.read(path).index(b"payload 2.4"))
    found, withheld = _opened(disk)
    assert found == entries(1, 9) and withheld is not None and withheld.index > 9


def test_lost_only_block_of_an_earlier_build_is_withheld_in_no_term() -> None:
    """CN-22, D-7. Goal: the mark claims no more than is known. Method: a segment that does not say which entry was
    written before it, the only one, and its first entry does not tell its term any more."""
    _, path, data, _ = _unclosed(entries(1, 1))
    disk = disk_with(path, without_after(data))
    disk.corrupt(path, block_ends(disk, path)[0] + 2)
    assert _opened(disk) == ([], OpId(0, 1))


HEADER = decode_header(encode_header(TABLET, 1, 1, new_marker(), ZERO_OPID), "wal-000000001")


def _named(*damaged: tuple[Entry, str]) -> OpId:
    """What is named behind 2.3 by entries of which the payload, the identity or nothing is damaged."""
    data = b"behind the frame"
    for one, hurt in damaged:
        encoded = encode_entry(TABLET, one)
        whole = bytearray(encoded.head + encode_tail(encoded, HEADER.segment))
        if hurt:
            whole[whole.index(one.payload) if hurt == "payload" else 2] ^= 1
        data += whole
    return _named_in_order(data, len(b"behind the frame"), HEADER, OpId(2, 3))


def test_damaged_entries_name_opids_as_far_as_those_follow_each_other() -> None:
    """CN-22, D-7. Goal: a mark is no further than what was written, and an entry whose payload alone is damaged names
    itself. Method: entries behind 2.3: of one term and of two, an index left out or written twice, a term that falls,
    an identity that is damaged, none at all."""
    four, five = entry(4, term=2), entry(5, term=2)
    assert _named() == OpId(2, 3)
    assert _named((four, "payload"), (five, "payload"), (entry(6, term=4), "")) == OpId(4, 6)
    assert _named((four, "payload"), (entry(6, term=2), "")) == OpId(2, 4)
    assert _named((four, "payload"), (entry(4, term=2), "")) == OpId(2, 4)
    assert _named((entry(4, term=1), "payload")) == OpId(2, 3)
    assert _named((four, "identity"), (five, "")) == OpId(2, 3)


@pytest.mark.parametrize(("count", "size"), [(1, 1), (1, 70), (3, 9000), (70, 200), (70, 30_000)])
def test_what_is_left_of_a_size_fits_the_lengths_that_begin_so_and_no_other(count: int, size: int) -> None:
    """CN-22. Goal: a block that was torn in its frame is distinguished from one that others follow. Method: a frame
    that lies in two sectors, against all markers near its own that a size with those first bytes might have."""
    of_count = encode_long(count)
    frame = of_count + encode_long(size)
    for gap in range(len(of_count), len(frame)):
        rest, known = frame[:gap] + bytes(600), frame[len(of_count) : gap]
        fitting = {
            len(of_count) + len(encoded) + other
            for other in range(max(1, size - 150), size + 150)
            if (encoded := encode_long(other)).startswith(known) and len(encoded) > len(known)
        }
        assert len(frame) + size in fitting
        # Below the first of these places are only the bytes of the frame.
        for marker_at in range(max(len(of_count) + 2, size - 120), size + 120):
            for byte_offset in (SECTOR_BYTES - gap, 7 * SECTOR_BYTES - gap):
                assert _may_end_at(rest, byte_offset, marker_at) == (marker_at in fitting), (gap, marker_at)


def test_block_whose_frame_is_torn_is_judged_by_its_end() -> None:
    """CN-22. Goal: a block whose frame runs into a sector that was never written is a torn tail, unless its end is
    there: a build that did not state zero sectors may have written those. Method: a block of two entries that
    begins two bytes before a sector's bound; its end lost, there, at a place that the size cannot mean, and with more
    behind it."""

    def judged(*, with_trailer: bool, end: bytes) -> Damage:
        frame = encode_long(2) + encode_long(2000)
        block = (frame + b"\x07" * 1999 + b"\0" + end)[2 + SECTOR_BYTES :]
        rest = frame[:2] + bytes(SECTOR_BYTES) + block
        header = replace(HEADER, has_trailers=with_trailer)
        return judge(rest, 5 * SECTOR_BYTES - 2, header, OpId(3, 9), SeenOpIds())

    marker = HEADER.marker
    for with_trailer in (True, False):
        lost = judged(with_trailer=with_trailer, end=bytes(16))
        assert (lost.fatal, lost.withheld, lost.kept) == (False, None, ())
        for end in (b"\x07" * 300 + marker, marker + b"\x07"):
            assert judged(with_trailer=with_trailer, end=end).fatal
    unwritten = judged(with_trailer=True, end=marker)
    assert (unwritten.fatal, unwritten.withheld, unwritten.kept) == (False, None, ())
    ended = judged(with_trailer=False, end=marker)
    assert (ended.fatal, ended.withheld, ended.kept) == (False, OpId(3, 11), ())


def test_marker_that_reads_as_a_torn_frame_is_damage_if_more_follows() -> None:
    """CN-22. Goal: whole blocks behind a marker that stands where a block should begin are never cut. Method: a
    marker of which the last byte is the last of its sector, and which reads as a count and the begin of a size."""
    marker = bytes([0x82, 0x81, 0x82, 0x83, 0x84, 0x85, 0x02, *range(0x90, 0x99)])
    rest = marker + bytes(SECTOR_BYTES) + b"\x07" * 300
    claim = read_frame(rest)
    assert claim is not None and claim.start > len(marker)
    found = judge(rest, 5 * SECTOR_BYTES - len(marker), replace(HEADER, marker=marker), OpId(3, 9), SeenOpIds())
    assert found.fatal


def test_frame_and_end_are_judged_by_the_sector_of_their_last_byte() -> None:
    """CN-22. Goal: whether a sector was written is decided by its bytes of this block alone. Method: blocks of bytes
    that are none but in one sector, which is zeros, at every place near a sector's bound."""
    for byte_offset in [*range(500, 530), 1023, 1024, 1025]:
        for length in (20, 511, 512, 513, 1024, 1500):
            places = range(byte_offset, byte_offset + length)
            for empty in {place // SECTOR_BYTES for place in places}:
                rest = bytes(0 if place // SECTOR_BYTES == empty else 7 for place in places) + b"behind"
                assert _ends_in_zeros(rest, byte_offset, length) == (empty == places[-1] // SECTOR_BYTES)
                if empty != byte_offset // SECTOR_BYTES:
                    for start in range(2, 15):
                        torn = empty == (byte_offset + start - 1) // SECTOR_BYTES
                        assert _frame_is_torn(rest[:length], byte_offset, Frame(1, start, length)) == torn
    assert not _ends_in_zeros(b"\x01" + bytes(19), SECTOR_BYTES, 20)
    assert not _frame_is_torn(b"\x02\x82\x01" + b"\x07\0" * 9, SECTOR_BYTES - 2, Frame(1, 3, 20)), (
        "some bytes are written"
    )
