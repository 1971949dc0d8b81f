"""Elections: timers, pre-vote, votes, and how a term begins [raft §5.2, §5.4.1; thesis §4.2.3, §9.6]."""

from __future__ import annotations

from nyala.replica.types import Code, EntryKind, limits

from .messages import TimeoutNow, VoteReply, VoteRequest
from .quorum import VoteResult, tally
from .ready import Role
from .replication import start_leading
from .roles import become_follower
from .state import State

YIELD_TIMEOUTS = 4
"""A voter that yields stands for election only after so many of the longest timeouts without a leader. Only it may have
the newest entries, and then no other voter can win."""


def tick_passive(s: State) -> None:
    """Count one tick of a replica that is not leader. Only an electable voter's timer starts an election (scenario
    97)."""
    s.election.ticks_since_leader += 1
    if not s.electable:
        return
    s.election.elapsed += 1
    if s.election.elapsed >= s.election.timeout:
        if yields(s) and s.election.elapsed < YIELD_TIMEOUTS * s.options.election_ticks_max:
            return
        campaign(s)


def yields(s: State) -> bool:
    """Whether this voter leaves leading to the others."""
    return len(s.voters) > 1 and s.yields()


def campaign(s: State, *, transfer: bool = False) -> None:
    """Start an election: with a pre-vote, unless the leader itself asked for the election (a planned transfer)."""
    s.election.restart_timer()
    if not s.electable or s.hard.withheld is not None:
        s.trace("no campaign: " + ("the log's tail is damaged" if s.electable else "not an electable voter"))
        return
    if s.hard.term >= limits.RAFT_TERM_MAX:
        s.trace(f"no campaign: no term follows {s.hard.term}")
        return
    if transfer:
        _ask_for_votes(s, transfer=True)
        return
    s.leader_uuid = None
    s.set_role(Role.PRE_CANDIDATE)
    s.election.votes = {s.uuid: True}
    s.trace(f"pre-campaign for term {s.hard.term + 1}")
    for uuid in s.voters:
        if uuid != s.uuid:
            s.send(VoteRequest(to_uuid=uuid, from_uuid=s.uuid, term=s.hard.term + 1, last=s.last, pre_vote=True))
    _count(s)


def _ask_for_votes(s: State, *, transfer: bool) -> None:
    """Enter the next term with our own vote. The requests wait until term and vote are durable, because a restart must
    find them again. Our own vote also counts only from then on (`on_own_vote_durable`)."""
    s.leader_uuid = None
    s.set_role(Role.CANDIDATE)
    s.hard.set_term(s.hard.term + 1, s.uuid)
    s.election.votes = {}
    s.trace("campaign" + (" by transfer" if transfer else ""))
    for uuid in s.voters:
        if uuid != s.uuid:
            s.send(VoteRequest(to_uuid=uuid, from_uuid=s.uuid, term=s.hard.term, last=s.last, transfer=transfer))


def on_own_vote_durable(s: State) -> None:
    """Count a candidate's own vote: term and vote are on disk now."""
    if s.role is Role.CANDIDATE and s.hard_state_durable:
        s.election.votes[s.uuid] = True
        _count(s)


def on_vote_request(s: State, m: VoteRequest) -> None:
    """Give or deny a vote; a pre-vote writes nothing here. A denial names our own term."""
    reason = _why_not(s, m)
    if not reason and not m.pre_vote:
        if m.term > s.hard.term:
            become_follower(s, m.term, None, f"vote request of {m.from_uuid}")
        reason = _why_not_in_this_term(s, m)
    granted = not reason
    if granted and not m.pre_vote:
        s.hard.set_term(m.term, m.from_uuid)
        s.election.restart_timer()
    s.trace(f"{'pre-vote' if m.pre_vote else 'vote'} for {m.from_uuid} in term {m.term}: {reason or 'granted'}")
    reply = VoteReply(
        to_uuid=m.from_uuid,
        from_uuid=s.uuid,
        term=m.term if granted else s.hard.term,
        granted=granted,
        pre_vote=m.pre_vote,
        code=Code.OK if granted else Code.ILLEGAL_STATE,
        reason=reason,
    )
    s.send(reply)


def _why_not(s: State, m: VoteRequest) -> str:
    """The reason to deny a vote without adopting even the request's term; empty if there is none. D-3, D-4, D-5."""
    if m.term < s.hard.term or (m.pre_vote and m.term == s.hard.term):
        return "old term"
    if not m.transfer and not (m.term == s.hard.term and s.hard.voted_for == m.from_uuid):
        # A candidate that does not hear a live leader must not depose it [kudu raft-config-change, "Preventing
        # disruptive servers"]. A restarted voter may have acknowledged a heartbeat round that extended the
        # leader's lease, so it waits as well.
        if s.role is Role.LEADER or s.election.ticks_since_leader < s.options.election_ticks_min:
            return "a leader was heard"
        if s.ticks < s.election.withhold_until:
            return "restarted a moment ago"
    if s.hard.withheld is not None:
        return "the log's tail is damaged"
    if m.pre_vote and m.last < s.last:
        return f"our log is ahead: {s.last}"
    return ""


def _why_not_in_this_term(s: State, m: VoteRequest) -> str:
    if s.hard.voted_for not in (None, m.from_uuid):
        return f"voted for {s.hard.voted_for}"
    if s.leader_uuid is not None:
        return f"{s.leader_uuid} leads this term"
    return f"our log is ahead: {s.last}" if m.last < s.last else ""


def on_vote_reply(s: State, m: VoteReply) -> None:
    """Count an answer of the election under way; the caller has adopted a higher term of a denial already."""
    asked = s.hard.term + 1 if m.pre_vote else s.hard.term
    if s.role is not (Role.PRE_CANDIDATE if m.pre_vote else Role.CANDIDATE):
        return
    if m.granted and m.term != asked:
        return
    s.election.votes.setdefault(m.from_uuid, m.granted)
    _count(s)


def _count(s: State) -> None:
    result = tally(s.voters, s.election.votes)
    if result is VoteResult.LOST:
        become_follower(s, s.hard.term, None, "election lost")
    elif result is VoteResult.WON and s.role is Role.PRE_CANDIDATE:
        _ask_for_votes(s, transfer=False)
    elif result is VoteResult.WON:
        _become_leader(s)


def _become_leader(s: State) -> None:
    """Lead, and append the entry with which a term begins: it commits everything before it [raft §8; §5.4.2]. D-12."""
    s.set_role(Role.LEADER)
    s.leader_uuid = s.uuid
    s.trace("leader")
    s.lead.term_start = s.append_own(EntryKind.NOOP, s.next_hybrid_time(), 0, b"", b"", 0).index
    start_leading(s)


def on_timeout_now(s: State, m: TimeoutNow) -> None:
    """Campaign at once, without a pre-vote, because the leader of this term hands over to us [thesis §3.10]."""
    if s.role is not Role.FOLLOWER or s.last < m.last:
        s.trace(f"no takeover from {m.from_uuid}: {s.role} at {s.last}")
        return
    if yields(s):
        s.trace(f"no takeover from {m.from_uuid}: others shall lead")
        return
    campaign(s, transfer=True)
