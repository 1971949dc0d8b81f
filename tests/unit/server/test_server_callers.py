"""Work for a caller ends at the caller's deadline, and when the caller leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from nyala.replica.rows import CHECKSUM_DEFINITION, Predicate
from nyala.replica.rpc import pb, predicate_to_pb
from nyala.replica.server.requests.quarantine import quarantine_purge
from nyala.replica.server.requests.request_deadline import RequestDeadline
from nyala.replica.server.requests.scans import Scans
from nyala.replica.server.tablets.hosted import HostedTablet
from nyala.replica.tablet import superblock_path
from nyala.replica.tablet_copy import SourceSessions
from nyala.replica.types import Code, Corruption, DiskFailure, InvariantViolation, Refused, limits
from tests.harness.copies import TABLET
from tests.harness.patience import patience_s
from tests.harness.rows import SCHEMA
from tests.harness.server_pair import Pair, run_pair, until
from tests.unit.server.test_server_requests_table import KEYS

PIECES = 20
"""Batches in memory: each is a piece of its own for a scan."""
S = 1_000_000


def _never(hosted: HostedTablet, error: Corruption) -> None:
    raise error


class Steps:
    """A clock that stands still, and jumps past every deadline when it is read for the `last`-th time. One who reads it
    goes on to one step of the work: so it counts steps."""

    def __init__(self, last: int) -> None:
        self.read = 0
        self._last = last

    def __call__(self) -> int:
        self.read += 1
        return 3600 * S if self.read >= self._last else 0


class HeldClock:
    """A clock that stands still; who reads it for the `at`-th time waits until the test lets him go on."""

    def __init__(self, at: int) -> None:
        self.read = 0
        self.held, self.go = threading.Event(), threading.Event()
        self._at = at

    def __call__(self) -> int:
        self.read += 1
        if self.read == self._at:
            self.held.set()
            assert self.go.wait(patience_s(60))
        return 0


class Context:
    """The part of gRPC's context of a call that holds its deadline."""

    def __init__(self, left_s: float | None) -> None:
        self._left_s = left_s

    def time_remaining(self) -> float | None:
        return self._left_s

    def peer(self) -> str:
        return "ipv4:10.0.0.1:4711"


@pytest.mark.parametrize(
    "left_s, timeout_us, lasts_s",
    [
        (None, 0, limits.CALLER_STAYS_S_DEFAULT),
        (None, 5 * S, 5),
        (3.0, 0, 3),
        (3.0, 5 * S, 3),
        (9.0, 5 * S, 5),
        (-1.0, 5 * S, 0),
        (None, 2**63 - 1, limits.CALLER_STAYS_S_MAX),
        (None, -1, limits.CALLER_STAYS_S_DEFAULT),
    ],
)
def test_caller_is_waited_for_until_the_earlier_of_its_deadlines(
    left_s: float | None, timeout_us: int, lasts_s: float
) -> None:
    """IN-62. Goal: the earliest of the caller's deadlines and our own bound holds. Method: gRPC's, the request's, both,
    none, and one that is past, at the last microsecond and after it."""
    now = [7 * S]
    caller = RequestDeadline.of(Context(left_s), timeout_us, lambda: now[0])
    if lasts_s:
        now[0] = 7 * S + int(lasts_s * S) - 1
        caller.stop()
    assert caller.host == "10.0.0.1"
    now[0] = 7 * S + int(lasts_s * S)
    with pytest.raises(Refused, match="deadline passed") as caught:
        caller.stop()
    assert caught.value.code is Code.TIMED_OUT


def test_caller_who_left_is_worked_for_no_more() -> None:
    """IN-62. Goal: the work for a request ends when its caller leaves, whatever time is left. Method: no deadline."""
    caller = RequestDeadline.of(None)
    caller.stop()
    caller.leave()
    with pytest.raises(Refused, match="left"):
        caller.stop()


async def _in_pieces(pair: Pair) -> None:
    for key in range(PIECES):
        await pair.put(key)


def _scans(pair: Pair) -> Scans:
    async def nobody_leads(replica: Any, time: int) -> None:
        return

    return Scans(pair.leader.manager.hybrid_clock, 2, nobody_leads, _never)


