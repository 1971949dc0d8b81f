"""Segment files: preallocation beside the appends, the swap, closing, log GC, anchors and pins."""

from __future__ import annotations

import io
import os
import random
import threading
from contextlib import ExitStack
from pathlib import Path

import fastavro
import pytest

from nyala.replica.fs import RealDisk
from nyala.replica.types import Code, DiskFailure, DiskFile, Entry, OpId, Refused
from nyala.replica.wal import Log, Reservation, WalOptions, dump_segment
from nyala.replica.wal.appender import _gather
from nyala.replica.wal.format import (
    MARKER_BYTES,
    decode_header,
    encode_entry,
    encode_header,
    encode_long,
    new_marker,
)
from nyala.replica.wal.recovery import TEMP_NAME
from nyala.replica.wal.segment import ActiveSegment
from tests.harness.patience import patience_s
from tests.harness.sim_disk import SimCrash, SimDisk
from tests.harness.wal_entries import (
    FOLDER,
    SMALL,
    TABLET,
    Outcomes,
    append_now,
    build,
    by_another_schema,
    entries,
    entry,
    open_log,
    segment_paths,
)


def fill(log: Log, count: int, payload_bytes: int = 1000) -> None:
    """`count` group commits of one entry each, after whatever is there."""
    for _ in range(count):
        index = log.last.index + 1
        append_now(log, [entry(index, bytes([index % 256]) * payload_bytes)])


def test_new_segments_are_preallocated_and_double_up_to_the_maximum() -> None:
    """CN-17. Goal: small first, then doubling. Method: fill some segments, look at the calls."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    assert disk.size(f"{FOLDER}/wal-000000001") == 4096
    fill(log, 70)
    lengths = [call.length_bytes for call in disk.calls if call.operation == "preallocate"]
    assert lengths[:5] == [4096, 8192, 16384, 16384, 16384]


@pytest.mark.parametrize("threaded", [False, True], ids=["beside", "on a thread"])
def test_each_new_segment_has_its_whole_length_on_the_disk_when_it_is_created(threaded: bool, tmp_path: Path) -> None:
    """CN-17. Goal: every segment, not the first alone, and blocks of the disk, not only a length: appends find room,
    and their sync changes no metadata. Method: two lives of a log on real files; each segment as it gets its name."""
    disk, created = RealDisk(tmp_path), dict[str, tuple[int, int]]()
    rename = disk.rename

    def watched(old: str, new: str) -> None:
        found = os.stat(disk.real_path(old))
        created[new.rpartition("/")[2]] = (found.st_size, found.st_blocks * 512)
        rename(old, new)

    disk.rename = watched  # type: ignore[method-assign]
    for _ in range(2):
        log, _ = open_log(disk, threaded=threaded)
        begun = len(created)
        while len(created) < begun + 4:
            fill(log, 1)
        named = [info.name for info in log.segments()]
        log.close()
    assert sorted(created) == named and len(named) == 8
    lengths = [size for _, (size, _) in sorted(created.items())]
    assert lengths[:4] == [4096, 8192, 16384, 16384] and all(4096 <= length <= 16384 for length in lengths[4:])
    assert all(taken >= size for size, taken in created.values()), created


def syncs_of(disk: SimDisk, log: Log, appended: Entry) -> list[str]:
    """How the segment is synced as that entry is appended."""
    disk.calls.clear()
    append_now(log, [appended])
    calls, segments = list(disk.calls), segment_paths(disk)
    return [call.operation for call in calls if "sync" in call.operation and call.path in segments]


def test_sync_inside_the_preallocated_length_is_fdatasync_and_beyond_it_fsync() -> None:
    """CN-18. Goal: the cheap sync exactly where it suffices. Method: an entry that fits, then one that overshoots."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    assert syncs_of(disk, log, entry(2)) == ["datasync"]
    assert syncs_of(disk, log, entry(3, bytes(4096))) == ["sync"]


