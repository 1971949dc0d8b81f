"""Ends a child with its parent on Linux, for programs that know nothing of our pipes (a JVM)."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> Callable[[], None] | None:
    """For Popen's preexec_fn; None off Linux, and off the main thread: the kernel counts the thread as the parent."""
    if not sys.platform.startswith("linux") or threading.current_thread() is not threading.main_thread():
        return None
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) and None
