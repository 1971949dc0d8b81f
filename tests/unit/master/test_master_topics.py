"""The masters' threads for Kafka, and arbitrary records on their topics, without a Kafka."""

from __future__ import annotations

import asyncio
import threading
import urllib.request
from collections import namedtuple
from dataclasses import replace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import CorruptRecordError, KafkaConnectionError, UnsupportedCodecError

from nyala.replica.decision_executor import Fault, read_record
from nyala.replica.decision_executor.kafka_reading import poll
from nyala.replica.master.collection_pauses import CollectionPauses
from nyala.replica.master.kafka.kafka_link import KafkaLink
from nyala.replica.master.kafka.kafka_state import Doing, KafkaState, Link
from nyala.replica.master.kafka.kafka_status import kafka_status
from nyala.replica.master.kafka.proposals import UNDECIDED_MAX, Proposals
from nyala.replica.master.metrics import Metrics, kafka_families
from nyala.replica.master.requests import change_requests
from nyala.replica.rpc import ConnectionBound, RequestChecks, pb
from nyala.replica.tools.check import ClusterView, MasterView, Severity, judge
from nyala.replica.tools.check_kafka import kafka_line, kafka_problems
from nyala.replica.types import Code, InvariantViolation, Outcome, Proposal, Refused, Result, Subject, limits
from nyala.schemas import encode, encode_record
from tests.harness.catalogs import table_info
from tests.harness.leading_master import FixedClock, Masters
from tests.harness.master_calls import MasterWorld
from tests.harness.patience import patience_s

Row = namedtuple("Row", "topic partition offset key value")
PROPOSAL: dict[str, Any] = {
    "proposal_id": "p/t", "plan_id": "p", "tablet_id": "t", "wanted": "MOVE_REPLICA", "from_uuid": "1",
    "to_uuid": "2", "config_opid": {"term": 1, "index": 1}, "deadline_us": 0, "reason": "", "reserved": b"",
}  # fmt: skip


def row(value: bytes | None, key: bytes | None = b"t", offset: int = 5, topic: str = "proposals") -> Row:
    return Row(topic, 0, offset, key, value)


def proposals(consider: Any = lambda proposal: None, *, leads: bool = True) -> tuple[Proposals, KafkaState]:
    state = KafkaState(FixedClock())
    return Proposals(consider, state, lambda: leads), state


@pytest.mark.parametrize(
    ("value", "key", "fault", "subject", "tablet"),
    [
        (None, b"t", Fault.NO_VALUE, "proposals[0]@5", "t"),
        (None, None, Fault.NO_VALUE, "proposals[0]@5", ""),
        (b"garbage", b"\xff\0key", Fault.OTHER_SCHEMA, "proposals[0]@5", "�?key"),
        (bytes(2 << 20), b"t", Fault.TOO_LARGE, "proposals[0]@5", "t"),
        (encode("proposal", PROPOSAL)[:12], b"t", Fault.OTHER_SCHEMA, "p/t", "t"),
        (encode("proposal", PROPOSAL | {"deadline_us": -1}), b"x", Fault.BAD_VALUE, "p/t", "t"),
        (encode("proposal", PROPOSAL | {"to_uuid": "u" * 10_000}), b"x", Fault.BAD_VALUE, "p/t", "t"),
        (encode("proposal", PROPOSAL | {"reserved": b"1"}), b"x", Fault.OTHER_SCHEMA, "p/t", "t"),
    ],
)
def test_record_that_is_no_proposal_is_refused_and_counted(
    value: bytes | None, key: bytes | None, fault: Fault, subject: str, tablet: str
) -> None:
    """IN-90. Goal: a null, garbage, giant or hostile record is answered with one outcome, under its own ids as far as
    they can be read, and the master is never asked. Method: each of them; the outcome can be read back."""
    asked: list[Any] = []
    answers, state = proposals(asked.append)
    outcome = answers.outcome_of(row(value, key))
    assert outcome is not None
    assert (outcome.result, outcome.subject_id, outcome.tablet_id) == (Result.REFUSED, subject, tablet)
    assert (outcome.subject, outcome.code) == (Subject.PROPOSAL, Code.INVALID_ARGUMENT)
    assert read_record(Outcome, b"", encode_record(outcome)) == outcome
    assert [(s.topic, s.fault, s.count, s.place) for s in state.all_skipped()] == [
        ("proposals", fault, 1, "proposals[0]@5")
    ]
    assert asked == []


