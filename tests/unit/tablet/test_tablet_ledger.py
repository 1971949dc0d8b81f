"""The ledger of a tablet: sources, generations, remembered errors, clients."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import numpy as np
import pytest

from nyala.replica.rows import RowError, RowOp
from nyala.replica.tablet import Superblock, Tablet
from nyala.replica.tablet.error_runs import ErrorRuns, PackedErrors
from nyala.replica.types import Code, RowCode, hybrid_from_us, limits
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import INT_SCHEMA, SOURCE, ledger_entry, noop_entry, rows_of, superblock, write_entry

NAMES = ["k", "r"]


def _rows(*offsets: int, op: int = RowOp.INSERT) -> list[dict[str, Any]]:
    return [{"op": op, "offset": o, "k": o % 10, "r": o} for o in offsets]


def _tablet() -> tuple[SimDisk, Tablet]:
    disk = SimDisk()
    return disk, Tablet.create(disk, superblock(INT_SCHEMA))


def _reopen(disk: SimDisk, tablet: Tablet) -> Tablet:
    return Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))


def test_ledger_batch_above_a_hole_is_refused_whole() -> None:
    """Goal: a batch that builds on an offset not applied here is a GAP and moves nothing but the position.
    Method: `after` above the last offset, then the same batch in order; then one that lacks a single offset."""
    _, tablet = _tablet()
    (result,) = tablet.apply([write_entry(1, INT_SCHEMA, NAMES, _rows(5, 6), after=4)])
    assert result.error is not None and result.error.code is Code.GAP
    assert rows_of(tablet.scan(), INT_SCHEMA) == []
    assert tablet.applied_opid.index == 1
    results = tablet.apply(
        [
            write_entry(2, INT_SCHEMA, NAMES, _rows(4)),
            write_entry(3, INT_SCHEMA, NAMES, _rows(5, 6), after=4),
        ]
    )
    assert [r.error for r in results] == [None, None]
    assert results[1].last_offset == 6
    (result,) = tablet.apply([write_entry(4, INT_SCHEMA, NAMES, _rows(8), after=7)])
    assert result.error is not None and result.error.code is Code.GAP, "7 is not applied here"
    assert len(rows_of(tablet.scan(), INT_SCHEMA)) == 3


def test_ledger_replayed_rows_return_their_errors_until_done_passes() -> None:
    """Goal: a replayed batch, cut anywhere, returns the errors its rows had, also after a flush and a restart; below
    `done` they are forgotten. Method: two failing rows, replay whole, in part, after reopening, then with `done`."""
    disk, tablet = _tablet()
    errors = (RowError(11, RowCode.ALREADY_PRESENT, ""), RowError(12, RowCode.ALREADY_PRESENT, ""))
    (result,) = tablet.apply([write_entry(1, INT_SCHEMA, NAMES, _rows(1, 2, 11, 12, 13))])
    assert result.row_errors == errors and result.rows_applied == 3
    tablet.flush()
    tablet = _reopen(disk, tablet)
    whole, part, new = tablet.apply(
        [
            write_entry(2, INT_SCHEMA, NAMES, _rows(1, 2, 11, 12, 13)),
            write_entry(3, INT_SCHEMA, NAMES, _rows(12, 13, 14)),
            write_entry(4, INT_SCHEMA, NAMES, _rows(11, 12), done=12),
        ]
    )
    assert (whole.row_errors, whole.rows_applied, whole.rows_replayed) == (errors, 0, 5)
    assert (part.row_errors, part.rows_applied, part.rows_replayed) == (errors[1:], 1, 2)
    assert new.row_errors == errors[1:]
    disk.close()


def test_ledger_error_of_the_very_row_at_done_is_remembered() -> None:
    """Goal: `done` covers the rows below it, not the row at it. Method: a batch whose only error is of the row at
    `done` is replayed."""
    _, tablet = _tablet()
    expected = (RowError(11, RowCode.ALREADY_PRESENT, ""),)
    first, again = tablet.apply([write_entry(n, INT_SCHEMA, NAMES, _rows(1, 11), done=11) for n in (1, 2)])
    assert (first.row_errors, first.rows_applied) == (expected, 1)
    assert (again.row_errors, again.rows_replayed) == (expected, 2)


def test_replay_of_writes_whose_rows_all_failed_gives_the_same_errors() -> None:
    """Scenario 45: nothing says in the log that a write failed (D-16): replay fails its rows again, all of them, with
    the same errors. Method: inserts of what is there and updates of what is not; reopen and replay all, then what
    follows a flush; results, rows and what a client hears who sends a batch again are the same."""
    disk, tablet = _tablet()
    log = [
        write_entry(1, INT_SCHEMA, NAMES, _rows(1, 2)),
        write_entry(2, INT_SCHEMA, NAMES, _rows(11, 12)),
        write_entry(3, INT_SCHEMA, NAMES, _rows(13, 14, op=RowOp.UPDATE)),
    ]
    sent_again = write_entry(4, INT_SCHEMA, NAMES, _rows(11, 12, 13, 14))
    first = tablet.apply(log)
    assert [(r.rows_applied, len(r.row_errors)) for r in first] == [(2, 0), (0, 2), (0, 2)]
    assert {e.code for r in first for e in r.row_errors} == {RowCode.ALREADY_PRESENT, RowCode.NOT_FOUND}
    rows, (heard,) = rows_of(tablet.scan(), INT_SCHEMA), tablet.apply([sent_again])

    for flushed in (0, 1, 2):
        disk, tablet = _tablet()
        tablet.apply(log[:flushed])
        tablet.flush()
        tablet.apply(log[flushed:])
        tablet = _reopen(disk, tablet)
        assert tablet.flush_opid.index == flushed
        assert tablet.apply(log[flushed:]) == first[flushed:]
        assert rows_of(tablet.scan(), INT_SCHEMA) == rows
        assert tablet.apply([sent_again]) == [heard]
        disk.close()


def test_ledger_generations_start_anew_and_refuse_older() -> None:
    """Goal: an entry of a higher generation restarts the source; older generations are refused. Method: reset, an old
    batch, a new one."""
    _, tablet = _tablet()
    results = tablet.apply(
        [
            write_entry(1, INT_SCHEMA, NAMES, _rows(100)),
            ledger_entry(2, SOURCE, 1, 0),
            write_entry(3, INT_SCHEMA, NAMES, _rows(101), generation=0),
            write_entry(4, INT_SCHEMA, NAMES, _rows(7), generation=1),
            write_entry(5, INT_SCHEMA, NAMES, _rows(2), generation=2),
            ledger_entry(6, SOURCE, 1, 0),
        ]
    )
    codes = [r.error.code if r.error else None for r in results]
    assert codes == [None, None, Code.STALE_GENERATION, None, None, Code.STALE_GENERATION]
    assert [row["k"] for row in rows_of(tablet.scan(), INT_SCHEMA)] == [0, 2, 7]
    (state,) = tablet.ledger_sources()
    assert (state.generation, state.last_offset) == (2, 2)


def test_ledger_full_of_errors_refuses_instead_of_forgetting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: remembered errors are bounded, and at the bound a batch with new rows is refused whole until `done` passes
    them, while a replay is answered as ever. Method: a bound of two runs."""
    monkeypatch.setattr(limits, "LEDGER_ERROR_RUNS_MAX", 2)
    _, tablet = _tablet()
    results = tablet.apply(
        [
            write_entry(1, INT_SCHEMA, NAMES, _rows(1, 2, 11, 13, 22)),
            write_entry(2, INT_SCHEMA, NAMES, _rows(24)),
            write_entry(3, INT_SCHEMA, NAMES, _rows(1, 2, 11, 13, 22)),
            write_entry(4, INT_SCHEMA, NAMES, _rows(24), done=23),
        ]
    )
    assert [r.error.code if r.error else None for r in results] == [None, Code.OVERLOADED, None, None]
    assert [e.offset for e in results[0].row_errors] == [11, 22] == [e.offset for e in results[2].row_errors]
    assert (results[2].rows_replayed, results[3].rows_applied) == (5, 1)


