"""A whole block of the same log at a place where another one was written."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from nyala.replica.types import Corruption, Entry, OpId
from nyala.replica.wal import Log, SegmentInfo, dump_segment, inspect_log, read_offline, verify_segment
from nyala.replica.wal.recovery import joined_marks
from tests.harness.sim_disk import SECTOR_BYTES, SimDisk
from tests.harness.wal_entries import FOLDER, SMALL, TABLET, append_now, build, entries, entry, open_log, segment_paths

MARKER_BYTES = 16


def _plain(log: Log) -> list[Entry]:
    for group in (entries(1, 1), entries(2, 3), entries(4, 4), entries(5, 7), entries(8, 8)):
        append_now(log, group)
    return entries(1, 8)


def _replaced(log: Log) -> list[Entry]:
    """The second and third block were overwritten by a later leader, the last one by one more."""
    append_now(log, entries(1, 2))
    append_now(log, entries(3, 4))
    append_now(log, entries(5, 5))
    append_now(log, entries(3, 4, term=2))
    append_now(log, entries(5, 6, term=2))
    append_now(log, entries(6, 7, term=3))
    return [*entries(1, 2), *entries(3, 5, term=2), *entries(6, 7, term=3)]


def _brought_back(log: Log) -> list[Entry]:
    """A leader of term 4 whose log holds 2.3, which one of term 3 had replaced here [paper, figure 8]."""
    append_now(log, entries(1, 2))
    append_now(log, entries(3, 3, term=2))
    append_now(log, entries(3, 4, term=3))
    log.truncate_after(2)
    append_now(log, entries(3, 3, term=2))
    append_now(log, entries(4, 4, term=4))
    return [*entries(1, 2), *entries(3, 3, term=2), *entries(4, 4, term=4)]


def _brought_back_last(log: Log) -> list[Entry]:
    append_now(log, entries(1, 2))
    append_now(log, entries(3, 3, term=2))
    append_now(log, entries(3, 3, term=3))
    append_now(log, entries(3, 3, term=2))
    return [*entries(1, 2), *entries(3, 3, term=2)]


def _zeros(log: Log) -> list[Entry]:
    """Blocks that state their zero sectors, and so their place."""
    written = [entry(1), entry(2, bytes(700)), entry(3, bytes(700)), entry(4), entry(5, bytes(2000))]
    for one in written:
        append_now(log, [one])
    return written


def _zeros_brought_back(log: Log) -> list[Entry]:
    """The last block states its zero sectors, and its first entry had been replaced by a later leader's."""
    append_now(log, entries(1, 1))
    append_now(log, [entry(2, bytes(2000))])
    append_now(log, [entry(2, term=2)])
    log.truncate_after(1)
    append_now(log, [entry(2, bytes(2000)), entry(3, term=3)])
    return [entry(1), entry(2, bytes(2000)), entry(3, term=3)]


SHAPES: dict[str, Callable[[Log], list[Entry]]] = {
    "plain": _plain,
    "replaced": _replaced,
    "brought back": _brought_back,
    "brought back at the end": _brought_back_last,
    "zeros": _zeros,
    "zeros brought back": _zeros_brought_back,
}


def laid_out(write: Callable[[Log], list[Entry]], *, close: bool) -> tuple[str, bytes, list[Entry], list[int]]:
    """(the segment's path, its bytes, what the log holds, where each block begins and the last one ends)."""
    disk = SimDisk()
    held: list[Entry] = []
    build(disk, lambda log: held.extend(write(log)), close=close)
    (path,) = segment_paths(disk)
    disk.restart()
    data = disk.read(path)
    header, *_ = dump_segment(disk, path)
    marker = data[header["length_bytes"] - MARKER_BYTES : header["length_bytes"]]
    bounds, at = [], 0
    while (at := data.find(marker, at)) >= 0:
        at += MARKER_BYTES
        bounds.append(at)
    return path, data, held, bounds


def on_disk(path: str, data: bytes) -> SimDisk:
    disk = SimDisk()
    disk.mkdir(FOLDER)
    disk.poke(path, data)
    return disk


