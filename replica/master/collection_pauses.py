"""Keeps the pauses of Python's garbage collector short in a process that has millions of objects.

A full collection visits every object that may be part of a cycle, and the event loop stops meanwhile. With the records
and reports of 100,000 tablets that takes seconds. These objects need no collection: they form no cycles, so their
reference counts free them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Self

LONG_S = 0.02
"""If a full collection took longer, later ones do not visit the objects that it found alive."""


@dataclass
class CollectionPauses:
    """Measures full collections, and stops them from growing longer by `gc.freeze`.

    The price: objects that were alive at a long collection, and become an unreachable cycle later, are never freed.
    Those of a master live as long as it does: its catalog, its group, its services.
    """

    clock_s: Callable[[], float] = time.perf_counter
    longest_s: float = field(default=0.0, init=False)
    """The longest full collection so far."""
    _began_s: float = field(default=0.0, init=False)

    def __enter__(self) -> Self:
        """Watch all collections of this process from now on."""
        gc.callbacks.append(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        """Watch no more."""
        gc.callbacks.remove(self._note)

    def _note(self, phase: Literal["start", "stop"], info: dict[str, int]) -> None:
        """Note the begin or the end of a collection. Python calls it through `gc.callbacks`."""
        if info["generation"] < 2:
            return
        if phase == "start":
            self._began_s = self.clock_s()
            return
        took_s = self.clock_s() - self._began_s
        self.longest_s = max(self.longest_s, took_s)
        if took_s > LONG_S:
            gc.freeze()
