"""Taking an uncommitted config change back [kudu raft-tablet-copy, "Future work"; DIVERGENCES D-19].

A change is in force from its entry on, so one that makes a silent server a voter can leave the leader without a
majority to commit it. The leader then appends the committed config once more. The pending config differs from it by at
most one voter: every majority of one meets every majority of the other, so whoever is elected under either holds
whatever was committed under either. No entry is truncated, no term is forced, no members are set by hand.
"""

from __future__ import annotations

from nyala.replica.base import Code, OpId, Refused

from .membership import append_config
from .quorum import VoteResult, reached, tally
from .state import State
from .transfer import abort_transfer, check_leader


def abort_config(s: State, pending: OpId | None, why: str) -> OpId:
    """Append the committed config again; see `RaftCore.abort_config` for the refusals."""
    check_leader(s)
    if s.pending_config is None:
        raise Refused(Code.NOT_FOUND, "no config change is under way", committed=s.configs[0].opid)
    if pending not in (None, s.pending_config.opid):
        raise Refused(Code.CAS_FAILED, "another change is under way", detail=str(s.pending_config.opid), meant=pending)
    if s.commit_index < s.term_start:
        raise Refused(Code.NOT_READY, "no entry of this term is committed yet", term=s.term)
    if is_abort(s):
        raise Refused(Code.ALREADY_INPROGRESS, "it is being taken back already", pending=s.pending_config.opid)
    if s.transfer_target is not None:
        raise Refused(Code.STEPPING_DOWN, "leadership is being transferred", detail=s.transfer_target)
    s.aborted = s.pending_config.opid
    s.trace(f"config {s.aborted} is taken back: {why}")
    # The decision stays the pending one's: it was carried out once, and must not be again.
    return append_config(s, s.configs[0].members, s.pending_config.decision)


def is_abort(s: State) -> bool:
    """Whether the pending config is the committed one again."""
    return s.pending_config is not None and s.pending_config.members == s.configs[0].members


def abort_instead_of_stepping_down(s: State, heard: dict[str, bool]) -> bool:
    """Check-quorum found no majority of the pending config: if there is one of the committed config, the change is what
    is wrong, not the leader. True if it was taken back."""
    if not _can_abort(s) or tally(s.configs[0].voters, heard) is not VoteResult.WON:
        return False
    if s.transfer_target is not None:
        abort_transfer(s, "no quorum of the pending config was heard")
    abort_config(s, None, "no quorum of it was heard for an election timeout")
    return True


def abort_when_overdue(s: State) -> None:
    """Take back what has been pending for too long, if that helps: the committed config's voters could commit it."""
    if not _can_abort(s) or s.transfer_target is not None or s.pending_config is None:
        return
    if s.ticks - s.pending_since < s.options.config_abort_ticks:
        return
    marks = {uuid: p.match for uuid, p in s.progress.items()}
    marks[s.uuid] = s.persisted
    index = s.pending_config.opid.index
    if reached(s.configs[0].voters, marks) >= index > reached(s.voters, marks):
        abort_config(s, None, f"not committed for {s.options.config_abort_ticks} ticks")


def _can_abort(s: State) -> bool:
    return s.pending_config is not None and not is_abort(s) and s.commit_index >= s.term_start
