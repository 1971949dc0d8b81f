"""The hash index against a dict: whatever the hashes are, each is found at its newest row, and others are not."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from nyala.replica.tablet.hash_index import HashIndex, rotate

WORD = (1 << 64) - 1


class Life:
    """An index, the hash of each row id, and a dict that says the same."""

    def __init__(self, expected: int = 0) -> None:
        self.index, self.known, self.rows = HashIndex(expected), dict[int, int](), 0
        self.hashes = np.zeros(1 << 13, np.uint64)

    def write(self, batch: list[int]) -> None:
        """New rows with these different hashes, as the memory store adds them."""
        h = np.array(batch, np.uint64)
        self.index.reserve(len(h), self.hashes)
        ids, slots = self.index.find(h, self.hashes)
        assert ids.tolist() == [self.known.get(value, -1) for value in batch]
        new = np.arange(self.rows, self.rows + len(batch))
        self.rows += len(batch)
        self.hashes[new] = h
        there = ids >= 0
        self.index.point(slots[there], new[there])
        self.index.insert(slots[~there], new[~there], self.hashes)
        self.known.update(zip(batch, new.tolist(), strict=True))

    def ids(self, hashes: list[int]) -> list[int]:
        found: list[int] = self.index.find(np.array(hashes, np.uint64), self.hashes)[0].tolist()
        return found

    def assert_all_found(self, others: list[int]) -> None:
        """Many at a time and few at a time; at most half of the slots are taken."""
        every = list(self.known)
        for at_once in (len(every), 1, 4):
            for at in range(0, len(every), at_once) if at_once else ():
                some = every[at : at + at_once]
                assert self.ids(some) == [self.known[value] for value in some]
        absent = [value for value in others if value not in self.known]
        assert self.ids(absent) == [-1] * len(absent) == [self.ids([value])[0] for value in absent]
        slots: Any = self.index._slots
        assert np.count_nonzero(slots) == len(every) and 2 * len(every) <= len(slots)


SHAPES = {
    "any": lambda rng: rng.getrandbits(64),
    "one slot": lambda rng: 5 << 60 | rng.getrandbits(12),
    "the last slots": lambda rng: WORD - rng.getrandbits(12),
    "side by side": lambda rng: rng.getrandbits(12) << 52,
    "first slots": lambda rng: rng.getrandbits(10) << 52,
    "zero and few": lambda rng: rng.getrandbits(3) << rng.choice((0, 61)),
}


@pytest.mark.a_third
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", SHAPES)
def test_each_hash_is_found_at_its_newest_row_and_no_other(shape: str, seed: int) -> None:
    """Goal: a key's newest version is found, whatever was written before. Method: random batches of one row to 300, of
    hashes known and new: anywhere, at one slot, at the table's end, where the search goes on at its beginning, next to
    one another, and zero."""
    rng, make = Random(seed), SHAPES[shape]
    life = Life()
    for _ in range(40):
        wanted = rng.choice((1, 1, 2, 4, 5, 40, 300))
        life.write(list({make(rng) for _ in range(wanted)}))
        if rng.random() < 0.4 and life.known:
            life.write(rng.sample(list(life.known), min(len(life.known), wanted)))
    life.assert_all_found([make(rng) for _ in range(20)] + [0, 1, WORD])


def test_index_that_was_made_for_its_rows_never_grows() -> None:
    """Goal: a steady load never waits for a larger table. Method: tables for as many rows as fit, and for one more, and
    the same rows later."""
    for expected, slots in ((0, 1024), (512, 1024), (513, 2048), (1024, 2048), (1025, 4096)):
        life = Life(expected)
        table = life.index._slots
        assert len(table) == slots
        life.write(list(range(slots // 2)))
        assert life.index._slots is table
        life.write([WORD])
        assert len(life.index._slots) == 2 * slots
        life.assert_all_found([WORD - 1])
    later = Life()
    later.write([value << 40 for value in range(4000)])
    assert len(later.index._slots) == 8192, "as small as may be, for a batch of any length"


def test_table_that_grows_is_as_small_as_may_be() -> None:
    """Goal: a batch of any length takes no more memory than it needs, and one that has room costs nothing. Method: room
    for as many rows as fit into each size, and for one more; the hashes are not read if the table stays."""
    for more, slots in ((512, 1024), (513, 2048), (1024, 2048), (1025, 4096)):
        index = HashIndex()
        index.reserve(more, np.zeros(0, np.uint64))
        assert len(index._slots) == slots
    life = Life()
    life.write([value << 54 for value in range(500)])
    life.index.reserve(12, np.zeros(0, np.uint64))
    life.assert_all_found([WORD])


def test_hashes_that_run_over_the_end_of_a_new_table_go_on_at_its_beginning() -> None:
    """Goal: no hash is lost when a table grows. Method: two hashes of the last slot of the larger table."""
    life = Life()
    life.write([*(value << 54 for value in range(510)), WORD, WORD - 1])
    life.write([5 << 53])
    assert len(life.index._slots) == 2048
    life.assert_all_found([WORD - 2])


@pytest.mark.parametrize("at_once", [1, 5])
def test_probe_of_more_than_256_slots_has_them_chosen_anew(at_once: int) -> None:
    """IN-60. Goal: made-up hashes do not slow an index, and others stay in order. Method: 256 hashes of one slot, then
    one more; a probe passes by all of them, alone and among others. The table is filled anew in its place, once."""
    life = Life(4000)
    table, others = life.index._slots, [(9 << 60) + n for n in range(at_once - 1)]
    life.write([(5 << 60) + n for n in range(256)])
    assert life.ids([6 | 5 << 60 | 1 << 20, *others]) == [-1] * at_once and not life.index._crowded
    life.write([(5 << 60) + 256])
    assert life.ids([6 | 5 << 60 | 1 << 20, *others]) == [-1] * at_once and life.index._crowded
    assert life.ids([*others, 9 << 60]) == [-1] * at_once and life.index._crowded, "until the next row"
    life.index.reserve(4096 - 257, life.hashes)
    assert life.index._slots is table and life.index._secret is not None and not life.index._crowded
    life.assert_all_found(others)


def test_memory_of_an_index_follows_its_rows() -> None:
    """Goal: a large table with few rows does not make a flush due. Method: rows that come one by one and that are
    known; a full table counts as what it is."""
    life = Life(4000)
    assert life.index.memory_bytes == 0
    life.write([7])
    life.write(list(range(10)))
    assert life.index.memory_bytes == 16 * 10
    life.write(list(range(10, 4096)))
    assert life.index.memory_bytes == life.index._slots.nbytes == 4 * 8192


def test_rotation_swaps_the_halves() -> None:
    """Goal: files of hashes are read by every build. Method: one number."""
    assert rotate(np.array([0x0123456789ABCDEF], np.uint64)).tolist() == [0x89ABCDEF01234567]
