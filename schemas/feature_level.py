"""The feature level: what a build can read, and what a cluster may write.

A change of a file, a log entry, a record of a topic or a message that the build before cannot read raises
`FEATURE_LEVEL` by one. A build reads everything up to its own level. It writes the forms of a level only once the
cluster's level, which an operator finalizes, is as high: until then every process can go back to the build before.
"""

from __future__ import annotations

FEATURE_LEVEL = 1
FIRST_VERSIONS = {1: "0.2.0"}
"""By level, the first version that knows it."""


def build_level() -> int:
    """Return the highest level that this build knows."""
    return FEATURE_LEVEL


def feature_of(level: int) -> str:
    """Return the incompatible feature of the directory of a process whose cluster is at the level, which is above 1."""
    return f"feature-level-{level}"


def level_features() -> tuple[str, ...]:
    """Return the features that directories may name and that this build can open."""
    return tuple(map(feature_of, range(2, FEATURE_LEVEL + 1)))
