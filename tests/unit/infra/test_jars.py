"""Jars that cannot be downloaded: one line with the reason and the remedy, and nothing half-made stays in the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from nyala.infra import jars
from tests.unit.infra.test_make import program

UNKNOWN_HOST = (
    "Server access error at url https://repository.example/a/ (java.net.UnknownHostException: repository.example)"
)
NOT_FOUND = """
:: problems summary ::
:::: WARNINGS
                ::::::::::::::::::::::::::::::::::::::::::::::
                ::          UNRESOLVED DEPENDENCIES         ::
                :: org.apache.kafka#kafka_2.13;9.9.9: not found
"""


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (UNKNOWN_HOST, "no network: .*connect, then try again"),
        ("java.net.ConnectException: Connection refused", "no network: .*connect, then try again"),
        ("java.net.SocketTimeoutException: Read timed out", "no network: .*connect, then try again"),
        (
            f"java.io.IOException: No space left on device\n{UNKNOWN_HOST}",
            "no space left .*NYALA_CACHE to another disk",
        ),
        (NOT_FOUND, "the jar repository has no org.apache.kafka#kafka_2.13;9.9.9; see"),
        ("Exception in thread main", "Ivy could not resolve the jars; see"),
        ("", "Ivy could not resolve the jars; see"),
    ],
)
def test_each_way_to_fail_has_a_line_of_its_own(
    output: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: a missing network, a full disk and a missing jar have different one-line errors, each with the remedy or
    the log. Method: a Java that says what Ivy says then, and fails; the whole command, and what is left in the
    cache."""
    (tmp_path / "said").write_text(output)
    ivy = f'if [ "$1" = -version ]; then echo \'openjdk version "17.0.1"\' >&2; else cat {tmp_path}/said; exit 1; fi'
    program(tmp_path / "java" / "bin" / "java", ivy)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("NYALA_CACHE", str(tmp_path / "cache"))
    with pytest.raises(jars.JarsMissing, match=f"^{says}"):
        jars.resolve()
    assert jars.main() == 1
    told = capsys.readouterr()
    assert told.out == f"nyala: fetching the jars of Kafka and Spark, 55 MB, into {tmp_path}/cache/jars\n"
    (line,) = told.err.splitlines()
    assert line.startswith("nyala: ") and str(tmp_path / "cache") in line
    assert (tmp_path / "cache" / "ivy.log").read_text() == output
    assert {path.name for path in (tmp_path / "cache" / "jars").iterdir()} == {".lock"}


def test_cache_in_a_place_that_is_none_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: an impossible cache folder is refused in one line. Method: one below a file."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NYALA_CACHE", str(tmp_path / "file"))
    with pytest.raises(jars.JarsMissing, match=r"^cannot write jars below .*: Not a directory; let NYALA_CACHE name"):
        jars.resolve()


@pytest.mark.parametrize(("said", "status"), [("No space left on device", 1), ("", 0)])
def test_full_disk_is_told_though_nothing_can_be_written(
    said: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a full disk is reported even if the log cannot be written either. Method: a log and a marker that are
    /dev/full, and a Java that fails, or leaves what it was asked for."""
    cache = tmp_path / "cache"
    (cache / "jars").mkdir(parents=True)
    (cache / "ivy.log").symlink_to("/dev/full")
    (cache / "jars" / ".resolved").symlink_to("/dev/full")
    made = " && ".join(
        f"mkdir -p {cache}/jars/.new/{kind} && touch {cache}/jars/.new/{kind}/a.jar" for kind in jars.KINDS
    )
    java = f"echo 'openjdk version \"17.0.1\"' >&2; test $1 = -version && exit; {made}; echo '{said}'; exit {status}"
    program(tmp_path / "java" / "bin" / "java", java)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("NYALA_CACHE", str(cache))
    monkeypatch.setattr(jars, "_is_current", lambda: False)
    with pytest.raises(jars.JarsMissing, match=rf"^no space left while downloading jars to {cache}: .*NYALA_CACHE"):
        jars.resolve()
