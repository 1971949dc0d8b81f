"""V8, no leak: after a deletion and at the end, nothing is held open, waited for, anchored or left over."""

from __future__ import annotations

from typing import Any

from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import wal_folder
from nyala.replica.tablet_copy.blocks import named_blocks
from nyala.replica.wal.newest import NEWEST_NAME
from tests.harness.sim_disk import SimDisk

LATE_US = 600_000_000
"""The time after which every copy session, and whatever is left of one, has expired."""


def deleted(name: str, disk: SimDisk, tablet_id: str) -> None:
    """Check after a tombstone was made that there is no handle, no log, and no block without a superblock that names
    it."""
    _none(name, "open files", [path for path, count in disk.handles.items() if count > 0])
    _none(name, "files of the log", [path for path in disk.files if path.startswith(f"{wal_folder(tablet_id)}/")])
    block = Superblock.load(disk, tablet_id) if Superblock.exists(disk, tablet_id) else None
    again = f"data/{tablet_id}-{block.next_block:06d}" if block is not None else ""
    _none(name, "orphaned blocks", orphans(disk, again))


def orphans(disk: SimDisk, but: str = "") -> list[str]:
    """Return the files of `data/` that no superblock names, live or quarantined, and that do not begin with `but`."""
    named = named_blocks(disk)
    return [p for p in disk.files if p.startswith("data/") and p not in named and not (but and p.startswith(but))]


def idle(node: Any) -> bool:
    """Return whether no work is under way here and no caller waits, except for reads, which time ends (`at_rest`)."""
    replica = node.replica
    if replica is None or any(not side.over for side in getattr(node, "sides", ())):
        return replica is None
    executor = replica._executor
    waits = executor is not None and (len(executor.writer) or executor.callers.waiting - executor.callers.reads.waiting)
    return not waits and not (replica._log_gc is not None and replica._log_gc.running)


def at_rest(node: Any, tablet_id: str) -> bool:
    """Check a server at the end of a history, all healed, long after the last copy. False if it has no replica to
    check."""
    name, disk, log, replica = node.uuid, node.disk, node.log, node.replica
    if replica is None or log is None:
        return False
    sessions = getattr(node, "sessions", None)
    if sessions is not None:
        sessions.expire()
        _none(name, "copy sessions", sessions.sessions())
        _none(name, "lingering anchors", sessions._lingering)
    retention = log._retention
    _none(name, "anchors", sorted(anchor.index for anchor in retention.anchors))
    _none(name, "held segments", sorted(number for number, count in retention._holds.items() if count > 0))
    executor = replica._executor
    if executor is not None:
        reads = executor.callers.reads
        reads.expire(executor.callers.tick + replica.options.wait_ticks_max + 1)
        _none(name, "callers that nobody answered", ["a read"] * bool(reads.waiting))
        _none(name, "reads of the log under way", sorted(executor.loader.reading))
    listed = {f"{wal_folder(tablet_id)}/{info.name}" for info in log.segments()}
    open_ones = [path for path, count in disk.handles.items() for _ in range(count)]
    ours = [path for path in open_ones if path in listed or path.endswith(".tmp")]
    _none(name, "open files", open_ones if len(open_ones) > len(ours) or len(ours) > 2 else [])
    begun = {max(listed, default=""), *(f"{wal_folder(tablet_id)}/{mark}" for mark in ("withheld", NEWEST_NAME))}
    strays = [p for p in disk.files if p.startswith("wals/") and p not in listed | begun and not p.endswith(".tmp")]
    _none(name, "files of the log that it does not list", [p for p in strays if p not in open_ones])
    if Superblock.exists(disk, tablet_id) and sessions is not None:
        # A flush that found no room wrote a block, and the next one writes it again.
        block = Superblock.load(disk, tablet_id)
        _none(name, "orphaned blocks", orphans(disk, f"data/{tablet_id}-{block.next_block:06d}"))
    return True


def _none(name: str, what: str, left: list[Any]) -> None:
    assert not left, f"V8: {name} still has {what}: {left[:3]}"
