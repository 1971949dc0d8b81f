"""Heartbeats, the orders that follow from them, and the policy's view."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.master import MasterOptions
from nyala.replica.master.catalog.records import TABLET
from nyala.replica.master.catalog.tables import create_table, drop_table
from nyala.replica.master.heartbeats.soft_state import ServerState, SoftState
from nyala.replica.master.requests.confirming import confirm_config
from nyala.replica.master.tablets.orders import copy_is_abandoned
from nyala.replica.master.tablets.view import health_of
from nyala.replica.policy import Health, ServerView, copies_in_place, decide
from nyala.replica.rpc import config_to_pb, heartbeat_from_pb, pb
from nyala.replica.types import (
    Address,
    DataState,
    InvariantViolation,
    Member,
    OpId,
    RaftConfig,
    limits,
    next_generation,
)
from tests.harness.catalogs import AppliedCatalog, new_table
from tests.harness.reachable import AskedAtOnce, orders_now
from tests.harness.whole_view import cluster_view

A, B, C, D = ("a" * 32, "b" * 32, "c" * 32, "d" * 32)
SECOND = 1_000_000
GRACE_S = 60
"""The time for which a complete copy on a server that is in no config is left alone."""
OPTIONS = MasterOptions(root="x", server_dead_ms=3_000, rereplicate_after_ms=30_000)


def config(index: int, *uuids: str) -> RaftConfig:
    """Voters `uuids`, committed at 1.`index`."""
    return RaftConfig(OpId(1, index), tuple(Member(u, (Address("h", 1),)) for u in uuids))


def replica(tablet_id: str, uuid: str, committed: RaftConfig | None, **more: Any) -> pb.ReplicaStatus:
    """A running follower unless told otherwise."""
    status = pb.ReplicaStatus(
        tablet_id=tablet_id,
        uuid=uuid,
        data_state=more.pop("data_state", DataState.READY),
        phase=more.pop("phase", "RUNNING"),
        role=more.pop("role", "FOLLOWER"),
        term=more.pop("term", 1),
        peers=more.pop("peers", []),
        leader_uuid=more.pop("leader_uuid", ""),
        damaged=more.pop("damaged", False),
        commit_term=more.pop("commit_term", 0),
        commit_index=more.pop("commit_index", 0),
    )
    if committed is not None:
        status.committed_config.CopyFrom(config_to_pb(committed))
    assert not more
    return status


class Masters:
    """A catalog with one table of one tablet on A, B, C; soft state; a clock in seconds."""

    def __init__(self) -> None:
        self.box = AppliedCatalog()
        self.soft = SoftState(0, self.box.known)
        self.asked = AskedAtOnce(self.box.known)
        self.now_s = 0.0
        hosts = [ServerView(uuid=u, member=Member(u, (Address("h", 1),))) for u in (A, B, C)]
        self.box.commit(create_table(self.box.catalog, new_table(buckets=1), hosts, {}, 1))
        self.tablet, _ = next(iter(self.box.catalog.items(TABLET)))

    def beat(
        self, uuid: str, *replicas: pb.ReplicaStatus, full: bool = True, booting: bool = False, failures: int = 0
    ) -> bool:
        failing = [pb.FailingCopy(tablet_id=self.tablet, failures=failures, error="no room")] if failures else []
        request = pb.HeartbeatRequest(
            server_uuid=uuid,
            addresses=[pb.Address(host="h", port=1)],
            full_report=full,
            replicas=replicas,
            booting=booting,
            copies_failing=failing,
        )
        self.asked.hear(request)
        return self.soft.heartbeat(*heartbeat_from_pb(request), int(self.now_s * SECOND))

    def said(self, uuid: str) -> list[pb.TabletOrder]:
        return orders_now(self.box.catalog, self.soft, self.asked, uuid, int(self.now_s * SECOND), GRACE_S * SECOND)

    def orders(self, uuid: str) -> list[str]:
        found = []
        for order in self.said(uuid):
            kind = "create" if order.HasField("create") else "delete"
            assert getattr(order, kind).dest_uuid == uuid
            found.append(kind)
        return found

    def form(self) -> None:
        tablet = self.box.catalog.get(TABLET, self.tablet)
        assert tablet is not None
        self.box.commit(({TABLET + self.tablet: replace(tablet, formed=True)}, [], "", None))

    def view(self) -> Any:
        return cluster_view(self.box.catalog, self.soft, OPTIONS, int(self.now_s * SECOND), 0)

    def health(self, uuid: str) -> Health:
        return health_of(self.soft, self.tablet, uuid, OPTIONS, int(self.now_s * SECOND))


def sick(m: Masters) -> None:
    """A leads the formed tablet, B has its log, and C's replica is damaged: each says so."""
    now = config(5, A, B, C)
    peers = [pb.PeerHealth(uuid=B, health="OK"), pb.PeerHealth(uuid=C, health="UNREACHABLE")]
    m.form()
    m.beat(A, replica(m.tablet, A, now, role="LEADER", leader_uuid=A, peers=peers))
    m.beat(B, replica(m.tablet, B, now, leader_uuid=A))
    m.beat(C, replica(m.tablet, C, now, phase="FAILED", damaged=True))


