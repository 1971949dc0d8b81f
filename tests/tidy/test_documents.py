"""The pages hold together: links lead somewhere, and every command that is shown is run by something."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.harness.documents import ROOT, blocks, pages, pages_of_users
from tests.tidy.test_layers import source_files

LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
SECTION = re.compile(
    r"(?:\]\((?P<link>[^)\s#]+\.md)\)|`(?P<name>[\w/]*DESIGN\.md)`|(?P<bare>\bDESIGN\.md)),? \(?"
    r"\"(?P<title>[^\"]+)\""
)
"""A page, and behind it a section's title in quotation marks."""
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|avsc|proto|xml|txt))(?:::\w+)?`")
"""A file with its folder, in backticks."""
KINDS = {"shell", "python", "console", "text", "toml", "mermaid"}
LINES_MAX = 60


def test_links_between_pages_lead_to_files() -> None:
    """IN-70. Goal: a reader who follows a link arrives. Method: every relative link of every page."""
    dead = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages()
        for target in LINK.findall(
            re.sub(r"```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        )
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert dead == []


def test_files_that_pages_name_exist() -> None:
    """Goal: after a rename no page sends its readers to a file that is gone. Method: every path in backticks, with its
    folder, from the page's own one, the root or `replica`; the CHANGELOG alone may name what was."""
    named = [(page, path) for page in pages() if page.name != "CHANGELOG.md" for path in PATH.findall(page.read_text())]
    assert len(named) > 200
    assert [f"{page.relative_to(ROOT)}: {path}" for page, path in named if not is_file(page.parent, path)] == []
    assert not is_file(ROOT / "replica" / "wal", "base/limits.py") and PATH.findall("`a/b.py` `c.py`") == ["a/b.py"]


def test_pages_have_no_marks_of_a_merge() -> None:
    """Goal: no page shows both sides of a merge. Method: lines that begin as git's marks do, on every page."""
    marks = re.compile(r"^(?:<{7}|>{7}|={7}$)", re.MULTILINE)
    assert marks.search("<<<<<<< HEAD\n") and marks.search("a\n=======\n")
    assert [str(page.relative_to(ROOT)) for page in pages() if marks.search(page.read_text())] == []


def test_sections_that_are_quoted_stand_on_their_pages() -> None:
    """Goal: a reader who is sent to a section finds it. Method: titles in quotation marks behind a page's name, in
    pages and sources, are headings there, or begin a paragraph in bold."""
    quoted = [(path, *each) for path in (*pages(), *source_files()) for each in sections_quoted(path.read_text())]
    assert len(quoted) >= 10
    assert [f"{path.relative_to(ROOT)}: {each}" for path, *each in quoted if not has_section(path, *each)] == []


def test_messages_of_diagrams_hold_no_semicolon() -> None:
    """Goal: every sequence diagram is drawn. Method: Mermaid ends a statement at a semicolon, so no message has one."""
    messages = [
        f"{page.relative_to(ROOT)}: {line.strip()}"
        for page in pages()
        for line in re.findall(r"^\s+\w+-{1,2}(?:>>|x|\))\w+: .*$", page.read_text(), flags=re.MULTILINE)
    ]
    assert len(messages) > 100 and [each for each in messages if ";" in each] == []


def test_what_runs_a_block_exists_and_has_its_commands() -> None:
    """Goal: no page shows a command that nothing runs. Method: each block of README and `docs/` has a kind; a console,
    and a block that the walk-through leaves out, names a script or test above it. A script has each line; a test's
    module and the harness that it imports have the words of each `nyala` command, in order, and its options, unless it
    runs the blocks themselves."""
    named = 0
    for block in (block for page in pages_of_users() for block in blocks(page)):
        assert block.kind in KINDS, f"{block.page}: a block of kind {block.kind!r}"
        assert block.kind != "console" or block.run_by, f"{block.page}: nothing is named that runs {block.commands}"
        if block.run_by:
            named += 1
            assert missing(block.run_by, block.commands) == [], block.page
    assert named >= 2


