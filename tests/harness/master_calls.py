"""Every service of one master in this process, called without a network, and everything that a call could change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nyala.replica.consensus_metadata import path_of
from nyala.replica.master import MasterOptions
from nyala.replica.master.catalog.catalog import CATALOG_ID
from nyala.replica.master.catalog.records import DESIRED_CHANGE, TABLET
from nyala.replica.master.group.catalog_group import CatalogGroup
from nyala.replica.master.group.forming import MasterBuild
from nyala.replica.master.requests.infos import tablet_infos
from nyala.replica.master.requests.master_service import MasterService
from nyala.replica.master.state import MasterState
from nyala.replica.raft import RaftOptions
from nyala.replica.raft_driver import Phase
from nyala.replica.rpc import address_to_pb, config_to_pb, pb
from nyala.replica.transport import PeerServicer
from nyala.replica.types import Address, Code, DataState, Member, OpId, RaftConfig, Refused
from tests.harness.catalogs import table_info
from tests.harness.leading_master import FixedClock
from tests.harness.links import trusting
from tests.harness.reachable import ReachableServers
from tests.harness.request_table import State
from tests.harness.server_pair import until
from tests.harness.sim_disk import SimDisk

MASTER, SECOND_MASTER = "1" * 32, "2" * 32
S = [letter * 32 for letter in "abcde"]
"""Tablet servers, all alive. The first three have replicas of the table's only tablet, and the first of them leads."""
PROCESS = 5
"""The number of the process of each of them."""


def where(uuid: str) -> Address:
    return Address("h", 1 + S.index(uuid) if uuid in S else 99)


