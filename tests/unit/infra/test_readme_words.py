"""The commands and names in README and `docs/` exist."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from nyala.infra.cli.app import app
from nyala.jobs import decisions, ingest, placement, rebalance, verify
from nyala.replica.master import __main__ as master_program
from nyala.replica.server import __main__ as server_program
from tests.harness.documents import pages_of_users

ROOT = Path(__file__).parents[3]
PAGES = {str(page.relative_to(ROOT)): page.read_text().replace("\\|", "|") for page in pages_of_users()}
README = "\n".join(PAGES.values())
"""All of README and `docs/`; in a table, a bar within a command has a backslash."""
TARGETS = sorted(set(re.findall(r"\bmake ([a-z-]+)", " ".join(re.findall(r"`[^`]+`|```.*?```", README, re.S)))))


JOBS = {module.__name__.rpartition(".")[2]: module for module in (decisions, ingest, placement, rebalance, verify)}
PROGRAMS: dict[str, Callable[[list[str]], object]] = {
    "nyala.replica.server": server_program.parse,
    "nyala.replica.master": master_program.parse,
}
"""Module -> what reads its command line."""
RUNS = {("server", "run"): "nyala.replica.server", ("master", "run"): "nyala.replica.master"}
"""Command -> the program that gets its options."""


def lines_of(page: str) -> list[str]:
    """Return the lines in a page's blocks that are typed after a prompt, if there is one."""
    return re.findall(
        r"^(?:\$ )?(?:\.venv/bin/)?(nyala [^\n#]*)", "\n".join(re.findall(r"```\w*\n(.*?)```", page, re.S)), re.M
    )


def spans_of(page: str) -> list[str]:
    """Commands in a page's sentences."""
    return re.findall(r"`(?:\.venv/bin/)?(nyala [^`]*)`", re.sub(r"```.*?```", "", page, flags=re.S))


def problem(line: str) -> str | None:
    """Return what is wrong with a line that begins with `nyala`: no such command, or no such option of it or of its
    job."""
    command, words = get_command(app), shlex.split(line.replace("\n", " ").replace("...", ""))[1:]
    own, behind = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    program = RUNS.get(tuple(words[:2]), "")
    job = JOBS.get(own[1]) if own[:1] == ["job"] and len(own) > 1 else None
    if behind and job is None:
        return f"nothing takes {behind[0]!r}"
    while own and (below := getattr(command, "commands", None)):
        name = own.pop(0)
        if name.startswith("-"):
            break
        alternatives = name.split("|")
        if missing := [n for n in alternatives if n not in below]:
            return f"no command {missing[0]!r}"
        command = below[alternatives[0]]
    known = options_of_program(program) if program else set()
    known |= {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    unknown = options_of(" ".join(own)) - known - {"--help"}
    if job is not None:
        unknown |= options_of(" ".join(behind)) - job.options_parser()._option_string_actions.keys()
    return f"no option {sorted(unknown)}" if unknown else None


def options_anywhere() -> set[str]:
    """All options of commands, jobs and server programs."""
    found = {option for job in JOBS.values() for option in job.options_parser()._option_string_actions}
    for module in PROGRAMS:
        found |= options_of_program(module)

    def below(command: Any) -> None:
        for parameter in command.params:
            found.update(parameter.opts, parameter.secondary_opts)
        for each in getattr(command, "commands", {}).values():
            below(each)

    below(get_command(app))
    return found


def options_of(text: str) -> set[str]:
    """Return the words in a command line that look like options."""
    return {word.partition("=")[0] for word in text.split() if re.match(r"--?[a-z]", word)}


def options_of_program(module: str) -> set[str]:
    """Return the options of a server's program, by its help."""
    said = io.StringIO()
    with redirect_stdout(said), pytest.raises(SystemExit):
        PROGRAMS[module](["--help"])
    return set(re.findall(r"--[a-z][a-z0-9-]*", said.getvalue()))


def test_options_that_readme_shows_outside_of_commands_exist() -> None:
    """IN-70. Goal: an option that a sentence advises can be typed. Method: those of the servers' programs against their
    help; those that stand alone in backticks against the options of all commands, jobs and servers."""
    programs = re.findall(r"`python -m (nyala\.\S+) ([^`]*)`", README)
    alone = {option for span in re.findall(r"`(--[^`]*)`", README) for option in options_of(span)}
    assert len(programs) >= 2 and len(alone) >= 10
    assert {(m, o) for m, line in programs for o in options_of(line) - options_of_program(m)} == set()
    assert sorted(alone - options_anywhere()) == []


@pytest.mark.parametrize("page", PAGES)
def test_command_that_readme_names_exists(page: str) -> None:
    """IN-70. Goal: no line of README and `docs/` is refused for its words. Method: each `nyala ...` in it, in blocks
    and in sentences, by its commands and options."""
    lines = {*lines_of(PAGES[page]), *spans_of(PAGES[page])}
    assert {line: why for line in sorted(lines) if (why := problem(line))} == {}


def test_reference_names_every_option_of_the_servers() -> None:
    """IN-70. Goal: an operator finds each option. Method: those of the servers' programs against the reference."""
    for module in PROGRAMS:
        told = set(re.findall(r"--[a-z][a-z0-9-]*", PAGES["docs/reference/README.md"]))
        told |= {f"--no-{option[2:]}" for option in told}  # the page says that a switch has this form, too
        assert sorted(options_of_program(module) - told - {"--help"}) == [], module


def test_readme_has_lines_to_look_at_and_bad_ones_are_seen() -> None:
    """IN-70. Goal: the test above can fail. Method: how much there is to look at; lines with a wrong word."""
    assert len(lines_of(README)) >= 8 and len(spans_of(README)) >= 20 and {"setup", "demo", "test"} <= set(TARGETS)
    assert problem("nyala tabel list") == "no command 'tabel'"
    assert problem("nyala table scan t --wher x") == "no option ['--wher']"
    assert problem("nyala tablet change-config add|remuve") == "no command 'remuve'"
    assert problem("nyala job ingest -- --anything --table t") == "no option ['--anything']"
    assert problem("nyala job ingest -- --table t --checkpoint=c") is None
    assert problem("nyala server run --config f --rot d") == "no option ['--rot']"
    assert problem("nyala table list -- --json") == "nothing takes '--json'"


@pytest.mark.parametrize("target", TARGETS)
def test_target_that_readme_names_exists(target: str) -> None:
    """IN-70. Goal: every `make ...` of the README can be typed. Method: make says what it would do."""
    ended = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
