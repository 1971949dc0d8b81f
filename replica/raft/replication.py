"""The leader's side of the log: what it sends to each peer, and what the answers mean [raft §5.3; thesis §10.2.1]."""

from __future__ import annotations

from nyala.replica.types import Code, DataState, Entry, OpId, check

from .aborting import abort_instead_of_stepping_down, abort_when_overdue
from .commitment import advance_commit
from .lease import begin_round
from .log_view import EntriesUnavailable, LogView
from .membership import promote_caught_up, refresh_progress
from .messages import AppendEntries, AppendReply
from .outputs import Outputs
from .progress import Progress, ProgressState
from .quiet import begin_asking, rest_if_all_agreed
from .quorum import VoteResult, tally
from .reads import finish_reads, start_reads
from .ready import CopyNeeded, EntriesNeeded, Role
from .roles import become_follower
from .state import State
from .transfer import continue_transfer, tick_transfer

_NO_LOG = {
    Code.TABLET_NOT_FOUND: DataState.DOES_NOT_EXIST,
    Code.TABLET_DELETED: DataState.DELETED,
    Code.NOT_READY: DataState.COPYING,
}
"""Codes of servers without a running replica of the group, and the data state that each means."""


def start_leading(s: State) -> None:
    """Begin a term: forget what earlier terms knew of the peers, and send the term's first entry with the first
    heartbeat."""
    s.lead.begin_term()
    refresh_progress(s)
    for p in s.lead.progress.values():
        # The optimistic guess: the peer lacks only the entry that begins the term.
        p.become_probe(s.lead.term_start)


def tick_leader(s: State) -> None:
    """Heartbeats, check-quorum, the transfer's deadline."""
    tick_transfer(s)
    for p in s.lead.progress.values():
        p.contact_ticks += 1
        p.behind_ticks = p.behind_ticks + 1 if p.match < s.last.index else 0
        if p.copy_due_ticks > 0:
            p.copy_due_ticks -= 1
    if s.witnesses:
        s.lead.sends_wanted = True  # witnesses need not wait for a peer that fell behind
    s.lead.idle_ticks += 1
    s.lead.heartbeat_elapsed += 1
    if s.lead.heartbeat_elapsed >= s.options.heartbeat_ticks:
        s.lead.round_wanted = True
    s.lead.quorum_check_elapsed += 1
    if s.lead.quorum_check_elapsed >= s.options.heartbeat_ticks:
        # It has its own counter, because rounds for reads postpone the next heartbeat but must not postpone this check.
        s.lead.quorum_check_elapsed = 0
        _check_quorum_and_retry(s)


def _check_quorum_and_retry(s: State) -> None:
    """Check-quorum; and try pending changes, transfers, promotions and copies again."""
    heard = _heard(s)
    if tally(s.voters, heard) is not VoteResult.WON and not abort_instead_of_stepping_down(s, heard):
        # Check-quorum [thesis §6.2]: a leader that cannot hear a majority must not keep clients waiting (scenario 30).
        become_follower(s, s.hard.term, None, "no quorum was heard for an election timeout")
        return
    abort_when_overdue(s)
    s.lead.transfer_sent = False
    continue_transfer(s)
    promote_caught_up(s)
    for p in s.lead.progress.values():
        ask_for_copy(s.out, p)


def _heard(s: State) -> dict[str, bool]:
    """The members that answered within an election timeout, the leader itself included."""
    heard = {uuid: True for uuid, p in s.lead.progress.items() if p.contact_ticks <= s.options.election_ticks_max}
    heard[s.uuid] = True
    return heard


# ----------------------------------------------------------------------------------------------------------- sending


def flush(s: State) -> None:
    """Turn the queued work since the last `Ready` into messages: proposals of one `Ready` are sent together."""
    start_reads(s)
    if s.lead.sends_wanted:
        s.lead.sends_wanted = False
        for p in s.lead.progress.values():
            send_entries(s, p)
    if s.lead.round_wanted:
        s.lead.round_wanted = False
        s.lead.heartbeat_elapsed = 0
        begin_round(s)
        asking = begin_asking(s)
        for p in s.lead.progress.values():
            send_heartbeat(s, p, quiet=asking)
        rest_if_all_agreed(s)  # a group of one need not wait for a peer
    finish_reads(s)


