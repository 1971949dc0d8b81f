"""Copies the rows to a witness while it votes and logs. One rewrite of its superblock then names the copied blocks.

Before the rewrite no superblock names the files: a crash leaves the witness as it was, and the next start removes them.
After it the replica has all rows, because its log continues where the blocks end. The log kept every entry above its
base, the source's flush position is not below that base, and the rewrite waits until the log holds that position as
committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from nyala.replica.tablet import Superblock
from nyala.replica.types import Code, DataState, OpId, Refused
from nyala.replica.types.log_records import about

from .attempt import CopyAttempt
from .blocks import parse_superblock
from .manifest import CopyManifest, CopyWanted, FileKind

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class WitnessJoin:
    """One run of JOIN.1 to JOIN.4.

    `witness` is the superblock in force. `await_log(flushed)` returns once the running witness has that OpId committed
    and durable; Refused if it does not get there. `swap(superblock)` stops the witness, makes that superblock durable
    by one atomic rewrite and starts the replica; or raises Refused and leaves the witness running.

    The witness's term, vote and log stay in use.
    """

    attempt: CopyAttempt
    _: KW_ONLY
    witness: Superblock
    await_log: Callable[[OpId], None]
    swap: Callable[[Superblock], None]

    def run(self) -> Superblock:
        """Run the join; returns the superblock of the whole replica. After Refused or Corruption the witness goes on
        unchanged."""
        self.attempt.progress.phase = "JOIN.1"
        with self.attempt.session(CopyWanted(flushed=self.witness.flush_opid)) as manifest:
            try:
                return self._join(manifest)
            except Exception as error:
                about(_log, self.attempt.tablet_id, self.attempt.uuid).warning(
                    "the data could not join in %s: %s",
                    self.attempt.progress.phase, error,
                )  # fmt: skip
                self._forget_files()
                raise

    def _join(self, manifest: CopyManifest) -> Superblock:
        remote, disk = self._accept(manifest), self.attempt.disk
        self.attempt.progress.bytes_total = sum(f.length_bytes for f in manifest.files if f.kind is FileKind.BLOCK)
        self.attempt.progress.phase = "JOIN.2"
        disk.crash_point("join.1")
        whole = self.attempt.fetch_blocks(manifest, remote, self.witness)
        disk.crash_point("join.2")

        self.attempt.progress.phase = "JOIN.3"
        self.await_log(whole.flush_opid)
        disk.crash_point("join.3")

        self.attempt.check_cancelled()
        self.attempt.progress.phase = "JOIN.4"
        self.swap(whole)
        disk.crash_point("join.4")
        return whole

    def _accept(self, manifest: CopyManifest) -> Superblock:
        """The source's superblock, if its rows continue into this witness's log."""
        remote, base = parse_superblock(manifest.superblock, "copy session"), self.witness.flush_opid
        if remote.tablet_id != self.witness.tablet_id or remote.data_state is not DataState.READY or remote.witness:
            raise Refused(Code.ILLEGAL_STATE, "the source has no rows of this tablet", state=remote.data_state.name)
        if remote.flush_opid < base:
            what = "the source's blocks end below the log that is kept here: entries in between would be missing"
            raise Refused(Code.NOT_READY, what, flushed=remote.flush_opid, base=base)
        self.attempt.check_time("rows", remote.flush_time)
        return remote

    def _forget_files(self) -> None:
        """Remove the copied files, unless the rewrite did take place and names them."""
        disk, tablet_id = self.attempt.disk, self.witness.tablet_id
        if Superblock.exists(disk, tablet_id) and Superblock.load(disk, tablet_id).blocks:
            return
        self.attempt.remove_blocks()
