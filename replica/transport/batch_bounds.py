"""Counts the parts of a long batch before it is parsed: a message or an entry of two bytes becomes an object of a
hundred."""

from __future__ import annotations

from nyala.replica.rpc import pb, wire_fields
from nyala.replica.types import limits

_MESSAGES = pb.PeerBatch.MESSAGES_FIELD_NUMBER
_APPEND = pb.RaftMessage.APPEND_ENTRIES_FIELD_NUMBER
_ENTRIES = pb.AppendEntries.ENTRIES_FIELD_NUMBER


def too_many_parts(body: bytes) -> str:
    """The reason why no server sends `body`, by the number of its messages and entries; empty if a server may.

    The count itself takes bounded time: it ends at the first part above the bound.
    """
    if len(body) <= limits.PEER_BATCH_SMALL_BYTES:
        return ""
    try:
        messages = _parts(body, 0, len(body), _MESSAGES, limits.PEER_BATCH_MESSAGES_MAX)
        room = limits.PEER_BATCH_ENTRIES_MAX
        for begin, end in messages:
            for append_begin, append_end in _parts(body, begin, end, _APPEND, 1):
                room -= len(_parts(body, append_begin, append_end, _ENTRIES, room))
    except ValueError as error:
        return str(error)
    return ""


def _parts(body: bytes, at: int, end: int, wanted: int, most: int) -> list[tuple[int, int]]:
    """The places of the fields `wanted` of one message; ValueError if there are more than `most`, or too many fields in
    all."""
    found: list[tuple[int, int]] = []
    for position, (number, begin, stop) in enumerate(wire_fields(body, at, end), 1):
        if begin and number == wanted:
            found.append((begin, stop))
            if len(found) > most:
                raise ValueError(f"more than {most} messages or entries")
        if position >= most + limits.PEER_BATCH_MESSAGES_MAX:
            raise ValueError("its fields are too many")
    return found
