"""Takes an uncommitted config change back [kudu raft-tablet-copy, "Future work"; DIVERGENCES D-19].

A change is in force from its entry on. So a change that makes a silent server a voter can leave the leader without a
majority to commit it. The leader then appends the committed config once more. The pending config differs from it by at
most one voter: every majority of one overlaps every majority of the other, so a leader elected under either config has
everything that was committed under either. No entry is truncated, and no term and no members are set by hand.
"""

from __future__ import annotations

from nyala.replica.types import Code, OpId, Refused

from .membership import append_config
from .quorum import VoteResult, reached, tally
from .state import State
from .transfer import check_open


def abort_config(s: State, pending: OpId | None) -> OpId:
    """Append the committed config again; see `RaftCore.abort_config` for the refusals."""
    check_open(s)
    under_way = s.hard.pending_config
    if under_way is None:
        raise Refused(Code.NOT_FOUND, "no config change is under way", committed=s.hard.configs[0].opid)
    if pending not in (None, under_way.opid):
        raise Refused(Code.CAS_FAILED, "another change is under way", detail=str(under_way.opid), meant=pending)
    if under_way.members == s.hard.configs[0].members:
        raise Refused(Code.ALREADY_INPROGRESS, "it is being taken back already", pending=under_way.opid)
    return _take_back(s, "asked to")


def _take_back(s: State, why: str) -> OpId:
    pending = s.hard.active_config
    s.lead.aborted = pending.opid
    s.trace(f"config {s.lead.aborted} is taken back: {why}")
    # The config keeps the decision of the pending one, because that decision was carried out and must not be again.
    return append_config(s, s.hard.configs[0].members, pending.decision)


def abort_instead_of_stepping_down(s: State, heard: dict[str, bool]) -> bool:
    """After check-quorum found no majority of the config in force: take the change back if a majority of the committed
    config was heard, because then the change is at fault and not the leader. True if it was taken back."""
    if s.commit_index < s.lead.term_start or tally(s.hard.configs[0].voters, heard) is not VoteResult.WON:
        return False
    _take_back(s, "no quorum of it was heard for an election timeout")
    return True


def abort_when_overdue(s: State) -> None:
    """Take back a change of voters that has been pending for too long, if the committed config's voters hold it.

    If a transfer waits for the change, the leader takes it back sooner, and whether those voters have it or not: the
    hanging disk may be this leader's own, and the change may have removed the voter that is needed.
    """
    if s.voters == s.hard.configs[0].voters or s.commit_index < s.lead.term_start:
        return  # no change of voters is under way, or this leader may not propose one yet
    waits = s.ticks - s.lead.pending_since
    if s.lead.transfer_target is not None and waits >= s.options.election_ticks_min:
        _take_back(s, f"not committed for {waits} ticks, and leadership cannot be handed over with it")
    elif waits >= s.options.config_abort_ticks:
        matches = {uuid: p.match for uuid, p in s.lead.progress.items()}
        matches[s.uuid] = s.persisted
        if reached(s.hard.configs[0].voters, matches) >= s.hard.active_config.opid.index:
            _take_back(s, f"not committed for {waits} ticks")
