"""Every write of a superblock names the record that it replaces."""

from __future__ import annotations

import ast

from tests.tidy.test_layers import ROOT, nodes_of, source_files

FIRST = {"replica/tablet/tablet.py create", "replica/master/catalog/catalog.py open"}
"""The functions that write a superblock where there is none."""


def writers() -> dict[str, bool]:
    """(module and function) of each call of `Superblock.save`, and whether it names the record in force."""
    found: dict[str, bool] = {}
    for path in source_files():
        if not str(path.relative_to(ROOT)).startswith("replica/") or "uperblock" not in (text := path.read_text()):
            continue
        for function in nodes_of(text):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "save":
                    name = f"{path.relative_to(ROOT)} {function.name}"
                    found[name] = found.get(name, True) and any(k.arg == "over" for k in call.keywords)
    return found


def test_every_write_of_a_superblock_names_the_record_in_force() -> None:
    """IN-21. Goal: a file that is damaged under a running server fails nothing that replaces it. Method: the calls of
    `save` in the code: all but those that create a tablet or a catalog give the record that is in memory."""
    found = writers()
    assert {name for name, over in found.items() if not over} == FIRST
    assert {"replica/tablet/maintenance.py flush", "replica/tablet/maintenance.py compact"} < set(found)
