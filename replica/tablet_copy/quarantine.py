"""Lists quarantines and purges them for an operator [kudu raft-tablet-copy, "Tablet deletion"]. Also ends copies and
deletions that were cut off: an unfinished copy becomes a tombstone, and quarantines that only it left are removed.

Quarantines may be removed meanwhile; one that is gone when it is read is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from nyala.replica.rows import never_stop
from nyala.replica.tablet import Superblock, block_names, superblock_path
from nyala.replica.types import ZERO_OPID, Code, Corruption, DataState, Disk, DiskFailure, Refused

from .blocks import DATA, block_numbers, parse_superblock, quarantined_superblocks, spared_below
from .deletion import QUARANTINE, delete_replica, wal_folder


@dataclass(frozen=True, kw_only=True)
class Quarantined:
    """One quarantine. `data_state`: that of its superblock; None if there is no superblock, or it cannot be read."""

    path: str
    tablet_id: str
    table_name: str = ""
    data_state: DataState | None = None
    wal_bytes: int = 0
    block_bytes: int = 0
    """Bytes of the blocks that its superblock names and that exist."""
    error: str = ""


def list_quarantine(disk: Disk, tablet_id: str = "") -> list[Quarantined]:
    """The quarantines of one tablet, or all, sorted by path; `error` says why one cannot be read."""
    return list_some(disk, tablet_id)[0]


def list_some(
    disk: Disk, tablet_id: str = "", *, after: str = "", most: float = math.inf, stop: Callable[[], None] = never_stop
) -> tuple[list[Quarantined], str]:
    """(those of the first `most` quarantines after the path `after` that `list_quarantine` lists, the path of the last
    of them if there are more). `stop` is called before each, and may raise."""
    found: list[Quarantined] = []
    paths = [path for path in sorted(f"{QUARANTINE}/{name}" for name in disk.listdir(QUARANTINE)) if path > after]
    for number, path in enumerate(paths):
        if number >= most:
            return found, paths[number - 1]
        stop()
        item = _look_at(disk, path, _tablet_of(path.removeprefix(f"{QUARANTINE}/")))
        if tablet_id in ("", item.tablet_id) and disk.exists(path):
            found.append(item)
    return found, ""


def _size(disk: Disk, path: str) -> int:
    """Bytes of a file; 0 if it is gone."""
    try:
        return disk.size(path)
    except FileNotFoundError:
        return 0


def _block_size(disk: Disk, path: str) -> int:
    """Bytes of a block; 0 if the data folder cannot be read, because that must not end the server."""
    try:
        return _size(disk, path)
    except DiskFailure:
        return 0


def _spared(disk: Disk, own: Superblock) -> frozenset[str]:
    """The blocks of the tablet of `own` that stay for a lost superblock; none if the data folder cannot be read."""
    try:
        numbers = block_numbers(own.tablet_id, disk.listdir("data"))
    except DiskFailure:
        return frozenset()
    return frozenset(DATA + name for name, number in numbers.items() if number < spared_below(own))


def _wal_size(disk: Disk, path: str) -> int:
    """Bytes of the log in a quarantine."""
    return sum(_size(disk, f"{path}/wal/{segment}") for segment in disk.listdir(f"{path}/wal"))


def _quarantined_superblock(disk: Disk, path: str) -> Superblock | None:
    """The superblock in a quarantine; None if there is none. Corruption if it cannot be read."""
    where = f"{path}/superblock"
    try:
        return parse_superblock(disk.read(where), where)
    except FileNotFoundError:
        return None


def _look_at(disk: Disk, path: str, tablet_id: str) -> Quarantined:
    wal_bytes = _wal_size(disk, path)
    try:
        kept = _quarantined_superblock(disk, path)
    except Corruption as error:
        return Quarantined(path=path, tablet_id=tablet_id, wal_bytes=wal_bytes, error=str(error))
    if kept is None:
        return Quarantined(path=path, tablet_id=tablet_id, wal_bytes=wal_bytes)
    return Quarantined(
        path=path,
        tablet_id=kept.tablet_id,
        table_name=kept.table_name,
        data_state=kept.data_state,
        wal_bytes=wal_bytes,
        block_bytes=sum(_block_size(disk, b) for b in block_names(kept)),
    )


def _tablet_of(name: str) -> str:
    """The tablet id in a quarantine's name, as `fresh_quarantine` makes it."""
    tablet_id, _, number = name.rpartition("-")
    return tablet_id if number.isdigit() else ""


def end_unfinished_copy(disk: Disk, copying: Superblock) -> Superblock:
    """Make a tombstone of an unfinished copy, with the last logged OpId that the COPYING superblock kept; returns its
    superblock.

    The copied log goes to a new quarantine. If the disk is so full that the tombstone finds no room, the log is
    removed, because no acknowledgement rests on it. NO_SPACE if there is still no room.
    """
    tablet_id, last = copying.tablet_id, copying.last_logged or ZERO_OPID
    try:
        tombstone = delete_replica(disk, copying, last, stop=lambda: None)
    except Refused as error:
        if error.code is not Code.NO_SPACE or not disk.exists(wal_folder(tablet_id)):
            raise
        disk.remove_tree(wal_folder(tablet_id))
        tombstone = delete_replica(disk, Superblock.load(disk, tablet_id), last, stop=lambda: None)
    _drop_unfinished_copies(disk, tombstone)
    return tombstone


