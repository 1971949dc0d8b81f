"""Superblocks and blocks with any byte changed: Corruption that names the file, never other data."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from nyala.replica.tablet import Superblock, Tablet, superblock_path, verify_file
from nyala.replica.tablet_copy import parse_superblock
from nyala.replica.types import Corruption
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import INT_SCHEMA, superblock, write_entry

MASKS = (0x01, 0x80)


@pytest.fixture(scope="module")
def flushed() -> tuple[SimDisk, Superblock]:
    """A tablet with one small block: an Arrow file and its sidecar."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    tablet.apply([write_entry(1, INT_SCHEMA, ["k", "r"], [{"op": 1, "offset": k, "k": k, "r": 7} for k in range(3)])])
    tablet.flush()
    tablet.close()
    return disk, Superblock.load(disk, tablet.tablet_id)


def test_superblock_with_any_byte_flipped_or_cut_is_corruption_that_names_file_and_place(
    flushed: tuple[SimDisk, Superblock],
) -> None:
    """Goal: a root record is read as it was written or not at all. Method: every byte with two masks, every length,
    by the replica's reader and by that of tools and copies; the file is left as it is."""
    disk, record = flushed
    path = superblock_path(record.tablet_id)
    whole = disk.read(path)
    damaged = [whole[:at] + bytes([whole[at] ^ m]) + whole[at + 1 :] for at in range(len(whole)) for m in MASKS]
    damaged += [whole[:length] for length in range(len(whole))]
    for data in damaged:
        disk.poke(path, data)
        with pytest.raises(Corruption, match=rf"{re.escape(path)}.*byte"):
            Superblock.load(disk, record.tablet_id)
        with pytest.raises(Corruption, match=r"here.*byte"):
            parse_superblock(data, "here")
        assert disk.read(path) == data
    disk.poke(path, whole)
    assert Superblock.load(disk, record.tablet_id) == record


def test_block_file_with_any_byte_flipped_or_cut_is_corruption_that_names_file_and_place(
    flushed: tuple[SimDisk, Superblock],
) -> None:
    """TC-51. Goal: rows are what was flushed, or the replica fails. Method: every byte of both files with two masks,
    every length, against what the superblock recorded."""
    disk, record = flushed
    (block,) = record.blocks
    for path, length, crc in block.files:
        whole = disk.read(path)
        assert len(whole) == length
        verify_file(disk, path, length, crc)
        for at in range(length):
            for mask in MASKS:
                disk.corrupt(path, at, mask)
                with pytest.raises(Corruption, match=rf"{re.escape(path)}.*bytes=0 to {length}"):
                    verify_file(disk, path, length, crc)
                disk.corrupt(path, at, mask)
        for cut in range(0, length, 7):
            disk.poke(path, whole[:cut])
            with pytest.raises(Corruption, match=rf"{re.escape(path)}.*bytes={cut}"):
                verify_file(disk, path, length, crc)
        disk.poke(path, whole)
    verify_file(disk, *block.files[0])


def test_superblock_that_names_a_sidecar_twice_is_corruption() -> None:
    """TC-51. Goal: files of a source that is not what it says fail the replica, and not the server. Method: a block
    whose sidecar ends rows of an older one is named twice, with right checksums: the rows would end twice."""
    disk = SimDisk()
    disk.mkdir("tablet-meta")
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    names = ["k", "v", "s", "r"]
    for index in (1, 2):
        rows = [{"op": 2, "offset": 10 * index + k, "k": k, "v": k, "s": "a", "r": index} for k in range(5)]
        tablet.apply([write_entry(index, INT_SCHEMA, names, rows)])
        tablet.flush()
    tablet.close()
    found = Superblock.load(disk, superblock(INT_SCHEMA).tablet_id)
    twice = replace(found, blocks=(*found.blocks, found.blocks[-1]))
    with pytest.raises(Corruption, match="ends rows that have ended"):
        Tablet.open(disk, twice)
    Tablet.open(disk, found).close()
    disk.close()
