"""The round of `nyala bench pipeline` on the running stack: the command would only start another one around it."""

from __future__ import annotations

import math

import pytest

from nyala.infra.bench import pipeline
from nyala.infra.bench.report import metric_of
from nyala.infra.bench.target import own_target
from tests.harness.road import Road

pytestmark = [pytest.mark.e2e, pytest.mark.deep]
ROWS = 2000


def test_bench_pipeline_tells_the_rates_and_the_processes_of_rows_that_came_through(road: Road) -> None:
    """Goal: figures of records that are in the table. Method: fill the topic, let one job read it in micro-batches; the
    round itself counts the table. Each figure is there, and the rate over the whole time is the lowest one."""
    told: list[str] = []
    pipeline.publish(road.kafka, ROWS, told.append)
    figures = pipeline.pipeline_round(own_target(road.stack, road.client), ROWS, ROWS // 2, 0)
    print(figures)
    cpu, peak = "pipeline_cpu_s_per_million_rows", "pipeline_server_peak_memory_mb"
    processes = ("kafka", "master-1", *(f"server-{n}" for n in (1, 2, 3)))
    rates = [f"pipeline_{name}rows_per_s" for name in ("", "query_", "batches_")]
    assert set(figures) == {
        "pipeline_rows", "pipeline_rows_per_batch_max", *rates, cpu, peak, f"{cpu}@clients",
        *(f"{name}@{process}" for name in (cpu, peak) for process in processes),
    }  # fmt: skip
    assert all(0 < v < math.inf and metric_of(k).unit for k, v in figures.items())
    assert (figures["pipeline_rows"], figures["pipeline_rows_per_batch_max"]) == (ROWS, ROWS // 2)
    assert figures["pipeline_rows_per_s"] == min(figures[name] for name in rates)
    assert told and "bench_pipeline_0" not in {table.name for table in road.client.list_tables()}