@pytest.mark.parametrize("error", [InvariantViolation("x"), KeyError("x"), OverflowError("x"), UnicodeError("x")])
def test_proposal_that_meets_a_defect_is_refused_and_the_next_one_is_answered(error: Exception) -> None:
    """IN-90. Goal: one proposal that the master cannot carry out jams nothing. Method: considering the first one raises
    something that nobody thought of."""

    accepted = Outcome(subject_id="p", plan_id="", tablet_id="u", result=Result.ACCEPTED, code=0, message="")

    def consider(proposal: Proposal) -> Outcome:
        if proposal.tablet_id == "t":
            raise error
        return accepted

    answers, state = proposals(consider)
    first = answers.outcome_of(row(encode("proposal", PROPOSAL)))
    assert first is not None
    assert (first.result, first.subject_id) == (Result.REFUSED, "p/t")
    second = answers.outcome_of(row(encode("proposal", PROPOSAL | {"tablet_id": "u"}), offset=6))
    assert second == accepted
    assert [(s.fault, s.count) for s in state.all_skipped()] == [(Fault.FAILED, 1)]


def test_proposal_that_stays_undecided_does_not_stop_those_behind_it() -> None:
    """IN-90. Goal: the topic goes on. Method: the leading master never decides one proposal: it is read again nine
    times, then refused. A master that does not lead leaves it to the leading one, however often it looks."""
    answers, _ = proposals()
    value = encode("proposal", PROPOSAL)
    outcomes = [answers.outcome_of(row(value)) for _ in range(UNDECIDED_MAX)]
    assert outcomes[:-1] == [None] * (UNDECIDED_MAX - 1)
    assert outcomes[-1] is not None
    assert outcomes[-1].result is Result.REFUSED
    following, _ = proposals(leads=False)
    assert {following.outcome_of(row(value)) for _ in range(3 * UNDECIDED_MAX)} == {None}


class Consumer:
    """Kafka's client over partitions whose items are values, or the error that it meets at their offset for ever."""

    def __init__(self, **partitions: list[Any]) -> None:
        self.logs = {TopicPartition(name, 0): items for name, items in partitions.items()}
        self.at = dict.fromkeys(self.logs, 0)
        self.kept: tuple[Any, int] | None = None
        """Partition and offset of a fetch that the client could not decode, and keeps."""
        self.polls = 0

    def assignment(self) -> set[Any]:
        return set(self.at)

    def assign(self, partitions: list[Any]) -> None:
        self.at = {partition: self.at.get(partition, -1) for partition in partitions}

    def position(self, partition: Any) -> int:
        return self.at[partition]

    def seek(self, partition: Any, offset: int) -> None:
        assert partition in self.at
        self.at[partition] = offset

    def poll(self, timeout_ms: int, max_records: int) -> dict[Any, list[Row]]:
        self.polls += 1
        # kafka-python 3.0 takes records from a generator that has ended, for ever, without a look at the time.
        assert self.kept is None or self.at.get(self.kept[0]) != self.kept[1], "this poll would never return"
        self.kept = None
        for partition, at in self.at.items():
            assert at >= 0, "the client would begin anew"
            if at < len(self.logs[partition]):
                item = self.logs[partition][at]
                if isinstance(item, Exception):
                    self.kept = partition, at
                    raise item
                self.at[partition] += 1
                return {partition: [Row(partition.topic, 0, at, b"t", item)]}
        return {}


