"""A server with a whole data tablet: superblock, blocks, ledger, tombstones, and tablet copies by the real code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.raft import CopyNeeded, Message, VoteRequest
from nyala.replica.raft_driver import no_replica_reply
from nyala.replica.rows import Column, ColumnType, TableSchema
from nyala.replica.server.tablets.opening import create_files
from nyala.replica.server.tablets.tombstone import vote_reply
from nyala.replica.tablet import Superblock, Tablet, sweep_orphans
from nyala.replica.tablet_copy import (
    WHOLE,
    CopyAttempt,
    CopyFile,
    CopyManifest,
    CopyRequest,
    CopySourceSession,
    CopyWanted,
    LastLogged,
    LocalCopySource,
    LocalReplica,
    SourceSessions,
    TargetCopy,
    capture_session,
    delete_replica,
    last_of_unopened,
    settle_at_startup,
    start_tablet_copy_checks,
)
from nyala.replica.tablet_copy.blocks import named_blocks, spared_blocks
from nyala.replica.types import ZERO_OPID, Code, Corruption, DataState, DiskFailure, Entry, OpId, RaftConfig, Refused
from tests.harness import sim_leaks
from tests.harness.sim_cluster import TABLET, TICK_US, Flushed, SimCluster, SimNode
from tests.harness.sim_side import Side

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="before", type=ColumnType.INT64),
        Column(id=3, name="v", type=ColumnType.INT64),
    ),
    ("k",),
)
"""`before`: the key of an earlier row, which makes the rows of one source a linked list."""
QUEUED_US_MAX = 200_000


class TabletMachine:
    """The production tablet, with an eye on what it applies."""

    def __init__(self, tablet: Tablet, on_apply: Callable[[Entry], None]) -> None:
        self.tablet = tablet
        self._on_apply = on_apply

    @property
    def applied_opid(self) -> OpId:
        return self.tablet.applied_opid

    @property
    def flush_opid(self) -> OpId:
        return self.tablet.flush_opid

    @property
    def applied_time(self) -> int:
        return self.tablet.applied_time

    def apply(self, entries: Sequence[Entry]) -> list[Any]:
        results = self.tablet.apply(entries)
        for entry in entries:
            self._on_apply(entry)
        return results

    def wants_flush(self, wal_bytes: int = 0) -> float:
        return self.tablet.wants_flush(wal_bytes)

    @property
    def digest(self) -> tuple[Any, ...]:
        """Return a value that is equal on level replicas: the rows at the latest time, and the ledger."""
        return (*self.tablet.checksum(), repr(self.tablet.ledger.to_avro()))

    def close(self) -> None:
        self.tablet.close()


class TabletNode(SimNode):
    """One server that carries a data tablet or its tombstone."""

    def __init__(self, cluster: SimCluster, uuid: str, skew_us: int) -> None:
        super().__init__(cluster, uuid, skew_us)
        self.sessions = SourceSessions(self.clock)
        self.tombstone: Superblock | None = None
        self.sides: list[Side] = []
        self.silent_since_us = -1_000_000

    def create(self, config: RaftConfig) -> None:
        block = Superblock(tablet_id=TABLET, table_id="t", table_schemas=(SCHEMA,), history_retention_us=3_600_000_000)
        create_files(self.disk, self.uuid, block, config)

    def exists(self) -> bool:
        return Superblock.exists(self.disk, TABLET)

    def start(self, *, campaign: bool = False) -> None:
        """Apply the startup rules, then run a replica or a tombstone."""
        self.disk.hook = self._on_disk_call
        super().start(campaign=campaign)

    def begin(self, campaign: bool) -> None:
        self.up = True
        self.failed = ""
        self.tombstone = None
        self.sessions = SourceSessions(self.clock)
        if not self.exists():
            return
        found = settle_at_startup(self.disk, Superblock.load(self.disk, TABLET))
        sweep_orphans(self.disk, named_blocks(self.disk) | spared_blocks(self.disk, self.disk.listdir("data")))
        if found.data_state is DataState.READY:
            self.open()
            self.join(campaign=campaign)
        else:
            self.tombstone = found
            self.cluster.verify.tombstone(self.uuid, found.last_logged or ZERO_OPID)
            self.cmeta = ConsensusMeta.load(self.disk, TABLET) if ConsensusMeta.exists(self.disk, TABLET) else None
            self.cluster.marks["tombstone at a start"] += 1

    def open_machine(self, on_apply: Callable[[Entry], None]) -> TabletMachine:
        return TabletMachine(Tablet.open(self.disk, Superblock.load(self.disk, TABLET)), on_apply)

    def receive_absent(self, message: Message) -> None:
        """Answer as a server does for a tombstone, or for a tablet that it never had."""
        if not self.exists():
            super().receive_absent(message)
            return
        if not self.up:
            return
        if self.failed:
            self.answer_failed(message)
            return
        try:
            block = Superblock.load(self.disk, TABLET)
        except Corruption as error:
            self.cannot_open(error)
            return
        last, cmeta = block.last_logged or ZERO_OPID, self.cmeta
        reply: Any = no_replica_reply(
            message,
            uuid=self.uuid,
            data_state=block.data_state,
            own_term=cmeta.term if cmeta is not None else 0,
            last_logged=last,
        )
        if (
            reply is None
            and cmeta is not None
            and isinstance(message, VoteRequest)
            and block.data_state is DataState.DELETED
        ):
            owes = self.world.now_us - self.silent_since_us < self.cluster.raft_options.election_ticks_min * TICK_US
            try:
                reply = vote_reply(
                    message,
                    uuid=self.uuid,
                    cmeta=cmeta,
                    last=last,
                    last_known=block.last_logged_known,
                    owes_lease=owes,
                )
            except Refused:
                return  # no room for the vote: none is given
            self.cluster.marks["tombstone voted"] += reply.granted
        if reply is not None:
            self.cluster.network.send(self.uuid, reply.to_uuid, reply)

    def crash(self, *, power: bool) -> None:
        for side in self.sides:
            side.kill()
        self.sides.clear()
        self.tombstone = None
        super().crash(power=power)

    # ---- side work

    def beside(self, function: Callable[[], Any], done: Callable[[Any], None]) -> Side:
        """Run `function` on a thread of this process, step by step."""
        side = Side(self, function, done)
        self.sides = [s for s in self.sides if not s.over] + [side]
        side.schedule(self.world.rng.randint(50, 3_000))
        return side

    def _on_disk_call(self, operation: str, path: str) -> None:
        """Let side work release the baton here, if it holds nothing that another thread would wait for."""
        side = next((s for s in self.sides if s.here), None)
        if side is None or side.killed:
            return
        machine = self.machine
        if machine is not None:
            tablet = machine.tablet
            if tablet._contents.lock.locked() or tablet._contents.resolver.guard.locked():
                return
        side.pause()

    def flush(self, done: Flushed = lambda moved: None) -> None:
        """Flush and, at times, compact on a thread beside everything else; then collect log."""
        machine, replica = self.machine, self.replica
        if machine is None or replica is None or any(not s.over for s in self.sides):
            return
        before = machine.flush_opid

        def work() -> None:
            with suppress(Refused):
                machine.tablet.flush()
                while machine.tablet.wants_compaction():
                    machine.tablet.compact()

        def over(result: Any) -> None:
            if isinstance(result, DiskFailure):
                self.fatal(result)
            if isinstance(result, Corruption) and self.hurt:
                replica.fail(result)  # as a server's maintenance does: this replica only
                return
            if isinstance(result, BaseException):
                raise result
            if self.replica is replica:
                self.cluster.verify.flushed(self.uuid, machine.flush_opid, self.durable, self._opened_at)
                done(machine.flush_opid > before)
                self.collect(replica)

        self.beside(work, over)

    def replace(self) -> None:
        """Put a tombstone in its place, which its leader copies over; or another disk."""
        try:
            block = Superblock.load(self.disk, TABLET)
        except Corruption:
            block = None
        if block is None or block.data_state is not DataState.READY or self.world.rng.random() < 0.3:
            super().replace()
        else:
            self.do(lambda: self._delete(block))

    def _delete(self, block: Superblock) -> None:
        """Delete it as an operator's command does."""
        replica = self.replica
        try:
            if replica is not None:
                withheld = replica.withheld
                last = LastLogged(max(self.halt(), withheld or ZERO_OPID), known=withheld is None)
            else:
                last = last_of_unopened(block, self.cmeta)
            block = Superblock.load(self.disk, TABLET)  # a flush may have ended just now
            self.cluster.verify.kept[self.uuid] = last.opid
            self.tombstone = delete_replica(self.disk, block, last.opid, lambda: None, known=last.known)
            self.cluster.verify.tombstone(self.uuid, self.tombstone.last_logged or ZERO_OPID)
        except DiskFailure as error:
            self.fatal(error)
        except Refused as refusal:
            self.failed = str(refusal)  # there was no room; it is tried again
            return
        self.failed = ""
        self.cluster.marks["failed replica deleted"] += 1
        if self.cmeta is not None:
            sim_leaks.deleted(self.uuid, self.disk, TABLET)
            self.cluster.verify.looks["V8"] += 1

    def halt(self) -> OpId:
        """Stop the replica as its deletion needs it, after the work beside it; returns the last OpId it logged."""
        for side in list(self.sides):
            if not side.here:
                side.finish()
        replica, log = self.replica, self.log
        assert replica is not None and log is not None
        last = replica.last_logged
        replica.stop()
        self.drain_heavy()
        self.sessions.end_tablet(TABLET)
        log.close()
        self.machine.close()
        self.life_of_replica_over()
        return last

    def life_of_replica_over(self) -> None:
        """Note that no replica runs any more; the process goes on."""
        self.cluster.verify.down(self.uuid)
        self.silent_since_us = self.world.now_us
        self.replica = self.machine = self.log = None


