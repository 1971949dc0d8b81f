"""The evidence about one replica of a tablet whose majority may be lost, and how to get it from running servers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nyala.replica.client import Client
from nyala.replica.rows import SourceKey
from nyala.replica.rpc import config_from_pb, opid_from_pb, pb
from nyala.replica.types import ZERO_OPID, DataState, OpId, RaftConfig, Refused, read_number


@dataclass(frozen=True, kw_only=True)
class SourceMark:
    """A position in one source: this replica has every record of its tablet below `position`."""

    source: SourceKey
    generation: int
    position: int


@dataclass(frozen=True, kw_only=True)
class ReplicaEvidence:
    """One replica, or its remains. Times are hybrid; `last` of a tombstone is the OpId that it kept."""

    tablet_id: str
    table_id: str = ""
    table_name: str = ""
    server_uuid: str
    place: str
    """The directory, or the running server's address."""
    running: bool = False
    data_state: DataState = DataState.DOES_NOT_EXIST
    term: int = 0
    last: OpId = ZERO_OPID
    withheld: OpId = ZERO_OPID
    """The highest OpId of the log's damaged tail, which is lost and may have been acknowledged."""
    commit_index: int = 0
    """Entries up to this one are committed, and later ones may be; a stopped server has no later index on disk."""
    last_time: int = 0
    config: RaftConfig | None = None
    """The committed config."""
    pending: RaftConfig | None = None
    """A later config in the log, committed or not."""
    sources: tuple[SourceMark, ...] = ()
    problem: str = ""
    """The reason why this replica cannot be a survivor."""
    witness: bool = False
    """Whether its disk has a log and no rows."""
    leads: bool = False
    """Whether it runs and reports that it leads."""
    unreadable: bool = False
    """Whether its superblock, metadata or log cannot be read: no copy may replace it, because it may have acknowledged
    more."""

    @property
    def usable(self) -> bool:
        """Return whether a group could go on from it."""
        return self.data_state is DataState.READY and not self.problem and self.config is not None

    @property
    def configs(self) -> tuple[RaftConfig, ...]:
        """Return every config that this replica knows."""
        return tuple(c for c in (self.config, self.pending) if c is not None)

    @property
    def highest(self) -> OpId:
        """Return the highest OpId that this replica has, or is known to have had."""
        return max(self.last, self.withheld)


def of_running(client: Client) -> tuple[list[ReplicaEvidence], dict[str, str]]:
    """Return the replicas of all servers that answer, and the errors of the others by uuid."""
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
    """Return the evidence in the status of one replica, from the running server `uuid` at `place`."""
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
    """Return the evidence by tablet, sorted by server; if there is evidence of a running server and of its directory,
    the latter counts."""
    found: dict[str, dict[str, ReplicaEvidence]] = {}
    for item in evidence:
        known = found.setdefault(item.tablet_id, {})
        if item.server_uuid not in known or known[item.server_uuid].running:
            known[item.server_uuid] = item
    return {t: [found[t][u] for u in sorted(found[t])] for t in sorted(found)}
