"""Refuses messages that no honest peer can have sent: with a reason, and without any change.

Two pure functions, each of which returns the reason, or an empty text if there is none:

- `invalid_reason(message)`: why no replica in any state can send this. It reads the message alone.
- `conflict_reason(state, message)`: why no peer of *this* replica can send this, given what this replica knows for
  certain: its term, its own log if it leads, its commit index, its configs.

A message that passes may still be false (a vote that was never given, a position that is not durable at its sender):
Raft trusts its members there. It cannot break an invariant of this replica. `replica/transport/DESIGN.md` has a table
of all fields; the tests check it row by row.
"""

from __future__ import annotations

from nyala.replica.types import (
    MAX_HYBRID_TIME,
    PORT_MAX,
    Code,
    DataState,
    Entry,
    EntryKind,
    OpId,
    RaftConfig,
    ReplicaError,
    generation_of,
    limits,
    offset_in_generation,
)

from .messages import AppendEntries, AppendReply, Message, TimeoutNow, VoteReply, VoteRequest
from .persistent_state import PersistentState
from .ready import Role
from .state import State

_REPLY_CODES = frozenset(
    (
        Code.OK,
        Code.INVALID_NAME,
        Code.INVALID_TERM,
        Code.TABLET_NOT_FOUND,
        Code.TABLET_DELETED,
        Code.NOT_READY,
        Code.TABLET_FAILED,
    )
)
_TERM_MIN = {AppendEntries: 1, AppendReply: 0, VoteRequest: 1, VoteReply: 0, TimeoutNow: 1}
"""The lowest term of each message. No replica leads or campaigns in term 0; one that has seen no election may deny a
vote in it."""


# ------------------------------------------------------------------------------------------- by the message alone


def invalid_reason(m: Message) -> str:
    """Why no replica, in any state, can have sent `m`; empty if one can."""
    if not m.from_uuid or m.from_uuid == m.to_uuid:
        return f"its sender is {m.from_uuid or 'nobody'}, its receiver {m.to_uuid}"
    if not _TERM_MIN[type(m)] <= m.term <= limits.RAFT_TERM_MAX:
        return f"term {m.term} is no term of such a message"
    if isinstance(m, AppendEntries):
        return _impossible_append(m)
    if isinstance(m, AppendReply):
        return _impossible_append_reply(m)
    if isinstance(m, VoteReply):
        return _impossible_vote_reply(m)
    if not is_position(m.last):
        return f"last, {m.last}, is no position of a log"
    if isinstance(m, TimeoutNow):
        same = m.last.term == m.term
        return "" if same else f"the log of a leader of term {m.term} does not end at {m.last}"
    if m.last.term >= m.term:
        return f"a candidate of term {m.term} cannot have an entry of its own term or a later one: {m.last}"
    return "it is a pre-vote and a transfer at once" if m.pre_vote and m.transfer else ""


def _impossible_append(m: AppendEntries) -> str:
    if not is_position(m.prev):
        return f"prev, {m.prev}, is no position of a log"
    before = m.prev
    for entry in m.entries:
        if entry.opid.index != before.index + 1 or not before.term <= entry.opid.term:
            return f"entry {entry.opid} cannot follow {before}"
        if why := _impossible_entry(entry):
            return f"entry {entry.opid}: {why}"
        before = entry.opid
    if before.term > m.term or not is_position(before):
        return f"a leader of term {m.term} cannot have an entry {before}"
    for name, value, most in (
        ("commit_index", m.commit_index, limits.RAFT_INDEX_MAX),
        ("round", m.round, limits.RAFT_INDEX_MAX),
        ("safe_time", m.safe_time, MAX_HYBRID_TIME),
    ):
        if not 0 <= value <= most:
            return f"{name} is {value}, not between 0 and {most}"
    return "it asks for quiet and brings entries" if m.quiet and m.entries else ""


def _impossible_entry(entry: Entry) -> str:
    if not 0 <= entry.hybrid_time <= MAX_HYBRID_TIME:
        return f"its hybrid time is {entry.hybrid_time}"
    if not 0 <= entry.schema_id < 1 << 31:
        return f"its schema id is {entry.schema_id}"
    if entry.kind is EntryKind.NOOP and (entry.meta or entry.payload):
        return "an empty entry that has content"
    if entry.kind is EntryKind.CONFIG and entry.payload:
        return "a config with a payload"
    return ""


