"""Brings each superblock that a start finds to a final state [kudu raft-tablet-copy, "Tablet startup"]."""

from __future__ import annotations

import logging

from nyala.replica.tablet import Superblock
from nyala.replica.types import DataState, Disk
from nyala.replica.types.log_records import about

from .deletion import redo_deletion
from .quarantine import drop_undone_deletions, end_unfinished_copy

_log = logging.getLogger(__name__)


def settle_at_startup(disk: Disk, superblock: Superblock) -> Superblock:
    """Bring one tablet's files to a state from which the server can go on; returns the superblock in force.

    DELETED: finish the deletion if its log is still in place. COPYING: back to DELETED. The last logged OpId is the one
    that the superblock kept (0.0 if the tablet was never here), whatever the partial log contains; that log goes to a
    new quarantine. READY: remove the quarantine of a deletion that did not reach its commit point. Idempotent: after a
    crash in here, the next start does the same. The superblock is durable on return, even if the former process did not
    sync it, because log GC relies on it.
    """
    disk.sync_dir(superblock.path.rpartition("/")[0])
    if superblock.data_state is DataState.DELETED:
        return redo_deletion(disk, superblock)
    if superblock.data_state is DataState.COPYING:
        about(_log, superblock.tablet_id).warning("a copy was cut off: back to DELETED")
        return end_unfinished_copy(disk, superblock)
    drop_undone_deletions(disk, superblock)
    return superblock
