"""Row errors as runs: the same errors come out that went in, whatever was forgotten meanwhile, in little room."""

from __future__ import annotations

import sys
from random import Random

import numpy as np
import pytest

from nyala.replica.rows import RowError
from nyala.replica.tablet.error_runs import NO_ERRORS, ErrorRuns, PackedErrors
from nyala.replica.types import RowCode

Reason = tuple[int, str]
Run = tuple[int, int, int, str]
REASONS: list[Reason | None] = [None, (RowCode.NOT_FOUND, ""), (RowCode.NOT_FOUND, "a"), (RowCode.ALREADY_PRESENT, "a")]


class Model:
    """The runs of a source, made one row at a time. `last`: the row that the tablet got last."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.last = -1

    def row(self, offset: int, reason: Reason | None) -> None:
        if reason is not None:
            if self.runs and self.runs[-1][1:] == (self.last, *reason):
                self.runs[-1] = (self.runs[-1][0], offset, *reason)
            else:
                self.runs.append((offset, offset, *reason))
        self.last = offset

    def forget_below(self, offset: int) -> None:
        left = [run for run in self.runs if run[1] >= offset]
        self.runs = [(max(first, offset), last, code, name) for first, last, code, name in left]

    def of(self, offset: int) -> list[RowError]:
        found = [run for run in self.runs if run[0] <= offset <= run[1]]
        return [RowError(offset, RowCode(code), name) for _, _, code, name in found]


@pytest.mark.a_third
@pytest.mark.parametrize("seed", range(40))
def test_source_is_told_each_error_until_it_is_forgotten(seed: int) -> None:
    """Goal: a batch that comes again is told its former errors, however they were packed, saved and read back. Method:
    random batches of a source, of which this tablet gets some rows, and its done position; a model that goes row by
    row."""
    rng, runs, model, offset = Random(seed), ErrorRuns.none(), Model(), 0
    for _ in range(30):
        rows, after = list[tuple[int, Reason | None]](), model.last
        for _ in range(rng.randrange(1, 6)):
            reason = rows[-1][1] if rows and rng.random() < 0.6 else rng.choice(REASONS)
            rows.append((offset, reason))
            model.row(*rows[-1])
            offset += rng.choice((1, 1, 3))
        errors = [RowError(at, RowCode(reason[0]), reason[1]) for at, reason in rows if reason is not None]
        runs = runs.append(errors, np.array([at for at, _ in rows], np.int64), after=after)
        if rng.random() < 0.3:
            done = rng.randrange(max(0, offset - 9), offset + 2)
            model.forget_below(done)
            runs = runs.forget_below(done)
        assert list(runs) == model.runs and len(runs) == len(model.runs)
        every = np.arange(offset + 2)
        assert runs.of(every) == [error for at in every.tolist() for error in model.of(at)]
        some = every[rng.randrange(offset) :: 2]
        assert runs.of(some) == [error for at in some.tolist() for error in model.of(at)]
        assert list(ErrorRuns.from_avro(runs.to_avro())) == model.runs
        listed = PackedErrors.from_avro(runs.to_avro()).errors()
        assert list(listed) == runs.of(every), "earlier builds wrote a client's errors so"


def test_runs_that_go_on_take_no_more_room() -> None:
    """Goal: a producer that repeats one error over many batches fills no ledger. Method: a thousand batches with gaps
    between their rows are one run, saved as two records; no row at all is no error."""
    runs = ErrorRuns.none()
    for n in range(1000):
        runs = runs.append([RowError(7 * n, RowCode.NOT_FOUND, "a")], np.array([7 * n]), after=7 * (n - 1))
    assert list(runs) == [(0, 6993, RowCode.NOT_FOUND, "a")] and len(runs.to_avro()) == 2
    assert runs.of(np.array([], np.int64)) == [] and ErrorRuns.none().of(np.array([1])) == []
    assert len(runs.forget_below(6993)) == 1 and len(runs.forget_below(6994)) == 0
    assert runs.forget_below(0) is runs and runs.forget_below(6994).columns == (), "no copy, and no name that is unused"


def _errors(*offsets: int, column: str = "a", code: RowCode = RowCode.NOT_FOUND) -> list[RowError]:
    return [RowError(offset, code, column) for offset in offsets]


def test_errors_of_a_write_are_listed_as_they_were_and_neighbours_are_one_run() -> None:
    """Goal: a client whose write comes again is told what it was told. Method: rows side by side with one reason, with
    another code, with another column, and apart; saved and read back."""
    errors = _errors(3, 4, 5) + _errors(6, code=RowCode.NULL_KEY) + _errors(7, column="b") + _errors(8) + _errors(10)
    packed = PackedErrors.of(errors)
    assert packed.errors() == tuple(errors)
    assert [(first, last) for first, last, _, _ in packed.runs()] == [(3, 5), (6, 6), (7, 7), (8, 8), (10, 10)]
    assert PackedErrors.from_avro(packed.to_avro()) == packed
    assert PackedErrors.of([]) == NO_ERRORS == PackedErrors.from_avro([]) and NO_ERRORS.errors() == ()


def test_size_of_a_writes_errors_counts_records_and_names() -> None:
    """Goal: the bound on what clients' errors take holds in memory and in the saved superblock. Method: the size of one
    row, of a long run, of two runs, and of a longer name, against what each adds."""
    one, run, two = (PackedErrors.of(_errors(*rows)) for rows in ((5,), range(5, 500), (5, 9)))
    record = run.size_bytes - one.size_bytes
    assert record > sys.getsizeof({"offset": 5, "code": 1, "column": "a"})
    assert two.size_bytes - one.size_bytes == record + len(one.packed) == record + len(run.packed)
    named = PackedErrors.of(_errors(5, column="a" + "é" * 50))
    assert named.size_bytes - one.size_bytes == 100
    assert one.size_bytes > sys.getsizeof(one) + sys.getsizeof(one.packed) + record
    assert NO_ERRORS.size_bytes == 0


@pytest.mark.parametrize(
    "records",
    [
        [(5, -2, "a")],
        [(5, 2, "a"), (7, -3, "a")],
        [(5, 2, "a"), (7, -2, "b")],
        [(5, 2, "a"), (5, -2, "a")],
        [(5, 2, "a"), (4, -2, "a")],
        [(5, 2, "a"), (9, 1, "b"), (7, -1, "b")],
        [(5, 99, "a")],
        [(5, 0, "a")],
    ],
    ids=["no beginning", "another code", "another column", "its own row", "backwards", "later", "no code", "no error"],
)
def test_records_that_are_no_runs_are_refused(records: list[tuple[int, int, str]]) -> None:
    """Goal: a damaged ledger is found as it is read. Method: ends that do not fit their beginnings."""
    listed = [{"offset": offset, "code": code, "column": column} for offset, code, column in records]
    with pytest.raises(ValueError, match=r"did not begin|RowCode"):
        ErrorRuns.from_avro(listed)
