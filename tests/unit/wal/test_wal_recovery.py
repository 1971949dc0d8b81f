"""The state of a log after a crash, a power cut, a flipped bit or a misplaced file."""

from __future__ import annotations

import random
from functools import cache

import pytest

from nyala.replica.types import Code, Corruption, DiskFailure, Entry, OpId, Refused
from nyala.replica.wal import Log, dump_segment, inspect_log, read_offline
from nyala.replica.wal.newest import NEWEST_NAME, read_newest
from tests.harness.sim_disk import SECTOR_BYTES, SimCrash, SimDisk
from tests.harness.wal_entries import (
    FOLDER,
    SMALL,
    TABLET,
    append_now,
    build,
    entries,
    entry,
    of_an_earlier_build,
    open_log,
    segment_paths,
    tears,
)

CRASH_POINTS = [
    "wal.before_append",
    "wal.after_write_before_sync",
    "wal.after_sync",
    "wal.before_rename_segment",
    "wal.after_rename_segment",
    "disk.before_rename_sync",
]


def small_log(*, close: bool) -> tuple[SimDisk, str, bytes]:
    """Three group commits: 1; 2, 3; 4, 5, 6. The second part of the result is the only segment's path."""
    disk = SimDisk()

    def write(log: Log) -> None:
        append_now(log, [entry(1)])
        append_now(log, [entry(2)], [entry(3)])
        append_now(log, entries(4, 6))

    build(disk, write, close=close)
    (path,) = segment_paths(disk)
    disk.restart()
    return disk, path, disk.read(path)


def on_disk(path: str, data: bytes) -> SimDisk:
    disk = SimDisk()
    disk.mkdir(FOLDER)
    disk.poke(path, data)
    return disk


def assert_heals(disk: SimDisk, survivors: list[int]) -> None:
    """The log goes on after the survivors, and a third start finds both."""
    log, _ = open_log(disk)
    append_now(log, [entry(len(survivors) + 1, term=9)])
    log.close()
    _, again = open_log(disk)
    assert [e.opid.index for e in again] == [*survivors, len(survivors) + 1]


@pytest.mark.deep
def test_log_cut_at_every_byte_recovers_a_prefix_of_whole_entries() -> None:
    """CN-22. Goal: any cut leaves a whole-entry prefix that goes on. Method: all lengths, with zeros behind."""
    _, path, whole = small_log(close=True)
    bounds = block_ends(path, whole)
    for length in range(len(whole)):
        for tail in (b"", bytes(700)):
            disk = on_disk(path, whole[:length] + tail)
            try:
                log, replay = Log.open(disk, FOLDER, TABLET, SMALL)
            except Corruption:
                assert length < bounds[0], f"cut at {length}"
                continue
            indexes = [e.opid.index for e in replay.entries]
            assert indexes == list(range(1, len(indexes) + 1))
            assert len(indexes) >= max(
                (n for n, end in zip((0, 1, 3, 6), bounds, strict=True) if end <= length), default=0
            )
            assert replay.withheld is None or tail, "a file that ends short is torn"
            log.close()
            if length % 7 == 0:
                assert_heals(disk, indexes)


def block_ends(path: str, whole: bytes) -> list[int]:
    """Offsets after the header and after each of the three blocks."""
    rows = list(dump_segment(on_disk(path, whole), path))
    header = rows[0]["length_bytes"]
    ends = {row["opid"].index: row["byte_offset"] + row["length_bytes"] + 16 for row in rows if row["kind"] == "entry"}
    return [header, ends[1], ends[3], ends[6]]


