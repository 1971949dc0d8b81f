"""The threads that the logs of a process share: their number, the order of turns, and logs that do not hold others
up."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from nyala.replica.types import DiskFailure, InvariantViolation, OpId, Refused, ResourcesExhausted, limits
from nyala.replica.wal import Log, LogThreads, Reservation, WalOptions
from nyala.replica.wal.format import EncodedEntry
from nyala.replica.wal.recovery import TEMP_NAME
from tests.harness.patience import patience_s
from tests.harness.sim_disk import SimDisk
from tests.harness.wal_entries import SMALL, TABLET, Outcomes, append_now, entry, open_log

WAIT_S = patience_s(30)


class Held:
    """A disk whose calls of one operation wait for `gate`, if the file's path ends so."""

    def __init__(self, operation: str = "pwrite", end: str = "wal-000000001") -> None:
        self.disk, self.gate, self.begun = SimDisk(), threading.Event(), threading.Event()
        self._what = operation, end
        self.by: list[threading.Thread] = []

    def hold(self) -> None:
        """From now on."""
        self.disk.hook = self._hook

    def _hook(self, operation: str, path: str) -> None:
        if operation == self._what[0] and path.endswith(self._what[1]):
            self.by.append(threading.current_thread())
            self.begun.set()
            assert self.gate.wait(2 * WAIT_S), "a test that waits for others is over before"


def opened(threads: LogThreads, disk: SimDisk, options: WalOptions = SMALL, folder: str = "wals/a") -> Log:
    return Log.open(disk, folder, TABLET, options, threads=threads)[0]


def appended(log: Log, index: int, payload: bytes | None = None) -> Outcomes:
    outcomes = Outcomes()
    log.append([entry(index, payload)], outcomes)
    return outcomes


@contextmanager
def threads_of(appending: int, preallocating: int = 1) -> Iterator[LogThreads]:
    """Threads that have ended afterwards."""
    others = set(threading.enumerate())
    threads = LogThreads(appending, preallocating)
    own = set(threading.enumerate()) - others
    assert len(own) == appending + preallocating
    yield threads
    threads.close()
    for thread in own:
        thread.join(WAIT_S)
        assert not thread.is_alive()


@pytest.mark.deep
def test_three_hundred_logs_share_a_bounded_number_of_threads() -> None:
    """CN-09. Goal: the number of threads does not grow with the number of logs. Method: 300 logs are written at once,
    with more than one segment; each call of the disk counts the threads."""
    others, disk, counts = set(threading.enumerate()), SimDisk(), set[int]()
    threads, outcomes = LogThreads(), Outcomes()
    own = len(set(threading.enumerate()) - others)
    assert own == limits.WAL_APPENDING_THREADS + limits.WAL_PREALLOCATING_THREADS == 68
    disk.hook = lambda *_: counts.add(len(set(threading.enumerate()) - others))
    logs = [opened(threads, disk, folder=f"wals/{number}") for number in range(300)]
    for index in range(1, 8):
        for log in logs:
            log.append([entry(index, bytes(1500))], outcomes)
        outcomes.wait_for(index * 300)
    assert set(map(type, outcomes.results)) == {OpId} and counts == {own}
    for log in logs:
        log.close()
    assert all(log.last == OpId(1, 7) for log in logs) and disk.count("preallocate") >= 600
    threads.close()


def test_log_under_way_is_given_to_no_second_thread() -> None:
    """CN-09. Goal: one thread at a time appends to a log, whatever comes meanwhile, and in order. Method: a write is
    held, with a second entry behind it: no thread is to take the log, but another log is served; then both are
    durable."""
    with threads_of(3) as threads:
        held, outcomes = Held(), Outcomes()
        log, other = opened(threads, held.disk), opened(threads, SimDisk())
        held.hold()
        log.append([entry(1)], outcomes)
        assert held.begun.wait(WAIT_S)
        log.append([entry(2)], outcomes)
        assert not threads.appending._turns
        assert appended(other, 1).wait_for(1) == [OpId(1, 1)]
        held.gate.set()
        assert outcomes.wait_for(2) == [OpId(1, 1), OpId(1, 2)]
        log.close()
        other.close()
        assert len(held.by) == 2, "two group commits"


