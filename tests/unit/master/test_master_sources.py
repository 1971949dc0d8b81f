"""Source positions: every reason for which a query may be refused, with the text of the refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.master.catalog.sources import (
    advance_sources,
    lower_source,
    open_sources,
    reset_source,
    source_positions,
)
from nyala.replica.master.catalog.tables import create_table, drop_table
from nyala.replica.policy import ServerView
from nyala.replica.rpc import pb
from nyala.replica.types import Address, Code, Member, Refused, kafka_topics
from tests.harness.catalogs import AppliedCatalog, new_table

SECOND = 1_000_000
SERVER = ServerView(uuid="1" * 32, member=Member("1" * 32, (Address("h", 7),)))


class Sources:
    """A catalog with the table `flights`, and calls with short arguments. Time is a number of seconds."""

    def __init__(self) -> None:
        self.box = AppliedCatalog()
        self.now_s = 100
        self.create()

    def create(self) -> None:
        self.table_id = self.box.commit(create_table(self.box.catalog, new_table(rf=1), [SERVER], {}, 1))

    def key(self, partition: int = 0, topic_id: str = "id1", cluster: str = "c") -> pb.SourceKey:
        return pb.SourceKey(cluster_id=cluster, topic_id=topic_id, kafka_partition=partition)

    def open(self, run: str = "a", *, checkpoint: int | None = None, start: int = 10, **more: Any) -> Any:
        wanted = pb.SourceOpen(
            source=self.key(more.pop("partition", 0), more.pop("topic_id", "id1"), more.pop("cluster", "c")),
            topic=more.pop("topic", "writes.flights"),
            has_checkpoint=checkpoint is not None,
            checkpoint_offset=checkpoint or 0,
            initial_start=start,
        )
        request = pb.OpenSourcesRequest(
            table="flights",
            opens=[wanted],
            owner_run=run,
            lease_us=30 * SECOND,
            checkpoint_table_id=more.pop("checkpoint_table_id", ""),
        )
        return self.box.commit(open_sources(self.box.catalog, request, self.now_s * SECOND))[1][0]

    def advance(self, done: int, run: str = "a", *, generation: int = 1, release: bool = False) -> Any:
        request = pb.AdvanceSourcesRequest(
            table_id=self.table_id,
            owner_run=run,
            lease_us=30 * SECOND,
            release=release,
            advances=[pb.SourceAdvance(source=self.key(), generation=generation, done=done)],
        )
        return self.box.commit(advance_sources(self.box.catalog, request, self.now_s * SECOND))[0]

    def reset(self, to: int, *, force: bool = False, topic_id: str = "id1", topic: str = "", cluster: str = "c") -> Any:
        source = self.key(0, topic_id, cluster)
        request = pb.ResetSourceRequest(table="flights", source=source, to_offset=to, force=force, topic=topic)
        return self.box.commit(reset_source(self.box.catalog, request, self.now_s * SECOND))

    def refused(self, call: Any, code: Code, *texts: object) -> None:
        before = self.box.catalog.records
        with pytest.raises(Refused) as refusal:
            call()
        assert refusal.value.code is code
        for text in texts:
            assert str(text) in str(refusal.value), str(refusal.value)
        assert self.box.catalog.records == before, "a refused call changes nothing"


def test_sources_a_cold_start_begins_at_done_and_a_checkpoint_between_the_bounds_is_taken() -> None:
    """Goal: the normal life of a source. Method: first open, advance, release, reopen without and with a checkpoint."""
    s = Sources()
    first = s.open()
    assert (first.start, first.done, first.generation, first.owner_run) == (10, 10, 1, "a")
    assert s.advance(50).done == 50
    assert s.advance(40).done == 50, "a replayed micro-batch moves nothing back"
    s.advance(50, release=True)
    assert s.open("b", start=999).done == 50
    assert s.open("b", checkpoint=30).done == 50
    assert [p.done for p in [p for _, p in source_positions(s.box.catalog, "flights")]] == [50]


def test_sources_a_checkpoint_outside_the_bounds_is_refused_with_both_numbers_and_a_command() -> None:
    """Goal: never silently short. Method: a checkpoint below start, above done, and one of a source nobody knows."""
    s = Sources()
    s.open()
    s.advance(50, release=True)
    s.refused(lambda: s.open(checkpoint=9), Code.SOURCE_POSITION, "query=9", "start=10", "nyala source reset flights")
    s.refused(lambda: s.open(checkpoint=51), Code.SOURCE_POSITION, "query=51", "done=50", "--to 51")
    s.refused(lambda: s.open(partition=7, checkpoint=5, start=0), Code.SOURCE_POSITION, "query=5", "done=0")


def test_sources_a_second_live_query_is_refused_until_the_lease_ends() -> None:
    """Goal: one owner. Method: open as b under a's lease, then after it; a's late advance is refused."""
    s = Sources()
    s.open("a")
    s.refused(lambda: s.open("b"), Code.SOURCE_OWNED, "owner=a", "asking=b", "30 s")
    assert s.open("a").owner_run == "a", "the same run may open again"
    s.now_s += 31
    assert s.open("b").owner_run == "b"
    s.refused(lambda: s.advance(20, "a"), Code.SOURCE_OWNED, "owner=b")


def test_sources_a_lease_that_ran_out_is_renewed_by_its_owner() -> None:
    """Goal: an owner can renew an expired lease that no other query has taken. Method: advance long after the lease."""
    s = Sources()
    s.open("a")
    s.now_s += 500
    assert s.advance(20).owner_deadline_us == (s.now_s + 30) * SECOND


def test_sources_a_table_dropped_and_created_again_refuses_the_old_checkpoint() -> None:
    """Goal: another table id than the checkpoint's is refused. Method: drop, create, open, advance."""
    s = Sources()
    s.open()
    old = s.table_id
    s.box.commit(drop_table(s.box.catalog, "flights", "", 5))
    s.create()
    s.refused(lambda: s.open(checkpoint_table_id=old), Code.WRONG_TABLE, old, s.table_id, "delete the checkpoint")
    s.refused(lambda: s.advance(20), Code.NOT_FOUND)


