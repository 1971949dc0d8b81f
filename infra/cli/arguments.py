"""Checks the numbers and texts on a command line, and ends interrupted commands in one line: for every command."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import typer

from nyala.replica.types import Refused, limits

from .interrupted import changes, words

P = ParamSpec("P")
T = TypeVar("T")


def problem_of(value: object) -> str:
    """The reason why no command accepts this value; empty if it may be used."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is no number to count with"
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) > limits.NUMBER_MAX:
        return f"a number of {int(math.log10(abs(value))) + 1} digits is out of range"
    if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
        return f"{ascii(value)[:80]} is no text in UTF-8"
    if isinstance(value, list | tuple):
        return next(filter(None, map(problem_of, value)), "")
    return ""


def check_arguments(command: Any, path: str) -> None:
    """Make a command, and all its subcommands, refuse such values as wrong parameters before they do anything, and say
    what was done when they are interrupted. `path`: what is typed for the command."""
    command.make_context = _naming_values(command.make_context)
    if command.callback is not None:
        command.callback = _checked(command.callback, path)
    for name, below in getattr(command, "commands", {}).items():
        check_arguments(below, f"{path} {name}")


_OF_LIBRARY = "Input should be "
"""The beginning of the words in which the library of the command line refuses a value, without naming it."""


def named(words: str, value: object) -> str:
    """These words with the refused value in them, in at most 80 characters. Pure."""
    if not words.startswith(_OF_LIBRARY):
        return words
    what, _, _ = words.removeprefix(_OF_LIBRARY).partition(", unable to parse")
    return f"{repr(value)[:80]} should be {what}"


def _naming_values(make_context: Callable[P, T]) -> Callable[P, T]:
    @wraps(make_context)
    def make(*given: P.args, **options: P.kwargs) -> T:
        try:
            return make_context(*given, **options)
        except typer.BadParameter as error:
            if (of_library := getattr(error.__cause__, "errors", None)) is not None:
                error.message = named(error.message, of_library()[0]["input"])
            raise

    return make


def _checked(callback: Callable[..., Any], path: str) -> Callable[..., Any]:
    @wraps(callback)
    def run(*context: Any, **given: Any) -> Any:
        for name, value in given.items():
            if problem := problem_of(value):
                raise typer.BadParameter(problem, param_hint=name.replace("_", "-"))
        try:
            with suppress(ValueError):  # not the main thread, which alone gets signals
                signal.signal(signal.SIGINT, signal.default_int_handler)
            return callback(*context, **given)
        except Refused as error:
            error.only_read = not changes(path)
            raise
        except KeyboardInterrupt as stop:
            typer.echo(words(path, stop), err=True)
            raise typer.Exit(130) from stop

    return run
