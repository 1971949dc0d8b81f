"""A master and a real broker: proposals, decisions, outcomes, reports, and Kafka being away."""

from __future__ import annotations

import json
import os
import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nyala.infra.cli.app import app
from nyala.infra.local.kafka import KafkaBroker
from nyala.pipeline.decision_tasks import newest
from nyala.pipeline.history import fold
from nyala.replica.client import Client
from nyala.replica.decision_executor import TOPICS, Unusable, execute, read_record
from nyala.replica.decision_executor.kafka_reading import poll
from nyala.replica.policy import inputs_of
from nyala.replica.rows import Column, ColumnType, PartitionSpec, TableSchema
from nyala.replica.rpc import config_from_pb, opid_from_pb, pb, pb_grpc
from nyala.replica.types import Code, ConfigEdit, Decision, EditKind, EventKind, Report, Result, kafka_topics
from nyala.schemas import encode, encode_record
from tests.harness.bad_header import BAD_HEADER
from tests.harness.catalogs import table_info
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until

with warnings.catch_warnings():  # kafka-python reads its message formats by a call that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError

pytestmark = pytest.mark.e2e

MASTER = ("--policy-ms=200", "--topic-prefix=x.")
IMPATIENT = ("--server-dead-ms=5000", "--rereplicate-after-ms=8000")
"""Timeouts for a lost server; a server that is slow for seconds must not count as lost."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    made = KafkaBroker(tmp_path / "kafka")
    made.start()
    try:
        yield made
    finally:
        made.close()


class Topics:
    """Everything on the masters' topics, read from the beginning each time."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def read(self, name: str) -> list[tuple[str, Any]]:
        """Read a topic; a broker that just came up is asked again, because it may not know yet what it leads."""

        def once() -> tuple[list[tuple[str, Any]]] | None:
            try:
                return (self._read(name),)
            except KafkaError:
                return None

        return wait_until(once, f"the topic of {name} is read")[0]

    def _read(self, name: str) -> list[tuple[str, Any]]:
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False)
        try:
            topic = f"x.{name}"
            partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
            if not partitions:
                return []
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            ends = consumer.end_offsets(partitions)
            found: list[tuple[str, Any]] = []
            deadline = time.monotonic() + 60
            while any(consumer.position(p) < ends[p] for p in partitions):
                if time.monotonic() > deadline:
                    raise KafkaError(f"{topic} could not be read to its end")
                for _, r in poll(consumer, 500, lambda *_: None):
                    record = None if r.value is None else read_record(TOPICS[name], r.key, r.value)
                    if not isinstance(record, Unusable):
                        found.append(((r.key or b"").decode(errors="replace"), record))
            return found
        finally:
            consumer.close()

    def latest(self, name: str) -> dict[str, Any]:
        newest = dict(self.read(name))
        return {k: v for k, v in newest.items() if v is not None}

    def propose(self, proposal: dict[str, Any]) -> None:
        self.send("x.proposals", proposal["tablet_id"].encode(), encode("proposal", proposal))

    def send(self, topic: str, key: bytes | None, value: bytes | None, **more: Any) -> None:
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, acks="all")
        try:
            producer.send(topic, key=key, value=value, **more).get(timeout=120)
        finally:
            producer.close()


def start(cluster: LocalCluster, bootstrap: str, servers: int, *more: str) -> tuple[Any, list[pb.TabletInfo]]:
    """Start a master on Kafka, servers, and a table of two tablets with leaders."""
    master = cluster.add_master(*MASTER, *more, f"--kafka={bootstrap}")
    stub = pb_grpc.MasterServiceStub(master.channel)
    for _ in range(servers):
        cluster.add_server()
    wait_until(
        lambda: len(stub.ListServers(pb.ListServersRequest(), timeout=30).servers) == servers, "all servers report"
    )
    reply = stub.CreateTable(pb.CreateTableRequest(table=table_info(), request_id="r"), timeout=30)
    assert reply.error.code == 0, reply.error

    def formed() -> list[pb.TabletInfo] | None:
        tablets = list(stub.GetTable(pb.TableRequest(name="flights", with_tablets=True), timeout=30).tablets)
        return tablets if tablets and all(t.running for t in tablets) else None

    return stub, wait_until(formed, "every tablet has a leader")


