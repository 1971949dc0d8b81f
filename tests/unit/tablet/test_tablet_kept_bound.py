"""The stored values that the rows of one batch keep: the leader's estimate of them, and the bound."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from nyala.replica.rows import Column, ColumnType, RowOp, TableSchema, WriteMeta, key_hash
from nyala.replica.tablet import Given, Tablet
from nyala.replica.tablet.kept_bound import kept_bytes, kept_ceiling, longest_given, longest_of
from nyala.replica.tablet.resolve import WireRows
from nyala.replica.tablet.write_checks import check_kept
from nyala.replica.types import Code, Entry, Refused, limits
from tests.harness.seeds import few_then_deep
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import PAIR_SCHEMA, batch_of, colliding_key, superblock, write_entry

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.STRING, nullable=False),
        Column(id=2, name="a", type=ColumnType.STRING),
        Column(id=3, name="b", type=ColumnType.BINARY),
        Column(id=4, name="d", type=ColumnType.STRING, nullable=False, default="seven b"),
        Column(id=5, name="n", type=ColumnType.INT64),
    ),
    ("k",),
)
NAMES = ("a", "b", "d", "n")
TEXTS = ("a", "b", "d")
Rows = list[dict[str, Any]]


class Life:
    """A tablet, and the numbers of its entries and rows."""

    def __init__(self, schema: TableSchema = SCHEMA) -> None:
        self.schema, self.disk, self.index, self.offset = schema, SimDisk(), 0, 0
        self.tablet = Tablet.create(self.disk, superblock(schema))

    def entry(self, names: Sequence[str], rows: Rows, *, ignore_null: bool = False) -> Entry:
        """The next entry; it is not applied."""
        numbered = [{"op": RowOp.UPSERT, **row, "offset": self.offset + n} for n, row in enumerate(rows)]
        self.index, self.offset = self.index + 1, self.offset + len(rows)
        return write_entry(self.index, self.schema, list(names), numbered, rows_bounded=True, ignore_null=ignore_null)

    def write(self, names: Sequence[str], rows: Rows) -> None:
        (result,) = self.tablet.apply([self.entry(names, rows)])
        assert result.error is None

    def measured(self, entry: Entry, under_way: Sequence[Entry] = ()) -> int:
        """Return the leader's estimate of what the rows of the entry keep at most, before it is in the log."""
        meta, batch = WriteMeta.decode(entry.meta), self.given(entry).batch
        checked = self.tablet._check(self.schema, len(entry.payload), WireRows.of_batch(batch, meta))
        before, contents = longest_given(map(self.given, under_way)), self.tablet._contents
        kept = kept_bytes(contents.stores, self.schema, checked.rows, checked.hashes, before)
        longest = longest_of([before, *contents.stores.longest(contents.lock)])
        assert kept <= kept_ceiling(self.schema, checked.rows, longest), "the cheap measure is never below the other"
        return kept

    def given(self, entry: Entry) -> Given:
        meta = WriteMeta.decode(entry.meta)
        return Given(meta.column_ids, self.tablet._decode(1, meta.column_ids, entry.payload, meta.rows))

    def check(self, entry: Entry, under_way: Sequence[Entry] = ()) -> None:
        meta = WriteMeta.decode(entry.meta)
        self.tablet.check_kept(meta, self.given(entry), len(entry.payload), list(map(self.given, under_way)))

    def stored(self) -> int:
        """Bytes of texts of all versions in memory, the keys' apart."""
        total = 0
        for chunk in self.tablet._contents.stores.active.chunks:
            rows = chunk.batch.select([name for name in TEXTS if self.schema.has(name)]).to_pylist()
            total += sum(len(value) for row in rows for value in row.values() if value is not None)
        return total


def given_bytes(rows: Rows) -> int:
    return sum(len(row[name]) for row in rows for name in TEXTS if row.get(name) is not None)


def some_rows(rng: Random, names: Sequence[str], ops: Sequence[RowOp]) -> Rows:
    """Rows of few keys, so that many come twice."""

    def value(name: str) -> Any:
        if name == "n":
            return rng.randrange(9)
        if rng.random() < 0.3:
            return None
        made = "v" * rng.choice([0, 1, 5, 40, 300])
        return made.encode() if name == "b" else made

    return [
        {"k": rng.choice("stuvwxyz"), "op": rng.choice(ops), **{name: value(name) for name in names}}
        for _ in range(rng.randrange(1, 12))
    ]


