"""Open files and memory maps of this process: how many there are, how many there may be, and when to say so."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Callable
from pathlib import Path

from nyala.replica.types import MEMORY_MAPS, OPEN_FILES, ResourceUse

_log = logging.getLogger("nyala.server")

QUIET_BELOW = 0.7
"""Below this share it may warn again."""
LOOK_EVERY_S = 30.0
_MAPS = Path("/proc/self/maps")
_FILES = Path("/proc/self/fd")
_MAP_LIMIT = Path("/proc/sys/vm/max_map_count")


def open_files() -> ResourceUse:
    """Of this process; the limit is the soft one in force."""
    try:
        used = len(os.listdir(_FILES))
    except OSError:
        used = 0
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return ResourceUse(used, 0 if limit == resource.RLIM_INFINITY else limit)


def memory_maps() -> ResourceUse:
    """Of this process. The kernel is asked for each of them: a few milliseconds for thousands."""
    try:
        with _MAPS.open("rb") as lines:
            return ResourceUse(sum(1 for _ in lines), int(_MAP_LIMIT.read_text()))
    except (OSError, ValueError):
        return ResourceUse()


def to_tell(name: str, use: ResourceUse, told: bool) -> tuple[str, bool]:
    """(what to warn of, "" if nothing; whether it is told now). Once, until the use falls well below."""
    if (text := use.near_limit(name)) and not told:
        return text, True
    return "", told and use.share >= QUIET_BELOW


class ResourceWatch:
    """What was seen last, and a warning in the log before anything runs out.

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
        """Count again, and warn if it is time to."""
        found = {name: ask() for name, ask in self._ask.items()}
        self.files, self.maps = found[OPEN_FILES], found[MEMORY_MAPS]
        for name, use in found.items():
            text, self._told[name] = to_tell(name, use, self._told[name])
            if text:
                _log.warning("P %s %s", self._uuid, text)
