"""Leader lease: strong reads without a message, for as long as no other replica can lead [thesis §6.4.1].

It rests on this rule: a voter gives no vote for `election_ticks_min` ticks after it heard a leader, and a restarted
voter gives none for as long after its start. So once a majority has echoed a heartbeat round that began at time t,
another leader of this group can exist only after a minimum election timeout from t, by the voters' clocks. The lease
ends before that, by our clock. Only acknowledgements of the leader's own term are echoes (`RaftCore.step` drops
others), and each counts for its own group, however many are in one RPC.

Time is an input: `now`, the driver's monotonic clock in ticks. The core stamps a round with the latest `now` that it
got, which is at or before the sending. It judges a read by the `now` that comes with the read. So a pause in between
can only make the lease look older than it is, never younger. Counting `tick()` would not be enough, because a stopped
process counts no ticks.
"""

from __future__ import annotations

from .leading import Leading
from .quorum import reached
from .state import State


def observe_clock(s: State, now: int | None) -> None:
    """Store the time. A driver without a clock passes None, and its leaders have no lease."""
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
    """Leader: whether no other replica can have led this group up to `s.clock`.

    False before the term's first commit, because until then a leader may not know everything that was acknowledged.
    False after TimeoutNow was sent, because voters do not withhold their votes in the election that it causes.
    """
    if s.commit_index < s.lead.term_start or s.lead.lease_given_up or s.clock is None:
        return False
    confirmed = confirmed_round(s)
    began = max((stamp for number, stamp in s.lead.round_stamps if number <= confirmed), default=None)
    return began is not None and s.clock - began < s.options.lease_ticks


def give_up(lead: Leading) -> None:
    """End the lease for the rest of this term: a TimeoutNow may arrive, and cause an election, at any later time.
    D-14."""
    lead.lease_given_up = True
