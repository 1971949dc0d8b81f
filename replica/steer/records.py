"""The one reader of what stands on the masters' topics: a usable record, or the reason why it is none.

Anybody who reaches Kafka may write there. So every function here is pure, gives an answer for every key and value, and
costs time and memory in proportion to their bytes at most. The reader of a topic skips an `Unusable`, counts it, and
goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from nyala.replica.base import Address, kafka_topics, limits
from nyala.schemas import NoDatum, decode_bounded


class Fault(StrEnum):
    """Why a record is not used. The values are shown to operators and are labels of metrics."""

    NO_VALUE = "no value"
    TOO_LARGE = "too large"
    OTHER_SCHEMA = "other schema"
    BAD_VALUE = "bad value"
    FAILED = "failed"
    """The record is well formed, and a defect of the reader's build stopped it from being carried out."""


@dataclass(frozen=True)
class Unusable:
    """A record that nobody carries out. `fields`: those that could be read before the fault."""

    fault: Fault
    reason: str
    fields: Mapping[str, Any] = field(default_factory=dict)


Record = dict[str, Any]


def read_record(topic: str, key: bytes | None, value: bytes | None) -> Record | Unusable:
    """The record on `topic`, which is one of `kafka_topics` without its prefix, or why it is not used.

    A null value of a compacted topic deletes its key: who reads one asks for that first.
    """
    if value is None:
        return Unusable(Fault.NO_VALUE, "the record has no value")
    if len(value) > limits.TOPIC_RECORD_BYTES_MAX:
        return Unusable(Fault.TOO_LARGE, f"the record has {len(value)} bytes, {limits.TOPIC_RECORD_BYTES_MAX} at most")
    try:
        found = decode_bounded(
            topic.removesuffix("s"),
            value,
            text_bytes_max=limits.TOPIC_TEXT_BYTES_MAX,
            items_max=limits.TOPIC_ITEMS_MAX,
        )
    except NoDatum as error:
        return Unusable(Fault.OTHER_SCHEMA, f"{error}: is its sender of another version?", error.fields)
    problem = next(filter(None, _problems(topic, key, found)), "")
    return Unusable(Fault.BAD_VALUE, problem, found) if problem else found


def _problems(topic: str, key: bytes | None, found: Record) -> list[str]:
    """What is wrong with a well-formed record, in no order; empty texts count for nothing."""
    return [*_CHECKS[topic](found), _key_problem(topic, key, found)]


def _key_problem(topic: str, key: bytes | None, found: Record) -> str:
    """A compacted topic keeps the last record of each key, so a record under another key would be kept beside the
    true one, and nobody would delete it."""
    if topic not in kafka_topics.COMPACTED:
        return ""
    own = found["tablet_id"] or f"server:{found.get('server_uuid', '')}"
    return "" if key == own.encode() else f"the key is {_shown(key)}, the record is of {_shown(own)}"


def _shown(value: object) -> str:
    return repr(value)[:80]


def _name(what: str, text: str, *, needed: bool = False) -> str:
    if needed and not text:
        return f"{what} is empty"
    if len(text) > limits.TOPIC_NAME_CHARS_MAX:
        return f"{what} has {len(text)} characters, {limits.TOPIC_NAME_CHARS_MAX} at most"
    if not text.isprintable():
        return f"{what} {_shown(text)} has characters that cannot be shown"
    return ""


def _place(what: str, text: str) -> str:
    if not text:
        return ""
    try:
        address = Address.parse(text)
    except ValueError as error:
        return f"{what} {_shown(text)} is no address: {str(error)[:80]}"
    return _name(what, address.host)


def _count(what: str, number: int) -> str:
    return f"{what} is negative: {number}" if number < 0 else ""


def _opid(opid: Mapping[str, int]) -> list[str]:
    return [_count("the config's term", opid["term"]), _count("the config's index", opid["index"])]


def _uuids_differ(what: str, uuids: list[str]) -> str:
    return f"{what} are named twice" if len(set(uuids)) != len(uuids) else ""


def _of_proposal(found: Record) -> list[str]:
    return [
        _name("the proposal's id", found["proposal_id"], needed=True),
        _name("the plan's id", found["plan_id"]),
        _name("the tablet's id", found["tablet_id"], needed=True),
        _name("the server to leave", found["from_uuid"]),
        _name("the server to go to", found["to_uuid"], needed=True),
        _count("the deadline", found["deadline_us"]),
        *_opid(found["config_opid"]),
    ]


def _of_decision(found: Record) -> list[str]:
    members = [edit["member"] for edit in found["edits"]]
    problems = [
        _name("the tablet's id", found["tablet_id"], needed=True),
        _name("the table's id", found["table_id"]),
        _name("the target", found["target_uuid"]),
        _name("the plan's id", found["plan_id"]),
        _name("the leader's uuid", found["leader_uuid"]),
        _place("the leader's address", found["leader_address"]),
        _count("the catalog's term", found["catalog_term"]),
        _count("the version", found["version"]),
        _count("the deadline", found["deadline_us"]),
        *_opid(found["config_opid"]),
        _uuids_differ("members", [m["uuid"] for m in members]),
    ]
    for member in members:
        problems.append(_name("a member's uuid", member["uuid"], needed=True))
        whole = member["votes"] and member["holds_data"]
        problems.append("a voter with data is to be promoted" if whole and member["promote"] else "")
        for address in member["addresses"]:
            problems.append(_place("a member's address", f"{address['host']}:{address['port']}"))
    return problems


def _of_outcome(found: Record) -> list[str]:
    names = ("subject_id", "plan_id", "tablet_id", "executor")
    numbers = ("code", "at_us", "catalog_term", "version")
    return [*(_name(each, found[each]) for each in names), *(_count(each, found[each]) for each in numbers)]


def _of_report(found: Record) -> list[str]:
    numbers = ("range_pos", "bucket", "replication_factor", "term", "catalog_term", "at_us")
    names = ("tablet_id", "table_id", "table_name", "leader_uuid", "server_uuid", "location")
    replicas = found["replicas"]
    problems = [
        *(_name(each, found[each]) for each in names),
        *(_count(each, found[each]) for each in numbers),
        *_opid(found["config_opid"]),
        _place("the server's address", found["server_address"]),
        _uuids_differ("replicas", [r["uuid"] for r in replicas]),
        "" if found["tablet_id"] or found["server_uuid"] else "it names neither a tablet nor a server",
    ]
    for replica in replicas:
        problems += [
            _name("a replica's server", replica["uuid"], needed=True),
            _name("a replica's location", replica["location"]),
            _place("a replica's address", replica["address"]),
            *(_count(f"a replica's {each}", replica[each]) for each in ("data_state", "bytes_on_disk", "rows")),
        ]
    return problems


_CHECKS: dict[str, Callable[[Record], list[str]]] = {
    kafka_topics.PROPOSALS: _of_proposal,
    kafka_topics.DECISIONS: _of_decision,
    kafka_topics.OUTCOMES: _of_outcome,
    kafka_topics.REPORTS: _of_report,
}
