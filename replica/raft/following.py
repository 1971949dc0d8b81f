"""The follower's side of the log: what an AppendEntries does to it, and when that is acknowledged [raft §5.3]."""

from __future__ import annotations

from nyala.replica.types import EntryKind, OpId, check

from .commitment import commit_to
from .membership import adopt_config
from .messages import AppendEntries, AppendReply
from .quiet import agrees
from .ready import Role
from .roles import become_follower, roll_back_configs
from .state import State


def on_append(s: State, m: AppendEntries) -> None:
    """An append of this term's leader."""
    check(s.role is not Role.LEADER, "one leader per term", term=s.hard.term, uuid=s.uuid, other=m.from_uuid)
    check(
        s.leader_uuid in (None, m.from_uuid),
        "one leader per term",
        term=s.hard.term,
        known=s.leader_uuid,
        m=m.from_uuid,
    )
    if s.leader_uuid is None or s.role in (Role.CANDIDATE, Role.PRE_CANDIDATE):
        become_follower(s, s.hard.term, m.from_uuid, "append")
    # Heard when received, not when durable: a slow disk must not make a live leader look dead (scenario 91).
    s.election.heard = 0
    s.election.elapsed = 0
    s.election.checks = 0
    s.quiet = False
    if not _well_formed(m):
        s.trace(f"append of {m.from_uuid} after {m.prev} is out of order: refused whole")
        return
    conflict = _conflict_index(s, m.prev)
    if conflict is not None:
        _reply(s, m, last=s.last, mismatch=True, conflict_index=conflict)
        return
    _take(s, m)
    end = m.entries[-1].opid if m.entries else m.prev
    commit_to(s, min(m.commit_index, end.index, s.last.index))
    if m.safe_time:
        s.out.safe_time = (end.index, m.safe_time)
    s.quiet = agrees(s, m)
    _acknowledge(s, m, end)


def _well_formed(m: AppendEntries) -> bool:
    """Indexes follow on from prev, terms never fall and never exceed the leader's (scenario 13)."""
    before = m.prev
    for entry in m.entries:
        if entry.opid.index != before.index + 1 or not before.term <= entry.opid.term <= m.term:
            return False
        before = entry.opid
    return True


def _conflict_index(s: State, prev: OpId) -> int | None:
    """None if our log contains prev; otherwise the first index of our conflicting term, or one past our log's end.

    An entry that is committed here is in every later leader's log [raft §5.4.3]. It is not compared, and may be gone.
    """
    if prev.index <= s.commit_index:
        return None
    if prev.index > s.last.index:
        return s.last.index + 1
    term = s.log.term_at(prev.index)
    if term == prev.term:
        return None
    first = prev.index
    while first - 1 > s.commit_index and s.log.term_at(first - 1) == term:
        first -= 1
    return first


def _take(s: State, m: AppendEntries) -> None:
    """Keep what we have, cut what disagrees, append the rest. A shorter message cuts nothing: it may be an old one."""
    for pos, entry in enumerate(m.entries):
        index = entry.opid.index
        if index <= s.commit_index:
            continue
        if index <= s.last.index:
            if s.log.term_at(index) == entry.opid.term:
                continue
            s.truncate_after(index - 1)
            roll_back_configs(s, index - 1)
        fresh = m.entries[pos:]
        s.append_received(fresh)
        for new in fresh:
            if new.kind is EntryKind.CONFIG:
                adopt_config(s, s.decode_config(new.meta).with_opid(new.opid))
        return


def _acknowledge(s: State, m: AppendEntries, end: OpId) -> None:
    """Say how far our log is durable and equal to the leader's.

    An append is acknowledged once it is durable. A heartbeat is answered at once, for as much as is durable: it proves
    that we are here, whatever our disk is doing. D-2.
    """
    if end.index <= s.persisted:
        _reply(s, m, last=end)
    elif m.entries or not s.hard_state_durable:
        _reply(s, m, last=end, promise=True)
    else:
        _reply(s, m, last=s.opid_at(s.persisted) or OpId(0, 0))


def _reply(
    s: State, m: AppendEntries, *, last: OpId, mismatch: bool = False, conflict_index: int = 0, promise: bool = False
) -> None:
    s.send(
        AppendReply(
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
        ),
        promise=promise,
    )
