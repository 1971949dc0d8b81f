"""The reference of the command line, made from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import typer
from typer.main import get_command

from nyala.infra.cli.app import app

HEAD = """# Commands

`nyala COMMAND --help` shows the same in a terminal. Commands find the cluster by `--masters`, by the variable
`NYALA_MASTERS`, or by the local stack in the current folder.

"""


def commands_page() -> str:
    """A page of all commands, each with its arguments and options, their defaults and variables."""
    return HEAD + "\n".join(_described(typer.Context(get_command(app), info_name="nyala")))


def _described(context: typer.Context) -> Iterator[str]:
    """A section for the command, or for each of its commands if it is a group."""
    commands = getattr(context.command, "commands", {})
    if not commands:
        usage = " ".join([context.command_path, *context.command.collect_usage_pieces(context)])
        yield f"## `{context.command_path}`\n"
        yield f"{_text(context.command.help)}\n"
        yield f"```text\n{usage}\n```\n"
        yield from _parameters(context)
    for name in commands:
        yield from _described(typer.Context(commands[name], info_name=name, parent=context))


def _parameters(context: typer.Context) -> Iterator[str]:
    records = [each.get_help_record(context) for each in context.command.params]
    if any(records):
        yield "| parameter | meaning |\n|---|---|"
        yield from (f"| `{record[0]}` | {_text(record[1])} |" for record in records if record)
        yield ""


def _text(text: str | None) -> str:
    """The text in one line, without marks of HTML."""
    return escape(" ".join((text or "").split()), quote=False)
