"""The objects that one Python worker process keeps from task to task: one client, and one producer for each kind of
record.

They are made in a task, never at import: Spark forks its workers from a daemon, and a channel that was opened before
the fork would hang in the child.
"""

from __future__ import annotations

import os
import socket
from functools import lru_cache

from nyala.replica.client import Client, ClientOptions, credentials_in, parse_masters
from nyala.replica.types import PLAINTEXT, KafkaSecurity, Refused

from .dead_letter_producer import DeadLetterSink
from .errors import TaskFailed
from .kafka_timeouts import KAFKA_TIMEOUT_S
from .task_producer import TaskProducer


def client_for(masters: str, write_timeout_s: float = 120.0, tls: str = "") -> Client:
    """Return this process's client of a cluster. `tls`: the directory of its credentials on this machine; empty: that
    of NYALA_TLS. TaskFailed if they cannot be used, which another attempt may mend: they may just be replaced."""
    return _client(os.getpid(), masters, write_timeout_s, tls)


def sink_for(
    bootstrap: str, topic: str, timeout_s: float = KAFKA_TIMEOUT_S, security: KafkaSecurity = PLAINTEXT
) -> DeadLetterSink:
    """Return this process's producer of dead letters, which holds nothing of an earlier task."""
    sink = _sink(os.getpid(), bootstrap, topic, timeout_s, security)
    sink.begin()
    return sink


def producer_for(bootstrap: str, topic: str, timeout_s: float, security: KafkaSecurity) -> TaskProducer:
    """Return this process's producer of outcomes, which holds nothing of an earlier task."""
    producer = _producer(os.getpid(), bootstrap, topic, timeout_s, security)
    producer.begin()
    return producer


@lru_cache(maxsize=4)
def _client(pid: int, masters: str, write_timeout_s: float, tls: str) -> Client:
    try:
        credentials = credentials_in(tls)
    except Refused as error:
        what = f"executor on {socket.gethostname()}: {error}; put the same directory there as on the driver"
        raise TaskFailed(what, fatal=False) from error
    return Client(parse_masters(masters), ClientOptions(write_timeout_s=write_timeout_s), credentials)


@lru_cache(maxsize=8)
def _sink(pid: int, bootstrap: str, topic: str, timeout_s: float, security: KafkaSecurity) -> DeadLetterSink:
    return DeadLetterSink(bootstrap, topic, timeout_s, security)


@lru_cache(maxsize=8)
def _producer(pid: int, bootstrap: str, topic: str, timeout_s: float, security: KafkaSecurity) -> TaskProducer:
    return TaskProducer(bootstrap, topic, timeout_s, security)