@pytest.mark.a_third
@pytest.mark.parametrize("seed", few_then_deep(25, 250))
def test_rows_never_keep_more_than_the_leader_measured(seed: int) -> None:
    """IN-60. Goal: whatever is written before and meanwhile, an applied batch stores at most the values it gives and
    those that the leader measured. Method: random batches of some columns, with and without `ignore_null`, keys that
    come twice, all operations, rows in memory, frozen and in blocks; some entries are in the log and not applied when
    the batch is measured."""
    rng = Random(seed)
    life = Life()

    def some_entry(ops: Sequence[RowOp]) -> tuple[Entry, Rows]:
        names = rng.sample(NAMES, rng.randrange(len(NAMES) + 1))
        rows = some_rows(rng, names, ops)
        return life.entry(["k", *names], rows, ignore_null=rng.random() < 0.5), rows

    for _ in range(rng.randrange(6)):
        life.tablet.apply([some_entry(list(RowOp))[0]])
        if rng.random() < 0.3:
            life.tablet.flush()
    under_way = [some_entry(list(RowOp))[0] for _ in range(rng.randrange(3))]
    batch, rows = some_entry(list(RowOp))
    most = life.measured(batch, under_way)
    life.tablet.apply(under_way)
    before = life.stored()
    life.tablet.apply([batch])
    assert life.stored() - before <= given_bytes(rows) + most
    life.disk.close()


@pytest.mark.parametrize("place", ["memory", "frozen", "block"])
def test_measure_is_exact_where_keys_come_once_and_nothing_is_under_way(place: str) -> None:
    """IN-60. Goal: if each key comes once and no other batch is under way, the measure is exactly the bytes that are
    kept. Method: rows of several lengths, wherever they are; upserts of rows that are there and of one that is not,
    which gets its default; deletions keep nothing, inserts only a default, and a value that is given replaces the
    stored one. A null that leaves a value as it is keeps it."""
    life = Life()
    life.write(["k", "a", "b"], [{"k": key, "a": "x" * n, "b": b"y" * n} for n, key in enumerate("abcdef")])
    if place == "block":
        life.tablet.flush()
    if place == "frozen":
        life.tablet._contents.freeze()
    of_all = life.entry(["k", "n"], [{"k": key, "n": 1} for key in "abcdef"] + [{"k": "new", "n": 1}])
    assert life.measured(of_all) == 2 * (1 + 2 + 3 + 4 + 5) + 7 * 7
    some = [{"k": "f", "b": b"z" * 90}, {"k": "e", "op": RowOp.DELETE}, {"k": "d", "op": RowOp.INSERT_IGNORE}]
    assert life.measured(life.entry(["k", "b"], some)) == 5 + 7 + 7
    nulls = [{"k": "f", "a": None, "b": b"z" * 90, "d": "d"}, {"k": "e", "a": "long", "b": None, "d": None}]
    assert life.measured(life.entry(["k", "a", "b", "d"], nulls)) == 0
    assert life.measured(life.entry(["k", "a", "b", "d"], nulls, ignore_null=True)) == 5 + 4 + 7
    life.disk.close()


def test_nothing_is_kept_where_nothing_is_stored() -> None:
    """Goal: an empty tablet's ceiling and measure are zero, so that no batch is refused for a byte a row. Method: rows
    of a column without a default, when nothing is known of it, and when its longest value is empty; a batch whose rows
    have all failed."""
    life = Life()
    batch = life.given(life.entry(["k", "b", "d", "n"], [{"k": "s", "b": b"", "d": "", "n": 1}])).batch
    rows = WireRows.of_batch(batch, WriteMeta(SCHEMA.column_ids(["k", "b", "d", "n"]), 1))
    for longest in ({}, longest_of([{2: 0}, {3: 0}])):
        assert kept_ceiling(SCHEMA, rows, longest) == 0
    ignoring = rows._replace(ignore_null=True)
    assert kept_ceiling(SCHEMA, ignoring, {2: 5}) == 5
    assert life.measured(life.entry(["k", "n"], [{"k": None, "n": 1}])) == 0
    life.disk.close()


