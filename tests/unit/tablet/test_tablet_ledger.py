"""What was applied already: sources, generations, remembered errors, clients."""

from __future__ import annotations

from typing import Any

import pytest

from nyala.replica.base import Code, RowCode, hybrid_from_us, limits
from nyala.replica.rows import RowError, RowOp
from nyala.replica.tablet import Superblock, Tablet
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import INT_SCHEMA, SOURCE, ledger_entry, rows_of, superblock, write_entry

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
    Method: `after` above the last offset, then the same batch in order."""
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


def test_ledger_generations_start_anew_and_refuse_older() -> None:
    """Goal: a LEDGER entry or a batch of a higher generation starts the source anew; older ones are refused.
    Method: reset, an old batch, a new one."""
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
    """Goal: remembered errors are bounded, and at the bound a batch is refused whole until `done` passes them.
    Method: a bound of two errors."""
    monkeypatch.setattr(limits, "LEDGER_ERRORS_BYTES_MAX", 48)
    _, tablet = _tablet()
    results = tablet.apply(
        [
            write_entry(1, INT_SCHEMA, NAMES, _rows(1, 2, 11, 12)),
            write_entry(2, INT_SCHEMA, NAMES, _rows(13)),
            write_entry(3, INT_SCHEMA, NAMES, _rows(13), done=13),
        ]
    )
    assert [r.error.code if r.error else None for r in results] == [None, Code.OVERLOADED, None]
    assert results[2].rows_applied == 1


def _client(index: int, sequence: int, offset: int, *, first: int = 0, time: int | None = None) -> Any:
    return write_entry(
        index,
        INT_SCHEMA,
        NAMES,
        _rows(offset),
        source=None,
        client_id="c1",
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
