"""The pages of the site: those of the project at their own places, and references made from the code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import nyala

from .commands import commands_page

TOPS = ("docs", "infra", "jobs", "pipeline", "replica", "schemas", "tests")
"""The folders whose pages are part of the site; each page links others by their places in the project."""
REFERENCE = PurePosixPath("docs/reference")
PYTHON = """# Python

`import nyala` has these names, and those of [the errors](errors.md). Everything else in the package may change from one
version to the next.

"""
MODULES: Mapping[str, tuple[str, str]] = {
    "errors": ("All error codes", "nyala.replica.types.errors"),
    "limits": ("All limits", "nyala.replica.types.limits"),
}
"""The pages that show the public names of a module: their titles and the modules."""
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Start": ("README.md", "docs/start.md", "docs/tutorials"),
    "Concepts": ("docs/concepts.md", "docs/concepts"),
    "Use": ("docs/use",),
    "Operate": ("docs/operate",),
    "Reference": ("docs/reference",),
    "Benchmarks": ("docs/benchmarks.md",),
    "Internals": ("docs/internals.md", "CONTRIBUTING.md", "replica", "schemas", "pipeline", "jobs", "infra", "tests"),
    "Changes": ("CHANGELOG.md",),
}
"""The parts of the navigation, and the pages and folders of each."""


def project_pages(root: Path) -> dict[str, str]:
    """The text of each page of the project at this folder, and of its licence, by its place in it."""
    files = [root / "LICENSE", *root.glob("*.md"), *(file for top in TOPS for file in (root / top).rglob("*.md"))]
    return {file.relative_to(root).as_posix(): file.read_text() for file in sorted(files)}


def public_names() -> dict[str, str]:
    """The names that `import nyala` has, each with the module that defines it."""
    return {name: getattr(nyala, name).__module__ for name in nyala.__all__ if not name.startswith("__")}


def reference_pages(names: Mapping[str, str]) -> dict[str, str]:
    """The pages made from the code: the public names with the module of each, the commands, and the modules of
    MODULES."""
    elsewhere = {module for _, module in MODULES.values()}
    entries = [f"::: {module}.{name}\n\n" for name, module in sorted(names.items()) if module not in elsewhere]
    found = {"python": PYTHON + "".join(entries), "commands": commands_page()}
    found |= {page: f"# {title}\n\n::: {module}\n" for page, (title, module) in MODULES.items()}
    return {f"{REFERENCE}/{page}.md": text for page, text in found.items()}


def navigation(places: Mapping[str, str]) -> list[dict[str, list[str]]]:
    """The site's navigation: each part with its pages, in the order of SECTIONS. A page that no part names is a
    ValueError, so that each page can be found."""
    left, found = {place for place in places if place.endswith(".md")}, []
    for title, words in SECTIONS.items():
        mine = [place for word in words for place in _below(word, sorted(left))]
        left -= set(mine)
        found.append({title: mine})
    if left:
        raise ValueError(f"no part of the navigation has {', '.join(sorted(left))}: add it to SECTIONS in {__name__}")
    return found


def _below(word: str, places: list[str]) -> Iterator[str]:
    for place in places:
        if place == word or place.startswith(f"{word}/"):
            yield place
