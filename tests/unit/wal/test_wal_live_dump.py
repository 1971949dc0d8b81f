"""A dump beside a log that is appended to and collected meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nyala.replica.types import OpId
from nyala.replica.wal import Log, dump_log, dump_settled
from tests.harness.sim_disk import SimDisk
from tests.harness.wal_entries import FOLDER, append_now, build, entries, entry, open_log, segment_paths


class BusyDisk(SimDisk):
    """Does something of its own right before the n-th call that a reader makes."""

    def __init__(self) -> None:
        super().__init__()
        self._left = 0
        self._deed: Callable[[], None] | None = None
        self.done = False

    def before_call(self, number: int, deed: Callable[[], None]) -> None:
        self._left, self._deed, self.done = number, deed, False

    def called(self, operation: str, path: str, length: int = 0) -> None:
        deed = self._deed
        if deed is not None:
            self._left -= 1
            if self._left <= 0:
                self._deed, self.done = None, True
                deed()
        super().called(operation, path, length)


def no_pause() -> None:
    """Write nothing between two reads."""


def four_segments() -> tuple[BusyDisk, Log]:
    """A log in use whose first three segments are closed."""
    disk = BusyDisk()
    for group in (entries(1, 2), entries(3, 4), entries(5, 6)):
        build(disk, lambda log, group=group: append_now(log, group))
    log, _ = open_log(disk)
    append_now(log, [entry(7)])
    assert len(segment_paths(disk)) == 4
    return disk, log


def kinds(items: list[dict[str, Any]], kind: str) -> list[Any]:
    return [item for item in items if item["kind"] == kind]


def dumped(disk: SimDisk, pause: Callable[[], None], folder: str = FOLDER) -> list[dict[str, Any]]:
    return [{**item, "file": name} for name, item in dump_log(disk, folder, pause)]


DEEDS: dict[str, Callable[[SimDisk, Log], object]] = {
    "one segment collected": lambda disk, log: log.gc(3),
    "three segments collected": lambda disk, log: log.gc(7),
    "collected, appended and rolled": lambda disk, log: (
        log.gc(5), append_now(log, [entry(8)]), log.roll(), append_now(log, [entry(9)])
    ),
    "the tablet deleted": lambda disk, log: disk.remove_tree(FOLDER),
}  # fmt: skip


@pytest.mark.a_third
@pytest.mark.parametrize("what", DEEDS)
def test_dump_beside_a_log_that_is_collected_ends_with_what_it_could_read(what: str) -> None:
    """IN-22. Goal: a dump beside log GC, writes and deletions fails only for real damage. Method: before each single
    call that the dump makes to the disk, the log is collected, written or deleted; the dump ends without damage, names
    what went away, and has each entry of the segments that it could read."""
    collected_once, number = False, 0
    while True:
        number += 1
        disk, log = four_segments()
        disk.before_call(number, lambda disk=disk, log=log: DEEDS[what](disk, log))
        items = dumped(disk, no_pause)
        if not disk.done:
            break
        assert not kinds(items, "damage") and not kinds(items, "newer"), f"call {number}: {items}"
        if not items:
            assert what == "the tablet deleted" and number == 1
            continue
        assert items[-1]["kind"] == "log"
        gone = {item["file"] for item in kinds(items, "collected")}
        headed = {item["file"] for item in kinds(items, "header")}
        assert not gone & headed and all("went away" in item["what"] for item in kinds(items, "collected"))
        indexes = [item["opid"].index for item in kinds(items, "entry")]
        last_of = {f"wal-00000000{number}": [2 * number - 1, 2 * number] for number in (1, 2, 3)}
        assert all(set(last_of.get(name, ())) <= set(indexes) for name in headed)
        collected_once |= bool(gone)
    assert collected_once and number > 8


def test_dump_of_a_block_that_is_being_written_is_read_again_and_is_no_damage() -> None:
    """IN-22. Goal: a half-written block is no damaged one. Method: a block whose middle is still zeros; the pause
    between two looks brings the rest. If each look finds another half, the segment is being written."""
    disk = SimDisk()
    build(disk, lambda log: [append_now(log, [entry(1)]), append_now(log, entries(2, 9))], close=False)
    (path,) = segment_paths(disk)
    whole = disk.read(path)
    at = whole.index(b"payload 1.4")

    def half(length: int) -> None:
        disk.poke(path, whole[:at] + bytes(length) + whole[at + length :])

    half(20)
    items = dump_settled(disk, path, lambda: disk.poke(path, whole))
    assert (items[-1]["kind"], len(kinds(items, "entry"))) == ("tail", 9)
    half(20)
    items = dumped(disk, lambda: disk.poke(path, whole))
    assert not kinds(items, "damage") and items[-1]["last"] == OpId(1, 9)

    looks = iter(range(1, 100))
    hurt = [whole.index(b"payload 1.%d" % index) for index in (2, 3, 4)]

    def other_half() -> None:
        place = hurt[next(looks) % 3]
        disk.poke(path, whole[:place] + b"?" + whole[place + 1 :])

    other_half()
    items = dumped(disk, other_half)
    assert not kinds(items, "damage")
    assert "being written" in kinds(items, "tail")[-1]["what"] and "being written" in items[-1]["what"]


def test_damage_that_stays_is_damage_however_often_it_is_read() -> None:
    """IN-22. Goal: real damage is reported although a dump reads again. Method: a flipped byte in the first of two
    blocks, a segment that is missing in the middle, an empty folder."""
    disk, log = four_segments()
    log.close()
    path = segment_paths(disk)[1]
    whole = disk.read(path)
    disk.corrupt(path, whole.index(b"payload 1.3"))
    items = dumped(disk, no_pause)
    assert [item["file"] for item in kinds(items, "damage")] == ["wal-000000002", "log"]
    disk.remove(path)
    items = dumped(disk, no_pause)
    assert "segments are missing" in items[-1]["what"] and items[-1]["kind"] == "damage"
    assert dumped(disk, no_pause, "wals/none") == []