def outcome(path: str, data: bytes, held: list[Entry], where: str) -> str:
    """whole, withheld, or corruption; anything else fails. A look at rest says the same, and a second start too."""
    disk = on_disk(path, data)
    try:
        log, replay = Log.open(disk, FOLDER, TABLET, SMALL)
    except Corruption:
        with pytest.raises(Corruption):
            inspect_log(on_disk(path, data), FOLDER, TABLET)
        assert disk.read(path) == data, f"{where}: the evidence was changed"
        return "corruption"
    found = list(replay.entries)
    log.close()
    seen = read_offline(on_disk(path, data), FOLDER, TABLET)
    assert (list(seen.entries), seen.withheld) == (found, replay.withheld), where
    again, second = Log.open(disk, FOLDER, TABLET, SMALL)
    assert (list(second.entries), second.withheld) == (found, replay.withheld), where
    again.close()
    if replay.withheld is None:
        assert found == held, f"{where}: entries are gone or others without a word"
        return "whole"
    assert replay.withheld.index > len(found), where
    return "withheld"


@pytest.mark.a_third
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("close", [True, False], ids=["closed", "preallocated"])
def test_log_with_any_block_in_the_place_of_any_other_opens_no_shorter_without_withholding(
    shape: str, close: bool
) -> None:
    """IN-20. Goal: a block counts only at the place where it was written. Method: each block of a small log in the
    place of each other one, with what follows moved up, left where it was, or gone: the log holds all that it held, or
    withholds its vote, or is Corruption. The last block replaced by an older one is a damaged end."""
    path, data, held, bounds = laid_out(SHAPES[shape], close=close)
    count = len(bounds) - 1
    assert count >= 4
    for j in range(count):
        for i in range(count):
            block = data[bounds[i] : bounds[i + 1]]
            before, after = data[: bounds[j]], data[bounds[j + 1] :]
            over = bytearray(data)
            over[bounds[j] : bounds[j] + len(block)] = block
            where = f"{shape}: block {i} in the place of block {j}"
            moved = outcome(path, before + block + after, held, f"{where}, what follows moved")
            stood = outcome(path, bytes(over), held, f"{where}, what follows stays")
            if i == j:
                assert (moved, stood) == ("whole", "whole")
                continue
            assert "whole" not in (moved, stood), where
            if j == count - 1:
                assert moved == "withheld", where
            if i < j:
                assert outcome(path, before + block, held, f"{where}, nothing follows") == "withheld"


@pytest.mark.parametrize("shape", SHAPES)
def test_log_with_a_block_twice_is_no_longer_log_than_it_was(shape: str) -> None:
    """IN-20. Goal: a block that is in a file twice is found. Method: each block once more behind each other one."""
    path, data, held, bounds = laid_out(SHAPES[shape], close=True)
    for at in range(1, len(bounds)):
        for i in range(at):
            block = data[bounds[i] : bounds[i + 1]]
            found = outcome(path, data[: bounds[at]] + block + data[bounds[at] :], held, f"{shape}: {i} again at {at}")
            assert found == ("withheld" if at == len(bounds) - 1 else "corruption")


@pytest.mark.parametrize("close", [True, False], ids=["closed", "preallocated"])
def test_older_block_at_the_end_is_a_damaged_tail_until_the_log_reaches_its_index_again(close: bool) -> None:
    """IN-20. Goal: a replica whose last block is an older one neither votes nor campaigns until its log reaches the
    lost index again. Method: the last block, entry 8, replaced by the one of 4; 8 is withheld over restarts, until it
    is appended."""
    path, data, held, bounds = laid_out(_plain, close=close)
    older = data[bounds[2] : bounds[3]]
    disk = on_disk(path, data[: bounds[4]] + older + bytes(len(data) - bounds[5]))
    dumped = list(dump_segment(disk, path))[-1]
    assert (dumped["kind"], dumped["torn"], dumped["withheld"]) == ("damage", False, OpId(1, 8))
    assert "1.4" in dumped["what"] and "earlier block" in dumped["what"]
    for _ in range(2):
        log, replay = Log.open(disk, FOLDER, TABLET, SMALL)
        assert (list(replay.entries), replay.withheld) == (held[:-1], OpId(1, 8))
        log.close()
    log, _ = open_log(disk)
    append_now(log, [entry(8)])
    log.close()
    _, replay = Log.open(disk, FOLDER, TABLET, SMALL)
    assert (list(replay.entries), replay.withheld) == (held, None)


def test_two_lost_ends_withhold_the_higher_term_and_the_higher_index() -> None:
    """CN-22, D-7. Goal: of two marks the higher term and the higher index are kept, because each field may be a lower
    bound. Method: all pairs of marks that differ in one field or in both."""
    for one, other, both in (
        (OpId(5, 1), OpId(3, 9), OpId(5, 9)),
        (OpId(5, 1), OpId(5, 9), OpId(5, 9)),
        (OpId(3, 9), OpId(5, 9), OpId(5, 9)),
    ):
        assert joined_marks(one, other) == joined_marks(other, one) == both
        assert joined_marks(one, None) == one


