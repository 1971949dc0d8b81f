"""The workers that the first micro-batch meets have imported what its tasks need."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from nyala.pipeline.warm import warm_workers
from tests.harness.road import Road

pytestmark = pytest.mark.e2e
WAIT_S = 120.0


def test_warm_workers_have_imported_what_a_task_needs(road: Road, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: the first micro-batch waits for no import. Method: after the warm-up each worker that a job of the same
    shape meets already has the task's module; a warm-up that cannot run is no trouble for anybody."""
    warm_workers(road.spark).join(WAIT_S)

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import sys

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"ready": ["nyala.pipeline.task" in sys.modules]})

    ready = road.spark.range(0, 2, 1, 2).mapInArrow(look, "ready boolean").collect()
    assert [row.ready for row in ready] == [True, True]
    with caplog.at_level(logging.INFO):
        warm_workers(None).join(WAIT_S)
    assert "not warmed" in caplog.text
