"""The Scan, Get and Checksum calls: strong reads and snapshots at the leader, stale reads and checksums at any
replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from nyala.replica.fs import exhausted
from nyala.replica.raft_driver import Replica
from nyala.replica.rows import CHECKSUM_DEFINITION
from nyala.replica.rpc import CallBounds, CallsInFlight, pb, predicates_from_pb
from nyala.replica.tablet import Tablet
from nyala.replica.types import (
    Code,
    Corruption,
    DiskFailure,
    HybridClock,
    InvariantViolation,
    Refused,
    limits,
    started_pool,
)
from nyala.replica.types.freshness import time_needed, too_old

from ..runtime.tasks import on_thread
from ..tablets.hosted import HostedTablet
from .request_deadline import RequestDeadline
from .scan_links import ScanLink

TIMEOUT_DEFAULT_S = 30.0
TIMEOUT_MAX_S = 600.0
ASK_LEADER_AGAIN_S = 1.0
PATIENCE_S = 600.0
"""If a reader takes no chunk for this time, its scan ends, so that other scans get its place."""
BATCHES_OF_A_TURN = 16
"""The most batches that a thread sends on one connection before it serves another scan."""
CATCH_UP_S = 1.0
"""The time in which a replica whose data is too old for a read may get newer data before it refuses."""

T = TypeVar("T")

AskLeader = Callable[[Replica, int], Awaitable[None]]
"""Called with a follower of this server and a hybrid time; makes the leader replicate an entry at or above that time.
It does not raise if the leader does not answer."""


async def when(start: Callable[[Callable[[Any], None]], None], timeout_s: float, what: str) -> Any:
    """Return the result that `start(done)` passes to `done`. If that is a Refused, it is raised; TIMED_OUT if none
    comes in time."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    start(lambda result: None if future.done() else future.set_result(result))
    try:
        async with asyncio.timeout(timeout_s):
            result = await future
    except TimeoutError:
        raise Refused(
            Code.TIMED_OUT, f"gave up waiting for {what}: try again, or allow more time", seconds=timeout_s
        ) from None
    if isinstance(result, Refused):
        raise result
    return result


class ReadTime(NamedTuple):
    """The caller's fields about the time of a read; each as in ScanRequest, 0 if absent."""

    timeout_us: int
    propagated_time: int
    staleness_us: int
    snapshot_time: int


