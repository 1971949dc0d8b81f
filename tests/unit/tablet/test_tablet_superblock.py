"""The root record: legal moves, round trip, orphans."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from functools import partial

import pytest

from nyala import schemas
from nyala.replica.rows import PartitionSpec
from nyala.replica.tablet import Superblock, Tablet, block_names, superblock_path, sweep_orphans
from nyala.replica.tablet.superblock import BlockInfo
from nyala.replica.tablet_copy import settle_at_startup
from nyala.replica.types import (
    ZERO_OPID,
    Code,
    Corruption,
    DataState,
    InvariantViolation,
    LaterFormat,
    OpId,
    Refused,
    ResourcesExhausted,
)
from tests.harness.sim_disk import SimCrash, SimDisk
from tests.harness.tablet_twin import INT_SCHEMA, superblock, write_entry

_LEGAL = {
    (DataState.DOES_NOT_EXIST, DataState.COPYING),
    (DataState.DOES_NOT_EXIST, DataState.READY),
    (DataState.READY, DataState.DELETED),
    (DataState.DELETED, DataState.COPYING),
    (DataState.COPYING, DataState.READY),
    (DataState.COPYING, DataState.DELETED),
}


@pytest.mark.parametrize("before", list(DataState))
@pytest.mark.parametrize("after", list(DataState))
def test_superblock_data_state_moves_only_as_documented(before: DataState, after: DataState) -> None:
    """Goal: TC-15, TC-16: of all pairs of states only the documented moves, and staying put, are written; an illegal
    one leaves the record as it was. Method: every pair."""
    disk = SimDisk()
    path = {
        DataState.DOES_NOT_EXIST: [],
        DataState.DELETED: [DataState.READY, DataState.DELETED],
        DataState.COPYING: [DataState.COPYING],
        DataState.READY: [DataState.READY],
    }[before]
    base = superblock(INT_SCHEMA)
    for state in path:
        replace(base, data_state=state).save(disk)
    stays = before is after and after is not DataState.DOES_NOT_EXIST
    if (before, after) in _LEGAL or stays:
        replace(base, data_state=after).save(disk)
        assert Superblock.load(disk, base.tablet_id).data_state is after
    else:
        with pytest.raises(InvariantViolation):
            replace(base, data_state=after).save(disk)
        assert Superblock.exists(disk, base.tablet_id) == (before is not DataState.DOES_NOT_EXIST)
        if path:
            assert Superblock.load(disk, base.tablet_id).data_state is before


def test_superblock_saved_and_loaded_is_equal() -> None:
    """Goal: nothing is lost on the way to disk. Method: a record with every field set."""
    disk = SimDisk()
    spec = PartitionSpec(("k",), 4, range_column="k", range_splits=(5, 10))
    block = superblock(
        INT_SCHEMA,
        retention_us=7,
        table_name="t",
        data_state=DataState.COPYING,
        last_logged=OpId(3, 9),
        quarantine="quarantine/x",
        bucket=1,
        range_pos=2,
        partition=spec,
        flush_opid=OpId(2, 4),
        flush_time=77,
        history_horizon=5,
        next_block=6,
        wal_generation=2,
        state=b"abc",
    )
    block.save(disk)
    assert Superblock.load(disk, block.tablet_id) == block
    assert Superblock.list_tablets(disk) == [block.tablet_id]


def test_superblock_block_number_below_saved_is_refused() -> None:
    """Goal: block numbers are never reused. Method: save a lower next number."""
    disk = SimDisk()
    superblock(INT_SCHEMA, next_block=4).save(disk)
    with pytest.raises(InvariantViolation):
        superblock(INT_SCHEMA, next_block=3).save(disk)


def test_superblock_that_a_killed_process_left_unsynced_is_durable_after_a_start() -> None:
    """Goal: log GC may rely on the flush that a start has found. Method: kill between the rename and its sync, settle,
    cut the power: the later superblock is still there."""
    for seed in range(30):
        disk = SimDisk()
        superblock(INT_SCHEMA).save(disk)
        disk.arm("disk.before_rename_sync")
        with pytest.raises(SimCrash):
            superblock(INT_SCHEMA, flush_opid=OpId(1, 9)).save(disk)
        disk.restart()
        found = settle_at_startup(disk, Superblock.load(disk, superblock(INT_SCHEMA).tablet_id))
        assert found.flush_opid == OpId(1, 9)
        disk.power_loss(random.Random(seed))
        assert Superblock.load(disk, found.tablet_id).flush_opid == OpId(1, 9)


def test_superblock_damaged_or_absent_says_which() -> None:
    """Goal: absence is DOES_NOT_EXIST, damage is Corruption. Method: load without a file, then where a file of
    another tablet has got the name, then with a flipped bit."""
    disk = SimDisk()
    with pytest.raises(Refused) as refused:
        Superblock.load(disk, "a" * 32)
    assert refused.value.code is Code.TABLET_NOT_FOUND
    superblock(INT_SCHEMA).save(disk)
    disk.poke(superblock_path("b" * 32), disk.read(superblock_path("a" * 32)))
    with pytest.raises(Corruption, match="another tablet's"):
        Superblock.load(disk, "b" * 32)
    disk.corrupt(superblock_path("a" * 32), 40)
    with pytest.raises(Corruption):
        Superblock.load(disk, "a" * 32)


@pytest.mark.parametrize("value", [None, True, 1.5, "text", {}, []], ids=repr)
@pytest.mark.parametrize("field", ["block_id", "sidecar_name", "sidecar_length_bytes", "sidecar_crc"])
def test_superblock_with_a_block_described_by_other_values_is_corrupt(field: str, value: object) -> None:
    """IN-21: a record whose JSON describes a block by a value of another kind is Corruption when it is loaded, not an
    error of Python when the block is opened."""
    disk = SimDisk()
    names = {"block_id": "b" * 32, "sidecar_name": "data/b.idx", "sidecar_length_bytes": 1, "sidecar_crc": 1}
    block = BlockInfo("data/b.arrow", 1, 1, 1, 0, 0, 0, 0, **names)  # type: ignore[arg-type]
    found = replace(superblock(INT_SCHEMA), blocks=(block,))
    found.save(disk)
    assert Superblock.load(disk, found.tablet_id).blocks == (block,)
    if type(value) is type(names[field]):
        return
    disk.poke(
        found.path, schemas.frame("superblock", replace(found, blocks=(block._replace(**{field: value}),)).to_avro())
    )  # type: ignore[arg-type]
    with pytest.raises(Corruption, match="superblock cannot be read"):
        Superblock.load(disk, found.tablet_id)


@pytest.mark.parametrize("same", ["name", "sidecar_name", "block_id"])
def test_superblock_that_lists_a_block_twice_is_corrupt(same: str) -> None:
    """IN-21: a record that lists one file or one block twice is Corruption when it is loaded, because its rows would
    count twice. Method: two blocks that share one of their names."""
    one = BlockInfo("data/b.arrow", 1, 1, 1, 0, 0, 0, 0, "data/b.idx", 1, 1, "b" * 32)
    two = one._replace(name="data/c.arrow", sidecar_name="data/c.idx", block_id="c" * 32)
    disk = SimDisk()
    found = replace(superblock(INT_SCHEMA), blocks=(one, two))
    found.save(disk)
    assert Superblock.load(disk, found.tablet_id).blocks == (one, two)
    disk.poke(found.path, replace(found, blocks=(one, two._replace(**{same: getattr(one, same)}))).encode())
    with pytest.raises(Corruption, match="superblock cannot be read"):
        Superblock.load(disk, found.tablet_id)


def test_superblock_in_force_is_written_again_only_where_it_is_gone_or_hurt() -> None:
    """Goal: a running replica keeps its record, and never writes over what it cannot judge. Method: the record whole,
    gone, damaged, unreadable; no file left to open; a later build's; its folder gone."""
    disk, block = SimDisk(), superblock(INT_SCHEMA, flush_opid=OpId(2, 7))
    block.save(disk)
    whole = disk.read(block.path)
    assert not block.repair(disk)
    for hurt in (
        lambda: disk.remove(block.path),
        lambda: disk.corrupt(block.path, 40),
        lambda: disk.fail_on("read", block.path, "EIO"),
    ):
        hurt()
        assert block.repair(disk) and disk.read(block.path) == whole
    disk.fail_on("read", block.path, "EMFILE")
    with pytest.raises(ResourcesExhausted):
        block.repair(disk)
    later = schemas.frame("superblock", block.to_avro() | {"incompatible_features": ["of-tomorrow"]})
    disk.replace(block.path, later)
    with pytest.raises(LaterFormat):
        Superblock.load(disk, block.tablet_id)
    assert not block.repair(disk) and disk.read(block.path) == later
    disk.remove_tree("tablet-meta")
    assert not block.repair(disk) and not disk.exists("tablet-meta")


