"""One tablet of this server: its files, and the objects that run it."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.raft_driver import Phase, Replica
from nyala.replica.tablet import Given, Superblock, Tablet
from nyala.replica.tablet_copy import CopyProgress, CopySource, HealthyReplica, LastLogged
from nyala.replica.types import ZERO_OPID, Applied, Code, DataState, Disk, OpId, Refused
from nyala.replica.wal import Log

from ..runtime.lanes import Lane
from .flush_rule import FlushHistory
from .row_rate import RowRate
from .write_order import WriteOrder

END_TIMEOUT_S = 20.0


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(eq=False)
class CopyJob:
    """A tablet copy into this server, running or just ended."""

    tablet_id: str
    source_uuid: str
    target_uuid: str
    started_us: int
    config: OpId = ZERO_OPID
    """The position of the config because of which the leader asked for the copy, committed or not; 0.0 if unknown."""
    host: str = ""
    """The host that asked for the copy; empty if this server did."""
    progress: CopyProgress = field(default_factory=CopyProgress)
    cancelled: threading.Event = field(default_factory=threading.Event)
    error: str = ""
    place: asyncio.Future[None] | None = None
    """The job's place in the queue, while it has one."""
    work: Future[None] | None = None
    """Its work on the pool, while it has a place there."""
    source: CopySource | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def cancel(self) -> None:
        """Ask the job to end, which it does at the next point where it can: before it starts, between two chunks, or in
        a call to its source."""
        self.cancelled.set()
        for waiting in (self.place, self.work):
            if waiting is not None:
                waiting.cancel()
        abort = getattr(self.source, "abort", None)
        if abort is not None:
            abort()

    async def end(self) -> None:
        """Cancel the job and return when it has ended. Refused TIMED_OUT if it does not end in time; it stays
        cancelled."""
        self.cancel()
        try:
            await asyncio.wait_for(self.ended.wait(), END_TIMEOUT_S)
        except TimeoutError:
            raise Refused(Code.TIMED_OUT, "the copy has not ended yet; it will", applied=Applied.UNKNOWN) from None


