"""Reserve, AsyncAppend, group commit, and the results of callbacks if the disk fails."""

from __future__ import annotations

import random
import threading

import pytest

from nyala.replica.types import DiskFailure, Entry, InvariantViolation, OpId, Refused
from nyala.replica.wal import Log, WalOptions
from nyala.replica.wal.format import EncodedEntry, encode_entry
from nyala.replica.wal.recovery import TEMP_NAME
from tests.harness.patience import patience_s
from tests.harness.sim_disk import SimDisk
from tests.harness.wal_entries import FOLDER, SMALL, Outcomes, append_now, entries, entry, log_threads, open_log


def syncs(disk: SimDisk) -> int:
    return disk.count("datasync", "*wal*") + disk.count("sync", "*wal-0*")


def test_group_commit_of_many_reservations_writes_and_syncs_once() -> None:
    """CN-06, CN-14, CN-16. Goal: k appends cost one write and one sync. Method: queue 20, drain, count the calls."""
    disk = SimDisk()
    log, _ = open_log(disk, WalOptions())
    append_now(log, [entry(1)])
    disk.calls.clear()
    outcomes = append_now(log, *[[entry(index)] for index in range(2, 22)])
    assert [call.operation for call in disk.calls] == ["pwrite", "datasync"]
    assert outcomes.results == [OpId(1, index) for index in range(2, 22)]


@pytest.mark.parametrize("zeros_at", [0, 1, 2])
def test_block_of_which_one_entry_has_a_long_run_of_zeros_is_read_back(zeros_at: int) -> None:
    """CN-22. Goal: a block states its zero sectors if any of its entries has such a run, not only if all have.
    Method: three reservations of one group commit, of which one is zeros for more than two sectors; the log is opened
    again, and its file needs no mending."""
    disk = SimDisk()
    log, _ = open_log(disk, WalOptions())
    append_now(log, [entry(1)])
    written = [entry(index + 2, bytes(3000) if index == zeros_at else b"payload") for index in range(3)]
    disk.calls.clear()
    append_now(log, *[[one] for one in written])
    assert disk.count("pwrite") == 1
    log.close()
    before = disk.read(f"{FOLDER}/wal-000000001")
    _, found = open_log(disk, WalOptions())
    assert (found, disk.read(f"{FOLDER}/wal-000000001")) == ([entry(1), *written], before)


def test_callbacks_before_the_sync_returned_never_come() -> None:
    """CN-05, CN-08. Goal: no callback reports an entry durable before the sync has returned. Method: look at the
    outcomes from inside the sync."""
    disk = SimDisk()
    log, _ = open_log(disk, WalOptions())
    append_now(log, [entry(1)])
    outcomes = Outcomes()
    seen: list[int] = []
    disk.hook = lambda operation, path: seen.append(len(outcomes.results)) if operation == "datasync" else None
    log.append([entry(2)], outcomes)
    log.drain()
    assert seen == [0]
    assert outcomes.results == [OpId(1, 2)]


def test_unsynced_log_calls_back_without_a_sync() -> None:
    """CN-05. Goal: the unsafe mode does no sync for an append. Method: count syncs of appends to an open segment."""
    disk = SimDisk()
    log, _ = open_log(disk, WalOptions(sync=False))
    append_now(log, [entry(1)])
    disk.calls.clear()
    assert append_now(log, [entry(2)]).durable == [OpId(1, 2)]
    assert syncs(disk) == 0


def test_sixteen_writers_with_random_delays_reach_the_disk_in_reservation_order() -> None:
    """CN-04, CN-07, CN-09. Goal: entries are written in the order of their reservations, and serialised outside the
    lock. Method: 16 threads reserve under one lock and append after random waits on each other; read back and compare;
    one thread at a time writes."""
    disk, writing = SimDisk(), threading.Lock()

    def alone(operation: str, path: str) -> None:
        if path.endswith(TEMP_NAME):
            return
        assert writing.acquire(blocking=False), "two threads use the files of one log"
        threading.Event().wait(0.0002)
        writing.release()

    disk.hook = alone
    log, _ = open_log(disk, SMALL, threaded=True)
    order: list[OpId] = []
    lock = threading.Lock()
    outcomes = Outcomes()
    barrier = threading.Barrier(16)

    def write(seed: int) -> None:
        rng = random.Random(seed)
        barrier.wait()
        for _ in range(20):
            with lock:
                index = len(order) + 1
                order.append(OpId(1, index))
                slot = log.reserve([entry(index)])
            threading.Event().wait(rng.random() * 0.002)
            log.append_async(slot, outcomes)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.wait_for(320) == order
    log.close()
    _, survivors = open_log(disk)
    assert [e.opid for e in survivors] == order


