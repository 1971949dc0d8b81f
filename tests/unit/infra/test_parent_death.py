"""Children that know nothing of us end with us."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from nyala.infra.local.parent_death import ended_with_parent
from tests.harness.patience import patience_s
from tests.mutants.mutant import ROOT

pytestmark = pytest.mark.process

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


RUNNERS = {
    "mutants": """
import os, signal, sys
from pathlib import Path
from tests.mutants.children import fork
said = os.dup(1)
def job():
    os.write(said, b"begun\\n")
    signal.pause()
os.waitpid(fork(0, Path(sys.argv[1]), 600, job).pid, 0)
""",
    "simulations": """
import itertools
from tests.sim.__main__ import outcomes
for outcome in outcomes((("core", seed) for seed in itertools.count()), 2):
    print("begun", flush=True)
""",
}
PATIENCE_S = patience_s(120.0)


@pytest.mark.parametrize("runner", RUNNERS)
def test_workers_of_a_runner_end_when_it_is_killed(runner: str, tmp_path: Path) -> None:
    """Goal: kill -9 of a run of mutants or of simulations leaves no worker behind, which would use a core for ever.
    Method: a runner is killed while its workers work; the kernel must tell the end of each."""
    command = [sys.executable, "-c", RUNNERS[runner], str(tmp_path)]
    with ExitStack() as ended, subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as parent:
        ended.callback(parent.kill)
        assert parent.stdout and parent.stdout.readline() == b"begun\n"
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        workers = {os.pidfd_open(int(pid)): pid for pid in children}
        for worker in workers:
            ended.callback(os.close, worker)
            ended.callback(_kill, worker)
        parent.kill()
        with selectors.DefaultSelector() as alive:
            for worker in workers:
                alive.register(worker, selectors.EVENT_READ)
            deadline_s = time.monotonic() + PATIENCE_S
            while alive.get_map() and (over := alive.select(deadline_s - time.monotonic())):
                for key, _ in over:
                    alive.unregister(key.fd)
            assert workers and [workers[key.fd] for key in alive.get_map().values()] == []


def _kill(worker: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(worker, signal.SIGKILL)


def test_command_runs_as_it_was_given() -> None:
    """Goal: arguments, environment and exit status pass through. Method: a child that prints them."""
    command = [sys.executable, "-c", "import os, sys; print(sys.argv[1:], os.environ['X']); sys.exit(7)", "a b", ""]
    ran = subprocess.run(
        ended_with_parent(command), env={**os.environ, "X": "y"}, capture_output=True, text=True, check=False
    )
    assert (ran.stdout.strip(), ran.returncode) == ("['a b', ''] y", 7)
