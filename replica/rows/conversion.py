"""Turns Python values and Arrow arrays into arrays of a column's type, if the type holds each value exactly.

One rule for every way in: what a reader gets back equals what the caller gave, or the value is refused. The one
exception are float and double columns, which round to their precision. pyarrow alone does not do this: given a type, it
cuts 3.9 to 3 in Python values, and casts between types of unlike meaning, such as an integer to a time.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DECIMAL_DIGITS_MAX = 38
"""The most digits of a decimal column, in all and behind the point."""

_Some = TypeVar("_Some", bound=Any)
_REFUSALS = (pa.ArrowException, TypeError, ValueError, ArithmeticError)
_INSTANT = pa.timestamp("us", tz="UTC")

_BASES: tuple[type, ...] = (bool, dt.datetime, int, float, str, bytes, bytearray, memoryview, dt.date, decimal.Decimal)
"""The Python types whose conversions are known. A type counts as the first of them that it is a subclass of."""
_NESTED = (list, tuple, set, frozenset, Mapping, np.ndarray)
_DIRECT: dict[str, set[type]] = {
    "bool": {bool},
    "integer": {int},
    "float": {float, int},
    "decimal": {decimal.Decimal, int},
    "text": {str},
    "bytes": {bytes, bytearray, memoryview},
    "date": {dt.date},
    "time": {dt.datetime},
}
"""For each family of Arrow types, the Python types that pyarrow converts to it exactly, or refuses."""
_OWN_TYPE: dict[type | None, Any] = {bool: pa.bool_(), float: pa.float64(), dt.date: pa.date32(), dt.datetime: _INSTANT}
"""The Arrow type that holds all values of a Python type. A naive datetime is a time in UTC."""
_CASTS: dict[str, set[str]] = {
    "bool": {"integer"},
    "integer": {"bool", "float", "decimal"},
    "float": {"bool", "integer", "decimal"},
    "decimal": {"integer", "float"},
    "date": {"time"},
    "time": {"date"},
}
"""For each family, the other families whose values it may hold."""
_ADVICE = {
    "text": "give text, and decode bytes first",
    "bytes": "give bytes, and encode text first",
    "date": "give a date",
    "time": "give a datetime",
    "bool": "give True or False",
}


class Misfit(ValueError):
    """A value that the type does not hold exactly. `row`: its position, from 0."""

    def __init__(self, row: int, value: object, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.value = value
        self.reason = reason


def array_of(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Return a pa.Array of these Python values, of the type `kind`; None and NaT become null. Misfit names the first
    value that the type does not hold exactly."""
    return _searched(values, lambda some: _of_python(some, kind), lambda some: some[0])