def renewed(m: Masters) -> list[pb.TabletOrder]:
    """Return the orders to C once the policy has run."""
    wanted = copies_in_place(m.view(), ages_us=m.soft.copy_order_ages(int(m.now_s * SECOND)))
    m.soft.order_copies_in_place({(r.uuid, r.tablet_id): r.config_opid for r in wanted}, int(m.now_s * SECOND))
    return m.said(C)


def test_orders_a_damaged_replica_is_renewed_for_a_moment_and_not_soon_again() -> None:
    """TC-63. Goal: a replica is renewed as of the config that the masters know, and copies that go bad at once fill no
    disk. Method: reports of a damaged replica; the order for 10 s, then none until 120 s have passed; none to others,
    and none as soon as the server reports a tombstone, or its replica as whole. The next master begins anew."""
    m = Masters()
    sick(m)
    (order,) = renewed(m)
    assert order.HasField("renew") and order.renew.dest_uuid == C and order.renew.tablet_id == m.tablet
    assert order.renew.has_cas and (order.renew.committed_config_id.term, order.renew.committed_config_id.index) == (
        1,
        5,
    )
    assert m.said(A) == m.said(B) == []
    for now_s, orders in ((9.9, 1), (10.0, 0), (119.9, 0), (120.0, 1), (131.0, 0)):
        m.now_s = now_s
        sick(m)
        assert len(renewed(m)) == orders, now_s
    m.soft = SoftState(int(m.now_s * SECOND), m.box.known)
    assert m.said(C) == [], "a new master gives no order before it knows"
    sick(m)
    assert len(renewed(m)) == 1
    for state in (DataState.DELETED, DataState.COPYING):
        m.beat(C, replica(m.tablet, C, None, data_state=state, damaged=True))
        assert m.said(C) == [], "the order before the next look at the whole"
    m.beat(C, replica(m.tablet, C, config(5, A, B, C)))
    assert m.said(C) == []


def test_view_tells_who_is_damaged_who_has_the_log_and_who_has_nothing() -> None:
    """TC-63. Goal: the policy renews by what leader and server say. Method: a leader's word on B and C, and reports."""
    m = Masters()
    sick(m)
    (seen,) = m.view().tablets
    assert (seen.damaged, seen.caught_up, seen.without_replica) == ({C}, {A, B}, set())
    m.beat(C, replica(m.tablet, C, None, data_state=DataState.DELETED))
    (seen,) = m.view().tablets
    assert (seen.damaged, seen.without_replica) == (set(), {C})
    m.now_s = 4.0
    sick(m)
    m.beat(B, replica(m.tablet, B, config(5, A, B, C), phase="FAILED"))
    assert renewed(m) == [], "another one is in trouble"


def test_view_tells_who_holds_a_replica_of_a_former_generation() -> None:
    """CC-46. Goal: the view tells the policy which servers have a replica of a former generation, which the leader
    cannot use. Method: A's config was forced upon a survivor, B and C tell of the one before it; then B's replica is a
    tombstone."""
    m = Masters()
    sick(m)
    forced = RaftConfig(OpId(next_generation(1), 6), config(5, A).members)
    m.beat(A, replica(m.tablet, A, forced, role="LEADER", leader_uuid=A, term=forced.opid.term))
    m.beat(B, replica(m.tablet, B, config(5, A, B, C)))
    (seen,) = m.view().tablets
    assert seen.config == forced and seen.former_generation == {B, C}
    m.beat(B, replica(m.tablet, B, config(5, A, B, C), data_state=DataState.DELETED))
    (seen,) = m.view().tablets
    assert seen.former_generation == {C}


