"""Finds out which build each process of a cluster runs, and whether the feature level can be raised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nyala.replica.client import Client
from nyala.replica.rpc import address_from_pb, feature_level_from_pb, pb
from nyala.replica.types import Address, Refused


@dataclass(frozen=True, kw_only=True)
class ProcessBuild:
    """What one process reports of its build."""

    kind: str
    uuid: str
    address: Address | None
    version: str = ""
    level: int | None = None
    """The highest feature level that the build knows; None if the process does not answer."""
    finalized: int | None = None
    """The cluster's level, as far as the process knows it."""

    def name(self) -> str:
        """Return the name for a sentence."""
        return f"{self.kind} {self.uuid[:8]}"


@dataclass(frozen=True)
class UpgradeView:
    """A cluster's feature level, and the builds of its processes."""

    finalized: int
    processes: Sequence[ProcessBuild]

    @property
    def away(self) -> list[ProcessBuild]:
        """Return the processes that did not answer, so that their build is not known."""
        return [p for p in self.processes if p.level is None]

    @property
    def newest(self) -> int:
        """Return the highest level that any process knows."""
        return max((p.level or 1 for p in self.processes), default=self.finalized)

    def behind(self, level: int) -> list[ProcessBuild]:
        """Return the processes that answer and do not know that level."""
        return [p for p in self.processes if p.level is not None and p.level < level]

    def unheard(self, level: int) -> list[ProcessBuild]:
        """Return the processes that answer and do not know yet that the cluster is at that level."""
        return [p for p in self.processes if p.finalized is not None and p.finalized < level]


def gather_builds(client: Client) -> UpgradeView:
    """Call the leading master for the tablet servers, and each master for its own build."""
    listing = client.list_servers()
    found = [_master(client, master) for master in listing.masters]
    for server in listing.servers:
        found.append(
            ProcessBuild(
                kind="tablet server",
                uuid=server.uuid,
                address=address_from_pb(server.addresses[0]) if server.addresses else None,
                version=server.version if server.alive else "",
                level=feature_level_from_pb(server.feature_level) if server.alive else None,
                finalized=feature_level_from_pb(server.finalized_level) if server.alive else None,
            )
        )
    return UpgradeView(feature_level_from_pb(listing.finalized_level), found)


def _master(client: Client, master: pb.ServerInfo) -> ProcessBuild:
    address = address_from_pb(master.addresses[0]) if master.addresses else None
    away = ProcessBuild(kind="master", uuid=master.uuid, address=address)
    if address is None:
        return away
    try:
        found = client.identity_of_master(address)
    except Refused:
        return away
    if found.uuid != master.uuid:
        return away
    return ProcessBuild(
        kind="master",
        uuid=master.uuid,
        address=address,
        version=found.version,
        level=feature_level_from_pb(found.feature_level),
        finalized=feature_level_from_pb(found.finalized_level),
    )


def upgrade_words(view: UpgradeView) -> str:
    """Return how far the upgrade has come and what to do next, in a sentence or two for an operator."""
    at = f"the cluster is at feature level {view.finalized}"
    if view.newest <= view.finalized:
        if unheard := view.unheard(view.finalized):
            return f"{at}; {_names(unheard)} will learn it at the next heartbeat"
        return f"{at}, the highest that its builds know: nothing is to be finalized"
    if behind := view.behind(view.newest):
        return (
            f"{at}; some processes know level {view.newest}. Upgrade the others one by one: {_names(behind)}. "
            "Until `nyala upgrade finalize`, each process can go back to its build before"
        )
    ready = (
        f"{at}, and all processes that answer know level {view.newest}. `nyala upgrade finalize` raises it; "
        "until then, each process can go back to its build before"
    )
    return f"{ready}. First start what does not answer: {_names(view.away)}" if view.away else ready


def _names(processes: Sequence[ProcessBuild]) -> str:
    shown = ", ".join(p.name() for p in processes[:5])
    return f"{shown} and {len(processes) - 5} more" if len(processes) > 5 else shown
