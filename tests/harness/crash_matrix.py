"""The crash matrix of deletion and copy: where a replica dies, once or more, and what the next start must make of it.

The same cells run on a disk in memory, which forgets what was not synced, and on real files under kill -9; those of a
server die in a server process, at work for its own requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import format_directory
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import delete_replica
from nyala.replica.tools import check_directory
from nyala.replica.types import ZERO_OPID, DataState, Disk, OpId
from tests.harness.copies import (
    SOURCE_UUID,
    TABLET,
    TARGET_UUID,
    RestingReplica,
    Source,
    TestClock,
    attempt,
    copy_over,
    new_disk,
    start,
)

OWN_TERM, OWN_VOTE = 5, "c" * 32
OWN_LAST = OpId(4, 2)
"""The last entry of the replica that is deleted, or was before the copy."""
OWN_ROWS = {1: "a", 2: "b", 3: "b"}
SOURCE_ROWS = {7: "new", 8: "newer"}
SOURCE_TERM = 9
DELETION, COPY = "deletion", "copy"
BLANK, TOMBSTONE, READY = "blank", "tombstone", "ready"


Promises = tuple[int, str | None]
"""Term and vote."""


@dataclass(frozen=True)
class Cell:
    """One cell: begin as `before`; do `work`; die at each of `deaths` in turn, from the second on within the next
    start."""

    row: str
    work: str
    before: str
    deaths: tuple[str, ...]
    ends: DataState

    @property
    def name(self) -> str:
        return f"{self.row}, over {self.before}"

    @property
    def source_wins(self) -> bool:
        """Return whether the READY replica in the end is the source's, and not the one that was here before."""
        return self.work == COPY and self.deaths[0] in ("copy.5", "copy.6")

    @property
    def rolled_forward(self) -> tuple[str, ...]:
        """Return the crash points that the start after the last death passes."""
        last, deletion = self.deaths[-1], tuple(f"delete.{n}" for n in range(1, 7))
        if last in ("copy.1", "copy.2"):
            return deletion[:4]  # there is no log yet
        if last in ("copy.3", "copy.4"):
            return deletion
        return deletion[4:] if last in ("delete.4", "delete.5") else ()

    def promises(self, own: Promises | None, source_term: int) -> Promises | None:
        """Return the term and vote that are kept, of a server that had `own` before; None: no metadata.

        The source's vote is never adopted; the own one stays if its term does (TC-53 to TC-55).
        """
        if not any(point.startswith("copy.") and point != "copy.1" for point in self.deaths):
            return own
        return own if own is not None and own[0] >= source_term else (source_term, None)


def _cells() -> list[Cell]:
    deleted, ready = DataState.DELETED, DataState.READY
    cells = [Cell(f"DEL.{n}", DELETION, READY, (f"delete.{n}",), ready if n < 4 else deleted) for n in range(1, 7)]
    cells += [Cell(f"during Start 1, {n}", DELETION, READY, ("delete.4", f"delete.{n}"), deleted) for n in (5, 6)]
    for before in (BLANK, TOMBSTONE):
        cells += [Cell(f"COPY.{n}", COPY, before, (f"copy.{n}",), ready if n == 5 else deleted) for n in range(1, 6)]
        cells += [Cell(f"during Start 2, {n}", COPY, before, ("copy.4", f"delete.{n}"), deleted) for n in range(1, 7)]
    cells.append(Cell("during Start 2 and then Start 1", COPY, TOMBSTONE, ("copy.3", "delete.4", "delete.5"), deleted))
    # A copy deletes the replica that fell behind before it begins.
    cells += [
        Cell(f"DEL.{n} of a copy", COPY, READY, (f"delete.{n}",), ready if n < 4 else deleted) for n in range(1, 7)
    ]
    cells += [Cell(f"COPY.{n}", COPY, READY, (f"copy.{n}",), ready if n == 5 else deleted) for n in range(1, 6)]
    return cells


def _server_cells() -> list[Cell]:
    """Return all cells that die once, also after COPY.6, which only a server has; and, for deaths within starts, one
    row of them, in one start after the other, because the starts of processes cost most."""
    deleted, ready = DataState.DELETED, DataState.READY
    cells = [cell for cell in CELLS if len(cell.deaths) == 1]
    cells += [Cell("COPY.6", COPY, before, ("copy.6",), ready) for before in (BLANK, TOMBSTONE, READY)]
    steps = tuple(f"delete.{n}" for n in range(1, 7))
    cells.append(Cell("during Start 1", DELETION, READY, ("delete.4", *steps[4:]), deleted))
    for before in (BLANK, TOMBSTONE):
        cells.append(Cell("during Start 2 and then Start 1", COPY, before, ("copy.4", *steps), deleted))
    return cells


CELLS = _cells()
SERVER_CELLS = _server_cells()


