"""The data of a witness joins its log: blocks come while it votes and logs; one rewrite of the superblock names them.

Until then nothing here names the files, so a death leaves the witness as it was, and the next start sweeps them. After
it the replica is whole: its own log continues what the blocks hold, because it kept every entry behind its base, the
source's flush position is not below that base, and the rewrite waits until the log holds that position as committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from nyala.replica.base import Code, DataState, Disk, OpId, Refused
from nyala.replica.tablet import Superblock, data_trouble

from .blocks import parse_superblock, rename_blocks
from .downloads import Downloads
from .follower import CopyProgress, copy_cancelled
from .manifest import CopyManifest, CopySource, CopyWanted, FileKind

_log = logging.getLogger(__name__)


class WitnessJoin:
    """One run of JOIN.1 to JOIN.4.

    `witness` is the superblock in force. `await_log(flushed)` returns once the running witness holds that OpId as
    committed and durable; Refused if it does not come. `swap(superblock)` stops the witness, makes that superblock
    durable by one atomic rewrite and starts the replica; or raises Refused and leaves the witness running.
    `pace`, `cancelled` as for `FollowerCopy`.

    Nothing that the witness promised is touched: term, vote and log stay where they are and go on.
    """

    def __init__(
        self,
        *,
        disk: Disk,
        uuid: str,
        witness: Superblock,
        source: CopySource,
        await_log: Callable[[OpId], None],
        swap: Callable[[Superblock], None],
        streams: int = 1,
        pace: Callable[[int], None] = lambda length_bytes: None,
        cancelled: Callable[[], bool] = lambda: False,
        progress: CopyProgress | None = None,
    ) -> None:
        self._disk = disk
        self._uuid = uuid
        self._witness = witness
        self._source = source
        self._await_log = await_log
        self._swap = swap
        self._streams = streams
        self._pace = pace
        self._cancelled = cancelled
        self.progress = progress or CopyProgress()
        self._written: list[str] = []

    def run(self) -> Superblock:
        """The superblock of the whole replica. Refused or Corruption if it failed; the witness goes on as it was."""
        self.progress.phase = "JOIN.1"
        self._check_cancelled()
        wanted = CopyWanted(flushed=self._witness.flush_opid)
        manifest = self._source.begin(self._witness.tablet_id, self._uuid, False, wanted)
        success = False
        try:
            remote = self._accept(manifest)
            self.progress.bytes_total = sum(f.length_bytes for f in manifest.files if f.kind is FileKind.BLOCK)
            whole = self._bring(manifest, remote)
            self.progress.phase = "JOIN.3"
            self._await_log(whole.flush_opid)
            self._disk.crash_point("join.3")
            self._check_cancelled()
            self.progress.phase = "JOIN.4"
            self._swap(whole)
            self._disk.crash_point("join.4")
            success = True
            return whole
        except Exception as error:
            _log.warning(
                "T %s P %s the data could not join in %s: %s",
                self._witness.tablet_id, self._uuid, self.progress.phase, error,
            )  # fmt: skip
            self._forget_files()
            raise
        finally:
            self._end(manifest.session_id, success)

    def _accept(self, manifest: CopyManifest) -> Superblock:
        """The source's superblock, if its rows continue into this witness's log."""
        remote, base = parse_superblock(manifest.superblock, "copy session"), self._witness.flush_opid
        if remote.tablet_id != self._witness.tablet_id or remote.data_state is not DataState.READY or remote.witness:
            raise Refused(Code.ILLEGAL_STATE, "the source has no rows of this tablet", state=remote.data_state.name)
        if remote.flush_opid < base:
            what = "the source's blocks end below the log that is kept here: entries in between would be missing"
            raise Refused(Code.NOT_READY, what, flushed=remote.flush_opid, base=base)
        return remote

    def _bring(self, manifest: CopyManifest, remote: Superblock) -> Superblock:
        self.progress.phase = "JOIN.2"
        disk, witness = self._disk, self._witness
        self._disk.crash_point("join.1")
        renamed = rename_blocks(remote.blocks, witness.tablet_id, witness.next_block, disk.listdir("data"))
        files = [f for f in manifest.files if f.kind is FileKind.BLOCK and f.name in renamed.names]
        missing = sorted(renamed.names.keys() - {f.name for f in files})
        if missing:
            raise Refused(Code.CORRUPTION, "the source does not offer a block its superblock names", missing=missing)
        targets = {f.name: f"data/{renamed.names[f.name]}" for f in files}
        self._written = sorted(targets.values())
        downloads = Downloads(
            disk=disk,
            source=self._source,
            session_id=manifest.session_id,
            streams=self._streams,
            arrived=self._arrived,
        )
        with data_trouble("data"):
            disk.mkdir("data")
            downloads.run(files, targets)
            disk.sync_dir("data")
        disk.crash_point("join.2")
        return replace(
            remote,
            last_logged=None,
            quarantine="",
            blocks=renamed.blocks,
            next_block=renamed.next_block,
            wal_generation=witness.wal_generation,
        )

    def _arrived(self, length_bytes: int) -> None:
        self._check_cancelled()
        self._pace(length_bytes)
        self.progress.add(length_bytes)

    def _check_cancelled(self) -> None:
        if self._cancelled():
            raise copy_cancelled(self._witness.tablet_id)

    def _forget_files(self) -> None:
        """What was brought is named by nobody, unless the rewrite was done and only its end is not known."""
        tablet_id = self._witness.tablet_id
        if Superblock.exists(self._disk, tablet_id) and Superblock.load(self._disk, tablet_id).blocks:
            return
        for path in self._written:
            if self._disk.exists(path):
                self._disk.remove(path)

    def _end(self, session_id: str, success: bool) -> None:
        try:
            self._source.end(session_id, success)
        except Refused as error:
            # The session ends by itself when its time to live is over.
            _log.info("T %s P %s could not end copy session: %s", self._witness.tablet_id, self._uuid, error)
