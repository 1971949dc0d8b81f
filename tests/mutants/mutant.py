"""A mutant: a change of source that breaks one proven behaviour, and the test that must notice."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from pkgutil import iter_modules

ROOT = Path(__file__).resolve().parents[2]
REAL = ("tests/process/", "tests/e2e/", "tests/spark/")
"""Tests that start processes, which import the code themselves."""


class Stale(Exception):
    """The source has moved on: a row's text does not occur exactly once where it says."""


@dataclass(frozen=True, kw_only=True)
class Edit:
    """`before` stands exactly once in `function` of `file`, or in all of `file` if `function` is empty.

    A text without a newline is a piece of a line. Texts in triple quotes are whole lines; how far both are indented
    together says nothing.
    """

    file: str
    function: str = ""
    """`name`, `Class.name` or `outer.inner`."""
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Mutant(Edit):
    """A row of a table. It is caught if one of its tests fails under it."""

    name: str
    """What is broken."""
    rows: str = ""
    """Requirements that it breaks, ids of `tests/requirements.md`."""
    test: str
    """Ids of tests, separated by spaces."""
    more: tuple[Edit, ...] = ()
    """Further places that change together with the first."""
    on_disk: bool = False
    """The test reads the source, or runs it in a process of its own."""

    @property
    def tests(self) -> list[str]:
        """Ids of tests, each once."""
        return self.test.split()

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All places that it changes."""
        return (self, *self.more)

    @property
    def needs_a_copy(self) -> bool:
        """It is applied to a copy of the project, because an import hook in the test's process is not enough."""
        return (
            self.on_disk
            or any(not edit.file.endswith(".py") for edit in self.edits)
            or any(test.startswith(REAL) for test in self.tests)
        )


def all_mutants() -> list[Mutant]:
    """The rows of all tables of this package, in their order."""
    names = sorted(module.name for module in iter_modules([str(Path(__file__).parent)]))
    tables = [import_module(f"tests.mutants.{n}") for n in names if n != "__main__" and not n.startswith("test_")]
    return [mutant for table in tables for mutant in getattr(table, "MUTANTS", ())]


@cache
def source_of(file: str) -> str:
    """The source as it is, without any mutant."""
    return (ROOT / file).read_text()


def first_line(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """Of a definition, from 1, decorators included: as in its code object."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


@cache
def functions_of(source: str) -> Mapping[str, list[tuple[int, int]]]:
    """First and last line, from 1 and with decorators, of each function and class, by qualified name.

    Several stand under one name if it is defined again, as a property's setter is.
    """
    found: dict[str, list[tuple[int, int]]] = {}

    def visit(node: ast.AST, path: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{path}.{child.name}" if path else child.name
                first = first_line(child)
                found.setdefault(name, []).append((first, child.end_lineno or first))
                visit(child, name)
            elif not isinstance(child, ast.expr):
                visit(child, path)

    visit(ast.parse(source), "")
    return found


def pieces(source: str, function: str) -> list[tuple[int, int]]:
    """Beginnings and ends, as positions in the text, of what `function` stands for."""
    if not function:
        return [(0, len(source))]
    starts = _line_starts(source)
    return [(starts[first - 1], starts[last]) for first, last in functions_of(source).get(function, [])]


@cache
def _line_starts(source: str) -> list[int]:
    return [0, *accumulate(len(line) + 1 for line in source.split("\n"))]


def _lines(text: str) -> list[str]:
    """Of a text in triple quotes: without the empty first and last line."""
    lines = text.split("\n")
    return lines[not lines[0].strip() : len(lines) - (not lines[-1].strip())]


def _whole_lines(before: str, after: str) -> tuple[re.Pattern[str], str]:
    """What to look for, and what to put there, both without the common indentation, which is found as `indent`."""
    old, new = _lines(before), _lines(after)
    margin = min(len(line) - len(line.lstrip(" ")) for line in old + new if line.strip())
    found = [f"(?P=indent){re.escape(line[margin:])}" if line.strip() else "" for line in old]
    found[0] = f"^(?P<indent> *){re.escape(old[0][margin:])}"
    pattern = re.compile("".join(f"{line}\n" for line in found), re.MULTILINE)
    return pattern, "".join(f"{line[margin:]}\n" if line.strip() else "\n" for line in new)


def places(source: str, edit: Edit) -> list[tuple[int, int, str]]:
    """Where the text before stands within its function: beginning, end, and what would stand there instead."""
    found = []
    for begin, end in pieces(source, edit.function):
        if "\n" in edit.before:
            pattern, new = _whole_lines(edit.before, edit.after)
            found += [
                (match.start(), match.end(), textwrap.indent(new, match["indent"]))
                for match in pattern.finditer(source, begin, end)
            ]
        else:
            at = source.find(edit.before, begin, end)
            while at >= 0:
                found.append((at, at + len(edit.before), edit.after))
                at = source.find(edit.before, at + 1, end)
    return found


def changed(source: str, edit: Edit) -> str:
    """The source with one edit; raises Stale if its text does not stand there exactly once."""
    found = places(source, edit)
    if len(found) != 1:
        where = edit.function or "all of it"
        known = not edit.function or edit.function in functions_of(source)
        why = f"stands there {len(found)} times" if known else "is looked for where nothing has that name"
        raise Stale(f"{edit.file}, {where}: the text before {why}, not once: {edit.before.strip()!r}")
    [(begin, end, new)] = found
    return source[:begin] + new + source[end:]


def mutated(mutant: Mutant) -> dict[str, str]:
    """File -> its source under this mutant; raises Stale."""
    sources: dict[str, str] = {}
    for edit in mutant.edits:
        source = sources.get(edit.file, source_of(edit.file))
        sources[edit.file] = changed(source, edit)
        if sources[edit.file] == source:
            raise Stale(f"{edit.file}: the text after is the text before")
    return sources