def test_orders_a_new_tablet_is_created_at_its_members_only_until_it_was_formed() -> None:
    """Goal: creations are ordered again until the tablet has had a leader, and never after that. Method: members with
    and without it, then formed."""
    m = Masters()
    assert m.orders(A) == [], "a server that was never heard of gets nothing"
    for uuid in (A, B, C, D):
        m.beat(uuid)
    assert [m.orders(u) for u in (A, B, C, D)] == [["create"], ["create"], ["create"], []]
    m.beat(A, replica(m.tablet, A, config(0, A, B, C)))
    assert m.orders(A) == [] and m.orders(B) == ["create"]
    m.form()
    assert m.orders(B) == [], "its leader copies it there"


def test_orders_an_incremental_report_first_asks_for_a_full_one() -> None:
    """Goal: scenario 121, soft state after a failover. Method: an empty increment, then a full report."""
    m = Masters()
    assert m.beat(A, full=False) is True
    assert m.orders(A) == [], "nothing follows from what was not reported"
    assert m.beat(A) is False and m.orders(A) == ["create"]
    assert m.beat(A, full=False) is False
    m.soft.reset(0)
    assert m.beat(A, full=False) is True


def test_orders_unknown_tablets_are_never_deleted() -> None:
    """Goal: scenario 76, the masters lost everything. Method: an empty catalog, a server full of tablets."""
    m = Masters()
    empty = AppliedCatalog()
    m.beat(A, *(replica(f"{i:032x}", A, config(5, B, C)) for i in range(20)))
    assert orders_now(empty.catalog, m.soft, m.asked, A, 2 * GRACE_S * SECOND, GRACE_S * SECOND) == []


@pytest.mark.parametrize(
    ("own", "newest", "expected"),
    [
        (config(5, A, B, C), config(9, B, C, D), ["delete"]),
        (config(9, B, C, D), config(9, B, C, D), ["delete"]),
        (config(5, A, B, C), config(9, A, B, C), []),
        (config(12, A, B, C), config(9, B, C, D), []),
        (None, config(9, B, C, D), ["delete"]),
    ],
)
def test_orders_a_replica_goes_only_if_a_later_committed_config_leaves_it_out(
    own: RaftConfig | None, newest: RaftConfig, expected: list[str]
) -> None:
    """CC-29. Goal: scenario 77 and guarantee 7. Method: A reports `own`, B reports `newest`; the order carries its
    position."""
    m = Masters()
    m.form()
    m.beat(B, replica(m.tablet, B, newest, role="LEADER"))
    m.beat(A, replica(m.tablet, A, own))
    m.now_s = GRACE_S
    assert m.orders(A) == expected
    for order in m.said(A):
        assert order.delete.has_cas and order.delete.committed_config_id.index == 9


def test_orders_an_abandoned_copy_goes_unless_somebody_added_it() -> None:
    """CC-10. Goal: a replica that was copied and never added is made a tombstone after a grace, unless it has been
    added meanwhile. Method: a READY copy on D with the leader's own config, which leaves D out, for as long as the
    grace; then D in a later config; before a leader was heard of, nothing is decided."""
    m = Masters()
    m.form()
    committed = config(7, A, B, C)
    m.beat(D, replica(m.tablet, D, None))
    assert m.orders(D) == [], "no config is known: nothing follows"
    m.beat(A, replica(m.tablet, A, committed, role="LEADER"))
    m.beat(D, replica(m.tablet, D, committed))
    m.now_s = GRACE_S
    assert m.orders(D) == ["delete"]
    (order,) = m.said(D)
    assert order.delete.has_cas and order.delete.committed_config_id.index == 7, "it misses a D that is added at 8"
    m.beat(A, replica(m.tablet, A, config(8, A, B, C, D), role="LEADER"))
    assert m.orders(D) == []


