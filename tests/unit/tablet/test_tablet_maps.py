"""A tablet in a process that has really used up its memory maps: nothing of it is damaged, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nyala.replica.fs import MapReserve, map_reserve
from nyala.replica.tablet import Tablet, maintenance
from nyala.replica.tablet import tablet as tablet_module
from nyala.replica.types import ResourcesExhausted, ResourceUse
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import INT_SCHEMA, superblock, write_entry

START = """
import sys
from nyala.replica.fs import RealDisk, memory_maps
from nyala.replica.tablet import Superblock, Tablet
from nyala.replica.types import ResourcesExhausted, limits
from tests.harness.memory_maps import give_back, maps_max, use_up
from tests.unit.tablet.test_tablet_want import four_blocks, put, rows_of

disk = RealDisk(sys.argv[1])
disk.mkdir("tablet-meta")
tablet = four_blocks(disk)
rows = rows_of(tablet)


def opened(**how):
    return Tablet.open(disk, Superblock.load(disk, tablet.tablet_id), verify=False, **how)


WORK = {"open": opened, "flush": tablet.flush, "compact": tablet.compact}


def refused(work):
    before = Superblock.load(disk, tablet.tablet_id)
    try:
        WORK[work]()
    except ResourcesExhausted as error:
        assert Superblock.load(disk, tablet.tablet_id) == before, "nothing changed on the disk"
        return str(error)
    return ""
"""
AT_THE_LIMIT = """
limits.MAPS_SHARE_TO_OPEN_MAX = limits.MAPS_SHARE_TO_FLUSH_MAX = 2.0  # as if other work had used the reserve up
use_up(0)
told = refused(sys.argv[2])
give_back()
assert "vm.max_map_count" in told and "Cannot allocate memory" in told, told
assert rows_of(tablet) == rows, "nothing changed in memory"
assert WORK[sys.argv[2]]() is not None
tablet.flush()
assert rows_of(opened()) == rows_of(tablet) == rows
"""
IN_RESERVE = """
from functools import partial
from nyala.replica.fs import map_reserve
map_reserve.COUNT_EVERY_S = 0.0
WORK["open again"] = partial(opened, new=False)
found = {}
for share in (0.94, 0.96, 0.99):
    use_up(int(maps_max() * (1 - share)))
    if share > 0.98:
        put(tablet, 6, rows=1)
    found[share] = [work for work in WORK if refused(work)]
    assert abs(memory_maps().share - share) < 0.005
    give_back()
assert found == {0.94: [], 0.96: ["open"], 0.99: ["open", "flush", "open again"]}, found
assert tablet.flush() is not None
assert rows_of(opened()) == rows_of(tablet)
"""


def run(script: str, *given: str) -> None:
    command = [sys.executable, "-c", START + script, *given]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.deep
@pytest.mark.parametrize("work", ["open", "flush", "compact"])
def test_tablet_without_a_memory_map_left_waits_and_goes_on(work: str, tmp_path: Path) -> None:
    """IN-30. Goal: maps that are really used up are an exhausted resource, not a damaged block. Method: in a process of
    its own, the kernel's limit is reached before a tablet is opened, flushed or merged: it is refused with the remedy,
    and memory and disk are as before. With maps again, the same object does the same work."""
    run(AT_THE_LIMIT, str(tmp_path), work)


@pytest.mark.deep
def test_process_keeps_some_memory_maps_from_new_blocks(tmp_path: Path) -> None:
    """IN-30, IN-32. Goal: blocks never get a process's last maps, so libraries find some and the process lives. Method:
    in a process of its own, other work really uses 94, 96 or 99 % of the maps: from 95 % on no new tablet is opened,
    from 98 % on none is opened or flushed; merges, which give maps back, go on. With maps again, everything does."""
    run(IN_RESERVE, str(tmp_path))


def test_flush_takes_maps_for_each_block_that_it_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-32. Goal: a flush that makes several blocks leaves the last maps to the process, too. Method: three batches,
    each a block of its own; the kernel counts so many maps that one fewer than these blocks fit: the flush is refused
    before it writes, and one map more is enough."""
    monkeypatch.setattr(map_reserve, "COUNT_EVERY_S", 0.0)
    disk, used = SimDisk(), [98_000 - 5]
    monkeypatch.setattr(maintenance, "RESERVE", MapReserve(lambda: ResourceUse(used[0], 100_000)))
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    tablet._work.flush_bytes_max = 1
    for index in range(1, 4):
        tablet.apply([write_entry(index, INT_SCHEMA, ["k", "r"], [{"op": 1, "offset": index, "k": index, "r": 2}])])
    before = disk.listdir("data")
    with pytest.raises(ResourcesExhausted, match=r"vm\.max_map_count"):
        tablet.flush()
    assert disk.listdir("data") == before
    used[0] -= 1
    flushed = tablet.flush()
    assert flushed is not None and len(tablet.superblock.blocks) == 3
    disk.close()


@pytest.mark.parametrize(("new", "full"), [(True, 95_000), (False, 98_000)])
def test_tablet_is_opened_only_if_its_blocks_leave_the_last_maps(
    new: bool, full: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-32. Goal: the blocks of a tablet that is opened leave the last maps to the process, more of them if a copy
    brought the tablet. Method: a tablet of one block; the kernel counts so many maps that the block's are one too many,
    and one map fewer."""
    monkeypatch.setattr(map_reserve, "COUNT_EVERY_S", 0.0)
    disk, used = SimDisk(), [0]
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    tablet.apply([write_entry(1, INT_SCHEMA, ["k", "r"], [{"op": 1, "offset": 1, "k": 1, "r": 2}])])
    tablet.flush()
    monkeypatch.setattr(tablet_module, "RESERVE", MapReserve(lambda: ResourceUse(used[0], 100_000)))
    used[0] = full - 1
    with pytest.raises(ResourcesExhausted, match=r"vm\.max_map_count"):
        Tablet.open(disk, tablet.superblock, new=new)
    used[0] = full - 2
    assert len(Tablet.open(disk, tablet.superblock, new=new).superblock.blocks) == 1
    disk.close()
