"""The errors of the package for a caller that names no cluster, or uses a part that was not imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import nyala


@pytest.mark.parametrize("given", [None, ""])
def test_connect_without_an_address_says_where_it_looks(given: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-70. Goal: a variable that is not set is one line with the remedy, not a KeyError or a TypeError. Method: none
    and an empty one; with one, its address is asked."""
    monkeypatch.delenv("NYALA_MASTERS", raising=False)
    if given is not None:
        monkeypatch.setenv("NYALA_MASTERS", given)
    with pytest.raises(nyala.NotApplied, match=r"no cluster is named: .* NYALA_MASTERS .*nyala env"):
        nyala.connect()
    monkeypatch.setenv("NYALA_MASTERS", "127.0.0.1:1")
    with pytest.raises(nyala.NotApplied, match=r"127\.0\.0\.1:1"):
        nyala.connect()


def test_pipeline_is_there_without_an_import_of_its_own(tmp_path: Path) -> None:
    """IN-70. Goal: `import nyala; nyala.pipeline.RowPublisher` works as it reads. Method: a new process."""
    look = "import nyala; print(nyala.pipeline.RowPublisher.__name__)"
    ended = subprocess.run([sys.executable, "-c", look], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == "RowPublisher", ended.stderr
