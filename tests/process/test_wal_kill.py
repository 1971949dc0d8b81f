"""A process dies at each crash point of the log, or of consensus metadata, on real files; the next one reads what it
left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import CRASH_EXIT_CODE, RealDisk
from nyala.replica.wal import Log
from tests.harness.wal_entries import FOLDER, SMALL, TABLET, append_now, entry

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]

WRITER = """
import sys
from nyala.replica.fs import RealDisk
from nyala.replica.wal import Log, LogThreads
from tests.harness.wal_entries import FOLDER, SMALL, TABLET, Outcomes, entry

log, replay = Log.open(RealDisk(sys.argv[1]), FOLDER, TABLET, SMALL, threads=LogThreads(1, 1))
print("opened", replay.last.index, flush=True)
def tell(result):
    print("durable", result.index, flush=True)
for index in range(replay.last.index + 1, replay.last.index + 200):
    log.append([entry(index, bytes([index % 251]) * 700)], tell)
    if index % 3 == 0:
        log.drain()
log.drain()
"""


VOTER = """
import sys
from nyala.replica.types import ZERO_OPID, Member, RaftConfig
from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import RealDisk

disk, group = RealDisk(sys.argv[1]), RaftConfig(ZERO_OPID, tuple(Member(uuid) for uuid in "abc"))
known = ConsensusMeta.exists(disk, "t")
meta = ConsensusMeta.load(disk, "t") if known else ConsensusMeta.create(disk, "t", "a", group)
print("found", meta.term, meta.voted_for, flush=True)
for term in range(meta.term + 1, meta.term + 100):
    for vote in (None, "abc"[term % 3]):
        print("asked", term, vote, flush=True)
        meta.save_hard_state(term, vote)
        print("promised", term, vote, flush=True)
"""


def life(program: str, root: Path, point: str, countdown: int) -> list[list[str]]:
    """Return the words of the lines that a process printed until it died at the crash point."""
    environment = {**os.environ, "NYALA_CRASH_POINT": f"{point}:{countdown}"}
    command = [sys.executable, "-c", program, str(root)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == CRASH_EXIT_CODE, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "point", ["cmeta.before_flush", "spare.written", "spare.synced", "spare.exchanged", "cmeta.after_flush"]
)
def test_process_killed_at_a_crash_point_forgets_no_vote(point: str, tmp_path: Path) -> None:
    """TC-14. Goal: no term and no vote that was promised is forgotten or changed, on real files. Method: four lives in
    a row that raise terms and vote in them; each finds the last promise of the one before, or what it died of."""
    promised = asked = ["0", "None"]
    for countdown in (2, 7, 3, 4):
        for word, *state in life(VOTER, tmp_path, point, countdown):
            assert word != "found" or state in (promised, asked), (promised, asked, state)
            promised, asked = (promised, state) if word == "asked" else (state, state)
    meta = ConsensusMeta.load(RealDisk(tmp_path), "t")
    assert [str(meta.term), str(meta.voted_for)] in (promised, asked) and meta.term > 3


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
        lines = life(WRITER, tmp_path, point, countdown)
        assert int(lines[0][1]) >= durable
        durable = max([durable, *(int(number) for word, number in lines if word == "durable")])
    log, replay = Log.open(RealDisk(tmp_path), FOLDER, TABLET, SMALL)
    survivors = list(replay.entries)
    assert survivors == [entry(index, bytes([index % 251]) * 700) for index in range(1, len(survivors) + 1)]
    assert len(survivors) >= durable
    append_now(log, [entry(len(survivors) + 1)])
    log.close()
