"""What a replica tells about itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nyala.replica.base import DataState, OpId, RaftConfig


class Phase(StrEnum):
    """Life of one replica object [kudu consensus, "Peer states"]. Moves down only, except CONFIGURING <-> RUNNING."""

    BOOTSTRAPPING = "BOOTSTRAPPING"
    """Replaying the log; the group does not know this member."""
    CONFIGURING = "CONFIGURING"
    """Takes part in consensus; no leader has committed an entry of its own term here yet."""
    RUNNING = "RUNNING"
    FAILED = "FAILED"
    """Corruption or an entry that could not be applied: this replica only. It answers TABLET_FAILED and does not vote."""
    STOPPED = "STOPPED"


@dataclass(frozen=True)
class PeerStatus:
    """How a leader sees one member. `health` is OK, LAGGING, UNREACHABLE or NEEDS_COPY; ticks as the host is ticked."""

    uuid: str
    health: str
    match_index: int
    last_contact_ticks: int
    data_state: DataState = DataState.READY


@dataclass(frozen=True, kw_only=True)
class ReplicaStatus:
    """One consistent view of a replica, taken on its owner's thread."""

    tablet_id: str
    uuid: str
    phase: Phase
    role: str
    term: int
    leader_uuid: str
    """Empty if unknown."""
    last_logged: OpId
    commit_index: int
    applied_index: int
    applied_time: int
    """Hybrid time of the last applied entry: snapshots at or below are complete here."""
    flush_index: int
    first_index: int
    """First entry that the log still holds."""
    committed_config: RaftConfig
    pending_config: RaftConfig | None
    wal_bytes: int
    cache_bytes: int
    writes_pending: int
    error: str = ""
    peers: tuple[PeerStatus, ...] = ()