def test_head_that_is_not_ready_holds_back_ready_ones_behind_it() -> None:
    """CN-11, CN-13, CN-15. Goal: no reservation is written before an earlier one. Method: make the second ready first,
    then the first."""
    disk = SimDisk()
    log, _ = open_log(disk)
    outcomes = Outcomes()
    first, second = log.reserve([entry(1)]), log.reserve([entry(2)])
    log.append_async(second, outcomes)
    log.drain()
    assert outcomes.results == []
    assert disk.count("pwrite") == 0
    log.append_async(first, outcomes)
    log.drain()
    assert outcomes.results == [OpId(1, 1), OpId(1, 2)]


def test_threaded_head_that_is_not_ready_holds_back_ready_ones_behind_it() -> None:
    """CN-15. Goal: the appender thread writes no reservation before an earlier one, also in the middle of a batch.
    Method: the callbacks' order."""
    log, _ = open_log(SimDisk(), threaded=True)
    outcomes = Outcomes()
    slots = [log.reserve([entry(index)]) for index in (1, 2, 3)]
    for position in (0, 2, 1):
        log.append_async(slots[position], outcomes)
    assert outcomes.wait_for(3) == [OpId(1, 1), OpId(1, 2), OpId(1, 3)]
    log.close()


def test_reserve_with_a_full_queue_blocks_until_there_is_room() -> None:
    """CN-10. Goal: the queue is bounded in bytes, and no reservation is lost. Method: hold the disk, fill, see it
    block, let go."""
    disk = SimDisk()
    gate = threading.Event()
    log, _ = open_log(disk, WalOptions(queue_bytes_max=1000), threaded=True)

    def hold_writes(operation: str, _: str) -> None:
        if operation == "pwrite":
            assert gate.wait(patience_s(60))

    disk.hook = hold_writes
    outcomes = Outcomes()
    log.append([entry(1, bytes(600))], outcomes)
    started, passed = threading.Event(), threading.Event()

    def second() -> None:
        started.set()
        log.append([entry(2, bytes(600))], outcomes)
        passed.set()

    thread = threading.Thread(target=second)
    thread.start()
    started.wait(patience_s(30))
    assert not passed.wait(0.05)
    assert log.queued_bytes == entry(1, bytes(600)).size_bytes
    gate.set()
    assert passed.wait(patience_s(30))
    assert outcomes.wait_for(2) == [OpId(1, 1), OpId(1, 2)]
    thread.join()
    log.close()
    assert log.queued_bytes == 0


def test_reserve_on_a_full_queue_without_a_thread_is_refused() -> None:
    """CN-10. Goal: without an appender thread, as in the simulator, a full queue refuses instead of blocking for ever.
    Method: two reservations beyond the bound."""
    log, _ = open_log(SimDisk(), WalOptions(queue_bytes_max=100))
    log.reserve([entry(1, bytes(200))])
    with pytest.raises(Refused, match="queue is full"):
        log.reserve([entry(2)])


def test_reservation_larger_than_the_queue_passes_when_it_is_empty() -> None:
    """CN-10. Goal: no entry is too large to ever be written. Method: one entry above the bound."""
    log, _ = open_log(SimDisk(), WalOptions(queue_bytes_max=100))
    assert append_now(log, [entry(1, bytes(5000))]).durable == [OpId(1, 1)]


@pytest.mark.parametrize("indexes", [[3], [2, 4], [2, 2], [0]])
def test_reserve_with_a_gap_violates_an_invariant_and_changes_nothing(indexes: list[int]) -> None:
    """Goal: a reservation with a gap is an invariant violation at once. Method: indexes that do not follow 1.1."""
    log, _ = open_log(SimDisk())
    append_now(log, [entry(1)])
    with pytest.raises(InvariantViolation):
        log.reserve([entry(index) for index in indexes])
    assert log.last_reserved == log.last == OpId(1, 1)


def test_reserve_with_a_falling_term_violates_an_invariant() -> None:
    """Goal: terms never fall along the log. Method: 1.2 after 2.1."""
    log, _ = open_log(SimDisk())
    append_now(log, [entry(1, term=2)])
    with pytest.raises(InvariantViolation, match="term below"):
        log.reserve([entry(2, term=1)])


