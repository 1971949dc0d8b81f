"""Strong reads without a log entry: by the leader's lease, or else by ReadIndex [thesis §6.4]."""

from __future__ import annotations

from collections.abc import Sequence

from nyala.replica.base import Code

from . import lease
from .ready import Role
from .state import State


def read_index(s: State, token: int, *, judged: bool) -> None:
    """Answer a read at once if it comes with the time (`judged`) and the lease holds; queue it otherwise.

    A queued read is answered with an index once a quorum of this term confirmed that we lead, in a heartbeat round that
    began after the read came in, and once our own term has a committed entry (scenario 32).
    """
    if s.role is not Role.LEADER:
        s.read_failures.append((token, Code.NOT_LEADER))
        return
    s.stir()
    if judged and lease.holds(s):
        s.read_states.append((token, s.commit_index))
    elif len(s.reads_waiting) + len(s.reads_running) >= s.options.reads_pending_max:
        s.read_failures.append((token, Code.OVERLOADED))
    else:
        s.reads_waiting.append(token)


def drop_reads(s: State, tokens: Sequence[int]) -> None:
    """Nobody waits for these any more; they make room for others."""
    gone = frozenset(tokens)
    s.reads_waiting = [token for token in s.reads_waiting if token not in gone]
    s.reads_running = [read for read in s.reads_running if read[0] not in gone]


def start_reads(s: State) -> None:
    """Give all waiting reads the next round, together: one round serves every read of a bundle."""
    if s.role is not Role.LEADER or not s.reads_waiting or s.commit_index < s.term_start:
        return
    s.round_wanted = True
    s.reads_running += [(token, s.commit_index, s.round + 1) for token in s.reads_waiting]
    s.reads_waiting.clear()


def finish_reads(s: State) -> None:
    """Answer the reads whose round a majority has echoed."""
    if s.role is not Role.LEADER or not s.reads_running:
        return
    confirmed = lease.confirmed_round(s)
    done = [read for read in s.reads_running if read[2] <= confirmed]
    s.read_states += [(token, index) for token, index, _ in done]
    del s.reads_running[: len(done)]
