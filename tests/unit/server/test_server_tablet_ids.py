"""Tablets of any id that is allowed, over restarts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nyala.replica.fs import RealDisk
from nyala.replica.rpc import check_tablet_id
from nyala.replica.server.tablets.manager import TabletManager
from nyala.replica.tablet import Superblock, superblock_path
from nyala.replica.tablet_copy import list_quarantine, purge_quarantine
from nyala.replica.types import DataState, Refused, limits
from tests.harness.copies import close_disks, new_disk
from tests.unit.server.test_server_open import served, two_tablets

PIECES = (".tmp", ".", "-", "_", "-000000", "-000001", ".arrow", "wal", "superblock", "0", "a", "Z")
"""Pieces of names that a server gives its files, and characters of ids."""
IDS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join).filter(lambda text: text[0] != ".")


@pytest.mark.deep
@given(tablet_ids=st.lists(IDS, min_size=2, max_size=4, unique=True))
@example(tablet_ids=["a.tmp", "a", "a.tmp1"])
@example(tablet_ids=["a", "a-000000", "a-000001", "a-000000.arrow"])
@example(tablet_ids=["a" * limits.ID_LENGTH_MAX, "a" * (limits.ID_LENGTH_MAX - 4) + ".tmp"])
@settings(max_examples=25)
def test_tablet_of_any_id_that_is_allowed_is_there_after_a_restart(tablet_ids: list[str]) -> None:
    """IN-82, TC-34. Goal: no id makes a server forget a tablet, or take its files for another one's. Method: tablets
    whose ids look like parts of file names are created and flushed; after restarts each runs with its rows, also when
    the first one was deleted and its quarantine purged."""
    disk, first = new_disk(), tablet_ids[0]
    fatal: list[BaseException] = []
    for tablet_id in tablet_ids:
        check_tablet_id(tablet_id)

    async def all_run(manager: TabletManager, deleted: str = "") -> None:
        assert sorted(manager.tablets) == sorted(tablet_ids) == Superblock.list_tablets(disk)
        for tablet_id, hosted in manager.tablets.items():
            assert hosted.running is (tablet_id != deleted), hosted.error
            assert hosted.tablet is None or hosted.tablet.checksum().rows == 2

    async def delete(manager: TabletManager) -> None:
        await all_run(manager)
        await manager.delete(first, None, "for a test")

    two_tablets(disk, tablet_ids)
    served(disk, all_run, fatal)
    served(disk, delete, fatal)
    served(disk, partial(all_run, deleted=first), fatal)
    (kept,) = list_quarantine(disk)
    assert (kept.tablet_id, kept.data_state) == (first, DataState.READY) and kept.block_bytes
    assert purge_quarantine(disk, first).bytes_freed == kept.wal_bytes + kept.block_bytes
    served(disk, partial(all_run, deleted=first), fatal)
    assert fatal == []
    close_disks()


@pytest.mark.parametrize("left", [".a.tmp", ".a"])
def test_name_of_a_file_on_its_way_is_no_id_and_no_tablet(tmp_path: Path, left: str) -> None:
    """TC-34. Goal: a file that a crash left half-written is told from a tablet's by its name alone. Method: names with
    a dot in front are no ids, and are not listed; a name with `.tmp` at its end is."""
    disk = RealDisk(tmp_path)
    disk.mkdir("tablet-meta")
    for name in (left, "a.tmp"):
        (tmp_path / superblock_path(name)).write_bytes(b"x")
    assert Superblock.list_tablets(disk) == ["a.tmp"]
    check_tablet_id("a.tmp")
    with pytest.raises(Refused):
        check_tablet_id(left)
