"""What is looked at again in a cluster at rest: what changed, whatever it is, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.master.catalog.records import (
    DESIRED_CHANGE,
    MAINTENANCE,
    RETIRED,
    TABLE,
    TABLET,
    Maintenance,
    Record,
    Retired,
    Tablet,
)
from nyala.replica.master.catalog.tables import table_record
from nyala.replica.policy import (
    ChangeKind,
    DesiredChange,
)
from nyala.replica.types import (
    Address,
    DataState,
    FailingCopy,
    Heartbeat,
    Member,
    OpId,
    PeerReport,
    RaftConfig,
    ReportedReplica,
)
from tests.harness.catalogs import AppliedCatalog, new_table
from tests.harness.kept_worlds import DEAD_US, REPLACE_US, TABLETS, World
from tests.harness.whole_view import cluster_view


def standing(servers: int, tablets: int) -> World:
    """A world without chance: many tablets, all reported and at rest."""
    world = World(0)
    for tablet in TABLETS:
        world.put({}, TABLET + tablet)
    records: dict[str, Record] = {TABLE + "1": table_record(new_table())}
    uuids = [f"{n:032x}" for n in range(servers)]
    for n in range(tablets):
        members = tuple(Member(uuids[(n + i) % servers], (Address("h", 1 + (n + i) % servers),)) for i in range(3))
        config = RaftConfig(OpId(1, 1), members)
        made = Tablet(table_id="1", members=members, formed=True, config=config, bucket=n, range_pos=0)
        records[f"{TABLET}n{n:06}"] = made
    world.put(records)
    return world


def beat_of(world: World, uuid: str, told: list[ReportedReplica], *, full: bool = False, **fields: Any) -> None:
    world.sequence += 1
    said = {"addresses": (Address("h", 1 + int(uuid, 16)),), "disk_bytes_free": 1 << 40, "process": 1, **fields}
    beat = Heartbeat(server_uuid=uuid, sequence=world.sequence, replicas=len(told), full_report=full, **said)
    world.soft.heartbeat(beat, lambda before: told, world.now_us)


def reported(servers: int, tablets: int) -> tuple[World, dict[str, list[ReportedReplica]]]:
    """A world in which all servers have reported and nothing is to be done, and what each server reports."""
    world = standing(servers, tablets)
    reports: dict[str, list[ReportedReplica]] = {f"{n:032x}": [] for n in range(servers)}
    for tablet_id, record in world.catalog.items(TABLET):
        config = record.known_config
        leader = config.members[0].uuid
        world.truth[tablet_id] = config, leader, 1
        for m in config.members:
            status = ReportedReplica(
                tablet_id=tablet_id, data_state=DataState.READY, phase="RUNNING",
                role="LEADER" if m.uuid == leader else "FOLLOWER", term=1, leader_uuid=leader, commit_opid=config.opid,
                config=config, config_opid=config.opid, config_wire=tablet_id.encode(), pending=False, damaged=False,
                peers=tuple(PeerReport(p.uuid, "OK", 0) for p in config.members) if m.uuid == leader else (),
                witness=False, rows=0, bytes_on_disk=0, wal_bytes=0,
            )  # fmt: skip
            reports[m.uuid].append(status)
    for uuid, told in reports.items():
        beat_of(world, uuid, told, full=True)
    assert visited(world) >= {tablet_id for tablet_id, _ in world.catalog.items(TABLET)}
    visited(world)
    assert len(world.kept.tablets) == tablets
    assert not world.kept.busy and not world.kept.unwell and not world.kept.unrecorded
    return world, reports


def visited(world: World) -> set[str]:
    """The tablets that the next look visits."""
    world.kept.refreshed = set()
    assert world.kept.refresh(world.now_us, world.wall_us)
    return world.kept.refreshed


@pytest.mark.parametrize(("servers", "tablets"), [(6, 60), (20, 1000)])
def test_look_costs_what_changed_and_not_what_stands(servers: int, tablets: int) -> None:
    """Goal: no walk over all tablets comes back. Method: the tablets that a look visits are counted, at two sizes: all
    at first, none at rest, one after one change, those of one server after its silence."""
    world, reports = reported(servers, tablets)
    for _ in range(3):
        world.now_us += 500_000
        for uuid, told in reports.items():
            beat_of(world, uuid, told[:20])
        assert not visited(world), "they repeat what they reported"
    uuid, told = next(iter(reports.items()))
    beat_of(world, uuid, [replace(told[0], rows=7)])
    assert visited(world) == {told[0].tablet_id}
    known = world.catalog.get(TABLET, told[1].tablet_id)
    assert known is not None
    world.put({TABLET + told[1].tablet_id: replace(known, wishes=1)})
    assert visited(world) == {told[1].tablet_id}
    world.now_us += DEAD_US + 1
    for other, theirs in reports.items():
        if other != uuid:
            beat_of(world, other, theirs[:20])
    assert visited(world) == {t.tablet_id for t in told}, "the silent server's"
    assert not visited(world)


def passes(world: World, time_us: int, silent: str = "") -> None:
    """Time passes, in which all servers but one send heartbeats that name no replica."""
    for _ in range(time_us // 1_000_000):
        world.now_us += 1_000_000
        for uuid in sorted(world.soft.servers):
            if uuid != silent:
                beat_of(world, uuid, [])


def works_on(world: World, uuid: str, time_us: int) -> None:
    work = Maintenance(since_us=0, until_us=world.wall_us + time_us, seconds=1, owner="", reason="")
    world.put({MAINTENANCE + uuid: work})


Event = Callable[[World, str, ReportedReplica], object]


def change_record(**fields: Any) -> Event:
    def event(world: World, uuid: str, replica: ReportedReplica) -> None:
        record = world.catalog.get(TABLET, replica.tablet_id)
        assert record is not None
        world.put({TABLET + replica.tablet_id: replace(record, **fields)})

    return event


def say(**fields: Any) -> Event:
    return lambda world, uuid, replica: beat_of(world, uuid, [replace(replica, **fields)])


def say_of_itself(**fields: Any) -> Event:
    return lambda world, uuid, replica: beat_of(world, uuid, [], **fields)


def want(world: World, uuid: str, replica: ReportedReplica) -> None:
    wish = DesiredChange(kind=ChangeKind.TRANSFER, wish_id="w", to_uuid=uuid)
    world.put({DESIRED_CHANGE + replica.tablet_id: wish})


def answer(world: World, uuid: str, replica: ReportedReplica) -> None:
    world.proofs[replica.tablet_id] = replace(replica.config, opid=OpId(1, 9))
    world.soft.touched.add(replica.tablet_id)  # as an inquiry does that has ended


def lose_contact(world: World, uuid: str, replica: ReportedReplica) -> None:
    """The leader of a tablet says that it has not reached one replica for long."""
    peers = tuple(replace(p, health="UNREACHABLE", last_contact_us_ago=1 << 40) for p in replica.peers)
    beat_of(world, uuid, [replace(replica, peers=peers)])
    visited(world)


def strand(world: World, uuid: str, replica: ReportedReplica) -> None:
    """A server that is no member has a replica."""
    world.soft.admit("e" * 32, (Address("h", 77),), world.now_us)
    beat_of(world, "e" * 32, [replace(replica, role="FOLLOWER", config=None, peers=())], full=True)


def forget_catalog(world: World, uuid: str, replica: ReportedReplica) -> None:
    """The catalog is another one, with the same records, as after a copy."""
    records = {TABLET + t: r for t, r in world.catalog.items(TABLET)}
    world.box = AppliedCatalog()
    world.catalog = world.box.catalog
    world.put({TABLE + "1": table_record(new_table()), **records})


ONE, SERVERS_OWN, ALL = "the tablet", "the tablets of the server", "all"
INPUTS: dict[str, tuple[Event, Event | None, str]] = {
    "record": (change_record(replication_factor=5), None, ONE),
    "dropped": (change_record(dropped_us=1), None, ONE),
    "forgotten": (lambda w, u, r: w.put({}, TABLET + r.tablet_id), None, ONE),
    "desired_change": (want, None, ONE),
    "desired_change_withdrawn": (want, lambda w, u, r: w.put({}, DESIRED_CHANGE + r.tablet_id), ONE),
    "table": (
        lambda w, u, r: w.put({TABLE + "1": replace(table_record(new_table()), replication_factor=5)}),
        None,
        ALL,
    ),
    "report": (say(damaged=True), None, ONE),
    "config": (say(config_wire=b"", config=None, pending=True), None, ONE),
    "tombstone": (say(data_state=DataState.DELETED), None, ONE),
    "answers_of_members": (answer, None, ONE),
    "retirement": (
        lambda w, u, r: w.put({RETIRED + u: Retired(since_us=1, reason="", tablets_at_first=0)}),
        None,
        SERVERS_OWN,
    ),
    "retirement_undone": (
        lambda w, u, r: w.put({RETIRED + u: Retired(since_us=1, reason="", tablets_at_first=0)}),
        lambda w, u, r: w.put({}, RETIRED + u),
        SERVERS_OWN,
    ),
    "maintenance": (lambda w, u, r: works_on(w, u, 1_000_000), None, SERVERS_OWN),
    "maintenance_ends_by_time": (
        lambda w, u, r: works_on(w, u, 2_000_000),
        lambda w, u, r: passes(w, 2_000_000),
        SERVERS_OWN,
    ),
    "maintenance_ends_by_a_clock_that_is_set": (
        lambda w, u, r: works_on(w, u, 2_000_000),
        lambda w, u, r: setattr(w, "wall_ahead_us", 9_000_000),
        SERVERS_OWN,
    ),
    "silence": (lambda w, u, r: passes(w, DEAD_US + 1_000_000, u), None, SERVERS_OWN),
    "long_silence": (
        lambda w, u, r: passes(w, DEAD_US + 1_000_000, u),
        lambda w, u, r: passes(w, REPLACE_US, u),
        SERVERS_OWN,
    ),
    "heard_again": (lambda w, u, r: passes(w, DEAD_US + 1_000_000, u), say_of_itself(), SERVERS_OWN),
    "server_starts_again": (say_of_itself(process=2, booting=True), None, SERVERS_OWN),
    "server_starts": (say_of_itself(booting=True), None, SERVERS_OWN),
    "copies_fail": (say_of_itself(copies_failing=(FailingCopy("n000000", 3, ""),)), None, SERVERS_OWN),
    "location": (say_of_itself(location="/b"), None, SERVERS_OWN),
    "address": (say_of_itself(addresses=(Address("h", 999),)), None, SERVERS_OWN),
    "leader_that_reaches_nobody": (lose_contact, lambda w, u, r: passes(w, REPLACE_US + 1_000_000), ONE),
    "forgotten_server": (strand, lambda w, u, r: w.soft.forget_server("e" * 32) or None, ONE),
    "leadership": (lambda w, u, r: w.soft.reset(w.now_us), None, ALL),
    "copied_catalog": (forget_catalog, None, ALL),
}
"""The inputs of tablets' views: a change of each, what comes after a look, and which tablets the next look visits."""


