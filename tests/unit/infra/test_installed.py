"""Nyala as it is installed: from a clone as `make setup` does, and from a wheel."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.harness.environments import (
    EXTRAS,
    ROOT,
    checkout,
    clean,
    closure,
    declared,
    environment,
    install,
    unpacked_sdist,
    wheel,
)

pytestmark = pytest.mark.process

FOLDERS = {
    "replica/api": "nyala",
    "schemas": "nyala/schemas",
    "replica": "nyala/replica",
    "pipeline/toplevel": "",
    "pipeline": "nyala/pipeline",
    "jobs": "nyala/jobs",
    "infra/toplevel": "",
    "infra": "nyala/infra",
}
"""Folder -> where it is in the wheel; of folders in one another, the first counts."""
SHARED = {
    "infra/deploy/config": "share/nyala",
    "infra/deploy/systemd": "share/nyala/systemd",
}
"""Folder -> where its files are in an environment into which the wheel is installed."""
DATA = {".py", ".pyi", ".typed", ".avsc", ".proto", ".xml"}
EGG_INFO = Path(".package") / "nyala.egg-info"
"""The files that an editable install leaves in a clone."""
OF_A_CLONE = "infra/site"
"""What builds the site reads the pages of a clone, so no wheel has it."""

LOOK = """
import pkgutil, nyala
from nyala.replica.types import __version__
spark = [found.name for found in pkgutil.iter_modules() if found.name.startswith("pyspark_")]
print(nyala.connect.__name__, nyala.__version__ == __version__, *spark)
"""


def declared_version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources in a folder named `nyala`, with what an editable install has left there."""
    folder = checkout(tmp_path_factory.mktemp("beside") / "nyala")
    (folder / EGG_INFO).mkdir()
    (folder / EGG_INFO / "top_level.txt").write_text("nyala\n")
    return folder


@pytest.fixture(scope="module")
def of_the_clone(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment into which the clone is installed as `make setup` does."""
    place = environment(tmp_path_factory.mktemp("cloned") / "environment", declared(clone, EXTRAS))
    install(place, clone, editable=True)
    return place


@pytest.fixture(scope="module")
def built(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    return wheel(clone, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def of_the_wheel(built: Path) -> Path:
    """An environment into which the wheel is installed with all extras."""
    place = environment(built.parent / "environment", declared(built, EXTRAS))
    install(place, built, editable=False)
    return place


@pytest.fixture(scope="module")
def bare(built: Path) -> Path:
    """An environment into which the wheel is installed without any extra."""
    place = environment(built.parent / "bare", declared(built))
    install(place, built, editable=False)
    return place


def test_wheel_holds_each_module_once_and_nothing_else(clone: Path, built: Path) -> None:
    """Goal: no module is left out of the wheel, none is in it twice, and no waste. Method: build it, without a network,
    from a clone into which an editable install has put what it leaves; every file of the folders has one place."""
    wanted = set()
    for path in sorted(clone.rglob("*")):
        name = path.relative_to(clone)
        folder = next((folder for folder in FOLDERS if name.is_relative_to(folder)), None)
        if folder and path.suffix in DATA and not name.is_relative_to(OF_A_CLONE):
            wanted.add(str(Path(FOLDERS[folder]) / name.relative_to(folder)))
    of_data = f"nyala-{declared_version()}.data/data"
    for folder, place in SHARED.items():
        wanted |= {f"{of_data}/{place}/{path.name}" for path in (clone / folder).iterdir()}
    with zipfile.ZipFile(built) as opened:
        names = [name for name in opened.namelist() if ".dist-info/" not in name]
    assert sorted(names) == sorted(wanted) and f"{of_data}/share/nyala/systemd/nyala-server.service" in wanted
    assert {"nyala/__init__.py", "pyspark_nyala.py", "nyala/infra/ivy.xml"} < wanted


@pytest.mark.deep
def test_source_archive_makes_the_same_wheel(clone: Path, built: Path, tmp_path: Path) -> None:
    """Goal: the source archive builds the same wheel as the clone. Method: build the archive from the clone, a wheel
    from the archive alone, and compare every file with the clone's wheel."""
    again = wheel(unpacked_sdist(clone, tmp_path / "sdist"), tmp_path / "wheel")
    with zipfile.ZipFile(built) as of_clone, zipfile.ZipFile(again) as of_sdist:
        first, second = (
            {n: w.read(n) for n in w.namelist() if not n.endswith("/RECORD")} for w in (of_clone, of_sdist)
        )
    assert len(first) > 100 and first == second


def test_extra_of_the_wheel_brings_the_spark_that_the_project_pins(built: Path) -> None:
    """IN-70. Goal: `pip install nyala[spark]` resolves to the Spark that was tested, and whose release the jars are of;
    without the extra it brings none. Method: the wheel's metadata, the versions of the lock and the list of jars."""
    with zipfile.ZipFile(built) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        told = message_from_bytes(opened.read(name))
    required = [Requirement(line) for line in told.get_all("Requires-Dist", [])]
    extras: dict[str, dict[str, Requirement]] = {"": {}}
    for extra in ("", *told.get_all("Provides-Extra", [])):
        extras[extra] = {r.name: r for r in required if r.marker is None or r.marker.evaluate({"extra": extra})}
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, lines in declared.items():
        wanted = {one.name: one.specifier for one in map(Requirement, lines)}
        assert {r.name: r.specifier for r in extras[extra].values() if r.name not in extras[""]} == wanted
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.M))
    assert "pyspark" in extras["spark"] and "pyspark" not in extras[""]
    wrong = [str(r) for found in extras.values() for r in found.values() if locked[r.name.lower()] not in r.specifier]
    assert wrong == []
    jars = set(re.findall(r'org="org.apache.spark" name="\S+" rev="([^"]+)"', (ROOT / "infra/ivy.xml").read_text()))
    assert {jar.rpartition(".")[0] for jar in jars} == {locked["pyspark"].rpartition(".")[0]}


