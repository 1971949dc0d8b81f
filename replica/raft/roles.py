"""Changes of role that every rule may cause: stepping down, following, and the role that follows from a config."""

from __future__ import annotations

from nyala.replica.types import Code

from .ready import Role
from .role_changes import PASSIVE_ROLES
from .state import State


def passive_role(s: State) -> Role:
    """The role that follows from the configs, for a replica that is neither leader nor candidate.

    A voter whose removal or demotion is not committed yet is still a follower. It may be the only replica with that
    entry. Then only it can be elected, by votes of the new config and without its own [thesis §4.2.2]. D-9.
    """
    members = [m for config in s.hard.configs if (m := config.member(s.uuid)) is not None]
    if any(m.votes for m in members):
        return Role.FOLLOWER
    return Role.LEARNER if s.hard.active_config.member(s.uuid) is not None else Role.NON_PARTICIPANT


def become_follower(s: State, term: int, leader_uuid: str | None, why: str) -> None:
    """Follow in `term` (not below ours). A leader's reads fail and its transfer ends; the election timer starts
    anew."""
    was, new_term = s.role, term > s.hard.term
    if new_term:
        s.hard.set_term(term, None)
    s.leader_uuid = leader_uuid
    if was is Role.LEADER:
        drop_leadership(s)
    if was not in PASSIVE_ROLES or new_term:
        s.election.restart_timer()
    s.set_role(passive_role(s))
    s.trace(f"follow {leader_uuid or 'nobody'}: {why}")


def drop_leadership(s: State) -> None:
    """Forget what only a leader knows."""
    s.out.read_failures += [(token, Code.NOT_LEADER) for token in s.lead.end_term()]
    # It heard no other leader while it led, so it may vote at once.
    s.election.ticks_since_leader = s.options.election_ticks_max


def config_in_force(s: State) -> None:
    """Recompute what follows from the active config. It is in force as soon as it is in the log [thesis §4.1]. A
    witness is not electable (D-11), by the config or by what its disk has."""
    s.voters = s.hard.active_config.voters
    member = next(
        (m for config in reversed(s.hard.configs) if (m := config.member(s.uuid)) is not None and m.votes), None
    )
    s.electable = member is not None and member.holds_data and not s.hard.no_data
    if s.role in PASSIVE_ROLES:
        s.set_role(passive_role(s))
    s.witnesses = tuple(m.uuid for m in s.hard.active_config.members if m.votes and not m.holds_data)


def settle_configs(s: State) -> None:
    """Forget configs below the last committed one, and hand that one out to be saved."""
    newest = s.hard.configs[0]
    while len(s.hard.configs) > 1 and s.hard.configs[1].opid.index <= s.commit_index:
        s.hard.configs.pop(0)
    if s.hard.configs[0] is not newest:
        config_in_force(s)
        s.out.config_committed = s.hard.configs[0]
        s.trace(f"config {s.hard.configs[0].opid} is committed")


def roll_back_configs(s: State, index: int) -> None:
    """Forget the configs of truncated entries [kudu raft-config-change, "Config change transaction details"]."""
    while len(s.hard.configs) > 1 and s.hard.configs[-1].opid.index > index:
        s.trace(f"config {s.hard.configs[-1].opid} is rolled back")
        s.hard.configs.pop()
    config_in_force(s)
