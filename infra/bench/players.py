"""The process that plays tablet servers, as a benchmark starts, commands and hears it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from nyala.infra.local.children import python_module
from nyala.replica.types import Address

from .options import BenchmarkError
from .played_servers import HOST

PROBE_S = 0.05
_Facts = dict[str, Any]


class Players:
    """The process that plays the servers."""

    def __init__(self, servers: int, tablets: int = 0, replicas: int = 1, beat_ms: int = 1000) -> None:
        command = python_module(
            "nyala.infra.bench.played_servers", "--servers", str(servers), "--tablets", str(tablets),
            "--replicas", str(replicas), "--beat-ms", str(beat_ms),
        )  # fmt: skip
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addresses = [Address(HOST, port) for port in self.hear("ports")]

    def __enter__(self) -> Players:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(BrokenPipeError), self._process:
            self._process.kill()

    @contextmanager
    def beside(self, master: subprocess.Popen[bytes]) -> Iterator[None]:
        """End this process too if the master ends in the context: it would wait for the master for ever."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(PROBE_S):
                if master.poll() is not None:
                    self._process.kill()
                    return

        watcher = threading.Thread(target=watch, name="bench-watch", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()

    def tell(self, **command: object) -> None:
        """Send one command."""
        if self._process.stdin:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()

    def hear(self, what: str) -> list[int]:
        """The next line that has `what`; its value."""
        found: list[int] = self.hear_all(what)[what]
        return found

    def hear_all(self, what: str) -> _Facts:
        """The next line that has `what`."""
        while line := self._process.stdout.readline() if self._process.stdout else "":
            facts: _Facts = json.loads(line)
            if what in facts:
                return facts
        raise BenchmarkError("the process that plays the servers has ended")
