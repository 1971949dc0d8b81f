"""The ingest query and its promise: exactly once through replay and a lost checkpoint."""

from __future__ import annotations

import pytest

from nyala.pipeline import QUERY_ENDED, QUERY_STARTS, IngestQuery, PublishFailed, RowPublisher
from nyala.replica.rows import RowOp
from nyala.replica.types import kafka_topics, limits
from tests.harness.road import SCHEMA, Road, event, key_of, row

pytestmark = pytest.mark.e2e
ROWS = 3000


def test_topic_becomes_table_exactly_once_through_replay_and_lost_checkpoint(road: Road) -> None:
    """Goal: rows and dead letters are the same after a run, a replayed micro-batch and a run without checkpoint
    (scenario 58: inserts, upserts, a delete; their offsets, not the micro-batch's number, tell that they came before).

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


def test_largest_row_goes_from_each_publisher_into_the_table(road: Road) -> None:
    """IN-02. Goal: what a table takes, a topic of ours and both publishers take; a topic that takes less is named when
    the publisher flushes. Method: a row of the most bytes that a table takes from each publisher, in a topic of the
    settings of `nyala topic create`; the same row for a topic with Kafka's default."""
    road.make_topic("writes.large", **{k.replace(".", "_"): v for k, v in kafka_topics.WRITES_SETTINGS.items()})
    road.make_topic("writes.small", max_message_bytes="1048588")
    lane = road.lane("large")
    largest = [row(k, str(k) * limits.ROW_SIZE_BYTES_MAX) for k in (1, 2)]
    for one, bulk in zip(largest, (False, True), strict=True):
        lane.publish([one], bulk=bulk)
        publisher = RowPublisher(road.kafka, "writes.small", SCHEMA, bulk=bulk)
        publisher.publish(one)
        with pytest.raises(PublishFailed, match=r"1 records were not acknowledged.*([Ss]ize|[Ll]arge)"):
            publisher.flush()
        publisher.close()
    lane.run()
    assert lane.rows() == {1: largest[0], 2: largest[1]} and lane.letters() == []


def test_nulls_leave_columns_as_they_are_if_the_query_says_so(road: Road) -> None:
    """Goal: events that carry a part of a row as nulls, also when they are read again.

    Method: upserts and an update with nulls over full rows, and for a new key; then the checkpoint is lost, and the
    option forgotten: nothing moves.
    """
    lane = road.lane("sparse")
    lane.publish([row(k) for k in range(20)])
    sparse = {"v": None, "small": None}
    lane.publish([row(1) | sparse, row(2, "two") | {"small": None}, row(50) | sparse])
    lane.publish([row(3) | sparse | {"must": 33}], RowOp.UPDATE)
    expected = {k: row(k) for k in range(20)} | {2: row(2, "two"), 3: row(3) | {"must": 33}, 50: row(50) | sparse}
    lane.run(ignore_null=True)
    assert lane.rows() == expected
    lane.lose_checkpoint()
    lane.run()
    assert lane.rows() == expected


def test_query_tells_when_it_starts_and_when_all_is_stored(road: Road) -> None:
    """Goal: what a rate from a query's start to its end is taken from.

    Method: one run that catches up, with what it tells in the order in which it does; its rows are there at the end.
    """
    lane = road.lane("life")
    lane.publish([row(k) for k in range(20)])
    told: list[str] = []
    IngestQuery(road.spark, lane.options(), lambda p: told.append(f"{p.applied} rows"), told.append).run()
    assert told == [QUERY_STARTS, "20 rows", QUERY_ENDED]
    assert lane.rows() == {k: row(k) for k in range(20)}
