"""Decides when an entry is committed [raft §5.3, §5.4.2], and what follows from that."""

from __future__ import annotations

from nyala.replica.types import check

from .quorum import reached
from .ready import Role
from .roles import become_follower, settle_configs
from .state import State


def advance_commit(s: State) -> None:
    """Leader: commit what a majority of the active config's voters hold durably, if it is of our own term.

    Our own log counts up to `persisted` only, and not at all if we are not a voter [thesis §4.2.2].
    """
    if s.role is not Role.LEADER:
        return
    marks = {uuid: p.match for uuid, p in s.lead.progress.items()}
    marks[s.uuid] = s.persisted
    index = reached(s.voters, marks)
    if s.log.term_at(index) == s.hard.term:
        commit_to(s, index)


def commit_to(s: State, index: int) -> None:
    """Commit everything up to `index`."""
    if index <= s.commit_index:
        return
    check(index <= s.last.index, "only what is in the log can be committed", index=index, last=s.last)
    opened = s.commit_index < s.lead.term_start <= index
    s.commit_index = index
    settle_configs(s)
    if s.role is not Role.LEADER:
        return
    if s.uuid not in s.hard.configs[0].voters:
        become_follower(s, s.hard.term, None, "this config does not let us lead")
    elif opened or s.out.config_committed is not None:
        # Followers learn of ordinary commits with the next message; of these two they should learn at once.
        s.lead.round_wanted = True
