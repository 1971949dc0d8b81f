"""The ledger by itself: which writes count as new, what it keeps of them, and what it counts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from nyala.replica.rows import RowError, WriteMeta
from nyala.replica.tablet.error_runs import NO_ERRORS, PackedErrors
from nyala.replica.tablet.ledger import ClientResult, Ledger, SourceState
from nyala.replica.types import Code, Corruption, InvariantViolation, Refused, RowCode, hybrid_from_us, limits
from tests.harness.tablet_twin import SOURCE

Write = tuple[str, int, int]
"""Client, sequence, first incomplete."""
START_US = 1_000_000_000
NOW = hybrid_from_us(START_US)


def _meta(write: Write) -> WriteMeta:
    client, sequence, first = write
    return WriteMeta(column_ids=(1,), rows=1, client_id=client, sequence=sequence, first_incomplete=first)


def _record(ledger: Ledger, *writes: Write, time: int = NOW, errors: PackedErrors = NO_ERRORS) -> None:
    for write in writes:
        ledger.record_client(_meta(write), time, ClientResult(write[1], time, 1, errors))


def _admitted(ledger: Ledger, write: Write, time: int = NOW) -> ClientResult | Code | None:
    try:
        return ledger.admit_client(_meta(write), time)
    except Refused as error:
        return error.code


def _batch(ledger: Ledger, offsets: list[int], failed: list[int], done: int = 0) -> SourceState:
    state = ledger.admit_source(WriteMeta(column_ids=(1,), rows=len(offsets), source=SOURCE, done=done))
    errors = [RowError(offset, RowCode.NOT_FOUND, "") for offset in failed]
    ledger.advance_source(state, offsets[-1], errors, np.array(offsets, np.int64))
    return ledger.sources[0]


@pytest.mark.parametrize(
    "known, asked, count",
    [
        pytest.param([], [("a", 1, 0), ("a", 2, 0), ("a", 3, 0)], 3, id="all that a client may have"),
        pytest.param([], [("a", n, 0) for n in (1, 2, 3, 4)], 3, id="one more than a client may have"),
        pytest.param([("a", 1, 0), ("a", 2, 0)], [("a", 3, 0), ("a", 4, 0)], 1, id="one more beside known ones"),
        pytest.param([], [("a", 1, 0), ("b", 1, 0), ("a", 2, 0), ("b", 2, 0)], 4, id="as many clients as may be"),
        pytest.param([], [("a", 1, 0), ("b", 1, 0), ("c", 1, 0)], 2, id="a client too many"),
        pytest.param([("a", 1, 0)], [("a", 2, 0), ("b", 1, 0), ("a", 3, 0)], 3, id="a known client takes no room"),
        pytest.param([("a", 1, 0)], [("b", 1, 0), ("c", 1, 0)], 1, id="a client too many beside a known one"),
        pytest.param([("a", 1, 0)], [("a", 2, 0), ("a", 1, 0)], 1, id="a repetition of a known one"),
        pytest.param([], [("a", 1, 0), ("a", 1, 0)], 1, id="a repetition of one before it"),
        pytest.param([], [("a", 2, 0), ("a", 0, 0)], 2, id="a lower number that is new"),
        pytest.param([("a", 5, 5)], [("a", 4, 0)], 0, id="a number below what the client knows"),
        pytest.param([("a", 6, 5)], [("a", 5, 0)], 1, id="the first number that the client does not know"),
        pytest.param([], [("a", 6, 5), ("a", 4, 0)], 1, id="a number below what one before it says"),
        pytest.param([("a", 5, 5)], [("a", 6, 0), ("a", 4, 0)], 1, id="one before it says less than is known"),
        pytest.param(
            [("a", 1, 0), ("a", 2, 0), ("b", 1, 0)], [("a", 3, 0), ("b", 2, 0), ("b", 3, 0)], 2, id="results are full"
        ),
        pytest.param(
            [("a", 1, 0), ("a", 2, 0), ("a", 3, 0), ("b", 1, 0), ("b", 2, 0)], [("b", 3, 0)], 0, id="no room at all"
        ),
    ],
)
def test_ledger_counts_writes_as_new_that_are_so_one_after_the_other(
    known: list[Write], asked: list[Write], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the ledger counts, from the front, the writes that are new, and stops at one that is not, or for which it
    would have to forget a result. Method: two clients, three results each, five in all; each write that counts is new
    by itself."""
    monkeypatch.setattr(limits, "LEDGER_CLIENTS_MAX", 2)
    monkeypatch.setattr(limits, "LEDGER_RESULTS_PER_CLIENT_MAX", 3)
    monkeypatch.setattr(limits, "LEDGER_RESULTS_MAX", 5)
    ledger = Ledger()
    _record(ledger, *known)
    assert ledger.new_writes([_meta(write) for write in asked], [NOW] * len(asked)) == count
    for write in asked[:count]:
        assert _admitted(ledger, write) is None
        _record(ledger, write)
    assert [_admitted(ledger, write) is None for write in known] == [False] * len(known), "nothing known had to go"


