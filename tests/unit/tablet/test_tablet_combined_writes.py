"""Which small writes are applied in one step, and what that step says of each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from nyala.replica.rows import RowError, WriteMeta
from nyala.replica.tablet.combined_writes import PAYLOAD_BYTES_MAX, WRITES_MAX, CombinedWrites, combine
from nyala.replica.tablet.error_runs import NO_ERRORS
from nyala.replica.tablet.ledger import ClientResult, Ledger
from nyala.replica.types import Code, Entry, Refused, RowCode
from tests.harness.tablet_twin import INT_SCHEMA, SOURCE, batch_of, noop_entry, schema_entry, write_entry

NAMES = ["k", "r"]
Rows = list[dict[str, Any]]


def _rows(index: int, count: int = 1) -> Rows:
    """Rows with keys and offsets of their own."""
    return [{"op": 1, "offset": 5 + n, "k": 10 * index + n, "r": n, "s": "s"} for n in range(count)]


def _write(index: int, *, count: int = 1, **meta: Any) -> Entry:
    meta = {"source": None, "client_id": "a", "sequence": index, **meta}
    return write_entry(index, INT_SCHEMA, NAMES, _rows(index, count), **meta)


def _combined(
    entries: Sequence[Entry], *, first: int = 0, last_time: int = 0, ledger: Ledger | None = None, bad: int = -1
) -> CombinedWrites | None:
    """`bad`: the index of an entry whose rows cannot be decoded."""

    def decode(entry: Entry, meta: WriteMeta) -> Any:
        if entry.opid.index == bad:
            raise Refused(Code.INVALID_BATCH, "no rows")
        names = [column.name for column in INT_SCHEMA.columns if column.id in meta.column_ids]
        return batch_of(INT_SCHEMA, names, _rows(entry.opid.index, meta.rows))

    ledger = ledger or Ledger()
    return combine(entries, first, schema_id=1, last_time=last_time, ledger=ledger, decode=decode)


def _count(entries: Sequence[Entry], **options: Any) -> int:
    """How many are applied in one step; 0 if the first is applied alone."""
    found = _combined(entries, **options)
    return 0 if found is None else len(found.entries)


def test_writes_next_to_each_other_are_one_step_and_keep_what_each_of_them_is() -> None:
    """Goal: one step leaves the times, rows and results that single ones leave. Method: three writes of one, three and
    two rows behind an entry that was applied; the clock of the second stood still."""
    entries = [noop_entry(1), _write(2), _write(3, count=3)._replace(hybrid_time=2000), _write(4, count=2)]
    found = _combined(entries, first=1, last_time=1999)
    assert found is not None and found.entries == entries[1:]
    assert found.metas == [WriteMeta.decode(entry.meta) for entry in entries[1:]]
    assert found.stamps == [2000, 2001, 4000]
    assert found.times.tolist() == [2000, 2001, 2001, 2001, 4000, 4000]
    assert found.starts.tolist() == [0, 1, 4] and found.rows.offsets.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.rows.columns[1].to_pylist() == [20, 30, 31, 32, 40, 41]
    assert found.payload_bytes == sum(len(entry.payload) for entry in entries)
    assert (found.rows.ignore_null, found.rows.bounded) == (False, False)
    late = _combined(entries, first=1, last_time=2500)
    assert late is not None and late.stamps == [2501, 2502, 4000]


def test_errors_of_one_step_are_told_to_the_write_whose_rows_they_are() -> None:
    """Goal: each client hears of its own rows, by its own offsets. Method: errors at the first and last row of writes
    of one, three and two rows, in no order."""
    found = _combined([_write(1), _write(2, count=3), _write(3, count=2)])
    assert found is not None
    told = found.errors_by_write([RowError(at, RowCode.NOT_FOUND, "r") for at in (5, 1, 3, 0)])
    assert [[error.offset for error in errors] for errors in told] == [[5], [5, 7], [6]]
    assert {(error.code, error.column) for errors in told for error in errors} == {(RowCode.NOT_FOUND, "r")}
    assert found.errors_by_write([]) == [[], [], []]


def test_step_ends_before_a_write_that_is_applied_alone() -> None:
    """Goal: nothing is combined whose outcome depends on what came before it. Method: two plain writes, then one that
    differs in one thing, then two plain ones: the step has the first two. Such a write is never the first of a step
    with one of another sort."""
    others = {
        "nothing": noop_entry(3),
        "the same schema again": schema_entry(3, INT_SCHEMA),
        "a longer payload": _write(3)._replace(payload=bytes(PAYLOAD_BYTES_MAX + 1)),
        "another schema": _write(3)._replace(schema_id=2),
        "a source": _write(3, source=SOURCE),
        "nobody's": _write(3, client_id=""),
        "other columns": write_entry(3, INT_SCHEMA, ["k", "s", "r"], _rows(3), source=None, client_id="a", sequence=3),
        "nulls leave values": _write(3, ignore_null=True),
        "bounded rows": _write(3, rows_bounded=True),
        "known already": _write(3, sequence=2),
    }
    for what, other in others.items():
        plain = [_write(1), _write(2), other, _write(4), _write(5)]
        assert _count(plain) == 2, what
        assert _count(plain, first=1) == 0, what
        assert _count([_write(9), *plain[:2]], first=0) == 3
    assert _count([_write(n) for n in range(1, 6)], bad=3) == 2
    assert _count([_write(n) for n in range(1, 6)], bad=1) == 0
    longest = [_write(n)._replace(payload=bytes(PAYLOAD_BYTES_MAX)) for n in (1, 2)]
    assert _count(longest) == 2, "as long as it may be"
    assert _count([_write(n, ignore_null=True, rows_bounded=True) for n in (1, 2)]) == 2, "both of one sort"


def test_step_is_bounded_and_one_write_is_none() -> None:
    """Goal: a step takes the lock for a bounded time. Method: as many writes as a step has, one more, two, one."""
    writes = [_write(n) for n in range(1, WRITES_MAX + 2)]
    assert [_count(writes[:many]) for many in (1, 2, WRITES_MAX, WRITES_MAX + 1)] == [0, 2, WRITES_MAX, WRITES_MAX]
    assert _count(writes, first=1) == WRITES_MAX and _count(writes, first=WRITES_MAX) == 0


@pytest.mark.parametrize(("known", "count"), [(3, 2), (2, 0), (1, 0)])
def test_step_ends_before_a_write_whose_outcome_the_ledger_knows(known: int, count: int) -> None:
    """Goal: a write that comes again is never applied a second time. Method: the ledger knows one of four writes."""
    ledger = Ledger()
    meta = WriteMeta(column_ids=(1,), rows=1, client_id="a", sequence=known)
    ledger.record_client(meta, 1, ClientResult(known, 1, 1, NO_ERRORS))
    assert _count([_write(n) for n in (1, 2, 3, 4)], ledger=ledger) == count
