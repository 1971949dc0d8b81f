"""Conditions on a column of the key, in the form in which a sorted column is searched. Pure.

However many conditions a scan has on one column, the search gets one list of values, or a lower and an upper bound.
"""

from __future__ import annotations

import decimal
import operator
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

Sortable = int | str | bytes | decimal.Decimal
_BOUNDS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class Term(NamedTuple):
    """One condition on the column: that it has one of some values, or lies on one side of a bound.

    `op`: `in`, `<`, `<=`, `>` or `>=`. `values`: as `sortable` returns them; exactly one, except for `in`.
    """

    op: str
    values: Sequence[Sortable]


def sortable(scalar: pa.Scalar) -> Sortable:
    """A value of a key's column as a Python object that compares in the order in which blocks are sorted."""
    value: Sortable = scalar.value if pa.types.is_temporal(scalar.type) else scalar.as_py()
    return value


def intersected(terms: Iterable[Term]) -> list[Term]:
    """The terms that together mean the same as all `terms`: one `in`, whose values ascend and are distinct, or at most
    one lower and one upper bound; an empty list for no `terms`."""
    listed: set[Sortable] | None = None
    low: Term | None = None
    high: Term | None = None
    for term in terms:
        op, values = term
        if op == "in":
            listed = set(values) if listed is None else listed.intersection(values)
        elif op in (">", ">="):
            low = term if low is None or _above(values[0], low.values[0], op == ">") else low
        else:
            high = term if high is None or _above(high.values[0], values[0], op == "<") else high
    bounds = [term for term in (low, high) if term is not None]
    if listed is None:
        return bounds
    met = [value for value in listed if all(_BOUNDS[op](value, of[0]) for op, of in bounds)]
    return [Term("in", sorted(met))]  # type: ignore[type-var]  # The values of one column have one type.


def _above(left: Sortable, right: Sortable, or_equal: bool) -> bool:
    above: bool = operator.ge(left, right) if or_equal else operator.gt(left, right)
    return above
