"""Placement of new tablets and rebalance plans."""

from __future__ import annotations

import io
import json
import random
import re
from collections import Counter
from dataclasses import replace

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala import schemas
from nyala.pipeline import QueryRefused
from nyala.pipeline.rebalance import Plan, check_room, describe
from nyala.replica.policy import (
    Caps,
    ClusterView,
    Goals,
    Health,
    Move,
    MoveKind,
    ServerView,
    TabletView,
    inputs_of,
    place_tablets,
    plan_placement,
    plan_rebalance,
    replica_load,
    room_left,
    skew,
    view_of_reports,
)
from nyala.replica.policy.views import DISK_BYTES_SPARE
from nyala.replica.types import Address, OpId, Refused, ReplicaReport, Report
from tests.harness.policy_views import cluster, server, tablet

WIDE = Caps(moves_max=10_000, moves_per_server_max=10_000)


NO_INPUTS = inputs_of((), 0)
"""Of plans whose view was not read from reports."""


def servers(n: int, locations: int = 1) -> tuple[ServerView, ...]:
    """`n` servers over `locations` locations."""
    return tuple(server(f"s{i:02}", location=f"l{i % locations}") for i in range(n))


def settled(name: str, table: str, voters: list[str], leader: str) -> TabletView:
    """A healthy tablet that needs nothing."""
    return tablet(" ".join(voters), leader, rf=len(voters), name=name, table=table, bytes_on_disk=100)


def random_view(seed: int) -> ClusterView:
    """A crooked cluster: most tablets on few servers, all led from few."""
    rng = random.Random(seed)
    hosts = servers(rng.randint(3, 8))
    names = [s.uuid for s in hosts]
    tablets = []
    for table in range(rng.randint(1, 3)):
        rf = rng.choice([1, 3])
        pool = names[: rng.randint(rf, len(names))]
        for pos in range(rng.randint(1, 12)):
            voters = rng.sample(pool, rf)
            tablets.append(settled(f"T{table}-{pos:02}", f"T{table}", voters, min(voters)))
    return ClusterView(servers=hosts, tablets=tuple(tablets))


def carry_out(view: ClusterView, moves: list[Move]) -> ClusterView:
    """The view after all moves were done."""
    tablets = {t.tablet_id: t for t in view.tablets}
    for move in moves:
        t = tablets[move.tablet_id]
        if move.kind is MoveKind.LEADER:
            assert t.leader_uuid == move.from_uuid and move.to_uuid in t.config.voters
            tablets[t.tablet_id] = replace(t, leader_uuid=move.to_uuid)
            continue
        assert move.from_uuid in t.config.voters and move.to_uuid not in t.config.voters
        voters = [move.to_uuid if v == move.from_uuid else v for v in t.config.voters]
        leader = t.leader_uuid if t.leader_uuid != move.from_uuid else min(voters)
        tablets[t.tablet_id] = settled(t.tablet_id, t.table_id, voters, leader)
    return replace(view, tablets=tuple(tablets.values()))


@pytest.mark.deep
@settings(max_examples=80)
@given(st.integers(0, 1 << 30))
def test_plan_any_cluster_converges_to_a_skew_of_one(seed: int) -> None:
    """Goal: plans that are carried out lead to a skew of at most 1 per table and in all, and then to an empty plan.
    Method: random clusters."""
    view = random_view(seed)
    for _ in range(12):
        moves = plan_rebalance(view, WIDE)
        if not moves:
            break
        view = carry_out(view, moves)
    assert plan_rebalance(view, WIDE) == []
    assert skew(view) <= 1
    assert all(skew(view, t.table_id) <= 1 for t in view.tablets)


@settings(max_examples=30)
@given(st.integers(0, 1 << 30))
def test_plan_same_view_in_any_order_gives_the_same_plan(seed: int) -> None:
    """Goal: determinism. Method: shuffle servers and tablets of a random view."""
    view = random_view(seed)
    rng = random.Random(seed)
    other = ClusterView(
        servers=tuple(rng.sample(view.servers, len(view.servers))),
        tablets=tuple(rng.sample(view.tablets, len(view.tablets))),
    )
    assert plan_rebalance(view) == plan_rebalance(other)


