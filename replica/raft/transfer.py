"""Leadership transfer [thesis §3.10]: the leader refuses writes; the target catches up and gets TimeoutNow, in time or
never.

A transfer waits while a change of voters is uncommitted. Only the leader that made the change can take it back
(`aborting.py`), and if it cannot be committed, no successor with it can be elected either.
"""

from __future__ import annotations

from nyala.replica.types import Code, Refused

from . import lease
from .messages import TimeoutNow
from .progress import Progress, ProgressState
from .ready import Role
from .state import State


def check_leader(s: State) -> None:
    """Raise NOT_LEADER unless this replica leads."""
    if s.role is not Role.LEADER:
        raise Refused(Code.NOT_LEADER, "this replica does not lead", detail=s.leader_uuid or "", uuid=s.uuid)


def check_open(s: State) -> None:
    """Refuse changes of the log while leadership is being handed over, or before an entry of our term is committed."""
    check_leader(s)
    if s.lead.transfer_target is not None:
        raise Refused(Code.STEPPING_DOWN, "leadership is being transferred", detail=s.lead.transfer_target)
    if s.commit_index < s.lead.term_start:
        raise Refused(Code.NOT_READY, "no entry of this term is committed yet", term=s.hard.term)


def transfer_leadership(s: State, target: str | None) -> None:
    """Begin to hand over; see `RaftCore.transfer_leadership` for the refusals."""
    check_leader(s)
    if target == s.uuid:
        return
    if s.lead.transfer_target is not None:
        raise Refused(Code.ALREADY_INPROGRESS, "leadership is being transferred", detail=s.lead.transfer_target)
    target = target or most_up_to_date(s)
    if target is None:
        raise Refused(Code.NOT_READY, "no other voter is in touch")
    member = s.hard.active_config.member(target)
    if member is None:
        raise Refused(Code.NOT_FOUND, "not a member", uuid=target)
    if not member.votes or not member.holds_data:
        raise Refused(Code.INVALID_ARGUMENT, "cannot lead: not a voter that holds data", uuid=target)
    if s.lead.progress[target].state is ProgressState.COPY:
        raise Refused(Code.ILLEGAL_STATE, "needs a tablet copy first", uuid=target)
    s.mark_active()
    s.lead.transfer_target, s.lead.transfer_elapsed, s.lead.transfer_sent = target, 0, False
    s.trace(f"transfer to {target}")
    continue_transfer(s)


def most_up_to_date(s: State) -> str | None:
    """The electable voter with the longest matching log among those in touch; among equals the first by uuid. CC-27."""
    electable = [p for u, p in s.lead.progress.items() if u in s.voters and u not in s.witnesses]
    in_touch = [p for p in electable if p.contact_ticks <= s.options.election_ticks_max]
    fit = [p for p in in_touch if p.state is not ProgressState.COPY]
    return max(fit, key=_match).uuid if fit else None


def _match(p: Progress) -> int:
    return p.match


def continue_transfer(s: State) -> None:
    """Send TimeoutNow once the target has every entry, and the voters are those of the committed config."""
    target = s.lead.transfer_target
    if target is None or s.lead.transfer_sent or s.voters != s.hard.configs[0].voters:
        return
    if s.lead.progress[target].match == s.last.index:
        s.lead.transfer_sent = True
        lease.give_up(s.lead)
        s.send(TimeoutNow(to_uuid=target, from_uuid=s.uuid, term=s.hard.term, last=s.last))


def tick_transfer(s: State) -> None:
    """Give up a transfer that takes longer than one minimum election timeout, and accept writes again."""
    s.lead.transfer_elapsed += 1
    if s.lead.transfer_target is not None and s.lead.transfer_elapsed >= s.options.election_ticks_min:
        abort_transfer(s, "timed out")


def abort_transfer(s: State, why: str) -> None:
    s.trace(f"transfer to {s.lead.transfer_target} ends: {why}")
    s.lead.transfer_target = None
