"""Entries read back from their places: as many as fit, each checked; and where a log's last block begins."""

from __future__ import annotations

import pytest

from nyala.replica.types import Corruption, Entry, InvariantViolation, OpId
from nyala.replica.wal import last_block
from nyala.replica.wal.format import MARKER_BYTES, decode_header, encode_entry, encode_header, encode_tail
from nyala.replica.wal.index import Span, TermRuns
from nyala.replica.wal.last_block import rewrite_last_block
from nyala.replica.wal.reader import Survivors, read_entries
from nyala.replica.wal.recovery import segment_name
from tests.harness.sim_disk import SimDisk
from tests.harness.wal_entries import FOLDER, TABLET, entries

MARKER = bytes(range(1, 17))
HEADERS = {
    number: decode_header(encode_header(TABLET, number, 1, MARKER, OpId(0, 0)), segment_name(number))
    for number in (1, 2)
}


def _bytes(segment: int, *held: Entry) -> bytes:
    encoded = [encode_entry(TABLET, one) for one in held]
    return b"".join(one.head + one.payload + encode_tail(one, segment) for one in encoded)


ENTRIES = [*entries(3, 6), *entries(7, 9, term=2)]


def _disk() -> tuple[SimDisk, list[Span], TermRuns]:
    """Entries 3 to 6 and 9 in segment 1 behind five bytes, 7 and 8 in segment 2, in four spans."""
    disk, terms, spans, data = SimDisk(), TermRuns(), list[Span](), {1: b"other", 2: b""}
    disk.mkdir(FOLDER)
    for number, first, last in ((1, 3, 4), (1, 5, 6), (2, 7, 8), (1, 9, 9)):
        held = [one for one in ENTRIES if first <= one.opid.index <= last]
        spans.append(Span(first, last, number, len(data[number]), len(_bytes(number, *held))))
        data[number] += _bytes(number, *held)
    for number, content in data.items():
        disk.poke(f"{FOLDER}/{segment_name(number)}", content)
    for one in ENTRIES:
        terms.add(one.opid)
    return disk, spans, terms


def _read(lo: int, hi: int, max_bytes: int = 1 << 20) -> list[int]:
    disk, spans, terms = _disk()
    wanted = [span for span in spans if span.first < hi and span.last >= lo]
    found = read_entries(disk, FOLDER, HEADERS, wanted, lo, hi, max_bytes, terms)
    assert found == [one for one in ENTRIES if one.opid.index in [each.opid.index for each in found]]
    assert not any(disk.handles.values()) and disk.count("open") == len(disk.handles)
    return [one.opid.index for one in found]


def test_entries_of_a_range_are_read_from_their_spans() -> None:
    """Goal: a read gives what it was asked for, and opens each file once. Method: every range of seven entries in four
    spans of two segments."""
    for lo in range(3, 10):
        for hi in range(lo + 1, 11):
            assert _read(lo, hi) == list(range(lo, hi))


def test_read_gives_as_many_entries_as_fit_and_one_at_least() -> None:
    """Goal: bounded reads that still make progress. Method: limits of nothing, and of two entries to the byte."""
    two = ENTRIES[0].size_bytes + ENTRIES[1].size_bytes
    assert [_read(3, 10, limit) for limit in (0, two - 1, two, two + 1)] == [[3], [3], [3, 4], [3, 4]]


def test_entry_that_does_not_read_back_is_corruption_at_its_byte() -> None:
    """Goal: no changed byte is handed out. Method: a payload and an identity damaged, an entry of another term in a
    place, and one of another index; behind the range that is read, damage is not looked at."""
    disk, spans, terms = _disk()
    path, second = f"{FOLDER}/{segment_name(1)}", spans[0].byte_offset + len(_bytes(1, ENTRIES[0]))
    for at in (disk.read(path).index(b"payload 1.4"), second):
        disk.corrupt(path, at)
        with pytest.raises(Corruption, match="does not read back") as caught:
            read_entries(disk, FOLDER, HEADERS, spans[:1], 3, 5, 1000, terms)
        assert caught.match(f"byte_offset={second}") and caught.match("index=4") and not any(disk.handles.values())
        assert len(read_entries(disk, FOLDER, HEADERS, spans[:1], 3, 4, 1000, terms)) == 1
        disk.corrupt(path, at)
    other = TermRuns()
    for index in range(3, 10):
        other.add(OpId(1 if index < 4 else 2, index))
    with pytest.raises(Corruption, match=r"it is entry 1\.4"):
        read_entries(disk, FOLDER, HEADERS, spans[:1], 3, 5, 1000, other)
    with pytest.raises(Corruption, match=r"it is entry 1\.3"):
        read_entries(disk, FOLDER, HEADERS, [spans[0]._replace(first=4, last=5)], 4, 6, 1000, terms)