def test_sync_of_an_entry_that_fills_the_preallocated_length_is_fdatasync() -> None:
    """CN-18. Goal: no metadata changes as long as the file does not grow. Method: a segment that is as long as its
    first two entries; one entry more makes it longer."""
    measured = SimDisk()
    build(measured, lambda log: [append_now(log, [entry(1)]), append_now(log, [entry(2)])])
    (path,) = segment_paths(measured)
    disk = SimDisk()
    log, _ = open_log(disk, WalOptions(segment_size_bytes_first=measured.size(path), segment_size_bytes_max=16384))
    append_now(log, [entry(1)])
    assert syncs_of(disk, log, entry(2)) == ["datasync"]
    assert disk.size(path) == measured.size(path)
    assert syncs_of(disk, log, entry(3)) == ["sync"]


def test_sync_after_a_full_disk_cut_the_segment_is_fsync() -> None:
    """CN-18. Goal: where an append makes the file longer, its new length is durable too. Method: a write finds no room,
    so that the segment is cut back to what it holds; the next append fits."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    disk.fail_on("pwrite", f"{FOLDER}/*", "ENOSPC")
    (refused,) = append_now(log, [entry(2)]).results
    assert isinstance(refused, Refused) and refused.code is Code.NO_SPACE
    assert syncs_of(disk, log, entry(2)) == ["sync"]


@pytest.mark.parametrize("full", [False, True], ids=["room for a segment", "no room for a segment"])
def test_segment_whose_first_block_found_no_room_begins_no_other_entry(full: bool) -> None:
    """CN-22, CN-19. Goal: a log that met a full disk opens again. Method: the first block of a new segment finds no
    room; a later leader replaces the entry before it. The segment's header names the index of the block that was
    refused, so the entry goes to another segment; without room for one it is refused, and taken later."""
    disk = SimDisk()
    log, _ = open_log(disk)
    fill(log, 1)
    while disk.size(segment_paths(disk)[0]) == SMALL.segment_size_bytes_first:
        fill(log, 1)
    last = log.last.index
    disk.fail_on("pwrite", f"{FOLDER}/wal-*", "ENOSPC")
    assert not append_now(log, [entry(last + 1)]).durable and len(segment_paths(disk)) == 2
    log.truncate_after(last - 1)
    if full:
        disk.fail_on("preallocate", "*", "ENOSPC", times=None)
        assert not append_now(log, [entry(last, term=2)]).durable
        disk.heal()
    assert append_now(log, [entry(last, term=2)]).durable
    assert append_now(log, [entry(last + 1, term=2)]).durable
    disk.restart()
    _, survivors = open_log(disk)
    assert [e.opid for e in survivors] == [e.opid for e in (*entries(1, last - 1), *entries(last, last + 1, term=2))]


@pytest.mark.parametrize("beyond", [False, True], ids=["within", "beyond"])
@pytest.mark.parametrize("power_seed", [None, *range(8)])
def test_half_block_that_found_no_room_is_never_left_in_a_closed_segment(beyond: bool, power_seed: int | None) -> None:
    """CN-22. Goal: a disk that was full for a moment makes no log unreadable later. Method: half of a block reaches the
    disk before the write fails; the log is rolled, as for a copy, and goes on in the next segment; then the process is
    killed, or the power cut. Every acknowledged entry is there, and a start does not call the closed segment damaged.
    """
    disk = SimDisk()
    log, _ = open_log(disk)
    fill(log, 1)
    (path,) = segment_paths(disk)
    disk.fail_on("preallocate", "*", "ENOSPC", times=None)
    while beyond and disk.size(path) == SMALL.segment_size_bytes_first:
        fill(log, 1)
    last = log.last.index
    disk.fail_on("pwrite", path, "ENOSPC")
    disk.hook = lambda operation, _: disk.write_back(path) if operation == "truncate" else None
    (refused,) = append_now(log, [entry(last + 1, b"x" * 3000)]).results
    assert isinstance(refused, Refused) and refused.code is Code.NO_SPACE
    disk.hook = None
    disk.heal()
    log.roll()
    append_now(log, [entry(last + 1)])
    assert len(segment_paths(disk)) == 2
    if power_seed is None:
        disk.restart()
    else:
        disk.power_loss(random.Random(power_seed))
    _, replay = Log.open(disk, FOLDER, TABLET, SMALL)
    assert ([e.opid.index for e in replay.entries], replay.withheld) == (list(range(1, last + 2)), None)


def test_log_that_stopped_for_its_disk_leaves_no_file_open() -> None:
    """CN-08. Goal: replicas that failed do not use up the server's files. Method: a sync fails; the log is closed."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    disk.fail_on("datasync", "*")
    append_now(log, [entry(2)])
    assert isinstance(log.failure, DiskFailure) and any(disk.handles.values())
    log.close()
    assert not any(disk.handles.values())