_OTHER_VALUES: dict[str, object] = {
    "table_id": "another",
    "table_name": "t",
    "data_state": DataState.DELETED,
    "last_logged": OpId(3, 9),
    "last_logged_known": False,
    "quarantine": "quarantine/x",
    "bucket": 1,
    "range_pos": 2,
    "partition": PartitionSpec(("k",), 4),
    "table_schemas": (INT_SCHEMA, replace(INT_SCHEMA, schema_id=INT_SCHEMA.schema_id + 1)),
    "history_retention_us": 7,
    "flush_opid": OpId(2, 6),
    "flush_time": 77,
    "blocks": (BlockInfo("data/b.arrow", 1, 1, 1, 0, 0, 0, 0, "data/b.idx", 1, 1, "b" * 32),),
    "next_block": 6,
    "ledger": {
        "sources": [],
        "clients": [{"client_id": "c", "first_incomplete": 1, "last_used": 1, "results": []}],
    },
    "wal_generation": 2,
    "state": b"abc",
    "witness": True,
}


def test_superblock_in_force_replaces_one_that_differs_in_any_field() -> None:
    """IN-21. Goal: a readable record of an earlier time does not stay on the disk of a running server, and its values
    judge nothing. Method: for each field, the disk has another value than memory; `repair` and `save` put memory's in
    its place. A history horizon that is higher in memory only is no reason to write."""
    kept = superblock(INT_SCHEMA, flush_opid=OpId(2, 7), next_block=4)
    left = {field.name for field in fields(Superblock)} - _OTHER_VALUES.keys()
    assert left == {"tablet_id", "history_horizon"}
    for name, value in _OTHER_VALUES.items():
        disk = SimDisk()
        found = replace(kept, **{name: value})  # type: ignore[arg-type]
        disk.replace(kept.path, found.encode())
        assert kept.repair(disk) and Superblock.load(disk, kept.tablet_id) == kept, name
        assert not kept.repair(disk)
        disk.replace(kept.path, found.encode())
        after = replace(kept, flush_time=99)
        after.save(disk, over=kept)
        assert Superblock.load(disk, kept.tablet_id) == after, name
        assert not replace(after, history_horizon=55).repair(disk)