@pytest.mark.a_third
@pytest.mark.parametrize("close", [True, False], ids=["closed", "preallocated"])
def test_log_with_any_byte_flipped_gives_no_wrong_entry(close: bool) -> None:
    """CN-22. Goal: a flip is seen, wherever it is. Method: every byte, two masks; prefix, withheld or Corruption."""
    _, path, whole = small_log(close=close)
    header, first, second, end = block_ends(path, whole)
    good = entries(1, 6)
    outcomes = {"corruption": 0, "withheld": 0, "whole": 0, "shorter": 0}
    for position in range(min(len(whole), end + 4)):
        for mask in (0x01, 0x80):
            data = bytearray(whole)
            data[position] ^= mask
            disk = on_disk(path, bytes(data))
            try:
                log, replay = Log.open(disk, FOLDER, TABLET, SMALL)
            except Corruption:
                outcomes["corruption"] += 1
                continue
            survivors = list(replay.entries)
            assert survivors == good[: len(survivors)]
            assert position >= second, f"byte {position} of a block that others follow was accepted"
            if len(survivors) < 6:
                assert replay.withheld is not None or not close or position < second + 3, f"byte {position}"
                if replay.withheld is not None:
                    assert replay.withheld.index >= len(survivors) + 1
                    outcomes["withheld"] += 1
                else:
                    outcomes["shorter"] += 1
            else:
                outcomes["whole"] += 1
            log.close()
    assert outcomes["withheld"] > 50
    assert outcomes["corruption"] > 2 * (second - header)
    assert outcomes["shorter"] <= 8, outcomes
    assert first > header


def test_damaged_payload_of_the_last_entry_is_withheld_until_the_log_reaches_it_again() -> None:
    """CN-22, scenario 37. Goal: what may have been acknowledged is remembered, over restarts, apart from the entry.
    Method: flip a payload bit of 1.6."""
    _, path, whole = small_log(close=False)
    disk = on_disk(path, whole)
    disk.corrupt(path, whole.index(b"payload 1.6"))
    for _ in range(3):
        log, replay = Log.open(disk, FOLDER, TABLET, SMALL)
        assert (list(replay.entries), replay.withheld) == (entries(1, 5), OpId(1, 6))
        log.close()
        disk.power_loss(random.Random(3))
    log, _ = Log.open(disk, FOLDER, TABLET, SMALL)
    append_now(log, [entry(6)])
    log.close()
    log, replay = Log.open(disk, FOLDER, TABLET, SMALL)
    assert (list(replay.entries), replay.withheld) == (entries(1, 6), None)


def test_damaged_first_entry_of_the_last_block_withholds_the_blocks_last_opid() -> None:
    """Goal: everything that the group commit may have promised counts. Method: flip 1.4 of the block 4, 5, 6."""
    _, path, whole = small_log(close=False)
    disk = on_disk(path, whole)
    disk.corrupt(path, whole.index(b"payload 1.4"))
    _, replay = Log.open(disk, FOLDER, TABLET, SMALL)
    assert (list(replay.entries), replay.withheld) == (entries(1, 3), OpId(1, 6))


def test_damage_before_the_end_is_corruption_and_changes_no_file() -> None:
    """CN-22, TC-63. Goal: a middle byte refuses the log and leaves the evidence. Method: flip in 1.2, compare bytes."""
    _, path, whole = small_log(close=True)
    disk = on_disk(path, whole)
    disk.corrupt(path, whole.index(b"payload 1.2"))
    before = disk.read(path)
    with pytest.raises(Corruption, match=r"wal-000000001.*byte_offset"):
        Log.open(disk, FOLDER, TABLET, SMALL)
    assert disk.read(path) == before


@pytest.mark.parametrize("whole_before", [0, 1, 2])
def test_damage_at_the_end_of_an_older_segment_is_corruption_there(whole_before: int) -> None:
    """CN-22, TC-63. Goal: damage at the end of a closed segment is Corruption of that segment. Method: two segments,
    the first of so many group commits and one of three entries; cut it by a byte, or flip a bit of its last group: the
    first one is named, not the second, which is whole."""
    disk = SimDisk()

    def write(log: Log) -> None:
        for index in range(1, whole_before + 1):
            append_now(log, [entry(index)])
        append_now(log, entries(whole_before + 1, whole_before + 3))

    build(disk, write)
    build(disk, lambda log: append_now(log, entries(whole_before + 4, whole_before + 5)))
    first, _ = segment_paths(disk)
    whole = disk.read(first)
    flipped = bytearray(whole)
    flipped[whole.index(b"payload 1.%d" % (whole_before + 2))] ^= 1
    for hurt in (whole[:-1], bytes(flipped)):
        disk.poke(first, hurt)
        with pytest.raises(Corruption, match=r"later ones hold data \(segment=wal-000000001"):
            open_log(disk)
        assert disk.read(first) == hurt