def test_preallocation_that_ends_in_a_surprise_ends_the_log_and_is_not_tried_again_for_ever() -> None:
    """CN-19. Goal: an unexpected error of a preallocation is raised by the next append. Method: the log's folder is
    gone, with and without a thread; the append says so, after one attempt. After a second one the folder would be back,
    for a log that tries again must come to an end. Then the same with a segment in use: the append after the attempt
    says so."""
    for threaded in (False, True):
        disk, opened, outcomes = SimDisk(), [], Outcomes()
        log, _ = open_log(disk, threaded=threaded)

        def gone(path: str, create: bool = False, disk: SimDisk = disk, opened: list[str] = opened) -> DiskFile:
            opened.append(path)
            if len(opened) > 1:
                del disk.open
            raise FileNotFoundError(path)

        disk.open = gone  # type: ignore[method-assign, assignment]
        log.append([entry(1)], outcomes)
        if not threaded:
            log.drain()
        assert isinstance(outcomes.wait_for(1)[0], FileNotFoundError)
        assert len(opened) == 1
    disk, opened = SimDisk(), []
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    disk.open = gone  # type: ignore[method-assign, assignment]
    assert append_now(log, [entry(2, bytes(5000))]).durable == [OpId(1, 2)]
    assert isinstance(append_now(log, [entry(3)]).results[0], FileNotFoundError)


def test_log_whose_next_segment_could_not_be_prepared_is_closed() -> None:
    """CN-19. Goal: no append needs that segment any more. Method: the preparation ends in a surprise; close."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])

    def broken(path: str, create: bool = False) -> DiskFile:
        del disk.open
        raise ValueError(path)

    disk.open = broken  # type: ignore[method-assign, assignment]
    append_now(log, [entry(2, bytes(5000))])
    log.close()
    assert [e.opid.index for e in open_log(disk)[1]] == [1, 2]


def test_death_while_a_segment_is_prepared_is_raised_at_once() -> None:
    """Goal: a simulation dies where its disk says so, and what is left can be closed. Method: a death as the next
    segment is preallocated: the entry before it is on the disk, and not reported durable."""
    disk, outcomes = SimDisk(), Outcomes()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    disk.fail_on("preallocate", "*", "CRASH")
    log.append([entry(2, bytes(5000))], outcomes)
    with pytest.raises(SimCrash) as died:
        log.drain()
    assert outcomes.results == [] and log.failure is died.value
    log.close()


@pytest.mark.parametrize("slow", ["preallocate", "sync"])
def test_appends_go_on_in_the_old_segment_while_the_next_is_preallocated(slow: str) -> None:
    """CN-19, CN-20. Goal: a slow preallocation delays no append, and is not started twice. Method: hold it as it takes
    the room, and as it makes that durable; append more than a segment, let go, see the swap afterwards."""
    disk = SimDisk()
    gate, waiting = threading.Event(), threading.Event()
    armed = threading.Event()

    def hook(operation: str, path: str) -> None:
        if operation == slow and path.endswith(TEMP_NAME) and armed.is_set() and not gate.is_set():
            assert threading.current_thread().name.startswith("wal-prealloc")
            assert threading.current_thread().daemon, "a disk that hangs keeps no process from its end"
            waiting.set()
            assert gate.wait(patience_s(60))

    disk.hook = hook
    log, _ = open_log(disk, threaded=True)
    outcomes = Outcomes()
    log.append([entry(1)], outcomes)
    outcomes.wait_for(1)
    armed.set()
    log.append([entry(2, bytes(5000))], outcomes)
    assert waiting.wait(patience_s(30))
    for index in range(3, 20):
        log.append([entry(index, bytes(500))], outcomes)
    outcomes.wait_for(19)
    assert [info.number for info in log.segments()] == [1]
    assert disk.count("open", f"{FOLDER}/{TEMP_NAME}") == 2, "once for each segment"
    gate.set()
    index = 20
    while len(log.segments()) == 1:
        assert index < 20_000
        log.append([entry(index)], outcomes)
        outcomes.wait_for(index)
        index += 1
    log.close()
    assert [info.closed for info in log.segments()] == [True, True]
    assert [e.opid.index for e in open_log(disk)[1]] == list(range(1, index))


def test_log_without_threads_of_its_own_does_everything_in_its_callers_hands() -> None:
    """Goal: a simulation alone decides when something happens. Method: who calls the disk as segments are filled."""
    disk, callers = SimDisk(), set[threading.Thread]()
    disk.hook = lambda *_: callers.add(threading.current_thread())
    log, _ = open_log(disk)
    fill(log, 20)
    log.close()
    assert len(log.segments()) > 2 and callers == {threading.current_thread()}


def test_full_disk_under_the_allocator_lets_appends_go_on_and_is_tried_again() -> None:
    """CN-19. Goal: no room for the next segment is no reason to stop. Method: ENOSPC once, then many appends."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    disk.fail_on("preallocate", "*", "ENOSPC")
    fill(log, 30)
    assert log.last == OpId(1, 31)
    assert len(log.segments()) > 1
    asked = [call.length_bytes for call in disk.calls if call.operation == "preallocate"]
    assert asked[:4] == [4096, 8192, 8192, 16384], "as much as before: there is a segment to go on in"
    log.close()
    assert not any(disk.handles.values()), "also not of what was not prepared"


