"""Records that are no rows: one dead letter each, with place, reason and bytes, and everything else is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kafka import KafkaProducer
from typer.testing import CliRunner

from nyala.infra.cli.app import app
from nyala.pipeline import QueryRefused, replay_letters, row_schema_json
from nyala.replica.rows import Column, ColumnType, RowOp, TableSchema
from nyala.replica.types import RowCode
from tests.harness.road import SCHEMA, Lane, Road, event, key_of, row, writer_info

pytestmark = pytest.mark.e2e
Told = tuple[str, str, bytes | None, bytes | None]


def schema_with(name: str, kind: Any, **changed: Any) -> str:
    """Return the full row's writer schema with one more, or one other, field."""
    parsed = json.loads(row_schema_json(SCHEMA))
    parsed["fields"] = [f for f in parsed["fields"] if f["name"] != name] + [{"name": name, "type": kind, **changed}]
    return json.dumps(parsed)


EXTRA = schema_with("extra", "string")
TYPED = schema_with("v", "long")
UNKNOWN = schema_with("v", ["null", "string"], doc="", default=None).replace('"Row"', '"RowThatNobodyRegistered"')


def publish_bad(lane: Lane) -> dict[int, Told]:
    """Publish every kind of bad record between good ones; returns offset -> (reason, column, key, value)."""
    good = event(row(50))
    insert, update = [("nyala-op", b"INSERT")], [("nyala-op", b"UPDATE")]
    partial = row_schema_json(SCHEMA, ["v"])
    bad: list[tuple[str, str, bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
        ("UNDECODABLE", "", key_of(50), b"no row at all", []),
        ("UNDECODABLE", "must", key_of(50), good[:-2], []),
        ("UNDECODABLE", "", b"\xff" * 12, None, []),
        ("UNKNOWN_SCHEMA", "", key_of(50), event(row(50), UNKNOWN), []),
        ("NULL_KEY", "", None, good, []),
        ("KEY_MISMATCH", "k", key_of(51), good, []),
        ("KEY_MISMATCH", "", b"", good, []),
        ("WRONG_TYPE", "v", key_of(50), event({**row(50), "v": 7}, TYPED), []),
        ("VALUE_OUT_OF_RANGE", "small", key_of(50), event({**row(50), "small": 1000}), []),
        ("ROW_TOO_LARGE", "", key_of(50), event(row(50, "x" * ((1 << 20) + 1))), []),
        ("UNKNOWN_OPERATION", "", key_of(50), good, [("nyala-op", b"EXPLODE")]),
        ("UNKNOWN_COLUMN", "extra", key_of(50), event({**row(50), "extra": "?"}, EXTRA), []),
        ("NULL_IN_REQUIRED_COLUMN", "must", key_of(60), event({"k": 60, "v": "p"}, partial), insert),
        ("ALREADY_PRESENT", "", key_of(0), event(row(0, "twice")), insert),
        ("NOT_FOUND", "", key_of(61), event(row(61, "late")), update),
    ]
    expected = {}
    for number, (reason, column, k, v, headers) in enumerate(bad):
        expected[lane.publish_raw(k, v, headers)] = (reason, column, k, v)
        lane.publish([row(100 + number)])
    return expected


def seen(lane: Lane) -> dict[int, Told]:
    """Return the distinct dead letters in the form of `publish_bad`; each names its place and its code."""
    found = {}
    for letter in lane.letters():
        r = letter.record
        assert (r["topic"], r["kafka_partition"], r["table"]) == (lane.topic, 0, lane.name)
        assert r["reason"] == RowCode(r["code"]).name and r["kafka_offset"] not in found
        found[r["kafka_offset"]] = (r["reason"], r["column"], r["key"], r["value"])
    return found


def test_letters_every_bad_record_is_told_once_and_mended_ones_come_in(road: Road) -> None:
    """Goal: 15 bad records of all kinds, the good ones between them stored, one distinct letter each after a replay.

    Method: read, replay the micro-batch, compare bytes; then mend two, and replay their letters.
    """
    lane = road.lane("bad", writers=(EXTRA, TYPED, row_schema_json(SCHEMA, ["v"])))
    lane.publish([row(k) for k in range(3)], RowOp.INSERT)
    expected = publish_bad(lane)
    stored = {k: row(k) for k in (*range(3), *range(100, 100 + len(expected)))}
    told = lane.run()
    assert seen(lane) == expected
    assert lane.rows() == stored
    assert sum(p.dead_letters for p in told) == len(expected) == lane.letter_count()
    lane.forget_last_commit()
    lane.run()
    assert seen(lane) == expected and lane.rows() == stored
    road.client.add_writer_schema("bad", writer_info(UNKNOWN))
    lane.publish([row(61)])
    mended = [one for one in lane.letters() if one.record["reason"] in ("UNKNOWN_SCHEMA", "NOT_FOUND")]
    assert replay_letters(road.kafka, mended) == 2
    lane.run()
    assert lane.rows() == {**stored, 50: row(50), 61: row(61, "late")}
    assert seen(lane) == expected


def test_event_that_makes_a_row_too_long_is_a_letter(road: Road) -> None:
    """Goal: events of single columns that add up to more than a row may hold are told, once, and lose nothing else.

    Method: 600 KB in one column, then in another one of the same row and of a short one; replay the micro-batch.
    """
    wordy = TableSchema(1, (*SCHEMA.columns, Column(id=5, name="w", type=ColumnType.STRING)), ("k",))
    only_w = row_schema_json(wordy, ["w"])
    lane = road.lane("growing", writers=(only_w,), schema=wordy)
    full, long = row_schema_json(wordy), "x" * 600_000
    for k, v in ((1, long), (2, "short")):
        lane.publish_raw(key_of(k), event({**row(k, v), "w": None}, full))
    grown = [event({"k": k, "w": long}, only_w) for k in (1, 2)]
    at = [lane.publish_raw(key_of(k), value) for k, value in zip((1, 2), grown, strict=True)]
    lane.run()
    stored = {1: {**row(1, long), "w": None}, 2: {**row(2, "short"), "w": long}}
    for _ in range(2):
        assert seen(lane) == {at[0]: ("ROW_TOO_LARGE", "", key_of(1), grown[0])}
        assert lane.rows() == stored
        lane.forget_last_commit()
        lane.run()


def test_letters_as_large_as_kafka_takes_do_not_stop_the_query(road: Road) -> None:
    """Goal: a letter is larger than its record, and still fits. Method: a record just below the broker's limit."""
    lane = road.lane("huge")
    value = bytes((4 << 20) - 200)
    lane.publish_raw(b"key", value)
    lane.publish([row(1)])
    lane.run()
    assert [one.record["value"] for one in lane.letters()] == [value]
    assert lane.rows() == {1: row(1)}


def test_letters_beyond_the_limit_end_the_query(road: Road) -> None:
    """Goal: more dead letters than `dead_letters_max` end the query, the error states how to list them, and a larger
    limit lets it go on. Method: four bad records."""
    lane = road.lane("limit")
    for _ in range(4):
        lane.publish_raw(b"no key", b"no row")
    lane.publish([row(1)])
    with pytest.raises(QueryRefused, match=r"4 dead letters in this run, the limit is 3.*nyala dead-letter list limit"):
        lane.run(dead_letters_max=3)
    lane.run(dead_letters_max=4)
    assert len(lane.letters()) == 4 and lane.rows() == {1: row(1)}


def test_letters_of_somebody_else_are_shown_and_left_out_of_a_replay(road: Road) -> None:
    """IN-90. Goal: one foreign record does not hide the letters, and the check counts both. Method: write to the
    dead-letter topic; list, check, replay."""
    lane = road.lane("foreign")
    lane.publish_raw(b"no key", b"no row")
    lane.run()
    producer = KafkaProducer(bootstrap_servers=road.kafka, acks="all")
    producer.send("dead-letters.foreign", key=b"who", value=b"cares").get(timeout=120)
    producer.close()
    said = CliRunner().invoke(app, ["dead-letter", "list", "foreign", "--json", "--kafka", road.kafka])
    assert {(one["reason"], one["topic"]) for one in json.loads(said.output)} == {
        ("KEY_MISMATCH", "writes.foreign"),
        ("FOREIGN", "dead-letters.foreign"),
    }
    said = CliRunner().invoke(
        app, ["cluster", "check", "--json", "--kafka", road.kafka, "--masters", road.stack.masters]
    )
    (told,) = (f for f in json.loads(said.stdout)["findings"] if f["subject"] == "table foreign")
    assert told["severity"] == "WARNING" and told["what"].startswith("2 records at most"), told
    assert replay_letters(road.kafka, lane.letters()) == 1
