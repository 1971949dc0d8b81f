"""Replicas at rest on disks in memory: a source to copy from, and checks of a target."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from nyala.replica.consensus_metadata import ConsensusMeta, path_of
from nyala.replica.rows import WriteMeta, crc32c, encode_batch
from nyala.replica.tablet import Superblock, Tablet, sweep_orphans
from nyala.replica.tablet_copy import (
    CopyAttempt,
    CopyFile,
    CopySourceSession,
    CopyWanted,
    LocalCopySource,
    SourceSessions,
    TargetCopy,
    capture_session,
    delete_replica,
    named_blocks,
    settle_at_startup,
    spared_blocks,
    wal_folder,
)
from nyala.replica.types import (
    ZERO_OPID,
    Address,
    Code,
    DataState,
    Disk,
    Entry,
    EntryKind,
    Member,
    OpId,
    RaftConfig,
    Refused,
)
from nyala.replica.wal import Log, WalOptions
from tests.harness.rows import PARTITION, SCHEMA, batch
from tests.harness.sim_disk import SimDisk

TABLET = "tablet-1"
SOURCE_UUID = "a" * 32
TARGET_UUID = "b" * 32
CONFIG = RaftConfig(
    OpId(1, 1),
    (
        Member(SOURCE_UUID, (Address("127.0.0.1", 1),)),
        Member(TARGET_UUID, (Address("127.0.0.1", 2),), votes=False, promote=True),
    ),
)


_disks: list[SimDisk] = []


def new_disk() -> SimDisk:
    """Return a disk that `close_disks` closes."""
    _disks.append(SimDisk())
    return _disks[-1]


def close_disks() -> None:
    """Close all disks made since the last call."""
    while _disks:
        _disks.pop().close()


class TestClock:
    """A clock that a test moves."""

    __test__ = False

    def __init__(self) -> None:
        self.now_us = 1_000_000

    def wall_us(self) -> int:
        return self.now_us

    def monotonic_us(self) -> int:
        return self.now_us


def superblock(**fields: Any) -> Superblock:
    """Return a READY superblock of the harness's table, with other fields as given."""
    base = Superblock(
        tablet_id=TABLET,
        table_id="t1",
        table_name="things",
        data_state=DataState.READY,
        partition=PARTITION,
        table_schemas=(SCHEMA,),
        history_retention_us=3_600_000_000,
    )
    return replace(base, **fields)


def write_entry(index: int, keys: list[int], value: str, term: int) -> Entry:
    """Return a WRITE that upserts `keys`."""
    payload = encode_batch(batch(keys, [value] * len(keys)))
    meta = WriteMeta((1, 2), len(keys)).encode()
    return Entry(OpId(term, index), EntryKind.WRITE, index << 12, 1, meta, payload, crc32c(payload))


class RestingReplica:
    """Files and objects of one READY replica without consensus; the test decides what is appended and applied."""

    def __init__(self, disk: SimDisk, uuid: str = SOURCE_UUID, *, term: int = 1) -> None:
        self.disk = disk
        self.uuid = uuid
        self.term = term
        self.cmeta = (
            ConsensusMeta.load(disk, TABLET)
            if ConsensusMeta.exists(disk, TABLET)
            else ConsensusMeta.create(disk, TABLET, uuid, CONFIG, term)
        )
        disk.mkdir(wal_folder(TABLET))
        if not Superblock.exists(disk, TABLET):
            Tablet.create(disk, superblock()).close()
        self.tablet = Tablet.open(disk, Superblock.load(disk, TABLET))
        options = WalOptions(segment_size_bytes_first=16 << 10, segment_size_bytes_max=64 << 10)
        self.log, replay = Log.open(disk, wal_folder(TABLET), TABLET, options)
        self.tablet.apply([e for e in replay.entries if e.opid.index > self.tablet.flush_opid.index])
        self.index = max(self.log.last.index, self.tablet.applied_opid.index)

    def write(self, keys: list[int], value: str, term: int | None = None) -> OpId:
        """Make one durable, applied entry."""
        self.index += 1
        entry = write_entry(self.index, keys, value, term or self.term)
        self.log.append([entry], lambda outcome: None)
        self.log.drain()
        self.tablet.apply([entry])
        return entry.opid

    def rows(self) -> dict[int, str]:
        """Return everything visible now."""
        found: dict[int, str] = {}
        for rows in self.tablet.scan():
            found.update(zip(rows.column("k").to_pylist(), rows.column("v").to_pylist(), strict=True))
        return found

    def close(self) -> None:
        self.log.close()
        self.tablet.close()