@settings(max_examples=30)
@given(st.integers(0, 1 << 30), st.integers(1, 5), st.integers(1, 3))
def test_plan_never_exceeds_its_caps(seed: int, total: int, per_server: int) -> None:
    """Goal: caps hold for moves, servers and bytes. Method: random views and caps."""
    moves = plan_rebalance(random_view(seed), Caps(moves_max=total, moves_per_server_max=per_server, bytes_max=300))
    copies = [m for m in moves if m.kind is MoveKind.REPLICA]
    touched = Counter(u for m in copies for u in (m.from_uuid, m.to_uuid))
    assert len(copies) <= total and sum(m.bytes for m in copies) <= 300
    assert max(touched.values(), default=0) <= per_server
    assert len({m.tablet_id for m in moves}) == len(moves), "a tablet moves once in a plan"


def test_plan_a_fourth_server_gets_its_share() -> None:
    """Goal: the demo's case. Method: 12 tablets of 3 replicas on 3 servers, a fourth joins, plan and carry out."""
    hosts = servers(4)
    names = [s.uuid for s in hosts][:3]
    view = ClusterView(servers=hosts, tablets=tuple(settled(f"t{i:02}", "T", names, names[0]) for i in range(12)))
    for _ in range(5):
        view = carry_out(view, plan_rebalance(view, WIDE))
    held = Counter(u for t in view.tablets for u in t.config.voters)
    led = Counter(t.leader_uuid for t in view.tablets)
    assert set(held.values()) == {9} and set(led.values()) == {3}


def test_plan_a_draining_server_ends_empty_and_sick_tablets_stay() -> None:
    """Goal: a plan empties a draining server, and leaves tablets alone that are not settled. Method: one server
    draining, one tablet half known."""
    hosts = servers(5)
    names = [s.uuid for s in hosts]
    tablets = [settled(f"t{i}", "T", names[:3], names[0]) for i in range(4)]
    tablets[3] = replace(tablets[3], health={names[0]: Health.HEALTHY})
    view = ClusterView(servers=(replace(hosts[0], draining=True), *hosts[1:]), tablets=tuple(tablets))
    moves = plan_rebalance(view, WIDE)
    assert {m.tablet_id for m in moves if m.from_uuid == names[0]} == {"t0", "t1", "t2"}
    assert not [m for m in moves if m.tablet_id == "t3" or m.to_uuid == names[0]]


@pytest.mark.parametrize(
    "words", ["s00:*U s01 s02", "s00:*F s01 s02", "s00:*r s01 s02", "s00:* s01 s02:p", "s00:* s01 s02:n", "s00 s01 s02"]
)
@pytest.mark.parametrize("changing", [False, True])
def test_plan_without_moves_says_what_it_left_alone(words: str, changing: bool) -> None:
    """Goal: a plan without moves names the tablets that it left alone, so that "nothing to move" is not taken for a
    balanced cluster. Method: three servers with three replicas each of a table and one without; each tablet sick,
    changing or without a leader; then one of them settled: it moves, the others are still named."""
    fields = {"pending": changing}
    tablets = [tablet(words, name=f"t{i}", **fields) for i in range(3)]
    view = ClusterView(servers=servers(4), tablets=tuple(tablets))
    plan = Plan("p", view, tuple(plan_rebalance(view, WIDE)), {}, NO_INPUTS)
    assert (plan.moves, plan.unsettled) == ((), ("t0", "t1", "t2")) and skew(view) == 3
    said = describe(plan)
    assert "nothing to move" in said and "left alone because they are not settled" in said and "3 of 3 tablets" in said
    well = replace(view, tablets=(settled("t0", "T", ["s00", "s01", "s02"], "s00"), *tablets[1:]))
    plan = Plan("p", well, tuple(plan_rebalance(well, WIDE)), {}, NO_INPUTS)
    assert [m.tablet_id for m in plan.moves] == ["t0"] and plan.unsettled == ("t1", "t2")
    assert "2 of 3 tablets, t1, t2;" in describe(plan)


