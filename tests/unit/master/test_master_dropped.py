"""Dropped tablets are known as long as a replica may be left, and not for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nyala.replica.master.catalog.records import TABLET
from nyala.replica.master.catalog.tables import create_table, drop_table
from nyala.replica.master.heartbeats.soft_state import SoftState
from nyala.replica.master.tablets.dropped import holders_of, settle_dropped
from nyala.replica.policy import ServerView
from nyala.replica.rpc import config_to_pb, heartbeat_from_pb, pb
from nyala.replica.types import Address, DataState, Member, OpId, RaftConfig
from tests.harness.catalogs import AppliedCatalog, new_table
from tests.harness.reachable import AskedAtOnce, orders_now

A, B, C, D = ("a" * 32, "b" * 32, "c" * 32, "d" * 32)
KEEP_US = 100


class Dropped:
    """A catalog whose only table, created on A, B, C and moved from C to D, was dropped."""

    def __init__(self) -> None:
        self.box = AppliedCatalog()
        self.soft = SoftState(0, self.box.known)
        self.asked = AskedAtOnce(self.box.known)
        hosts = [ServerView(uuid=u, member=Member(u, (Address("h", 1),))) for u in (A, B, C)]
        self.box.commit(create_table(self.box.catalog, new_table(buckets=1), hosts, {}, 1))
        self.tablet, _ = next(iter(self.box.catalog.items(TABLET)))
        moved = RaftConfig(OpId(1, 7), tuple(Member(u, (Address("h", 1),)) for u in (A, B, D)))
        self.config = config_to_pb(moved)
        self.beat(A, DataState.READY)
        catalog = self.box.catalog
        holders = {t: holders_of(r, self.soft, t) for t, r in catalog.items(TABLET)}
        self.box.commit(drop_table(catalog, "flights", "", 10, holders))

    def beat(self, uuid: str, state: DataState | None, *, full: bool = True, booting: bool = False) -> None:
        replicas = []
        if state is not None:
            replicas = [pb.ReplicaStatus(tablet_id=self.tablet, uuid=uuid, data_state=state, term=1)]
            replicas[0].committed_config.CopyFrom(self.config)
        self.soft.heartbeat(
            *heartbeat_from_pb(
                pb.HeartbeatRequest(server_uuid=uuid, full_report=full, booting=booting, replicas=replicas)
            ),
            0,
        )

    def settle(self, now_us: int) -> list[str] | None:
        """Holders left after one evaluation; None once the tablet is forgotten."""
        self.box.commit((*settle_dropped(self.box.catalog, self.soft, now_us, KEEP_US), "", None))
        record = self.box.catalog.records.get(TABLET + self.tablet)
        return None if record is None else list(record["holders"])

    def ordered_away(self, uuid: str) -> bool:
        return [o.HasField("delete") for o in orders_now(self.box.catalog, self.soft, self.asked, uuid, 0, 0)] == [True]


@pytest.fixture
def dropped() -> Dropped:
    return Dropped()


def test_dropped_tablet_is_known_until_every_holder_said_that_it_has_none(dropped: Dropped) -> None:
    """Goal: the catalog keeps a dropped tablet until each server that had a replica has reported that it has none, so
    that a late replica is still deleted. Method: tombstones, missing replicas, a server that is starting, and one whose
    full report is incomplete. The last holder is away for long, comes back, gets the order to delete; only then the
    retention time begins."""
    assert dropped.settle(20) == [A, B, C, D], "of the first config, of the last one, and whoever reports it"
    dropped.beat(A, DataState.DELETED)
    dropped.beat(B, None, booting=True)
    dropped.beat(C, None, full=False)
    assert dropped.settle(21) == [B, C, D]
    dropped.beat(B, None)
    dropped.beat(C, None)
    assert dropped.settle(22) == [D]
    assert dropped.settle(22 + 100 * KEEP_US) == [D], "however long it takes"
    dropped.soft.reset(0)
    assert dropped.settle(30_000) == [D], "what was confirmed outlives a failover of the masters"
    dropped.beat(D, DataState.READY)
    assert dropped.ordered_away(D) and dropped.settle(30_000) == [D]
    dropped.beat(D, DataState.DELETED)
    assert dropped.settle(30_001) == [] and dropped.settle(30_000 + KEEP_US) == []
    assert dropped.settle(30_001 + KEEP_US) is None
    assert list(dropped.box.catalog.items(TABLET)) == []


def test_replica_revived_after_the_drop_keeps_its_tablet_known(dropped: Dropped) -> None:
    """Goal: scenario 79 (D-24): a leader that has not heard of the drop may copy to a tombstone again; the masters
    order that replica to be deleted too. Method: all replicas are gone; one comes back as COPYING just before the
    tablet would be forgotten. It is ordered to delete, and the retention time begins again."""
    for uuid in (A, B, C, D):
        dropped.beat(uuid, DataState.DELETED)
    assert dropped.settle(20) == []
    dropped.beat(B, DataState.COPYING)
    assert dropped.settle(20 + KEEP_US) == [B] and dropped.ordered_away(B)
    dropped.beat(B, DataState.DELETED)
    assert dropped.settle(1000) == [] and dropped.settle(999 + KEEP_US) == []
    assert dropped.settle(1000 + KEEP_US) is None


def test_tablet_that_was_not_dropped_is_never_forgotten() -> None:
    """Goal: the catalog forgets only dropped tablets. Method: a tablet that was not dropped and that no server reports,
    long after."""
    box = AppliedCatalog()
    soft = SoftState(0, box.known)
    hosts = [ServerView(uuid=u, member=Member(u, (Address("h", 1),))) for u in (A, B, C)]
    box.commit(create_table(box.catalog, new_table(buckets=1), hosts, {}, 1))
    for uuid in (A, B, C):
        soft.heartbeat(*heartbeat_from_pb(pb.HeartbeatRequest(server_uuid=uuid, full_report=True)), 0)
    assert settle_dropped(box.catalog, soft, 1 << 60, 0) == ({}, [])


def test_tablet_dropped_by_an_older_build_is_settled_too(dropped: Dropped) -> None:
    """Goal: the catalog also forgets a dropped tablet whose record, of an older build, names no holders. Method: take
    the field away."""
    record = dict(dropped.box.catalog.records.get(TABLET + dropped.tablet) or {})
    del record["holders"]
    dropped.box.commit(({TABLET + dropped.tablet: record}, [], "", None))
    assert dropped.settle(20) == [A, B, C, D]


def test_drop_of_a_table_leaves_a_tablet_that_was_given_up_before_as_it_was() -> None:
    """Goal: the time of a tablet that was dropped before its table, and what is known of its holders, do not
    change: its replicas are still deleted by them. Method: of two tablets one was given up for another one; then the
    table is dropped, with holders named for both."""
    box = AppliedCatalog()
    hosts = [ServerView(uuid=u, member=Member(u, (Address("h", 1),))) for u in (A, B, C)]
    box.commit(create_table(box.catalog, new_table(buckets=2), hosts, {}, 1))
    (gone, first), (other, _) = sorted(box.catalog.items(TABLET))
    was = replace(first, dropped_us=5, holders=(D,), replaced_by=other)
    box.commit(({TABLET + gone: was}, [], "", None))
    box.commit(drop_table(box.catalog, "flights", "", 10, {gone: (A,), other: (A, B)}))
    assert box.catalog.get(TABLET, gone) == was
    dropped = box.catalog.get(TABLET, other)
    assert dropped is not None and (dropped.dropped_us, dropped.holders) == (10, (A, B))
