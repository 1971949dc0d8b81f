"""The example beside the core is run as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[3] / "replica" / "raft" / "EXAMPLE.md"
HEAVY = ("grpc", "pyarrow", "pyspark", "polars", "kafka")


def test_example_of_a_replicated_counter_runs_and_needs_nothing_heavy(tmp_path: Path) -> None:
    """Goal: core and log are of use alone. Method: run the text's code with another interpreter; it prints both lives,
    is under 65 lines, empty ones counted, and none of the heavy libraries was loaded."""
    code = EXAMPLE.read_text().split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) < 65
    code += f"\nprint([name for name in {HEAVY!r} if name in sys.modules])\n"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "life 1: every replica counts 10",
        "life 2: every replica counts 30",
        "[]",
    ]
