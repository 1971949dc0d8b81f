"""Walks over a segment from its first block to its end, and judges a damaged tail.

A group commit is synced before the next is written. So a crash can tear only the last block of a log. Everything else
that is broken was durable once, and may have been acknowledged.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from nyala.replica.types import DiskFile, Entry, OpId

from . import zeros
from .format import BAD_AVRO, MARKER_BYTES, Decoded, Header, decode_entry, decode_long, encode_long
from .index import SeenOpIds

SECTOR_BYTES = zeros.SECTOR_BYTES
_WINDOW_BYTES = 1 << 20
_FRAME_BYTES_MAX = 20

Visit = Callable[[Entry, int, int], None]
"""Called with (entry, its first byte, the byte after it); offsets count from the start of the file."""


@dataclass(frozen=True)
class Damage:
    """A block that is not whole, or in the place of another one. Only zeros follow it, unless `fatal`."""

    byte_offset: int
    """The offset at which its block starts."""
    what: str
    fatal: bool
    """Whether intact blocks or unexplained bytes follow, so that this is no torn tail."""
    kept: tuple[bytes, ...] = ()
    """The encoded entries at the block's start that are whole."""
    withheld: OpId | None = None
    """The OpId up to which the vote is withheld, if the block had its full length: it may have been acknowledged."""


@dataclass(frozen=True)
class Walk:
    """The result of one walk: where the whole blocks end, and the damage after them, if there is one."""

    content_end: int
    damage: Damage | None


class Frame(NamedTuple):
    """The numbers in a block's first bytes, which may be wrong."""

    entries: int
    start: int
    """The offset of the first entry from the block's start."""
    end: int
    """The offset after the last entry; the marker follows."""


