"""Every byte of every file of a small log, flipped and cut: a prefix, a withheld vote, or Corruption; never a lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from nyala.replica.types import Corruption, Entry, OpId
from nyala.replica.wal import Log, dump_segment, inspect_log
from nyala.replica.wal.newest import NEWEST_NAME
from tests.harness.sim_disk import SimDisk
from tests.harness.wal_entries import FOLDER, SMALL, TABLET, append_now, build, entries, entry, segment_paths

pytestmark = pytest.mark.deep

MASKS = (0x01, 0x80)


@dataclass(frozen=True)
class Shape:
    """Files of a log at rest, what it holds, and what all but its last group commit hold."""

    files: dict[str, bytes]
    whole: list[Entry]
    durable: int
    """So many entries were followed by another group commit: nothing may lose them without a word."""
    withheld: OpId | None = None
    replaced: tuple[Entry, ...] = ()
    """What it held before its last entries took the place of others, which are still there."""


def shape(
    write: Callable[[SimDisk], int],
    whole: list[Entry],
    *,
    withheld: OpId | None = None,
    replaced: tuple[Entry, ...] = (),
) -> Shape:
    disk = SimDisk()
    durable = write(disk)
    disk.restart()
    files = {f"{FOLDER}/{n}": disk.read(f"{FOLDER}/{n}") for n in (*disk.listdir(FOLDER), NEWEST_NAME)}
    return Shape(files, whole, durable, withheld, replaced)


def _one_closed(disk: SimDisk) -> int:
    build(disk, lambda log: [append_now(log, g) for g in (entries(1, 1), entries(2, 3), entries(4, 6))])
    return 3


def _one_open(disk: SimDisk) -> int:
    """With the zeros of a preallocated rest, as a killed process leaves it."""
    build(disk, lambda log: [append_now(log, g) for g in (entries(1, 2), entries(3, 5))], close=False)
    return 2


def _closed_and_open(disk: SimDisk) -> int:
    build(disk, lambda log: append_now(log, entries(1, 2)))
    build(disk, lambda log: [append_now(log, g) for g in (entries(3, 3), entries(4, 5))], close=False)
    return 3


def _header_only_behind(disk: SimDisk) -> int:
    """The last entries stand in the segment before the last, which never got any."""
    build(disk, lambda log: append_now(log, entries(1, 1), entries(2, 3)))
    build(disk, lambda log: log.roll())
    return 0


def _replaced(disk: SimDisk) -> int:
    """A later leader's entries in place of 3 and 4, in a segment of their own."""
    build(disk, lambda log: [append_now(log, g) for g in (entries(1, 2), entries(3, 4))])
    build(disk, lambda log: append_now(log, entries(3, 5, term=2)), close=False)
    return 2


def _once_damaged(disk: SimDisk) -> int:
    """A start found the last entry damaged: it is gone, and its mark stands beside the segments."""
    build(disk, lambda log: [append_now(log, g) for g in (entries(1, 2), [entry(3)])], close=False)
    (path,) = segment_paths(disk)
    disk.restart()
    disk.corrupt(path, disk.read(path).index(b"payload 1.3"))
    build(disk, lambda log: None)
    return 0


def _zero_sectors(disk: SimDisk) -> int:
    """A last commit with sectors that hold nothing but zeros, or one other byte."""
    build(disk, lambda log: [append_now(log, group) for group in (entries(1, 2), ZEROS[2:])], close=False)
    return 2


ZEROS = [*entries(1, 2), entry(3, bytes(700)), entry(4, b"\x80" + bytes(600) + b"\x01" + bytes(90))]
SHAPES = {
    "zero sectors at the end": lambda: shape(_zero_sectors, ZEROS),
    "one closed segment": lambda: shape(_one_closed, entries(1, 6)),
    "an open one with preallocated zeros": lambda: shape(_one_open, entries(1, 5)),
    "a closed and an open one": lambda: shape(_closed_and_open, entries(1, 5)),
    "a header without entries at the end": lambda: shape(_header_only_behind, entries(1, 3)),
    "entries replaced in a later term": lambda: shape(
        _replaced, [*entries(1, 2), *entries(3, 5, term=2)], replaced=tuple(entries(1, 4))
    ),
    "a mark of a damaged entry": lambda: shape(_once_damaged, entries(1, 2), withheld=OpId(1, 3)),
}


