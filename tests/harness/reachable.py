"""Tablet servers as a master reaches them, in this process: the server at each address, and what each one holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from nyala.replica.fs import TABLET_SERVER
from nyala.replica.master.catalog.catalog import Catalog
from nyala.replica.master.heartbeats.belief import reported_config
from nyala.replica.master.heartbeats.soft_state import SoftState
from nyala.replica.master.heartbeats.tablet_servers import Identity
from nyala.replica.master.tablets.descriptions import Descriptions
from nyala.replica.master.tablets.orders import Asked, orders_for
from nyala.replica.master.tablets.proof import Proof, prove
from nyala.replica.rpc import pb, reported_replica_from_pb
from nyala.replica.types import Address, Code, DataState, RaftConfig, Refused, ReportedReplica


class ReachableServers:
    """No server listens anywhere until a test adds one. Every call is noted; `slow` holds calls until it is set, except
    those to addresses in `quick`."""

    def __init__(self) -> None:
        self.listening: dict[Address, Identity] = {}
        self.held: dict[str, dict[str, pb.ReplicaStatus]] = {}
        """By server and tablet, the server's answer."""
        self.processes: dict[Address, int] = {}
        """The number of the process at an address; one that is not here cannot report it."""
        self.calls: list[Address] = []
        self.open = self.open_max = 0
        self.slow: asyncio.Event | None = None
        self.quick: set[Address] = set()

    def listen(self, uuid: str, address: Address, *, cluster_id: str = "", kind: str = TABLET_SERVER) -> None:
        self.listening[address] = Identity(uuid, kind, cluster_id)

    async def identity(self, address: Address) -> Identity:
        self.calls.append(address)
        self.open += 1
        self.open_max = max(self.open_max, self.open)
        try:
            if self.slow is not None and address not in self.quick:
                await self.slow.wait()
            if address not in self.listening:
                raise Refused(Code.UNAVAILABLE, "nobody answers there", address=address)
            return self.listening[address]
        finally:
            self.open -= 1

    async def is_process(self, uuid: str, address: Address, process: int) -> bool | None:
        if self.listening[address].uuid != uuid:
            raise Refused(Code.INVALID_NAME, "this server has another uuid", meant=uuid)
        number = self.processes.get(address)
        return None if number is None else number == process

    async def replicas(
        self, uuid: str, addresses: Sequence[Address], tablet_ids: Sequence[str]
    ) -> Sequence[ReportedReplica]:
        identity = await self.identity(addresses[0])
        if identity.uuid != uuid:
            raise Refused(Code.INVALID_NAME, "this server has another uuid", meant=uuid, own=identity.uuid)
        held = self.held.get(uuid, {})
        return [reported_replica_from_pb(held[t]) for t in tablet_ids if t in held]


class AskedAtOnce:
    """Inquiries that an honest cluster answers at once, each time: a server answers with its own last report, or with
    the newest reported config in which it is a voter. The test decides which servers answer something else."""

    def __init__(
        self, known: Callable[[str], RaftConfig | None], wanted: Callable[[str], int] = lambda tablet_id: 0
    ) -> None:
        """`wanted`: how many voters an operator desires of a tablet."""
        self._known = known
        self._wanted = wanted
        self.held: dict[str, dict[str, pb.ReplicaStatus]] = {}
        """Answers by server and tablet."""
        self.silent: set[str] = set()
        """Servers that do not answer."""

    def hear(self, request: pb.HeartbeatRequest) -> None:
        """From now on answer for the server as in this heartbeat."""
        held = {} if request.full_report else self.held.get(request.server_uuid, {})
        self.held[request.server_uuid] = held | {r.tablet_id: r for r in request.replicas}
        for replica in request.replicas:
            told = reported_config(reported_replica_from_pb(replica))
            for uuid in told.voters if told is not None else ():
                self._follow(uuid, told, replica)

    def _follow(self, uuid: str, told: RaftConfig | None, replica: pb.ReplicaStatus) -> None:
        own = self.held.setdefault(uuid, {}).get(replica.tablet_id)
        knows = reported_config(reported_replica_from_pb(own)) if own is not None else None
        if told is not None and (knows is None or knows.opid < told.opid):
            status = pb.ReplicaStatus(tablet_id=replica.tablet_id, uuid=uuid, term=replica.term, role="FOLLOWER")
            status.phase, status.data_state = "RUNNING", DataState.READY
            status.committed_config.CopyFrom(replica.committed_config)
            self.held[uuid][replica.tablet_id] = status

    def proof(self, tablet_id: str) -> Proof | None:
        answers = {
            u: reported_replica_from_pb(h[tablet_id])
            for u, h in self.held.items()
            if tablet_id in h and u not in self.silent
        }
        known = self._known(tablet_id)
        return prove(known, answers, 0, wanted=self._wanted(tablet_id)) if known is not None else None

    def request(self, tablet_id: str, reporter: str = "") -> None:
        """Do nothing: the answers are there already."""


def orders_now(
    catalog: Catalog,
    soft: SoftState,
    asked: Asked,
    server_uuid: str,
    now_us: int,
    copy_grace_us: int,
    known: Descriptions | None = None,
) -> list[pb.TabletOrder]:
    """Return the orders in the reply to a heartbeat. `known`: the descriptions of tables that this master keeps."""
    descriptions = known or Descriptions()
    for _ in descriptions.make_for(catalog, soft, server_uuid).__await__():
        """Nothing else has a turn."""
    return orders_for(catalog, soft, asked, descriptions, server_uuid, now_us, copy_grace_us)
