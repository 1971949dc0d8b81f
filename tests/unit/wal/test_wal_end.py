"""How far a log is known to reach: the record beside its segments, and a log that ends before that."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.types import Code, Corruption, DiskFailure, Entry, OpId, Refused
from nyala.replica.wal import Log, dump_log, inspect_log, read_offline
from nyala.replica.wal.format import seal
from nyala.replica.wal.newest import NEWEST_NAME, Newest, read_newest, save_newest
from nyala.replica.wal.recovery import read_withheld
from tests.harness.sim_disk import SECTOR_BYTES, SimCrash, SimDisk
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
)

RECORD = f"{FOLDER}/{NEWEST_NAME}"
MARKER_BYTES = 16


def _plain(disk: SimDisk) -> list[Entry]:
    build(disk, lambda log: append_now(log, entries(1, 2)))
    build(disk, lambda log: [append_now(log, group) for group in (entries(3, 3), entries(4, 6), entries(7, 8))])
    return entries(1, 8)


def _replaced(disk: SimDisk) -> list[Entry]:
    """A later leader's shorter log in place of a longer one: the end falls in index as it rises in term."""
    build(disk, lambda log: [append_now(log, group) for group in (entries(1, 4), entries(5, 9))])
    build(disk, lambda log: [append_now(log, [entry(index, term=2)]) for index in (3, 4, 5)])
    return [*entries(1, 2), *entries(3, 5, term=2)]


def _brought_back(disk: SimDisk) -> list[Entry]:
    """A leader brings an entry back that another had replaced: the end falls in term [paper, figure 8]."""
    for term in (2, 3):
        build(disk, lambda log, term=term: [append_now(log, g) for g in (entries(1, 1), entries(2, 3, term=term))])
    build(disk, lambda log: [append_now(log, [entry(2, term=3)]), append_now(log, [entry(2, term=2)])])
    return [entry(1), entry(2, term=2)]


def _zeros(disk: SimDisk) -> list[Entry]:
    """Blocks that state their zero sectors, of which a power cut of an open log may lose some."""
    held = [entry(1), entry(2, bytes(1500)), entry(3, bytes(700))]
    build(disk, lambda log: [append_now(log, [one]) for one in held])
    return held


def _collected(disk: SimDisk) -> list[Entry]:
    """Nothing is left but the newest segment."""
    build(disk, lambda log: append_now(log, entries(1, 4)))
    build(disk, lambda log: [append_now(log, g) for g in (entries(5, 5), entries(6, 7))] and log.gc(5))
    return entries(5, 7)


def _rolled(disk: SimDisk) -> list[Entry]:
    """Closed by a roll some time before the log is; a truncation changes no file."""
    build(disk, lambda log: [append_now(log, entries(1, 2)), append_now(log, [entry(3)]), log.roll()])
    log, _ = open_log(disk)
    log.truncate_after(1)
    log.close()
    return entries(1, 3)


SHAPES: dict[str, Callable[[SimDisk], list[Entry]]] = {
    "plain": _plain,
    "replaced": _replaced,
    "brought back": _brought_back,
    "zeros": _zeros,
    "collected": _collected,
    "rolled": _rolled,
}


def on_disk(files: dict[str, bytes]) -> SimDisk:
    disk = SimDisk()
    disk.mkdir(FOLDER)
    for path, data in files.items():
        disk.poke(path, data)
    return disk


def files_of(disk: SimDisk) -> dict[str, bytes]:
    return {path: disk.read(path) for path in [*segment_paths(disk), RECORD]}


def opened(disk: SimDisk) -> tuple[list[Entry], OpId | None]:
    """What a start finds: as looks without a change see it before, and a second start after a power cut again."""
    seen, looked = inspect_log(disk, FOLDER, TABLET), read_offline(disk, FOLDER, TABLET)
    found = list(looked.entries)
    assert seen.withheld == looked.withheld
    for _ in range(2):
        log, replay = Log.open(disk, FOLDER, TABLET, SMALL)
        assert (list(replay.entries), replay.withheld) == (found, looked.withheld)
        assert (replay.first_index, replay.last) == (looked.first_index, looked.last)
        log.close()
        disk.power_loss(random.Random(1))
    return found, looked.withheld