def test_orders_a_deletion_says_how_far_the_log_is_committed_with_its_config() -> None:
    """CC-10, CC-29. Goal: the replica can tell a config that was rolled back from one that may still be committed.
    Method: D is in no config. The leader tells where its log is committed, with the newest config, with none at hand,
    and with an older config than a follower has told: only the first goes along; so does what it says next."""
    m = Masters()
    m.form()
    newest = config(7, A, B, C)
    m.beat(D, replica(m.tablet, D, newest))
    m.now_s = GRACE_S

    def told(uuid: str, committed: RaftConfig, **more: Any) -> tuple[int, int]:
        m.beat(uuid, replica(m.tablet, uuid, committed, **more))
        (order,) = m.said(D)
        return order.delete.committed.term, order.delete.committed.index

    assert told(B, newest) == (0, 0)
    assert told(A, newest, role="LEADER", commit_index=12) == (0, 0)
    assert told(A, newest, role="LEADER", commit_index=12, commit_term=6) == (6, 12)
    assert told(B, config(14, A, B, C), commit_index=15, commit_term=6) == (0, 0)
    assert told(A, config(14, A, B, C), role="LEADER", commit_index=16, commit_term=6) == (6, 16)


@pytest.mark.parametrize(
    ("was_member", "ready_us", "now_us", "expected"),
    [
        (False, None, 100, False),
        (False, 0, 0, False),
        (False, 50, 59, False),
        (False, 50, 60, True),
        (True, None, 0, True),
        (True, 50, 50, True),
    ],
)
def test_copy_is_abandoned_once_nobody_added_it_for_the_grace(
    was_member: bool, ready_us: int | None, now_us: int, expected: bool
) -> None:
    """Goal: CC-10, the rule itself. Method: copies under way, fresh and old, and members of the past; a grace of 10."""
    assert copy_is_abandoned(was_member=was_member, ready_us=ready_us, now_us=now_us, grace_us=10) is expected
    assert copy_is_abandoned(was_member=was_member, ready_us=ready_us, now_us=now_us, grace_us=0) is (
        was_member or ready_us is not None
    )


def test_orders_a_copy_that_may_still_be_added_is_left_alone_for_the_grace() -> None:
    """CC-10, X-12. Goal: a driver that copies first and adds later finds its copy. Method: D copies for longer than the
    grace, is READY, starts anew, and is added before the grace is over; then a copy that nobody adds; and one that is
    added an instant before its order would come. A new leadership gives the whole grace again."""
    m = Masters()
    m.form()
    committed, joined = config(7, A, B, C), config(8, A, B, C, D)
    m.beat(A, replica(m.tablet, A, committed, role="LEADER"))
    m.beat(D, replica(m.tablet, D, None, data_state=DataState.COPYING))
    m.now_s = 10 * GRACE_S
    m.beat(D, replica(m.tablet, D, None, data_state=DataState.COPYING))
    assert m.orders(D) == [], "it is being copied, however long that takes"
    m.beat(D, replica(m.tablet, D, committed))
    m.now_s += GRACE_S - 1
    m.beat(D, replica(m.tablet, D, committed, phase="BOOTSTRAPPING"))
    assert m.orders(D) == []
    m.soft.reset(int(m.now_s * SECOND))
    m.beat(A, replica(m.tablet, A, committed, role="LEADER"))
    m.beat(D, replica(m.tablet, D, committed))
    m.now_s += GRACE_S - 1
    assert m.orders(D) == []
    m.now_s += 1
    assert m.orders(D) == ["delete"], "a bounded time"
    m.beat(A, replica(m.tablet, A, joined, role="LEADER"))
    assert m.orders(D) == []


def test_orders_who_was_left_out_by_a_config_goes_at_once() -> None:
    """CC-10. Goal: the grace is for copies, not for members of the past; those free their disk at once. Method: D joins
    and is removed, and knows of it or not; its tombstone ends this, so that a later copy to it is a new one; so does a
    report without it. A member that comes back late, as its own config tells, goes at once too."""
    m = Masters()
    m.form()
    m.beat(A, replica(m.tablet, A, config(8, A, B, C, D), role="LEADER"))
    m.beat(D, replica(m.tablet, D, config(8, A, B, C, D)))
    without = config(9, A, B, C)
    m.beat(A, replica(m.tablet, A, without, role="LEADER"))
    assert m.orders(D) == ["delete"]
    m.beat(D, replica(m.tablet, D, without))
    assert m.orders(D) == ["delete"], "it knows that it left"
    m.beat(D, replica(m.tablet, D, without, data_state=DataState.DELETED))
    assert m.orders(D) == []
    m.beat(D, replica(m.tablet, D, without))
    assert m.orders(D) == [], "somebody copied it there anew"
    m.beat(A, replica(m.tablet, A, config(10, A, B, C, D), role="LEADER"))
    m.beat(A, replica(m.tablet, A, config(11, A, B, C), role="LEADER"))
    assert m.orders(D) == ["delete"]
    m.beat(D)
    m.beat(D, replica(m.tablet, D, config(11, A, B, C)))
    assert m.orders(D) == [], "it was gone meanwhile"
    m.beat(D)
    m.beat(A, replica(m.tablet, A, config(12, A, B, C, D), role="LEADER"))
    m.beat(A, replica(m.tablet, A, config(13, A, B, C), role="LEADER"))
    m.beat(D, replica(m.tablet, D, config(13, A, B, C)))
    assert m.orders(D) == [], "it never got its copy as a member, this one is new"
    m.beat(D, replica(m.tablet, D, config(10, A, B, C, D)))
    assert m.orders(D) == ["delete"], "its own config had it"


