"""The state that all parts of one master share: its group, its soft state, its clocks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nyala.replica.policy import ServerView
from nyala.replica.types import Address, Clock, RaftConfig, new_uuid

from .catalog.catalog import Catalog
from .catalog.records import CLUSTER, RETIRED, TABLET, Cluster
from .catalog.tables import Change
from .group.catalog_group import CatalogGroup
from .heartbeats.applicants import OtherClustersServers
from .heartbeats.server_admission import ServerAdmission
from .heartbeats.soft_state import SoftState
from .heartbeats.tablet_servers import TabletServers
from .kafka.kafka_link import KafkaLink
from .options import MasterOptions
from .tablets.descriptions import Descriptions
from .tablets.inquiries import Inquiries
from .tablets.kept_view import REFRESHES_PER_STEP, KeptView
from .tablets.look_ups import LookUps
from .tablets.view import in_maintenance, retired_servers, server_views

_log = logging.getLogger("nyala.master")


@dataclass(frozen=True)
class RefusedTicks:
    """The number of ticks of the reconciler that were refused in a row, the first one at `since_us` of the monotonic
    clock. `why`: the last refusal."""

    why: str
    since_us: int
    count: int


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
        """`servers` makes calls to tablet servers."""
        self.uuid = uuid
        self.address = address
        self.group = group
        self.clock = clock
        self.options = options
        # A server that was silent for less than half of the delay was heard for the other half, which is long enough to
        # judge others.
        long_us = options.rereplicate_after_ms * 500
        self.soft = SoftState(clock.monotonic_us(), self.known_config, long_silence_us=long_us)
        listed = lambda uuid: self.catalog.addresses_of(uuid)  # noqa: E731
        self.admission = ServerAdmission(servers, lambda: self.soft, clock, listed)
        self.inquiries = Inquiries(servers, lambda: self.catalog, lambda: self.soft, clock)
        self.kept = KeptView(lambda: self.catalog, lambda: self.soft, self.inquiries.proven, options)
        self.descriptions = Descriptions()
        self.look_ups = LookUps(lambda: self.catalog, self.kept)
        self.other_clusters = OtherClustersServers()
        self.led_term = -1
        """The term in which the soft state was collected."""
        self.decisions_published = 0
        self.ticks_refused = 0
        """The number of the reconciler's ticks that were refused although this master leads."""
        self.refused_ticks: RefusedTicks | None = None
        """The refused ticks up to the last one; None if the last one was not refused."""
        self.reports_published = 0
        self.reports_compared = 0
        """The number of tablets that were compared with their records of `reports`, or published again."""
        self.oldest_report_us: int | None = None
        """The time at which the oldest record of a tablet in `reports` was published; None if this master publishes
        none."""
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

    def places_of(self, uuid: str) -> Sequence[Address]:
        """The addresses at which a tablet server counts; if they are not proven yet, those of the catalog's configs."""
        known = self.soft.servers.get(uuid)
        return known.recorded_at if known is not None else sorted(self.catalog.addresses_of(uuid), key=str)

    @property
    def mono_us(self) -> int:
        """The present time of the monotonic clock."""
        return self.clock.monotonic_us()

    async def lead(self) -> int:
        """Return the term in which this master leads and is ready; Refused otherwise. It drops soft state of earlier
        terms."""
        term = await self.group.ensure_ready()
        if self.led_term != term:
            self.soft.reset(self.mono_us)
            self.inquiries.forget()
            self.look_ups.forget()
            self.led_term = term
            _log.info("P %s leads the masters in term %d", self.uuid, term)
        if self.catalog.get(CLUSTER) is None:
            await self.group.change(self._name_cluster)
        return term

    def _name_cluster(self) -> Change:
        return {} if self.catalog.get(CLUSTER) else {CLUSTER: Cluster(id=new_uuid())}, [], "", None

    @property
    def cluster_id(self) -> str:
        """The id of the cluster; empty before the first leader."""
        cluster = self.catalog.get(CLUSTER)
        return cluster.id if cluster else ""

    def servers(self) -> tuple[ServerView, ...]:
        """The tablet servers as the policy sees them."""
        retired, works = retired_servers(self.catalog), in_maintenance(self.catalog, self.clock.wall_us())
        return server_views(self.soft, self.options, self.mono_us, retired, works)

    @property
    def servers_may_come(self) -> bool:
        """Whether there may be live servers that do not count yet: this master just began to lead, or is calling a
        server."""
        recent_us = self.options.server_dead_ms * 1000
        return self.mono_us - self.soft.since_us < recent_us or self.admission.heard_within(recent_us)

    async def refresh_views(self) -> None:
        """Refresh the views of all tablets that may have changed, a bounded number in each step of the loop.

        Half of the time is left for other work of the loop. Otherwise heartbeats, which take many steps each, would be
        late. A server with late heartbeats counts as dead, and then the views of all its tablets are due.
        """
        await self.refresh_views_unless(lambda: False)

    async def refresh_views_unless(self, needless: Callable[[], bool]) -> bool:
        """As `refresh_views`, but end after the first step when `needless()` holds; returns whether all views are
        fresh."""
        while True:
            began_us = self.mono_us
            if self.kept.refresh(began_us, self.clock.wall_us(), REFRESHES_PER_STEP):
                return True
            if needless():
                return False
            await asyncio.sleep((self.mono_us - began_us) / 1e6)

    def replica_load(self) -> dict[str, int]:
        """The number of replicas per server: the reported ones, and those that new tablets will get. Call it after
        `refresh_views`, because it refreshes the views that are left."""
        self.kept.refresh(self.mono_us, self.clock.wall_us())
        return self.kept.replica_load()

    def server_uuids(self) -> list[str]:
        """The uuids of all tablet servers that are known or are being retired; sorted."""
        return sorted({*self.soft.servers, *(uuid for uuid, _ in self.catalog.items(RETIRED))})
