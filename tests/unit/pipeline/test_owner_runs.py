"""Ids of runs: a process that is gone is known to be gone, and nothing else is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nyala.pipeline.owner import ProcessPlace, is_dead, new_owner_run, this_process


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def place_of(pid: int) -> ProcessPlace:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return ProcessPlace(this_process().machine, pid, int(fields[19]))


def test_owner_run_is_dead_when_its_process_is_and_not_before(child: subprocess.Popen[bytes]) -> None:
    """Goal: kill -9 is seen at once, also before anybody waits for the process. Method: a child, killed, reaped."""
    run = new_owner_run(place_of(child.pid))
    assert not is_dead(run) and not is_dead(new_owner_run())
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(run), "a zombie owns nothing"
    child.wait()
    assert is_dead(run)


def test_owner_run_of_an_earlier_process_with_the_pid_is_dead() -> None:
    """Goal: a pid that is used again does not keep a dead run alive. Method: this pid with an earlier start."""
    me = this_process()
    assert is_dead(new_owner_run(ProcessPlace(me.machine, me.pid, me.start - 1)))


def test_owner_run_elsewhere_is_never_called_dead() -> None:
    """Goal: a run on another machine, boot or container is never taken for dead. Method: another machine, boot or
    container; another form; no /proc."""
    me = this_process()
    gone = new_owner_run(ProcessPlace(me.machine, 2**22 + 1, 1))
    assert is_dead(gone) and not is_dead(gone, Path("/nowhere"))
    for other in ("0" * 12, ""):
        assert not is_dead(new_owner_run(ProcessPlace(other, 2**22 + 1, 1)))
    assert not is_dead("0" * 32) and not is_dead("")


def test_owner_runs_differ_and_name_host_and_pid() -> None:
    """Goal: two queries of one process are two owners, and a person can find them. Method: make two."""
    assert new_owner_run() != new_owner_run()
    assert re.match(rf"[\w.-]+/{os.getpid()}/", new_owner_run())