@pytest.mark.parametrize("drained", [True, False])
@pytest.mark.parametrize("hosts", [3, 4])
def test_server_that_cannot_be_emptied_is_told(hosts: int, drained: bool) -> None:
    """Goal: a plan without moves is not taken for an emptied server. Method: three replicas of each tablet on
    three servers, one of which is to be emptied: with a fourth server they move; without one the plan names them, and
    the job does not end well. If nothing is to be emptied, or another table is placed, nothing stays."""
    names = ["s00", "s01", "s02"]
    tablets = tuple(settled(f"t{i}", "T", names, names[i]) for i in range(3))
    there = tuple(replace(s, draining=drained and s.uuid == "s02") for s in servers(hosts))
    view = ClusterView(servers=there, tablets=tablets)
    for moves in (plan_rebalance(view, WIDE), plan_placement(view, Goals(drain=True), WIDE)):
        plan = Plan("p", view, tuple(moves), {}, NO_INPUTS)
        stuck = ("t0", "t1", "t2") if drained and hosts == 3 else ()
        assert (plan.stuck, plan.complete) == (stuck, not stuck)
        assert ("not emptied: 3 tablets stay on servers to empty, t0, t1, t2." in describe(plan)) == bool(stuck)
        assert replace(plan, subject=frozenset(["other"])).complete


def test_plan_of_settled_tablets_leaves_nothing_alone() -> None:
    """Goal: a balanced cluster is reported as balanced. Method: three tablets on three servers."""
    names = ["s00", "s01", "s02"]
    tablets = tuple(settled(f"t{i}", "T", names, names[i]) for i in range(3))
    view = ClusterView(servers=servers(3), tablets=tablets)
    plan = Plan("p", view, tuple(plan_rebalance(view)), {}, NO_INPUTS)
    assert (plan.moves, plan.unsettled) == ((), ()) and describe(plan).endswith("nothing to move")


@pytest.mark.parametrize(("n", "rf", "tablets"), [(3, 3, 4), (5, 3, 10), (4, 1, 8), (7, 5, 3)])
def test_place_new_tablets_are_spread_evenly(n: int, rf: int, tablets: int) -> None:
    """Goal: replicas and first choices differ by one at most. Method: place on empty servers, count."""
    placed = place_tablets(servers(n), {}, tablets, rf)
    held = Counter(u for p in placed for u in p)
    first = Counter(p[0] for p in placed)
    assert [len(set(p)) for p in placed] == [rf] * tablets
    assert max(held.values()) - min(held[s.uuid] for s in servers(n)) <= 1
    assert max(first.values()) - min(first.values()) <= 1


def test_place_locations_are_used_before_a_second_of_one() -> None:
    """Goal: replicas of a tablet stand in as many locations as there are. Method: six servers in three locations."""
    for names in place_tablets(servers(6, locations=3), {}, 6, 3):
        assert len({int(u[1:]) % 3 for u in names}) == 3


def test_place_too_few_live_servers_is_refused() -> None:
    """Goal: no table is made that cannot have its replicas. Method: two live servers, factor three."""
    hosts = (*servers(2), replace(servers(3)[2], alive=False))
    with pytest.raises(Refused, match="alive=2, replicas=3"):
        place_tablets(hosts, {}, 1, 3)