def _selective(count_only: bool = False) -> Any:
    """A scan that looks at every row and finds none."""
    conditions = [Predicate("k", ">", (10**6,)), Predicate("v", "=", ("nowhere",))]
    wanted = [predicate_to_pb(p, SCHEMA.column(p.column).arrow_type) for p in conditions]
    return pb.ScanRequest(tablet_id=TABLET, all_columns=not count_only, predicates=wanted, count_only=count_only)


Begin = Callable[[Scans, Pair, RequestDeadline], Any]


async def _scan(scans: Scans, pair: Pair, caller: RequestDeadline) -> None:
    async for _ in scans.scan(pair.leader.hosted, _selective(), caller):
        pass


async def _count(scans: Scans, pair: Pair, caller: RequestDeadline) -> None:
    async for _ in scans.scan(pair.leader.hosted, _selective(count_only=True), caller):
        pass


async def _checksum(scans: Scans, pair: Pair, caller: RequestDeadline) -> None:
    request = pb.ChecksumRequest(tablet_id=TABLET, definition=CHECKSUM_DEFINITION)
    await scans.checksum(pair.leader.hosted, request, caller)


@pytest.mark.parametrize("begin", [_scan, _count, _checksum])
def test_nothing_is_evaluated_after_the_deadline(begin: Begin) -> None:
    """IN-62. Goal: a request is not evaluated any further after its deadline. Method: a deadline that passes in the
    middle of a scan that finds nothing, of a count and of a checksum of 20 pieces: not one further step."""

    async def scenario(pair: Pair) -> None:
        await _in_pieces(pair)
        scans, whole, cut = _scans(pair), Steps(10**9), Steps(12)
        try:
            await begin(scans, pair, RequestDeadline(60, whole))
            assert whole.read >= 3 * PIECES, (
                "each piece looks at the deadline before it begins, and twice while it is read"
            )
            with pytest.raises(Refused) as caught:
                await begin(scans, pair, RequestDeadline(60, cut))
            assert caught.value.code is Code.TIMED_OUT and cut.read == 12
        finally:
            scans.close()

    run_pair(scenario)


@pytest.mark.parametrize("begin", [_scan, _count, _checksum])
def test_nothing_more_is_evaluated_once_the_caller_has_left(begin: Begin) -> None:
    """IN-62. Goal: the work for a request ends when its client leaves or is killed. Method: the task of the call is
    cancelled while a thread is in the middle of a step: that step is the last one."""

    async def scenario(pair: Pair) -> None:
        await _in_pieces(pair)
        scans, clock = _scans(pair), HeldClock(12)
        try:
            task = asyncio.create_task(begin(scans, pair, RequestDeadline(60, clock)))
            await until(clock.held.is_set, "a thread is in the middle")
            task.cancel()
            await asyncio.sleep(0)
            clock.go.set()
            await asyncio.wait([task], timeout=patience_s(60))
            assert task.cancelled()
            scans.close(wait=True)
            assert (clock.read, scans.open.calls) == (12, 0)
        finally:
            scans.close()

    run_pair(scenario)


@pytest.mark.deep
def test_checksums_keep_no_reader_waiting_and_no_host_takes_all_places() -> None:
    """IN-60, IN-62. Goal: a checksum reads a whole replica, but neither delays scans nor lets one host take all places
    for checksums. Method: as many checksums of one host as it may have, of which one holds its thread: a scan ends, and
    one more of that host is refused; another host takes the places that are left, and then it is refused too. The first
    goes on: all end."""

    async def scenario(pair: Pair) -> None:
        await _in_pieces(pair)
        scans, clock = _scans(pair), HeldClock(12)
        tasks: list[asyncio.Task[None]] = []

        def begin(host: str, count: int) -> None:
            for _ in range(count):
                caller = RequestDeadline(60, Steps(10**9), host=host)
                tasks.append(asyncio.create_task(_checksum(scans, pair, caller)))

        async def is_refused(host: str) -> None:
            with pytest.raises(Refused, match="too many checksums") as caught:
                await asyncio.wait_for(_checksum(scans, pair, RequestDeadline(60, Steps(10**9), host=host)), 10)
            assert caught.value.code is Code.OVERLOADED

        try:
            tasks.append(asyncio.create_task(_checksum(scans, pair, RequestDeadline(60, clock, host="a"))))
            await until(clock.held.is_set, "a thread is in the middle")
            begin("a", limits.CHECKSUMS_OPEN_PER_HOST_MAX - 1)
            await until(lambda: scans.summing.calls == limits.CHECKSUMS_OPEN_PER_HOST_MAX, "those of one host wait")
            await is_refused("a")
            await _scan(scans, pair, RequestDeadline(60, Steps(10**9), host="a"))
            begin("b", limits.CHECKSUMS_OPEN_MAX - limits.CHECKSUMS_OPEN_PER_HOST_MAX)
            await until(lambda: scans.summing.calls == limits.CHECKSUMS_OPEN_MAX, "all wait")
            await is_refused("b")
            assert not any(task.done() for task in tasks)
            clock.go.set()
            await asyncio.gather(*tasks)
            assert scans.summing.calls == 0
        finally:
            clock.go.set()
            scans.close()

    run_pair(scenario)


