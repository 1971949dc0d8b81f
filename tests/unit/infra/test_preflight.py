"""A machine that lacks something is reported in one line with the remedy."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from nyala.infra.jars import JarsMissing, java
from nyala.infra.preflight import (
    found_java_problem,
    install,
    install_problem,
    java_path,
    java_problem,
    namespaces_problem,
    pip_progress,
    python_problem,
    space_problem,
)


def test_python_too_old_is_named_with_a_remedy() -> None:
    """Goal: an old Python is refused with the way out. Method: a version pair below the bound, and one at it."""
    assert "make PYTHON=" in (python_problem((3, 10)) or "")
    assert python_problem((3, 11)) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no `java`"),
        ('openjdk version "11.0.2" 2019-01-15', "Java 11 is too old"),
        ('java version "1.8.0_201"', "Java 1 is too old"),
        ("garbage", "no version that can be read"),
    ],
)
def test_java_unusable_is_named_with_a_remedy(text: str | None, says: str) -> None:
    """Goal: a missing, old or strange Java gives one clear line. Method: what `java -version` prints in each case."""
    assert says in (java_problem(text) or "")


def test_java_new_enough_is_accepted() -> None:
    """Goal: Java 17 and later pass. Method: their version texts."""
    assert java_problem('openjdk version "17.0.15" 2025-04-15') is None
    assert java_problem('openjdk version "21" 2023-09-19') is None


def test_disk_nearly_full_is_refused_with_both_numbers() -> None:
    """Goal: a nearly full disk is refused before anything is written. Method: a free figure below and above the
    bound."""
    assert "10 MiB free" in (space_problem(10 << 20) or "")
    assert space_problem(100 << 30) is None


def fake_java(folder: Path, version: int) -> Path:
    """A program in `folder`/bin that says that it is this Java."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}.0.1\"' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("home", "path", "fine"), [(17, 11, True), (11, 17, False), (None, 17, True), (None, 11, False)]
)
def test_java_of_the_check_is_the_java_that_runs(
    home: int | None, path: int, fine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: `make setup` refuses what would not run, and nothing else. Method: JAVA_HOME and PATH of two versions."""
    on_path = fake_java(tmp_path / "path", path)
    monkeypatch.setenv("PATH", f"{on_path.parent}:/usr/bin:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", home).parents[1]))
    assert (found_java_problem() is None) is fine
    if fine:
        assert java() == java_path()
    else:
        with pytest.raises(JarsMissing, match=r"Java 11 is too old.*\(this is .*java\)"):
            java()


def test_java_home_without_a_java_is_told(tmp_path: Path) -> None:
    """Goal: a JAVA_HOME that was removed is named. Method: an empty folder, beside a good PATH."""
    found = found_java_problem({"JAVA_HOME": str(tmp_path), "PATH": str(fake_java(tmp_path / "p", 17).parent)})
    assert f"JAVA_HOME={tmp_path} holds no bin/java" in (found or "")


PIP_WITHOUT_NETWORK = """
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...): [Errno -3] Temporary failure in
name resolution')': /simple/fastavro/
ERROR: Could not find a version that satisfies the requirement fastavro==1.12.0 (from versions: none)
ERROR: No matching distribution found for fastavro==1.12.0
"""


def test_pip_without_network_or_space_comes_down_to_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: `make setup` offline is one clear line. Method: what pip says then; something else is shown whole."""
    assert "check the network" in (install_problem(PIP_WITHOUT_NETWORK) or "")
    assert "disk is full" in (install_problem("ERROR: Could not install: [Errno 28] No space left on device") or "")
    assert install_problem("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES") is None
    fail = "import sys; sys.exit('{}')"
    assert install([sys.executable, "-c", fail.format("Connection refused, retrying")]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert install([sys.executable, "-c", fail.format("hashes differ")]) == 1
    assert "hashes differ" in capsys.readouterr().err
    assert install([sys.executable, "-c", "print('noise')"]) == 0
    assert capsys.readouterr().err == ""


def test_pip_is_told_in_a_few_lines() -> None:
    """IN-70. Goal: `make setup` shows the progress of pip. Method: pip's output for 23 packages, some of which are
    installed already; for a folder, which is quick, nothing is shown."""
    finds = [f"Collecting name-{n}==1.{n} (from -r requirements.lock (line {n}))" for n in range(1, 20)]
    finds += [f"Requirement already satisfied: name-{n}==1 in /somewhere" for n in range(20, 24)]
    between = ["  Downloading name_1-1.1-py3-none-any.whl (12 kB)", "", "Collecting", "Looking in links: /wheels"]
    said = [line for find in finds for line in (find, *between)] + ["Installing collected packages: name-1, name-2"]
    wanted = ["10 of 23 packages: name-10", "20 of 23 packages: name-20", "unpacking 23 packages"]
    assert list(pip_progress(said, 23)) == wanted
    assert list(pip_progress(["Processing /clone", "Installing collected packages: nyala"], 0)) == []


NAMESPACE_PROGRAMS = {"ip": "exit 0", "nsenter": "exit 0", "mount": "exit 0"}
UNSHARE = """while [ "$1" != -- ]; do shift; done; shift; exec "$@" """


@pytest.mark.parametrize(
    ("programs", "says"),
    [
        (NAMESPACE_PROGRAMS | {"unshare": UNSHARE}, None),
        (NAMESPACE_PROGRAMS, "no `unshare` on the PATH"),
        ({"mount": "exit 0", "unshare": UNSHARE}, "no `ip` and no `nsenter` on the PATH"),
        (
            NAMESPACE_PROGRAMS | {"unshare": "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1"},
            "run make as root.*Operation not permitted",
        ),
        (NAMESPACE_PROGRAMS | {"unshare": UNSHARE, "ip": "exit 3"}, "run make as root.*status 3"),
    ],
)
def test_machine_without_namespaces_is_told_before_any_test(
    programs: dict[str, str], says: str | None, tmp_path: Path
) -> None:
    """Goal: `make test-deep` says what it needs more, in one line. Method: a PATH of programs that work, lack or
    refuse."""
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    found = namespaces_problem({"PATH": str(tmp_path)})
    assert (found is None) is (says is None), found
    assert re.search(says or "", found or "") and "\n" not in (found or "")
