"""Dead letters come page by page, once each, and a foreign record among them does not stop the reading."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.infra.cli import cluster
from nyala.pipeline import dead_letter_reader as reader
from nyala.pipeline.dead_letter_producer import DeadLetter, Origin, encode_letter, letter_key
from nyala.pipeline.dead_letter_reader import FOREIGN, letter_of
from nyala.replica.rows import SourceKey
from nyala.replica.tools import Severity
from nyala.replica.types import RowCode

ORIGIN = Origin("t", "id", "writes.t", SourceKey("c", "x", 0), 1)


def record(offset: int, key: bytes | None, value: bytes | None) -> Any:
    """A record of the dead-letter topic as kafka-python gives it."""
    return SimpleNamespace(topic="dead-letters.t", partition=0, offset=offset, key=key, value=value, timestamp=7)


def written(offset: int, place: int) -> Any:
    """The letter of the source's record at `place`."""
    letter = DeadLetter(place, RowCode.NULL_KEY, "", None, b"v")
    return record(offset, letter_key(ORIGIN.source, place), encode_letter(ORIGIN, letter))


class Consumer:
    """The part of kafka-python's consumer that is used here: it returns `pages` one by one, and counts each."""

    def __init__(self, pages: list[list[Any]]) -> None:
        self._pages = iter(pages)
        self._end = sum(map(len, pages))
        self.handed_over = 0

    def assign(self, _: Any) -> None: ...

    def seek_to_beginning(self, *_: Any) -> None: ...

    def end_offsets(self, partitions: list[Any]) -> dict[Any, int]:
        return dict.fromkeys(partitions, self._end)

    def position(self, _: Any) -> int:
        return self.handed_over

    def poll(self, **_: Any) -> dict[Any, list[Any]]:
        page = next(self._pages)
        self.handed_over += len(page)
        return {reader.TopicPartition("dead-letters.t", 0): page}


@given(st.one_of(st.none(), st.binary()), st.binary())
def test_record_of_any_bytes_is_a_letter_or_foreign(key: bytes | None, value: bytes) -> None:
    """Goal: a record of any bytes is either a dead letter or listed as foreign. Method: random bytes; what is no letter
    keeps place, key and value."""
    found = letter_of(record(5, key, value))
    if found.foreign:
        assert found.place == "dead-letters.t[0]@5"
        assert (found.record["reason"], found.record["key"], found.record["value"]) == (FOREIGN, key, value)


def test_letter_is_read_back_as_it_was_written() -> None:
    """Goal: a real letter is not foreign. Method: encode one, read it."""
    found = letter_of(written(5, 42))
    assert not found.foreign and found.place == "writes.t[0]@42" and found.record["reason"] == "NULL_KEY"


def test_records_are_handed_on_before_the_next_page_is_read() -> None:
    """Goal: memory holds a page, not the topic. Method: three pages; look how many were read at each record."""
    consumer = Consumer([[written(0, 1), record(1, b"k", None)], [written(2, 2)], [record(3, None, b"?")]])
    records: Iterator[Any] = reader._records(consumer, [reader.TopicPartition("dead-letters.t", 0)], 5.0)
    assert [(each.offset, consumer.handed_over) for each in records] == [(0, 2), (2, 3), (3, 4)]


def test_pages_of_a_replay_are_bounded_by_count_and_bytes() -> None:
    """Goal: records that wait for Kafka are bounded. Method: many small ones; few large ones."""
    small = [letter_of(written(k, k)) for k in range(reader.PAGE_LETTERS_MAX + 1)]
    assert [len(page) for page in reader._pages(small)] == [reader.PAGE_LETTERS_MAX, 1]
    large = letter_of(record(0, None, bytes(reader.PAGE_BYTES_MAX // 2)))
    assert [len(page) for page in reader._pages([large] * 5)] == [2, 2, 1]


def test_check_counts_the_records_that_did_not_become_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """IN-90. Goal: `nyala cluster check` counts the dead letters of all tables with three requests. Method: a table
    with letters on two partitions, some removed since; one whose letters are all removed; one without a topic; others'
    topics. Then a Kafka that is away: that is told, and nothing else."""
    places = {
        "dead-letters.a": {0: (3, 7), 1: (0, 1)},
        "dead-letters.b": {0: (5, 5)},
        "dead-letters.other": {0: (0, 9)},
    }
    asked = list[str]()

    class Kafka:
        def __init__(self, **_: Any) -> None:
            asked.clear()

        def topics(self) -> set[str]:
            asked.append("topics")
            return {*places, "writes.a", "writes.none"}

        def partitions_for_topic(self, topic: str) -> set[int]:
            return set(places[topic])

        def beginning_offsets(self, partitions: list[Any]) -> dict[Any, int]:
            asked.append("beginnings")
            return {p: places[p.topic][p.partition][0] for p in partitions}

        def end_offsets(self, partitions: list[Any]) -> dict[Any, int]:
            asked.append("ends")
            return {p: places[p.topic][p.partition][1] for p in partitions}

        def close(self, **_: Any) -> None:
            asked.append("closed")

    monkeypatch.setattr(reader, "KafkaConsumer", Kafka)
    monkeypatch.setattr(reader, "check_reachable", lambda _: None)
    (found,) = cluster._refused_records(["a", "b", "none"], "k:1", "")
    assert (found.severity, found.subject) == (Severity.WARNING, "table a")
    assert found.what.startswith("5 records at most did not become rows and are in dead-letters.a, ")
    assert "`nyala dead-letter list a`" in found.what and asked == ["topics", "beginnings", "ends", "closed"]
    monkeypatch.undo()
    assert cluster._refused_records(["a"], "127.0.0.1:1", "") == cluster._refused_records(["a"], "", "") == []
    assert capsys.readouterr().err.startswith("how many records did not become rows is unknown: ")
