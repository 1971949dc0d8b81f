"""Quiet groups: an idle group stops its timers and sends nothing, until something wakes it.

A leader whose term is open, with everything committed, durable and held by all, asks for quiet with its heartbeats
once it has been idle for `quiet_after_ticks`. A follower that agrees says so in its echo and stops its election timer.
When all have agreed in one period of asking, the leader stops its heartbeats. It does not wait for a member that is
cut off (the driver reports that, if the servers do not hear each other), as long as the others are a majority.

Going quiet changes no term, vote or log. It is safe because it makes no vote earlier. A quiet voter does not
count ticks since it heard a leader, so it votes later than it would have, never earlier. A quiet leader drops its
lease. It is live because a replica is quiet only while something would wake it:

- Any message but its own leader's heartbeats wakes a replica. One that wakes by itself asks its leader, which wakes
  and sends heartbeats to all. So a replica that restarts, campaigns, fails or writes finds the group awake.
- Batches from the leader's server show that the leader lives. If that server falls silent, the driver calls
  `server_silent`, and the silence counts as the leader's. If the server is heard again, or is another process, the
  driver calls `server_heard`.
- For every other case, the driver calls `probe_quiet_group` about once a minute. A quiet leader then sends heartbeats
  to all; a follower that heard nothing during three calls wakes and asks its leader.
"""

from __future__ import annotations

from .messages import AppendEntries, AppendReply, Message, VoteRequest
from .progress import Progress, ProgressState
from .quorum import VoteResult, tally
from .ready import Role
from .state import State

CHECKS_MISSED_MAX = 3
"""The number of calls of `probe_quiet_group` without a message after which a follower asks whether its leader still
leads."""


def asks(s: State) -> bool:
    """Leader: whether its heartbeats ask for quiet now."""
    if s.options.quiet_after_ticks == 0 or s.lead.idle_ticks < s.options.quiet_after_ticks:
        return False
    if not s.commit_index == s.persisted == s.last.index or s.lead.transfer_target is not None or s.lead.reads_running:
        return False
    if any(m.promote for m in s.hard.active_config.members):
        return False
    settled = {uuid: True for uuid, p in s.lead.progress.items() if _settled(s, p)}
    if any(uuid not in settled and uuid not in s.absent for uuid in s.lead.progress):
        return False
    return tally(s.voters, {**settled, s.uuid: True}) is VoteResult.WON


def _settled(s: State, p: Progress) -> bool:
    """Whether the peer is in touch, has every entry, and knows that all of them are committed."""
    whole = p.state is ProgressState.REPLICATE and p.match == s.last.index and p.commit_index == s.commit_index
    return whole and p.contact_ticks <= s.options.election_ticks_min and p.uuid not in s.absent


def agrees(s: State, m: AppendEntries) -> bool:
    """Follower: whether to go quiet after this append of its leader. A replica that must not vote yet does not."""
    if not m.quiet or s.options.quiet_after_ticks == 0:
        return False
    whole = m.commit_index == s.commit_index == s.last.index == s.persisted and s.hard.withheld is None
    return whole and s.hard_state_durable and s.ticks >= s.election.withhold_until


def begin_asking(s: State) -> bool:
    """Leader, at the start of a round: whether it asks for quiet. Only answers from the first such round on count."""
    asking = asks(s)
    if not asking:
        s.lead.quiet_round = 0
    elif s.lead.quiet_round == 0:
        s.lead.quiet_round = s.lead.round
    return asking


def rest_if_all_agreed(s: State) -> None:
    """Leader: go quiet once every peer that was asked has agreed since the asking began."""
    if s.quiet or s.lead.quiet_round == 0 or not asks(s):
        return
    if all(p.quiet_round >= s.lead.quiet_round or p.uuid in s.absent for p in s.lead.progress.values()):
        s.trace("quiet")
        s.quiet = True
        s.lead.round_stamps.clear()


def wake(s: State, why: str) -> None:
    """End the quiet of this replica and start its timers. A leader sends heartbeats to all at once; a follower asks its
    leader whether it still leads."""
    s.trace(f"awake: {why}")
    s.quiet = False
    s.lead.quiet_round = 0
    if s.role is Role.LEADER:
        s.lead.round_wanted = True
        return
    s.election.restart_timer()
    if s.leader_uuid is not None:
        s.send(
            AppendReply(
                to_uuid=s.leader_uuid,
                from_uuid=s.uuid,
                term=s.hard.term,
                last=s.last,  # In a quiet group all of the log is durable and committed.
                commit_index=s.commit_index,
                applied_index=s.applied_index,
                no_data=s.hard.no_data,
            )
        )


def disturbs(s: State, m: Message) -> bool:
    """Whether a message wakes the replica before it is handled. For appends `following.on_append` decides."""
    if not s.quiet or isinstance(m, AppendEntries) or (isinstance(m, AppendReply) and m.quiet):
        return False
    return isinstance(m, VoteRequest) or m.term >= s.hard.term


def server_silent(s: State, uuid: str, silent_ticks: int, delay_ticks: int) -> None:
    """Note that nothing came from that server for `silent_ticks`, so its replica of this group was silent for as
    long."""
    s.absent.add(uuid)
    if uuid == s.leader_uuid:
        # This also holds if another replica's vote request woke us first.
        s.election.ticks_since_leader = max(s.election.ticks_since_leader, silent_ticks)
    if _concerns(s, uuid):
        wake(s, f"nothing is heard from {uuid}")
        s.election.elapsed = min(silent_ticks, s.options.election_ticks_min) - delay_ticks


def server_heard(s: State, uuid: str) -> None:
    """Note that the server is heard again, or that it is another process than before."""
    s.absent.discard(uuid)
    if _concerns(s, uuid):
        wake(s, f"{uuid} is back")


def _concerns(s: State, uuid: str) -> bool:
    """Whether this replica is quiet, and the server is its leader's or, if it leads itself, one of its peers'."""
    return s.quiet and (uuid == s.leader_uuid or uuid in s.lead.progress)


def probe_quiet_group(s: State) -> None:
    """Called about once a minute: a quiet leader wakes, a quiet follower does so after `CHECKS_MISSED_MAX` calls."""
    if not s.quiet:
        return
    s.election.checks += 1
    if s.role is Role.LEADER or s.election.checks >= CHECKS_MISSED_MAX:
        wake(s, "the driver probes the group")