@pytest.mark.parametrize(
    "groups",
    [[[entry(1)], [entry(2)], [entry(3)]], [entries(1, 4), [entry(3, term=2)], [entry(4, term=2)]]],
    ids=["consecutive", "replaced entries"],
)
def test_missing_segment_is_corruption_and_changes_no_file(groups: list[list[Entry]]) -> None:
    """CN-22. Goal: a hole in the numbers is seen, also where the entries around it would fit each other (1.1-1.4, and
    2.4 behind the lost 2.3). Method: three segments, remove the middle one; compare what is left."""
    disk = SimDisk()
    for group in groups:
        build(disk, lambda log, group=group: append_now(log, group))
    disk.remove(segment_paths(disk)[1])
    before = {path: disk.read(path) for path in segment_paths(disk)}
    with pytest.raises(Corruption, match="segments are missing"):
        open_log(disk)
    assert {path: disk.read(path) for path in segment_paths(disk)} == before


@pytest.mark.parametrize("left", [0, 1, 2], ids=["none is left", "one is left", "two are left"])
def test_newest_segment_that_is_missing_is_corruption_and_changes_no_file(left: int) -> None:
    """IN-21. Goal: a log that lost its end does not open shorter, as if it had acknowledged nothing behind. Method:
    three segments, the last ones removed: opening, a look without a change and the dump all say so, again and again.
    Put back, they are read as before."""
    disk = SimDisk()
    for index in range(1, 4):
        build(disk, lambda log, index=index: append_now(log, [entry(index)]))
    whole = {path: disk.read(path) for path in segment_paths(disk)}
    for path in list(whole)[left:]:
        disk.remove(path)
    for look in (
        open_log,
        lambda disk: read_offline(disk, FOLDER, TABLET),
        lambda disk: inspect_log(disk, FOLDER, TABLET),
    ):
        with pytest.raises(Corruption, match="newest segment of a log is missing"):
            look(disk)
        assert [disk.read(path) for path in segment_paths(disk)] == list(whole.values())[:left]
    for path, data in whole.items():
        disk.poke(path, data)
    log, _ = open_log(disk)
    assert log.last == OpId(1, 3)


def test_segment_whose_number_finds_no_room_takes_no_entry() -> None:
    """IN-21. Goal: no entry is acknowledged in a segment whose loss would not be seen. Method: the record cannot be
    written: for want of room the append is refused and the next one begins the segment again; where the disk fails,
    the log stops."""
    disk = SimDisk()
    log, _ = open_log(disk)
    disk.fail_on("replace", f"{FOLDER}/{NEWEST_NAME}", "ENOSPC")
    (refused,) = append_now(log, [entry(1)]).results
    assert isinstance(refused, Refused) and refused.code is Code.NO_SPACE
    assert append_now(log, [entry(1)]).durable == [OpId(1, 1)] and read_newest(disk, FOLDER).number == 1
    log.close()
    again, _ = open_log(disk)
    assert again.last == OpId(1, 1)
    disk.fail_on("replace", f"{FOLDER}/{NEWEST_NAME}", "EIO")
    (failed,) = append_now(again, [entry(2)]).results
    assert isinstance(failed, DiskFailure) and again.failure is failed


@pytest.mark.parametrize("content", [b"", bytes(5000)], ids=["empty", "zeros"])
@pytest.mark.parametrize("segment", [1, 2])
def test_segment_that_was_emptied_is_corruption_and_nothing_is_changed(content: bytes, segment: int) -> None:
    """CN-22, scenario 40. Goal: scenario 40: an emptied segment is Corruption, because it had acknowledged entries.
    Method: empty or zero the newest segment of two, or the oldest; a named segment had its header, so it held
    entries."""
    disk = SimDisk()
    build(disk, lambda log: append_now(log, entries(1, 2)))
    build(disk, lambda log: append_now(log, [entry(3)]))
    assert len(segment_paths(disk)) == 2
    disk.poke(segment_paths(disk)[segment - 1], content)
    before = {path: disk.read(path) for path in segment_paths(disk)}
    with pytest.raises(Corruption, match="a segment was emptied"):
        open_log(disk)
    assert {path: disk.read(path) for path in segment_paths(disk)} == before
    assert disk.listdir(FOLDER) == ["wal-000000001", "wal-000000002"]