def test_zeros_or_a_torn_write_in_the_place_of_the_last_block_are_still_a_tear() -> None:
    """IN-20. Goal: a torn write of the last block withholds no vote, because it was never acknowledged. Method: the
    last block, of several sectors, is zeros, or zeros from each of its sectors on."""

    def write(log: Log) -> list[Entry]:
        append_now(log, entries(1, 2))
        append_now(log, [entry(3, b"x" * 3 * SECTOR_BYTES)])
        return entries(1, 2)

    path, data, held, bounds = laid_out(write, close=False)
    begin, end = bounds[-2], bounds[-1]
    for cut in (begin, *range((begin // SECTOR_BYTES + 1) * SECTOR_BYTES, end, SECTOR_BYTES)):
        disk = on_disk(path, data[:cut] + bytes(len(data) - cut))
        log, replay = Log.open(disk, FOLDER, TABLET, SMALL)
        assert (list(replay.entries), replay.withheld) == (held, None)
        log.close()


def test_check_at_rest_sees_an_older_block_in_a_closed_segment() -> None:
    """IN-20. Goal: the scrub finds an older block in a closed segment. Method: two blocks of one length; the second is
    replaced by the first in a closed segment that the log still lists as it was."""

    def write(log: Log) -> list[Entry]:
        for index in range(1, 9):
            append_now(log, [entry(index, b"x" * 100)])
        return []

    path, data, _, bounds = laid_out(write, close=True)
    lengths = [after - before for before, after in pairwise(bounds)]
    info = SegmentInfo(1, path.rpartition("/")[2], 1, 8, len(data), closed=True)
    assert sum(verify_segment(on_disk(path, data), FOLDER, TABLET, info)) == len(data)
    i, j = next((i, j) for j in range(8) for i in range(j) if lengths[i] == lengths[j])
    hurt = data[: bounds[j]] + data[bounds[i] : bounds[i + 1]] + data[bounds[j + 1] :]
    assert len(hurt) == len(data)
    with pytest.raises(Corruption, match="not what was written"):
        sum(verify_segment(on_disk(path, hurt), FOLDER, TABLET, info))


def test_read_of_a_log_in_use_tells_an_entry_of_another_term_at_its_index() -> None:
    """IN-20. Goal: a leader sends no entry that was replaced. Method: in a log in use, the block of 2.3 is overwritten
    by that of 1.3, which it had replaced."""
    disk = SimDisk()
    log, _ = open_log(disk)
    append_now(log, entries(1, 2))
    append_now(log, [entry(3, b"one")])
    append_now(log, [entry(3, b"two" + b"." * 200, term=2)])
    (path,) = segment_paths(disk)
    data = disk.read(path)
    assert log.read(3, 4, 1 << 20)[0].opid == OpId(2, 3)
    one = next(r for r in dump_segment(disk, path) if r["kind"] == "entry" and r["opid"] == OpId(1, 3))
    two = next(r for r in dump_segment(disk, path) if r["kind"] == "entry" and r["opid"] == OpId(2, 3))
    block = data[one["byte_offset"] : one["byte_offset"] + one["length_bytes"]]
    disk.poke(path, data[: two["byte_offset"]] + block + data[two["byte_offset"] + len(block) :])
    with pytest.raises(Corruption, match=r"it is entry 1\.3"):
        log.read(3, 4, 1 << 20)


@pytest.mark.parametrize("shape", ["zeros", "zeros brought back"])
def test_damaged_byte_at_the_end_of_the_last_block_drops_no_entry_in_silence(shape: str) -> None:
    """IN-20, CN-22. Goal: what was acknowledged in a block that states its zero sectors is there, or the vote is
    withheld. Method: each of the last bytes, those of the trailer and the marker, becomes zero, or another byte."""
    path, data, held, bounds = laid_out(SHAPES[shape], close=False)
    for at in range(bounds[-1] - 40, bounds[-1]):
        for byte in (0, data[at] ^ 0x80):
            hurt = data[:at] + bytes([byte]) + data[at + 1 :]
            assert outcome(path, hurt, held, f"{shape}: {byte} at {at}") in ("whole", "withheld")