def test_options_the_grace_of_a_copy_is_bounded() -> None:
    """Goal: the option for the grace of a copy is bounded. Method: the bounds, and one beyond each."""
    for good in (0, 24 * 3600 * 1000):
        assert MasterOptions(root="x", abandoned_copy_grace_ms=good).abandoned_copy_grace_ms == good
    for bad in (-1, 24 * 3600 * 1000 + 1):
        with pytest.raises(InvariantViolation, match=f"ms={bad}"):
            MasterOptions(root="x", abandoned_copy_grace_ms=bad)


def test_orders_a_dropped_table_is_deleted_where_data_is_left() -> None:
    """Goal: drop is level-triggered; tombstones stay. Method: drop; a READY, a COPYING and a DELETED replica."""
    m = Masters()
    m.form()
    m.box.commit(drop_table(m.box.catalog, "flights", "", 5))
    for uuid, state in ((A, DataState.READY), (B, DataState.COPYING), (C, DataState.DELETED)):
        m.beat(uuid, replica(m.tablet, uuid, config(0, A, B, C), data_state=state))
    assert [m.orders(u) for u in (A, B, C)] == [["delete"], ["delete"], []]


def test_soft_state_the_leader_of_the_highest_term_counts() -> None:
    """Goal: a late report of a deposed leader is ignored. Method: reports of terms 2, 1, then a step down."""
    m = Masters()
    m.beat(A, replica(m.tablet, A, config(0, A, B, C), role="LEADER", term=2))
    m.beat(B, replica(m.tablet, B, config(0, A, B, C), role="LEADER", term=1))
    assert m.soft.tablets[m.tablet].leader_uuid == A
    m.beat(A, replica(m.tablet, A, config(0, A, B, C), role="FOLLOWER", term=3, leader_uuid=C), full=False)
    state = m.soft.tablets[m.tablet]
    assert (state.leader_uuid, state.leader_status) == (C, None)


def test_view_a_config_changed_behind_the_masters_is_followed_and_not_reverted() -> None:
    """Goal: TC-02. Method: the leader reports a config that no master decided, then a lagging follower an older one."""
    m = Masters()
    m.form()
    changed = config(8, A, B, D)
    peers = [pb.PeerHealth(uuid=u, health="OK") for u in (B, D)]
    m.beat(A, replica(m.tablet, A, changed, role="LEADER", peers=peers))
    m.beat(D, replica(m.tablet, D, changed))
    m.beat(B, replica(m.tablet, B, config(0, A, B, C)))
    view = m.view()
    assert view.tablets[0].config == changed
    assert decide(view, 1) == []


