"""What a log keeps in mind between its calls: places, promises, failures, and what it found when it was opened."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import pytest

from nyala.replica.fs import FileLength
from nyala.replica.types import DiskFailure, Entry, InvariantViolation, OpId, Refused
from nyala.replica.wal import Log, WalOptions
from nyala.replica.wal.format import EncodedEntry, encode_entry
from nyala.replica.wal.recovery import read_withheld
from nyala.replica.wal.reservation import ReservationState
from tests.harness.patience import patience_s
from tests.harness.sim_disk import SimCrash, SimDisk
from tests.harness.wal_entries import (
    FOLDER,
    TABLET,
    Outcomes,
    append_now,
    build,
    entries,
    entry,
    open_log,
    segment_paths,
)

WAIT_S = patience_s(30)


def _idle_log(disk: SimDisk) -> Log:
    """A log with entry 1 that has threads, none of which has it."""
    log, _ = open_log(disk, threaded=True)
    outcomes = Outcomes()
    log.append([entry(1)], outcomes)
    outcomes.wait_for(1)
    with log._state:
        assert log._state.wait_for(lambda: not log._offered, WAIT_S)
    return log


def test_reservations_that_are_there_together_are_one_block() -> None:
    """CN-14. Goal: one write and one sync for them, in their order. Method: the second of three is handed over last;
    until then no thread gets the log."""
    disk, outcomes = SimDisk(), Outcomes()
    log = _idle_log(disk)
    disk.calls.clear()
    slots = [log.reserve([entry(index)]) for index in (2, 3, 4)]
    for pos in (0, 2):
        log.append_async(slots[pos], outcomes)
        assert not log._offered, "none is written alone"
    log.append_async(slots[1], outcomes)
    assert outcomes.wait_for(3) == [OpId(1, 2), OpId(1, 3), OpId(1, 4)]
    assert [call.operation for call in disk.calls] == ["pwrite", "datasync"]
    done = (ReservationState.DONE, [])
    assert [(slot.state, slot.encoded) for slot in slots] == [done] * 3, "and needs no memory any more"
    log.close()


def test_reservation_that_came_later_is_not_waited_for() -> None:
    """CN-14. Goal: a writer that is slow to encode holds up those after it, and not those before it that were there
    without it. Method: two are there together, of which one is handed over; a third is reserved; then the other."""
    outcomes, log = Outcomes(), _idle_log(SimDisk())
    slots = [log.reserve([entry(index)]) for index in (2, 3)]
    log.append_async(slots[0], outcomes)
    late = log.reserve([entry(4)])
    log.append_async(slots[1], outcomes)
    assert outcomes.wait_for(2) == [OpId(1, 2), OpId(1, 3)]
    log.append_async(late, outcomes)
    assert outcomes.wait_for(3)[2] == OpId(1, 4)
    log.close()


def test_appender_at_work_is_waited_for_and_truncated_behind() -> None:
    """CN-08, CN-09. Goal: a truncation is in order with what is being written, and `drain` waits for both without
    writing itself. Method: a disk that holds the appender in a write, with nothing behind it in the queue."""
    disk, gate, outcomes, by = SimDisk(), threading.Event(), Outcomes(), list[threading.Thread]()
    log = _idle_log(disk)
    begun, drains = threading.Event(), queue.SimpleQueue[str]()

    def hook(operation: str, path: str) -> None:
        if operation == "pwrite":
            by.append(threading.current_thread())
            assert log._thread is by[-1] and by[-1].daemon, "a process may end without closing its logs"
            begun.set()
            assert gate.wait(WAIT_S)

    def drain() -> None:
        log.drain()
        drains.put(f"drained to {log.last}")

    disk.hook = hook
    log.append(entries(2, 5), outcomes)
    assert begun.wait(WAIT_S)
    wait, drainer = log._state.wait, threading.Thread(target=drain, daemon=True)

    def watched(timeout: float | None = None) -> bool:
        if threading.current_thread() is drainer:
            drains.put("waits")
        return wait(timeout)

    log._state.wait = watched  # type: ignore[method-assign]
    drainer.start()
    assert drains.get(timeout=WAIT_S) == "waits"
    log.truncate_after(3)
    assert (log.last, log.last_reserved) == (OpId(1, 1), OpId(1, 3))
    gate.set()
    while (told := drains.get(timeout=WAIT_S)) == "waits":
        pass
    assert told == "drained to 1.3" and outcomes.wait_for(1) == [OpId(1, 5)]
    assert len(by) == 1 and drainer not in by and log.failure is None
    log.append([entry(4, term=2)], outcomes)
    assert outcomes.wait_for(2)[1] == OpId(2, 4)
    log.close()


def test_drain_of_a_log_that_was_refused_room_ends() -> None:
    """Goal: waiting for the queue ends also after a failed append. Method: a full disk, then room."""
    disk, outcomes = SimDisk(), Outcomes()
    log = _idle_log(disk)
    disk.fail_on("pwrite", f"{FOLDER}/*", "ENOSPC")
    for index in (0, 1):
        log.append([entry(2)], outcomes)
        log.drain()
        assert isinstance(outcomes.wait_for(index + 1)[index], OpId if index else Refused)
    log.close()


def test_reservation_that_failed_before_it_was_handed_over_holds_up_nobody() -> None:
    """CN-08. Goal: after a full disk the log goes on. Method: a block finds no room while the next entry is reserved
    and not handed over; both are given again."""
    disk, outcomes = SimDisk(), Outcomes()
    log, _ = open_log(disk)
    log.append([entry(1)], outcomes)
    late = log.reserve([entry(2)])
    disk.fail_on("preallocate", "*", "ENOSPC")
    log.drain()
    assert append_now(log, [entry(1)], [entry(2)]).durable == [OpId(1, 1), OpId(1, 2)]
    log.append_async(late, outcomes)
    assert [type(result) for result in outcomes.results] == [Refused, Refused]


def test_log_that_failed_writes_nothing_more_and_tells_the_first_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """CN-08. Goal: nothing is appended by a log that has failed. Method: two entries are reserved when a callback
    raises; one is handed over, and the other does not serialise: the disk is not called."""
    disk, outcomes = SimDisk(), Outcomes()
    log, _ = open_log(disk)

    def broken(_: object) -> None:
        raise RuntimeError("a bug")

    log.append([entry(1)], broken)

    def no_memory(*_: object, **__: object) -> EncodedEntry:
        raise MemoryError

    second, third = log.reserve([entry(2)]), log.reserve([entry(3)])
    log.drain()
    disk.calls.clear()
    log.append_async(second, outcomes)
    log.drain()
    assert [type(result) for result in outcomes.results] == [InvariantViolation] and not disk.calls
    monkeypatch.setattr("nyala.replica.wal.log.encode_entry", no_memory)
    with pytest.raises(MemoryError):
        log.append_async(third, outcomes)
    assert "a bug" in str(log.failure)


def test_reservation_that_is_handed_over_while_the_log_fails_hears_of_it_once() -> None:
    """CN-08. Goal: each reservation is answered once, also if it is handed over while the log fails. Method: the
    callback of the first one that failed hands over the second, and the third was handed over before."""
    disk = SimDisk()
    log, _ = open_log(disk)
    outcomes = Outcomes()
    first, second, third = (log.reserve([entry(index)]) for index in (1, 2, 3))

    def told(result: OpId | BaseException) -> None:
        outcomes(result)
        log.append_async(second, outcomes)

    log.append_async(first, told)
    log.append_async(third, outcomes)
    disk.fail_on("pwrite", f"{FOLDER}/wal-*")
    disk.fail_on("pwrite", f"{FOLDER}/.*")
    log.drain()
    assert [type(result) for result in outcomes.results] == [DiskFailure] * 3
    assert (log.queued_bytes, log.last_reserved) == (0, OpId(0, 0))
    assert [(slot.state, slot.encoded) for slot in (first, second, third)] == [(ReservationState.DONE, [])] * 3


@pytest.mark.parametrize("point", ["wal.before_append", "wal.after_sync"])
def test_death_in_a_group_commit_is_raised_and_ends_the_log(point: str) -> None:
    """CN-08. Goal: after a simulated death in a group commit, nothing is reported durable and nothing is appended.
    Method: a death before the write and after the sync; no callback says durable, and a later reservation raises the
    same."""
    disk = SimDisk()
    log, _ = open_log(disk)
    outcomes = Outcomes()
    disk.arm(point)
    log.append([entry(1)], outcomes)
    with pytest.raises(SimCrash) as died:
        log.drain()
    assert outcomes.results == [] and log.failure is died.value
    with pytest.raises(SimCrash):
        log.reserve([entry(1)])


def test_truncation_right_after_the_opening_counts_at_once() -> None:
    """Goal: a truncation of an idle log takes effect at once. Method: open, truncate, read."""
    disk = SimDisk()
    build(disk, lambda log: append_now(log, entries(1, 5)))
    log, _ = open_log(disk)
    log.truncate_after(3)
    assert (log.last, log.last_reserved, log.read(1, 9, 1 << 20)) == (OpId(1, 3), OpId(1, 3), entries(1, 3))


def test_truncation_behind_a_reservation_waits_for_it() -> None:
    """Goal: a truncation takes effect after the reservations before it. Method: truncate behind a reservation that is
    handed over only then; and behind one that is."""
    log, _ = open_log(SimDisk())
    append_now(log, entries(1, 3))
    slot = log.reserve([entry(4)])
    log.truncate_after(2)
    assert (log.last, log.last_reserved) == (OpId(1, 3), OpId(1, 2))
    log.append_async(slot, Outcomes())
    log.drain()
    assert (log.last, log.read(1, 9, 1 << 20)) == (OpId(1, 2), entries(1, 2))


def test_entry_that_takes_the_place_of_another_is_known() -> None:
    """CN-22. Goal: a block whose entry replaces another states its place, so that the older block is not taken for it.
    Method: entries in a new log, and in one that found two segments: new ones, and those at and below the highest index
    of any."""
    log, _ = open_log(SimDisk())
    assert not log.reserve([entry(1)]).rewrites and not log.reserve(entries(2, 3)).rewrites
    log.truncate_after(2)
    assert log.reserve([entry(3, term=2)]).rewrites and not log.reserve([entry(4, term=2)]).rewrites
    disk = SimDisk()
    build(disk, lambda log: append_now(log, entries(1, 3)))
    build(disk, lambda log: append_now(log, entries(4, 6)))
    log, _ = open_log(disk)
    log.truncate_after(5)
    assert log.reserve([entry(6, term=2)]).rewrites and not log.reserve([entry(7, term=2)]).rewrites


@pytest.mark.parametrize(("payload_bytes", "length"), [([5500, 1000, 2300], 2), ([9000], 0), ([100], 0)])
def test_first_segment_after_an_opening_is_twice_as_long_as_the_last_one(payload_bytes: list[int], length: int) -> None:
    """CN-17. Goal: a log that grows has few segments, and one that is small a small file. Method: logs of segments of
    so many bytes, opened again: twice the last one's length, within the first and the largest length."""
    disk = SimDisk()
    log, _ = open_log(disk)
    for index, size in enumerate(payload_bytes, 1):
        append_now(log, [entry(index, b"x" * size)])
        log.roll()
    last = log.segments()[-1].length_bytes
    log.close()
    log, _ = open_log(disk)
    disk.calls.clear()
    append_now(log, [entry(len(payload_bytes) + 1)])
    (asked,) = [call.length_bytes for call in disk.calls if call.operation == "preallocate"]
    assert asked == (2 * last if length else 16384 if payload_bytes == [9000] else 4096)


