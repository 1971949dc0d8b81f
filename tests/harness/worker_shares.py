"""Chooses which tests run in one process, one after the other, if pytest has several, and which of the longest run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any
from zlib import crc32

import pytest
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


def part_of(nodeids: Sequence[str], number: int, parts: int) -> set[str]:
    """Return the tests of one of so many parts, each `parts`-th one of every file: those of as many numbers that follow
    each other hold all. CI runs one part of the longest tests a time, chosen by the number of commits."""
    chosen = set[str]()
    for path, tests in groupby(sorted(nodeids), key=lambda nodeid: nodeid.partition("::")[0]):
        chosen.update(list(tests)[(number + crc32(path.encode())) % parts :: parts])
    return chosen


def others_of_thirds(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the cases that are left to the deep tests: of a test with the mark `a_third` all but its first, its fourth
    and so on. The tables of a few tests would else take a fourth of the time of all."""
    found, seen = list[pytest.Item](), Counter[str]()
    for item in items:
        if item.get_closest_marker("a_third") is not None:
            test = item.nodeid.partition("[")[0]
            if seen[test] % 3:
                found.append(item)
            seen[test] += 1
    return found
