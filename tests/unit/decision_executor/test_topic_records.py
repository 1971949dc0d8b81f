"""Arbitrary records on the masters' topics: each is read as a record, or refused with the reason."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nyala.replica.decision_executor import TOPICS as KINDS
from nyala.replica.decision_executor import Fault, Unusable, read_record
from nyala.replica.types import kafka_topics, limits, printable
from nyala.schemas import TopicRecord, decode, encode, encode_record

OPID = {"term": 3, "index": 7}
MEMBER: dict[str, Any] = {
    "uuid": "1" * 32, "addresses": [{"host": "127.0.0.1", "port": 7}], "votes": True, "promote": False,
    "holds_data": True, "replace": False, "reserved": b"",
}  # fmt: skip
REPLICA: dict[str, Any] = {
    "uuid": "1" * 32, "address": "127.0.0.1:7", "votes": True, "promote": False, "replace": False, "health": "HEALTHY",
    "data_state": 3, "bytes_on_disk": 1 << 40, "rows": 9, "is_leader": True, "location": "/rack1",
}  # fmt: skip
GOOD: dict[str, dict[str, Any]] = {
    kafka_topics.PROPOSALS: {
        "proposal_id": "p/t", "plan_id": "p", "tablet_id": "t", "wanted": "MOVE_REPLICA", "from_uuid": "1",
        "to_uuid": "2", "config_opid": OPID, "deadline_us": 1, "reason": "Größe", "reserved": b"",
    },
    kafka_topics.DECISIONS: {
        "tablet_id": "t", "table_id": "b", "catalog_term": 3, "version": 1, "action": "CHANGE_CONFIG",
        "edits": [{"kind": "add", "member": MEMBER}], "target_uuid": "", "config_opid": OPID, "deadline_us": 0,
        "reason": "r", "plan_id": "", "leader_uuid": "1", "leader_address": "h:1", "reserved": b"",
    },
    kafka_topics.OUTCOMES: {
        "subject": "DECISION", "subject_id": "t@3.1", "plan_id": "", "tablet_id": "t", "result": "DONE", "code": 0,
        "message": "done", "at_us": 5, "catalog_term": 3, "version": 1, "executor": "m", "reserved": b"",
    },
    kafka_topics.REPORTS: {
        "tablet_id": "t", "table_id": "b", "table_name": "n", "range_pos": 0, "bucket": 1, "replication_factor": 3,
        "config_opid": OPID, "pending_change": False, "leader_uuid": "1" * 32, "term": 3,
        "replicas": [REPLICA, REPLICA | {"uuid": "2" * 32}], "server_uuid": "", "server_address": "", "alive": True,
        "location": "", "catalog_term": 3, "at_us": 5, "numbers": {"tablets_max": 9},
    },
    kafka_topics.HISTORY: {
        "kind": "CONFIG", "tablet_id": "t", "table_id": "b", "catalog_opid": {"term": 2, "index": 40},
        "after": {"term": 2, "index": 39}, "tablets": 1, "at_us": 5, "by": "", "snapshot_id": "",
        "config_opid": OPID, "members": [MEMBER, MEMBER | {"uuid": "2" * 32}], "decision_term": 3,
        "decision_version": 1, "unsafe": True, "edits": [{"kind": "add", "member": MEMBER}], "to_uuid": "",
        "plan_id": "p", "reason": "Größe", "reserved": b"",
    },
}  # fmt: skip
TOPICS = sorted(GOOD)


def datum(topic: str, **fields: Any) -> bytes:
    return encode(topic.removesuffix("s"), GOOD[topic] | fields)


def shown_words(fields: Any) -> Any:
    """The same, with words for people as they may be shown."""
    return fields | {name: printable(fields[name]) for name in ("reason", "message") if name in fields}


def in_avro(topic: str, record: TopicRecord | Unusable) -> Any:
    """The dict of what is written of a record again."""
    assert not isinstance(record, Unusable), record
    return decode(topic.removesuffix("s"), encode_record(record))


def fault(topic: str, value: bytes | None, key: bytes | None = b"t") -> Fault | None:
    found = read_record(KINDS[topic], key, value)
    return found.fault if isinstance(found, Unusable) else None


@pytest.mark.parametrize("topic", TOPICS)
def test_what_masters_and_jobs_write_is_read_as_it_was_written(topic: str) -> None:
    """IN-90. Goal: the careful reader refuses nothing that is right. Method: one record of each topic, compared with
    what fastavro reads."""
    value = datum(topic)
    assert (
        in_avro(topic, read_record(KINDS[topic], b"t", value)) == decode(topic.removesuffix("s"), value) == GOOD[topic]
    )


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


HOSTILE = {
    "a text of 2^60 bytes": varint(1 << 60),
    "a text of -1 bytes": varint(-1),
    "the longest number": b"\xff" * 9 + b"\x01",
    "a number without an end": b"\xff" * 64,
    "an array of 2^62 items": encode("decision", GOOD["decisions"] | {"edits": []})[:9] + varint(1 << 62),
    "a negative block of 2^62 items": encode("decision", GOOD["decisions"] | {"edits": []})[:9]
    + varint(-(1 << 62)) + varint(1 << 62),
    "nothing": b"",
    "text": b"a proposal, please",
    "no UTF-8": varint(2) + b"\xff\xfe",
}  # fmt: skip


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_lengths_that_lie_allocate_nothing(topic: str, name: str) -> None:
    """IN-90. Goal: no length or count is believed before the bytes are there. Method: bytes that promise up to 2^62
    items or bytes; each is refused, in at most 256 KB of memory."""
    fault(topic, b"")  # the schemas are loaded once
    tracemalloc.start()
    try:
        found = fault(topic, HOSTILE[name])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found, peak < 256 << 10) == (Fault.OTHER_SCHEMA, True), peak


def test_arrays_of_many_items_are_refused_before_they_are_read() -> None:
    """IN-90. Goal: bytes of one record do not become millions of objects. Method: a block that counts one item more
    than is allowed, with the bytes of all of them there."""
    head = datum("reports", replicas=[])
    at = head.index(b"\x00" + b"\x00\x00", 20)  # the empty array, before the empty uuid and address
    many = head[:at] + varint(limits.TOPIC_ITEMS_MAX + 1) + b"\x00" * 100_000
    found = read_record(KINDS["reports"], b"t", many)
    assert isinstance(found, Unusable)
    assert "65 items or more, 64 are allowed" in found.reason


BAD_VALUES: list[tuple[str, dict[str, Any]]] = [
    ("proposals", {"tablet_id": ""}),
    ("proposals", {"proposal_id": ""}),
    ("proposals", {"to_uuid": "x" * 5_000}),
    ("proposals", {"tablet_id": "a\0b"}),
    ("proposals", {"deadline_us": -1}),
    ("proposals", {"config_opid": {"term": -1, "index": 1}}),
    ("decisions", {"catalog_term": -1}),
    ("decisions", {"version": -(1 << 63)}),
    ("decisions", {"leader_address": "nowhere"}),
    ("decisions", {"leader_address": "h:99999"}),
    ("decisions", {"edits": [{"kind": "add", "member": MEMBER | {"uuid": ""}}]}),
    ("decisions", {"edits": [{"kind": "add", "member": MEMBER | {"promote": True}}]}),
    ("decisions", {"edits": [{"kind": "add", "member": MEMBER}, {"kind": "remove", "member": MEMBER}]}),
    ("decisions", {"edits": [{"kind": "add", "member": MEMBER | {"addresses": [{"host": "h", "port": -1}]}}]}),
    ("decisions", {"tablet_id": "u"}),
    ("outcomes", {"at_us": -1}),
    ("outcomes", {"executor": "x" * 600}),
    ("reports", {"replicas": [REPLICA, REPLICA]}),
    ("reports", {"replicas": [REPLICA | {"address": "no port"}]}),
    ("reports", {"replicas": [REPLICA | {"uuid": ""}]}),
    ("reports", {"replicas": [REPLICA | {"rows": -5}]}),
    ("reports", {"numbers": {"disk_bytes_free": -1}}),
    ("reports", {"numbers": {"a\x1b[2J": 1}}),
    ("reports", {"tablet_id": "", "server_uuid": ""}),
    ("reports", {"tablet_id": "", "server_uuid": "other"}),
    ("history", {"tablet_id": ""}),
    ("history", {"tablet_id": "u"}),
    ("history", {"kind": "GAP"}),
    ("history", {"tablets": -1}),
    ("history", {"after": {"term": 0, "index": -1}}),
    ("history", {"members": [MEMBER, MEMBER]}),
    ("history", {"members": [MEMBER | {"uuid": ""}]}),
]


@pytest.mark.parametrize(("topic", "fields"), BAD_VALUES)
def test_value_that_no_honest_sender_writes_is_refused_with_what_is_wrong(topic: str, fields: dict[str, Any]) -> None:
    """IN-90. Goal: nothing behind the reader meets such a value. Method: each field in turn; the record can be read."""
    found = read_record(KINDS[topic], b"t", datum(topic, **fields))
    assert isinstance(found, Unusable)
    assert (found.fault, bool(found.reason)) == (Fault.BAD_VALUE, True)


@pytest.mark.parametrize("topic", TOPICS)
def test_null_giant_and_later_records_have_their_own_reasons(topic: str) -> None:
    """IN-90. Goal: the refusal of an invalid record names its own reason. Method: no value, one byte more than is
    taken, bytes behind the record; and where there are reserved bytes, some that are used."""
    assert fault(topic, None) is Fault.NO_VALUE
    assert fault(topic, bytes(limits.TOPIC_RECORD_BYTES_MAX + 1)) is Fault.TOO_LARGE
    assert fault(topic, datum(topic) + b"\0") is Fault.OTHER_SCHEMA
    if "reserved" in GOOD[topic]:
        assert fault(topic, datum(topic, reserved=b"\1")) is Fault.OTHER_SCHEMA


def test_ids_that_could_be_read_are_kept_for_the_answer() -> None:
    """IN-90. Goal: the sender of a record that breaks off hears of it under its own id. Method: a proposal cut in its
    middle."""
    found = read_record(KINDS["proposals"], b"t", datum("proposals")[:12])
    assert isinstance(found, Unusable)
    assert {"proposal_id": "p/t", "plan_id": "p", "tablet_id": "t"}.items() <= found.fields.items()


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, bytes]:
    """A good record with some bytes changed, left out, doubled or put in."""
    topic = draw(st.sampled_from(TOPICS))
    value = bytearray(datum(topic))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(value)))
        size = draw(st.sampled_from([0, 1, 2, 9]))
        value[at : at + size] = draw(st.binary(max_size=12) | st.sampled_from([varint(1 << 60), varint(-(1 << 62))]))
    return topic, bytes(value)


@pytest.mark.deep
@settings(max_examples=150)
@given(mutated(), st.none() | st.binary(max_size=8))
@example(("proposals", b""), None)
def test_every_key_and_value_is_answered(record: tuple[str, bytes], key: bytes | None) -> None:
    """IN-90. Goal: no record raises. Method: good ones with bytes changed; what is taken for a record is one that
    fastavro reads alike."""
    topic, value = record
    found = read_record(KINDS[topic], key, value)
    if isinstance(found, Unusable):
        assert found.reason
    else:
        assert in_avro(topic, found) == shown_words(decode(topic.removesuffix("s"), value))


@settings(max_examples=200)
@given(st.sampled_from(TOPICS), st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=200))
def test_any_bytes_are_answered(topic: str, key: bytes | None, value: bytes | None) -> None:
    """IN-90. Goal and method: as above, for bytes that never were a record."""
    found = read_record(KINDS[topic], key, value)
    assert isinstance(found, Unusable) or in_avro(topic, found) == shown_words(
        decode(topic.removesuffix("s"), value or b"")
    )


@pytest.mark.parametrize(
    ("topic", "field"),
    [("proposals", "reason"), ("decisions", "reason"), ("outcomes", "message"), ("history", "reason")],
)
def test_words_of_a_stranger_move_no_cursor(topic: str, field: str) -> None:
    """IN-90. Goal: a record's words may be shown on a terminal and in a log. Method: an escape, and a mark that turns
    the line around, in each field for people: the record is used, and its words are printable."""
    found = read_record(KINDS[topic], b"t", datum(topic, **{field: "a\x1b[2J\u202eb"}))
    assert getattr(found, field) == "a\\u001b[2J\\u202eb"
