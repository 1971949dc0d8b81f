"""The tablet against its slow twin: any batches, any moments of flush, compaction and reopening."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nyala.replica.rows import RowOp, TableSchema
from nyala.replica.tablet import Superblock, Tablet
from nyala.replica.tablet.merge_rule import MERGE_BYTES_MAX
from nyala.replica.types import Code, Refused, RowCode, limits
from tests.harness.seeds import few_then_deep
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import (
    INT_SCHEMA,
    PAIR_SCHEMA,
    STRING_SCHEMA,
    TEXT_SCHEMA,
    Twin,
    colliding_key,
    noop_entry,
    rows_of,
    superblock,
    write_entry,
)


def _row(rng: random.Random, schema: TableSchema, names: list[str], offset: int, keys: int) -> dict[str, Any]:
    key = rng.randrange(keys)
    row: dict[str, Any] = {"op": rng.choice([*RowOp, RowOp.UPSERT, RowOp.INSERT]), "offset": offset}
    row["k"] = key if schema is INT_SCHEMA else f"key{key // 3}" + "x" * (key % 5)
    if schema is STRING_SCHEMA:
        row["k2"] = key % 3
    if schema is PAIR_SCHEMA:
        row["k"], row["k2"] = colliding_key(key, target=key % 2)
    if rng.random() < 0.02:
        row["op"] = rng.choice([0, 9, 255])
    if rng.random() < 0.02:
        row[rng.choice(schema.key)] = None
    row["v"] = rng.choice([None, rng.randrange(100)])
    row["s"] = None if rng.random() < 0.05 else rng.choice(["", "abc", "é" * rng.randrange(9)])
    row["r"] = None if rng.random() < 0.05 else rng.randrange(100)
    row["t"], row["u"] = ("é" * rng.randrange(9) if rng.random() < 0.7 else None for _ in "tu")
    return row


class _Run:
    """One random life of a tablet and its twin."""

    def __init__(self, seed: int, schema: TableSchema) -> None:
        self.rng = random.Random(seed)
        self.schema = schema
        self.disk = SimDisk()
        self.twin = Twin(schema)
        self.keys = self.rng.choice([3, 10, 60])
        self.retention_us = self.rng.choice([0, 2, 1 << 50, 1 << 50])
        self.tablet = Tablet.create(self.disk, superblock(schema, retention_us=self.retention_us))
        self.flush_bytes_max = self.rng.choice([500, MERGE_BYTES_MAX])
        self.tablet._work.flush_bytes_max = self.flush_bytes_max
        self.index = 0
        self.log: list[Any] = []
        self.offset = self.too_large = 0
        self.sent: list[tuple[list[str], list[dict[str, Any]], bool, bool]] = []

    def step(self) -> None:
        action = self.rng.random()
        if action < 0.62:
            self.write()
        elif action < 0.68:
            self.replay_some()
        elif action < 0.72:
            self.index += 1
            entry = noop_entry(self.index)
            self.log.append(entry)
            self.tablet.apply([entry])
            self.twin.time = max(self.twin.time, entry.hybrid_time)
        elif action < 0.80:
            self.tablet.flush()
        elif action < 0.84:
            self.flush_in_vain()
        elif action < 0.88:
            self.tablet.compact()
        elif action < 0.94:
            self.reopen()
        else:
            self.compare()

    def write(self) -> None:
        names = [c.name for c in self.schema.columns]
        if self.rng.random() < 0.35:
            optional = [n for n in names if n not in self.schema.key]
            dropped = self.rng.sample(optional, self.rng.randint(1, len(optional)))
            names = [n for n in names if n not in dropped]
        rows = []
        for _ in range(self.rng.choice([1, 1, 3, 12, 40])):
            self.offset += self.rng.choice([1, 1, 1, 7])
            rows.append(_row(self.rng, self.schema, names, self.offset, self.keys))
        ignore_null = self.rng.random() < 0.3
        bounded = self.rng.random() < 0.7
        self.sent.append((names, rows, ignore_null, bounded))
        after = self.rng.choice([None, self.twin.last if self.twin.last >= 0 else None])
        self.send(names, rows, ignore_null, bounded, after)

    def replay_some(self) -> None:
        """Send a batch again, cut elsewhere, or one that builds on a batch that never came."""
        if not self.sent:
            return
        names, rows, ignore_null, bounded = self.rng.choice(self.sent)
        low = self.rng.randrange(len(rows))
        self.send(names, rows[low:], ignore_null, bounded, after=self.rng.choice([None, self.offset + 5]))

    def send(
        self, names: list[str], rows: list[dict[str, Any]], ignore_null: bool, bounded: bool, after: int | None
    ) -> None:
        self.index += 1
        done = self.rng.choice([0, self.twin.done, max(0, self.twin.last - 5)])
        marks = {"ignore_null": ignore_null, "rows_bounded": bounded}
        entry = write_entry(self.index, self.schema, names, rows, after=after, done=done, **marks)
        self.log.append(entry)
        code, errors = self.twin.apply(names, rows, entry.hybrid_time, after, done, ignore_null, bounded)
        self.tablet.check_write(1, self.schema.column_ids(names), entry.payload, entry.payload_crc, len(rows))
        (result,) = self.tablet.apply([entry])
        assert (result.error.code if result.error else None) == code
        assert list(result.row_errors) == errors
        self.too_large += sum(e.code is RowCode.ROW_TOO_LARGE for e in errors)
        if code is None:
            assert result.last_offset == self.twin.last

    def flush_in_vain(self) -> None:
        """Flush without space, which leaves a frozen memory store that later steps must read through."""
        self.disk.fail_on("replace", "tablet-meta/*", "ENOSPC")
        try:
            assert self.tablet.flush() is None
        except Refused as e:
            assert e.code is Code.NO_SPACE
        self.disk.heal()

    def reopen(self) -> None:
        """Open the tablet as after a kill: everything in memory is gone, the log is applied again."""
        self.tablet.close()
        self.tablet = Tablet.open(self.disk, Superblock.load(self.disk, self.tablet.tablet_id))
        self.tablet._work.flush_bytes_max = self.flush_bytes_max
        start = self.rng.randint(0, self.tablet.flush_opid.index)
        self.tablet.apply(self.log[start:])

    def compare(self) -> None:
        tablet, twin = self.tablet, self.twin
        assert rows_of(tablet.scan(), self.schema) == twin.at(tablet.applied_time)
        horizon = tablet.history_horizon
        times = {w for h in twin.versions.values() for w, _ in h}
        for time in sorted({t + d for t in times for d in (-1, 0)} | {horizon}):
            if time >= horizon:
                assert rows_of(tablet.scan(snapshot_time=time), self.schema) == twin.at(time), time
        whole = twin.at(tablet.applied_time)
        parts = [row for pos in range(3) for row in rows_of(tablet.scan(slice=(pos, 3)), self.schema)]
        assert sorted(parts, key=twin.key) == whole
        (count,) = tablet.scan(count_only=True)
        assert count.to_pylist() == [{"count": len(whole)}]


@pytest.mark.parametrize("seed", few_then_deep(1, 30))
@pytest.mark.parametrize("schema", [INT_SCHEMA, STRING_SCHEMA, PAIR_SCHEMA], ids=["int", "text", "collide"])
def test_tablet_under_random_life_equals_twin(schema: TableSchema, seed: int) -> None:
    """Goal: rows, row errors and every snapshot equal one-at-a-time application, whatever the batch boundaries,
    replays, flushes, compactions and restarts. Method: a random life of 60 steps for each seed."""
    _live(_Run(seed, schema))


@pytest.mark.deep
@pytest.mark.parametrize("seed", few_then_deep(1, 40))
def test_rows_about_as_long_as_they_may_be_equal_twin(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a row that would become too long by the values that it keeps is a row error, whatever the batch boundaries,
    replays, flushes and restarts, and only in entries that say so. Method: the random life, rows bounded to 30 bytes,
    and values copied 32 bytes at a time."""
    monkeypatch.setattr(limits, "ROW_SIZE_BYTES_MAX", 30)
    monkeypatch.setattr(limits, "KEPT_BYTES_MAX", 32)
    run = _Run(seed, TEXT_SCHEMA)
    _live(run)
    assert run.too_large > 5


def _live(run: _Run) -> None:
    for _ in range(60):
        run.step()
    run.compare()
    run.reopen()
    run.compare()
    run.tablet.flush()
    run.reopen()
    run.compare()
    checksum, rows = run.tablet.checksum()
    again = Tablet.create(SimDisk(), superblock(run.schema))
    again.apply(run.log)
    assert again.checksum() == (checksum, rows)
    assert rows == len(run.twin.at(run.tablet.applied_time))
    run.disk.close()
