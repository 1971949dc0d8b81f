"""Dead letters come page by page, once each, and what is none stands among them without stopping the reading."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nyala.pipeline import letters
from nyala.pipeline.dead_letters import DeadLetter, Origin, encode_letter, letter_key
from nyala.pipeline.letters import FOREIGN, letter_of
from nyala.replica.base import RowCode
from nyala.replica.rows import SourceKey

ORIGIN = Origin("t", "id", "writes.t", SourceKey("c", "x", 0), 1)


def record(offset: int, key: bytes | None, value: bytes | None) -> Any:
    """A record of the dead-letter topic as kafka-python gives it."""
    return SimpleNamespace(topic="dead-letters.t", partition=0, offset=offset, key=key, value=value, timestamp=7)


def written(offset: int, place: int) -> Any:
    """The letter of the source's record at `place`."""
    letter = DeadLetter(place, RowCode.NULL_KEY, "", None, b"v")
    return record(offset, letter_key(ORIGIN.source, place), encode_letter(ORIGIN, letter))


class Consumer:
    """What kafka-python's consumer does here: `pages` one by one, each counted when it is handed over."""

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
        return {letters.TopicPartition("dead-letters.t", 0): page}


@given(st.one_of(st.none(), st.binary()), st.binary())
def test_record_of_any_bytes_is_a_letter_or_foreign(key: bytes | None, value: bytes) -> None:
    """Goal: no record stops the reading. Method: random bytes; what is no letter keeps place, key and value."""
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
    records: Iterator[Any] = letters._records(consumer, [letters.TopicPartition("dead-letters.t", 0)], 5.0)
    assert [(each.offset, consumer.handed_over) for each in records] == [(0, 2), (2, 3), (3, 4)]


def test_pages_of_a_replay_are_bounded_by_count_and_bytes() -> None:
    """Goal: records that wait for Kafka are bounded. Method: many small ones; few large ones."""
    small = [letter_of(written(k, k)) for k in range(letters.PAGE_LETTERS_MAX + 1)]
    assert [len(page) for page in letters._pages(small)] == [letters.PAGE_LETTERS_MAX, 1]
    large = letter_of(record(0, None, bytes(letters.PAGE_BYTES_MAX // 2)))
    assert [len(page) for page in letters._pages([large] * 5)] == [2, 2, 1]
