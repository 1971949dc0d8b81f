"""Handles a superblock that is missing or damaged while other files show that the tablet was here.

Then nothing tells which blocks it named, or where its log ended. A tombstone takes its place, and gives no vote until a
copy is complete. The blocks that a backup of the superblock would name stay until then.
"""

from __future__ import annotations

import logging

from nyala.replica.consensus_metadata import FOLDER as CMETA
from nyala.replica.consensus_metadata import ConsensusMeta, path_of
from nyala.replica.tablet import Superblock, data_trouble, superblock_path
from nyala.replica.types import Corruption, DataState, Disk, DiskFailure, Refused
from nyala.replica.types.log_records import about

from .blocks import block_numbers, named_blocks, spared_blocks
from .deletion import fresh_quarantine, last_of_unopened, redo_deletion, wal_folder

_log = logging.getLogger(__name__)


def was_here(disk: Disk, tablet_id: str) -> bool:
    """Whether a tablet without a superblock may have voted or acknowledged here: then its superblock is lost.

    A creation that was cut off leaves metadata of term 0 and an empty log. A replica that voted or acknowledged has a
    term above 0.
    """
    if not disk.exists(path_of(tablet_id)):
        return disk.exists(wal_folder(tablet_id))  # the metadata are made before the log, so they are lost too
    if disk.listdir(wal_folder(tablet_id)):
        return True
    try:
        return ConsensusMeta.load(disk, tablet_id).term > 0
    except Corruption:
        return True


def lost_tablets(disk: Disk) -> list[str]:
    """The ids of the tablets whose superblock is lost, sorted."""
    known = set(Superblock.list_tablets(disk))
    left = {*disk.listdir("wals"), *disk.listdir(CMETA)} - known
    return [tablet_id for tablet_id in sorted(left) if was_here(disk, tablet_id)]


def write_tombstone_for_lost(disk: Disk, tablet_id: str, cmeta: ConsensusMeta | None) -> Superblock:
    """Write a tombstone in the place of a lost superblock; returns its record.

    The log goes to a quarantine, as in a deletion. The blocks stay in `data/` (`spared_blocks`), and no later block
    gets one of their names. Crash points: `delete.4` to `delete.6`, as in a deletion. DiskFailure if the folder of
    superblocks is gone, Corruption if the folder of blocks cannot be read; nothing has changed then.
    """
    last = last_of_unopened(Superblock(tablet_id=tablet_id, table_id=""), cmeta)
    with data_trouble("data"):
        numbers = block_numbers(tablet_id, disk.listdir("data")).values()
    quarantine = fresh_quarantine(disk, tablet_id)
    tombstone = Superblock(
        tablet_id=tablet_id,
        table_id="",
        data_state=DataState.DELETED,
        last_logged=last.opid,
        last_logged_known=False,
        quarantine=quarantine,
        next_block=max(numbers, default=-1) + 1,
    )
    if not tombstone.repair(disk):
        raise DiskFailure("the record of a tablet cannot be written again", path=superblock_path(tablet_id))
    disk.crash_point("delete.4")
    about(_log, tablet_id).warning("its superblock was lost: a tombstone that does not vote, log in %s", quarantine)
    return redo_deletion(disk, tombstone)


def blocks_that_stayed(disk: Disk, tablet_id: str) -> frozenset[str]:
    """The paths of the tablet's blocks that were kept for a lost superblock; none if they cannot be listed now."""
    try:
        return spared_blocks(disk, block_numbers(tablet_id, disk.listdir("data"))) - named_blocks(disk)
    except (Corruption, DiskFailure, Refused):
        return frozenset()
