"""Refusals of what users get wrong: what, with which value, and what to do instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from nyala.replica.base import Code
from nyala.replica.client import NotApplied

LISTED_MAX = 30


def mistake(what: str, /, **values: object) -> NotApplied:
    """A wrong argument."""
    return NotApplied(Code.INVALID_ARGUMENT, what, **values)  # type: ignore[arg-type]


def unknown(kind: str, name: object, known: Iterable[str], *, code: Code = Code.INVALID_ARGUMENT) -> NotApplied:
    """A name that nothing has: says what is close to it, and what there is."""
    names = sorted(known)
    lower = {n.lower(): n for n in reversed(names)}
    close = [lower[c] for c in difflib.get_close_matches(str(name).lower(), list(lower), n=3, cutoff=0.6)]
    what = f"there is no {kind} {name!r}"
    if close:
        what += f"; did you mean {' or '.join(map(repr, close))}?"
    listed = ", ".join(names[:LISTED_MAX]) + (f" and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else "")
    return NotApplied(code, what, **{f"{kind}s": listed or "none yet"})
