"""Conditions on columns, evaluated where the rows are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from .types import invalid

COMPARISONS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
OPERATORS = (*COMPARISONS, "in", "is_null", "is_not_null")


class Predicate(NamedTuple):
    """One condition: `column op values`. Comparisons have one value, `in` any number, the null tests none."""

    column: str
    op: str
    values: tuple[object, ...] = ()


def predicate_mask(batch: Any, predicates: Iterable[Predicate]) -> Any:
    """pa.BooleanArray, shape (rows,): which rows of a pa.RecordBatch meet all predicates. Null counts as no.

    Refused(INVALID_ARGUMENT) for an unknown column or operator, or a value that cannot be compared with the column.
    """
    mask = None
    for predicate in predicates:
        one = _one_mask(batch, predicate)
        mask = one if mask is None else pc.and_(mask, one)
    if mask is None:
        return pa.repeat(pa.scalar(True), batch.num_rows)
    return mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask


def _one_mask(batch: Any, predicate: Predicate) -> Any:
    pos = batch.schema.get_field_index(predicate.column)
    if pos < 0:
        raise invalid("no such column", column=predicate.column, known=",".join(batch.schema.names))
    column = batch.column(pos)
    op = predicate.op
    if op == "is_null":
        return pc.is_null(column)
    if op == "is_not_null":
        return pc.is_valid(column)
    try:
        if op == "in":
            return pc.fill_null(_in_mask(column, predicate.values), False)
        if op not in COMPARISONS or len(predicate.values) != 1:
            raise invalid("no such operator, or a wrong number of values", op=op, values=len(predicate.values))
        return pc.fill_null(COMPARISONS[op](column, value_scalar(predicate.values[0], column.type)), False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
        raise invalid(
            "the value cannot be compared with the column",
            column=predicate.column,
            type=str(column.type),
            value=predicate.values[:3],
        ) from e


def value_scalar(value: object, data_type: Any) -> Any:
    """`value` as a pa.Scalar of the type, or of its own type where the type cannot hold it (1000 beside an int8)."""
    try:
        scalar = pa.scalar(value, type=data_type)
        # Arrow cuts a float down to an integer type silently; `x > 1.5` must stay what it says.
        if scalar.as_py() == value or not isinstance(value, float):
            return scalar
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    return pa.scalar(value)


def _in_mask(column: Any, values: tuple[object, ...]) -> Any:
    fitting = [value_scalar(v, column.type) for v in values if v is not None]
    exact = [s for s in fitting if s.type == column.type]
    mask = pc.is_in(column, value_set=pa.array([s.as_py() for s in exact], type=column.type))
    for odd in (s for s in fitting if s.type != column.type):
        mask = pc.or_kleene(mask, pc.equal(column, odd))
    # `is_in` says False for null; a null row meets no condition either way.
    return pc.and_(mask, pc.is_valid(column))
