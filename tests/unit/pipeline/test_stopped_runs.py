"""A query that was stopped does not begin again, whatever error Spark raises when a micro-batch is interrupted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nyala.pipeline.decisions import DecisionsOptions, DecisionsQuery
from nyala.pipeline.errors import QueryInterrupted
from nyala.pipeline.supervise import RestartOptions, run_with_restarts

JVM = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=SimpleNamespace(nanoTime=lambda: 1))))
SPARK = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=JVM))


class SparkQuery:
    """Stands for Spark's StreamingQuery, which ends with an error when a micro-batch is interrupted."""

    isActive = False

    def __init__(self, meanwhile: Any) -> None:
        self._meanwhile = meanwhile

    def awaitTermination(self) -> None:
        """[pyspark] Wait; here, what happens while somebody waits."""
        self._meanwhile()
        raise RuntimeError("java.lang.InterruptedException")


class Decisions(DecisionsQuery):
    """The decisions query without Kafka and Spark."""

    def __init__(self, stopped: bool) -> None:
        super().__init__(SPARK, DecisionsOptions(masters="127.0.0.1:1", bootstrap="127.0.0.1:1", checkpoint="c"))
        self._stopped = stopped

    def _ensure_topics(self) -> None:
        """No Kafka."""

    def _start(self) -> Any:
        return SparkQuery(self.stop if self._stopped else lambda: None)


def test_query_that_was_stopped_amid_a_micro_batch_ends_in_order() -> None:
    """Goal: a query that was stopped in the middle of a micro-batch ends without an error. Method: the same error from
    Spark, with and without somebody who stopped the query."""
    told: list[str] = []
    run_with_restarts(lambda: Decisions(stopped=True).run(), RestartOptions(restarts_max=0), told.append)
    assert told == []
    with pytest.raises(QueryInterrupted, match="InterruptedException"):
        Decisions(stopped=False).run()
