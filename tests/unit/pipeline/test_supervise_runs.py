"""Restarts of queries, refused options, decisions in force, launch command, conditions as text."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from nyala import schemas
from nyala.pipeline.decision_tasks import BOUNDS, newest
from nyala.pipeline.errors import QueryInterrupted, QueryRefused
from nyala.pipeline.ingest import IngestOptions
from nyala.pipeline.plan_tasks import newest_reports
from nyala.pipeline.rebalance import named
from nyala.pipeline.session import interrupted_in_order
from nyala.pipeline.submit import JOBS, job_script, submit_environment
from nyala.pipeline.supervise import ProgressCounter, RestartOptions, restart_options, run_with_restarts
from nyala.replica.decision_executor import carry_out_all
from nyala.replica.policy import Move, MoveKind
from nyala.replica.types import Decision, OpId, Outcome, Refused, Result, limits

HOUR = 3600.0


def run(
    ends: list[Exception | None],
    options: RestartOptions,
    durations: list[float] | None = None,
    made_progress: list[bool] | None = None,
) -> list[float]:
    """Run with scripted ends; returns the pauses, in which the clock goes on too."""
    pauses: list[float] = []
    clock = [0.0]
    left = list(ends)
    times, beats = list(durations or [0.0] * len(ends)), list(made_progress or [False] * len(ends))
    counter = ProgressCounter()

    def once() -> None:
        clock[0] += times.pop(0)
        if beats.pop(0):
            counter.beat("a micro-batch")
        if (end := left.pop(0)) is not None:
            raise end

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock[0] += seconds

    run_with_restarts(once, options, lambda _: None, counter=counter, sleep=sleep, now=lambda: clock[0])
    return pauses


def test_interrupted_query_restarts_with_growing_pauses() -> None:
    """Goal: back-off doubles to its bound, and an orderly end ends it. Method: scripted ends and a fake clock."""
    ends: list[Exception | None] = [QueryInterrupted("x")] * 5 + [None]
    assert run(ends, RestartOptions(backoff_s_max=6.0)) == [1.0, 2.0, 4.0, 6.0, 6.0]


def test_restarts_end_at_their_limit_and_start_anew_after_calm() -> None:
    """Goal: restarts are limited, and the count starts again after a long run. Method: limit 2, one long run."""
    with pytest.raises(QueryInterrupted):
        run([QueryInterrupted("x")] * 3, RestartOptions(restarts_max=2))
    ends: list[Exception | None] = [QueryInterrupted("x")] * 4 + [None]
    assert run(ends, RestartOptions(restarts_max=2), [0, 0, 1000, 0, 0]) == [1.0, 2.0, 1.0, 2.0]


def test_outage_of_hours_is_waited_out_with_capped_pauses() -> None:
    """Goal: Kafka away for twelve hours, or no leader for as long, costs pauses and no operator. Method: runs that fail
    at once, and runs that fail after two minutes each; the last one returns."""
    for lasts in (0.0, 120.0):
        count = int(12 * HOUR / (lasts + 30.0))
        ends: list[Exception | None] = [*([QueryInterrupted("Kafka does not answer")] * count), None]
        pauses = run(ends, RestartOptions(), [lasts] * (count + 1))
        assert len(pauses) == count and max(pauses) == 30.0


def test_outage_that_nobody_ends_is_told_with_how_long_it_was() -> None:
    """Goal: a job gives up after its patience, and says how long the outage was and what to do. Method: runs that fail
    at once, for an hour of patience; with the patience of a run that is to catch up."""
    for options, least in (
        (RestartOptions(patience_s=HOUR), 3600),
        (restart_options(None, None, catches_up=True), 600),
    ):
        with pytest.raises(
            QueryInterrupted, match=r"away; given up after \d+ s without progress.*start the job again"
        ) as e:
            run([QueryInterrupted("away")] * 1000, options)
        waited = int(str(e.value).partition("given up after ")[2].split()[0])
        assert least <= waited <= least + 30
    assert restart_options(None, 3, catches_up=False) == RestartOptions(restarts_max=3)
    assert restart_options(7.0, None, catches_up=True).patience_s == 7.0


def test_run_that_is_to_catch_up_and_takes_long_to_fail_is_no_calm() -> None:
    """Goal: a run that is to catch up and fails slowly does not reset the patience. Method: runs that each fail after
    310 s, longer than a stream's calm, with the patience of such a run; a run of hours between two troubles is calm
    there too."""
    options = restart_options(None, None, catches_up=True)
    with pytest.raises(QueryInterrupted, match="given up after") as e:
        run([QueryInterrupted("no leader")] * 10, options, [310.0] * 10)
    assert 600 <= int(str(e.value).partition("given up after ")[2].split()[0]) <= 700
    assert len(run([*([QueryInterrupted("x")] * 2), None], options, [HOUR, HOUR, 0.0])) == 2


def test_job_that_gets_on_has_all_its_patience_back() -> None:
    """Goal: a micro-batch that succeeds resets the patience. Method: a thousand runs that end after one micro-batch;
    then runs that do nothing, which use the patience up from there; then a day of calm between two of them."""
    year: list[Exception | None] = [*([QueryInterrupted("x")] * 1000), None]
    assert run(year, RestartOptions(patience_s=HOUR), [100.0] * 1001, [True] * 1001) == [1.0] * 1000
    trouble = [QueryInterrupted("x")] * 300
    with pytest.raises(QueryInterrupted, match="given up after"):
        run([*year[:1000], *trouble], RestartOptions(patience_s=HOUR), [100.0] * 1300, [True] * 1000 + [False] * 300)
    calm = [0.0] * 100 + [86_400.0] + [0.0] * 100
    ends: list[Exception | None] = [*trouble[:200], None]
    assert len(run(ends, RestartOptions(patience_s=HOUR), calm)) == 200


def test_refused_query_is_not_restarted() -> None:
    """Goal: a query that needs an operator is not restarted. Method: one refusal."""
    with pytest.raises(QueryRefused):
        run([QueryRefused("x"), None], RestartOptions())


@pytest.mark.parametrize("name", ["minPartitions", "maxRecordsPerPartition", "startingOffsets", "subscribePattern"])
def test_option_that_would_break_exactly_once_is_refused(name: str) -> None:
    """Goal: two tasks on one Kafka partition cannot be configured. Method: pass each such option."""
    with pytest.raises(QueryRefused, match=name):
        IngestOptions(table="t", masters="m", bootstrap="b", checkpoint="c", kafka={name: "1"})


def decision(tablet: str, version: int, term: int = 1, **more: Any) -> bytes:
    value: dict[str, Any] = {
        "tablet_id": tablet, "table_id": "t", "catalog_term": term, "version": version, "action": "TRANSFER_LEADERSHIP",
        "edits": [], "config_opid": {"term": 1, "index": 1}, "deadline_us": 0, "reason": "",
    }  # fmt: skip
    return schemas.encode("decision", value | more)


def test_only_the_newest_decision_of_a_tablet_is_in_force() -> None:
    """Goal: replaced, withdrawn and unreadable decisions are not executed. Method: all three in one micro-batch."""
    records = [
        (b"a", decision("a", 1), 0),
        (b"b", decision("b", 1), 1),
        (b"a", decision("a", 2), 2),
        (b"b", None, 3),
        (b"c", b"\xff", 4),
    ]
    assert [(each.tablet_id, each.version) for each in newest(records, {})] == [("a", 2)]


def test_decision_of_a_deposed_master_is_dropped_wherever_it_stands() -> None:
    """TC-69. Goal: a late decision of an older catalog term does not replace the decision of a newer one. Method: it
    comes behind that in one micro-batch, and alone in the next one; another tablet's, of which nothing newer is known,
    is executed; a withdrawal, which has no term, counts, as the need is said again while it lasts."""
    terms: dict[bytes, int] = {}

    def read(*records: tuple[bytes, bytes | None]) -> list[tuple[str, int, int]]:
        found = newest([(key, value, at) for at, (key, value) in enumerate(records)], terms)
        return [(each.tablet_id, each.catalog_term, each.version) for each in found]

    late = (b"a", decision("a", 7, term=1))
    assert read((b"a", decision("a", 1, term=2)), late, (b"b", decision("b", 1, term=1))) == [("a", 2, 1), ("b", 1, 1)]
    assert read(late) == []
    assert read((b"a", decision("a", 2, term=2)), late, (b"a", None), late) == []
    assert read((b"a", decision("a", 3, term=2)), late) == [("a", 2, 3)]


def test_plan_reasons_name_the_table() -> None:
    """Goal: people read names. Method: a reason with the table's id, and one of a table that no report names."""
    made = Move(
        kind=MoveKind.REPLICA, tablet_id="x", table_id="1234", from_uuid="a", to_uuid="b", config_opid=OpId(1, 1),
        bytes=0, reason="table 1234: 3 replicas against 1",
    )  # fmt: skip
    assert named(made, {"1234": "flights"}) == "table flights: 3 replicas against 1"
    assert named(made, {}) == made.reason


