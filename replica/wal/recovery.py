"""Opens a folder of segment files as a reliable log: checks every byte, cuts a torn tail, makes the rest durable."""

from __future__ import annotations

import io
import logging
import re
import struct
from dataclasses import dataclass, field, replace

from nyala.replica.types import Code, Corruption, Disk, DiskFailure, Entry, OpId, Refused

from .format import (
    HEADER_BYTES_MAX,
    MARKER_BYTES,
    Header,
    decode_entry,
    decode_header,
    encode_block,
    encode_long,
    seal,
    unseal,
)
from .handles import SegmentInfo
from .index import LogIndex, SeenOpIds
from .last_block import rewrite_last_block
from .newest import Newest, need_newest, read_newest, save_newest
from .scan import Damage, Walk, walk
from .zeros import TRAILER_BYTES

_log = logging.getLogger(__name__)
WITHHELD_NAME = "withheld"
"""The file that marks a damaged tail. It holds the last OpId that the log lost and that may have been acknowledged."""
_WITHHELD_MAGIC = b"NYLAWH01"
_WITHHELD = struct.Struct("<8sqq")
_NAME = re.compile(r"^wal-(\d{9,})$")
TEMP_NAME = ".next-segment.tmp"
"""The file in which the next segment is preallocated; never listed, and removed at opening."""


def segment_name(number: int) -> str:
    """File name of a segment."""
    return f"wal-{number:09d}"


def is_segment_name(name: str) -> bool:
    """Whether `name` is that of a segment, which gets it only with a synced header."""
    return _NAME.match(name) is not None


@dataclass
class Recovered:
    """The content of a folder. All of it is durable, and closed."""

    index: LogIndex = field(default_factory=LogIndex)
    segments: list[SegmentInfo] = field(default_factory=list)
    headers: dict[int, Header] = field(default_factory=dict)
    withheld: OpId | None = None
    written: SeenOpIds = field(default_factory=SeenOpIds)
    """All OpIds that were written, including those of entries that later ones replaced."""
    newest: Newest = field(default_factory=Newest)
    """The content of the record beside the segments."""
    latest_time: int = 0
    """The highest hybrid time of all entries that were written."""

    @property
    def last_index(self) -> int:
        """The index of the last whole entry; without any entry, the one before the first segment."""
        return self.index.terms.last_index or self.segments[0].first_index - 1

    @property
    def next_number(self) -> int:
        return self.segments[-1].number + 1 if self.segments else 1

    @property
    def end(self) -> Newest:
        """The present end of the segments. The record names it too, unless there was no room to write the record."""
        if not self.segments:
            return Newest()
        return Newest(self.segments[-1].number, self.segments[-1].length_bytes, self.index.terms.last)


def recover(disk: Disk, folder: str, tablet_id: str) -> Recovered:
    """Read all segments of a folder, which is made if absent; Corruption if anything but the very end is broken.

    Entries at the end that were not synced when the process died are synced now, because others may rely on them from
    here on.
    """
    disk.mkdir(folder)
    if disk.exists(f"{folder}/{TEMP_NAME}"):
        disk.remove(f"{folder}/{TEMP_NAME}")
    out, broken = read_all(disk, folder, tablet_id)
    if broken is not None:
        info, damage = broken
        if damage.withheld is not None:
            # An earlier start may have withheld more than this one can find.
            mark = standing_mark(disk, folder, out.index.terms.last)
            _save_withheld(disk, folder, joined_marks(damage.withheld, mark))
        if damage.kept:
            _rewrite_end(disk, f"{folder}/{info.name}", out.headers[info.number], damage)
            out, again = read_all(disk, folder, tablet_id, Newest())  # less of it is left than the record says
            if again is not None:
                raise Corruption("a repaired segment does not read back", **_where(*again))
    _settle(disk, folder, out)
    out.withheld = _load_withheld(disk, folder, out.index.terms.last)
    return out


