"""One leading master's knowledge without a network: a real catalog, heartbeats that a test makes, a clock it sets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from nyala.replica.master import Catalog, MasterOptions
from nyala.replica.master.catalog.records import TABLET
from nyala.replica.master.catalog.tables import create_table
from nyala.replica.master.decisions.reconciler import marked
from nyala.replica.master.requests import change_requests, desired
from nyala.replica.master.requests.infos import server_infos
from nyala.replica.master.state import MasterState
from nyala.replica.master.tablets.draining import Drain, drain_of
from nyala.replica.policy import ServerView, decide
from nyala.replica.rpc import config_to_pb, heartbeat_from_pb, pb
from nyala.replica.types import Address, DataState, Member, OpId, RaftConfig
from tests.harness.catalogs import AppliedCatalog, new_table
from tests.harness.reachable import AskedAtOnce, ReachableServers, orders_now
from tests.harness.whole_view import cluster_view

S = [letter * 32 for letter in "abcdef"]
OPTIONS = MasterOptions(root="x")


class FixedClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_us = 10_000_000

    def monotonic_us(self) -> int:
        return self.now_us

    def wall_us(self) -> int:
        return self.now_us


class _Group:
    """The part of the group that pure changes read: the catalog."""

    def __init__(self, box: AppliedCatalog) -> None:
        self.box = box
        self.replica = SimpleNamespace(active_config=RaftConfig(OpId(0, 0), (Member("m" * 32, (Address("h", 1),)),)))

    @property
    def catalog(self) -> Catalog:
        return self.box.catalog


class Masters:
    """One leading master's knowledge over a real catalog; one table of one tablet on the first three servers."""

    def __init__(self, servers: int = 4) -> None:
        self.box = AppliedCatalog()
        self.asked = AskedAtOnce(self.box.known)
        self.clock = FixedClock()
        self.state = self.lead()
        hosts = [ServerView(uuid=u, member=Member(u, (Address("h", 1),))) for u in S[:3]]
        self.box.commit(create_table(self.box.catalog, new_table(buckets=1), hosts, {}, 1))
        self.tablet, record = next(iter(self.box.catalog.items(TABLET)))
        self.box.commit(({TABLET + self.tablet: marked(record, None)}, [], "", None))
        self.members = [Member(u, (Address("h", 1),)) for u in S[:3]]
        self.index = 1
        self.servers = S[:servers]
        self.limits: dict[str, int] = {}
        self.report()

    def infos(self) -> list[pb.ServerInfo]:
        """Return what operators see of all servers."""
        self.state.kept.refresh(self.clock.now_us, self.clock.now_us)
        return server_infos(self.state, self.state.server_uuids())

    def drain(self, uuid: str) -> Drain:
        """Return how far a server is emptied."""
        self.state.kept.refresh(self.clock.now_us, self.clock.now_us)
        return drain_of(self.box.catalog, self.state.soft, self.state.kept, uuid)

    def lead(self) -> MasterState:
        """Begin a new leadership: the same catalog, no heartbeat received."""
        group: Any = _Group(self.box)
        self.state = MasterState("m" * 32, Address("h", 1), group, self.clock, OPTIONS, ReachableServers())
        return self.state

    @property
    def config(self) -> RaftConfig:
        """Return the config that members report as committed."""
        return RaftConfig(OpId(1, self.index), tuple(self.members))

    def report(self, *, only: str = "") -> None:
        """Send heartbeats: members hold replicas, the first one leads."""
        config = self.config
        for uuid in [only] if only else self.servers:
            replicas = []
            if config.member(uuid) is not None:
                status = pb.ReplicaStatus(
                    tablet_id=self.tablet, uuid=uuid, data_state=DataState.READY, phase="RUNNING", term=1
                )
                status.role = "LEADER" if uuid == self.members[0].uuid else "FOLLOWER"
                status.committed_config.CopyFrom(config_to_pb(config))
                for member in self.members:
                    status.peers.add(uuid=member.uuid, health="OK")
                replicas.append(status)
            beat = pb.HeartbeatRequest(
                server_uuid=uuid,
                addresses=[pb.Address(host="h", port=1)],
                full_report=True,
                replicas=replicas,
                tablets_max=self.limits.get(uuid, 0),
            )
            self.asked.hear(beat)
            self.state.soft.heartbeat(*heartbeat_from_pb(beat), self.clock.now_us)

    def said(self, uuid: str) -> list[pb.TabletOrder]:
        """Return the orders to a server; inquiries are answered by what servers reported here."""
        return orders_now(self.box.catalog, self.state.soft, self.asked, uuid, self.clock.now_us, 0)

    def set(self, replicas: int, **fields: Any) -> Any:
        return self.box.commit(desired.set_replication(self.state, replicas, **({"table": "flights"} | fields)))

    def retire(self, uuid: str, **fields: Any) -> Any:
        return self.box.commit(desired.retire(self.state, uuid, **fields))

    def want(self, change: Any, uuid: str, role: str = "", tablet: str = "") -> Any:
        return self.box.commit(change(self.state, change_requests.Request(tablet or self.tablet, uuid, role)))

    def decided(self) -> list[str]:
        """Return what the policy would decide now."""
        view = cluster_view(self.box.catalog, self.state.soft, OPTIONS, self.clock.now_us, self.clock.now_us)
        return [" ".join(f"{e.kind} {e.member.uuid[0]}" for e in d.edits) for d in decide(view, 1)]
