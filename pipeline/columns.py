"""Turns raw Avro values into a table's column. It decides which Avro types a column accepts, and checks ranges, UTF-8
and decimals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nyala.replica.rows import Column, ColumnType
from nyala.replica.types import RowCode

from .avro_columns import Cursor, Field, Values, gather, unscaled_words

_INTEGERS = frozenset({"int", "long"})
_NUMBERS = _INTEGERS | {"float", "double"}
_KINDS: dict[ColumnType, frozenset[str]] = {
    ColumnType.BOOL: frozenset({"boolean"}),
    ColumnType.INT8: _INTEGERS,
    ColumnType.INT16: _INTEGERS,
    ColumnType.INT32: _INTEGERS,
    ColumnType.INT64: _INTEGERS,
    ColumnType.FLOAT: _NUMBERS,
    ColumnType.DOUBLE: _NUMBERS,
    ColumnType.DECIMAL: frozenset({"bytes", "fixed"}),
    ColumnType.STRING: frozenset({"string", "enum"}),
    ColumnType.BINARY: frozenset({"bytes", "fixed", "string"}),
    ColumnType.DATE: frozenset({"int"}),
    ColumnType.TIMESTAMP: frozenset({"long"}),
}
_RANGES: dict[ColumnType, Any] = {
    ColumnType.INT8: np.iinfo(np.int8),
    ColumnType.INT16: np.iinfo(np.int16),
    ColumnType.INT32: np.iinfo(np.int32),
    ColumnType.DATE: np.iinfo(np.int32),
}
_TIMESTAMP_FACTORS = {
    "timestamp-micros": 1,
    "local-timestamp-micros": 1,
    "timestamp-millis": 1000,
    "local-timestamp-millis": 1000,
}


def fits(column: Column, field: Field) -> bool:
    """Whether values written as `field` can be values of `column`; single values may still be out of range."""
    if field.kind not in _KINDS[column.type]:
        return False
    if column.type is ColumnType.TIMESTAMP:
        return field.logical in _TIMESTAMP_FACTORS
    if column.type is ColumnType.DATE:
        return field.logical == "date"
    if column.type is ColumnType.DECIMAL:
        return field.logical == "decimal"
    return True


def to_array(column: Column, field: Field, values: Values, cursor: Cursor, buffer: Any) -> Any:
    """Return a pyarrow array of the column's type. Rows whose value does not fit get a code in `cursor`.

    `buffer` is the pa.Buffer under `cursor.data`. A null stays a null: the tablet checks whether it is allowed.
    """
    return _MAKERS.get(column.type, _integer)(column, field, values, cursor, buffer)


def _nulls(values: Values) -> Any:
    return None if values.valid.all() else ~values.valid


def _words(values: Values) -> npt.NDArray[np.int64]:
    return values.words if values.words is not None else np.zeros(values.valid.size, np.int64)


def _out_of_range(cursor: Cursor, values: Values, wrong: Any) -> None:
    rows = np.flatnonzero(wrong & values.valid)
    if rows.size:
        cursor.fail(rows, RowCode.VALUE_OUT_OF_RANGE)
        values.valid = values.valid & ~wrong


def _integer(column: Column, field: Field, values: Values, cursor: Cursor, buffer: Any) -> Any:
    words = _words(values)
    if limits := _RANGES.get(column.type):
        _out_of_range(cursor, values, (words < limits.min) | (words > limits.max))
        words = words.astype(limits.dtype)
    array = pa.array(words, mask=_nulls(values))
    return array.view(column.arrow_type) if column.type is ColumnType.DATE else array


def _timestamp(column: Column, field: Field, values: Values, cursor: Cursor, buffer: Any) -> Any:
    words = _words(values)
    if (factor := _TIMESTAMP_FACTORS[field.logical]) != 1:
        most = np.iinfo(np.int64).max // factor
        _out_of_range(cursor, values, (words > most) | (words < -most))
        words = np.where(values.valid, words, 0) * factor
    return pa.array(words, mask=_nulls(values)).view(column.arrow_type)


def _boolean(column: Column, field: Field, values: Values, cursor: Cursor, buffer: Any) -> Any:
    return pa.array(_words(values) != 0, mask=_nulls(values))


def _real(column: Column, field: Field, values: Values, cursor: Cursor, buffer: Any) -> Any:
    reals = values.reals if values.reals is not None else _words(values).astype(np.float64)
    if column.type is ColumnType.FLOAT:
        with np.errstate(over="ignore", invalid="ignore"):
            narrow = reals.astype(np.float32)
        _out_of_range(cursor, values, np.isinf(narrow) & np.isfinite(reals))
        return pa.array(narrow, mask=_nulls(values))
    return pa.array(reals, mask=_nulls(values))


def _binary(column: Column, field: Field, values: Values, cursor: Cursor, buffer: Any) -> Any:
    if values.starts is None or values.lengths is None:
        raise TypeError("only byte spans make binary columns")
    return gather(buffer, values.starts, values.lengths, values.valid)


def _string(column: Column, field: Field, values: Values, cursor: Cursor, buffer: Any) -> Any:
    if field.kind == "enum":
        positions = pa.array(_words(values).astype(np.int32), mask=_nulls(values))
        return pa.DictionaryArray.from_arrays(positions, pa.array(field.symbols, pa.string())).dictionary_decode()
    raw = _binary(column, field, values, cursor, buffer)
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return _each(raw, lambda value: value.decode("utf-8"), pa.string(), cursor, RowCode.UNDECODABLE)


def _decimal(column: Column, field: Field, values: Values, cursor: Cursor, buffer: Any) -> Any:
    if values.starts is None or values.lengths is None:
        raise TypeError("only byte spans make decimal columns")
    _out_of_range(cursor, values, values.lengths > 16)
    content = pa.py_buffer(np.ascontiguousarray(unscaled_words(cursor.data, values)))
    bitmap = pa.py_buffer(np.packbits(values.valid, bitorder="little"))
    raw = pa.Array.from_buffers(pa.decimal128(38, field.scale), values.valid.size, [bitmap, content])
    try:
        raw.validate(full=True)
        return raw.cast(column.arrow_type)
    except pa.ArrowInvalid:
        pass
    fitting = []
    for pos in range(len(raw)):
        one = raw.slice(pos, 1)
        try:
            one.validate(full=True)
            fitting.append(one.cast(column.arrow_type))
        except pa.ArrowInvalid:
            cursor.fail(np.array([pos]), RowCode.VALUE_OUT_OF_RANGE)
            fitting.append(pa.nulls(1, column.arrow_type))
    return pa.concat_arrays(fitting)


def _each(raw: Any, convert: Callable[[bytes], object], kind: Any, cursor: Cursor, code: RowCode) -> Any:
    """Convert value by value, slowly, for a batch with at least one bad value."""
    out: list[object] = []
    for pos, value in enumerate(raw.to_pylist()):
        try:
            out.append(None if value is None else convert(value))
        except (ValueError, OverflowError):
            cursor.fail(np.array([pos]), code)
            out.append(None)
    return pa.array(out, kind)


_MAKERS: dict[ColumnType, Callable[[Column, Field, Values, Cursor, Any], Any]] = {
    ColumnType.BOOL: _boolean,
    ColumnType.FLOAT: _real,
    ColumnType.DOUBLE: _real,
    ColumnType.DECIMAL: _decimal,
    ColumnType.STRING: _string,
    ColumnType.BINARY: _binary,
    ColumnType.TIMESTAMP: _timestamp,
}
