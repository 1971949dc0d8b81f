"""Environments into which Nyala is installed as users install it; its dependencies are those of this environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
_OURS = ("nyala", "__editable__", "pyspark_nyala", "__pycache__")
_SOURCES = ("schemas", "replica", "pipeline", "jobs", "infra", ".package")
_FILES = ("pyproject.toml", "README.md", "LICENSE", "Makefile", "requirements.lock")


def checkout(folder: Path) -> Path:
    """Return the sources as a clone has them, in `folder`, which must not exist yet."""
    folder.mkdir(parents=True)
    for name in _SOURCES:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
    for name in _FILES:
        shutil.copy(ROOT / name, folder)
    return folder


def environment(folder: Path, without: Iterable[str] = ()) -> Path:
    """Make a virtual environment without pip and without Nyala: its dependencies are links to those of this
    environment.

    `without`: distributions that it lacks, by the names of their modules.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    borrowed = folder / "borrowed"
    borrowed.mkdir()
    left_out = (*_OURS, *without)
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(left_out) and path.suffix != ".pth":
            (borrowed / path.name).symlink_to(path)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(f"{borrowed}\n")
    return folder


def pip(*arguments: str | Path) -> None:
    """Run this environment's pip without a network, and without what would find this environment's Nyala."""
    command = [sys.executable, "-m", "pip", *map(str, arguments)]
    ended = subprocess.run(command, env=clean(), capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def install(place: Path, what: Path, *, editable: bool) -> None:
    """Install a checkout as `make setup` does, or a wheel."""
    options = ["--no-index", "--no-deps", "--no-build-isolation", *(["-e"] if editable else [])]
    pip("--python", place / "bin" / "python", "install", "-q", *options, what)


def wheel(sources: Path, folder: Path) -> Path:
    """Return the wheel of a checkout, built into `folder`."""
    pip("wheel", "-q", "--no-index", "--no-deps", "--no-build-isolation", "-w", folder, sources)
    (built,) = folder.glob("nyala-*.whl")
    return built


def unpacked_sdist(sources: Path, folder: Path) -> Path:
    """Return the source archive of a checkout, built and unpacked into `folder`."""
    command = [sys.executable, "-m", "build", "-q", "--sdist", "--no-isolation", "-o", str(folder), str(sources)]
    ended = subprocess.run(command, env=clean(), capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (archive,) = folder.glob("nyala-*.tar.gz")
    shutil.unpack_archive(archive, folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def clean(**more: str) -> dict[str, str]:
    """Return this process's variables without those that name a Nyala, a cluster or another Python."""
    ours = ("NYALA_", "PYTHON", "VIRTUAL_ENV", "PYSPARK_", "SPARK_")
    return {k: v for k, v in os.environ.items() if not k.startswith(ours)} | more
