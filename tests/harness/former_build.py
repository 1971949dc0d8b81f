"""The build of version 0.2.0, kept as its wheel: the older side of every upgrade.

`python -m tests.harness.former_build` makes the wheel again from the commit that the CHANGELOG names, and compares.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from nyala.infra.jars import cache_folder

ROOT = Path(__file__).resolve().parents[2]
WHEEL = ROOT / "tests" / "formats" / "golden" / "nyala-0.2.0-py3-none-any.whl"
_RELEASE = re.compile(r"^## 0\.2\.0 \(\d{4}-\d\d-\d\d, commit `([0-9a-f]{40})`\)$", re.MULTILINE)
_OFFLINE = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation")


@cache
def former_build() -> dict[str, str]:
    """Return the environment in which this interpreter runs the former build; installed once, then found in the
    cache."""
    folder = cache_folder() / "builds" / hashlib.sha256(WHEEL.read_bytes()).hexdigest()[:16]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            _run(sys.executable, "-m", "pip", "install", *_OFFLINE, "--target", f"{made}/installed", str(WHEEL))
            try:
                os.rename(f"{made}/installed", folder)
            except OSError:
                assert folder.exists()  # another process of the tests was first
    return {"PYTHONPATH": str(folder)}


def files_of(wheel: Path) -> dict[str, int]:
    """Return the CRC of each file of a wheel, except the list that has all of them."""
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: info.CRC for info in archive.infolist() if not info.filename.endswith("/RECORD")}


def built_again(folder: Path) -> Path:
    """Return the wheel as the commit of 0.2.0 makes it, built in `folder`; the repository has to have that commit."""
    found = _RELEASE.search((ROOT / "CHANGELOG.md").read_text())
    assert found, "the CHANGELOG names the commit of 0.2.0"
    _run("git", "-C", str(ROOT), "archive", "--output", str(folder / "source.tar"), found.group(1))
    with tarfile.open(folder / "source.tar") as files:
        files.extractall(folder / "source", filter="data")
    _run(sys.executable, "-m", "pip", "wheel", *_OFFLINE, "-w", str(folder), str(folder / "source"))
    return folder / WHEEL.name


def _run(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, f"{' '.join(command)}: {ended.stdout}{ended.stderr}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        again = built_again(Path(name))
        if not WHEEL.exists():
            WHEEL.write_bytes(again.read_bytes())
            print(f"made {WHEEL.relative_to(ROOT)}")
        same = files_of(again) == files_of(WHEEL)
        print("the wheel holds what its commit makes" if same else "the wheel holds other files than its commit makes")
        sys.exit(not same)
