"""One attempt to fetch a tablet's files: the part that a copy and a join share.

It opens a session at the source, limits the rate, counts the progress and notices a cancel. It makes the fetched files
durable, blocks under new names.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from nyala.replica.tablet import Superblock, data_trouble
from nyala.replica.types import Code, Corruption, Disk, DiskFailure, Refused
from nyala.replica.types.log_records import about
from nyala.replica.wal import latest_time

from .blocks import rename_blocks
from .checks import time_refusal
from .deletion import wal_folder
from .downloads import DamagedFile, Downloads
from .manifest import WHOLE, CopyFile, CopyManifest, CopySource, CopyWanted, FileKind

_log = logging.getLogger(__name__)


class CopyProgress:
    """The progress of a running copy, for operators. Concurrency: any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.phase = "WAITING"
        self.bytes_done = 0
        self.bytes_total = 0

    @property
    def waits(self) -> bool:
        """Whether the copy has not begun."""
        return self.phase == "WAITING"

    def add(self, length_bytes: int) -> None:
        """Count so many more bytes as fetched."""
        with self._lock:
            self.bytes_done += length_bytes


def copy_cancelled(tablet_id: str) -> Refused:
    """The refusal with which a cancelled copy ends."""
    return Refused(Code.ILLEGAL_STATE, "the copy was cancelled", tablet=tablet_id)


@dataclass(eq=False, kw_only=True)
class CopyAttempt:
    """One attempt of the server `uuid` to fetch files of one tablet from `source` to `disk`.

    `streams`: how many files are fetched at once. `pace(bytes)` may block to hold a rate; `cancelled()` true ends the
    attempt at the next chunk, or at the next step that calls `check_cancelled`. `ahead_us(hybrid time)` is that of the
    server's `HybridClock`; without it any time is accepted, as by an offline tool.
    Concurrency: one thread; `pace` and `cancelled` are called from any stream.
    """

    disk: Disk
    tablet_id: str
    uuid: str
    source: CopySource
    streams: int = 1
    pace: Callable[[int], None] = lambda length_bytes: None
    cancelled: Callable[[], bool] = lambda: False
    ahead_us: Callable[[int], int] = lambda hybrid_time: 0
    progress: CopyProgress = field(default_factory=CopyProgress)
    _block_paths: list[str] = field(default_factory=list, init=False)

    def check_cancelled(self) -> None:
        """Raise Refused if the attempt was cancelled."""
        if self.cancelled():
            raise copy_cancelled(self.tablet_id)

    def check_time(self, what: str, hybrid_time: int) -> None:
        """Raise Refused if a time of the source's `what` is too far ahead of the clock here."""
        refusal = time_refusal(what, hybrid_time, self.ahead_us(hybrid_time))
        if refusal is not None:
            raise refusal

    @contextmanager
    def session(self, wanted: CopyWanted = WHOLE, *, allow_leaderless: bool = False) -> Iterator[CopyManifest]:
        """Open a session at the source; at its end, report to the source whether the body succeeded. Raises as `begin`
        does."""
        self.check_cancelled()
        manifest = self.source.begin(self.tablet_id, self.uuid, allow_leaderless, wanted)
        success, doubted = False, ""
        try:
            yield manifest
            success = True
        except DamagedFile as error:
            doubted = error.file.name if error.file.kind is FileKind.BLOCK else ""
            raise
        finally:
            self._end(manifest.session_id, success, doubted)

    def fetch_log(self, manifest: CopyManifest) -> None:
        """Make the tablet's log folder and fetch the session's segments into it, durably. Refused if they are no log
        that can be read, or if its times are too far ahead."""
        segments = [f for f in manifest.files if f.kind is FileKind.WAL_SEGMENT]
        self._fetch(manifest, segments, wal_folder(self.tablet_id), {f.name: f.name for f in segments})
        try:
            latest = latest_time(self.disk, wal_folder(self.tablet_id), self.tablet_id)
        except Corruption as error:  # the bytes are those that the source recorded
            what = (
                "the source's log cannot be read, so no replica was installed: check the disk of the source's server. "
                "If the log is damaged, the masters replace that replica once its server has noticed"
            )
            raise Refused(Code.CORRUPTION, what, why=error) from error
        self.check_time("log", latest)

    def fetch_blocks(self, manifest: CopyManifest, remote: Superblock, local: Superblock) -> Superblock:
        """Fetch the blocks that the source's superblock names, durably, under numbers that no superblock here names.

        Returns the superblock of the replica that they make together with the log of `local`. The caller saves it;
        until then no superblock names the files. After Refused or Corruption some of them may be here.
        """
        with data_trouble("data"):
            present = self.disk.listdir("data")
        renamed = rename_blocks(remote.blocks, self.tablet_id, local.next_block, present)
        files = [f for f in manifest.files if f.kind is FileKind.BLOCK and f.name in renamed.names]
        missing = sorted(renamed.names.keys() - {f.name for f in files})
        if missing:
            what = "the source does not offer a block its superblock names, so no replica was installed"
            raise Refused(Code.CORRUPTION, what, missing=missing)
        self._block_paths = [f"data/{name}" for name in sorted(renamed.names.values())]
        with data_trouble("data"):
            self._fetch(manifest, files, "data", renamed.names)
        return replace(
            remote,
            last_logged=None,
            last_logged_known=True,
            quarantine="",
            blocks=renamed.blocks,
            next_block=renamed.next_block,
            wal_generation=local.wal_generation,
        )

    def remove_blocks(self) -> None:
        """Remove the files of `fetch_blocks`. The caller knows that no superblock names them.

        A file that cannot be removed stays until the next start removes it; the copy ends as a tombstone all the same.
        """
        for path in self._block_paths:
            try:
                self.disk.remove(path)
            except FileNotFoundError:
                pass
            except DiskFailure as error:
                about(_log, self.tablet_id, self.uuid).warning("a copied block stays for now: %s", error)

    def _fetch(self, manifest: CopyManifest, files: Sequence[CopyFile], folder: str, names: dict[str, str]) -> None:
        """Fetch `files` into `folder`, each under the name that `names` has for its name at the source."""
        downloads = Downloads(
            disk=self.disk,
            source=self.source,
            session_id=manifest.session_id,
            streams=self.streams,
            arrived=self._arrived,
        )
        self.disk.mkdir(folder)
        downloads.run(files, {f.name: f"{folder}/{names[f.name]}" for f in files})
        self.disk.sync_dir(folder)

    def _arrived(self, length_bytes: int) -> None:
        self.check_cancelled()
        self.pace(length_bytes)
        self.progress.add(length_bytes)

    def _end(self, session_id: str, success: bool, doubted: str) -> None:
        try:
            self.source.end(session_id, success, doubted)
        except Refused as error:
            # The session then ends by itself, by its time to live.
            about(_log, self.tablet_id, self.uuid).info("could not end copy session: %s", error)