@pytest.mark.parametrize(
    ("on_disk", "flushed", "told"),
    [
        ("the record", OpId(2, 7), ""),
        ("nothing", ZERO_OPID, ""),
        ("nothing", OpId(2, 7), "TABLET_NOT_FOUND"),
        ("damage", ZERO_OPID, "superblock"),
        ("damage", OpId(2, 7), "superblock"),
        ("an earlier record", OpId(2, 7), "which ends at 2.6 and not 2.7"),
    ],
)
def test_record_that_memory_replaces_is_told_unless_it_never_was_there(
    on_disk: str, flushed: OpId, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """IN-21. Goal: the log says why a file was replaced, for the disk may be bad; a tablet that was never flushed may
    have none. Method: a file that is as in memory, missing, damaged and older, below `save` and `repair`."""
    kept = superblock(INT_SCHEMA, flush_opid=flushed, next_block=4)
    text = {
        "the record": kept.encode(),
        "nothing": None,
        "damage": b"?",
        "an earlier record": replace(kept, flush_opid=OpId(2, 6)).encode(),
    }[on_disk]
    for write in (kept.repair, partial(replace(kept, flush_time=99).save, over=kept)):
        disk = SimDisk()
        if text is not None:
            disk.replace(kept.path, text)
        caplog.clear()
        write(disk)
        lines = [
            line for line in caplog.messages if f"T {kept.tablet_id} the record in memory replaces its file" in line
        ]
        assert [told in line for line in lines] == [True] * bool(told)


def test_superblock_folder_lists_tablets_and_no_half_written_file() -> None:
    """Goal: a file that was on its way is no tablet. Method: two records, a temp file, none at all."""
    disk = SimDisk()
    assert Superblock.list_tablets(disk) == []
    for name in ("b" * 32, "a" * 32, "." + "c" * 32 + ".tmp"):
        disk.poke(superblock_path(name), b"x")
    assert Superblock.list_tablets(disk) == ["a" * 32, "b" * 32]


@pytest.mark.parametrize(
    ("logged", "end"), [(OpId(1, 9), OpId(2, 7)), (OpId(2, 8), OpId(2, 8)), (OpId(0, 0), OpId(2, 7))]
)
def test_end_of_a_replica_is_never_below_its_flush(logged: OpId, end: OpId) -> None:
    """Goal: an empty log forgets nothing that is flushed. Method: logs that end below and above it."""
    assert superblock(INT_SCHEMA, flush_opid=OpId(2, 7)).end_of(logged) == end


def test_orphans_sweep_removes_only_what_no_superblock_names() -> None:
    """Goal: TC-64: blocks that no superblock names are reclaimed, named ones stay. Method: one flushed tablet and two
    stray files."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    tablet.apply([write_entry(1, INT_SCHEMA, ["k", "r"], [{"op": 1, "offset": 1, "k": 1, "r": 2}])])
    tablet.flush()
    disk.poke("data/stray.arrow", b"x")
    disk.poke("data/stray.idx", b"x")
    live = block_names(tablet.superblock)
    assert sweep_orphans(disk, live) == ["data/stray.arrow", "data/stray.idx"]
    assert {f"data/{n}" for n in disk.listdir("data")} == live
    again = Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))
    assert again.checksum() == tablet.checksum()
    disk.close()