def test_spark_that_has_ended_is_not_restarted() -> None:
    """Goal: a driver whose JVM was killed ends at once. Method: a session whose gateway answers nothing."""
    refused = pytest.raises(QueryRefused, match="start the job again")
    with refused, interrupted_in_order(object(), threading.Event()):
        raise QueryInterrupted("x")


def test_launch_uses_this_interpreter() -> None:
    """Goal: workers never start another Python. Method: look at the environment and the scripts."""
    environment = submit_environment({"PATH": "/usr/bin", "SPARK_HOME": "/elsewhere"})
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert "SPARK_HOME" not in environment
    for job in JOBS:
        assert Path(job_script(job)).name == f"{job}.py"
    with pytest.raises((ValueError, Refused)):
        job_script("nothing")


@pytest.mark.parametrize("offsets", [0, -1, limits.LEDGER_ERROR_RUNS_MAX + 1])
def test_micro_batch_larger_than_what_a_ledger_remembers_is_refused(offsets: int) -> None:
    """Goal: no micro-batch can fill a tablet's memory of failed rows and wedge it. Method: sizes out of range."""
    with pytest.raises(QueryRefused, match=f"offsets_per_trigger_max is {offsets}, it must be from 1 to"):
        IngestOptions(table="t", masters="m", bootstrap="b", checkpoint="c", offsets_per_trigger_max=offsets)


