"""Reads the entries of a log whose server does not run, without a change."""

from __future__ import annotations

import io
from collections.abc import Iterator

from nyala.replica.types import Corruption, Disk, Entry, check

from .format import decode_entry
from .handles import Replay
from .reader import Survivors, read_entries
from .recovery import Recovered, joined_marks, read_all, read_withheld


def read_offline(disk: Disk, folder: str, tablet_id: str) -> Replay:
    """The entries that opening the log would find; Corruption where opening would raise it. No process may write
    meanwhile."""
    found, broken = read_all(disk, folder, tablet_id)
    withheld, kept = read_withheld(disk, folder), []
    if broken is not None:
        info, damage = broken
        if damage.withheld is not None:
            withheld = joined_marks(damage.withheld, withheld)
        for data in damage.kept:
            entry, problem, *_ = decode_entry(io.BytesIO(data), found.headers[info.number])
            check(not problem, "a kept entry is whole", segment=info.name, problem=problem)
            kept.append(entry)
    terms = found.index.terms
    first = terms.first_index or (kept[0].opid.index if kept else 0)
    last = kept[-1].opid if kept else terms.last
    if withheld is not None and last.index >= withheld.index:
        withheld = None
    return Replay(_Entries(disk, folder, found, kept), first, last, withheld)


def latest_time(disk: Disk, folder: str, tablet_id: str) -> int:
    """The highest hybrid time of all entries in a log whose end is whole; 0 without entries. Corruption where opening
    would raise it, and if the end is damaged.

    Heavy: it reads the whole log once. No process may write meanwhile.
    """
    found, broken = read_all(disk, folder, tablet_id)
    if broken is not None:
        raise Corruption("the end of the log is damaged", segment=broken[0].name, why=broken[1].what)
    return found.latest_time


class _Entries:
    """The live entries in index order, read a few megabytes at a time; `kept` are those of a damaged last block."""

    def __init__(self, disk: Disk, folder: str, found: Recovered, kept: list[Entry]) -> None:
        self._disk, self._folder, self._found, self._kept = disk, folder, found, kept

    def __iter__(self) -> Iterator[Entry]:
        terms = self._found.index.terms
        end = min(terms.last_index, self._kept[0].opid.index - 1) if self._kept else terms.last_index
        yield from Survivors(self._read, terms.first_index, end)
        yield from self._kept

    def _read(self, lo: int, hi: int, max_bytes: int) -> list[Entry]:
        spans = self._found.index.find(lo, hi)
        return read_entries(
            self._disk, self._folder, self._found.headers, spans, lo, hi, max_bytes, self._found.index.terms
        )
