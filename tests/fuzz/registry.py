"""All doors, by name. Those of one kind are made when they are requested: each makes its valid inputs first."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module

from tests.fuzz.door import Door

KINDS = {
    "value": "value_doors",
    "topic": "topic_doors",
    "file": "file_doors",
    "entry": "file_doors",
    "link": "link_doors",
    "server": "rpc_doors",
    "master": "rpc_doors",
}
"""The first part of a door's name, and the module that has the doors of that kind."""


@cache
def _doors_of(module: str) -> dict[str, Door]:
    return {door.name: door for door in import_module(f"tests.fuzz.{module}").doors()}


def door_of(name: str) -> Door:
    """Return the door of that name; KeyError if there is none."""
    return _doors_of(KINDS[name.partition("/")[0]])[name]


def all_doors() -> dict[str, Door]:
    """Return all doors by name, in the order of their kinds."""
    found: dict[str, Door] = {}
    for module in dict.fromkeys(KINDS.values()):
        found |= _doors_of(module)
    return found


def chosen(words: Iterable[str]) -> list[Door]:
    """Return the doors whose names contain one of the words, all of them without a word; KeyError for a word in no
    name."""
    doors = all_doors()
    found: dict[str, Door] = {}
    for word in list(words) or [""]:
        mine = {name: door for name, door in doors.items() if word in name}
        if not mine:
            raise KeyError(word)
        found |= mine
    return list(found.values())
