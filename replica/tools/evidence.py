"""What is left of tablets whose majority may be lost: looked up in stopped servers' directories and at running servers.

Reading only. Whatever cannot be read is evidence too: it says where, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from nyala.replica.client import Client
from nyala.replica.consensus_metadata import decode_config, path_of, read_cmeta
from nyala.replica.rows import SourceKey
from nyala.replica.rpc import config_from_pb, opid_from_pb, pb
from nyala.replica.tablet import Superblock, source_positions, verify_file
from nyala.replica.tablet_copy import wal_folder
from nyala.replica.types import (
    ZERO_OPID,
    Corruption,
    DataState,
    Disk,
    DiskFailure,
    EntryKind,
    OpId,
    RaftConfig,
    Refused,
    read_number,
)
from nyala.replica.wal import read_offline


@dataclass(frozen=True, kw_only=True)
class SourceMark:
    """Of one source: every offset below `position` that belongs to the tablet is in this replica."""

    source: SourceKey
    generation: int
    position: int


@dataclass(frozen=True, kw_only=True)
class ReplicaEvidence:
    """One replica, or what is left of it. Hybrid times; `last` of a tombstone is the OpId that it kept."""

    tablet_id: str
    table_id: str = ""
    table_name: str = ""
    server_uuid: str
    place: str
    """The directory, or where the running server says it is."""
    running: bool = False
    data_state: DataState = DataState.DOES_NOT_EXIST
    term: int = 0
    last: OpId = ZERO_OPID
    withheld: OpId = ZERO_OPID
    """Highest OpId of a damaged end, which may have been acknowledged and is gone."""
    commit_index: int = 0
    """Known to be committed at least; a stopped server does not keep more."""
    last_time: int = 0
    config: RaftConfig | None = None
    """The committed one."""
    pending: RaftConfig | None = None
    """A later one in the log, committed or not."""
    sources: tuple[SourceMark, ...] = ()
    problem: str = ""
    """Why this replica cannot be built upon."""
    witness: bool = False
    """Its disk has a log and no rows."""
    leads: bool = False
    """It runs, and says that it leads."""
    unreadable: bool = False
    """Its superblock, metadata or log cannot be read: what it promised is not known, and no copy goes over it."""

    @property
    def usable(self) -> bool:
        """Whether a group could go on from it."""
        return self.data_state is DataState.READY and not self.problem and self.config is not None

    @property
    def configs(self) -> tuple[RaftConfig, ...]:
        """Every config that it knows."""
        return tuple(c for c in (self.config, self.pending) if c is not None)

    @property
    def highest(self) -> OpId:
        """The highest OpId that it has, or knows that it had."""
        return max(self.last, self.withheld)


def of_directory(
    disk: Disk,
    uuid: str,
    place: str,
    tablets: Sequence[str] = (),
    *,
    blocks: bool = True,
    progress: Callable[[str, int], None] = lambda path, size: None,
) -> Iterator[ReplicaEvidence]:
    """Each replica in the directory of a stopped server, of the named tablets or of all. The caller holds its lock.

    Every byte of its blocks is read; without `blocks` nobody may build upon what is found. `progress(path, bytes)`
    before each tablet's log and after each file of its blocks.
    """
    for tablet_id in Superblock.list_tablets(disk):
        if not tablets or tablet_id in tablets:
            progress(wal_folder(tablet_id), 0)
            yield _of_tablet(disk, uuid, place, tablet_id, progress if blocks else None)


def block_bytes(disk: Disk, tablets: Sequence[str]) -> int:
    """Bytes of the blocks of these tablets in a directory; a superblock that cannot be read has none."""
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
    """`blocks_read(path, bytes)` after each file of a block; None: they are not read."""
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
    """Why a server would not open these blocks; empty if all are as they were written."""
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


def of_running(client: Client) -> tuple[list[ReplicaEvidence], dict[str, str]]:
    """Each replica of each server that answers, and why the others do not, by uuid."""
    found: list[ReplicaEvidence] = []
    silent: dict[str, str] = {}
    for server in client.list_servers().servers:
        try:
            statuses = client.list_tablets(server)
        except Refused as error:
            silent[server.uuid] = str(error)
            continue
        place = ", ".join(f"{a.host}:{a.port}" for a in server.addresses)
        found += [of_status(server.uuid, place, status) for status in statuses]
    return found, silent


def of_status(uuid: str, place: str, status: pb.ReplicaStatus) -> ReplicaEvidence:
    """What the running server `uuid` at `place` says of one replica."""
    config = config_from_pb(status.committed_config) if status.committed_config.members else None
    pending = config_from_pb(status.pending_config) if status.pending_config.members else None
    return ReplicaEvidence(
        tablet_id=status.tablet_id,
        table_id=status.table_id,
        server_uuid=uuid,
        place=place,
        running=True,
        data_state=read_number(DataState, status.data_state),
        witness=status.witness,
        leads=status.role == "LEADER",
        term=status.term,
        last=opid_from_pb(status.last_logged),
        withheld=opid_from_pb(status.withheld),
        commit_index=status.commit_index,
        config=config,
        pending=pending,
        problem=f"FAILED: {status.error}" if status.phase == "FAILED" else "",
    )


def by_tablet(evidence: Iterable[ReplicaEvidence]) -> dict[str, list[ReplicaEvidence]]:
    """Sorted by tablet, then server; of one server's two words about one replica, its directory's counts."""
    found: dict[str, dict[str, ReplicaEvidence]] = {}
    for item in evidence:
        known = found.setdefault(item.tablet_id, {})
        if item.server_uuid not in known or known[item.server_uuid].running:
            known[item.server_uuid] = item
    return {t: [found[t][u] for u in sorted(found[t])] for t in sorted(found)}
