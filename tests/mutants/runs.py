"""Runs of pytest under a mutant: in a child that is forked with the libraries loaded, or in a copy of the project."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from hypothesis import Phase, settings

from tests.mutants.children import BROKEN, SAID, Child, ends, fork
from tests.mutants.mutant import REAL, ROOT

TOPS = ["schemas", "replica", "pipeline", "jobs", "infra", ".package", "tests", "docs", ".ci"]
FILES = ["pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "Makefile", "requirements.lock"]
LIBRARIES = (
    "pytest", "hypothesis", "_hypothesis_pytestplugin", "xdist.plugin", "pytest_timeout", "numpy", "pyarrow.compute",
    "pyarrow.ipc", "fastavro", "google.protobuf.message", "google_crc32c", "grpc", "grpc.aio", "prometheus_client",
    "rich.console", "rich.table", "typer.testing", "pandas", "polars",
)  # fmt: skip
"""What nearly every test imports. Two of them have a thread from their import on, which a fork leaves behind without
harm (`HARMLESS` in generated.py)."""
CORES = os.cpu_count() or 1
AT_A_TIME = {True: 2 * CORES, False: 2 * CORES}
"""How many are run together in copies, and how many in memory beside them. Servers wait for one another most of the
time; and under its mutant many a test does nothing until its time is over."""
PATIENCE_S, PATIENCE_REAL_S = 15, 30
"""How long a test waits for what must come; the second one if it starts servers. It is so short without a mutant as
well: if the machine is too slow for that, the test is told as red without one, and nothing counts as caught."""
# Assertions need no explanation here, and what is imported already cannot be rewritten. pytest's own tracebacks look at
# every module that is loaded.
PYTEST = ["-q", "-x", "--tb=native", "--assert=plain", "-p", "no:cacheprovider"]


class MutatedFiles(MetaPathFinder):
    """Import hook: modules whose files are named have the given source instead."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = {os.path.realpath(ROOT / file): source for file, source in sources.items()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Of a module that is changed; None of any other, which is found as ever."""
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        source = self._sources.get(os.path.realpath(spec.origin))
        if source is None:
            return None
        loader = _MutatedLoader(fullname, spec.origin, source)
        return importlib.util.spec_from_file_location(
            fullname, spec.origin, loader=loader, submodule_search_locations=spec.submodule_search_locations
        )


class _MutatedLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec")

    def get_source(self, fullname: str) -> str:
        return self._source


@dataclass(frozen=True)
class Run:
    """pytest on `tests` under `sources`, in a copy of the project if `copied`, for at most `wait_s`."""

    tests: tuple[str, ...]
    sources: Mapping[str, str]
    copied: bool
    wait_s: float


@dataclass(frozen=True)
class Ended:
    """pytest's exit status, None if it was not over in time; all that it printed; what it took."""

    status: int | None
    said: str
    took_s: float


class Runner:
    """Runs several at a time. One process starts them all, and has no thread when it forks.

    Use it as `with runner() as r:`, which removes its folder, with every copy, at the end.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        os.chdir(ROOT)
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy starts its threads when it is imported
        # Unchanged modules are compiled once, whoever imports them first, and nothing is written into the project.
        sys.pycache_prefix, sys.dont_write_bytecode = str(folder / "compiled"), False
        for name in LIBRARIES:
            import_module(name)
        gc.collect()
        gc.freeze()  # so that a collection in a child, of which pytest makes several, looks at what is new there only

    def run(self, runs: Sequence[Run]) -> Iterator[tuple[int, Ended]]:
        """Position of each run and how it ended, in the order of their ends."""
        lanes = [
            ([pos for pos, run in enumerate(runs) if run.copied is copied], workers)
            for copied, workers in AT_A_TIME.items()
        ]
        for child, status, took_s in ends(lanes, lambda pos: self._start(pos, runs[pos])):
            file = child.folder / SAID
            said = file.read_text(errors="replace") if file.exists() else ""
            yield child.pos, Ended(status, said, took_s)

    def _start(self, pos: int, run: Run) -> Child:
        self._made += 1
        folder = self._folder / str(self._made)
        folder.mkdir()
        tree = self._changed_copy(run.sources, folder) if run.copied else None
        return fork(pos, folder, run.wait_s, lambda: _pytest(run, folder, tree))

    def _changed_copy(self, sources: Mapping[str, str], folder: Path) -> Path:
        tree = folder / "n"
        shutil.copytree(self._original(), tree, symlinks=True)
        for file, source in sources.items():
            (tree / file).write_text(source)
        return tree

    def _original(self) -> Path:
        """The project without a mutant, compiled once: by content, so that a mutant's own file is compiled again."""
        original = self._folder / "original"
        if not original.exists():
            for top in TOPS:
                shutil.copytree(ROOT / top, original / top, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            for name in FILES:
                shutil.copy(ROOT / name, original)
            command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", *TOPS[:5]]
            subprocess.run(command, cwd=original, check=True)
        return original


@contextmanager
def runner() -> Iterator[Runner]:
    """With a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as name:
        yield Runner(Path(name))


class _Verdict:
    """A plugin of pytest that knows the status which the tests had. Hypothesis draws what it always draws, but makes no
    failing example smaller: that a test is red is all that counts."""

    status: int | None = None

    def pytest_sessionstart(self) -> None:
        phases = (Phase.explicit, Phase.reuse, Phase.generate, Phase.target)
        settings.register_profile("mutants", settings.default, phases=phases)
        settings.load_profile("mutants")

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.status = int(exitstatus)


def patience_s(*tests: str) -> int:
    """How long these tests, run together, wait for what must come."""
    return PATIENCE_REAL_S if any(test.startswith(REAL) for test in tests) else PATIENCE_S


def _pytest(run: Run, folder: Path, tree: Path | None) -> int:
    """All that the forked process does: pytest, in itself or started in `tree`; its exit status."""
    arguments = [*PYTEST, f"--basetemp={folder / 't'}", *run.tests]
    os.environ["NYALA_TEST_PATIENCE_S"] = str(patience_s(*run.tests))
    if tree is not None:
        os.chdir(tree)
        environment = {
            "NYALA_CACHE": str(ROOT / ".cache"),  # jars; without them a test of the whole road would fail for that
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tree / ".package"), str(tree)]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        os.execve(sys.executable, [sys.executable, "-m", "pytest", *arguments], environment)
    # A failing example of one mutant is nothing that a later run should begin with.
    import_module("hypothesis.configuration").set_hypothesis_home_dir(folder)
    sys.meta_path.insert(0, MutatedFiles(run.sources))
    verdict = _Verdict()
    try:
        status: int = import_module("pytest").main(arguments, plugins=[verdict])
    except BaseException:  # noqa: BLE001 - of what a test left behind, while pytest ends: Python would end with 1
        status = BROKEN if verdict.status is None else 1
    sys.stdout.flush()
    return status


def in_files(tests: Iterable[str]) -> list[tuple[str, ...]]:
    """The same tests, those of one file together."""
    files: dict[str, list[str]] = {}
    for test in sorted(set(tests)):
        files.setdefault(test.partition("::")[0], []).append(test)
    return [tuple(found) for found in files.values()]
