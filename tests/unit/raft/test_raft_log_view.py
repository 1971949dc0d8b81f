"""MemoryLogView against a plain list, and its three regions."""

from __future__ import annotations

import random

import pytest

from nyala.replica.raft import EntriesUnavailable, MemoryLogView
from nyala.replica.types import Entry, EntryKind, InvariantViolation, OpId


def entry(term: int, index: int, size: int = 1) -> Entry:
    return Entry(OpId(term, index), EntryKind.WRITE, index, 1, b"", b"x" * size, 0)


def filled(*terms: int) -> MemoryLogView:
    return MemoryLogView([entry(term, pos + 1) for pos, term in enumerate(terms)])


def test_log_view_random_operations_equals_a_list() -> None:
    """Goal: terms, entries, last and bytes are right after any history. Method: 300 random histories beside a list."""
    for seed in range(300):
        rng = random.Random(seed)
        log, twin, boundary = MemoryLogView(loaded_bytes_max=200), [], OpId(0, 0)
        term, cached_from = 1, 1
        for _ in range(40):
            draw = rng.random()
            last = boundary.index + len(twin)
            if draw < 0.5:
                term += rng.random() < 0.2
                fresh = [entry(term, last + 1 + n, rng.randint(0, 30)) for n in range(rng.randint(1, 3))]
                log.append(fresh)
                twin += fresh
            elif draw < 0.62:
                index = rng.randint(boundary.index, last)
                log.truncate_after(index)
                del twin[index - boundary.index :]
                cached_from = min(cached_from, index + 1)
            elif draw < 0.74:
                index = rng.randint(0, last + 1)
                log.evict_below(index)
                cached_from = max(cached_from, min(index, last + 1))
            elif draw < 0.84 and twin:
                index = rng.randint(boundary.index + 1, last)
                boundary = twin[index - boundary.index - 1].opid
                log.compact(*reversed(boundary))
                twin = [e for e in twin if e.opid.index > index]
                cached_from = max(cached_from, index + 1)
            elif twin:
                lo = rng.randint(0, len(twin) - 1)
                log.load(twin[lo : lo + rng.randint(1, 4)])
            last = boundary.index + len(twin)
            assert log.last == (twin[-1].opid if twin else boundary)
            assert (log.first_index, log.cached_from) == (boundary.index + 1, cached_from)
            assert [log.term_at(e.opid.index) for e in twin] == [e.opid.term for e in twin]
            assert log.term_at(boundary.index) == boundary.term
            assert log.term_at(last + 1) is None
            cached = [e for e in twin if e.opid.index >= cached_from]
            assert log.entries(cached_from, last + 1, 1 << 20) == tuple(cached)
            assert log.cached_bytes >= sum(e.size_bytes for e in cached)


def test_entries_byte_limit_gives_at_least_one() -> None:
    """Goal: a batch is bounded and never empty. Method: limits below, at and above two entries."""
    log = filled(1, 1, 1)
    size = log.entries(1, 2, 1)[0].size_bytes
    assert [len(log.entries(1, 4, limit)) for limit in (0, size, 2 * size - 1, 2 * size, 10**6)] == [1, 1, 1, 2, 3]
    assert log.entries(2, 2, 10) == ()


def test_evicted_entries_come_back_by_load() -> None:
    """Goal: evicted bytes are asked for, terms are not. Method: evict, miss, load, hit across both regions."""
    log = filled(1, 1, 2, 2)
    whole = log.entries(1, 5, 10**6)
    assert log.evict_below(4) == sum(e.size_bytes for e in whole[:3])
    assert [log.term_at(i) for i in range(5)] == [0, 1, 1, 2, 2]
    with pytest.raises(EntriesUnavailable) as missed:
        log.entries(2, 5, 10**6)
    assert missed.value.index == 2
    log.load(whole[1:3])
    assert log.entries(2, 5, 10**6) == whole[1:]
    with pytest.raises(EntriesUnavailable):
        log.entries(1, 5, 10**6)
    assert log.drop_loaded() == sum(e.size_bytes for e in whole[1:3])


def test_load_of_replaced_entries_is_ignored() -> None:
    """Goal: a read that raced with a truncation brings nothing old back. Method: load another term's entry."""
    log = filled(1, 1, 2)
    log.evict_below(3)
    log.load([entry(9, 2), entry(1, 1)])
    assert log.entries(1, 2, 1) == (entry(1, 1),)
    with pytest.raises(EntriesUnavailable):
        log.entries(2, 4, 1)


def test_append_with_a_gap_or_a_lower_term_is_our_bug() -> None:
    """Goal: the log's own invariants are checked. Method: append out of order."""
    log = filled(1, 2)
    for wrong in (entry(2, 4), entry(1, 3), entry(2, 2)):
        with pytest.raises(InvariantViolation):
            log.append([wrong])
    assert log.last == OpId(2, 2)


def test_compact_beyond_the_log_or_with_a_wrong_term_is_our_bug() -> None:
    """Goal: a boundary is a real position. Method: wrong index, wrong term, then a right one twice."""
    log = filled(1, 1, 2)
    for index, term in ((4, 2), (2, 2)):
        with pytest.raises(InvariantViolation):
            log.compact(index, term)
    log.compact(2, 1)
    log.compact(1, 1)
    assert (log.first_index, log.term_at(2), log.term_at(1)) == (3, 1, None)