def test_log_that_is_opened_without_options_has_the_usual_ones() -> None:
    """CN-17. Goal: a small first segment. Method: open without options, append."""
    disk = SimDisk()
    log, _ = Log.open(disk, FOLDER, TABLET)
    assert append_now(log, [entry(1)]).durable
    assert (
        disk.count("preallocate") == 1 and disk.size(f"{FOLDER}/wal-000000001") == WalOptions().segment_size_bytes_first
    )


def test_files_of_a_log_say_which_one_grows() -> None:
    """TC-63. Goal: a log lists which of its files is still written, so that the scrub knows each file's length. Method:
    a closed segment and an open one."""
    log, _ = open_log(SimDisk())
    append_now(log, [entry(1)])
    log.roll()
    append_now(log, [entry(2)])
    one, two = log.segments()
    assert log.files() == [
        FileLength(f"{FOLDER}/{one.name}", one.length_bytes, False),
        FileLength(f"{FOLDER}/{two.name}", two.length_bytes, True),
    ]


def test_removed_segments_are_made_durable_one_by_one() -> None:
    """CN-21. Goal: the removal of each segment is synced before the next one, so a power cut leaves no gap. Method:
    nothing, then two segments are removed; a removal whose sync failed is synced by the next call."""
    disk = SimDisk()
    log, _ = open_log(disk)
    for index in range(1, 5):
        append_now(log, [entry(index)])
        log.roll()
    disk.calls.clear()
    assert log.gc(1) == 0 and disk.count("sync_dir") == 0
    first, second, third, _ = log.segments()
    assert log.gc(3) == first.length_bytes + second.length_bytes
    assert [call.operation for call in disk.calls] == ["remove", "sync_dir"] * 2
    disk.fail_on("sync_dir", "*", "ENOMEM")
    with pytest.raises(Refused):
        log.gc(4)
    disk.calls.clear()
    assert log.gc(4) == 0 and [call.operation for call in disk.calls] == ["sync_dir"]
    assert log.gc(4) == 0 and disk.count("sync_dir") == 1 and third.number not in [i.number for i in log.segments()]


