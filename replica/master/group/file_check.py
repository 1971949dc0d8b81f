"""Checks the files of a running master once a minute. Also has the text on what to do if a master cannot start on its
files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator

from nyala.replica.fs import Instance, join_cluster, raise_feature_level, repair_instance
from nyala.replica.types import Corruption, Disk, LaterFormat, Refused, is_transient
from nyala.replica.wal import SegmentInfo, verify_segment

from ..catalog.catalog import CATALOG_ID
from .catalog_group import CatalogGroup

_log = logging.getLogger("nyala.master")

CHECK_EVERY_S = 60.0
"""A file that is damaged, emptied or missing under a running master is noticed within this time."""
READ_BYTES = 1 << 20
"""The bytes of closed log segments that each check reads again: a tenth of a second of a core, and 1.4 GB a day."""

WAY_ON = (
    "While a majority of the masters runs, a copy of their catalog heals this one: `nyala fs wipe DIR`, `nyala fs "
    "format DIR --kind master --uuid UUID`, `nyala master copy-from DIR ADDRESS`, then start it; `nyala master list` "
    "shows the uuid, and the address of the one that leads. If this is the only master, put the file back from a "
    f"backup; if only its log is damaged, move the folder wals/{CATALOG_ID} away: the catalog is then as of its last "
    "flush, and every orderly stop flushes"
)
"""The text on how an operator repairs a master whose files are damaged."""


def damaged(error: Corruption, disk: Disk) -> Corruption:
    """The error of a master that cannot start on its files, with what to do next."""
    if isinstance(error, LaterFormat):
        return error
    return Corruption(f"this master cannot start on its files: {error}. {WAY_ON}", DIR=disk.real_path(""))


class FileChecker:
    """Checks this master's files. It writes small ones again from memory, and reports damage of the log.

    Concurrency: the loop's thread; files are read in threads, the small ones on the catalog's, between flushes.
    """

    def __init__(
        self, disk: Disk, instance: Instance, group: CatalogGroup, check_folders: Callable[[], None] = lambda: None
    ) -> None:
        """`check_folders` raises DiskFailure if one of RAFT_FOLDERS is not the one that the process began with."""
        self._disk = disk
        self._check_folders = check_folders
        self._group = group
        self.instance = instance
        """The identity of this master, as it was written last."""
        self._writing = asyncio.Lock()
        """Held while the identity is written, so that no earlier one is written over it."""
        self.repaired = 0
        """The number of files that were written again."""
        self._reading: tuple[SegmentInfo, Generator[int, None, None]] | None = None
        self._read_to = 0
        """The number of the last segment that was read to its end."""
        self._found: dict[SegmentInfo, Corruption] = {}
        """The damage in segments that still exist."""

    async def check_all(self) -> None:
        """Check every file once, and read a little more of the log."""
        try:
            await asyncio.to_thread(self._check_folders)
            repaired, lost = await self._group.check_files()
            async with self._writing:
                repaired += await asyncio.to_thread(repair_instance, self._disk, self.instance)
            read = await asyncio.to_thread(self._read_on)
        except Refused as error:
            if not is_transient(error):
                raise
            _log.info("P %s files not checked: %s", self.instance.uuid, error)
            return
        self.repaired += len(repaired)
        for what in repaired:
            _log.error(
                "P %s the %s of this master was damaged, missing or an earlier one: written again from memory, "
                "nothing is lost; look at the disk", self.instance.uuid, what,
            )  # fmt: skip
        bad = lost or read
        self._group.trouble = "" if bad is None else _trouble(bad)
        if bad is not None:
            await self._group.flushed()
            _log.error("P %s %s", self.instance.uuid, self._group.trouble)

    async def belong(self, cluster_id: str, level: int) -> None:
        """Write the cluster's id, if it is known, and its feature level into the directory."""
        async with self._writing:
            if cluster_id and cluster_id != self.instance.cluster_id:
                self.instance = await asyncio.to_thread(join_cluster, self._disk, self.instance, cluster_id)
            if level > self.instance.feature_level:
                self.instance = await asyncio.to_thread(raise_feature_level, self._disk, self.instance, level)

    def _read_on(self) -> Corruption | None:
        """Read the next READ_BYTES of closed segments. Returns the damage of a segment that still exists, found now or
        before; None if there is none."""
        left = READ_BYTES
        while left > 0 and (reading := self._reading or self._next()) is not None:
            info, steps = self._reading = reading
            try:
                left -= next(steps)
                continue
            except StopIteration:
                self._found.pop(info, None)
            except Corruption as error:
                self._found[info] = error
            self._reading, self._read_to = None, info.number
        there = set(self._group.log.segments())
        self._found = {info: error for info, error in self._found.items() if info in there}
        return next(iter(self._found.values()), None)

    def _next(self) -> tuple[SegmentInfo, Generator[int, None, None]] | None:
        closed = [info for info in self._group.log.segments() if info.closed and info.number > self._read_to]
        if not closed:
            self._read_to = 0  # the next check begins with the oldest one again
            return None
        return closed[0], verify_segment(self._disk, f"wals/{CATALOG_ID}", CATALOG_ID, closed[0])


def _trouble(bad: Corruption) -> str:
    return f"{bad}. The catalog is in memory, and flushed: this master goes on, but it may not start again. {WAY_ON}"
