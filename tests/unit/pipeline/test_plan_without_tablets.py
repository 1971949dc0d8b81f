"""What the driver gets of a plan: the plan as it was made, without the tablets that it was made of."""

from __future__ import annotations

import pickle
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.infra.bench.options import PlanSize
from nyala.infra.bench.planning import made_reports, plan_figures
from nyala.pipeline.plan_tasks import REPORTS_PER_LIST, newest_reports
from nyala.pipeline.rebalance import Plan, RebalanceOptions, describe, planned_of
from nyala.replica.policy import inputs_of
from nyala.schemas import encode_record
from tests.unit.pipeline.test_rebalance_words import held, server
from tests.unit.policy.test_policy_rebalance import random_view


@settings(max_examples=50)
@given(st.integers(0, 1 << 30))
def test_plan_says_the_same_without_its_tablets(seed: int) -> None:
    """Goal: what operators and the exit status of a job are told does not change on the way from a task to the driver.
    Method: random clusters; each plan beside the same one without tablets, sent as Spark sends it, and cut twice."""
    plan = Plan("p", random_view(seed), (), {}, inputs_of((), 0), left_out=seed % 2)
    light = pickle.loads(pickle.dumps(plan.without_tablets())).without_tablets(deadline_us=5)
    assert light.deadline_us == 5 and light.view.tablets == ()
    assert describe(light) == describe(plan)
    assert (light.unsettled, light.stuck, light.complete) == (plan.unsettled, plan.stuck, plan.complete)


def test_tasks_pass_on_reports_in_lists_of_bounded_length() -> None:
    """Goal: a task neither keeps back nor repeats a report, and no value that it passes on is without bound. Method:
    more records of tablets than a list has, some twice."""
    count = 2 * REPORTS_PER_LIST + 1
    reports = [held("t", number, "a") for number in range(count)]
    rows = [(r.tablet_id.encode(), encode_record(r), offset) for offset, r in enumerate([*reports, *reports[:10]])]
    lists = list(newest_reports(rows))
    assert [len(each) for each in lists] == [REPORTS_PER_LIST, REPORTS_PER_LIST, 1]
    assert [r.tablet_id for each in lists for r in each] == [r.tablet_id for r in reports]


def test_made_reports_are_planned_towards_even() -> None:
    """Goal: the benchmark's cluster is one that has to be evened out, and its figures tell how far a plan gets. Method:
    90 servers with a tenth of them new, planned with room for all moves, and with room for none but ten."""
    size, now_us = PlanSize(replicas=900, tables=3, servers=30), time.time_ns() // 1000
    reports = [r for part in range(3) for r in made_reports(size, now_us, part, 3)]
    assert len(reports) == 30 + 300 and sum(bool(r.tablet_id) for r in reports) == 300

    def figures(moves_max: int) -> dict[str, float]:
        wide = dict.fromkeys(("moves_max", "moves_per_server_max", "leader_moves_max"), moves_max)
        options = RebalanceOptions(bootstrap="none:1", leader_moves_per_server_max=moves_max, **wide)
        plan = planned_of(options, now_us, iter(reports))
        assert isinstance(plan, Plan) and not plan.unsettled
        return plan_figures(plan, size)

    few, all_of_them = figures(10), figures(1000)
    assert few["plan_replica_moves"] == 10 and few["plan_skew_before"] == all_of_them["plan_skew_before"] > 20
    assert all_of_them["plan_skew_after"] <= 1 < few["plan_skew_after"]
    bound, moves = all_of_them["plan_replica_bound"], all_of_them["plan_replica_moves"]
    assert bound <= moves <= 1.1 * bound


def test_job_whose_inputs_lack_something_sends_no_record() -> None:
    """Goal: a reading that no plan can be made of costs the driver nothing either. Method: one server of two."""
    lacking = planned_of(RebalanceOptions(bootstrap="none:1"), time.time_ns() // 1000, [server("a", 1)])
    assert not isinstance(lacking, Plan) and "records of 1 servers" in str(lacking)
    assert getattr(lacking, "records", None) == ()