@pytest.mark.parametrize(
    "error",
    [UnsupportedCodecError("zstd"), CorruptRecordError("crc"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "header")],
)
def test_bytes_that_the_client_cannot_take_apart_are_stepped_over(error: Exception) -> None:
    """IN-90. Goal: a sender that compresses as this client cannot, or names a header in no UTF-8, stops no thread.
    Method: such bytes at two places of two partitions; every record before, between and behind them is read, and the
    places are told."""
    consumer, met, read = Consumer(a=[b"1", error, b"2"], b=[error, error, b"3"]), [], []
    while any(at < len(consumer.logs[p]) for p, at in consumer.at.items()):
        step = lambda partition, offset, _: met.append((partition.topic, offset))  # noqa: E731
        read += [record.value for _, record in poll(consumer, 10, step)]
        assert consumer.polls < 50
    assert (sorted(read), sorted(met)) == ([b"1", b"2", b"3"], [("a", 1), ("b", 0), ("b", 1)])
    alone = Consumer(a=[error, error, b"1"])
    assert [[r.value for _, r in poll(alone, 10, lambda *_: None)] for _ in range(3)] == [[], [], [b"1"]]


def test_records_beside_bad_bytes_come_before_these_are_told() -> None:
    """IN-90. Goal: no record is lost because what is told of bad bytes fails. Method: the one that is told raises; the
    other partitions' records have come by then."""
    consumer, read = Consumer(a=[b"1"], b=[UnsupportedCodecError("zstd")]), []

    def fails(*_: Any) -> None:
        raise KeyError("it cannot be told")

    def reading() -> None:
        for _, record in poll(consumer, 10, fails):
            read.append(record.value)

    consumer.at = dict(reversed(consumer.at.items()))  # the bad bytes are met first
    with pytest.raises(KeyError, match="cannot be told"):
        reading()
    assert read == [b"1"]


def test_broker_that_is_away_is_not_taken_for_bad_bytes() -> None:
    """IN-90. Goal: nothing is stepped over because Kafka does not answer. Method: the client raises that, at once, or
    while it is asked for the partition with the bad bytes."""
    consumer = Consumer(a=[KafkaConnectionError("away"), b"1"])
    with pytest.raises(KafkaConnectionError):
        list(poll(consumer, 10, lambda *_: None))
    assert consumer.at == {TopicPartition("a", 0): 0}
    for log in ([KafkaConnectionError("away")], [b"1", KafkaConnectionError("away")]):
        consumer = Consumer(a=[UnsupportedCodecError("zstd")], b=[b"1"], c=log)
        with pytest.raises(KafkaConnectionError):
            list(poll(consumer, 10, lambda *_: pytest.fail("it is read again")))
        assert consumer.at == {TopicPartition(name, 0): 0 for name in "abc"}


def link(**more: Any) -> KafkaLink:
    return KafkaLink("127.0.0.1:1", "x.", lambda: True, lambda proposal: None, clock=FixedClock(), **more)


def test_records_of_strangers_on_the_masters_own_topics_are_counted() -> None:
    """IN-90. Goal: foreign records on `decisions`, `outcomes` and `reports` are counted, and a report that one of them
    hides is published again. Method: garbage and nulls on each topic, and a deletion of state, which is no fault."""
    made = link()
    for topic in ("decisions", "outcomes", "reports"):
        made.inspect(row(b"garbage", topic=f"x.{topic}"))
        made.inspect(row(None, topic=f"x.{topic}"))
        made.inspect(row(None, None, topic=f"x.{topic}"))
    counts = {(s.topic, s.fault): s.count for s in made.state.all_skipped()}
    assert counts == {
        ("decisions", Fault.NO_VALUE): 1,
        ("decisions", Fault.OTHER_SCHEMA): 1,
        ("outcomes", Fault.NO_VALUE): 2,
        ("outcomes", Fault.OTHER_SCHEMA): 1,
        ("reports", Fault.NO_VALUE): 1,
        ("reports", Fault.OTHER_SCHEMA): 1,
    }
    assert (made.overwritten(), made.overwritten()) == ({"t"}, set())