def read_all(
    disk: Disk, folder: str, tablet_id: str, newest: Newest | None = None
) -> tuple[Recovered, tuple[SegmentInfo, Damage] | None]:
    """Read everything that is whole, and the damaged tail if there is one. Changes nothing.

    `newest`: the length that the log must have, instead of the record's.
    """
    broken: tuple[SegmentInfo, Damage] | None = None
    mark = read_withheld(disk, folder)
    if newest is None:
        newest = read_newest(disk, folder)  # before the list, because a running server may add a segment now
    out = Recovered(newest=newest)
    numbered = sorted((int(m[1]), name) for name in disk.listdir(folder) if (m := _NAME.match(name)))
    need_newest(newest, (number for number, _ in numbered))
    for number, name in numbered:
        header = _header(disk, f"{folder}/{name}", name)
        _check_place(header, tablet_id, number, name, out)
        _check_start(header, name, out, broken, mark)
        before = out.index.terms.last if broken is None else _end(broken[1], out.headers[broken[0].number], out)
        info, damage = _walk(disk, f"{folder}/{name}", header, out, broken)
        lost = mark or (broken[1].withheld if broken is not None else None)
        _check_after(header, info, before, out, lost)
        if damage is not None and damage.fatal:
            raise Corruption("a segment is damaged", **_where(info, damage))
        if damage is not None:
            if broken is not None:
                raise _damaged_before_data(*broken)
            broken = info, damage
        out.segments.append(info)
        out.headers[number] = header
    return out, broken


def _header(disk: Disk, path: str, name: str) -> Header:
    """The header. Corruption if there is none, because a segment gets its name only after its header is synced."""
    file = disk.open(path)
    try:
        data = file.pread(HEADER_BYTES_MAX, 0)
        if not any(data):
            raise Corruption("a segment was emptied", segment=name, bytes=file.size())
        return decode_header(data, name)
    finally:
        file.close()


def _check_place(header: Header, tablet_id: str, number: int, name: str, out: Recovered) -> None:
    if header.tablet_id != tablet_id or header.segment != number:
        raise Corruption("a segment belongs elsewhere", segment=name, tablet_id=header.tablet_id, number=header.segment)
    if out.segments and out.segments[-1].number + 1 != number:
        raise Corruption("segments are missing", after=out.segments[-1].name, found=name)


def _check_start(
    header: Header, name: str, out: Recovered, broken: tuple[SegmentInfo, Damage] | None, mark: OpId | None
) -> None:
    """Raise Corruption if whole blocks before the segment are missing: a log begins a segment only when every entry
    before its first index is durable."""
    if not out.segments:
        return
    damage = broken[1] if broken is not None else None
    withheld = [w.index for w in (mark, damage.withheld if damage is not None else None) if w is not None]
    known = max([out.last_index + (len(damage.kept) if damage is not None else 0), *withheld])
    if header.first_index > known + 1:
        where = {"damaged": broken[0].name, "byte_offset": broken[1].byte_offset} if broken is not None else {}
        raise Corruption(
            "entries are missing before a segment", segment=name, first=header.first_index, last=known, **where
        )


def _check_after(header: Header, info: SegmentInfo, before: OpId, out: Recovered, lost: OpId | None) -> None:
    """Raise Corruption if the last entry before the segment is not the one that its header names.

    Indexes alone do not show it: if the blocks that were cut off had replaced older entries, the older ones would be
    back. A segment without an entry may have been begun after an entry that is `lost` now.
    """
    if header.after in (None, before) or not out.segments or (lost is not None and info.last_index < info.first_index):
        return
    what = "entries are missing before a segment"
    raise Corruption(what, segment=info.name, first=header.first_index, after=header.after, last=before)


def _end(damage: Damage, header: Header, out: Recovered) -> OpId:
    """The OpId of the log's last whole entry, those in the damaged block included."""
    if not damage.kept:
        return out.index.terms.last
    return decode_entry(io.BytesIO(damage.kept[-1]), header).entry.opid