def cast_exactly(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return a pa.Array, or a pa.ChunkedArray, in the type `kind`. Misfit names the first value that the type does not
    hold exactly."""
    return (
        values
        if values.type == kind
        else _searched(values, lambda some: _cast(some, kind), lambda some: python_values(some[:1])[0])
    )


def _searched(
    values: _Some, convert: Callable[[_Some], pa.Array], first: Callable[[_Some], object], row: int = 0
) -> pa.Array:
    """Convert all values at once. Only if this fails, convert their halves, until the value that is at fault is
    alone."""
    try:
        return convert(values)
    except MemoryError:  # Arrow's, too, which is no fault of the values
        raise
    except _REFUSALS as e:
        if len(values) <= 1:
            reason = (str(e) or type(e).__name__).splitlines()[0][:200]
            raise Misfit(row, first(values) if len(values) else None, reason) from e
    half = len(values) // 2
    parts = (_searched(values[:half], convert, first, row), _searched(values[half:], convert, first, row + half))
    return pa.concat_arrays(
        [c for part in parts for c in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])]
    )


def python_values(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values as Python values. A date or time that Python cannot hold, because its year is not from 1 to
    9999, is a text in ISO form."""
    try:
        some: list[Any] = values.to_pylist()
        return some
    except (ValueError, OverflowError):
        return [python_value(scalar) for scalar in values]


def python_value(scalar: pa.Scalar) -> object:
    """`python_values` of one value."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return iso_text(scalar)


def iso_text(scalar: pa.Scalar) -> str:
    """Return a date or time, of any year, as a text in ISO form, in UTC."""
    if scalar.type == pa.date32():
        return str(np.datetime64(scalar.value, "D"))
    if not pa.types.is_timestamp(scalar.type):
        return str(scalar.cast(pa.binary()).as_py())  # Such as a text that is not UTF-8.
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[scalar.type.unit]
    seconds, rest = divmod(scalar.value, 10**digits)
    return f"{np.datetime64(seconds, 's')}.{rest:0{digits}}+00:00"


def python_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return each row as a dict of its columns' `python_values`."""
    columns = map(python_values, rows.columns)
    return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _of_python(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    types = set(map(type, values))
    if any(issubclass(t, np.generic) and _base(t) is None for t in types):
        values = [_of_numpy(v) if isinstance(v, np.generic) else v for v in values]
        types = set(map(type, values))
    types.discard(type(None))
    if nested := [t.__name__ for t in types if issubclass(t, _NESTED)]:
        # pyarrow would read all that is within it: a list that holds itself ends the process.
        raise TypeError(f"a {nested[0]} is no value of a column")
    groups = {_base(t) for t in types}
    if decimal.Decimal in groups:
        check_decimals(values)
    if any(t is not dt.datetime and _base(t) is dt.datetime for t in types):
        values = [_of_pandas(v) for v in values]
        groups = {_base(type(v)) for v in values if v is not None}
    family = _family(kind)
    if groups <= _DIRECT.get(family, set()) and (family != "time" or kind == _INSTANT):
        array = pa.array(values, type=kind)
        if kind == pa.float32() and pc.any(pc.is_inf(array)).as_py():
            _check_range(array, pa.array(values, type=pa.float64()))
        return array
    parts = []
    for group in groups:
        own = [v if _base(type(v)) is group else None for v in values]
        exact = group in _DIRECT.get(family, set()) and len(groups) > 1
        parts.append(_of_python(own, kind) if exact else _cast(pa.array(own, type=_OWN_TYPE.get(group)), kind))
    return parts[0] if len(parts) == 1 else pc.coalesce(*parts)


def _base(python_type: type) -> type | None:
    return next((base for base in _BASES if issubclass(python_type, base)), None)


def _of_numpy(value: np.generic) -> object:
    """A numpy scalar as the Python value that equals it."""
    if isinstance(value, np.datetime64):
        whole = value if np.datetime_data(value.dtype)[0] == "D" else value.astype("datetime64[us]")
        if whole != value and not np.isnat(value):
            raise ValueError("a time has whole microseconds")
        return whole.item()
    if isinstance(value, np.timedelta64):
        raise TypeError("a time span is no value of a column")
    return value.item()


def _of_pandas(value: object) -> object:
    """A pandas Timestamp is a datetime that may have nanoseconds, which pyarrow would drop."""
    if isinstance(value, dt.datetime) and value != value:
        return None  # NaT
    if getattr(value, "nanosecond", 0):
        raise ValueError("a time has whole microseconds")
    return value


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    source, target = _family(array.type), _family(kind)
    if array.null_count == len(array):
        return pa.nulls(len(array), kind)
    if source != target and source not in _CASTS.get(target, set()):
        raise TypeError(f"{array.type} is not converted to {kind}: {_ADVICE.get(target, 'give a number')}")
    if source == "float" and array.type == pa.float16():
        array = array.cast(pa.float32())  # pyarrow's own casts of float16 to other types are wrong.
    if source == "time":
        # A time without a zone is a time in UTC. In another zone it is the same instant.
        array = array.cast(pa.timestamp(array.type.unit, tz="UTC"))
        array = array.cast(_INSTANT) if target == "date" else array
    if (source, target) == ("integer", "decimal"):
        return array.cast(pa.decimal256(20 + kind.scale, kind.scale)).cast(kind)
    done = array.cast(kind)
    if source == target == "float":
        _check_range(done, array)
    # pyarrow itself refuses to cut a decimal to an integer; a float rounds a decimal, as it rounds each number.
    lossy = source != target and (source, target) not in (("decimal", "integer"), ("decimal", "float"))
    # By its text a decimal becomes the nearest float; pyarrow's own cast can miss it by a bit.
    if lossy and (done.cast(pa.string()) if target == "decimal" else done).cast(array.type, safe=False) != array:
        raise ValueError(f"{kind} does not hold it exactly")
    return done


def _check_range(done: pa.Array, given: pa.Array) -> None:
    """ValueError if a finite number of `given` became infinite in `done`."""
    if pc.any(pc.and_(pc.is_inf(done), pc.is_finite(given))).as_py():
        raise ValueError("it is beyond the range of a float")


def _family(kind: pa.DataType) -> str:
    known: tuple[tuple[str, tuple[Callable[[Any], bool], ...]], ...] = (
        ("bool", (pa.types.is_boolean,)),
        ("integer", (pa.types.is_integer,)),
        ("float", (pa.types.is_floating,)),
        ("decimal", (pa.types.is_decimal,)),
        ("text", (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)),
        (
            "bytes",
            (
                pa.types.is_binary,
                pa.types.is_large_binary,
                pa.types.is_binary_view,
                pa.types.is_fixed_size_binary,
            ),
        ),
        ("date", (pa.types.is_date,)),
        ("time", (pa.types.is_timestamp,)),
    )
    return next((name for name, tests in known if any(test(kind) for test in tests)), "other")


def check_decimals(values: Iterable[object]) -> None:
    """Raise ValueError if a decimal among the values is no finite number, or has more digits behind its point than any
    column.

    Call it for each value from outside before pyarrow makes a decimal of it: with 1e-999999999 pyarrow would end the
    process.
    """
    for value in values:
        # A decimal of 38 digits that is at least 1 has fewer than 38 behind the point; pyarrow itself refuses longer
        # ones.
        if not isinstance(value, decimal.Decimal):
            continue
        if not value.is_finite():
            raise ValueError("a decimal is finite")
        if value.adjusted() < 0:
            exponent = value.as_tuple().exponent
            if isinstance(exponent, int) and exponent < -DECIMAL_DIGITS_MAX:
                raise ValueError(f"a decimal has at most {DECIMAL_DIGITS_MAX} digits behind its point")
