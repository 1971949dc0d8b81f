"""Computes how many of its open files and memory maps a process uses, and the warning before they run out. Pure."""

from __future__ import annotations

from typing import NamedTuple

NEAR_FROM = 0.8
"""From this share of a limit on, a process is near it: a fifth is left, and blocks and logs use them up one by one."""
OPEN_FILES, MEMORY_MAPS = "open files", "memory maps"
REMEDIES = {
    OPEN_FILES: "raise the hard limit of open files (ulimit -Hn) or move tablets to other servers; at the limit no "
    "log and no block can be opened",
    MEMORY_MAPS: "raise vm.max_map_count or move tablets to other servers; at the limit no block can be opened",
}


class ResourceUse(NamedTuple):
    """How much of a limit is used. `limit`: 0 if it is unknown, or if there is none."""

    used: int = 0
    limit: int = 0

    @property
    def share(self) -> float:
        return self.used / self.limit if self.limit else 0.0

    def near_limit(self, name: str) -> str:
        """Return the warning, with what to do; "" while more than a fifth of the limit is left."""
        if self.share < NEAR_FROM:
            return ""
        return f"{self.used} of {self.limit} {name} are used ({self.share:.0%}): {REMEDIES[name]}"
