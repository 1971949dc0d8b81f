"""A whole server's directory of each format version: what today's server makes of it, and of one from the future.

`python -m tests.formats.test_server_directory` writes the directory if it is missing, and never touches one that is.
"""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest

from nyala.replica.base import Code, Corruption, DataState, OpId, Refused
from nyala.replica.cmeta import ConsensusMeta, path_of
from nyala.replica.copy import delete_replica
from nyala.replica.disk import RealDisk
from nyala.replica.server import INSTANCE, format_directory, need_promises, open_or_format
from nyala.replica.tablet import Superblock, superblock_path
from nyala.replica.tools import check_directory
from nyala.schemas import frame, unframe
from tests.harness.copies import CONFIG, TABLET, TARGET_UUID, RestingReplica, TestClock, new_disk, superblock
from tests.harness.managers import new_manager
from tests.harness.sim_disk import SimDisk

GOLDEN = Path(__file__).parent / "golden" / "server_v1"
TOMBSTONE = "tablet-2"
KEPT = OpId(3, 14)
LAST = OpId(4, 3)
ROWS = {1: "one", 2: "three", 3: "three"}


def write_directory(disk: SimDisk) -> None:
    """A READY replica with a block and a log behind it, that voted; and a tombstone with its quarantine."""
    format_directory(disk, TestClock(), uuid=TARGET_UUID)
    replica = RestingReplica(disk, TARGET_UUID)
    replica.write([1, 2], "one")
    replica.write([2], "two")
    replica.tablet.flush()
    assert replica.write([2, 3], "three", term=4) == LAST
    replica.cmeta.save_hard_state(5, "c" * 32)
    replica.close()
    gone = superblock(tablet_id=TOMBSTONE)
    gone.save(disk)
    ConsensusMeta.create(disk, TOMBSTONE, TARGET_UUID, CONFIG, 3)
    disk.mkdir(f"wals/{TOMBSTONE}")
    delete_replica(disk, gone, KEPT, stop=lambda: None)


def golden() -> SimDisk:
    """The golden directory on a disk of its own."""
    disk = new_disk()
    for path in sorted(GOLDEN.rglob("*")):
        name = str(path.relative_to(GOLDEN))
        if path.is_dir():
            disk.mkdir(name)
        else:
            disk.mkdir(name.rpartition("/")[0] or ".")
            disk.poke(name, path.read_bytes())
    for empty in ("data", "quarantine", "replay", "wals"):
        disk.mkdir(empty)
    return disk


def test_server_starts_on_a_directory_of_version_1() -> None:
    """Goal: what was written once is served for ever. Method: the golden directory is opened as a start opens it: the
    identity, all rows from block and log, term and vote, the tombstone's last logged OpId; `fs check` finds nothing."""
    disk = golden()
    instance = open_or_format(disk, TestClock())
    need_promises(disk, instance)
    assert instance.uuid == TARGET_UUID
    assert not check_directory(disk).all_findings

    async def start() -> None:
        fatal: list[BaseException] = []
        manager = new_manager(disk, fatal.append)
        await manager.start()
        await asyncio.gather(*manager.open_all())
        hosted, tombstone = manager.get(TABLET), manager.get(TOMBSTONE)
        assert (hosted.error, hosted.last_opid, hosted.term) == ("", LAST, 5)
        assert (tombstone.data_state, tombstone.last_opid, tombstone.term) == (DataState.DELETED, KEPT, 3)
        await manager.stop()
        assert not fatal

    asyncio.run(start())
    replica = RestingReplica(disk, TARGET_UUID)
    assert replica.rows() == ROWS and replica.cmeta.voted_for == "c" * 32
    replica.close()
    disk.close()


def _later_version(data: bytes) -> bytes:
    """The frame's version, behind the magic, is one more than any that was written."""
    return data[:4] + struct.pack("<I", struct.unpack_from("<I", data, 4)[0] + 1) + data[8:]


def _unknown_feature(data: bytes) -> bytes:
    return frame("instance", unframe("instance", data) | {"incompatible_features": ["time-travel"]})


@pytest.mark.parametrize("later", [_later_version, _unknown_feature], ids=["version", "feature"])
def test_server_refuses_a_directory_of_a_later_format_with_the_reason(later: object) -> None:
    """Goal: an old build never guesses what a new one wrote, and does not call it damage. Method: the golden
    directory's identity in a later version, and with a feature that nobody knows; no file is changed."""
    disk = golden()
    data = later(disk.read(INSTANCE))  # type: ignore[operator]
    disk.poke(INSTANCE, data)
    with pytest.raises(Refused, match=r"later format.*(version 2|time-travel)") as refused:
        open_or_format(disk, TestClock())
    assert refused.value.code is Code.ILLEGAL_STATE and disk.read(INSTANCE) == data
    assert not check_directory(disk).healthy
    disk.close()


def test_tablet_of_a_later_format_is_refused_with_the_reason_and_the_others_start() -> None:
    """Goal: a tablet that a newer build wrote fails alone. Method: its superblock, then its metadata, in version 2."""
    for path in (superblock_path(TABLET), path_of(TABLET)):
        disk = golden()
        disk.poke(path, _later_version(disk.read(path)))
        with pytest.raises(Corruption, match=rf"{path}.*version 2"):
            ConsensusMeta.load(disk, TABLET)
            Superblock.load(disk, TABLET)
        assert ConsensusMeta.load(disk, TOMBSTONE).term == 3
        disk.close()


def _write_missing() -> None:
    if GOLDEN.exists():
        return
    disk = SimDisk()
    write_directory(disk)
    disk.restart()
    real = RealDisk(GOLDEN)

    def save(folder: str) -> None:
        for name in disk.listdir(folder):
            path = f"{folder}/{name}" if folder else name
            try:
                disk.size(path)
            except FileNotFoundError:
                save(path)
                continue
            real.mkdir(folder or ".")
            real.replace(path, disk.read(path))

    save("")


if __name__ == "__main__":
    _write_missing()
