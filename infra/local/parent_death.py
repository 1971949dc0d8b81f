"""Ends a child with its parent on Linux, for programs that know nothing of our pipes (a JVM).

The child asks for it itself, between two execs: a function that Popen would call in the forked child would run the fork
handlers of gRPC there, and the child of a process with open channels then sometimes dies before it begins.
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
    """The command for Popen; unchanged off Linux and off the main thread: the kernel takes threads for parents."""
    if not sys.platform.startswith("linux") or threading.current_thread() is not threading.main_thread():
        return list(command)
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid()), *command]


def _main(parent: int, command: Sequence[str]) -> None:
    """Become `command`, to be killed when `parent` ends; nothing if it has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == parent:
        os.execvp(command[0], list(command))


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
