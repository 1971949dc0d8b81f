"""Column types, columns and the JSON form of their values."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import re
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

import pyarrow as pa

from nyala.replica.types import Code, Refused, limits, shown

from .conversion import check_decimals

RESERVED_PREFIX = "__"
"""The prefix of the names of the system's own columns: `__op`, `__offset`, `__ts`."""

UTC = dt.UTC


class ColumnType(StrEnum):
    """The type of a column's values. The names are stored in catalogs and sent on the wire: never rename them."""

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    """Microseconds since 1970 in UTC."""


class RowOp(IntEnum):
    """The operation of a row, in the batch column `__op`. Never renumber."""

    INSERT = 1
    UPSERT = 2
    UPDATE = 3
    DELETE = 4
    INSERT_IGNORE = 5
    UPDATE_IGNORE = 6
    DELETE_IGNORE = 7


_ARROW: dict[ColumnType, Any] = {
    ColumnType.BOOL: pa.bool_(),
    ColumnType.INT8: pa.int8(),
    ColumnType.INT16: pa.int16(),
    ColumnType.INT32: pa.int32(),
    ColumnType.INT64: pa.int64(),
    ColumnType.FLOAT: pa.float32(),
    ColumnType.DOUBLE: pa.float64(),
    ColumnType.STRING: pa.string(),
    ColumnType.BINARY: pa.binary(),
    ColumnType.DATE: pa.date32(),
    ColumnType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
}

INTEGER_LIKE = frozenset(
    {
        ColumnType.INT8,
        ColumnType.INT16,
        ColumnType.INT32,
        ColumnType.INT64,
        ColumnType.DATE,
        ColumnType.TIMESTAMP,
    }
)
"""Types whose value is one 64-bit integer: alone in a key, their hash is a bijection."""

VARIABLE_LENGTH = frozenset({ColumnType.STRING, ColumnType.BINARY})
"""The types whose values have any length. Only they count for the bound of a row."""

KEY_TYPES = INTEGER_LIKE | {ColumnType.STRING, ColumnType.BINARY, ColumnType.DECIMAL}


def invalid(what: str, /, **values: object) -> Refused:
    """The refusal of a wrong argument."""
    return Refused(Code.INVALID_ARGUMENT, what, values)


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column. `id` never changes and is never reused; `name` may change.

    Refused(INVALID_ARGUMENT) at construction names the error.
    """

    id: int
    name: str
    type: ColumnType
    nullable: bool = True
    precision: int = 0
    scale: int = 0
    default: object = None

    @property
    def type_text(self) -> str:
        """The type as a text that `create_table` accepts, such as `decimal(9,2)`."""
        return f"decimal({self.precision},{self.scale})" if self.type is ColumnType.DECIMAL else self.type.value

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", ColumnType(self.type))
        if not self.name or len(self.name) > limits.NAME_LENGTH_MAX:
            raise invalid("a column name has 1 to 256 characters", name=self.name[:80])
        if self.name.startswith(RESERVED_PREFIX):
            raise invalid("column names that begin with two underscores are the system's own", name=self.name)
        if self.id < 0:
            raise invalid("a column id is not negative", name=self.name, id=self.id)
        if self.type is ColumnType.DECIMAL:
            if not (1 <= self.precision <= 38 and 0 <= self.scale <= self.precision):
                raise invalid(
                    "a decimal has a precision of 1 to 38 and a scale of 0 to its precision",
                    name=self.name,
                    precision=self.precision,
                    scale=self.scale,
                )
        elif self.precision or self.scale:
            what, given = "only decimals have a precision and a scale", (self.precision, self.scale)
            raise invalid(what, name=self.name, type=self.type.value, given=given)
        if self.default is not None:
            try:
                check_decimals([self.default])
                pa.scalar(self.default, type=self.arrow_type)
            except MemoryError:  # Arrow's, too, which is no fault of the default
                raise
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
                raise invalid("the default is not of the column's type", name=self.name, default=self.default) from e

    @property
    def default_length(self) -> int:
        """Bytes of the default of a column of variable length, 0 if it has none."""
        if self.type not in VARIABLE_LENGTH or self.default is None:
            return 0
        return int(pa.scalar(self.default, type=self.arrow_type).as_buffer().size)

    @property
    def arrow_type(self) -> Any:
        """The pyarrow DataType of the column's values."""
        if self.type is ColumnType.DECIMAL:
            return pa.decimal128(self.precision, self.scale)
        return _ARROW[self.type]