NEEDS = {
    "nyala": ["Polars>=2", "rich", "pandas ; extra == 'spark'", "tomli ; python_version < '3'"],
    "polars": ["polars.runtime"],
    "polars-runtime": ["polars"],
    "rich": ["pygments[plugins]"],
    "pygments": ["colorama ; extra == 'windows'", "importlib ; extra == 'plugins'"],
    "pandas": ["numpy"],
}
"""A made-up index: distribution -> its `Requires-Dist`."""


@pytest.mark.parametrize(
    ("asked", "brings"),
    [
        ("rich", {"rich", "pygments", "importlib"}),
        ("polars", {"polars", "polars-runtime"}),
        ("nyala", {"nyala", "polars", "polars-runtime", "rich", "pygments", "importlib"}),
        ("nyala[spark]", {"nyala", "polars", "polars-runtime", "rich", "pygments", "importlib", "pandas", "numpy"}),
        ("nyala ; python_version < '3'", {"nyala", "polars", "polars-runtime", "rich", "pygments", "importlib"}),
    ],
)
def test_requirements_bring_what_they_need_in_turn_and_nothing_else(asked: str, brings: set[str]) -> None:
    """Goal: an environment of the tests has what an installer would bring. Method: a made-up index with extras,
    markers, a circle, and other spellings of names."""
    assert closure([Requirement(asked)], lambda name: NEEDS.get(name, [])) == brings