def _with_a_prepared_segment(disk: SimDisk) -> Log:
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    while log._appender._next.idle:
        fill(log, 1, payload_bytes=900)
    return log


def test_prepared_segment_that_cannot_get_its_name_is_not_used_again() -> None:
    """CN-19. Goal: with a header in it, a file is no new one: a shorter header would leave the end of the first behind
    it. Method: ENOSPC as a prepared segment gets its name: the append goes to the old one, the file is closed, and the
    next segment is a file that was opened anew."""
    disk = SimDisk()
    log = _with_a_prepared_segment(disk)
    opened = disk.count("open", f"{FOLDER}/{TEMP_NAME}")
    disk.fail_on("rename", "*", "ENOSPC")
    fill(log, 1)
    assert disk.fired and len(log.segments()) == 1 and sum(disk.handles.values()) == 1
    while len(log.segments()) == 1:
        fill(log, 1)
    assert disk.count("open", f"{FOLDER}/{TEMP_NAME}") == opened + 1
    held = log.last.index
    log.close()
    assert [one.opid.index for one in open_log(disk)[1]] == list(range(1, held + 1))


def test_closing_waits_for_the_segment_that_is_being_prepared() -> None:
    """CN-19. Goal: a log that is closed touches its folder no more: another one may be opened there. Method: hold the
    allocator as it takes the room, and close: that ends behind it, without a handle and without the file."""
    disk, gate, waiting = SimDisk(), threading.Event(), threading.Event()
    log, _ = open_log(disk, threaded=True)
    outcomes = Outcomes()
    log.append([entry(1)], outcomes)
    outcomes.wait_for(1)

    def hook(operation: str, path: str) -> None:
        if operation == "preallocate":
            waiting.set()
            assert gate.wait(60)

    disk.hook = hook
    log.append([entry(2, bytes(5000))], outcomes)
    assert waiting.wait(30)
    closing = threading.Thread(target=log.close)
    closing.start()
    closing.join(0.05)  # a close that does not wait ends meanwhile
    assert closing.is_alive()
    gate.set()
    closing.join(60)
    assert not any(disk.handles.values()) and not disk.exists(f"{FOLDER}/{TEMP_NAME}")


def test_segment_that_is_being_prepared_is_waited_for_and_not_prepared_twice() -> None:
    """CN-19, CN-20. Goal: an append without a segment to go to sleeps until the next one is there. Method: the segment
    in use is closed while the allocator is held; a group commit is begun, and takes the segment once it is there."""
    disk, gate, waiting = SimDisk(), threading.Event(), threading.Event()
    log, _ = open_log(disk, threaded=True)
    outcomes, taking = Outcomes(), threading.Event()
    log.append([entry(1)], outcomes)
    outcomes.wait_for(1)
    take = log._appender._next.take

    def hook(operation: str, path: str) -> None:
        if operation == "preallocate":
            waiting.set()
            assert gate.wait(patience_s(60))

    def taken(number: int, first_index: int, last: OpId) -> ActiveSegment:
        taking.set()
        return take(number, first_index, last)

    disk.hook = hook
    log.append([entry(2, bytes(5000))], outcomes)
    assert waiting.wait(patience_s(30)) and outcomes.wait_for(2)
    log.roll()
    log._appender._next.take = taken  # type: ignore[method-assign]
    log.append([entry(3)], outcomes)
    assert taking.wait(patience_s(30)) and len(outcomes.results) == 2
    gate.set()
    assert outcomes.wait_for(3)[2] == OpId(1, 3)
    assert disk.count("open", f"{FOLDER}/{TEMP_NAME}") == 2, "once for each segment"
    log.close()