def test_view_health_follows_heartbeats_and_the_leader() -> None:
    """CN-23. Goal: scenarios 107, 115 and 116. Method: one member through running, slow, unreachable, without a leader
    though open, silent, failed, gone."""
    m = Masters()
    m.form()
    committed = config(0, A, B, C)

    def lead(health: str, ago_s: int = 0) -> None:
        peers = [pb.PeerHealth(uuid=B, health=health, last_contact_us_ago=ago_s * SECOND)]
        m.beat(A, replica(m.tablet, A, committed, role="LEADER", peers=peers))

    assert m.health(B) is Health.UNKNOWN
    lead("OK")
    assert m.health(A) is Health.HEALTHY and m.health(B) is Health.UNKNOWN
    m.beat(B, replica(m.tablet, B, committed))
    assert m.health(B) is Health.HEALTHY
    lead("UNREACHABLE", 5)
    assert m.health(B) is Health.UNKNOWN
    lead("UNREACHABLE", 31)
    assert m.health(B) is Health.UNKNOWN, "it opened a moment ago"
    m.now_s = 31
    for phase in ("RUNNING", "CONFIGURING"):
        m.beat(B, replica(m.tablet, B, committed, phase=phase))
        lead("UNREACHABLE", 5)
        assert m.health(B) is Health.UNKNOWN
        lead("UNREACHABLE", 31)
        assert m.health(B) is Health.FAILED, "it talks to the masters, and its leader cannot reach it"
    lead("OK")
    assert m.health(B) is Health.UNKNOWN, "it does not know yet what is committed"
    lead("UNREACHABLE", 31)
    m.beat(B, replica(m.tablet, B, committed, phase="BOOTSTRAPPING"))
    assert m.health(B) is Health.UNKNOWN, "slow to start is not dead"
    m.beat(B, replica(m.tablet, B, committed, phase="FAILED"))
    for silent_s in (0, 5, 31):
        m.now_s = 31 + silent_s
        assert m.health(B) is Health.FAILED_UNRECOVERABLE, "whether its server is heard or not"
    m.now_s = 31
    m.beat(B, replica(m.tablet, B, committed), booting=True)
    assert m.health(B) is Health.UNKNOWN
    m.beat(B, full=False)
    assert m.health(B) is Health.UNKNOWN, "what its leader says is from before it opened"
    lead("OK")
    assert m.health(B) is Health.HEALTHY
    m.now_s = 41
    assert m.health(B) is Health.UNKNOWN
    m.now_s = 62
    assert m.health(B) is Health.FAILED


@pytest.mark.parametrize("former", ["silent", "deposed"])
def test_view_replica_that_follows_a_leader_of_the_past_is_lost_as_the_new_one_reports(former: str) -> None:
    """CN-23. Goal: scenario 115: a member that the leader does not reach is lost, although it still names the former
    leader. Method: the former one led by its last report and is silent, or reports that it follows; then it leads."""
    m = Masters()
    m.form()
    committed = config(0, A, B, C)
    m.beat(C, replica(m.tablet, C, committed, role="LEADER"))
    m.beat(B, replica(m.tablet, B, committed, leader_uuid=C))
    m.now_s = 31
    if former == "deposed":
        m.beat(C, replica(m.tablet, C, committed))
    peers = [pb.PeerHealth(uuid=B, health="UNREACHABLE", last_contact_us_ago=31 * SECOND)]
    m.beat(B, replica(m.tablet, B, committed, leader_uuid=C))
    m.beat(A, replica(m.tablet, A, committed, role="LEADER", term=9, peers=peers))
    assert m.health(B) is Health.FAILED
    m.beat(C, replica(m.tablet, C, committed, role="LEADER"))
    assert m.health(B) is Health.UNKNOWN, "it follows one that leads"


def test_view_a_lost_replica_behind_its_leaders_log_is_unrecoverable() -> None:
    """CN-23. Goal: scenario 107: a replica that its leader's log cannot serve is copied to while the leader reaches it,
    and replaced otherwise, whether or not its server sends heartbeats. Method: a running member that its leader's log
    cannot serve any more: in touch, out of touch for a while and for long; then its server is silent too."""
    m = Masters()
    m.form()
    committed = config(0, A, B, C)

    def behind(ago_s: int) -> Health:
        peers = [pb.PeerHealth(uuid=B, health="NEEDS_COPY", last_contact_us_ago=ago_s * SECOND)]
        m.beat(A, replica(m.tablet, A, committed, role="LEADER", peers=peers))
        return m.health(B)

    m.beat(B, replica(m.tablet, B, committed))
    m.now_s = 31
    m.beat(B, replica(m.tablet, B, committed))
    assert [behind(ago_s) for ago_s in (0, 5, 30)] == [Health.UNKNOWN] * 3
    assert behind(31) is Health.FAILED_UNRECOVERABLE
    for m.now_s in (46, 61):
        assert behind(31) is Health.UNKNOWN, "its server is silent too: who knows"
    m.now_s = 62
    assert behind(31) is Health.FAILED_UNRECOVERABLE


