"""The written rows, and the rows that a scan must therefore have: one set for each writer, compared by pure functions.

A row is a function of its key and version, so one number for each key suffices: its last acknowledged version. Keys of
writer n are `n * KEYS_PER_WRITER + ordinal`. Ordinals below TOGGLES are rows that are inserted and deleted in turn:
present at odd versions, absent at even ones. Each other row names in `link` the key that its writer inserted FRESH
ordinals before, which was acknowledged before this row was sent. So a snapshot with a row and without the row of its
link has an effect without its cause.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

KEYS_PER_WRITER = 1 << 32
TOGGLES = 16
FRESH = 6
"""The number of new rows in each batch."""
KEYS_MAX = 30_000
"""The most keys of one writer; beyond them it changes existing rows."""
NO_LINK = -1
SHOWN_MAX = 5
Versions = npt.NDArray[np.int32]


def link_of(writer: int, ordinal: int) -> int:
    """The key in a row's `link`."""
    return writer * KEYS_PER_WRITER + ordinal - FRESH if ordinal >= TOGGLES + FRESH else NO_LINK


def text_of(key: int, version: int) -> str:
    """The content of a row."""
    return f"{key}@{version}:{(key * 2654435761 + version) & 0xFFFFFFFF:08x}"


@dataclass
class ExpectedRows:
    """One writer's expected rows. `acked` and `tried` by ordinal; a version in `doubts` may be applied now, later, or
    never.

    Concurrency: one writer; readers take copies: of `tried` after their read, of `acked` before it.
    """

    writer: int
    acked: Versions = field(default_factory=lambda: np.zeros(KEYS_MAX, np.int32))
    tried: Versions = field(default_factory=lambda: np.zeros(KEYS_MAX, np.int32))
    keys: int = TOGGLES
    """The number of ordinals used so far."""
    doubts: dict[int, set[int]] = field(default_factory=dict)

    def begin(self, ordinals: Sequence[int]) -> list[int]:
        """Begin a write; returns the versions to be written."""
        versions = []
        for ordinal in ordinals:
            self.tried[ordinal] += 1
            versions.append(int(self.tried[ordinal]))
        self.keys = max(self.keys, *(o + 1 for o in ordinals))
        return versions

    def acknowledged(self, ordinals: Sequence[int], versions: Sequence[int]) -> None:
        """Note that the store has acknowledged these versions."""
        self.acked[list(ordinals)] = list(versions)

    def doubtful(self, ordinals: Sequence[int], versions: Sequence[int]) -> None:
        """Note an unknown outcome: the last acknowledged version may hold, or these."""
        for ordinal, version in zip(ordinals, versions, strict=True):
            self.doubts.setdefault(ordinal, set()).add(version)


@dataclass(frozen=True)
class Rows:
    """The rows of a scan as columns, in any order."""

    k: npt.NDArray[np.int64]
    link: npt.NDArray[np.int64]
    version: Versions
    v: npt.NDArray[np.object_]

    @classmethod
    def of(cls, batches: Iterable[Any]) -> Rows:
        """From Arrow record batches with these columns."""
        parts = list(batches)

        def column(name: str, dtype: Any) -> Any:
            arrays = [b.column(name).to_numpy(zero_copy_only=False).astype(dtype) for b in parts]
            return np.concatenate(arrays) if arrays else np.zeros(0, dtype)

        return cls(column("k", np.int64), column("link", np.int64), column("version", np.int32), column("v", object))

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """The rows of several tablets together."""
        columns = zip(*((p.k, p.link, p.version, p.v) for p in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))

    def digest(self) -> str:
        """A digest that does not depend on the order of the rows."""
        order = np.argsort(self.k, kind="stable")
        sums = hashlib.blake2b(digest_size=16)
        for column in (self.k, self.link, self.version):
            sums.update(column[order].tobytes())
        sums.update("\n".join(self.v[order].tolist()).encode())
        return sums.hexdigest()


def compare(expected: ExpectedRows, before: Versions, after: Versions, rows: Rows) -> list[str]:
    """The errors in a writer's rows of one scan: lost, doubled, old, never written, or wrong rows.

    `before`: the versions acknowledged when the scan began. `after`: those tried by its end."""
    mine = rows.k // KEYS_PER_WRITER == expected.writer
    keys, versions = rows.k[mine], rows.version[mine]
    ordinals = (keys - expected.writer * KEYS_PER_WRITER).astype(np.int64)
    wrong: list[str] = []
    if len(np.unique(keys)) != len(keys):
        wrong.append(f"writer {expected.writer}: {len(keys) - len(np.unique(keys))} rows doubled")
    if len(beyond := ordinals[ordinals >= KEYS_MAX]):
        return [*wrong, f"writer {expected.writer}: keys that nobody wrote: {beyond[:SHOWN_MAX].tolist()}"]
    seen = np.zeros(KEYS_MAX, np.int32)
    seen[ordinals] = versions
    there = np.zeros(KEYS_MAX, bool)
    there[ordinals] = True
    toggles = np.zeros(KEYS_MAX, bool)
    toggles[:TOGGLES] = True
    may = _may_be(expected, before, after, seen, there, toggles)
    for ordinal in np.flatnonzero(~may)[:SHOWN_MAX].tolist():
        was = f"version {seen[ordinal]}" if there[ordinal] else "absent"
        wrong.append(
            f"writer {expected.writer} row {ordinal}: {was}; acknowledged {before[ordinal]}, tried {after[ordinal]}"
            + (f", in doubt {sorted(expected.doubts[ordinal])}" if ordinal in expected.doubts else "")
        )
    return wrong + _contents(expected, keys, ordinals, versions, rows.link[mine], rows.v[mine])


def _may_be(expected: ExpectedRows, before: Versions, after: Versions, seen: Versions, there: Any, toggles: Any) -> Any:
    """Whether the seen versions are possible, by ordinal."""
    within = (before <= seen) & (seen <= after)
    # A toggle is there at odd versions; absent, it may be at any even one within the bounds.
    even_within = (before % 2 == 0) | (after > before)
    absent = np.where(toggles, even_within, before == 0)
    may = np.where(there, within & (~toggles | (seen % 2 == 1)) & (seen > 0), absent)
    for ordinal, doubts in expected.doubts.items():
        if there[ordinal]:
            may[ordinal] |= int(seen[ordinal]) in doubts
        elif toggles[ordinal]:
            may[ordinal] |= any(version % 2 == 0 for version in doubts)
    return may


def _contents(expected: ExpectedRows, keys: Any, ordinals: Any, versions: Any, links: Any, texts: Any) -> list[str]:
    wrong = []
    for key, ordinal, version, link, text in zip(
        keys.tolist(), ordinals.tolist(), versions.tolist(), links.tolist(), texts.tolist(), strict=True
    ):
        if text != text_of(key, version) or link != link_of(expected.writer, ordinal):
            wrong.append(f"writer {expected.writer} row {ordinal}: content {text!r}, link {link}")
            if len(wrong) == SHOWN_MAX:
                break
    return wrong


def dangling(rows: Rows) -> list[str]:
    """The links of a snapshot that name a missing row, and keys that two rows name."""
    linked = rows.link[rows.link != NO_LINK]
    lost = np.setdiff1d(linked, rows.k)
    wrong = [f"{len(lost)} links lead nowhere, the first to {lost[:SHOWN_MAX].tolist()}"] if len(lost) else []
    if len(np.unique(linked)) != len(linked):
        wrong.append(f"{len(linked) - len(np.unique(linked))} keys are linked twice")
    return wrong