def _alone(index: int, block_bytes: int) -> Entry:
    """An entry whose block is so long if it is alone in it."""
    for size in range(block_bytes - 100, block_bytes):
        slot = Reservation([entry(index, b"x" * size)])
        slot.encoded = [encode_entry(TABLET, slot.entries[0])]
        (length,) = _gather([slot], 1)[1]
        if len(encode_long(1) + encode_long(length)) + length + MARKER_BYTES == block_bytes:
            return slot.entries[0]
    raise AssertionError("no entry has that length")


@pytest.mark.parametrize(("more_bytes", "asked"), [(4095, 2), (4096, 3)])
def test_room_for_a_segment_is_asked_for_again_when_the_present_one_has_grown(more_bytes: int, asked: int) -> None:
    """CN-19. Goal: a full disk is not asked at every append, and no later segment grows for it. Method: no room for the
    second segment; the first one grows by the length of a segment, or by a byte less. With room, each following segment
    ends with the block that does not fit into it, and each is as long as those before."""
    disk = SimDisk()
    log, _ = open_log(disk, WalOptions(segment_size_bytes_first=4096, segment_size_bytes_max=4096))
    append_now(log, [entry(1)])
    disk.fail_on("preallocate", "*", "ENOSPC", times=None)
    while disk.count("preallocate") == 1:
        fill(log, 1)
    assert append_now(log, [_alone(log.last.index + 1, more_bytes)]).durable
    assert disk.count("preallocate") == asked
    disk.heal()
    while len(log.segments()) < 5:
        fill(log, 1)
    assert all(4096 < info.length_bytes < 4096 + 1200 for info in log.segments()[1:-1])


def test_entry_that_found_no_room_in_a_new_segment_goes_there_when_there_is_room() -> None:
    """CN-19. Goal: a full disk does not fill up with segments. Method: the first block of a segment is refused twice
    and taken then, and that segment is the only one."""
    disk = SimDisk()
    log, _ = open_log(disk)
    disk.fail_on("pwrite", f"{FOLDER}/*", "ENOSPC", skip=1, times=2)
    assert [append_now(log, [entry(1)]).durable for _ in range(3)] == [[], [], [OpId(1, 1)]]
    assert segment_paths(disk) == [f"{FOLDER}/wal-000000001"]


def test_closing_a_log_whose_disk_failed_before_its_first_segment_does_nothing() -> None:
    """CN-08. Goal: a log that never wrote anything can be closed. Method: EIO as the first segment is prepared."""
    disk = SimDisk()
    log, _ = open_log(disk)
    disk.fail_on("preallocate", "*")
    assert isinstance(append_now(log, [entry(1)]).results[0], DiskFailure)
    disk.calls.clear()
    log.close()
    assert not disk.calls and not any(disk.handles.values())


