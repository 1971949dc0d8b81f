"""A tablet in a process that has really used up its memory maps: nothing of it is damaged, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import sys
from nyala.replica.fs import RealDisk
from nyala.replica.tablet import Superblock, Tablet
from nyala.replica.types import ResourcesExhausted
from tests.harness.memory_maps import give_back, use_up
from tests.unit.tablet.test_tablet_want import four_blocks, put, rows_of

disk = RealDisk(sys.argv[1])
disk.mkdir("tablet-meta")
tablet = four_blocks(disk)
rows = rows_of(tablet)
before = Superblock.load(disk, tablet.tablet_id)


def opened():
    return Tablet.open(disk, Superblock.load(disk, tablet.tablet_id), verify=False)


WORK = {"open": opened, "flush": tablet.flush, "compact": tablet.compact}[sys.argv[2]]
use_up(0)
try:
    WORK()
except ResourcesExhausted as error:
    told = error
else:
    told = None
finally:
    give_back()
assert told is not None and "vm.max_map_count" in str(told), told
assert Superblock.load(disk, tablet.tablet_id) == before, "nothing changed on the disk"
assert rows_of(tablet) == rows, "nothing changed in memory"
assert WORK() is not None
tablet.flush()
assert rows_of(opened()) == rows_of(tablet) == rows
"""


@pytest.mark.parametrize("work", ["open", "flush", "compact"])
def test_tablet_without_a_memory_map_left_waits_and_goes_on(work: str, tmp_path: Path) -> None:
    """IN-30. Goal: maps that are really used up are an exhausted resource, not a damaged block. Method: in a process of
    its own, the kernel's limit is reached before a tablet is opened, flushed or merged: it is refused with the remedy,
    and memory and disk are as before. With maps again, the same object does the same work."""
    ended = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path), work], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
