"""What the commands print of values that others wrote: always text, never markup and never a control character."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from nyala.infra.bench import report
from nyala.infra.cli import context, stack
from nyala.infra.printing import TextConsole, as_text, cell, line, titled

INFRA = Path(context.__file__).resolve().parents[1]
HOSTILE = "\x1b[31mred\x1b[0m [bold]x[/bold] [/red] :smile: \r\n\u202eabc\x00 \\u001b \U000e0001"
"""Colours of a terminal, rich's markup, an emoji code, ends of lines, a reversed line, NUL, and texts like escapes."""
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def unescaped(shown: str) -> str:
    """Return the string that `as_text` was given."""
    return re.sub(
        r"\\(?:\\|u([0-9a-f]{4})|U([0-9a-f]{8}))", lambda m: chr(int(m[1] or m[2], 16)) if m[1] or m[2] else "\\", shown
    )


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Return what a command prints to a file."""
    out = io.StringIO()
    monkeypatch.setattr(context, "console", TextConsole(file=out, width=context.WIDTH_OF_FILES))
    return out


@given(st.text(st.characters()))
@example(HOSTILE)
@example("\\u001b")
@example("\ue0001")
def test_shown_text_is_printable_and_gives_the_value(value: str) -> None:
    """Goal: two values are never shown alike, and none reaches the terminal. Method: any text, shown and read back."""
    shown = as_text(value)
    assert shown.isprintable() and unescaped(shown) == value


@given(st.text(st.characters(), min_size=1).filter(str.strip))
@example(HOSTILE)
@example("[/red]")
@example("[bold]")
@example("\ufe0f\u0301")
def test_table_shows_any_text_as_text(value: str) -> None:
    """Goal: a stored value cannot break, hide or colour a table. Method: any text as cell, heading and title."""
    out = io.StringIO()
    console = TextConsole(file=out, width=context.WIDTH_OF_FILES)
    console.print(titled(value, context._table([value], [[cell(value)]], whole_words=True)))
    title, _, heading, _, row, _ = out.getvalue().split("\n")[:6]
    shown = as_text(value).rstrip()
    assert title.rstrip() == shown and heading.startswith(f"┃ {shown}") and row.startswith(f"│ {shown}")
    assert not CONTROL.search(out.getvalue())


def test_printed_table_of_rows_shows_markup_and_keeps_our_colours(printed: io.StringIO) -> None:
    """Goal: `[bold]` of a value is shown, and a `Text` is a text of ours. Method: the table of a scan."""
    context.print_table(f"{HOSTILE}: 1 rows", [HOSTILE, ""], [(HOSTILE, cell("alive", "green"))])
    said = printed.getvalue()
    assert said.count(as_text(HOSTILE)) == 3 and "[bold]x[/bold] [/red] :smile:" in said and "│ alive │" in said
    assert not CONTROL.search(said)
    assert isinstance(cell(Text("x")), Text) and cell("alive", "green").style == "green"


def test_title_is_not_folded_to_a_narrow_table(printed: io.StringIO) -> None:
    """Goal: a title is one line. Method: a table of one narrow column."""
    context.print_table("readings: 8 rows", ["id"], [(7,)])
    assert printed.getvalue().splitlines()[0] == "readings: 8 rows"


@pytest.mark.parametrize("make", [TextConsole, Console])
def test_tables_of_the_stack_and_of_the_benchmarks_show_text(make: type[Console]) -> None:
    """Goal: a folder, a reason or a peer with such a name is shown. Method: both tables, also on a plain console."""
    out = io.StringIO()
    console = make(file=out, width=1000)
    child = {
        "name": HOSTILE,
        "state": "READY",
        "address": "a:1",
        "pid": 7,
        "restarts": 0,
        "last_exit": None,
        "uuid": "u",
    }
    console.print(stack.children_table({"folder": HOSTILE, "children": [{**child, "problem": HOSTILE}]}))
    report.show(console, {HOSTILE: [{HOSTILE: 1.0}]}, HOSTILE)
    console.print(line(HOSTILE, (HOSTILE, "red")))
    said = " ".join(out.getvalue().split())  # a caption is folded
    assert said.count("[bold]x[/bold] [/red] :smile:") == 9
    assert not CONTROL.search(out.getvalue())


def test_strings_on_the_console_are_lines_of_text() -> None:
    """Goal: a message with a path or a reason in it interprets nothing. Method: one hostile string, on a terminal."""
    out = io.StringIO()
    TextConsole(file=out, width=1000, force_terminal=True, color_system="truecolor").print(HOSTILE)
    assert "[bold]x[/bold] [/red] :smile:" in out.getvalue() and not CONTROL.search(out.getvalue())


def test_pipe_gets_text_too() -> None:
    """Goal: `| less -R` and scripts get no control character either. Method: the table in a process of its own."""
    code = f"from nyala.infra.cli.context import print_table; print_table('t', ('s',), [({HOSTILE!r},)])"
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"PYTHONIOENCODING": "utf-8"}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout.decode()
    assert as_text(HOSTILE) in out and not CONTROL.search(out)


def test_no_module_writes_markup_or_makes_a_plain_console() -> None:
    """Goal: the class stays closed. Method: the sources of all that prints."""
    markup = re.compile(r"\[/\]|\[(?:bold |)(?:red|green|yellow|bold|dim|cyan|magenta)\]|from_markup|rich\.markup")
    plain = re.compile(r"(?<!Text)\bConsole\(|TextColumn\((?![^)]*markup=False)")
    for path in INFRA.rglob("*.py"):
        source = path.read_text()
        assert not markup.search(source), path
        assert not plain.search(source), path