def test_log_with_more_to_do_goes_behind_those_that_wait() -> None:
    """CN-09. Goal: a log that is never idle does not keep a thread. Method: one thread, whose log's first write is held
    while the same log and two others have more to append: the others come first, in their order."""
    with threads_of(1) as threads:
        held, order = Held(), queue.SimpleQueue[str]()
        log, *others = opened(threads, held.disk), opened(threads, SimDisk()), opened(threads, SimDisk())
        held.hold()
        log.append([entry(1)], lambda _: order.put("first of the busy log"))
        assert held.begun.wait(WAIT_S)
        log.append([entry(2)], lambda _: order.put("second of the busy log"))
        for number, other in enumerate(others):
            other.append([entry(1)], lambda _, number=number: order.put(f"log {number}"))
        held.gate.set()
        told = [order.get(timeout=WAIT_S) for _ in range(4)]
        assert told == ["first of the busy log", "log 0", "log 1", "second of the busy log"]
        for each in (log, *others):
            each.close()


def test_log_with_a_slow_or_failing_disk_leaves_the_others_alone() -> None:
    """CN-08. Goal: a log whose sync hangs, and then fails, takes one thread, and that only until it has failed. Method:
    two threads: one log's sync is held; others go on with the second thread; the sync fails; then with both."""
    with threads_of(2) as threads:
        held = Held("datasync")
        log, others = opened(threads, held.disk), [opened(threads, SimDisk()) for _ in range(3)]
        assert appended(log, 1).wait_for(1) == [OpId(1, 1)]
        held.hold()
        outcomes = appended(log, 2)
        assert held.begun.wait(WAIT_S)
        for index in (1, 2, 3):
            for other in others:
                assert appended(other, index).wait_for(1) == [OpId(1, index)]
        held.disk.fail_on("datasync", "*")
        held.gate.set()
        assert isinstance(outcomes.wait_for(1)[0], DiskFailure)
        with pytest.raises(DiskFailure):
            log.reserve([entry(3)])
        second = Held()
        waiting = opened(threads, second.disk)
        second.hold()
        late = appended(waiting, 1)
        assert second.begun.wait(WAIT_S)
        assert appended(others[0], 4).wait_for(1) == [OpId(1, 4)], "the thread of the log that failed works on"
        second.gate.set()
        assert late.wait_for(1) == [OpId(1, 1)]
        for each in (log, waiting, *others):
            each.close()


def test_close_waits_for_the_write_under_way_and_appends_what_is_ready() -> None:
    """CN-08, CN-21. Goal: a log is closed after its last entry, not beside it, and each callback comes before the end
    of the close. Method: a write is held with one more entry ready and one reserved; a second thread closes the log;
    it waits, and afterwards nothing is open and two entries are durable."""
    with threads_of(2) as threads:
        held, outcomes, waits = Held(), Outcomes(), threading.Event()
        log = opened(threads, held.disk)
        held.hold()
        log.append([entry(1)], outcomes)
        assert held.begun.wait(WAIT_S)
        log.append([entry(2)], outcomes)
        late, told = log.reserve([entry(3)]), queue.SimpleQueue[list[object]]()
        wait = log._state.wait

        def watched(timeout: float | None = None) -> bool:
            waits.set()
            return wait(timeout)

        def close() -> None:
            log.close()
            told.put(list(outcomes.results))

        log._state.wait = watched  # type: ignore[method-assign]
        closer = threading.Thread(target=close, daemon=True)
        closer.start()
        assert waits.wait(WAIT_S) and outcomes.results == []
        with pytest.raises(Refused, match="closed"):
            log.reserve([entry(4)])
        held.gate.set()
        assert told.get(timeout=WAIT_S) == [OpId(1, 1), OpId(1, 2)]
        closer.join(WAIT_S)
        log.append_async(late, outcomes)
        assert isinstance(outcomes.results[2], Refused) and not any(held.disk.handles.values())
        assert held.by[0] is not closer and held.by[1] is closer
        assert [e.opid.index for e in open_log(held.disk, folder="wals/a")[1]] == [1, 2]


