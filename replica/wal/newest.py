"""The number of a log's newest segment, kept beside the segments: else a log that lost it would only look shorter.

The record is written when a segment has its name, durably, and before the first entry in it counts as appended: once a
segment, never for an append. A death in between leaves the number of the segment before, which asks for less.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import google_crc32c

from nyala.replica.base import Corruption, Disk

NEWEST_NAME = ".newest-segment"
"""Never listed: who counts or copies segments has nothing to do with it. A log of an earlier build has none."""
_MAGIC = b"NYLANW01"
_BODY = struct.Struct("<8sq")
_CRC = struct.Struct("<I")


def save_newest(disk: Disk, folder: str, number: int) -> None:
    """Durable on return."""
    body = _BODY.pack(_MAGIC, number)
    disk.replace(f"{folder}/{NEWEST_NAME}", body + _CRC.pack(google_crc32c.value(body)))


def read_newest(disk: Disk, folder: str) -> int:
    """The number; 0 if there is no record, or none that reads back: it says nothing then, and opening renews it."""
    try:
        data = disk.read(f"{folder}/{NEWEST_NAME}")
    except FileNotFoundError:
        return 0
    body = data[: _BODY.size]
    if len(data) != _BODY.size + _CRC.size or _CRC.unpack(data[_BODY.size :])[0] != google_crc32c.value(body):
        return 0
    magic, number = _BODY.unpack(body)
    return int(number) if magic == _MAGIC else 0


def need_newest(newest: int, numbers: Iterable[int]) -> None:
    """Corruption if the log once had a later segment than those: what was in it may have been acknowledged."""
    last = max(numbers, default=0)
    if newest > last:
        what = (
            "the newest segment of a log is missing, and with it entries that may have been acknowledged; a copy from "
            "the tablet's leader heals this replica, or put the file back. If no other server has the tablet, remove "
            f"{NEWEST_NAME} beside the segments to give up what it held"
        )
        raise Corruption(what, newest=newest, found=last)
