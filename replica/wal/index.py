"""The place on disk and the term of each index. In memory, rebuilt when the log is opened."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from nyala.replica.types import ZERO_OPID, OpId

SPAN_BYTES = 128 << 10
"""A read starts at the entry that it wants, or at most this many bytes before it."""


class TermRuns:
    """The terms of a range of indexes, as runs: a handful of pairs, however long the log is."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._terms: list[int] = []
        self.last_index = 0

    @property
    def first_index(self) -> int:
        """The first index; 0 if there is none."""
        return self._starts[0] if self._starts else 0

    @property
    def last(self) -> OpId:
        return OpId(self._terms[-1], self.last_index) if self._terms else ZERO_OPID

    def term_at(self, index: int) -> int | None:
        """The term of an index; None outside the range."""
        if not self._starts or not self._starts[0] <= index <= self.last_index:
            return None
        return self._terms[bisect_right(self._starts, index) - 1]

    def refuses(self, opid: OpId) -> str:
        """The reason why `opid` may not come next: it leaves a gap, or its term is below its predecessor's. Empty if it
        may."""
        if not self._starts:
            return "" if opid.index > 0 else "no index"
        if opid.index > self.last_index + 1:
            return "gap"
        before = self.term_at(opid.index - 1)
        if before is not None and opid.term < before:
            return "term below its predecessor's"
        return "" if opid.index > 0 else "no index"

    def add(self, opid: OpId) -> None:
        """Add `opid` as the next one, in place of everything from its index on."""
        self.truncate_after(opid.index - 1)
        if not self._terms or self._terms[-1] != opid.term:
            self._starts.append(opid.index)
            self._terms.append(opid.term)
        self.last_index = opid.index

    def truncate_after(self, index: int) -> None:
        while self._starts and self._starts[-1] > index:
            self._starts.pop()
            self._terms.pop()
        self.last_index = min(self.last_index, index) if self._starts else 0

    def drop_below(self, index: int) -> None:
        term = self.term_at(index)
        if term is None:
            return
        keep = bisect_right(self._starts, index)
        self._starts[:keep] = [index]
        self._terms[:keep] = [term]

    def copy(self) -> TermRuns:
        other = TermRuns()
        other._starts, other._terms, other.last_index = list(self._starts), list(self._terms), self.last_index
        return other


class SeenOpIds:
    """Every OpId that was written to a log, also those that others replaced: a few runs of indexes for each term."""

    def __init__(self) -> None:
        self._runs: dict[int, list[tuple[int, int]]] = {}

    def add(self, opid: OpId) -> None:
        """Note that `opid` was written, now or again."""
        runs = self._runs.setdefault(opid.term, [])
        if runs and runs[-1][1] + 1 == opid.index:
            runs[-1] = (runs[-1][0], opid.index)
        elif opid not in self:
            runs.append((opid.index, opid.index))

    def __contains__(self, opid: OpId) -> bool:
        return any(first <= opid.index <= last for first, last in self._runs.get(opid.term, ()))


class Span(NamedTuple):
    """Entries `first`..`last`, side by side in one segment. If `cut`, later entries in these bytes were replaced."""

    first: int
    last: int
    segment: int
    byte_offset: int
    length_bytes: int
    cut: bool = False


class LogIndex:
    """The live spans in ascending order. Concurrency: the log's lock."""

    def __init__(self) -> None:
        self.terms = TermRuns()
        self._spans: list[Span] = []

    def add(self, opid: OpId, segment: int, start: int, end: int) -> None:
        """Add the entry at bytes [start, end) of `segment` as the newest one."""
        self.truncate_after(opid.index - 1)
        self.terms.add(opid)
        tail = self._spans[-1] if self._spans else None
        if (
            tail is not None
            and not tail.cut
            and tail.segment == segment
            and tail.byte_offset + tail.length_bytes == start
            and end - tail.byte_offset <= SPAN_BYTES
        ):
            self._spans[-1] = Span(tail.first, opid.index, segment, tail.byte_offset, end - tail.byte_offset)
        else:
            self._spans.append(Span(opid.index, opid.index, segment, start, end - start))

    def truncate_after(self, index: int) -> None:
        self.terms.truncate_after(index)
        while self._spans and self._spans[-1].first > index:
            self._spans.pop()
        if self._spans and self._spans[-1].last > index:
            self._spans[-1] = self._spans[-1]._replace(last=index, cut=True)

    def drop_segments_below(self, segment: int) -> None:
        """Forget those segment files, which were removed."""
        self._spans = [span for span in self._spans if span.segment >= segment]
        if self._spans:
            self.terms.drop_below(self._spans[0].first)

    def find(self, lo: int, hi: int) -> list[Span]:
        """The spans that contain [lo, hi)."""
        start = max(0, bisect_right(self._spans, lo, key=lambda span: span.first) - 1)
        found = []
        for position in range(start, len(self._spans)):
            if self._spans[position].first >= hi:
                break
            found.append(self._spans[position])
        return found