def test_append_of_a_payload_with_a_wrong_crc_stops_the_log_before_the_disk() -> None:
    """Goal: an entry whose payload does not match its CRC is not written. Method: an entry whose payload_crc is off by
    one."""
    log, _ = open_log(SimDisk())
    bad = entry(1)._replace(payload_crc=1)
    outcomes = append_now(log, [bad])
    assert isinstance(outcomes.results[0], InvariantViolation)
    assert log.last == OpId(0, 0)


@pytest.mark.parametrize("operation", ["pwrite", "datasync"])
@pytest.mark.parametrize("threaded", [False, True])
def test_append_on_a_failing_disk_poisons_the_log_for_good(operation: str, threaded: bool) -> None:
    """CN-08. Goal: after an I/O error each reservation fails once, and the log is not used again. Method: one fault,
    then a healthy disk."""
    disk = SimDisk()
    log, _ = open_log(disk, WalOptions(), threaded=threaded)
    outcomes = Outcomes()
    log.append([entry(1)], outcomes)
    log.drain()
    outcomes.wait_for(1)
    disk.fail_on(operation, "wals/*")
    log.append([entry(2)], outcomes)
    log.drain()
    assert isinstance(outcomes.wait_for(2)[1], DiskFailure)
    before = disk.count(operation)
    with pytest.raises(DiskFailure):
        log.reserve([entry(2)])
    log.close()
    assert disk.count(operation) == before
    assert log.last == OpId(1, 1)
    disk.power_loss(random.Random(1))
    _, survivors = open_log(disk)
    assert survivors[:1] == [entry(1)]


def test_failed_append_fails_everything_queued_behind_it_once() -> None:
    """CN-08. Goal: if an append fails, all reservations behind it fail, so no gap is written. Method: three
    reservations, a fault under the first, one not ready yet."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    outcomes = Outcomes()
    log.append([entry(2)], outcomes)
    late = log.reserve([entry(3)])
    disk.fail_on("datasync", "*")
    log.drain()
    log.append_async(late, outcomes)
    log.drain()
    assert [type(result) for result in outcomes.results] == [DiskFailure, DiskFailure]


@pytest.mark.parametrize("operation", ["pwrite", "preallocate"])
def test_append_on_a_full_disk_is_refused_and_works_again_when_there_is_space(operation: str) -> None:
    """Goal: a full disk refuses an append and leaves the log usable. Method: ENOSPC amid a write, then a smaller
    one."""
    disk = SimDisk()
    log, _ = open_log(disk)
    if operation == "pwrite":
        append_now(log, [entry(1)])
    first = 2 if operation == "pwrite" else 1
    disk.fail_on(operation, "wals/*", "ENOSPC")
    outcomes = append_now(log, [entry(first, b"\xff" * 3000)], [entry(first + 1)])
    assert [getattr(result, "code", None).name for result in outcomes.results] == ["NO_SPACE", "NO_SPACE"]
    assert append_now(log, [entry(first)], [entry(first + 1)]).durable == [OpId(1, first), OpId(1, first + 1)]
    disk.restart()
    _, survivors = open_log(disk)
    assert survivors == entries(1, first + 1)


def test_close_appends_what_is_ready_and_fails_what_is_not() -> None:
    """CN-08. Goal: closing a log answers each reservation once. Method: one ready, one reserved, close."""
    for threaded in (False, True):
        log, _ = open_log(SimDisk(), threaded=threaded)
        outcomes = Outcomes()
        log.append([entry(1)], outcomes)
        late = log.reserve([entry(2)])
        log.close()
        log.close()
        assert outcomes.results == [OpId(1, 1)]
        log.append_async(late, outcomes)
        assert isinstance(outcomes.results[1], Refused)
        with pytest.raises(Refused, match="closed"):
            log.reserve([entry(3)])


def test_log_without_an_append_has_no_file() -> None:
    """CN-09. Goal: an idle tablet has no segment. Method: open, list the folder."""
    disk = SimDisk()
    log, _ = Log.open(disk, "wals/idle", "idle", threads=log_threads())
    assert disk.listdir("wals/idle") == []
    log.close()


def test_replaced_entries_are_not_read_again() -> None:
    """Goal: a later entry at one index replaces it and all above. Method: 1..5, truncate to 2, term 2 at 3; reopen."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, entries(1, 5))
    log.truncate_after(2)
    assert (log.last, log.term_at(3), log.read(1, 9, 1 << 20)) == (OpId(1, 2), None, entries(1, 2))
    append_now(log, [entry(3, term=2)])
    expected = [*entries(1, 2), entry(3, term=2)]
    assert log.read(1, 9, 1 << 20) == expected
    log.close()
    again, survivors = open_log(disk)
    assert survivors == expected
    assert (again.term_at(2), again.term_at(3), again.last) == (1, 2, OpId(2, 3))


