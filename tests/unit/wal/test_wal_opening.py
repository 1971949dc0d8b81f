"""The result of opening a log if damage hits a record, a mark, or another segment."""

from __future__ import annotations

import pytest

from nyala.replica.types import Corruption, Entry, OpId
from nyala.replica.wal import Log, dump_log, dump_segment, inspect_log
from nyala.replica.wal.format import seal
from nyala.replica.wal.newest import NEWEST_NAME
from nyala.replica.wal.recovery import TEMP_NAME, WITHHELD_NAME
from tests.harness.sim_disk import SimDisk
from tests.harness.wal_entries import (
    FOLDER,
    SMALL,
    TABLET,
    append_now,
    begin_a_segment,
    block_ends,
    build,
    entries,
    entry,
    open_log,
    segment_paths,
    without_after,
)


def _closed(*groups: tuple[int, int]) -> tuple[SimDisk, str]:
    """A log that was closed: one segment, a block for each (first, last)."""
    disk = SimDisk()
    build(disk, lambda log: [append_now(log, entries(*group)) for group in groups])
    (path,) = segment_paths(disk)
    return disk, path


def _flip(disk: SimDisk, path: str, text: bytes) -> None:
    disk.corrupt(path, disk.read(path).index(text))


def _opened(disk: SimDisk) -> tuple[list[Entry], OpId | None]:
    log, replay = Log.open(disk, FOLDER, TABLET, SMALL)
    found = list(replay.entries)
    log.close()
    assert not any(disk.handles.values()), "a file is left open"
    return found, replay.withheld


def test_damage_before_the_end_of_a_closed_log_is_corruption() -> None:
    """CN-22. Goal: damage in the middle of a log is Corruption, whatever the record of the end says. Method: flip a
    byte in the first of three blocks."""
    disk, path = _closed((1, 1), (2, 3), (4, 6))
    _flip(disk, path, b"payload 1.1")
    before = disk.read(path)
    with pytest.raises(Corruption, match="a segment is damaged"):
        open_log(disk)
    assert disk.read(path) == before and not any(disk.handles.values())


def test_second_damage_adds_to_the_mark_of_the_first() -> None:
    """CN-22. Goal: the vote is withheld until the log has all entries that two starts found lost. Method: lose the last
    entries of six; append one of them again, and lose that one too; append them all."""
    disk, path = _closed((1, 2), (3, 6))
    _flip(disk, path, b"payload 1.3")
    build(disk, lambda log: append_now(log, [entry(3)]))
    path = segment_paths(disk)[-1]
    _flip(disk, path, b"payload 1.3")
    for _ in range(2):
        assert _opened(disk) == (entries(1, 2), OpId(1, 6))
    build(disk, lambda log: append_now(log, entries(3, 6)))
    assert _opened(disk) == (entries(1, 6), None) and not disk.exists(f"{FOLDER}/{WITHHELD_NAME}")


def test_log_without_damage_but_with_a_mark_goes_on_withholding() -> None:
    """CN-22. Goal: a mark of an earlier start counts even if this start finds no damage. Method: the start after the
    one that lost."""
    disk, path = _closed((1, 2), (3, 4))
    _flip(disk, path, b"payload 1.4")
    for _ in range(2):
        assert inspect_log(disk, FOLDER, TABLET).withheld == OpId(1, 4)
        assert _opened(disk) == (entries(1, 3), OpId(1, 4))


class _Liar(SimDisk):
    """Says that it replaced a segment, and keeps the old bytes."""

    def replace(self, path: str, data: bytes, *, keep_room: bool = False) -> None:
        kept = self.read(path) if path.rpartition("/")[2].startswith("wal-") else data
        super().replace(path, kept, keep_room=keep_room)


