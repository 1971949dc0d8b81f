"""The project's pages: their fenced blocks, and the test that runs each of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "schemas", "replica", "pipeline", "jobs", "infra", "tests")
_FENCE = re.compile(
    r"^(?:<!-- run by: (?P<by>\S+) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A fenced block. `run_by`: the test or script that the comment above it names; empty if there is none."""

    page: str
    kind: str
    text: str
    run_by: str

    @property
    def commands(self) -> list[str]:
        """Return the lines that a user types: all of a shell block, those after `$` in a console."""
        lines = [line.partition("  #")[0].strip() for line in self.text.splitlines()]
        if self.kind == "console":
            return [line[2:] for line in lines if line.startswith("$ ")]
        return [line for line in lines if line and not line.startswith("#")] if self.kind == "shell" else []


def pages() -> list[Path]:
    """Return every Markdown file of the project."""
    below = (page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))
    return sorted([*ROOT.glob("*.md"), *below])


def pages_of_users() -> list[Path]:
    """Return README, and everything in `docs/`."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """Yield all fenced blocks of a page, in their order."""
    for found in _FENCE.finditer(page.read_text()):
        yield Block(str(page.relative_to(ROOT)), found["kind"], found["text"], found["by"] or "")


def walk_through() -> list[Block]:
    """Return the blocks that `tests/e2e/test_readme.py` runs: shell and Python blocks for which no other runner is
    named."""
    found = (block for page in pages_of_users() for block in blocks(page))
    return [block for block in found if block.kind in ("shell", "python") and not block.run_by]


def script_of(found: Iterable[Block]) -> str:
    """All shell and Python blocks as one shell script, which ends at the first line that fails."""
    parts = ["set -euo pipefail"]
    for block in found:
        if block.kind == "shell":
            parts.append(block.text)
        elif block.kind == "python":
            parts.append(f"python - <<'END_OF_PYTHON'\n{block.text}END_OF_PYTHON\n")
    return "\n".join(parts)