def test_scans_of_one_host_leave_places_to_others() -> None:
    """IN-60. Goal: slow scans of one host do not keep out the scans of another host. Method: scans of one host that
    stay at their first chunk, until it has its share; one more of it is refused, and another host's is read."""

    async def scenario(pair: Pair) -> None:
        await _in_pieces(pair)
        scans = _scans(pair)
        request = pb.ScanRequest(tablet_id=TABLET, all_columns=True)
        held = [
            scans.scan(pair.leader.hosted, request, RequestDeadline(60, Steps(10**9), host="a"))
            for _ in range(limits.SCANS_OPEN_PER_HOST_MAX)
        ]
        try:
            for scan in held:
                await anext(scan)
            with pytest.raises(Refused, match="too many scans") as caught:
                await anext(scans.scan(pair.leader.hosted, request, RequestDeadline(60, Steps(10**9), host="a")))
            assert caught.value.code is Code.OVERLOADED
            await _scan(scans, pair, RequestDeadline(60, Steps(10**9), host="b"))
        finally:
            for scan in held:
                await scan.aclose()  # type: ignore[attr-defined]
            assert scans.open.calls == 0
            scans.close()

    run_pair(scenario)


def test_scan_whose_deadline_passed_while_it_waited_for_a_thread_is_not_begun() -> None:
    """IN-62. Goal: a queued scan whose caller's deadline has passed is not started. Method: no time is left when the
    scan gets its thread. The scan asks for a column that does not exist, so it would fail if it were started."""

    async def scenario(pair: Pair) -> None:
        await _in_pieces(pair)
        scans, clock = _scans(pair), Steps(2)
        try:
            chunks, request = [], pb.ScanRequest(tablet_id=TABLET, columns=["gone"])
            with pytest.raises(Refused, match="deadline passed"):
                async for chunk in scans.scan(pair.leader.hosted, request, RequestDeadline(60, clock)):
                    chunks.append(chunk)
            assert (clock.read, chunks) == (2, [])
        finally:
            scans.close()

    run_pair(scenario)


def test_long_list_of_values_is_read_and_evaluated_on_the_threads_of_scans() -> None:
    """IN-60. Goal: a large but legal condition does not hold up the event loop. Method: as many values as a scan may
    have; which threads its steps are taken on, of which the first is the loop's, that only looks at the clock."""

    async def scenario(pair: Pair) -> None:
        await _in_pieces(pair)
        scans, threads = _scans(pair), []

        def clock() -> int:
            threads.append(threading.current_thread().name.partition("_")[0])
            return 0

        wanted = Predicate("k", "in", tuple(range(3, 3 + limits.SCAN_VALUES_MAX)))
        request = pb.ScanRequest(
            tablet_id=TABLET, count_only=True, predicates=[predicate_to_pb(wanted, SCHEMA.column("k").arrow_type)]
        )
        try:
            caller = RequestDeadline(60, clock)
            chunks = [c async for c in scans.scan(pair.leader.hosted, request, caller)]
            assert [c.rows for c in chunks] == [0, 1, 0]
            assert len(threads) > PIECES and set(threads[1:]) == {"scan"}
        finally:
            scans.close()

    run_pair(scenario)


class Opened(SourceSessions):
    """Sessions that tell how the opening of each ended, and hold the thread of one that was opened."""

    ended: list[Refused | None]
    go: threading.Event

    def open(self, *args: Any, **options: Any) -> Any:
        try:
            session = super().open(*args, **options)
        except Refused as error:
            self.ended.append(error)
            raise
        self.ended.append(None)
        assert self.go.wait(patience_s(60))
        return session


