"""Leader lease: strong reads without asking anybody, for as long as nobody else can lead [thesis §6.4.1].

It rests on this promise: a voter gives no vote for `election_ticks_min` ticks after it heard a leader, and a restarted
voter for as long after its start. So once a majority has echoed a heartbeat round that began at time t, another leader
of this group can exist only after a minimum election timeout from t, by the voters' clocks. The lease ends before that,
by ours. Only acknowledgements of the leader's own term are echoes (`RaftCore.step` drops others), and each counts for
its own group, however many travel in one RPC.

Time is an input: `now`, the driver's monotonic clock in ticks. A round is stamped with the latest `now` that the core
was given, which is at or before its sending. A read is judged by the `now` that comes with it. Whatever pauses in
between, the lease looks older than it is, never younger. Ticks counted by `tick()` would not do, because a stopped
process counts none.
"""

from __future__ import annotations

from .leading import Leading
from .quorum import reached
from .state import State


def observe_clock(s: State, now: int | None) -> None:
    """Learn the time. A driver without a clock passes None, and its leaders have no lease."""
    if now is not None:
        s.clock = now if s.clock is None else max(s.clock, now)


def begin_round(s: State) -> None:
    """Begin the next heartbeat round and stamp it. One stamp a tick is enough: an older one only shortens the lease."""
    s.lead.round += 1
    if s.clock is None:
        return
    if not s.lead.round_stamps or s.lead.round_stamps[-1][1] < s.clock:
        s.lead.round_stamps.append((s.lead.round, s.clock))
    while s.clock - s.lead.round_stamps[0][1] >= max(1, s.options.lease_ticks):
        s.lead.round_stamps.popleft()


def confirmed_round(s: State) -> int:
    """The latest round that a majority of the active config's voters has echoed. Learners are no voters."""
    rounds = {uuid: p.round_acked for uuid, p in s.lead.progress.items()}
    rounds[s.uuid] = s.lead.round
    return reached(s.voters, rounds)


def holds(s: State) -> bool:
    """Leader: whether nobody else can have led this group up to `s.clock`.

    None before the term's first commit: until then a leader may not know everything that was acknowledged. None after
    TimeoutNow left: the election that it causes asks nobody to wait.
    """
    if s.commit_index < s.lead.term_start or s.lead.lease_given_up or s.clock is None:
        return False
    confirmed = confirmed_round(s)
    began = max((stamp for number, stamp in s.lead.round_stamps if number <= confirmed), default=None)
    return began is not None and s.clock - began < s.options.lease_ticks


def give_up(lead: Leading) -> None:
    """For the rest of this term: a TimeoutNow may arrive, and elect, at any later time. D-14."""
    lead.lease_given_up = True
