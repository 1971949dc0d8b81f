"""The crash matrix in this process: each cell as a kill, and as a power loss that forgets what was not synced."""

from __future__ import annotations

import pytest

from nyala.replica.types import DataState
from tests.harness.copies import die, new_disk, start
from tests.harness.crash_matrix import (
    BLANK,
    CELLS,
    COPY,
    READY,
    SERVER_CELLS,
    TOMBSTONE,
    Cell,
    act,
    judge,
    make_source,
    prepare,
)
from tests.harness.sim_disk import SimCrash


@pytest.mark.a_third
@pytest.mark.parametrize("power_seed", [None, 1, 2, 3], ids=["kill", "power 1", "power 2", "power 3"])
@pytest.mark.parametrize("cell", CELLS, ids=[c.name for c in CELLS])
def test_replica_that_dies_in_a_cell_of_the_matrix_ends_as_the_matrix_says(cell: Cell, power_seed: int | None) -> None:
    """TC-40, TC-59, TC-60, TC-61. Goal: after a crash in each cell of the matrix, and within the roll-forward itself,
    the replica ends in the documented state. Method: die at the crash point, lose power or not, start, die again where
    the cell says so; then state, last logged OpId, term, vote, one place for the log, no orphan, an idempotent second
    start, and a clean new attempt."""
    source = make_source()
    disk = new_disk()
    prepare(disk, cell)
    lives = 0

    def restart() -> None:
        nonlocal lives
        lives += 1
        die(disk, None if power_seed is None else 1000 * power_seed + lives)

    for number, point in enumerate(cell.deaths):
        disk.disarm()
        disk.arm(point)
        with pytest.raises(SimCrash):
            if number == 0:
                act(disk, cell, source)
            else:
                start(disk)
        restart()
    disk.disarm()
    judge(disk, cell, start(disk), source, restart)
    source.replica.close()


def test_matrix_has_every_row_of_the_requirement() -> None:
    """Goal: the matrix has all cells of the requirement. Method: the rows by name, the ends as required."""
    rows = {(c.row, c.ends) for c in CELLS}
    for number in range(1, 7):
        assert (f"DEL.{number}", DataState.READY if number < 4 else DataState.DELETED) in rows
    for number in range(1, 6):
        assert (f"COPY.{number}", DataState.READY if number == 5 else DataState.DELETED) in rows
    for before in (BLANK, TOMBSTONE, READY):
        deaths = {c.deaths for c in SERVER_CELLS if (c.work, c.before) == (COPY, before)}
        assert deaths >= {(f"copy.{number}",) for number in range(1, 7)}
    rolled = {c.before for c in SERVER_CELLS if c.deaths == ("copy.4", *(f"delete.{n}" for n in range(1, 7)))}
    assert rolled == {BLANK, TOMBSTONE}
    during = {c.name for c in CELLS if c.row.startswith("during")}
    assert during == {
        *(f"during Start 1, {n}, over {READY}" for n in (5, 6)),
        *(f"during Start 2, {n}, over {before}" for n in range(1, 7) for before in (BLANK, TOMBSTONE)),
        f"during Start 2 and then Start 1, over {TOMBSTONE}",
    }
    assert {c.ends for c in CELLS if c.row.startswith("during")} == {DataState.DELETED}
