"""The record `.newest-segment`: the durable end of a log. Without it, a log that lost its end would only look shorter.

The record names the newest segment, how much of it is durable, and the last entry in it or before it. It is written
when a segment has its name, before the first entry in it counts as appended; when a log is closed; and when a log is
opened whose end differs from the record. It is never written for an append. A crash in between leaves an older record,
which demands less of the log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from nyala.replica.types import ZERO_OPID, Corruption, Disk, OpId

from .format import seal, unseal

NEWEST_NAME = ".newest-segment"
"""The file's name. `listdir` never lists it, so it is not counted or copied as a segment. A log of an earlier build has
none."""
_NUMBER_ONLY = b"NYLANW01"
"""The magic of earlier builds, whose record has only the number."""
_MAGIC = b"NYLANW02"
_NUMBER_BODY = struct.Struct("<8sq")
_BODY = struct.Struct("<8sqqqq")
"""Sealed with a CRC, as in every version, so that a record of a later build can be told from a damaged one."""
_GIVE_UP = f"If no other server has the tablet, remove {NEWEST_NAME} beside the segments to "


class Newest(NamedTuple):
    """The part of a log that is certainly on disk; all fields are zero if there is no record."""

    number: int = 0
    """The number of the newest segment."""
    length_bytes: int = 0
    """Up to there, its content is whole blocks, and durable. If it is above the header's length, it is all of the
    content: nothing is appended to a segment after the log was closed or opened again."""
    last: OpId = ZERO_OPID
    """The entry that was written last, at that length. It may have been truncated since."""


def save_newest(disk: Disk, folder: str, newest: Newest) -> None:
    """Replace the record; durable on return."""
    body = _BODY.pack(_MAGIC, newest.number, newest.length_bytes, *newest.last)
    disk.replace(f"{folder}/{NEWEST_NAME}", seal(body))


def read_newest(disk: Disk, folder: str) -> Newest:
    """The record; zeros if there is none, or one of a later build (then opening writes it).

    Raises Corruption if it is damaged: it is replaced in one step, so no crash leaves half of one.
    """
    path = f"{folder}/{NEWEST_NAME}"
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return Newest()
    if (body := unseal(data)) is not None:
        if body.startswith(_MAGIC) and len(body) == _BODY.size:
            _, number, length_bytes, term, index = _BODY.unpack(body)
            return Newest(number, length_bytes, OpId(term, index))
        if body.startswith(_NUMBER_ONLY) and len(body) == _NUMBER_BODY.size:
            return Newest(_NUMBER_BODY.unpack(body)[1])
        if len(body) >= len(_MAGIC) and not body.startswith((_MAGIC, _NUMBER_ONLY)):
            return Newest()
    what = (
        "the record of a log's end does not read back, so entries may be missing that were acknowledged; a copy from "
        f"the tablet's leader heals this replica. {_GIVE_UP}go on with the entries that are there"
    )
    raise Corruption(what, path=path, bytes=len(data))


def need_newest(newest: Newest, numbers: Iterable[int]) -> None:
    """Raise Corruption if the log once had a later segment than `numbers`: its entries may have been acknowledged."""
    last = max(numbers, default=0)
    if newest.number > last:
        what = (
            "the newest segment of a log is missing, and with it entries that may have been acknowledged; a copy from "
            f"the tablet's leader heals this replica, or put the file back. {_GIVE_UP}give up what it held"
        )
        raise Corruption(what, newest=newest.number, found=last)
