"""The one Avro form of each value that several folders write or read: configs, and the records of the masters' topics.

The fields of a value are the fields of its schema, so one function writes them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from nyala.replica.types import (
    Action,
    Address,
    ConfigEdit,
    Corruption,
    Decision,
    EditKind,
    EventKind,
    HistoryEvent,
    InvariantViolation,
    LaterFormat,
    Member,
    OpId,
    Outcome,
    Proposal,
    RaftConfig,
    ReplicaReport,
    Report,
    Result,
    Subject,
    Wanted,
)

from .loader import encode

TopicRecord = Proposal | Decision | Outcome | Report | HistoryEvent
T = TypeVar("T", bound=Member | TopicRecord)


def to_avro(value: Any) -> Any:
    """Return the dict that the writer of Avro needs for a value: the fields of a frozen dataclass or OpId, all the way
    down.

    Reserved bytes are left out, so that the writer writes empty ones.
    """
    if isinstance(value, OpId):
        return value._asdict()
    if isinstance(value, tuple):
        return [to_avro(each) for each in value]
    return {f.name: to_avro(getattr(value, f.name)) for f in fields(value)} if is_dataclass(value) else value


def from_avro(kind: type[T], found: Mapping[str, Any]) -> T:
    """Return the value of a decoded datum of its schema; InvariantViolation if it is no possible one."""
    return kind(**{f.name: _READ[f.name](found[f.name]) if f.name in _READ else found[f.name] for f in fields(kind)})


_READ: dict[str, Callable[[Any], Any]] = {
    "addresses": lambda found: tuple(Address(**each) for each in found),
    "config_opid": lambda found: OpId(**found),
    "wanted": Wanted,
    "action": Action,
    "edits": lambda found: tuple(ConfigEdit(EditKind(e["kind"]), from_avro(Member, e["member"])) for e in found),
    "subject": Subject,
    "result": Result,
    "kind": EventKind,
    "catalog_opid": lambda found: OpId(**found),
    "after": lambda found: OpId(**found),
    "members": lambda found: tuple(from_avro(Member, each) for each in found),
    "replicas": lambda found: tuple(ReplicaReport(**each) for each in found),
}
"""By a field's name, which has one meaning in all of them, how the field is read if its value must be converted."""


def encode_record(record: TopicRecord) -> bytes:
    """Return the value of a record on the topic of its kind."""
    return encode(schema_of(type(record)), to_avro(record))


def schema_of(kind: type[object]) -> str:
    """Return the name of the schema of these records."""
    return kind.__name__.removesuffix("Event").lower()


def config_to_avro(config: RaftConfig) -> dict[str, Any]:
    """Return the dict of Avro record `RaftConfig`."""
    return {
        "opid": to_avro(config.opid),
        "members": to_avro(config.members),
        "decision_term": config.decision[0],
        "decision_version": config.decision[1],
        "unsafe": config.unsafe,
    }


def config_from_avro(value: Mapping[str, Any]) -> RaftConfig:
    """Do the inverse of `config_to_avro`; Corruption if the fields contradict each other, LaterFormat if one is
    reserved."""
    try:
        if value["reserved"] or any(member["reserved"] for member in value["members"]):
            raise LaterFormat("a config uses fields that this build does not know")
        return RaftConfig(
            opid=OpId(**value["opid"]),
            members=tuple(from_avro(Member, each) for each in value["members"]),
            decision=(value["decision_term"], value["decision_version"]),
            unsafe=value["unsafe"],
        )
    except InvariantViolation as error:
        raise Corruption("a stored config contradicts itself", cause=str(error)) from error