@pytest.mark.parametrize("half_made", [b"", bytes(4096), b"stray"], ids=["empty", "zeros", "other"])
def test_stray_files_beside_the_segments_are_left_and_a_temp_file_is_removed(half_made: bytes) -> None:
    """CN-22, scenario 40. Goal: what never got a segment's name holds nothing, and takes no name. Method: a temp file
    as a crash leaves it before the header, and a stranger's, beside a log that goes on in the next segment."""
    disk = SimDisk()
    build(disk, lambda log: append_now(log, entries(1, 2)))
    disk.poke(f"{FOLDER}/.next-segment.tmp", half_made)
    disk.poke(f"{FOLDER}/README", b"stray")
    build(disk, lambda log: append_now(log, [entry(3)]))
    assert open_log(disk)[1] == entries(1, 3)
    assert [path.rpartition("-")[2] for path in segment_paths(disk)] == ["000000001", "000000002"]
    assert not disk.exists(f"{FOLDER}/.next-segment.tmp")
    assert disk.exists(f"{FOLDER}/README")


def test_block_of_another_segment_or_tablet_is_caught() -> None:
    """CN-22. Goal: a misdirected write is no entry of ours (scenario 38). Method: a twin segment's blocks under our
    header."""
    for folder, tablet, number in (("wals/t1", "t1", 2), ("wals/other", "other", 1)):
        source = SimDisk()
        for _ in range(number):
            log, replay = Log.open(source, folder, tablet, SMALL)
            first = replay.last.index + 1
            append_now(log, entries(first, first))
            append_now(log, entries(first + 1, first + 1))
            log.close()
        foreign_path = segment_paths(source, folder)[-1]
        foreign = source.read(foreign_path)
        _, path, whole = small_log(close=True)
        ends = block_ends(path, whole)
        length = next(r["length_bytes"] for r in dump_segment(source, foreign_path) if r["kind"] == "header")
        marker = whole[ends[0] - 16 : ends[0]]
        body = foreign[length:].replace(foreign[length - 16 : length], marker)
        with pytest.raises(Corruption):
            open_log(on_disk(path, whole[: ends[0]] + body))


def test_renamed_segment_is_caught_by_its_header() -> None:
    """Goal: a file under another number is refused. Method: rename segment 1 to 2."""
    disk = SimDisk()
    build(disk, lambda log: append_now(log, [entry(1)]))
    disk.rename(f"{FOLDER}/wal-000000001", f"{FOLDER}/wal-000000002")
    with pytest.raises(Corruption, match="belongs elsewhere"):
        open_log(disk)


def test_replay_any_number_of_times_gives_the_same_entries() -> None:
    """Goal: opening is idempotent. Method: open and close ten times; the bytes settle after the first."""
    disk, path, _ = small_log(close=False)
    assert open_log(disk)[1] == entries(1, 6)
    settled = disk.read(path)
    for _ in range(10):
        log, survivors = open_log(disk)
        log.close()
        assert survivors == entries(1, 6)
    assert disk.read(path) == settled
    assert segment_paths(disk) == [path]


def test_recovered_tail_is_durable_before_it_is_relied_on() -> None:
    """CN-22. Goal: what opening returns survives a power cut. Method: write without sync, kill, open, cut the power,
    open."""
    for seed in range(30):
        disk = SimDisk()
        log, _ = open_log(disk)
        append_now(log, [entry(1)])
        disk.arm("wal.after_write_before_sync")
        with pytest.raises(SimCrash):
            append_now(log, [entry(2)])
        disk.restart()
        _, survivors = open_log(disk)
        assert survivors == entries(1, 2)
        disk.power_loss(random.Random(seed))
        assert open_log(disk)[1] == entries(1, 2)


@pytest.mark.parametrize("point", CRASH_POINTS)
@pytest.mark.parametrize("cut", [True, False], ids=["power", "kill"])
def test_crash_at_every_point_loses_nothing_that_was_acknowledged(point: str, cut: bool) -> None:
    """CN-05, CN-20, CN-22, IN-21. Goal: acknowledged entries are there, in order, nothing else is. Method: many seeds.

    Entries of varying size roll through several segments; the n-th pass of the point crashes; a start follows.
    """
    crashed = 0
    for seed in range(20):
        rng = random.Random(seed)
        disk = SimDisk()
        disk.arm(point, rng.randint(1, 4 if "rename" in point else 6))
        acknowledged: list[OpId] = []
        offered = [entry(index, rng.randbytes(rng.choice([10, 700, 2500]))) for index in range(1, 31)]
        try:
            log, _ = open_log(disk)
            rest = list(offered)
            while rest:
                for _ in range(rng.randint(1, 4)):
                    if rest:
                        group, rest = rest[:2], rest[2:]
                        log.append(group, lambda r, a=acknowledged: a.append(r) if isinstance(r, OpId) else None)
                log.drain()
        except SimCrash:
            crashed += 1
        if cut:
            disk.power_loss(rng)
        else:
            disk.restart()
        _, replay = Log.open(disk, FOLDER, TABLET, SMALL)
        survivors = list(replay.entries)
        assert survivors == offered[: len(survivors)]
        assert len(survivors) >= (acknowledged[-1].index if acknowledged else 0)
        disk.power_loss(rng)
        again, later = open_log(disk)
        assert later == survivors
        append_now(again, [entry(len(later) + 1, term=2)])
    assert crashed >= 13