def test_commands_that_nothing_runs_are_seen() -> None:
    """Goal: the test above can fail. Method: commands, options, scripts and tests that are not there."""
    recovery = "tests/process/test_lost_majority_process.py"
    test = f"{recovery}::test_every_replica_lost_an_empty_tablet_takes_the_place_and_returning_members_are_emptied"
    assert missing(test, ["nyala unsafe replace --tablet ID"]) == []
    assert missing(test, ["nyala unsafe mend"]) == ["nyala unsafe mend"]
    assert missing(test, ["nyala unsafe replace --tablets ID"]) == ["nyala unsafe replace --tablets ID"]
    assert missing(f"{recovery}::test_nothing", ["nyala unsafe replace"]) == [f"{recovery}::test_nothing"]
    assert missing(".ci/run", ["make demo", "make dema"]) == ["make dema"]


def test_changelog_tells_users_what_is_new_in_a_page() -> None:
    """Goal: a user reads what changed. Method: the newest version is unreleased or has its date; each has at most so
    many lines, empty ones included: who adds one shortens, or leaves out what only its developers noticed."""
    _, *rest = re.split(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    headings, texts = rest[::2], rest[1::2]
    assert re.fullmatch(r"[\d.]+ \((?:unreleased|\d{4}-\d\d-\d\d)\)", headings[0])
    assert [len(text.splitlines()) for text in texts if len(text.splitlines()) > LINES_MAX] == []


def test_documents_name_the_version_that_is_declared() -> None:
    """Goal: a user copies a command that finds its file. Method: every wheel that a page names, and the newest heading
    of the CHANGELOG, against pyproject.toml."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    wheels = [found for path in pages_of_users() for found in re.findall(r"nyala-([\d.]+)-py3", path.read_text())]
    newest = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[0]
    assert len(wheels) >= 2 and {*wheels, newest} == {declared}


def sections_quoted(text: str) -> list[tuple[str, str]]:
    """(page as it is named, title) of each section that a text sends its readers to."""
    found = SECTION.finditer(re.sub(r"\s*\n\s*", " ", text))
    return [(each["link"] or each["name"] or each["bare"], each["title"]) for each in found]


def has_section(path: Path, name: str, title: str) -> bool:
    """Whether the page that `path` names so has that section: a page of its folder, of the one above, of the root or of
    `replica`."""
    places = [
        folder / name
        for folder in (path.parent, path.parent.parent, ROOT, ROOT / "replica")
        if (folder / name).is_file()
    ]
    begins = re.compile(rf"^(?:#+ .*|(?:\s*[-*] )?\*\*){re.escape(title)}", re.MULTILINE)
    return bool(places) and begins.search(places[0].read_text()) is not None


def is_file(folder: Path, path: str) -> bool:
    """Whether a page in `folder` may name a file so."""
    return any((place / path).is_file() for place in (folder, ROOT, ROOT / "replica"))


def missing(run_by: str, commands: list[str]) -> list[str]:
    """The commands that a script, or a test `path::name`, does not have; itself, if it does not exist."""
    path, _, name = run_by.partition("::")
    if not (ROOT / path).is_file():
        return [run_by]
    text = (ROOT / path).read_text()
    if not name:
        return [command for command in commands if not re.search(rf"(?:^| ){re.escape(command)}$", text, re.MULTILINE)]
    if f"def {name}(" not in text:
        return [run_by]
    if re.search(r"^from tests\.harness\.documents import .*\bscript_of\b", text, re.MULTILINE):
        return []  # it runs the blocks themselves
    harness = re.findall(r"^from tests\.harness\.(\w+) import", text, re.MULTILINE)
    text = "\n".join([text, *((ROOT / "tests" / "harness" / f"{module}.py").read_text() for module in harness)])
    return [command for command in commands if not has(text, command)]


def has(text: str, command: str) -> bool:
    """Whether the source has the first two words of a `nyala` command side by side, and all its options."""
    words = [word.partition("=")[0] for word in command.split()[1:]]
    names = [word for word in words if re.fullmatch(r"[a-z][a-z-]*", word)][:2]
    options = [word for word in words if word.startswith("--")]
    side_by_side = r"""["', ]+""".join(map(re.escape, names))
    return re.search(side_by_side, text) is not None and all(re.search(rf"{o}\b(?!-)", text) for o in options)