def test_bytes_that_are_no_entry_are_corruption() -> None:
    """Goal: a span that is cut ends in the log's own error. Method: a span that ends within its last entry."""
    disk, spans, terms = _disk()
    with pytest.raises(Corruption, match="index=4"):
        read_entries(
            disk, FOLDER, HEADERS, [spans[0]._replace(length_bytes=spans[0].length_bytes - 3)], 3, 5, 99, terms
        )


@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 1), (1, 4), (3, 9)])
def test_survivors_are_read_in_pieces_until_the_last(first: int, last: int) -> None:
    """Goal: an iteration needs little memory, and gives each entry once, each time. Method: reads that give two entries
    at most, of no, one and several entries."""
    asked = list[tuple[int, int]]()

    def read(lo: int, hi: int, max_bytes: int) -> list[Entry]:
        asked.append((lo, hi))
        assert 1 << 20 < max_bytes < 1 << 24
        return entries(lo, min(lo + 1, hi - 1))

    survivors = Survivors(read, first, last)
    expected = entries(first, last) if first else []
    assert [*survivors] == expected and [*survivors] == expected
    pieces = [(lo, last + 1) for lo in range(first, last + 1, 2)] if first else []
    assert asked == pieces * 2


@pytest.mark.parametrize("window", [17, 40, 1 << 20])
@pytest.mark.parametrize("blocks", [[], [30], [100], [30, 100], [200, 5], [17, 400, 300]])
def test_last_block_is_written_once_more_at_its_place(
    blocks: list[int], window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CN-22. Goal: the sync of an opening brings the last block to the disk, and rewrites no other. Method: segments of
    no, one and several blocks, read in windows smaller and larger than the last one; what is written, and that it is
    the same."""
    monkeypatch.setattr(last_block, "_WINDOW_BYTES", window)
    header, disk, path = HEADERS[1], SimDisk(), f"{FOLDER}/{segment_name(1)}"
    content = bytes(header.length_bytes - MARKER_BYTES) + MARKER
    for number, size in enumerate(blocks):
        content += bytes([100 + number]) * size + MARKER
    disk.mkdir(FOLDER)
    disk.poke(path, content + bytes(50))
    file, written = disk.open(path), list[tuple[int, bytes]]()
    file.pwrite = lambda data, byte_offset: written.append((byte_offset, data))  # type: ignore[method-assign]
    rewrite_last_block(file, header, len(content))
    start = len(content) - blocks[-1] - MARKER_BYTES if blocks else 0
    assert written == ([(start, content[start:])] if blocks else [])


def test_long_last_block_is_found_in_a_few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a start reads little, and a block of any length in few steps. Method: the reads of a block of 1,000 bytes,
    from a window of 40 on."""
    monkeypatch.setattr(last_block, "_WINDOW_BYTES", 40)
    header, disk, path = HEADERS[1], SimDisk(), f"{FOLDER}/{segment_name(1)}"
    content = bytes(header.length_bytes - MARKER_BYTES) + MARKER + b"a" * 5000 + MARKER + b"b" * 1000 + MARKER
    disk.mkdir(FOLDER)
    disk.poke(path, content)
    rewrite_last_block(disk.open(path), header, len(content))
    reads = [call.length_bytes for call in disk.calls if call.operation == "pread"]
    assert reads == [40, 160, 640, 2560, 1000 + MARKER_BYTES]


def test_last_block_has_one_marker() -> None:
    """CN-22. Goal: of a block only what stands behind the marker before it is written. Method: a look at a block whose
    own bytes are few, so that its end lies in the last window alone."""
    header, disk, path = HEADERS[1], SimDisk(), f"{FOLDER}/{segment_name(1)}"
    content = bytes(header.length_bytes - MARKER_BYTES) + MARKER + b"d" + MARKER + b"e" + MARKER
    disk.mkdir(FOLDER)
    disk.poke(path, content)
    assert last_block._start_of_last_block(disk.open(path), header, len(content)) == len(content) - MARKER_BYTES - 1


def test_replay_of_a_log_that_is_truncated_meanwhile_ends_with_an_error() -> None:
    """Goal: a replay of entries that are truncated meanwhile ends with an error. Method: the entries after the first
    piece are gone when they are read."""
    pieces = [entries(1, 2), []]
    survivors = iter(Survivors(lambda first, end, size: pieces.pop(0), 1, 4))
    assert [next(survivors).opid.index for _ in range(2)] == [1, 2]
    with pytest.raises(InvariantViolation, match="truncated before its replay has ended"):
        next(survivors)
