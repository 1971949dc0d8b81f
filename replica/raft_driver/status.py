"""The status that a replica reports of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from nyala.replica.raft import PeerStatus as CorePeerStatus
from nyala.replica.raft import RaftCore, RaftOptions
from nyala.replica.types import Code, DataState, OpId, RaftConfig, Refused


class Phase(StrEnum):
    """The phase of one replica object [kudu consensus, "Peer states"]. It only changes to a later one of this list,
    except that CONFIGURING and RUNNING alternate."""

    BOOTSTRAPPING = "BOOTSTRAPPING"
    """Reading the log; the replica does not take part in consensus yet."""
    CONFIGURING = "CONFIGURING"
    """Takes part in consensus; no leader has committed an entry of its own term here yet."""
    RUNNING = "RUNNING"
    FAILED = "FAILED"
    """Corruption, or an entry that could not be applied, on this replica only. It answers TABLET_FAILED and does not
    vote."""
    STOPPED = "STOPPED"


PHASE_CHANGES: Mapping[Phase, tuple[Phase, ...]] = MappingProxyType(
    {
        Phase.BOOTSTRAPPING: (Phase.CONFIGURING, Phase.FAILED, Phase.STOPPED),
        Phase.CONFIGURING: (Phase.RUNNING, Phase.FAILED, Phase.STOPPED),
        Phase.RUNNING: (Phase.CONFIGURING, Phase.FAILED, Phase.STOPPED),
        Phase.FAILED: (Phase.STOPPED,),
        Phase.STOPPED: (),
    }
)
"""The phases that may follow each phase. A failed or stopped object never takes part again; another object may."""


@dataclass(frozen=True)
class PeerStatus:
    """A leader's view of one member. `health` is OK, LAGGING, UNREACHABLE or NEEDS_COPY; ticks are the owner's."""

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
    commit_opid: OpId
    """The entry at `commit_index`; `committed_config` is the last config up to it. ZERO_OPID if its term is unknown."""
    applied_index: int
    applied_time: int
    """Hybrid time of the last applied entry: this replica has all rows of snapshots at or below it."""
    flush_index: int
    first_index: int
    """The first entry that the log still has."""
    committed_config: RaftConfig
    pending_config: RaftConfig | None
    wal_bytes: int
    writes_pending: int
    error: str = ""
    withheld: OpId | None = None
    """The end of its log that was lost and may have been acknowledged. The replica does not vote until a leader has
    sent it again."""
    quiet: bool = False
    """Whether the replica needs no ticks until an input arrives."""
    peers: tuple[PeerStatus, ...] = ()


def peer_status(peers: Sequence[CorePeerStatus], options: RaftOptions, rested_ticks: int = 0) -> Iterator[PeerStatus]:
    """The core's knowledge of each peer, in the operators' terms.

    A quiet leader gets no replies, and has counted no ticks for `rested_ticks`. A peer that was away before still is.
    """
    for peer in peers:
        contact_ticks = peer.contact_ticks + (rested_ticks if peer.absent else 0)
        if peer.needs_copy:
            health = "NEEDS_COPY"
        elif contact_ticks > options.election_ticks_max:
            health = "UNREACHABLE"
        else:
            health = "OK" if peer.caught_up else "LAGGING"
        yield PeerStatus(peer.uuid, health, peer.match_index, contact_ticks, peer.data_state)


def leader_hint(core: RaftCore) -> str:
    """`uuid@host:port` of the leader; empty if it is unknown or this replica."""
    leader = core.leader_uuid
    if not leader or leader == core.uuid:
        return ""
    member = core.active_config.member(leader)
    return f"{leader}@{member.addresses[0]}" if member is not None and member.addresses else leader


def with_hint(error: Refused, core: RaftCore) -> Refused:
    """`error`; NOT_LEADER gets the leader's uuid and address as its detail."""
    if error.code is Code.NOT_LEADER:
        error.detail = leader_hint(core)
    return error
