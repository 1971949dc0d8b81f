"""The crash matrix on real files: a process of its own dies by kill -9 at each crash point of each cell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.crash_matrix import CELLS

pytestmark = [pytest.mark.process, pytest.mark.deep]
ROOT = Path(__file__).resolve().parents[2]

RUNNER = """
import os, signal, sys
from pathlib import Path
from nyala.replica.fs import CrashPoints, RealDisk
from tests.harness.copies import close_disks
from tests.harness.copies import start
from tests.harness.crash_matrix import CELLS, act, judge, make_source, prepare

class Killed(CrashPoints):
    def __init__(self, point):
        super().__init__({})
        self.point = point
    def reach(self, name):
        if name == self.point:
            os.kill(os.getpid(), signal.SIGKILL)

def live(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(3)
    return os.waitpid(child, 0)[1]

for number, cell in enumerate(CELLS):
    root, source = Path(sys.argv[1]) / str(number), make_source()
    prepare(RealDisk(root), cell)
    for life, point in enumerate(cell.deaths):
        disk = RealDisk(root, crash_points=Killed(point))
        status = live(lambda: act(disk, cell, source) if life == 0 else start(disk))
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (cell, point, status)
    disk = RealDisk(root)
    judge(disk, cell, start(disk), source, lambda: None)
    source.replica.close()
    close_disks()
    print("as required:", cell.name, flush=True)
"""


def test_process_killed_in_every_cell_of_the_matrix_leaves_what_a_start_mends(tmp_path: Path) -> None:
    """TC-39, TC-40, TC-59, TC-60. Goal: each cell of the crash matrix holds under kill -9 of a real process on real
    files. Method: one child for each life, killed by itself at the crash point; the next life, and in the end the
    parent, start on what it left; the same judgement as in memory."""
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    passed = [line.partition(": ")[2] for line in done.stdout.splitlines() if line.startswith("as required")]
    assert passed == [cell.name for cell in CELLS]
