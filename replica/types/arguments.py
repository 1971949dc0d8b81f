"""Checks of arguments that a user's program passes: a type, or a range. Pure.

Each check returns its argument, or raises Refused(INVALID_ARGUMENT) that shows the value.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import TypeVar, cast

from .errors import Code, Refused, text_of

T = TypeVar("T")
_SHOWN_CHARS = 80


def as_given(value: object) -> str:
    """Return the value as an error shows an argument: its `repr`, at most 80 characters of it. Never raises."""
    return text_of(value, repr)[:_SHOWN_CHARS]


def _wrong(what: str, todo: str, value: object) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, f"{what}; {todo}", got=as_given(value))


def check_kind(value: object, kind: type[T], what: str) -> T:
    """Check that the value is of this class."""
    if not isinstance(value, kind):
        raise _wrong(f"{what} takes {kind.__name__}", "give one", value)
    return value


def check_flag(value: object, what: str) -> bool:
    """Check that the value is True or False."""
    if not isinstance(value, bool):
        raise _wrong(f"{what} is True or False", "give one of these", value)
    return value


def check_whole(number: object, what: str, low: int, high: int) -> int:
    """Check that a number is whole, and from `low` to `high`."""
    if isinstance(number, bool) or not isinstance(number, Integral) or not low <= int(number) <= high:
        raise _wrong(f"{what} is a whole number from {low} to {high}", "give one of these", number)
    return int(number)


def real_of(number: object) -> float:
    """Return a number of any type, NumPy's too, as Python's own; NaN if it is none."""
    if isinstance(number, bool) or not isinstance(number, Real):
        return math.nan
    try:
        return float(number)
    except OverflowError:
        return math.inf if number == abs(number) else -math.inf


def check_measure(number: object, what: str, low: float, high: float) -> float:
    """Check that the value is a number from `low` to `high`, and not NaN."""
    if not low <= (measure := real_of(number)) <= high:
        raise _wrong(f"{what} is a number from {low:g} to {high:g}", "give one of these", number)
    return measure


def check_list(values: object, what: str, most: int) -> tuple[object, ...]:
    """Check that these are at most `most` values in an order, which the views of a dict have. An iterator may be
    endless: no more than that is read."""
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes, bytearray, Mapping, set, frozenset)):
        raise _wrong(f"{what} takes a list", "put what you mean into a list", values)
    found = tuple(itertools.islice(values, most + 1))
    if len(found) > most:
        raise _wrong(f"{what} takes at most {most} values", "give fewer", values)
    return found


def check_names(values: object, what: str, most: int) -> tuple[str, ...]:
    """Check that this is a list of texts, `most` at most."""
    found = check_list(values, what, most)
    for name in found:
        if not isinstance(name, str):
            raise _wrong(f"{what} takes a list of names", "give each as a str", name)
    return cast("tuple[str, ...]", found)