def test_status_says_of_each_topic_since_when_kafka_answers_or_why_not() -> None:
    """IN-91, IN-70. Goal: the status distinguishes never connected, connected, reconnecting and not leading, with the
    times of the last success and error. Method: one link through all of them, read from the reply's fields."""
    clock = FixedClock()
    made = KafkaLink("127.0.0.1:1", "", lambda: True, lambda proposal: None, clock=clock)

    def told(doing: Doing, topic: str) -> tuple[Any, ...]:
        fields = kafka_status(made, clock.monotonic_us())
        assert fields["kafka_bootstrap"] == "127.0.0.1:1", "clients make tables' topics there"
        (channel,) = [c for c in fields["kafka"] if (c.doing, c.topic) == (doing, topic)]
        success = channel.last_success_us_ago if channel.HasField("last_success_us_ago") else None
        error = channel.last_error_us_ago if channel.HasField("last_error_us_ago") else None
        return channel.link, success, channel.last_error, error

    assert told(Doing.PUBLISHES, "decisions") == (Link.NEVER_CONNECTED, None, "", None)
    made.state.failed(Doing.PUBLISHES, OSError("refused"))
    clock.now_us += 10
    assert told(Doing.PUBLISHES, "decisions") == (Link.NEVER_CONNECTED, None, "OSError: refused", 10)
    made.state.succeeded(Doing.PUBLISHES)
    assert told(Doing.PUBLISHES, "reports") == (Link.CONNECTED, 0, "OSError: refused", 10)
    clock.now_us += 5
    made.state.failed(Doing.PUBLISHES, OSError("reset"), "reports")
    assert told(Doing.PUBLISHES, "reports") == (Link.RECONNECTING, 5, "OSError: reset", 0)
    assert told(Doing.PUBLISHES, "decisions")[0] == Link.CONNECTED
    assert told(Doing.READS, "proposals")[0] == Link.NEVER_CONNECTED
    made.state.rests(Doing.READS)
    assert told(Doing.READS, "proposals")[0] == Link.NOT_LEADING
    made.state.died(Doing.READS, SystemExit(1))
    assert told(Doing.READS, "proposals")[::2] == (Link.DEAD, "SystemExit: 1")
    assert kafka_status(None, 0) == {}


def test_thread_that_ends_by_a_defect_is_told_and_ends_the_master() -> None:
    """IN-91. Goal: a master is never deaf unseen. Method: a thread's work ends by what no handler takes; the status
    says so, and the process is told."""
    ended: list[BaseException] = []
    made = link(on_defect=ended.append)

    def work() -> None:
        raise SystemExit(3)

    thread = threading.Thread(target=made._forever, args=(work, Doing.READS))
    thread.start()
    thread.join(20)
    assert (thread.is_alive(), [str(e) for e in ended]) == (False, ["3"])
    assert {c.link for c in made.state.channels() if c.doing is Doing.READS} == {Link.DEAD}


def test_silence_of_kafka_is_noticed_with_nothing_to_publish() -> None:
    """IN-91. Goal: the status does not say `connected` of a broker that is gone. Method: an idle thread asks for the
    topics; one that is missing ends the connection as well as no answer."""

    class Admin:
        def __init__(self, topics: Any) -> None:
            self.topics = topics

        def list_topics(self) -> list[str]:
            if isinstance(self.topics, Exception):
                raise self.topics
            return list(self.topics)

    made = link()
    whole = ["x.decisions", "x.reports", "x.proposals", "x.outcomes", "x.history", "other"]
    made._check_topics(Admin(whole))
    for topics, told in ((whole[1:], "no topic x.decisions"), (KafkaConnectionError("away"), "away")):
        with pytest.raises(Exception, match=told):
            made._check_topics(Admin(topics))


