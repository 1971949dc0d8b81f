"""Plans are made by Spark's tasks, and are those of the pure planner."""

from __future__ import annotations

import os
import pickle
import time
from functools import partial
from typing import Any

import pytest

from nyala.infra.bench.options import PlanSize
from nyala.infra.bench.planning import made_reports, plan_figures
from nyala.pipeline import QueryRefused, RebalanceOptions
from nyala.pipeline.plan_tasks import made_in_tasks
from nyala.pipeline.rebalance import Plan, describe, plan_of, planned_of
from nyala.replica.policy import Inputs, inputs_of
from nyala.schemas import encode_record
from tests.harness.road import Road

pytestmark = pytest.mark.e2e
SIZE = PlanSize(replicas=6000, tables=20, servers=60)
PARTS = 4


@pytest.mark.deep
def test_driver_gets_the_plan_and_no_tablet(road: Road) -> None:
    """Goal: Spark's tasks read and plan, and the driver gets the moves that the pure planner makes of all reports, at
    a size that does not follow the tablets. Method: made reports of 2,000 tablets, in four parts: the plan beside the
    pure one; its size beside that of the reports; the stages of the job, with their tasks, and the processes. Then a
    refusal, and reports of which some are missing."""
    now_us = time.time_ns() // 1000
    parts = [list(made_reports(SIZE, now_us, part, PARTS)) for part in range(PARTS)]
    reports = [report for part in parts for report in part]
    rows = [
        (number, bytearray((r.tablet_id or f"server:{r.server_uuid}").encode()), bytearray(encode_record(r)), offset)
        for number, part in enumerate(parts)
        for offset, r in enumerate(part)
    ]
    spark = road.spark
    frame = spark.createDataFrame(rows, "part int, key binary, value binary, offset bigint").repartition(PARTS, "part")
    records = frame.localCheckpoint()
    options = RebalanceOptions(bootstrap="none:1", moves_max=20, leader_moves_max=20)

    def made(options: RebalanceOptions, some: Any = records) -> Any:
        return made_in_tasks(some, partial(planned_of, options, now_us))

    context = spark.sparkContext
    context.setJobGroup("a plan", "")
    plan = made(options)
    (job,) = context.statusTracker().getJobIdsForGroup("a plan")
    stages = [context.statusTracker().getStageInfo(n) for n in context.statusTracker().getJobInfo(job).stageIds]
    assert sorted(stage.numTasks for stage in stages) == [1, records.rdd.getNumPartitions()]
    assert made_in_tasks(records, lambda found: (os.getpid(), len(list(found))))[0] != os.getpid()

    pure = plan_of(options, inputs_of(reports, now_us), now_us)
    assert isinstance(plan, Plan) and len(plan.moves) == 40 and plan.moves == pure.moves
    told = describe(plan).splitlines()
    assert told[2:] == describe(pure).splitlines()[2:]
    assert (plan.unsettled, plan.stuck, plan.left_out) == (pure.unsettled, pure.stuck, pure.left_out)
    assert plan_figures(plan, SIZE) == plan_figures(pure, SIZE)
    assert (plan.view.tablets, plan.inputs.records) == ((), ())
    assert len(pickle.dumps(plan)) < 50_000 < 500_000 < sum(len(value) for _, _, value, _ in rows)

    refused = made(RebalanceOptions(bootstrap="none:1", drain=("x",)))
    assert isinstance(refused, QueryRefused) and "servers begin with 'x'" in str(refused)
    lacking = made(options, records.where("part <> 0"))
    assert isinstance(lacking, Inputs) and "no record of" in lacking.lacks and lacking.records == ()
