"""The documentation site: every page, command and public name is on it, and each fault of a page is told."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from html import unescape
from pathlib import Path

import pytest

import nyala
from nyala.infra.site.__main__ import ROOT, build
from nyala.infra.site.commands import commands_page
from nyala.infra.site.pages import TOPS, navigation, project_pages, public_names, reference_pages
from nyala.replica.types import Applied, Code, RowCode, errors
from tests.unit.infra.test_command_imports import CALLS

HOME = {"README.md": "# Home\n\nSee [the start](docs/start.md#first).\n", "docs/start.md": "# Start\n\n## First\n"}


def words_of(page: Path) -> str:
    return unescape(re.sub(r"<[^>]+>", "", page.read_text()))


def test_every_page_of_the_project_is_on_the_site_once() -> None:
    """Goal: no page is written that a reader of the site cannot reach. Method: the navigation of all pages that git
    would hold below the folders of the site, and of those made from the code."""
    pages = project_pages(ROOT) | reference_pages(public_names())
    places = [place for part in navigation(pages) for inside in part.values() for place in inside]
    assert sorted(places) == sorted(pages.keys() - {"LICENSE"})
    assert {f"{top}/" for top in TOPS} <= {f"{place.partition('/')[0]}/" for place in places}
    assert {"README.md", "docs/start.md", "replica/raft/DESIGN.md", "docs/reference/commands.md"} <= set(places)


def test_page_without_a_place_in_the_navigation_is_refused() -> None:
    """Goal: a new folder of pages is not left out silently. Method: a page outside of all parts."""
    with pytest.raises(ValueError, match=r"no part of the navigation has other/page\.md: add it to SECTIONS"):
        navigation({**HOME, "other/page.md": "# Other"})


def test_reference_has_every_command_with_its_options() -> None:
    """Goal: the reference cannot fall behind the commands. Method: the commands that other tests run, and two options
    with their texts; a bar stands only between cells, and a comparison in a text is no mark of HTML."""
    page = commands_page()
    assert set(re.findall(r"^## `nyala (.*)`$", page, re.M)) == set(CALLS)
    assert "| `--detach` | leave the stack running and return |" in page
    assert "NYALA_DIR" in page
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert {row.count("|") for row in rows} == {3}
    assert "1&lt;=x&lt;=100" in page and "<" not in re.sub(r"`[^`]*`", "", page)


@pytest.mark.parametrize("kind", [Code, RowCode, Applied])
def test_every_code_says_what_it_means(kind: type) -> None:
    """Goal: the page of all error codes explains each. Method: the text below each member in the source."""
    [found] = [
        node
        for node in ast.parse(inspect.getsource(errors)).body
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    ]
    explained = {
        member.targets[0].id
        for member, text in zip(found.body, found.body[1:], strict=False)
        if isinstance(member, ast.Assign) and isinstance(member.targets[0], ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }
    assert explained == set(kind.__members__)  # type: ignore[attr-defined]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ("", ""),
        ("[gone](docs/gone.md)", "docs/gone.md"),
        ("[gone](docs/start.md#gone)", "#gone"),
        ("[code](replica/raft/core.py)", "replica/raft/core.py"),
    ],
)
def test_link_that_leads_nowhere_is_told(tmp_path: Path, page: str, fault: str) -> None:
    """Goal: a site with a dead link does not pass. Method: a site of two pages, as it is and with links to a page, a
    heading and a file that it does not have."""
    pages: Mapping[str, str] = {**HOME, "README.md": HOME["README.md"] + page}
    told = build(pages, tmp_path / "site")
    assert [fault in text for text in told] == [True] * bool(fault)
    assert "See the start" in words_of(tmp_path / "site" / "index.html")


@pytest.mark.deep
def test_site_of_this_project_has_no_fault(tmp_path: Path) -> None:
    """Goal: `make docs` ends without a warning, and its reference shows what the code says. Method: the whole site;
    the public names with a parameter's text, a limit, and a code."""
    site = tmp_path / "site"
    assert build(project_pages(ROOT) | reference_pages(public_names()), site) == []
    reference = site / "docs" / "reference"
    python, codes = words_of(reference / "python.html"), words_of(reference / "errors.html")
    assert [name for name in public_names() if name not in python and name not in codes] == []
    assert str(nyala.Cluster.create_table.__doc__).partition(".")[0] in python
    assert "ROW_SIZE_BYTES_MAX = 1 << 20" in words_of(reference / "limits.html")
    assert "HISTORY_GONE = 24" in codes