def test_close_does_not_wait_for_a_thread_that_other_logs_keep() -> None:
    """CN-08. Goal: a log that waits for its turn is closed at once, with what is ready; its turn then comes for
    nothing. Method: the only thread is held by one log while another, with an entry, is closed. The write of this close
    is held, too, while the next entry is handed over and the first log goes on: the thread serves a third log, and the
    late entry is refused."""
    with threads_of(1) as threads:
        held, closing, told = Held(), Held(), queue.SimpleQueue[str]()
        slow, log, third = opened(threads, held.disk), opened(threads, closing.disk), opened(threads, SimDisk())
        held.hold()
        closing.hold()
        first = appended(slow, 1)
        assert held.begun.wait(WAIT_S)
        outcomes = appended(log, 1)
        late = log.reserve([entry(2)])

        def close() -> None:
            log.close()
            told.put("closed")

        threading.Thread(target=close, daemon=True).start()
        assert closing.begun.wait(WAIT_S)
        log.append_async(late, outcomes)
        held.gate.set()
        assert first.wait_for(1) == [OpId(1, 1)] and appended(third, 1).wait_for(1) == [OpId(1, 1)]
        closing.gate.set()
        assert told.get(timeout=WAIT_S) == "closed"
        assert outcomes.results[0] == OpId(1, 1) and isinstance(outcomes.results[1], Refused)
        slow.close()
        third.close()


def watch_waits(log: Log, told: queue.SimpleQueue[str]) -> None:
    """Put "waits" each time that a thread begins to wait for the log."""
    wait = log._state.wait

    def watched(timeout: float | None = None) -> bool:
        told.put("waits")
        return wait(timeout)

    log._state.wait = watched  # type: ignore[method-assign]


def begin(told: queue.SimpleQueue[str], function: Callable[[], object], then: str) -> None:
    """Call it in a thread, and put `then` when it has returned."""

    def run() -> None:
        function()
        told.put(then)

    threading.Thread(target=run, daemon=True).start()


def test_close_waits_for_the_callbacks() -> None:
    """CN-08. Goal: after a close, no callback comes. Method: a callback is held while the log is closed."""
    with threads_of(1) as threads:
        log, gate, told = opened(threads, SimDisk()), threading.Event(), queue.SimpleQueue[str]()

        def callback(_: object) -> None:
            told.put("called")
            assert gate.wait(WAIT_S)

        log.append([entry(1)], callback)
        assert told.get(timeout=WAIT_S) == "called"
        watch_waits(log, told)
        begin(told, log.close, "closed")
        assert told.get(timeout=WAIT_S) == "waits"
        gate.set()
        assert told.get(timeout=WAIT_S) == "closed"


def test_drain_waits_for_the_turn_of_the_log() -> None:
    """Goal: `drain` returns after the group commit, also if no thread has begun it. Method: the only thread is held by
    another log."""
    with threads_of(1) as threads:
        held, told = Held(), queue.SimpleQueue[str]()
        slow, log = opened(threads, held.disk), opened(threads, SimDisk())
        held.hold()
        slow.append([entry(1)], Outcomes())
        assert held.begun.wait(WAIT_S)
        outcomes = appended(log, 1)
        watch_waits(log, told)
        begin(told, log.drain, "drained")
        assert told.get(timeout=WAIT_S) == "waits"
        held.gate.set()
        assert told.get(timeout=WAIT_S) == "drained" and outcomes.wait_for(1) == [OpId(1, 1)]
        slow.close()
        log.close()


def test_writer_that_waits_for_room_goes_on_before_the_callbacks() -> None:
    """Goal: a writer goes on as soon as the entries before its own are durable, however long their callbacks take.
    Method: a queue with room for one entry; the second writer waits while the first entry is written, and is through
    while the callback of that entry is held."""
    with threads_of(1) as threads:
        held, told, gate = Held(), queue.SimpleQueue[str](), threading.Event()
        log = opened(threads, held.disk, WalOptions(queue_bytes_max=1000))
        held.hold()
        log.append([entry(1, bytes(900))], lambda _: told.put("called") if gate.wait(WAIT_S) else None)
        assert held.begun.wait(WAIT_S)
        watch_waits(log, told)
        begin(told, lambda: log.reserve([entry(2, bytes(900))]), "reserved")
        assert told.get(timeout=WAIT_S) == "waits"
        held.gate.set()
        assert told.get(timeout=WAIT_S) == "reserved"
        gate.set()
        assert told.get(timeout=WAIT_S) == "called"
        log.close()


