"""The parts of a replica alone: absent replicas, waiting callers, what a restart finds, what log GC keeps."""

from __future__ import annotations

from typing import Any

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta, encode_config
from nyala.replica.raft import AppendEntries, AppendReply, EntriesUnavailable, VoteRequest
from nyala.replica.raft_driver import LogCache, no_replica_reply
from nyala.replica.raft_driver.bootstrap import recover
from nyala.replica.raft_driver.log_gc import keep_from
from nyala.replica.raft_driver.pending import PendingEntries, Waiters
from nyala.replica.types import Applied, Code, Corruption, DataState, Entry, EntryKind, OpId, RaftConfig, Refused
from nyala.replica.wal import Replay, SegmentInfo
from tests.harness.sim_cluster import member
from tests.harness.sim_disk import SimDisk
from tests.harness.sim_start import Answers


def entry(term: int, index: int, kind: EntryKind = EntryKind.WRITE, meta: bytes = b"", size: int = 0) -> Entry:
    return Entry(OpId(term, index), kind, index * 10, 0, meta, b"x" * size, 0)


def config(index: int, *names: str) -> RaftConfig:
    return RaftConfig(OpId(1, index), tuple(member(name) for name in names))


@pytest.mark.parametrize(
    ("to", "term", "state", "failed", "code"),
    [
        ("z", 1, DataState.DELETED, False, Code.INVALID_NAME),  # wrong name and old term: the name counts
        ("z", 9, DataState.DOES_NOT_EXIST, False, Code.INVALID_NAME),
        ("a", 4, DataState.DELETED, False, Code.INVALID_TERM),  # a tombstone deposes a stale leader
        ("a", 4, DataState.COPYING, False, Code.INVALID_TERM),
        ("a", 4, DataState.READY, True, Code.INVALID_TERM),
        ("a", 5, DataState.DELETED, False, Code.TABLET_DELETED),
        ("a", 5, DataState.COPYING, False, Code.NOT_READY),
        ("a", 5, DataState.READY, False, Code.NOT_READY),
        ("a", 5, DataState.READY, True, Code.TABLET_FAILED),
        ("a", 5, DataState.DOES_NOT_EXIST, False, Code.TABLET_NOT_FOUND),
    ],
)
def test_no_replica_reply_checks_name_then_term_then_state(
    to: str, term: int, state: DataState, failed: bool, code: Code
) -> None:
    """TC-22, TC-24, TC-23: the order of checks, double faults included. Method: table, kept term 5."""
    message = AppendEntries(to_uuid=to, from_uuid="l", term=term, prev=OpId(0, 0), round=6)
    reply = no_replica_reply(message, uuid="a", data_state=state, own_term=5, last_logged=OpId(3, 7), failed=failed)
    assert isinstance(reply, AppendReply)
    assert (reply.code, reply.round, reply.to_uuid, reply.from_uuid) == (code, 6, "l", "a")
    assert reply.data_state is state and reply.last == OpId(3, 7)
    assert reply.term == (5 if code is Code.INVALID_TERM else max(term, 5))


def test_no_replica_reply_to_a_vote_request_for_this_server_is_silence() -> None:
    """Goal: a server whose replica does not run does not answer a vote request. Method: a vote request with the right
    name."""
    request = VoteRequest(to_uuid="a", from_uuid="l", term=9, last=OpId(8, 8))
    assert no_replica_reply(request, uuid="a", data_state=DataState.DELETED) is None


def test_pending_entry_whose_index_went_to_another_is_told_what_is_certain() -> None:
    """Goal: a caller gets NOT_APPLIED only once another entry is committed at its index, because an entry that was only
    overwritten here may still be committed. Method: finish with the same and with another term, add over an old one."""
    pending = PendingEntries()
    mine, replaced, over = Answers(), Answers(), Answers()
    pending.add(OpId(1, 1), 10, mine)
    pending.add(OpId(1, 2), 10, replaced)
    pending.add(OpId(1, 3), 10, over)
    pending.finish(OpId(1, 1), "result")
    pending.finish(OpId(2, 2), "another's result")
    pending.add(OpId(2, 3), 5, Answers())
    assert mine.one == "result"
    assert (replaced.one.applied.name, over.one.applied.name) == ("NOT_APPLIED", "UNKNOWN")
    assert (len(pending), pending.bytes) == (1, 5)