@pytest.mark.parametrize("when", ["while it is opened", "when it is open"], ids=["opening", "open"])
def test_session_of_a_copy_whose_caller_left_is_ended(when: str) -> None:
    """IN-62. Goal: a copy session whose caller leaves while it is opened is ended at once. Method: the caller leaves
    while a thread opens the session, which then reads no more of the log and gives up; or when the thread has opened
    it, and then it is ended long before it would expire."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1, 2)
        server = pair.leader
        held, go = threading.Event(), threading.Event()
        sessions = Opened(server.manager.clock)
        sessions.ended, sessions.go = [], go
        server.manager.sessions = sessions

        def hook(operation: str, path: str) -> None:
            if threading.current_thread().name.startswith("copy-begin") and when == "while it is opened":
                held.set()
                assert go.wait(patience_s(60))

        pair.cut = False
        server.disk.hook = hook
        request = pb.BeginCopyRequest(dest_uuid=server.uuid, requestor_uuid="c" * 32, tablet_id=TABLET)
        task = asyncio.create_task(server.copies.BeginCopy(request, None))
        await until(lambda: held.is_set() or sessions.ended == [None], "the session is being opened")
        task.cancel()
        await asyncio.wait([task], timeout=patience_s(60))
        assert task.cancelled()
        go.set()
        await until(lambda: bool(sessions.ended), "the work for it has ended")
        (error,) = sessions.ended
        assert (error is None) is (when == "when it is open") and (error is None or "the caller left" in error.what)
        await until(lambda: not sessions.sessions() and not sessions._opening, "it is ended")

    run_pair(scenario)


def test_copy_begins_where_the_attempt_before_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """TC-11. Goal: a source whose disk is so slow that it cannot read its log while a target waits is not refused for
    good. Method: targets that leave after three pieces of the log until one gets its session: each piece is read once.
    The next copy reads all of them."""
    monkeypatch.setattr(limits, "COPY_CHUNK_BYTES", 128)

    async def scenario(pair: Pair) -> None:
        for key in range(20):
            await pair.put(key, key)
        server, pair.cut = pair.leader, False
        reads: list[str] = []
        held, go = threading.Event(), threading.Event()

        def hook(operation: str, path: str) -> None:
            if operation == "pread" and threading.current_thread().name.startswith("copy-begin"):
                reads.append(path)
                if len(reads) % 3 == 0:
                    held.set()
                    assert go.wait(patience_s(60))

        server.disk.hook = hook
        request = pb.BeginCopyRequest(dest_uuid=server.uuid, requestor_uuid="c" * 32, tablet_id=TABLET)
        attempts = 0
        while True:
            attempts += 1
            task = asyncio.create_task(server.copies.BeginCopy(request, None))
            await until(lambda task=task: held.is_set() or task.done(), "three more pieces, or all")
            if task.done():
                break
            task.cancel()
            await asyncio.wait([task], timeout=patience_s(60))
            held.clear()
            go.set()
            await until(lambda: not server.manager.sessions._opening, "the attempt is over")
            go.clear()
            assert attempts < 100
        assert task.result().session_id and attempts > 3
        once = len(reads)
        go.set()
        assert (await server.copies.BeginCopy(request, None)).session_id
        assert len(reads) == 2 * once > 0

    run_pair(scenario)


def test_purge_whose_caller_left_ends_before_the_tablet_does_anything_else() -> None:
    """IN-62. Goal: a purge of quarantines whose caller leaves removes no more, and nothing else happens to the tablet
    until then. Method: the caller leaves while a thread reads a superblock: another purge is refused; when the thread
    goes on it ends, and the quarantine is still there."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1, 2)
        server = pair.leader
        disk, held, go = server.disk, threading.Event(), threading.Event()
        disk.mkdir(f"quarantine/{TABLET}-000009")

        def hook(operation: str, path: str) -> None:
            if path.startswith("tablet-meta/") and threading.current_thread() is not threading.main_thread():
                held.set()
                assert go.wait(patience_s(60))

        disk.hook = hook
        task = asyncio.create_task(quarantine_purge(server.manager, TABLET, RequestDeadline(600)))
        await until(held.is_set, "it is under way")
        task.cancel()
        await asyncio.wait([task], timeout=patience_s(60))
        assert task.cancelled()
        with pytest.raises(Refused, match="in transition"):
            await quarantine_purge(server.manager, TABLET, RequestDeadline(600))
        go.set()
        hosted = server.manager.get(TABLET)
        await until(lambda: not hosted.transition.locked(), "it has ended")
        assert disk.listdir("quarantine") == [f"{TABLET}-000009"]
        purged = await quarantine_purge(server.manager, TABLET, RequestDeadline(600))
        assert list(purged.removed) == [f"quarantine/{TABLET}-000009"]

    run_pair(scenario)


