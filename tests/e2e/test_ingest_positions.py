"""Which offsets a query may read: owners, checkpoints, generations, tables and topics that are not what they were."""

from __future__ import annotations

import json
import os
import shutil

import pyarrow as pa
import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from nyala.infra.cli.app import app
from nyala.pipeline import QueryRefused, Topics
from nyala.pipeline.checkpoint import Checkpoint
from nyala.replica.client import wire_batches
from nyala.replica.rows import RowOp
from nyala.replica.types import Code, Refused
from tests.harness.cluster import wait_until
from tests.harness.road import Lane, Road, row

pytestmark = pytest.mark.e2e


def test_ingest_second_live_query_is_refused_until_the_first_ends(road: Road, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: one owner at a time, told by name, as long as it lives (scenario 61). Method: a stream, another beside it.

    On another checkpoint and on the same one: the lease is the run's, not the checkpoint's. The second sees the lease
    renewed and gives up long before its patience ends. At the end the lease is given back, so it then starts at once,
    on a fresh checkpoint, whose micro-batches count from 0 again: it reads what is new, and says where it goes on.
    """
    lane = road.lane("owned")
    lane.publish([row(1)])
    with lane.running(lease_s=9.0) as first:
        first.wait_done(1)
        position = lane.position()
        refusal = f"another query owns this source.*nyala source release owned.*{position.owner_run}"
        with pytest.raises(QueryRefused, match=refusal):
            lane.run(checkpoint=str(road.folder / "second"))
        with pytest.raises(QueryRefused, match=refusal):
            lane.run(lease_s=9.0, owner_wait_s=600.0)
        assert lane.position().owner_deadline_us > position.owner_deadline_us
    lane.publish([row(2)])
    caplog.clear()
    (told,) = lane.run(checkpoint=str(road.folder / "second"))
    assert (told.batch_id, told.records, told.applied) == (0, 1, 1)
    assert 'second is new, and table owned knows topic writes.owned: reading goes on at offsets {"0": 1}' in caplog.text
    assert set(lane.rows()) == {1, 2}


def test_ingest_source_released_by_hand_ends_the_query_that_held_it(road: Road) -> None:
    """Goal: the command that a refusal names lets another query in, and fences the first. Method: release, then run."""
    lane = road.lane("taken")
    lane.publish([row(1)])
    with lane.running(lease_s=3.0) as first:
        first.wait_done(1)
        said = invoke(road, "source", "release", "taken", "--owner", lane.position().owner_run)
        assert "writes.taken[0]: released" in said
        assert "given back" in str(first.wait_error())
    lane.publish([row(2)])
    lane.run(checkpoint=str(road.folder / "taker"))
    assert lane.rows() == {k: row(k) for k in (1, 2)}


def test_ingest_checkpoint_outside_the_catalogs_bounds_is_refused_with_the_way_out(road: Road) -> None:
    """Goal: no offset is skipped or read twice by an old checkpoint; a reset begins a generation that tablets know.

    Method: read 400; reset above and below the checkpoint; read without it; write as the older generation.
    """
    lane = road.lane("moved")
    lane.publish([row(k) for k in range(400)])
    lane.run()
    assert (lane.position().start, lane.position().done) == (0, 400)
    lane.publish([row(k) for k in range(400, 500)])
    road.client.reset_source("moved", lane.source(), 450)
    with pytest.raises(QueryRefused, match=r"below the source's start.*nyala source reset moved.*query=400, start=450"):
        lane.run()
    lane.lose_checkpoint()
    lane.run()
    assert set(lane.rows()) == {*range(400), *range(450, 500)}
    road.client.reset_source("moved", lane.source(), 300)
    with pytest.raises(QueryRefused, match=r"would skip offsets.*delete the checkpoint.*query=500, done=300"):
        lane.run()
    lane.lose_checkpoint()
    assert sum(p.applied for p in lane.run()) == 200
    assert lane.rows() == {k: row(k) for k in range(500)}
    writer = road.client.source_writer(lane.handle, lane.source(), generation=2, done=500)
    with pytest.raises(Refused) as refusal:
        for batch in wire_batches(lane.handle, pa.Table.from_pylist([row(9, "old")]), RowOp.UPSERT):
            writer.send(batch)
        writer.flush()
    assert refusal.value.code is Code.STALE_GENERATION
    assert lane.rows()[9] == row(9)


def test_checkpoints_own_file_is_replaced_whole_and_a_damaged_one_is_refused(road: Road) -> None:
    """Goal: a driver killed at any moment leaves the file that says whose it is. Method: a second name for it.

    Written in place, the old bytes would change under that name; written beside and renamed, they stay. The same again
    writes nothing. Then cut it: no retry, but a person is told.
    """
    folder = road.folder / "own" / "nyala"
    folder.mkdir(parents=True)
    checkpoint = Checkpoint(road.spark, str(folder.parent))
    checkpoint.write_own({"table_id": "a"})
    os.link(folder / "query.json", folder / "before")
    before = (folder / "query.json").stat()
    checkpoint.write_own({"table_id": "a"})
    assert (folder / "query.json").stat().st_ino == before.st_ino
    checkpoint.write_own({"table_id": "b"})
    assert checkpoint.own() == {"table_id": "b"}
    assert json.loads((folder / "before").read_text()) == {"table_id": "a"}
    assert sorted(p.name for p in folder.iterdir() if not p.name.startswith(".")) == ["before", "query.json"]
    for damaged in ("", '{"table_id": "b'):
        (folder / "query.json").write_text(damaged)
        (folder / ".query.json.crc").unlink(missing_ok=True)
        with pytest.raises(QueryRefused, match=r"query.json of checkpoint .* is damaged.*remove the whole checkpoint"):
            checkpoint.own()


@pytest.mark.deep
def test_ingest_table_dropped_and_created_again_is_refused_stopped_and_running(road: Road) -> None:
    """Goal: events of one table never enter another of its name. Method: do it between runs, and under one."""
    lane = road.lane("again")
    lane.publish([row(k) for k in range(10)])
    lane.run()
    road.client.drop_table("again")
    lane.make_table()
    with pytest.raises(QueryRefused, match=r"checkpoint belongs to a table that was dropped.*delete the checkpoint"):
        lane.run()
    assert lane.rows() == {}
    lane.lose_checkpoint()
    with lane.running(lease_s=3.0) as query:
        query.wait_done(10)
        road.client.drop_table("again")
        lane.make_table()
        lane.publish([row(k) for k in range(10, 20)])
        error = query.wait_error()
    assert isinstance(error, QueryRefused) and "was dropped" in str(error) and "delete the checkpoint" in str(error)
    assert lane.rows() == {}
    lane.lose_checkpoint()
    with lane.running(lease_s=3.0) as query:
        query.wait_done(20)
        road.client.drop_table("again")
        lane.make_table()
        error = query.wait_error()
    assert isinstance(error, QueryRefused) and "was dropped while the query ran" in str(error), "also an idle query"
    assert lane.rows() == {}


def test_ingest_topic_recreated_between_runs_is_refused_until_the_source_is_reset(road: Road) -> None:
    """Goal: offsets of a topic's earlier life mean nothing (scenario 62). Method: recreate it, follow each refusal; the
    command that goes on says what of the earlier life is left out."""
    lane = road.lane("reborn")
    lane.publish([row(k) for k in range(20)])
    lane.run()
    KafkaAdminClientOf(road).delete(lane.topic)
    road.make_topic(lane.topic)
    lane.publish([row(k) for k in range(100, 110)])
    with pytest.raises(QueryRefused, match=r"of another topic writes.reborn"):
        lane.run()
    lane.lose_checkpoint()
    with pytest.raises(QueryRefused, match=r"--topic writes.reborn --to earliest"):
        lane.run()
    old_life = lane.position().source.topic_id
    said = invoke(road, "source", "reset", "reborn", "--topic", lane.topic, "--to", "earliest", kafka=True)
    assert f"what topic id {old_life} had from offset 20 on is left out" in said
    lane.run()
    assert set(lane.rows()) == {*range(20), *range(100, 110)}
    assert lane.position().generation == 2


@pytest.mark.deep
def test_ingest_topic_recreated_or_deleted_under_a_running_query_ends_it(road: Road) -> None:
    """Goal: an idle query notices it too, and its error states what to do. Method: recreate under one, delete under the
    next.

    Nothing is published before the query has ended, so neither a micro-batch nor an offset of Spark's shows the change.
    """
    lane = road.lane("swapped")
    lane.publish([row(k) for k in range(20)])
    kafka = KafkaAdminClientOf(road)
    with lane.running(lease_s=3.0) as query:
        query.wait_done(20)
        kafka.delete(lane.topic)
        road.make_topic(lane.topic)
        error = query.wait_error()
    assert isinstance(error, QueryRefused) and "nyala source reset swapped --topic writes.swapped" in str(error)
    lane.publish([row(k) for k in range(100, 110)])
    lane.lose_checkpoint()
    invoke(road, "source", "reset", "swapped", "--topic", lane.topic, "--to", "earliest", kafka=True)
    with lane.running(lease_s=3.0) as query:
        query.wait_done(10)
        kafka.delete(lane.topic)
        error = query.wait_error()
    assert isinstance(error, QueryRefused) and "was deleted while the query ran" in str(error)
    assert set(lane.rows()) == {*range(20), *range(100, 110)}


@pytest.mark.deep
def test_ingest_topic_grown_is_refused_until_accepted(road: Road) -> None:
    """Goal: order of a key over partitions is never lost silently, nor are rows that wait in a new partition (scenario
    62). Method: grow between runs, accept with `latest`, grow in a run."""
    lane = road.lane("grown")
    lane.publish([row(k) for k in range(20)])
    lane.run()
    admin = KafkaAdminClientOf(road)
    admin.grow(lane.topic, 2)
    lane.publish([row(k) for k in range(20, 40)])
    with pytest.raises(QueryRefused, match=r"has 2 partitions and had 1.*--accept-partitions 2"):
        lane.run()
    lane.lose_checkpoint()
    with pytest.raises(QueryRefused, match=r"--accept-partitions 2"):
        lane.run()
    with lane.running(accept_partitions=2, starting="latest") as query:
        wait_until(lambda: len(lane.rows()) == 40, "both partitions are read")
        admin.grow(lane.topic, 3)
        lane.publish([row(k) for k in range(40, 80)])
        error = query.wait_error()
        assert isinstance(error, QueryRefused) and "--accept-partitions 3" in str(error)
    lane.run(accept_partitions=3)
    assert lane.rows() == {k: row(k) for k in range(80)}


def test_ingest_records_that_kafka_removed_unread_are_told_one_by_one_and_left_out_on_demand(road: Road) -> None:
    """Goal: scenario 62, retention: no offset is skipped silently, and which ones are lost is said exactly, in the
    refusal and by the command that goes on without them. Method: of two partitions one loses records that were not
    read; with and without checkpoint; then do what the refusal says. The other partition is neither short nor read
    again: its rows are inserts."""
    lane = road.lane("expired", partitions=2)
    lane.publish([row(k) for k in range(40)], RowOp.INSERT)
    lane.run()
    done = {p: lane.position(p).done for p in (0, 1)}
    lane.publish([row(k) for k in range(40, 80)], RowOp.INSERT)
    topics = Topics(road.kafka)
    end = topics.offsets(lane.topic, 2, latest=True)
    topics.close()
    KafkaAdminClientOf(road).remove_below(lane.topic, 0, end[0] - 2)
    lost = f"offsets {done[0]} to {end[0] - 3}"
    command = f"source reset expired --partition 0 --to {end[0] - 2}"
    refusal = rf"removed what was not read: writes.expired\[0\] {lost}\. To go on.*`nyala {command}`;"
    with pytest.raises(QueryRefused, match=refusal):
        lane.run()
    lane.lose_checkpoint()
    with pytest.raises(QueryRefused, match=refusal):
        lane.run()
    assert len(lane.rows()) == 40
    assert f"{lost} are left out" in invoke(road, *command.split())
    assert sum(p.applied for p in lane.run()) == 2 + end[1] - done[1]
    found = lane.rows()
    assert (
        len(found) == 42 + end[1] - done[1] and all(found[k] == row(k) for k in found) and set(range(40)) <= set(found)
    )
    assert (lane.position(0).start, lane.position(0).generation, lane.position(1).generation) == (end[0] - 2, 2, 1)
    assert lane.letters() == []


def test_topics_of_a_kafka_are_listed_with_the_ids_that_positions_name(road: Road) -> None:
    """Goal: a rebuilt catalog gets the names of its sources' topics from Kafka. Method: two topics that were just made,
    and Kafka's own, in the list, against what Kafka says of each."""
    lane = road.lane("listed", partitions=2)
    road.make_topic("alone")
    topics = Topics(road.kafka)
    found = {t.topic: t for t in topics.all()}
    assert {name: found.get(name) for name in (lane.topic, "alone")} == {
        name: topics.identity(name) for name in (lane.topic, "alone")
    }
    assert "__consumer_offsets" not in found
    topics.close()


def test_ingest_compacted_topic_unknown_topic_and_unknown_table_are_refused(road: Road) -> None:
    """Goal: what cannot work is refused before anything is read. Method: one of each."""
    lane = road.lane("strict")
    road.make_topic("compacted", cleanup_policy="compact")
    with pytest.raises(QueryRefused, match=r"cleanup.policy=compact.*Set cleanup.policy=delete"):
        lane.run(topic="compacted")
    with pytest.raises(QueryRefused, match=r"no topic nowhere: create it"):
        lane.run(topic="nowhere")
    with pytest.raises(QueryRefused, match=r"no-such-table"):
        lane.run(table="no-such-table")
    with pytest.raises(QueryRefused, match=r"minPartitions cannot be set"):
        lane.options(kafka={"minPartitions": "4"})


def test_ingest_idle_tablet_survives_a_lost_and_an_old_checkpoint(road: Road) -> None:
    """Goal: a tablet far behind its source is neither short nor doubled. Method: inserts, thousands to one tablet only.

    Then the checkpoint is lost, and an old copy comes back: any row applied twice would be a dead letter.
    """
    lane = road.lane("idle")
    sides = split_by_tablet(lane, 8000)
    lane.publish([row(k) for k in (*sides[0][:20], *sides[1][:20])], RowOp.INSERT)
    lane.run()
    shutil.copytree(lane.checkpoint, road.folder / "old-copy")
    busy = sides[1][20:3020]
    lane.publish([row(k) for k in busy], RowOp.INSERT)
    lane.run(offsets_per_trigger_max=1000)
    idle_id, busy_id = (t.tablet_id for t in lane.handle.tablets)
    assert lane.ledger() == {idle_id: 19, busy_id: 3039}
    lane.lose_checkpoint()
    late = [*sides[0][20:25], *sides[1][3020:3025]]
    lane.publish([row(k) for k in late], RowOp.INSERT)
    assert sum(p.applied for p in lane.run()) == 10
    expected = {k: row(k) for k in (*sides[0][:20], *sides[1][:20], *busy, *late)}
    assert lane.rows() == expected
    assert lane.ledger() == {idle_id: 3044, busy_id: 3049}
    lane.lose_checkpoint()
    shutil.copytree(road.folder / "old-copy", lane.checkpoint)
    again = lane.run()
    assert (sum(p.applied for p in again), sum(p.replayed for p in again)) == (0, 3010)
    assert lane.rows() == expected
    assert lane.letters() == []


def split_by_tablet(lane: Lane, keys: int) -> list[list[int]]:
    """Return the first `keys` keys by the position of their tablet."""
    sides: list[list[int]] = [[] for _ in lane.handle.tablets]
    for batch in wire_batches(lane.handle, pa.Table.from_pylist([row(k) for k in range(keys)]), RowOp.UPSERT):
        from nyala.replica.rows import decode_batch

        rows = decode_batch(batch.payload, lane.handle.schema.wire_schema(batch.column_ids))
        sides[batch.pos] += rows.column(0).to_pylist()
    return sides


class KafkaAdminClientOf:
    """Admin calls that only tests make."""

    def __init__(self, road: Road) -> None:
        self._bootstrap = road.kafka

    def delete(self, topic: str) -> None:
        """Delete it and wait until it is gone."""
        admin = KafkaAdminClient(bootstrap_servers=self._bootstrap)
        try:
            admin.delete_topics([topic])
            wait_until(lambda: topic not in admin.list_topics(), f"{topic} is gone")
        finally:
            admin.close()

    def remove_below(self, topic: str, partition: int, offset: int) -> None:
        """Do what retention does: the partition begins at `offset`."""
        admin = KafkaAdminClient(bootstrap_servers=self._bootstrap)
        try:
            admin.delete_records({TopicPartition(topic, partition): offset})
        finally:
            admin.close()

    def grow(self, topic: str, partitions: int) -> None:
        """Grow the topic and wait until the broker reports it."""
        admin = KafkaAdminClient(bootstrap_servers=self._bootstrap)
        try:
            admin.create_partitions({topic: partitions})
            wait_until(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == partitions, "grown")
        finally:
            admin.close()


def invoke(road: Road, *command: str, kafka: bool = False) -> str:
    """Run `nyala ...` as a refusal printed it; returns the output."""
    from typer.testing import CliRunner

    where = ["--masters", road.stack.masters, *(["--kafka", road.kafka] if kafka else [])]
    ended = CliRunner().invoke(app, [*command, "--yes", *where])
    assert ended.exit_code == 0, ended.output
    return ended.output
