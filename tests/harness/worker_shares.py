"""Chooses which tests run in one process, one after the other, if pytest has several processes."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from xdist.scheduler import LoadScopeScheduling

ROAD, TIDY = "tests/e2e", "tests/tidy"


def share_of(nodeid: str) -> str:
    """Return the share of a test. Tests of one share run in one process: those of a file; all with Kafka and Spark,
    because two of these at a time would be too much for two cores; and all that read the code, which is parsed once."""
    path = nodeid.partition("::")[0]
    folder = str(PurePosixPath(path).parent)
    return folder if folder in {ROAD, TIDY} else path


class Shares(LoadScopeScheduling):
    """Begins the share with the most tests first. xdist's own `loadgroup` writes marks into the ids of tests, which
    pytest 9.2 keeps elsewhere: it groups nothing then and does not report it."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)


def scheduler(config: Any, log: Any) -> Shares | None:
    """Return the scheduler for `--dist loadgroup`; None for any other."""
    return Shares(config, log) if config.getvalue("dist") == "loadgroup" else None