def test_close_that_a_disk_fails_says_so() -> None:
    """CN-08. Goal: only what may pass by itself is left to the next opening. Method: EIO as the segment is cut."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    disk.fail_on("truncate", "*")
    with pytest.raises(DiskFailure):
        log.close()


def test_segment_tells_its_first_and_its_highest_index() -> None:
    """Goal: log GC keeps what holds an index that was ever written. Method: group commits of several entries, of which
    a later one replaces some, in one segment and in the next."""
    log, _ = open_log(SimDisk())
    append_now(log, entries(3, 5), [entry(6)])
    append_now(log, [entry(7)])
    log.truncate_after(4)
    append_now(log, entries(5, 6, term=2))
    assert [(info.first_index, info.last_index, info.closed) for info in log.segments()] == [(3, 7, False)]
    log.roll()
    append_now(log, entries(6, 8, term=3))
    assert [(info.first_index, info.last_index) for info in log.segments()] == [(3, 7), (6, 8)]


def test_closing_removes_nothing_from_a_disk_that_failed() -> None:
    """CN-08. Goal: what is there when a disk fails stays as it is. Method: EIO as a prepared segment gets its name; it
    is there behind the close, and no handle is open."""
    disk = SimDisk()
    log = _with_a_prepared_segment(disk)
    disk.fail_on("rename", "*")
    assert isinstance(append_now(log, [entry(log.last.index + 1)]).results[0], DiskFailure)
    log.close()
    assert disk.exists(f"{FOLDER}/{TEMP_NAME}") and not any(disk.handles.values())


def test_closing_cuts_the_segment_to_what_was_written() -> None:
    """CN-21. Goal: closed size is bytes written, readable by any Avro tool. Method: close, then fastavro alone."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, entries(1, 3))
    append_now(log, [entry(4)])
    log.close()
    (info,) = log.segments()
    data = disk.read(f"{FOLDER}/{info.name}")
    assert (info.closed, info.length_bytes) == (True, len(data))
    records = list(fastavro.reader(io.BytesIO(data)))
    assert [(r["term"], r["index"], r["payload"]) for r in records] == [
        (1, e.opid.index, e.payload) for e in entries(1, 4)
    ]
    assert fastavro.reader(io.BytesIO(data)).metadata["nyala.first_index"] == "1"


def test_roll_closes_the_segment_and_the_next_append_begins_another() -> None:
    """Goal: a copy session can have closed files. Method: roll twice, append."""
    log, _ = open_log(SimDisk())
    append_now(log, [entry(1)])
    log.roll()
    log.roll()
    append_now(log, [entry(2)])
    assert [(s.number, s.first_index, s.last_index, s.closed) for s in log.segments()] == [
        (1, 1, 1, True),
        (2, 2, 2, False),
    ]
    assert log.read(1, 3, 1 << 20) == entries(1, 2)


def test_gc_removes_whole_closed_segments_below_the_index() -> None:
    """Goal: log GC removes exactly the closed segments below the index. Method: segments of two entries each; collect
    below 6; reopen."""
    disk = SimDisk()
    log, _ = open_log(disk)
    for first in range(1, 11, 2):
        append_now(log, entries(first, first + 1))
        log.roll()
    size = log.size_bytes
    freed = log.gc(6)
    assert (log.first_index, log.size_bytes) == (5, size - freed)
    assert freed > 0
    assert len(segment_paths(disk)) == 3
    with pytest.raises(Refused, match="log GC"):
        log.read(4, 6, 1 << 20)
    assert (log.term_at(4), log.term_at(5)) == (None, 1)
    log.close()
    assert open_log(disk)[1] == entries(5, 10)


def test_gc_of_everything_keeps_the_last_entry() -> None:
    """Goal: a log never forgets its last OpId. Method: collect far above it, before and after a restart."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, entries(1, 3))
    log.roll()
    log.gc(1000)
    log.close()
    log, _ = open_log(disk)
    assert log.gc(1000) == 0
    assert log.last == OpId(1, 3)


def test_gc_after_a_truncation_keeps_the_last_entry_that_is_left() -> None:
    """Goal: truncated entries in a newer segment do not stand for the log. Method: 1..4, roll, 5, truncate to 4, gc."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, entries(1, 4))
    log.roll()
    append_now(log, [entry(5)])
    log.truncate_after(4)
    assert log.gc(6) == 0
    append_now(log, [entry(5, term=2)])
    log.close()
    assert open_log(disk)[1] == [*entries(1, 4), entry(5, term=2)]


