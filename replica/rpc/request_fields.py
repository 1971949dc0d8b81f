"""The allowed values of every field of every request, by its name: an alphabet and a length, or a range. Pure.

An empty text or a zero means that the field is absent; the handler decides whether it may be.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from nyala.replica.types import PORT_MAX, check_id, check_text, check_token, check_topic, limits, parse_json
from nyala.replica.types.names import check_length, refused

Rule = Callable[[Any, str], object]
"""(value, name for the error): Refused(INVALID_ARGUMENT) unless the value is allowed."""

HYBRID_TIME_MAX = (1 << 63) - 1
_HOST = re.compile(r"[A-Za-z0-9._:%\[\]-]{1,255}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")


def _host(value: str, what: str) -> object:
    if not _HOST.fullmatch(value):
        raise refused(f"{what}: a host's name or address", value)
    return value


def _file(value: str, what: str) -> object:
    if not _FILE.fullmatch(value):
        raise refused(f"{what}: the name of a file in no folder", value)
    return value


class _Whole:
    """Whole numbers from 0 to a bound."""

    def __init__(self, high: int = limits.NUMBER_MAX) -> None:
        self.high = high

    def __call__(self, value: int, what: str) -> object:
        if not 0 <= value <= self.high:
            raise refused(f"{what}: a number from 0 to {self.high}", value)
        return value


def _measure(value: float, what: str) -> object:
    if not (math.isfinite(value) and value >= 0):
        raise refused(f"{what}: a number of at least 0, and finite", value)
    return value


def _json(value: bytes | str, what: str) -> object:
    parse_json(value, what, depth_max=limits.SCHEMA_DEPTH_MAX)
    return value


def _anything(value: object, what: str) -> object:
    return value


_COLUMN = partial(check_length, length_max=limits.NAME_LENGTH_MAX)
_WORD = lru_cache(maxsize=1024)(partial(check_token, length_max=64))
_REPORT = partial(check_length, length_max=limits.REPORTED_TEXT_LENGTH_MAX)
_PLACE = partial(check_token, length_max=limits.PLACE_LENGTH_MAX)
_INT32 = _Whole((1 << 31) - 1)
_HYBRID = _Whole(HYBRID_TIME_MAX)
_ID = lru_cache(maxsize=8192)(check_id)
_HOSTS = lru_cache(maxsize=4096)(_host)
"""Most requests repeat a few ids, words and hosts; only valid ones are remembered."""


def of(rule: Rule, names: str) -> dict[str, Rule]:
    """The rule for each of these names."""
    return dict.fromkeys(names.split(), rule)


RULES: dict[str, Rule] = {
    **of(_ID, """dest_uuid from_uuid to_uuid server_uuid target_uuid leader_uuid leader_hint requestor_uuid uuid
        requestor_run tablet_id tablet_ids table_id checkpoint_table_id session_id cluster_id topic_id seeking
        slice_after slice_until without application load_id ChangeMastersRequest.remove"""),
    **of(_COLUMN, "Column.name column columns key hash_columns range_column service"),
    **of(check_token, "name table table_name"),
    **of(check_token, "owner_run plan_id request_id fingerprint forget"),
    **of(partial(check_token, length_max=limits.LEDGER_CLIENT_ID_CHARS_MAX), "client_id"),
    **of(_WORD, "kind op type role phase health framing"),
    **of(check_text, "reason location version owner"),
    **of(_REPORT, "error"),
    **of(_PLACE, """TableRequest.after ListServersRequest.after ListSourcesRequest.after ListTabletsRequest.after
        QuarantineRequest.after"""),
    **of(check_topic, "topic"),
    **of(_HOSTS, "host"),
    **of(_file, "doubted FetchRequest.name"),
    **of(_json, "reader_schema avro_json default_json range_splits_json"),
    # Bytes that another module checks when it reads them.
    **of(_anything, "payload values keys"),
    # Numbers without an order: any value is allowed.
    **of(_anything, "payload_crc process takeover seen number"),
    **of(_Whole(PORT_MAX), "port"),
    **of(_HYBRID, "snapshot_time propagated_time safe_time"),
    **of(_INT32, """schema_id column_ids id rows kafka_partition precision scale buckets hash_version replicas
        replication_factor registry_id bucket range_pos current_state data_state tablets_max failures
        FetchRequest.kind limit_bytes count feature_level finalized_level level"""),
    **of(_Whole(limits.SCAN_SLICES_MAX), "slice_count slice_pos"),
    **of(_Whole(), """term config_term index attempt started_us
        generation after done sequence first_incomplete limit timeout_us
        staleness_us history_retention_us created_us decision_term decision_version deadline_us memory_bytes
        disk_bytes_free checkpoint_offset initial_start lease_us to_offset wishes seen_changes offset byte_offset
        length_bytes commit_index applied_index match_index flush_index bytes_on_disk wal_bytes last_contact_us_ago
        commit_term definition used seconds write_rows_per_s read_rows_per_s query"""),
    **of(_measure, "last_s loop_lag_ms_max gil_hold_ms_max"),
}  # fmt: skip
"""Rules by a field's name, or by `Message.field` where two messages use one name differently."""

