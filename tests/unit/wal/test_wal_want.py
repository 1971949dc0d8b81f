"""A log whose server lacks memory, files or threads for a moment refuses, loses nothing and goes on."""

from __future__ import annotations

import google_crc32c
import pytest

from nyala.replica.fs import exhausted
from nyala.replica.types import DiskFailure, OpId, Refused, ResourcesExhausted
from nyala.replica.wal import Log, inspect_log, verify_segment
from nyala.replica.wal.recovery import TEMP_NAME
from tests.harness.sim_disk import SimDisk
from tests.harness.wal_entries import (
    FOLDER,
    SMALL,
    TABLET,
    Outcomes,
    append_now,
    build,
    entries,
    entry,
    open_log,
    segment_paths,
)

WANTS = ("EMFILE", "ENFILE", "ENOMEM", "EAGAIN")
OPERATIONS = ("open", "pread", "pwrite", "truncate", "preallocate", "rename", "remove", "listdir", "size")


def two_segments() -> SimDisk:
    disk = SimDisk()
    build(disk, lambda log: [append_now(log, entries(1, 2)), append_now(log, [entry(3)])])
    build(disk, lambda log: append_now(log, entries(4, 5)), close=False)
    disk.restart()
    return disk


@pytest.mark.a_third
@pytest.mark.parametrize("kind", WANTS)
def test_log_that_cannot_be_opened_for_want_of_anything_is_opened_later_and_is_whole(kind: str) -> None:
    """IN-30. Goal: an exhausted resource while a log is opened is not taken for damage. Method: at each single call
    that an opening makes, that errno: it is refused as a want (at a sync as a failed one), and the next opening finds
    every entry and withholds nothing."""
    seen = 0
    for operation in (*OPERATIONS, "sync", "sync_dir", "mkdir", "stat"):
        for skip in range(40):
            disk = two_segments()
            disk.fail_on(operation, "*", kind, skip=skip)
            try:
                log, _ = open_log(disk)
                log.close()
            except ResourcesExhausted:
                seen += 1
            except DiskFailure:
                assert operation == "sync"
            if not disk.fired:
                break
            disk.restart()
            log, replay = Log.open(disk, FOLDER, TABLET, SMALL)
            assert (list(replay.entries), replay.withheld) == (entries(1, 5), None), f"{operation} {skip}"
            log.close()
    assert seen > 10