def _drop_unfinished_copies(disk: Disk, tombstone: Superblock) -> None:
    """Remove the quarantines of earlier unfinished copies of the tablet, except the tombstone's own.

    Each has a part of the source's log, on which no acknowledgement rests, and names no block. Each attempt leaves one,
    so a copy that fails again and again would fill the disk. A quarantine that cannot be read stays, and so does every
    deleted replica.
    """
    for name in disk.listdir(QUARANTINE):
        path = f"{QUARANTINE}/{name}"
        if _tablet_of(name) != tombstone.tablet_id or path == tombstone.quarantine:
            continue
        with suppress(Corruption):
            kept = _quarantined_superblock(disk, path)
            if kept is not None and kept.data_state is DataState.COPYING:
                disk.remove_tree(path)


def drop_undone_deletions(disk: Disk, ready: Superblock) -> None:
    """Remove the quarantines of deletions of this READY replica that did not reach their commit point.

    Such a quarantine names the replica's own blocks, which compaction will remove. It has at most a superblock, of the
    same `wal_generation`: after the commit point only a copy makes the replica READY again, with a later number. A
    quarantine that cannot be read stays, and so does every deleted replica. The removal is durable on return, so that a
    power loss does not bring the quarantine back when its blocks are gone.
    """
    dropped = False
    for name in disk.listdir(QUARANTINE):
        path = f"{QUARANTINE}/{name}"
        if _tablet_of(name) != ready.tablet_id or disk.listdir(path) not in ([], ["superblock"]):
            continue
        with suppress(Corruption):
            kept = _quarantined_superblock(disk, path)
            if kept is None or (kept.data_state, kept.wal_generation) == (DataState.READY, ready.wal_generation):
                disk.remove_tree(path)
                dropped = True
    if dropped:
        disk.sync_dir(QUARANTINE)


class Purged(NamedTuple):
    """The result of a purge: the removed paths, sorted, their bytes, and the number of paths left to another purge."""

    removed: list[str]
    bytes_freed: int
    remaining: int = 0


def no_superblock(tablet_id: str) -> Refused:
    """The refusal of a purge of a tablet without a superblock, because nothing tells which of its files are needed."""
    what = (
        "the tablet has no superblock here, so nothing was removed: a lost superblock may need any of its files. A "
        f"running replica writes it again within a minute; otherwise put {superblock_path(tablet_id)} back from a "
        "backup, or let the tablet be copied to this server, and purge again"
    )
    return Refused(Code.TABLET_NOT_FOUND, what, tablet=tablet_id)


def purge_quarantine(
    disk: Disk, tablet_id: str, *, most: float = math.inf, stop: Callable[[], None] = never_stop
) -> Purged:
    """Remove the quarantines of one tablet, the blocks only they name, and those that a lost superblock may have named.

    The tombstone's superblock and consensus metadata stay: a purge forgets data, never a vote. Removes at most
    `most` blocks and folders, blocks first, so another purge finds the rest. `stop` is called before each superblock
    that is read and before each removal, and may raise. What to remove is known before the first removal. Refused
    TABLET_NOT_FOUND if the tablet, or one that is listed, has no superblock.
    """
    blocks, folders = _to_purge(disk, tablet_id, stop)
    removed: list[str] = []
    freed, remaining = 0, len(blocks) + len(folders)
    for block in blocks:
        if len(removed) >= most:
            break
        stop()
        remaining -= 1
        with suppress(FileNotFoundError):
            size = _block_size(disk, block)
            disk.remove(block)
            removed.append(block)
            freed += size
    for path in folders:
        if len(removed) >= most:
            break
        stop()
        remaining -= 1
        size = _wal_size(disk, path)
        disk.remove_tree(path)
        removed.append(path)
        freed += size
    return Purged(sorted(removed), freed, remaining)


def _to_purge(disk: Disk, tablet_id: str, stop: Callable[[], None]) -> tuple[list[str], list[str]]:
    """The (blocks, folders) that a purge removes, in order."""
    try:
        own = Superblock.load(disk, tablet_id)
    except Refused as error:
        if error.code is not Code.TABLET_NOT_FOUND:
            raise
        raise no_superblock(tablet_id) from error
    names, mine, readable = set(_spared(disk, own)), [], set()
    for path, superblock in quarantined_superblocks(disk, stop):
        readable.add(path)
        if superblock.tablet_id == tablet_id:
            mine.append(path)
            names |= block_names(superblock)
    folders = (f"{QUARANTINE}/{name}" for name in disk.listdir(QUARANTINE) if _tablet_of(name) == tablet_id)
    bare = [path for path in folders if path not in readable]
    names -= block_names(own)
    # One superblock at a time, as a server may have thousands.
    for other in Superblock.list_tablets(disk):
        stop()
        names -= block_names(Superblock.load(disk, other))
    for path, superblock in quarantined_superblocks(disk, stop):
        if path not in mine:
            names -= block_names(superblock)
    return sorted(names), [*sorted(mine), *bare]