class Source:
    """A replica that serves copies through sessions in this process."""

    def __init__(self, replica: RestingReplica, *, is_leader: bool = True, sessions_max: int = 4) -> None:
        self.replica = replica
        self.is_leader = is_leader
        self.config_index = self.commit_index = 0
        self.committed = OpId(0, 0)
        self.clock = TestClock()
        self.sessions = SourceSessions(self.clock, sessions_max=sessions_max, ttl_us=1000)
        self.copy_source = LocalCopySource(self.sessions, self.capture)

    def capture(
        self,
        tablet_id: str,
        requestor: str,
        leaderless: bool,
        session: str,
        ttl_us: int,
        wanted: CopyWanted,
    ) -> CopySourceSession:
        if tablet_id != TABLET:
            raise Refused(Code.TABLET_NOT_FOUND, "no such tablet")
        return capture_session(
            disk=self.replica.disk,
            tablet_id=tablet_id,
            requestor_uuid=requestor,
            session_id=session,
            ttl_us=ttl_us,
            state=self.replica.tablet,
            cmeta=self.replica.cmeta,
            log=self.replica.log,
            is_leader=self.is_leader,
            config_index=self.config_index,
            commit_index=self.commit_index,
            term=self.replica.term,
            committed=self.committed,
            wanted=wanted,
        )


class NoBytes(LocalCopySource):
    """A source whose copies end after the merge of the consensus metadata: it sends no byte of any file."""

    def fetch(self, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int) -> Iterator[bytes]:
        raise Refused(Code.UNAVAILABLE, "no bytes")


Writes = Sequence[tuple[list[int], str]]
"""For one entry each: keys, and the value that all of them get."""


def leading_source(term: int = 6, flushed: Writes = (([1, 2], "a"),), logged: Writes = (([3], "b"),)) -> Source:
    """Return a leader that voted for itself: `flushed` is in one block, `logged` after it in the log."""
    replica = RestingReplica(new_disk(), term=term)
    replica.cmeta.save_hard_state(term, SOURCE_UUID)
    for keys, value in flushed:
        replica.write(keys, value)
    replica.tablet.flush()
    for keys, value in logged:
        replica.write(keys, value)
    return Source(replica)


def tombstone(disk: SimDisk, last: OpId, *, term: int, voted_for: str | None = None, known: bool = True) -> Superblock:
    """Return the target's replica, deleted with what it promised; `known`: `last` is not only a lower bound."""
    ConsensusMeta.create(disk, TABLET, TARGET_UUID, CONFIG, term).save_hard_state(term, voted_for)
    disk.mkdir(wal_folder(TABLET))
    superblock().save(disk)
    return delete_replica(disk, superblock(), last, stop=lambda: None, known=known)


def attempt(disk: Disk, copy_source: Any, **options: Any) -> CopyAttempt:
    """Return the target's attempt to bring the tablet's files through `copy_source`."""
    return CopyAttempt(disk=disk, tablet_id=TABLET, uuid=TARGET_UUID, source=copy_source, **options)


def copy_over(local: Superblock | None, made: CopyAttempt, **options: Any) -> TargetCopy:
    """Return a copy over a tombstone, by what it kept, or over nothing; other options as given."""
    options.setdefault("own_last_opid", (local.last_logged if local else None) or ZERO_OPID)
    return TargetCopy(made, **{"stop_and_delete": lambda check_source: local, **options})


def die(disk: SimDisk, power_seed: int | None) -> None:
    """End the process by a kill, or by a power loss."""
    if power_seed is None:
        disk.restart()
    else:
        disk.power_loss(random.Random(power_seed))


def start(disk: Disk) -> Superblock:
    """Do what a server does with the tablet when it starts, blocks without a name included."""
    settled = settle_at_startup(disk, Superblock.load(disk, TABLET))
    sweep_orphans(disk, named_blocks(disk) | spared_blocks(disk, disk.listdir("data")))
    return settled


def data_files(disk: SimDisk) -> list[str]:
    """Return the block files present."""
    return disk.listdir("data")


def wal_places(disk: SimDisk) -> list[str]:
    """Return every folder that holds WAL segments of the tablet."""
    places = [wal_folder(TABLET)] if disk.listdir(wal_folder(TABLET)) else []
    for name in disk.listdir("quarantine"):
        if disk.listdir(f"quarantine/{name}/wal"):
            places.append(f"quarantine/{name}/wal")
    return places


def cmeta_bytes(disk: SimDisk) -> bytes:
    """Return the live consensus metadata file."""
    return disk.read(path_of(TABLET))
