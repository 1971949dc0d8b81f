"""What all parts of one master share: its group, its soft state, its clocks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from nyala.replica.base import Address, Clock, RaftConfig, new_uuid
from nyala.replica.policy import ServerView
from nyala.replica.rpc import address_to_pb, config_to_pb, pb

from .catalog import Catalog, Record
from .draining import drain_of
from .group import CatalogGroup
from .options import MasterOptions
from .soft_state import LIVE, Foreigners, SoftState
from .tables import RETIRED, TABLET, WISH, first_config
from .view import health_of, leader_of, retired_servers, server_views, wanted_voters

_log = logging.getLogger("nyala.master")
CLUSTER = "cluster/id"


class MasterState:
    """The leading master's knowledge: catalog (durable) and heartbeats (soft). Concurrency: the loop's thread."""

    def __init__(
        self,
        uuid: str,
        address: Address,
        group: CatalogGroup,
        clock: Clock,
        options: MasterOptions,
    ) -> None:
        self.uuid = uuid
        self.address = address
        self.group = group
        self.clock = clock
        self.options = options
        self.soft = SoftState(clock.monotonic_us())
        self.foreigners = Foreigners()
        self.led_term = -1
        """The term for which the soft state was gathered."""
        self.decisions_published = 0
        self.kafka_connected: Callable[[], bool] = lambda: False

    @property
    def catalog(self) -> Catalog:
        """The catalog's records."""
        return self.group.catalog

    @property
    def mono_us(self) -> int:
        """Now, on the clock that never goes back."""
        return self.clock.monotonic_us()

    async def lead(self) -> int:
        """The term in which this master leads and is ready; forgets soft state of earlier terms. Refused otherwise."""
        term = await self.group.ensure_ready()
        if self.led_term != term:
            self.soft.reset(self.mono_us)
            self.led_term = term
            _log.info("P %s leads the masters in term %d", self.uuid, term)
        if self.catalog.get(CLUSTER) is None:
            await self.group.change(self._name_cluster)
        return term

    def _name_cluster(self) -> tuple[dict[str, dict[str, str]], list[str], str, None]:
        if self.catalog.get(CLUSTER) is not None:
            return {}, [], "", None
        return {CLUSTER: {"id": new_uuid()}}, [], "", None

    @property
    def cluster_id(self) -> str:
        """Identity of the cluster; empty before the first leader."""
        record = self.catalog.get(CLUSTER)
        return str(record["id"]) if record else ""

    def servers(self) -> tuple[ServerView, ...]:
        """The tablet servers as the policy sees them."""
        return server_views(self.soft, self.options, self.mono_us, retired_servers(self.catalog))

    def replica_load(self) -> dict[str, int]:
        """Replicas per server: those reported, and those that new tablets will get."""
        load: dict[str, int] = {}
        for tablet_id, record in self.catalog.items(TABLET):
            if "dropped_us" in record:
                continue
            state = self.soft.tablets.get(tablet_id)
            config = state.config if state and state.config else first_config(record)
            for member in config.members:
                load[member.uuid] = load.get(member.uuid, 0) + 1
        return load

    def tablets_of(self, table_id: str) -> list[pb.TabletInfo]:
        """The tablets of a table in order of position, with what is known of their configs and leaders."""
        found = []
        for tablet_id, record in self.catalog.items(TABLET):
            if record["table_id"] != table_id or "dropped_us" in record:
                continue
            state = self.soft.tablets.get(tablet_id)
            config = state.config if state and state.config else first_config(record)
            leader = leader_of(self.soft, state, self.options, self.mono_us)
            info = pb.TabletInfo(
                tablet_id=tablet_id,
                table_id=table_id,
                bucket=record["bucket"],
                range_pos=record["range_pos"],
                config=config_to_pb(self._with_addresses(config)),
                leader_uuid=leader or (state.leader_uuid if state else ""),
                term=max(state.leader_term, 0) if state else 0,
                running=bool(leader),
                replication_factor=wanted_voters(self.catalog, tablet_id),
                own_replication_factor="replication_factor" in record,
                wishes=int(record.get("wishes", 0)),
                health={
                    m.uuid: health_of(self.soft, tablet_id, m.uuid, self.options, self.mono_us).name
                    for m in config.members
                },
            )
            wish = self.catalog.get(WISH + tablet_id)
            if wish is not None:
                info.wish.CopyFrom(_wish_info(wish))
            found.append(info)
        return sorted(found, key=lambda t: (t.range_pos, t.bucket))

    def _with_addresses(self, config: RaftConfig) -> RaftConfig:
        """The config with the addresses that servers were last heard from."""
        members = []
        for member in config.members:
            server = self.soft.servers.get(member.uuid)
            members.append(replace(member, addresses=server.addresses) if server and server.addresses else member)
        return replace(config, members=tuple(members))

    def server_infos(self) -> list[pb.ServerInfo]:
        """What operators see of the tablet servers."""
        infos = []
        for view in self.servers():
            server = self.soft.servers[view.uuid]
            live = [r for r in server.replicas.values() if r.data_state in LIVE]
            infos.append(
                pb.ServerInfo(
                    uuid=server.uuid,
                    addresses=[address_to_pb(a) for a in server.addresses],
                    last_heartbeat_us_ago=max(0, self.mono_us - server.last_heard_us),
                    alive=view.alive,
                    location=server.location,
                    replicas=len(live),
                    leaders=sum(r.role == "LEADER" for r in live),
                    bytes_on_disk=sum(r.bytes_on_disk for r in live),
                    memory_bytes=server.memory_bytes,
                    version=server.version,
                    loop_lag_ms_max=server.loop_lag_ms_max,
                    gil_hold_ms_max=server.gil_hold_ms_max,
                    tablets_max=server.tablets_max,
                    copies_failing=server.copies_failing.values(),
                    avoided=view.avoided,
                )
            )
        known = {i.uuid for i in infos}
        infos += [pb.ServerInfo(uuid=u) for u, _ in self.catalog.items(RETIRED) if u not in known]
        for info in infos:
            self._add_drain(info)
        return infos

    def _add_drain(self, info: pb.ServerInfo) -> None:
        record = self.catalog.get(RETIRED + info.uuid)
        if record is None:
            return
        drain = drain_of(self.catalog, self.soft, info.uuid)
        info.draining, info.drained = True, drain.done
        info.tablets_left, info.tablets_unreported = drain.left, drain.unreported
        info.tablets_at_first = max(int(record["tablets_at_first"]), drain.left)
        info.drain_reason = str(record["reason"])


def _wish_info(record: Record) -> pb.WishInfo:
    """A wish of the catalog, for operators."""
    return pb.WishInfo(
        kind=record["kind"],
        from_uuid=record["from_uuid"],
        to_uuid=record["to_uuid"],
        deadline_us=record["deadline_us"],
        reason=record["reason"],
        plan_id=record["plan_id"],
        cancelled=bool(record.get("cancelled")),
    )