@pytest.mark.a_third
@pytest.mark.parametrize("name", SHAPES)
def test_closed_log_whose_newest_segment_is_cut_anywhere_withholds_what_it_held(name: str) -> None:
    """IN-21, CN-22. Goal: a log that was closed never opens shorter without withholding its vote, wherever its end is
    cut. Method: lengths of the newest segment, each one near a block's border or a sector's and some between, alone and
    with zeros behind: an entry is withheld that lies above what is left and at or above what was last, or Corruption
    where the header is hurt. The last block's marker alone is no entry."""
    disk = SimDisk()
    held = SHAPES[name](disk)
    whole = files_of(disk)
    path = segment_paths(disk)[-1]
    borders = block_ends(disk, path)
    assert borders[-1] == len(whole[path]) and len(borders) >= 3
    assert opened(on_disk(whole)) == (held, None)
    near = [at + more for at in (*borders, *range(0, borders[-1], SECTOR_BYTES)) for more in range(-20, 8)]
    for length in sorted({*range(0, borders[-1], 31), *near} & {*range(borders[-1])}):
        for rest in (b"", bytes(700)):
            data = whole[path][:length] + rest
            hurt = on_disk({**whole, path: data})
            if length < borders[0]:
                with pytest.raises(Corruption):
                    open_log(hurt)
                continue
            left, withheld = opened(hurt)
            if data.startswith(whole[path][:-MARKER_BYTES]) and name != "brought back":  # which needs all of its block
                assert (left, withheld) == (held, None), "no entry was lost"
            if (left, withheld) == (held, None):
                continue
            last = left[-1].opid if left else OpId(0, 0)
            assert withheld is not None, f"{name}: opened at {last} without a word, cut at byte {length}"
            assert withheld.index > last.index and withheld.index >= held[-1].opid.index, (length, withheld)
            assert withheld.term >= held[-1].opid.term


def test_log_that_lost_most_of_its_newest_segment_may_not_vote_until_it_has_it_again() -> None:
    """IN-21. Goal: a replica that lost 399 acknowledged entries does not vote until it has them again. Method: a closed
    log, its newest segment cut on one of its first borders; the mark names the last entry until the log has it again,
    over restarts."""
    disk = SimDisk()
    build(disk, lambda log: [append_now(log, [entry(index)]) for index in range(1, 400)])
    path = segment_paths(disk)[-1]
    border = block_ends(disk, path)[2]
    disk.poke(path, disk.read(path)[:border])
    left, withheld = opened(disk)
    assert withheld == OpId(1, 399) and len(left) < 399
    build(disk, lambda log: append_now(log, entries(len(left) + 1, 398)))
    assert opened(disk) == (entries(1, 398), withheld)
    build(disk, lambda log: append_now(log, [entry(399)]))
    assert opened(disk) == (entries(1, 399), None)


