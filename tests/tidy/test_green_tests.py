"""The record of tests that passed says so of no other test, and of no other sources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.green_tests import Green, digest_of_sources, known_green

A, B = "tests/a.py::test_a", "tests/a.py::test_b"


def test_tests_that_failed_were_left_out_or_took_long_are_not_known() -> None:
    """Goal: a mutant's test is taken for green only if each of its cases passed, within the time that a mutant's run
    gives to one wait. Method: runs of parts, in both orders; a case that failed, was left out, or took long."""
    first = Green().with_run("d", {f"{A}[1]": 1.0}, [f"{A}[2]", B], [])
    assert not first.has(A, 5) and not first.has(B, 5) and first.has(f"{A}[1]", 5) and not first.has(f"{A}[1]", 1)
    both = first.with_run("d", {f"{A}[2]": 2.0, B: 9.0}, [f"{A}[1]"], [])
    assert both.has(A, 5) and not both.has(B, 5) and both.has(B, 10)
    assert both.has("tests/a.py", 10) and not both.has("tests/a.py", 5)
    assert not both.has("tests/a.py::test", 10) and not both.has("tests/b.py", 10)
    failed = both.with_run("d", {}, [], [B]).with_run("d", {B: 1.0}, [], [])
    assert not failed.has("tests/a.py", 10)
    assert not both.with_run("e", {}, [], []).has(A, 5)


@pytest.mark.deep
def test_record_is_of_the_sources_as_they_are(tmp_path: Path) -> None:
    """Goal: a record of other sources is worth nothing. Method: a project with a test that passes, one that fails and
    one that is left out, run in two processes; then a file is added, changed, renamed; and a broken record."""
    (tmp_path / "tests").mkdir()
    (tmp_path / ".gitignore").write_text(".cache/\n__pycache__/\n")
    (tmp_path / "conftest.py").write_text(
        "from pathlib import Path\n"
        "from tests.harness import green_tests\n"
        "green_tests.ROOT = Path(__file__).parent\n"
        "green_tests.digest_of_sources.__defaults__ = (green_tests.ROOT,)\n"
        "def pytest_configure(config):\n"
        "    kept = green_tests.GreenTests(config, green_tests.ROOT / '.cache' / 'record')\n"
        "    config.pluginmanager.register(kept)\n"
    )
    (tmp_path / "test_x.py").write_text("def test_good(): pass\ndef test_bad(): assert False\ndef test_other(): pass\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    options = ["-q", "-n", "2", "-k", "not other", "-p", "no:cacheprovider"]
    root = str(Path(__file__).resolve().parents[2])
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={"PYTHONPATH": root, "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert ended.returncode == 1, ended.stdout + ended.stderr
    record = tmp_path / ".cache" / "record"
    known = known_green(record, tmp_path)
    assert [known.has(f"test_x.py::test_{name}", 5) for name in ("good", "bad", "other")] == [True, False, False]
    (tmp_path / "a.py").write_text("1")
    digests = {digest_of_sources(tmp_path), known.digest}
    (tmp_path / "a.py").write_text("2")
    digests.add(digest_of_sources(tmp_path))
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    digests.add(digest_of_sources(tmp_path))
    assert len(digests) == 4 and known_green(record, tmp_path) == Green()
    (tmp_path / "b.py").unlink()
    assert known_green(record, tmp_path) == known
    record.write_text("[")
    assert known_green(record, tmp_path) == Green() == known_green(tmp_path / "gone", tmp_path)