class Window:
    """Reads a file from front to back with few calls."""

    def __init__(self, file: DiskFile) -> None:
        self._file = file
        self.size = file.size()
        self._start = 0
        self._data = b""

    def get(self, byte_offset: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        start = byte_offset - self._start
        if start + length > len(self._data):
            self._data = self._file.pread(max(length, _WINDOW_BYTES), byte_offset)
            self._start = byte_offset
            start = 0
        return self._data[start : start + length]

    def rest_is_zero(self, byte_offset: int) -> bool:
        """Whether the rest of the file is zeros."""
        while chunk := self._file.pread(_WINDOW_BYTES, byte_offset):
            if chunk.count(0) != len(chunk):
                return False
            byte_offset += len(chunk)
        return True


def read_frame(data: bytes) -> Frame | None:
    """The frame; None if the bytes cannot begin a block."""
    try:
        count, after = decode_long(data, 0)
        size, start = decode_long(data, after)
    except ValueError:
        return None
    return Frame(count, start, start + size) if count > 0 and size > 0 else None


def walk(file: DiskFile, header: Header, visit: Visit, last: OpId, seen: SeenOpIds) -> Walk:
    """Visit every entry of every whole block.

    `last` is the log's last OpId before this segment; if it is ZERO_OPID, the header names the one before. `seen` has
    the OpIds of all blocks before, and `visit` adds to it. A whole block in the place of another one counts as damaged.
    """
    last = last if last.index else OpId(header.after.term if header.after else 0, header.first_index - 1)
    window = Window(file)
    position = header.length_bytes
    for end, opid in whole_blocks(window, header, visit, seen):
        position, last = end, opid
    if window.rest_is_zero(position):
        return Walk(position, None)
    return Walk(position, judge(file.pread(window.size, position), position, header, last, seen))


def whole_blocks(window: Window, header: Header, visit: Visit, seen: SeenOpIds) -> Iterator[tuple[int, OpId]]:
    """Visit every entry of each block, up to one that is not whole or in the place of another; yields after each block
    the byte after it and its last OpId."""
    position = header.length_bytes
    while position < window.size:
        frame = read_frame(window.get(position, _FRAME_BYTES_MAX))
        if frame is None or position + frame.end + MARKER_BYTES > window.size:
            return
        block = window.get(position, frame.end + MARKER_BYTES)
        entries, problem = _parse(block, frame, header)
        problem = problem or _trailer_problem(block, position, entries, header)
        if not problem and not entries[-1][0].trailer:
            problem = _misplaced(entries, seen)
        if problem or block[frame.end :] != header.marker:
            return
        for (entry, *_), start, end in entries:
            visit(entry, position + start, position + end)
        position += frame.end + MARKER_BYTES
        yield position, entries[-1][0].entry.opid


_Parsed = list[tuple[Decoded, int, int]]


def _parse(block: bytes, frame: Frame, header: Header) -> tuple[_Parsed, str]:
    """The whole entries at a block's start, and why they are not all of it (empty if they are)."""
    entries: _Parsed = []
    stream = io.BytesIO(block)
    stream.seek(frame.start)
    for _ in range(frame.entries):
        start = stream.tell()
        try:
            decoded = decode_entry(stream, header)
        except BAD_AVRO as error:
            return entries, f"entry at byte {start} of the block: {error!r}"
        if decoded.problem or stream.tell() > frame.end:
            return entries, f"entry at byte {start} of the block: {decoded.problem or 'length'} is wrong"
        entries.append((decoded, start, stream.tell()))
    return entries, "" if stream.tell() == frame.end else "bytes after the last entry"


def _trailer_problem(block: bytes, byte_offset: int, entries: _Parsed, header: Header) -> str:
    """The reason why the block's trailer does not fit its whole entries; empty if it does. A block ends in a
    trailer if, and only if, one of them needs it (`Decoded.needs_trailer`)."""
    trailers = [decoded.trailer for decoded, _, _ in entries]
    if any(trailers[:-1]):
        return "a trailer of zero sectors is not at the block's end"
    if not any(decoded.needs_trailer for decoded, _, _ in entries):
        return "a trailer of zero sectors without need" if trailers[-1] else ""
    whole = zeros.decode_trailer(trailers[-1], header.segment, byte_offset, byte_offset + len(block))
    return "" if whole is not None else "the trailer of zero sectors is wrong"


def _misplaced(entries: _Parsed, seen: SeenOpIds) -> str:
    """The reason why a block that begins with `entries` belongs elsewhere; empty if it does not.

    An OpId is never written twice, with one exception: a leader appends an entry again after another leader's
    entry had replaced it. Such a block ends in a trailer that names its place (`Reservation.rewrites`).
    Without a correct trailer, it is an older block.
    """
    first = entries[0][0].entry.opid
    return f"it begins with entry {first}, which an earlier block holds" if first in seen else ""


def judge(rest: bytes, byte_offset: int, header: Header, last: OpId, seen: SeenOpIds) -> Damage:
    """Judge a block at `byte_offset` that is not whole, or in the place of another one, by all bytes to the file's
    end."""
    claim = read_frame(rest)
    content = len(rest.rstrip(b"\0"))
    marker_at = rest.find(header.marker)
    unwritten = False
    if header.has_trailers:
        unwritten, rest = zeros.restore_lone_byte(rest, content, byte_offset, header.segment, header.marker)
    if claim is not None and _frame_is_torn(rest, byte_offset, claim):
        return _judge_torn_frame(rest, byte_offset, claim, marker_at, last, unwritten)
    claimed_end = claim.end + MARKER_BYTES if claim and claim.end + MARKER_BYTES <= len(rest) else None
    if claimed_end is not None and content > claimed_end:
        return Damage(byte_offset, "a block is damaged and more follows", fatal=True)
    if marker_at >= 0 and content > marker_at + MARKER_BYTES:
        return Damage(byte_offset, "a block is damaged and more follows", fatal=True)
    entries, start, problem = _salvage(rest, claim, marker_at, header)
    if entries and (misplaced := _misplaced(entries, seen)):
        entries, problem = [], misplaced
    kept = tuple(rest[s:e] for _, s, e in entries)
    full_length = marker_at >= 0 or (claimed_end is not None and not _ends_in_zeros(rest, byte_offset, claimed_end))
    if unwritten or not full_length:
        return Damage(byte_offset, "the last block is torn", fatal=False, kept=kept)
    if not problem:
        return Damage(byte_offset, "the last block's marker or trailer is damaged", fatal=False, kept=kept)
    if claim is None and entries and entries[-1][2] == marker_at:
        return Damage(byte_offset, "the last block's frame is lost", fatal=False, kept=kept)
    before = entries[-1][0].entry.opid if entries else last
    missing = claim.entries - len(entries) if claim is not None and claim.entries > len(entries) else 1
    end = entries[-1][2] if entries else start
    named = _named_in_order(rest, end, header, before)
    # The count in the frame may be damaged: no block has more entries than bytes.
    highest = max(before.index + min(missing, len(rest)), named.index)
    return Damage(byte_offset, f"the last block is damaged: {problem}", False, kept, OpId(named.term, highest))


def _frame_is_torn(rest: bytes, byte_offset: int, claim: Frame) -> bool:
    """Whether the frame runs into a sector that was never written.

    None of our longs ends in a zero byte. So the size that is read then has only the low bits of the true one, and the
    block does not end where it seems to.
    """
    sector = (byte_offset + claim.start - 1) // SECTOR_BYTES * SECTOR_BYTES - byte_offset
    return sector > 0 and not any(rest[sector : sector + SECTOR_BYTES])


def _judge_torn_frame(
    rest: bytes, byte_offset: int, claim: Frame, marker_at: int, last: OpId, unwritten: bool
) -> Damage:
    """A block of which the count and the low bits of the size are left; its first entry begins in the lost sector."""
    if marker_at < 0:
        return Damage(byte_offset, "the last block is torn", fatal=False)
    if len(rest.rstrip(b"\0")) > marker_at + MARKER_BYTES or not _may_end_at(rest, byte_offset, marker_at):
        return Damage(byte_offset, "a block is damaged and more follows", fatal=True)
    if unwritten:
        return Damage(byte_offset, "the last block is torn", fatal=False)
    withheld = OpId(last.term, last.index + min(claim.entries, len(rest)))
    return Damage(byte_offset, "the last block is damaged: its frame is torn", fatal=False, withheld=withheld)


def _may_end_at(rest: bytes, byte_offset: int, marker_at: int) -> bool:
    """Whether the remaining bits of the size fit a block with its marker there. A later block's marker hardly ever
    fits."""
    _, after_count = decode_long(rest, 0)
    known = rest[after_count : SECTOR_BYTES - byte_offset % SECTOR_BYTES]
    for length in range(11):
        size = encode_long(marker_at - after_count - length)
        if len(size) == length and size.startswith(known):
            return True
    return False


def _salvage(rest: bytes, claim: Frame | None, marker_at: int, header: Header) -> tuple[_Parsed, int, str]:
    """(whole entries from the block's start, the offset where the first should start, the reason why they end)."""
    end = marker_at if marker_at >= 0 else len(rest)
    if claim is not None:
        frame = Frame(claim.entries, claim.start, min(claim.end, end))
        entries, problem = _parse(rest, frame, header)
        if entries:
            return entries, claim.start, problem or ("" if frame.end == claim.end else "the frame's length")
    for start in range(2, _FRAME_BYTES_MAX + 1):
        entries, problem = _parse(rest, Frame(len(rest), start, end), header)
        if entries:
            return entries, start, "the frame"
    return [], claim.start if claim else 2, "no entry is whole"


def _named_in_order(rest: bytes, start: int, header: Header, before: OpId) -> OpId:
    """The highest OpId that damaged entries credibly have: consecutive indexes, and terms that do not fall."""
    stream = io.BytesIO(rest)
    stream.seek(start)
    while True:
        try:
            entry, problem, *_ = decode_entry(stream, header)
        except BAD_AVRO:
            return before
        credible = problem in ("", "payload CRC", "reserved bytes")
        if entry.opid.index != before.index + 1 or not (credible and entry.opid.term >= before.term):
            return before
        before = entry.opid


def _ends_in_zeros(rest: bytes, byte_offset: int, end: int) -> bool:
    """Whether the part of the block in its last sector was never written."""
    sector = (byte_offset + end - 1) // SECTOR_BYTES * SECTOR_BYTES
    return not any(rest[max(0, sector - byte_offset) : end])
