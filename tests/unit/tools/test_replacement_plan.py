"""Which lost tablets may be replaced by empty ones, what that costs, and what the plan's fingerprint stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nyala.replica.rows import SourceKey
from nyala.replica.rpc import config_to_pb, pb
from nyala.replica.tools import ReplacementPlan, ReplicaEvidence, Why, plan_replacement, replacement_json
from nyala.replica.types import DataState
from tests.harness.copies import TABLET
from tests.harness.lost_majority import UUIDS, config, seen

OTHER = "f" * 32
A, B, C = (UUIDS[name] for name in "abc")


def info(tablet_id: str = TABLET, **fields: Any) -> pb.TabletInfo:
    return pb.TabletInfo(tablet_id=tablet_id, table_id="t1", config=config_to_pb(config("abc")), **fields)


def running(name: str, **fields: Any) -> ReplicaEvidence:
    return replace(seen(name, (2, 9)), running=True, **fields)


def plan(replicas: Sequence[ReplicaEvidence] = (), *, answered: str = "de", **more: Any) -> ReplacementPlan:
    infos = more.pop("infos", [info()])
    uuids = [UUIDS[name] for name in answered]
    return plan_replacement(infos, {"t1": "things"}, {TABLET: list(replicas)}, uuids, **more)


def position(partition: int, start: int, done: int, table_id: str = "t1") -> pb.SourcePosition:
    source = pb.SourceKey(cluster_id="c", topic_id="id1", kafka_partition=partition)
    return pb.SourcePosition(
        table_id=table_id, table="things", topic="writes.things", source=source, generation=1, start=start, done=done
    )


def test_tablet_of_which_a_running_server_holds_rows_is_left_to_a_recovery() -> None:
    """CC-38. Goal: a tablet is replaced by an empty one only if no running server has rows of it. Method: a leader; a
    replica without one, also one that FAILED; a tombstone, a copy under way and a witness hold nothing to go on from;
    told to, rows are thrown away, and named."""
    (alone,) = plan([running("a")], infos=[info(running=True, leader_uuid=A)]).left_alone
    assert alone.why is Why.REPLICA and f"{A} leads it" in alone.what
    for replica in (running("b"), running("b", problem="FAILED: a block")):
        found = plan([replica])
        (alone,) = found.left_alone
        assert not found.tablets and f"rows is left on {B} at /data/b" in alone.what
        assert "nyala unsafe recover" in alone.what
    nothing = [running("a", data_state=DataState.DELETED), running("b", data_state=DataState.COPYING)]
    (lost,) = plan([*nothing, running("c", witness=True)], answered="abc").tablets
    assert (lost.table_name, lost.members, lost.unseen, lost.with_rows) == ("things", (A, B, C), (), ())
    (lost,) = plan([running("b")], despite_replicas=True).tablets
    assert lost.with_rows == (B,) and lost.unseen == (A, B, C)


def test_fingerprint_of_a_replacement_names_what_is_given_up() -> None:
    """CC-38. Goal: the confirmed fingerprint covers the data that is given up. Method: the same tablet; rows to throw
    away; another member; another tablet. How far sources and Kafka are moves on, and is no part of it."""
    first = plan().fingerprint
    assert plan().fingerprint == first == plan(positions=[position(0, 0, 9)]).fingerprint
    moved = info()
    moved.config.members[2].uuid = UUIDS["d"]
    others = [plan(infos=[moved]), plan(infos=[info(OTHER)]), plan(infos=[info(), info(OTHER)])]
    others.append(plan([running("b")], despite_replicas=True))
    assert len({first, *(p.fingerprint for p in others)}) == 5


def test_replacement_says_what_is_read_again_and_what_kafka_has_no_more() -> None:
    """CC-46. Goal: the plan tells which records are read again, and which ones Kafka no longer has. Method: sources
    that go back to their start, to what is retained, nowhere; one of another table; a plan without tablets lowers
    nothing."""
    floors = {SourceKey("c", "id1", number): offset for number, offset in ((1, 30), (2, 70), (3, 10))}
    positions = [position(0, 0, 50), position(1, 10, 50), position(2, 10, 50), position(3, 10, 10)]
    found = plan(positions=[*positions, position(9, 0, 50, "t2")], floors=floors)
    assert [(s.source.kafka_partition, s.done, s.to) for s in found.lowerings] == [(0, 50, 0), (1, 50, 30)]
    assert [(s.kafka_partition, s.start, s.first_kept) for s in found.losses] == [(1, 10, 30), (2, 10, 70)]
    document = replacement_json(found, {TABLET: OTHER})
    assert document["tablets"][0]["replaced_by"] == OTHER and document["kafka_no_longer_has"][0]["first_kept"] == 30
    assert plan([running("a")], positions=positions).lowerings == ()
