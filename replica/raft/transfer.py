"""Leadership transfer [thesis §3.10]: writes are refused, the target catches up and gets TimeoutNow; or it times out.

A transfer waits while a change of voters is uncommitted. Only the leader that made the change can take it back
(`aborting.py`), and if it cannot be committed, nobody can be elected with it either.
"""

from __future__ import annotations

from nyala.replica.types import Code, Refused

from . import lease
from .messages import TimeoutNow
from .progress import Progress, ProgressState
from .ready import Role
from .state import State


def check_leader(s: State) -> None:
    """Refuse what only a leader may do."""
    if s.role is not Role.LEADER:
        raise Refused(Code.NOT_LEADER, "this replica does not lead", detail=s.leader_uuid or "", uuid=s.uuid)


def check_open(s: State) -> None:
    """Refuse what changes the log while leadership is being handed over, or before our term is proven."""
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
    target = most_up_to_date(s) if target is None else target
    member = s.hard.active_config.member(target) if target else None
    if target is None:
        raise Refused(Code.NOT_READY, "no other voter is in touch")
    if member is None:
        raise Refused(Code.NOT_FOUND, "not a member", uuid=target)
    if not member.votes or not member.holds_data:
        raise Refused(Code.INVALID_ARGUMENT, "cannot lead: not a voter that holds data", uuid=target)
    if s.lead.progress[target].state is ProgressState.COPY:
        raise Refused(Code.ILLEGAL_STATE, "needs a tablet copy first", uuid=target)
    s.stir()
    s.lead.transfer_target, s.lead.transfer_elapsed, s.lead.transfer_sent = target, 0, False
    s.trace(f"transfer to {target}")
    s.lead.sends_wanted = True
    continue_transfer(s)


def most_up_to_date(s: State) -> str | None:
    """The electable voter in touch with the longest matching log; the first by uuid among equals. CC-27."""
    fit = [p for p in s.lead.progress.values() if _fit(s, p)]
    return max(fit, key=lambda p: p.match).uuid if fit else None


def _fit(s: State, p: Progress) -> bool:
    member = s.hard.active_config.member(p.uuid)
    in_touch = p.state is not ProgressState.COPY and p.contact_ticks <= s.options.election_ticks_max
    return member is not None and member.votes and member.holds_data and in_touch


def continue_transfer(s: State) -> None:
    """Send TimeoutNow once the target holds everything, and the voters are those of the committed config."""
    p = s.lead.progress.get(s.lead.transfer_target or "")
    if p is None or s.lead.transfer_sent or p.match != s.last.index or s.voters != s.hard.configs[0].voters:
        return
    s.lead.transfer_sent = True
    lease.give_up(s.lead)
    s.send(TimeoutNow(to_uuid=p.uuid, from_uuid=s.uuid, term=s.hard.term, last=s.last))


def tick_transfer(s: State) -> None:
    """A transfer that takes longer than one minimum election timeout is given up, and writes go on."""
    if s.lead.transfer_target is None:
        return
    s.lead.transfer_elapsed += 1
    if s.lead.transfer_elapsed >= s.options.election_ticks_min:
        abort_transfer(s, "timed out")


def abort_transfer(s: State, why: str) -> None:
    s.trace(f"transfer to {s.lead.transfer_target} ends: {why}")
    s.lead.transfer_target, s.lead.transfer_sent = None, False
