"""Conditions on columns, evaluated at the tablets."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from nyala.replica.types import limits

from .condition_values import NOT_COMPARABLE, ConditionValues
from .conversion import Misfit, array_of, check_decimals
from .exact_conditions import exact
from .key_terms import Term, intersected, sortable
from .types import invalid

COMPARISONS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_REDUCE_FACTOR = 4
"""If a list has this many times more values than the batch has rows, it is first reduced to values in the batch."""
_SEARCHED = 256
"""The longest list whose values are searched for one by one; of a longer one, only the lowest and highest value are."""
_STEP = 1000
"""The values that are checked one by one between two calls of `stop`: about 3 ms."""
_FRACTIONAL = (float, decimal.Decimal)
"""The Python types whose values a float or double column rounds."""
_LONGS = range(-(1 << 63), 1 << 63)
OPERATORS = (*COMPARISONS, "in", "is_null", "is_not_null")


class Predicate(NamedTuple):
    """One condition: `column op values`. Comparisons have one value, `in` any number, the tests for null none."""

    column: str
    op: str
    values: Sequence[object] = ()
    """A tuple, or `ConditionValues` for a list that came over the network."""


def never_stop() -> None:
    """Do nothing: the work goes on."""


class Conditions:
    """Predicates that are prepared once for columns of given types, and evaluated batch by batch.

    Refused(INVALID_ARGUMENT) at construction for an unknown column or operator, or a value that cannot be compared with
    its column. Memory: an Arrow array of each list of values. Concurrency: any thread, one at a time.
    """

    def __init__(self, predicates: Iterable[Predicate], schema: Any, stop: Callable[[], None] = never_stop) -> None:
        """`schema`: pa.Schema of the columns; later batches have at least the named columns, with those types.

        `stop` is called before each step of at most a few milliseconds, and may raise.
        """
        self._prepared: list[_Prepared] = []
        odd = limits.SCAN_ODD_VALUES_MAX
        for predicate in predicates:
            stop()
            self._prepared.append(_Prepared(predicate, schema, odd, stop))
            odd -= self._prepared[-1].scalars_listed

    def terms(self, column: str, stop: Callable[[], None] = never_stop) -> list[Term]:
        """The conditions on a column of the key as `intersected` returns them, with which a sorted column is searched.
        Rows that meet all predicates meet all terms. `stop` is called before each condition, and may raise."""

        def found() -> Iterator[Term]:
            for ready in self._prepared:
                if ready.predicate.column == column:
                    stop()
                    yield from ready.terms()

        return intersected(found())

    def mask(self, batch: Any, stop: Callable[[], None] = never_stop) -> Any:
        """A pa.BooleanArray, shape (rows,), of the rows of a pa.RecordBatch that meet all predicates. Null counts as
        no.

        `stop` is called before each comparison of the whole batch, and may raise.
        """
        mask = None
        for ready in self._prepared:
            stop()
            one = ready.mask(batch.column(ready.predicate.column), stop)
            mask = one if mask is None else pc.and_(mask, one)
        if mask is None:
            return pa.repeat(pa.scalar(True), batch.num_rows)
        return mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask


def predicate_mask(batch: Any, predicates: Iterable[Predicate]) -> Any:
    """`Conditions(predicates, batch.schema).mask(batch)`."""
    return Conditions(predicates, batch.schema).mask(batch)


class _Prepared:
    """One predicate, with its values as Arrow objects."""

    def __init__(self, predicate: Predicate, schema: Any, odd_max: int, stop: Callable[[], None]) -> None:
        """`odd_max`: the most values of a list that may be odd, which means that the column's type cannot hold them."""
        pos = schema.get_field_index(predicate.column)
        if pos < 0:
            raise invalid("no such column", column=predicate.column, known=",".join(schema.names))
        kind, op = schema.field(pos).type, predicate.op
        self._kind = kind
        self._exact: Any = None
        self._scalars: list[Any] = []
        if op not in OPERATORS or (op in COMPARISONS and len(predicate.values) != 1):
            raise invalid("no such operator, or a wrong number of values", op=op, values=len(predicate.values))
        if op in COMPARISONS:
            predicate = exact_predicate(predicate, kind)
        self.predicate = predicate
        try:
            if predicate.op in COMPARISONS:
                self._scalars = [value_scalar(predicate.values[0], kind)]
            elif predicate.op == "in":
                self._exact, self._scalars = _listed(predicate, kind, odd_max, stop)
                if pa.types.is_floating(kind) and pc.any(pc.equal(self._exact, 0.0)).as_py():
                    # `is_in` compares bits: it takes -0.0 for another value.
                    self._scalars.append(pa.scalar(0.0, kind))
            self.mask(pa.array([], type=kind), stop)  # A value that cannot be compared raises now, before the scan.
        except MemoryError:  # Arrow's, too, which is no fault of the values
            raise
        except NOT_COMPARABLE as e:
            raise invalid(
                "the value cannot be compared with the column",
                column=predicate.column,
                type=str(kind),
                value=_first(predicate.values),
            ) from e

    @property
    def scalars_listed(self) -> int:
        """The number of odd values of a list, which are compared one by one."""
        return len(self._scalars) if self.predicate.op == "in" else 0

    def terms(self) -> list[Term]:
        """The predicate as terms. A value that the column's type cannot hold gives none."""
        op = self.predicate.op
        if op == "in" and not self._scalars:
            if len(self._exact) <= _SEARCHED:
                return [Term(op, [sortable(value) for value in self._exact])]
            ends = pc.min_max(self._exact)
            return [Term(">=", [sortable(ends["min"])]), Term("<=", [sortable(ends["max"])])]
        if op in COMPARISONS and op != "!=" and self._scalars[0].type == self._kind:
            return [Term("in" if op == "=" else op, [sortable(self._scalars[0])])]
        return []

    def mask(self, column: Any, stop: Callable[[], None]) -> Any:
        op = self.predicate.op
        if op == "is_null":
            return pc.is_null(column)
        if op == "is_not_null":
            return pc.is_valid(column)
        if op == "in":
            return pc.fill_null(self._in_mask(column, stop), False)
        return pc.fill_null(COMPARISONS[op](column, self._scalars[0]), False)

    def _in_mask(self, column: Any, stop: Callable[[], None]) -> Any:
        values = self._exact
        if len(values) > _REDUCE_FACTOR * len(column):
            # Arrow makes a hash table of the whole list for each batch; for a short batch, first reduce the list to its
            # values.
            values = values.filter(pc.is_in(values, value_set=column))
        mask = pc.is_in(column, value_set=values)
        for scalar in self._scalars:
            stop()
            mask = pc.or_kleene(mask, pc.equal(column, scalar))
        # `is_in` returns False for null; a null meets no condition anyway.
        return pc.and_(mask, pc.is_valid(column))


