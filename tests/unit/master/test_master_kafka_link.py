"""The masters' threads beside Kafka, without a Kafka."""

from __future__ import annotations

import threading

import pytest

from nyala.replica.base import InvariantViolation
from nyala.replica.master import kafka_link
from nyala.replica.master.kafka_link import KafkaLink


@pytest.mark.parametrize("error", [InvariantViolation("broken"), KeyError("x"), OSError("away"), IndexError("x")])
def test_thread_beside_kafka_outlives_whatever_it_meets(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: proposals are read and decisions said as long as the master lives. Method: the work of a thread fails
    twice, also in ways that nobody thought of, and is begun a third time."""
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
