"""Reads what stopped servers' directories still hold of tablets. It changes nothing.

An unreadable file is evidence too; it is reported with its path and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from nyala.replica.consensus_metadata import decode_config, path_of, read_cmeta
from nyala.replica.tablet import Superblock, source_positions, verify_file
from nyala.replica.tablet_copy import wal_folder
from nyala.replica.types import ZERO_OPID, Corruption, DataState, Disk, DiskFailure, EntryKind, Refused
from nyala.replica.wal import read_offline

from .evidence import ReplicaEvidence, SourceMark


def of_directory(
    disk: Disk,
    uuid: str,
    place: str,
    tablets: Sequence[str] = (),
    *,
    blocks: bool = True,
    progress: Callable[[str, int], None] = lambda path, size: None,
) -> Iterator[ReplicaEvidence]:
    """Return the evidence of each replica in the directory of a stopped server, of the named tablets or of all. The
    caller holds its lock.

    Every byte of its blocks is read; without `blocks` no plan may use the replica as survivor. `progress(path, bytes)`
    is called before each tablet's log and after each file of its blocks.
    """
    for tablet_id in Superblock.list_tablets(disk):
        if not tablets or tablet_id in tablets:
            progress(wal_folder(tablet_id), 0)
            yield _of_tablet(disk, uuid, place, tablet_id, progress if blocks else None)


def block_bytes(disk: Disk, tablets: Sequence[str]) -> int:
    """Return the bytes of the blocks of these tablets in a directory; a superblock that cannot be read has none."""
    total = 0
    for tablet_id in tablets:
        try:
            blocks = Superblock.load(disk, tablet_id).blocks
        except (Corruption, DiskFailure, Refused, FileNotFoundError):
            continue
        total += sum(length for block in blocks for _, length, _ in block.files)
    return total


def _of_tablet(
    disk: Disk, uuid: str, place: str, tablet_id: str, blocks_read: Callable[[str, int], None] | None
) -> ReplicaEvidence:
    """Return the evidence of one replica. `blocks_read(path, bytes)` is called after each block's file; None: no block
    is read."""
    base = ReplicaEvidence(tablet_id=tablet_id, server_uuid=uuid, place=place)
    try:
        superblock = Superblock.load(disk, tablet_id)
        meta = read_cmeta(disk.read(path_of(tablet_id)), path_of(tablet_id))
    except (Corruption, DiskFailure, Refused, FileNotFoundError) as error:
        return replace(base, data_state=DataState.READY, problem=f"cannot be read: {error}", unreadable=True)
    base = replace(
        base,
        table_id=superblock.table_id,
        table_name=superblock.table_name,
        data_state=superblock.data_state,
        witness=superblock.witness,
        term=meta.term,
        config=meta.config,
        commit_index=max(superblock.flush_opid.index, meta.config.opid.index),
    )
    if superblock.data_state is not DataState.READY:
        return replace(base, last=superblock.last_logged or ZERO_OPID, commit_index=0)
    problem = _block_problem(disk, superblock, blocks_read) if blocks_read else ""
    try:
        return replace(_with_log(disk, base, superblock), problem=problem)
    except (Corruption, DiskFailure) as error:
        problem = f"its log cannot be read: {error}"
        return replace(base, last=superblock.flush_opid, problem=problem, unreadable=True)


def _block_problem(disk: Disk, superblock: Superblock, read: Callable[[str, int], None]) -> str:
    """Return why a server would not open these blocks; empty if all are intact."""
    for block in superblock.blocks:
        for path, length_bytes, crc in block.files:
            try:
                verify_file(disk, path, length_bytes, crc)
            except (Corruption, DiskFailure) as error:
                return f"a block cannot be read: {error}"
            read(path, length_bytes)
    return ""


def _with_log(disk: Disk, base: ReplicaEvidence, superblock: Superblock) -> ReplicaEvidence:
    if not disk.exists(wal_folder(base.tablet_id)):
        raise Corruption("the log's folder is missing", tablet=base.tablet_id)
    replay = read_offline(disk, wal_folder(base.tablet_id), base.tablet_id)
    last = superblock.end_of(replay.last)
    last_time, pending = superblock.flush_time, base.config
    for entry in replay.entries:
        last_time = max(last_time, entry.hybrid_time)
        if entry.kind is EntryKind.CONFIG and pending is not None and entry.opid.index > pending.opid.index:
            pending = decode_config(entry.meta).with_opid(entry.opid)
    known = () if superblock.witness else source_positions(superblock, replay.entries)
    marks = tuple(
        SourceMark(source=s.source, generation=s.generation, position=max(s.last_offset + 1, s.done)) for s in known
    )
    return replace(
        base,
        term=max(base.term, last.term),
        last=last,
        withheld=replay.withheld or ZERO_OPID,
        last_time=last_time,
        pending=None if pending is base.config else pending,
        sources=marks,
    )