def test_view_members_that_come_back_with_their_leader_are_not_lost() -> None:
    """CN-23. Goal: scenario 120: if servers come back one after the other, none is replaced because others were heard
    first. Method: all are heard, then nobody but a spare server for 100 s; the leader and one follower are heard again,
    and go on: the third one is lost only once it has been silent for the delay since its leader came back."""
    m = Masters()
    m.form()
    now = config(5, A, B, C)
    peers = [pb.PeerHealth(uuid=B, health="OK"), pb.PeerHealth(uuid=C, health="OK")]

    def hear(*uuids: str) -> None:
        for uuid in uuids:
            leads = {"role": "LEADER", "peers": peers} if uuid == A else {}
            m.beat(uuid, *([replica(m.tablet, uuid, now, **leads)] if uuid != D else []))

    hear(A, B, C, D)
    m.now_s = 100.0
    for back_s in (0, 10, 20, 30):
        m.now_s = 100.0 + back_s
        hear(A, B, D)
        assert (m.health(B), m.health(C)) == (Health.HEALTHY, Health.UNKNOWN), back_s
        assert decide(m.view(), 1) == []
    m.now_s = 130.5
    assert m.health(C) is Health.FAILED
    (decision,) = decide(m.view(), 1)
    assert [edit.member.uuid for edit in decision.edits] == [D]


def test_view_a_new_leader_is_blind_before_it_is_alarmed() -> None:
    """Goal: a failover of the masters is no failure of servers. Method: reset at 100 s, nobody heard of yet."""
    m = Masters()
    m.soft.reset(100 * SECOND)
    m.now_s = 129
    assert m.health(B) is Health.UNKNOWN
    m.now_s = 131
    assert m.health(B) is Health.FAILED


def test_view_a_silent_leader_leads_nothing_to_decide() -> None:
    """Goal: decisions go to leaders that are there. Method: a formed tablet, its leader heard of, then silent."""
    m = Masters()
    m.form()
    m.beat(A, replica(m.tablet, A, config(3, A, B, C), role="LEADER"))
    assert m.view().tablets[0].leader_uuid == A
    m.now_s = 2
    m.beat(A, full=False)
    m.now_s = 4
    assert m.view().tablets[0].leader_uuid == A, "a heartbeat that leaves it out says that it is unchanged"
    m.now_s = 6
    assert m.view().tablets[0].leader_uuid == ""
    assert [s.alive for s in m.view().servers] == [False]


def test_orders_a_forced_config_of_a_lower_index_outranks_what_lost_members_committed() -> None:
    """CC-46, IN-42. Goal: a lost member that comes back is emptied, though its log is longer. Method: A goes on alone
    from index 11 in a new generation; B, lost at index 15 with a config there, and C report again, in any order; they
    are left alone until an operator says that A's config is right."""
    forced = RaftConfig(OpId(1 << 32, 11), (Member(A, (Address("h", 1),)),), unsafe=True)
    for order in ((A, B, C), (B, C, A)):
        m = Masters()
        for uuid in order:
            known = forced if uuid == A else config(15, A, B, C)
            leads = {"role": "LEADER", "term": (1 << 32) + 1} if uuid == A else {"role": "LEADER", "term": 9}
            m.beat(uuid, replica(m.tablet, uuid, known, **leads))
        assert m.soft.tablets[m.tablet].config == forced
        assert m.soft.tablets[m.tablet].leader_uuid == A
        assert [m.orders(u) for u in (A, B, C)] == [[], [], []], "nobody but A says so"
        assert m.box.commit(confirm_config(m.box.catalog, m.tablet, forced, 1)) is True
        assert m.box.commit(confirm_config(m.box.catalog, m.tablet, forced, 1)) is False, "the same again"
        assert [m.orders(u) for u in (A, B, C)] == [[], ["delete"], ["delete"]]


def test_masters_tell_where_servers_are_and_of_no_more_than_were_asked_for() -> None:
    """CN-34. Goal: the masters give the last reported address of each server that was asked for, up to a bound. Method:
    a server that moves, one that nobody heard of, one that did not say where it is, and more questions than are
    answered at once."""
    soft = SoftState(0, lambda tablet_id: None)
    for port in (7, 8):
        soft.heartbeat(
            *heartbeat_from_pb(pb.HeartbeatRequest(server_uuid=A, addresses=[pb.Address(host="h", port=port)])), 0
        )
    soft.heartbeat(*heartbeat_from_pb(pb.HeartbeatRequest(server_uuid=B)), 0)
    assert soft.places([]) == []
    assert soft.places([A, B, C]) == [Member(A, (Address("h", 8),))]
    assert soft.places([*([C] * limits.PEERS_SOUGHT_MAX), A]) == []