@pytest.mark.a_third
@pytest.mark.parametrize("what", INPUTS)
def test_each_input_of_the_policy_marks_what_it_changes(what: str) -> None:
    """Goal: whatever a decision reads, its change is looked at, and not the rest. Method: one change of each input, in
    a cluster at rest; the tablets that the look visits, and the views beside a walk."""
    world, reports = reported(6, 60)
    uuid, told = next(iter(reports.items()))
    replica = next(r for r in told if r.role == "LEADER")
    before, after, expected = INPUTS[what]
    before(world, uuid, replica)
    if after is not None:
        assert visited(world) or what == "leader_that_reaches_nobody"
        after(world, uuid, replica)
    whose = {ONE: {replica.tablet_id}, SERVERS_OWN: {r.tablet_id for r in told}}
    assert visited(world) == whose.get(expected, {f"n{n:06}" for n in range(60)})
    whole = cluster_view(world.catalog, world.soft, world.options, world.now_us, world.wall_us)
    assert world.kept.tablets == {t.tablet_id: t for t in whole.tablets}
    if expected != ALL:
        assert not visited(world)


def test_server_that_had_no_tablet_for_a_while_is_compared_anew() -> None:
    """Goal: what a server was like before its last tablet left it is no reason to leave its next one alone. Method: a
    server that no heartbeat names is in no config for a while, is in one in its maintenance, and is not after it."""
    world, _ = reported(6, 6)
    gone, tablet_id = "f" * 32, "n000000"
    config = world.soft.tablets[tablet_id].config
    assert config is not None
    other = config.members[0].uuid

    def moves(members: tuple[Member, ...], index: int) -> None:
        later = RaftConfig(OpId(1, index), members)
        replica = world.soft.servers[other].replicas[tablet_id]
        said = replace(replica, config=later, config_opid=later.opid, commit_opid=later.opid, config_wire=b"%d" % index)
        beat_of(world, other, [said])

    passes(world, REPLACE_US + 1_000_000)
    away = Member(gone, (Address("h", 9),))
    moves((*config.members, away), 2)
    visited(world)
    visited(world)
    assert world.kept.tablets[tablet_id].health_of(gone).failed
    moves(config.members, 3)
    visited(world)
    visited(world)
    works_on(world, gone, 2_000_000)
    moves((*config.members, away), 4)
    visited(world)
    assert not world.kept.tablets[tablet_id].health_of(gone).failed
    world.put({}, MAINTENANCE + gone)
    visited(world)
    assert world.kept.tablets[tablet_id].health_of(gone).failed