@pytest.mark.a_third
@pytest.mark.parametrize("kind", WANTS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_append_that_the_server_has_no_means_for_is_refused_and_the_log_goes_on(kind: str, operation: str) -> None:
    """IN-30. Goal: nothing that was acknowledged is lost, and what was refused is not there. Method: at each call of
    twenty appends through several segments, that errno once; refused entries are given again; a restart finds each."""
    refused = 0
    for skip in range(60):
        disk = SimDisk()
        log, _ = open_log(disk)
        disk.fail_on(operation, "*", kind, skip=skip)
        for index in range(1, 21):
            outcome = append_now(log, [entry(index, bytes([index]) * 700)]).results[0]
            if not isinstance(outcome, OpId):
                assert isinstance(outcome, ResourcesExhausted), outcome
                refused += 1
                again = append_now(log, [entry(index, bytes([index]) * 700)]).results[0]
                assert again == OpId(1, index)
        hit = bool(disk.fired)
        disk.heal()
        assert log.failure is None
        assert [e.opid.index for e in log.read(1, 21, 1 << 20)] == list(range(1, 21))
        log.close()
        disk.restart()
        assert [e.opid.index for e in open_log(disk)[1]] == list(range(1, 21))
        if not hit:
            break
    assert (refused > 0) == (operation in ("open", "preallocate", "pwrite", "rename", "truncate")), refused


@pytest.mark.parametrize("kind", [*WANTS, "ENOSPC"])
def test_segment_that_cannot_be_closed_now_stays_in_use_and_the_log_goes_on(kind: str) -> None:
    """IN-30. Goal: a resource that was exhausted once does not make a log refuse for ever. Method: that errno once as a
    copy session rolls the log; the next append and the next roll work, and the closed segment and the log opened anew
    are whole."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    disk.fail_on("truncate", "*", kind)
    with pytest.raises(Refused):
        log.roll()
    assert disk.fired and log.failure is None
    assert append_now(log, [entry(2)]).results == [OpId(1, 2)]
    log.roll()
    assert append_now(log, [entry(3)]).results == [OpId(1, 3)]
    first, second = log.segments()
    assert (first.closed, first.last_index, second.closed, second.first_index) == (True, 2, False, 3)
    assert sum(verify_segment(disk, FOLDER, TABLET, first)) == first.length_bytes == disk.size(f"{FOLDER}/{first.name}")
    log.close()
    assert open_log(disk)[1] == entries(1, 3)


@pytest.mark.parametrize("kind", [*WANTS, "ENOSPC"])
@pytest.mark.parametrize("operation", ["truncate", "remove"])
def test_log_that_cannot_tidy_up_its_files_now_is_closed_all_the_same(operation: str, kind: str) -> None:
    """IN-30. Goal: a replica that is stopped never ends its server. Method: that errno as a close cuts the segment, or
    removes the one that was prepared; no handle stays open, the next opening finds every entry and tidies up."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    index = 1
    while operation == "remove" and log._appender._next.idle:  # until the next segment is prepared
        index += 1
        assert append_now(log, [entry(index, b"x" * 900)]).results == [OpId(1, index)]
    disk.fail_on(operation, "*", kind)
    log.close()
    assert disk.fired and not any(disk.handles.values())
    again, replay = Log.open(disk, FOLDER, TABLET, SMALL)
    assert ([e.opid.index for e in replay.entries], replay.withheld) == (list(range(1, index + 1)), None)
    assert not disk.exists(f"{FOLDER}/{TEMP_NAME}")
    again.close()


@pytest.mark.parametrize("kind", WANTS)
def test_segment_that_log_gc_cannot_remove_now_leaves_no_hole(kind: str) -> None:
    """IN-30. Goal: an old segment that stays is never behind one that went: a start would miss it. Method: removals and
    syncs of the folder fail once, at each place; the next call goes on with the same segment; then a power cut."""
    for operation in ("remove", "sync_dir"):
        for skip in range(3):
            disk = SimDisk()
            for first in (1, 3, 5):
                build(disk, lambda log, first=first: append_now(log, entries(first, first + 1)))
            log, _ = open_log(disk)
            append_now(log, [entry(7)])
            disk.fail_on(operation, "*", kind, skip=skip)
            with pytest.raises(ResourcesExhausted):
                log.gc(7)
            left = segment_paths(disk)
            numbers = [int(path.rpartition("-")[2]) for path in left]
            assert numbers == list(range(numbers[0], 5))
            log.gc(7)
            assert len(segment_paths(disk)) == 1
            log.close()
            assert inspect_log(disk, FOLDER, TABLET).last == OpId(1, 7)


@pytest.mark.parametrize("kind", WANTS)
@pytest.mark.parametrize("operation", ["open", "pread", "uncache"])
def test_check_at_rest_does_not_take_a_want_for_damage(kind: str, operation: str) -> None:
    """IN-30. Goal: the scrub fails no replica for it. Method: that errno as a closed segment is read again."""
    disk = two_segments()
    info = inspect_log(disk, FOLDER, TABLET).segments[0]
    disk.fail_on(operation, f"{FOLDER}/*", kind)
    with pytest.raises(ResourcesExhausted):
        list(verify_segment(disk, FOLDER, TABLET, info))
    assert sum(verify_segment(disk, FOLDER, TABLET, info)) == info.length_bytes


@pytest.mark.parametrize("call", [2, 3])
def test_append_without_memory_to_gather_it_is_refused_and_the_log_goes_on(
    call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-30. Goal: nothing is written then, so nothing is broken. Method: MemoryError as the entries
    of a block are gathered, or as its trailer is made; the first checksum is the caller's, who serialises."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    entry_two = entry(2, bytes(700))
    crc, calls = google_crc32c.value, []

    def no_memory(data: bytes) -> int:
        calls.append(data)
        if len(calls) == call:
            raise MemoryError
        return crc(data)

    with monkeypatch.context() as patch:
        patch.setattr(google_crc32c, "value", no_memory)
        (refused,) = append_now(log, [entry_two]).results
    assert isinstance(refused, ResourcesExhausted) and log.failure is None
    assert append_now(log, [entry_two]).results == [OpId(1, 2)]
    log.close()
    assert open_log(disk)[1] == [entry(1), entry_two]


def test_append_that_cannot_be_serialised_for_want_of_memory_ends_the_log_and_not_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """IN-30. Goal: if memory is exhausted while an entry is serialised, the log ends with that reason, and a start
    finds all durable entries. Method: MemoryError in the caller's hands; the log takes no more, for that reason; it is
    opened again."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    one = entry(2)

    def no_memory(data: bytes) -> int:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(google_crc32c, "value", no_memory)
        with pytest.raises(MemoryError):
            log.append([one], Outcomes())
    assert isinstance(log.failure, MemoryError) and exhausted(log.failure) is not None
    with pytest.raises(MemoryError):
        log.append([one], Outcomes())
    log.close()
    disk.restart()
    assert open_log(disk)[1] == entries(1, 1)
