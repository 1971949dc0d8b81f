"""The record of a replay that killed the server."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from nyala.replica.server.startup import code_version
from nyala.replica.server.startup.replay_watch import ReplayMarker, ReplayWatch, marker_path
from nyala.replica.types import Corruption, Entry, OpId, __version__
from nyala.schemas import frame, unframe
from tests.harness.copies import new_disk, write_entry
from tests.harness.sim_disk import SimCrash, SimDisk

LAST = OpId(1, 6)
BUILD = "1.0+aaaaaaaaaaaa"


class Recorder:
    """A state machine that notes how entries came."""

    def __init__(self, flushed: int = 0) -> None:
        self.flush_opid = OpId(1, flushed)
        self.applied_opid = self.flush_opid
        self.applied_time = 0
        self.calls: list[list[int]] = []

    def apply(self, entries: Sequence[Entry]) -> list[Any]:
        self.calls.append([e.opid.index for e in entries])
        self.applied_opid = entries[-1].opid
        return list(entries)

    def close(self) -> None: ...


def start(
    disk: SimDisk, tablet: str, *, generation: int = 0, flushed: int = 0, build: str = BUILD
) -> tuple[Any, Recorder, ReplayWatch]:
    """A server's start: settle what is found, then open one tablet."""
    watch = ReplayWatch(disk, build)
    watch.settle()
    machine = Recorder(flushed)
    watched = watch.watch(
        machine, tablet, wal_generation=generation, last=LAST, passed=lambda: watch.forget(tablet)
    )  # fmt: skip
    return watched, machine, watch


def replay(watched: Any, *batches: tuple[int, int]) -> None:
    for low, high in batches:
        entries = [write_entry(i, [i], "v", 1) for i in range(low, high + 1)]
        assert len(watched.apply(entries)) == len(entries)


def die_at(disk: SimDisk, tablet: str, index: int, **more: Any) -> Recorder:
    watched, machine, _ = start(disk, tablet, **more)
    disk.arm(f"replay.{tablet}.{index}")
    with pytest.raises(SimCrash):
        replay(watched, (1, 2), (3, 6))
    disk.restart()
    return machine


def test_replay_that_passes_leaves_no_marker() -> None:
    """Goal: an ordinary start costs one small file that goes away. Method: replay in two calls; entries after it are
    not marked; a tablet without entries to replay, and one whose mark was left between two entries, start as ever."""
    disk = new_disk()
    watched, machine, _ = start(disk, "a")
    replay(watched, (1, 2))
    assert ReplayMarker.load(disk, "a") == ReplayMarker(wal_generation=0, build=BUILD)
    replay(watched, (3, 6))
    assert not disk.exists(marker_path("a"))
    replay(watched, (7, 9))
    assert machine.calls == [[1, 2], [3, 4, 5, 6], [7, 8, 9]] and not disk.exists(marker_path("a"))
    _, _, watch = start(disk, "a", flushed=6)
    assert not disk.exists(marker_path("a")) and not watch.one_at_a_time


def test_third_death_at_one_entry_leaves_only_that_replica_offline() -> None:
    """IN-05. Goal: what kills three times at one index does not kill a fourth time. Method: die in the middle of a
    batch: the second start applies its entries alone and one tablet at a time, and dies again; the third one suspects
    that entry only, and dies; the fourth one refuses that tablet every time. A neighbour that was replaying when the
    server died starts."""
    disk = new_disk()
    neighbour, _, _ = start(disk, "b")
    disk.arm("replay.b.4")
    with pytest.raises(SimCrash):
        replay(neighbour, (1, 6))
    assert die_at(disk, "a", 4).calls == [[1, 2]]
    assert die_at(disk, "a", 4).calls == [[1, 2], [3]]
    assert die_at(disk, "a", 4).calls == [[1, 2], [3]]
    for _ in range(2):
        with pytest.raises(Corruption, match=r"crashed three times .*tablet=a, index=4"):
            start(disk, "a")
    watched, machine, watch = start(disk, "b")
    assert watch.one_at_a_time
    replay(watched, (1, 6))
    assert machine.calls == [[i] for i in range(1, 7)] and not disk.exists(marker_path("b"))


def test_death_in_a_long_replay_makes_few_entries_suspect() -> None:
    """IN-05. Goal: a server killed while it starts is back soon; entry by entry it would take a minute.
    Method: a thousand entries in one call, a death in their midst: the second start applies few of them alone, the
    entry that killed among them; the third one suspects only that one, and a death there takes the replica offline."""
    disk = new_disk()
    last, count = OpId(1, 1000), 1000
    entries = [write_entry(i, [i], "v", 1) for i in range(1, count + 1)]

    def begin() -> tuple[Any, Recorder]:
        watch, machine = ReplayWatch(disk, BUILD), Recorder()
        watch.settle()
        return watch.watch(machine, "a", wal_generation=0, last=last, passed=lambda: watch.forget("a")), machine

    alone = []
    for _ in range(3):
        watched, machine = begin()
        disk.arm("replay.a.500")
        with pytest.raises(SimCrash):
            watched.apply(entries)
        disk.restart()
        alone.append([call[0] for call in machine.calls if len(call) == 1])
        assert all(len(call) < 100 for call in machine.calls)
    assert alone[0] == alone[2] == [] and alone[1] == list(range(alone[1][0], 500)) and len(alone[1]) < 100
    with pytest.raises(Corruption, match="index=500"):
        begin()