def test_one_time_is_kept_of_each_tablet_however_often_it_is_looked_at() -> None:
    """Goal: the list of times does not grow with reports. Method: a leader says again and again that it has not reached
    a replica for long; one time is kept, and the view changes at it."""
    world, reports = reported(6, 6)
    uuid, told = next(iter(reports.items()))
    replica = next(r for r in told if r.role == "LEADER")
    for rows in range(50):
        lose_contact(world, uuid, replace(replica, rows=rows))
    assert len(world.kept._times) <= 1
    passes(world, REPLACE_US + 1_000_000)
    assert visited(world) == {replica.tablet_id}
    assert any(health.failed for health in world.kept.tablets[replica.tablet_id].health.values())


def test_keys_that_changed_are_kept_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a master that follows for months keeps a bounded list of what changed, and its next look visits what it
    must. Method: more changes than the bound, then a look."""
    world, _ = reported(6, 60)
    monkeypatch.setattr("nyala.replica.master.catalog.catalog.CHANGED_MAX", 3)
    for tablet_id, record in list(world.catalog.items(TABLET))[:3]:
        world.put({TABLET + tablet_id: replace(record, wishes=1)})
    assert len(visited(world)) == 3
    for tablet_id, record in list(world.catalog.items(TABLET))[:4]:
        world.put({TABLET + tablet_id: replace(record, wishes=2)})
    assert len(visited(world)) == 60


def test_silence_is_looked_at_in_time_when_it_counts_from_the_leaders_return() -> None:
    """Goal: a member that was silent together with its leader is looked at once it is silent for long after the
    leader's return, however often the tablet is looked at in between. Method: all are silent, the leader returns, and
    its tablet is looked at again a second later; then the moment before, and the moment itself."""
    world, reports = reported(6, 6)
    tablet_id = "n000000"
    leader = world.truth[tablet_id][1]
    told = next(r for r in reports[leader] if r.tablet_id == tablet_id)

    def leader_says(index: int) -> set[str]:
        moved = replace(told, commit_opid=OpId(1, index), rows=index, config_wire=b"%d" % index)
        beat_of(world, leader, [moved])
        return visited(world)

    world.now_us += 10 * REPLACE_US
    visited(world)
    leader_says(5)
    returned_us = world.now_us
    assert world.soft.servers[leader].back_us == returned_us
    for index, after_us in ((6, 1_000_000), (7, REPLACE_US - 1_000_000)):
        world.now_us = returned_us + after_us
        assert tablet_id in leader_says(index)
    world.now_us = returned_us + REPLACE_US
    assert tablet_id not in visited(world)
    world.now_us += 1
    assert tablet_id in visited(world)
