"""Servers, replicas and roles at one moment, as frozen values for rules and for the display."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nyala.replica.rpc import config_from_pb, pb
from nyala.replica.types import DataState, RaftConfig


@dataclass(frozen=True)
class ServerScene:
    """One server process. `away`: paused or stopped by an operation, so that it cannot answer."""

    name: str
    uuid: str
    state: str
    away: str = ""

    @property
    def serves(self) -> bool:
        """Whether it runs, and no fault is injected into it."""
        return self.state == "READY" and not self.away


@dataclass(frozen=True)
class TabletScene:
    """One tablet: the statuses of the replicas that answered, by server name."""

    tablet_id: str
    replication_factor: int
    statuses: Mapping[str, pb.ReplicaStatus] = field(default_factory=dict)

    @property
    def leader(self) -> str:
        """The name of the server that leads in the highest reported term; empty if none does."""
        leading = [(s.term, name) for name, s in self.statuses.items() if s.role == "LEADER"]
        return max(leading)[1] if leading else ""

    @property
    def config(self) -> RaftConfig | None:
        """The committed config by the leader's report; None without a leader."""
        return config_from_pb(self.statuses[self.leader].committed_config) if self.leader else None

    def state_of(self, server: str) -> str:
        """The state of the replica on a server, for the display: role, `copying`, `tombstone`, `FAILED`, or empty."""
        status = self.statuses.get(server)
        if status is None:
            return ""
        if status.phase == "FAILED":
            return "FAILED"
        if status.data_state == DataState.DELETED:
            return "tombstone"
        if status.data_state == DataState.COPYING:
            return "copying"
        return str(status.role)


@dataclass(frozen=True)
class Scene:
    """The whole cluster at one moment."""

    servers: tuple[ServerScene, ...]
    tablets: tuple[TabletScene, ...]
    master_state: str = ""
    copies: tuple[pb.CopyJob, ...] = ()

    def server_of(self, uuid: str) -> ServerScene | None:
        """The process that has this identity now; None if it was wiped."""
        return next((s for s in self.servers if s.uuid == uuid), None)

    def name_of(self, uuid: str) -> str:
        """The name of the process with this uuid; if there is none, the first characters of the uuid."""
        server = self.server_of(uuid)
        return server.name if server else uuid[:8]

    @property
    def away(self) -> tuple[str, ...]:
        """The servers that do not serve now."""
        return tuple(s.name for s in self.servers if not s.serves)

    def members(self, tablet: TabletScene) -> tuple[ServerScene, ...]:
        """The processes that are members of the tablet's committed config."""
        config = tablet.config
        found = [self.server_of(m.uuid) for m in config.members] if config else []
        return tuple(s for s in found if s is not None)

    def strangers(self, tablet: TabletScene) -> tuple[ServerScene, ...]:
        """Serving processes that are not members of the tablet's committed config."""
        uuids = {m.uuid for m in tablet.config.members} if tablet.config else set()
        return tuple(s for s in self.servers if s.serves and s.uuid not in uuids)


def why_unsettled(scene: Scene, tablet: TabletScene) -> str:
    """The reason why a tablet is not at rest, in a few words; empty if it is.

    At rest: there is a leader; the config has exactly the wanted number of voters, no other member and no mark; no
    change is pending; each replica answers, is READY and runs; and there is no other live replica.
    """
    config = tablet.config
    if config is None:
        return "nobody leads"
    if any(s.pending_config.members for s in tablet.statuses.values() if s.role == "LEADER"):
        return "a config change is pending"
    voters = [m for m in config.members if m.votes and m.holds_data and not m.replace]
    if len(voters) != tablet.replication_factor or len(config.members) != len(voters):
        return f"{len(voters)} settled voters among {len(config.members)} members, {tablet.replication_factor} wanted"
    names = {s.uuid: s.name for s in scene.servers}
    for member in voters:
        status = tablet.statuses.get(names.get(member.uuid, ""))
        if status is None:
            return f"the replica on {scene.name_of(member.uuid)} does not answer"
        if status.data_state != DataState.READY or status.phase != "RUNNING":
            return (
                f"the replica on {scene.name_of(member.uuid)} is {tablet.state_of(names[member.uuid])} {status.phase}"
            )
    for name, status in tablet.statuses.items():
        if status.data_state != DataState.DELETED and config.member(status.uuid) is None:
            return f"a replica outside the config lives on {name}"
    return ""
