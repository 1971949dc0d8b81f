"""An open-addressing hash index over whole batches: rotated 64-bit key hash -> row id, in numpy.

Inside one tablet the high bits of the key hash hardly differ, because they choose the tablet. So hashes are rotated by
half their width, and all modules of this folder use the upper bits of the result: a batch sorted once by rotated hash
passes through this table, the Bloom filters and the blocks' sorted hashes from one end to the other.

All rows of a batch are probed at once. Each further pass handles only the rows that have no slot yet, and at a load of
at most one half there are few passes. Nothing is ever removed: a key's slot points at its newest row.

The key hash is no secret, so a caller can make up many keys that go to one slot, where each probe would pass by all of
them. An index that meets such a long probe chooses its slots by a secret from then on.
"""

from __future__ import annotations

import secrets

import numpy as np
import numpy.typing as npt

from nyala.replica.rows import mix_in_place, mix_one

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_CAPACITY_FIRST = 1 << 10
_ONE_BY_ONE_ROWS_MAX = 4
_PROBES_MAX = 256
"""A hash further from its slot than this shows that the slots are badly chosen. By chance, one of a million is 70 slots
away."""


class HashIndex:
    """Maps hashes to row ids; the caller owns the array that maps a row id back to its hash.

    Invariants: at most one slot per hash; load at most one half; capacity a power of two; a probe passes by fewer than
    1,024 slots, whatever the hashes are.
    Concurrency: one thread.
    """

    def __init__(self, expected_rows: int = 0) -> None:
        capacity = _capacity(expected_rows)
        # Zero is an empty slot, so that untouched pages of the table cost no memory; other slots have id + 1.
        self._slots: npt.NDArray[np.uint32] = np.zeros(capacity, dtype=np.uint32)
        self._shift = _shift(capacity)
        self._used = 0
        self._secret: np.uint64 | None = None
        self._crowded = False
        """Whether a probe was too long since the slots were chosen."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of the table that are in use: at a load of one quarter to one half, sixteen for each hash."""
        return min(int(self._slots.nbytes), 16 * self._used)

    def reserve(self, more: int, hashes: U64) -> None:
        """Make room for `more` new hashes. Slots returned by `find` before this call are void."""
        needed = (self._used + more) * 2
        if needed <= len(self._slots) and not self._crowded:
            return
        taken = self._slots[self._slots != 0]
        if needed > len(self._slots):
            capacity = _capacity(self._used + more)
            self._slots = np.zeros(capacity, dtype=np.uint32)
            self._shift = _shift(capacity)
        else:
            self._slots[:] = 0
        if len(taken):
            self._rebuild(hashes, taken)

    def find(self, h: U64, hashes: U64) -> tuple[I64, I64]:
        """(row ids, slots) of each hash, shape of `h`: id -1 and the slot where it would go if it is absent."""
        if len(h) <= _ONE_BY_ONE_ROWS_MAX:
            return self._find_few(h, hashes)
        slots = self._home(h)
        found = self._slots[slots]
        ids = found.astype(np.int64) - 1
        # An empty slot reads hashes[-1], which is harmless; the test for zero comes first.
        pending = np.flatnonzero((found != 0) & (hashes[ids] != h))
        mask, probes = len(self._slots) - 1, 0
        at = slots[pending]
        while len(pending):
            probes += 1
            at = (at + 1) & mask
            seen = self._slots[at]
            now = seen.astype(np.int64) - 1
            settled = (seen == 0) | (hashes[now] == h[pending])
            rows = pending[settled]
            ids[rows] = now[settled]
            slots[rows] = at[settled]
            pending = pending[~settled]
            at = at[~settled]
        self._crowded = self._crowded or probes > _PROBES_MAX
        return ids, slots

    def point(self, slots: I64, ids: I64) -> None:
        """Point the slots of hashes that `find` found at newer rows."""
        self._slots[slots] = (ids + 1).astype(np.uint32)

    def insert(self, slots: I64, ids: I64, hashes: U64) -> None:
        """Add absent, distinct hashes: `slots` as `find` returned them, after `reserve`. Then those slots are void."""
        self._used += len(ids)
        left = self._fill(slots, (ids + 1).astype(np.uint32), _PROBES_MAX)
        if len(left):
            taken = np.concatenate([self._slots[self._slots != 0], left])
            self._slots[:] = 0
            self._crowded = True
            self._rebuild(hashes, taken)

    def _home(self, h: U64) -> I64:
        mixed = h if self._secret is None else mix_in_place(h ^ self._secret)
        home: I64 = (mixed >> self._shift).view(np.int64)
        return home

    def _home_of(self, value: int) -> int:
        """The scalar twin of `_home`."""
        return (value if self._secret is None else mix_one(value ^ int(self._secret))) >> int(self._shift)

    def _find_few(self, h: U64, hashes: U64) -> tuple[I64, I64]:
        table, mask = self._slots, len(self._slots) - 1
        ids, slots = [], []
        for value in h.tolist():
            home = at = self._home_of(value)
            seen = int(table[at])
            while seen and int(hashes[seen - 1]) != value:
                at = (at + 1) & mask
                seen = int(table[at])
            self._crowded = self._crowded or (at - home) & mask > _PROBES_MAX
            ids.append(seen - 1)
            slots.append(at)
        return np.array(ids, dtype=np.int64), np.array(slots, dtype=np.int64)

    def _rebuild(self, hashes: U64, marks: npt.NDArray[np.uint32]) -> None:
        """Fill the empty table: in order of home slots, each goes to its own or right after the one before it."""
        if self._crowded:
            self._secret, self._crowded = np.uint64(secrets.randbits(64)), False
        home = self._home(hashes[marks.astype(np.int64) - 1])
        order = np.argsort(home)
        home = home[order]
        rank = np.arange(len(home))
        slots = np.maximum.accumulate(home - rank) + rank
        if int(slots[-1]) < len(self._slots):
            self._slots[slots] = marks[order]
        else:
            self._fill(home, marks[order], len(marks))

    def _fill(self, slots: I64, marks: npt.NDArray[np.uint32], probes_max: int) -> npt.NDArray[np.uint32]:
        """Write each mark to the first free slot from its own on. Of several at one slot one wins, and the others go
        on.

        Returns the marks that found none within `probes_max` slots.
        """
        table, mask = self._slots, len(self._slots) - 1
        at = slots
        for _ in range(probes_max):
            if not len(marks):
                break
            free = table[at] == 0
            table[at[free]] = marks[free]
            lost = table[at] != marks
            marks = marks[lost]
            at = (at[lost] + 1) & mask
        return marks


def _capacity(rows: int) -> int:
    """The slots of a table for so many rows."""
    return max(_CAPACITY_FIRST, 2 << (rows - 1).bit_length())


def _shift(capacity: int) -> np.uint64:
    """The number of bits by which a rotated hash is shifted to get its slot; `capacity` is a power of two."""
    return np.uint64(65 - capacity.bit_length())


def rotate(h: U64) -> U64:
    """The key hash with its halves swapped."""
    return (h << np.uint64(32)) | (h >> np.uint64(32))
