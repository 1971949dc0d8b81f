"""Break each proven behaviour in a copy of the project and see its test turn red: `python -m tests.mutants`.

A mutant is a patch whose head names the rows it breaks and the test that must notice:

    # rows: CN-14
    # test: tests/unit/wal/test_wal_append.py::test_name

A mutant that does not apply, or under which its test stays green, is a failure. So is one whose test is red without it,
and one under which nothing ends in time, which a slow machine does to any test: a mutant that is meant to make its test
wait for ever says so with a third line, `# hangs: yes`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOPS = ["schemas", "replica", "pipeline", "jobs", "infra", "tests"]
WAIT_S = 300
WAIT_HANGING_S = 120
WAIT_EACH_S = 20
"""More for each test that is run together with others."""


def head(patch: Path, key: str, default: str | None = None) -> str:
    """The value of `# key:` in the patch's head; SystemExit if there is neither it nor a default."""
    for line in patch.read_text().splitlines():
        if line.startswith(f"# {key}:"):
            return line.partition(":")[2].strip()
    if default is not None:
        return default
    raise SystemExit(f"{patch.name} has no `# {key}:` line")


def copy_project(folder: Path) -> dict[str, str]:
    """A copy of the sources under `folder`; returns the environment in which `nyala` is that copy."""
    for top in TOPS:
        shutil.copytree(ROOT / top, folder / top, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    package = folder / "shim" / "nyala"
    package.mkdir(parents=True)
    for source in (folder / "replica" / "api").iterdir():
        (package / source.name).symlink_to(source)
    for top in TOPS[:-1]:
        (package / top).symlink_to(folder / top)
    return {
        "NYALA_CACHE": str(ROOT / ".cache"),  # jars; without them a test of the whole road would fail for that
        **os.environ,
        "PYTHONPATH": f"{folder / 'shim'}{os.pathsep}{folder}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@contextmanager
def project_copy() -> Iterator[tuple[Path, dict[str, str]]]:
    """A copy that is gone afterwards, and its environment."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name), copy_project(Path(name))


def outcome(tests: Sequence[str], folder: Path, environment: dict[str, str], wait_s: float) -> tuple[int | None, str]:
    """pytest's exit status, None if it did not end in time, and the end of what it printed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        result = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=wait_s, check=False
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return result.returncode, result.stdout[-300:]


def red_unpatched(named: Sequence[str]) -> dict[str, str]:
    """Those of these tests that are not green in a copy without any mutant, with what is wrong.

    All are run together, which costs one start; one by one only if that is not green.
    """
    with project_copy() as (folder, environment):
        together = [test for names in named for test in names.split()]
        if not together or outcome(together, folder, environment, WAIT_S + len(named) * WAIT_EACH_S)[0] == 0:
            return {}
        found = {names: outcome(names.split(), folder, environment, WAIT_S) for names in named}
    return {
        names: f"its test is red without it: {names}: {'not over in time' if status is None else said}"
        for names, (status, said) in found.items()
        if status != 0
    }


def judge(status: int | None, said: str, test: str, *, hangs: bool) -> str | None:
    """None if pytest's end under a mutant means that it was caught; otherwise what is wrong."""
    if status is None:
        return None if hangs else f"{test} did not end within {WAIT_S} s, and the patch has no `# hangs: yes`"
    if status == 0:
        return f"not noticed by {test}"
    return None if status == 1 else f"pytest ended with status {status}: {said}"


def run(patch: Path) -> str | None:
    """None if the mutant was caught; otherwise what is wrong."""
    with project_copy() as (folder, environment):
        applied = subprocess.run(
            ["git", "apply", "--unidiff-zero", "--recount", str(patch)],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if applied.returncode:
            return f"does not apply: {applied.stderr.strip()[:300]}"
        test, hangs = head(patch, "test"), head(patch, "hangs", "no") == "yes"
        # One that is known to hang needs no long wait: its test is green in that time without it.
        status, said = outcome(test.split(), folder, environment, WAIT_HANGING_S if hangs else WAIT_S)
        return judge(status, said, test, hangs=hangs)


def main() -> int:
    """Exit status 1 if a mutant survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tenth", type=int, help="only the mutants whose position is N modulo ten")
    parser.add_argument("names", nargs="*", help="patch files; all without")
    arguments = parser.parse_args()
    patches = [Path(n).resolve() for n in arguments.names] or sorted(Path(__file__).parent.glob("*.patch"))
    if arguments.tenth is not None:
        patches = [p for pos, p in enumerate(patches) if pos % 10 == arguments.tenth % 10]
    survivors, workers = 0, os.cpu_count() or 1
    named = sorted({head(patch, "test") for patch in patches})
    with ThreadPoolExecutor(max_workers=workers) as pool:
        red: dict[str, str] = {}
        for found in pool.map(red_unpatched, [named[pos::workers] for pos in range(workers)]):
            red |= found
        print(f"{len(named) - len(red)} of {len(named)} tests are green without a mutant", flush=True)

        def problem_of(patch: Path) -> str | None:
            return red.get(head(patch, "test")) or run(patch)

        for patch, problem in zip(patches, pool.map(problem_of, patches), strict=True):
            survivors += problem is not None
            print(
                f"{'SURVIVED' if problem else 'caught  '} {patch.name}{': ' + problem if problem else ''}", flush=True
            )
    print(f"{len(patches) - survivors} of {len(patches)} mutants caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
