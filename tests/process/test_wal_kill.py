"""A process that appends with a real appender thread dies at each crash point of the log; the next one reads on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nyala.replica.disk import CRASH_EXIT_CODE, RealDisk
from nyala.replica.wal import Log
from tests.harness.wal_entries import FOLDER, SMALL, TABLET, append_now, entry

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]

WRITER = """
import sys
from nyala.replica.disk import RealDisk
from nyala.replica.wal import Log
from tests.harness.wal_entries import FOLDER, SMALL, TABLET, Outcomes, entry

log, replay = Log.open(RealDisk(sys.argv[1]), FOLDER, TABLET, SMALL)
print("opened", replay.last.index, flush=True)
def tell(result):
    print("durable", result.index, flush=True)
for index in range(replay.last.index + 1, replay.last.index + 200):
    log.append([entry(index, bytes([index % 251]) * 700)], tell)
    if index % 3 == 0:
        log.drain()
log.drain()
"""


@pytest.mark.parametrize(
    "point",
    [
        "wal.before_append",
        "wal.after_write_before_sync",
        "wal.after_sync",
        "wal.before_rename_segment",
        "wal.after_rename_segment",
    ],
)
def test_process_killed_at_a_crash_point_keeps_what_it_called_durable(point: str, tmp_path: Path) -> None:
    """CN-05, CN-20, CN-22. Goal: real files, real thread, real death. Method: three lives in a row, then read all."""
    durable = 0
    for countdown in (2, 3, 1):
        environment = {"PATH": "/usr/bin:/bin", "NYALA_CRASH_POINT": f"{point}:{countdown}"}
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == CRASH_EXIT_CODE, done.stderr
        lines = [line.split() for line in done.stdout.splitlines() if line.endswith(tuple("0123456789"))]
        assert int(lines[0][1]) >= durable
        durable = max([durable, *(int(number) for word, number in lines if word == "durable")])
    log, replay = Log.open(RealDisk(tmp_path), FOLDER, TABLET, SMALL, threaded=False)
    survivors = list(replay.entries)
    assert survivors == [entry(index, bytes([index % 251]) * 700) for index in range(1, len(survivors) + 1)]
    assert len(survivors) >= durable
    append_now(log, [entry(len(survivors) + 1)])
    log.close()