def test_key_that_comes_often_counts_as_often() -> None:
    """IN-60. Goal: a key that comes many times in a batch is measured as many times. Method: a row is updated a hundred
    times in a batch, also while the row itself is only under way."""
    life = Life()
    row = life.entry(["k", "a"], [{"k": "s", "a": "x" * 1000}])
    often = life.entry(["k", "n"], [{"k": "s", "n": n} for n in range(100)])
    assert life.measured(often) == 100 * 7
    assert life.measured(often, [row]) == 100 * 1007
    life.tablet.apply([row])
    assert life.measured(often) == 100 * 1007
    grows = life.entry(
        ["k", "a", "n"], [{"k": "t", "a": "y" * 50}] + [{"k": "t", "n": n} for n in range(9)], ignore_null=True
    )
    assert life.measured(grows) == 9 * 50 + 10 * 7, "what the batch itself gives is kept by the rows behind"
    life.disk.close()


def test_keys_of_one_hash_hide_nothing_from_the_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-60. Goal: keys that were made to have one hash do not evade the bound. Method: a short and a long row whose
    keys have one hash; a batch of both counts as if its rows were as long as rows may be."""
    columns = (*PAIR_SCHEMA.columns, Column(id=6, name="a", type=ColumnType.STRING))
    life = Life(TableSchema(1, columns, PAIR_SCHEMA.key))
    keys = [dict(zip(("k", "k2"), colliding_key(number), strict=True)) for number in (1, 2)]
    schema_keys = [batch_of(life.schema, ["k", "k2"], [{**key, "op": 1, "offset": 0}]) for key in keys]
    assert len({int(key_hash([b.column(0), b.column(1)])[0]) for b in schema_keys}) == 1
    life.write(["k", "k2", "r", "a"], [{**keys[0], "r": 1, "a": "x"}, {**keys[1], "r": 1, "a": "x" * 5000}])
    batch = life.entry(["k", "k2", "r"], [{**keys[0], "r": 2}, *({**keys[1], "r": n} for n in range(9))])
    monkeypatch.setattr(limits, "ROW_SIZE_BYTES_MAX", 5001)
    assert life.measured(batch) == 10 * 5001
    assert life.measured(life.entry(["k", "k2", "r"], [{**keys[1], "r": 3}])) == 5001
    lower = [{**dict(zip(("k", "k2"), colliding_key(n, target=n), strict=True)), "r": 4} for n in (1, 2)]
    batch = life.entry(["k", "k2", "r"], [*lower, {**keys[0], "r": 2}, {**keys[1], "r": 2}])
    assert life.measured(batch) == 4 * 5001, "whatever other hashes there are"
    life.disk.close()


def test_batch_whose_rows_keep_too_much_is_refused_and_its_halves_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-60. Goal: a batch that would store more than the bound is refused with what to do, and its halves are
    accepted. Method: a bound of 4,028 bytes; rows that keep as much are taken, with one byte more they are refused,
    with what is under way, and in two batches they are taken."""
    monkeypatch.setattr(limits, "BATCH_KEPT_BYTES_MAX", 4 * 1007)
    life = Life()
    life.write(["k", "a"], [{"k": key, "a": "x" * 1000} for key in "abcd"])
    life.write(["k", "a"], [{"k": "long", "a": "x" * 2000}])  # so that the ceiling is above the bound
    longer = life.entry(["k", "a"], [{"k": "a", "a": "x" * 1001}])
    whole = life.entry(["k", "n"], [{"k": key, "n": 1} for key in "abcd"])
    life.check(whole)
    for applied in (False, True):
        with pytest.raises(Refused) as refused:
            life.check(whole, [] if applied else [longer])
        assert refused.value.code is Code.TOO_LARGE
        for told in ("nothing was applied", "in two batches", "rows=4", f"kept_bytes={4029 if applied else 4032}"):
            assert told in str(refused.value)
        if not applied:
            life.tablet.apply([longer])
    for keys in ("ab", "cd"):
        life.check(life.entry(["k", "n"], [{"k": key, "n": 1} for key in keys]))
    life.disk.close()