def send_entries(s: State, p: Progress) -> None:
    """Fill the peer's window; one message only while its match point is unknown."""
    through = _sent_through(s, p)
    while not p.window_full() and not p.loading and p.next <= through:
        if p.next < s.log.first_index:
            lose_to_gc(s, p)
            return
        limit = s.options.append_batch_bytes_max
        if p.state is ProgressState.PROBE:
            limit = min(limit, s.options.probe_bytes_max)
        try:
            hi = min(through + 1, p.next + s.options.append_entries_max)
            found = s.log.entries(p.next, hi, limit)
        except EntriesUnavailable as e:
            p.loading = True
            s.out.entries_needed.append(EntriesNeeded(p.uuid, e.index))
            return
        entries = _decoded_together(found, s.options.append_meta_bytes_max)
        full = len(entries) < len(found) or len(entries) == s.options.append_entries_max
        if p.inflight and not full and sum(e.size_bytes for e in entries) < s.options.append_batch_bytes_min:
            return  # They are sent when the answer to the messages under way comes, with all that arrived by then.
        _send(s, p, s.opid_at(p.next - 1), entries)
        p.sent(entries[-1].opid.index, sum(e.size_bytes for e in entries))


def _decoded_together(entries: tuple[Entry, ...], meta_bytes_max: int) -> tuple[Entry, ...]:
    """The first entries, at least one, whose metas a follower may decode on its event loop."""
    total = 0
    for count, entry in enumerate(entries):
        total += len(entry.meta)
        if count and total > meta_bytes_max:
            return entries[:count]
    return entries


def _sent_through(s: State, p: Progress) -> int:
    """The last index that may be sent to the peer.

    A witness gets only entries that all other voters which keep up have: if this leader dies, one of them must lead,
    and it cannot if its log is shorter than the witness's. If no other voter keeps up, a witness gets only entries that
    are on at least one disk with rows, because this leader may have to lead again after a restart, with the entries of
    its own disk. CC-51."""
    if p.uuid not in s.witnesses:
        return s.last.index
    whole = [q for u, q in s.lead.progress.items() if u in s.voters and u not in s.witnesses]
    durable = max([s.persisted, *(q.match for q in whole)])
    return min([durable, *(q.match for q in whole if _keeps_up(s, q))])


def _keeps_up(s: State, p: Progress) -> bool:
    """Whether the peer acknowledges entries and has been sent all committed ones, so that a wait for it is short."""
    sent = p.state is not ProgressState.COPY and p.next > s.commit_index
    return sent and p.behind_ticks < s.options.heartbeat_ticks


def send_heartbeat(s: State, p: Progress, *, quiet: bool = False) -> None:
    """Send an append without entries, positioned after all that was sent. It shows that we lead, carries the commit
    index, and detects a lost append: the peer then answers with a mismatch, which reopens the window (scenario 103).
    D-1.

    For a peer that waits for a copy, the position is the start of our log: the answer shows when the log can serve it
    again.
    """
    if p.state is not ProgressState.COPY and p.next < s.log.first_index:
        # Log GC removed what the peer needs, and its probe was lost: its answers would be ignored as outdated for ever.
        lose_to_gc(s, p)
    after = s.log.first_index if p.state is ProgressState.COPY else p.next
    _send(s, p, s.opid_at(after - 1), (), quiet=quiet)


def _send(s: State, p: Progress, prev: OpId, entries: tuple[Entry, ...], *, quiet: bool = False) -> None:
    end = entries[-1].opid.index if entries else prev.index
    safe_time = 0
    if end == s.last.index and s.hybrid_now is not None:
        safe_time = s.hybrid_now()
    s.send(
        AppendEntries(
            to_uuid=p.uuid,
            from_uuid=s.uuid,
            term=s.hard.term,
            prev=prev,
            entries=entries,
            commit_index=s.commit_index,
            round=s.lead.round,
            safe_time=safe_time,
            quiet=quiet,
        )
    )