def test_gc_keeps_segments_with_replaced_entries_above_the_index() -> None:
    """Goal: what a replay needs to see the replacement stays in order. Method: 1..4, then 2.3 in the next segment."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, entries(1, 4))
    log.roll()
    append_now(log, [entry(3, term=2)])
    log.roll()
    append_now(log, [entry(4, term=2)])
    assert log.gc(4) == 0
    assert len(log.segments()) == 3
    assert log.read(2, 5, 1 << 20) == [entry(2), entry(3, term=2), entry(4, term=2)]
    append_now(log, [entry(5, term=2)])
    assert log.gc(5) > 0
    assert log.read(4, 6, 1 << 20) == entries(4, 5, term=2)


def test_anchor_and_pin_hold_back_gc_until_released() -> None:
    """Goal: a copy session's files and entries stay (scenario 49). Method: anchor, pin, collect, release each; an
    anchor in a segment keeps what is just below it in there, with place and term, and frees all files before."""
    disk = SimDisk()
    log, _ = open_log(disk)
    for first in (1, 3, 5):
        append_now(log, entries(first, first + 1))
        log.roll()
    with ExitStack() as held:
        held.callback(log.anchor(4).release)
        before = log.segments()
        assert log.gc(100) == before[0].length_bytes
    assert log.read(3, 7, 1 << 20) == entries(3, 6) and (log.term_at(2), log.term_at(3)) == (None, 1)

    disk = SimDisk()
    log, _ = open_log(disk)
    for index in range(1, 6):
        append_now(log, [entry(index)])
        log.roll()
    with ExitStack() as held:
        held.callback(log.anchor(3).release)
        log.gc(100)
        assert log.first_index == 3
    pin = log.pin()
    assert [info.first_index for info in pin.segments] == [3, 4, 5]
    assert log.gc(100) == 0
    pin.release()
    pin.release()
    log.gc(100)
    assert log.first_index == 5


def test_segments_of_an_open_log_tell_the_durable_length() -> None:
    """Goal: a copy of the listed bytes is a log. Method: copy by `segments()` from under an open log, open the copy."""
    disk = SimDisk()
    log, _ = open_log(disk)
    fill(log, 12)
    copy = SimDisk()
    copy.mkdir(FOLDER)
    for info in log.pin().segments:
        copy.poke(f"{FOLDER}/{info.name}", disk.read(f"{FOLDER}/{info.name}")[: info.length_bytes])
    assert open_log(copy)[1] == log.read(1, 13, 1 << 30)


def test_restart_goes_on_in_a_new_segment() -> None:
    """Goal: a recovered file is never appended to. Method: restart three times, look at names and first indexes."""
    disk = SimDisk()
    for index in (1, 2, 3):
        build(disk, lambda log, index=index: append_now(log, [entry(index)]), close=False)
        disk.restart()
    firsts = [next(iter(dump_segment(disk, path)))["first_index"] for path in segment_paths(disk)]
    assert firsts == [1, 2, 3]


def test_dump_tells_entries_apart_by_meta_and_by_payload() -> None:
    """Goal: dumps of two replicas show every difference of their entries. Method: the same OpId three times, with
    another meta and with another payload."""
    told = []
    for changed in (entry(1), entry(1)._replace(meta=b"other"), entry(1, payload=b"other")):
        disk = SimDisk()
        build(disk, lambda log, e=changed: append_now(log, [e]))
        (item,) = [i for i in dump_segment(disk, segment_paths(disk)[0]) if i["kind"] == "entry"]
        told.append((item["meta_crc"], item["payload_crc"]))
    plain, other_meta, other_payload = told
    assert other_meta[1] == plain[1] and other_meta[0] != plain[0] == other_payload[0]
    assert other_payload[1] != plain[1]


def test_log_of_a_copied_tablet_may_begin_anywhere() -> None:
    """Goal: a log need not begin at 1. Method: first entry 5.100."""
    disk = SimDisk()
    build(disk, lambda log: append_now(log, [entry(100, term=5)]))
    log, survivors = open_log(disk)
    assert (survivors, log.first_index, log.last) == ([entry(100, term=5)], 100, OpId(5, 100))


def test_large_payload_is_written_without_being_copied() -> None:
    """CN-13, CN-16. Goal: megabytes go from their owner to the disk. Method: the very object is among the parts."""
    payload = bytes(2 << 20)
    slot = Reservation([entry(1, payload)])
    slot.encoded = [encode_entry("t1", slot.entries[0])]
    parts, lengths = _gather([slot], 1)
    assert any(part is payload for part in parts)
    assert sum(map(len, parts)) == sum(lengths)
    slot = Reservation([entry(1), entry(2), entry(3, payload), entry(4)])
    slot.encoded = [encode_entry("t1", one) for one in slot.entries]
    parts, _ = _gather([slot], 1)
    assert [part is payload for part in parts] == [False, True, False], "small ones are copied together"


def test_full_disk_under_the_swap_lets_appends_go_on_in_the_old_segment() -> None:
    """CN-20. Goal: a refused rename loses nothing and is tried again. Method: ENOSPC in the swap, then many appends."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    disk.fail_on("rename", "*", "ENOSPC")
    fill(log, 40)
    assert log.last == OpId(1, 41)
    assert len(log.segments()) > 1
    disk.restart()
    assert [e.opid.index for e in open_log(disk)[1]] == list(range(1, 42))


