"""A killed job is started again; a job that ends by itself, or on request, stays ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nyala.infra.local.restarts import judge_end, killed_by, restart_options, shell_status
from nyala.pipeline import FailureStreak

pytestmark = pytest.mark.process

PATIENCE_S = 240.0

KEEPER = """
import os, signal, sys
from nyala.infra.local.restarts import ASKED, run_with_restarts
from nyala.pipeline import RestartOptions

# Whoever runs the tests may have them ignored, and what is ignored is inherited.
for number in ASKED:
    signal.signal(number, signal.SIG_DFL)

restarts, pause, stop_wait = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
options = RestartOptions(restarts_max=restarts, backoff_s_min=pause, backoff_s_max=pause, calm_s=3600.0)

def tell(text):
    print(text, file=sys.stderr, flush=True)

sys.exit(run_with_restarts("probe", sys.argv[4:], {**os.environ, "PROBE": "x"}, options, tell, stop_wait_s=stop_wait))
"""
"""Restarts, pause before each, limit of an orderly end, command."""

JOB = """
import os, pathlib, signal, subprocess, sys, time

assert os.environ["PROBE"] == "x"
runs = pathlib.Path(sys.argv[1])
with runs.open("a") as file:
    file.write("run\\n")
what = sys.argv[1 + len(runs.read_text().splitlines())]

def end(*_):
    os.write(1, b"ended in order\\n")
    sys.exit(5)

PATIENT_HALF = '''
import os, signal, time
leader = os.getppid()

def end(*_):
    while os.getppid() == leader:
        time.sleep(0.01)
    time.sleep(0.5)  # the time in which a keeper that does not wait would kill it
    os.write(1, b"half ended in order\\\\n")
    os._exit(0)

signal.signal(signal.SIGTERM, end)
os.write(1, b"begun\\\\n")
while True:
    time.sleep(1)
'''

def half(beginning):
    # Another process of the job, which holds its output too, and would not end for long.
    code = beginning + "; import time; time.sleep(1800)"
    subprocess.Popen([sys.executable, "-c", code], stdout=sys.stderr)

if what == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if what == "halved":
    half("pass")
    os.kill(os.getpid(), signal.SIGKILL)
if what == "inner":
    sys.exit(128 + signal.SIGKILL)
if what == "waits":
    signal.signal(signal.SIGTERM, end)
if what == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    half("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)")
if what == "pair":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    subprocess.Popen([sys.executable, "-c", PATIENT_HALF])
if what in ("waits", "deaf"):
    os.write(1, b"begun\\n")
if what in ("waits", "deaf", "pair"):
    while True:
        time.sleep(1)
