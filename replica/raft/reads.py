"""Strong reads without a log entry: by the leader's lease, or else by ReadIndex [thesis §6.4]."""

from __future__ import annotations

from nyala.replica.types import Code

from . import lease
from .ready import Role
from .state import State


def read_index(s: State, token: int, *, judged: bool) -> None:
    """Answer a read at once if the caller passed the time (`judged`) and the lease holds; otherwise queue it.

    A queued read gets its index once a quorum of this term confirmed that we lead, in a heartbeat round that began
    after the read arrived, and once our own term has a committed entry (scenario 32).
    """
    if s.role is not Role.LEADER:
        s.out.read_failures.append((token, Code.NOT_LEADER))
        return
    s.mark_active()
    if judged and lease.holds(s):
        s.out.read_states.append((token, s.commit_index))
    elif len(s.lead.reads_waiting) + len(s.lead.reads_running) >= s.options.reads_pending_max:
        s.out.read_failures.append((token, Code.OVERLOADED))
    else:
        s.lead.reads_waiting.append(token)


def start_reads(s: State) -> None:
    """Leader: assign all waiting reads to the next round: one round confirms every read of a `Ready`."""
    if not s.lead.reads_waiting or s.commit_index < s.lead.term_start:
        return
    s.lead.round_wanted = True
    s.lead.reads_running += [(token, s.commit_index, s.lead.round + 1) for token in s.lead.reads_waiting]
    s.lead.reads_waiting.clear()


def finish_reads(s: State) -> None:
    """Leader: answer the reads whose round a majority has echoed."""
    if not s.lead.reads_running:
        return
    confirmed = lease.confirmed_round(s)
    done = [read for read in s.lead.reads_running if read[2] <= confirmed]
    s.out.read_states += [(token, index) for token, index, _ in done]
    del s.lead.reads_running[: len(done)]