def exact_predicate(predicate: Predicate, kind: pa.DataType) -> Predicate:
    """Return a predicate with the same meaning. If the column and the values are numbers, the values returned have the
    column's type."""
    return Predicate(predicate.column, *exact(predicate.op, predicate.values, kind))


def _integer(value: object) -> object:
    """A float as the integer that equals it; None if no integer of a column does. Other values are returned
    unchanged."""
    if not isinstance(value, float):
        return value
    return int(value) if value.is_integer() and int(value) in _LONGS else None


def _listed(predicate: Predicate, kind: Any, odd_max: int, stop: Callable[[], None]) -> tuple[Any, list[Any]]:
    """(array of the values that the type holds exactly, scalars of the others, of which there are few)."""
    values = predicate.values
    if isinstance(values, ConditionValues) and values.array.type == kind:
        return values.array, []
    exact, odd = [pa.array([], type=kind)], []
    for start in range(0, len(values), _STEP):
        stop()
        some, others = _split([v for v in values[start : start + _STEP] if v is not None], kind)
        exact.append(some)
        odd += others
        if len(odd) > odd_max:
            raise invalid(
                f"at most {limits.SCAN_ODD_VALUES_MAX} values in the lists of a scan may be such as the column cannot "
                "hold. Leave such values out: no row has them",
                column=predicate.column,
                type=str(kind),
                value=_first([odd[0].as_py()]),
            )
    return pa.concat_arrays(exact), odd


def _split(values: list[object], kind: Any) -> tuple[Any, list[Any]]:
    if pa.types.is_integer(kind):
        values = [v for v in map(_integer, values) if v is not None]
    if not pa.types.is_floating(kind) or not any(isinstance(v, _FRACTIONAL) for v in values):
        try:
            return array_of(values, kind), []
        except Misfit:
            pass
    scalars = [value_scalar(v, kind) for v in values]
    exact = [s.as_py() for s in scalars if s.type == kind]
    return pa.array(exact, type=kind), [s for s in scalars if s.type != kind]


def _first(values: Sequence[object]) -> str:
    """The first few values, as a text for a refusal."""
    try:
        return ", ".join(repr(v)[:60] for v in values[:3])
    except (ValueError, OverflowError):  # such as a date beyond the year 9999
        return "beyond what can be shown"


def value_scalar(value: object, data_type: Any) -> Any:
    """`value` as a pa.Scalar of the type, or of its own type where the type cannot hold it (1000 beside an int8)."""
    try:
        scalar = array_of([value], data_type)[0]
        # A float column rounds the value, which would change the meaning of `x > 0.1`.
        if scalar.as_py() == value or not isinstance(value, _FRACTIONAL):
            return scalar
    except Misfit:
        check_decimals([value])
    return pa.scalar(value)