def _walk(
    disk: Disk, path: str, header: Header, out: Recovered, broken: tuple[SegmentInfo, Damage] | None
) -> tuple[SegmentInfo, Damage | None]:
    first = header.first_index
    highest = 0
    name = path.rpartition("/")[2]

    def visit(entry: Entry, start: int, end: int) -> None:
        nonlocal first, highest
        if broken is not None:
            raise _damaged_before_data(*broken)  # rather than the error that this whole one does not follow
        refusal = out.index.terms.refuses(entry.opid)
        if refusal:
            last = out.index.terms.last
            raise Corruption("entries do not follow each other", segment=name, why=refusal, opid=entry.opid, last=last)
        if not highest and entry.opid.index != header.first_index:
            raise Corruption("a segment does not begin as its header says", segment=name, opid=entry.opid, first=first)
        highest = max(highest, entry.opid.index)
        out.index.add(entry.opid, header.segment, start, end)
        out.written.add(entry.opid)
        out.latest_time = max(out.latest_time, entry.hybrid_time)

    file = disk.open(path)
    try:
        result = walk(file, header, visit, out.index.terms.last, out.written)
    finally:
        file.close()
    info = SegmentInfo(header.segment, name, first, highest or first - 1, result.content_end, closed=True)
    return info, _judge_length(header, result, out)


def _judge_length(header: Header, found: Walk, out: Recovered) -> Damage | None:
    """The damage at a segment's end. If the segment ends before the length that is known to be durable, this is no
    tear: entries were lost that may have been acknowledged."""
    newest, damage = out.newest, found.damage
    if newest.number != header.segment or found.content_end >= newest.length_bytes:
        return damage
    if damage is None:
        damage = Damage(found.content_end, "the log's end was cut off", fatal=False)
    size = sum(map(len, damage.kept))
    frame_bytes = len(encode_long(len(damage.kept)) + encode_long(size))
    if damage.byte_offset + frame_bytes + size + MARKER_BYTES == newest.length_bytes:
        return replace(damage, withheld=None)  # every entry of the last durable block is left
    last = _end(damage, header, out)
    # An older entry may be left at the same index, or at a higher one: the mark must lie above what is there.
    withheld = OpId(max(last.term, newest.last.term), max(last.index + 1, newest.last.index))
    return replace(damage, withheld=withheld)


def _damaged_before_data(info: SegmentInfo, damage: Damage) -> Corruption:
    return Corruption("a segment is damaged and later ones hold data", **_where(info, damage))


def _where(info: SegmentInfo, damage: Damage) -> dict[str, object]:
    return {"segment": info.name, "byte_offset": damage.byte_offset, "what": damage.what}


def _rewrite_end(disk: Disk, path: str, header: Header, damage: Damage) -> None:
    """Replace the damaged last block by one with its whole entries, in one atomic step, so that none is ever lost."""
    file = disk.open(path)
    try:
        before = file.pread(damage.byte_offset, 0)
    finally:
        file.close()
    decoded = [decode_entry(io.BytesIO(data), header) for data in damage.kept]
    entries = b"".join(damage.kept)
    with_trailer = any(one.needs_trailer for one in decoded)
    if decoded[-1].trailer:
        entries = entries[: -1 - TRAILER_BYTES] + b"\0"
    length = len(entries) + (TRAILER_BYTES if with_trailer else 0)
    block = encode_block(header, damage.byte_offset, len(decoded), [entries], length, with_trailer=with_trailer)
    disk.replace(path, b"".join((before, *block)))


def _save_withheld(disk: Disk, folder: str, withheld: OpId) -> None:
    """Write the mark before the end is cut, because a second start must find it too."""
    body = _WITHHELD.pack(_WITHHELD_MAGIC, withheld.term, withheld.index)
    disk.replace(f"{folder}/{WITHHELD_NAME}", seal(body))


def read_withheld(disk: Disk, folder: str) -> OpId | None:
    """The mark that an earlier start left, if there is one; Corruption if it cannot be read."""
    path = f"{folder}/{WITHHELD_NAME}"
    if not disk.exists(path):
        return None
    body = unseal(disk.read(path))
    if body is None or len(body) != _WITHHELD.size:
        raise Corruption("the mark of a withheld entry does not read back", path=path)
    magic, term, index = _WITHHELD.unpack(body)
    if magic != _WITHHELD_MAGIC:
        raise Corruption("the mark of a withheld entry is of another format", path=path)
    return OpId(term, index)


