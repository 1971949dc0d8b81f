"""Reads and checks one tablet's files on the disk of a stopped server. It changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nyala.replica.consensus_metadata import CmetaView, path_of, read_cmeta
from nyala.replica.server import ReplayMarker, marker_path
from nyala.replica.tablet import Superblock, superblock_path, verify_file
from nyala.replica.tablet_copy import wal_folder
from nyala.replica.types import ZERO_OPID, Corruption, DataState, Disk, DiskFailure, OpId, Refused
from nyala.replica.wal import LogReport, inspect_log

from .check import Severity


@dataclass(frozen=True, kw_only=True)
class FileFinding:
    """One defect of a file. `path` is relative to the server's directory."""

    severity: Severity
    path: str
    what: str
    tablet_id: str = ""


@dataclass(kw_only=True)
class TabletFiles:
    """The readable files of one tablet; None for one that is missing or cannot be read."""

    tablet_id: str
    superblock: Superblock | None = None
    cmeta: CmetaView | None = None
    log: LogReport | None = None
    findings: list[FileFinding] = field(default_factory=list)
    files_checked: int = 0

    @property
    def last_opid(self) -> OpId | None:
        """Return the last OpId of the log, or the one that a tombstone kept; None if unknown."""
        if self.superblock is None:
            return None
        if self.superblock.data_state is not DataState.READY:
            return self.superblock.last_logged or ZERO_OPID
        return self.superblock.end_of(self.log.last) if self.log is not None else None

    @property
    def block_bytes(self) -> int:
        """Return the bytes of the files that the superblock names, by its own numbers."""
        return sum(n for b in (self.superblock.blocks if self.superblock else ()) for _, n, _ in b.files)

    def error(self, path: str, what: object) -> None:
        """Note a defect that stops this replica, or makes it forget a vote or acknowledged entries."""
        self.findings.append(FileFinding(severity=Severity.ERROR, path=path, what=str(what), tablet_id=self.tablet_id))

    def warn(self, path: str, what: object) -> None:
        """Note a defect that the next start repairs."""
        self.findings.append(
            FileFinding(severity=Severity.WARNING, path=path, what=str(what), tablet_id=self.tablet_id)
        )


def read_tablet(
    disk: Disk, tablet_id: str, *, blocks: bool = True, progress: Callable[[str, int], None] = lambda path, size: None
) -> TabletFiles:
    """Read everything of one tablet that has a superblock; damage becomes a finding, never an exception.

    With `blocks`, every byte of its blocks is read too. `progress(path, bytes)` after each file.
    """
    found = TabletFiles(tablet_id=tablet_id)
    path = superblock_path(tablet_id)
    found.superblock = _guarded(found, path, lambda: Superblock.load(disk, tablet_id))
    progress(path, 0)
    _read_metadata(disk, found)
    folder = wal_folder(tablet_id)
    if disk.exists(folder):
        found.log = _guarded(found, folder, lambda: inspect_log(disk, folder, tablet_id))
        size = found.log.size_bytes if found.log else 0
        found.files_checked += len(found.log.segments) if found.log else 0
        progress(folder, size)
    if found.superblock is None:
        return found
    state = found.superblock.data_state
    if state is DataState.READY:
        _judge_ready(disk, found, found.superblock)
        _tell_replays(disk, found, found.superblock)
        if blocks:
            _read_blocks(disk, found, found.superblock, progress)
    elif state is DataState.COPYING:
        found.warn(path, "a copy was cut off: the next start makes it a tombstone")
    elif disk.exists(folder):
        found.warn(folder, "a deletion was cut off: the next start puts the log into quarantine")
    return found


def _guarded(found: TabletFiles, path: str, read: Callable[[], Any]) -> Any:
    found.files_checked += 1
    try:
        return read()
    except (Corruption, DiskFailure, Refused) as error:
        found.error(path, error)
    except FileNotFoundError as error:
        found.error(path, f"the file is missing: {error.filename or error}")
    return None


def _read_metadata(disk: Disk, found: TabletFiles) -> None:
    path = path_of(found.tablet_id)
    if not disk.exists(path):
        state = found.superblock.data_state if found.superblock is not None else DataState.READY
        if state is DataState.READY or found.last_opid != ZERO_OPID:
            found.error(path, "consensus metadata is missing: term and vote are forgotten")
        elif state is DataState.DELETED:
            found.warn(path, "no consensus metadata: a first copy was cut off before it had any")
        return
    found.cmeta = _guarded(found, path, lambda: read_cmeta(disk.read(path), path))
    if found.cmeta is not None and found.cmeta.tablet_id != found.tablet_id:
        found.error(path, f"it is another tablet's: {found.cmeta.tablet_id}")


def _judge_ready(disk: Disk, found: TabletFiles, superblock: Superblock) -> None:
    """Find defects for which a start would fail or lose data although each file can be read."""
    folder, log, flushed = wal_folder(found.tablet_id), found.log, superblock.flush_opid
    if not disk.exists(folder):
        found.error(folder, "the log's folder is missing")
    if log is None:
        return
    if log.withheld is not None:
        what = "is damaged or missing, and may have been acknowledged: the replica cannot vote before it has it again"
        found.error(folder, f"entry {log.withheld} {what}")
    if log.torn:
        found.warn(folder, f"the next start cuts the end of the log, {log.torn}")
    if log.first_index > flushed.index + 1:
        found.error(folder, f"the log begins at index {log.first_index}, above what is flushed, {flushed}")
    elif log.first_index and log.last.index < flushed.index and log.withheld is None:
        found.error(folder, f"the log ends at {log.last}, below what is flushed, {flushed}")
    elif (term := log.terms.term_at(flushed.index)) is not None and term != flushed.term:
        found.error(folder, f"the log holds {term}.{flushed.index} where {flushed} was flushed")
    if found.cmeta is not None and found.cmeta.term < log.last.term:
        found.error(
            path_of(found.tablet_id),
            f"term {found.cmeta.term} is below the log's, {log.last.term}: it is an older file than the log",
        )


def _tell_replays(disk: Disk, found: TabletFiles, superblock: Superblock) -> None:
    """Warn of intact entries that the build which ran here could not apply."""
    marker = ReplayMarker.load(disk, found.tablet_id)
    if marker is not None and marker.wal_generation == superblock.wal_generation and (told := marker.told()):
        found.error(marker_path(found.tablet_id), told)


def _read_blocks(disk: Disk, found: TabletFiles, superblock: Superblock, progress: Callable[[str, int], None]) -> None:
    for block in superblock.blocks:
        for path, length, crc in block.files:
            _guarded(found, path, lambda path=path, length=length, crc=crc: verify_file(disk, path, length, crc))  # type: ignore[misc]
            progress(path, length)
