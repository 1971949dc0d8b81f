"""What a dump tells of a segment, item by item, and of the log that its segments make."""

from __future__ import annotations

from typing import Any

import google_crc32c
import pytest

from nyala.replica.types import OpId
from nyala.replica.wal import Log, dump_log, dump_segment, dump_settled, read_offline
from nyala.replica.wal.live_dump import READS_MAX
from tests.harness.sim_disk import SECTOR_BYTES, SimDisk
from tests.harness.wal_entries import (
    FOLDER,
    TABLET,
    append_now,
    block_ends,
    build,
    entries,
    entry,
    of_a_later_build,
    segment_paths,
)


def _written(*groups: tuple[int, int], close: bool = True) -> tuple[SimDisk, str]:
    """A log of one segment with a block for each group, and the path of that."""
    disk = SimDisk()
    build(disk, lambda log: [append_now(log, entries(*group)) for group in groups], close=close)
    (path,) = segment_paths(disk)
    return disk, path


def _segments(count: int) -> SimDisk:
    """A closed log of so many segments of two entries each."""
    disk = SimDisk()
    for number in range(count):
        build(disk, lambda log, first=2 * number + 1: append_now(log, entries(first, first + 1)))
    return disk


def _tear(disk: SimDisk, path: str) -> None:
    """Leave the end of the last block unwritten, as a power cut may."""
    end = block_ends(disk, path)[-1]
    disk.poke(path, disk.read(path)[: (end - 1) // SECTOR_BYTES * SECTOR_BYTES].ljust(end, b"\0"))


def _damage(what: str, **more: object) -> dict[str, Any]:
    return {"kind": "damage", "byte_offset": 0, "what": what, "torn": False, "kept": 0, "withheld": None} | more


def _none() -> None:
    raise AssertionError("a whole file is not waited for")


def test_dump_of_a_whole_segment_has_its_header_each_entry_and_the_rest() -> None:
    """IN-22. Goal: an operator, or a script, sees what is where. Method: every item of two blocks of three entries,
    with zeros behind them."""
    disk, path = _written((1, 2), (3, 3), close=False)
    start, _, end = block_ends(disk, path)
    header, *held, tail = dump_segment(disk, path)
    assert header == {
        "kind": "header", "byte_offset": 0, "tablet_id": TABLET, "segment": 1, "first_index": 1, "length_bytes": start,
    }  # fmt: skip
    data, at = disk.read(path), start
    for index, item in enumerate(held, 1):
        one = entry(index)
        assert item["byte_offset"] >= at and one.payload in data[item["byte_offset"] :][: item["length_bytes"]]
        at = item["byte_offset"] + item["length_bytes"]
        assert item == {
            "kind": "entry", "byte_offset": item["byte_offset"], "length_bytes": item["length_bytes"],
            "opid": one.opid, "entry_kind": "WRITE", "hybrid_time": one.hybrid_time, "schema_id": 1, "meta_bytes": 1,
            "meta_crc": google_crc32c.value(b"m"), "payload_bytes": 11, "payload_crc": one.payload_crc,
        }  # fmt: skip
    assert len(held) == 3 and tail == {"kind": "tail", "byte_offset": end, "zero_bytes": len(data) - end}


def test_dump_of_what_has_no_header_is_of_one_or_two_items() -> None:
    """IN-22. Goal: as above, for what no entry can be read of. Method: a segment that was emptied, a file that is being
    prepared, a header with a changed byte."""
    disk, path = _written((1, 3))
    whole = disk.read(path)
    tail = {"kind": "tail", "byte_offset": 0, "zero_bytes": 5000}
    disk.poke(path, bytes(5000))
    assert [*dump_segment(disk, path)] == [_damage("a segment was emptied: its header is gone"), tail]
    disk.poke(f"{FOLDER}/other", bytes(5000))
    assert [*dump_segment(disk, f"{FOLDER}/other")] == [tail]
    disk.poke(path, whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    (item,) = dump_segment(disk, path)
    assert item == _damage(item["what"]) and "header" in item["what"]


@pytest.mark.parametrize("last", [1, 4])
def test_dump_ends_at_what_a_later_build_wrote(last: int) -> None:
    """Goal: a dump names the last entry before one that this build does not know. Method: of one entry, and of four,
    the last one is of an unknown kind."""
    disk, path = _written((1, last))
    disk.poke(path, of_a_later_build(disk.read(path), kind=99))
    *before, newer = dump_segment(disk, path)
    assert [item["kind"] for item in before] == ["header"] + ["entry"] * (last - 1)
    at = before[-1]["byte_offset"] if last > 1 else 0
    assert newer == {"kind": "newer", "byte_offset": at, "what": newer["what"]}


def test_verdict_of_a_log_tells_its_range_its_size_and_its_torn_end() -> None:
    """IN-22. Goal: what a start would find, and cut. Method: a whole log, which is read once; the same with half a
    block at its end; the look without a change finds the same entries."""
    disk = _segments(2)
    size = sum(disk.size(path) for path in segment_paths(disk))
    whole = {"kind": "log", "byte_offset": size, "first_index": 1, "last": OpId(1, 4), "segments": 2}
    assert [*dump_log(disk, FOLDER, _none)][-1] == ("log", whole)
    disk = SimDisk()
    build(disk, lambda log: [append_now(log, each) for each in (entries(1, 2), [entry(3, b"x" * 2000)])], close=False)
    (path,) = segment_paths(disk)
    _, middle, _ = block_ends(disk, path)
    _tear(disk, path)
    (_, verdict) = [*dump_log(disk, FOLDER, lambda: None)][-1]
    assert verdict.pop("torn").endswith(f"wal-000000001 byte {middle}")
    assert verdict == {"kind": "log", "byte_offset": middle, "first_index": 1, "last": OpId(1, 2), "segments": 1}
    seen = read_offline(disk, FOLDER, TABLET)
    assert (seen.first_index, seen.last, seen.withheld) == (1, OpId(1, 2), None)


def test_segments_that_all_went_away_are_told_as_collected() -> None:
    """IN-22. Goal: a tablet that is deleted under a dump is no damaged one. Method: its folder goes away after the
    listing."""
    disk = _segments(3)
    names, listed = [path.rpartition("/")[2] for path in segment_paths(disk)], disk.listdir

    def listdir(folder: str) -> list[str]:
        found = listed(folder)
        disk.remove_tree(folder)
        return found

    disk.listdir = listdir  # type: ignore[method-assign]
    *items, last = dump_log(disk, FOLDER, _none)
    what = "the file went away before it was read: log GC collected it, or the tablet was deleted"
    assert items == [(name, {"kind": "collected", "byte_offset": 0, "what": what}) for name in names]
    assert last == ("log", {"kind": "log", "byte_offset": 0, "what": "every segment was collected: nothing is left"})


def test_log_that_seems_damaged_in_another_way_at_each_look_is_being_written() -> None:
    """IN-22. Goal: only a damage that stays is one. Method: of four segments another one is missing at each look: no
    segment is damaged, and the log is no more than that it should be read again; one that stays missing is damage."""
    disk = _segments(4)
    paths = segment_paths(disk)
    content, looks = {path: disk.read(path) for path in paths}, list[str]()
    disk.remove(paths[1])

    def pause() -> None:
        gone, back = (paths[1], paths[2]) if len(looks) % 2 else (paths[2], paths[1])
        looks.append(gone)
        disk.poke(back, content[back])
        disk.remove(gone)

    writing = {"kind": "log", "byte_offset": 0, "what": "it is being written or collected: dump it again"}
    assert [*dump_log(disk, FOLDER, pause)][-1] == ("log", writing) and len(looks) == READS_MAX
    waits = list[int]()
    _, verdict = [*dump_log(disk, FOLDER, lambda: waits.append(1))][-1]
    assert verdict == {"kind": "damage", "byte_offset": 0, "what": verdict["what"]} and waits == [1]
    assert "segments are missing" in verdict["what"]


def test_segment_that_is_written_all_the_time_ends_where_it_was_whole() -> None:
    """IN-22. Goal: a dump of a segment that changes all the time shows the entries before the changing block. Method:
    another entry of its third block is damaged at each look, until the segment was given up; then it is whole."""
    disk, path = _written((1, 2), (3, 3), (4, 5))
    whole, looks = disk.read(path), list[int]()
    places = [whole.index(b"payload 1.%d" % index) for index in (4, 5)]

    def other(until: int) -> None:
        looks.append(len(looks))
        place = places[len(looks) % 2]
        disk.poke(path, whole[:place] + b"?" + whole[place + 1 :] if len(looks) < until else whole)

    other(99)
    *before, tail = dump_settled(disk, path, lambda: other(99))
    assert [item.get("opid") for item in before] == [None, OpId(1, 1), OpId(1, 2), OpId(1, 3)]
    _, _, third, _ = block_ends(disk, path)
    assert tail == {"kind": "tail", "byte_offset": third, "what": "it is being written or collected: dump it again"}
    assert [*dump_log(disk, FOLDER, lambda: other(99))][-1] == ("log", tail | {"kind": "log", "byte_offset": 0})
    looks.clear()
    other(99)
    items = [item for _, item in dump_log(disk, FOLDER, lambda: other(READS_MAX + 2))]
    assert items[-2] == tail and items[-1]["last"] == OpId(1, 5)


def test_log_is_judged_as_the_one_of_its_first_segment() -> None:
    """IN-22. Goal: a damaged header of a segment is reported as such. Method: the newest segment's header is
    damaged."""
    disk = _segments(2)
    path = segment_paths(disk)[1]
    disk.corrupt(path, 40)
    _, verdict = [*dump_log(disk, FOLDER, lambda: None)][-1]
    assert verdict["kind"] == "damage" and "wal-000000002" in verdict["what"]


def test_look_at_a_log_without_a_change_finds_what_opening_it_would() -> None:
    """CN-22. Goal: offline tools tell the same range as a server. Method: a log that has nothing but the kept entries
    of a damaged block, and one with a mark and a torn end."""
    disk, path = _written((4, 8), close=False)
    end = block_ends(disk, path)[-1]
    disk.poke(path, disk.read(path)[: end - 8] + b"x" + disk.read(path)[end - 7 :])
    seen = read_offline(disk, FOLDER, TABLET)
    assert (seen.first_index, seen.last, [*seen.entries]) == (4, OpId(1, 8), entries(4, 8))
    disk, path = _written((1, 2), (3, 3), close=False)
    disk.restart()
    disk.corrupt(path, disk.read(path).index(b"payload 1.3"))
    build(disk, lambda log: append_now(log, [entry(3, b"x" * 2000, term=2)]), close=False)
    _tear(disk, segment_paths(disk)[-1])
    assert _same(disk) == (OpId(1, 2), OpId(1, 3))


def _same(disk: SimDisk) -> tuple[OpId, OpId | None]:
    seen = read_offline(disk, FOLDER, TABLET)
    log, replay = Log.open(disk, FOLDER, TABLET)
    assert (replay.first_index, replay.last, replay.withheld) == (seen.first_index, seen.last, seen.withheld)
    log.close()
    return seen.last, seen.withheld