def make_source() -> Source:
    """Return a leader in a later term with a block and a log after it, that voted for itself."""
    replica = RestingReplica(new_disk())
    replica.write([7], "new", term=SOURCE_TERM)
    replica.tablet.flush()
    replica.write([8], "newer", term=SOURCE_TERM)
    replica.cmeta.save_hard_state(SOURCE_TERM, SOURCE_UUID)
    return Source(replica)


def prepare(disk: Any, cell: Cell) -> None:
    """Make the directory as it is before the work."""
    format_directory(disk, TestClock(), uuid=TARGET_UUID)
    if cell.before == BLANK:
        return
    replica = RestingReplica(disk, TARGET_UUID)
    replica.write([1, 2], "a")
    replica.tablet.flush()
    assert replica.write([2, 3], "b", term=4) == OWN_LAST
    replica.cmeta.save_hard_state(OWN_TERM, OWN_VOTE)
    replica.close()
    if cell.before == TOMBSTONE:
        delete_replica(disk, Superblock.load(disk, TABLET), OWN_LAST, stop=lambda: None)


def act(disk: Disk, cell: Cell, source: Source) -> None:
    """Do the work of a cell, from its beginning."""
    if cell.work == DELETION:
        delete_replica(disk, Superblock.load(disk, TABLET), OWN_LAST, stop=lambda: None)
    else:
        copy_to(disk, source)


def copy_to(disk: Disk, source: Source, last: OpId = OWN_LAST) -> None:
    """Run the follower's copy once; of a READY replica, whose log ends at `last`, it begins with the deletion."""
    exists = Superblock.exists(disk, TABLET)
    local = Superblock.load(disk, TABLET) if exists else None
    own_term = ConsensusMeta.load(disk, TABLET).term if ConsensusMeta.exists(disk, TABLET) else 0
    made = attempt(disk, source.copy_source)
    if local is None or local.data_state is not DataState.READY:
        copy_over(local, made, own_term=own_term).run()
        return

    def stop_and_delete(check_source: Callable[[OpId, int], None]) -> Superblock:
        check_source(last, own_term)
        return delete_replica(disk, local, last, stop=lambda: None)

    copy_over(local, made, own_last_opid=last, own_term=own_term, stop_and_delete=stop_and_delete).run()


def judge(disk: Any, cell: Cell, settled: Superblock, source: Source, restart: Callable[[], None]) -> None:
    """Check the state, the promises, and the places of log and blocks; a second start changes nothing; the work done
    again ends.

    A tablet that was never here has promised nothing: its last logged OpId is 0.0.
    """
    assert settled.data_state is cell.ends, settled
    _promises(disk, cell, settled)
    places = _logs(disk)
    assert (f"wals/{TABLET}" in places) == (cell.ends is DataState.READY), places
    restart()
    again = start(disk)
    assert again == settled and _logs(disk) == places, "a start is idempotent"
    view = check_directory(disk)
    assert view.healthy and not view.orphans, view.all_findings
    if cell.before == TOMBSTONE or (cell.before == READY and cell.ends is DataState.DELETED):
        kept = disk.listdir("quarantine")
        assert disk.listdir(f"quarantine/{kept[0]}/wal"), "the first quarantine keeps its log"
    if cell.ends is DataState.READY:
        replica = RestingReplica(disk, TARGET_UUID)
        assert replica.rows() == (SOURCE_ROWS if cell.source_wins else OWN_ROWS)
        replica.close()
        if cell.work == DELETION:
            delete_replica(disk, settled, OWN_LAST, lambda: None)
    copy_to(disk, source, source.replica.log.last if cell.source_wins else OWN_LAST)
    replica = RestingReplica(disk, TARGET_UUID)
    assert replica.rows() == SOURCE_ROWS, "a clean new attempt works"
    replica.close()
    assert not check_directory(disk).all_findings


def _promises(disk: Any, cell: Cell, settled: Superblock) -> None:
    """TC-40, TC-61, TC-53 to TC-55: last logged OpId as kept, the highest term, the own vote and never the source's."""
    if cell.ends is DataState.DELETED:
        assert settled.last_logged == (ZERO_OPID if cell.before == BLANK else OWN_LAST)
    promises = cell.promises(None if cell.before == BLANK else (OWN_TERM, OWN_VOTE), SOURCE_TERM)
    if promises is None:
        assert not ConsensusMeta.exists(disk, TABLET)
        return
    meta = ConsensusMeta.load(disk, TABLET)
    assert (meta.term, meta.voted_for) == promises
    assert meta.uuid == TARGET_UUID


def _logs(disk: Any) -> list[str]:
    """Return every folder that holds, or may hold, segments of the tablet."""
    found = [f"wals/{TABLET}"] if disk.exists(f"wals/{TABLET}") else []
    return found + [f"quarantine/{n}/wal" for n in disk.listdir("quarantine") if disk.exists(f"quarantine/{n}/wal")]