def _impossible_append_reply(m: AppendReply) -> str:
    if m.code not in _REPLY_CODES:
        return f"{m.code.name} is no answer to an append"
    if not is_position(m.last):
        return f"last, {m.last}, is no position of a log"
    for name, value in (
        ("conflict_index", m.conflict_index),
        ("commit_index", m.commit_index),
        ("round", m.round),
        ("applied_index", m.applied_index),
    ):
        if not 0 <= value <= limits.RAFT_INDEX_MAX:
            return f"{name} is {value}, not between 0 and {limits.RAFT_INDEX_MAX}"
    if m.code is not Code.OK:
        return f"{m.code.name} and the state of a log at once" if m.mismatch or m.quiet or m.conflict_index else ""
    if m.data_state is not DataState.READY:
        return f"a log answers, and its data state is {m.data_state.name}"
    if m.last.term > m.term:
        return f"a replica in term {m.term} cannot hold {m.last}"
    if m.applied_index > m.commit_index:
        return f"it applied {m.applied_index} and knows only {m.commit_index} committed"
    if m.mismatch:
        fits = m.commit_index < m.conflict_index <= m.last.index + 1 and not m.quiet
        return (
            "" if fits else f"a conflict at {m.conflict_index}, commit {m.commit_index}, last {m.last}, quiet {m.quiet}"
        )
    return f"a conflict at {m.conflict_index} and none at once" if m.conflict_index else ""


def _impossible_vote_reply(m: VoteReply) -> str:
    if m.granted and (m.code is not Code.OK or m.term == 0):
        return f"a vote granted in term {m.term} with {m.code.name}"
    if len(m.reason) > limits.VOTE_REASON_CHARS_MAX:
        return f"a reason of {len(m.reason)} characters, more than {limits.VOTE_REASON_CHARS_MAX}"
    return ""


def is_position(opid: OpId) -> bool:
    """Whether a log can have this position: 0.0 (before the first entry), or term and index of at least 1."""
    if opid.term < 1 or opid.index < 1:
        return opid.term == opid.index == 0
    return opid.term <= limits.RAFT_TERM_MAX and opid.index <= limits.RAFT_INDEX_MAX


def invalid_config_reason(config: RaftConfig) -> str:
    """Why no leader can have put `config` into its log; empty if one can."""
    if not any(m.votes and m.holds_data for m in config.members):
        return "nobody of it could lead"
    if len(config.members) > limits.CONFIG_MEMBERS_MAX:
        return f"{len(config.members)} members, more than {limits.CONFIG_MEMBERS_MAX}"
    if min(config.decision) < 0:
        return f"its decision is {config.decision}"
    for member in config.members:
        if any(not 0 <= a.port <= PORT_MAX or len(a.host) > limits.HOST_CHARS_MAX for a in member.addresses):
            return f"an address of {member.uuid} is none"
    return ""


def unheld_reason(config: RaftConfig) -> str:
    """Why no replica of a tablet can hold the committed `config`, by the config alone; empty if one can. A master could
    not read such a config from its catalog again, and other servers could not call its members."""
    if why := invalid_config_reason(config):
        return why
    term, index = config.opid
    if not (0 <= term <= limits.RAFT_TERM_MAX and 0 <= index <= limits.RAFT_INDEX_MAX):
        return f"{config.opid} is no position of a log"
    if max(config.decision) > limits.NUMBER_MAX:
        return f"its decision is {config.decision}"
    for member in config.members:
        if len(member.addresses) > limits.REPEATED["Member.addresses"]:
            return f"{member.uuid} has {len(member.addresses)} addresses"
        for address in member.addresses:
            if not address.host or not address.port:
                return f"{address} of {member.uuid} lacks a host or a port"
    return ""


# --------------------------------------------------------------------------------------- by what is certain here


def conflict_reason(s: State, m: Message) -> str:
    """Why no honest peer can have sent `m` to this replica; empty if one can. A stale message is no contradiction."""
    if m.to_uuid != s.uuid or generation_of(m.term) != generation_of(s.hard.term) or m.term < s.hard.term:
        return ""  # `RaftCore.step` answers or ignores it, and uses none of its content
    if too_far(s.hard.term, m.term):
        return f"term {m.term} is too far above term {s.hard.term} here"
    if isinstance(m, AppendEntries):
        return _contradicts_append(s, m)
    if isinstance(m, AppendReply):
        return _contradicts_append_reply(s, m)
    if isinstance(m, VoteReply):
        return _contradicts_vote_reply(s.hard, m)
    if isinstance(m, TimeoutNow):
        if m.term > s.hard.term:
            return f"it hands over term {m.term}, of which nothing was acknowledged here"
        return _other_leader(s, m)
    return ""


