"""One pytest that collects the tests once and runs them in forked children: each test file to see what its tests take
and run, then the tests of a mutant under it."""

from __future__ import annotations

import gc
import math
import os
import pickle
import resource
import shutil
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.mutants.children import Child, ends, fork
from tests.mutants.mutant import ROOT

CPU_S = 2.0
CPU_TIMES = 5.0
"""Processor time that a test may have under a mutant: so much, for what is made for others of its file too, and so many
times what it took without the mutant. A slow machine does not spend it; a loop without an end does."""
WAIT_S = 60.0
WAIT_TIMES = 10.0
"""The same for real time, for what waits for ever; of all tests of a mutant together, too."""
ALONE_S = 3600.0
"""Both limits of what runs without a mutant."""
MEMORY_BYTES, STACK_BYTES = 4 << 30, 2 << 20
"""What a child may have in all, and for the stack of each thread: a test of two servers has some 300 threads, and the
kernel counts all of a stack from its start on."""


QUIETLY = ("-qq", "--no-header", "-s", "--assert=plain", "-p", "no:cacheprovider")
"""Options of the pytest that collects the tests: in a child nothing is captured, explained or kept."""
Unit = tuple[str, tuple[str, int]]
"""An outermost function: its file, and its qualified name with its first line."""


class Broken(Protocol):
    """A mutant that is put in place of functions which exist already."""

    def codes(self, path_of: Callable[[str], str]) -> Mapping[Unit, CodeType]:
        """The new code of each function that it changes. `path_of`: where a file was imported from."""


@dataclass(frozen=True)
class Seen:
    """What one test took, why it is red (empty if it is not), and the lines of the mutated files that it ran."""

    took_s: float
    red: str
    lines: Mapping[str, frozenset[int]]


@dataclass(frozen=True)
class Verdict:
    """`by`: the test that noticed; empty if none did. `said`: its report. `over`: neither, for it ran into a limit, or
    the mutant could not be put in place."""

    by: str
    said: str
    over: bool
    took_s: float


