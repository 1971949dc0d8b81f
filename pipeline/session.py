"""The SparkSession that the jobs run in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .errors import QueryInterrupted, QueryRefused

STOP_QUERY_WITHIN_S = 6.0
ARROW_RECORDS_PER_BATCH = 50_000
ARROW_BYTES_PER_BATCH = 16 << 20

SETTINGS: dict[str, str] = {
    # Decoding costs per batch, so batches are large; bytes bound them when records are.
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_RECORDS_PER_BATCH),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BYTES_PER_BATCH),
    # Workers are reused, and each keeps its client for later tasks.
    "spark.python.worker.reuse": "true",
    # A speculative second attempt of a task would only send the same rows.
    "spark.speculation": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.streaming.metricsEnabled": "false",
    # Spark asks Kafka for new offsets each 10 ms when there were none: one core of two for two idle queries.
    "spark.sql.streaming.pollingDelay": "200ms",
    # A query whose source waits for a broker that does not answer would keep its driver for minutes; an interrupted
    # micro-batch is replayed.
    "spark.sql.streaming.stopTimeout": "10s",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings that the queries need, or that make them faster. A launcher may override them."""


def spark_session(name: str) -> Any:
    """Return the session of a job under spark-submit, or a new one. The launcher's settings win over ours."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    wanted = {**SETTINGS, **dict(SparkConf().getAll())}
    builder = SparkSession.builder.appName(name)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def stop_query(query: Any) -> None:
    """Stop a streaming query and wait a short time for its end; the next run replays its micro-batch.

    It runs on a thread of its own, and so on a connection of its own to the JVM: SIGTERM may interrupt the caller
    during a call, and another call on that connection would wait for the first one's answer, which comes when the query
    has ended.
    """

    def stop() -> None:
        try:
            if query.isActive:
                query.stop()
        except Exception:  # noqa: BLE001 - the JVM may be ending, too, and the query with it
            return

    stopping = threading.Thread(target=stop, name="stop", daemon=True)
    stopping.start()
    stopping.join(STOP_QUERY_WITHIN_S)


@contextmanager
def interrupted_in_order(spark: Any, stopping: threading.Event) -> Iterator[None]:
    """Handle a QueryInterrupted of the run inside: it is raised again if another run can help.

    QueryRefused if Spark's JVM has ended, because no restart in this process can help. No error if `stopping` is set:
    then the interruption is a result of the stop.
    """
    try:
        yield
    except QueryInterrupted as error:
        try:
            spark.sparkContext._jvm.java.lang.System.nanoTime()
        except Exception:  # noqa: BLE001 - whatever a broken gateway raises
            raise QueryRefused("Spark ended while the query ran: start the job again") from error
        if not stopping.is_set():
            raise
