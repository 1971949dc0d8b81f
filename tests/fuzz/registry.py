"""All targets, by name. Those of one kind are made when they are requested: each makes its valid inputs first."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module

from tests.fuzz.target import Target

KINDS = {
    "value": "value_targets",
    "topic": "topic_targets",
    "file": "file_targets",
    "entry": "file_targets",
    "link": "link_targets",
    "server": "rpc_targets",
    "master": "rpc_targets",
}
"""The first part of a target's name, and the module that has the targets of that kind."""


@cache
def _targets_of(module: str) -> dict[str, Target]:
    return {target.name: target for target in import_module(f"tests.fuzz.{module}").targets()}


def target_of(name: str) -> Target:
    """Return the target of that name; KeyError if there is none."""
    return _targets_of(KINDS[name.partition("/")[0]])[name]


def all_targets() -> dict[str, Target]:
    """Return all targets by name, in the order of their kinds."""
    found: dict[str, Target] = {}
    for module in dict.fromkeys(KINDS.values()):
        found |= _targets_of(module)
    return found


def chosen(words: Iterable[str]) -> list[Target]:
    """Return the targets whose names contain one of the words, all of them without a word; KeyError for a word in no
    name."""
    targets = all_targets()
    found: dict[str, Target] = {}
    for word in list(words) or [""]:
        mine = {name: target for name, target in targets.items() if word in name}
        if not mine:
            raise KeyError(word)
        found |= mine
    return list(found.values())