def test_mark_of_a_lost_end_that_is_damaged_beside_an_open_log_is_written_again() -> None:
    """IN-21. Goal: a replica whose log lost its end does not vote after its next start because the mark was lost, too.
    Method: beside the open log, flip each bit of the mark, cut it at each length, remove it, make it unreadable, and
    put an earlier one in its place: it has the former bytes again. Once its entries are back, no mark is made."""
    disk, mark = SimDisk(), f"{FOLDER}/withheld"
    build(disk, lambda log: [append_now(log, [entry(index)]) for index in range(1, 5)])
    path = segment_paths(disk)[-1]
    disk.poke(path, disk.read(path)[: block_ends(disk, path)[2]])
    log, _ = open_log(disk)
    assert read_withheld(disk, FOLDER) == OpId(1, 4)
    whole = disk.read(mark)
    hurts: list[bytes | None] = [None, *(whole[:length] for length in range(len(whole)))]
    for bit in range(8 * len(whole)):
        hurts.append(bytes(byte ^ (1 << bit % 8) * (at == bit // 8) for at, byte in enumerate(whole)))
    hurts.append(seal(whole[:-12] + (3).to_bytes(8, "little")))
    for hurt in hurts:
        assert not log.repair_record()
        disk.remove(mark) if hurt is None else disk.poke(mark, hurt)
        if hurt not in (None, hurts[-1]):
            with pytest.raises(Corruption):
                read_withheld(disk, FOLDER)
        assert log.repair_record() and disk.read(mark) == whole
    disk.fail_on("read", mark, "EIO")
    assert log.repair_record() and disk.read(mark) == whole
    append_now(log, entries(3, 4))
    log.forget_withheld()
    assert not log.repair_record() and not disk.exists(mark)
    log.close()
    assert opened(disk) == (entries(1, 4), None)


def test_close_leaves_the_mark_of_a_lost_end_as_it_is_in_memory() -> None:
    """Goal: a replica that is opened again, or whose server stops in order, withholds its vote although the mark was
    lost since the last check of files. Method: the end of a log is lost; remove the mark, or put an earlier one in its
    place, under the open log; close and open. A log whose folder is gone makes none."""
    disk, mark = SimDisk(), f"{FOLDER}/withheld"
    build(disk, lambda log: [append_now(log, [entry(index)]) for index in range(1, 5)])
    path = segment_paths(disk)[-1]
    disk.poke(path, disk.read(path)[: block_ends(disk, path)[2]])
    log, _ = open_log(disk)
    log.close()
    right = disk.read(mark)
    for hurt in (lambda: disk.remove(mark), lambda: disk.poke(mark, b""), lambda: disk.poke(mark, right[:-1])):
        log, _ = open_log(disk)
        hurt()
        log.close()
        assert disk.read(mark) == right
    log, _ = open_log(disk)
    disk.remove_tree(FOLDER)
    log.close()
    assert not disk.exists(FOLDER)


@pytest.mark.parametrize("appends", [False, True], ids=["idle", "appends"])
@pytest.mark.parametrize("damage", ["missing", "emptied", "cut", "earlier"])
def test_close_leaves_the_record_of_the_end_as_it_is_in_memory(damage: str, appends: bool) -> None:
    """Goal: a log is not refused after an orderly stop, and none of its end can be cut off unseen, although its record
    was lost since the last check of files. Method: damage the record under an open log that has appended since it was
    opened, or has not; close: the record names the end. A log whose folder is gone makes none."""
    disk = SimDisk()
    build(disk, lambda log: append_now(log, [entry(1)]))
    earlier = disk.read(RECORD)
    build(disk, lambda log: append_now(log, [entry(2)]))
    right = disk.read(RECORD)
    log, _ = open_log(disk)
    if appends:
        append_now(log, [entry(3)])
    if damage == "missing":
        disk.remove(RECORD)
    else:
        disk.poke(RECORD, {"emptied": b"", "cut": right[:-1], "earlier": earlier}[damage])
    log.close()
    newest = log.segments()[-1]
    assert read_newest(disk, FOLDER) == Newest(newest.number, newest.length_bytes, log.last)
    assert opened(disk) == (entries(1, 3 if appends else 2), None)
    log, _ = open_log(disk)
    if appends:
        append_now(log, [entry(4)])
    disk.remove_tree(FOLDER)
    log.close()
    assert not disk.exists(FOLDER)


def _killed() -> tuple[SimDisk, str]:
    """A log of two segments whose process was killed; its newest segment has four blocks and is as long as it was
    preallocated."""
    disk = SimDisk()
    build(disk, lambda log: append_now(log, entries(1, 2)))
    build(disk, lambda log: [append_now(log, [entry(index)]) for index in range(3, 7)], close=False)
    disk.restart()
    return disk, segment_paths(disk)[-1]


def test_opening_that_dies_leaves_the_files_that_a_cut_from_outside_leaves() -> None:
    """IN-21. Goal: the length of a file alone cannot prove a loss, as DESIGN.md says. Method: a log is opened after a
    kill, and dies when it has cut its newest segment and not yet replaced the record, as every build may; in a copy of
    the same log that segment is cut from outside, behind its last block. All files are the same; nothing is
    withheld."""
    disk, path = _killed()
    before = files_of(disk)
    border = block_ends(disk, path)[-1]
    assert border < len(before[path]), "it is preallocated"
    disk.fail_on("replace", RECORD, "CRASH")
    with pytest.raises(SimCrash):
        open_log(disk)
    disk.restart()
    assert files_of(disk) == {**before, path: before[path][:border]}
    assert opened(disk) == (entries(1, 6), None)


def test_log_on_a_full_disk_opens_without_a_new_record_and_writes_it_at_its_close() -> None:
    """IN-21, CN-26. Goal: a full disk prevents no start of a log that lost nothing. Method: a killed log is opened, and
    the disk refuses the record of its end: all entries are there, a segment that is begun later names the right entry
    before it, and a close writes the record, or the next opening does."""
    for healed in (True, False):
        disk, _ = _killed()
        disk.fail_on("replace", RECORD, "ENOSPC", times=None)
        log, found = open_log(disk)
        assert found == entries(1, 6)
        assert not log.repair_record()  # the older record is the one in force; it is not tried again each minute
        if healed:
            disk.heal()
        log.close()
        disk.heal()
        assert (read_newest(disk, FOLDER).last == OpId(1, 6)) is healed
        build(disk, lambda log: append_now(log, [entry(7)]))
        assert opened(disk) == (entries(1, 7), None)
    disk, _ = _killed()
    disk.fail_on("replace", RECORD, "ENOSPC")
    log, _ = open_log(disk)
    append_now(log, [entry(7)])
    log.close()
    assert opened(disk) == (entries(1, 7), None)


@pytest.mark.parametrize(("fault", "code"), [("ENOSPC", None), ("EMFILE", Code.OVERLOADED)])
def test_record_that_demands_no_byte_more_may_stay_if_the_disk_is_full_and_for_no_other_reason(
    fault: str, code: Code | None
) -> None:
    """IN-21. Goal: a log opens beside an older record of its end if a full disk refuses the new one, and if the log has
    all bytes that the older one names. Method: a record of the log's segment and length that names another entry: the
    log opens on a full disk, and is refused to a process without a free descriptor."""
    disk = SimDisk()
    build(disk, lambda log: [append_now(log, [entry(index)]) for index in range(1, 7)])
    save_newest(disk, FOLDER, read_newest(disk, FOLDER)._replace(last=OpId(1, 9)))
    disk.fail_on("replace", RECORD, fault, times=None)
    if code is None:
        assert opened(disk) == (entries(1, 6), None)
    else:
        with pytest.raises(Refused) as refused:
            open_log(disk)
        assert refused.value.code is code


def test_log_on_a_full_disk_whose_record_demands_more_than_is_left_is_not_opened() -> None:
    """IN-21. Goal: no log is served beside a record that asks for more than it has. Method: a closed log, cut behind
    its first block, whose mark is written before the disk is full: the opening is refused as NO_SPACE; with room again,
    it withholds what it lost."""
    disk = SimDisk()
    build(disk, lambda log: [append_now(log, [entry(index)]) for index in range(1, 7)])
    path = segment_paths(disk)[-1]
    disk.poke(path, disk.read(path)[: block_ends(disk, path)[1]])
    disk.fail_on("replace", RECORD, "ENOSPC", times=None)
    with pytest.raises(Refused) as refused:
        open_log(disk)
    assert refused.value.code is Code.NO_SPACE
    disk.heal()
    assert opened(disk) == (entries(1, 1), OpId(1, 6))


@pytest.mark.deep
def test_log_that_was_cut_after_a_kill_opens_shorter_and_withholds_nothing() -> None:
    """IN-21. Goal: after a kill, a log whose newest segment is cut opens shorter without withholding its vote, as
    DESIGN.md states as a limit. Method: the newest segment of a killed log is cut at every byte from its header on.
    What is left are the entries before the cut; what the record says is there."""
    disk, path = _killed()
    files = files_of(disk)
    borders = block_ends(disk, path)
    for length in range(borders[0], borders[-1]):
        whole = sum(end <= length for end in borders[1:])
        left, withheld = opened(on_disk({**files, path: files[path][:length]}))
        assert withheld is None
        assert left == entries(1, 2 + whole) or (left == entries(1, 3 + whole) and length >= borders[whole + 1] - 16)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3), st.sampled_from([0, 900, 2500])),
        st.tuples(st.just("replace"), st.integers(0, 5), st.integers(1, 3)),
        st.tuples(st.just("bring back"), st.integers(0, 5), st.integers(0, 5)),
        st.tuples(st.just("truncate"), st.integers(0, 5), st.just(0)),
        st.tuples(st.sampled_from(["roll", "reopen", "kill", "power"]), st.just(0), st.just(0)),
        st.tuples(st.just("gc"), st.integers(0, 12), st.just(0)),
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.deep
@settings(max_examples=200)
@given(steps=STEPS, seed=st.integers(0, 1 << 30))
def test_end_of_a_log_is_missed_exactly_if_it_is_missing_under_any_history(
    steps: list[tuple[str, int, int]], seed: int
) -> None:
    """IN-21, CN-22. Goal: whatever was written before, a whole log withholds no vote, and a log without its end does.
    Method: hypothesis; replacements in later terms, entries that come back in earlier ones, truncations, rolls, log GC,
    restarts; at every end the log is closed, opened whole, and cut at each border of the newest segment; cut at each
    border of an older one, it opens only where nothing was lost."""
    rng, disk = random.Random(seed), SimDisk()
    log, _ = open_log(disk)
    held: list[Entry] = []
    replaced: list[list[Entry]] = []
    term = 1
    for action, size, detail in steps:
        last = log.last.index
        if action == "append":
            more = [entry(last + 1 + k, rng.randbytes(detail), term=max(term, log.last.term)) for k in range(size)]
            append_now(log, more)
        elif action == "replace" and last > log.first_index:
            keep = max(log.first_index, last - size)
            replaced.append([e for e in held if e.opid.index > keep])
            term += 1
            more = [entry(keep + 1 + k, term=term) for k in range(detail)]
            append_now(log, more)
        elif action == "bring back" and replaced:
            more = replaced[detail % len(replaced)][: size + 1]
            before = log.term_at(more[0].opid.index - 1) if more else None
            if not more or before is None or before > more[0].opid.term or more[0].opid.index > last + 1:
                continue
            append_now(log, more)
        else:
            if action == "truncate":
                log.truncate_after(max(log.first_index, last - size))
                term += 1  # who appends now is a later leader: one of the same term gives an index one entry only
            elif action == "roll":
                log.roll()
            elif action == "gc":
                log.gc(max(0, last - size))
                held = [e for e in held if e.opid.index >= log.first_index]
            elif action in ("reopen", "kill", "power"):
                {"reopen": log.close, "kill": disk.restart, "power": lambda: disk.power_loss(rng)}[action]()
                log, replay = Log.open(disk, FOLDER, TABLET, SMALL)
                assert (list(replay.entries), replay.withheld) == (held, None)
            continue
        held = [e for e in held if e.opid.index < more[0].opid.index] + more
    log.close()
    if not segment_paths(disk):
        return
    whole, (*closed, path) = files_of(disk), segment_paths(disk)
    assert opened(disk) == (held, None) and files_of(disk) == whole, "nothing is written where nothing was lost"
    for older in closed:
        for border in block_ends(disk, older)[:-1]:
            hurt = on_disk({**whole, older: whole[older][:border]})
            try:
                assert [e.opid for e in open_log(hurt)[1]] == [e.opid for e in held], "what was replaced is back"
            except Corruption as error:
                assert "missing" in str(error) or "do not follow each other" in str(error)
    for border in block_ends(disk, path)[:-1]:
        hurt = on_disk({**whole, path: whole[path][:border]})
        left, withheld = opened(hurt)
        assert withheld is not None and withheld.index > (left[-1].opid.index if left else 0)
        assert withheld.index >= held[-1].opid.index and withheld.term >= held[-1].opid.term


def test_record_of_the_end_is_written_for_a_segment_and_at_a_close_and_never_for_an_append() -> None:
    """IN-21. Goal: the record of the log's end is written for each segment and close, and never for an append. Method:
    count its writes over segments, appends, closes with and without a change, and starts after a close and after a
    kill."""
    disk = SimDisk()
    writes = lambda: disk.count("replace", RECORD)  # noqa: E731
    log, _ = open_log(disk)
    for index in range(1, 20):
        append_now(log, [entry(index)])
    header, *_, end = block_ends(disk, segment_paths(disk)[0])
    assert (writes(), read_newest(disk, FOLDER)) == (1, Newest(1, header, OpId(0, 0)))
    log.close()
    log.close()
    assert (writes(), read_newest(disk, FOLDER)) == (2, Newest(1, end, OpId(1, 19)))
    build(disk, lambda log: None)
    assert writes() == 2
    build(disk, lambda log: [append_now(log, [entry(20)]), log.roll(), append_now(log, [entry(21)])], close=False)
    assert writes() == 4 and read_newest(disk, FOLDER).last == OpId(1, 20)
    disk.restart()
    log, _ = open_log(disk)
    assert writes() == 5 and read_newest(disk, FOLDER).last == OpId(1, 21)
    log.close()
    assert writes() == 5


@pytest.mark.parametrize("state", ["new", "appended", "rolled", "opened"])
def test_record_that_is_damaged_beside_an_open_log_is_written_again_as_it_was(state: str) -> None:
    """IN-21. Goal: an open log has in memory what its record says, and writes it again. Method: in each state of a log,
    remove, empty, cut, flip and replace the record: it has the former bytes again, and no other log is written. A log
    that is closed, has failed or lost its folder writes none."""
    disk = SimDisk()
    if state == "opened":
        build(disk, lambda log: append_now(log, entries(1, 3)))
    log, _ = open_log(disk)
    if state in ("appended", "rolled"):
        append_now(log, entries(1, 3))
    if state == "rolled":
        log.roll()
    if state == "new":
        assert not disk.exists(RECORD) and not log.repair_record() and not disk.exists(RECORD)
        return
    data = disk.read(RECORD)
    other = data[:20] + bytes([data[20] ^ 1]) + data[21:]
    for bad in (None, b"", data[:7], data[:-1], other):
        assert not log.repair_record()
        disk.remove(RECORD) if bad is None else disk.poke(RECORD, bad)
        assert log.repair_record() and disk.read(RECORD) == data
    folder = {path: disk.read(path) for path in (*segment_paths(disk), RECORD)}
    disk.remove_tree(FOLDER)
    assert not log.repair_record() and not disk.exists(FOLDER)
    disk.mkdir(FOLDER)
    for path, held in folder.items():
        disk.poke(path, held)
    log.close()
    disk.remove(RECORD)
    assert not log.repair_record() and not disk.exists(RECORD)


@pytest.mark.parametrize("cut", [True, False], ids=["power", "kill"])
@pytest.mark.parametrize("moment", ["before", "named", "after"])
@pytest.mark.parametrize("write", range(5))
def test_death_at_any_write_of_the_record_neither_loses_nor_withholds_an_entry(
    write: int, moment: str, cut: bool
) -> None:
    """IN-21, CN-22. Goal: the record never names more than is durable. Method: the process dies before, in and after
    the n-th write of it: for a segment, a close, a start after a kill, another segment, a close; then every
    acknowledged entry is there, nothing is withheld, and the log goes on."""
    disk = SimDisk()
    acknowledged: list[OpId] = []
    seen = [0]

    def hook(operation: str, path: str) -> None:
        if (operation, path) == ("replace", RECORD):
            seen[0] += 1
            if seen[0] == write + 1 and moment == "before":
                raise SimCrash("before the record")
            if seen[0] == write + 1 and moment == "named":
                disk.arm("disk.before_rename_sync")
        elif seen[0] == write + 1 and moment == "after":
            raise SimCrash("after the record")

    def life(first: int, *, close: bool) -> None:
        log, found = open_log(disk)
        assert len(found) == first - 1
        for index in (first, first + 1):
            acknowledged.extend(append_now(log, [entry(index)]).durable)
        if close:
            log.close()
        disk.restart()

    disk.hook = hook
    with pytest.raises(SimCrash):
        life(1, close=True)
        life(3, close=False)
        life(5, close=True)
        open_log(disk)
    assert seen[0] == write + 1
    disk.hook = None
    disk.disarm()
    if cut:
        disk.power_loss(random.Random(write))
    else:
        disk.restart()
    found, withheld = opened(disk)
    assert withheld is None and found == entries(1, len(found))
    assert len(found) >= (acknowledged[-1].index if acknowledged else 0)
    build(disk, lambda log: append_now(log, [entry(len(found) + 1)]))
    assert opened(disk) == (entries(1, len(found) + 1), None)


@pytest.mark.parametrize("cut", [True, False], ids=["power", "kill"])
def test_death_anywhere_in_the_opening_of_a_shorter_log_forgets_no_mark(cut: bool) -> None:
    """IN-21, CN-22. Goal: the record of the end is lowered only after the mark of the loss is durable. Method: a closed
    log loses its end on a border, or in the middle of its last block, whose whole entries are kept; the start dies
    before each of its calls."""
    disk = SimDisk()
    held = _plain(disk)
    whole, path = files_of(disk), segment_paths(disk)[-1]
    borders = block_ends(disk, path)
    for length in (borders[1], borders[-1] - 60):
        calls = 0
        while True:
            calls += 1
            hurt, left = on_disk({**whole, path: whole[path][:length]}), [calls]

            def hook(operation: str, path: str, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] == 0:
                    raise SimCrash(operation)

            hurt.hook = hook
            try:
                open_log(hurt)
            except SimCrash:
                hurt.hook = None
            else:
                break
            if cut:
                hurt.power_loss(random.Random(calls))
            else:
                hurt.restart()
            found, withheld = opened(hurt)
            assert found == held[: len(found)] and len(found) < len(held) and withheld == OpId(1, 8), calls
        assert calls > 10


def test_record_that_does_not_read_back_is_corruption_that_names_the_way_on() -> None:
    """IN-21. Goal: a damaged, cut or empty record is Corruption, because it cannot be told whether the log lost its
    end; the error names the repair. Method: every byte and every length; opening and looks refuse and change no file;
    removed by hand, the log opens with what it holds and has a record again."""
    disk = SimDisk()
    held = _plain(disk)
    good = disk.read(RECORD)
    assert len(good) == 44
    hurts = [good[:at] + bytes([good[at] ^ mask]) + good[at + 1 :] for at in range(len(good)) for mask in (1, 0x80)]
    for hurt in [*hurts, *(good[:length] for length in range(len(good))), bytes(len(good)), good + b"\0"]:
        disk.poke(RECORD, hurt)
        before = files_of(disk)
        for look in (
            open_log,
            lambda disk: inspect_log(disk, FOLDER, TABLET),
            lambda d: read_offline(d, FOLDER, TABLET),
        ):
            with pytest.raises(Corruption, match=r"a copy from the tablet's leader heals.*remove \.newest-segment"):
                look(disk)
        assert files_of(disk) == before
    disk.remove(RECORD)
    assert opened(disk) == (held, None) and disk.read(RECORD) == good


def with_crc(body: bytes) -> bytes:
    return body + google_crc32c.value(body).to_bytes(4, "little")


@pytest.mark.parametrize("length", [0, 7, 8, 16, 24, 40, 48])
@pytest.mark.parametrize("magic", [b"NYLANW01", b"NYLANW02", b"NYLANW03"])
def test_record_with_a_right_checksum_is_read_by_its_magic_and_has_its_length(magic: bytes, length: int) -> None:
    """IN-21. Goal: bytes that happen to have a right checksum are no record, as four zeros; one of a later build is of
    any length. Method: each magic with each length; a log whose only segment is gone."""
    disk = on_disk({RECORD: with_crc((magic + (1).to_bytes(8, "little") + bytes(32))[:length])})
    ours = {(b"NYLANW01", 16): Newest(1), (b"NYLANW02", 40): Newest(1)}
    later = magic == b"NYLANW03" and length >= len(magic)
    expected = Newest() if later else ours.get((magic, length))
    if expected is None:
        with pytest.raises(Corruption, match="does not read back"):
            read_newest(disk, FOLDER)
        return
    assert read_newest(disk, FOLDER) == expected
    if expected.number:
        with pytest.raises(Corruption, match="newest segment of a log is missing"):
            open_log(disk)
    else:
        assert open_log(disk)[1] == []


@pytest.mark.parametrize("build_of", ["no record", "a number only", "a later build"])
def test_record_of_another_build_says_what_it_can_and_is_written_anew(build_of: str) -> None:
    """IN-21. Goal: a log of an earlier build, of a later one, or of a copy opens, and has a record of its end from then
    on. Method: put such a record in place of ours; the log opens, ours is written, and a lost newest segment is
    missed."""
    disk = SimDisk()
    held = _plain(disk)
    good = disk.read(RECORD)
    body = {"a number only": b"NYLANW01" + (2).to_bytes(8, "little"), "a later build": b"NYLANW07 anything"}
    disk.remove(RECORD)
    if build_of in body:
        disk.poke(RECORD, with_crc(body[build_of]))
    assert read_newest(disk, FOLDER) == Newest(2 * (build_of == "a number only"))
    assert opened(disk) == (held, None) and disk.read(RECORD) == good
    disk.remove(segment_paths(disk)[-1])
    with pytest.raises(Corruption, match="newest segment"):
        open_log(disk)


@pytest.mark.parametrize("kind", ["ENOSPC", "EMFILE", "EIO"])
def test_close_that_cannot_write_the_record_leaves_a_log_as_after_a_crash(kind: str) -> None:
    """IN-21. Goal: a full disk fails no close, and no later start. Method: the record of a close cannot be written;
    the next start finds all entries and writes it."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, entries(1, 3))
    disk.fail_on("replace", RECORD, kind)
    if kind == "EIO":
        with pytest.raises(DiskFailure):
            log.close()
    else:
        log.close()
    assert read_newest(disk, FOLDER).last == OpId(0, 0)
    disk.restart()
    assert opened(disk) == (entries(1, 3), None) and read_newest(disk, FOLDER).last == OpId(1, 3)


def test_log_that_failed_says_nothing_of_its_end_when_it_is_closed() -> None:
    """IN-21. Goal: a log whose sync failed does not record its end, neither when its files are checked nor when it is
    closed. Method: EIO at the sync of an append; remove the record, check, put it back, close; it is the segment's
    still."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    disk.fail_on("datasync", f"{FOLDER}/*")
    append_now(log, [entry(2)])
    record = disk.read(RECORD)
    disk.remove(RECORD)
    assert not log.repair_record() and not disk.exists(RECORD)
    disk.poke(RECORD, record)
    log.close()
    assert read_newest(disk, FOLDER).last == OpId(0, 0)


def test_segment_that_never_got_an_entry_is_the_end_that_is_recorded() -> None:
    """IN-21. Goal: a close never records an earlier segment than the record has. Method: the first block of a new
    segment finds no room; close; the next start has the entries, and a lost newest segment is missed."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, [entry(1)])
    log.roll()
    disk.fail_on("pwrite", f"{FOLDER}/*", "ENOSPC", skip=1)
    (refused,) = append_now(log, [entry(2)]).results
    assert isinstance(refused, Refused) and refused.code is Code.NO_SPACE
    log.close()
    assert read_newest(disk, FOLDER).number == len(segment_paths(disk)) == 2
    assert opened(disk) == ([entry(1)], None)
    disk.remove(segment_paths(disk)[-1])
    with pytest.raises(Corruption, match="newest segment"):
        open_log(disk)


def test_dump_beside_a_log_at_work_never_finds_its_end_missing() -> None:
    """IN-21, IN-22. Goal: a dump of a log in use never reports a missing end. Method: a whole dump before each single
    call of a log that opens, appends, rolls, collects, closes and opens again."""
    disk = SimDisk()
    found: list[dict[str, Any]] = []

    def hook(operation: str, path: str) -> None:
        disk.hook = None
        found.extend(item for _, item in dump_log(disk, FOLDER, lambda: None) if item["kind"] == "damage")
        disk.hook = hook

    build(disk, lambda log: append_now(log, [entry(1)]))
    disk.hook = hook
    for first in (2, 6):
        log, _ = open_log(disk)
        append_now(log, [entry(first)])
        append_now(log, [entry(first + 1)])
        log.roll()
        append_now(log, entries(first + 2, first + 3))
        log.gc(first)
        log.close()
    disk.hook = None
    assert found == [] and opened(disk)[1] is None


@pytest.mark.parametrize("behind", ["entries", "a header only"])
def test_segment_that_lost_a_replacement_before_the_next_one_is_corruption(behind: str) -> None:
    """CN-22, IN-21. Goal: if entries that had replaced others are lost, the replaced ones do not count again. Method: a
    later leader's shorter end in place of a longer one, then another segment; cut the replacement off, on its border:
    by their indexes the older entries would fit."""
    disk = SimDisk()
    build(disk, lambda log: [append_now(log, entries(1, 9)), append_now(log, entries(4, 5, term=2))])
    if behind == "entries":
        build(disk, lambda log: append_now(log, entries(6, 7, term=2)))
    else:
        begin_a_segment(disk, entry(6, term=2))
    first, _ = segment_paths(disk)
    disk.poke(first, disk.read(first)[: block_ends(disk, first)[-2]])
    before = files_of(disk)
    for look in (
        open_log,
        lambda disk: inspect_log(disk, FOLDER, TABLET),
        lambda disk: read_offline(disk, FOLDER, TABLET),
    ):
        with pytest.raises(Corruption, match="entries are missing before a segment"):
            look(disk)
    assert files_of(disk) == before


@pytest.mark.a_third
@pytest.mark.parametrize("cut", [True, False], ids=["power", "kill"])
def test_segment_begun_behind_a_lost_end_is_removed_before_the_end_comes_back(cut: bool) -> None:
    """IN-21, CN-22. Goal: a replica that healed starts again. Method: the last entries are damaged, with a segment
    without an entry behind; the start dies before each of its calls, another one removes the segment, the leader sends
    the entries, the mark goes, and the log opens."""
    disk = SimDisk()
    build(disk, lambda log: [append_now(log, entries(1, 5)), append_now(log, entries(6, 8))])
    begin_a_segment(disk, entry(9))
    first, _ = segment_paths(disk)
    disk.corrupt(first, disk.read(first).index(b"payload 1.7"))
    whole, died = files_of(disk), True
    calls = 0
    while died:
        calls += 1
        hurt, left = on_disk(whole), [calls]

        def hook(operation: str, path: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise SimCrash(operation)

        hurt.hook, died = hook, False
        try:
            open_log(hurt)
        except SimCrash:
            died = True
        hurt.hook = None
        if cut:
            hurt.power_loss(random.Random(calls))
        else:
            hurt.restart()
        assert opened(hurt) == (entries(1, 6), OpId(1, 8)) and segment_paths(hurt) == [first]
        log, _ = open_log(hurt)
        append_now(log, entries(7, 9))
        log.forget_withheld()
        log.close()
        assert opened(hurt) == (entries(1, 9), None)
    assert calls > 10