REPORTED = frozenset({"ReplicaStatus", "PeerHealth"})
"""Messages whose numbers are a server's reports of itself. They have no rules here, because the masters check them."""


def rule_of(field: Any, rules: Mapping[str, Rule] = RULES) -> Rule | None:
    """The rule of a field, by its descriptor; None for flags and nested messages. KeyError if a field lacks its
    rule."""
    if field.message_type is not None or field.cpp_type in (field.CPPTYPE_BOOL, field.CPPTYPE_ENUM):
        return None
    message = field.containing_type.name
    if message in REPORTED and field.cpp_type != field.CPPTYPE_STRING:
        return None
    rule = rules.get(f"{message}.{field.name}") or rules[field.name]
    return None if rule is _anything else rule


def check_fields(message: Any, plan: Callable[[Descriptor], Plan] | None = None) -> None:
    """Refused(INVALID_ARGUMENT), with its name, if a field at any depth has a value that is not allowed or too many
    items. `plan`: the checks of each kind of message, by default those of requests."""
    plan = plan or _plan
    waiting = [message]
    while waiting:
        part = waiting.pop()
        single, numbers, repeated, parts, many = plan(part.DESCRIPTOR)
        for name, rule in single:
            value = getattr(part, name)
            if value:
                rule(value, name)
        for name, high, rule in numbers:
            if not 0 <= getattr(part, name) <= high:
                rule(getattr(part, name), name)
        for name, most, check in repeated:
            items = getattr(part, name)
            if len(items) > most:
                raise refused(f"{name}: at most {most} of them", len(items))
            if check is not None:
                _each(items, name, check)
        for name in many:
            waiting.extend(getattr(part, name))
        for name in parts:
            if part.HasField(name):
                waiting.append(getattr(part, name))


def _each(items: Iterable[Any], name: str, rule: Rule) -> None:
    for item in items:
        rule(item, name)


class Plan(NamedTuple):
    """The fields of one kind of message that need a check, each by its name."""

    single: list[tuple[str, Rule]]
    numbers: list[tuple[str, int, Rule]]
    """The numbers, with the highest value of each."""
    repeated: list[tuple[str, int, Rule | None]]
    """Repeated fields, with the most items of each."""
    parts: list[str]
    many: list[str]
    """Repeated nested messages."""


@cache
def _plan(descriptor: Descriptor) -> Plan:
    return plan_of(descriptor, rule_of, limits.REPEATED)


def plan_of(descriptor: Descriptor, rule: Callable[[FieldDescriptor], Rule | None], most: Mapping[str, int]) -> Plan:
    """The checks of a kind of message: `rule(field)` and, by `Message.field`, the most items of each repeated field."""
    single: list[tuple[str, Rule]] = []
    numbers: list[tuple[str, int, Rule]] = []
    repeated: list[tuple[str, int, Rule | None]] = []
    parts: list[str] = []
    many: list[str] = []
    for field in descriptor.fields:
        check = rule(field)
        if field.is_repeated:
            repeated.append((field.name, most[f"{descriptor.name}.{field.name}"], check))
            if field.message_type is not None:
                many.append(field.name)
        elif field.message_type is not None:
            parts.append(field.name)
        elif isinstance(check, _Whole):
            numbers.append((field.name, check.high, check))
        elif check is not None:
            single.append((field.name, check))
    return Plan(single, numbers, repeated, parts, many)