class SimCopySource:
    """The connection to the source of a copy, from the copy's thread; each call waits for an answer as an RPC does."""

    def __init__(self, source: TabletNode, target: TabletNode) -> None:
        self._source, self._target = source, target
        self._life = source.life
        self._sessions = source.sessions

    def _wait(self) -> None:
        side = next(s for s in self._target.sides if s.here)
        for _ in range(200):
            side.pause()
            if not self._source.paused:
                break
        lost = self._source.left and self._source.paused
        if not self._source.up or self._source.life != self._life or lost:
            raise Refused(Code.NOT_READY, "the source does not answer")

    def _capture(
        self, tablet_id: str, requestor: str, _: bool, session: str, ttl_us: int, wanted: CopyWanted
    ) -> CopySourceSession:
        source = self._source
        replica, machine, log, cmeta = source.replica, source.machine, source.log, source.cmeta
        if replica is None or machine is None or log is None or cmeta is None or not replica.is_leader:
            raise Refused(Code.NOT_LEADER, "copies are served by the leader")
        return capture_session(
            disk=source.disk,
            tablet_id=tablet_id,
            requestor_uuid=requestor,
            session_id=session,
            ttl_us=ttl_us,
            state=machine.tablet,
            cmeta=cmeta,
            log=log,
            is_leader=True,
            config_index=replica.committed_config.opid.index,
            commit_index=replica.commit_index,
            wanted=wanted,
        )

    def begin(
        self, tablet_id: str, requestor_uuid: str, allow_leaderless: bool, wanted: CopyWanted = WHOLE
    ) -> CopyManifest:
        self._wait()
        copy_source = LocalCopySource(self._sessions, self._capture)
        with self._source_process():
            return copy_source.begin(tablet_id, requestor_uuid, allow_leaderless, wanted)

    def fetch(self, session_id: str, file: CopyFile, byte_offset: int, length_bytes: int) -> Iterator[bytes]:
        copy_source = LocalCopySource(self._sessions, self._capture)
        half = length_bytes // 2
        for start, length in ((0, half), (half, length_bytes - half)):
            self._wait()
            with self._source_process():
                chunks = list(copy_source.fetch(session_id, file, byte_offset + start, length))
            yield from chunks

    @contextmanager
    def _source_process(self) -> Iterator[None]:
        """Run a step of the source's process: a disk that fails ends it, and then there is no answer."""
        source = self._source
        try:
            yield
        except DiskFailure as failure:
            error = failure
            source.do(lambda: source.fatal(error))
            raise Refused(Code.NOT_READY, "the source does not answer") from error

    def end(self, session_id: str, success: bool, doubted: str = "") -> None:
        if self._source.up and self._source.life == self._life:
            self._sessions.end(session_id, success)


