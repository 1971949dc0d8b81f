"""How often one batch may write one key: counted by the leader, before the batch is in the log."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.rows import Column, ColumnType, RowOp, TableSchema, WriteMeta, crc32c, encode_batch
from nyala.replica.tablet import Given, Tablet
from nyala.replica.tablet.write_checks import check_passes
from nyala.replica.types import Code, Entry, EntryKind, OpId, Refused, limits
from tests.harness.seeds import few_then_deep
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import colliding_key, rows_of, superblock

MOST = limits.BATCH_PASSES_MAX
SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="k2", type=ColumnType.INT64, nullable=False),
        Column(id=3, name="n", type=ColumnType.INT64),
        Column(id=4, name="s", type=ColumnType.STRING),
    ),
    ("k", "k2"),
)
FULL = ("k", "k2", "n", "s")
PART = ("k", "k2", "n")
SETTLES = (RowOp.UPSERT, RowOp.DELETE_IGNORE)
"""Of these operations, only the last one on a key has an effect, if each gives all columns."""


class Leader:
    """A tablet, and the batches that its leader checks before they are in the log."""

    def __init__(self, schema: TableSchema = SCHEMA) -> None:
        self.schema, self.index = schema, 0
        self.tablet = Tablet.create(SimDisk(), superblock(schema))

    def entry(
        self, names: tuple[str, ...], keys: Any, op: RowOp | list[RowOp] = RowOp.UPSERT, **meta: Any
    ) -> tuple[Entry, WriteMeta, Any]:
        """Rows with ascending numbers in all columns but the key's; `keys`: pairs, None for a null."""
        rows = len(keys)
        wire = self.schema.wire_schema(self.schema.column_ids(list(names)))
        values: dict[str, Any] = {"k": [k for k, _ in keys], "k2": [k for _, k in keys]}
        ops = [op] * rows if isinstance(op, RowOp) else op
        arrays = [
            pa.array(values.get(name, list(range(rows))), pa.int64()).cast(wire.field(name).type) for name in names
        ]
        arrays += [pa.array(list(map(int, ops)), pa.uint8()), pa.array(range(rows), pa.int64())]
        batch = pa.RecordBatch.from_arrays(arrays, schema=wire)
        payload = encode_batch(batch)
        self.index += 1
        described = WriteMeta(self.schema.column_ids(list(names)), rows, client_id="c", sequence=self.index, **meta)
        opid, time = OpId(1, self.index), self.index * 1000
        entry = Entry(opid, EntryKind.WRITE, time, 1, described.encode(), payload, crc32c(payload))
        return entry, described, batch

    def check(self, *args: Any, **meta: Any) -> Any:
        entry, described, batch = self.entry(*args, **meta)
        return self.tablet.check_passes(described, batch, len(entry.payload))

    def refused(self, *args: Any, **meta: Any) -> bool:
        try:
            self.check(*args, **meta)
        except Refused as error:
            assert error.code is Code.TOO_LARGE
            return True
        return False


@pytest.mark.parametrize("names", [FULL, PART], ids=["all columns", "some columns"])
@pytest.mark.parametrize("op", list(RowOp), ids=lambda op: op.name)
def test_batch_that_writes_one_key_too_often_is_refused(op: RowOp, names: tuple[str, ...]) -> None:
    """IN-60. Goal: no batch holds a tablet for longer than the bound's passes take. Method: of every operation, with
    all columns and with some, the bound's number of rows of one key among 5,000 others, and one row more; if only the
    last operation on a key has an effect, any number is taken."""
    others = [(n, 7) for n in range(5000)]
    leader = Leader()
    one = op is RowOp.DELETE_IGNORE or (op in SETTLES and names is FULL)
    for often, too_many in ((MOST, False), (MOST + 1, not one), (5 * MOST, not one)):
        keys = [*others, *[(3, 3)] * often]
        Random(often).shuffle(keys)
        assert leader.refused(names, keys, op) is too_many