def test_place_fills_servers_up_to_what_they_hold_and_refuses_a_table_that_does_not_fit() -> None:
    """CN-03: the limit on tablets of a server holds at creation. Method: servers with room for three, two and five
    more: two tablets of factor three fit and go round the full one; three do not, and the refusal says the room."""
    room = dict(zip(("s00", "s01", "s02", "s03"), (3, 2, 5, 0), strict=True))
    hosts = tuple(replace(s, tablets_max=10) for s in servers(4))
    load = {uuid: 10 - left for uuid, left in room.items()}
    placed = place_tablets(hosts, load, 2, 3)
    assert Counter(u for p in placed for u in p) == {"s00": 2, "s01": 2, "s02": 2}
    with pytest.raises(Refused, match="tablets=3, replicas_each=3, room=10"):
        place_tablets(hosts, load, 3, 3)
    assert not replace(hosts[0], tablets_max=1).has_room(1) and replace(hosts[0], tablets_max=0).has_room(10_000)


@pytest.mark.deep
@settings(max_examples=60)
@given(st.integers(0, 1 << 30), st.integers(1, 20))
def test_plan_fills_no_server_beyond_what_it_holds(seed: int, most: int) -> None:
    """CN-03: the limit on tablets of a server holds in plans. Method: random crooked clusters, servers that hold up to
    `most`, one of them draining; all arrivals of a plan come before the first departure, and none exceeds a limit."""
    view = random_view(seed)
    rng = random.Random(seed)
    hosts = tuple(replace(s, tablets_max=rng.randint(1, most)) for s in view.servers)
    view = replace(view, servers=(replace(hosts[0], draining=True), *hosts[1:]))
    for _ in range(6):
        moves = plan_rebalance(view, WIDE)
        held = replica_load(view)
        arrived = Counter(m.to_uuid for m in moves if m.kind is MoveKind.REPLICA)
        assert all(held[s.uuid] + arrived[s.uuid] <= s.tablets_max for s in hosts if arrived[s.uuid])
        view = carry_out(view, moves)


def test_plan_without_room_moves_nothing_and_the_job_says_so() -> None:
    """CN-03: what cannot be placed is refused, with how much of it. Method: a server to be emptied beside two full
    ones and one that is silent; then one of them has room for one of the two replicas."""
    hosts = tuple(replace(s, tablets_max=2) for s in servers(4))
    names = [s.uuid for s in hosts]
    tablets = tuple(settled(f"t{i}", "T", names[:3], names[0]) for i in range(2))
    view = ClusterView(
        servers=(replace(hosts[0], draining=True), *hosts[1:3], replace(hosts[3], alive=False)), tablets=tablets
    )
    assert [m for m in plan_rebalance(view, WIDE) if m.kind is MoveKind.REPLICA] == []
    assert room_left(view.servers, replica_load(view)) == 0
    with pytest.raises(QueryRefused, match=r"no other server has room for the 2 replicas of s00.*Nothing was proposed"):
        check_room(view)
    words = describe(Plan("p", view, (), {}, NO_INPUTS))
    assert re.search(r"s01 +2 +0  full", words) and re.search(r"s03 +0 +0  silent", words)
    roomy = replace(view, servers=(*view.servers[:3], replace(hosts[3], tablets_max=1)))
    assert [(m.from_uuid, m.to_uuid) for m in plan_rebalance(roomy, WIDE) if m.kind is MoveKind.REPLICA] == [
        ("s00", "s03")
    ]
    check_room(roomy)
    check_room(replace(view, servers=(hosts[0], *view.servers[1:])))


def test_report_of_an_older_master_is_read_and_says_no_limit() -> None:
    """Goal: records of `reports` that are there stay readable. Method: one as it was written before, with empty
    reserved bytes in the place of the limits."""
    schema = json.loads(json.dumps(schemas.record("report")))
    schema["fields"][-1] = {"name": "reserved", "type": "bytes", "default": ""}
    values = {"server_uuid": "s1", "alive": True, "catalog_term": 3, "at_us": 5, "reserved": b""}
    values |= {"tablet_id": "", "table_id": "", "table_name": "", "range_pos": 0, "bucket": 0, "term": 0}
    values |= {"replication_factor": 0, "config_opid": {"term": 0, "index": 0}, "pending_change": False}
    values |= {"leader_uuid": "", "replicas": []}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, values)
    read = schemas.decode("report", out.getvalue())
    assert read["numbers"] == {} and view_of_reports([schemas.from_avro(Report, read)], 9).servers[0].tablets_max == 0