def test_segment_that_does_not_read_back_as_it_was_repaired_is_corruption() -> None:
    """CN-22. Goal: a repaired segment is read again before its entries count as saved. Method: a disk that drops the
    repaired file."""
    whole, path = _closed((1, 1), (2, 4))
    disk = _Liar()
    disk.mkdir(FOLDER)
    disk.poke(path, whole.read(path))
    _flip(disk, path, b"payload 1.4")
    with pytest.raises(Corruption, match="does not read back"):
        open_log(disk)


def test_segment_begun_behind_a_block_whose_marker_is_damaged_follows_its_entries() -> None:
    """CN-22. Goal: a damaged marker alone loses no entry, also with a new segment after it. Method: change the last
    byte of a segment, behind which another one has a header only."""
    disk, first = _closed((1, 1), (2, 4))
    begin_a_segment(disk, entry(5))
    assert len(segment_paths(disk)) == 2
    disk.corrupt(first, disk.size(first) - 1)
    assert _opened(disk) == (entries(1, 4), None)


def test_two_damaged_segments_are_corruption() -> None:
    """CN-22. Goal: a group commit is synced before the next one is written, so only one block can be torn. Method: the
    last block of a segment is damaged, and the only block of the next one is cut short."""
    disk, first = _closed((1, 1), (2, 4))
    build(disk, lambda log: append_now(log, [entry(5)]), close=False)
    disk.restart()
    second = segment_paths(disk)[-1]
    _flip(disk, first, b"payload 1.4")
    disk.poke(second, disk.read(second).rstrip(b"\0")[:-20])
    with pytest.raises(Corruption, match="later ones hold data"):
        open_log(disk)


def test_entries_missing_between_segments_are_told_with_the_damage_before_them() -> None:
    """CN-22. Goal: the error about missing entries also names the damaged file before them. Method: a segment whose
    last block is cut short, with entries in the next one."""
    disk, first = _closed((1, 1), (2, 4))
    build(disk, lambda log: append_now(log, [entry(5)]))
    block_at = block_ends(disk, first)[1]
    disk.poke(first, disk.read(first)[:-20])
    with pytest.raises(Corruption, match="entries are missing before a segment") as raised:
        open_log(disk)
    found = raised.value.values
    assert (found["damaged"], found["byte_offset"]) == ("wal-000000001", block_at)


@pytest.mark.parametrize("first", [1, 100])
def test_entry_missing_before_a_segment_of_an_earlier_build_is_corruption(first: int) -> None:
    """CN-22. Goal: a single missing entry is found even if the next segment's header does not name the one before it.
    Method: of two entries, or of the only one, the last is cut off on its border; behind it stands a segment without an
    entry; logs from 1 on, and of a copied tablet. Without the cut the log opens."""
    for count in (2, 1):
        disk = SimDisk()
        build(disk, lambda log, n=count: [append_now(log, [entry(first + k)]) for k in range(n)])
        begin_a_segment(disk, entry(first + count))
        path, behind = segment_paths(disk)
        disk.poke(behind, without_after(disk.read(behind)))
        disk.remove(f"{FOLDER}/{NEWEST_NAME}")
        whole = disk.read(path)
        assert _opened(disk) == (entries(first, first + count - 1), None)
        disk.poke(path, whole[: block_ends(disk, path)[-2]])
        disk.remove(f"{FOLDER}/{NEWEST_NAME}")
        with pytest.raises(Corruption, match="entries are missing before a segment"):
            open_log(disk)


def test_segment_begun_behind_a_lost_replacement_is_removed() -> None:
    """CN-22. Goal: a segment that was begun after lost entries does not follow those that they had replaced, although
    its index would fit. Method: the first entry of a later leader's shorter end is damaged, with a segment without an
    entry behind."""
    disk = SimDisk()
    build(disk, lambda log: [append_now(log, entries(1, 9)), append_now(log, entries(4, 5, term=2))])
    begin_a_segment(disk, entry(6, term=2))
    path, _ = segment_paths(disk)
    _flip(disk, path, b"payload 2.4")
    found, withheld = _opened(disk)
    assert found == entries(1, 9) and withheld is not None and withheld.index > 9
    assert segment_paths(disk) == [path]


