"""What the first `make` on a machine does, on a copy of the Makefile, with fake programs in place of Python's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nyala.infra import preflight

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
    """Goal: `NYALA_CACHE` moves the cache of jars. Method: make with none, an empty and another cache, and a resolver
    that only writes its marker."""
    cache = tmp_path / given.strip("/") if given else checkout / ".cache"
    resolver = 'mkdir -p "$NYALA_CACHE/jars" && echo "$NYALA_CACHE" | tee "$NYALA_CACHE/jars/.resolved"'
    program(checkout / ".venv" / "bin" / "python", resolver)
    (checkout / ".venv" / ".installed").touch()
    environment = {} if given is None else {"NYALA_CACHE": str(cache) if given else ""}
    ran = make(checkout, "setup", **environment)
    assert (ran.returncode, ran.stdout.strip()) == (0, str(cache)), ran.stderr
    assert make(checkout, "-q", "jars", **environment).returncode == 0, "nothing is left to do"


def tools(folder: Path) -> Path:
    """A PATH of programs that the Makefile needs, without any Python, and with a Java that is new enough."""
    program(folder / "java", "echo 'openjdk version \"17.0.1\"' >&2")
    for name in ("sh", "bash", "make", "awk", "touch", "mkdir", "cat", "tee", "rm", "cp", "date"):
        found = shutil.which(name)
        assert found, name
        (folder / name).symlink_to(found)
    return folder


def python(path: Path, *, works: bool = True) -> None:
    """A Python as this one; if it does not work, one that says so, as a version manager's for what is not installed."""
    program(path, f'exec {sys.executable} "$@"' if works else "echo 'command not found' >&2; exit 127")


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        ({"python3.11": True, "python3.12": True, "python3": True}, "python3.11"),
        ({"python3.12": True, "python3": True}, "python3.12"),
        ({"python3.11": False, "python3.12": False, "python3.13": True}, "python3.13"),
        ({"python3": True}, "python3"),
    ],
)
def test_first_python_that_will_do_is_taken(there: dict[str, bool], taken: str, checkout: Path, tmp_path: Path) -> None:
    """Goal: `make` uses the first Python on the PATH that is new enough. Method: only some on the PATH; each notes its
    name when it is to make the environment, which fails at once."""
    path = tools(tmp_path / "bin")
    for name, works in there.items():
        python(path / name, works=works)
        if works:
            note = f'[ "$2" = environment ] && {{ echo {name} > {tmp_path}/taken; exit 1; }}\n'
            (path / name).write_text((path / name).read_text().replace("exec ", note + "exec "))
    assert make(checkout, "setup", PATH=str(path), JAVA_HOME="").returncode == 2
    assert (tmp_path / "taken").read_text().strip() == taken


@pytest.mark.parametrize("there", [None, "python3"])
def test_machine_without_a_python_is_told_what_to_do(there: str | None, checkout: Path, tmp_path: Path) -> None:
    """Goal: one line names the remedy. Method: a PATH without Python, and with one that does not run."""
    path = tools(tmp_path / "bin")
    if there:
        python(path / there, works=False)
    ran = make(checkout, "setup", PATH=str(path))
    first, *rest = ran.stderr.splitlines()
    assert first.startswith("nyala: no Python 3.11 or later") and "make PYTHON=" in first
    assert [line.partition(":")[0] for line in rest] == ["make"]


@pytest.mark.parametrize("target", ["test", "test-deep"])
def test_tests_that_a_machine_cannot_run_are_told_before_the_first(checkout: Path, tmp_path: Path, target: str) -> None:
    """Goal: a suite that needs a missing command says so before its first test, and other suites run. Method: with a
    PATH without it `make test` runs, `make test-deep` says so; an environment that is there, and notes what modules it
    is to run."""
    path = tools(tmp_path / "bin")
    note = f'[ "$1" = -m ] && {{ echo "$2" >> {tmp_path}/modules; mkdir -p .cache/jars; touch .cache/jars/.resolved; }}'
    program(checkout / ".venv" / "bin" / "python", f'{note} || exec {sys.executable} "$@"')
    (checkout / ".venv" / ".installed").touch()
    ran = make(checkout, target, PATH=str(path))
    modules = (tmp_path / "modules").read_text().split()
    if target == "test":
        assert (ran.returncode, modules) == (0, ["nyala.infra.jars", "pytest", "pytest"])
        return
    first, *rest = ran.stderr.splitlines()
    assert first.startswith("nyala: no `ip`") and [line.partition(":")[0] for line in rest] == ["make"]
    assert modules == ["nyala.infra.jars"]


def test_setup_says_what_it_does_and_nothing_when_all_is_done(checkout: Path, tmp_path: Path) -> None:
    """IN-70. Goal: the first `make setup` takes two minutes and says what it does meanwhile; the next is quiet. Method:
    an interpreter that is a virtual environment's, a pip that only says which packages it finds, a resolver that only
    writes its marker."""
    path = tools(tmp_path / "bin")
    python(path / "python3")
    finds = "grep -o '^[a-z0-9-]*==[^ ]*' requirements.lock | sed 's/^/Collecting /'"
    (path / "grep").symlink_to(str(shutil.which("grep")))
    (path / "sed").symlink_to(str(shutil.which("sed")))
    pip = f'[ "$1 $2" = "-m pip" ] && {{ case "$*" in *.lock) {finds};; esac; exit 0; }}'
    resolver = '[ "$2" = nyala.infra.jars ] && { mkdir -p .cache/jars && touch .cache/jars/.resolved; exit 0; }'
    program(checkout / ".venv" / "bin" / "python", f'{pip}\n{resolver}\nexec {sys.executable} "$@"')
    first, second = (make(checkout, "setup", PATH=str(path), JAVA_HOME="") for _ in range(2))
    packages = sum("==" in line for line in (checkout / "requirements.lock").read_text().splitlines())
    begin, *between, end = first.stdout.splitlines()
    assert (first.returncode, first.stderr) == (0, "")
    assert begin == f"nyala: installing {packages} packages, which takes about two minutes"
    assert between[0].startswith(f"nyala: 10 of {packages} packages: ") and len(between) == packages // 10
    assert end == "nyala: installing Nyala itself"
    assert (second.returncode, second.stderr) == (0, "") and "nyala:" not in second.stdout


@pytest.mark.deep
def test_environment_that_failed_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the next `make` begins anew. Method: an environment without pip, as Debian's Python leaves one that has no
    venv package; a Python that cannot make any; one that fails half-way; then the real one."""
    folder = tmp_path / ".venv"
    program(folder / "bin" / "python", "exit 1")
    monkeypatch.setattr(preflight, "venv_problem", lambda: "no venv module")
    assert preflight.environment(folder) == 1
    monkeypatch.undo()
    half = 'mkdir -p "$4/bin" && touch "$4/bin/python"; echo "ensurepip is not available"; exit 1'
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "half", half)))
    assert preflight.environment(folder) == 1
    assert not folder.exists()
    monkeypatch.undo()
    assert preflight.environment(folder) == 0
    made = (folder / "pyvenv.cfg").stat().st_ino
    assert preflight.environment(folder) == 0
    assert (folder / "pyvenv.cfg").stat().st_ino == made, "one that works is left alone"


def test_python_without_ensurepip_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: Debian's Python without its venv package is one line. Method: this one, and one that finds no ensurepip."""
    assert preflight.venv_problem() is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "ensurepip" else object())
    assert "-venv" in (preflight.venv_problem() or "")
