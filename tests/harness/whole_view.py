"""The masters' view of the cluster from a walk over all tablets: what the kept view must equal at every moment."""

from __future__ import annotations

from nyala.replica.master import MasterOptions
from nyala.replica.master.catalog.catalog import Catalog
from nyala.replica.master.catalog.records import TABLET
from nyala.replica.master.heartbeats.soft_state import SoftState
from nyala.replica.master.tablets.view import in_maintenance, retired_servers, server_views, tablet_view
from nyala.replica.policy import ClusterView


def cluster_view(catalog: Catalog, soft: SoftState, options: MasterOptions, mono_us: int, wall_us: int) -> ClusterView:
    """Return the view of all servers and tablets, as of now."""
    works = in_maintenance(catalog, wall_us)
    views = (tablet_view(catalog, soft, t, r, options, mono_us, works) for t, r in catalog.items(TABLET))
    return ClusterView(
        servers=server_views(soft, options, mono_us, retired_servers(catalog), works),
        tablets=tuple(v for v in views if v is not None),
        now_us=wall_us,
    )
