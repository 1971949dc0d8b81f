"""Rows that change nothing but bodies of functions: run in children that are forked when all tests are collected, with
the new code put in place of the old one.

That costs a few milliseconds a row, where a pytest of its own, which imports the changed source, costs a second. It
says one thing only: that a row is caught. All others are run in a pytest of their own, which says why: those whose
tests are green, not over in time or red anyway, and those that change what is made at import.
"""

from __future__ import annotations

import ast
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import CodeType

import pytest

from tests.harness.orphans import end_with
from tests.mutants.forks import QUIETLY, Forks, Unit, quick
from tests.mutants.mutant import ROOT, Mutant, first_line, mutated, source_of
from tests.mutants.operators import codes_of

SLIP = re.compile(r"^(?:NameError|SyntaxError|IndentationError): .*", re.MULTILINE)
"""The last line of a report if the row is no valid program."""
STARTS_THREADS = "tests/fuzz/"
"""Tests whose import has polars compute something: a forked child would wait for its threads for ever."""
FILE_S = 120.0
"""How long the tests of a file may take without a mutant; otherwise its rows are run in a pytest of their own."""


def caught_in_place(mutants: Sequence[Mutant], workers: int, patience_s: int) -> Iterator[tuple[int, float]]:
    """Position of each of these rows that is caught, and the seconds that it took: in a process of its own, since it
    imports what others are about to change. `patience_s`: how long a test waits for what must come."""
    fit = [pos for pos, mutant in enumerate(mutants) if may_be_in_place(mutant)]
    if not fit:
        return
    command = [sys.executable, "-m", "tests.mutants.in_place"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            pickle.dump(([mutants[pos] for pos in fit], workers, patience_s), process.stdin)
            process.stdin.close()
            for line in process.stdout:
                at, took_s = line.split()
                yield fit[int(at)], float(took_s)
        finally:
            process.kill()


def may_be_in_place(mutant: Mutant) -> bool:
    """Whether a look at the row alone lets it."""
    starts_threads = any(test.startswith(STARTS_THREADS) for test in mutant.tests)
    return not mutant.needs_a_copy and not starts_threads and all(edit.function for edit in mutant.edits)


@cache
def _split(source: str) -> tuple[str, dict[tuple[str, int], str]]:
    """The source without the bodies of its outermost functions; each of these bodies, by name and first line."""
    tree = ast.parse(source)
    bodies: dict[tuple[str, int], str] = {}

    def empty(node: ast.AST, path: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                bodies[path + child.name, first_line(child)] = ast.dump(ast.Module(child.body, []))
                child.body = []
            elif isinstance(child, ast.ClassDef):
                empty(child, f"{path}{child.name}.")
            elif not isinstance(child, ast.expr):
                empty(child, path)

    empty(tree, "")
    return ast.dump(tree), bodies


class _Row:
    """A row as the code that it puts in place. LookupError, Stale or SyntaxError if it cannot be."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def codes(self, path_of: Callable[[str], str]) -> Mapping[Unit, CodeType]:
        found = {}
        for file, source in mutated(self._mutant).items():
            (outside, bodies), (outside_after, bodies_after) = _split(source_of(file)), _split(source)
            if outside != outside_after:
                raise LookupError(f"{file}: more than bodies of functions is changed")
            compiled = codes_of(compile(source, path_of(file), "exec", dont_inherit=True))
            for (unit, body), (changed_unit, changed) in zip(bodies.items(), bodies_after.items(), strict=True):
                if body != changed:
                    found[file, unit] = compiled[changed_unit]
        return found


class _Session:
    """A plugin of pytest that has the rows run in place of tests, and tells those that are caught."""

    def __init__(
        self, mutants: Sequence[Mutant], workers: int, folder: Path, tell: Callable[[int, float], None]
    ) -> None:
        self._mutants = mutants
        self._workers = workers
        self._folder = folder
        self._tell = tell
        self._items: dict[str, list[str]] = {test: [] for mutant in mutants for test in mutant.tests}
        """What each id in the rows stands for: a test, or all of a function, class or file."""

    def pytest_sessionstart(self) -> None:
        quick()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for test in _ids(item.nodeid) & self._items.keys():
                self._items[test].append(item.nodeid)
        chosen = {name for names in self._items.values() for name in names}
        items[:] = [item for item in items if item.nodeid in chosen]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        files = {edit.file for mutant in self._mutants for edit in mutant.edits}
        for file in files:
            _split(source_of(file))  # once, and not in each child
        forks = Forks(session, self._folder, files, self._workers)
        green = {name: test.took_s for name, test in forks.seen(FILE_S, traced=False) if not test.red}
        tests = [self._limits(mutant, green) for mutant in self._mutants]
        run = [pos for pos, limits in enumerate(tests) if limits]
        for pos, verdict in forks.verdicts([_Row(self._mutants[pos]) for pos in run], [tests[pos] for pos in run]):
            if verdict.by and not SLIP.search(verdict.said):
                self._tell(run[pos], verdict.took_s)
        return True

    def _limits(self, mutant: Mutant, green: Mapping[str, float]) -> Mapping[str, float]:
        """What each test of a row took without it; empty if one was red, or is no test."""
        names = [name for test in mutant.tests for name in self._items[test] or [""]]
        return {name: green[name] for name in names} if green.keys() >= set(names) else {}


def _ids(nodeid: str) -> set[str]:
    """The ids under which a row may name a test: its own, that of its function, and those of its class and file."""
    function = nodeid.partition("[")[0]
    parts = function.split("::")
    return {nodeid, *("::".join(parts[:count]) for count in range(1, len(parts) + 1))}


def main() -> int:
    """Rows come on stdin; each one that is caught is a line of stdout: its position, and the seconds that it took."""
    end_with(os.getppid())
    mutants, workers, patience_s = pickle.load(sys.stdin.buffer)
    told = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what pytest prints
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "NYALA_TEST_PATIENCE_S": str(patience_s)}
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        session = _Session(
            mutants, workers, Path(folder), lambda pos, took_s: print(pos, f"{took_s:.3f}", file=told, flush=True)
        )
        files = sorted({test.partition("::")[0] for mutant in mutants for test in mutant.tests})
        pytest.main([*QUIETLY, "--tb=native", "--continue-on-collection-errors", *files], plugins=[session])
    return 0


if __name__ == "__main__":
    sys.exit(main())
