"""A process that has imported what servers import, and becomes one in a moment: the template of all that a test starts.

Importing takes a server longer than everything else that it does in most tests. `python -m tests.harness.template FD`
imports once and then forks for each requested start: the child sets the arguments, the environment and the log and runs
the named module as `python -m` would. Nothing of a server's state is made before the fork.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from types import ModuleType
from typing import Any

PRELOADED = ("nyala.replica.server.__main__", "nyala.replica.master.__main__", "tests.harness.told")
"""Modules that are preloaded; their main modules are run anew, by their names."""
LATER = "polars"
"""A module that starts threads when it is imported and does not survive a fork: each child imports it."""
MESSAGE_BYTES_MAX = 1 << 18


def _import_all() -> ModuleType:
    """Import everything; returns the module that stands for `LATER` in the importing modules."""
    sys.modules[LATER] = stand_in = ModuleType(LATER)
    for module in PRELOADED:
        importlib.import_module(module)
        if module.endswith(".__main__"):
            del sys.modules[module]
    return stand_in


def _become(start: dict[str, Any], stand_in: ModuleType) -> None:
    """Run the requested module for the rest of this process."""
    os.environ.clear()
    os.environ.update(start["environment"])
    nothing, log = os.open(os.devnull, os.O_RDONLY), os.open(start["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(nothing)
    os.close(log)
    del sys.modules[LATER]
    stand_in.__dict__.update(importlib.import_module(LATER).__dict__)
    sys.argv = [start["module"], *start["arguments"]]
    runpy.run_module(start["module"], run_name="__main__", alter_sys=True)


class Template:
    """Starts children, signals and reaps them. Until a child's end is reported, no other process gets its number."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._ends, self._child_ended = socket.socketpair()
        for end in (self._ends, self._child_ended):
            end.setblocking(False)
        self._children: set[int] = set()

    def serve(self) -> dict[str, Any] | None:
        """Serve requests; returns, in a child, what it is to become; None at the end of the link, when no child is
        left."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._child_ended.fileno())
        while True:
            ready, _, _ = select.select([self._link, self._ends], [], [])
            if self._ends in ready:
                self._ends.recv(4096)
                self._reap()
            if self._link in ready:
                said = self._link.recv(MESSAGE_BYTES_MAX)
                if not said:
                    self._end_all()
                    return None
                request = json.loads(said)
                if "module" not in request:
                    self._signal(request["pid"], request["signal"])
                elif not self._fork():
                    return dict(request)

    def _fork(self) -> bool:
        """Fork; returns whether this is still the template."""
        pid = os.fork()
        if pid:
            self._children.add(pid)
            self._tell({"pid": pid, "started": True})
            return True
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for one in (self._link, self._ends, self._child_ended):
            one.close()
        return False

    def _signal(self, pid: int, number: int) -> None:
        if pid in self._children:
            os.kill(pid, number)
        self._tell({"pid": pid, "started": False})

    def _reap(self) -> None:
        for pid in list(self._children):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self._children.remove(pid)
                self._tell({"pid": pid, "code": os.waitstatus_to_exitcode(status)})

    def _end_all(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _tell(self, message: dict[str, int]) -> None:
        self._link.send(json.dumps(message).encode())


def main() -> None:
    """Import, serve, and become in each child what was requested."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = socket.socket(fileno=int(sys.argv[1]))
    stand_in = _import_all()
    gc.collect()
    gc.freeze()  # otherwise each child's first collection copies every page
    start = Template(link).serve()
    if start is not None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _become(start, stand_in)


if __name__ == "__main__":
    main()