def status(*channels: pb.KafkaChannel, role: str = "LEADER", **more: Any) -> pb.MasterStatusReply:
    return pb.MasterStatusReply(uuid="m", replica=pb.ReplicaStatus(role=role), kafka_named=True, kafka=channels, **more)


def test_cluster_check_tells_what_is_wrong_with_kafka_and_what_was_skipped() -> None:
    """IN-90, IN-91. Goal: the check shows a Kafka that does not answer, an ended thread and foreign records, and
    nothing if all is well. Method: each state of a channel, of a master that leads and of one that does not."""
    well = [pb.KafkaChannel(topic="reports", doing="publishes", link=link) for link in ("connected", "not leading")]
    assert list(kafka_problems(status(*well))) == []
    away = pb.KafkaChannel(
        topic="reports",
        doing="publishes",
        link="reconnecting",
        last_success_us_ago=9_000_000,
        last_error="x",
        failures=3,
    )
    text = "Kafka: publishes reports: reconnecting, last success 9 s ago, 3 failures; last error: x"
    assert list(kafka_problems(status(away))) == [(True, text)]
    assert list(kafka_problems(status(away, role="FOLLOWER"))) == [(False, text)]
    never = pb.KafkaChannel(topic="proposals", doing="reads", link="never connected", failures=1)
    assert "no success yet, 1 failures" in kafka_line(status(never))
    dead = pb.KafkaChannel(topic="proposals", doing="reads", link="dead")
    ((serious, told),) = kafka_problems(status(dead, role="FOLLOWER"))
    assert (serious, "restart this master" in told) == (True, True)
    skipped = pb.SkippedRecords(
        topic="reports", fault="no value", count=7, last_place="reports[0]@5", last_reason="why", last_us_ago=1
    )
    ((serious, told),) = kafka_problems(status(skipped=[skipped]))
    assert (serious, "7 records of reports were skipped (no value)" in told, "reports[0]@5" in told) == (
        False,
        True,
        True,
    )
    assert (kafka_line(pb.MasterStatusReply()), kafka_line(status(kafka_connected=True))) == ("", "Kafka: connected")
    view = ClusterView("c", [], [MasterView("m", status(away))])
    assert [(f.severity, f.what) for f in judge(view)] == [(Severity.ERROR, text)]


def test_deadline_that_is_negative_or_far_is_refused() -> None:
    """IN-90. Goal: a proposal's deadline is bounded. Method: the deadlines at and beyond the bound."""
    masters = Masters()
    now_us, far_us = masters.clock.wall_us(), limits.CHANGE_DEADLINE_US_MAX
    state: Any = masters.state
    for deadline_us in (-1, -(1 << 63), now_us + far_us + 1, (1 << 63) - 1):
        with pytest.raises(Refused, match="deadline") as refused:
            change_requests._deadline(state, deadline_us)
        assert refused.value.code is Code.INVALID_ARGUMENT
    assert change_requests._deadline(state, now_us + far_us) == now_us + far_us


def samples(families: Any) -> dict[tuple[str, ...], float]:
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


