"""How far a table is behind its topic, as Kafka's clients report it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from nyala.pipeline import QueryInterrupted, SourceLag, source_lag, source_lags

NOW_S = 1_000.0


class Consumer:
    """Kafka's consumer: partitions with records, the time of each in ms; -1 has none, and some never come."""

    def __init__(self, written: dict[int, list[int]], silent: tuple[int, ...] = ()) -> None:
        self.written, self._silent = written, silent
        self.error: Exception | None = None
        self.closed = 0
        self._place: Any = None
        self._at = 0

    def end_offsets(self, places: list[Any]) -> dict[Any, int]:
        if self.error is not None:
            raise self.error
        return {place: len(self.written[place.partition]) for place in places}

    def assign(self, places: list[Any]) -> None:
        (self._place,) = places

    def seek(self, place: Any, offset: int) -> None:
        assert place == self._place
        self._at = offset

    def poll(self, timeout_ms: int) -> dict[Any, list[Any]]:
        if self._place.partition in self._silent:
            return {}
        times = self.written[self._place.partition][self._at :]
        return {self._place: [SimpleNamespace(timestamp=ms) for ms in times]}

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def lags(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(source_lag, "check_reachable", lambda _: None)

    def asked(consumer: Consumer, done: dict[int, int]) -> dict[int, SourceLag]:
        monkeypatch.setattr(source_lag, "KafkaConsumer", lambda **_: consumer)
        return source_lags("k:1", "t", done, now=lambda: NOW_S)

    return asked


def test_lag_is_counted_in_records_and_in_seconds(lags: Any) -> None:
    """IN-71. Goal: both units are true. Method: a partition that is level, one whose oldest record is a minute old, one
    whose records carry no time, one that does not answer, one whose clock is ahead, one that lost its end."""
    written = {0: [1], 1: [0, 940_000, 999_000], 2: [5, -1], 3: [5, 5], 4: [2_000_000], 5: [7]}
    consumer = Consumer(written, silent=(3,))
    assert lags(consumer, {0: 1, 1: 1, 2: 1, 3: 0, 4: 0, 5: 4}) == {
        0: SourceLag(0, 0.0),
        1: SourceLag(2, 60.0),
        2: SourceLag(1, None),
        3: SourceLag(2, None),
        4: SourceLag(1, 0.0),
        5: SourceLag(0, 0.0),
    }
    assert consumer.closed == 1


def test_lag_of_a_kafka_that_is_away_is_refused_in_words(lags: Any) -> None:
    """Goal: no raw exception of a Kafka client. Method: it gives up."""
    consumer = Consumer({0: []})
    consumer.error = KafkaTimeoutError("no answer")
    with pytest.raises(QueryInterrupted, match=r"Kafka at k:1 does not answer: .*no answer"):
        lags(consumer, {0: 0})
    assert consumer.closed == 1
