"""One supervised child process: its command, its readiness, its restarts with bounded back-off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

RESTART_BACKOFF_S_MIN = 0.5
RESTART_BACKOFF_S_MAX = 10.0
RESTARTS_MAX = 12
"""The restarts without a minute of uninterrupted running after which a child stays FAILED."""
CALM_S = 60.0
STOP_WAIT_S = 15.0
_HEAD = "--- "
"""The beginning of the line in a child's log with the time of a start."""
_TELLING = ("nyala: ", "ERROR", "FATAL", "Error: ", "Exception: ")


class ChildState(StrEnum):
    """The states of a child."""

    STARTING = "STARTING"
    READY = "READY"
    BACKING_OFF = "BACKING_OFF"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


def backoff_s(restarts: int) -> float:
    """Seconds to wait before restart number `restarts` (1 is the first)."""
    return min(RESTART_BACKOFF_S_MAX, RESTART_BACKOFF_S_MIN * float(1 << max(0, restarts - 1)))


def text_of(error: OSError) -> str:
    """One line for an error of the system, with its file."""
    said = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {said}" if error.filename else said


def telling_line(lines: Sequence[str]) -> str:
    """The last line of a log that reports an error, otherwise the last line; empty lines do not count."""
    said = [line.strip() for line in lines if line.strip()]
    told = [line for line in said if any(sign in line for sign in _TELLING)]
    return (told or said or ["it said nothing"])[-1]


def end_process(process: subprocess.Popen[bytes] | None, wait_s: float) -> None:
    """SIGTERM, and SIGKILL after `wait_s`; returns when the process, if there is one, has ended. A paused one wakes."""
    if process is None or process.poll() is not None:
        return
    process.send_signal(signal.SIGCONT)
    process.terminate()
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _read(log_file: Path) -> list[str]:
    return log_file.read_text(errors="replace").splitlines() if log_file.exists() else []


@dataclass
class Child:
    """A process that is kept running. `command` is called for each start, so that a chosen port can be kept.

    Concurrency: only the supervisor's thread calls the methods that start, poll and stop.
    """

    name: str
    command: Callable[[Child, int], list[str]]
    """(child, file descriptor of the supervisor's pipe) -> argument list."""
    ready_file: Path
    log_file: Path
    env: dict[str, str] = field(default_factory=dict)
    state: ChildState = ChildState.STOPPED
    restarts: int = 0
    started_at: float = 0.0
    next_start_at: float = 0.0
    last_exit: int | None = None
    ready: dict[str, Any] = field(default_factory=dict)
    """The content of the child's ready file, kept over restarts: its address and uuid."""
    problem: str = ""
    """The reason why the last attempt to start or check it failed; empty if it did not."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self.process.pid if self.process and self.process.poll() is None else None

    @property
    def address(self) -> str:
        """The host:port that the child reported; empty before."""
        return str(self.ready.get("address", ""))

    def start(self, parent_fd: int) -> None:
        """Start the process. `parent_fd` is a pipe whose end of file shows the child that the supervisor is gone.

        After an OSError, for example because the disk with its log is full, nothing has changed.
        """
        self.ready_file.unlink(missing_ok=True)
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            log.write(f"{_HEAD}{time.strftime('%Y-%m-%d %H:%M:%S')} start {self.name}\n".encode())
            log.flush()
            self.process = subprocess.Popen(
                self.command(self, parent_fd),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.env},
                pass_fds=(parent_fd,),
                start_new_session=True,
            )
        self.state = ChildState.STARTING
        self.problem = ""
        self.started_at = time.monotonic()

    def poll(self, parent_fd: int) -> bool:
        """Check the process once: note readiness, death, or the end of a back-off. True if anything changed.

        If the system refuses something, such as room on the disk, that is noted and tried again after a back-off,
        without a limit, because it is not a fault of the child.
        """
        now = time.monotonic()
        try:
            changed = self._look(parent_fd, now)
        except OSError as error:
            self.next_start_at = now + backoff_s(max(1, self.restarts))
            before, self.problem = self.problem, text_of(error)
            return self.problem != before
        self.problem = "" if changed else self.problem
        return changed

    def _look(self, parent_fd: int, now: float) -> bool:
        if self.state is ChildState.BACKING_OFF:
            if now < self.next_start_at:
                return False
            self.start(parent_fd)
            return True
        if self.process is None or self.state in (ChildState.STOPPED, ChildState.FAILED):
            return False
        code = self.process.poll()
        if code is not None:
            self._died(code, now)
            return True
        if self.state is ChildState.STARTING and self.ready_file.exists():
            text = self.ready_file.read_text()
            if text.strip():
                self.ready = json.loads(text)
                self.state = ChildState.READY
                return True
        if self.restarts and now - self.started_at > CALM_S:
            self.restarts = 0
        return False

    def _died(self, code: int, now: float) -> None:
        self.last_exit = code
        self.restarts += 1
        if self.restarts > RESTARTS_MAX:
            self.state = ChildState.FAILED
            return
        self.state = ChildState.BACKING_OFF
        self.next_start_at = now + backoff_s(self.restarts)

    def send_signal(self, number: int) -> None:
        """Signal the process if it runs; the supervisor treats the result like any other death."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(number)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after STOP_WAIT_S; returns when the process is gone."""
        self.state = ChildState.STOPPED
        end_process(self.process, STOP_WAIT_S)

    def last_lines(self, count: int = 5) -> str:
        """The end of the log."""
        return "\n".join(_read(self.log_file)[-count:])

    def last_words(self) -> str:
        """The result of its last run, in one line."""
        lines = _read(self.log_file)
        began = max((n for n, line in enumerate(lines) if line.startswith(_HEAD)), default=-1)
        return telling_line(lines[began + 1 :])

    def row(self) -> dict[str, Any]:
        """The row of this child in `nyala status`."""
        return {
            "name": self.name,
            "state": str(self.state),
            "pid": self.pid,
            "address": self.address,
            "uuid": str(self.ready.get("uuid", "")),
            "restarts": self.restarts,
            "last_exit": self.last_exit,
            "problem": self.problem,
            "log": str(self.log_file),
        }


def python_module(module: str, *arguments: str) -> list[str]:
    """Command line that runs one of our modules with this interpreter."""
    return [sys.executable, "-m", module, *arguments]