def test_kafka_a_proposal_becomes_decisions_and_is_answered(broker: KafkaBroker) -> None:
    """IN-90. Goal: proposals are accepted or refused with a reason, become desired state, and end DONE, whatever else
    stands on the masters' topics; what nobody can use is counted.

    Method: nulls, garbage, lying lengths, giants and hostile values on all four topics; then a move, one from an
    outdated config, and bytes that are no proposal; carry each decision out; read the outcomes and the status.
    """
    with local_cluster() as cluster:
        stub, tablets = start(cluster, broker.bootstrap, 4)
        topics = Topics(broker.bootstrap)

        def reported() -> bool:
            reports = topics.latest("reports")
            return {t.tablet_id for t in tablets} <= set(reports) and sum(k.startswith("server:") for k in reports) == 4

        wait_until(reported, "reports of all tablets and servers are published")
        tablet = tablets[0]
        members = {m.uuid for m in tablet.config.members}
        target = next(s.uuid for s in cluster.servers if s.uuid not in members)
        source = next(u for u in sorted(members) if u != tablet.leader_uuid)
        proposal = {
            "proposal_id": "p1",
            "plan_id": "plan",
            "tablet_id": tablet.tablet_id,
            "wanted": "MOVE_REPLICA",
            "from_uuid": source,
            "to_uuid": target,
            "config_opid": {"term": tablet.config.opid.term, "index": tablet.config.opid.index},
            "deadline_us": time.time_ns() // 1000 + 600_000_000,
            "reason": "a better place",
            "reserved": b"",
        }
        hostile_count = send_hostile(topics, tablet.tablet_id, proposal)
        topics.propose(proposal)
        topics.propose({**proposal, "proposal_id": "p2", "config_opid": {"term": 0, "index": 77}})
        topics.propose({**proposal, "proposal_id": "p3"})
        topics.send("x.proposals", tablet.tablet_id.encode(), b"\xff")

        def results() -> dict[str, list[str]]:
            found: dict[str, list[str]] = {}
            for _, outcome in topics.read("outcomes"):
                if outcome is not None:
                    found.setdefault(outcome.subject_id, []).append(outcome.result)
            return found

        last = f"x.proposals[0]@{hostile_count + 3}"
        wait_until(lambda: set(results()) >= {"p1", "p2", "p3", last}, "all proposals are answered")
        assert results()[last] == ["REFUSED"], "who cannot be understood does not wait for ever"
        assert results()["hostile"] == ["REFUSED"], "a proposal whose id can be read is answered under it"
        assert (results()["p1"][0], results()["p2"], results()["p3"]) == ("ACCEPTED", ["REFUSED"], ["REFUSED"])
        with Client([cluster.masters[0].address]) as client:

            def done() -> bool:
                for decision in topics.latest("decisions").values():
                    assert decision.plan_id == "plan"
                    assert execute(decision, client).result in (Result.DONE, Result.REFUSED, Result.FAILED)
                return results()["p1"] == ["ACCEPTED", "DONE"]

            wait_until(done, "the move is done")
        wait_until(lambda: not topics.latest("decisions"), "no decision is left in force")
        now = stub.GetTable(pb.TableRequest(name="flights", with_tablets=True), timeout=30).tablets
        voters = next({m.uuid for m in t.config.members} for t in now if t.tablet_id == tablet.tablet_id)
        assert voters == (members - {source}) | {target}

        def counted() -> bool:
            told = Counter[str]()
            for skipped in stub.Status(pb.Empty(), timeout=30).skipped:
                told[skipped.topic] += skipped.count
            return told["proposals"] == hostile_count + 1 and min(told[t] for t in kafka_topics.PARTITIONS) >= 4

        wait_until(counted, "every record that nobody can use is counted")
        assert {c.link for c in stub.Status(pb.Empty(), timeout=30).kafka} == {"connected"}


