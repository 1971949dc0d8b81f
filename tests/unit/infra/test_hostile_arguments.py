"""Numbers and texts that no command can mean, on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from nyala.infra.cli.app import COMMANDS, _command, app
from nyala.infra.cli.arguments import problem_of
from nyala.replica.types import limits

FIRST = {float: float("nan"), int: 2**70, str: "\udcff", list: ["a", "\udc00"]}
NOWHERE = ["--masters", "127.0.0.1:1"]


def leaves(command: Any) -> Iterator[Any]:
    below = getattr(command, "commands", {})
    if not below:
        yield command
    for one in below.values():
        yield from leaves(one)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_looks_at_its_arguments_before_it_does_anything(name: str) -> None:
    """IN-82. Goal: NaN, numbers that fit nowhere and bytes that are no text are a wrong parameter, not a traceback, at
    every command that there is. Method: what every command runs, with one such argument of each type; it is refused
    before the command finds that all others are missing."""
    found = list(leaves(_command(name)))
    assert found
    for command in found:
        for value in FIRST.values():
            with pytest.raises(Exception) as caught:  # click's own, or Typer's
                command.callback(anything=value)
            assert type(caught.value).__name__ == "BadParameter", (command.name, caught.value)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -1e300, limits.NUMBER_MAX + 1, -(2**70), 10**5000, "a\udcff", ["a", "\udc00"]],
    ids=range(8),
)
def test_value_that_cannot_be_is_told_in_a_line(value: object) -> None:
    """IN-82. Goal: the line is short and printable. Method: each kind, and values that may be."""
    assert problem_of(value).isprintable() and 0 < len(problem_of(value)) < 120
    for good in (0, -5, limits.NUMBER_MAX, 0.5, True, None, "", "\u0442", ["a"], b"x"):
        assert problem_of(good) == ""


@pytest.mark.parametrize(
    "line",
    [
        ["table", "create", "t", "-c", "id:int64", "-k", "id", "--replicas", str(2**70), *NOWHERE],
        ["table", "create", "t", "-c", "id:int64", "-k", "id", "--replicas", "9" * 5000, *NOWHERE],
        ["table", "scan", "t", "--staleness", "nan", *NOWHERE],
        ["table", "describe", "\udcff", *NOWHERE],
        ["cluster", "check", "--wait", "nan", *NOWHERE],
    ],
    ids=lambda line: " ".join(line[:2]),
)
def test_command_with_a_hostile_argument_ends_with_a_line_that_says_so(line: list[str]) -> None:
    """IN-82. Goal: the user reads what is wrong. Method: whole commands, without a cluster."""
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 2 and "Invalid value" in result.output, result.output


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["bench", "load", "--rounds", "x"], "'x' should be a valid integer"),
        (["bench", "load", "--rounds", "0"], "'0' should be greater than or equal to 1"),
        (["table", "scan", "t", "--limit", "1.5"], "'1.5' should be a valid integer"),
        (["table", "scan", "t", "--staleness", "soon"], "'soon' should be a valid number"),
        (["table", "scan", "t", "--limit", "\udcff" * 2000], f"'{(chr(92) + 'udcff') * 2000}"[:80]),
    ],
    ids=lambda line: " ".join(line[:3]) if isinstance(line, list) else "",
)
def test_option_that_is_no_number_is_told_with_its_value(line: list[str], told: str) -> None:
    """IN-82. Goal: the user reads which value was wrong, and why. Method: whole commands, without a cluster; their
    words, without the frame around them."""
    result = CliRunner().invoke(app, line)
    words = " ".join(result.output.replace("│", " ").split())
    assert result.exit_code == 2 and told in words.replace(" ", "") + words, result.output
