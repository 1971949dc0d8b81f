"""A tablet as a state machine: what each entry, question and bound does, at the values where it changes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.fs import MapReserve, map_reserve
from nyala.replica.rows import (
    Column,
    ColumnType,
    PartitionSpec,
    Predicate,
    RowError,
    RowOp,
    SourceKey,
    TableSchema,
    WriteMeta,
    crc32c,
    encode_batch,
    route,
    sum_of_rows,
)
from nyala.replica.tablet import ApplyResult, Superblock, Tablet
from nyala.replica.tablet import tablet as tablet_module
from nyala.replica.tablet.kept_bound import Given
from nyala.replica.types import (
    Code,
    Corruption,
    Disk,
    Entry,
    EntryKind,
    OpId,
    Refused,
    ResourcesExhausted,
    ResourceUse,
    RowCode,
    hybrid_from_us,
    limits,
)
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import (
    INT_SCHEMA,
    PAIR_SCHEMA,
    SOURCE,
    batch_of,
    ledger_entry,
    noop_entry,
    rows_of,
    schema_entry,
    superblock,
    write_entry,
)

NAMES = list(INT_SCHEMA.names)
IDS = INT_SCHEMA.column_ids(NAMES)
CLIENT: dict[str, Any] = {"source": None, "client_id": "c" * 32}


def rows(first: int, *keys: int, op: int = RowOp.UPSERT) -> list[dict[str, Any]]:
    return [{"op": op, "offset": first + n, "k": k, "v": k, "s": "s", "r": 1} for n, k in enumerate(keys)]


def put(tablet: Tablet, *keys: int, op: int = RowOp.UPSERT, time: int | None = None, **meta: Any) -> ApplyResult:
    index = tablet.applied_opid.index + 1
    (result,) = tablet.apply(
        [write_entry(index, INT_SCHEMA, NAMES, rows(100 * index, *keys, op=op), time=time, **meta)]
    )
    return result


def new_tablet(disk: Disk | None = None, **more: Any) -> Tablet:
    return Tablet.create(disk or SimDisk(), superblock(INT_SCHEMA, **more))


def keys_of(tablet: Tablet) -> list[int]:
    return [row["k"] for row in rows_of(tablet.scan(["k"]), INT_SCHEMA)]


# ----------------------------------------------------------------------------------------------------- state


def test_tablet_tells_how_much_it_has() -> None:
    """Goal: what servers report and schedule by is true. Method: an empty tablet, rows in memory, in blocks, ended."""
    disk = SimDisk()
    tablet = new_tablet(disk)
    assert (tablet.rows_estimate, tablet.rows_written, tablet.bytes_on_disk, tablet.block_files()) == (0, 0, 0, [])
    assert not tablet.wants_compaction() and not tablet.closed and tablet.safe_time == tablet.applied_time == 0
    put(tablet, 1, 2, 3)
    put(tablet, 3, 4, op=RowOp.INSERT)
    assert (tablet.rows_estimate, tablet.rows_written, tablet.safe_time) == (4, 4, 2000)
    tablet.flush()
    put(tablet, 5)
    files = tablet.block_files()
    assert tablet.bytes_on_disk == sum(disk.size(path) for path, _, _ in files) > 0 and len(files) == 2
    assert tablet.store_bytes > 0 and tablet.row_bytes == tablet.store_bytes
    assert tablet.memory_bytes == tablet.row_bytes + tablet.ledger.memory_bytes
    again = Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))
    assert (again.rows_estimate, again.rows_written, again.applied_opid) == (4, 0, OpId(1, 2))
    tablet.close()
    assert tablet.closed
    disk.close()


@pytest.mark.parametrize("wal_bytes, flushed", [(0, False), (0, True), (1 << 20, False), (1 << 20, True)])
def test_flush_is_wanted_for_memory_and_for_the_log_that_it_would_free(wal_bytes: int, flushed: bool) -> None:
    """Goal: the score of a flush is the sum of the shares of memory and of eight segments of log, and zero if a flush
    would find nothing. Method: the formula, before and after a flush."""
    tablet = new_tablet()
    assert tablet.wants_flush(wal_bytes) == 0.0
    put(tablet, 1)
    if flushed:
        tablet.flush()
        assert tablet.wants_flush(wal_bytes) == 0.0
        tablet.apply([noop_entry(2)])
    share = tablet.row_bytes / limits.MEMSTORE_FLUSH_BYTES
    assert tablet.wants_flush(wal_bytes) == share + wal_bytes / (8 * limits.WAL_SEGMENT_SIZE_BYTES_MAX)
    assert tablet.wants_flush() == share


def test_superblock_that_is_gone_is_written_again_unless_the_tablet_is_closed() -> None:
    """Goal: a tablet in service heals its superblock, and a stopped one touches no file. Method: the file is there, is
    gone, and is gone after the close."""
    disk = SimDisk()
    tablet = new_tablet(disk)
    path = next(f"tablet-meta/{name}" for name in disk.listdir("tablet-meta"))
    assert not tablet.repair_superblock()
    disk.remove(path)
    assert tablet.repair_superblock() and Superblock.load(disk, tablet.tablet_id) == tablet.superblock
    disk.remove(path)
    tablet.close()
    assert not tablet.repair_superblock() and not disk.exists(path)
    disk.close()


# ----------------------------------------------------------------------------------------------------- opening


def test_block_of_a_schema_that_the_superblock_lacks_is_corruption() -> None:
    """Goal: a superblock that contradicts itself fails the replica, which a copy heals. Method: another schema's id."""
    disk = SimDisk()
    tablet = new_tablet(disk)
    put(tablet, 1)
    tablet.flush()
    (block,) = tablet.superblock.blocks
    with pytest.raises(Corruption, match="unknown schema"):
        Tablet.open(disk, replace(tablet.superblock, blocks=(block._replace(schema_id=9),)))
    disk.close()