def test_sources_a_recreated_topic_is_refused_until_it_is_reset() -> None:
    """Goal: offsets of another topic mean nothing. Method: open under another topic id, reset to it, open."""
    s = Sources()
    s.open()
    s.advance(50, release=True)
    s.refused(lambda: s.open(topic_id="id2"), Code.SOURCE_POSITION, "id1", "id2", "done=50", "nyala source reset")
    again = s.reset(0, topic_id="id2")
    assert (again.generation, again.start, again.done) == (2, 0, 0)
    assert s.open(topic_id="id2").generation == 2
    assert [p.source.topic_id for p in [p for _, p in source_positions(s.box.catalog, "")]] == ["id2"]


def test_sources_a_recreated_topic_follows_its_own_earlier_life_only() -> None:
    """Goal: another topic that feeds the same table keeps its position. Method: two topics; one is recreated, reset."""
    s = Sources()
    s.open(topic_id="a1", topic="a", start=0)
    s.open(topic_id="b1", topic="b", start=5)
    s.refused(lambda: s.reset(0, topic_id="b2"), Code.INVALID_ARGUMENT, "several topics", "a, b")
    s.refused(lambda: s.reset(0, topic_id="c1", topic="c", force=True), Code.NOT_FOUND)
    assert s.reset(0, topic_id="b2", topic="b", force=True).generation == 2
    assert {(p.topic, p.source.topic_id, p.done) for p in [p for _, p in source_positions(s.box.catalog, "")]} == {
        ("a", "a1", 0),
        ("b", "b2", 0),
    }
    assert s.open(topic_id="a1", topic="a").generation == 1, "the other topic's position is in force as it was"


