"""Empty tablets replace lost ones in the catalog: the refusals, the change itself, and the members that return."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.master.catalog.records import DESIRED_CHANGE, TABLET
from nyala.replica.master.catalog.sources import advance_sources, open_sources, source_positions
from nyala.replica.master.catalog.tables import create_table, drop_table
from nyala.replica.master.requests import change_requests
from nyala.replica.master.requests.infos import tablet_infos
from nyala.replica.master.requests.replacing import replace_tablets
from nyala.replica.master.tablets.view import wanted_voters
from nyala.replica.policy import ChangeKind, DesiredChange, ServerView
from nyala.replica.rows import SourceKey
from nyala.replica.rpc import heartbeat_from_pb, pb
from nyala.replica.types import Address, Code, Member, Refused
from tests.harness.catalogs import new_table
from tests.harness.leading_master import OPTIONS, Masters, S
from tests.harness.reachable import orders_now

DEAD_US = OPTIONS.server_dead_ms * 1000
SECOND = 1_000_000


def wiped() -> Masters:
    """All three members are silent; three other servers, which hold nothing, have reported to this master for long."""
    m = Masters(3)
    m.clock.now_us += 2 * DEAD_US
    m.servers = S[3:]
    m.report()
    return m


def replaced(m: Masters, *tablets: str, **fields: Any) -> tuple[dict[str, str], list[Any]]:
    floors = fields.pop("floors", {})
    made, lowered = m.box.commit(replace_tablets(m.state, tablets or [m.tablet], floors, **fields)())
    return made, lowered


def refused(m: Masters, code: Code, says: str, *tablets: str, **fields: Any) -> None:
    before = m.box.index
    with pytest.raises(Refused, match=says) as caught:
        replaced(m, *tablets, **fields)
    assert caught.value.code is code and m.box.index == before, caught.value


def fed(m: Masters, table: str = "flights", partition: int = 0, *, start: int = 10, done: int = 50) -> None:
    """A source of the table, owned by a run, complete up to `done`."""
    source = pb.SourceKey(cluster_id="c", topic_id="id1", kafka_partition=partition)
    opened = pb.SourceOpen(source=source, topic=f"writes.{table}", initial_start=start)
    lease = {"owner_run": "a", "lease_us": 30 * SECOND}
    request = pb.OpenSourcesRequest(table=table, opens=[opened], **lease)  # type: ignore[arg-type]
    table_id, _ = m.box.commit(open_sources(m.box.catalog, request, m.clock.now_us))
    advance = pb.SourceAdvance(source=source, generation=1, done=done)
    moved = pb.AdvanceSourcesRequest(table_id=table_id, advances=[advance], **lease)  # type: ignore[arg-type]
    m.box.commit(advance_sources(m.box.catalog, moved, m.clock.now_us))


def test_lost_tablet_is_replaced_by_an_empty_one_of_the_same_partition_once() -> None:
    """CC-39. Goal: with no survivor there is a way on, and a lost answer makes no second tablet. Method: a tablet with
    a number of voters of its own and a desired change; replaced, asked again, alone and beside another name; then the
    table is dropped, with the old and the new one."""
    m = wiped()
    m.set(1, tablet_id=m.tablet)
    m.box.commit(
        ({DESIRED_CHANGE + m.tablet: DesiredChange(kind=ChangeKind.ADD, wish_id="w", to_uuid=S[4])}, [], "", None)
    )
    table_id = str((m.box.catalog.records.get(TABLET + m.tablet) or {})["table_id"])
    made, _ = replaced(m, m.tablet, m.tablet)
    (new,) = made.values()
    old, record = m.box.catalog.records.get(TABLET + m.tablet) or {}, m.box.catalog.records.get(TABLET + new) or {}
    assert old["replaced_by"] == new and old["holders"] == S[:3] and "dropped_us" in old
    assert [record[k] for k in ("table_id", "bucket", "range_pos")] == [
        old[k] for k in ("table_id", "bucket", "range_pos")
    ]
    assert "formed" not in record and wanted_voters(m.box.catalog, new) == 1 and len(record["members"]) == 1
    assert m.box.catalog.records.get(DESIRED_CHANGE + m.tablet) is None
    assert [t.tablet_id for t in tablet_infos(m.state, table_id)] == [new]
    before = m.box.index
    assert replaced(m) == (made, []) and m.box.index == before
    with pytest.raises(Refused, match="no such tablet"):
        m.want(change_requests.add, S[4])
    m.box.commit(drop_table(m.box.catalog, "flights", "", 99))
    dropped = {t: r.dropped_us for t, r in m.box.catalog.items(TABLET)}
    assert dropped == {m.tablet: old["dropped_us"], new: 99}
    refused(m, Code.TABLET_NOT_FOUND, "no table has this tablet", new)


def test_tablet_is_replaced_by_no_accident() -> None:
    """CC-38. Goal: what is not lost is not thrown away, and what cannot be changes nothing. Method: nothing named; an
    unknown tablet beside a lost one; a member that was heard of just now, by its full report or not yet; a witness,
    which has no rows; a master that has just begun to lead; too few servers for the replicas."""
    m = wiped()
    with pytest.raises(Refused, match="name the tablets"):
        replace_tablets(m.state, [], {})
    refused(m, Code.TABLET_NOT_FOUND, "tablet=elsewhere", m.tablet, "elsewhere")
    m.report(only=S[1])
    refused(m, Code.ILLEGAL_STATE, f"holds rows of this tablet.*servers={S[1]}")
    made, _ = replaced(m, despite_replicas=True)
    assert list(made) == [m.tablet]

    m = wiped()
    m.report(only=S[1])
    held = m.state.soft.servers[S[1]].replicas
    held[m.tablet] = replace(held[m.tablet], witness=True)
    assert replace_tablets(m.state, [m.tablet], {})()[0]
    m.state.soft.heartbeat(*heartbeat_from_pb(pb.HeartbeatRequest(server_uuid="e" * 32, booting=True)), m.clock.now_us)
    refused(m, Code.NOT_READY, f"has not reported yet which replicas it has.*server={'e' * 32}", despite_replicas=True)
    m.lead()
    m.report()
    refused(m, Code.NOT_READY, r"just begun to lead.*wait_s=3\.0", despite_replicas=True)
    m.clock.now_us += DEAD_US
    m.servers = S[3:5]
    m.lead()
    m.clock.now_us += DEAD_US
    m.report()
    refused(m, Code.INVALID_ARGUMENT, r"as many live tablet servers.*alive=2, replicas=3")


def test_replica_of_a_replaced_tablet_that_returns_is_deleted_and_new_servers_create_the_new_one() -> None:
    """CC-46. Goal: returning old members are harmless. Method: replaced; all three come back, one leads: each is
    ordered to delete, with the reason, and none of them is named by any client's look-up; the members of the new tablet
    are ordered to create it, with the config in which it was placed."""
    m = wiped()
    made, _ = replaced(m)
    (new,) = made.values()
    members = [x["uuid"] for x in (m.box.catalog.records.get(TABLET + new) or {})["members"]]
    assert sorted(members) == S[3:]
    for uuid in S[3:]:
        (order,) = orders_now(m.box.catalog, m.state.soft, m.state.inquiries, uuid, 0, 0)
        assert order.create.tablet_id == new and [x.uuid for x in order.create.config.members] == members
    m.servers = S[:3]
    m.report()
    for uuid in S[:3]:
        (order,) = orders_now(m.box.catalog, m.state.soft, m.state.inquiries, uuid, 0, 0)
        assert (order.delete.tablet_id, order.delete.reason) == (m.tablet, f"replaced by {new}")
    (info,) = tablet_infos(m.state, str((m.box.catalog.records.get(TABLET + new) or {})["table_id"]))
    assert not set(S[:3]) & {x.uuid for x in info.config.members}


def test_sources_of_a_replaced_tablet_go_back_as_far_as_kafka_goes() -> None:
    """CC-46. Goal: what Kafka has comes back, and a query that runs on does not go on behind it. Method: three
    partitions of the table, of one of which Kafka has lost the beginning, and of one everything that was done; the
    owner loses its lease; the sources of another table stay; replaced once more, nothing moves."""
    m = wiped()
    hosts = [ServerView(uuid=S[3], member=Member(S[3], (Address("h", 1),)))]
    m.box.commit(create_table(m.box.catalog, new_table("other", buckets=1, rf=1), hosts, {}, 1))
    for partition in range(3):
        fed(m, partition=partition)
    fed(m, "other")
    floors = {SourceKey("c", "id1", 1): 30, SourceKey("c", "id1", 2): 70}
    _, lowered = replaced(m, floors=floors)
    positions = {(p.table, p.source.kafka_partition): p for p in [p for _, p in source_positions(m.box.catalog, "")]}
    assert [positions["flights", p].done for p in range(3)] == [10, 30, 50] and positions["other", 0].done == 50
    assert [positions["flights", p].generation for p in range(3)] == [1, 1, 1], "intact tablets drop what they have"
    assert sorted(p.done for p in lowered) == [10, 30, 50]
    assert not any(positions["flights", p].owner_run for p in range(3)) and positions["other", 0].owner_run == "a"
    assert replaced(m)[1] == []
