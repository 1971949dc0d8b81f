"""The one reader of the masters' topics: it returns a usable record, or the reason why there is none.

Every process that reaches Kafka may write there. So every function here is pure, returns an answer for every key and
value, and costs time and memory in proportion to their bytes at most. A caller skips an `Unusable`, counts it, and goes
on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any, TypeVar

from nyala.replica.types import (
    Address,
    ConfigEdit,
    Decision,
    EventKind,
    HistoryEvent,
    InvariantViolation,
    OpId,
    Outcome,
    Proposal,
    ReplicaReport,
    Report,
    kafka_topics,
    limits,
    printable,
)
from nyala.schemas import NoDatum, TopicRecord, decode_bounded, from_avro, schema_of


class Fault(StrEnum):
    """The reason why a record is not used. The values are shown to operators and are labels of metrics."""

    NO_VALUE = "no value"
    TOO_LARGE = "too large"
    OTHER_SCHEMA = "other schema"
    BAD_VALUE = "bad value"
    FAILED = "failed"
    """The record is well formed, and a defect of the reader's build stopped it from being carried out."""


@dataclass(frozen=True)
class Unusable:
    """A record that is not carried out. `fields`: those that could be read before the fault."""

    fault: Fault
    reason: str
    fields: Mapping[str, object] = field(default_factory=dict)


T = TypeVar("T", bound=TopicRecord)

TOPICS: dict[str, type[TopicRecord]] = {
    kafka_topics.PROPOSALS: Proposal,
    kafka_topics.DECISIONS: Decision,
    kafka_topics.OUTCOMES: Outcome,
    kafka_topics.REPORTS: Report,
    kafka_topics.HISTORY: HistoryEvent,
}
"""The kind of record on each topic, by the topic's name without its prefix."""


def read_record(kind: type[T], key: bytes | None, value: bytes | None) -> T | Unusable:
    """Return the record, or why it is not used. Its texts for operators are made printable, because they are shown in
    logs and on terminals.

    A null value deletes its key in a compacted topic. The caller handles that before it calls this.
    """
    if value is None:
        return Unusable(Fault.NO_VALUE, "the record has no value")
    if len(value) > limits.TOPIC_RECORD_BYTES_MAX:
        return Unusable(Fault.TOO_LARGE, f"the record has {len(value)} bytes, {limits.TOPIC_RECORD_BYTES_MAX} at most")
    try:
        read = decode_bounded(
            schema_of(kind), value, text_bytes_max=limits.TOPIC_TEXT_BYTES_MAX, items_max=limits.TOPIC_ITEMS_MAX
        )
    except NoDatum as error:
        return Unusable(Fault.OTHER_SCHEMA, f"{error}: is its sender of another version?", error.fields)
    try:
        found = from_avro(kind, read | {name: printable(read[name]) for name in _WORDS if name in read})
    except InvariantViolation as error:
        return Unusable(Fault.BAD_VALUE, str(error), read)
    problem = next(filter(None, (*_problems(found), _key_problem(key, found))), "")
    return Unusable(Fault.BAD_VALUE, problem, read) if problem else found


def _key_problem(key: bytes | None, found: TopicRecord) -> str:
    """Return why the key is wrong, or "". A compacted topic keeps the last record of each key, so a record under
    another key would stay beside the right one for ever."""
    match found:
        case Report():
            own = found.tablet_id or f"server:{found.server_uuid}"
        case Decision() | HistoryEvent():
            own = found.tablet_id
        case _:
            return ""
    return "" if key == own.encode() else f"the key is {_shown(key)}, the record is of {_shown(own)}"


def _shown(value: object) -> str:
    return repr(value)[:80]


def _name(what: str, text: str) -> str:
    if len(text) > limits.TOPIC_NAME_CHARS_MAX:
        return f"{what} has {len(text)} characters, {limits.TOPIC_NAME_CHARS_MAX} at most"
    return "" if text.isprintable() else f"{what} {_shown(text)} has characters that cannot be shown"


def _place(what: str, text: str) -> str:
    if not text:
        return ""
    try:
        address = Address.parse(text)
    except ValueError as error:
        return f"{what} {_shown(text)} is no address: {str(error)[:80]}"
    return _name(what, address.host)


_NEEDED: dict[type, tuple[str, ...]] = {
    Proposal: ("proposal_id", "tablet_id", "to_uuid"),
    Decision: ("tablet_id",),
    ReplicaReport: ("uuid",),
}
_OF_NO_TABLET = (EventKind.SNAPSHOT_BEGAN, EventKind.SNAPSHOT_ENDED, EventKind.GAP)
_WORDS = ("reason", "message")
"""Fields that people read; `decode_bounded` has bounded them."""


def _problems(found: Any) -> Iterator[str]:
    """Yield what is wrong with the fields of a well-formed record, or of a value in it; empty texts are never wrong."""
    yield from (f"{name} is empty" for name in _NEEDED.get(type(found), ()) if not getattr(found, name))
    if isinstance(found, Report) and not found.tablet_id and not found.server_uuid:
        yield "it names neither a tablet nor a server"
    if isinstance(found, HistoryEvent) and bool(found.tablet_id) is (found.kind in _OF_NO_TABLET):
        yield f"an event of kind {found.kind} " + ("names a tablet" if found.tablet_id else "names no tablet")
    for field_of in fields(found):
        yield from _value_problems(field_of.name, getattr(found, field_of.name))


def _value_problems(name: str, value: Any) -> Iterator[str]:
    match value:
        case str() if name not in _WORDS:
            yield _place(name, value) if name.endswith("address") else _name(name, value)
        case int():
            yield f"{name} is negative: {value}" if value < 0 else ""
        case Address():
            yield _place(name, str(value))
        case OpId():
            yield f"{name} {value} is no position of a log" if min(value) < 0 else ""
        case tuple():
            owners = [each.member if isinstance(each, ConfigEdit) else each for each in value]
            uuids = [each.uuid for each in owners if not isinstance(each, Address)]
            yield f"{name} names a server twice" if len(set(uuids)) != len(uuids) else ""
            for each in value:
                yield from _value_problems(name, each)
        case Mapping():
            for key, number in value.items():
                yield _name(f"a key of {name}", key)
                yield f"{key} is negative: {number}" if number < 0 else ""
        case _ if is_dataclass(value):
            yield from _problems(value)
