"""Invariants that hold or the process must not go on."""

from __future__ import annotations

from .errors import InvariantViolation


def check(condition: bool, what: str, /, **values: object) -> None:
    """Raise InvariantViolation with `what` and the offending values unless `condition`; survives `python -O`."""
    if not condition:
        raise InvariantViolation(what, **values)
