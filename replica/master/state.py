"""What all parts of one master share: its group, its soft state, its clocks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from nyala.replica.policy import DesiredChange, ServerView
from nyala.replica.rpc import address_to_pb, config_to_pb, opid_to_pb, pb
from nyala.replica.types import Address, Clock, RaftConfig, new_uuid

from .catalog.catalog import Catalog
from .catalog.records import CLUSTER, DESIRED_CHANGE, RETIRED, TABLET, Cluster
from .catalog.tables import Change
from .group.catalog_group import CatalogGroup
from .heartbeats.other_clusters import OtherClustersServers
from .heartbeats.server_admission import ServerAdmission
from .heartbeats.soft_state import LIVE, SoftState
from .heartbeats.tablet_servers import TabletServers
from .kafka.kafka_link import KafkaLink
from .options import MasterOptions
from .tablets.descriptions import Descriptions
from .tablets.draining import drain_of
from .tablets.inquiries import Inquiries
from .tablets.orders import orders_for
from .tablets.view import health_of, leader_of, retired_servers, server_view, server_views, wanted_voters

_log = logging.getLogger("nyala.master")
DOUBTS_MAX = 5
"""How many doubts about one server a listing of servers shows."""


class MasterState:
    """The leading master's knowledge: catalog (durable) and heartbeats (soft). Concurrency: the loop's thread."""

    def __init__(
        self,
        uuid: str,
        address: Address,
        group: CatalogGroup,
        clock: Clock,
        options: MasterOptions,
        servers: TabletServers,
    ) -> None:
        """`servers`: makes calls to tablet servers."""
        self.uuid = uuid
        self.address = address
        self.group = group
        self.clock = clock
        self.options = options
        # A server that was away for less than half the delay was heard for the other half of it, which is long enough
        # to judge the others.
        long_us = options.rereplicate_after_ms * 500
        self.soft = SoftState(clock.monotonic_us(), self.known_config, long_silence_us=long_us)
        self.admission = ServerAdmission(servers, lambda: self.soft, clock, self._listed)
        self.inquiries = Inquiries(servers, lambda: self.catalog, lambda: self.soft, clock)
        self.descriptions = Descriptions()
        self.other_clusters = OtherClustersServers()
        self._places: dict[str, set[Address]] = {}
        self._places_of = -1
        self.led_term = -1
        """The term for which the soft state was gathered."""
        self.decisions_published = 0
        self.kafka: KafkaLink | None = None
        """This master's link to Kafka; None: it was started without Kafka."""

    @property
    def catalog(self) -> Catalog:
        """The catalog's records."""
        return self.group.catalog

    def known_config(self, tablet_id: str) -> RaftConfig | None:
        """The last committed config that the catalog knows of a tablet; None if it does not know the tablet."""
        tablet = self.catalog.get(TABLET, tablet_id)
        return None if tablet is None else tablet.known_config

    def _listed(self, uuid: str) -> Collection[Address]:
        """Where the catalog's configs say that a server listens; as of the beginning of this leadership."""
        if self._places_of != self.led_term:
            self._places, self._places_of = {}, self.led_term
            for _, tablet in self.catalog.items(TABLET):
                for member in tablet.known_config.members:
                    self._places.setdefault(member.uuid, set()).update(member.addresses)
        return self._places.get(uuid, ())

    @property
    def mono_us(self) -> int:
        """Now, on the monotonic clock."""
        return self.clock.monotonic_us()

    async def lead(self) -> int:
        """The term in which this master leads and is ready; Refused otherwise. Drops soft state of earlier terms."""
        term = await self.group.ensure_ready()
        if self.led_term != term:
            self.soft.reset(self.mono_us)
            self.inquiries.forget()
            self.led_term = term
            _log.info("P %s leads the masters in term %d", self.uuid, term)
        if self.catalog.get(CLUSTER) is None:
            await self.group.change(self._name_cluster)
        return term

    def _name_cluster(self) -> Change:
        return {} if self.catalog.get(CLUSTER) else {CLUSTER: Cluster(id=new_uuid())}, [], "", None

    @property
    def cluster_id(self) -> str:
        """Identity of the cluster; empty before the first leader."""
        cluster = self.catalog.get(CLUSTER)
        return cluster.id if cluster else ""

    def servers(self) -> tuple[ServerView, ...]:
        """The tablet servers as the policy sees them."""
        return server_views(self.soft, self.options, self.mono_us, retired_servers(self.catalog))

    @property
    def servers_may_come(self) -> bool:
        """Whether live servers may not count yet, because this master just began to lead, or is calling one."""
        recent_us = self.options.server_dead_ms * 1000
        return self.mono_us - self.soft.since_us < recent_us or self.admission.heard_within(recent_us)

    def orders_for(self, server_uuid: str) -> list[pb.TabletOrder]:
        """The orders in the reply to the server's heartbeat."""
        return orders_for(
            self.catalog,
            self.soft,
            self.inquiries,
            self.descriptions,
            server_uuid,
            self.mono_us,
            self.options.abandoned_copy_grace_ms * 1000,
        )

    def replica_load(self) -> dict[str, int]:
        """Replicas per server: those reported, and those that new tablets will get."""
        load: dict[str, int] = {}
        for tablet_id, tablet in self.catalog.items(TABLET):
            if tablet.dropped:
                continue
            state = self.soft.tablets.get(tablet_id)
            config = state.config if state and state.config else tablet.known_config
            for member in config.members:
                load[member.uuid] = load.get(member.uuid, 0) + 1
        return load

    def tablets_of(self, table_id: str, after: tuple[int, int] | None = None) -> Iterator[pb.TabletInfo]:
        """The tablets of a table in order of position, those after (range, bucket) `after`, with the known configs and
        leaders."""
        for tablet_id, tablet in self.catalog.tablets_of(table_id):
            if tablet.dropped or (after is not None and (tablet.range_pos, tablet.bucket) <= after):
                continue
            state = self.soft.tablets.get(tablet_id)
            config = state.config if state and state.config else tablet.known_config
            leader = leader_of(self.soft, state, self.options, self.mono_us)
            info = pb.TabletInfo(
                tablet_id=tablet_id,
                table_id=table_id,
                bucket=tablet.bucket,
                range_pos=tablet.range_pos,
                config=config_to_pb(self._with_addresses(config)),
                leader_uuid=leader or (state.leader_uuid if state else ""),
                term=max(state.leader_term, 0) if state else 0,
                running=bool(leader),
                replication_factor=wanted_voters(self.catalog, tablet_id),
                own_replication_factor=bool(tablet.replication_factor),
                wishes=tablet.wishes,
                health={
                    m.uuid: health_of(self.soft, tablet_id, m.uuid, self.options, self.mono_us).name
                    for m in config.members
                },
            )
            if (desired := self.catalog.get(DESIRED_CHANGE, tablet_id)) is not None:
                info.wish.CopyFrom(_change_info(desired))
            if (unproven := self.soft.unproven(tablet_id, self.mono_us)) is not None:
                info.unproven.CopyFrom(
                    pb.UnprovenConfig(
                        config=config_to_pb(unproven.config),
                        known=opid_to_pb(unproven.known.opid),
                        known_voters=unproven.known.voters,
                        told_by=unproven.told_by,
                        since_us_ago=unproven.since_us_ago,
                        believed=unproven.believed,
                    )
                )
            yield info

    def _with_addresses(self, config: RaftConfig) -> RaftConfig:
        """The config with the addresses that servers have last given."""
        members = []
        for member in config.members:
            server = self.soft.servers.get(member.uuid)
            members.append(replace(member, addresses=server.addresses) if server and server.addresses else member)
        return replace(config, members=tuple(members))

    def server_uuids(self) -> list[str]:
        """Of all tablet servers that are known, or are being retired; sorted."""
        return sorted({*self.soft.servers, *(uuid for uuid, _ in self.catalog.items(RETIRED))})

    def server_infos(self, uuids: Sequence[str]) -> list[pb.ServerInfo]:
        """What operators see of these tablet servers."""
        infos = []
        for server in (self.soft.servers[u] for u in uuids if u in self.soft.servers):
            view = server_view(self.soft, server, self.options, self.mono_us)
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
                    bytes_on_disk=sum(r.bytes_on_disk + r.wal_bytes for r in live),
                    memory_bytes=server.memory_bytes,
                    version=server.version,
                    feature_level=server.feature_level,
                    finalized_level=server.finalized_level,
                    loop_lag_ms_max=server.loop_lag_ms_max,
                    gil_hold_ms_max=server.gil_hold_ms_max,
                    open_files=pb.ResourceUse(**server.open_files._asdict()),
                    memory_maps=pb.ResourceUse(**server.memory_maps._asdict()),
                    tablets_max=server.tablets_max,
                    copies_failing=[
                        pb.FailingCopy(tablet_id=t, failures=f.failures, error=f.error)
                        for t, f in server.copies_failing.items()
                    ],
                    avoided=view.avoided,
                    doubts=self.soft.doubts(server.uuid, self.mono_us)[:DOUBTS_MAX],
                )
            )
        known = {i.uuid for i in infos}
        infos += [pb.ServerInfo(uuid=u) for u in uuids if u not in known and RETIRED + u in self.catalog]
        for info in infos:
            self._add_drain(info)
        return sorted(infos, key=lambda info: info.uuid)

    def _add_drain(self, info: pb.ServerInfo) -> None:
        retired = self.catalog.get(RETIRED, info.uuid)
        if retired is None:
            return
        drain = drain_of(self.catalog, self.soft, info.uuid)
        info.draining, info.drained = True, drain.done
        info.tablets_left, info.tablets_unreported = drain.left, drain.unreported
        info.tablets_at_first = max(retired.tablets_at_first, drain.left)
        info.drain_reason = retired.reason


def _change_info(desired: DesiredChange) -> pb.DesiredChangeInfo:
    """A desired change of the catalog, for operators."""
    return pb.DesiredChangeInfo(
        kind=desired.kind,
        from_uuid=desired.from_uuid,
        to_uuid=desired.to_uuid,
        deadline_us=desired.deadline_us,
        reason=desired.reason,
        plan_id=desired.plan_id,
        cancelled=desired.cancelled,
    )
