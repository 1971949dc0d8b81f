"""The command line loads the requested command only, and lists all there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from nyala.infra.cli.app import COMMANDS, JOINED, app

LOOK = """
import sys
from typer.testing import CliRunner
from nyala.infra.cli.app import app
result = CliRunner().invoke(app, ["status", "--help"])
assert result.exit_code == 0, result.output
print(*sorted(name for name in sys.modules if name.startswith("nyala.infra.cli.")))
"""


def test_each_command_is_loaded_by_its_name_and_says_what_it_is_for() -> None:
    """Goal: nothing that the help names is missing. Method: the help of each command and of each that another module
    adds; every module of commands belongs to one of them."""
    assert JOINED.keys() <= COMMANDS.keys()
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for name in COMMANDS:
        assert commands[name].name == name and commands[name].help, name
    lines = [[name] for name in COMMANDS] + [[name, part] for name, parts in JOINED.items() for part in parts]
    for line in lines:
        result = CliRunner().invoke(app, [*line, "--help"])
        assert result.exit_code == 0 and f"nyala {' '.join(line)}" in " ".join(result.output.split()), (line, result)
    with pytest.raises(KeyError):
        commands["tabel"]
    assert "Did you mean 'table', 'tablet'?" in CliRunner().invoke(app, ["tabel"]).output


def test_command_leaves_the_modules_of_others_alone(tmp_path: Path) -> None:
    """Goal: a command starts quickly. Method: which modules of commands a new process has after the help of one."""
    run = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    assert run.stdout.split() == [
        f"nyala.infra.cli.{name}" for name in ("app", "arguments", "context", "interrupted", "stack")
    ]
