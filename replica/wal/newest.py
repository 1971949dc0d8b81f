"""How far a log is known to reach, kept beside the segments: else a log that lost its end would only look shorter.

The record names the newest segment, how much of it is durable, and the last entry in it or before it. It is written
when a segment has its name, before the first entry in it counts as appended; when a log is closed; and when one is
opened that reaches further or less far. It is never written for an append. A death in between leaves an older record,
which asks for less.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from nyala.replica.types import ZERO_OPID, Corruption, Disk, OpId

from .format import seal, unseal

NEWEST_NAME = ".newest-segment"
"""Never listed: who counts or copies segments has nothing to do with it. A log of an earlier build has none."""
_NUMBER_ONLY = b"NYLANW01"
"""Of earlier builds, whose record says no more than the number."""
_MAGIC = b"NYLANW02"
_NUMBER_BODY = struct.Struct("<8sq")
_BODY = struct.Struct("<8sqqqq")
"""Sealed, as in every version: so a record of a later build can be told from a damaged one."""
_GIVE_UP = f"If no other server has the tablet, remove {NEWEST_NAME} beside the segments to "


class Newest(NamedTuple):
    """What a log's files hold for certain; nothing if there is no record."""

    number: int = 0
    """Of the newest segment."""
    length_bytes: int = 0
    """Its content up to there is whole blocks, and durable. Above the header's length it is all of its content: nothing
    is appended to a segment once the log was closed, or was opened again."""
    last: OpId = ZERO_OPID
    """The entry that was written last, at that length. It may since count as truncated."""


def save_newest(disk: Disk, folder: str, newest: Newest) -> None:
    """Durable on return."""
    body = _BODY.pack(_MAGIC, newest.number, newest.length_bytes, *newest.last)
    disk.replace(f"{folder}/{NEWEST_NAME}", seal(body))


def read_newest(disk: Disk, folder: str) -> Newest:
    """Nothing if there is no record, or one of a later build; opening writes it then.

    Corruption if it does not read back: it is replaced in one step, so no crash leaves half of one.
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
    """Corruption if the log once had a later segment than those: what was in it may have been acknowledged."""
    last = max(numbers, default=0)
    if newest.number > last:
        what = (
            "the newest segment of a log is missing, and with it entries that may have been acknowledged; a copy from "
            f"the tablet's leader heals this replica, or put the file back. {_GIVE_UP}give up what it held"
        )
        raise Corruption(what, newest=newest.number, found=last)
