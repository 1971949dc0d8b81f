"""The time-outs of the pipeline's Kafka clients, in Python and in Spark, for a broker that does not answer.

One number sets all time-outs; after that time the job decides what to do. With the default number, each client has
about its own default time-outs.
"""

from __future__ import annotations

from typing import Any

from nyala.replica.types import Code, Refused, check, reach_kafka

from .errors import QueryInterrupted, QueryRefused

KAFKA_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 2.0
"""The time to close a producer: records that are not acknowledged by then are sent again, or reported as failed."""
RECONNECT_MS_MAX = 5_000
OFFSET_ATTEMPTS = 6
OFFSET_ATTEMPT_MS_MIN = 2_000
"""Spark's driver asks for offsets this many times, and waits for each answer at least this long. With the default, if a
broker dies, the others have agreed on new leaders of its partitions within the first attempt."""


def client_options(timeout_s: float) -> dict[str, Any]:
    """Return the options of kafka-python's admin client and consumer: a third of the time for one request."""
    check(timeout_s > 0, "a timeout is positive", timeout_s=timeout_s)
    third = int(timeout_s * 1000 / 3)
    return {"request_timeout_ms": third, "bootstrap_timeout_ms": third, "reconnect_backoff_max_ms": RECONNECT_MS_MAX}


def producer_options(timeout_s: float) -> dict[str, Any]:
    """Return the options of kafka-python's producer: acks=all, idempotent, and the whole time for one record with its
    retries."""
    whole = int(timeout_s * 1000)
    return {
        **client_options(timeout_s),
        "acks": "all",
        "enable_idempotence": True,
        "delivery_timeout_ms": whole,
        "max_block_ms": whole,
    }


def spark_options(timeout_s: float) -> dict[str, str]:
    """Return the options of Spark's Kafka source. Its driver asks for offsets several times within the time, and its
    tasks poll for twice the time.

    Until a request's time is over, Kafka's admin client asks the broker that led the partition when the request began,
    even if that broker is gone and another one leads. Each attempt of Spark has a new client, which asks the new
    leader.
    """
    whole = int(timeout_s * 1000)
    attempt = min(whole, max(whole // OFFSET_ATTEMPTS, OFFSET_ATTEMPT_MS_MIN))
    return {
        "kafka.default.api.timeout.ms": str(attempt),
        "kafka.request.timeout.ms": str(attempt),
        "fetchOffset.numRetries": str(whole // attempt),
        "kafkaConsumer.pollTimeoutMs": str(whole * 2),
    }


def check_reachable(bootstrap: str) -> None:
    """Raise QueryInterrupted at once if no broker listens. It is checked before a client is made, because a client
    whose constructor fails leaves a thread running.

    QueryRefused for text that is no address.
    """
    try:
        reach_kafka(bootstrap)
    except Refused as error:
        raise (QueryRefused if error.code is Code.INVALID_ARGUMENT else QueryInterrupted)(error.what) from error
