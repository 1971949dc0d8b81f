"""Taking an uncommitted config change back [kudu raft-tablet-copy, "Future work"; DIVERGENCES D-19].

A change is in force from its entry on, so one that makes a silent server a voter can leave the leader without a
majority to commit it. The leader then appends the committed config once more. The pending config differs from it by at
most one voter: every majority of one meets every majority of the other, so a leader elected under either holds
whatever was committed under either. No entry is truncated, no term is forced, no members are set by hand.
"""

from __future__ import annotations

from nyala.replica.types import Code, OpId, RaftConfig, Refused

from .hard import Hard
from .membership import append_config
from .quorum import VoteResult, reached, tally
from .state import State
from .transfer import abort_transfer, check_leader


def abort_config(s: State, pending: OpId | None, why: str) -> OpId:
    """Append the committed config again; see `RaftCore.abort_config` for the refusals."""
    check_leader(s)
    if s.hard.pending_config is None:
        raise Refused(Code.NOT_FOUND, "no config change is under way", committed=s.hard.configs[0].opid)
    if pending not in (None, s.hard.pending_config.opid):
        raise Refused(
            Code.CAS_FAILED, "another change is under way", detail=str(s.hard.pending_config.opid), meant=pending
        )
    if s.commit_index < s.lead.term_start:
        raise Refused(Code.NOT_READY, "no entry of this term is committed yet", term=s.hard.term)
    if is_abort(s.hard):
        raise Refused(Code.ALREADY_INPROGRESS, "it is being taken back already", pending=s.hard.pending_config.opid)
    if s.lead.transfer_target is not None:
        raise Refused(Code.STEPPING_DOWN, "leadership is being transferred", detail=s.lead.transfer_target)
    return _take_back(s, s.hard.pending_config, why)


def _take_back(s: State, pending: RaftConfig, why: str) -> OpId:
    s.lead.aborted = pending.opid
    s.trace(f"config {s.lead.aborted} is taken back: {why}")
    # The decision stays the pending one's: it was carried out once, and must not be again.
    return append_config(s, s.hard.configs[0].members, pending.decision)


def is_abort(hard: Hard) -> bool:
    """Whether the pending config is the committed one again."""
    return hard.pending_config is not None and hard.pending_config.members == hard.configs[0].members


def abort_instead_of_stepping_down(s: State, heard: dict[str, bool]) -> bool:
    """Check-quorum found no majority of the pending config: if there is one of the committed config, the change is what
    is wrong, not the leader. True if it was taken back."""
    if not _can_abort(s) or tally(s.hard.configs[0].voters, heard) is not VoteResult.WON:
        return False
    if s.lead.transfer_target is not None:
        abort_transfer(s, "no quorum of the pending config was heard")
    abort_config(s, None, "no quorum of it was heard for an election timeout")
    return True


def abort_when_overdue(s: State) -> None:
    """Take back what has been pending for too long, if that helps: the committed config's voters could commit it.

    A change of voters for which a transfer waits is taken back sooner and in any case. The disk that is missing may be
    this leader's own, and the voter that it removed may be the one that is needed.
    """
    pending = s.hard.pending_config
    if pending is None or not _can_abort(s):
        return
    waits = s.ticks - s.lead.pending_since
    if s.lead.transfer_target is not None:
        if waits >= s.options.election_ticks_min and s.voters != s.hard.configs[0].voters:
            _take_back(s, pending, f"not committed for {waits} ticks, and leadership cannot be handed over with it")
        return
    if waits < s.options.config_abort_ticks:
        return
    marks = {uuid: p.match for uuid, p in s.lead.progress.items()}
    marks[s.uuid] = s.persisted
    index = pending.opid.index
    if reached(s.hard.configs[0].voters, marks) >= index > reached(s.voters, marks):
        _take_back(s, pending, f"not committed for {waits} ticks")


def _can_abort(s: State) -> bool:
    return s.hard.pending_config is not None and not is_abort(s.hard) and s.commit_index >= s.lead.term_start
