"""Which tests run in one process, one after the other, when pytest has several."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from xdist.scheduler import LoadScopeScheduling

ROAD = "tests/e2e"


def share_of(nodeid: str) -> str:
    """Tests with the same answer share a process: those of a file; and all with Kafka and Spark, of which two at a time
    would be too much for two cores."""
    path = PurePosixPath(nodeid.partition("::")[0])
    return ROAD if path.parent == PurePosixPath(ROAD) else str(path)


class Shares(LoadScopeScheduling):
    """The share with the most tests is begun first. xdist's own `loadgroup` writes marks into the ids of tests, which
    pytest 9.2 keeps elsewhere: it groups nothing then and does not say so."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)


def scheduler(config: Any, log: Any) -> Shares | None:
    """For `--dist loadgroup`; None for any other."""
    return Shares(config, log) if config.getvalue("dist") == "loadgroup" else None
