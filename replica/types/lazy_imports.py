"""Packages that import a module of theirs when one of its names is first used (PEP 562).

A command or a worker pays only for what it uses: `from nyala.pipeline import Topics` imports the Kafka client,
`from nyala.pipeline import QueryRefused` does not.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from inspect import getsource
from types import ModuleType
from typing import Any


def lazy_imports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of `package`.

    Its names are those that its source imports under `if TYPE_CHECKING:`, so that they are in one place, where type
    checkers find them too. A name is looked up once, then it is an attribute.
    """
    places = _places(sys.modules[package])

    def get_attribute(name: str) -> Any:
        module = places.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(sorted(places))}")
        value = getattr(import_module(module, package), name)
        setattr(sys.modules[package], name, value)
        return value

    def directory() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return get_attribute, directory, sorted(places)


def _places(package: ModuleType) -> dict[str, str]:
    """By name, the module that the package imports it from; one of its own begins with a dot."""
    conditional = [
        each for part in ast.parse(getsource(package)).body if isinstance(part, ast.If) for each in part.body
    ]
    imports = [each for each in conditional if isinstance(each, ast.ImportFrom)]
    return {alias.name: "." * each.level + str(each.module) for each in imports for alias in each.names}