@pytest.mark.parametrize("new", [True, False])
def test_opening_takes_maps_for_each_block(new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-32. Goal: a tablet that is opened takes each block's maps from the share that is its due: a new one leaves
    some to flushes. Method: two blocks; as many maps as they have are left below the share, or one fewer."""
    disk = SimDisk()
    tablet = new_tablet(disk)
    for key in (1, 2):
        put(tablet, key)
        tablet.flush()
    monkeypatch.setattr(map_reserve, "COUNT_EVERY_S", 1e9)
    most = round(100_000 * (limits.MAPS_SHARE_TO_OPEN_MAX if new else limits.MAPS_SHARE_TO_FLUSH_MAX))
    for spare in (3, 4):
        reserve = MapReserve(lambda spare=spare: ResourceUse(most - spare, 100_000), lambda: 0.0)  # type: ignore[misc]
        monkeypatch.setattr(tablet_module, "RESERVE", reserve)
        if spare < 4:
            with pytest.raises(ResourcesExhausted, match=r"vm\.max_map_count"):
                Tablet.open(disk, tablet.superblock, new=new)
        else:
            assert keys_of(Tablet.open(disk, tablet.superblock, new=new)) == [1, 2]
    disk.close()


def test_rows_that_ended_in_a_block_that_was_merged_since_are_no_damage() -> None:
    """Goal: a sidecar may name a block that is gone. Method: a block whose sidecar ends rows of an older one, which is
    then written again alone."""
    disk = SimDisk()
    tablet = new_tablet(disk, retention_us=1)
    put(tablet, *range(10), time=1 << 12)
    tablet.flush()
    put(tablet, *range(6), op=RowOp.DELETE, time=2 << 12)
    tablet.flush()
    tablet.apply([noop_entry(3, 9 << 12)])
    assert tablet.compact() and len(tablet.superblock.blocks) == 2
    named = {name for block in tablet._contents.stores.blocks for name in block.sidecar.deltas}
    assert named and named.isdisjoint(block.block_id for block in tablet.superblock.blocks)
    assert keys_of(Tablet.open(disk, tablet.superblock)) == keys_of(tablet) == [6, 7, 8, 9]
    disk.close()


# ----------------------------------------------------------------------------------------------------- writing


def test_batch_is_checked_up_to_its_bounds_and_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the leader refuses what is larger than a batch may be, and decodes a small batch once for the check and for
    the entry. Method: bounds at the batch's own size and one below, of bytes, rows, and of what is kept decoded."""
    tablet = new_tablet()
    entry = write_entry(1, INT_SCHEMA, NAMES, rows(0, 1, 2, 3))
    size = len(entry.payload)

    def check(crc: int = entry.payload_crc) -> Any:
        return tablet.check_write(1, IDS, entry.payload, crc, 3)

    for name, value in (("BATCH_SIZE_BYTES_MAX", size), ("BATCH_ROWS_MAX", 3)):
        with monkeypatch.context() as patch:
            patch.setattr(limits, name, value)
            assert check().num_rows == 3
            patch.setattr(limits, name, value - 1)
            with pytest.raises(Refused) as refused:
                check(entry.payload_crc ^ 1)  # which is not computed of so much
            assert refused.value.code is Code.TOO_LARGE
    tablet._checked.clear()
    for most, kept in ((size, True), (size - 1, False)):
        monkeypatch.setattr(tablet_module, "_CHECKED_BYTES_MAX", most)
        batch = check()
        assert batch.equals(batch_of(INT_SCHEMA, NAMES, rows(0, 1, 2, 3)))
        assert bool(tablet._checked) == kept
        if kept:
            assert tablet._batch_of(entry, WriteMeta.decode(entry.meta)) is batch
            assert not tablet._checked, "it is kept until it is applied"
    with pytest.raises(Refused) as refused:
        tablet.check_write(1, IDS, entry.payload, entry.payload_crc ^ 1, 3)
    assert refused.value.code is Code.INVALID_BATCH


def test_batches_that_are_kept_decoded_are_bounded_and_go_with_the_tablet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: batches that are checked and never applied take a bounded room, and none in a closed tablet; one is never
    taken for another. Method: a bound of two, three batches; bytes that are equal but of another object; a close."""
    monkeypatch.setattr(tablet_module, "_CHECKED_MAX", 2)
    tablet = new_tablet()
    entries = [write_entry(1, INT_SCHEMA, NAMES, rows(0, key)) for key in range(4)]
    for entry, kept in zip(entries, (1, 2, 1, 2), strict=True):
        tablet.check_write(1, IDS, entry.payload, entry.payload_crc, 1)
        assert len(tablet._checked) == kept
    other = entries[3]
    tablet._checked[id(entries[0].payload)] = other.payload, "another batch"
    assert tablet.apply([entries[0]])[0].rows_applied == 1 and keys_of(tablet) == [0]
    tablet.close()
    assert not tablet._checked


def test_batch_that_fills_too_many_columns_is_refused_before_it_is_in_the_log() -> None:
    """Goal: `check_write` applies the bound of left-out columns. Method: a long default, and rows that leave it out."""
    long = Column(id=9, name="d", type=ColumnType.STRING, nullable=False, default="d" * 60_000)
    schema = TableSchema(1, (*INT_SCHEMA.columns, long), ("k",))
    tablet = Tablet.create(SimDisk(), superblock(schema))
    most = schema.left_out(IDS, False).rows_max
    for count in (most, most + 1):
        entry = write_entry(1, schema, NAMES, rows(0, *range(count)))
        if count > most:
            with pytest.raises(Refused) as refused:
                tablet.check_write(1, IDS, entry.payload, entry.payload_crc, count)
            assert refused.value.code is Code.TOO_LARGE
        else:
            tablet.check_write(1, IDS, entry.payload, entry.payload_crc, count)


def test_decoders_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: clients that name columns in every order do not fill the memory; the same columns have one decoder.
    Method: a bound of two decoders, three orders."""
    monkeypatch.setattr(tablet_module, "_DECODERS_MAX", 2)
    tablet = new_tablet()
    orders = [(1, 2, 3, 4), (1, 3, 2, 4), (4, 3, 2, 1)]
    first = tablet._decoder(1, orders[0])
    assert tablet._decoder(1, orders[0]) is first and len(tablet._decoders) == 1
    tablet._decoder(1, orders[1])
    assert tablet._decoder(1, orders[0]) is first and len(tablet._decoders) == 2
    tablet._decoder(1, orders[2])
    assert list(tablet._decoders) == [(1, orders[2])]


def test_batch_has_its_columns_once_its_key_and_as_many_rows_as_it_says() -> None:
    """Goal: what cannot be applied is refused with the reason. Method: columns of every wrong kind; no row; a schema
    that is not known, whose refusal names the current one."""
    tablet = new_tablet()
    payload = write_entry(1, INT_SCHEMA, NAMES, rows(0, 1)).payload
    for ids, reason in (((1, 1, 2), "has not"), ((1, 9), "has not"), ((2, 3, 4), "lacks key"), ((), "lacks key")):
        with pytest.raises(Refused, match=reason) as refused:
            tablet._decode(1, ids, payload, 1)
        assert refused.value.code is Code.SCHEMA_MISMATCH
    with pytest.raises(Refused) as refused:
        tablet._decode(5, IDS, payload, 1)
    assert refused.value.code is Code.SCHEMA_MISMATCH and refused.value.detail == "1"
    empty = encode_batch(batch_of(INT_SCHEMA, NAMES, []))
    for data, said in ((payload, 2), (payload, 0), (empty, 0), (empty, 1)):
        with pytest.raises(Refused) as refused:
            tablet._decode(1, IDS, data, said)
        assert refused.value.code is Code.INVALID_BATCH


def test_leader_refuses_a_batch_that_would_cost_every_replica_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a batch that writes a key too often, or keeps too many stored values, is refused before it is in the log.
    Method: two passes, then 100 bytes; three rows of one key or of three, which leave out a text of 40 bytes."""
    tablet = new_tablet()
    long = [{**row, "s": "x" * 40} for row in rows(0, 1, 2, 3)]
    tablet.apply([write_entry(1, INT_SCHEMA, NAMES, long)])
    names = ["k", "r"]
    meta = WriteMeta(column_ids=INT_SCHEMA.column_ids(names), rows=3)
    once, often = (batch_of(INT_SCHEMA, names, rows(0, *keys, op=RowOp.UPDATE)) for keys in ((1, 2, 3), (1, 1, 1)))
    monkeypatch.setattr(limits, "BATCH_PASSES_MAX", 2)
    hashes = tablet.check_passes(meta, once, 100)
    assert hashes is not None and len(hashes) == 3
    with pytest.raises(Refused, match="one after the other"):
        tablet.check_passes(meta, often, 100)
    assert not tablet.may_keep_much(meta)
    for most in (3 * 40, 3 * 40 - 1):
        monkeypatch.setattr(limits, "BATCH_KEPT_BYTES_MAX", most)
        assert tablet.may_keep_much(meta)
        if most == 3 * 40:
            tablet.check_kept(meta, Given(meta.column_ids, once, hashes), 100, [])
        else:
            with pytest.raises(Refused, match="keep too many bytes"):
                tablet.check_kept(meta, Given(meta.column_ids, once, hashes), 100, [])


# ----------------------------------------------------------------------------------------------------- applying


def test_entries_that_were_applied_are_skipped_and_later_ones_are_not() -> None:
    """Goal: replay from any position before the applied one changes nothing twice. Method: a run of clients' writes
    from before the applied position and beyond it, which are combined from there on."""
    log = [write_entry(n, INT_SCHEMA, NAMES, rows(0, n), sequence=n, **CLIENT) for n in range(1, 7)]
    twin, tablet = new_tablet(), new_tablet()
    expected = twin.apply(log)
    tablet.apply(log[:3])
    results = tablet.apply(log)
    assert results[:3] == [ApplyResult(entry.opid, entry.hybrid_time) for entry in log[:3]]
    assert results[3:] == expected[3:] and tablet.checksum() == twin.checksum()
    assert tablet.ledger.to_avro() == twin.ledger.to_avro() and tablet.rows_written == twin.rows_written == 6


def test_one_write_is_applied_alone_and_two_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the step for several writes is taken for two or more of them that are next. Method: the rows of a
    step, and how many entries the chooser of steps is given, for lists of entries about the applied position."""
    given, steps, apply = list[int](), list[int](), tablet_module.apply_distinct

    def combine(entries: Any, first: int, **_: Any) -> None:
        given.append(len(entries) - first)

    def counted(stores: Any, schema: Any, rows: Any, *more: Any) -> Any:
        steps.append(len(rows.ops))
        return apply(stores, schema, rows, *more)

    monkeypatch.setattr(tablet_module, "apply_distinct", counted)
    log = [write_entry(n, INT_SCHEMA, NAMES, rows(0, n), sequence=n, **CLIENT) for n in range(1, 5)]
    new_tablet().apply(log)
    assert steps == [4]
    monkeypatch.setattr(tablet_module, "combine", combine)
    tablet = new_tablet()
    tablet.apply(log[:1])
    assert given == []
    tablet.apply(log[:3])
    assert given == [2]
    tablet.apply(log[3:])
    assert given == [2]


@pytest.mark.parametrize("alone", [True, False])
def test_times_of_versions_ascend_whatever_the_entries_say(alone: bool) -> None:
    """Goal: each write has a time of its own above all before it, and other entries do not turn the time back. Method:
    entries of equal and earlier times, applied one by one and together."""
    tablet = new_tablet()
    log = [
        write_entry(1, INT_SCHEMA, NAMES, rows(0, 1), sequence=1, time=5000, **CLIENT),
        write_entry(2, INT_SCHEMA, NAMES, rows(0, 2), sequence=2, time=5000, **CLIENT),
        write_entry(3, INT_SCHEMA, NAMES, rows(0, 3), sequence=3, time=10, **CLIENT),
        noop_entry(4, 20),
        write_entry(5, INT_SCHEMA, NAMES, rows(0, 1), sequence=1, time=30, **CLIENT),
        write_entry(6, INT_SCHEMA, NAMES, rows(0, 5), time=30),
        write_entry(7, INT_SCHEMA, NAMES, rows(1, 6), time=7000),
        noop_entry(8, 8000),
        write_entry(9, INT_SCHEMA, NAMES, rows(500, 7), time=7999, after=400),
    ]
    results = [tablet.apply([entry])[0] for entry in log] if alone else tablet.apply(log)
    times = [result.hybrid_time for result in results]
    assert times == [5000, 5001, 5002, 20, 5000, 5004, 7000, 8000, 8001]
    assert tablet.applied_time == tablet.safe_time == 8001 and tablet.applied_opid == OpId(1, 9)
    assert results[4] == replace(results[0], opid=OpId(1, 5), rows_replayed=1)
    for key, time in ((1, 5000), (2, 5001), (3, 5002), (5, 5004), (6, 7000)):
        one = [Predicate("k", "=", (key,))]
        assert len(rows_of(tablet.scan(predicates=one, snapshot_time=time), INT_SCHEMA)) == 1
        assert not rows_of(tablet.scan(predicates=one, snapshot_time=time - 1), INT_SCHEMA)


def test_result_of_a_write_counts_new_replayed_and_failed_rows() -> None:
    """Goal: a source learns of each batch how far it is and which rows failed, also of rows that it sent before.
    Method: overlapping batches of a source: new, partly and wholly repeated, with an error in the repeated part."""
    tablet = new_tablet()
    first = write_entry(1, INT_SCHEMA, NAMES, rows(10, 1, 2, 2, op=RowOp.INSERT))
    failed = RowError(12, RowCode.ALREADY_PRESENT, "")
    assert tablet.apply([first])[0] == ApplyResult(OpId(1, 1), 1000, None, (failed,), 2, 0, 12)
    (result,) = tablet.apply([write_entry(2, INT_SCHEMA, NAMES, rows(11, 2, 2, 3, 3, op=RowOp.INSERT))])
    assert (result.rows_applied, result.rows_replayed, result.last_offset) == (1, 2, 14)
    assert [(e.offset, e.code) for e in result.row_errors] == [
        (12, RowCode.ALREADY_PRESENT), (14, RowCode.ALREADY_PRESENT)
    ]  # fmt: skip
    (result,) = tablet.apply([write_entry(3, INT_SCHEMA, NAMES, rows(10, 1, 2, 2, op=RowOp.INSERT))])
    assert (result.rows_applied, result.rows_replayed, result.last_offset, result.error) == (0, 3, 14, None)
    assert [e.offset for e in result.row_errors] == [12]
    assert keys_of(tablet) == [1, 2, 3] and tablet.rows_written == 3
    (state,) = tablet.ledger_sources()
    assert (state.source, state.last_offset) == (SOURCE, 14)
    assert put(tablet, 9, source=None).last_offset is None


def test_ledger_has_what_the_writes_say_of_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """CN-24. Goal: a write without a sender needs no room in the ledger, a repeated one keeps its client alive, any
    entry lets silent clients go, and a source whose errors fill the ledger is refused. Method: one of each."""
    tablet = new_tablet()
    put(tablet, 1, source=None)
    assert tablet.ledger.to_avro() == {"sources": [], "clients": []}
    put(tablet, 1, sequence=1, **CLIENT)
    put(tablet, 1, sequence=1, **CLIENT)
    (client,) = tablet.ledger.to_avro()["clients"]
    assert (client["last_used"], len(client["results"])) == (3000, 1)
    with monkeypatch.context() as patch:
        patch.setattr(limits, "LEDGER_CLIENTS_MAX", 1)
        assert put(tablet, 1, source=None).error is None
    tablet.apply([noop_entry(5, hybrid_from_us(2 * limits.LEDGER_CLIENT_TTL_US))])
    assert tablet.ledger.to_avro()["clients"] == []
    monkeypatch.setattr(limits, "LEDGER_ERROR_RUNS_MAX", 1)
    assert put(tablet, 1, op=RowOp.INSERT).row_errors and not put(tablet, 1, source=None).error
    full = put(tablet, 7)
    assert full.error is not None and full.error.code is Code.OVERLOADED and keys_of(tablet) == [1]


def test_write_of_an_earlier_schema_has_its_columns_that_are_left() -> None:
    """Goal: what was in the log when the schema changed is applied to the later schema. Method: a column is dropped and
    another one is added, with a default; a write of before."""
    tablet = new_tablet()
    added = Column(id=9, name="z", type=ColumnType.INT32, nullable=False, default=5)
    later = TableSchema(2, (*(c for c in INT_SCHEMA.columns if c.name != "v"), added), ("k",))
    tablet.apply([schema_entry(1, later)])
    assert put(tablet, 1).error is None
    assert rows_of(tablet.scan(), later) == [{"k": 1, "s": "s", "r": 1, "z": 5}]


def test_errors_of_a_batch_come_in_the_order_of_its_rows() -> None:
    """Goal: errors ascend by offset, whichever check found them. Method: errors of the rows' own and of what is stored,
    in turns."""
    tablet = new_tablet()
    put(tablet, 1, 2)
    given = rows(500, 1, 7, 2, 8, op=RowOp.INSERT)
    given[1]["r"] = given[3]["r"] = None
    (result,) = tablet.apply([write_entry(2, INT_SCHEMA, NAMES, given)])
    assert [(e.offset - 500, e.code) for e in result.row_errors] == [
        (0, RowCode.ALREADY_PRESENT), (1, RowCode.NULL_IN_REQUIRED_COLUMN),
        (2, RowCode.ALREADY_PRESENT), (3, RowCode.NULL_IN_REQUIRED_COLUMN),
    ]  # fmt: skip


def test_remembered_result_is_that_of_the_write_as_of_now() -> None:
    """Goal: a client that asks again has the first result, at the position where the tablet is. Method: a write with an
    error, another entry, a result that is known and one that is not."""
    tablet = new_tablet()
    first = put(tablet, 1, 1, op=RowOp.INSERT, sequence=1, **CLIENT)
    assert first.rows_applied == 1 and len(first.row_errors) == 1 and first.last_offset is None
    tablet.apply([noop_entry(2)])
    assert tablet.remembered("c" * 32, 1) == replace(first, opid=OpId(1, 2))
    assert tablet.remembered("c" * 32, 2) is None and tablet.remembered("d" * 32, 1) is None


def test_ledger_entries_move_their_source_unless_they_are_old() -> None:
    """Goal: a reset of a source by an older generation is refused and is applied by position only. Method: a newer
    generation, then an older one; a kind of entry that no data tablet has."""
    tablet = new_tablet()
    put(tablet, 1)
    other = SourceKey("d" * 8, "t" * 8, 3)
    assert tablet.apply([ledger_entry(2, other, 5, 70)])[0].error is None
    (late,) = tablet.apply([ledger_entry(3, other, 4, 99)])
    assert late.error is not None and late.error.code is Code.STALE_GENERATION and late.opid == OpId(1, 3)
    assert [(s.source, s.generation, s.done) for s in tablet.ledger_sources() if s.source == other] == [(other, 5, 70)]
    assert tablet.applied_opid == OpId(1, 3)
    with pytest.raises(Corruption, match="catalog entry"):
        tablet.apply([Entry(OpId(1, 4), EntryKind.CATALOG, 4000, 0, b"", b"", 0)])


@pytest.mark.parametrize("kind", ["write", "schema"])
def test_entry_that_lacks_a_resource_half_way_has_no_result_and_makes_no_file(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-30. Goal: if a resource is exhausted while an entry changes rows or the schema, `apply` raises, the position
    stays, and no file is made, whatever refused entries come later. Method: the resource ends in the step under the
    lock; then an entry that is refused."""
    tablet = new_tablet()
    put(tablet, 1, sequence=9, first_incomplete=9, **CLIENT)

    def exhausted(*_: Any, **__: Any) -> Any:
        raise ResourcesExhausted("no map is left")

    with monkeypatch.context() as patch:
        patch.setattr(tablet_module, "apply_rows" if kind == "write" else "schema_of_entry", exhausted)
        with pytest.raises(ResourcesExhausted):
            if kind == "write":
                put(tablet, 2)
            else:
                tablet.apply([schema_entry(2, replace(INT_SCHEMA, schema_id=2))])
    assert tablet.applied_opid == OpId(1, 1)
    late = put(tablet, 2, sequence=1, **CLIENT)
    assert late.error is not None and late.error.code is Code.EXPIRED
    with pytest.raises(Refused) as refused:
        tablet.flush()
    assert refused.value.code is Code.NOT_READY


def test_committed_batch_that_cannot_be_decoded_is_an_answer_unless_its_bytes_changed() -> None:
    """Goal: what is wrong in the log is refused the same way on every replica, and what is wrong on this disk only is
    damage. Method: a payload that is no batch, with its own checksum and with another one."""
    tablet = new_tablet()
    good = write_entry(1, INT_SCHEMA, NAMES, rows(0, 1))
    bad = good._replace(payload=b"no batch", payload_crc=crc32c(b"no batch"))
    with pytest.raises(Corruption, match="damaged"):
        new_tablet().apply([bad._replace(payload_crc=bad.payload_crc ^ 1)])
    (result,) = tablet.apply([bad])
    assert result.error is not None and result.error.code is Code.INVALID_BATCH
    assert tablet.applied_opid == OpId(1, 1) and tablet.applied_time == 1000 == result.hybrid_time
    late = write_entry(2, INT_SCHEMA, NAMES, rows(50, 1), after=40)
    (gap,) = tablet.apply([late._replace(payload_crc=late.payload_crc ^ 1)])
    assert gap.error is not None and gap.error.code is Code.GAP and not keys_of(tablet), "the payload is not needed"


SWITCHES: dict[str, tuple[TableSchema, Code | None]] = {
    "the same": (INT_SCHEMA, Code.SCHEMA_MISMATCH),
    "an older one": (replace(INT_SCHEMA, schema_id=0), Code.SCHEMA_MISMATCH),
    "a newer one": (replace(INT_SCHEMA, schema_id=2), None),
    "some versions later": (replace(INT_SCHEMA, schema_id=9), None),
    "a nullable column": (
        TableSchema(2, (*INT_SCHEMA.columns, Column(id=9, name="z", type=ColumnType.INT32)), ("k",)),
        None,
    ),
    "a default": (
        TableSchema(
            2, (*INT_SCHEMA.columns, Column(id=9, name="z", type=ColumnType.INT32, nullable=False, default=1)), ("k",)
        ),
        None,
    ),
    "neither": (
        TableSchema(2, (*INT_SCHEMA.columns, Column(id=9, name="z", type=ColumnType.INT32, nullable=False)), ("k",)),
        Code.INVALID_ARGUMENT,
    ),
    "another type": (
        TableSchema(2, (INT_SCHEMA.columns[0], Column(id=2, name="v", type=ColumnType.INT64)), ("k",)),
        Code.INVALID_ARGUMENT,
    ),
    "another key column": (
        TableSchema(
            2, (*INT_SCHEMA.columns, Column(id=9, name="z", type=ColumnType.INT64, nullable=False, default=1)), ("z",)
        ),
        Code.INVALID_ARGUMENT,
    ),
    "a longer key": (
        TableSchema(2, tuple(replace(c, default=None) for c in INT_SCHEMA.columns), ("k", "r")),
        Code.INVALID_ARGUMENT,
    ),
}


@pytest.mark.parametrize("kind", SWITCHES)
def test_schema_switches_to_a_later_one_that_old_rows_fit(kind: str) -> None:
    """Goal: a schema entry takes effect if its number is higher, the key the same, and old rows have a value of each
    column; otherwise it changes nothing. Method: a table of schemas over a row of before."""
    schema, code = SWITCHES[kind]
    tablet = new_tablet()
    put(tablet, 1)
    (result,) = tablet.apply([schema_entry(2, schema)])
    assert (result.error.code if result.error else None) is code
    assert tablet.schema == (INT_SCHEMA if code else schema) and tablet.applied_opid == OpId(1, 2)
    assert sorted(tablet._contents.schemas) == ([1] if code else [1, schema.schema_id])
    assert len(rows_of(tablet.scan(), INT_SCHEMA)) == 1


@pytest.mark.parametrize(
    "spec, place",
    [
        (PartitionSpec(("k",), 2), {"bucket": 1}),
        (PartitionSpec(("k",), 4), {"bucket": 3}),
        (PartitionSpec(("k",), 1), {"bucket": 0}),
        (PartitionSpec(("k",), 3, range_column="k", range_splits=(10, 20)), {"bucket": 2, "range_pos": 1}),
    ],
    ids=["two", "four", "one", "ranges"],
)
def test_tablet_has_the_rows_of_its_part_of_the_table(spec: PartitionSpec, place: dict[str, int]) -> None:
    """Goal: a row of another tablet fails, wherever the table is cut. Method: buckets alone, ranges with buckets."""
    tablet = new_tablet(partition=spec, **place)
    given = rows(0, *range(32))
    (result,) = tablet.apply([write_entry(1, INT_SCHEMA, NAMES, given)])
    tablets = route(batch_of(INT_SCHEMA, NAMES, given), INT_SCHEMA, spec)
    mine = np.flatnonzero(tablets == place.get("range_pos", 0) * spec.buckets + place["bucket"]).tolist()
    assert keys_of(tablet) == mine and mine
    assert [e.offset for e in result.row_errors] == [k for k in range(32) if k not in mine]
    assert {e.code for e in result.row_errors} <= {RowCode.WRONG_TABLET}


# ----------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("cut, there", [((0, 1), 1), ((2, 3), 1), ((3, 3), 0), ((-1, 3), 0), ((0, 0), 0)])
def test_slice_of_a_scan_is_one_of_those_that_there_are(cut: tuple[int, int], there: int) -> None:
    """Goal: a slice that is none is refused. Method: the first, the last, and those beside them."""
    tablet = new_tablet()
    put(tablet, 1)
    if there:
        list(tablet.scan(slice=cut))
        return
    with pytest.raises(Refused) as refused:
        tablet.scan(slice=cut)
    assert refused.value.code is Code.INVALID_ARGUMENT


def test_scan_names_columns_that_there_are_once() -> None:
    """Goal: a scan of no columns, or of unknown or repeated ones, is refused before it begins. Method: names and
    predicates."""
    tablet = new_tablet()
    put(tablet, 1)
    assert tablet.scan(["k", "v"]).schema.names == ["k", "v"]
    bad: list[dict[str, Any]] = [
        {"columns": []}, {"columns": ["k", "k"]}, {"columns": ["k", "none"]},
        {"predicates": [Predicate("none", "=", (1,))]},
        {"columns": ["k"], "predicates": [Predicate("none", "=", (1,))]},
    ]  # fmt: skip
    for how in bad:
        with pytest.raises(Refused) as refused:
            tablet.scan(**how)
        assert refused.value.code is Code.INVALID_ARGUMENT


def encoded(keys: list[int | None]) -> bytes:
    column = pa.field("k", pa.int64())
    batch = pa.RecordBatch.from_arrays([pa.array(keys, pa.int64())], schema=pa.schema([column]))
    return encode_batch(batch)


def test_keys_of_a_read_are_bounded_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a read has at most so many keys and bytes, and no null. Method: bounds at the call's own size and one
    below; the decoder is made once."""
    tablet = new_tablet()
    payload = encoded([3, 1, 2])
    found = tablet.keys(payload)
    assert found.columns[0].to_pylist() == [3, 1, 2]
    decoder = tablet._keys_decoder
    assert decoder is not None
    for name, size in (("GET_KEYS_BYTES_MAX", len(payload)), ("GET_KEYS_MAX", 3)):
        with monkeypatch.context() as patch:
            patch.setattr(limits, name, size)
            assert tablet.keys(payload).rows == 3
            patch.setattr(limits, name, size - 1)
            with pytest.raises(Refused, match="ask for fewer") as refused:
                tablet.keys(payload)
            assert refused.value.code is Code.TOO_LARGE
    assert tablet._keys_decoder is decoder
    pairs = Tablet.create(SimDisk(), superblock(PAIR_SCHEMA))
    half = pa.record_batch({"k": pa.array([1], pa.int64()), "k2": pa.nulls(1, pa.int64())})
    for of, null in ((tablet, encoded([1, None])), (pairs, encode_batch(half))):
        with pytest.raises(Refused) as refused:
            of.keys(null)
        assert refused.value.code is Code.INVALID_BATCH


def test_read_is_of_its_time_and_within_the_history() -> None:
    """Goal: reads by key and scans have the rows of one time, are refused below the history, and by a closed tablet.
    Method: a row of two versions; each time about the horizon; columns by name and all of them."""
    tablet = new_tablet(retention_us=2)
    put(tablet, 1, time=10 << 12)
    put(tablet, 1, 2, time=11 << 12)
    tablet.apply([noop_entry(3, 12 << 12)])
    horizon = tablet.history_horizon
    assert horizon == 10 << 12
    keys = tablet.keys(encoded([2, 1, 7]))
    for time, found in ((None, [0, 1]), (12 << 12, [0, 1]), (10 << 12, [1])):
        got, at = tablet.get(keys, snapshot_time=time)
        assert at == (12 << 12 if time is None else time)
        assert got.found.tolist() == found and got.answered == 3 and got.batch.schema.names == NAMES
        assert len(rows_of(tablet.scan(snapshot_time=time), INT_SCHEMA)) == len(found)
    assert tablet.get(keys, ["r", "k"])[0].batch.schema.names == ["r", "k"]
    assert tablet.get(keys, bytes_max=1)[0].answered == 1
    absent = tablet.keys(encoded([7]))
    for read in (tablet.scan, tablet.checksum, *(partial(tablet.get, some) for some in (keys, absent))):
        with pytest.raises(Refused) as refused:
            read(snapshot_time=horizon - 1)
        assert refused.value.code is Code.HISTORY_GONE and refused.value.detail == str(horizon)
    tablet.close()
    for late in (tablet.scan, tablet.checksum, lambda: tablet.get(keys)):
        with pytest.raises(Refused) as refused:
            late()
        assert refused.value.code is Code.NOT_READY


class Stopped(Exception):
    """What a caller that wants no more raises."""


def test_reads_can_be_stopped() -> None:
    """Goal: a scan, a checksum and a read by key end when their caller wants no more. Method: a caller that stops at
    once, over rows in a block."""
    tablet = new_tablet()
    put(tablet, 1, 2)
    tablet.flush()

    def stop() -> None:
        raise Stopped

    keys = tablet.keys(encoded([1]))
    for read in (tablet.scan, tablet.checksum, partial(tablet.get, keys)):
        with pytest.raises(Stopped):
            list(read(stop=stop))
    total = tablet.checksum()
    scan = tablet.scan()
    (batch,) = list(scan)
    assert total == sum_of_rows(batch, scan.column_ids, lambda: None)


def test_writes_of_one_step_have_each_its_own_result() -> None:
    """Goal: writes that are applied together are answered as if they were applied one by one, and so are those after
    them. Method: four clients' writes with errors in some, a key that two of them write, a wrong row; results, rows,
    ledger and counts beside a tablet that applies them one by one."""
    given = [rows(0, 1, 2), rows(0, 3, 3, op=RowOp.INSERT), rows(5, 4, 1, op=RowOp.INSERT), rows(0, 5, 6)]
    given[3][1]["r"] = None
    distinct = [rows(0, 11, 12), rows(7, 1, 13, op=RowOp.INSERT), rows(0, 14)]
    log = [
        write_entry(n, INT_SCHEMA, NAMES, each, sequence=n, time=7 * n, **CLIENT)
        for n, each in enumerate([*given, *distinct], 1)
    ]
    together, alone = new_tablet(), new_tablet()
    results = together.apply(log)
    assert results == [alone.apply([entry])[0] for entry in log]
    assert [(r.rows_applied, len(r.row_errors)) for r in results] == [
        (2, 0),
        (1, 1),
        (1, 1),
        (1, 1),
        (2, 0),
        (1, 1),
        (1, 0),
    ]
    assert together.rows_written == alone.rows_written == 9
    assert together.checksum() == alone.checksum() and together.ledger.to_avro() == alone.ledger.to_avro()
    assert (
        (together.applied_opid, together.applied_time) == (alone.applied_opid, alone.applied_time) == (OpId(1, 7), 49)
    )