@pytest.mark.parametrize("tablet_id", [TABLET, "never-here"])
def test_purge_of_a_tablet_without_a_superblock_is_an_answer(tablet_id: str) -> None:
    """TC-45, IN-21. Goal: a purge of a tablet whose superblock is lost removes nothing and ends no server; when the
    superblock is back, the purge goes on. Method: the file is removed below a running replica; so is none, of a tablet
    that was never here."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1, 2)
        server = pair.leader
        server.disk.mkdir(f"quarantine/{TABLET}-000009")
        server.disk.remove(superblock_path(TABLET))
        with pytest.raises(Refused, match="nothing was removed") as refused:
            await quarantine_purge(server.manager, tablet_id, RequestDeadline(600))
        assert refused.value.code is Code.TABLET_NOT_FOUND
        assert server.disk.listdir("quarantine") == [f"{TABLET}-000009"]
        assert server.manager.get(TABLET).repair_superblock(server.disk)
        purged = await quarantine_purge(server.manager, TABLET, RequestDeadline(600))
        assert list(purged.removed) == [f"quarantine/{TABLET}-000009"]

    run_pair(scenario)


def test_purge_of_more_than_one_purge_removes_says_what_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    """TC-45. Goal: the reply to a purge says how much another purge removes. Method: three quarantines, two at most."""
    monkeypatch.setattr(limits, "QUARANTINE_PURGED_MAX", 2)

    async def scenario(pair: Pair) -> None:
        for number in range(1, 4):
            pair.leader.disk.mkdir(f"quarantine/{TABLET}-{number:06}")
        replies = [await quarantine_purge(pair.leader.manager, TABLET, RequestDeadline(600)) for _ in range(2)]
        assert [(len(reply.removed), reply.remaining) for reply in replies] == [(2, 1), (1, 0)]

    run_pair(scenario)


class BreakingClock(HeldClock):
    """A clock that stands still, and raises when it is read for the `at`-th time, as a thread does that finds damage
    there; with `hold` it waits before that."""

    def __init__(self, at: int, error: Exception, *, hold: bool) -> None:
        super().__init__(at if hold else 0)
        self._error, self._breaks_at = error, at

    def __call__(self) -> int:
        now = super().__call__()
        if self.read == self._breaks_at:
            raise self._error
        return now


async def _get(scans: Scans, pair: Pair, caller: RequestDeadline) -> None:
    await scans.get(pair.leader.hosted, pb.GetRequest(tablet_id=TABLET, all_columns=True, keys=KEYS, count=2), caller)


CALLS: dict[str, tuple[Begin, int]] = {
    "scan that begins": (_scan, 2),
    "scan under way": (_scan, 12),
    "count": (_count, 12),
    "read by key": (_get, 2),
    "checksum": (_checksum, 12),
}
"""A call, and the number of the look at its caller's deadline where its thread finds something; the first look is that
of the call itself."""


@pytest.mark.a_third
@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize(
    "error", [Corruption("damaged"), DiskFailure("EIO"), InvariantViolation("ours"), Refused(Code.NOT_FOUND, "gone")]
)
@pytest.mark.parametrize("call", CALLS)
def test_damage_that_a_read_finds_is_acted_on_although_its_caller_left(
    call: str, error: Exception, leaves: bool
) -> None:
    """IN-62, IN-21. Goal: a damaged block that a read finds fails the replica, so that its peers heal it, and a failing
    disk ends the process, whether or not the caller still waits. Method: the thread of each kind of read raises each
    kind of error, for a caller that stays and one that has left: damage is told once; what ends the process is told for
    the one that left, because the call itself tells it for the other."""

    async def scenario(pair: Pair) -> None:
        await _in_pieces(pair)
        damaged: list[tuple[HostedTablet, Corruption]] = []
        fatal: list[BaseException] = []

        async def nobody_leads(replica: Any, time: int) -> None:
            return

        hybrid = pair.leader.manager.hybrid_clock
        scans = Scans(hybrid, 2, nobody_leads, lambda *told: damaged.append(told), on_fatal=fatal.append)
        begin, at = CALLS[call]
        clock = BreakingClock(at, error, hold=leaves)
        try:
            task = asyncio.create_task(begin(scans, pair, RequestDeadline(60, clock)))
            if leaves:
                await until(clock.held.is_set, "a thread is in the middle")
                task.cancel()
                await asyncio.sleep(0)
                clock.go.set()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled() if leaves else outcome is error
            scans.close(wait=True)
            ends = isinstance(error, DiskFailure | InvariantViolation)
            await until(lambda: bool(damaged or fatal or isinstance(error, Refused) or not leaves), "it is told")
            for _ in range(5):
                await asyncio.sleep(0)
            assert damaged == ([(pair.leader.hosted, error)] if isinstance(error, Corruption) else [])
            assert fatal == ([error] if ends and leaves else [])
        finally:
            scans.close()

    run_pair(scenario)


def test_damage_in_the_batch_after_the_last_that_a_reader_took_is_acted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-62, IN-21. Goal: a scan reads one batch ahead; damage in that one counts although nobody takes it. Method: a
    reader takes the first of two batches, waits until the next one has failed, and leaves."""
    error, broken = Corruption("damaged"), threading.Event()

    class TwoBatches:
        """Rows of a scan: a batch, and then damage."""

        schema, snapshot_time = SCHEMA.arrow, 7

        def __init__(self) -> None:
            self._left = [pa.RecordBatch.from_pylist([{"k": 1, "v": "a"}], schema=self.schema)]

        def __next__(self) -> Any:
            if self._left:
                return self._left.pop()
            broken.set()
            raise error

    async def scenario(pair: Pair) -> None:
        await pair.put(1)
        damaged: list[Corruption] = []

        async def nobody_leads(replica: Any, time: int) -> None:
            return

        scans = Scans(pair.leader.manager.hybrid_clock, 2, nobody_leads, lambda _, error: damaged.append(error))
        monkeypatch.setattr(pair.leader.hosted.tablet, "scan", lambda *_, **__: TwoBatches())
        chunks = scans.scan(pair.leader.hosted, pb.ScanRequest(tablet_id=TABLET, all_columns=True))
        async for chunk in chunks:
            if chunk.rows:
                break
        await until(broken.is_set, "the next one has failed")
        await chunks.aclose()  # type: ignore[attr-defined]
        await until(lambda: bool(damaged), "it is told")
        assert damaged == [error] and scans.open.calls == 0
        scans.close()

    run_pair(scenario)