def repair_withheld(disk: Disk, folder: str, withheld: OpId) -> bool:
    """Write the mark again unless the file holds this one. Returns whether it had to. Without the mark, the replica
    would vote after its next start, although its log lost entries that may have been acknowledged."""
    try:
        if read_withheld(disk, folder) == withheld:
            return False
    except (Corruption, DiskFailure):
        pass
    _save_withheld(disk, folder, withheld)
    return True


def standing_mark(disk: Disk, folder: str, last: OpId) -> OpId | None:
    """The mark; None if there is none, or if a log that ends at `last` has reached the mark's index again."""
    mark = read_withheld(disk, folder)
    return mark if mark is not None and last.index < mark.index else None


def joined_marks(one: OpId, other: OpId | None) -> OpId:
    """The mark that covers two damages: the higher term and the higher index, because each may be a lower bound."""
    if other is None:
        return one
    return OpId(max(one.term, other.term), max(one.index, other.index))


def _load_withheld(disk: Disk, folder: str, last: OpId) -> OpId | None:
    """The OpId of an earlier or the present damage, until the log has reached its index again."""
    mark = standing_mark(disk, folder, last)
    if mark is None:
        forget_withheld(disk, folder)
    return mark


def forget_withheld(disk: Disk, folder: str) -> None:
    """Remove the mark, if there is one. A power cut may bring it back: then a vote is withheld without need."""
    if disk.exists(f"{folder}/{WITHHELD_NAME}"):
        disk.remove(f"{folder}/{WITHHELD_NAME}")


def _settle(disk: Disk, folder: str, out: Recovered) -> None:
    """Cut every segment to its content and sync the end of the log, its name included."""
    newest = max((s.number for s in out.segments if s.last_index >= s.first_index), default=0)
    for info in out.segments:
        path = f"{folder}/{info.name}"
        if disk.size(path) == info.length_bytes and info.number < newest:
            continue
        file = disk.open(path)
        try:
            if file.size() != info.length_bytes:
                file.truncate(info.length_bytes)
            if info.number == newest:
                rewrite_last_block(file, out.headers[info.number], info.length_bytes)
            file.sync()
        finally:
            file.close()
    disk.sync_dir(folder)
    stranded = []
    while _is_stranded(out):
        stranded.append(out.segments.pop().name)
    if out.newest != out.end:
        # An earlier build or a copy left no record, the log was not closed, or its tail is damaged: then the mark is
        # written already.
        _record_end(disk, folder, out)
    for name in stranded:
        disk.remove(f"{folder}/{name}")
        disk.sync_dir(folder)  # the newest first, each synced separately, because a power cut must not leave a gap


def _record_end(disk: Disk, folder: str, out: Recovered) -> None:
    """Write the record. If the disk is full, the older one may stay, as after a crash, unless it demands more."""
    try:
        save_newest(disk, folder, out.end)
    except Refused as refused:
        written, end = out.newest, out.end
        if refused.code is not Code.NO_SPACE or (written.number, written.length_bytes) > (end.number, end.length_bytes):
            raise
        _log.warning(
            "%s: no room for the record of the log's end: %s. Nothing is lost, and it will be written when the log is "
            "closed. Free space on the disk", folder, refused,
        )  # fmt: skip
        return
    out.newest = out.end


def _is_stranded(out: Recovered) -> bool:
    """Whether the newest segment has no entry and was begun after entries that the log lost. These come back in a later
    segment, with a lower first index."""
    if len(out.segments) < 2:
        return False
    info, last = out.segments[-1], out.index.terms.last
    header = out.headers[info.number]
    follows = info.first_index <= out.last_index + 1
    return info.last_index < info.first_index and not (follows and header.after in (None, last))