def test_replacement_within_one_group_commit_keeps_the_later_entry() -> None:
    """Goal: order also holds inside a block. Method: 1..5, a truncation and 2.3 queued before one drain."""
    disk = SimDisk()
    log, _ = open_log(disk)
    outcomes = Outcomes()
    log.append(entries(1, 5), outcomes)
    log.truncate_after(2)
    log.append([entry(3, term=2)], outcomes)
    log.drain()
    expected = [*entries(1, 2), entry(3, term=2)]
    assert log.read(1, 9, 1 << 20) == expected
    disk.restart()
    assert open_log(disk)[1] == expected


def test_read_stops_at_its_byte_limit_but_gives_one_entry() -> None:
    """Goal: bounded reads that still make progress. Method: large entries, a limit of one byte and of two entries."""
    log, _ = open_log(SimDisk(), WalOptions())
    big = [entry(index, bytes([index]) * 100_000) for index in range(1, 6)]
    append_now(log, big)
    assert log.read(2, 6, 1) == big[1:2]
    assert log.read(2, 6, 2 * big[0].size_bytes) == big[1:3]
    assert log.read(1, 6, 1 << 30) == big
    assert log.read(6, 9, 1 << 30) == []


def test_raising_callback_stops_the_log() -> None:
    """Goal: an error in a callback ends the log. Method: a callback that raises; the next reserve reports it."""
    log, _ = open_log(SimDisk())

    def broken(_: object) -> None:
        raise RuntimeError("a bug")

    log.append([entry(1)], broken)
    log.drain()
    with pytest.raises(InvariantViolation, match="a bug"):
        log.reserve([entry(2)])


def test_log_that_a_callback_stopped_leaves_its_files_as_they_are_at_its_close() -> None:
    """CN-08. Goal: a log that has failed changes no file any more. Method: the callback of an entry that fills the
    first segment raises when the next segment is prepared already; the log is closed."""
    disk = SimDisk()
    log, _ = open_log(disk)

    def broken(_: object) -> None:
        raise RuntimeError("a bug")

    log.append([entry(1, bytes(5000))], broken)
    log.drain()
    before = {path: disk.read(path) for path in disk.files}
    assert f"{FOLDER}/{TEMP_NAME}" in before
    log.close()
    assert {path: disk.read(path) for path in disk.files} == before


def test_folder_of_another_tablet_is_refused() -> None:
    """Goal: opening the log of another tablet is Corruption. Method: open t1's folder as t2."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    log.close()
    with pytest.raises(Exception, match="belongs elsewhere"):
        Log.open(disk, FOLDER, "t2", SMALL)


def test_log_tells_whether_a_reservation_would_block() -> None:
    """CN-10. Goal: an event loop can refuse early. Method: ask below, at and above the bound, and when drained."""
    log, _ = open_log(SimDisk(), WalOptions(queue_bytes_max=1000))
    assert log.has_room(5000)
    slot = entry(1, bytes(500))
    log.append([slot], Outcomes())
    assert log.has_room(1000 - slot.size_bytes)
    assert not log.has_room(1001 - slot.size_bytes)
    log.drain()
    assert (log.queued_bytes, log.has_room(5000)) == (0, True)


def test_serialisation_happens_outside_the_lock_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """CN-07. Goal: serialising a large batch blocks no other thread. Method: while one is, another thread reserves,
    looks at the log and hands over what it has; then all are durable in the order of their reservations."""
    log, _ = open_log(SimDisk(), SMALL, threaded=True)
    outcomes = Outcomes()
    seen: list[OpId] = []
    slow = log.reserve([entry(1)])

    def elsewhere() -> None:
        log.append([entry(2)], outcomes)
        seen.append(log.last_reserved)

    def encode(tablet_id: str, one: Entry, *, placed: bool = False) -> EncodedEntry:
        if one.opid.index == 1:
            other = threading.Thread(target=elsewhere, daemon=True)
            other.start()
            other.join(60)
            assert seen == [OpId(1, 2)], "it waits for us"
        return encode_entry(tablet_id, one, placed=placed)

    monkeypatch.setattr("nyala.replica.wal.log.encode_entry", encode)
    log.append_async(slow, outcomes)
    assert outcomes.wait_for(2) == [OpId(1, 1), OpId(1, 2)]
    log.close()