def test_ledger_remembers_a_micro_batch_of_nothing_but_duplicates() -> None:
    """Goal: guarantee 3: no number of bad records in one micro-batch stops the pipeline. Method: 20,000 inserts of
    present keys without an advance of `done`: all applied, and replayed from the start with every error again, also
    after a flush and a restart. They are one run of errors, which takes as much for any number of them."""
    disk, tablet = _tablet()
    tablet.apply(
        [write_entry(1, INT_SCHEMA, NAMES, [{"op": RowOp.INSERT, "offset": o, "k": o, "r": 0} for o in range(10)])]
    )
    index, size = 1, 2_000
    for again in (False, True):
        for first in range(10, 20_010, size):
            index += 1
            (result,) = tablet.apply(
                [write_entry(index, INT_SCHEMA, NAMES, _rows(*range(first, first + size)), done=0)]
            )
            assert result.error is None and len(result.row_errors) == size
            assert result.rows_replayed == (size if again else 0)
        if not again:
            tablet.flush()
            tablet = _reopen(disk, tablet)
    (state,) = tablet.ledger_sources()
    assert len(state.errors) == 1 and disk.size(f"tablet-meta/{tablet.tablet_id}") < 4096
    disk.close()


def test_error_runs_agree_with_a_list_of_errors_on_random_batches() -> None:
    """Goal: the stored runs give exactly the error of each row. Method: random batches with holes, random failures,
    random advances of `done`, saved and loaded in between, against a plain dict."""
    rng = random.Random(3)
    for _ in range(60):
        runs, plain, last, rows_seen = ErrorRuns.none(), {}, -1, []
        for _ in range(rng.randint(1, 12)):
            offsets = sorted(rng.sample(range(last + 1, last + 60), rng.randint(1, 20)))
            odds, codes = (
                rng.choice([0.0, 0.2, 0.9, 1.0]),
                [RowCode.ALREADY_PRESENT, RowCode.NOT_FOUND][: rng.randint(1, 2)],
            )
            errors = [RowError(o, rng.choice(codes), rng.choice(["", "v"])) for o in offsets if rng.random() < odds]
            runs = runs.append(errors, np.array(offsets, np.int64), after=last)
            plain.update({e.offset: e for e in errors})
            rows_seen += offsets
            last = offsets[-1]
            if rng.random() < 0.3:
                done = rng.randint(0, last + 2)
                runs = runs.forget_below(done)
                plain = {o: e for o, e in plain.items() if o >= done}
            if rng.random() < 0.3:
                runs = ErrorRuns.from_avro(runs.to_avro())
            asked = sorted(rng.sample(rows_seen, rng.randint(1, len(rows_seen))))
            assert runs.of(np.array(asked, np.int64)) == [plain[o] for o in asked if o in plain]
            assert len(runs) <= len(plain)