@pytest.mark.parametrize("earlier", [False, True], ids=["this build", "an earlier build"])
def test_power_loss_in_an_open_log_never_tears_more_than_the_last_commit(earlier: bool) -> None:
    """CN-22. Goal: sectors of the last commit may vanish in any pattern; what was never synced is not withheld, unless
    a build wrote it that did not state zero sectors. Method: one large unsynced block, 60 patterns."""
    shapes: set[str] = set()
    for seed in range(205, 265):
        disk = SimDisk()
        log, _ = open_log(disk)
        append_now(log, entries(1, 3))
        disk.arm("wal.after_write_before_sync")
        with pytest.raises(SimCrash):
            append_now(log, [entry(4, random.Random(seed).randbytes(3000))], [entry(5)])
        disk.power_loss(random.Random(seed))
        if earlier:
            (path,) = segment_paths(disk)
            disk.poke(path, of_an_earlier_build(disk.read(path)))
        _, replay = Log.open(disk, FOLDER, TABLET, SMALL)
        survivors = [e.opid.index for e in replay.entries]
        assert survivors in ([1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5])
        shapes.add(f"{len(survivors)} {replay.withheld}")
    assert {"3 None", "5 None"} <= shapes
    assert any(shape.startswith("3 1.") for shape in shapes) == earlier


def log_that_ends_before_a_sector(gap: int) -> tuple[SimDisk, Log, str]:
    """An open log of one synced entry; its next block begins `gap` bytes before a sector's bound."""
    disk, log = log_of_one(payload_bytes(gap))
    assert log.segments()[-1].length_bytes % SECTOR_BYTES == SECTOR_BYTES - gap
    return disk, log, segment_paths(disk)[-1]


def log_of_one(payload_bytes: int) -> tuple[SimDisk, Log]:
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1, b"\x07" * payload_bytes)])
    return disk, log


@cache
def payload_bytes(gap: int) -> int:
    """Of the entry after which a log ends so many bytes before a sector. A count may take a byte more, a checksum less;
    so not each size is met in each sector."""
    near = -(log_of_one(SECTOR_BYTES)[1].segments()[-1].length_bytes + gap) % SECTOR_BYTES + SECTOR_BYTES
    ends = ((size, log_of_one(size)[1].segments()[-1].length_bytes) for size in range(near + 3, 0, -1))
    return next(size for size, end in ends if end % SECTOR_BYTES == SECTOR_BYTES - gap)