class Forks:
    """Runs of the session's items in children.

    Concurrency: the session has one thread, else a child might wait for a lock that nobody holds any more.
    """

    def __init__(self, session: pytest.Session, folder: Path, files: Iterable[str], workers: int) -> None:
        self.items = {item.nodeid: item for item in session.items}
        self._folder = folder
        self._workers = workers
        self._files = {str((ROOT / file).resolve()): file for file in files}
        self._paths: dict[str, str] = {}
        self._functions = self._defined()
        gc.collect()
        gc.freeze()  # so that a collection in a child does not write to every page

    def _file_of(self, path: str) -> str:
        """The mutated file behind the path of a code object, which is one through a link; empty if it is none."""
        found = self._paths.get(path)
        if found is None:
            found = self._paths[path] = self._files.get(os.path.realpath(path), "")
        return found

    def _defined(self) -> dict[Unit, list[FunctionType]]:
        found: dict[Unit, list[FunctionType]] = defaultdict(list)
        gc.unfreeze()  # `get_objects` leaves out what `tests/conftest.py` froze
        for each in gc.get_objects():
            if type(each) is FunctionType and (file := self._file_of(each.__code__.co_filename)):
                found[file, (each.__code__.co_qualname, each.__code__.co_firstlineno)].append(each)
        return found

    def _imported_from(self, file: str) -> str:
        return next(path for path, found in self._paths.items() if found == file)

    def seen(self, wait_s: float = ALONE_S, *, traced: bool = True) -> Iterator[tuple[str, Seen]]:
        """What each test took and, if `traced`, ran; those of one file in one child, for `wait_s` at most."""
        by_file: dict[str, list[str]] = defaultdict(list)
        for name in self.items:
            by_file[name.partition("::")[0]].append(name)
        shares = sorted(by_file.values(), key=len, reverse=True)

        def job(pos: int, folder: Path) -> int:
            tracer = _Tracer(self._file_of)
            found = {}
            for name in shares[pos]:
                begun_s = time.perf_counter()
                alone = {name: ALONE_S}
                red, _ = tracer.run(lambda alone=alone: self._red(alone)) if traced else self._red(alone)  # type: ignore[misc]
                lines = {file: frozenset(lines) for file, lines in tracer.lines.items()}
                found[name] = Seen(time.perf_counter() - begun_s, red, lines)
            (folder / "seen").write_bytes(pickle.dumps(found))
            return 0

        def ended(folder: Path) -> Mapping[str, Seen]:
            file = folder / "seen"
            found: Mapping[str, Seen] = pickle.loads(file.read_bytes()) if file.exists() else {}
            return found

        for pos, _, found, _ in self._run(len(shares), job, lambda _: wait_s, ended):
            yield from ({name: found.get(name, Seen(0.0, "its file did not end", {})) for name in shares[pos]}).items()

    def verdicts(
        self, mutants: Sequence[Broken], tests: Sequence[Mapping[str, float]]
    ) -> Iterator[tuple[int, Verdict]]:
        """Position of each mutant and what its tests said, in the order of their ends. `tests`: those of each mutant,
        with the seconds that each took without it."""

        def job(pos: int, folder: Path) -> int:
            for unit, code in mutants[pos].codes(self._imported_from).items():
                if not self._functions[unit]:
                    raise LookupError(f"nothing of {unit} is imported")
                for function in self._functions[unit]:
                    if function.__code__.co_freevars != code.co_freevars:
                        raise LookupError(f"{unit} uses other names of the function around it: {code.co_freevars}")
                    function.__code__ = code
            red, why = self._red(tests[pos])
            (folder / "seen").write_text(f"{red}\n{why}")
            return bool(red)

        def limit(pos: int) -> float:
            return WAIT_S + WAIT_TIMES * sum(tests[pos].values())

        def said(folder: Path) -> list[str]:
            file = folder / "seen"
            return (file.read_text() if file.exists() else "\n").split("\n", 1)

        for pos, status, (by, why), spent_s in self._run(len(mutants), job, limit, said):
            yield pos, Verdict(by, why, status not in (0, 1), spent_s)

    def reaches(self, unit: Unit) -> bool:
        """Whether the function exists as one that can be changed."""
        return unit in self._functions

    def _red(self, usual_s: Mapping[str, float]) -> tuple[str, str]:
        """The first of these tests that is red, and its report; empty if none is. What they share is made once and left
        standing. What each usually takes gives its limits: the process dies if one takes more processor time, and
        TimeoutError ends it if one waits for longer."""
        items = [self.items[name] for name in usual_s]
        for item, following in zip(items, [*items[1:], None], strict=True):
            begun_s, took_s = time.monotonic(), usual_s[item.nodeid]
            end_s, wait_s = time.process_time() + CPU_S + CPU_TIMES * took_s, WAIT_S + WAIT_TIMES * took_s
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(end_s), resource.RLIM_INFINITY))
            item.add_marker(pytest.mark.timeout(wait_s, method="signal"), append=False)
            watch = _Watch()
            item.config.pluginmanager.register(watch)
            # Without a next one, all that it shares with others is ended.
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item.config.pluginmanager.unregister(watch)
            if watch.failed is not None:
                if time.monotonic() >= begun_s + wait_s:
                    raise TimeoutError(f"{item.nodeid} was not over in {wait_s:.0f} s, which proves nothing")
                return item.nodeid, watch.failed.longreprtext
        return "", ""

    def _run(
        self,
        count: int,
        job: Callable[[int, Path], int],
        limit: Callable[[int], float],
        result: Callable[[Path], Any],
    ) -> Iterator[tuple[int, int | None, Any, float]]:
        """Position, exit status (None if it did not end in time), result and seconds of each job, each in a child."""

        def start(pos: int) -> Child:
            folder = self._folder / str(pos)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            return fork(pos, folder, limit(pos), lambda: _limited(folder, lambda: job(pos, folder)))

        for child, status, took_s in ends([(range(count), self._workers)], start):
            yield child.pos, status, result(child.folder), took_s


def _limited(folder: Path, job: Callable[[], int]) -> int:
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
    threading.stack_size(STACK_BYTES)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    return job()


class _Watch:
    failed: pytest.TestReport | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report


class _Tracer:
    """Lines of the mutated files that are run, by all threads."""

    def __init__(self, file_of: Callable[[str], str]) -> None:
        self._file_of = file_of
        self.lines: dict[str, set[int]] = {}
        self._left: dict[CodeType, set[int] | None] = {}

    def run(self, do: Callable[[], tuple[str, str]]) -> tuple[str, str]:
        self.lines, self._left = defaultdict(set), {}
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            return do()
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        try:
            left = self._left[code]
        except KeyError:
            ours = self._file_of(code.co_filename)
            left = {line for _, _, line in code.co_lines() if line is not None} if ours else None
            self._left[code] = left
        if not left:
            return None
        seen = self.lines[self._file_of(code.co_filename)]

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                seen.add(frame.f_lineno)
                left.discard(frame.f_lineno)
            return line

        return line


def quick() -> None:
    """Examples of Hypothesis as ever, but none is made smaller: that a test is red is all that counts."""
    settings.register_profile(
        "mutants", deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True,
        phases=(Phase.explicit, Phase.generate),
    )  # fmt: skip
    settings.load_profile("mutants")
