"""Computes how long each suite of tests took, from what pytest reports of each test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

SUITES = {
    "planted bugs": ("tests/sim/test_planted_bugs.py",),
    "oracles that must turn red": (
        "tests/sim/test_raft_canaries",
        "tests/sim/test_driver_can",
        "tests/sim/test_whole_can",
    ),
    "history checker": ("tests/model/test_history_checker.py", "tests/sim/test_history_sim.py"),
    "simulator": ("tests/sim/",),
    "scenario scripts": ("tests/raft_scripts/", "tests/paper/"),
    "every byte and every tear": (
        "tests/unit/wal/test_wal_sweep.py",
        "tests/unit/wal/test_wal_tears.py",
        "tests/unit/wal/test_wal_recovery.py",
        "tests/unit/tablet/test_tablet_sweep.py",
    ),
    "models": ("tests/model/",),
    "formats": ("tests/formats/",),
    "fuzzers": ("tests/fuzz/",),
    "load": ("tests/load/",),
    "tidiness": ("tests/tidy/", "tests/mutants/"),
    "units": ("tests/unit/",),
    "partitions": ("tests/process/test_partitions.py",),
    "processes": ("tests/process/",),
    "Kafka and Spark": ("tests/e2e/",),
}
"""Name and beginnings of the ids of its tests; a test belongs to the first suite that fits."""


def suite_of(nodeid: str) -> str:
    """Return the suite of a test; `others` if no suite fits."""
    return next((name for name, begins in SUITES.items() if nodeid.startswith(begins)), "others")


def suite_lines(durations: Iterable[tuple[str, float]]) -> list[str]:
    """Return a line for each suite, longest first. `durations`: test id and seconds of its set-up, of itself or of its
    end."""
    seconds: Counter[str] = Counter()
    tests: dict[str, set[str]] = {}
    for nodeid, took_s in durations:
        seconds[suite_of(nodeid)] += took_s
        tests.setdefault(suite_of(nodeid), set()).add(nodeid)
    return [f"{took_s:8.1f} s  {len(tests[name]):5d} tests  {name}" for name, took_s in seconds.most_common()]
