"""A look at a long batch before it is parsed: a message or an entry of two bytes becomes an object of a hundred."""

from __future__ import annotations

from nyala.replica.rpc import pb, wire_fields
from nyala.replica.types import limits

_MESSAGES = pb.PeerBatch.MESSAGES_FIELD_NUMBER
_APPEND = pb.RaftMessage.APPEND_ENTRIES_FIELD_NUMBER
_ENTRIES = pb.AppendEntries.ENTRIES_FIELD_NUMBER


def too_many_parts(body: bytes) -> str:
    """Why `body` is no batch that a server sends, by the number of its messages and entries; empty if it may be one.

    The time of the look is bounded as well: it ends with the first part too many.
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
    """Where the fields `wanted` of one message are; ValueError if they are more than `most`, or all fields too many."""
    found: list[tuple[int, int]] = []
    for position, (number, begin, stop) in enumerate(wire_fields(body, at, end), 1):
        if begin and number == wanted:
            found.append((begin, stop))
            if len(found) > most:
                raise ValueError(f"more than {most} messages or entries")
        if position >= most + limits.PEER_BATCH_MESSAGES_MAX:
            raise ValueError("its fields are too many")
    return found
