"""The workers that the first micro-batch uses have imported what its tasks need."""

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


def test_warm_workers_have_imported_what_a_task_needs(
    road: Road, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the first micro-batch waits for no import. Method: workers of their own, by an environment that no other
    test of this session has: after the warm-up there are those that it used and no other. The next task meets one of
    them, which has its module already; a warm-up that cannot run is no trouble for anybody."""
    monkeypatch.setitem(road.spark.sparkContext.environment, "WORKERS_OF", "this test")
    with caplog.at_level(logging.INFO):
        warm_workers(road.spark).join(WAIT_S)
    assert "not warmed" not in caplog.text

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import sys

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"ready": ["nyala.pipeline.task" in sys.modules]})

    ready = road.spark.range(0, 1, 1, 1).mapInArrow(look, "ready boolean").collect()
    assert [row.ready for row in ready] == [True]
    with caplog.at_level(logging.INFO):
        warm_workers(None).join(WAIT_S)
    assert "not warmed" in caplog.text
