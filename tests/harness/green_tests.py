"""A record of the tests that passed on the sources as they are, so that the mutants' runs need not repeat them."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / ".cache" / "green-tests.json"


class Green(NamedTuple):
    """What is known of the tests of one state of the sources."""

    digest: str = ""
    """Of the sources; empty if nobody knows them, as without git."""
    took_s: Mapping[str, float] = {}
    """The time that each passed test took, with its set-up and its end, by the test's id."""
    left_out: frozenset[str] = frozenset()
    """Tests that no run has chosen yet."""
    failed: frozenset[str] = frozenset()
    """Tests that failed once, even if they passed in another run."""

    def with_run(
        self, digest: str, took_s: Mapping[str, float], left_out: Iterable[str], failed: Iterable[str]
    ) -> Green:
        """Return what is known after one more run, of the same sources or of others."""
        before = self if digest == self.digest else Green(digest)
        passed = {**before.took_s, **took_s}
        return Green(
            digest, passed, (before.left_out | frozenset(left_out)) - passed.keys(), before.failed | frozenset(failed)
        )

    def has(self, test: str, within_s: float) -> bool:
        """Whether each case of a test, or each test of a file, passed within this time."""
        begins = (f"{test}[", f"{test}::")

        def means(nodeid: str) -> bool:
            return nodeid == test or nodeid.startswith(begins)

        times = [took_s for nodeid, took_s in self.took_s.items() if means(nodeid)]
        return bool(times) and max(times) < within_s and not any(map(means, self.left_out | self.failed))


def digest_of_sources(root: Path = ROOT) -> str:
    """Return a digest of all files that git tracks or would track, with their names; empty without git."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        names = subprocess.run(listed, cwd=root, capture_output=True, check=True, timeout=60).stdout.split(b"\0")
    except (OSError, subprocess.SubprocessError):
        return ""
    digest = hashlib.sha256()
    for name in sorted(set(names) - {b""}):
        path = root / name.decode()
        data = path.read_bytes() if path.is_file() else b""
        digest.update(b"%d %b %d " % (len(name), name, len(data)) + data)
    return digest.hexdigest()


def known_green(record: Path = RECORD, root: Path = ROOT) -> Green:
    """Return what is known of the tests of the present sources: nothing, if the record is of others."""
    found = _read(record)
    return found if found.digest and found.digest == digest_of_sources(root) else Green()


def _read(record: Path) -> Green:
    try:
        said = json.loads(record.read_text())
        return Green(said["digest"], said["took_s"], frozenset(said["left_out"]), frozenset(said["failed"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Green()


class GreenTests:
    """A plugin of pytest that keeps the record of runs in several processes, as those of the Makefile are.

    Nothing is kept if the sources changed during the run.
    """

    def __init__(self, config: pytest.Config, record: Path = RECORD) -> None:
        self._record = record
        self._workeroutput: dict[str, object] | None = getattr(config, "workeroutput", None)
        self._digest = "" if self._workeroutput is not None else digest_of_sources()
        self._left_out: set[str] = set()
        self._took_s: dict[str, float] = {}
        self._bad: set[str] = set()

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Note tests that this run does not choose."""
        self._left_out.update(item.nodeid for item in items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the time and the end of a test's set-up, call or end."""
        self._took_s[report.nodeid] = self._took_s.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self._bad.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take over what a process did not choose; all of them have collected the same."""
        self._left_out.update(getattr(node, "workeroutput", {}).get("left_out", ()))

    def pytest_sessionfinish(self) -> None:
        """Keep the record, or give this process's part to the one that keeps it."""
        if self._workeroutput is not None:
            self._workeroutput["left_out"] = sorted(self._left_out)
        elif self._digest and self._digest == digest_of_sources():
            passed = {nodeid: round(took, 3) for nodeid, took in self._took_s.items() if nodeid not in self._bad}
            found = _read(self._record).with_run(self._digest, passed, self._left_out, self._bad)
            self._record.parent.mkdir(parents=True, exist_ok=True)
            sets = {"left_out": sorted(found.left_out), "failed": sorted(found.failed)}
            self._record.write_text(json.dumps({"digest": found.digest, "took_s": found.took_s, **sets}))
