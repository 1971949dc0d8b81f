"""What is known of one replica of a tablet whose majority may be lost, and what running servers say of theirs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nyala.replica.client import Client
from nyala.replica.rows import SourceKey
from nyala.replica.rpc import config_from_pb, opid_from_pb, pb
from nyala.replica.types import (
    ZERO_OPID,
    DataState,
    OpId,
    RaftConfig,
    Refused,
    read_number,
)


@dataclass(frozen=True, kw_only=True)
class SourceMark:
    """Of one source: every offset below `position` that belongs to the tablet is in this replica."""

    source: SourceKey
    generation: int
    position: int


@dataclass(frozen=True, kw_only=True)
class ReplicaEvidence:
    """One replica, or what is left of it. Hybrid times; `last` of a tombstone is the OpId that it kept."""

    tablet_id: str
    table_id: str = ""
    table_name: str = ""
    server_uuid: str
    place: str
    """The directory, or where the running server says it is."""
    running: bool = False
    data_state: DataState = DataState.DOES_NOT_EXIST
    term: int = 0
    last: OpId = ZERO_OPID
    withheld: OpId = ZERO_OPID
    """Highest OpId of a damaged end, which may have been acknowledged and is gone."""
    commit_index: int = 0
    """Known to be committed at least; a stopped server does not keep more."""
    last_time: int = 0
    config: RaftConfig | None = None
    """The committed one."""
    pending: RaftConfig | None = None
    """A later one in the log, committed or not."""
    sources: tuple[SourceMark, ...] = ()
    problem: str = ""
    """Why this replica cannot be built upon."""
    witness: bool = False
    """Its disk has a log and no rows."""
    leads: bool = False
    """It runs, and says that it leads."""
    unreadable: bool = False
    """Its superblock, metadata or log cannot be read: what it promised is not known, and no copy goes over it."""

    @property
    def usable(self) -> bool:
        """Whether a group could go on from it."""
        return self.data_state is DataState.READY and not self.problem and self.config is not None

    @property
    def configs(self) -> tuple[RaftConfig, ...]:
        """Every config that it knows."""
        return tuple(c for c in (self.config, self.pending) if c is not None)

    @property
    def highest(self) -> OpId:
        """The highest OpId that it has, or knows that it had."""
        return max(self.last, self.withheld)


def of_running(client: Client) -> tuple[list[ReplicaEvidence], dict[str, str]]:
    """Each replica of each server that answers, and why the others do not, by uuid."""
    found: list[ReplicaEvidence] = []
    silent: dict[str, str] = {}
    for server in client.list_servers().servers:
        try:
            statuses = client.list_tablets(server)
        except Refused as error:
            silent[server.uuid] = str(error)
            continue
        place = ", ".join(f"{a.host}:{a.port}" for a in server.addresses)
        found += [of_status(server.uuid, place, status) for status in statuses]
    return found, silent


def of_status(uuid: str, place: str, status: pb.ReplicaStatus) -> ReplicaEvidence:
    """What the running server `uuid` at `place` says of one replica."""
    config = config_from_pb(status.committed_config) if status.committed_config.members else None
    pending = config_from_pb(status.pending_config) if status.pending_config.members else None
    return ReplicaEvidence(
        tablet_id=status.tablet_id,
        table_id=status.table_id,
        server_uuid=uuid,
        place=place,
        running=True,
        data_state=read_number(DataState, status.data_state),
        witness=status.witness,
        leads=status.role == "LEADER",
        term=status.term,
        last=opid_from_pb(status.last_logged),
        withheld=opid_from_pb(status.withheld),
        commit_index=status.commit_index,
        config=config,
        pending=pending,
        problem=f"FAILED: {status.error}" if status.phase == "FAILED" else "",
    )


def by_tablet(evidence: Iterable[ReplicaEvidence]) -> dict[str, list[ReplicaEvidence]]:
    """Sorted by tablet, then server; of one server's two words about one replica, its directory's counts."""
    found: dict[str, dict[str, ReplicaEvidence]] = {}
    for item in evidence:
        known = found.setdefault(item.tablet_id, {})
        if item.server_uuid not in known or known[item.server_uuid].running:
            known[item.server_uuid] = item
    return {t: [found[t][u] for u in sorted(found[t])] for t in sorted(found)}
