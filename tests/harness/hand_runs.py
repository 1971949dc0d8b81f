"""The record of runs that nothing starts by itself: each command appends one row to `tests/RUNS.md`."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from nyala.infra.bench.machine import machine

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tests" / "RUNS.md"
ROWS_MAX = 40
"""The rows that the page keeps. The oldest row of the command that has most rows is removed first."""
RESULT_CHARS_MAX = 300
_RULE = "|---|---|---|---|---|"


def machine_of_run() -> str:
    """Return the cores, the memory, the system and the Python of this machine, without its name."""
    facts = machine()
    gigabytes, system = facts["memory_mb"] * (1 << 20) / 1e9, facts["kernel"].partition(" ")[0]
    return f"{facts['cores']} cores, {gigabytes:.0f} GB, {system}, Python {facts['python']}"


def commit() -> str:
    """Return the commit of the working tree, with `+` if files differ from it; `unknown` without git."""
    try:
        asked = {"cwd": ROOT, "capture_output": True, "text": True, "check": True}
        head = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], **asked).stdout.strip()  # type: ignore[call-overload]
        changed = subprocess.run(["git", "status", "--porcelain"], **asked).stdout.strip()  # type: ignore[call-overload]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def add_option(parser: argparse.ArgumentParser) -> None:
    """Give a command the option that records its run."""
    parser.add_argument("--record", action="store_true", help="append a row about this run to tests/RUNS.md")


def command_line(module: str, words: Sequence[str] | None = None) -> str:
    """Return the command as it is typed, without the option that records it."""
    given = sys.argv[1:] if words is None else words
    return shlex.join(["python", "-m", module, *(word for word in given if word != "--record")])


def record(command: str, result: str, *, page: Path = PAGE) -> str:
    """Append a row about a run that has just ended to the page, and return the row. ValueError if the page has no
    table of runs."""
    cells = (
        time.strftime("%Y-%m-%d", time.gmtime()),
        commit(),
        machine_of_run(),
        f"`{command}`",
        result[:RESULT_CHARS_MAX],
    )
    row = "| " + " | ".join(" ".join(cell.split()).replace("|", "/") for cell in cells) + " |"
    lines = page.read_text().splitlines()
    begin = lines.index(_RULE) + 1
    end = next((pos for pos in range(begin, len(lines)) if not lines[pos].startswith("|")), len(lines))
    rows = [*lines[begin:end], row]
    while len(rows) > ROWS_MAX:
        kinds = [kind_of(each) for each in rows]
        most = max(kinds, key=kinds.count)
        del rows[kinds.index(most)]
    page.write_text("\n".join([*lines[:begin], *rows, *lines[end:]]) + "\n")
    return row


def kind_of(row: str) -> str:
    """Return the command of a row without its options, such as `python -m tests.soak`."""
    command = row.split("|")[4].strip().strip("`")
    return " ".join(command.split()[:3]) + (" --real" if "--real" in command.split() else "")