def test_failing_disk_is_acted_on_although_the_caller_of_the_work_left() -> None:
    """IN-62. Goal: no work on the files of a tablet loses an error that ends the process. Method: work on the manager's
    threads fails after its caller has left, and with its caller; a refusal is told to the caller alone."""

    async def scenario(pair: Pair) -> None:
        manager, fatal = pair.leader.manager, list[BaseException]()
        pool, one_thread = manager._open_pool, ThreadPoolExecutor(1)
        manager.on_fatal, manager._open_pool = fatal.append, one_thread
        for error in (DiskFailure("EIO"), InvariantViolation("ours"), Refused(Code.NO_SPACE, "full")):
            for leaves in (False, True):
                fatal.clear()
                begun, go = threading.Event(), threading.Event()

                def work(error: Exception = error, begun: Any = begun, go: Any = go) -> None:
                    begun.set()
                    assert go.wait(patience_s(60))
                    raise error

                task = asyncio.create_task(manager.in_thread(work))
                await until(begun.is_set, "it has begun")
                if leaves:
                    task.cancel()
                    await asyncio.wait([task])
                go.set()
                await asyncio.gather(task, return_exceptions=True)
                await manager.in_thread(lambda: None)  # on the same thread, so that the other has ended
                assert fatal == ([] if isinstance(error, Refused) else [error])
        manager._open_pool = pool
        one_thread.shutdown()

    run_pair(scenario)
