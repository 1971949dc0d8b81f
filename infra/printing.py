"""Shows values to people: whatever a text holds, a terminal or a pipe gets it as text.

Values come from rows, Kafka and other programs. None of their characters may move a cursor, colour or reverse a line,
end a line, or be taken for rich's markup. So this module's console interprets no markup, and our own colours are
rich's `Text`, made by `cell` and `line`.
"""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from nyala.replica.types.errors import printable


def as_text(value: object) -> str:
    """Return a value as one line of printable characters, from which its text can be told.

    Characters that cannot be printed are escaped as in Python, such as `\\u001b`. A backslash of a string is doubled,
    so that a string that holds an escape looks different from the character itself.
    """
    text = printable(value.replace("\\", "\\\\") if isinstance(value, str) else str(value))
    # Marks that stand on no letter have no width, and a table would drop them.
    return text if cell_len(text) else text.encode("ascii", "backslashreplace").decode()


def cell(value: object, style: str = "") -> Text:
    """Return a value as a cell of a table; a `Text` stays as it is."""
    return value if isinstance(value, Text) else Text(as_text(value), style)


def line(*parts: str | tuple[str, str]) -> Text:
    """Return one line made of texts, or of (text, style), all escaped as a message is: backslashes stay single."""
    return Text.assemble(*((printable(p), "") if isinstance(p, str) else (printable(p[0]), p[1]) for p in parts))


def titled(title: str, table: Table) -> Group:
    """Return a table below its title, which is not folded to the width of the table."""
    return Group(Text(as_text(title), "table.title"), table)


class TextConsole(Console):
    """A console that prints every string as one escaped line, without markup, emoji codes and highlighting."""

    def render_str(self, text: str, *, style: Any = "", justify: Any = None, overflow: Any = None, **_: Any) -> Text:
        """Return the text that is shown for a string, wherever a string is given: printed, in a table, as its title."""
        return Text(printable(text), style=style, justify=justify, overflow=overflow)
