"""Named places at which a process can be made to end. Unsafe, off by default, read once from the environment."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

CRASH_EXIT_CODE = 85
"""Exit status of a process that died at an armed crash point."""
CRASH_VARIABLE = "NYALA_CRASH_POINT"


class CrashPoints:
    """At most one armed point, `name` or `name:countdown`; the countdown-th pass ends the process without clean-up.

    Concurrency: any thread.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        armed = (os.environ if environment is None else environment).get(CRASH_VARIABLE, "")
        self._name, _, countdown = armed.partition(":")
        if countdown and not countdown.isdigit():
            raise ValueError(f"{CRASH_VARIABLE}={armed!r} is not of the form name or name:countdown")
        self._passes_left = int(countdown or 1)
        self._lock = threading.Lock()

    def reach(self, name: str) -> None:
        """End the process here if `name` is armed and its countdown is over; otherwise do nothing."""
        if name != self._name or not name:
            return
        with self._lock:
            self._passes_left -= 1
            if self._passes_left == 0:
                os._exit(CRASH_EXIT_CODE)
