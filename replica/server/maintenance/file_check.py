"""Checks the files of a running server once a minute. It writes small files again from memory, and fails a replica that
lost a block or a log segment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

from nyala.replica.consensus_metadata import path_of
from nyala.replica.fs import FileLength, lost_file
from nyala.replica.tablet import superblock_path
from nyala.replica.types import DataState, Disk, Refused, is_transient
from nyala.replica.types.log_records import about

from ..tablets.hosted import HostedTablet
from ..tablets.manager import TabletManager

_log = logging.getLogger("nyala.server")

CHECK_EVERY_S = 60.0
"""A file that is damaged, emptied, cut or missing under a running server is noticed within this time."""


class FileChecker:
    """Checks files, and writes small ones again. It skips a tablet that is in transition.

    A folder is never made again, because the next start must notice that it is lost (`startup/durable_state.py`).
    Concurrency: the loop's thread; files are checked in threads.
    """

    def __init__(self, manager: TabletManager, check_folders: Callable[[], None] = lambda: None) -> None:
        """`check_folders` raises DiskFailure if one of RAFT_FOLDERS is not the one that the process began with."""
        self._manager = manager
        self._check_folders = check_folders
        self.repaired = 0
        """The number of files that were written again."""

    async def check_all(self) -> None:
        """Check every tablet's files."""
        known = frozenset(self._manager.tablets)
        for hosted in list(self._manager.tablets.values()):
            settled = hosted.replica is not None or hosted.superblock.data_state is DataState.DELETED
            if not settled or hosted.copy is not None or hosted.transition.locked():
                continue
            async with hosted.transition:
                try:
                    await self._manager.in_thread(partial(self._repair_roots, hosted, known))
                    lost = await self._manager.in_thread(
                        partial(lost_file, self._manager.disk, partial(_written, hosted) if hosted.running else tuple)
                    )
                except Refused as error:
                    if not is_transient(error):
                        raise
                    about(_log, hosted.tablet_id, self._manager.uuid).info("files not checked: %s", error)
                    continue
            if lost is not None:
                self._manager.damaged(hosted, lost)

    def _repair_roots(self, hosted: HostedTablet, known: frozenset[str]) -> None:
        """Write the superblock, the consensus metadata and the record of the log's end again from memory, if their
        files differ from memory."""
        disk = self._manager.disk
        self._check_folders()
        for path in (superblock_path(hosted.tablet_id), path_of(hosted.tablet_id)):
            if not disk.exists(path) and _folder_is_lost(disk, path.partition("/")[0], known):
                about(_log, hosted.tablet_id, self._manager.uuid).error(
                    "%s is missing, and so is every other tablet's file beside it: nothing is written; is "
                    "its disk mounted?",
                    path,
                )  # fmt: skip
                return
        cmeta, log = hosted.cmeta, hosted.log
        repaired = {
            "superblock": hosted.repair_superblock(disk),
            "consensus metadata": cmeta is not None and cmeta.repair(),
            "record of the log's end": log is not None and log.repair_record(),
        }
        for what, again in repaired.items():
            if again:
                self.repaired += 1
                about(_log, hosted.tablet_id, self._manager.uuid).error(
                    "the file of its %s was damaged, missing or an earlier one: written again from memory, "
                    "nothing is lost; look at the disk",
                    what,
                )  # fmt: skip


def _folder_is_lost(disk: Disk, folder: str, known: frozenset[str]) -> bool:
    """Whether the folder is gone, or has no file of any of several tablets, as after its disk was unmounted."""
    return not disk.exists(folder) or (len(known) > 1 and known.isdisjoint(disk.listdir(folder)))


def _written(hosted: HostedTablet) -> Iterator[FileLength]:
    """The blocks, sidecars and log segments of a running replica."""
    if hosted.tablet is not None:
        for block in hosted.tablet.superblock.blocks:
            for path, length_bytes, _ in block.files:
                yield FileLength(path, length_bytes, False)
    if hosted.log is not None:
        yield from hosted.log.files()