class TabletCopies:
    """Copies of one cluster's tablet, requested by leaders and carried out by the targets."""

    def __init__(self, cluster: SimCluster, tablet_id: str) -> None:
        self._cluster = cluster
        self._running: dict[str, int] = {}

    def needed(self, leader: SimNode, need: CopyNeeded) -> None:
        """Send StartTabletCopy as a leader."""
        if leader.replica is None:
            return
        request = CopyRequest(
            dest_uuid=need.peer_uuid,
            from_uuid=leader.uuid,
            tablet_id=TABLET,
            term=leader.replica.term,
            current_state=need.current_state,
            last_opid=need.last_opid if need.last_opid != ZERO_OPID else None,
        )
        self._cluster.world.after(self._cluster.world.rng.randint(1_000, 30_000), lambda: self._asked(request))

    def _node(self, uuid: str) -> TabletNode | None:
        node = self._cluster.at(uuid)
        return node if isinstance(node, TabletNode) else None

    def local(self, node: TabletNode) -> LocalReplica:
        """Return what the target knows of itself."""
        if not node.exists():
            return LocalReplica(uuid=node.uuid, data_state=DataState.DOES_NOT_EXIST)
        try:
            block = Superblock.load(node.disk, TABLET)
        except Corruption:  # as a server holds it: a READY tablet that could not be started
            return LocalReplica(uuid=node.uuid, data_state=DataState.READY)
        last = node.replica.last_logged if node.replica is not None else block.last_logged or ZERO_OPID
        term = node.cmeta.term if node.cmeta is not None else 0
        return LocalReplica(uuid=node.uuid, data_state=block.data_state, term=term, last_opid=last)

    def _asked(self, request: CopyRequest) -> None:
        target = self._node(request.dest_uuid)
        if target is None or self._running.get(target.uuid) == target.life or not self._may(target, request):
            return
        life = self._running[target.uuid] = target.life
        delay_us = self._cluster.world.rng.randint(1_000, QUEUED_US_MAX)
        self._cluster.world.after(delay_us, lambda: self._begin(request, life))

    def _may(self, target: TabletNode, request: CopyRequest) -> bool:
        if not target.up:
            if target.exists():
                return False
            target.up = True
            target.disk.hook = target._on_disk_call
        return start_tablet_copy_checks(request, self.local(target)) is None

    def _begin(self, request: CopyRequest, life: int) -> None:
        """Begin a copy. `life`: the life in which the target accepted the request; requests that waited when it died
        are gone."""
        target, source = self._node(request.dest_uuid), self._node(request.from_uuid)
        if target is None or source is None or target.uuid != request.dest_uuid:
            self._running.pop(request.dest_uuid, None)
            return
        if self._running.get(target.uuid) != target.life or target.life != life:
            return
        if not self._may(target, request):
            self._running.pop(target.uuid, None)
            return
        local, was_here = self.local(target), target.exists()

        def stop_and_delete(check_source: Callable[[OpId, int], None]) -> Superblock | None:
            if not target.exists():
                return None
            if target.replica is None:
                block = Superblock.load(target.disk, TABLET)
                check_source(block.last_logged or ZERO_OPID, target.cmeta.term if target.cmeta else 0)
                return block
            durable, withheld = target.durable, target.replica.withheld
            last, term = max(target.halt(), withheld or ZERO_OPID), target.cmeta.term if target.cmeta else 0
            check_source(last, term)
            self._cluster.marks["copied over"] += 1
            if not target.hurt:
                self._cluster.verify.deleted(target.uuid, last, durable)
            block = Superblock.load(target.disk, TABLET)
            tombstone = delete_replica(target.disk, block, last, lambda: None, known=withheld is None)
            self._cluster.verify.kept[target.uuid] = last
            self._cluster.verify.tombstone(target.uuid, tombstone.last_logged or ZERO_OPID)
            sim_leaks.deleted(target.uuid, target.disk, TABLET)
            self._cluster.verify.looks["V8"] += 1
            return tombstone

        def merge(remote: bytes) -> None:
            if target.cmeta is not None:
                target.cmeta.merge(remote)
            else:
                target.cmeta = ConsensusMeta.adopt(target.disk, TABLET, target.uuid, remote, lost=was_here)

        copy = TargetCopy(
            CopyAttempt(
                disk=target.disk,
                tablet_id=TABLET,
                uuid=target.uuid,
                source=SimCopySource(source, target),
                ahead_us=target.hybrid_clock.ahead_us,
            ),
            own_last_opid=local.last_opid,
            own_term=local.term,
            stop_and_delete=stop_and_delete,
            merge=merge,
        )
        target.beside(copy.run, lambda result: self._ended(target, result))

    def _ended(self, target: TabletNode, result: Any) -> None:
        """Start what the copy left: a replica, an older one that was not given up, or a tombstone."""
        self._running.pop(target.uuid, None)
        good = isinstance(result, Superblock)
        self._cluster.marks["tablet copy" if good else "copy failed"] += 1
        if isinstance(result, DiskFailure):
            target.fatal(result)
        if not good and not isinstance(result, Exception):
            raise result
        if target.replica is None and target.exists():
            target.life += 1
            target.start()
