"""What dies, or was never committed, under a running query: not one row doubled, none lost."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from kafka import KafkaProducer

from nyala.pipeline import QueryInterrupted, RestartOptions
from nyala.replica.client import ScanSpec
from nyala.replica.rows import RowOp
from tests.harness.cluster import wait_until
from tests.harness.event_load import EventLoad
from tests.harness.road import Road, event, key_of, row
from tests.harness.stack import Stack

pytestmark = pytest.mark.e2e
AWAY_S = float(os.environ.get("NYALA_KAFKA_AWAY_S", "10"))
"""How long Kafka stays away."""


def test_faults_task_repeated_after_half_doubles_nothing(road: Road) -> None:
    """Goal: a task that died half-way is repeated exactly (scenario 59). Method: the worker dies after its first batch.

    Spark repeats the task; rows are inserts, so a doubled one would be a dead letter.
    """
    lane = road.lane("half")
    lane.publish([row(k) for k in range(3000)], RowOp.INSERT)
    records = road.spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    road.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        with road.workers_die_at("pipeline.after_first_batch"):
            (told,) = lane.run(batch_bytes=4000)
    finally:
        road.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", records)
    assert 0 < told.replayed < 3000 and told.applied + told.replayed == 3000
    assert lane.rows() == {k: row(k) for k in range(3000)}
    assert lane.letters() == []


@pytest.mark.deep
def test_faults_micro_batch_that_fails_when_two_of_its_tasks_have_written_ends_as_one_that_did_not(road: Road) -> None:
    """Goal: scenario 60: a task that fails for good leaves what the others wrote, which is then theirs: the repeated
    micro-batch ends as one clean run, and nobody has to take anything back. Method: of three Kafka partitions the last
    one has a failing row, before whose letter its worker dies in each attempt, so that Spark gives the micro-batch up;
    then without deaths; then again, as if the driver had died before Spark's commit. The same key comes five times."""
    lane = road.lane("given-up", partitions=3)
    producer = KafkaProducer(bootstrap_servers=road.kafka, acks="all")
    for partition in range(3):
        for k in range(10 * partition, 10 * partition + 10):
            producer.send(lane.topic, partition=partition, key=key_of(k), value=event(row(k)))
        for n in range(5):
            last = event(row(10 * partition, f"time {n}"))
            producer.send(lane.topic, partition=partition, key=key_of(10 * partition), value=last)
    insert = [("nyala-op", b"INSERT")]
    producer.send(lane.topic, partition=2, key=key_of(29), value=event(row(29, "again")), headers=insert)
    producer.close()
    with road.workers_die_at("pipeline.before_dead_letters"), pytest.raises(QueryInterrupted):
        lane.run()
    expected = {k: row(k) for k in range(30)} | {10 * p: row(10 * p, "time 4") for p in range(3)}
    # Two tasks run at once, so the last one began when another had written; the third may have been cut short by Spark.
    left = lane.rows()
    assert left == {k: expected[k] for k in left} and {2} < {k // 10 for k in left} and lane.letters() == []
    assert [lane.position(p).done for p in range(3)] == [0, 0, 0]
    (told,) = lane.run()
    assert (told.applied + told.replayed, told.dead_letters) == (46, 1) and told.replayed > 16
    lane.forget_last_commit()
    (again,) = lane.run()
    assert (again.batch_id, again.applied, again.replayed) == (told.batch_id, 0, 46)
    assert lane.rows() == expected and [one.record["kafka_offset"] for one in lane.letters()] == [15]
    assert [lane.position(p).done for p in range(3)] == [15, 15, 16]


def test_faults_aborted_transactions_are_not_ingested(road: Road) -> None:
    """Goal: read_committed. Method: an aborted transaction between two committed ones."""
    lane = road.lane("aborted")
    producer = KafkaProducer(bootstrap_servers=road.kafka, acks="all", transactional_id="aborted")
    producer.init_transactions()
    for first, commit in ((0, True), (100, False), (200, True)):
        producer.begin_transaction()
        for k in range(first, first + 10):
            producer.send(lane.topic, key=key_of(k), value=event(row(k)))
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    lane.run()
    assert set(lane.rows()) == {*range(10), *range(200, 210)}


def test_faults_leader_broker_and_master_killed_under_load_every_event_counts_once(road: Road) -> None:
    """Goal: the death of a process that a query writes to, reads from, or has its lease from costs time only.

    Method: events that leave a trace if they are applied twice flow all the time. kill -9 in turn of a tablet's leader,
    of the broker and of the master, which their supervisor starts again; after each the query goes on by itself, up to
    events that were published after the victim's return. In the end the table equals the events applied to a dict.
    """
    lane = road.lane("bereft", partitions=2, rf=3)
    stack = Stack(road.stack, road.client)
    done = lambda: sum(p.done for p in road.client.list_sources(lane.name))  # noqa: E731
    load = EventLoad(lane)

    def goes_on() -> None:
        """Wait until an event is done that was published after now."""
        published = load.events
        wait_until(lambda: load.events > published and done() > published, "rows flow on", 300)
        assert query.error is None, query.told

    with lane.running(RestartOptions(backoff_s_min=0.2, backoff_s_max=2.0)) as query:
        for victim in (stack.leader(lane.handle.tablets[0].tablet_id), "kafka", "master-1"):
            goes_on()
            before = stack.pids()
            stack.kill(victim)
            stack.wait_replaced(before, victim)
        goes_on()
        events = load.finish()
        wait_until(lambda: done() == events, "every event is done", 300)
        wait_until(
            lambda: sum(s.alive for s in road.client.list_servers().servers) == 3, "the master hears all servers"
        )
    assert query.error is None
    assert lane.rows() == load.rows
    letters = lane.letters()
    assert {each.record["reason"] for each in letters} == {"ALREADY_PRESENT"}
    assert sorted(each.record["key"] for each in letters) == sorted(load.letters)


@pytest.mark.deep
def test_faults_kafka_away_longer_than_every_timeout_everything_waits_and_resumes(road: Road) -> None:
    """Goal: nothing is lost or doubled, and what was wanted meanwhile is done. Method: kill -9 of the broker.

    Under an ingest query, a decisions query and a master; a replica's move is asked for while it is away. The absence
    is five times the queries' `kafka_timeout_s`, as five minutes are to its default, and longer than the timeouts of
    the master's clients; NYALA_KAFKA_AWAY_S=300 makes it five minutes, with the default. So both queries' runs must
    end, and be started again. A failed insert before and after uses a worker's producer that lived through it.
    """
    lane = road.lane("away")
    patience: dict[str, Any] = {
        "kafka_timeout_s": AWAY_S / 5,
        "restarts": RestartOptions(backoff_s_min=AWAY_S / 300, backoff_s_max=AWAY_S / 10),
    }
    tablet = lane.handle.tablets[0]
    led = lambda: wait_until(lambda: road.homes(tablet.tablet_id), "somebody leads")  # noqa: E731
    home = led()[0]
    target = min(s.uuid for s in road.client.list_servers().servers if s.uuid != home)
    lane.publish([row(0), *(row(k) for k in range(2000))], RowOp.INSERT)
    with lane.running(offsets_per_trigger_max=400, **patience) as query, road.deciding(**patience) as deciding:
        query.wait_done(400)
        with road.kafka_away():
            road.client.move_replica(tablet.tablet_id, home, target, reason="asked for while Kafka is away")
            threading.Event().wait(AWAY_S)
            wait_until(lambda: query.told and deciding.told, "both were interrupted")
            assert led() == [home]
        query.wait_done(2001, 240 + AWAY_S)
        lane.publish([row(0), *(row(k) for k in range(2000, 2100))], RowOp.INSERT)
        query.wait_done(2102, 240 + AWAY_S)
        wait_until(lambda: road.homes(tablet.tablet_id) == [target], "the replica has moved", 240 + AWAY_S)
    assert query.error is None and deciding.error is None
    assert lane.rows() == {k: row(k) for k in range(2100)}
    assert sorted(one.record["kafka_offset"] for one in lane.letters()) == [1, 2001]
    assert road.client.count(road.client.get_table("away"), ScanSpec()) == 2100
