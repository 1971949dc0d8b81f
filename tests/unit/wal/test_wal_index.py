"""Which terms the log's indexes have, where their entries are, and which OpIds were ever written."""

from __future__ import annotations

import itertools

import pytest

from nyala.replica.types import ZERO_OPID, OpId
from nyala.replica.wal.index import SPAN_BYTES, LogIndex, SeenOpIds, Span, TermRuns

Model = dict[int, int]
"""The term of each index."""
PREFIX = [OpId(1, 3), OpId(1, 4), OpId(2, 5), OpId(2, 6), OpId(4, 7)]


Step = tuple[str, OpId | int]


def _act(step: Step, runs: TermRuns, model: Model) -> None:
    """One step on the runs, and on a list of all terms. What would leave a gap is left out: `refuses` keeps it out."""
    match step:
        case "add", OpId(term, index):
            if model and index > max(model) + 1:
                return
            runs.add(OpId(term, index))
            gone = [held for held in model if held >= index]
        case "truncate", int(index):
            runs.truncate_after(index)
            gone = [held for held in model if held > index]
        case _, index:
            assert isinstance(index, int)
            runs.drop_below(index)
            gone = [held for held in model if held < index] if index in model else []
    for held in gone:
        del model[held]
    if isinstance(step[1], OpId):
        model[step[1].index] = step[1].term


def _same(runs: TermRuns, model: Model) -> None:
    first, last = min(model, default=0), max(model, default=0)
    assert (runs.first_index, runs.last_index) == (first, last)
    assert runs.last == (OpId(model[last], last) if model else ZERO_OPID)
    assert [runs.term_at(index) for index in range(-1, 11)] == [model.get(index) for index in range(-1, 11)]
    assert len(runs._starts) == len([*itertools.groupby(model.values())]), "a pair for each run of one term"
    for index, term in itertools.product(range(-1, last + 3), range(6)):
        if model and index > last + 1:
            why = "gap"
        elif term < model.get(index - 1, 0):
            why = "term below its predecessor's"
        else:
            why = "no index" if index < 1 else ""
        assert runs.refuses(OpId(term, index)) == why, (index, term)


@pytest.mark.parametrize("prefix", [[], PREFIX[:1], PREFIX], ids=["empty", "one", "three terms"])
def test_terms_of_a_log_follow_whatever_is_added_replaced_and_removed(prefix: list[OpId]) -> None:
    """Goal: the runs of terms agree with a list of all terms, and are as few as possible. Method: every pair of steps
    after some entries: the next entry of the same term and of a later one, replacements, truncations to within, below
    and above, removals at the front."""
    last = prefix[-1] if prefix else OpId(1, 2)
    added = [OpId(last.term, last.index + 1), OpId(5, last.index + 1), OpId(5, 3), OpId(5, 5)]
    steps: list[Step] = [("add", opid) for opid in added]
    steps += [("truncate", index) for index in (0, 2, 3, 5, 6, 9)] + [("drop", index) for index in (2, 3, 5, 6, 9)]
    for chosen in itertools.product(steps, repeat=2):
        runs, model = TermRuns(), Model()
        for opid in prefix:
            _act(("add", opid), runs, model)
        for step in chosen:
            _act(step, runs, model)
        _same(runs, model)
        other = runs.copy()
        _same(other, model)
        other.add(OpId(9, 1))
        _same(runs, model)


def test_opids_that_were_written_are_few_runs_of_indexes_for_each_term() -> None:
    """Goal: an OpId counts as seen if it was written, and as long a log as it may be needs little memory. Method: a
    term's entries from 2 on, some of them again, a gap, what follows it, and another term between them."""
    seen = SeenOpIds()
    for opid in [OpId(1, 2), OpId(1, 3), OpId(1, 4), OpId(2, 4), OpId(1, 3), OpId(1, 4), OpId(1, 8), OpId(1, 9)]:
        seen.add(opid)
    seen.add(OpId(1, 12))
    seen.add(OpId(1, 13))
    assert [index for index in range(16) if OpId(1, index) in seen] == [2, 3, 4, 8, 9, 12, 13]
    assert [index for index in range(16) if OpId(2, index) in seen] == [4]
    assert OpId(3, 4) not in seen
    assert seen._runs == {1: [(2, 4), (8, 9), (12, 13)], 2: [(4, 4)]}


