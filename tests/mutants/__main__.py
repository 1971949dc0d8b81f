"""Break each proven behaviour in a copy of the project and see its test turn red: `python -m tests.mutants`.

A mutant is a patch whose head names the rows it breaks and the test that must notice:

    # rows: CN-14
    # test: tests/unit/wal/test_wal_append.py::test_name

A mutant that does not apply, or under which its test stays green, is a failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOPS = ["schemas", "replica", "pipeline", "jobs", "infra", "tests"]
WAIT_S = 300


def head(patch: Path, key: str) -> str:
    """The value of `# key:` in the patch's head."""
    for line in patch.read_text().splitlines():
        if line.startswith(f"# {key}:"):
            return line.partition(":")[2].strip()
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


def run(patch: Path) -> str | None:
    """None if the mutant was caught; otherwise what is wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = copy_project(folder)
        applied = subprocess.run(
            ["git", "apply", "--unidiff-zero", "--recount", str(patch)],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if applied.returncode:
            return f"does not apply: {applied.stderr.strip()[:300]}"
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *head(patch, "test").split()]
        try:
            result = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return None
        if result.returncode == 0:
            return f"not noticed by {head(patch, 'test')}"
        if result.returncode != 1:
            return f"pytest ended with status {result.returncode}: {result.stdout[-300:]}"
    return None


def main() -> int:
    """Exit status 1 if a mutant survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tenth", type=int, help="only the mutants whose position is N modulo ten")
    parser.add_argument("names", nargs="*", help="patch files; all without")
    arguments = parser.parse_args()
    patches = [Path(n).resolve() for n in arguments.names] or sorted(Path(__file__).parent.glob("*.patch"))
    if arguments.tenth is not None:
        patches = [p for pos, p in enumerate(patches) if pos % 10 == arguments.tenth % 10]
    survivors = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for patch, problem in zip(patches, pool.map(run, patches), strict=True):
            survivors += problem is not None
            print(
                f"{'SURVIVED' if problem else 'caught  '} {patch.name}{': ' + problem if problem else ''}", flush=True
            )
    print(f"{len(patches) - survivors} of {len(patches)} mutants caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
