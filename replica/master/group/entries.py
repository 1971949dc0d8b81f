"""Checks an entry before it goes into the masters' log, because every master applies every entry of the log. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from types import NoneType
from typing import get_args, get_type_hints

from google.protobuf import json_format

from nyala.replica.policy import ChangeKind
from nyala.replica.rpc import info_from_json
from nyala.replica.types import (
    MAX_HYBRID_TIME,
    Corruption,
    Entry,
    EntryKind,
    Member,
    RaftConfig,
    ReplicaError,
    is_uuid,
    limits,
    parse_json,
)

from ..catalog.catalog import checked_record, decode_change
from ..catalog.records import SINGLE, TYPES, HybridTime, Json, Small, Table, Uuid, may_lack, write

Fits = Callable[[object], bool]


def _text(value: object) -> bool:
    return isinstance(value, str)


def _uuid(value: object) -> bool:
    return isinstance(value, str) and is_uuid(value)


def _up_to(most: int) -> Fits:
    return lambda value: type(value) is int and 0 <= value <= most


_number, _term, _small = map(_up_to, (limits.NUMBER_MAX, limits.RAFT_TERM_MAX, (1 << 31) - 1))
_time = _up_to(MAX_HYBRID_TIME)


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
    return value in [kind.value for kind in ChangeKind]


FITS: Mapping[object, Fits] = {
    str: _text,
    int: _number,
    bool: _flag,
    Small: _small,
    Uuid: _uuid,
    HybridTime: _time,
    ChangeKind: _kind,
    tuple[str, ...]: _texts,
    tuple[Member, ...]: _members,
    RaftConfig: _config,
}
"""The check of a field's JSON, by the field's type."""


def _fields(kind: type) -> dict[str, tuple[Fits, bool]]:
    """For each field of such a record, by its name: the check of its value, and whether every build has written it."""
    hints = get_type_hints(kind, include_extras=True)
    plain = {name: get_args(hint)[0] if NoneType in get_args(hint) else hint for name, hint in hints.items()}
    return {name: (FITS[hint], not may_lack(kind, name)) for name, hint in plain.items() if hint in FITS}


FIELDS = {group: _fields(kind) for group, kind in TYPES.items()}
"""By the first part of a key. Other fields, and keys of other kinds, are a later build's: they are kept."""


def unfit_record(key: str, record: Json) -> str:
    """The reason why this build could not apply the record of that key, judged by its fields alone; empty if it could.

    A feature level above this build's is refused, too. If it was in the log, it would end this master at each start.
    Without it, the master goes on until an operator upgrades it.
    """
    group, _, rest = key.partition("/")
    known = FIELDS.get(group, {})
    if len(key) > 4 * limits.NAME_LENGTH_MAX + limits.TOKEN_LENGTH_MAX or (known and group not in SINGLE and not rest):
        return f"the key {key[:80]!r} is none that a master writes"
    for field, (fits, needed) in known.items():
        if field not in record:
            if needed:
                return f"the record {key[:80]!r} lacks {field!r}"
        elif not fits(record[field]):
            return f"the record {key[:80]!r} has no possible {field!r}"
    try:
        json.dumps(record, ensure_ascii=False).encode()  # half of a surrogate pair is not a text
        if isinstance(found := checked_record(key, record), Table):
            info_from_json(write(found))
    except (ValueError, TypeError, KeyError, ReplicaError, json_format.Error) as error:
        return f"the record {key[:80]!r} cannot be read: {ascii(error)[:200]}"
    return ""


def unfit_entry(entry: Entry) -> str:
    """The reason why the catalog could not apply `entry`, judged by its bytes alone; empty if it could."""
    if entry.kind is not EntryKind.CATALOG:
        known = entry.kind in (EntryKind.NOOP, EntryKind.CONFIG)
        return "" if known else "the catalog has no entries of this kind"
    if entry.payload:
        return "an entry without rows has a payload"
    try:
        puts, _, _ = decode_change(entry, partial(parse_json, what="a record of the catalog"))
    except (Corruption, ReplicaError) as error:
        return str(error)
    return next(filter(None, (unfit_record(key, record) for key, record in puts.items())), "")
