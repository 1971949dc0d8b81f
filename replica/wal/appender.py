"""Group commit: many reservations, one block, one write, one sync; and the change from one segment to the next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

import google_crc32c

from nyala.replica.fs import exhausted
from nyala.replica.types import Code, Corruption, Disk, DiskFailure, InvariantViolation, OpId, Refused
from nyala.replica.types.log_records import about

from .format import Header, encode_tail
from .handles import SegmentInfo
from .newest import Newest, read_newest, save_newest
from .options import WalOptions
from .reservation import Reservation
from .segment import ActiveSegment, NextSegment
from .threads import TurnThreads
from .zeros import TRAILER_BYTES

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GroupCommit:
    """One group commit that is on disk: `places` is (OpId, first byte, byte after it) of each entry in `segment`."""

    segment: SegmentInfo
    header: Header
    places: list[tuple[OpId, int, int]]


@dataclass(eq=False)
class Appender:
    """Owns the file being written. Concurrency: one thread at a time, under the log's i/o lock."""

    disk: Disk
    folder: str
    tablet_id: str
    options: WalOptions
    _: KW_ONLY
    next_number: int
    """The number of the next segment."""
    end: Newest
    """The end of the files when the log was opened."""
    recorded: Newest
    """The end that the record beside them named then."""
    next_segment_bytes: int
    """The length to which the first segment that this appender makes is preallocated."""
    threads: TurnThreads | None
    _active: ActiveSegment | None = field(default=None, init=False)
    _info: SegmentInfo | None = field(default=None, init=False)
    _retry_at_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._end, self._recorded_end = self.end, self.recorded
        """The present end of the files, and the end that `.newest-segment` names."""
        self._next_size = self.next_segment_bytes
        self._next = NextSegment(self.disk, self.folder, self.tablet_id, threads=self.threads)

    def write(self, slots: Sequence[Reservation]) -> GroupCommit:
        """Append all entries of the reservations `slots` as one block and make it durable.

        After NO_SPACE or ResourcesExhausted, nothing of the block is in the log, and a later write may succeed. After
        any other error, the state of the file is unknown, and this appender must not be used again.
        """
        self.disk.crash_point("wal.before_append")
        segment = self._segment_for(slots[0].entries[0].opid.index)
        try:
            parts, lengths = _gather(slots, segment.number)
        except MemoryError as error:  # nothing is written yet
            raise exhausted(error) or error from error
        with_trailer = any(encoded.needs_trailer for slot in slots for encoded in slot.encoded)
        if with_trailer:
            lengths[-1] += TRAILER_BYTES
        start = segment.write_block(len(lengths), parts, sum(lengths), with_trailer=with_trailer)
        self.disk.crash_point("wal.after_write_before_sync")
        if self.options.sync:
            segment.sync()
        self.disk.crash_point("wal.after_sync")
        places = []
        opids = (entry.opid for slot in slots for entry in slot.entries)
        for opid, length in zip(opids, lengths, strict=True):
            places.append((opid, start, start + length))
            start += length
        info = self._note(segment, places)
        if segment.written_bytes > segment.preallocated_bytes:
            self._prepare_next(segment)
        return GroupCommit(info, segment.header, places)

    def _note(self, segment: ActiveSegment, places: list[tuple[OpId, int, int]]) -> SegmentInfo:
        highest = max(opid.index for opid, _, _ in places)
        first = places[0][0].index
        known = self._info
        if known is not None and known.number == segment.number:
            first, highest = known.first_index, max(highest, known.last_index)
        self._info = SegmentInfo(segment.number, segment.name, first, highest, segment.written_bytes, closed=False)
        self._end = Newest(segment.number, segment.written_bytes, places[-1][0])
        return self._info

    def _prepare_next(self, segment: ActiveSegment) -> None:
        """Start the preallocation once; if a full disk refused it, again when the file has grown noticeably."""
        if self._next.idle and segment.written_bytes >= self._retry_at_bytes:
            self._retry_at_bytes = segment.written_bytes + self.options.segment_size_bytes_first
            self._next.start(self._next_size)

    def _segment_for(self, first_index: int) -> ActiveSegment:
        """The segment for the next block: a prepared one if there is one, else the one in use, else a new one.

        The one in use does not count if it has no block yet, because there was no room, and its header names another
        first index, because entries were truncated since.
        """
        active = usable = self._active
        if active is not None and active.is_empty and active.header.first_index != first_index:
            usable = None
        try:
            if usable is not None and not self._next.ready:
                return usable
            if self._next.idle:
                self._next.start(self._next_size, here=True)
            taken = self._next.take(self.next_number, first_index, self._end.last)
        except Refused:
            if usable is not None:
                return usable  # The disk is nearly full; the file in use may still have room.
            if self._next_size == self.options.segment_size_bytes_first:
                raise
            self._next_size = self.options.segment_size_bytes_first  # there may be room for so much
            return self._segment_for(first_index)
        self._end = self._recorded_end = Newest(taken.number, taken.written_bytes, self._end.last)
        self.next_number += 1
        self._next_size = min(2 * self._next_size, self.options.segment_size_bytes_max)
        self._retry_at_bytes = 0
        self._active = taken
        if active is not None:
            active.finish()
        return taken

    def roll(self) -> None:
        """Close the segment in use, if there is one. If it cannot be cut now, it stays in use."""
        active = self._active
        if active is not None:
            active.cut()
            self._active = None
            active.finish()

    def repair_record(self) -> bool:
        """Write `.newest-segment` again unless it is as it was written last. Returns whether it had to."""
        try:
            if read_newest(self.disk, self.folder) == self._recorded_end:
                return False
        except (Corruption, DiskFailure):
            pass
        save_newest(self.disk, self.folder, self._recorded_end)
        return True

    def close(self, *, trusted: bool) -> None:
        """Stop: cut and sync the segment in use, and record the log's end, unless the disk is not `trusted` any more.

        Appended entries are synced already. So on a full disk, or without resources, the files are left as after a
        crash.
        """
        active, self._active = self._active, None
        if active is not None and not trusted:
            active.abandon()
            active = None
        self._tidy(lambda: self._next.close(trusted=trusted))
        if trusted:
            self._tidy(lambda: self._finish(active))

    def _finish(self, active: ActiveSegment | None) -> None:
        if active is not None:
            active.finish()
        if self.disk.exists(self.folder):
            self._recorded_end = self._end
            self.repair_record()  # also if it was damaged since it was written

    def _tidy(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Refused as error:  # the disk is full or a resource is exhausted: a disk refuses for no other reason
            about(_log, self.tablet_id).warning(
                "the log was closed, and a file of it could not be cut, removed or recorded; nothing is lost, the "
                "next opening does it: %s", error,
            )  # fmt: skip


def _gather(slots: Sequence[Reservation], segment: int) -> tuple[list[bytes], list[int]]:
    """(the entries' bytes in as few parts as possible without copying large payloads, the length of each entry)."""
    parts: list[bytes] = []
    lengths: list[int] = []
    small: list[bytes] = []
    for slot in slots:
        for encoded, entry in zip(slot.encoded, slot.entries, strict=True):
            if google_crc32c.value(entry.payload) != entry.payload_crc:
                raise InvariantViolation("a payload does not have its CRC", opid=entry.opid)
            small.append(encoded.head)
            if encoded.payload:
                parts += [b"".join(small), encoded.payload]
                small.clear()
            tail = encode_tail(encoded, segment)
            small.append(tail)
            lengths.append(encoded.length_bytes + len(tail))
    parts.append(b"".join(small))
    return parts, lengths


def closed_error(tablet_id: str) -> Refused:
    """The error for a reservation that was not appended before the log was closed."""
    return Refused(Code.ILLEGAL_STATE, "the log is closed", tablet_id=tablet_id)
