"""Deletes a replica in six steps. The fourth is the commit point; the steps after it only complete the deletion.

A deleted replica is a tombstone: term, vote and last logged OpId stay for ever, so that it can neither forget a vote
nor be revived by a stale leader. Its data goes to a quarantine [kudu raft-tablet-copy, "Tablet deletion"].
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from nyala.replica.consensus_metadata import ConsensusMeta, path_of
from nyala.replica.tablet import Superblock
from nyala.replica.types import ZERO_OPID, DataState, Disk, OpId, Refused, check
from nyala.replica.types.log_records import about

_log = logging.getLogger(__name__)

QUARANTINE = "quarantine"


def wal_folder(tablet_id: str) -> str:
    """Where a tablet's WAL segments are."""
    return f"wals/{tablet_id}"


def fresh_quarantine(disk: Disk, tablet_id: str) -> str:
    """A quarantine path of this tablet that is not taken. Numbers rise. After a purge they begin again, so a path may
    have named another quarantine before."""
    prefix = f"{tablet_id}-"
    numbers = [
        int(name[len(prefix) :])
        for name in disk.listdir(QUARANTINE)
        if name.startswith(prefix) and name[len(prefix) :].isdigit()
    ]
    return f"{QUARANTINE}/{prefix}{max(numbers, default=0) + 1:06d}"


class LastLogged(NamedTuple):
    """The end of the log that a tombstone keeps. If it is not `known`, the log or its end could not be read, and `opid`
    is a lower bound of what the replica acknowledged."""

    opid: OpId
    known: bool = True


def delete_replica(
    disk: Disk,
    superblock: Superblock,
    last_opid: OpId,
    stop: Callable[[], None],
    *,
    known: bool = True,
    committed: Callable[[Superblock], None] = lambda tombstone: None,
) -> Superblock:
    """Turn a READY or COPYING replica into a tombstone; returns the tombstone's superblock.

    `last_opid` is the last entry of the stopped replica's log. If it is not `known`, it is a lower bound, and the
    tombstone does not vote. For a COPYING replica, pass the OpId that its superblock kept, never the end of its partial
    log. `committed` gets the tombstone once it is saved, also if a later step fails. A tombstone is returned unchanged.
    Crash points `delete.1` to `delete.6` follow the steps of their numbers. After DiskFailure and NO_SPACE, a second
    call goes on.
    """
    if superblock.data_state is DataState.DELETED:
        stop()
        return redo_deletion(disk, superblock)
    tablet_id = superblock.tablet_id
    if superblock.data_state is DataState.COPYING:
        kept = superblock.last_logged or ZERO_OPID
        check(last_opid == kept, "an unfinished copy keeps its last logged OpId", kept=kept, offered=last_opid)
    stop()
    disk.crash_point("delete.1")
    quarantine = fresh_quarantine(disk, tablet_id)
    try:
        disk.mkdir(quarantine)
        disk.crash_point("delete.2")
        disk.replace(f"{quarantine}/superblock", superblock.encode())
        disk.crash_point("delete.3")
        tombstone = as_tombstone(superblock, last_opid, quarantine, known=known)
        tombstone.save(disk, over=superblock)
    except Refused:
        disk.remove_tree(quarantine)  # it was not committed; after a crash, `drop_undone_deletions` does this
        raise
    committed(tombstone)
    disk.crash_point("delete.4")
    about(_log, tablet_id).info("deleted: last logged OpId %s, data in %s", last_opid, quarantine)
    return redo_deletion(disk, tombstone)


def last_of_unopened(superblock: Superblock, cmeta: ConsensusMeta | None) -> LastLogged:
    """The lower bound that the tombstone of a READY replica with an unreadable log keeps; raises the vote floor.

    The flush and the committed config are lower bounds. The replica has forgotten the later entries that it
    acknowledged. So its tombstone gives no vote until a copy has brought them back, and even then none in its present
    term.
    """
    if cmeta is None:
        return LastLogged(superblock.flush_opid, known=False)
    cmeta.raise_vote_floor(cmeta.term)
    return LastLogged(max(superblock.flush_opid, cmeta.committed_config.opid), known=False)


def as_tombstone(superblock: Superblock, last_opid: OpId, quarantine: str, *, known: bool = True) -> Superblock:
    """The superblock of the tombstone: no blocks (the quarantined superblock names them), no ledger, no state.

    The number of the next block stays, so that a later copy never reuses the name of a quarantined block.
    """
    empty = Superblock(tablet_id=superblock.tablet_id, table_id=superblock.table_id, data_state=DataState.DELETED)
    return replace(
        superblock,
        data_state=DataState.DELETED,
        last_logged=last_opid,
        last_logged_known=known and superblock.last_logged_known,
        quarantine=quarantine,
        flush_opid=ZERO_OPID,
        flush_time=0,
        blocks=empty.blocks,
        ledger=empty.ledger,
        state=empty.state,
        witness=False,
    )


def redo_deletion(disk: Disk, tombstone: Superblock) -> Superblock:
    """Steps 5 and 6 of a deletion that is committed; does nothing where they are done. Returns the superblock."""
    check(tombstone.data_state is DataState.DELETED, "only a committed deletion is rolled forward")
    tablet_id = tombstone.tablet_id
    if not disk.exists(wal_folder(tablet_id)):
        return tombstone
    quarantine = tombstone.quarantine
    if not quarantine or disk.exists(f"{quarantine}/wal"):
        # An earlier deletion uses the recorded place: never mix two logs.
        quarantine = fresh_quarantine(disk, tablet_id)
        moved = replace(tombstone, quarantine=quarantine)
        moved.save(disk, over=tombstone)
        tombstone = moved
    disk.mkdir(quarantine)
    if disk.exists(path_of(tablet_id)):
        disk.replace(f"{quarantine}/cmeta", disk.read(path_of(tablet_id)))
    disk.crash_point("delete.5")
    disk.rename(wal_folder(tablet_id), f"{quarantine}/wal")
    disk.crash_point("delete.6")
    return tombstone
