"""What is checked of an entry before it goes into the masters' log: an entry there is applied on every master. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from google.protobuf import json_format

from nyala.replica.policy import WishKind
from nyala.replica.types import Corruption, Entry, EntryKind, ReplicaError, is_uuid, limits, parse_json
from nyala.schemas import decode

from ..catalog.catalog import Record, decode_change
from ..catalog.tables import first_config, known_config, table_from_record
from ..tablets.view import wish_from_record

Fits = Callable[[object], bool]


def _text(value: object) -> bool:
    return isinstance(value, str)


def _uuid(value: object) -> bool:
    return isinstance(value, str) and is_uuid(value)


def _number(value: object) -> bool:
    return type(value) is int and 0 <= value <= limits.NUMBER_MAX


def _term(value: object) -> bool:
    return type(value) is int and 0 <= value <= limits.RAFT_TERM_MAX


def _small(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _members(value: object) -> bool:
    if not isinstance(value, list) or not 0 < len(value) <= limits.CONFIG_MEMBERS_MAX:
        return False
    return all(isinstance(m, dict) and _text(m.get("uuid")) and _texts(m.get("addresses")) for m in value)


def _config(value: object) -> bool:
    if not isinstance(value, dict) or not _members(value.get("members")) or not _flag(value.get("unsafe")):
        return False
    decision = value.get("decision")
    two = isinstance(decision, list) and len(decision) == 2 and all(map(_number, decision))
    marks = ("votes", "promote", "holds_data", "replace")
    whole = all(_flag(m.get(mark)) for m in value["members"] for mark in marks)
    return two and whole and _term(value.get("term")) and _number(value.get("index"))


def _kind(value: object) -> bool:
    return value in [kind.value for kind in WishKind]


NEEDED: Mapping[str, Mapping[str, Fits]] = {
    "table": {"name": _text, "replication_factor": _small},
    "name": {"table_id": _text},
    "tablet": {"table_id": _text, "bucket": _small, "range_pos": _small, "members": _members},
    "source": {
        **dict.fromkeys(("table_id", "table", "topic", "cluster_id", "topic_id", "owner_run"), _text),
        **dict.fromkeys(("generation", "start", "done", "owner_deadline_us"), _number),
        "kafka_partition": _small,
    },
    "wish": {
        **dict.fromkeys(("wish_id", "from_uuid", "to_uuid", "plan_id", "reason"), _text),
        "kind": _kind,
        "votes": _flag,
        "deadline_us": _number,
        "proposal": _flag,
    },
    "retired": {"since_us": _number, "reason": _text, "tablets_at_first": _small},
    "request": {"table_id": _text},
    "desired": {"changes": _number},
    "cluster": {"id": _uuid},
    "master": {"takeover": _number},
}
"""By the first part of a key, the fields that every build has written into such a record, and what they are."""

KNOWN: Mapping[str, Mapping[str, Fits]] = {
    "tablet": {
        **dict.fromkeys(("dropped_us", "gone_us", "wishes"), _number),
        "replication_factor": _small,
        "formed": _flag,
        "replaced_by": _text,
        "holders": _texts,
        "config": _config,
    },
    "source": {"retired": _flag},
    "wish": {"witness": _flag, "cancelled": _flag},
}
"""Fields that such a record may have besides. Others, and keys of other kinds, are a later build's: they are kept."""

_READERS: Mapping[str, Callable[[Record], object]] = {
    "table": table_from_record,
    "tablet": lambda record: (first_config(record), known_config(record)),
    "wish": wish_from_record,
}


def unfit_record(key: str, record: Record) -> str:
    """Why this build could not read the record of that key, by its fields alone; empty if it could."""
    group, _, rest = key.partition("/")
    needed, known = NEEDED.get(group, {}), KNOWN.get(group, {})
    if len(key) > 4 * limits.NAME_LENGTH_MAX + limits.TOKEN_LENGTH_MAX or (needed and group != "desired" and not rest):
        return f"the key {key[:80]!r} is none that a master writes"
    for field, fits in needed.items():
        if field not in record:
            return f"the record {key[:80]!r} lacks {field!r}"
        if not fits(record[field]):
            return f"the record {key[:80]!r} has no possible {field!r}"
    for field, fits in known.items():
        if field in record and not fits(record[field]):
            return f"the record {key[:80]!r} has no possible {field!r}"
    try:
        json.dumps(record, ensure_ascii=False).encode()  # half of a surrogate pair is no text
        _READERS.get(group, dict)(record)
    except (ValueError, TypeError, KeyError, ReplicaError, json_format.Error) as error:
        return f"the record {key[:80]!r} cannot be read: {ascii(error)[:200]}"
    return ""


def unfit_entry(entry: Entry) -> str:
    """Why the catalog could not apply `entry`, by its bytes alone; empty if it could."""
    if entry.kind is not EntryKind.CATALOG:
        known = entry.kind in (EntryKind.NOOP, EntryKind.CONFIG)
        return "" if known else "the catalog has no entries of this kind"
    if entry.payload:
        return "an entry without rows has a payload"
    try:
        puts, _, _ = decode_change(entry)
        for put in decode("catalog_change", entry.meta)["puts"]:
            parse_json(put["value"], "a record of the catalog")
    except (Corruption, ReplicaError) as error:
        return str(error)
    return next(filter(None, (unfit_record(key, record) for key, record in puts.items())), "")
