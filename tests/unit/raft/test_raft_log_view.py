"""MemoryLogView against a plain list, and its three regions."""

from __future__ import annotations

import pickle
import random

import pytest

from nyala.replica.raft import EntriesUnavailable, MemoryLogView
from nyala.replica.types import Entry, EntryKind, InvariantViolation, OpId


def entry(term: int, index: int, size: int = 1) -> Entry:
    return Entry(OpId(term, index), EntryKind.WRITE, index, 1, b"", b"x" * size, 0)


def filled(*terms: int) -> MemoryLogView:
    return MemoryLogView([entry(term, pos + 1) for pos, term in enumerate(terms)])


LOADED_BYTES_MAX = 200


class Twin:
    """A log as lists: every entry, from which on they are in memory, and what was loaded back, the oldest first."""

    def __init__(self) -> None:
        self.boundary = OpId(0, 0)
        self.entries: list[Entry] = []
        self.cached_from = 1
        self.loaded: list[Entry] = []

    @property
    def last(self) -> int:
        return self.boundary.index + len(self.entries)

    def truncate_after(self, index: int) -> None:
        del self.entries[index - self.boundary.index :]
        self.cached_from = min(self.cached_from, index + 1)
        self.loaded = [e for e in self.loaded if e.opid.index <= index]

    def compact(self, index: int) -> None:
        self.boundary = self.entries[index - self.boundary.index - 1].opid
        self.entries = [e for e in self.entries if e.opid.index > index]
        self.cached_from = max(self.cached_from, index + 1)
        self.loaded = [e for e in self.loaded if e.opid.index > index]

    def load(self, entries: list[Entry]) -> None:
        fresh = [e for e in entries if e.opid.index < self.cached_from]
        older = [e for e in self.loaded if e not in fresh]
        while older and sum(e.size_bytes for e in older + fresh) > LOADED_BYTES_MAX:
            del older[0]
        self.loaded = older + fresh

    def held(self) -> list[Entry]:
        return [e for e in self.entries if e.opid.index >= self.cached_from or e in self.loaded]


@pytest.mark.deep
def test_log_view_random_operations_equals_a_list() -> None:
    """Goal: a log view has the right terms, entries, last OpId and bytes after any history. Method: 300 random
    histories beside a list."""
    for seed in range(300):
        rng = random.Random(seed)
        log, twin, term = MemoryLogView(loaded_bytes_max=LOADED_BYTES_MAX), Twin(), 1
        for _ in range(40):
            draw = rng.random()
            if draw < 0.5:
                term += rng.random() < 0.2
                fresh = [entry(term, twin.last + 1 + n, rng.randint(0, 30)) for n in range(rng.randint(1, 3))]
                log.append(fresh)
                twin.entries += fresh
            elif draw < 0.62:
                index = rng.randint(twin.boundary.index, twin.last)
                log.truncate_after(index)
                twin.truncate_after(index)
            elif draw < 0.74:
                index, before = rng.randint(0, twin.last + 1), log.cached_bytes
                assert log.evict_below(index) == before - log.cached_bytes
                twin.cached_from = max(twin.cached_from, min(index, twin.last + 1))
            elif draw < 0.8 and twin.entries:
                index = rng.randint(twin.boundary.index + 1, twin.last)
                twin.compact(index)
                log.compact(*reversed(twin.boundary))
            elif draw < 0.82:
                before = log.cached_bytes
                assert log.drop_loaded() == before - log.cached_bytes
                twin.loaded = []
            elif twin.entries:
                lo = rng.randint(0, len(twin.entries) - 1)
                some = twin.entries[lo : lo + rng.randint(1, 4)]
                log.load(some)
                twin.load(some)
            assert_equal(log, twin)


def assert_equal(log: MemoryLogView, twin: Twin) -> None:
    """Everything that can be asked of the log."""
    assert log.last == (twin.entries[-1].opid if twin.entries else twin.boundary)
    assert (log.first_index, log.cached_from) == (twin.boundary.index + 1, twin.cached_from)
    assert [log.term_at(e.opid.index) for e in twin.entries] == [e.opid.term for e in twin.entries]
    assert log.term_at(twin.boundary.index) == twin.boundary.term
    assert log.term_at(twin.boundary.index - 1) is None and log.term_at(twin.last + 1) is None
    held = twin.held()
    for one in twin.entries:
        if one in held:
            assert log.entries(one.opid.index, one.opid.index + 1, 1) == (one,)
        else:
            with pytest.raises(EntriesUnavailable):
                log.entries(one.opid.index, one.opid.index + 1, 1)
    cached = [e for e in twin.entries if e.opid.index >= twin.cached_from]
    assert log.entries(twin.cached_from, twin.last + 1, 1 << 20) == tuple(cached)
    assert log.cached_bytes == sum(e.size_bytes for e in held)


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


def test_loaded_entries_make_room_for_later_ones_within_their_bound() -> None:
    """Goal: what is read back takes bounded room, and what was asked for is served. Method: a bound of two entries; one
    by one, one of them again, and more at once than the bound."""
    log = filled(*[1] * 6)
    whole = log.entries(1, 7, 1 << 20)
    log = MemoryLogView(whole, loaded_bytes_max=2 * whole[0].size_bytes)
    log.evict_below(7)
    for load, held in (((1,), [1]), ((2,), [1, 2]), ((1,), [1, 2]), ((3,), [1, 3]), ((4, 5, 6), [4, 5, 6])):
        log.load([whole[index - 1] for index in load])
        assert log.cached_bytes == sum(whole[index - 1].size_bytes for index in held)
        assert log.entries(held[0], held[0] + 1, 1) == (whole[held[0] - 1],)


def test_terms_of_a_long_log_without_its_bytes_take_no_more_room_than_of_a_short_one() -> None:
    """Goal: the terms of evicted entries take memory by the number of terms, not of entries. Method: the same log of
    two terms, short and long, evicted."""
    rooms = []
    for count in (10, 1000):
        log = filled(*[1] * count, *[2] * count)
        log.evict_below(log.last.index + 1)
        assert (log.term_at(count), log.term_at(count + 1), log.cached_bytes) == (1, 2, 0)
        rooms.append(len(pickle.dumps(log)))
    assert rooms[1] < 2 * rooms[0]


def test_terms_that_log_gc_passed_take_no_room() -> None:
    """Goal: a replica that lives through many elections does not grow. Method: a log of 1,000 terms, dropped entry by
    entry, against one that began where it ends."""
    log = filled(*range(1, 1001))
    for index in range(1, 1001):
        log.compact(index, index)
    assert (log.first_index, log.term_at(1000)) == (1001, 1000)
    assert len(pickle.dumps(log)) == len(pickle.dumps(MemoryLogView(boundary=OpId(1000, 1000))))


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