def test_writer_that_waits_for_room_hears_that_the_log_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """CN-08. Goal: no writer waits for ever for room in a log that ended. Method: the entry that takes all the room is
    one that does not serialise, while another writer waits."""

    def fails(*_: object, **__: object) -> EncodedEntry:
        raise ValueError("no entry")

    with threads_of(1) as threads:
        log, told = opened(threads, SimDisk(), WalOptions(queue_bytes_max=1000)), queue.SimpleQueue[str]()
        first = log.reserve([entry(1, bytes(900))])

        def second() -> None:
            with pytest.raises(InvariantViolation, match="does not serialise"):
                log.reserve([entry(2, bytes(900))])

        watch_waits(log, told)
        begin(told, second, "refused")
        assert told.get(timeout=WAIT_S) == "waits"
        monkeypatch.setattr("nyala.replica.wal.log.encode_entry", fails)
        with pytest.raises(ValueError, match="no entry"):
            log.append_async(first, Outcomes())
        assert told.get(timeout=WAIT_S) == "refused"
        log.close()


def test_second_close_waits_for_what_the_first_one_appends() -> None:
    """CN-08. Goal: the files are not closed before the last group commit. Method: the only thread is held by another
    log; a close is held before it appends what is ready, while a second one begins."""
    with threads_of(1) as threads:
        held, told, gate = Held(), queue.SimpleQueue[str](), threading.Event()
        slow, log = opened(threads, held.disk), opened(threads, SimDisk())
        held.hold()
        slow.append([entry(1)], Outcomes())
        assert held.begun.wait(WAIT_S)
        outcomes, commit = appended(log, 1), log._commit

        def held_commit(batch: list[Reservation]) -> None:
            told.put("commits")
            assert gate.wait(WAIT_S)
            commit(batch)

        log._commit = held_commit  # type: ignore[method-assign]
        begin(told, log.close, "closed")
        assert told.get(timeout=WAIT_S) == "commits"
        watch_waits(log, told)
        begin(told, log.close, "closed")
        assert told.get(timeout=WAIT_S) == "waits"
        gate.set()
        for _ in range(2):
            while told.get(timeout=WAIT_S) != "closed":
                pass
        assert outcomes.results == [OpId(1, 1)]
        held.gate.set()
        slow.close()


def test_log_is_not_closed_within_one_of_its_callbacks() -> None:
    """Goal: a callback that would wait for itself is told so. Method: it closes its log; afterwards the log can be
    closed."""
    with threads_of(1) as threads:
        log, told = opened(threads, SimDisk()), queue.SimpleQueue[BaseException]()

        def close(_: object) -> None:
            try:
                log.close()
            except BaseException as error:  # noqa: BLE001
                told.put(error)

        log.append([entry(1)], close)
        assert "a callback of the log cannot close it" in str(told.get(timeout=WAIT_S))
        log.close()


def test_segment_without_which_a_log_cannot_go_on_is_made_at_once() -> None:
    """CN-19. Goal: the first append of a log does not wait for the preallocations of others. Method: the only thread
    that preallocates is held by one log, which goes on in its first segment; a new log's first entry is durable."""
    with threads_of(1) as threads:
        held = Held("preallocate", TEMP_NAME)
        log, other = opened(threads, held.disk), opened(threads, SimDisk())
        assert appended(log, 1).wait_for(1) == [OpId(1, 1)]
        held.hold()
        assert appended(log, 2, bytes(5000)).wait_for(1) == [OpId(1, 2)]
        assert held.begun.wait(WAIT_S)
        assert appended(log, 3).wait_for(1) == [OpId(1, 3)]
        assert appended(other, 1).wait_for(1) == [OpId(1, 1)]
        held.gate.set()
        log.close()
        other.close()
        assert held.by[0].name.startswith("wal-prealloc")


@pytest.mark.parametrize("started", [0, 2, 3])
def test_process_whose_threads_cannot_all_be_started_does_not_begin(
    started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-30. Goal: a want of threads is known before any log is open, not at an append. Method: some threads can be
    started, the next one cannot: the error says what to raise."""
    start, left = threading.Thread.start, [None] * started

    def maybe(thread: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", maybe)
    with pytest.raises(ResourcesExhausted, match="ulimit -u"):
        LogThreads(3, 1)


def test_log_without_threads_is_appended_to_by_its_callers() -> None:
    """Goal: tools and simulations need no threads. Method: an entry is durable after `drain`, one after `close`, and no
    thread was started."""
    before, log = threading.active_count(), Log.open(SimDisk(), "wals/a", TABLET, SMALL)[0]
    assert append_now(log, [entry(1)]).durable == [OpId(1, 1)]
    outcomes = appended(log, 2)
    log.close()
    assert outcomes.results == [OpId(1, 2)] and threading.active_count() == before
