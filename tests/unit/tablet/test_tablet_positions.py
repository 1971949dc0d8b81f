"""Source positions read from a replica at rest, against the tablet that applies the same log."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nyala.replica.rows import Column, ColumnType, RowOp, TableSchema
from nyala.replica.tablet import Superblock, Tablet, source_positions
from nyala.replica.types import Entry, limits
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import (
    INT_SCHEMA,
    SOURCE,
    ledger_entry,
    noop_entry,
    schema_entry,
    superblock,
    write_entry,
)


def _log(rng: random.Random) -> list[Entry]:
    """Batches in order, replayed, with gaps and of old generations; resets; other entries."""
    entries: list[Entry] = []
    at, generation = 0, 1
    for index in range(1, 40):
        kind = rng.random()
        if kind < 0.1:
            entries.append(noop_entry(index))
        elif kind < 0.2:
            generation += rng.random() < 0.4
            entries.append(ledger_entry(index, SOURCE, generation, rng.randint(0, at + 1)))
        else:
            first = max(0, at + rng.randint(-3, 4))
            rows: list[dict[str, Any]] = [
                {"op": RowOp.UPSERT, "offset": o, "k": o % 10, "r": o} for o in range(first, first + rng.randint(1, 4))
            ]
            after = first - 1 if first and rng.random() < 0.7 else None
            more = {"generation": max(1, generation - (rng.random() < 0.1)), "done": rng.randint(0, at + 1)}
            entries.append(write_entry(index, INT_SCHEMA, ["k", "r"], rows, after=after, **more))
            at = max(at, first + len(rows) - 1)
    return entries


@pytest.mark.parametrize("seed", range(12))
def test_positions_at_rest_equal_those_of_the_tablet_that_applied_the_log(seed: int) -> None:
    """CC-41. Goal: the positions that the offline tool reads from the files are exactly those of a tablet that applies
    the whole log. Method: random logs, flushed somewhere; the ledger of the tablet that applied all of it says the same
    last offset, `done` and generation."""
    rng = random.Random(seed)
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    entries = _log(rng)
    for entry in entries:
        tablet.apply([entry])
        if rng.random() < 0.05:
            tablet.flush()
    stored = Superblock.load(disk, tablet.tablet_id)
    found = [(s.source, s.generation, s.last_offset, s.done) for s in source_positions(stored, entries)]
    tablet.flush()
    whole = source_positions(Superblock.load(disk, tablet.tablet_id), [])
    assert found == [(s.source, s.generation, s.last_offset, s.done) for s in whole]
    assert found
    tablet.close()
    disk.close()


def test_positions_at_rest_pass_over_what_the_tablet_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """CC-41. Goal: the offline tool leaves out a batch that the tablet refused, and counts one of a later schema.
    Method: behind a flush with as many errors as may be, a batch without room, one of a client, a new schema, one of
    it, and one of a schema that nobody knows; after each of them, what the tablet says."""
    monkeypatch.setattr(limits, "LEDGER_ERROR_RUNS_MAX", 2)
    later = TableSchema(2, (*INT_SCHEMA.columns, Column(id=9, name="x", type=ColumnType.INT32)), ("k",))
    unknown = TableSchema(7, INT_SCHEMA.columns, ("k",))
    rows = lambda *offsets: [{"op": RowOp.INSERT, "offset": o, "k": o % 10, "r": o} for o in offsets]  # noqa: E731
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    entries = [
        write_entry(1, INT_SCHEMA, ["k", "r"], rows(1, 2, 11, 13, 22)),
        write_entry(2, INT_SCHEMA, ["k", "r"], rows(24)),
        write_entry(3, INT_SCHEMA, ["k", "r"], rows(5), source=None, client_id="c", sequence=1),
        schema_entry(4, later),
        write_entry(5, later, ["k", "r"], rows(26), done=23),
        write_entry(6, unknown, ["k", "r"], rows(28)),
    ]
    seen = []
    for count, entry in enumerate(entries, 1):
        tablet.apply([entry])
        if count == 1:
            tablet.flush()
        stored = Superblock.load(disk, tablet.tablet_id)
        (state,) = tablet.ledger_sources()
        (found,) = source_positions(stored, entries[:count])
        assert found[:4] == state[:4]
        seen.append(found.last_offset)
    assert seen == [22, 22, 22, 22, 26, 26]
    tablet.close()
    disk.close()
