"""How long the pipeline's Kafka clients, in Python and in Spark, wait for a broker that does not answer.

One number sets all timeouts; after that time the job decides what to do. At the default, each client has about the time
of its own defaults.
"""

from __future__ import annotations

from typing import Any

from nyala.replica.types import Code, Refused, check, reach_kafka

from .errors import QueryInterrupted, QueryRefused

KAFKA_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 2.0
"""The time to close a producer: records that are not acknowledged by then are sent again, or reported as failed."""
RECONNECT_MS_MAX = 5_000


def client_options(timeout_s: float) -> dict[str, Any]:
    """Return the options of kafka-python's admin client and consumer: a third of the time for one request."""
    check(timeout_s > 0, "a timeout is positive", timeout_s=timeout_s)
    third = int(timeout_s * 1000 / 3)
    return {"request_timeout_ms": third, "bootstrap_timeout_ms": third, "reconnect_backoff_max_ms": RECONNECT_MS_MAX}


def producer_options(timeout_s: float) -> dict[str, Any]:
    """Return the options of kafka-python's producer: acks=all, without doubles, and the whole time for one record with
    its retries."""
    whole = int(timeout_s * 1000)
    return {
        **client_options(timeout_s),
        "acks": "all",
        "enable_idempotence": True,
        "delivery_timeout_ms": whole,
        "max_block_ms": whole,
    }


def spark_options(timeout_s: float) -> dict[str, str]:
    """Return the options of Spark's Kafka source: it requests offsets three times, and its tasks poll for twice the
    time."""
    whole = int(timeout_s * 1000)
    return {
        "kafka.default.api.timeout.ms": str(whole),
        "kafka.request.timeout.ms": str(whole // 2),
        "kafkaConsumer.pollTimeoutMs": str(whole * 2),
    }


def check_reachable(bootstrap: str) -> None:
    """Raise QueryInterrupted at once if no broker listens, because a client whose constructor fails leaves a thread
    running.

    QueryRefused for text that is no address.
    """
    try:
        reach_kafka(bootstrap)
    except Refused as error:
        raise (QueryRefused if error.code is Code.INVALID_ARGUMENT else QueryInterrupted)(error.what) from error
