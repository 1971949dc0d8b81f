"""Errors for wrong arguments: they state what is wrong, with which value, and what to do instead."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from nyala.replica.client import NotApplied
from nyala.replica.types import Code, Refused, as_given, shown

P = ParamSpec("P")
T = TypeVar("T")
LISTED_MAX = 30


def invalid_argument(what: str, todo: str, /, **values: object) -> NotApplied:
    """Return the error for a wrong argument: what was wrong, and what to do instead. `values`: the wrong values."""
    return NotApplied(Code.INVALID_ARGUMENT, f"{what}; {todo}", values)


def unknown_name(kind: str, name: object, known: Iterable[str], *, code: Code = Code.INVALID_ARGUMENT) -> NotApplied:
    """Return the error for an unknown name: it lists close names, and the names there are."""
    names = sorted(known)
    looked_for = f"'{shown(name)}'" if isinstance(name, str) else as_given(name)
    lower = {n.lower(): n for n in reversed(names)}
    close = [lower[c] for c in difflib.get_close_matches(looked_for.strip("'").lower(), list(lower), n=3, cutoff=0.6)]
    what = f"there is no {kind} {looked_for}"
    if close:
        what += f"; did you mean {' or '.join(map(repr, close))}?"
    else:
        what += "; name one that there is" if names else "; create it first"
    listed = ", ".join(names[:LISTED_MAX]) + (f" and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else "")
    return NotApplied(code, what, **{f"{kind}s": listed or "none yet"})


def valid(check: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `check` makes of an argument; otherwise raise its refusal as NotApplied."""
    try:
        return check(*args, **kwargs)
    except Refused as e:
        advised = ";" in e.what
        raise NotApplied(e.code, e.what if advised else f"{e.what}; give another one", e.values) from e


def valid_text(check: Callable[..., str], text: object, *more: object, what: str = "name=") -> str:
    """Return `text` if `check(text, *more)` accepts it; otherwise raise NotApplied(INVALID_ARGUMENT) that shows it."""
    if not isinstance(text, str):
        raise invalid_argument(f"{what} is text", "give it as a str", got=as_given(text))
    return valid(check, text, *more)