def test_move_that_the_master_carries_out_is_explained(broker: KafkaBroker) -> None:
    """Goal: `nyala decisions explain` shows a whole move, each outcome with its decision and each config with its
    cause, as a master with an executor of its own writes it; the history proves itself complete. Method: propose a
    move; wait for its end; read it back; kill the master, and replay the history of both leaderships."""
    with local_cluster() as cluster:
        _, tablets = start(cluster, broker.bootstrap, 4, "--execute-decisions=master")
        topics, tablet = Topics(broker.bootstrap), tablets[0]
        members = {m.uuid for m in tablet.config.members}
        source = next(u for u in sorted(members) if u != tablet.leader_uuid)
        target = next(s.uuid for s in cluster.servers if s.uuid not in members)
        opid = {"term": tablet.config.opid.term, "index": tablet.config.opid.index}
        topics.propose(
            {
                "proposal_id": "p", "plan_id": "plan", "tablet_id": tablet.tablet_id, "wanted": "MOVE_REPLICA",
                "from_uuid": source, "to_uuid": target, "config_opid": opid, "deadline_us": 0, "reason": "better",
                "reserved": b"",
            }
        )  # fmt: skip

        def explained() -> list[dict[str, Any]] | None:
            line = ["decisions", "explain", tablet.tablet_id[:12], "--json", "--kafka", broker.bootstrap]
            done = CliRunner().invoke(app, [*line, "--topic-prefix", "x."])
            found = [json.loads(each) for each in done.stdout.splitlines()]
            ended = any(one["step"] == "DONE" and one["subject"] == "PROPOSAL" for one in found)
            decided = [one for one in found if one["cause"].startswith("decision ") and one["since"] == "DECIDED"]
            whole = ended and len(decided) >= 2 and sum(one["step"] == "WITHDRAWN" for one in found) >= 2
            assert not whole or not done.stderr, done.stderr
            return found if whole else None

        found = wait_until(explained, "the move is done, and every step of it is in Kafka")
        configs = [one for one in found if one["step"] in ("CONFIG", "KNOWN")]
        found = [one for one in found if one not in configs]
        steps = [one["step"] for one in found]
        assert steps[:3] == ["PROPOSED", "ACCEPTED", "DECIDED"] and {one["plan_id"] for one in found} == {"plan", ""}
        outcomes = [
            one for one in found if one["subject"] == "DECISION" and one["step"] in ("DONE", "REFUSED", "FAILED")
        ]
        assert len(outcomes) >= 2 and all(one["since"] == "DECIDED" for one in outcomes), found
        assert found[0]["change"] == f"move a replica from {source} to {target}"
        cluster.masters[0].kill()
        cluster.masters[0].start()
        stub = pb_grpc.MasterServiceStub(cluster.masters[0].channel)

        def replayed() -> bool:
            events = [event for _, event in topics.read("history")]
            now = stub.GetTable(pb.TableRequest(name="flights", with_tablets=True), timeout=30)
            expected = {t.tablet_id: config_from_pb(t.config) for t in now.tablets}
            ended = {event.snapshot_id for event in events if event.kind is EventKind.SNAPSHOT_ENDED}
            assert not [event for event in events if event.kind is EventKind.GAP] and not fold(events).missing
            return len(ended) >= 2 and len(expected) == 2 and fold(events).configs == expected

        wait_until(replayed, "the history has the configs of both tablets")


