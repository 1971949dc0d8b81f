"""The masters' threads beside Kafka, without a Kafka."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from nyala.replica.master.kafka import kafka_link
from nyala.replica.master.kafka.kafka_link import KafkaLink
from nyala.replica.master.kafka.outbox import Item
from nyala.replica.types import InvariantViolation


@pytest.mark.parametrize("error", [InvariantViolation("broken"), KeyError("x"), OSError("away"), IndexError("x")])
def test_thread_beside_kafka_outlives_whatever_it_meets(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the Kafka threads read proposals and publish decisions as long as the master lives. Method: the work of a
    thread raises two errors, one of them unforeseen, and is started a third time."""
    monkeypatch.setattr(kafka_link, "RETRY_FIRST_S", 0.001)
    link = KafkaLink("127.0.0.1:1", "", lambda: True, lambda proposal: None)
    begun = 0

    def work() -> None:
        nonlocal begun
        begun += 1
        if begun == 3:
            link.close()
            return
        raise error

    thread = threading.Thread(target=link._forever, args=(work,))
    thread.start()
    thread.join(20)
    assert not thread.is_alive() and begun == 3


class Promised:
    """The result of Kafka's client for a record: an acknowledgement, or an error in its place."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def get(self, timeout: float) -> None:
        if self._error is not None:
            raise self._error


class Client:
    """A client of Kafka whose records fare as the test says, in order."""

    def __init__(self, *fates: Exception | None) -> None:
        self._fates = list(fates)

    def send(self, topic: str, key: bytes, value: bytes) -> Promised:
        return Promised(self._fates.pop(0))


@pytest.mark.parametrize("error", [KafkaTimeoutError("late"), ValueError("closed"), RuntimeError("x"), OSError("away")])
def test_records_behind_one_that_failed_are_acknowledged_and_only_that_one_is_said_again(error: Exception) -> None:
    """Goal: if publishing one outcome fails, only that one is published again, whatever error the client raises.
    Method: three outcomes, of which the second one fails."""
    link, done = KafkaLink("127.0.0.1:1", "", lambda: True, lambda proposal: None), []

    def outcome(name: str) -> Item:
        return Item("outcomes", b"t", name.encode(), event=True, done=lambda: done.append(name))

    client: Any = Client(None, error, None)
    with pytest.raises(type(error)):
        link._send(client, [outcome("a"), outcome("b"), outcome("c")])
    assert done == ["a", "c"]
    assert [item.value for item in link._outbox.take(10, 0)] == [b"b"]


def test_unforeseen_error_of_the_client_loses_no_record() -> None:
    """Goal: whoever waits until Kafka has a record waits for one that is still queued. Method: three outcomes, of which
    the second one meets an error that no handler takes."""
    link, done = KafkaLink("127.0.0.1:1", "", lambda: True, lambda proposal: None), []

    def outcome(name: str) -> Item:
        return Item("outcomes", b"t", name.encode(), event=True, done=lambda: done.append(name))

    client: Any = Client(None, ZeroDivisionError("a defect"), None)
    with pytest.raises(ZeroDivisionError):
        link._send(client, [outcome("a"), outcome("b"), outcome("c")])
    assert done == ["a"]
    assert [item.value for item in link._outbox.take(10, 0)] == [b"b", b"c"]
