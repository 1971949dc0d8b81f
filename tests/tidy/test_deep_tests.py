"""What `make test` may ask of a machine: Python, Java and make."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
NEEDS_NAMESPACES = re.compile(r"tests\.harness\.(netns|\w+_drive)\b|contained_command")


def test_what_needs_namespaces_is_left_to_the_deep_tests() -> None:
    """Goal: `make test` runs in a container that may not make networks or mounts. Method: each module of real processes
    that uses them is marked deep as a whole."""
    modules = [p for p in sorted((TESTS / "process").glob("test_*.py")) if NEEDS_NAMESPACES.search(p.read_text())]
    unmarked = [
        p.name for p in modules if not re.search(r"^pytestmark = .*\bpytest\.mark\.deep\b", p.read_text(), re.M)
    ]
    assert len(modules) >= 3 and unmarked == []