@pytest.mark.parametrize("zeros_at", [2, 3, 4])
@pytest.mark.parametrize("hurt", ["marker", "last entry"])
def test_repaired_block_states_its_zeros_again(hurt: str, zeros_at: int) -> None:
    """CN-22. Goal: a repaired block has a new trailer of its zero sectors, so the next start accepts it. Method: a
    block of three entries, of which one has a run of zeros and the last carries the trailer of it; its marker is
    damaged, or its last entry."""
    group = [entry(index, bytes(700) + b"x" if index == zeros_at else None, meta=b"m%d" % index) for index in (2, 3, 4)]
    disk = SimDisk()
    build(disk, lambda log: [append_now(log, [entry(1)]), append_now(log, group)], close=False)
    disk.restart()
    (path,) = segment_paths(disk)
    end = block_ends(disk, path)[-1]
    disk.corrupt(path, end - 1 if hurt == "marker" else disk.read(path).index(b"m4"))
    kept, withheld = (group, None) if hurt == "marker" else (group[:-1], OpId(1, 4))
    for _ in range(2):
        assert _opened(disk) == ([entry(1), *kept], withheld)


def test_log_of_a_copied_tablet_whose_first_segment_got_no_entry_opens() -> None:
    """CN-22. Goal: a log that begins at index 100 does not miss the entries before. Method: the first block finds no
    room; the next start appends it to a segment of its own."""
    disk = SimDisk()
    begin_a_segment(disk, entry(100))
    build(disk, lambda log: append_now(log, [entry(100)]))
    found = [(info.first_index, info.last_index) for info in inspect_log(disk, FOLDER, TABLET).segments]
    assert found == [(100, 99), (100, 100)]
    assert _opened(disk) == ([entry(100)], None)


def test_replacement_that_is_missing_before_a_segment_is_corruption_in_spite_of_a_mark() -> None:
    """CN-22. Goal: replaced entries do not count again because another loss is withheld already. Method: a log with a
    mark; a later leader's entries in place of others, and one entry behind them in a segment of its own; cut off the
    replacement, on its border."""
    disk, path = _closed((1, 9), (10, 12))
    _flip(disk, path, b"payload 1.10")
    build(disk, lambda log: append_now(log, entries(4, 6, term=2)))
    build(disk, lambda log: append_now(log, [entry(7, term=2)]))
    assert _opened(disk) == ([*entries(1, 3), *entries(4, 7, term=2)], OpId(1, 12))
    second = segment_paths(disk)[1]
    disk.poke(second, disk.read(second)[: block_ends(disk, second)[0]])
    with pytest.raises(Corruption, match="entries are missing before a segment"):
        open_log(disk)


@pytest.mark.parametrize(("block", "says"), [(0, "does not begin as its header says"), (1, "do not follow each other")])
def test_segment_that_lost_a_block_before_another_is_corruption(block: int, says: str) -> None:
    """CN-22. Goal: a segment without a block in its middle is Corruption. Method: cut one of three blocks out."""
    disk, path = _closed((1, 1), (2, 3), (4, 6))
    whole, ends = disk.read(path), block_ends(disk, path)
    disk.poke(path, whole[: ends[block]] + whole[ends[block + 1] :])
    with pytest.raises(Corruption, match=says):
        open_log(disk)


def test_dump_looks_at_segments_only_and_at_an_empty_file_by_its_name() -> None:
    """IN-22. Goal: a dump does not report files as damaged that never had a header. Method: another file beside the
    segments, a file of zeros that is being prepared, and one that has a segment's name."""
    disk, path = _closed((1, 2))
    disk.poke(f"{FOLDER}/README", b"stray")
    assert {name for name, _ in dump_log(disk, FOLDER, lambda: None)} == {"wal-000000001", "log"}
    disk.poke(f"{FOLDER}/{TEMP_NAME}", bytes(5000))
    assert [item["kind"] for item in dump_segment(disk, f"{FOLDER}/{TEMP_NAME}")] == ["tail"]
    disk.poke(path, bytes(5000))
    assert [item["kind"] for item in dump_segment(disk, path)] == ["damage", "tail"]


