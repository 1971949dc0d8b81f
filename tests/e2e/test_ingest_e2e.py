"""The ingest query from its real entry point, and its promise: exactly once through replay and a lost checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from nyala.infra.local.jobs import JobProcess
from nyala.pipeline import RowPublisher
from nyala.replica.rows import RowOp
from tests.harness.cluster import wait_until
from tests.harness.road import SCHEMA, Road, event, key_of, row

pytestmark = pytest.mark.e2e
ROWS = 3000


def test_topic_becomes_table_exactly_once_through_replay_and_lost_checkpoint(road: Road) -> None:
    """Goal: rows and dead letters are the same after a run, a replayed micro-batch and a run without checkpoint.

    Method: remove the last commit, so that Spark replays; remove the checkpoint; compare each time.
    """
    lane = road.lane("once", tablets=3, partitions=2, rf=3)
    lane.publish([row(k) for k in range(ROWS)], RowOp.INSERT)
    with RowPublisher(road.kafka, lane.topic, SCHEMA) as publisher:
        publisher.publish(row(5, "again"), RowOp.INSERT)
        publisher.publish(row(6, "second"))
        publisher.delete({"k": 7})
        publisher.publish_raw(key_of(8), b"no row at all")
        publisher.publish_raw(None, event(row(9)))
    expected = {k: row(k) for k in range(ROWS)} | {6: row(6, "second")}
    del expected[7]
    lane.run()
    assert lane.rows() == expected
    letters = {(one.place, one.record["reason"]) for one in lane.letters()}
    assert sorted(reason for _, reason in letters) == ["ALREADY_PRESENT", "NULL_KEY", "UNDECODABLE"]
    lane.forget_last_commit()
    told = lane.run()
    assert sum(p.replayed for p in told) == ROWS + 3 and sum(p.applied for p in told) == 0
    assert lane.rows() == expected
    lane.lose_checkpoint()
    lane.run()
    assert lane.rows() == expected
    assert {(one.place, one.record["reason"]) for one in lane.letters()} == letters


def test_job_under_spark_submit_streams_and_gives_its_lease_back_at_sigterm(road: Road) -> None:
    """Goal: the real entry point ingests, and an orderly end leaves no lease to wait for.

    Method: spark-submit as a stream; SIGTERM to the job; its owner is gone, and another query may begin.
    """
    lane = road.lane("submitted", partitions=2)
    lane.publish([row(k) for k in range(500)], RowOp.INSERT)
    events: list[dict[str, Any]] = []
    arguments = ["--table", lane.name, "--masters", road.stack.masters, "--kafka", road.kafka]
    arguments += ["--checkpoint", str(lane.checkpoint), "--lease-s", "600", "--owner-wait-s", "0"]
    job = JobProcess("ingest", arguments, road.folder / "submitted.log", on_event=events.append)
    job.start()
    try:
        wait_until(lambda: sum(e.get("records", 0) for e in list(events)) >= 500, "the job reads", 120)
        wait_until(lambda: lane.position().done + lane.position(1).done == 500, "done is said", 30)
        assert lane.position().owner_run
        job.stop()
    finally:
        job.kill()
    # The JVM is what `stop` waits for; the driver beside it gives the lease back, which else has ten minutes to run.
    wait_until(lambda: {lane.position(p).owner_run for p in (0, 1)} == {""}, "the lease is given back", 20)
    lane.publish([row(500)])
    lane.lose_checkpoint()
    assert sum(p.applied for p in lane.run()) == 1
    assert lane.rows() == {k: row(k) for k in range(501)}
