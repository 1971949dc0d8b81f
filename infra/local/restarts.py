"""A streaming job in the foreground that is started again when it was killed: `nyala job NAME --restarts N`.

Only a death by a signal causes a restart. The job itself waits for temporary outages. If it ends by itself, because of
a refusal or a time-out, a person must act; the same holds if it was asked to end.
"""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from nyala.pipeline import FailureStreak, RestartOptions, streak_after

from .parent_death import ended_with_parent

STOP_WAIT_S = 60.0
"""The time from the request to end until the job is killed: more than its interpreter and its JVM together need."""
POLL_S = 0.1
ASKED = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
"""The signals that ask for an end."""
SIGNALS = frozenset(signal.Signals)


def killed_by(status: int) -> int:
    """The signal that ended a job; 0 if it ended by itself. spark-submit reports its interpreter's as 128 + signal."""
    number = -status if status < 0 else status - 128
    return number if number in SIGNALS else 0


def shell_status(status: int) -> int:
    """The same as an exit status of a shell."""
    return 128 - status if status < 0 else status


@dataclass(frozen=True)
class Verdict:
    """Whether a job that ended is started again, and its streak of failures; None: its exit status is final."""

    again: bool
    streak: FailureStreak | None = None


def judge_end(
    status: int, before: FailureStreak | None, began_s: float, ended_s: float, options: RestartOptions
) -> Verdict:
    """The verdict on a run from `began_s` to `ended_s`, given the streak before it. Pure."""
    if (number := killed_by(status)) == 0 or number in ASKED:
        return Verdict(again=False)
    streak = streak_after(before, began_s, ended_s, made_progress=False, options=options)
    return Verdict(not streak.given_up(ended_s, options), streak)


def restart_options(restarts_max: int) -> RestartOptions:
    """The options for that many restarts in a row, without a limit of time; a run of `calm_s` ends the streak."""
    return RestartOptions(restarts_max=restarts_max, patience_s=math.inf)


def run_with_restarts(
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    options: RestartOptions,
    tell: Callable[[str], None],
    *,
    stop_wait_s: float = STOP_WAIT_S,
) -> int:
    """Run `command` until it ends by itself or is killed too often; returns its exit status. Main thread only.

    A signal of ASKED ends it in order, and by force after `stop_wait_s`. The death of this process ends it too.
    """
    streak: FailureStreak | None = None
    with _asked_to_end() as asked:
        while True:
            began = time.monotonic()
            status = _run(command, environment, asked, stop_wait_s)
            ended = time.monotonic()
            verdict = judge_end(status, streak, began, ended, options)
            if asked.by or verdict.streak is None:
                return shell_status(status)
            streak = verdict.streak
            died = f"{name} was killed by {signal.Signals(killed_by(status)).name} after {ended - began:.0f} s"
            if not verdict.again:
                tell(
                    f"{died}; given up after {options.restarts_max} restarts, none of which ran for "
                    f"{options.calm_s:g} s: start it again when the cause is gone, it goes on where it was"
                )
                return shell_status(status)
            pause = options.pause_s(streak.start)
            tell(f"{died}; start {streak.start} of {options.restarts_max} in {pause:g} s")
            if asked.wait(pause):
                return 128 + asked.by


class _Asked:
    """Whether an end was requested, and `by` which signal first; 0: not yet."""

    def __init__(self, awake: int) -> None:
        self.by = 0
        self._awake = awake

    def wait(self, seconds: float) -> bool:
        """Return when an end is requested, or after that time."""
        return bool(select.select([self._awake], [], [], seconds)[0])


@contextmanager
def _asked_to_end() -> Iterator[_Asked]:
    awake, wake = os.pipe()
    asked = _Asked(awake)

    def ask(number: int, _frame: FrameType | None) -> None:
        if not asked.by:
            asked.by = number
            os.write(wake, b"x")

    # A signal that a shell or nohup made this process ignore stays ignored.
    heard = [number for number in sorted(ASKED) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, ask) for number in heard}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(awake)
        os.close(wake)


def _run(command: Sequence[str], environment: Mapping[str, str], asked: _Asked, stop_wait_s: float) -> int:
    """Run it once, in its own process group, of which no process is left at the end; returns its status as Popen
    does."""
    process = subprocess.Popen(
        ended_with_parent(command), stdin=subprocess.DEVNULL, env=dict(environment), start_new_session=True
    )
    group = process.pid
    try:
        while process.poll() is None and not asked.wait(POLL_S):
            pass
        if asked.by:
            # To interpreter and JVM, as a terminal would: the interpreter releases its leases.
            _signal(group, signal.SIGCONT)
            _signal(group, signal.SIGTERM)
            deadline = time.monotonic() + stop_wait_s
            while (process.poll() is None or _lives(group)) and time.monotonic() < deadline:
                time.sleep(POLL_S)
    finally:
        # The remaining half of a killed job must not run beside the next one.
        _signal(group, signal.SIGKILL)
    return process.wait()


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _lives(group: int) -> bool:
    """Whether a process of the group runs. One that has ended and was not reaped, as in containers, does not count."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    stats = list(Path("/proc").glob("[0-9]*/stat"))
    return not stats or any(_runs_in(group, stat) for stat in stats)


def _runs_in(group: int, stat: Path) -> bool:
    try:
        # The name, in parentheses, may contain any characters.
        state, _parent, its_group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
    except (OSError, ValueError):
        return False
    return int(its_group) == group and state not in "ZX"
