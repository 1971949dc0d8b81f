"""Checks that a server's directory still has the files with the server's Raft state."""

from __future__ import annotations

from nyala.replica.fs import RAFT_FOLDERS, Instance, has_mark, lost_raft_folders
from nyala.replica.tablet import Superblock
from nyala.replica.types import Corruption, DataState, Disk


def check_durable_state(disk: Disk, instance: Instance) -> None:
    """Raise Corruption if this server has lost Raft state: its folder of superblocks, metadata or logs is empty.

    A folder is empty if its disk is not mounted, or is new. A single missing file concerns its own replica only. That
    holds for the last file of a folder, too: the folder then still has this server's mark. A creation that was cut off
    leaves metadata and an empty log, but no superblock. If all three folders are empty and there are blocks, all three
    are lost.
    """
    states = {_state(disk, tablet) for tablet in Superblock.list_tablets(disk)}
    empty = [folder for folder in RAFT_FOLDERS if not disk.listdir(folder)]
    wanted = set[str]()
    if DataState.READY in states:
        wanted |= {"consensus-meta", "wals"}
    if DataState.DELETED in states:
        wanted.add("consensus-meta")  # a tombstone votes
    if any(disk.listdir(f"wals/{log}") for log in disk.listdir("wals")):
        wanted.add("tablet-meta")
    if len(empty) == len(RAFT_FOLDERS) and (disk.listdir("data") or disk.listdir("quarantine")):
        wanted.update(RAFT_FOLDERS)
    lost = [folder for folder in empty if folder in wanted and not has_mark(disk, folder, instance)]
    if lost:
        raise lost_raft_folders(instance, lost)


def _state(disk: Disk, tablet_id: str) -> DataState:
    try:
        return Superblock.load(disk, tablet_id).data_state
    except Corruption:
        return DataState.DOES_NOT_EXIST