@pytest.mark.deep
def test_topic_of_reports_that_was_deleted_is_whole_again(broker: KafkaBroker) -> None:
    """Goal: a topic of reports with records of a former cluster is mended as the rebalance job says: it is deleted, and
    the leading master makes it anew and publishes every record. Method: a record of a server that no master knows,
    which stays; the topic is deleted; its records are whole, without that one."""
    with local_cluster() as cluster:
        _, tablets = start(cluster, broker.bootstrap, 3)
        topics, keys = Topics(broker.bootstrap), {f"server:{s.uuid}" for s in cluster.servers}
        keys |= {t.tablet_id for t in tablets}

        def whole() -> bool:
            inputs = inputs_of(topics.latest("reports").values(), time.time_ns() // 1000)
            return not inputs.lacks and len(inputs.records) == len(keys)

        wait_until(whole, "all records are there")
        former = Report(server_uuid="f" * 32, catalog_term=1, at_us=1)
        topics.send("x.reports", b"server:" + b"f" * 32, encode_record(former))
        assert topics.latest("reports").keys() == keys | {f"server:{former.server_uuid}"}
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        try:
            admin.delete_topics(["x.reports"])
        finally:
            admin.close()
        wait_until(
            lambda: topics.latest("reports").keys() == keys, "the topic is there again, without the other record"
        )
        wait_until(whole, "all records are there again")


def send_hostile(topics: Topics, tablet_id: str, proposal: dict[str, Any]) -> int:
    """Write an attacker's records to every topic; returns how many of them are on `proposals`."""
    lies = bytes([0xFE, *[0xFF] * 7, 0x0F])  # the length of a text: 2^59 bytes and more
    everywhere = (None, b"", b"garbage", lies, bytes(900_000))
    for name in kafka_topics.PARTITIONS:
        for value in everywhere:
            topics.send(f"x.{name}", b"\xff\0" if name == "proposals" else tablet_id.encode(), value)
        topics.send(f"x.{name}", None if name in ("proposals", "outcomes") else b"nobody", b"\0")
        topics.send(f"x.{name}", b"h", b"\0", headers=[BAD_HEADER])
    own = tablet_id.encode()
    topics.send("x.proposals", own, encode("proposal", {**proposal, "proposal_id": "hostile", "deadline_us": -5}))
    topics.send("x.proposals", own, encode("proposal", {**proposal, "to_uuid": "u" * 60_000, "proposal_id": "h2"}))
    return len(everywhere) + 4


@pytest.mark.deep
def test_kafka_away_nothing_stops_and_on_return_one_decision_per_need(broker: KafkaBroker) -> None:
    """Goal: scenario 125. Method: broker killed, tablet server killed; then the broker returns.

    Meanwhile tables are created and no config changes; afterwards each sick tablet has exactly one decision. In the end
    the broker hangs, and the master is told to end.
    """
    with local_cluster() as cluster:
        stub, tablets = start(cluster, broker.bootstrap, 4, *IMPATIENT)
        wait_until(lambda: stub.Status(pb.Empty(), timeout=30).kafka_connected, "Kafka is connected")
        broker.kill()
        victim = cluster.server(tablets[0].config.members[0].uuid)
        sick = {t.tablet_id for t in tablets if victim.uuid in {m.uuid for m in t.config.members}}
        victim.kill()
        wait_until(lambda: not stub.Status(pb.Empty(), timeout=30).kafka_connected, "the outage is noticed")
        more = pb.CreateTableRequest(table=table_info("more", buckets=1), request_id="q")
        wait_until(lambda: stub.CreateTable(more, timeout=30).error.code == 0, "tables are created meanwhile")

        def failed() -> bool:
            reply = stub.ListServers(pb.ListServersRequest(), timeout=30)
            return any(s.uuid == victim.uuid and s.last_heartbeat_us_ago > 12_000_000 for s in reply.servers)

        wait_until(failed, "the server is given up")
        now = stub.GetTable(pb.TableRequest(name="flights", with_tablets=True), timeout=30).tablets
        assert {t.tablet_id: t.config.opid.index for t in now} == {t.tablet_id: t.config.opid.index for t in tablets}
        broker.start()
        topics = Topics(broker.bootstrap)
        wait_until(lambda: sick <= set(topics.latest("decisions")), "every need is said")
        # A producer that hears nothing sends again: the same decision is one, however often it stands there.
        decisions = {(k, v.catalog_term, v.version) for k, v in topics.read("decisions") if v is not None}
        said = Counter(k for k, _, _ in decisions)
        assert {k: said[k] for k in sick} == dict.fromkeys(sick, 1)
        # It takes connections and answers nothing: a master that is told to end must not wait for it.
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGSTOP)
        assert cluster.masters[0].stop() == 0, "it ended by itself"