def lose_to_gc(s: State, p: Progress) -> None:
    """The entries that the peer needs are gone from the log, so it needs a copy. TC-06."""
    if p.state is not ProgressState.COPY:
        s.trace(f"{p.uuid} needs {p.next}, our log begins at {s.log.first_index}")
    p.become_copy(DataState.READY, p.last_opid)
    ask_for_copy(s.out, p)


def ask_for_copy(out: Outputs, p: Progress) -> None:
    """Name the peer in `copies_needed`, with back-off; never while the peer reports that it is copying. TC-25."""
    if p.state is ProgressState.COPY and p.data_state is not DataState.COPYING and p.copy_due_ticks == 0:
        p.copy_asked()
        out.copies_needed.append(CopyNeeded(p.uuid, p.data_state, p.last_opid))


def entries_loaded(s: State) -> None:
    """Evicted entries are in memory again: send to the peers that waited for them."""
    for p in s.lead.progress.values():
        p.loading = False
    s.lead.sends_wanted = s.role is Role.LEADER


# ----------------------------------------------------------------------------------------------------------- replies


def on_append_reply(s: State, m: AppendReply) -> None:
    """Handle a peer's answer in this term."""
    p = s.lead.progress.get(m.from_uuid)
    if p is None:
        return
    p.last_code = m.code
    if m.code in _NO_LOG:
        _on_no_log(s, p, m)
    if m.code is not Code.OK:
        return
    p.contact_ticks = 0
    p.round_acked = max(p.round_acked, m.round)
    p.commit_index, p.applied_index = m.commit_index, m.applied_index
    if m.no_data:
        p.data_from = None
    elif p.data_from is None:
        p.data_from = s.commit_index
    if m.mismatch:
        _on_mismatch(s, p, m)
    else:
        _on_match(s, p, m)
    s.lead.sends_wanted = True
    if m.quiet:
        p.quiet_round = max(p.quiet_round, m.round)
        rest_if_all_agreed(s)


def _on_no_log(s: State, p: Progress, m: AppendReply) -> None:
    """No replica runs at the peer: it needs a copy, or one is under way already."""
    state = _NO_LOG[m.code]
    if p.state is not ProgressState.COPY or p.data_state is not state:
        s.trace(f"{p.uuid} answers {m.code.name}")
    p.become_copy(state, m.last)
    ask_for_copy(s.out, p)


def _on_match(s: State, p: Progress, m: AppendReply) -> None:
    check(m.last.index <= s.last.index, "nobody holds more of our log than we", peer=p.uuid, last=m.last, own=s.last)
    p.last_opid = max(p.last_opid, m.last)
    p.acknowledged(m.last.index)
    if p.state is ProgressState.COPY:
        # The replica runs again. It has all entries that it knows to be committed, and a copy usually ends there.
        p.become_probe(max(p.match, m.commit_index) + 1)
    elif p.state is ProgressState.PROBE:
        p.become_replicate()
    p.observe_round(s.ticks, s.last.index)
    advance_commit(s)
    if s.role is Role.LEADER:
        continue_transfer(s)
        promote_caught_up(s)


def _on_mismatch(s: State, p: Progress, m: AppendReply) -> None:
    """Step back past a whole term at once, by the follower's hint and then by ours [raft §5.3]."""
    if p.state is not ProgressState.COPY and m.conflict_index >= p.next:
        return  # This answers a message that was sent before we stepped back.
    candidate = _next_after_conflict(s.log, m)
    if m.last.index >= p.match:
        candidate = max(candidate, p.match + 1)
    p.last_opid = m.last
    if candidate < s.log.first_index:
        p.next = candidate
        lose_to_gc(s, p)
        return
    p.become_probe(candidate)


def _next_after_conflict(log: LogView, m: AppendReply) -> int:
    """The next index to try: by default the peer's hint.

    If the peer's log ends in an older term than ours has there, it is the end of that term, or of the nearest older
    one, in our log. Entries that the peer knows to be committed are below it.
    """
    pos = min(m.conflict_index - 1, log.last.index)
    while (log.term_at(pos) or 0) > m.last.term:
        pos -= 1
    return pos + 1