def test_error_runs_that_do_not_fit_together_are_refused() -> None:
    """Goal: a damaged ledger is refused. Method: ends without a beginning, of another reason, backwards."""
    begin = {"offset": 5, "code": 1, "column": "v"}
    for end in (
        {"offset": 9, "code": -2, "column": "v"},
        {"offset": 9, "code": -1, "column": ""},
        {**begin, "code": -1},
    ):
        with pytest.raises(ValueError, match="did not begin"):
            ErrorRuns.from_avro([begin, end])
        with pytest.raises(ValueError, match="did not begin"):
            ErrorRuns.from_avro([end])


def test_packed_errors_agree_with_a_list_of_errors_on_random_batches() -> None:
    """Goal: the packed errors of a client's write are exactly those that it was answered with, also if a former build
    saved them one by one. Method: random errors, in runs and with holes, saved and loaded."""
    rng = random.Random(4)
    for _ in range(60):
        offsets = sorted(rng.sample(range(60), rng.randint(0, 50)))
        codes = [RowCode.ALREADY_PRESENT, RowCode.NOT_FOUND][: rng.randint(1, 2)]
        errors = tuple(RowError(o, rng.choice(codes), rng.choice(["", "v"][: rng.randint(1, 2)])) for o in offsets)
        packed = PackedErrors.of(errors)
        assert packed.errors() == errors
        assert PackedErrors.from_avro(packed.to_avro()) == packed
        plain = [{"offset": e.offset, "code": int(e.code), "column": e.column} for e in errors]
        assert PackedErrors.from_avro(plain) == packed


def test_packed_errors_take_no_more_than_they_count() -> None:
    """Goal: the counted size of remembered errors is at least their memory. Method: traced memory of many errors, as
    they are kept and as they are saved; and a run of many takes what a run of one takes."""
    scattered = [RowError(2 * n, RowCode.ALREADY_PRESENT, "name") for n in range(20_000)]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    packed = PackedErrors.of(scattered)
    saved = packed.to_avro()
    took = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert len(saved) == len(scattered) and took <= packed.size_bytes
    runs = [PackedErrors.of(RowError(n, RowCode.NOT_FOUND) for n in range(rows)) for rows in (2, 80_000)]
    assert runs[0].size_bytes == runs[1].size_bytes and len(runs[1].to_avro()) == 2