def test_restart_without_room_for_a_long_segment_goes_on_in_a_short_one() -> None:
    """CN-17. Goal: a log takes entries as long as there is room for them, however long its segments became. Method:
    long segments, a restart, room for a short one only; then for none."""
    disk = SimDisk()
    log, _ = open_log(disk)
    fill(log, 60)
    log.close()
    last = log.last.index
    disk.capacity_bytes = disk.used_bytes + 2 * SMALL.segment_size_bytes_first
    log, _ = open_log(disk)
    assert [type(r).__name__ for r in append_now(log, [entry(last + 1)]).results] == ["OpId"]
    assert log.segments()[-1].first_index == last + 1
    log.close()
    disk.capacity_bytes = disk.used_bytes
    log, _ = open_log(disk)
    (refused,) = append_now(log, [entry(last + 2)]).results
    assert isinstance(refused, Refused) and refused.code is Code.NO_SPACE
    disk.capacity_bytes = None
    assert append_now(log, [entry(last + 2)]).results == [OpId(1, last + 2)]


def test_failing_disk_under_the_allocator_stops_the_log() -> None:
    """CN-08. Goal: EIO on the side thread's file is not swallowed. Method: EIO in the preallocation, then appends."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    disk.fail_on("preallocate", "*")
    outcomes = append_now(log, [entry(2, bytes(5000))])
    outcomes.results += append_now(log, [entry(3)]).results
    assert [type(result).__name__ for result in outcomes.results] == ["OpId", "DiskFailure"]
    assert isinstance(log.failure, DiskFailure)


def test_header_is_as_long_and_reads_back_whatever_its_marker_is() -> None:
    """Goal: a simulated crash tears the same sectors in each run of a seed. Method: 100 random markers; one in four
    gives a CRC of fewer than ten digits."""
    datas = [encode_header(TABLET, 7, 42, new_marker(), OpId(3, 41)) for _ in range(100)]
    assert {len(data) for data in datas} == {decode_header(datas[0], "wal-000000007").length_bytes}
    assert {decode_header(data, "wal-000000007").first_index for data in datas} == {42}
    assert {decode_header(data, "wal-000000007").after for data in datas} == {OpId(3, 41)}


def test_segment_is_read_by_the_schema_in_its_header() -> None:
    """CN-22. Goal: the schema of an entry is on the log, not in the code. Method: the first of two segments is written
    anew by another schema: other order, a field that nobody knows, none of those with defaults. It is replayed and
    served like the other, also in front of new ones, its damaged end too; Avro alone reads it."""
    disk = SimDisk()
    build(disk, lambda log: [append_now(log, group) for group in (entries(1, 2), entries(3, 5))])
    (path,) = segment_paths(disk)
    other = by_another_schema(disk.read(path))
    assert [r["index"] for r in fastavro.reader(io.BytesIO(other))] == [1, 2, 3, 4, 5]
    disk.poke(path, other)
    log, survivors = open_log(disk)
    assert survivors == entries(1, 5)
    append_now(log, entries(6, 7))
    assert log.read(1, 8, 1 << 20) == entries(1, 7) and log.term_at(4) == 1
    log.close()
    assert open_log(disk)[1] == entries(1, 7)
    assert [i["opid"].index for i in dump_segment(disk, path) if i["kind"] == "entry"] == [1, 2, 3, 4, 5]

    alone = SimDisk()
    alone.mkdir(FOLDER)
    alone.poke(path, other)
    alone.corrupt(path, other.index(b"payload 1.4"))
    _, replay = Log.open(alone, FOLDER, TABLET, SMALL)
    assert (list(replay.entries), replay.withheld) == (entries(1, 3), OpId(1, 5))