@pytest.mark.parametrize("zeros", [0, 700])
def test_opening_writes_the_last_block_once_more_and_touches_no_older_segment_that_is_whole(zeros: int) -> None:
    """CN-22. Goal: only the last block may not be on the disk; an older segment is durable, but a kill may have left it
    uncut. Method: three segments, the last without an entry, the first with zeros behind it or not; count the calls."""
    disk, first = _closed((1, 1), (2, 4))
    build(disk, lambda log: append_now(log, [entry(5)]))
    begin_a_segment(disk, entry(6))
    whole = disk.read(first)
    disk.poke(first, whole + bytes(zeros))
    calls = [(call, path) for path in segment_paths(disk) for call in ("pwrite", "truncate", "sync")]
    before = [disk.count(*call) for call in calls]
    assert open_log(disk)[1] == entries(1, 5) and not any(disk.handles.values())
    made = [disk.count(*call) - was for call, was in zip(calls, before, strict=True)]
    assert made == [0, zeros > 0, zeros > 0, 1, 0, 1, 0, 0, 1]
    assert disk.read(first) == whole and len(segment_paths(disk)) == 3, "the last one follows"


@pytest.mark.parametrize("hurt", [b"payload 5.100", b"m"], ids=["payload", "identity"])
@pytest.mark.parametrize("last", [100, 101])
@pytest.mark.parametrize("behind", ["nothing", "a segment", "a segment of an earlier build"])
def test_lost_first_entry_of_a_log_that_begins_late_is_withheld_by_its_index(
    behind: str, hurt: bytes, last: int
) -> None:
    """CN-22, D-7. Goal: a log of which log GC, or a copy, left the newest segment only does not take its one lost block
    for that of index 1, which it has long passed. Method: damage the only block, of one entry or two from 100 on; the
    mark is the last one's, of the block's term or, if the entry does not tell it, of the one before it; a dump says the
    same. A segment without an entry that was begun behind the block goes."""
    disk = SimDisk()
    build(disk, lambda log: append_now(log, [entry(99, term=4)]))
    build(disk, lambda log: [append_now(log, entries(100, last, term=5)), log.gc(100)], close=False)
    disk.restart()
    if behind != "nothing":
        begin_a_segment(disk, entry(last + 1, term=5))
        disk.remove(f"{FOLDER}/{NEWEST_NAME}")
    path, *after = segment_paths(disk)
    if behind == "a segment of an earlier build":
        disk.poke(after[0], without_after(disk.read(after[0])))
    entry_at = disk.read(path).index(hurt, block_ends(disk, path)[0])
    disk.corrupt(path, entry_at)
    withheld = OpId(5 if hurt.startswith(b"payload") else 4, last)
    (told,) = [item for item in dump_segment(disk, path) if item["kind"] == "damage"]
    assert told["withheld"] == withheld
    assert _opened(disk) == ([], withheld) and segment_paths(disk) == [path]


@pytest.mark.parametrize(
    ("mark", "says"),
    [
        (seal(b"NYLAWH01" + bytes(16))[:-1], "does not read back"),
        (bytes(28), "does not read back"),
        (seal(b"NYLAWH01" + bytes(15)), "does not read back"),
        (seal(b"NYLAWH02" + bytes(16)), "is of another format"),
    ],
    ids=["cut", "zeros", "too short", "a later build's"],
)
def test_mark_that_does_not_read_back_is_corruption(mark: bytes, says: str) -> None:
    """CN-22. Goal: a replica that may not vote does not vote because the mark is hurt. Method: marks that are none."""
    disk, _ = _closed((1, 2))
    disk.poke(f"{FOLDER}/{WITHHELD_NAME}", mark)
    for look in (open_log, lambda disk: inspect_log(disk, FOLDER, TABLET)):
        with pytest.raises(Corruption, match=says):
            look(disk)
