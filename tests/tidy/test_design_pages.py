"""Each folder has a DESIGN.md, which states what the folder is for, what was refused, and what each module does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.test_layers import ALLOWED, ROOT, package_of

FOLDERS = sorted(name.replace(".", "/") for name in ALLOWED if (ROOT / name.replace(".", "/")).is_dir())
MODULE = re.compile(r"`([\w/]+\.py)`")


CRASH = "## What happens on a crash or a fault"
HEADINGS = (CRASH, "## Alternatives refused", "## Modules", "| Module | What it does |")
"""The headings of every page, in this order and in these words, so that a reader finds them on the next page too."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_has_a_design_page(folder: str) -> None:
    """Goal: a reader who opens a folder first reads why it is as it is. Method: the file, and the headings that all
    pages share."""
    assert [line for line in page_of(folder).splitlines() if line in HEADINGS] == list(HEADINGS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_design_page_lists_every_module_of_its_folder(folder: str) -> None:
    """Goal: a reader who looks for something finds its module on one page, with a line on what it does. Method: the
    modules that stand alone in the first cell of a table's row, and have text beside them, are those of the folder."""
    there = {
        path.relative_to(ROOT / folder).as_posix()
        for path in (ROOT / folder).rglob("*.py")
        if package_of(path).replace(".", "/") == folder
    }
    assert listed(page_of(folder)) == there


@pytest.mark.parametrize("folder", FOLDERS)
def test_modules_of_a_folder_are_listed_in_alphabetical_order(folder: str) -> None:
    """Goal: a module is found without reading the whole table. Method: in the section on modules those of one folder
    follow one another, by name."""
    names = in_order(page_of(folder).partition("## Modules")[2])
    folders = list(dict.fromkeys(name.rpartition("/")[0] for name in names))
    assert names == [name for inner in folders for name in sorted(n for n in names if n.rpartition("/")[0] == inner)]


def test_modules_that_a_page_does_not_list_are_seen() -> None:
    """Goal: the test above can fail. Method: rows with a module, with several, with other things, and with no text."""
    page = "| `a.py` | it |\n| `b.py`, `c/d.py` | both |\n| `e.py` of it | no |\n| `f.py` | |\n`g.py` is no row"
    assert listed(page) == {"a.py", "b.py", "c/d.py"}


def page_of(folder: str) -> str:
    """Return the text of a folder's design page."""
    return Path(ROOT / folder / "DESIGN.md").read_text()


def listed(page: str) -> set[str]:
    """Return the modules that have a row with text in one of the page's tables."""
    return set(in_order(page))


def in_order(page: str) -> list[str]:
    """Return the same modules in the page's order."""
    found: list[str] = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]] if line.startswith("|") else []
        if len(cells) > 1 and not MODULE.sub("", cells[0]).strip(", ") and any(cells[1:]):
            found += MODULE.findall(cells[0])
    return found
