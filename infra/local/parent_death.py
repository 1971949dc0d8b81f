"""Ends a child when its parent dies, on Linux, for programs that do not read our pipes (a JVM).

The child itself requests the signal from the kernel, between two execs. A function that Popen calls in the forked child
would run gRPC's fork handlers there, and the child of a process with open channels would sometimes die before it
begins.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def ended_with_parent(command: Sequence[str]) -> list[str]:
    """The command for Popen. Unchanged on other systems, and off the main thread, because the kernel regards the thread
    as the parent."""
    if not sys.platform.startswith("linux") or threading.current_thread() is not threading.main_thread():
        return list(command)
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid()), *command]


def _main(parent: int, command: Sequence[str]) -> None:
    """Become `command`, which is killed when `parent` ends; do nothing if the parent has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == parent:
        os.execvp(command[0], list(command))


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
