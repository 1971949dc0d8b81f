"""A Spark job as a child process: started by spark-submit, read line by line, killed as a whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nyala.pipeline import submit_command, submit_environment

from .parent_death import ended_with_parent

STOP_WAIT_S = 20.0
Event = dict[str, Any]


class JobProcess:
    """One run of a job with `--json`; `on_event` gets each object that it prints, on a separate thread.

    Concurrency: one thread starts, kills and waits.
    """

    def __init__(
        self,
        job: str,
        arguments: Sequence[str],
        log_file: Path,
        *,
        on_event: Callable[[Event], None] = lambda _: None,
        master: str = "local[2]",
    ) -> None:
        self.job = job
        self.log_file = log_file
        self._command = submit_command(job, [*arguments, "--json"], master=master)
        self._on_event = on_event
        self.process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.messages: list[str] = []

    def start(self) -> JobProcess:
        """Start the job and begin to read its output."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                ended_with_parent(self._command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=submit_environment(),
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name=f"read-{self.job}", daemon=True)
        self._reader.start()
        return self

    def kill(self) -> None:
        """kill -9 of driver, JVM and workers at once, like the death of a machine."""
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.wait()

    def stop(self, wait_s: float = STOP_WAIT_S) -> None:
        """SIGTERM to the whole job, SIGKILL after `wait_s`."""
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(wait_s)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
        self.wait()

    def wait(self, timeout_s: float | None = None) -> int:
        """The exit status, when the job has ended and all its output was read."""
        if self.process is None:
            return 0
        status = self.process.wait(timeout_s)
        if self._reader:
            self._reader.join(5)
        return status

    @property
    def running(self) -> bool:
        """Whether the job's process is alive."""
        return self.process is not None and self.process.poll() is None

    def _read(self) -> None:
        if self.process is None or self.process.stdout is None:
            return
        with self.process.stdout as lines, self.log_file.open("a") as log:
            for line in lines:
                log.write(line)
                log.flush()
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                if isinstance(event, dict):
                    if event.get("event") == "message":
                        self.messages.append(str(event.get("text", "")))
                    self._on_event(event)
