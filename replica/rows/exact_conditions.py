"""Turns conditions on columns of numbers into conditions of exactly the same meaning with values of the column's type.
Pure.

Arrow and Python would round an integer to compare it with a float, or a float to the type of the column.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from .conversion import DECIMAL_DIGITS_MAX

Number = int | float | decimal.Decimal
_DIGITS = decimal.Context(prec=DECIMAL_DIGITS_MAX)


def exact(op: str, values: Sequence[object], kind: pa.DataType) -> tuple[str, Sequence[object]]:
    """Return (operator, values) of a condition with the same meaning. Conditions whose column or values are no numbers
    are returned as they are; so is NaN, which no condition has."""
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    found = [_around(v, kind) for v in values if isinstance(v, Number) and v == v] if numbers else []
    if not found or len(found) < len(values):
        return op, values
    if op == "in":
        return op, tuple(low for low, high in found if low == high)
    ((low, high),) = found
    if low == high:
        return op, (low,)
    if op == "!=":
        return "is_not_null", ()
    bound = low if op in ("<", "<=") else high if op in (">", ">=") else None
    return (op[0] + "=", (bound,)) if bound is not None else ("in", ())


def _around(value: Number, kind: pa.DataType) -> tuple[Number | None, Number | None]:
    """The highest value of the type that is not above a number, and the lowest that is not below it, or None."""
    if pa.types.is_floating(kind):
        return _floats_around(value, np.float32 if kind == pa.float32() else np.float64)
    if pa.types.is_integer(kind):
        most: Number = (1 << kind.bit_width - 1) - 1
        least = -most - 1
    else:
        most = decimal.Decimal((0, (9,) * kind.precision, -kind.scale))
        least = _DIGITS.minus(most)
    if value > most:
        return most, None
    if value < least:
        return None, least
    if pa.types.is_integer(kind):
        return math.floor(value), math.ceil(value)
    number, unit = decimal.Decimal(value), decimal.Decimal((0, (1,), -kind.scale))
    return (
        number.quantize(unit, decimal.ROUND_FLOOR, _DIGITS),
        number.quantize(unit, decimal.ROUND_CEILING, _DIGITS),
    )


def _floats_around(value: Number, kind: type[np.float32 | np.float64]) -> tuple[float, float]:
    try:
        near = float(value)
    except OverflowError:  # An integer beyond all floats.
        near = math.inf if value > 0 else -math.inf
    with np.errstate(over="ignore"):
        nearest = kind(near)
        found = float(nearest)
        if found < value:
            return found, float(np.nextafter(nearest, kind(np.inf)))
        return (found if found == value else float(np.nextafter(nearest, kind(-np.inf)))), found