@pytest.mark.deep
def test_decision_of_a_master_that_was_stopped_while_it_published_is_fenced(broker: KafkaBroker) -> None:
    """Goal: scenario 35; the catalog term is the epoch. Method: three masters; the broker hangs as the leading master
    decides, which is then stopped in the midst of publishing; the broker goes on, another master leads and says the
    need in its own term; the first one wakes and follows. A decision of its term that comes later is dropped by whoever
    reads the topic; carried out all the same, it is refused by the tablet's leader, which has seen a later one.
    """
    with local_cluster() as cluster:
        addresses = [cluster.ports.free_address() for _ in range(3)]
        for address in addresses:
            extra = (*MASTER, f"--kafka={broker.bootstrap}", f"--peers={','.join(addresses)}")
            cluster.add_master(*extra, start=False).address = address
        for master in cluster.masters:
            master.start(wait=False)
        for master in cluster.masters:
            master.wait_ready()
        for _ in range(4):
            cluster.add_server(start=False).start(wait=False)
        for server in cluster.servers:
            server.wait_ready()
        with Client(addresses) as client:
            wait_until(lambda: sum(s.alive for s in client.list_servers().servers) == 4, "four servers are alive")
            columns = (Column(id=1, name="id", type=ColumnType.INT64, nullable=False),)
            client.create_table("moved", TableSchema(1, columns, ("id",)), PartitionSpec(("id",), 1))
            wait_until(lambda: all(t.running for t in client.tablet_infos("moved")), "it has a leader")
            (tablet,) = client.tablet_infos("moved")
            members = {m.uuid for m in tablet.config.members}
            target = next(s.uuid for s in cluster.servers if s.uuid not in members)
            source = next(u for u in sorted(members) if u != tablet.leader_uuid)
            connected = lambda: all(status(m).kafka_connected for m in cluster.masters if leads(m))  # noqa: E731
            wait_until(lambda: any(map(leads, cluster.masters)) and connected(), "who leads reaches Kafka")

            def decider() -> ServerProcess | None:
                """Return the master that leads when it decides: perhaps another one than when the broker was
                stopped."""
                said = [
                    m for m in cluster.masters if f"T {tablet.tablet_id} P {m.uuid} decides" in m.log_path.read_text()
                ]
                return next((m for m in said if leads(m)), None)

            assert broker.pid is not None
            os.kill(broker.pid, signal.SIGSTOP)
            client.move_replica(tablet.tablet_id, source, target)
            old = wait_until(decider, "a master decides")
            term = status(old).catalog_term
            old.signal(signal.SIGSTOP)
            os.kill(broker.pid, signal.SIGCONT)
            topics = Topics(broker.bootstrap)

            def of_next_master() -> Decision | None:
                found = topics.latest("decisions").get(tablet.tablet_id)
                return found if found is not None and found.catalog_term > term else None

            second = wait_until(of_next_master, "the next master says it")
            old.signal(signal.SIGCONT)
            wait_until(lambda: not leads(old) and status(old).replica.term > term, "the first one follows")
            member = next(e.member for e in second.edits if e.member.uuid == target)
            other = (ConfigEdit(EditKind.REMOVE, member),)
            late = replace(second, catalog_term=term, version=second.version + 9, edits=other)
            topics.send("x.decisions", tablet.tablet_id.encode(), encode_record(late))

            def in_force() -> list[Decision]:
                """Return the decisions in force; none while the leader has withdrawn its own, to decide again."""
                said = [
                    (key.encode(), None if value is None else encode_record(value), offset)
                    for offset, (key, value) in enumerate(topics.read("decisions"))
                ]
                # What the first master was publishing when it was stopped may come later still: it is of the same term.
                values = [value for _, value, _ in said]
                assert values.index(encode_record(late)) > values.index(encode_record(second))
                return newest(said, {})

            (kept,) = wait_until(in_force, "a decision is in force")
            assert kept.catalog_term >= second.catalog_term and kept.action is second.action
            wait_until(lambda: execute(kept, client).result is Result.DONE, "it is carried out")
            reported = lambda: [  # noqa: E731
                t for t in client.tablet_infos("moved") if target in {m.uuid for m in t.config.members}
            ]
            (now,) = wait_until(reported, "the masters have heard of it")
            again = replace(late, config_opid=opid_from_pb(now.config.opid))
            refused = wait_until(lambda: not (told := execute(again, client)).retryable and told, "it is answered")
            assert (refused.result, Code(refused.code)) == (Result.REFUSED, Code.STALE_DECISION), refused
            (then,) = client.tablet_infos("moved")
            assert target in {m.uuid for m in then.config.members}


def status(master: ServerProcess) -> pb.MasterStatusReply:
    stub: Any = pb_grpc.MasterServiceStub(master.channel)  # type: ignore[no-untyped-call]
    reply: pb.MasterStatusReply = stub.Status(pb.Empty(), timeout=30)
    return reply


def leads(master: ServerProcess) -> bool:
    return bool(status(master).replica.role == "LEADER")
