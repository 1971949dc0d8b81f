"""The follower's side of the log: how it changes by an AppendEntries, and when it acknowledges that [raft §5.3]."""

from __future__ import annotations

from itertools import dropwhile

from nyala.replica.types import EntryKind, OpId, check

from .commitment import commit_to
from .membership import adopt_config
from .messages import AppendEntries, AppendReply
from .quiet import agrees
from .ready import Role
from .roles import become_follower, roll_back_configs
from .state import State


def on_append(s: State, m: AppendEntries) -> None:
    """Handle an append of this term's leader."""
    check(s.role is not Role.LEADER, "one leader per term", term=s.hard.term, uuid=s.uuid, other=m.from_uuid)
    check(
        s.leader_uuid in (None, m.from_uuid),
        "one leader per term",
        term=s.hard.term,
        known=s.leader_uuid,
        m=m.from_uuid,
    )
    if s.leader_uuid is None:
        become_follower(s, s.hard.term, m.from_uuid, "append")
    # The leader counts as heard on receipt, not when the entries are durable: else a slow disk would make it look dead.
    s.election.ticks_since_leader = 0
    s.election.elapsed = 0
    s.election.checks = 0
    s.quiet = False
    conflict = _conflict_index(s, m.prev)
    if conflict is not None:
        s.send(_reply(s, m, last=s.last, mismatch=True, conflict_index=conflict))
        return
    _take(s, m)
    end = m.entries[-1].opid if m.entries else m.prev
    commit_to(s, min(m.commit_index, end.index))
    if m.safe_time:
        s.out.safe_time = (end.index, m.safe_time)
    s.quiet = agrees(s, m)
    _acknowledge(s, m, end)


def _conflict_index(s: State, prev: OpId) -> int | None:
    """None if our log contains `prev`; otherwise the first index of our conflicting term, or one past our log's end.

    Entries that log GC removed from our log are committed, so every later leader's log has them [raft §5.4.3].
    """
    first = min(prev.index, s.last.index + 1)
    term = s.log.term_at(first)
    if first < s.log.first_index or term == prev.term:
        return None
    while first - 1 > s.commit_index and s.log.term_at(first - 1) == term:
        first -= 1
    return first


def _take(s: State, m: AppendEntries) -> None:
    """Keep equal entries, cut a tail that disagrees, append the rest. A shorter message cuts nothing: it may be an old
    one."""
    fresh = tuple(dropwhile(lambda e: e.opid.index <= s.commit_index or _holds(s, e.opid), m.entries))
    if not fresh:
        return
    keep = fresh[0].opid.index - 1
    if keep < s.last.index:
        s.truncate_after(keep)
        roll_back_configs(s, keep)
    s.append_received(fresh)
    for entry in fresh:
        if entry.kind is EntryKind.CONFIG:
            adopt_config(s, s.decode_config(entry.meta).with_opid(entry.opid))


def _holds(s: State, opid: OpId) -> bool:
    return s.log.term_at(opid.index) == opid.term


def _acknowledge(s: State, m: AppendEntries, end: OpId) -> None:
    """Report up to which entry our log is durable and equal to the leader's.

    An append is acknowledged once it is durable. A heartbeat is answered at once, for the durable part, so that a slow
    disk does not make us look dead. D-2.
    """
    if m.entries and end.index > s.persisted:
        s.send_after_sync(_reply(s, m, last=end))
    else:
        s.send(_reply(s, m, last=min(end, s.durable)))


def _reply(s: State, m: AppendEntries, *, last: OpId, mismatch: bool = False, conflict_index: int = 0) -> AppendReply:
    return AppendReply(
        to_uuid=m.from_uuid,
        from_uuid=s.uuid,
        term=s.hard.term,
        mismatch=mismatch,
        last=last,
        conflict_index=conflict_index,
        commit_index=s.commit_index,
        round=m.round,
        applied_index=s.applied_index,
        quiet=s.quiet,
        no_data=s.hard.no_data,
    )
