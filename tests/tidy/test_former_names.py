"""Names that were invented here do not come back if the field has a word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.test_layers import ROOT, nodes_of, source_files

FORMER = {
    "book": "what it lists, such as expected rows",
    "books": "what they list",
    "carrier": "ready executor",
    "carrying": "executing",
    "census": "count of zero sectors",
    "collector": "log GC",
    "company": "batch",
    "copywire": "tablet_copy.wire",
    "deed": "operation",
    "deeds": "operations",
    "door": "environment, or interface",
    "doors": "environment",
    "estranged": "of a former generation",
    "fuse": "combine",
    "fused": "combined writes",
    "gathering": "write batcher",
    "glance": "offline reading",
    "govern": "reconcile",
    "governor": "reconciler",
    "keeper": "file checker, or who repairs",
    "kills": "deltas",
    "leash": "parent's death signal",
    "leashed": "ended with its parent",
    "mistakes": "argument errors",
    "park": "demote",
    "parked": "demoted",
    "rooms": "folders, or packages",
    "steer": "decision executor",
    "tend": "what is done, such as setting keep-alive",
    "unmade": "without replica",
    "voice": "decision sink",
    "voices": "decision sinks",
    "wish": "desired change",
    "wishes": "desired changes",
    "wishing": "change requests",
}
"""A word of former names, and the word that replaced it."""
PUBLISHED = {"wish_id", "wishes"}
"""Fields of records in catalogs and messages, which keep their names."""
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def defined(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of what a module defines: functions, classes, parameters, variables and attributes."""
    for node in nodes_of(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def former(name: str) -> set[str]:
    """Return the former words in a name: `DecisionBook`, `decision_book` and `BOOK_MAX` have one."""
    return {word.lower() for word in WORD.findall(name)} & FORMER.keys() if name not in PUBLISHED else set()


def test_no_name_that_is_defined_holds_a_former_word() -> None:
    """Goal: a newcomer meets the field's words. Method: modules, functions, classes, parameters, variables and
    attributes of every source file; the check is first tried on names that it must find."""
    assert all(map(former, ("DecisionBook", "decision_book", "BOOK_MAX", "_gathering", "books")))
    assert not any(map(former, ("bookkeeping", "gather_keys", "attend", "extend")))
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {name}: say {', '.join(FORMER[word] for word in former(name))}"
        for path in source_files()
        for line, name in (*defined(path.read_text()), (1, path.stem))
        if former(name)
    ]
    assert not wrong, "\n".join(wrong)
