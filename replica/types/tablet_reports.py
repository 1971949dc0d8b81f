"""What a tablet server tells of one of its replicas, as the masters keep it and decide by it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .ids import OpId, RaftConfig


@dataclass(frozen=True, slots=True)
class PeerReport:
    """What a tablet's leader says of another member. `health`: as `PeerHealth` names it."""

    uuid: str
    health: str
    last_contact_us_ago: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TabletReport:
    """One replica. Phase, role and data state are as told: a newer build may know others."""

    tablet_id: str
    data_state: int
    phase: str
    role: str
    term: int
    leader_uuid: str
    commit_opid: OpId
    """How far its log is committed; of an older build: term 0."""
    config: RaftConfig | None
    """The committed config that it tells; None if it tells none, or one that is none."""
    config_opid: OpId
    """The position of what it tells, whatever that is; 0.0 if it tells none."""
    config_wire: bytes = field(repr=False)
    """The same as it was told, so that a report that repeats it costs nothing."""
    pending: bool
    """Whether a config change waits to be committed."""
    peers: tuple[PeerReport, ...]
    """Of a leader."""
    damaged: bool
    witness: bool
    rows: int
    bytes_on_disk: int
    wal_bytes: int