sys.exit(int(what))
"""
"""A file with a line for each run, and what each run does."""


@contextmanager
def keeper(
    folder: Path, does: Sequence[str], *, restarts: int = 5, pause_s: float = 0.01, stop_wait_s: float = 1000.0
) -> Iterator[subprocess.Popen[str]]:
    """A process that keeps JOB running; both its pipes stay open until nobody of the job is left."""
    given = [sys.executable, "-c", KEEPER, str(restarts), str(pause_s), str(stop_wait_s)]
    with subprocess.Popen(
        [*given, sys.executable, "-c", JOB, str(folder / "runs"), *does],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            # The job follows.
            process.kill()


def runs_of(folder: Path) -> int:
    """How often the job was started."""
    return len((folder / "runs").read_text().splitlines())


ENDS = [
    (0, 0, False, "ended orderly"),
    (1, 0, False, "refused, or gave up"),
    (2, 0, False, "a usage error"),
    (126, 0, False, "spark-submit cannot be run"),
    (127, 0, False, "no java"),
    (128, 0, False, "no signal"),
    (255, 0, False, "sys.exit(-1)"),
    (-9, 9, True, "kill -9 of the JVM, or no memory"),
    (137, 9, True, "kill -9 of the interpreter, as its JVM tells it"),
    (-6, 6, True, "a fatal error of the JVM"),
    (134, 6, True, "abort of the interpreter"),
    (-11, 11, True, "a fault in native code"),
    (139, 11, True, "the same in the interpreter"),
    (-15, 15, False, "kill, before the job began"),
    (143, 15, False, "kill, as a JVM tells it"),
    (130, 2, False, "Ctrl-C"),
    (-1, 1, False, "the terminal is gone"),
]


@pytest.mark.parametrize(("status", "number", "again", "what"), ENDS, ids=[str(status) for status, *_ in ENDS])
def test_end_of_a_job_is_a_death_or_its_own(status: int, number: int, again: bool, what: str) -> None:
    """Goal: a killed job is restarted, and one that ended by itself is not. Method: each exit status there is, the
    first time."""
    assert killed_by(status) == number, what
    verdict = judge_end(status, None, 10.0, 20.0, restart_options(1))
    assert (verdict.again, verdict.streak) == (again, FailureStreak(10.0, 1) if again else None), what


def test_deaths_in_a_row_are_counted_and_a_good_run_ends_the_count() -> None:
    """Goal: `--restarts 3` allows three restarts in a row, with growing pauses. Method: four deaths with half a calm
    between them; then a run that was long enough before the fourth."""
    options = restart_options(3)
    calm = options.calm_s
    streak, clock, pauses = None, 0.0, []
    for _ in range(3):
        verdict = judge_end(-9, streak, clock, clock + calm / 2, options)
        assert verdict.again and verdict.streak is not None
        streak, clock = verdict.streak, clock + calm
        pauses.append(options.pause_s(streak.start))
    assert pauses == sorted(set(pauses)) and pauses[-1] <= options.backoff_s_max
    assert not judge_end(-9, streak, clock, clock + calm / 2, options).again
    rested = judge_end(-9, streak, clock, clock + calm + 1, options)
    assert rested.again and rested.streak == FailureStreak(clock + calm + 1, 1)


def test_status_of_a_killed_job_is_told_as_shells_do() -> None:
    """Goal: a status that fits into eight bits. Method: a death and two statuses."""
    assert [shell_status(status) for status in (-9, 0, 7)] == [137, 0, 7]


def test_killed_job_is_started_again_until_it_ends_by_itself(tmp_path: Path) -> None:
    """Goal: kill -9 of either half costs a line and a restart; the last status is the job's. Method: a job that is
    killed, whose inner half is killed, that leaves half of itself behind, and that ends with 1. Nobody may be left:
    the error pipe, which the half holds, must close."""
    with keeper(tmp_path, ["killed", "inner", "halved", "1"]) as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, runs_of(tmp_path)) == (1, 4)
    told = [line for line in said.splitlines() if "probe was killed by SIGKILL" in line]
    assert [line.partition("; ")[2] for line in told] == [f"start {n} of 5 in 0.01 s" for n in (1, 2, 3)]


@pytest.mark.parametrize("status", [0, 1, 2])
def test_end_of_its_own_is_not_tried_again(status: int, tmp_path: Path) -> None:
    """Goal: a job that ends by itself is not restarted, and its status is passed on. Method: a job that ends with
    it."""
    with keeper(tmp_path, [str(status), "0"]) as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, runs_of(tmp_path)) == (status, 1)
    assert "probe" not in said


def test_job_that_is_always_killed_is_given_up(tmp_path: Path) -> None:
    """Goal: restarts are limited, and the last one is reported. Method: two restarts for a job that is killed at each
    start."""
    with keeper(tmp_path, ["killed"] * 4, restarts=2) as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, runs_of(tmp_path)) == (137, 3)
    assert "given up after 2 restarts" in said.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_asked_to_end_the_job_ends_in_order(number: signal.Signals, tmp_path: Path) -> None:
    """Goal: what ends the command ends the job in order, once, and is waited for. Method: a job that says so when
    SIGTERM has come; the signal goes to its keeper alone."""
    with keeper(tmp_path, ["waits", "0"]) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(number)
        out, said = process.communicate(timeout=PATIENCE_S)
    assert (out, process.returncode, runs_of(tmp_path)) == ("ended in order\n", 5, 1)
    assert "probe" not in said


def test_half_of_a_job_that_ends_later_is_waited_for(tmp_path: Path) -> None:
    """Goal: an interpreter gives back what it holds though its JVM is gone. Method: a half that ends in order only when
    the process that Popen knows is gone."""
    with keeper(tmp_path, ["pair"]) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert (out, process.returncode, runs_of(tmp_path)) == ("half ended in order\n", 0, 1)


def test_job_that_does_not_end_is_killed_with_all_it_started(tmp_path: Path) -> None:
    """Goal: an end that was asked for comes. Method: a job of two processes, both deaf to SIGTERM; the pipes close only
    when both are gone."""
    with keeper(tmp_path, ["deaf", "0"], stop_wait_s=0.2) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, runs_of(tmp_path)) == (137, 1)


def test_asked_to_end_before_the_next_start_there_is_none(tmp_path: Path) -> None:
    """Goal: the pause before a restart can be ended. Method: a pause of an hour; SIGTERM as soon as it is told."""
    with keeper(tmp_path, ["killed", "0"], pause_s=3600.0) as process:
        assert process.stderr is not None
        assert any("start 1 of 5 in 3600 s" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, runs_of(tmp_path)) == (143, 1)


def test_job_ends_with_its_killed_supervisor(tmp_path: Path) -> None:
    """Goal: no orphan. Method: kill -9 of the keeper; the pipes, which the job holds, must close."""
    with keeper(tmp_path, ["waits", "0"]) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.kill()
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert (out, process.returncode, runs_of(tmp_path)) == ("", -signal.SIGKILL, 1)