def _client(
    index: int, sequence: int, offset: int, *, first: int = 0, time: int | None = None, name: str = "c1"
) -> Any:
    return write_entry(
        index,
        INT_SCHEMA,
        NAMES,
        _rows(offset),
        source=None,
        client_id=name,
        sequence=sequence,
        first_incomplete=first,
        time=time,
    )


def test_ledger_client_write_again_returns_the_first_result() -> None:
    """Goal: a retried client write is applied once and answered as the first time, also after a flush and a restart;
    what the client declared complete is EXPIRED. Method: an insert that fails, its retry, a retry after forgetting."""
    disk, tablet = _tablet()
    first, second, again = tablet.apply([_client(1, 1, 1), _client(2, 2, 11), _client(3, 2, 11)])
    assert second.row_errors == again.row_errors == (RowError(11, RowCode.ALREADY_PRESENT, ""),)
    assert (again.hybrid_time, again.rows_replayed) == (second.hybrid_time, 1)
    assert first.rows_applied == 1
    tablet.flush()
    tablet = _reopen(disk, tablet)
    kept, moved, expired = tablet.apply([_client(4, 2, 11), _client(5, 3, 2, first=3), _client(6, 2, 11)])
    assert kept.row_errors == second.row_errors
    assert moved.rows_applied == 1
    assert expired.error is not None and expired.error.code is Code.EXPIRED
    disk.close()


def test_ledger_idle_client_expires_by_entry_time_not_by_clock() -> None:
    """Goal: clients are forgotten by the entries' own time, so on every replica at the same entry.
    Method: another client writes just before and just after the first one's time to live."""
    _, tablet = _tablet()
    start = 1_000_000_000
    end = start + limits.LEDGER_CLIENT_TTL_US
    results = tablet.apply(
        [
            _client(1, 1, 1, time=hybrid_from_us(start)),
            _client(2, 1, 1, time=hybrid_from_us(end)),
            _client(3, 1, 1, time=hybrid_from_us(2 * end)),
        ]
    )
    assert [r.rows_replayed for r in results] == [0, 1, 0]
    assert results[2].row_errors == (RowError(1, RowCode.ALREADY_PRESENT, ""),)


def _clients(tablet: Tablet) -> dict[str, list[int]]:
    """Return the remembered clients, and their remembered numbers."""
    return {c["client_id"]: [r["sequence"] for r in c["results"]] for c in tablet.ledger.to_avro()["clients"]}


def test_ledger_client_results_stay_while_a_repetition_may_come_and_go_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """CN-24. Goal: scenario 55: a repeated write gets its result while that is remembered, EXPIRED when the result is
    forgotten, and counts as new when the client is forgotten. Method: a bound of three results; a write that waited in
    the log as long as its client may live, applied together with what came later."""
    monkeypatch.setattr(limits, "LEDGER_RESULTS_PER_CLIENT_MAX", 3)
    _, tablet = _tablet()
    ttl, start = limits.LEDGER_CLIENT_TTL_US, 1_000_000_000
    at = lambda us: hybrid_from_us(start + us)  # noqa: E731
    first, again = tablet.apply([_client(1, 1, 1, time=at(0)), _client(2, 1, 1, time=at(ttl))])
    assert (again.row_errors, again.rows_applied, again.hybrid_time) == ((), 1, first.hybrid_time)

    tablet.apply([_client(n + 1, n, n, time=at(ttl + n)) for n in (2, 3, 4)])
    before = rows_of(tablet.scan(), INT_SCHEMA)
    (forgotten,) = tablet.apply([_client(6, 1, 9, time=at(ttl + 6))])
    assert forgotten.error is not None and forgotten.error.code is Code.EXPIRED
    assert rows_of(tablet.scan(), INT_SCHEMA) == before and _clients(tablet) == {"c1": [2, 3, 4]}

    (slow, other, late) = tablet.apply(
        [
            _client(7, 5, 11, time=at(2 * ttl)),
            _client(8, 1, 5, time=at(3 * ttl - 1), name="c2"),
            _client(9, 5, 11, time=at(3 * ttl)),
        ]
    )
    assert slow.row_errors == late.row_errors == (RowError(11, RowCode.ALREADY_PRESENT, ""),)
    assert (other.rows_applied, late.rows_replayed, late.hybrid_time) == (1, 1, slow.hybrid_time)

    tablet.apply([_client(10, 2, 6, time=at(4 * ttl + 1), name="c2")])
    assert _clients(tablet) == {"c2": [2]}
    (new,) = tablet.apply([_client(11, 4, 4, time=at(4 * ttl + 2))])
    assert new.rows_replayed == 0 and new.row_errors == (RowError(4, RowCode.ALREADY_PRESENT, ""),)
    tablet.apply([_client(12, 1, 7, time=at(6 * ttl), name="c3")])
    assert _clients(tablet) == {"c3": [1]}


