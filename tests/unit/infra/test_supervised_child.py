"""A supervised child becomes ready, is restarted with back-off at its death, and is given up after too many."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nyala.infra.local import Child, ChildState
from nyala.infra.local.children import RESTART_BACKOFF_S_MAX, RESTARTS_MAX, backoff_s, telling_line

pytestmark = pytest.mark.process

READY_SCRIPT = """
import json, os, pathlib, sys
pathlib.Path(sys.argv[1]).write_text(json.dumps({"address": "127.0.0.1:1", "pid": os.getpid()}))
os.read(int(sys.argv[2]), 1)
"""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """(read end that children watch, write end that keeps them alive)."""
    read_end, write_end = os.pipe()
    yield read_end, write_end
    os.close(read_end)
    if write_end >= 0:
        os.close(write_end)


def child_that_runs(script: str, folder: Path) -> Child:
    def command(child: Child, parent_fd: int) -> list[str]:
        return [sys.executable, "-c", script, str(child.ready_file), str(parent_fd)]

    return Child("probe", command, folder / "probe.ready", folder / "probe.log")


def poll_until(child: Child, fd: int, condition: Callable[[], bool], wait_s: float = 90.0) -> None:
    deadline = time.monotonic() + wait_s
    while not condition():
        child.poll(fd)
        assert time.monotonic() < deadline, f"{child.row()}: {child.last_lines()}"


def test_child_that_dies_is_restarted_and_ready_again(tmp_path: Path, pipe: tuple[int, int]) -> None:
    """Goal: a killed child comes back with a new pid. Method: a real process, killed once, polled to READY twice."""
    child = child_that_runs(READY_SCRIPT, tmp_path)
    child.start(pipe[0])
    poll_until(child, pipe[0], lambda: child.state is ChildState.READY)
    first = child.pid
    child.send_signal(9)
    poll_until(child, pipe[0], lambda: child.state is ChildState.BACKING_OFF)
    poll_until(child, pipe[0], lambda: child.state is ChildState.READY)
    assert child.pid != first
    assert (child.restarts, child.last_exit) == (1, -9)
    child.stop()
    assert child.pid is None


def test_child_ends_when_the_supervisor_is_gone(tmp_path: Path, pipe: tuple[int, int]) -> None:
    """Goal: no orphan outlives its supervisor. Method: close the write end of the pipe and wait for the child."""
    child = child_that_runs(READY_SCRIPT, tmp_path)
    child.start(pipe[0])
    poll_until(child, pipe[0], lambda: child.state is ChildState.READY)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, pipe[1])
    os.close(nowhere)
    assert child.process is not None
    assert child.process.wait(90) == 0


def test_child_that_keeps_dying_is_given_up(
    tmp_path: Path, pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: restarts are bounded. Method: a child that exits at once, with the back-off set to nothing."""
    monkeypatch.setattr("nyala.infra.local.children.RESTART_BACKOFF_S_MIN", 0.0)
    child = child_that_runs("raise SystemExit(3)", tmp_path)
    child.start(pipe[0])
    poll_until(child, pipe[0], lambda: child.state is ChildState.FAILED)
    assert (child.restarts, child.last_exit) == (RESTARTS_MAX + 1, 3)


def test_backoff_grows_and_is_bounded() -> None:
    """Goal: restarts slow down up to a bound. Method: the first, second and fiftieth wait."""
    assert backoff_s(1) < backoff_s(2) < backoff_s(50) == RESTART_BACKOFF_S_MAX


def test_child_is_started_again_once_a_full_disk_has_room(tmp_path: Path, pipe: tuple[int, int]) -> None:
    """Goal: a full disk is noted and waited for, however long, and costs no restart. Method: kill a child whose log has
    become /dev/full; look until that is noted, and on until it has been tried more often than a child may die; then
    give the log back."""
    child = child_that_runs(READY_SCRIPT, tmp_path)
    child.start(pipe[0])
    poll_until(child, pipe[0], lambda: child.state is ChildState.READY)
    child.log_file.rename(tmp_path / "kept.log")
    child.log_file.symlink_to("/dev/full")
    child.send_signal(9)
    poll_until(child, pipe[0], lambda: bool(child.problem))
    for _ in range(2 * RESTARTS_MAX):
        child.next_start_at = 0.0
        assert not child.poll(pipe[0]), "nothing new"
    assert (child.state, child.restarts, child.pid) == (ChildState.BACKING_OFF, 1, None)
    assert child.row()["problem"] == "No space left on device"
    child.log_file.unlink()
    poll_until(child, pipe[0], lambda: child.state is ChildState.READY)
    assert child.problem == ""
    child.stop()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (["INFO starting", "nyala: no `java` on the PATH", "", "INFO ended"], "nyala: no `java` on the PATH"),
        (["Traceback (most recent call last):", "  x()", "ValueError: no such", ""], "ValueError: no such"),
        (["12:00:01 ERROR Exiting", "Caused by: java.io.IOException: No space", "\tat a.B", "INFO bye"],
         "Caused by: java.io.IOException: No space"),
        (["one", "two", " "], "two"),
        ([], "it said nothing"),
    ],
)  # fmt: skip
def test_log_comes_down_to_the_line_that_tells(said: list[str], told: str, tmp_path: Path) -> None:
    """Goal: why a child ended is one line, of its last run. Method: logs of each kind, after an earlier run's."""
    assert telling_line(said) == told
    child = child_that_runs("", tmp_path)
    child.log_file.write_text("\n".join(["--- t start probe", "RuntimeError: earlier", "--- t start probe", *said]))
    assert child.last_words() == told
