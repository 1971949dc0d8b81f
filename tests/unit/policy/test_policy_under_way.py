"""Plans that are made while the moves of earlier ones are under way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.policy import (
    Caps,
    ChangeKind,
    ClusterView,
    DesiredChange,
    Move,
    MoveKind,
    desired_numbers,
    plan_rebalance,
    view_of_reports,
)
from nyala.replica.policy.views import DISK_BYTES_SPARE
from nyala.replica.types import Member, RaftConfig, ReplicaReport, Report
from tests.unit.policy.test_policy_even_bytes import GB, kept_sizes, sized, squares, uneven_view
from tests.unit.policy.test_policy_rebalance import WIDE
from tests.unit.policy.test_policy_rebalance_moves import told, view_of


def under_way(view: ClusterView, moves: list[Move]) -> ClusterView:
    """The view once the masters have accepted the moves, and before anything is done."""
    kinds = {MoveKind.REPLICA: ChangeKind.MOVE, MoveKind.LEADER: ChangeKind.TRANSFER}
    wanted = {
        m.tablet_id: DesiredChange(kind=kinds[m.kind], wish_id="w", from_uuid=m.from_uuid, to_uuid=m.to_uuid)
        for m in moves
    }
    return replace(view, tablets=tuple(replace(t, desired=wanted.get(t.tablet_id, t.desired)) for t in view.tablets))


def as_reported(view: ClusterView) -> ClusterView:
    """The view that a job has of the same cluster, by the records of the masters."""
    records = [Report(server_uuid=s.uuid, location=s.location, catalog_term=1, at_us=1) for s in view.servers]
    for t in view.tablets:
        replicas = tuple(
            ReplicaReport(
                uuid=m.uuid, address="h:1", votes=m.votes, promote=m.promote, replace=m.replace, health="HEALTHY",
                data_state=3, bytes_on_disk=t.bytes_on_disk, rows=1, is_leader=m.uuid == t.leader_uuid, location="",
            )
            for m in t.config.members
        )  # fmt: skip
        records.append(
            Report(
                tablet_id=t.tablet_id, table_id=t.table_id, replication_factor=t.replication_factor,
                config_opid=t.config.opid, leader_uuid=t.leader_uuid, replicas=replicas, catalog_term=1, at_us=1,
                pending_change=t.pending or t.desired is not None, numbers=desired_numbers(t),
            )
        )  # fmt: skip
    return view_of_reports(records, 2)


@settings(max_examples=100)
@given(st.integers(0, 1 << 30), st.booleans())
def test_a_plan_beside_the_moves_of_another_one_has_none(seed: int, by_reports: bool) -> None:
    """OP-09. Goal: jobs that run while moves are under way do not move more than one run would. Method: random clusters
    and sizes; all moves of a plan are accepted and none is done: the next plan is empty, for the masters' view and for
    that of a job."""
    view = uneven_view(seed)
    view = under_way(view, plan_rebalance(view, WIDE))
    view = as_reported(view) if by_reports else view
    assert plan_rebalance(view, WIDE) == []


@pytest.mark.deep
@settings(max_examples=100)
@given(st.integers(0, 1 << 30), st.integers(1, 3))
def test_small_plans_beside_each_other_do_not_overshoot(seed: int, cap: int) -> None:
    """OP-09. Goal: short plans made one after the other, as by cron, do not overshoot together. Method: random
    clusters; plans of few moves, none of which is done before the last plan is made. No tablet is moved twice, and when
    the moves are done one by one, each for numbers makes the servers more even."""
    view = uneven_view(seed)
    made: list[Move] = []
    for _ in range(60):
        moves = plan_rebalance(view, Caps(moves_max=cap, moves_per_server_max=2))
        if not moves:
            break
        made += moves
        view = under_way(view, moves)
    else:
        pytest.fail("the plans do not end")
    assert len({m.tablet_id for m in made}) == len(made)
    at = uneven_view(seed)
    for move in (m for m in made if m.kind is MoveKind.REPLICA):
        after = kept_sizes(at, [move])
        assert move.reason.startswith("server ") or squares(after) < squares(at), move
        at = after


@pytest.mark.parametrize(
    ("kind", "moves"),
    [
        pytest.param(None, "T2 a>c", id="nothing is under way"),
        pytest.param(ChangeKind.MOVE, "", id="a move"),
        pytest.param(ChangeKind.ADD, "", id="one more member"),
        pytest.param(ChangeKind.REMOVE, "", id="one fewer"),
    ],
)
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_desired_change_counts_where_it_leads(kind: ChangeKind | None, moves: str, cancelled: bool) -> None:
    """OP-09. Goal: each kind of desired change counts for where the replicas will be, unless it is taken back. Method:
    two tablets on one of three servers, one of which changes, and a third elsewhere."""
    view = view_of("a b c", "T1 a:*, T2 a:*, T3 b:*")
    if kind is None:
        assert told(plan_rebalance(view, WIDE)) in (moves, "T1 a>c")
        return
    wanted = DesiredChange(kind=kind, wish_id="w", from_uuid="a", to_uuid="c", cancelled=cancelled)
    for seen in (lambda v: v, as_reported):
        changing = replace(view, tablets=(replace(view.tablets[0], desired=wanted), *view.tablets[1:]))
        found = told(plan_rebalance(seen(changing), WIDE))
        counted = {ChangeKind.ADD: found == "", ChangeKind.MOVE: found == "", ChangeKind.REMOVE: found == ""}[kind]
        assert counted != cancelled, found


@pytest.mark.parametrize(
    "by", ["a desired move", "a desired move whose copy has begun", "a copy that has begun", "the plan's own moves"]
)
def test_limits_count_both_ends_of_a_move(by: str) -> None:
    """CN-03. Goal: a server gets no more replicas than it may hold, nor more bytes than its disk has room for, if all
    moves that are under way or planned arrive before one leaves. Method: five tablets of 10 GB on one of two servers,
    with room for one or two on the other, by number and by bytes; the first is on its way there, or nothing is."""
    view = sized(view_of("a b", ", ".join(f"T{n} a:*" for n in range(5))), **{f"T{n}": 10 for n in range(5)})
    first = view.tablets[0]
    if "desired" in by:
        wanted = DesiredChange(kind=ChangeKind.MOVE, wish_id="w", from_uuid="a", to_uuid="b")
        first = replace(first, desired=wanted)
    if "begun" in by:
        members = (Member("a", replace=True), Member("b", votes=False, promote=True))
        first = replace(first, config=RaftConfig(first.config.opid, members))
    begun = by != "the plan's own moves"
    view = replace(view, tablets=(first, *view.tablets[1:]))
    for room in (1, 2):
        full = {"tablets_max": room}, {"disk_bytes_free": DISK_BYTES_SPARE + room * 10 * GB}
        for fields in full:
            hosts = (view.servers[0], replace(view.servers[1], **fields))
            moves = plan_rebalance(replace(view, servers=hosts), WIDE)
            assert len(moves) == room - begun, (fields, told(moves))


@pytest.mark.parametrize(
    "numbers", [{"joins/": 1}, {"leaves/": 1, "leads/": 0}, {"joins/b": 1, "joins/c": 1}, {"x": 1}]
)
def test_numbers_of_a_record_that_mean_nothing_are_left_out(numbers: dict[str, int]) -> None:
    """Goal: a foreign record does not end the job. Method: names without a server, two servers, and unknown names."""
    record = Report(tablet_id="t", table_id="T", catalog_term=1, at_us=1, numbers=numbers)
    (tablet,) = view_of_reports([record], 2).tablets
    assert (tablet.joins, tablet.leaves) == ("b" if "joins/b" in numbers else "", "")