class Scans:
    """Reads of all tablets of one server, bounded in number.

    Concurrency: the loop's thread; batches are made in threads of its own, one ahead of the one that is being sent.
    """

    def __init__(
        self,
        hybrid_clock: HybridClock,
        threads: int,
        ask_leader: AskLeader,
        damaged: Callable[[HostedTablet, Corruption], None],
        *,
        quiescing: Callable[[], bool] = lambda: False,
        on_fatal: Callable[[BaseException], None] = lambda error: None,
        catch_up_s: float = CATCH_UP_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`damaged(hosted, error)`: called when a scan finds a damaged block; it fails the replica, and peers heal it.
        `quiescing()`: whether replicas that do not lead refuse new reads. `on_fatal`: called with an error that must
        end the process, if the caller has left; otherwise the error is raised to the caller."""
        self._quiescing = quiescing
        self._on_fatal = on_fatal
        self._hybrid_clock = hybrid_clock
        self._ask_leader = ask_leader
        self._damaged = damaged
        self._catch_up_s = catch_up_s
        self._patience_s = patience_s
        self._pool = started_pool(threads, "scan")
        self._sums = started_pool(max(1, threads // 2), "checksum")
        self._gets = started_pool(max(1, threads // 2), "get")
        self.getting = CallsInFlight(CallBounds(limits.GETS_OPEN_MAX, limits.GETS_OPEN_PER_HOST_MAX), "gets")
        self.open = CallsInFlight(CallBounds(limits.SCANS_OPEN_MAX, limits.SCANS_OPEN_PER_HOST_MAX), "scans")
        of_sums = CallBounds(limits.CHECKSUMS_OPEN_MAX, limits.CHECKSUMS_OPEN_PER_HOST_MAX)
        self.summing = CallsInFlight(of_sums, "checksums")

    async def scan(
        self,
        hosted: HostedTablet,
        request: pb.ScanRequest,
        deadline: RequestDeadline | None = None,
        offer: Callable[[], ScanLink] | None = None,
    ) -> AsyncIterator[pb.ScanChunk]:
        """Yield the chunks of one scan; the first has the Arrow schema, the last is marked. Raises Refused.

        `offer()`: offers a connection for the batches after the first; None: all batches are chunks of the call. The
        task that iterates is cancelled if it takes no chunk, and the connection no bytes, for PATIENCE_S. Threads stop
        within one piece of a block after `deadline` has passed or its caller has left; by default it is the request's
        timeout.
        """
        deadline = deadline or RequestDeadline.of(None, request.timeout_us)
        replica, tablet = hosted.serving(request.table_id)
        with self._reading(self.open, hosted, deadline):
            told = (request.timeout_us, request.propagated_time, request.staleness_us, request.snapshot_time)
            snapshot_time = await self._ready_to_read(replica, ReadTime(*told))
            left = partial(self._left, hosted)
            async for chunk in self._chunks(tablet, request, snapshot_time, deadline, left, offer):
                hosted.rows_read += chunk.rows + chunk.link_rows
                with self._patient():
                    yield chunk

    @contextmanager
    def _patient(self) -> Iterator[None]:
        """Cancel the task if the context lasts longer than a reader may take."""
        reader = asyncio.current_task()
        gone = asyncio.get_running_loop().call_later(self._patience_s, reader.cancel) if reader is not None else None
        try:
            yield
        finally:
            if gone is not None:
                gone.cancel()

    async def get(
        self, hosted: HostedTablet, request: pb.GetRequest, deadline: RequestDeadline | None = None
    ) -> pb.GetReply:
        """Return the rows of some keys. The leader answers; with a staleness, any replica whose data is new enough
        does. Raises Refused."""
        deadline = deadline or RequestDeadline.of(None, request.timeout_us)
        replica, tablet = hosted.serving(request.table_id)

        def found() -> pb.GetReply:
            deadline.stop()
            keys = tablet.keys(request.keys)
            if keys.rows != request.count:
                what = "the request does not say how many keys it has; send their number with them"
                raise Refused(Code.INVALID_ARGUMENT, what, said=request.count, keys=keys.rows)
            columns = None if request.all_columns else request.columns
            rows, time = tablet.get(keys, columns, stop=deadline.stop, snapshot_time=at)
            return pb.GetReply(
                arrow_schema=rows.batch.schema.serialize().to_pybytes(),
                arrow_batch=rows.batch.serialize().to_pybytes(),
                found=rows.found.tolist(),
                answered=rows.answered,
                snapshot_time=time,
            )

        with self._reading(self.getting, hosted, deadline):
            told = (request.timeout_us, request.propagated_time, request.staleness_us, request.snapshot_time)
            at = await self._ready_to_read(replica, ReadTime(*told))
            reply = await on_thread(self._gets, found, partial(self._left, hosted))
            hosted.rows_read += len(reply.found)
            return reply

    def _left(self, hosted: HostedTablet, error: BaseException) -> None:
        """Act on an error that a thread met after its caller had left."""
        if isinstance(error, Corruption):
            self._damaged(hosted, error)
        elif isinstance(error, DiskFailure | InvariantViolation):
            self._on_fatal(error)

    @contextmanager
    def _reading(self, places: CallsInFlight, hosted: HostedTablet, deadline: RequestDeadline) -> Iterator[None]:
        """Take a place for one reader of a replica; Refused OVERLOADED if none is free. If a block is damaged, the
        replica fails. When the context ends, work for the caller ends."""
        with places.one(deadline.host):
            try:
                yield
            except Corruption as error:
                self._damaged(hosted, error)
                raise
            except (OSError, MemoryError) as error:
                raise exhausted(error) or error from error
            finally:
                deadline.leave()

    async def _ready_to_read(self, replica: Replica, request: ReadTime) -> int | None:
        """Wait until this replica may be scanned, and return the time at which to scan; None: the latest applied state.

        For the latest state, it waits for the barrier: then everything acknowledged before this call is applied. For a
        read at a time, it waits at the leader until no entry at or below that time can come any more.
        """
        timeout_s = _timeout(request.timeout_us)
        self.observe(request.propagated_time)
        if request.staleness_us:
            return await self._fresh_enough(replica, request, timeout_s)
        if request.snapshot_time:
            self.observe(request.snapshot_time)
            await when(replica.read_barrier, timeout_s, "the leader's read barrier")
            await when(
                lambda done: replica.wait_safe(request.snapshot_time, done), timeout_s, "the snapshot's time to be safe"
            )
            return int(request.snapshot_time)
        await when(replica.read_barrier, timeout_s, "the leader's read barrier")
        return None

    async def _fresh_enough(self, replica: Replica, request: ReadTime, timeout_s: float) -> int | None:
        """Return the time at which to scan, on any replica. Refused LAGGING if this one does not get data that is new
        enough in time."""
        mine = replica.active_config.member(replica.uuid)
        if mine is not None and not mine.holds_data:
            raise Refused(Code.LAGGING, "this replica is a witness and holds no data")
        if self._quiescing() and not replica.is_leader:
            what = "this server quiesces, and takes no new reads that other replicas can serve: ask another one"
            raise Refused(Code.STEPPING_DOWN, what)
        seen = max(request.propagated_time, request.snapshot_time)
        self.observe(request.snapshot_time)
        if self._hybrid_clock.ahead_of_wall_us() > limits.CLOCK_DIFFERENCE_US_MAX:
            return await self._fresh_by_barrier(replica, request, timeout_s)
        needed = request.snapshot_time or time_needed(self._hybrid_clock.now(), request.staleness_us, seen)
        try:
            await self._wait_safe(replica, needed, min(timeout_s, self._catch_up_s))
        except Refused as error:
            if error.code is not Code.TIMED_OUT and error.code is not Code.NOT_LEADER:
                raise
            raise too_old(self._hybrid_clock.now(), replica.applied_time, request.staleness_us) from error
        return int(request.snapshot_time) or None

    async def _fresh_by_barrier(self, replica: Replica, request: ReadTime, timeout_s: float) -> int | None:
        """As `_fresh_enough`, while hybrid times are ahead of the wall clock. They do not move with the wall clock
        then, so they do not show how old data is. So only the leader answers, by a barrier."""
        if not replica.is_leader:
            ahead_s = round(self._hybrid_clock.ahead_of_wall_us() / 1e6, 3)
            raise Refused(
                Code.LAGGING, "hybrid time is ahead of this server's wall clock: ask the leader", ahead_s=ahead_s
            )
        await when(replica.read_barrier, timeout_s, "the leader's read barrier")
        if request.snapshot_time:
            await self._wait_safe(replica, request.snapshot_time, timeout_s)
        return int(request.snapshot_time) or None

    @property
    def under_way(self) -> int:
        """The number of scans, reads by key and checksums that have not ended yet."""
        return self.open.calls + self.getting.calls + self.summing.calls

    def observe(self, hybrid_time: int) -> None:
        """Push this server's clock above a time that a caller has seen; INVALID_ARGUMENT if it is far in the future."""
        if hybrid_time <= 0:
            return
        limit_us = limits.CLOCK_AHEAD_OF_CALLERS_US_MAX
        if (ahead_us := self._hybrid_clock.ahead_us(hybrid_time)) > limit_us:
            # An error of the caller. To accept the time would push the clocks of all servers ahead for good.
            raise Refused(
                Code.INVALID_ARGUMENT,
                "the time lies in the future: read an earlier one, and see that the clocks of all machines agree",
                ahead_s=round(ahead_us / 1e6, 1),
                limit_s=limit_us / 1e6,
            )
        self._hybrid_clock.observe(hybrid_time)

    async def _chunks(
        self,
        tablet: Tablet,
        request: pb.ScanRequest,
        at: int | None,
        deadline: RequestDeadline,
        left: Callable[[BaseException], None],
        offer: Callable[[], ScanLink] | None,
    ) -> AsyncIterator[pb.ScanChunk]:
        batches: Iterator[Any] | None = None

        def start() -> tuple[bytes, int, Iterator[Any]]:
            deadline.stop()
            columns = None if request.all_columns else tuple(request.columns)
            predicates = predicates_from_pb(request.predicates, deadline.stop)
            piece = (request.slice_pos, request.slice_count) if request.slice_count else (0, 1)
            scan = tablet.scan(
                columns,
                predicates,
                at,
                slice=piece,
                limit=request.limit,
                count_only=request.count_only,
                stop=deadline.stop,
            )
            return scan.schema.serialize().to_pybytes(), scan.snapshot_time, scan

        def following() -> pa.RecordBatch | None:
            return next(batches, None) if batches is not None else None

        def chunk(batch: pa.RecordBatch | None) -> pb.ScanChunk | None:
            if batch is None:
                return None
            message = batch.serialize().to_pybytes()
            return pb.ScanChunk(arrow_batch=message, rows=batch.num_rows, snapshot_time=snapshot_time)

        schema, snapshot_time, batches = await on_thread(self._pool, start, left)
        yield pb.ScanChunk(arrow_schema=schema, snapshot_time=snapshot_time)
        job: Future[Any]
        pending: asyncio.Future[Any]
        told: BaseException | None = None
        link: ScanLink | None = None

        async def ended(work: Callable[[], T]) -> T:
            """Wait for the work of a thread, and return its result. The wait is shielded: if the caller leaves, the
            thread is still in the middle of `batches`."""
            return await asyncio.shield(begun(work))

        def begun(work: Callable[[], T]) -> asyncio.Future[T]:
            nonlocal job, pending
            job = self._pool.submit(work)
            pending = asyncio.wrap_future(job)
            return pending

        begun(lambda: chunk(following()))
        try:
            found = await asyncio.shield(pending)
            if found is not None and offer is not None:
                second = begun(following)
                yield found
                batch = await asyncio.shield(second)
                if batch is not None:
                    link = offer()
                    with self._patient():
                        yield pb.ScanChunk(port=link.port, ticket=link.ticket, snapshot_time=snapshot_time)
                    if await link.wait_opened():
                        done = await ended(lambda: self._linked(link, batch, following, deadline))
                        while not done:
                            with self._patient():
                                await link.writable()
                            done = await ended(lambda: self._linked(link, None, following, deadline))
                        batch = None
                found = await ended(lambda: chunk(batch))
            while found is not None:
                following_one = begun(lambda: chunk(following()))
                yield found
                found = await asyncio.shield(following_one)
        except BaseException as error:
            told = error
            raise
        finally:
            deadline.leave()
            if not job.cancel():
                await asyncio.wait([pending])
                unseen = pending.exception()  # of a batch that no one awaits any more
                if unseen is not None and unseen is not told:
                    left(unseen)
            if link is not None:
                link.close()
            close = getattr(batches, "close", None)
            if close is not None:
                await on_thread(self._pool, close, left)
        yield pb.ScanChunk(snapshot_time=snapshot_time, last=True, link_rows=link.rows if link is not None else 0)

    def _linked(
        self,
        link: ScanLink,
        first: pa.RecordBatch | None,
        following: Callable[[], pa.RecordBatch | None],
        deadline: RequestDeadline,
    ) -> bool:
        """[thread] Send `first` and the batches after it on a connection; returns whether the last batch was sent. It
        returns False as soon as the network takes nothing, and after a number of batches, so that other scans get the
        thread."""
        if first is not None:
            link.put(first)
        for _ in range(BATCHES_OF_A_TURN):
            if not link.send(deadline.stop):
                return False
            batch = following()
            if batch is None:
                return True
            link.put(batch)
        return False

    async def checksum(
        self, hosted: HostedTablet, request: pb.ChecksumRequest, deadline: RequestDeadline | None = None
    ) -> pb.ChecksumReply:
        """Return the checksum of this replica at a time; 0: at its applied time. The replica need not lead. The work
        ends when the caller leaves.

        Refused(INVALID_ARGUMENT) if the caller compares sums of another definition.
        """
        asked = request.definition or 1
        if asked != CHECKSUM_DEFINITION:
            what = "this server and the caller define checksums differently: run the same build on both sides"
            raise Refused(Code.INVALID_ARGUMENT, what, asked=asked, own=CHECKSUM_DEFINITION)
        deadline = deadline or RequestDeadline.of(None, request.timeout_us)
        replica, tablet = hosted.serving()
        snapshot_time = request.snapshot_time
        with self._reading(self.summing, hosted, deadline):
            if snapshot_time:
                self.observe(snapshot_time)
                await self._wait_safe(replica, snapshot_time, _timeout(request.timeout_us))
            reported = snapshot_time or tablet.applied_time
            counted = partial(tablet.checksum, snapshot_time or None, deadline.stop)
            found = await on_thread(self._sums, counted, partial(self._left, hosted))
        low, high = found.total & (1 << 64) - 1, found.total >> 64
        return pb.ChecksumReply(
            checksum=low, checksum_high=high, rows=found.rows, snapshot_time=reported, definition=CHECKSUM_DEFINITION
        )

    async def _wait_safe(self, replica: Replica, snapshot_time: int, timeout_s: float) -> None:
        """Wait until this replica, leader or not, has applied everything up to the time.

        A follower of an idle tablet would wait for ever. So it asks the leader, which then replicates an empty entry
        above the time. It repeats the request, because leaders change.
        """

        async def ask() -> None:
            while True:
                if not replica.is_leader and replica.applied_time < snapshot_time:
                    await self._ask_leader(replica, snapshot_time)
                await asyncio.sleep(ASK_LEADER_AGAIN_S)

        asking = asyncio.create_task(ask())
        try:
            await when(
                lambda done: replica.wait_safe(snapshot_time, done),
                timeout_s,
                "this replica to apply everything up to the time",
            )
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    def close(self, *, wait: bool = False) -> None:
        """Refuse new scans. With `wait`, return when the threads have ended."""
        for pool in (self._pool, self._sums, self._gets):
            pool.shutdown(wait=wait, cancel_futures=True)


def _timeout(timeout_us: int) -> float:
    return min(timeout_us / 1e6, TIMEOUT_MAX_S) if timeout_us > 0 else TIMEOUT_DEFAULT_S
