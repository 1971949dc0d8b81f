"""Children that know nothing of us end with us."""

from __future__ import annotations

import os
import subprocess
import sys

from nyala.infra.local.parent_death import ended_with_parent

PARENT = """
import subprocess, sys
from nyala.infra.local.parent_death import ended_with_parent
child = subprocess.Popen(ended_with_parent(sys.argv[1:]))
print(child.pid, flush=True)
child.wait()
"""
CHILD = "import sys; print('begun', flush=True); sys.stdin.read()"


def test_child_ends_when_its_parent_is_killed() -> None:
    """Goal: kill -9 of a benchmark or a demo leaves no JVM behind. Method: a parent of a child that would wait for
    ever; the parent is killed once the child runs, and the pipe that the child holds must close."""
    reading, writing = os.pipe()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=writing,
        pass_fds=(writing,),
    )
    os.close(writing)
    with os.fdopen(reading) as said:
        lines = {said.readline().strip() for _ in range(2)}
        assert "begun" in lines
        parent.kill()
        parent.wait()
        # Ends when nobody holds the pipe any more: neither parent nor child.
        assert said.read() == ""
    if parent.stdin:
        parent.stdin.close()


def test_command_runs_as_it_was_given() -> None:
    """Goal: arguments, environment and exit status pass through. Method: a child that prints them."""
    command = [sys.executable, "-c", "import os, sys; print(sys.argv[1:], os.environ['X']); sys.exit(7)", "a b", ""]
    ran = subprocess.run(
        ended_with_parent(command), env={**os.environ, "X": "y"}, capture_output=True, text=True, check=False
    )
    assert (ran.stdout.strip(), ran.returncode) == ("['a b', ''] y", 7)
