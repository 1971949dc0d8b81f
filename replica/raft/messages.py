"""The messages between Raft cores: one frozen class for each. The driver adds the tablet id and the wire format."""

from __future__ import annotations

from dataclasses import dataclass

from nyala.replica.types import ZERO_OPID, Code, DataState, Entry, OpId


@dataclass(frozen=True, kw_only=True, slots=True)
class AppendEntries:
    """Entries after `prev`; without entries, a heartbeat that also probes the follower's log [raft §5.3]."""

    to_uuid: str
    from_uuid: str
    term: int
    prev: OpId
    entries: tuple[Entry, ...] = ()
    commit_index: int = 0
    round: int = 0
    """Number of the leader's heartbeat round; the reply echoes it and ReadIndex counts the echoes."""
    safe_time: int = 0
    """Hybrid time: no entry of this leader after the last one of this message is at or below it. 0: unknown."""
    quiet: bool = False
    """A heartbeat that asks the follower to become quiet; see quiet.py."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AppendReply:
    """Answer to AppendEntries.

    `code`: OK (look at `mismatch`), INVALID_NAME, INVALID_TERM, TABLET_NOT_FOUND, TABLET_DELETED, NOT_READY (copying),
    TABLET_FAILED. A core uses only OK, INVALID_NAME and INVALID_TERM. The server sends the others for replicas that
    have no running core.
    """

    to_uuid: str
    from_uuid: str
    term: int
    code: Code = Code.OK
    mismatch: bool = False
    last: OpId = ZERO_OPID
    """OK: last entry known to match *and durable here*; mismatch: last OpId of the follower's log."""
    conflict_index: int = 0
    """Mismatch: first index of the follower's conflicting term, or one past its log's end."""
    commit_index: int = 0
    round: int = 0
    applied_index: int = 0
    data_state: DataState = DataState.READY
    quiet: bool = False
    """The follower goes quiet with this reply."""
    no_data: bool = False
    """The follower's disk has a log and no rows, as a witness's, whatever the config says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VoteRequest:
    """A request for a vote in `term`; as a pre-vote, the question whether the voter would give it [thesis §9.6]."""

    to_uuid: str
    from_uuid: str
    term: int
    last: OpId
    pre_vote: bool = False
    transfer: bool = False
    """A planned transfer: the voter does not check whether it hears a live leader [kudu raft-config-change; thesis
    §3.10]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VoteReply:
    """Granted: `term` is the requested term. Denied: `term` is the voter's own, and `reason` is a text for people."""

    to_uuid: str
    from_uuid: str
    term: int
    granted: bool
    pre_vote: bool = False
    code: Code = Code.OK
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeoutNow:
    """The leader's request that a caught-up follower campaign at once [thesis §3.10]. `last`: the leader's last
    OpId."""

    to_uuid: str
    from_uuid: str
    term: int
    last: OpId


Message = AppendEntries | AppendReply | VoteRequest | VoteReply | TimeoutNow