@pytest.mark.parametrize("group", [[entry(2, term=2), entry(3)], [entry(2), entry(4)], [entry(2), entry(2)]])
def test_entries_of_one_reservation_follow_each_other(group: list[Entry]) -> None:
    """Goal: a reservation whose entries do not follow each other is refused. Method: a falling term, a gap and an index
    twice, within one reservation; a rising term is none."""
    log, _ = open_log(SimDisk())
    append_now(log, [entry(1)])
    with pytest.raises(InvariantViolation, match="follow each other"):
        log.reserve(group)
    assert log.last_reserved == OpId(1, 1) and log.queued_bytes == 0
    assert append_now(log, [entry(2), entry(3, term=4)]).durable == [OpId(4, 3)]


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("error", [MemoryError(), TypeError("a bug")], ids=["no memory", "a bug"])
def test_entry_that_does_not_serialise_ends_the_log(
    error: Exception, threaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CN-08. Goal: if an entry cannot be serialised, the log ends, so that no reservation behind it waits for ever.
    Method: the serialisation of the second of three reservations raises, also when the appender has seen all three; the
    log says why it ended, as it is for want of memory and as a bug else."""

    def encode(tablet_id: str, one: Entry, *, placed: bool = False) -> EncodedEntry:
        if one.opid.index == 3:
            raise error
        return encode_entry(tablet_id, one, placed=placed)

    if threaded:
        log = _idle_log(SimDisk())
    else:
        log, _ = open_log(SimDisk())
        append_now(log, [entry(1)])
    outcomes = Outcomes()
    slots = [log.reserve([entry(index)]) for index in (2, 3, 4)]
    monkeypatch.setattr("nyala.replica.wal.log.encode_entry", encode)
    for pos in (0, 2):
        log.append_async(slots[pos], outcomes)
        assert not log._offered
    with pytest.raises(type(error)):
        log.append_async(slots[1], outcomes)
    kind = MemoryError if isinstance(error, MemoryError) else InvariantViolation
    assert [type(result) for result in outcomes.results] == [kind, kind]
    with pytest.raises(kind):
        log.reserve([entry(2)])
    log.close()


@pytest.mark.parametrize("ends", ["fails", "is closed"])
def test_writer_that_waits_for_room_hears_that_the_log_ended(ends: str) -> None:
    """CN-08, CN-10. Goal: a writer that waits for room gets an error when the log ends. Method: a writer waits for room
    behind a group commit that fails, or in a log that is closed."""
    disk, gate = SimDisk(), threading.Event()
    log, _ = open_log(disk, WalOptions(queue_bytes_max=1000), threaded=True)
    outcomes, told = Outcomes(), Outcomes()
    slot = log.reserve([entry(1, bytes(900))])
    wait, waits = log._state.wait, threading.Event()

    def watched(timeout: float | None = None) -> bool:
        if threading.current_thread().name == "writer":
            waits.set()
        return wait(timeout)

    def write() -> None:
        try:
            log.reserve([entry(2, bytes(900))])
        except BaseException as error:  # noqa: BLE001
            told(error)

    log._state.wait = watched  # type: ignore[method-assign]
    writer = threading.Thread(target=write, name="writer", daemon=True)
    writer.start()
    assert waits.wait(patience_s(30))
    if ends == "fails":
        disk.fail_on("pwrite", f"{FOLDER}/*")
        log.append_async(slot, outcomes)
        assert isinstance(outcomes.wait_for(1)[0], DiskFailure)
    gate.set()
    log.close()
    assert isinstance(told.wait_for(1)[0], DiskFailure if ends == "fails" else Refused)


def test_callbacks_that_raise_end_the_log_with_the_first_error() -> None:
    """Goal: an error in a callback ends the log, after all callbacks were called. Method: three in one group commit, of
    which two raise."""
    log, _ = open_log(SimDisk())
    outcomes = Outcomes()

    def broken(why: str) -> Callable[[object], None]:
        def called(_: object) -> None:
            raise RuntimeError(why)

        return called

    for index, callback in enumerate([broken("first"), outcomes, broken("second")], 1):
        log.append([entry(index)], callback)
    log.drain()
    assert outcomes.results == [OpId(1, 2)] and log.last == OpId(1, 3)
    assert "first" in str(log.failure)


def test_read_of_nothing_reads_nothing() -> None:
    """Goal: a follower that is up to date costs no disk. Method: ranges without an entry, behind the last and empty,
    also where log GC removed the entries."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, entries(1, 3))
    log.roll()
    append_now(log, entries(4, 6))
    assert log.gc(4) > 0
    disk.calls.clear()
    assert [log.read(lo, hi, 1 << 20) for lo, hi in ((7, 9), (5, 5), (2, 2), (6, 5))] == [[], [], [], []]
    assert not disk.calls
    with pytest.raises(Refused, match="log GC removed"):
        log.read(3, 4, 1 << 20)


def test_segment_that_is_read_or_pinned_stays_until_the_last_has_released_it() -> None:
    """CN-21. Goal: no file goes away under a reader. Method: log GC comes in the middle of a read, and beside two pins
    of which one is released twice."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, entries(1, 3))
    log.roll()
    append_now(log, entries(4, 6))
    freed = list[int]()
    disk.hook = lambda operation, path: freed.append(log.gc(4)) if operation == "open" else None
    assert log.read(1, 7, 1 << 20) == entries(1, 6) and freed == [0, 0]
    disk.hook = None
    one, other = log.pin(), log.pin()
    one.release()
    one.release()
    assert log.gc(4) == 0
    other.release()
    assert log.gc(4) > 0


def test_roll_on_a_failing_disk_ends_the_log() -> None:
    """CN-08. Goal: the state of the file is unknown, so nothing is written to it any more. Method: EIO as a segment is
    cut; the next entry and the next roll are told the same, and the disk is not called."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    disk.fail_on("truncate", "*")
    with pytest.raises(DiskFailure) as failed:
        log.roll()
    disk.calls.clear()
    for call in (log.roll, lambda: log.reserve([entry(2)])):
        with pytest.raises(DiskFailure) as again:
            call()
        assert again.value is failed.value is log.failure
    assert not disk.calls


@pytest.mark.parametrize(("point", "left"), [("wal.before_remove_segment", 2), ("wal.after_remove_segment", 1)])
def test_death_before_and_after_a_segment_is_removed_leaves_a_whole_log(point: str, left: int) -> None:
    """CN-21. Goal: log GC may end anywhere. Method: a death at each of its points; what is left opens, and goes on."""
    disk = SimDisk()
    build(disk, lambda log: append_now(log, entries(1, 2)))
    log, _ = open_log(disk)
    append_now(log, entries(3, 4))
    disk.arm(point)
    with pytest.raises(SimCrash):
        log.gc(3)
    disk.restart()
    again, found = open_log(disk)
    assert (len(again.segments()), found) == (left, entries(5 - 2 * left, 4))
    assert append_now(again, [entry(5)]).durable


def test_mark_of_a_lost_end_is_forgotten_when_it_is_back() -> None:
    """CN-22. Goal: a start withholds what is lost, and nothing else. Method: an entry was damaged and is appended
    again; its mark is forgotten, twice."""
    disk = SimDisk()
    build(disk, lambda log: [append_now(log, [entry(1)]), append_now(log, [entry(2)])], close=False)
    (path,) = segment_paths(disk)
    disk.restart()
    disk.corrupt(path, disk.read(path).index(b"payload 1.2"))
    log, replay = Log.open(disk, FOLDER, TABLET)
    assert replay.withheld == OpId(1, 2) == read_withheld(disk, FOLDER)
    append_now(log, [entry(2, term=2)])
    log.forget_withheld()
    assert read_withheld(disk, FOLDER) is None
    log.forget_withheld()


def test_second_close_does_nothing() -> None:
    """Goal: a second close writes nothing, because the log may have been opened again since. Method: the calls of a
    second close."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    log.close()
    disk.calls.clear()
    log.close()
    assert not disk.calls