class MasterWorld:
    """A master that leads alone and decides nothing by itself; or, not `alone`, one that waits for another in vain."""

    def __init__(self, *, alone: bool = True) -> None:
        self.uuid = MASTER
        self.clock = FixedClock()
        self.disk = SimDisk()
        self.fatal: list[BaseException] = []
        second = Member(SECOND_MASTER, (where(SECOND_MASTER),), votes=not alone)
        config = RaftConfig(OpId(0, 0), (Member(MASTER, (where(MASTER),)), second))
        self.group = CatalogGroup(
            self.disk, self.clock, MASTER, config, send=lambda messages: None, on_fatal=self.fatal.append
        )
        self.servers = ReachableServers()
        for uuid in S:
            self.servers.listen(uuid, where(uuid))
        options = MasterOptions(root="x")
        self.master = MasterState(MASTER, where(MASTER), self.group, self.clock, options, self.servers)
        self.service = MasterService(MASTER, ask_master=self._ask_master)
        self.builds: dict[str, int] = {}
        """By uuid, the feature level of each other master that answers."""
        self.places: dict[str, Address] = {}
        peers = PeerServicer(MASTER, self.service.deliver, trusting(self.places.__setitem__))
        self._services: dict[str, Any] = {"MasterService": self.service, "PeerService": peers}
        self.sequence = 0
        self.config_index = 1
        self.members = S[:3]
        self.tablet = self.table_id = ""

    async def begin(self) -> None:
        """Start; if it leads, with a table whose only tablet has a leader."""
        await self.group.start()
        self.service.open(self.master)
        if self.group.replica.committed_config.voters != (MASTER,):
            return
        await until(lambda: self.group.is_leader and self.group.replica.phase is Phase.RUNNING, "it leads")
        self.members = []
        await self.report()
        self.members = S[:3]
        made = await self.done("CreateTable", pb.CreateTableRequest(table=table_info(buckets=1), request_id="once"))
        self.table_id, self.tablet = made.table.table_id, made.tablets[0].tablet_id
        tablet = self.group.catalog.get(TABLET, self.tablet)
        assert tablet is not None
        await self.group.change(lambda: ({TABLET + self.tablet: replace(tablet, formed=True)}, [], "", None))
        await self.report()

    async def second_is_silent(self) -> None:
        """Let so much time pass that the leader no longer counts the second master as alive."""
        for _ in range(RaftOptions().election_ticks_max + 1):
            self.group.tick()

    async def end(self) -> None:
        await self.group.stop()
        self.disk.close()
        assert self.fatal == []

    async def _ask_master(self, address: Address) -> MasterBuild:
        for uuid, level in self.builds.items():
            if where(uuid) == address:
                return MasterBuild(uuid, level, f"0.{level}")
        raise Refused(Code.UNAVAILABLE, "nobody answers there", address=address)

    def services(self) -> dict[str, Any]:
        """Return the services by name."""
        return dict(self._services)

    async def call(self, service: str, method: str, request: Any) -> Any:
        return await getattr(self._services[service], method)(request, None)

    async def done(self, method: str, request: Any) -> Any:
        """Return the reply of a call that must be carried out."""
        reply = await self.call("MasterService", method, request)
        assert not reply.error.code, (method, reply.error)
        return reply

    # ------------------------------------------------------------------------------------------------------ heartbeats

    def beat(self, uuid: str, *, rows: bool = True, **fields: Any) -> Any:
        """Send the next heartbeat of a server that reports all it has."""
        self.sequence += 1
        config = RaftConfig(
            OpId(1, self.config_index), tuple(Member(u, (where(u),)) for u in sorted(self.members) if u)
        )
        replicas = []
        if uuid in self.members and rows:
            status = pb.ReplicaStatus(
                tablet_id=self.tablet, uuid=uuid, data_state=DataState.READY, phase="RUNNING", term=1
            )
            status.role = "LEADER" if uuid == self.members[0] else "FOLLOWER"
            status.committed_config.CopyFrom(config_to_pb(config))
            replicas.append(status)
        wanted: dict[str, Any] = {"sequence": self.sequence, "process": PROCESS, "full_report": True}
        addresses = [address_to_pb(where(uuid))]
        return pb.HeartbeatRequest(server_uuid=uuid, addresses=addresses, replicas=replicas, **wanted | fields)

    async def report(self, *, rows: bool = True) -> None:
        """Send a heartbeat of each."""
        for uuid in S:
            await self.done("Heartbeat", self.beat(uuid, rows=rows))

    async def carried_out(self, *members: str) -> None:
        """Report other members of the tablet, so that nothing is desired of it any more."""
        self.members, self.config_index = list(members), self.config_index + 1
        await self.report()
        await self.settled()

    async def settled(self) -> None:
        """Wait until nothing is desired of the tablet any more; its config is what it was."""
        await self.group.change(lambda: ({}, [DESIRED_CHANGE + self.tablet], "", None))

    def seen(self) -> Any:
        """Return what a client that reads the tablet now sends along; of a master that does not lead, nothing."""
        infos = list(tablet_infos(self.master, self.table_id)) if self.table_id else []
        return pb.TabletSeen(committed_config_id=infos[0].config.opid, wishes=infos[0].wishes) if infos else None

    # ----------------------------------------------------------------------------------------------------------- state

    async def state(self) -> State:
        """Return everything that a call could change, once what is under way has ended."""
        replica = self.group.replica

        def settled() -> bool:
            at = replica.last_logged.index
            leads_alone = len(replica.committed_config.voters) == 1
            return not leads_alone or (replica.commit_index == at and self.group.catalog.applied_opid.index == at)

        await until(settled, "everything is committed and applied")
        soft, cmeta = self.master.soft, path_of(CATALOG_ID)
        return {
            "the catalog": self.group.catalog.records,
            "the log's end": replica.last_logged,
            "what is committed": replica.commit_index,
            "consensus metadata": self.disk.read(cmeta) if self.disk.exists(cmeta) else None,
            "term and role": (replica.term, str(replica.role)),
            "members": (replica.committed_config, replica.active_config),
            "files": list(self.disk.files),
            "addresses": dict(self.places),
            "servers": {
                u: (s.addresses, s.last_heard_us, s.last_report.booting, s.reported, s.sequence, s.replicas | {})
                for u, s in soft.servers.items()
            },
            "tablets": {t: (s.config, s.leader_uuid, s.leader_term, set(s.left)) for t, s in soft.tablets.items()},
        }