def type_of_arrow(data_type: Any) -> tuple[ColumnType, int, int]:
    """(column type, precision, scale) that holds values of a pyarrow type; Refused(INVALID_ARGUMENT) if none does."""
    if pa.types.is_dictionary(data_type):
        return type_of_arrow(data_type.value_type)
    if pa.types.is_decimal(data_type):
        if data_type.precision > 38:
            raise invalid("decimals have at most 38 digits", type=str(data_type))
        return ColumnType.DECIMAL, data_type.precision, data_type.scale
    if pa.types.is_timestamp(data_type):
        return ColumnType.TIMESTAMP, 0, 0
    if pa.types.is_date(data_type):
        return ColumnType.DATE, 0, 0
    wider = {
        pa.uint8(): ColumnType.INT16,
        pa.uint16(): ColumnType.INT32,
        pa.uint32(): ColumnType.INT64,
        pa.float16(): ColumnType.FLOAT,
        pa.large_string(): ColumnType.STRING,
        pa.string_view(): ColumnType.STRING,
        pa.large_binary(): ColumnType.BINARY,
        pa.binary_view(): ColumnType.BINARY,
    }
    for arrow, column_type in [*((a, t) for t, a in _ARROW.items()), *wider.items()]:
        if arrow == data_type:
            return column_type, 0, 0
    raise invalid("no column type holds values of this Arrow type", type=str(data_type))


def value_to_json(column_type: ColumnType, value: object) -> object:
    """A column value in a form that JSON can have; None stays None."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return aware.astimezone(UTC).isoformat()
    if isinstance(value, dt.date | decimal.Decimal):
        return str(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return repr(value)
    return value


def value_from_json(column_type: ColumnType, value: object) -> object:
    """The inverse of `value_to_json`; Refused(INVALID_ARGUMENT) if `value` is not such a value."""
    if value is None:
        return None
    try:
        if column_type is ColumnType.BINARY:
            return base64.b64decode(str(value), validate=True)
        if column_type is ColumnType.TIMESTAMP:
            return time_of_text(str(value))
        if column_type is ColumnType.DATE:
            return dt.date.fromisoformat(str(value))
        if column_type is ColumnType.DECIMAL:
            number = decimal.Decimal(str(value))
            check_decimals([number])
            return number
        if column_type in (ColumnType.FLOAT, ColumnType.DOUBLE):
            return float(str(value))
    except (ValueError, OverflowError, decimal.InvalidOperation) as e:
        raise invalid("not a value of the type", type=column_type.value, value=shown(value)) from e
    return value


def time_of_text(text: str) -> dt.datetime:
    """The time of a text in ISO form, in UTC, which is the default zone; ValueError if it is none, or has
    nanoseconds."""
    if re.search(r"[.,]\d{6}0*[1-9]", text):  # Python would leave them out.
        raise ValueError("a time has whole microseconds")
    parsed = dt.datetime.fromisoformat(text)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)


def json_whole(value: object) -> int:
    """A number in a schema's JSON, within the range of the other formats; ValueError if it is not one."""
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise ValueError(f"not a number from 0 to {(1 << 31) - 1}: {shown(value)}")
    return value


def json_text(value: object) -> str:
    """A name in a schema's JSON; ValueError if it is not a text, such as half of a surrogate pair."""
    if not isinstance(value, str):
        raise ValueError(f"not a name: {shown(value)}")
    value.encode()
    return value