def test_decision_of_a_term_that_no_master_has_reached_changes_nothing() -> None:
    """IN-90. Goal: a forged decision of the highest term neither replaces a valid one nor keeps later ones out. Method:
    it comes behind an honest one under the same key, and alone; the next honest one is in force."""
    terms: dict[bytes, int] = {}
    told: list[int] = []
    forged = (b"a", decision("a", 1, term=(1 << 63) - 1))

    def read(*records: tuple[bytes, bytes | None]) -> list[tuple[int, int]]:
        found = newest(
            [(key, value, at) for at, (key, value) in enumerate(records)],
            terms,
            term_max=5,
            skip=lambda at, _: told.append(at),
        )
        return [(each.catalog_term, each.version) for each in found]

    assert read((b"a", decision("a", 1, term=5)), forged) == [(5, 1)]
    assert read(forged) == []
    assert read((b"a", decision("a", 2, term=5))) == [(5, 2)]
    assert told == [1, 0]


@pytest.mark.parametrize("value", [b"garbage", b"", bytes(2 << 20), "other key", "bad address", "negative"])
def test_record_that_is_no_decision_is_skipped_and_told(value: Any) -> None:
    """IN-90. Goal: an invalid record on `decisions` is skipped and logged, and the valid decision under its key stays
    in force. Method: each kind of record behind an honest one, with and without a key."""
    made = {
        "other key": decision("b", 1),
        "bad address": decision("a", 2, leader_address="nowhere", leader_uuid="x"),
        "negative": decision("a", -2),
    }.get(value, value)
    told: list[str] = []
    records = [(b"a", decision("a", 1), 0), (b"a", made, 1), (None, made, 2), (None, None, 3)]
    found = newest(records, {}, skip=lambda _, reason: told.append(reason))
    assert [(each.tablet_id, each.version) for each in found] == [("a", 1)]
    assert len(told) == 3
    assert all(told)


def test_report_of_a_stranger_hides_no_report_of_the_masters() -> None:
    """IN-90. Goal: forged records on `reports` do not hide the masters' reports. Method: garbage, another tablet's
    report and a key in no UTF-8 behind an honest one; a deletion still counts."""

    def report(tablet: str, rows: int) -> bytes:
        value: dict[str, Any] = {
            "tablet_id": tablet, "table_id": "b", "table_name": "n", "range_pos": 0, "bucket": 0,
            "replication_factor": 3, "config_opid": {"term": 1, "index": 1}, "pending_change": False,
            "leader_uuid": "", "term": 1, "replicas": [], "catalog_term": rows, "at_us": 1,
        }  # fmt: skip
        return schemas.encode("report", value)

    honest = report("a", 1)
    rows = [
        (b"a", honest, 0), (b"a", b"garbage", 1), (b"a", report("b", 2), 2), (b"\xff", b"garbage", 3),
        (None, honest, 4),
        (b"c", report("c", 1), 5), (b"c", None, 6), (b"c", b"garbage", 7),
    ]  # fmt: skip
    ((kept,),) = newest_reports(rows)
    assert (kept.tablet_id, kept.catalog_term) == ("a", 1)


def test_decision_that_meets_a_defect_ends_as_failed() -> None:
    """IN-90. Goal: a decision that raises an unexpected error ends as failed, and the query goes on. Method: the
    attempt raises what nobody expects."""

    def broken(_: Decision) -> Outcome:
        raise KeyError("x")

    made = schemas.from_avro(Decision, schemas.decode("decision", decision("a", 1)))
    (outcome,) = carry_out_all([made], broken, BOUNDS)
    assert (outcome.result, outcome.retryable, "KeyError" in outcome.message) == (Result.FAILED, False, True)