def test_waiting_change_that_was_taken_back_hears_so_and_others_below_hear_what_holds() -> None:
    """TC-80. Goal: the caller of a change that its leader took back gets that answer; the caller of one that is
    committed together with a later one gets success. Method: changes at 4 and 6, the config of 7 committed, 6 taken
    back."""
    pending = PendingEntries()
    early, aborted, later = Answers(), Answers(), Answers()
    for index, done in ((4, early), (6, aborted), (9, later)):
        pending.add(OpId(1, index), 10, done)
    pending.finish_configs_up_to(OpId(1, 7), config(7, "a"), OpId(1, 6))
    assert early.all == [config(7, "a")] and later.all == []
    assert isinstance(aborted.one, Refused) and aborted.one.code is Code.CAS_FAILED
    assert aborted.one.applied is Applied.NOT_APPLIED and "taken back" in str(aborted.one)
    assert (len(pending), pending.bytes) == (1, 10)


def test_pending_entries_after_lost_leadership_are_told_what_is_true() -> None:
    """Goal: after lost leadership, callers of committed entries wait on; callers whose index has another committed
    entry get NOT_APPLIED; all others, also of overwritten entries, get an unknown outcome, because another replica may
    still have the entry and lead next. Method: one of each."""
    pending = PendingEntries()
    answers = {index: Answers() for index in (1, 2, 3, 4)}
    for index, done in answers.items():
        pending.add(OpId(1, index), 1, done)
    pending.leadership_lost(2, {1: 1, 2: 2, 3: 1, 4: 2}.get, "b@b:1")
    assert answers[1].all == []
    assert answers[2].one.applied.name == "NOT_APPLIED"
    assert (answers[3].one.applied.name, answers[3].one.detail) == ("UNKNOWN", "b@b:1")
    assert answers[4].one.applied.name == "UNKNOWN"
    assert len(pending) == 1


def test_waiters_are_answered_in_order_by_value_by_time_or_by_bound() -> None:
    """Goal: each waiting caller is answered exactly once. Method: three targets, one expiry, one over the bound."""
    waiters = Waiters(3)
    log: list[Any] = []
    for target, deadline in ((5, 100), (3, 100), (4, 2)):
        waiters.add(target, deadline, log.append)
    refused = Answers()
    waiters.add(9, 100, refused)
    assert refused.one.code is Code.OVERLOADED
    waiters.expire(2)
    waiters.reached(4)
    assert [getattr(item, "code", item) for item in log] == [Code.TIMED_OUT, 3]
    waiters.reached(99)
    assert log[-1] == 5 and len(waiters) == 0


def test_log_cache_evicts_applied_entries_only_and_takes_them_back() -> None:
    """Goal: the log cache is bounded in bytes, and evicts applied entries only. Method: ten entries of 100 bytes, bound
    300."""
    cache = LogCache(boundary=OpId(0, 0), bytes_max=300)
    entries = tuple(entry(1, n, size=36) for n in range(1, 11))
    cache.append(entries)
    cache.trim(through_index=0)
    assert cache.cached_from == 1 and cache.cached_bytes == 1000
    cache.trim(through_index=5)
    assert cache.cached_from == 6
    cache.trim(through_index=10)
    assert cache.cached_bytes <= 300
    with pytest.raises(EntriesUnavailable):
        cache.entries(3, 5, 1000)
    cache.load(entries[2:4])
    assert cache.entries(3, 5, 1000) == entries[2:4]
    assert [cache.term_at(n) for n in (0, 1, 10, 11)] == [0, 1, 1, None]
    cache.collected(6)
    assert (cache.first_index, cache.term_at(5), cache.term_at(4)) == (6, 1, None)


def recovered(entries: list[Entry], flush: OpId, stored: RaftConfig, *, cache_bytes_max: int = 1 << 20) -> Any:
    cmeta = ConsensusMeta.create(SimDisk(), "t", "a", stored)
    first = entries[0].opid.index if entries else 0
    replay = Replay(entries, first, entries[-1].opid if entries else OpId(0, 0), None)
    return recover(replay, flush_opid=flush, flush_time=7, cmeta=cmeta, cache_bytes_max=cache_bytes_max)


def test_recover_settles_configs_by_what_follows_them() -> None:
    """CN-34. Goal: a config in the log counts as committed if it is stored, flushed, or followed by another one; the
    last one is pending. Method: three logs."""
    stored, first, second = config(0, "a"), config(2, "a", "b"), config(4, "a", "b", "c")
    one = entry(1, 2, EntryKind.CONFIG, encode_config(first))
    two = entry(1, 4, EntryKind.CONFIG, encode_config(second))
    found = recovered([entry(1, 1), one, entry(1, 3)], OpId(0, 0), stored)
    assert (found.committed_config, found.pending_config) == (stored, first)
    found = recovered([entry(1, 1), one, entry(1, 3), two], OpId(0, 0), stored)
    assert (found.committed_config, found.pending_config) == (first, second)
    found = recovered([entry(1, 1), one, entry(1, 3), two], OpId(1, 4), stored)
    assert (found.committed_config, found.pending_config) == (second, None)
    assert found.last_time == 40


