"""Packages that import a module of theirs when one of its names is first used (PEP 562).

A command or a worker pays only for what it uses: `from nyala.pipeline import Topics` imports the Kafka client,
`from nyala.pipeline import QueryRefused` does not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_imports(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of `package`.

    `homes`: module -> names that it gives to the package, with spaces. A module that begins with a dot is relative to
    the package. A name is looked up once, then it is an attribute.
    """
    places = {name: module for module, names in homes.items() for name in names.split()}

    def get_attribute(name: str) -> Any:
        module = places.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module, package), name)
        setattr(sys.modules[package], name, value)
        return value

    def directory() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return get_attribute, directory, sorted(places)