def _index(*places: tuple[OpId, int, int, int]) -> LogIndex:
    index = LogIndex()
    for place in places:
        index.add(*place)
    return index


def test_neighbours_in_one_segment_share_a_span_up_to_its_length() -> None:
    """Goal: few spans, none longer than a read should be, and each of entries side by side. Method: entries that touch,
    one behind a marker, one in another segment at the byte where the one before it ended, and ones that fill a span
    exactly and by one byte too many."""
    index = _index((OpId(1, 1), 1, 100, 150), (OpId(1, 2), 1, 150, 170), (OpId(2, 3), 1, 170, 180))
    assert index._spans == [Span(1, 3, 1, 100, 80)]
    index.add(OpId(2, 4), 1, 196, 200)
    assert index._spans == [Span(1, 3, 1, 100, 80), Span(4, 4, 1, 196, 4)]
    index.add(OpId(2, 5), 2, 200, 230)
    index.add(OpId(2, 6), 2, 230, 200 + SPAN_BYTES)
    index.add(OpId(2, 7), 2, 200 + SPAN_BYTES, 201 + SPAN_BYTES)
    index.add(OpId(2, 8), 2, 201 + SPAN_BYTES, 300 + SPAN_BYTES)
    index.add(OpId(2, 9), 2, 100, 110)
    assert index._spans[2:] == [
        Span(5, 6, 2, 200, SPAN_BYTES),
        Span(7, 8, 2, 200 + SPAN_BYTES, 100),
        Span(9, 9, 2, 100, 10),
    ]
    assert index.terms.last == OpId(2, 9)


@pytest.mark.parametrize("how", ["replaced", "truncated"])
def test_span_of_which_entries_were_replaced_takes_no_more(how: str) -> None:
    """Goal: replaced entries in a span are never read. Method: four spans; entries of the third and later ones are
    replaced by one that lies right behind the third's bytes, with and without a truncation first."""
    places = [(OpId(1, index), (index + 1) // 2, 100 * index, 100 * index + 100) for index in range(1, 9)]
    index = _index(*places)
    assert [(span.first, span.last) for span in index._spans] == [(1, 2), (3, 4), (5, 6), (7, 8)]
    if how == "truncated":
        index.truncate_after(5)
        assert index.terms.last == OpId(1, 5)
    index.add(OpId(2, 6), 3, 700, 750)
    assert index._spans[2:] == [Span(5, 5, 3, 500, 200, cut=True), Span(6, 6, 3, 700, 50)]
    assert (index.terms.term_at(5), index.terms.last) == (1, OpId(2, 6))
    index.truncate_after(4)
    assert index._spans == [Span(1, 2, 1, 100, 200), Span(3, 4, 2, 300, 200)]
    index.add(OpId(3, 5), 2, 500, 510)
    assert index._spans[-1] == Span(3, 5, 2, 300, 210)
    index.truncate_after(0)
    assert (index._spans, index.terms.last) == ([], ZERO_OPID)


def test_entries_of_removed_segments_are_forgotten() -> None:
    """Goal: the first index is that of the first entry that can be read. Method: three segments of two entries each;
    nothing, the first, and all are removed."""
    index = _index(*((OpId(1, at), (at + 1) // 2, 100 * at, 100 * at + 100) for at in range(1, 7)))
    index.drop_segments_below(1)
    assert (index.terms.first_index, len(index._spans)) == (1, 3)
    index.drop_segments_below(2)
    assert (index.terms.first_index, [span.first for span in index._spans]) == (3, [3, 5])
    index.drop_segments_below(4)
    assert (index.terms.last_index, index._spans) == (6, []), "the terms stay, for what follows"


def test_spans_are_found_that_hold_any_entry_of_a_range() -> None:
    """Goal: a read uses exactly the spans that have an entry of its range. Method: spans of 3 to 4, 5 to 6 and 7 to 8,
    every range."""
    index = _index(*((OpId(1, at), (at + 1) // 2, 100 * at, 100 * at + 100) for at in range(3, 9)))
    for lo, hi in itertools.combinations(range(1, 10), 2):
        expected = [span for span in index._spans if span.first < hi and span.last >= lo]
        if expected:
            assert index.find(lo, hi) == expected, (lo, hi)
