"""Ends children of a runner with it, even if it is killed and cannot signal them.

The stack's `parent_death` does it for programs that it starts. This module is for children that are forked or spawned:
it imports nothing of the product, which a mutant may be about to change.
"""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Ask the kernel to kill this process when the thread of `parent` that started it ends. SystemExit if `parent` is
    gone already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(f"the parent, process {parent}, ended before this child began")