@pytest.mark.parametrize(("module", "line"), [("polars", '  "polars>=2.0,<3",\n'), ("typer", '  "typer>=0.20,<1",\n')])
def test_dependency_that_the_project_forgets_is_missing(module: str, line: str, clone: Path, tmp_path: Path) -> None:
    """IN-70. Goal: a dependency that is used and not declared does not go unnoticed because the developer's own
    environment has it. Method: the project's list with and without a line, and an environment made of each."""
    project = clone / "pyproject.toml"
    whole = project.read_text()
    assert line in whole
    (tmp_path / "pyproject.toml").write_text(whole.replace(line, ""))
    code = [
        environment(tmp_path / name, declared(what)) / "bin" / "python"
        for name, what in (("whole", clone), ("less", tmp_path))
    ]
    ended = [
        subprocess.run(
            [python, "-c", f"import {module}"], env=clean(), capture_output=True, text=True, timeout=120, check=False
        )
        for python in code
    ]
    assert ended[0].returncode == 0, ended[0]
    assert f"No module named '{module}'" in ended[1].stderr, ended[1]


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["clone", "wheel"])
def test_installed_package_is_found_beside_a_folder_of_its_name(
    kind: str, clone: Path, request: pytest.FixtureRequest
) -> None:
    """IN-70. Goal: a clone named `nyala` in the current directory hides nothing, and Spark finds its data source.
    Method: install the clone as `make setup` does, or its wheel, in an empty environment; in the clone's parent, where
    Python looks first, ask a script, standard input and `-m`; Spark looks for modules named `pyspark_*` in folders."""
    place: Path = request.getfixturevalue(f"of_the_{kind}")
    assert (clone.parent / "nyala").is_dir() and not (clone / "__init__.py").exists()
    python = str(place / "bin" / "python")
    ways: list[tuple[list[str], str | None]] = [
        ([python, "-c", LOOK], None),
        ([python], LOOK),
        ([python, "-m", "nyala.infra.cli.app", "--version"], None),
        ([str(place / "bin" / "nyala"), "--version"], None),
    ]
    for command, text in ways:
        ended = subprocess.run(
            command, input=text, cwd=clone.parent, env=clean(), capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 0, ended.stderr
        wanted = f"nyala {declared_version()}" if "--version" in command else "connect True pyspark_nyala"
        assert ended.stdout.strip() == wanted, (command, ended.stdout)


@pytest.mark.deep
def test_clone_shows_a_new_module_without_installing_again(clone: Path, of_the_clone: Path) -> None:
    """IN-70. Goal: after `git pull` a clone runs what it holds. Method: install it, then add a module to a folder."""
    (clone / "replica" / "types" / "added_later.py").write_text("VALUE = 7\n")
    command = [of_the_clone / "bin" / "python", "-c", "from nyala.replica.types.added_later import VALUE; print(VALUE)"]
    ended = subprocess.run(command, cwd=os.sep, env=clean(), capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout.strip() == "7", ended.stderr


WHERE = "--masters=127.0.0.1:1 --kafka=127.0.0.1:1"


@pytest.mark.parametrize(
    ("line", "extra"),
    [
        ("nyala up", "spark"),
        ("nyala up --detach", "spark"),
        ("nyala demo", "spark,demo"),
        (f"nyala job ingest {WHERE} -- --table t --checkpoint c", "spark"),
        (f"nyala job decisions {WHERE} -- --checkpoint c", "spark"),
        (f"nyala job rebalance {WHERE}", "spark"),
        (f"nyala job verify {WHERE}", "spark"),
        ("nyala bench pipeline --local --rounds 1", "spark"),
        ("python -m nyala.infra.jars", "spark"),
    ],
)
def test_command_without_its_extra_says_so_and_starts_nothing(
    line: str, extra: str, bare: Path, tmp_path: Path
) -> None:
    """IN-70. Goal: a wheel without extras says in one line what to install, before it starts or writes anything.
    Method: each command that needs an extra, in an environment without one."""
    program, *arguments = line.split()
    ended = subprocess.run(
        [bare / "bin" / program, *arguments],
        cwd=tmp_path, env=clean(NYALA_CACHE=str(tmp_path / "cache"), TMPDIR=str(tmp_path)), capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    *before, last = ended.stderr.splitlines()
    assert ended.returncode == 1 and last.startswith("nyala: ") and f"`pip install 'nyala[{extra}]'`" in last, ended
    assert not [told for told in before if "Traceback" in told or "waiting for" in told]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]