@pytest.mark.parametrize("late, count", [(0, 3), (1, 0)])
def test_ledger_counts_no_write_as_new_if_a_client_expires_by_the_last_one(late: int, count: int) -> None:
    """Goal: a client that expires between writes changes which of them are new, so none is counted. Method: the last of
    three writes comes at the end of another client's time, or after it."""
    ledger = Ledger()
    _record(ledger, ("a", 1, 0))
    times = [NOW, NOW, hybrid_from_us(START_US + limits.LEDGER_CLIENT_TTL_US + late)]
    assert ledger.new_writes([_meta(("b", n, 0)) for n in (1, 2, 3)], times) == count


def test_ledger_client_that_says_less_than_it_said_before_brings_nothing_back() -> None:
    """Goal: a number that a client declared complete stays so, even if a later write declares a lower one. Method: a
    write that declares, a later one that declares nothing, then the number below the bound and the one at it."""
    ledger = Ledger()
    _record(ledger, ("a", 6, 5), ("a", 7, 0))
    assert _admitted(ledger, ("a", 4, 0)) is Code.EXPIRED
    assert _admitted(ledger, ("a", 5, 0)) is None
    _record(ledger, ("b", 2, 0))
    assert _admitted(ledger, ("b", 0, 0)) is None, "b declared nothing"


def test_ledger_tells_a_result_that_it_remembers_and_no_other() -> None:
    """Goal: the ledger finds a result by client and number until it forgets it. Method: one of each."""
    ledger = Ledger()
    _record(ledger, ("a", 1, 0), ("a", 2, 0))
    assert ledger.client_result("a", 2) == ClientResult(2, NOW, 1, NO_ERRORS)
    assert ledger.client_result("a", 3) is None and ledger.client_result("b", 2) is None
    _record(ledger, ("a", 3, 2))
    assert ledger.client_result("a", 1) is None and ledger.client_result("a", 2) is not None


def test_ledger_errors_may_take_their_whole_bound_and_only_results_with_errors_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: only results with errors are forgotten to make room for errors, and none is that would have fitted. Method:
    a bound of exactly one write's errors; a write without any before it, and a second one with as many."""
    errors = PackedErrors.of([RowError(0, RowCode.NOT_FOUND, "")])
    monkeypatch.setattr(limits, "LEDGER_ERRORS_BYTES_MAX", errors.size_bytes)
    ledger = Ledger()
    _record(ledger, ("a", 1, 0))
    _record(ledger, ("a", 2, 0), errors=errors)
    assert _admitted(ledger, ("a", 2, 0)) == ClientResult(2, NOW, 1, errors)
    _record(ledger, ("a", 3, 0), errors=errors)
    assert _admitted(ledger, ("a", 1, 0)) == ClientResult(1, NOW, 1, NO_ERRORS)
    assert _admitted(ledger, ("a", 2, 0)) is Code.EXPIRED
    assert _admitted(ledger, ("a", 3, 0)) == ClientResult(3, NOW, 1, errors)