def test_view_of_reports_takes_the_newest_report_of_each_key() -> None:
    """Goal: jobs see what the master saw last. Method: two reports of one tablet out of order, and a server."""
    replica = ReplicaReport(
        uuid="s1", address="h:1", votes=True, promote=False, replace=False, health="HEALTHY", data_state=3,
        bytes_on_disk=7, rows=1, is_leader=True, location="",
    )  # fmt: skip
    base = Report(
        tablet_id="t", table_id="T", table_name="n", replication_factor=1, config_opid=OpId(2, 9), leader_uuid="s1",
        term=2, replicas=(replica,), catalog_term=3, at_us=5,
    )  # fmt: skip
    older = replace(base, leader_uuid="s0", at_us=4)
    host = Report(
        server_uuid="s1", server_address="h:1", location="x", numbers={"tablets_max": 7}, catalog_term=3, at_us=5
    )
    view = view_of_reports([base, host, older], 9)
    assert view.tablets[0].leader_uuid == "s1" and view.tablets[0].bytes_on_disk == 7
    assert (
        view.servers[0].location == "x"
        and view.servers[0].tablets_max == 7
        and view.servers[0].member.addresses == (Address("h", 1),)
    )


def test_rebalance_moves_nothing_off_a_server_that_is_gone() -> None:
    """Goal: replicas of a dead server are healed, not moved. Method: a draining server that does not live, whose
    replica was well when it was last heard; the same server alive."""
    healthy = tablet("a b c", "a")
    assert plan_rebalance(cluster("abcd", healthy, draining="c", dead="c")) == []
    (move,) = plan_rebalance(cluster("abcd", healthy, draining="c"))
    assert (move.from_uuid, move.to_uuid) == ("c", "d")


def test_server_takes_replicas_unless_it_is_gone_or_about_to_go() -> None:
    """Goal: no new replica goes to a server that does not live, drains, or is in maintenance. Method: each alone."""
    assert server("a").takes_replicas
    for fields in ({"alive": False}, {"draining": True}, {"maintenance": True}):
        assert not server("a", **fields).takes_replicas, fields


def test_plan_gives_no_replica_to_a_server_that_could_not_take_it() -> None:
    """Goal: a plan sends no copy to a disk that it would fill, nor where copies fail, and no leadership to a server
    that gives its own up; a server to be emptied is emptied all the same. Method: four replicas on one server beside an
    empty one: with too little disk, where copies fail, or healthy. Then leaders, with a quiescing follower's server."""
    hosts = servers(2)
    tablets = tuple(settled(f"t{i}", "T", ["s00"], "s00") for i in range(4))
    full = replace(hosts[1], disk_bytes_free=DISK_BYTES_SPARE + 99)
    for other, moves in ((full, 0), (replace(hosts[1], avoided=True), 0), (replace(full, disk_bytes_free=1 << 40), 2)):
        view = ClusterView(servers=(hosts[0], other), tablets=tablets)
        assert len(plan_rebalance(view, WIDE)) == moves
        emptied = replace(view, servers=(replace(hosts[0], draining=True), other))
        assert len([m for m in plan_rebalance(emptied, WIDE) if m.kind is MoveKind.REPLICA]) == 4
    three = servers(3)
    for worse in (full, replace(hosts[1], avoided=True)):
        emptied = ClusterView(servers=(replace(hosts[0], draining=True), worse, three[2]), tablets=tablets)
        assert {m.to_uuid for m in plan_rebalance(emptied, WIDE)} == {"s02"}, "where there is another one"
    both = tuple(settled(f"t{i}", "T", ["s00", "s01"], "s00") for i in range(4))
    for quiescing in (False, True):
        view = ClusterView(servers=(hosts[0], replace(hosts[1], quiescing=quiescing)), tablets=both)
        assert len(plan_rebalance(view, WIDE)) == (0 if quiescing else 2)