def test_metrics_of_a_master_say_what_its_status_says_of_kafka() -> None:
    """IN-91. Goal: the metrics have Kafka's state, the skipped records and the size of the catalog. Method: a link that
    works for one topic and not for another, with two skipped records; then the whole page over HTTP."""
    clock = FixedClock()
    made = KafkaLink("127.0.0.1:1", "", lambda: True, lambda proposal: None, clock=clock)
    made.state.succeeded(Doing.PUBLISHES)
    clock.now_us += 2_000_000
    made.state.failed(Doing.PUBLISHES, OSError("x"), "reports")
    made.state.died(Doing.READS, SystemExit(1))
    for offset in (1, 2):
        made.inspect(row(b"garbage", offset=offset, topic="outcomes"))
    found = samples(kafka_families(made, clock.monotonic_us()))
    expected: dict[tuple[str, ...], float] = {
        ("nyala_master_kafka_up", "decisions", "publishes"): 1,
        ("nyala_master_kafka_up", "reports", "publishes"): 0,
        ("nyala_master_kafka_dead", "proposals", "reads"): 1,
        ("nyala_master_kafka_success_age_seconds", "decisions", "publishes"): 2,
        ("nyala_master_kafka_success_age_seconds", "proposals", "reads"): -1,
        ("nyala_master_kafka_failures_total", "reports", "publishes"): 1,
        ("nyala_master_kafka_skipped_total", "outcomes", "other schema"): 2,
        ("nyala_master_kafka_connected",): 0,
    }
    assert expected.items() <= found.items()

    masters = Masters()
    group: Any = masters.state.group
    group.is_leader = True
    masters.state.kafka = made
    checks, connections = RequestChecks(), ConnectionBound(1)
    checks.late, connections.ended = 3, 4
    metrics = Metrics(checks, connections, CollectionPauses(), masters.state)
    metrics.serve(0)
    try:
        with (
            checks.under_way.one("host", 7),
            urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=patience_s(30)) as page,
        ):
            text = page.read().decode()
    finally:
        metrics.close()
        checks.close()
    assert "nyala_master_tables 1.0" in text
    assert "nyala_master_requests_late_total 3.0" in text and "nyala_master_connections_ended_total 4.0" in text
    assert 'nyala_master_requests_received{length="short"} 0.0' in text
    assert 'nyala_master_requests_waiting{length="long"} 0.0' in text
    assert "nyala_master_calls_under_way_bytes 7.0" in text and "nyala_master_calls_refused_total 0.0" in text
    assert 'nyala_master_kafka_skipped_total{fault="other schema",topic="outcomes"} 2.0' in text


PREFIXES = ("", "east.", "writes.", "x" * 200 + "-")
PLAIN = ("decisions", "proposals", "outcomes", "reports", "history")
OTHERS = ("writes.t", "decisions-of-mine", "east", "decisions.east.")


@pytest.mark.a_third
@pytest.mark.parametrize("prefix", PREFIXES, ids=lambda prefix: prefix[:9] or "none")
def test_no_topic_of_the_masters_feeds_a_table_whatever_their_prefix(prefix: str) -> None:
    """IN-82. Goal: the masters' topics are no sources of tables, and every other topic is. Method: masters with a
    prefix are asked for tables from each topic of the masters under each prefix, from topics of like names, and from
    the topic that a table has if it names none; and a table's query opens each of these topics."""
    own = {prefix + name for name in PLAIN}
    topics = {p + name for p in PREFIXES for name in (*PLAIN, *OTHERS) if not (p + name).startswith("dead-")}

    async def scenario() -> None:
        world = MasterWorld()
        await world.begin()
        world.master.options = replace(world.master.options, topic_prefix=prefix)
        try:
            for n, topic in enumerate(sorted(topics)):
                opened = pb.SourceOpen(source=pb.SourceKey(cluster_id="c", topic_id=f"id{n}"), topic=topic)
                opening = pb.OpenSourcesRequest(table="flights", owner_run="a", opens=[opened])
                error = (await world.call("MasterService", "OpenSources", opening)).error
                assert error.code == (Code.INVALID_ARGUMENT if topic in own else 0), (prefix, topic, error)
                info = table_info(f"t{n}", buckets=1)
                info.source.topic = topic
                request = pb.CreateTableRequest(table=info, request_id=f"r{n}")
                error = (await world.call("MasterService", "CreateTable", request)).error
                assert error.code == (Code.INVALID_ARGUMENT if topic in own else 0), (prefix, topic, error)
                assert topic not in own or topic[:80] in error.message
            request = pb.CreateTableRequest(table=table_info("decisions", buckets=1), request_id="default")
            error = (await world.call("MasterService", "CreateTable", request)).error
            assert bool(error.code) is (prefix == "writes.")
        finally:
            await world.end()

    asyncio.run(scenario())
