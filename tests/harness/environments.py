"""Environments into which Nyala is installed as users install it. They have the distributions that it declares, and
those that these need in turn, as links into this environment: the tests have no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Sequence
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
EXTRAS = ("spark", "demo")
"""What a user may install beside Nyala itself; `dev` is for those who change it."""
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


def declared(what: Path, extras: Sequence[str] = ()) -> list[Requirement]:
    """Return what a checkout or a wheel declares to need, with these extras. A checkout is built where it is used, so
    it needs what builds it, too."""
    if what.is_dir():
        told = tomllib.loads((what / "pyproject.toml").read_text())
        project, optional = told["project"], told["project"]["optional-dependencies"]
        lists = (told["build-system"]["requires"], project["dependencies"], *(optional[extra] for extra in extras))
        return [Requirement(line) for lines in lists for line in lines]
    with zipfile.ZipFile(what) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        lines = message_from_bytes(opened.read(name)).get_all("Requires-Dist", [])
    return [one for one in map(Requirement, lines) if _holds(one, extras)]


def closure(requirements: Iterable[Requirement], needs: Callable[[str], Iterable[str]]) -> set[str]:
    """Return the names of all distributions that these requirements bring. `needs`: the `Requires-Dist` of one of
    them."""
    found: set[tuple[str, str]] = set()
    to_do = list(requirements)
    while to_do:
        one = to_do.pop()
        name = canonicalize_name(one.name)
        for extra in {"", *one.extras} - {extra for known, extra in found if known == name}:
            found.add((name, extra))
            to_do += [more for more in map(Requirement, needs(name)) if _holds(more, (extra,))]
    return {name for name, _ in found}


def _holds(one: Requirement, extras: Sequence[str]) -> bool:
    return one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras or ("",))


def environment(folder: Path, requirements: Iterable[Requirement]) -> Path:
    """Make a virtual environment without pip and without Nyala, which has what the requirements bring and nothing
    else: a dependency that Nyala uses and does not declare is missing there."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    borrowed = folder / "borrowed"
    borrowed.mkdir()
    here = Path(sysconfig.get_path("purelib"))
    for name in sorted(closure(requirements, lambda name: distribution(name).requires or ())):
        # A folder that two distributions share would bring both of them, so a second link to it is an error.
        for part in {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
            (borrowed / part).symlink_to(here / part)
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
