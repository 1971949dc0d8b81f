"""Distinguishes sectors of a block that are zero because its entries contain zeros from sectors that a power cut lost.

A lost sector has the zeros of the preallocated file. An entry with a long run of zeros is flagged. A block with such
an entry ends in a trailer, which counts the block's own zero sectors. It is in the `reserved` field of the last entry.
A block without a flagged entry has no zero sector.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import google_crc32c

SECTOR_BYTES = 512
"""Bytes that a disk writes entirely or not at all; larger units are multiples of it, and aligned to it."""
ZERO_RUN_FLAG = 1
"""Flag of an entry with a long run of zeros, so that its block ends in a trailer. Older builds refuse such an
entry."""
TRAILER_BYTES = 17
END_BYTES = 1 + TRAILER_BYTES + 16
"""Bytes from the trailer's length to the end of the block's marker."""

_STRIDE = 96
_RUN = bytes(_STRIDE)
_LARGE_BYTES = 4096
_GUESSES = 8
_ZERO_SECTOR = bytes(SECTOR_BYTES)
_ZERO_SECTORS = bytes(4 * SECTOR_BYTES)
_BODY = struct.Struct("<IQ")
_PLACE = struct.Struct("<QQQ")
_CRC = struct.Struct("<I")
_LAST = b"Z"
"""The last byte of a trailer, so that none ends in a zero byte. The last entry of every block without a trailer
does."""


class ZeroSectors(NamedTuple):
    """The zero sectors of a block, up to its last END_BYTES."""

    zeros: int
    """The number of sectors that are all zero."""
    lone: int
    """The xor over all sectors with a single byte that is not zero, of: offset in the block << 8 | the byte."""


NO_ZEROS = ZeroSectors(0, 0)


def has_run(data: bytes) -> bool:
    """Whether `data` has a long run of zeros. A sector with less than two other bytes has 256 zeros in a row, of which
    this finds 192, because a few may be in fields beside `data`."""
    if len(data) < 2 * _STRIDE:
        return False
    if len(data) > _LARGE_BYTES:
        # Every 96th byte decides most cases, at half the cost.
        some = data[::_STRIDE]
        at = some.find(b"\0\0")
        for _ in range(_GUESSES):
            if at < 0:
                return False
            if data.startswith(_RUN, at * _STRIDE):
                return True
            at = some.find(b"\0\0", at + 1)
    return _RUN in data


def count_zero_sectors(parts: Sequence[bytes], byte_offset: int) -> ZeroSectors:
    """Count the zero sectors that end within `parts`, which follow one another in a file from `byte_offset` on.

    The part of the first sector within `parts` counts for `zeros` if it has two bytes or more: in a block, such a part
    is never zero.
    """
    zeros = lone = 0
    position, held = byte_offset, b""

    def count(sector: bytes, end: int) -> None:
        nonlocal zeros, lone
        rest = sector.lstrip(b"\0")
        if not rest:
            zeros += len(sector) > 1
        elif len(sector) == SECTOR_BYTES and not rest[1:].strip(b"\0"):
            lone ^= (end - len(rest) - byte_offset) << 8 | rest[0]

    for part in parts:
        begin = min(-position % SECTOR_BYTES, len(part))
        held += part[:begin]
        position += begin
        if position % SECTOR_BYTES:
            continue
        count(held, position)
        whole_end = len(part) - (len(part) - begin) % SECTOR_BYTES
        at = begin
        while (hit := part.find(_RUN, at, whole_end)) >= 0:
            at = hit - (hit - begin) % SECTOR_BYTES
            for many in (_ZERO_SECTORS, _ZERO_SECTOR):
                while part.startswith(many, at, whole_end):
                    zeros += len(many) // SECTOR_BYTES
                    at += len(many)
            if at < whole_end:
                count(part[at : at + SECTOR_BYTES], position + at - begin + SECTOR_BYTES)
                at += SECTOR_BYTES
        held = part[whole_end:]
        position += len(part) - begin
    return ZeroSectors(zeros, lone)


def encode_trailer(found: ZeroSectors, segment: int, start: int, end: int) -> bytes:
    """The trailer of a block that lies at [start, end) of a segment."""
    body = _BODY.pack(*found)
    return body + _CRC.pack(google_crc32c.value(_PLACE.pack(segment, start, end) + body)) + _LAST


def decode_trailer(data: bytes, segment: int, start: int, end: int) -> ZeroSectors | None:
    """The content of a trailer; None if it is damaged, or was not written for that block and place."""
    if len(data) != TRAILER_BYTES:
        return None
    found = ZeroSectors(*_BODY.unpack_from(data))
    return found if encode_trailer(found, segment, start, end) == data else None


def restore_lone_byte(rest: bytes, content: int, byte_offset: int, segment: int, marker: bytes) -> tuple[bool, bytes]:
    """(whether a sector of a damaged block was certainly never written, the block with a lone lost byte restored).

    The block is `rest[:content]`, its last byte is the last that is not zero, and it begins at `byte_offset`. A
    damaged byte alone never makes the block look unwritten: it makes a sector zero only if the sector had no other
    byte. Then the trailer tells which byte that was, and it is restored.
    """
    last_sector = (byte_offset + content - 1) // SECTOR_BYTES * SECTOR_BYTES - byte_offset
    if not marker.endswith(rest[max(0, last_sector) : content][-len(marker) :]):
        return False, rest  # Its end is lost or damaged; the frame decides which.
    end_bytes_at = max(0, content - END_BYTES)
    at = last_sector
    while at + SECTOR_BYTES > end_bytes_at and at + SECTOR_BYTES > 1:
        if not any(rest[max(0, at) : min(at + SECTOR_BYTES, content)]):
            return True, rest
        at -= SECTOR_BYTES
    if rest[max(0, content - len(marker)) : content] != marker:
        return False, rest
    recorded = _read_trailer(rest, content, byte_offset, segment, len(marker))
    if recorded is None:
        return False, rest
    now = count_zero_sectors([rest[:end_bytes_at]], byte_offset)
    if now.zeros == recorded.zeros + 1 and now.lone != recorded.lone:
        place, byte = divmod(now.lone ^ recorded.lone, 256)
        return False, rest[:place] + bytes([byte]) + rest[place + 1 :] if place < end_bytes_at else rest
    return now.zeros > recorded.zeros, rest


def _read_trailer(rest: bytes, content: int, byte_offset: int, segment: int, marker_bytes: int) -> ZeroSectors | None:
    end = content - marker_bytes
    trailer = rest[max(0, end - TRAILER_BYTES) : end]
    if any(trailer[-1:]):
        return decode_trailer(trailer, segment, byte_offset, byte_offset + content)
    # Either the block has no trailer, or the last byte of its trailer was damaged.
    return decode_trailer(trailer[:-1] + _LAST, segment, byte_offset, byte_offset + content) or NO_ZEROS