def too_far(own: int, term: int) -> bool:
    """Whether no group can have reached `term`, whatever this replica has missed since its own term.

    A replica never gives up a term that it has adopted, and after the last term of a generation no replica can be
    elected: so one message must not bring a group there. Every term of the first half of a generation is allowed, since
    a replica that was away must be able to follow, and no group uses up that half. In the second half, a term may be a
    bounded distance above this replica's own.
    """
    further = generation_of(term) - generation_of(own)
    if not 0 <= further <= limits.RAFT_GENERATION_JUMP_MAX:
        return further > 0
    known = offset_in_generation(own) if further == 0 else 0
    return offset_in_generation(term) > max(limits.RAFT_TERMS_HONEST_MAX, known + limits.RAFT_TERM_JUMP_MAX)


def _other_leader(s: State, m: AppendEntries | TimeoutNow) -> str:
    if m.term == s.hard.term and s.role is Role.LEADER:
        return f"this replica leads term {s.hard.term}"
    if m.term == s.hard.term and s.leader_uuid not in (None, m.from_uuid):
        return f"{s.leader_uuid} leads term {s.hard.term}"
    return ""


def _contradicts_append(s: State, m: AppendEntries) -> str:
    if why := _other_leader(s, m):
        return why
    for opid in (m.prev, *(entry.opid for entry in m.entries)):
        if opid.index > s.commit_index:
            break
        term = s.log.term_at(opid.index)
        if term not in (None, opid.term):
            return f"its log holds {opid}, and {term}.{opid.index} is committed here"
    for entry in m.entries:
        if entry.kind is EntryKind.CONFIG and (why := _undecodable(s, entry)):
            return f"CONFIG entry {entry.opid}: {why}"
    return ""


def _undecodable(s: State, entry: Entry) -> str:
    try:
        return invalid_config_reason(s.decode_config(entry.meta))
    except ReplicaError as error:
        return str(error)


def _contradicts_append_reply(s: State, m: AppendReply) -> str:
    if m.term > s.hard.term and m.code is Code.OK:
        return f"it answers an append of term {m.term}, and none was sent in a term above {s.hard.term}"
    if m.term > s.hard.term or s.role is not Role.LEADER or m.code is not Code.OK:
        return ""
    if m.round > s.lead.round:
        return f"it echoes round {m.round}, and the latest is {s.lead.round}"
    if m.commit_index > s.last.index:
        return f"it knows {m.commit_index} committed, and this leader's log ends at {s.last}"
    if m.mismatch:
        return ""
    if m.last.index > s.last.index:
        return f"it acknowledges {m.last}, and this leader's log ends at {s.last}"
    term = s.log.term_at(m.last.index)
    return f"it acknowledges {m.last}, which is {term}.{m.last.index} here" if term not in (None, m.last.term) else ""


def _contradicts_vote_reply(hard: PersistentState, m: VoteReply) -> str:
    asked = hard.term + 1 if m.pre_vote else hard.term
    if m.granted and m.term > asked:
        return f"it grants a vote for term {m.term}, for which none was asked"
    return ""


def needs_proof(m: Message) -> bool:
    """Whether only a proven member may send `m` to a running replica. By the message alone.

    Without these messages no entry, commit index or clock changes: a leader's appends and its order to campaign,
    acknowledgements, and granted votes. What is left asks for a vote, denies one, or says that there is no log.
    """
    if isinstance(m, AppendReply):
        return m.code is Code.OK
    return m.granted if isinstance(m, VoteReply) else isinstance(m, AppendEntries | TimeoutNow)


def is_stranger(hard: PersistentState, m: Message) -> bool:
    """Whether an answer comes from a server that no config of this replica names: it is ignored, its term too.

    An honest server may send one: a removed member answers late, or another server now has a lost server's address.
    """
    if isinstance(m, VoteReply):
        return not any((member := config.member(m.from_uuid)) is not None and member.votes for config in hard.configs)
    return isinstance(m, AppendReply) and all(config.member(m.from_uuid) is None for config in hard.configs)
