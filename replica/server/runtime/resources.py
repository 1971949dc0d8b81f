"""Counts open files and memory maps of this process, and warns before they reach their limit."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Callable
from pathlib import Path

from nyala.replica.fs import memory_maps
from nyala.replica.types import MEMORY_MAPS, OPEN_FILES, ResourceUse

_log = logging.getLogger("nyala.server")

QUIET_BELOW = 0.7
"""When the use falls below this share of the limit, another warning may follow."""
LOOK_EVERY_S = 30.0
_FILES = Path("/proc/self/fd")


def open_files() -> ResourceUse:
    """Open files of this process, with the soft limit in force."""
    try:
        used = len(os.listdir(_FILES))
    except OSError:
        used = 0
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return ResourceUse(used, 0 if limit == resource.RLIM_INFINITY else limit)


def warning_due(name: str, use: ResourceUse, told: bool) -> tuple[str, bool]:
    """Return (the warning to log now, or ""; whether a warning was logged since the use was last below QUIET_BELOW)."""
    if (text := use.near_limit(name)) and not told:
        return text, True
    return "", told and use.share >= QUIET_BELOW


class ResourceWatch:
    """The latest counts; logs a warning before a limit is reached.

    Concurrency: `look` from one thread at a time; the numbers may be read from any.
    """

    def __init__(
        self, uuid: str, files: Callable[[], ResourceUse] = open_files, maps: Callable[[], ResourceUse] = memory_maps
    ) -> None:
        self._uuid = uuid
        self._ask = {OPEN_FILES: files, MEMORY_MAPS: maps}
        self._told = dict.fromkeys(self._ask, False)
        self.files = self.maps = ResourceUse()

    def look(self) -> None:
        """Count again, and log a warning if needed."""
        found = {name: ask() for name, ask in self._ask.items()}
        self.files, self.maps = found[OPEN_FILES], found[MEMORY_MAPS]
        for name, use in found.items():
            text, self._told[name] = warning_due(name, use, self._told[name])
            if text:
                _log.warning("P %s %s", self._uuid, text)