def test_refusal_says_how_often_and_what_to_do() -> None:
    """IN-60. Goal: the caller learns the number, the bound and the remedy. Method: updates of one key, above the bound
    by seven; either half is taken."""
    leader = Leader()
    with pytest.raises(Refused) as refused:
        leader.check(PART, [(1, 1)] * (MOST + 7), RowOp.UPDATE)
    for told in ("TOO_LARGE", "nothing was applied", "in two batches", f"passes={MOST + 7}", f"max={MOST}"):
        assert told in str(refused.value)
    for rows in ((MOST + 7) // 2, (MOST + 7 + 1) // 2):
        leader.check(PART, [(1, 1)] * rows, RowOp.UPDATE)


def test_rows_that_depend_on_the_row_before_count() -> None:
    """IN-60. Goal: a mark of the batch that changes what a row does changes the count. Method: upserts that leave a
    column as it is by nulls, and updates that might become too long, count each; without these marks they need not."""
    leader, keys = Leader(), [(1, 1)] * (MOST + 1)
    entry, meta, batch = leader.entry(FULL, keys)
    nulls = batch.set_column(3, "s", pa.nulls(len(keys), pa.string()))
    marked = WriteMeta(meta.column_ids, meta.rows, client_id="c", ignore_null=True)
    leader.tablet.check_passes(meta, nulls, len(entry.payload))
    with pytest.raises(Refused, match="TOO_LARGE"):
        leader.tablet.check_passes(marked, nulls, len(entry.payload))
    ops = [RowOp.UPDATE_IGNORE, RowOp.DELETE_IGNORE] * (MOST // 2) + [RowOp.UPDATE_IGNORE] * 2
    assert not leader.refused(PART, [(1, 1)] * len(ops), ops)
    assert leader.refused(PART, [(1, 1)] * len(ops), ops, rows_bounded=True)


def test_rows_that_fail_for_themselves_do_not_count() -> None:
    """IN-60. Goal: a batch is refused for what applying it costs, not for rows that get an error at once. Method: many
    rows without a key, and many of an unknown operation."""
    leader = Leader()
    assert not leader.refused(PART, [(None, None)] * (2 * MOST) + [(1, 1)] * MOST, RowOp.UPDATE)
    entry, meta, batch = leader.entry(PART, [(1, 1)] * (3 * MOST), RowOp.UPDATE)
    unknown = batch.set_column(3, batch.schema.field(3), pa.array([99] * (2 * MOST) + [3] * MOST, pa.uint8()))
    leader.tablet.check_passes(meta, unknown, len(entry.payload))


def test_keys_of_one_hash_count_as_one_key() -> None:
    """IN-60. Goal: keys that were made to have one hash do not evade the bound. Method: as many keys of one hash as the
    bound and one more, in upserts of all columns."""
    leader = Leader()
    keys = [colliding_key(n) for n in range(MOST + 1)]
    assert not leader.refused(FULL, keys[:-1])
    assert leader.refused(FULL, keys)


def test_keys_at_many_places_come_less_often() -> None:
    """IN-60. Goal: rows that a pass finds at many places count for each of them, because each is read anew. Method: of
    as many keys as a pass has places, and of more, as many rows as may be read, and one more; nothing is said about one
    pass over any number of keys."""
    leader, places = Leader(), limits.BATCH_PASS_PLACES
    most = limits.BATCH_PASS_READS_MAX // (places * 2)
    for keys in (places, 2 * places):
        rows = [(key, 0) for key in range(keys)] * most
        left = limits.BATCH_PASS_READS_MAX // 2 - most * places
        rows += [(key, 0) for key in range(left)]
        assert not leader.refused(FULL, rows, RowOp.INSERT)
        assert leader.refused(FULL, [*rows, (left, 0)], RowOp.INSERT)
    assert places * limits.COLUMNS_MAX <= limits.BATCH_PASS_READS_MAX


def test_wide_table_takes_fewer_passes() -> None:
    """IN-60. Goal: the time for which a batch occupies a tablet is bounded for any number of columns. Method: a table
    of 300 columns, where a pass takes ten times as long."""
    columns = (*SCHEMA.columns, *(Column(id=5 + n, name=f"c{n}", type=ColumnType.INT64) for n in range(296)))
    leader, most = Leader(TableSchema(1, columns, SCHEMA.key)), limits.BATCH_PASS_VALUES_MAX // 300
    assert most == 100
    assert not leader.refused(PART, [(1, 1)] * most, RowOp.UPDATE)
    assert leader.refused(PART, [(1, 1)] * (most + 1), RowOp.UPDATE)


def test_batch_without_many_rows_is_not_looked_at() -> None:
    """Goal: what cannot be above the bound costs nothing. Method: no hashes are computed for as many rows as the bound;
    for one row more they are, and stay for those who ask next."""
    leader = Leader()
    assert leader.check(PART, [(n, 1) for n in range(MOST)], RowOp.UPDATE) is None
    assert len(leader.check(PART, [(n, 1) for n in range(MOST + 1)], RowOp.UPDATE)) == MOST + 1


def test_batch_that_cannot_take_too_many_passes_is_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: most batches cost the leader their hashes, and no check of their rows. Method: a bound of four passes and
    ten reads; four rows of one key and one of another, which is as much as the bounds allow; then a row whose hash ends
    in the same bits: its rows are checked, and four passes are taken all the same."""
    for name, value in (("BATCH_PASSES_MAX", 4), ("BATCH_PASS_PLACES", 2), ("BATCH_PASS_READS_MAX", 10)):
        monkeypatch.setattr(limits, name, value)
    leader, key, other = Leader(), colliding_key(1), colliding_key(1, target=777)
    _, meta, batch = leader.entry(PART, [*[key] * 4, other], RowOp.UPDATE)
    assert len(check_passes(SCHEMA, meta, batch, lambda rows, hashes: pytest.fail("checked"))) == 5
    near = colliding_key(1, target=12345 + (1 << 16))
    assert len(leader.check(PART, [*[key] * 4, near], RowOp.UPDATE)) == 5
    assert leader.refused(PART, [*[key] * 5, near], RowOp.UPDATE)
    pairs = [(1, 1), (1, 1), (2, 2), (2, 2), (None, 3)]
    monkeypatch.setattr(limits, "BATCH_PASS_READS_MAX", 7)
    assert len(leader.check(PART, pairs, RowOp.UPDATE)) == 5, "four rows that are left are no more than four passes"
    assert leader.refused(PART, [*pairs, (1, 1)], RowOp.UPDATE)


@pytest.mark.deep
def test_batch_above_the_bound_that_is_in_the_log_is_applied() -> None:
    """CN-24. Goal: the bound is the leader's alone, so builds need not agree about it. Method: an entry of more updates
    than the bound, as an older leader writes it."""
    leader = Leader()
    first, _, _ = leader.entry(FULL, [(1, 1)])
    entry, _, _ = leader.entry(PART, [(1, 1)] * (MOST + 200), RowOp.UPDATE)
    results = leader.tablet.apply([first, entry])
    assert [(result.error, result.rows_applied) for result in results] == [(None, 1), (None, MOST + 200)]
    assert [row["n"] for row in rows_of(leader.tablet.scan(), SCHEMA)] == [MOST + 199]


@pytest.mark.parametrize("seed", few_then_deep(10, 100))
def test_hashes_of_one_check_serve_the_next(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a large batch is hashed once, and what its rows keep is measured as without. Method: random rows, of which
    some have no key and are left out; both ways say the same. Hashes of other keys say that nothing is kept."""
    rng, leader = Random(seed), Leader()
    leader.tablet.apply([leader.entry(FULL, [(n, 1) for n in range(20)])[0]])
    monkeypatch.setattr(limits, "BATCH_PASSES_MAX", 9)
    monkeypatch.setattr(limits, "BATCH_KEPT_BYTES_MAX", 1)
    keys = [(n, 1) if rng.random() < 0.7 else (None, 1) for n in rng.sample(range(24), 20)]
    entry, meta, batch = leader.entry(PART, keys, RowOp.UPDATE)
    hashes = leader.tablet.check_passes(meta, batch, len(entry.payload))

    def told(known: Any) -> str:
        try:
            leader.tablet.check_kept(meta, Given(meta.column_ids, batch, known), len(entry.payload), [])
        except Refused as error:
            return str(error)
        return "taken"

    assert "kept_bytes" in told(hashes) and told(hashes) == told(None)
    assert told(np.arange(20, dtype=np.uint64)) == "taken"
