"""What is put aside, as an operator sees it and takes it away."""

from __future__ import annotations

import pytest

from nyala.replica.base import Corruption, DataState, OpId
from nyala.replica.cmeta import ConsensusMeta
from nyala.replica.copy import delete_replica, list_quarantine, purge_quarantine
from nyala.replica.tablet import Superblock
from tests.harness.copies import TABLET, TARGET_UUID, RestingReplica, data_files, new_disk, superblock
from tests.harness.sim_disk import SimDisk


def deleted(disk: SimDisk) -> Superblock:
    """A tombstone whose quarantine holds a block, a log and metadata."""
    replica = RestingReplica(disk, TARGET_UUID)
    replica.write([1, 2], "a")
    replica.tablet.flush()
    last = replica.write([3], "b", term=4)
    replica.cmeta.save_hard_state(5, "c" * 32)
    replica.close()
    return delete_replica(disk, Superblock.load(disk, TABLET), last, stop=lambda: None)


def test_quarantine_is_listed_with_what_it_holds() -> None:
    """Goal: row TC-38: an operator sees what is kept, of which tablet, and how much. Method: a deleted replica, a
    damaged quarantine, one with a log only, one of another tablet whose id has a dash and a number."""
    disk = new_disk()
    tombstone = deleted(disk)
    (item,) = list_quarantine(disk)
    assert (item.path, item.tablet_id, item.table_name) == (tombstone.quarantine, TABLET, "things")
    assert item.data_state is DataState.READY and not item.error
    assert item.wal_bytes == sum(disk.size(f"{item.path}/wal/{n}") for n in disk.listdir(f"{item.path}/wal")) > 0
    assert item.block_bytes == sum(disk.size(f"data/{n}") for n in data_files(disk)) > 0
    for name, path in ((f"{TABLET}-000007", "superblock"), ("other-9-000001", "wal/wal-000000001")):
        disk.mkdir(f"quarantine/{name}/wal")
        disk.poke(f"quarantine/{name}/{path}", b"12345")
    damaged, other = (q for q in list_quarantine(disk) if q.path != item.path)
    if damaged.tablet_id != TABLET:
        damaged, other = other, damaged
    assert (damaged.tablet_id, damaged.data_state) == (TABLET, None) and "cannot be read" in damaged.error
    assert (other.tablet_id, other.wal_bytes, other.error) == ("other-9", 5, "")
    assert {q.path for q in list_quarantine(disk, TABLET)} == {item.path, damaged.path}


def test_purge_gives_the_space_back_and_keeps_the_promises() -> None:
    """Goal: row TC-45. Method: purge a tombstone: blocks and quarantine are gone, superblock, term, vote and last
    logged OpId are as before; a second purge does nothing."""
    disk = new_disk()
    tombstone = deleted(disk)
    removed = purge_quarantine(disk, TABLET)
    assert tombstone.quarantine in removed and data_files(disk) == [] == disk.listdir("quarantine")
    assert Superblock.load(disk, TABLET) == tombstone and tombstone.last_logged == OpId(4, 2)
    kept = ConsensusMeta.load(disk, TABLET)
    assert (kept.term, kept.voted_for) == (5, "c" * 32)
    assert purge_quarantine(disk, TABLET) == []


def test_purge_beside_a_superblock_that_cannot_be_read_removes_nothing() -> None:
    """Goal: row TC-46: what is unreadable may name anything. Method: damage another tablet's superblock, live and then
    quarantined: refused, and every file is still there."""
    disk = new_disk()
    deleted(disk)
    files = data_files(disk)
    superblock(tablet_id="other").save(disk)
    good = disk.read("tablet-meta/other")
    disk.poke("tablet-meta/other", b"nonsense")
    with pytest.raises(Corruption):
        purge_quarantine(disk, TABLET)
    disk.poke("tablet-meta/other", good)
    disk.mkdir("quarantine/other-000001")
    disk.poke("quarantine/other-000001/superblock", b"nonsense")
    with pytest.raises(Corruption):
        purge_quarantine(disk, TABLET)
    assert data_files(disk) == files and len(list_quarantine(disk, TABLET)) == 1