CLOSED = ("one closed segment", "a header without entries at the end", "a mark of a damaged entry")
"""The others are as a killed process leaves them."""


def on_disk(files: dict[str, bytes]) -> SimDisk:
    disk = SimDisk()
    disk.mkdir(FOLDER)
    for path, data in files.items():
        disk.poke(path, data)
    return disk


def content(path: str, data: bytes) -> tuple[int, int]:
    """(end of the header, end of the content) of a file; the mark and the record of the end have no header."""
    if not path.rpartition("/")[2].startswith("wal-"):
        return 0, len(data)
    rows = list(dump_segment(on_disk({path: data}), path))
    return rows[0]["length_bytes"], rows[-1]["byte_offset"]


def flips(path: str, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Every byte up to a little into the zeros; those after the header with two masks."""
    header, end = content(path, data)
    for position in range(min(len(data), end + 4)):
        for mask in MASKS if position >= header else MASKS[:1]:
            yield position, data[:position] + bytes([data[position] ^ mask]) + data[position + 1 :]


def outcome(log: Shape, files: dict[str, bytes], where: str, durable: int = 0) -> str:
    """Open the log and judge what it says; the same must come out of a look before, and of a second start."""
    disk = on_disk(files)
    try:
        seen = inspect_log(disk, FOLDER, TABLET)
    except Corruption:
        seen = None
    assert {path: disk.read(path) for path in files} == files, f"{where}: a look changed a file"
    try:
        opened, replay = Log.open(disk, FOLDER, TABLET, SMALL)
    except Corruption as error:
        assert "segment" in str(error) or "path" in str(error), where
        assert {path: disk.read(path) for path in files} == files, f"{where}: the evidence was changed"
        assert seen is None, f"{where}: a look did not see what a start refuses"
        return "corruption"
    survivors = list(replay.entries)
    opened.close()
    assert seen is not None and seen.withheld == replay.withheld, where
    earlier = bool(log.replaced) and survivors == list(log.replaced)
    assert earlier or survivors == log.whole[: len(survivors)], f"{where}: a wrong entry"
    assert len(survivors) >= durable, f"{where}: an entry that others followed is lost without a word"
    again, second = Log.open(disk, FOLDER, TABLET, SMALL)
    assert (list(second.entries), second.withheld) == (survivors, replay.withheld), f"{where}: another second start"
    again.close()
    if len(survivors) == len(log.whole):
        return "whole" if replay.withheld == log.withheld else "withheld"
    if replay.withheld is None:
        return "shorter"
    assert replay.withheld.index > len(survivors) or earlier, where
    return "withheld"


@pytest.mark.parametrize("name", SHAPES)
def test_log_with_any_byte_of_any_file_flipped_is_a_prefix_a_withheld_vote_or_corruption(name: str) -> None:
    """CN-22, scenario 38. Goal: one flipped byte is never taken for another entry, nor a whole entry for one that never
    was. Method: every byte of every file; an entry that is missing must be withheld."""
    log = SHAPES[name]()
    assert outcome(log, log.files, "undamaged") == "whole"
    seen: Counter[str] = Counter()
    for path, data in log.files.items():
        for position, flipped in flips(path, data):
            where = f"{path} byte {position}"
            found = outcome(log, {**log.files, path: flipped}, where, log.durable)
            assert found != "shorter", f"{where}: an acknowledged entry is gone without a word"
            seen[found] += 1
    assert seen["corruption"] > 500, seen


@pytest.mark.parametrize("name", SHAPES)
def test_log_with_any_file_cut_anywhere_is_a_prefix_a_withheld_vote_or_corruption(name: str) -> None:
    """CN-22, IN-21, scenario 38. Goal: scenario 38: a cut loses at most the end of the last group commit, and a log
    that was closed loses nothing unnoticed. Method: every length of every file, and the same length with zeros behind,
    as a preallocated segment has them."""
    log = SHAPES[name]()
    seen: Counter[str] = Counter()
    for path, data in log.files.items():
        _, end = content(path, data)
        for length in range(end):
            for rest in (b"", bytes(700)):
                seen[outcome(log, {**log.files, path: data[:length] + rest}, f"{path} cut at {length}")] += 1
    assert seen["corruption"] > 100, seen
    assert (seen["shorter"] == 0) == (name in CLOSED), seen
