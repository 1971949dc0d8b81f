"""Checks that a server's directory still has the files with the server's promises."""

from __future__ import annotations

from nyala.replica.fs import Instance, has_mark, lost_promises
from nyala.replica.tablet import Superblock
from nyala.replica.types import Corruption, DataState, Disk


def check_durable_state(disk: Disk, instance: Instance) -> None:
    """Raise Corruption if this server has lost its promises: its folder of superblocks, metadata or logs is empty.

    An unmounted or a new disk looks like that. A single missing file concerns its own replica only, also the last one
    of a folder, which still has this server's mark then. A creation that was cut off leaves metadata and an empty log,
    and no superblock yet.
    """
    tablets = Superblock.list_tablets(disk)
    ready = [t for t in tablets if _is_ready(disk, t)]
    logs = disk.listdir("wals")
    lost = [folder for folder in ("consensus-meta", "wals") if ready and not disk.listdir(folder)]
    if not tablets and any(disk.listdir(f"wals/{log}") for log in logs):
        lost = ["tablet-meta"]
    lost = [folder for folder in lost if not has_mark(disk, folder, instance)]
    if lost:
        raise lost_promises(instance, lost)


def _is_ready(disk: Disk, tablet_id: str) -> bool:
    try:
        return Superblock.load(disk, tablet_id).data_state is DataState.READY
    except Corruption:
        return False
