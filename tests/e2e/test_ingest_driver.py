"""The driver, a JVM and an interpreter under spark-submit: killed, doubled, halved, stopped while Kafka hangs."""

from __future__ import annotations

import signal

import pytest

from nyala.pipeline import QueryRefused
from nyala.replica.rows import RowOp
from tests.harness.cluster import wait_until
from tests.harness.drivers import Driver, kept_ingest, kept_log, wait_paused
from tests.harness.event_load import EventLoad
from tests.harness.processes import children_of, is_gone, kill
from tests.harness.road import Road, row

pytestmark = pytest.mark.e2e


@pytest.mark.deep
def test_driver_killed_between_apply_and_letter_comes_back_at_once_and_tells_it_once(
    road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: an insert that failed has exactly one distinct letter, and a dead driver's lease is not waited for.

    Method: the worker pauses when the tablets have answered and no letter is out; kill -9 of JVM and interpreter. A
    second driver on the same checkpoint, with no patience though the lease has ten minutes to run, replays. While it
    lives, a third is refused. Then Kafka answers no more and SIGTERM comes: the job ends, and gives its lease back.
    """
    lane = road.lane("between")
    lane.publish([row(k) for k in range(200)], RowOp.INSERT)
    lane.publish([row(7, "doubled")], RowOp.INSERT)
    paused = road.folder / "paused"
    monkeypatch.setenv("NYALA_PAUSE_POINT", f"pipeline.before_dead_letters:{paused}")
    with Driver.of_lane(lane) as first:
        worker = wait_paused(paused)
        dead = lane.position().owner_run
        assert dead.split("/")[1] == str(first.python_pid)
        first.job.kill()
        wait_until(lambda: is_gone(worker), "the worker ends with its driver")
    monkeypatch.delenv("NYALA_PAUSE_POINT")
    assert lane.rows() == {k: row(k) for k in range(200)} and lane.letter_count() == 0
    assert lane.position().owner_run == dead and lane.position().done == 0
    with Driver.of_lane(lane) as second:
        second.wait_records(201)
        assert (second.total("applied"), second.total("replayed"), second.total("dead_letters")) == (0, 201, 1)
        (letter,) = lane.letters()
        assert (letter.record["reason"], letter.record["kafka_offset"]) == ("ALREADY_PRESENT", 200)
        wait_until(lambda: lane.position().done == 201, "done is said")
        with pytest.raises(QueryRefused, match=f"another query owns this source.*owner={lane.position().owner_run}"):
            lane.run()
        with road.kafka_held():
            second.job.stop(240)
            assert second.job.wait() != -signal.SIGKILL, "it ended by itself"
            wait_until(lambda: not lane.position().owner_run, "the lease is given back")
    assert lane.rows() == {k: row(k) for k in range(200)} and lane.letter_count() == 1


@pytest.mark.deep
def test_driver_half_that_is_left_ends_and_gives_the_lease_back(road: Road) -> None:
    """Goal: a job leaves no orphan. Method: kill -9 of the JVM under one job, of the interpreter under another."""
    lane = road.lane("halved")
    lane.publish([row(1)])
    arguments = ["--masters", road.stack.masters, "--kafka", road.kafka, "--checkpoint", str(road.folder / "decided")]
    with Driver("decisions", arguments, road.folder / "decided.log") as decisions, Driver.of_lane(lane) as ingest:
        ingest.wait_records(1)
        interpreter = ingest.python_pid
        kill(ingest.jvm_pid)
        wait_until(lambda: is_gone(interpreter), "the interpreter ends with its JVM")
        wait_until(lambda: not lane.position().owner_run, "the lease is given back")
        kill(decisions.python_pid)
        assert decisions.job.wait(240) == 128 + signal.SIGKILL, "the JVM tells how its interpreter ended"


@pytest.mark.deep
def test_driver_that_is_kept_goes_on_by_itself_after_kill_9(road: Road) -> None:
    """Goal: with `--restarts` nobody has to start a killed driver again, and SIGTERM leaves nothing of it.

    Method: kill -9 of the JVM between two events; the second must come into the table, though the dead driver's lease
    would run for an hour. Then SIGTERM to the command alone.
    """
    lane = road.lane("kept")
    with kept_ingest(lane, 5) as keeper:

        def wait_done(count: int) -> None:
            def done() -> bool:
                assert keeper.poll() is None, kept_log(lane).read_text()
                return sum(each.done for each in road.client.list_sources(lane.name)) == count

            wait_until(done, f"{count} events are done", 900)

        lane.publish([row(1)])
        wait_done(1)
        (killed,) = children_of(keeper.pid)
        kill(killed)
        lane.publish([row(2)])
        wait_done(2)
        (kept,) = children_of(keeper.pid)
        job = [kept, *children_of(kept)]
        assert kept != killed and len(job) > 1
        keeper.terminate()
        keeper.wait(480)
        wait_until(lambda: all(is_gone(pid) for pid in job), "the job is gone", 240)
    told = kept_log(lane).read_text()
    assert told.count("ingest was killed by SIGKILL") == 1 and "; start 1 of 5 in 1 s" in told, told
    assert lane.rows() == {k: row(k) for k in (1, 2)}


@pytest.mark.deep
def test_driver_killed_twice_under_load_every_event_counts_once(road: Road, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: kill -9 of the driver in mid micro-batch, and of the next one while it replays, loses and doubles nothing.

    Method: events that leave a trace if they are applied twice flow all the time into two Kafka partitions. The first
    driver dies wherever it is after some micro-batches; the second when a worker has applied the micro-batch in
    question and told nobody. The third must replay, and the table equals the events played one at a time on a dict.
    """
    lane = road.lane("twice", partitions=2)
    small = ("--offsets-per-trigger-max", "2000")
    paused = road.folder / "paused-in-replay"
    load = EventLoad(lane)
    with Driver.of_lane(lane, *small) as first:
        first.wait_records(4000)
        first.job.kill()
    monkeypatch.setenv("NYALA_PAUSE_POINT", f"pipeline.before_dead_letters:{paused}")
    with Driver.of_lane(lane, *small) as second:
        wait_paused(paused)
        second.job.kill()
    monkeypatch.delenv("NYALA_PAUSE_POINT")
    with Driver.of_lane(lane, *small) as third:
        third.wait_records(2000)
        events = load.finish()
        wait_until(lambda: sum(lane.position(p).done for p in (0, 1)) == events, "every event is done", 240)
        assert third.total("replayed") > 0, "the micro-batch of the second driver was applied, and not committed"
    assert lane.rows() == load.rows
    letters = lane.letters()
    assert {each.record["reason"] for each in letters} == {"ALREADY_PRESENT"}
    assert sorted(each.record["key"] for each in letters) == sorted(load.letters)
