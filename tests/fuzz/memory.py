"""Measures how much memory this process used at its highest, since the measurement began."""

from __future__ import annotations

import gc
from pathlib import Path

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def _status_bytes(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) << 10
    raise KeyError(field)


class HighWater:
    """The highest resident size above what was resident at the beginning. Linux."""

    def __init__(self) -> None:
        gc.freeze()  # what is there stays, and a check of all of it takes up to a second
        self.begin()

    def begin(self) -> None:
        """Begin to count."""
        gc.collect()
        _CLEAR.write_text("5")
        self._before = _status_bytes("VmRSS")

    def taken_bytes(self) -> int:
        """Return how much more than at the beginning was resident at some time."""
        return max(0, _status_bytes("VmHWM") - self._before)
