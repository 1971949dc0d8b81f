"""The README's walk-through, line by line, on a stack of its own and with nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(shell|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A folder as a fresh checkout after `make setup`; its stack is ended, whatever happened."""
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    yield tmp_path
    subprocess.run([tmp_path / ".venv/bin/nyala", "down"], cwd=tmp_path, capture_output=True, timeout=300, check=False)
    shutil.rmtree(tmp_path / ".nyala", ignore_errors=True)


def script() -> str:
    """All shell and Python blocks of the README as one shell script that ends at the first line that fails."""
    parts = ["set -euo pipefail"]
    for kind, text in BLOCK.findall((ROOT / "README.md").read_text()):
        parts.append(text if kind == "shell" else f"python - <<'END_OF_PYTHON'\n{text}END_OF_PYTHON\n")
    return "\n".join(parts)


def test_readme_walk_through_works_as_it_stands(checkout: Path) -> None:
    """Goal: who has never seen Nyala gets rows from Python and from Kafka. Method: the README's blocks in order."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NYALA_") or k == "NYALA_CACHE"}
    command = ["bash", "-c", script()]
    ran = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=1500, check=False
    )
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said
    assert "fed by topic writes.readings, 4 partitions" in said
    from_python, from_kafka = re.findall(r"^│ 1 +[│┆].*?([\d.]+) *│$", said, re.MULTILINE)
    assert (from_python, from_kafka) == ("20.5", "21.5"), said
    assert "19.0" not in said, "its value is below 20"
    done = re.findall(r"^│ readings +│ writes.readings +│ \d +│ 1 +│ 0 +│ (\d) +│", said, re.MULTILINE)
    assert len(done) == 4 and sum(map(int, done)) == 2, said
    assert "all replicas of a tablet hold the same rows" in said
