"""Generated mutants that no test can tell from the code, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Equivalent:
    """`before` and `after` are the changed lines as `python -m tests.mutants.generated` prints them."""

    file: str
    function: str
    before: str
    after: str
    reason: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.file, self.function, self.before, self.after


EQUIVALENT: tuple[Equivalent, ...] = ()
