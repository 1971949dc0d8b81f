"""Messages with single fields changed: to any value, or to one that no honest replica can have sent."""

from __future__ import annotations

from dataclasses import fields, replace
from random import Random
from typing import Any

from nyala.replica.raft import AppendEntries, AppendReply, Message, TimeoutNow, VoteReply, VoteRequest
from nyala.replica.types import Code, DataState, Entry, EntryKind, OpId

NUMBERS = (-(2**63), -1, 0, 1, 2, 3, 2**24, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1)


def mutated(rng: Random, message: Message) -> Message:
    """Return the message with one of its fields changed, except sender and receiver."""
    names = [field.name for field in fields(message) if not field.name.endswith("_uuid")]
    name = rng.choice(names)
    return replace(message, **{name: _other(rng, getattr(message, name))})


def _other(rng: Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, Code):
        return rng.choice(list(Code))
    if isinstance(value, DataState):
        return rng.choice(list(DataState))
    if isinstance(value, OpId):
        return rng.choice((OpId(_number(rng, value.term), value.index), OpId(value.term, _number(rng, value.index))))
    if isinstance(value, int):
        return _number(rng, value)
    if isinstance(value, str):
        return value * 5000 or "x" * 5000
    return _other_entries(rng, value)


def _number(rng: Random, value: int) -> int:
    return rng.choice((value - 1, value + 1, value + rng.randrange(2, 50), value * 2, rng.choice(NUMBERS)))


def _other_entries(rng: Random, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    if not entries:
        return (Entry(OpId(1, 1), EntryKind.NOOP, 1, 0, b"", b"", 0),)
    pos = rng.randrange(len(entries))
    entry = entries[pos]
    changed = rng.choice(
        (
            entry._replace(opid=_other(rng, entry.opid)),
            entry._replace(kind=rng.choice(list(EntryKind))),
            entry._replace(hybrid_time=_number(rng, entry.hybrid_time)),
            entry._replace(schema_id=_number(rng, entry.schema_id)),
            entry._replace(meta=rng.randbytes(rng.randrange(60))),
            entry._replace(kind=EntryKind.CONFIG, payload=b""),
        )
    )
    pieces = ((changed,), (), (entry, entry), (changed, entry))
    return (*entries[:pos], *rng.choice(pieces), *entries[pos + 1 :])


def impossible_ones(message: Message) -> list[Message]:
    """Return messages as close to this one as possible that no honest replica sends, whatever its receiver's state."""
    found: list[Message] = [
        replace(message, term=-1),
        replace(message, term=message.term + 2**31 + 2**20),
        replace(message, from_uuid=message.to_uuid),
    ]
    if isinstance(message, AppendEntries):
        found += [
            replace(message, prev=OpId(message.term + 1, 1), entries=()),
            replace(message, commit_index=-1),
            replace(message, round=-1),
            replace(message, safe_time=2**63),
        ]
        if message.entries:
            last = message.entries[-1]
            skipped = last._replace(opid=OpId(last.opid.term, last.opid.index + 2))
            later = last._replace(opid=OpId(message.term + 1, last.opid.index + 1))
            found += [replace(message, entries=(*message.entries, wrong)) for wrong in (skipped, later, last)]
            config = last._replace(kind=EntryKind.CONFIG, meta=b"\xff" * 30, payload=b"")
            found.append(replace(message, entries=(*message.entries[:-1], config)))
    elif isinstance(message, AppendReply):
        found += [
            replace(message, code=Code.GAP),
            replace(message, code=Code.OK, mismatch=False, conflict_index=0, last=OpId(message.term + 1, 1)),
            replace(message, applied_index=message.commit_index + 1, code=Code.OK),
            replace(message, round=-1),
        ]
    elif isinstance(message, VoteRequest):
        found += [replace(message, last=OpId(message.term, 1)), replace(message, pre_vote=True, transfer=True)]
    elif isinstance(message, VoteReply):
        found += [replace(message, granted=True, code=Code.ILLEGAL_STATE), replace(message, reason="x" * 2000)]
    elif isinstance(message, TimeoutNow):
        found.append(replace(message, last=OpId(message.term - 1, 1)))
    return found
