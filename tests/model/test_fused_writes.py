"""Small writes applied together against the same writes applied one after the other."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from nyala.replica.rows import RowOp, TableSchema
from nyala.replica.tablet import Tablet
from nyala.replica.types import Entry, hybrid_from_us, limits
from tests.harness.seeds import few_then_deep
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import (
    INT_SCHEMA,
    PAIR_SCHEMA,
    SOURCE,
    STRING_SCHEMA,
    TEXT_SCHEMA,
    colliding_key,
    noop_entry,
    rows_of,
    superblock,
    write_entry,
)


def _row(rng: random.Random, schema: TableSchema, offset: int, keys: int) -> dict[str, Any]:
    key = rng.randrange(keys)
    row: dict[str, Any] = {"op": rng.choice([*RowOp, RowOp.UPSERT, RowOp.INSERT, RowOp.INSERT]), "offset": offset}
    row["k"] = key if schema is INT_SCHEMA else f"key{key}"
    if schema is STRING_SCHEMA:
        row["k2"] = key % 3
    if schema is PAIR_SCHEMA:
        row["k"], row["k2"] = colliding_key(key, target=key % 2)
    if rng.random() < 0.03:
        row["op"] = rng.choice([0, 9])
    if rng.random() < 0.03:
        row[rng.choice(schema.key)] = None
    row["v"] = rng.choice([None, rng.randrange(100)])
    row["s"] = None if rng.random() < 0.05 else rng.choice(["", "abc"])
    row["r"] = None if rng.random() < 0.05 else rng.randrange(100)
    row["t"], row["u"] = (rng.choice([None, "", "abcdef"]) for _ in "tu")
    return row


def _log(rng: random.Random, schema: TableSchema, count: int) -> list[Entry]:
    """Return a log of mostly one-row writes of a few clients; some repeated, some of a source, of fewer columns or
    larger; noops."""
    keys = rng.choice([4, 40, 4000])
    names = [c.name for c in schema.columns]
    sequences = dict.fromkeys("abcd", 0)
    expiry_index = rng.randrange(count) if rng.random() < 0.3 else count + 1
    log: list[Entry] = []
    for index in range(1, count + 1):
        late = hybrid_from_us(limits.LEDGER_CLIENT_TTL_US + 1) if index >= expiry_index else 0
        time = late + (index << 12)
        kind = rng.random()
        if kind < 0.05:
            log.append(noop_entry(index, time))
            continue
        rows = [_row(rng, schema, n, keys) for n in range(1 if kind < 0.9 else rng.randint(2, 5))]
        some = names if rng.random() < 0.9 else [n for n in names if n in schema.key or rng.random() < 0.7]
        if kind > 0.97:
            offsets = [{**row, "offset": 10 * index + n} for n, row in enumerate(rows)]
            log.append(write_entry(index, schema, some, offsets, time=time, source=SOURCE))
            continue
        client = rng.choice("abcd")
        sequences[client] += rng.choice([1, 1, 1, 2])
        sequence = sequences[client] if rng.random() < 0.95 else max(1, sequences[client] - rng.randint(1, 4))
        first = rng.choice([0, max(0, sequences[client] - 3), sequences[client]])
        log.append(
            write_entry(
                index,
                schema,
                some,
                rows,
                time=time,
                source=None,
                client_id=client,
                sequence=sequence,
                first_incomplete=first,
                ignore_null=rng.random() < 0.05,
                rows_bounded=rng.random() < 0.9,
            )
        )
    return log


@contextmanager
def _bounds(tight: bool) -> Iterator[None]:
    """Yield the bounds of ledger and rows as they are, or bounds so low that they are met all the time."""
    with pytest.MonkeyPatch.context() as patch:
        if tight:
            patch.setattr(limits, "LEDGER_RESULTS_PER_CLIENT_MAX", 4)
            patch.setattr(limits, "LEDGER_RESULTS_MAX", 9)
            patch.setattr(limits, "LEDGER_ERRORS_BYTES_MAX", 1200)
            patch.setattr(limits, "ROW_SIZE_BYTES_MAX", 22)
        yield


@pytest.mark.a_third
@pytest.mark.parametrize(
    "schema", [INT_SCHEMA, STRING_SCHEMA, PAIR_SCHEMA, TEXT_SCHEMA], ids=["int", "text", "collide", "texts"]
)
@pytest.mark.parametrize("seed", few_then_deep(3, 40))
def test_small_writes_applied_in_any_groups_equal_one_at_a_time(schema: TableSchema, seed: int) -> None:
    """Goal: however committed entries are grouped, rows, row errors, times, results and ledger are those of one at a
    time. Method: random logs cut at random places, with flushes between, against a tablet that receives single entries;
    under the bounds of ledger and rows, and under bounds that are met all the time."""
    rng = random.Random(seed)
    with _bounds(tight=rng.random() < 0.5):
        _compare(rng, schema)


def _compare(rng: random.Random, schema: TableSchema) -> None:
    log = _log(rng, schema, 120)
    disks = SimDisk(), SimDisk()
    single, grouped = (Tablet.create(disk, superblock(schema)) for disk in disks)
    results, expected = [], [result for entry in log for result in single.apply([entry])]
    pos = 0
    while pos < len(log):
        count = rng.choice([1, 2, 5, 30])
        results += grouped.apply(log[pos : pos + count])
        pos += count
        if rng.random() < 0.1:
            grouped.flush()
    assert [_seen(r) for r in results] == [_seen(r) for r in expected]
    assert grouped.ledger.to_avro() == single.ledger.to_avro()
    assert (grouped.applied_opid, grouped.applied_time) == (single.applied_opid, single.applied_time)
    for at in {None, *(entry.hybrid_time for entry in rng.sample(log, 12))}:
        assert rows_of(grouped.scan(snapshot_time=at), schema) == rows_of(single.scan(snapshot_time=at), schema)
    for disk in disks:
        disk.close()


def _seen(result: Any) -> Any:
    error = result.error
    return (
        result.opid,
        result.hybrid_time,
        error and (error.code, error.detail),
        result.row_errors,
        result.rows_applied,
        result.rows_replayed,
        result.last_offset,
    )


def test_writes_of_many_clients_are_applied_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: writes that commit together cost one application. Method: 40 one-row writes of 8 clients in one call,
    counting the memory store's batches."""
    rows = [{"op": RowOp.INSERT, "offset": 0, "k": n, "v": n, "s": "x", "r": n} for n in range(40)]
    names = ["k", "v", "s", "r"]
    log = [
        write_entry(
            n + 1, INT_SCHEMA, names, [row], time=(n + 1) << 12, source=None, client_id=f"c{n % 8}", sequence=n + 1
        )
        for n, row in enumerate(rows)
    ]
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    assert [r.rows_applied for r in tablet.apply(log)] == [1] * 40
    assert [batch.num_rows for batch in tablet.scan()] == [40]
    disk.close()