@pytest.mark.a_third
@pytest.mark.parametrize("gap", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("sizes", [[30], [300] * 5, [100] * 70, [9000], [2900] * 3], ids=lambda s: f"{len(s)}x{s[0]}")
@pytest.mark.parametrize("earlier", [False, True], ids=["this build", "an earlier build"])
def test_torn_write_that_begins_just_before_a_sector_is_a_torn_tail(earlier: bool, gap: int, sizes: list[int]) -> None:
    """CN-22. Goal: a tear through a block's frame refuses no log, and is never withheld but from a build that did not
    state zero sectors. Method: the frame's 3 to 5 bytes lie in two sectors; any of the unsynced block's may be lost."""
    disk, log, path = log_that_ends_before_a_sector(gap)
    before, start = disk.read(path), log.segments()[-1].length_bytes
    block = [entry(index, bytes([index]) * size) for index, size in enumerate(sizes, start=2)]
    disk.arm("wal.after_write_before_sync")
    with pytest.raises(SimCrash):
        append_now(log, block)
    count_bytes = 1 if len(sizes) < 64 else 2
    after = disk.read(path)
    if earlier:
        before, after = of_an_earlier_build(before), of_an_earlier_build(after)
    last_sector = (len(after.rstrip(b"\0")) - 1) // SECTOR_BYTES * SECTOR_BYTES
    for data in tears(before, after, 40):
        ended = data[last_sector:] == after[last_sector:]
        opened, replay = Log.open(on_disk(path, data), FOLDER, TABLET, SMALL)
        survivors = list(replay.entries)
        opened.close()
        assert survivors == [entry(1, survivors[0].payload), *block[: len(survivors) - 1]]
        assert len(survivors) == 1 + len(block) or data != after
        if not earlier:
            assert replay.withheld is None
        elif len(survivors) <= len(block):
            assert (replay.withheld is not None) == ended
            if ended and gap > count_bytes and data.startswith(after[: start + gap]):
                assert replay.withheld == OpId(1, 1 + len(block))


@pytest.mark.parametrize("gap", [2, 3])
@pytest.mark.parametrize("size", [70, 100, 200, 300, 380, 600, 2000])
def test_lost_sector_in_a_frame_before_the_end_is_corruption_and_changes_no_file(gap: int, size: int) -> None:
    """CN-22. Goal: a frame that looks torn is Corruption if another group commit follows. Method: zero the sector into
    which the frame of the last block but one runs; the last block is whole, or its begin is in that sector too."""
    disk, log, path = log_that_ends_before_a_sector(gap)
    start = log.segments()[-1].length_bytes
    append_now(log, [entry(2, bytes([2]) * size)])
    append_now(log, [entry(3, bytes([3]) * 900)])
    data = bytearray(disk.read(path))
    data[start + gap : start + gap + SECTOR_BYTES] = bytes(SECTOR_BYTES)
    damaged = on_disk(path, bytes(data))
    with pytest.raises(Corruption, match="a block is damaged and more follows"):
        Log.open(damaged, FOLDER, TABLET, SMALL)
    assert damaged.read(path) == bytes(data)


def test_dump_says_what_is_broken_and_where() -> None:
    """Goal: an operator sees the place. Method: dump a good, a torn, a damaged and a headless file."""
    _, path, whole = small_log(close=True)
    ends = block_ends(path, whole)
    rows = list(dump_segment(on_disk(path, whole), path))
    assert [row["opid"] for row in rows if row["kind"] == "entry"] == [OpId(1, index) for index in range(1, 7)]
    assert rows[0]["tablet_id"] == TABLET
    assert rows[-1] == {"kind": "tail", "byte_offset": len(whole), "zero_bytes": 0}
    torn = list(dump_segment(on_disk(path, whole[:-3]), path))[-1]
    assert (torn["kind"], torn["torn"], torn["byte_offset"]) == ("damage", True, ends[2])
    flipped = whole.replace(b"payload 1.5", b"pAyload 1.5")
    damage = list(dump_segment(on_disk(path, flipped), path))[-1]
    assert (damage["kept"], damage["withheld"], damage["torn"]) == (1, OpId(1, 6), False)
    middle = whole.replace(b"payload 1.1", b"pAyload 1.1")
    fatal = list(dump_segment(on_disk(path, middle), path))[-1]
    assert (fatal["byte_offset"], fatal["torn"]) == (ends[0], False)
    assert next(dump_segment(on_disk(path, b"junk" + whole), path))["kind"] == "damage"


@pytest.mark.parametrize("seed", range(10))
def test_block_whose_sync_failed_is_durable_once_the_log_is_opened_again(seed: int) -> None:
    """Goal: CN-08, CN-22: a sync that failed leaves pages that count as clean; what the next process reads of them may
    be acknowledged, so it must be on the disk. Method: EIO at the last sync, end of the process, a start that finds the
    entries, then a power loss: they are there still, and the log goes on."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    disk.fail_on("datasync", f"{FOLDER}/*")
    failed: list[object] = []
    log.append([entry(2, b"x" * 3 * SECTOR_BYTES), *entries(3, 4)], failed.append)
    log.drain()
    assert isinstance(failed[0], DiskFailure) and isinstance(log.failure, DiskFailure)
    disk.restart()
    found, _ = open_log(disk)
    assert found.last.index == 4, "the page cache has them"
    disk.power_loss(random.Random(seed))
    assert_heals(disk, [1, 2, 3, 4])
