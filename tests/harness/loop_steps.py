"""Counts the cost of one step of an event loop in calls of functions: the same on every machine."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def counted_steps() -> Iterator[list[int]]:
    """Yield the calls of functions in each step of this thread's loop. The garbage collector does not run meanwhile: it
    calls functions of objects that other tests have left."""
    steps, run = [0], asyncio.Handle._run.__code__

    def count(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code is run:
            steps.append(0)
        elif event in ("call", "c_call"):
            steps[-1] += 1

    gc.disable()
    sys.setprofile(count)
    try:
        yield steps
    finally:
        sys.setprofile(None)
        gc.enable()
