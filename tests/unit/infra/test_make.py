"""What the first `make` on a machine does, on a copy of the Makefile, with fake programs in place of Python's."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def program(path: Path, text: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile and what it needs before anything is installed."""
    place = tmp_path / "checkout"
    (place / "infra").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "infra/preflight.py", "infra/ivy.xml"):
        shutil.copy(ROOT / name, place / name)
    shutil.copy(ROOT / "infra" / "ivysettings.xml", place / "infra")
    return place


def make(place: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`make` as typed in `place`, with no more of our own variables than are given."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NYALA_", "MAKE", "PYTHON"))}
    return subprocess.run(
        ["make", *arguments],
        cwd=place,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("given", [None, "", "/other"])
def test_jars_are_where_nyala_cache_says(given: str | None, checkout: Path, tmp_path: Path) -> None:
    """Goal: the cache may lie on another disk, as the errors advise. Method: make with none, an empty and another
    cache, and a resolver that only writes its marker."""
    cache = tmp_path / given.strip("/") if given else checkout / ".cache"
    resolver = 'mkdir -p "$NYALA_CACHE/jars" && echo "$NYALA_CACHE" | tee "$NYALA_CACHE/jars/.resolved"'
    program(checkout / ".venv" / "bin" / "python", resolver)
    (checkout / ".venv" / ".installed").touch()
    environment = {} if given is None else {"NYALA_CACHE": str(cache) if given else ""}
    ran = make(checkout, "setup", **environment)
    assert (ran.returncode, ran.stdout.strip()) == (0, str(cache)), ran.stderr
    assert make(checkout, "-q", "jars", **environment).returncode == 0, "nothing is left to do"