def test_ledger_memory_grows_with_what_is_remembered_and_shrinks_with_what_is_forgotten() -> None:
    """Goal: the count that decides about a flush follows what the ledger holds. Method: a client, a second result of
    it, two runs of errors of a source twice over, and the source's `done` behind all of them."""
    ledger, counts = Ledger(), []

    def count() -> None:
        counts.append(ledger.memory_bytes)

    count()
    _record(ledger, ("a", 1, 0))
    count()
    _record(ledger, ("a", 2, 0))
    count()
    _batch(ledger, [0, 1, 2], failed=[0, 2])
    count()
    _batch(ledger, [3, 4, 5], failed=[4])
    count()
    assert counts == sorted(set(counts)) and counts[0] == 0
    runs = [after - before for before, after in pairwise(counts)]
    assert runs[2] == 2 * runs[3], "two runs and one"
    assert _batch(ledger, [6], failed=[], done=6).done == 6
    assert ledger.memory_bytes == counts[2]


def test_ledger_source_begins_before_its_first_offset() -> None:
    """Goal: the first batch of a source builds on no offset; one that builds on offset 0 is refused. Method: a source
    that is not known, and one that a reset began; a batch without a source is a defect of its caller."""
    ledger = Ledger()
    for generation in (0, 1):
        for after, gap in ((-1, False), (0, True)):
            meta = WriteMeta(column_ids=(1,), rows=1, source=SOURCE, generation=generation, after=after)
            try:
                assert ledger.admit_source(meta).last_offset == -1 and not gap
            except Refused as error:
                assert error.code is Code.GAP and gap
        ledger.reset_source(SOURCE, 1, 0)
    with pytest.raises(InvariantViolation, match="names it"):
        ledger.admit_source(_meta(("a", 1, 0)))


def test_ledger_reset_at_the_same_generation_moves_done_and_nothing_else() -> None:
    """Goal: an advance of `done` forgets the errors below it and never an applied offset; it never falls, and an older
    generation does nothing. Method: a source with errors at 0 and 2, `done` at 1, at 0 by a reset and by a batch, then
    at 3 of a generation before."""
    ledger = Ledger()
    assert ledger.reset_source(SOURCE, 1, 0)
    meta = WriteMeta(column_ids=(1,), rows=3, source=SOURCE, generation=1)
    errors = [RowError(offset, RowCode.NOT_FOUND, "") for offset in (0, 2)]
    ledger.advance_source(ledger.admit_source(meta), 2, errors, np.array([0, 1, 2], np.int64))
    for generation, done, moved in ((1, 1, True), (1, 0, True), (0, 3, False)):
        assert ledger.reset_source(SOURCE, generation, done) is moved
        (state,) = ledger.sources
        assert (state.generation, state.last_offset, state.done) == (1, 2, 1)
        assert state.errors.of(np.array([0, 1, 2], np.int64)) == errors[1:]
        assert ledger.admit_source(meta).done == 1


def test_ledger_saved_without_a_last_offset_has_applied_nothing() -> None:
    """Goal: a saved source may lack its last offset, as the schema allows. Method: such a record is loaded."""
    ledger = Ledger()
    ledger.reset_source(SOURCE, 0, 0)
    saved = ledger.to_avro()
    saved["sources"][0]["last_offset"] = None
    assert [state.last_offset for state in Ledger.from_avro(saved).sources] == [-1]


def test_ledger_that_holds_what_none_can_is_corruption() -> None:
    """IN-21. Goal: a superblock with right checksums and impossible content fails one replica, not the server. Method:
    a run of errors that ends without a beginning, and an error of a code that nothing has."""
    ledger = Ledger()
    ledger.reset_source(SOURCE, 0, 0)
    for error in ({"offset": 5, "code": -1, "column": "v"}, {"offset": 5, "code": 999, "column": "v"}):
        saved = ledger.to_avro()
        saved["sources"][0]["errors"] = [error]
        with pytest.raises(Corruption, match="a ledger cannot be read"):
            Ledger.from_avro(saved)


def test_ledger_saved_by_a_build_with_wider_bounds_is_cut_to_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the bounds hold from the start on. Method: three results, loaded where two may be; the oldest is gone."""
    ledger = Ledger()
    _record(ledger, ("a", 1, 0), ("a", 2, 0), ("b", 1, 0))
    monkeypatch.setattr(limits, "LEDGER_RESULTS_MAX", 2)
    loaded = Ledger.from_avro(ledger.to_avro())
    assert [_admitted(loaded, write) for write in (("a", 1, 0), ("c", 1, 0))] == [Code.EXPIRED, None]
    assert loaded.client_result("a", 2) and loaded.client_result("b", 1)
