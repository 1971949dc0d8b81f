"""The target's side of a tablet copy: COPY.1 to COPY.5, the last of which commits.

Until the READY superblock is durable the replica is COPYING and keeps its last logged OpId; a copy that fails leaves a
tombstone. All files that the READY superblock names are checked and synced before it is written
[kudu raft-tablet-copy, "Follower Tablet Copy"].
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from nyala.replica.consensus_metadata import ConsensusMeta, path_of, read_cmeta, term_of
from nyala.replica.tablet import Superblock
from nyala.replica.types import ZERO_OPID, Code, DataState, DiskFailure, OpId, Refused, check
from nyala.replica.types.log_records import about

from .attempt import CopyAttempt
from .checks import HealthyReplica, replacement_refusal, source_refusal
from .deletion import fresh_quarantine, wal_folder
from .lost_superblock import blocks_that_stayed, was_here, write_tombstone_for_lost
from .manifest import MAX_OPID, WHOLE, CopyManifest, CopyWanted
from .offer import accept_offer
from .quarantine import end_unfinished_copy

_log = logging.getLogger(__name__)


class TargetCopy:
    """One run of COPY.1 to COPY.5; the caller starts the replica (COPY.6).

    `own_last_opid`, `own_term`: the last acknowledged OpId and the term of this server, as the caller knows them.
    `own_last_known`: whether `own_last_opid` is exact, and not only a lower bound.
    `stop_and_delete(check_source)`: called after the source has been accepted and before this server changes anything.
    It stops the replica if there is one, calls `check_source(last OpId, term)` with the stopped replica's values,
    deletes a READY replica, and returns the superblock in force (None: this server never had the tablet).
    `check_source` raises Refused if the stopped replica has a higher term or OpId than the source. Nothing has changed
    then, and the caller starts the replica again.
    `merge(remote)`: merges the source's consensus metadata into the local one, under the lock that this server's votes
    for the tablet take too. Without it the file is merged directly.
    `log_only`: the replica becomes a witness, which has no rows; see DESIGN.md, "Witnesses".
    `healthy`: the replica here, if it is intact. Then only some sources may replace it (`replacement_refusal`), and
    `source_uuid` is the server that is the source.
    `own_cmeta()`: the consensus metadata, if this server has them in memory; otherwise they are read. They are needed
    if the superblock is lost (`lost_superblock.py`), because the tombstone then does not know its acknowledged OpId.

    A copy that is cancelled before COPY.1 changes nothing. One that is cancelled before COPY.5 leaves a tombstone.
    After COPY.5 it cannot be cancelled.

    Durability: `run` returns only when the READY superblock and all files that it names are durable.
    """

    def __init__(
        self,
        attempt: CopyAttempt,
        *,
        own_last_opid: OpId,
        own_term: int = 0,
        stop_and_delete: Callable[[Callable[[OpId, int], None]], Superblock | None],
        allow_leaderless: bool = False,
        log_only: bool = False,
        healthy: HealthyReplica | None = None,
        source_uuid: str = "",
        own_last_known: bool = True,
        merge: Callable[[bytes], None] | None = None,
        own_cmeta: Callable[[], ConsensusMeta | None] = lambda: None,
    ) -> None:
        self._attempt = attempt
        self._disk = attempt.disk
        self._tablet_id = attempt.tablet_id
        self._uuid = attempt.uuid
        self._progress = attempt.progress
        self._own = own_last_opid, own_term
        self._stop_and_delete = stop_and_delete
        self._allow_leaderless = allow_leaderless
        self._log_only = log_only
        self._healthy, self._source_uuid = healthy, source_uuid
        self._wanted = self._want(own_last_opid if own_last_known else MAX_OPID)
        self._merge = merge
        self._own_cmeta = own_cmeta
        self.in_force: Superblock | None = None
        """The superblock in force, as far as this copy knows: None until `stop_and_delete` has returned one, or COPY.1
        has saved one."""

    def run(self) -> Superblock:
        """Copy, and return the READY superblock. Refused or Corruption if the copy failed; then a tombstone is left."""
        self._progress.phase = "BEGIN"
        disk, tablet_id = self._disk, self._tablet_id
        lost = not Superblock.exists(disk, tablet_id) and was_here(disk, tablet_id)
        cmeta = None
        if lost:
            cmeta = self._own_cmeta() or ConsensusMeta.load_if_present(disk, tablet_id, or_lost=True)
            if cmeta is not None:
                last, term = self._own
                self._own = max(last, cmeta.committed_config.opid), max(term, cmeta.term)
            self._wanted = self._want(MAX_OPID)
        with self._attempt.session(self._wanted, allow_leaderless=self._allow_leaderless) as manifest:
            remote = self._accept(manifest)
            self._progress.bytes_total = manifest.size_bytes
            self._attempt.check_cancelled()
            local = self._stop_and_delete(lambda last, term: self._check_source(manifest, last, term))
            if local is None and lost:
                local = write_tombstone_for_lost(disk, tablet_id, cmeta)
            self.in_force = local
            if local is not None:
                self._check_base(manifest, remote, local)
            try:
                copying = self._mark_copying(remote, local)
                return self._copy(manifest, remote, copying, took_part=local is not None)
            except Exception as error:
                self._back_to_deleted(error)
                raise

    def _want(self, acknowledged: OpId) -> CopyWanted:
        return CopyWanted(log_only=True, acknowledged=acknowledged) if self._log_only else WHOLE

    def _accept(self, manifest: CopyManifest) -> Superblock:
        """The source's superblock; Refused if this server must not copy from it. Changes nothing."""
        remote = accept_offer(manifest, self._tablet_id, self._own[1])
        if remote.data_state is not DataState.READY:
            raise Refused(Code.ILLEGAL_STATE, "the source's replica is not READY", state=remote.data_state.name)
        if remote.witness and not self._wanted.log_only:
            raise Refused(Code.ILLEGAL_STATE, "the source offers a log without rows", tablet=self._tablet_id)
        self._check_source(manifest, *self._own)
        if self._healthy is not None:
            offered, begins = read_cmeta(manifest.cmeta, path_of(self._tablet_id)).config, manifest.first_retained_index
            found = replacement_refusal(self._healthy, self._source_uuid, offered, remote.flush_opid, begins)
            if found is not None:
                raise found
        self._attempt.check_time("rows", remote.flush_time)
        return remote

    def _check_source(self, manifest: CopyManifest, last_opid: OpId, term: int) -> None:
        """Refused unless the source certainly has every entry that this server has acknowledged."""
        refusal = source_refusal(
            source_last_opid=manifest.last_opid,
            source_term=term_of(self._tablet_id, manifest.cmeta),
            source_is_leader=manifest.is_leader,
            own_last_opid=last_opid,
            own_term=term,
            allow_leaderless=self._allow_leaderless,
        )
        if refusal is not None:
            raise refusal

    def _check_base(self, manifest: CopyManifest, remote: Superblock, local: Superblock) -> None:
        """Raise Refused if the source sent no log, and this server does not know its last acknowledged OpId after all.

        The next attempt asks for the log.
        """
        if (
            remote.witness
            and not manifest.files
            and not local.last_logged_known
            and self._wanted.acknowledged != MAX_OPID
        ):
            what = "the last acknowledged OpId here is unknown: the next attempt copies the source's log, too"
            raise Refused(Code.ILLEGAL_STATE, what, detail="OPID", tablet=self._tablet_id)

    def _mark_copying(self, remote: Superblock, local: Superblock | None) -> Superblock:
        """COPY.1: write the COPYING superblock without a quarantine path and with the last logged OpId."""
        self._progress.phase = "COPY.1"
        disk, tablet_id = self._disk, self._tablet_id
        check(local is None or local.data_state is DataState.DELETED, "a copy starts over a tombstone or over nothing")
        copying = replace(
            remote,
            data_state=DataState.COPYING,
            last_logged=(local.last_logged if local else None) or ZERO_OPID,
            last_logged_known=local is None or local.last_logged_known,
            quarantine="",
            flush_opid=ZERO_OPID,
            flush_time=0,
            blocks=(),
            ledger=Superblock(tablet_id=tablet_id, table_id=remote.table_id, data_state=DataState.COPYING).ledger,
            next_block=local.next_block if local else 0,
            wal_generation=(local.wal_generation if local else 0) + 1,
            state=b"",
        )
        copying.save(disk, over=local)
        self.in_force = copying
        disk.crash_point("copy.1")
        if disk.exists(wal_folder(tablet_id)):
            # No superblock named this log; it may hold acknowledged entries, so it is moved aside and not overwritten.
            quarantine = fresh_quarantine(disk, tablet_id)
            disk.mkdir(quarantine)
            disk.rename(wal_folder(tablet_id), f"{quarantine}/wal")
        return copying

    def _copy(self, manifest: CopyManifest, remote: Superblock, copying: Superblock, *, took_part: bool) -> Superblock:
        disk = self._disk
        self._progress.phase = "COPY.2"
        if self._merge is not None:
            self._merge(manifest.cmeta)
        else:
            ConsensusMeta.adopt(disk, self._tablet_id, self._uuid, manifest.cmeta, lost=took_part)
        disk.crash_point("copy.2")

        self._progress.phase = "COPY.3"
        self._attempt.fetch_log(manifest)
        disk.crash_point("copy.3")

        self._progress.phase = "COPY.4"
        ready = self._attempt.fetch_blocks(manifest, remote, copying)
        disk.crash_point("copy.4")

        self._attempt.check_cancelled()
        self._progress.phase = "COPY.5"
        stayed = frozenset[str]() if copying.last_logged_known else blocks_that_stayed(disk, self._tablet_id)
        ready.save(disk, over=copying)
        self.in_force = ready
        disk.crash_point("copy.5")
        for path in sorted(stayed):
            with suppress(FileNotFoundError, DiskFailure, Refused):  # the next start removes it
                disk.remove(path)
        return ready

    def _back_to_deleted(self, error: Exception) -> None:
        """Turn a failed copy into a tombstone with the last logged OpId, and delete its blocks, which no superblock
        names.

        The blocks are deleted first: if they have filled the disk, the tombstone cannot be written before.
        """
        about(_log, self._tablet_id, self._uuid).warning("copy failed in %s: %s", self._progress.phase, error)
        if self.in_force is None or self.in_force.data_state is not DataState.COPYING:
            return
        self._attempt.remove_blocks()
        self.in_force = end_unfinished_copy(self._disk, self.in_force)
