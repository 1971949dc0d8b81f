"""A tablet server's report of one of its replicas, as the masters keep it and decide by it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .ids import OpId, RaftConfig


@dataclass(frozen=True, slots=True)
class PeerReport:
    """A leader's report of another member. `health`: a name of `PeerHealth`."""

    uuid: str
    health: str
    last_contact_us_ago: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedReplica:
    """One replica. Phase, role and data state are plain text, because a newer build may have others."""

    tablet_id: str
    data_state: int
    phase: str
    role: str
    term: int
    leader_uuid: str
    commit_opid: OpId
    """The last entry that the replica knows to be committed; from an older build: term 0."""
    config: RaftConfig | None
    """The committed config that it reports; None if it reports none, or an impossible one."""
    config_opid: OpId
    """The position of the reported config, possible or not; 0.0 if it reports none."""
    config_wire: bytes = field(repr=False)
    """The config in wire form, so that a report that repeats it need not be converted."""
    pending: bool
    """Whether a config change waits to be committed."""
    peers: tuple[PeerReport, ...]
    """Reports of the other members; empty unless this replica leads."""
    damaged: bool
    witness: bool
    rows: int
    bytes_on_disk: int
    wal_bytes: int
    write_rows_per_s: int = 0
    read_rows_per_s: int = 0
    """The rows that it applied, and those that it sent to readers; from an older build: 0."""