@pytest.mark.deep
def test_server_that_is_killed_over_and_over_as_it_starts_loses_no_replica() -> None:
    """IN-05. Goal: kills from outside during replays, as of a supervisor without patience, convict no entry. Method:
    die at each two entries of a log, and at each three of which the last two differ: the next start applies all."""
    deaths = [
        ends for count in (2, 3) for ends in product(range(1, 7), repeat=count) if count == 2 or ends[1] != ends[2]
    ]
    for ends in deaths:
        disk = new_disk()
        for index in ends:
            die_at(disk, "a", index)
        watched, machine, _ = start(disk, "a")
        replay(watched, (1, 6))
        assert [index for call in machine.calls for index in call] == [1, 2, 3, 4, 5, 6], ends


def test_deaths_elsewhere_are_not_counted() -> None:
    """Goal: only deaths at the same entry of the same log count. Method: deaths at another index, one between two
    entries, those of an earlier copy's log, some whose mark a power loss tore: the replica starts each time."""
    disk = new_disk()
    die_at(disk, "a", 1)
    die_at(disk, "a", 5)
    watched, _, _ = start(disk, "a")
    replay(watched, (1, 2))
    disk.restart()
    watched, _, _ = start(disk, "a")
    replay(watched, (1, 6))
    for _ in range(3):
        die_at(disk, "a", 4)
    watched, machine, _ = start(disk, "a", generation=1)
    replay(watched, (1, 6))
    assert machine.calls == [[1, 2, 3, 4, 5, 6]]
    for _ in range(3):
        die_at(disk, "a", 4)
    disk.poke(marker_path("a"), disk.read(marker_path("a"))[:9])
    start(disk, "a")


def test_failure_of_an_entry_is_no_death() -> None:
    """Goal: an entry that fails its replica is not counted as a crash of the process. Method: apply raises."""
    disk = new_disk()

    class Failing(Recorder):
        def apply(self, entries: Sequence[Entry]) -> list[Any]:
            raise Corruption("a committed batch was damaged")

    for _ in range(3):
        watch = ReplayWatch(disk, BUILD)
        watch.settle()
        watched = watch.watch(Failing(), "a", wal_generation=0, last=LAST, passed=lambda: None)
        with pytest.raises(Corruption, match="damaged"):
            replay(watched, (1, 6))


def test_entry_that_killed_one_build_is_tried_again_by_another() -> None:
    """IN-03. Goal: a replica that is offline because servers of a build died at an entry is back with a build that does
    not, and a build with the same defect dies once more only. Method: three deaths under one build, which then
    leaves the replica offline at each start; a second build dies there and gives up; a third one applies the entry,
    alone; marks of a build that wrote no name count as another's."""
    disk = new_disk()
    for _ in range(3):
        die_at(disk, "a", 4)
    for _ in range(2):
        with pytest.raises(Corruption, match=r"crashed three times .*Start a build without the defect.*index=4"):
            start(disk, "a")
    assert die_at(disk, "a", 4, build="1.0+bbbbbbbbbbbb").calls == [[1, 2], [3]]
    with pytest.raises(Corruption, match="crashed three times"):
        start(disk, "a", build="1.0+bbbbbbbbbbbb")
    watched, machine, watch = start(disk, "a", build="1.1+cccccccccccc")
    assert watch.one_at_a_time
    replay(watched, (1, 6))
    assert machine.calls == [[1, 2, 3], [4], [5, 6]] and not disk.exists(marker_path("a"))
    old = ReplayMarker(wal_generation=0, first=4, last=4, suspect_first=4, suspect_last=4, died_alone=4)
    disk.replace(marker_path("a"), old.encode())
    replay(start(disk, "a")[0], (1, 6))


def test_failure_is_noted_until_the_entry_is_applied() -> None:
    """IN-03. Goal: a replica that failed at an entry has a note on disk with the entry, the reason and the build, until
    that entry is applied. Method: note, replay up to the entry, look, replay past it; a long reason; bytes of a later
    build in the same place."""
    disk = new_disk()
    _, _, watch = start(disk, "a")
    watch.note_failure("a", 0, 5, "ValueError: output array is read-only")
    watched, _, watch = start(disk, "a", build="1.1+cccccccccccc")
    replay(watched, (1, 4))
    noted = ReplayMarker.load(disk, "a")
    assert noted is not None and (noted.failed_index, noted.failed_build) == (5, BUILD)
    assert "entry 5" in noted.told() and BUILD in noted.told() and "output array is read-only" in noted.told()
    replay(watched, (5, 6))
    assert not disk.exists(marker_path("a"))
    watch.note_failure("a", 0, 5, "x" * 10_000)
    assert disk.size(marker_path("a")) < 512
    watch.note_failure("a", 1, 9, "of the next log")
    assert ReplayMarker.load(disk, "a") == ReplayMarker(
        wal_generation=1, build="1.1+cccccccccccc", failed_index=9, failed_build="1.1+cccccccccccc",
        failed="of the next log",
    )  # fmt: skip
    later = unframe("replay_marker", ReplayMarker(wal_generation=2).encode()) | {"reserved": b"\xff\x00"}
    disk.replace(marker_path("a"), frame("replay_marker", later))
    assert ReplayMarker.load(disk, "a") == ReplayMarker(wal_generation=2)
    assert ReplayMarker(wal_generation=2).told() == ""


def test_running_build_is_another_if_a_line_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-03. Goal: a mended clone counts as another build, though its release is the same; the same files are the same
    build. Method: two copies of a package of two files, one line changed in one of them."""
    found = []
    for line in ("a = 1", "a = 1", "a = 2"):
        root = tmp_path / str(len(found))
        (root / "replica").mkdir(parents=True)
        (root / "replica" / "one.py").write_text(line)
        (root / "replica" / "two.py").write_text("b = 1")
        monkeypatch.setattr(code_version, "_PACKAGE", root)
        found.append(code_version.running_build.__wrapped__())
    assert found[0] == found[1] != found[2]
    assert all(each.startswith(f"{__version__}+") for each in found)
