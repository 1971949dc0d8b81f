"""Processes forked from the template of this test run: the part of `subprocess.Popen` that tests use, for servers."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.harness.template import MESSAGE_BYTES_MAX

_TOO_LATE = ("PYTHON", "LD_", "MALLOC_")
"""Variables that affect an interpreter when it starts, and would be ignored by a forked one."""


class ForkedProcess:
    """One child of the template. Concurrency: any thread."""

    def __init__(self, link: TemplateLink, pid: int) -> None:
        self._template = link
        self._ended = threading.Event()
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal's number; None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; subprocess.TimeoutExpired."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing happens if it has ended."""
        self._template.signal(self, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def end(self, code: int) -> None:
        """Note that it was reaped; called by the link."""
        self.returncode = code
        self._ended.set()


class TemplateLink:
    """A template, and the test's end of the link to it. Concurrency: any thread."""

    def __init__(self) -> None:
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.harness.template", str(theirs.fileno())]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        theirs.close()
        self._lock = threading.Lock()
        self._answers: SimpleQueue[ForkedProcess | None] = SimpleQueue()
        """For each request the process that it started or signalled; None when the template is gone."""
        self._listener = threading.Thread(target=self._listen, name="template", daemon=True)
        self._listener.start()

    def start(self, request: Mapping[str, Any]) -> ForkedProcess:
        with self._lock:
            return self._ask(request)

    def signal(self, process: ForkedProcess, number: int) -> None:
        with self._lock:
            self._ask({"pid": process.pid, "signal": number})

    def close(self) -> None:
        """End the template, which ends the processes that still run."""
        self._link.shutdown(socket.SHUT_WR)
        self._process.wait()
        self._listener.join()
        self._link.close()

    def _ask(self, request: Mapping[str, Any]) -> ForkedProcess:
        self._link.send(json.dumps(request).encode())
        process = self._answers.get()
        assert process is not None, f"the template of servers ended with {self._process.wait()}"
        return process

    def _listen(self) -> None:
        processes: dict[int, ForkedProcess] = {}
        while said := self._hear():
            message = json.loads(said)
            pid = message["pid"]
            if "code" in message:
                processes[pid].end(message["code"])
                continue
            if message["started"]:
                processes[pid] = ForkedProcess(self, pid)
            self._answers.put(processes[pid])
        self._answers.put(None)

    def _hear(self) -> bytes:
        try:
            return self._link.recv(MESSAGE_BYTES_MAX)
        except ConnectionError:
            return b""


@cache
def _link() -> TemplateLink:
    link = TemplateLink()
    atexit.register(link.close)
    return link


def forkable(environment: Mapping[str, str]) -> bool:
    """Return whether all that an interpreter reads of its environment when it starts is what this process has."""
    changed = {name for name in {*environment, *os.environ} if environment.get(name) != os.environ.get(name)}
    return not any(name.startswith(_TOO_LATE) for name in changed)


def fork(module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> ForkedProcess:
    """Run `module` as `python -m` does, with its output appended to `log`. The environment is the whole of it."""
    assert forkable(environment), "what an interpreter reads when it starts comes too late for a fork"
    request = {"module": module, "arguments": [*arguments], "environment": dict(environment), "log": str(log)}
    return _link().start(request)
