"""The producer of dead letters over the tasks of one worker: faults and letters of one task do not reach the next
one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.errors import KafkaError

from nyala.pipeline import KafkaSecurity, task_producer, worker
from nyala.pipeline.dead_letter_producer import LETTER_BYTES_MAX, DeadLetter, Origin
from nyala.pipeline.errors import TaskFailed
from nyala.replica.rows import SourceKey
from nyala.replica.types import RowCode

ORIGIN = Origin("t", "id", "writes.t", SourceKey("c", "x", 0), 1)
LETTER = DeadLetter(7, RowCode.NULL_KEY, "", None, b"v")


class Producer:
    """kafka-python's producer as far as it is used here; `broken` ones acknowledge nothing any more."""

    made: list[Producer]

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.sent = 0
        self.broken = False
        self.closed = False
        Producer.made.append(self)

    def send(self, *_: Any, **__: Any) -> Producer:
        self.sent += 1
        return self

    def flush(self, **_: Any) -> None: ...

    def get(self, **_: Any) -> None:
        if self.broken:
            raise KafkaError("a fatal state")

    def close(self, **_: Any) -> None:
        self.closed = True


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return an address at which a process listens, so that a producer is made; no sink is left of a test that got the
    same port."""
    Producer.made = []
    worker._sink.cache_clear()
    worker._producer.cache_clear()
    monkeypatch.setattr(task_producer, "KafkaProducer", Producer)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_sink_whose_producer_failed_makes_another_for_the_next_task(bootstrap: str) -> None:
    """Goal: a failed producer is replaced for the next task of its worker. Method: break it, then a second task."""
    sink = worker.sink_for(bootstrap, "dead-letters.t")
    assert Producer.made == [], "no letter, no producer"
    sink.put(ORIGIN, LETTER)
    Producer.made[0].broken = True
    with pytest.raises(TaskFailed, match=r"\[retryable\].*dead-letters.t.*a fatal state"):
        sink.flush()
    again = worker.sink_for(bootstrap, "dead-letters.t")
    assert again is sink
    again.put(ORIGIN, LETTER)
    again.flush()
    first, second = Producer.made
    assert first.closed and not second.closed and (first.sent, second.sent) == (1, 1)


def test_sink_does_not_wait_for_what_a_dead_task_left(bootstrap: str) -> None:
    """Goal: records that a dead task left do not delay the next task. Method: queue, break, begin the next task."""
    worker.sink_for(bootstrap, "dead-letters.t").put(ORIGIN, LETTER)
    Producer.made[0].broken = True
    worker.sink_for(bootstrap, "dead-letters.t").flush()


def test_sink_logs_in_as_the_query_does(bootstrap: str) -> None:
    """Goal: the dead-letter producer uses the query's Kafka login. Method: the options of the producer."""
    security = KafkaSecurity((("security.protocol", "SSL"),))
    worker.sink_for(bootstrap, "dead-letters.t", 5.0, security).put(ORIGIN, LETTER)
    assert Producer.made[0].options["security_protocol"] == "SSL"


def test_sink_without_a_broker_is_a_task_that_may_run_again() -> None:
    """Goal: a missing broker fails the task with an error that allows a restart. Method: no process listens."""
    with pytest.raises(TaskFailed, match=r"\[retryable\]"):
        worker.sink_for("127.0.0.1:1", "dead-letters.t").put(ORIGIN, LETTER)


def test_letters_and_outcomes_have_producers_of_their_own(bootstrap: str) -> None:
    """Goal: a request of letters may be as large as a letter, and one of outcomes as Kafka takes by default. Method: a
    producer of each for one topic, with one record each; each is kept for the next task."""
    sink = worker.sink_for(bootstrap, "t", 5.0)
    other = worker.producer_for(bootstrap, "t", 5.0, KafkaSecurity())
    assert other is not sink
    sink.send(b"k", b"v")
    other.send(b"k", b"v")
    assert [made.options["max_request_size"] for made in Producer.made] == [LETTER_BYTES_MAX, 1 << 20]
    assert worker.sink_for(bootstrap, "t", 5.0) is sink
    assert worker.producer_for(bootstrap, "t", 5.0, KafkaSecurity()) is other