def test_ceiling_of_a_batch_knows_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-60. Goal: a batch is measured if a write before it, which is not applied yet, has longer values. Method: a
    bound that is the ceiling of what is stored, and one longer value under way: the batch is refused."""
    monkeypatch.setattr(limits, "BATCH_KEPT_BYTES_MAX", 4 * 1007)
    life = Life()
    life.write(["k", "a"], [{"k": key, "a": "x" * 1000} for key in "abcd"])
    longer = life.entry(["k", "a"], [{"k": "a", "a": "x" * 1001}])
    whole = life.entry(["k", "n"], [{"k": key, "n": 1} for key in "abcd"])
    life.check(whole)
    with pytest.raises(Refused, match="in two batches"):
        life.check(whole, [longer])
    life.disk.close()


def test_batch_is_not_measured_if_its_ceiling_is_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-60. Goal: most batches cost the leader no look-up of their keys, and a batch that is measured while its tablet
    stops is told so. Method: a bound that is the ceiling, and one byte less; the tablet closes after its rows were
    checked."""
    life = Life()
    life.write(["k", "a"], [{"k": key, "a": "x" * 1000} for key in "abcd"])
    entry = life.entry(["k", "n"], [{"k": key, "n": 1} for key in "abcd"])
    meta, contents, looks = WriteMeta.decode(entry.meta), life.tablet._contents, list[None]()

    def check(rows: WireRows, hashes: Any) -> Any:
        looks.append(None)
        checked = life.tablet._check(SCHEMA, len(entry.payload), rows, hashes)
        life.tablet.close()
        return checked

    for most, measured in ((4 * 1007, False), (4 * 1007 - 1, True)):
        monkeypatch.setattr(limits, "BATCH_KEPT_BYTES_MAX", most)
        given = life.given(entry)
        if measured:
            with pytest.raises(Refused) as refused:
                check_kept(contents, meta, given, [], check)
            assert refused.value.code is Code.NOT_READY
        else:
            check_kept(contents, meta, given, [], check)
        assert len(looks) == measured
    life.disk.close()


def test_batches_that_cannot_keep_too_much_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-60. Goal: a batch that cannot exceed the bound is not measured, and a batch of one row is always accepted.
    Method: batches of all texts and of some, with and without `ignore_null`, at the number of the longest rows that the
    bound allows and above it; one row, and two, where no row may keep a byte."""
    life, most = Life(), limits.BATCH_KEPT_BYTES_MAX // limits.ROW_SIZE_BYTES_MAX

    def measured(names: str, rows: int, *, ignore_null: bool = False) -> bool:
        ids = SCHEMA.column_ids(["k", *names])
        return life.tablet.may_keep_much(WriteMeta(ids, rows, client_id="c", ignore_null=ignore_null))

    assert measured("ab", most + 1) and not measured("ab", most)
    assert not measured("abd", most + 1) and measured("abd", most + 1, ignore_null=True)
    assert not measured("", 1) and measured("", most + 1)
    monkeypatch.setattr(limits, "BATCH_KEPT_BYTES_MAX", 0)
    assert not measured("", 1) and measured("", 2)
    life.disk.close()


def test_measure_changes_nothing() -> None:
    """CN-24. Goal: measuring changes no state, because only the leader measures. Method: rows that are there and many
    that are not are measured; memory, rows and sum are as before, and the batch is applied as elsewhere."""
    sums = []
    for measures in (False, True):
        life = Life()
        life.write(["k", "a"], [{"k": f"{n}", "a": "x" * n} for n in range(50)])
        batch = life.entry(["k", "n"], [{"k": f"{n}", "n": n} for n in range(3000)])
        if measures:
            before = life.tablet.memory_bytes, life.tablet.rows_estimate, life.tablet.checksum()
            life.measured(batch)
            assert (life.tablet.memory_bytes, life.tablet.rows_estimate, life.tablet.checksum()) == before
        life.tablet.apply([batch])
        sums.append(life.tablet.checksum())
        life.disk.close()
    assert sums[0] == sums[1]