@pytest.mark.parametrize("topic_id", ["id2", "id1"])
def test_sources_a_topic_of_its_name_in_another_kafka_cluster_is_refused_until_it_is_reset(topic_id: str) -> None:
    """Goal: a wiped Kafka, or a mirror, is no new source: nothing is left out or applied again unasked. Method: open
    there, under whatever topic id, while the old source is owned and not; reset needs the topic's name. Then back."""
    s = Sources()
    there: dict[str, Any] = {"cluster": "OTHER", "topic_id": topic_id}
    named = {"topic": "writes.flights"}
    told = ("topic writes.flights partition 0", "belongs to another Kafka cluster", "nothing was applied")
    told += ("known_cluster_id=c", "now_cluster_id=OTHER", "nyala source reset flights --topic writes.flights --to")
    s.open("a")
    s.advance(50)
    s.refused(lambda: s.open("b", start=0, **there), Code.SOURCE_POSITION, *told, "done=50")
    s.refused(lambda: s.reset(0, **there, **named), Code.SOURCE_OWNED, "owner=a")
    s.advance(50, release=True)
    s.refused(lambda: s.open("b", start=0, **there), Code.SOURCE_POSITION, *told, "their topics need different names")
    s.refused(lambda: s.reset(0, **there), Code.NOT_FOUND)
    again = s.reset(0, **there, **named)
    assert (again.generation, again.start, again.done, again.source.cluster_id) == (2, 0, 0, "OTHER")
    assert s.open("b", **there).generation == 2
    assert [p.source.cluster_id for p in [p for _, p in source_positions(s.box.catalog, "")]] == ["OTHER"]
    s.refused(lambda: s.open("a"), Code.SOURCE_POSITION, "known_cluster_id=OTHER", "now_cluster_id=c")
    assert s.reset(60, force=True, **named).generation == 3
    assert s.open("a", checkpoint=60).done == 60
    assert [(p.source.cluster_id, p.generation) for p in [p for _, p in source_positions(s.box.catalog, "")]] == [
        ("c", 3)
    ]


def test_sources_a_reset_into_another_kafka_cluster_fences_the_query_that_it_leaves() -> None:
    """Goal: two clusters never feed one source at once. Method: forced under an owner; its advance is refused."""
    s = Sources()
    s.open("a")
    s.reset(0, force=True, cluster="OTHER", topic="writes.flights")
    s.refused(lambda: s.advance(20, "a"), Code.SOURCE_OWNED, "given back", "by a reset", "start the query again")


def test_sources_topics_of_different_names_in_two_kafka_clusters_feed_one_table() -> None:
    """Goal: only the same name is suspicious. Method: two clusters, two names; one topic is recreated there, reset."""
    s = Sources()
    s.open(topic="a", start=0)
    s.open(topic="b", start=5, cluster="OTHER")
    s.refused(lambda: s.open(topic="b", cluster="OTHER", topic_id="id2"), Code.SOURCE_POSITION, "created again")
    s.reset(7, force=True, topic="b", cluster="OTHER", topic_id="id2")
    s.open(topic="b", cluster="OTHER", topic_id="id2")
    s.open(topic="a")
    assert {
        (p.source.cluster_id, p.topic, p.source.topic_id, p.done)
        for p in [p for _, p in source_positions(s.box.catalog, "")]
    } == {
        ("c", "a", "id1", 0),
        ("OTHER", "b", "id2", 7),
    }


def test_sources_a_lease_given_back_by_hand_ends_its_query_and_lets_another_in() -> None:
    """Goal: after `nyala source release`, the former owner's advance is refused. Method: release as a, open as b,
    advance a."""
    s = Sources()
    s.open("a")
    s.advance(20, release=True)
    s.refused(lambda: s.advance(30), Code.SOURCE_OWNED, "given back", "start the query again")
    assert s.open("b").done == 20
    s.refused(lambda: s.advance(30), Code.SOURCE_OWNED, "owner=b")


def test_sources_a_reset_makes_a_new_generation_and_refuses_the_old_one() -> None:
    """Goal: after a reset, tablets start that source anew. Method: reset under an owner, forced, then advance."""
    s = Sources()
    s.open()
    s.advance(50)
    s.refused(lambda: s.reset(0), Code.SOURCE_OWNED, "owner=a")
    assert s.reset(0, force=True).generation == 2
    s.refused(lambda: s.advance(60), Code.SOURCE_OWNED)
    assert s.open("a", checkpoint=0).generation == 2
    s.refused(lambda: s.advance(60, generation=1), Code.STALE_GENERATION, "query=1", "now=2")


