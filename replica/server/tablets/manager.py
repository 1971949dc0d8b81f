"""All replicas of one server: finds them at the start, creates, opens and deletes them, and delivers messages."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import exhausted
from nyala.replica.raft import AppendEntries, Message, RaftOptions
from nyala.replica.raft_driver import Environment, Phase, Replica
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import SourceSessions, settle_at_startup
from nyala.replica.tablet_copy.wire import CopyRate
from nyala.replica.types import (
    ZERO_OPID,
    Clock,
    Code,
    Corruption,
    DataState,
    Disk,
    DiskFailure,
    EntryKind,
    HybridClock,
    InvariantViolation,
    OpId,
    RaftConfig,
    Refused,
    ReplicaError,
    ResourcesExhausted,
    is_transient,
    started_pool,
)
from nyala.replica.types.log_records import about
from nyala.replica.wal import LogThreads

from ..options import ServerOptions
from ..runtime.lanes import Lane, LoopPost, LoopTimer, drained
from ..runtime.tasks import Tasks, on_thread
from ..startup.code_version import running_build
from ..startup.replay_watch import ReplayWatch
from .copy_failures import CopyFailures
from .hosted import HostedTablet
from .opening import Opener, create_files, find_lost, load_cmeta, settle_all
from .replica_shutdown import ReplicaShutdown
from .ticking import RaftTimer
from .tombstone import answer_without_replica

T = TypeVar("T")
_log = logging.getLogger("nyala.server")

REOPEN_AFTER_S = 5.0
"""The first pause before a tablet that met a full disk or an exhausted resource is opened again. It doubles each
time."""
REOPEN_AFTER_S_MAX = 60.0


def reopen_after_s(attempts: int) -> float:
    """The pause after so many failed attempts, in seconds."""
    return min(REOPEN_AFTER_S_MAX, REOPEN_AFTER_S * float(1 << min(attempts, 10)))


class TabletManager:
    """The owner of every tablet of this server.

    Concurrency: the loop's thread, unless a method says otherwise; disk access and replay run in threads.
    """

    def __init__(
        self,
        *,
        disk: Disk,
        uuid: str,
        options: ServerOptions,
        clock: Clock,
        hybrid_clock: HybridClock,
        post: LoopPost,
        heavy: ThreadPoolExecutor,
        log_threads: LogThreads,
        send: Callable[[list[tuple[str, Message]]], None],
        learn_config: Callable[[RaftConfig], None],
        on_copy_needed: Callable[[str, Any], None],
        on_fatal: Callable[[BaseException], None],
        pulse: Callable[[Sequence[str]], None] = lambda uuids: None,
        raft_options: RaftOptions | None = None,
    ) -> None:
        self.disk = disk
        self.uuid = uuid
        self.options = options
        self.clock = clock
        self.hybrid_clock = hybrid_clock
        self.tablets: dict[str, HostedTablet] = {}
        self.sessions = SourceSessions(clock)
        self.copy_rate = CopyRate(clock, options.copy_rate_bytes_per_s, options.copy_busy_rate_bytes_per_s)
        self.copy_failures = CopyFailures()
        self.replays = ReplayWatch(disk, running_build())
        self.catalog_term = 0
        """The highest catalog term that a master of this cluster has named in reply to a heartbeat."""
        self.lost: dict[str, ConsensusMeta] = {}
        """Consensus metadata of the tablets whose superblock was lost when this process started."""
        self.changed: set[str] = set()
        """Tablets to report to the masters; the heartbeat empties it."""
        self.post = post
        self._heavy = heavy
        self._open_pool = started_pool(options.open_threads, "open")
        self._meta_pool = started_pool(options.heavy_threads, "meta")
        self._log_threads = log_threads
        self._send = send
        self.learn_config = learn_config
        """Called with each config in force: a new member's address must be known before the config entry is sent."""
        self.on_fatal = on_fatal
        self._raft_options = raft_options or RaftOptions(quiet_after_ticks=options.quiet_after_ms // options.tick_ms)
        self.ticker = RaftTimer(
            uuid,
            self.tablets,
            tick_ms=options.tick_ms,
            silent_ticks_max=self._raft_options.election_ticks_min,
            pulse=pulse,
        )
        self.stopping = False
        self.quiescing = False
        """Whether this server quiesces: other servers shall lead and serve reads, as far as they can
        (`requests/quiescing.py`)."""
        self._later = Tasks(on_fatal)
        """At most one task for each tablet that waits to be opened again."""
        self.shutdowns = ReplicaShutdown(disk, self.sessions, self.replays, heavy, self.in_thread)
        environment = partial(
            Environment,
            hybrid_clock=hybrid_clock,
            post=post,
            send=send,
            on_copy_needed=on_copy_needed,
            on_fatal=on_fatal,
            on_change=self.on_change,
            on_awake=self.ticker.wake,
            soon=post.microtasks.soon,
            timer=LoopTimer(asyncio.get_running_loop(), post.microtasks),
            ticks_now=lambda: clock.monotonic_us() // (options.tick_ms * 1000),
            yields=lambda: self.quiescing,
        )
        self._opener = Opener(
            disk=disk,
            uuid=uuid,
            options=options,
            raft_options=self._raft_options,
            environment=environment,
            rng=random.Random(uuid + str(clock.monotonic_us())),
            log_threads=self._log_threads,
            replays=self.replays,
            replayed=self._replayed,
        )

    # ------------------------------------------------------------------------------------------------ start and stop

    async def start(self) -> None:
        """Settle every superblock, sweep orphaned blocks, then open the READY tablets, some at a time."""
        await self.in_thread(self.replays.settle)
        found = await self.in_thread(lambda: settle_all(self.disk, self.uuid))
        for tablet_id, settled in found.items():
            if isinstance(settled, Superblock):
                try:
                    cmeta = await self.in_thread(partial(load_cmeta, self.disk, tablet_id))
                except Refused as error:
                    self._unsettled(self._add_unknown(tablet_id), error)
                    continue
                hosted = self._add(settled)
                hosted.cmeta = cmeta
                if cmeta is not None:  # a tombstone votes, and only a server that knows a candidate can prove its vote
                    self.learn_config(cmeta.committed_config)
                hosted.opening = settled.data_state is DataState.READY
            else:
                hosted = self._add_unknown(tablet_id)
                with suppress(Refused):
                    hosted.cmeta = await self.in_thread(partial(load_cmeta, self.disk, tablet_id))
                self._unsettled(hosted, settled)
        with suppress(Refused):  # a copy reads them again
            self.lost = await self.in_thread(lambda: find_lost(self.disk, self.uuid))

    def _add_unknown(self, tablet_id: str) -> HostedTablet:
        return self._add(Superblock(tablet_id=tablet_id, table_id="", data_state=DataState.READY))

    def open_all(self) -> list[asyncio.Task[None]]:
        """Open every tablet that is not open yet. The tasks end when the tablets are open or have failed."""
        return [asyncio.create_task(self._open_guarded(h)) for h in self.tablets.values() if h.opening]

    async def _open_guarded(self, hosted: HostedTablet) -> None:
        async with hosted.transition:
            await self.open(hosted)

    async def stop(self) -> None:
        """Stop every replica and close its files. The caller has handed over leaderships before."""
        self.stopping = True
        self._later.cancel()
        await asyncio.gather(*(self.shutdowns.halt(h) for h in list(self.tablets.values())))
        self._open_pool.shutdown(wait=False, cancel_futures=True)
        self._meta_pool.shutdown(wait=False)

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Run disk work on a thread. A failing disk ends the process, even if the caller was cancelled meanwhile.
        Raises ResourcesExhausted."""
        try:
            return await on_thread(self._open_pool, function, self._left)
        except (DiskFailure, InvariantViolation) as error:
            self.on_fatal(error)
            raise
        except (OSError, MemoryError, RuntimeError) as error:
            raise exhausted(error) or error from error

    def _left(self, error: BaseException) -> None:
        if isinstance(error, DiskFailure | InvariantViolation):
            self.on_fatal(error)

    # ------------------------------------------------------------------------------------------------------- look-up

    def get(self, tablet_id: str) -> HostedTablet:
        """The tablet; Refused TABLET_NOT_FOUND if it was never here."""
        hosted = self.tablets.get(tablet_id)
        if hosted is None:
            raise Refused(
                Code.TABLET_NOT_FOUND, "no such tablet on this server: look its replicas up again", tablet=tablet_id
            )
        return hosted

    def lost_term(self, tablet_id: str) -> int:
        """The term of a tablet whose superblock is lost, so that a leader of an earlier term is refused; otherwise
        0."""
        cmeta = self.lost.get(tablet_id)
        return cmeta.term if cmeta is not None else 0

    def running(self) -> Iterable[HostedTablet]:
        """Tablets that take part in their group."""
        return [h for h in self.tablets.values() if h.running]

    @property
    def memory_bytes(self) -> int:
        """Tracked memory of all tablets: their stores, and the log entries that are in memory."""
        stores = sum(h.tablet.memory_bytes for h in self.tablets.values() if h.tablet is not None)
        return stores + sum(h.replica.cache_bytes for h in self.tablets.values() if h.replica is not None)

    def check_room(self, tablet_id: str) -> None:
        """Raise Refused OVERLOADED if this server holds as many replicas as it may. Tombstones and waiting copies do
        not count."""
        held = sum(h.takes_room for h in self.tablets.values())
        if held >= self.options.tablets_max:
            what = "this server holds as many tablets as it may (--tablets-max): drop tables, or add servers"
            raise Refused(Code.OVERLOADED, what, tablet=tablet_id, held=held, max=self.options.tablets_max)

    def blank(self, tablet_id: str) -> HostedTablet:
        """Add an entry in memory for a tablet that a copy is about to bring; nothing of it is on disk yet."""
        hosted = self._add(Superblock(tablet_id=tablet_id, table_id="", data_state=DataState.DOES_NOT_EXIST))
        hosted.cmeta = self.lost.get(tablet_id)
        return hosted

    def _add(self, superblock: Superblock) -> HostedTablet:
        hosted = HostedTablet(
            superblock.tablet_id, superblock, Lane(self._heavy, self.post), Lane(self._meta_pool, self.post)
        )
        self.tablets[superblock.tablet_id] = hosted
        self.changed.add(superblock.tablet_id)
        return hosted

    # --------------------------------------------------------------------------------------------- messages and time

    def deliver(self, tablet_id: str, message: Message) -> str:
        """Deliver one message to the replica, or answer it if no replica runs here. Returns why the message was
        refused, as `Replica.step`."""
        hosted = self.tablets.get(tablet_id)
        if hosted is not None and hosted.replica is not None:
            # The replica answers as long as it exists, also while a copy job is about to delete it, so that exactly one
            # object may change term and vote.
            refusal = hosted.replica.step(message)
            writes = isinstance(message, AppendEntries) and message.entries
            if writes and not refusal and message.entries[-1].kind is EntryKind.WRITE:  # type: ignore[union-attr]
                self.copy_rate.written()
            return refusal
        if hosted is not None and (hosted.opening or hosted.waiting):
            return ""
        return answer_without_replica(self, hosted, tablet_id, message)

    def is_absent(self, tablet_id: str) -> bool:
        """Whether no replica of the tablet runs here, so that a message for it is at most answered."""
        hosted = self.tablets.get(tablet_id)
        return hosted is None or hosted.replica is None

    def owes_a_lease(self, hosted: HostedTablet) -> bool:
        """Whether the replica ran so recently that its leader may hold a lease because of its answers."""
        hold_s = self._raft_options.election_ticks_min * self.options.tick_ms / 1000
        return time.monotonic() - hosted.silent_since_s < hold_s

    def reply(self, tablet_id: str, message: Message) -> None:
        """Send a message to the server in its `to_uuid`."""
        self._send([(tablet_id, message)])

    def on_change(self, tablet_id: str) -> None:
        """Note that a replica's role, term, config or phase has changed."""
        self.changed.add(tablet_id)
        self.ticker.members_changed()
        hosted = self.tablets.get(tablet_id)
        if hosted is None or hosted.replica is None:
            return
        replica = hosted.replica
        if replica.life.starved:
            self._later.start(self._reopen(hosted, replica))
        self.learn_config(replica.active_config)
        said = (str(replica.role), replica.term, str(replica.phase))
        if said != hosted.said:
            hosted.said = said
            about(_log, tablet_id, self.uuid).info("[term %d %s] %s", replica.term, replica.role, replica.phase)
            if replica.phase is Phase.FAILED and replica.life.failed_index:
                about(_log, tablet_id, self.uuid).error("%s", replica.error)
                self._note_failure(hosted, replica)

    # -------------------------------------------------------------------------------------------------- create, open

    async def create(self, superblock: Superblock, config: RaftConfig, *, campaign: bool) -> HostedTablet:
        """Create a tablet with `config` as its first config; a repeated call changes nothing.

        Once it has begun, it goes on even if its caller is cancelled, because a repeated call must not find
        half-written files. Refused ALREADY_EXISTS for a tablet of that id of another table, TABLET_DELETED for a
        tombstone: a replica that voted comes back through a tablet copy only.
        """
        return await self._later.finish(self._create(superblock, config, campaign=campaign))

    async def _create(self, superblock: Superblock, config: RaftConfig, *, campaign: bool) -> HostedTablet:
        hosted = self.tablets.get(superblock.tablet_id)
        if hosted is not None:
            _check_same(hosted, superblock)
            if hosted.opening and hosted.cmeta is None:
                async with hosted.transition:  # another request is creating it
                    pass
                if self.tablets.get(superblock.tablet_id) is not hosted:
                    raise Refused(Code.UNAVAILABLE, "the tablet could not be created", tablet=superblock.tablet_id)
            return hosted
        if config.member(self.uuid) is None:
            raise Refused(Code.INVALID_ARGUMENT, "this server is no member of the tablet's config", own=self.uuid)
        self.check_room(superblock.tablet_id)
        # It is registered before its files are written, so that the other members' leader does not start a copy into
        # it.
        hosted = self._add(superblock)
        hosted.opening = True
        async with hosted.transition:
            try:
                await self.in_thread(lambda: create_files(self.disk, self.uuid, superblock, config))
            except BaseException:
                self.tablets.pop(superblock.tablet_id, None)
                raise
            await self.open(hosted, campaign=campaign)
        return hosted

    async def open(self, hosted: HostedTablet, *, campaign: bool = False, checked: bool = False) -> None:
        """Bootstrap and start a READY tablet. If that fails, only this replica is reported as failed. The caller holds
        `transition`.

        `checked`: this process has just checked every byte of its blocks, when it wrote them.
        """
        hosted.opening = True
        hosted.copied |= checked
        try:
            # A tombstone's vote may be on its way to disk, and must be in the metadata that are loaded now.
            await drained(hosted.meta_lane)
            opened = await self.in_thread(lambda: self._opener.bootstrap(hosted, checked=checked))
        except InvariantViolation:
            raise
        except ReplicaError as error:
            self._fail(hosted, error)
            if is_transient(error):
                self._later.start(self._open_later(hosted))
            return
        finally:
            hosted.opening = False
            self.changed.add(hosted.tablet_id)
        replica = opened.replica
        hosted.superblock, hosted.cmeta, hosted.tablet = opened.superblock, opened.cmeta, opened.tablet
        hosted.log, hosted.replica, hosted.error, hosted.stopped_at = opened.log, replica, "", None
        hosted.unreadable = hosted.waiting = hosted.copied = False
        if opened.tablet is None or opened.log.last.index <= opened.tablet.flush_opid.index:
            hosted.attempts = 0  # nothing is replayed
        self.learn_config(opened.cmeta.committed_config)
        replica.start(campaign=campaign)
        self.learn_config(replica.active_config)
        self.ticker.started(hosted)
        about(_log, hosted.tablet_id, self.uuid).info(
            "[term %d %s] started, log ends at %s",
            replica.term, replica.role, replica.last_logged,
        )  # fmt: skip

    async def _reopen(self, hosted: HostedTablet, replica: Replica) -> None:
        """Open a replica again that stopped because a resource was exhausted."""
        async with hosted.transition:
            if self.stopping or hosted.replica is not replica:
                return
            hosted.waiting, hosted.error = True, replica.error
            about(_log, hosted.tablet_id, self.uuid).warning("stopped, and starts again: %s", replica.error)
            await self.shutdowns.halt(hosted)
            self.changed.add(hosted.tablet_id)
        await self._open_later(hosted)

    async def _open_later(self, hosted: HostedTablet) -> None:
        """Open a tablet again that met a full disk or an exhausted resource, after pauses that grow."""
        await asyncio.sleep(reopen_after_s(hosted.attempts))
        hosted.attempts += 1
        async with hosted.transition:
            waits = hosted.replica is None and hosted.copy is None and hosted.superblock.data_state is DataState.READY
            if waits and not self.stopping and self.tablets.get(hosted.tablet_id) is hosted:
                await self.open(hosted)
            else:
                hosted.waiting = False

    async def settle(self, hosted: HostedTablet) -> None:
        """Apply the startup rules to a tablet: end an unfinished copy as a tombstone, complete a deletion. If the disk
        has no room, try again later."""
        try:
            hosted.superblock = await self.in_thread(lambda: settle_at_startup(self.disk, hosted.superblock))
            self.changed.add(hosted.tablet_id)
        except (Corruption, Refused) as error:
            about(_log, hosted.tablet_id, self.uuid).warning("no whole tombstone yet: %s", error)
            if hosted.superblock.data_state is DataState.COPYING:
                self.copy_failures.failed(hosted.tablet_id, error)  # no other copy is taken meanwhile
            self._later.start(self._settle_later(hosted))

    async def _settle_later(self, hosted: HostedTablet) -> None:
        await asyncio.sleep(REOPEN_AFTER_S)
        async with hosted.transition:
            waits = hosted.copy is None and hosted.superblock.data_state is not DataState.READY
            if waits and not self.stopping and self.tablets.get(hosted.tablet_id) is hosted:
                await self.settle(hosted)

    def _unsettled(self, hosted: HostedTablet, error: Exception) -> None:
        """Note that the startup rules failed for the tablet. If the disk has no room, try again later."""
        hosted.error, hosted.unreadable = str(error), isinstance(error, Corruption) and error.copy_heals
        about(_log, hosted.tablet_id, self.uuid).error("cannot start: %s", error)
        hosted.waiting = isinstance(error, ResourcesExhausted)
        if is_transient(error):
            self._later.start(self._start_later(hosted, hosted.superblock))

    async def _start_later(self, hosted: HostedTablet, blank: Superblock) -> None:
        """Do what `start` does with one tablet, later. If it was deleted or copied anew meanwhile, its superblock is no
        longer `blank`, and nothing is done."""
        await asyncio.sleep(reopen_after_s(hosted.attempts))
        hosted.attempts += 1
        async with hosted.transition:
            waits = hosted.superblock is blank and hosted.copy is None and hosted.replica is None
            if not waits or self.stopping or self.tablets.get(hosted.tablet_id) is not hosted:
                return
            try:
                settled = await self.in_thread(
                    lambda: settle_at_startup(self.disk, Superblock.load(self.disk, hosted.tablet_id))
                )
                hosted.cmeta = await self.in_thread(partial(load_cmeta, self.disk, hosted.tablet_id))
            except (Corruption, Refused) as error:
                self._unsettled(hosted, error)
                return
            hosted.superblock, hosted.error, hosted.waiting = settled, "", False
            self.changed.add(hosted.tablet_id)
            if settled.data_state is DataState.READY:
                await self.open(hosted)

    def damaged(self, hosted: HostedTablet, error: Corruption) -> None:
        """Fail a running replica that lost a block; its peers have the same rows."""
        about(_log, hosted.tablet_id, self.uuid).error("%s", error)
        if hosted.replica is not None:
            hosted.replica.fail(error)

    def _fail(self, hosted: HostedTablet, error: ReplicaError) -> None:
        hosted.error = str(error)
        hosted.unreadable = isinstance(error, Corruption) and error.copy_heals
        hosted.waiting = isinstance(error, ResourcesExhausted)
        hosted.replica = None
        if hosted.waiting:
            again_s = reopen_after_s(hosted.attempts)
            about(_log, hosted.tablet_id, self.uuid).warning("cannot start now, again in %g s: %s", again_s, error)
            return
        about(_log, hosted.tablet_id, self.uuid).error("cannot start, stays offline: %s", error)

    def _replayed(self, tablet_id: str) -> None:
        """Note that the replay is over. Called on the thread that applied the last entry which the start found in the
        log."""
        if not self.stopping:
            self._open_pool.submit(self.replays.forget, tablet_id)
            self.post(lambda: self._started_well(tablet_id))

    def _started_well(self, tablet_id: str) -> None:
        """Reset the count of attempts, after the replay. An earlier reset would keep the pauses short although an entry
        exhausts a resource at each start."""
        if (hosted := self.tablets.get(tablet_id)) is not None:
            hosted.attempts = 0

    def _note_failure(self, hosted: HostedTablet, replica: Replica) -> None:
        if not self.stopping:
            generation, life = hosted.superblock.wal_generation, replica.life
            note = self.replays.note_failure
            self._open_pool.submit(note, hosted.tablet_id, generation, life.failed_index, life.why_failed)

    # -------------------------------------------------------------------------------------------------- stop, delete

    async def delete(
        self, tablet_id: str, cas: OpId | None, reason: str, *, committed: OpId = ZERO_OPID, damaged_only: bool = False
    ) -> None:
        """Make the replica a tombstone; a tombstone stays one. A copy under way is cancelled first.

        `damaged_only`: Refused ILLEGAL_STATE, and nothing changes, unless the replica has failed and a copy would heal
        it. So a repeated order does not delete the copy for which an earlier one made room.

        With `cas`, refused CAS_FAILED if a config later than `cas` is in force here, or if the copy under way is for a
        later config: a delayed deletion must not delete a replica that was added again. A pending config counts only if
        it is also later than `committed`: up to that entry the caller knows that no config after `cas` is committed, so
        an earlier pending config was rolled back. Refused NO_SPACE if the disk is full: the replica is stopped then,
        and the caller asks again. TIMED_OUT if the copy does not end soon. Once it has begun, it goes on even if its
        caller is cancelled.
        """
        work = self._delete(tablet_id, cas, reason, committed=committed, damaged_only=damaged_only)
        await self._later.finish(work)

    async def _delete(
        self, tablet_id: str, cas: OpId | None, reason: str, *, committed: OpId, damaged_only: bool
    ) -> None:
        here = self.get(tablet_id)
        if damaged_only:
            _check_damaged(here)
        hosted: HostedTablet | None = here
        while hosted is not None and hosted.copy is not None:
            _check_config(hosted, cas, committed)
            about(_log, tablet_id, self.uuid).info("a deletion ends its copy: %s", reason or "no reason given")
            await hosted.copy.end()
            hosted = self.tablets.get(tablet_id)
        if hosted is None:
            return  # it was never here, and now it is not created either
        async with hosted.transition:
            if hosted.superblock.data_state is DataState.DELETED:
                return
            if damaged_only:
                _check_damaged(hosted)
            _check_config(hosted, cas, committed)
            about(_log, tablet_id, self.uuid).info("[term %d] deleting: %s", hosted.term, reason or "no reason given")
            hosted.unreadable = hosted.damaged  # if the disk is full, the order comes again
            last = await self.shutdowns.halt_for_deletion(hosted)
            try:
                await self.in_thread(lambda: self.shutdowns.delete_files(hosted, last))
            except Refused as error:
                hosted.error = f"could not be deleted yet: {error}"
                hosted.superblock = await self.in_thread(lambda: Superblock.load(self.disk, tablet_id))
                if hosted.superblock.data_state is DataState.DELETED:  # only files are left to move
                    await self.settle(hosted)
                raise
            finally:
                self.changed.add(tablet_id)


def _check_config(hosted: HostedTablet, cas: OpId | None, committed: OpId) -> None:
    """Refused CAS_FAILED if a later config than `cas`, the one that the caller knows, is in force here."""
    if cas is None:
        return
    known = hosted.cmeta.committed_config.opid if hosted.cmeta is not None else ZERO_OPID
    if hosted.replica is not None:
        known = max(known, hosted.replica.committed_config.opid)  # it may not be in the metadata yet
        pending = hosted.replica.active_config.opid
        if pending > committed:  # otherwise the pending config was rolled back
            known = max(known, pending)
    if hosted.copy is not None:
        known = max(known, hosted.copy.config)
    if known > cas:
        what = "a later config is known here than the caller knows, or being copied"
        raise Refused(Code.CAS_FAILED, what, detail=str(known), tablet=hosted.tablet_id, caller=cas)


def _check_damaged(hosted: HostedTablet) -> None:
    if not hosted.damaged:
        what = "the replica is not one that only a copy can heal"
        raise Refused(Code.ILLEGAL_STATE, what, detail="STATE", tablet=hosted.tablet_id)


def _check_same(hosted: HostedTablet, wanted: Superblock) -> None:
    if hosted.superblock.data_state is DataState.DELETED:
        raise Refused(Code.TABLET_DELETED, "the tablet was deleted here", tablet=wanted.tablet_id)
    if hosted.superblock.table_id not in ("", wanted.table_id):
        raise Refused(Code.ALREADY_EXISTS, "the tablet id belongs to another table", own=hosted.superblock.table_id)