@dataclass(eq=False)
class HostedTablet:
    """One tablet on this server.

    Concurrency: fields change on the loop's thread only; the objects in them state their own rules. `transition` is
    held while the tablet is created, opened, deleted or copied.
    """

    tablet_id: str
    superblock: Superblock
    """The superblock as it was saved last; a running tablet has a newer one. `repair_superblock` relies on it."""
    lane: Lane
    meta_lane: Lane
    cmeta: ConsensusMeta | None = None
    tablet: Tablet | None = None
    halting: Tablet | None = None
    """The tablet of a replica that is being stopped: a flush of it may still save the superblock."""
    log: Log | None = None
    replica: Replica | None = None
    copy: CopyJob | None = None
    opening: bool = False
    error: str = ""
    """The reason why it could not be opened."""
    waiting: bool = False
    """Whether it could not be opened, or had to stop, because a resource was exhausted. Its files are intact, and the
    server opens it again later."""
    attempts: int = 0
    """The number of failed attempts in a row to open it, or to apply the entries that its log had."""
    copied: bool = False
    """Whether a copy brought its blocks, and it has not run with them yet."""
    unreadable: bool = False
    """Whether it could not be opened because its files are damaged, and a copy would heal it."""
    transition: asyncio.Lock = field(default_factory=asyncio.Lock)
    arrivals: WriteOrder = field(default_factory=WriteOrder)
    """Writes that wait for their index: they keep their order of arrival."""
    under_way: set[Given] = field(default_factory=set)
    """The values of writes that have an index and no answer yet. They may not be applied yet."""
    cmeta_lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while a tombstone votes, and while the consensus metadata of a copy are merged: these two exclude each
    other."""
    unattended: asyncio.Event = field(default_factory=_set_event)
    """Cleared while a flush or a compaction runs."""
    said: tuple[str, int, str] = ("", 0, "")
    """Role, term and phase as last logged."""
    flush_history: FlushHistory | None = None
    """The state of the maintenance from one check to the next; None until the first."""
    compact_after_s: float = 0.0
    """The time of the maintenance's clock before which it is not compacted, because the last compaction was refused or
    merged nothing."""
    rows_read: int = 0
    """The rows that were sent to readers since this process started."""
    write_rate: RowRate = field(default_factory=RowRate)
    read_rate: RowRate = field(default_factory=RowRate)
    stopped_at: LastLogged | None = None
    """The end of the log of a replica that was stopped to be deleted; None once it is deleted or runs again."""
    silent_since_s: float = field(default_factory=time.monotonic)
    """The time at which its replica last stopped, or this process started. Before that, the replica may have answered
    its leader, and so extended the leader's lease."""

    @property
    def data_state(self) -> DataState:
        """The data state; COPYING from the moment a copy job is accepted."""
        return DataState.COPYING if self.copy is not None else self.superblock.data_state

    @property
    def takes_room(self) -> bool:
        """Whether it counts towards the replicas that this server may hold. A tombstone, or a tablet of which nothing
        is here, counts only after a copy into it has begun."""
        if self.copy is not None and not self.copy.progress.waits:
            return True
        return self.superblock.data_state not in (DataState.DELETED, DataState.DOES_NOT_EXIST)

    @property
    def term(self) -> int:
        """This server's term for the tablet."""
        if self.replica is not None:
            return self.replica.term
        return self.cmeta.term if self.cmeta is not None else 0

    @property
    def last_opid(self) -> OpId:
        """The last OpId of the log, or the one that the superblock keeps if no replica runs."""
        if self.replica is not None:
            return self.replica.last_logged
        return self.superblock.last_logged or ZERO_OPID

    @property
    def last_opid_known(self) -> bool:
        """Whether `last_opid` is the last OpId acknowledged here. It is unknown if the replica could not be opened."""
        if self.superblock.data_state is DataState.READY:
            return self.replica is not None
        return self.superblock.last_logged_known

    @property
    def lost(self) -> bool:
        """Whether its superblock is lost: it was missing, or could not be read, when this process started."""
        blank = self.superblock.data_state in (DataState.READY, DataState.DOES_NOT_EXIST)
        return blank and not self.superblock.table_id

    def repair_superblock(self, disk: Disk) -> bool:
        """Write the superblock again from memory if its file is missing, damaged or differs; returns whether it did.
        Call it in a thread, under `transition`. The server may stop meanwhile."""
        tablet = self.tablet or self.halting
        if tablet is not None:
            return tablet.repair_superblock()
        return not self.lost and self.superblock.repair(disk)

    @property
    def damaged(self) -> bool:
        """Whether the replica here has failed for good, and a copy from its peers would heal it."""
        if self.copy is not None or self.opening or self.superblock.data_state is not DataState.READY:
            return False
        if self.replica is not None:
            return self.replica.phase is Phase.FAILED and self.replica.life.damaged
        return self.unreadable

    @property
    def running(self) -> bool:
        """Whether the replica takes part in its group."""
        return self.replica is not None and self.replica.phase in (Phase.CONFIGURING, Phase.RUNNING)

    @property
    def healthy(self) -> HealthyReplica | None:
        """The group as its running replica knows it; None if no replica runs, or it has failed."""
        if self.replica is None or not self.running:
            return None
        replica = self.replica
        configs = (replica.active_config, replica.committed_config)
        term = self.log.term_at(replica.commit_index) if self.log is not None else None
        committed = OpId(term or 0, replica.commit_index)  # without a term, if its entry is in the blocks only
        return HealthyReplica(leader_uuid=replica.leader_uuid or "", configs=configs, committed=committed)

    def serving(self, table_id: str = "") -> tuple[Replica, Tablet]:
        """The running replica and its tablet; Refused says why there is none.

        An empty `table_id` is not compared.
        """
        values: dict[str, Any] = {"tablet": self.tablet_id}
        if self.copy is not None:
            raise Refused(
                Code.NOT_READY,
                "the tablet is being copied to this server: ask another replica, or this one when the copy has ended",
                **values,
            )
        if self.superblock.data_state is DataState.DELETED:
            raise Refused(Code.TABLET_DELETED, "the tablet was deleted here", **values)
        if self.opening:
            raise Refused(Code.NOT_READY, "the tablet is starting: try again in a moment", **values)
        if self.waiting and self.replica is None:
            raise Refused(Code.NOT_READY, f"the tablet waits to start: {self.error}", **values)
        if self.superblock.witness and self.replica is not None and self.replica.phase is not Phase.FAILED:
            raise Refused(
                Code.NOT_LEADER,
                "this replica is a witness and holds no rows",
                detail=self.replica.leader_hint,
                **values,
            )
        if self.replica is None or self.tablet is None:
            raise Refused(Code.TABLET_FAILED, self.error or "the tablet could not be started", **values)
        if self.replica.phase is Phase.FAILED:
            raise Refused(Code.TABLET_FAILED, self.replica.error or "the replica has failed", **values)
        if self.replica.phase is Phase.STOPPED:
            raise Refused(Code.NOT_READY, "the replica is stopping", **values)
        if table_id and table_id != self.superblock.table_id:
            raise Refused(
                Code.WRONG_TABLE,
                "the tablet belongs to another table; was the table dropped and created again? Open the table anew",
                wanted=table_id,
                own=self.superblock.table_id,
                **values,
            )
        return self.replica, self.tablet