def test_recover_takes_no_config_for_committed_that_was_taken_back() -> None:
    """CN-34, TC-81. Goal: a later config does not prove an earlier one committed if it takes that one back (D-19),
    because both may be uncommitted. Method: a log with both, alone and above another change."""
    stored, moved, added = config(0, "a", "b"), config(2, "a", "b", "c"), config(4, "a", "b", "c", "d")
    back = config(5, "a", "b", "c")
    logged = {c.opid.index: entry(1, c.opid.index, EntryKind.CONFIG, encode_config(c)) for c in (moved, added, back)}
    found = recovered([entry(1, 1), logged[2], entry(1, 3), logged[4], logged[5]], OpId(0, 0), stored)
    assert (found.committed_config, found.pending_config) == (moved, back)
    found = recovered([entry(1, 3), logged[4], logged[5]], OpId(1, 2), moved)
    assert (found.committed_config, found.pending_config) == (moved, back)


def test_recover_keeps_flushed_entries_on_disk_only_and_knows_their_terms() -> None:
    """Goal: memory holds what is to be applied. Method: a log from 5 on, flushed to 7: 5 is the boundary."""
    found = recovered([entry(1, 5), entry(1, 6), entry(2, 7), entry(2, 8)], OpId(2, 7), config(0, "a"))
    cache = found.cache
    assert (cache.first_index, cache.cached_from, cache.last) == (6, 8, OpId(2, 8))
    assert [cache.term_at(n) for n in (4, 5, 6, 7)] == [None, 1, 1, 2]


def test_recover_of_a_long_log_holds_no_more_of_it_than_its_bound() -> None:
    """Goal: a kill -9 of a busy server is no reason to run out of memory at the next start. Method: 1,000 entries of
    100 bytes above the flush, a bound of 2,000 bytes: the newest are held, every term is known, a pending config too.
    """
    pending = config(7, "a", "b")
    log = [entry(1 + n // 400, n, size=36) for n in range(1, 1001) if n != 7]
    log.insert(6, entry(1, 7, EntryKind.CONFIG, encode_config(pending)))
    found = recovered(log, OpId(0, 0), config(0, "a"), cache_bytes_max=2000)
    assert found.cache.cached_bytes <= 2500 and found.cache.cached_from > 970
    assert [found.cache.term_at(n) for n in (1, 399, 400, 1000)] == [1, 1, 2, 3]
    assert found.pending_config == pending


@pytest.mark.parametrize(
    ("first", "last", "flush"),
    [(5, 8, OpId(1, 3)), (1, 4, OpId(1, 6)), (1, 8, OpId(9, 6))],
    ids=["begins above", "ends below", "another entry"],
)
def test_recover_refuses_a_log_that_does_not_continue_the_flush(first: int, last: int, flush: OpId) -> None:
    """Goal: a log with a gap after the flush position, or of another tablet, is Corruption. Method: three broken
    pairs."""
    with pytest.raises(Corruption):
        recovered([entry(1, n) for n in range(first, last + 1)], flush, config(0, "a"))


def test_recover_of_an_empty_log_continues_after_the_flush() -> None:
    """Goal: a copied tablet has flushed state and may have no log. Method: nothing to replay, flush at 3.9."""
    found = recovered([], OpId(3, 9), config(4, "a"))
    assert (found.cache.first_index, found.cache.last, found.cache.term_at(9)) == (10, OpId(3, 9), 3)
    assert found.last_time == 7


def segments(*bounds: tuple[int, int], length: int = 100) -> list[SegmentInfo]:
    return [SegmentInfo(n, f"wal-{n}", first, last, length, True) for n, (first, last) in enumerate(bounds)]


@pytest.mark.parametrize(
    ("case", "index"),
    [
        ({}, 90),  # the tail that blinking followers need
        ({"retain_entries": 0}, 101),
        ({"retain_entries": 0, "peers_match": [50, 80]}, 51),  # the slowest peer
        ({"retain_entries": 0, "peers_match": [5], "retain_bytes_max": 250}, 41),  # as long as it is affordable
        ({"flush_index": 0, "peers_match": [5], "retain_bytes_max": 0}, 1),  # unflushed entries at any cost
        ({"retain_entries": 0, "config_committed_index": 60, "config_saved_index": 20}, 60),
    ],
)
def test_keep_from_honours_each_need_up_to_its_bound(case: dict[str, Any], index: int) -> None:
    """CC-22. Goal: what log GC may delete (scenario 49). Method: one need at a time, four segments of 100 bytes."""
    values: dict[str, Any] = {
        "flush_index": 100,
        "config_saved_index": 0,
        "config_committed_index": 0,
        "peers_match": [],
        "segments": segments((1, 20), (21, 40), (41, 60), (61, 110)),
        "retain_entries": 11,
        "retain_bytes_max": 10_000,
    }
    assert keep_from(**(values | case)) == index