def test_ledger_evicted_client_goes_on_and_its_older_writes_do_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """CN-24. Goal: scenario 57: a forgotten client goes on with new numbers, and from its first new write on, its older
    ones are refused. A live client is never evicted: one client too many is refused. Method: a bound of two clients;
    one falls silent, its write comes again before and after its next one; the same entries at a tablet that was flushed
    and opened in between."""
    monkeypatch.setattr(limits, "LEDGER_CLIENTS_MAX", 2)
    ttl = limits.LEDGER_CLIENT_TTL_US
    at = lambda us: hybrid_from_us(1_000_000_000 + us)  # noqa: E731
    entries = [
        _client(1, 7, 1, time=at(0), first=7),
        _client(2, 1, 2, time=at(1), name="c2"),
        _client(3, 1, 3, time=at(ttl), name="c3"),
        _client(4, 2, 4, time=at(ttl + 1), name="c2"),
        _client(5, 1, 3, time=at(ttl + 1), name="c3"),
        _client(6, 2, 6, time=at(2 * ttl + 1), name="c3"),
        _client(7, 7, 1, time=at(2 * ttl + 2), first=7),
        _client(8, 8, 5, time=at(2 * ttl + 3), first=8),
        _client(9, 7, 1, time=at(2 * ttl + 4), first=7),
    ]
    told = []
    for flushed_after in (None, *range(1, 9)):
        disk, tablet = _tablet()
        results = []
        for entry in entries:
            results += tablet.apply([entry])
            if entry.opid.index == flushed_after:
                tablet.flush()
                tablet = _reopen(disk, tablet)
        told.append([(r.error.code if r.error else None, r.rows_applied, r.row_errors) for r in results])
        disk.close()
    present = (RowError(1, RowCode.ALREADY_PRESENT, ""),)
    done, full, expired = (None, 1, ()), (Code.OVERLOADED, 0, ()), (Code.EXPIRED, 0, ())
    assert told[0] == [done, done, full, done, done, done, (None, 0, present), done, expired]
    assert told == [told[0]] * len(told)


def _all_present(index: int, name: str, rows: int, time: int) -> Any:
    """Inserts of present keys only, under offsets of which no two touch: no two errors are of one run."""
    failing = [{"op": RowOp.INSERT, "offset": 2 * n, "k": n, "r": 0} for n in range(rows)]
    return write_entry(index, INT_SCHEMA, NAMES, failing, source=None, client_id=name, sequence=1, time=time)