def test_sources_lowering_keeps_the_generation_and_ends_the_owners_lease() -> None:
    """Goal: what a recovery lost is read again, once, by a query that begins anew; what the other tablets have, their
    ledgers drop. Method: lower under an owner; it may not advance; the next begins there; never up, nor too low."""
    s = Sources()
    s.open()
    s.advance(50)

    def lower(to: int) -> Any:
        request = pb.ResetSourceRequest(table="flights", source=s.key(), to_offset=to, keep_generation=True)
        return s.box.commit(lower_source(s.box.catalog, request))

    lowered = lower(30)
    assert (lowered.generation, lowered.start, lowered.done) == (1, 10, 30)
    s.refused(lambda: s.advance(60), Code.SOURCE_OWNED, "start the query again")
    s.refused(
        lambda: s.open("a", checkpoint=50), Code.SOURCE_POSITION, "done=30", "delete the checkpoint to go on at 30"
    )
    assert s.open("b").done == 30
    assert lower(40).done == 30
    assert lower(0).done == 10


def test_sources_opening_many_is_all_or_nothing() -> None:
    """Goal: a query never owns half of its sources. Method: two opens in one request, the second refused."""
    s = Sources()
    opens = [
        pb.SourceOpen(source=s.key(p), topic="writes.flights", has_checkpoint=p == 1, checkpoint_offset=5)
        for p in range(2)
    ]
    request = pb.OpenSourcesRequest(table="flights", opens=opens, owner_run="a")
    s.refused(lambda: s.box.commit(open_sources(s.box.catalog, request, 1)), Code.SOURCE_POSITION)


TOPICS: dict[str, tuple[str, str]] = {
    "the table's own": ("writes.flights", ""),
    "a topic of no table": ("more.flights", ""),
    "one without a name, of an earlier build": ("", ""),
    "another table's, by its name": ("writes.trains", "source of another table"),
    "another table's, as it declares it": ("shared", "source of another table"),
    "the decisions": ("x.decisions", "the system's own topics"),
    "the proposals": ("x.proposals", "the system's own topics"),
    "dead letters": ("dead-letters.flights", "the system's own topics"),
    "Kafka's own": ("__consumer_offsets", "Kafka's own"),
}


@pytest.mark.parametrize("what", TOPICS)
def test_sources_a_topic_of_others_begins_to_feed_no_table(what: str) -> None:
    """IN-82. Goal: a source belongs to one table, and none of the system's topics feeds any. Method: each kind of topic
    is opened for a table, beside one table with a default topic and one that declares another; what is refused leaves
    no position."""
    s = Sources()
    for name, topic in (("trains", ""), ("ships", "shared")):
        table = new_table(name, rf=1)
        table = replace(table, source=replace(table.source, topic=topic or table.source.topic))
        s.box.commit(create_table(s.box.catalog, table, [SERVER], {}, 1))
    topic, why = TOPICS[what]
    opens = [pb.SourceOpen(source=s.key(), topic="writes.flights"), pb.SourceOpen(source=s.key(1, "id2"), topic=topic)]
    request = pb.OpenSourcesRequest(table="flights", opens=opens, owner_run="a")
    own = kafka_topics.control_topics("x.")
    if why:
        s.refused(lambda: s.box.commit(open_sources(s.box.catalog, request, 1, own)), Code.INVALID_ARGUMENT)
        assert list(source_positions(s.box.catalog, "")) == []
        with pytest.raises(Refused, match=why):
            open_sources(s.box.catalog, request, 1, own)
    else:
        assert len(s.box.commit(open_sources(s.box.catalog, request, 1, own))[1]) == 2


def test_sources_a_table_that_declares_the_topic_of_another_is_fed_from_it_and_a_begun_source_goes_on() -> None:
    """IN-82. Goal: the table that declares a topic may always open it, and a source that was begun goes on although
    another table declares its topic later. Method: a second table declares the first one's topic; the first one opens
    its own and, from before, another that a third table declares."""
    s = Sources()
    s.open(topic="later", topic_id="id9")
    for name, topic in (("copy", "writes.flights"), ("third", "later")):
        table = new_table(name, rf=1)
        table = replace(table, source=replace(table.source, topic=topic))
        s.box.commit(create_table(s.box.catalog, table, [SERVER], {}, 1))
    assert s.open(topic="writes.flights").topic == "writes.flights"
    assert s.open(topic="later", topic_id="id9").topic == "later"