def test_view_a_replica_whose_copies_fail_is_unrecoverable_and_its_server_avoided() -> None:
    """TC-65. Goal: a member whose copies fail repeatedly counts as lost, and its server is avoided for a while. Method:
    two failures and three, of a server that has nothing, a tombstone, or a replica under way; then a healthy replica, a
    booting server, a silent one; the server is avoided, though not once its failures are forgotten for a while."""
    m = Masters()
    peers = [pb.PeerHealth(uuid=B, health="OK"), pb.PeerHealth(uuid=C, health="NEEDS_COPY")]
    leads = replica(m.tablet, A, config(1, A, B, C), role="LEADER", peers=peers)
    m.beat(A, leads)
    states = (
        [],
        [replica(m.tablet, C, config(1, A, B, C), data_state=DataState.DELETED, phase="STOPPED")],
        [replica(m.tablet, C, config(1, A, B, C), data_state=DataState.COPYING, phase="STOPPED")],
        [replica(m.tablet, C, config(1, A, B, C))],
    )
    for state in states:
        m.beat(C, *state, failures=2)
        assert m.health(C) is Health.UNKNOWN
        m.beat(C, *state, failures=3)
        assert m.health(C) is Health.FAILED_UNRECOVERABLE
    m.beat(C, *states[1], failures=3, booting=True)
    assert m.health(C) is Health.UNKNOWN
    m.beat(B, replica(m.tablet, B, config(1, A, B, C)), failures=3)
    assert m.health(B) is Health.HEALTHY, "what is healthy now needs no copy"
    m.beat(C, *states[1], failures=3)
    m.now_s += 4
    assert m.health(C) is Health.UNKNOWN, "nothing is known of a silent server"


def test_view_a_server_is_avoided_for_twice_as_long_each_time() -> None:
    """TC-65. Goal: back-off without a history: two numbers a server. Method: failures, an end of them, failures
    again, and so on to the bound; then a long time without."""
    m = Masters()
    m.form()
    m.beat(A, replica(m.tablet, A, config(1, A, B, C), role="LEADER"))

    def avoided() -> bool:
        m.beat(D)
        return next(bool(s.avoided) for s in m.view().servers if s.uuid == D)

    def time_avoided_s() -> int:
        for _ in range(3):
            m.beat(D, failures=3)
            m.now_s += 1
        until_s = m.now_s - 1
        while avoided():
            m.now_s += 1
        return int(m.now_s - until_s)

    m.beat(D, failures=2)
    assert not avoided()
    assert [time_avoided_s() for _ in range(6)] == [60, 120, 240, 480, 600, 600]
    m.now_s += 601
    assert not avoided() and time_avoided_s() == 60


@pytest.mark.deep
def test_copies_that_fail_are_kept_within_what_one_message_lists() -> None:
    """TC-65, IN-80. Goal: the failing copies that a server reports are bounded, so that a list of servers fits into a
    message. Method: it says that thousands of copies fail, each with the longest text that is taken, and one under a
    name that no tablet has."""
    server = ServerState(A, (), 0)
    text = "\U0001f4a5" * ((limits.REPLICA_STATUS_BYTES_MAX - 100) // 4)
    failing = [pb.FailingCopy(tablet_id=f"{n:032x}", failures=3, error=text) for n in range(2000)]
    failing[7].tablet_id = "x" * 1000
    server.hear(heartbeat_from_pb(pb.HeartbeatRequest(server_uuid=A, copies_failing=failing))[0], 1)
    kept = server.last_report.copies_failing
    assert server.copies_fail(failing[0].tablet_id) and "x" * 1000 not in {f.tablet_id for f in kept}
    assert len(kept) == limits.COPIES_FAILING_MAX - 1
    assert {f.error for f in kept} == {text[: limits.COPY_ERROR_CHARS_MAX]}
    listed = [pb.FailingCopy(**f._asdict()) for f in kept]
    assert pb.ServerInfo(copies_failing=listed).ByteSize() < limits.PAGE_BYTES
