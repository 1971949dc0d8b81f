"""The catalog's Raft group: opens this master's replica from disk, ticks it, and commits changes."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import lost_file
from nyala.replica.raft import CopyNeeded, RaftOptions
from nyala.replica.raft_driver import Environment, Files, Phase, Replica
from nyala.replica.tablet import Superblock
from nyala.replica.types import (
    Clock,
    Code,
    ConfigEdit,
    Corruption,
    Disk,
    EntryKind,
    HybridClock,
    Member,
    OpId,
    RaftConfig,
    Refused,
    ResourcesExhausted,
    limits,
)
from nyala.replica.types.freshness import time_needed, too_old
from nyala.replica.types.log_records import about
from nyala.replica.wal import WITHHELD_NAME, Log, LogThreads

from ..catalog.catalog import CATALOG_ID, Catalog
from ..catalog.records import Record
from .entries import unfit_entry, unfit_record

_log = logging.getLogger("nyala.master")
T = TypeVar("T")
Change = tuple[Mapping[str, Record], Sequence[str], str, T]
"""(records to put, keys to delete, request id, result)"""
Compute = Callable[[], Change[T]]
First = Callable[[], Awaitable[None]]
ENCODED_INLINE_MAX = 16
"""A change of more records than this is checked and encoded on another thread, because each record takes about 200
function calls."""
FLUSH_PAUSE_S = 5.0
"""The pause after a flush that found the disk full, in seconds. It is long because each flush writes the whole
catalog."""


class CatalogGroup:
    """This master's replica of the catalog.

    Invariants: one change is computed and committed at a time, by a leader that has applied everything before it.
    If the catalog fails, or an unexpected error occurs, `on_fatal` is called, and the process must end. Durability:
    `change` returns after commit and apply. Concurrency: the loop's thread; heavy work in one ordered lane.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        uuid: str,
        first: RaftConfig,
        *,
        send: Callable[[list[tuple[str, Any]]], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """Open the files on `disk`; at the first start the group begins with the config `first`."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._on_fatal = on_fatal
        self._log_threads = LogThreads(1, 1)
        self._lane = ThreadPoolExecutor(max_workers=1, thread_name_prefix="catalog")
        self._lock = asyncio.Lock()
        self._ready_term = -1
        self._flushing, self._flush_after_s = False, 0.0
        self.led = asyncio.Event()
        """Set once this master has led."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self.trouble = ""
        """The known damage of its files, despite which it runs; empty if none is known."""
        self._hybrid_clock = HybridClock(clock)
        self._disk, self._raft_options = disk, RaftOptions()
        self.cmeta = _metadata(disk, uuid, first)
        self.catalog = Catalog.open(disk)
        self.log, replay = Log.open(disk, f"wals/{CATALOG_ID}", CATALOG_ID, threads=self._log_threads)
        if replay.withheld is not None and self.cmeta.committed_config.voters == (uuid,):
            raise self._end_is_lost(replay.withheld)
        self.replica = Replica(
            tablet_id=CATALOG_ID,
            uuid=uuid,
            files=Files(cmeta=self.cmeta, log=self.log, state_machine=self.catalog, unfit=unfit_entry),
            replay=replay,
            environment=Environment(
                hybrid_clock=self._hybrid_clock,
                rng=random.Random(f"{uuid}{clock.wall_us()}"),
                post=self._post,
                run_heavy=self._run_heavy,
                send=send,
                on_copy_needed=self._copy_needed,
                on_fatal=on_fatal,
                on_change=self._changed,
            ),
            raft_options=self._raft_options,
        )

    @staticmethod
    def _end_is_lost(withheld: OpId) -> Corruption:
        return Corruption(
            f"entry {withheld} at the end of the log is damaged or missing, and may have been acknowledged. The only "
            f"master cannot get it again. If there is no backup, remove wals/{CATALOG_ID}/{WITHHELD_NAME}, and start "
            "it: it goes on without that entry"
        )

    @staticmethod
    def exists(disk: Disk) -> bool:
        """Whether this master already belongs to a group."""
        return ConsensusMeta.exists(disk, CATALOG_ID)

    def _changed(self, _tablet_id: str) -> None:
        if self.replica.is_leader:
            self.led.set()
        if self.replica.phase is Phase.FAILED:
            # A master has no other tablet, and without its catalog it would give wrong answers.
            self._on_fatal(Corruption("the catalog's replica has failed", reason=self.replica.error))
        elif self.replica.life.starved:
            # Its files are intact, so the next start opens them.
            self._on_fatal(ResourcesExhausted("the catalog's replica stopped", reason=self.replica.error))

    def _post(self, function: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._guarded, function)

    def _guarded(self, function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - the root of every completion, which somebody awaits
            self._on_fatal(error)

    def _run_heavy(self, function: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def work() -> None:
            result: Any
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001 - handed to the owner, who decides
                result = error
            self._post(lambda: done(result))

        self._lane.submit(work)

    @staticmethod
    def _copy_needed(tablet_id: str, needed: CopyNeeded) -> None:
        text = "master %s cannot be caught up, the log it needs is gone: stop it, `nyala master copy-from`, start it"
        about(_log, tablet_id, peer=needed.peer_uuid).warning(text, needed.peer_uuid)

    async def start(self) -> None:
        """Replay the log and join the group; a single member leads at once."""
        await self._loop.run_in_executor(self._lane, self.replica.bootstrap)
        self.replica.start(campaign=self.replica.committed_config.voters == (self.replica.uuid,))

    def tick(self) -> None:
        """Raft's clock; the owner calls it every `tick_ms`."""
        self._guarded(self.replica.tick)

    @property
    def is_leader(self) -> bool:
        """Whether this master leads, as far as it knows."""
        return bool(self.replica.is_leader)

    @property
    def term(self) -> int:
        """The Raft term, which is the catalog term of this master's decisions while it leads."""
        return int(self.replica.term)

    @property
    def masters(self) -> tuple[Member, ...]:
        """All members of the committed config."""
        return tuple(self.replica.committed_config.members)

    @property
    def in_touch(self) -> frozenset[str]:
        """This leader, and the members that it heard within the longest election timeout. Right after its election all
        members count as heard."""
        peers = self.replica.status().peers
        bound = self._raft_options.election_ticks_max
        return frozenset({self.replica.uuid, *(p.uuid for p in peers if p.last_contact_ticks <= bound)})

    def not_leader(self) -> Refused:
        """The refusal of a request that only the leading master may answer."""
        return Refused(Code.NOT_LEADER, "this master does not lead", detail=self.replica.leader_hint)

    def check_fresh(self, staleness_us: int) -> None:
        """Raise Refused LAGGING unless this follower's catalog has everything that was committed longer ago than that.

        A deposed leader may confirm that until it notices its loss, so the catalog may be older by one longest election
        timeout.
        """
        clock, replica = self._hybrid_clock, self.replica
        needed, time = time_needed(clock.now(), staleness_us, 0), replica.heard_time
        if clock.ahead_of_wall_us() > limits.CLOCK_DIFFERENCE_US_MAX or time < needed:
            raise too_old(clock.now(), time, staleness_us)

    async def ensure_ready(self) -> int:
        """Return the term in which this master leads, after it has applied all earlier entries; otherwise Refused."""
        if not self.is_leader:
            raise self.not_leader()
        if self._ready_term != self.term:
            term = self.term
            await self.confirm()
            self._ready_term = term
        return self.term

    async def confirm(self) -> None:
        """Return when a majority has confirmed this leader and it has applied everything before; otherwise Refused."""
        await self._await(lambda done: self.replica.read_barrier(done))

    async def _await(self, call: Callable[[Callable[[Any], None]], None]) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(result: Any) -> None:
            if future.done():
                return
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

        call(done)
        return await future

    async def change(self, compute: Compute[T], first: First | None = None) -> T:
        """Commit the change that `compute` returns, and return its result once it is applied. `compute` reads the
        catalog with everything committed before, and returns (puts, deletes, request id, result). It may raise Refused,
        and then nothing is changed. If it puts and deletes nothing, nothing is committed. `first` is awaited before
        `compute`, after all other changes have ended.
        """
        return await self._changed_for(lambda: compute, first, aside=False)

    async def change_aside(self, prepare: Callable[[], Compute[T]], first: First | None = None) -> T:
        """As `change`, for a change of thousands of records: `prepare` returns a `compute` that runs on another thread.
        `prepare` may raise Refused, too. `compute` may read only the catalog, and the values that `prepare` took from
        other state."""
        return await self._changed_for(prepare, first, aside=True)

    async def _changed_for(self, prepare: Callable[[], Compute[T]], first: First | None, *, aside: bool) -> T:
        task = self._loop.create_task(self._change(prepare, first, aside=aside))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)  # a caller that goes away must not release the lock before the commit
        except asyncio.CancelledError:
            task.add_done_callback(_caller_left)
            raise

    async def _change(self, prepare: Callable[[], Compute[T]], first: First | None, *, aside: bool) -> T:
        if self._lock.locked() and (refusal := self.replica.without_room) is not None:
            raise refusal  # the change before this one waits for disk space, for an unknown time
        async with self._lock:
            term = await self.ensure_ready()
            if first is not None:
                await first()
            compute = prepare()
            change = await asyncio.to_thread(compute) if aside else compute()
            long = len(change[0]) + len(change[1]) > ENCODED_INLINE_MAX
            meta, result = await asyncio.to_thread(self._encoded, change) if long else self._encoded(change)
            if term != self.term:
                raise self.not_leader()  # entries that another master committed meanwhile were not read
            if meta:
                await self._commit(meta)
            return result

    def unfit(self, key: str, record: Record) -> str:
        """Why `change` would refuse that record; empty if it would not. Pure."""
        return unfit_record(key, self.catalog.written(key, record))

    def _encoded(self, change: Change[T]) -> tuple[bytes, T]:
        """The `meta` of the entry to commit, empty if nothing is to be changed; and the result."""
        puts, deletes, request_id, result = change
        # Every master applies the log at every start. A record that they cannot read would end all of them.
        for key, record in puts.items():
            if why := self.unfit(key, record):
                what = "the masters could not read such a record again; nothing was changed"
                raise Refused(Code.INVALID_ARGUMENT, what, why=why)
        return self.catalog.change(puts, deletes, request_id) if puts or deletes else b"", result

    async def _commit(self, meta: bytes) -> None:
        outcome = await self._await(lambda done: self.replica.write(EntryKind.CATALOG, 0, meta, b"", 0, done))
        error = getattr(outcome, "error", None)
        if error is not None:
            raise error

    def maintain(self, flush_entries: int) -> None:
        """Flush if `flush_entries` have been applied since the last flush, and then remove old segments; one flush at a
        time."""
        behind = self.catalog.applied_opid.index - self.catalog.flush_opid.index
        if behind >= flush_entries and not self._flushing and self._loop.time() >= self._flush_after_s:
            self._flushing = True
            self._run_heavy(self.catalog.flush, self._flushed)

    def _flushed(self, result: Any) -> None:
        self._flushing = False
        if isinstance(result, Refused):
            self._flush_after_s = self._loop.time() + FLUSH_PAUSE_S
            about(_log, CATALOG_ID).warning("the catalog could not be flushed: %s", result)
        elif isinstance(result, BaseException):
            self._on_fatal(result)
        else:
            self.replica.gc()

    async def edit_members(self, edit: ConfigEdit, cas: OpId) -> RaftConfig:
        """Make one edit of the group's config, if the committed one is still `cas`; returns the new one once it is
        committed. Refused as by `raft.RaftCore.propose_config`."""
        config: RaftConfig = await self._await(lambda done: self.replica.change_config([edit], cas, (0, 0), done))
        return config

    async def flushed(self) -> None:
        """Return when every applied entry is durable without the log."""
        await self._loop.run_in_executor(self._lane, self.catalog.flush)

    async def check_files(self) -> tuple[list[str], Corruption | None]:
        """(the small files that were written again from memory, the first segment of the log that is lost)."""
        return await self._loop.run_in_executor(self._lane, self._check_files)

    def _check_files(self) -> tuple[list[str], Corruption | None]:
        repaired = {
            "superblock": self.catalog.repair(),
            "consensus metadata": self.cmeta.repair(),
            "record of the log's end": self.log.repair_record(),
        }
        lost = lost_file(self._disk, self.log.files)
        return [what for what, again in repaired.items() if again], lost

    async def stop(self) -> None:
        """Flush, stop and close; waiting calls fail with an unknown outcome."""
        self.replica.stop()
        await self._loop.run_in_executor(self._lane, self._close)
        self._lane.shutdown(wait=True)

    def _close(self) -> None:
        try:
            self.catalog.flush()
        except Refused as error:
            about(_log, CATALOG_ID).warning("not flushed at stop: %s", error)
        self.log.close()
        self._log_threads.close()


def _caller_left(task: asyncio.Task[object]) -> None:
    """Take the error of a change whose caller no longer waits. A refusal is dropped, because it was for the caller; any
    other error is logged."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, Refused):
        _log.error("a change failed after its caller had left", exc_info=error)


def _metadata(disk: Disk, uuid: str, first: RaftConfig) -> ConsensusMeta:
    """Load the catalog's consensus metadata. They are created only while there is no superblock, so that no vote is
    ever forgotten."""
    if ConsensusMeta.exists(disk, CATALOG_ID):
        return ConsensusMeta.load(disk, CATALOG_ID)
    if Superblock.exists(disk, CATALOG_ID):
        raise Corruption("the catalog's consensus metadata is missing beside its superblock", uuid=uuid)
    return ConsensusMeta.create(disk, CATALOG_ID, uuid, first)