@pytest.mark.parametrize("by", ["noop", "source"])
def test_ledger_row_errors_of_many_clients_are_bounded_and_end_with_any_later_entry(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: scenario 55: the errors of all clients together are bounded, in memory and in the superblock, and forgotten
    when later entries of any kind are late enough. A result that exceeds the bound alone is forgotten at once; the
    writer is told so, and the write is not applied again. Method: a tenth of the bound; 50 clients with 400 errors
    each, one with 4,000; their writes again, also after a flush and a restart; one entry after their time."""
    monkeypatch.setattr(limits, "LEDGER_ERRORS_BYTES_MAX", limits.LEDGER_ERRORS_BYTES_MAX // 10)
    disk, tablet = _tablet()
    at = lambda us: hybrid_from_us(1_000_000_000 + us)  # noqa: E731
    present = [{"op": RowOp.INSERT, "offset": n, "k": n, "r": 0} for n in range(4000)]
    tablet.apply([write_entry(1, INT_SCHEMA, NAMES, present, time=at(0))])
    first = tablet.apply([_all_present(n, f"c{n}", 400, at(n)) for n in range(2, 52)])
    assert {(r.error, r.rows_applied, len(r.row_errors)) for r in first} == {(None, 0, 400)}
    (large,) = tablet.apply([_all_present(52, "large", 4000, at(52))])
    assert len(large.row_errors) == 4000

    counted = tablet.memory_bytes - tablet.row_bytes
    assert limits.LEDGER_ERRORS_BYTES_MAX / 2 < counted < limits.LEDGER_ERRORS_BYTES_MAX + 52 * 2000
    tablet.flush()
    assert disk.size(f"tablet-meta/{tablet.tablet_id}") < (1 << 20) / 10
    before, ledger = tablet.checksum(), tablet.ledger.to_avro()
    tablet = _reopen(disk, tablet)
    assert tablet.ledger.to_avro() == ledger and tablet.memory_bytes - tablet.row_bytes == counted
    again = tablet.apply(
        [
            _all_present(53, "c51", 400, at(53)),
            _all_present(54, "c2", 400, at(54)),
            _all_present(55, "large", 4000, at(55)),
        ]
    )
    assert again[0].row_errors == first[-1].row_errors and again[0].rows_replayed == 400
    assert [r.error and r.error.code for r in again[1:]] == [Code.EXPIRED] * 2
    assert tablet.remembered("c2", 1) is None and tablet.checksum() == before

    late = at(limits.LEDGER_CLIENT_TTL_US + 60)
    more = [{"op": RowOp.INSERT, "offset": 4000, "k": 4000, "r": 0}]
    tablet.apply([noop_entry(56, late) if by == "noop" else write_entry(56, INT_SCHEMA, NAMES, more, time=late)])
    assert _clients(tablet) == {} and tablet.memory_bytes == tablet.row_bytes
    disk.close()


def test_ledger_results_of_many_clients_are_bounded_and_the_oldest_is_done_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: the results of all clients together are bounded; a write whose result was forgotten is refused, and not
    applied again. Method: a bound of four; two clients, the first of which declares nothing complete; the same after a
    restart."""
    monkeypatch.setattr(limits, "LEDGER_RESULTS_MAX", 4)
    disk, tablet = _tablet()
    tablet.apply([_client(n, n, n) for n in (1, 2, 3)])
    tablet.apply([_client(4, 1, 4, name="c2"), _client(5, 2, 5, name="c2")])
    tablet.flush()
    tablet = _reopen(disk, tablet)
    tablet.apply([_client(6, 3, 6, name="c2")])
    assert _clients(tablet) == {"c1": [3], "c2": [1, 2, 3]}
    gone, kept = tablet.apply([_client(7, 2, 7), _client(8, 3, 7)])
    assert gone.error is not None and gone.error.code is Code.EXPIRED
    assert (kept.error, kept.rows_replayed) == (None, 1)
    disk.close()


@pytest.mark.parametrize("bound", ["LEDGER_RESULTS_PER_CLIENT_MAX", "LEDGER_RESULTS_MAX"])
def test_ledger_number_below_a_forgotten_one_is_expired_however_entries_are_handed_over(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: whether a number is too old is a matter of the log alone. Method: a bound of three results; a write that
    makes the oldest one go, and one of a number below it, applied together and one after the other."""
    monkeypatch.setattr(limits, bound, 3)
    entries = [_client(n - 9, n, n - 9) for n in (10, 11, 12)] + [_client(4, 13, 4), _client(5, 5, 5)]
    for together in (1, 5):
        _, tablet = _tablet()
        results = []
        for pos in range(0, len(entries), together):
            results += tablet.apply(entries[pos : pos + together])
        assert [r.error and r.error.code for r in results] == [None, None, None, None, Code.EXPIRED]
        assert _clients(tablet) == {"c1": [11, 12, 13]}


def test_ledger_saved_is_as_of_the_flush_not_of_the_moment() -> None:
    """Goal: the superblock's ledger belongs to its flush position; entries applied later are replayed in full.
    Method: apply more after the flush, drop memory, replay the log from the flush on."""
    disk, tablet = _tablet()
    tablet.apply([write_entry(1, INT_SCHEMA, NAMES, _rows(1, 2))])
    tablet.flush()
    later = write_entry(2, INT_SCHEMA, NAMES, _rows(3, 4), after=2)
    tablet.apply([later])
    tablet = _reopen(disk, tablet)
    assert tablet.ledger_sources()[0].last_offset == 2
    (result,) = tablet.apply([later])
    assert (result.rows_applied, result.rows_replayed) == (2, 0)
    disk.close()
