"""Conditions on columns: built in Python, or read from a line of text.

    nyala.col("delay") > 60
    (nyala.col("carrier").isin(["AA", "UA"])) & nyala.col("cancelled").is_null()
    "carrier = 'AA' and delay > 10"

All parts of a condition must hold (AND). A text has names, or "names in double quotes"; operators = == != <> < <= >
>=, IN (...), BETWEEN a AND b, IS NULL, IS NOT NULL; values: 'text' ('' is a quote), numbers, true, false.
For a date, timestamp or decimal column a text value is converted to that type, from ISO form; default zone: UTC.
"""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nyala.replica.client import NotApplied
from nyala.replica.rows import (
    Column,
    ColumnType,
    ConditionsSize,
    Predicate,
    TableSchema,
    array_of,
    conditions_size,
    exact_predicate,
    time_of_text,
)
from nyala.replica.types import Refused, as_given, check_kind, limits, shown, some_of

from .argument_errors import invalid_argument, unknown_name, valid


class Condition:
    """One or more conditions that must all hold. `&` joins them."""

    def __init__(self, predicates: Iterable[Predicate]) -> None:
        """NotApplied(INVALID_ARGUMENT) if there are more than one scan may have, however many there are."""
        self.predicates = tuple(itertools.islice(predicates, limits.SCAN_PREDICATES_MAX + 1))
        _check_size(ConditionsSize(len(self.predicates), 0, 0))

    def __and__(self, other: Condition) -> Condition:
        return Condition((*self.predicates, *as_condition(other).predicates))

    def __or__(self, other: object) -> Condition:
        raise invalid_argument(
            "OR cannot be evaluated at the tablets", "use isin(), or scan for each alternative, or filter after"
        )

    def __invert__(self) -> Condition:
        raise invalid_argument(
            "NOT cannot be evaluated at the tablets", "turn the comparison around, or filter after the scan"
        )

    def __bool__(self) -> bool:
        raise invalid_argument(
            "a condition is neither true nor false", "join conditions with &, each in parentheses, not with and"
        )

    def __repr__(self) -> str:
        return " and ".join(_text_of(p) for p in self.predicates) or "everything"


def _text_of(predicate: Predicate) -> str:
    name = predicate.column if re.fullmatch(r"[A-Za-z_]\w*", predicate.column) else f'"{predicate.column}"'
    if predicate.op in ("is_null", "is_not_null"):
        return f"{name} {predicate.op.replace('_', ' ')}"
    if predicate.op == "in":
        return f"{name} in ({some_of(predicate.values, as_given)})"
    return f"{name} {predicate.op} {as_given(predicate.values[0])}"


def _is_nan(value: object) -> bool:
    return value.is_nan() if isinstance(value, decimal.Decimal) else isinstance(value, float) and value != value


class Col:
    """A column in a condition, by name; made by `nyala.col`."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise invalid_argument("col() takes a column's name", 'give it as in col("price")', got=as_given(name))
        self.name = name

    def _compare(self, op: str, value: object) -> Condition:
        if value is None:
            raise invalid_argument("nothing compares with None", "use .is_null() or .is_not_null()", column=self.name)
        if _is_nan(value):
            raise invalid_argument("NaN equals nothing and has no order", "leave the comparison out", column=self.name)
        if isinstance(value, Col):
            raise invalid_argument(
                "two columns cannot be compared at the tablets", "filter after the scan", column=self.name
            )
        return Condition([Predicate(self.name, op, (value,))])

    def __eq__(self, value: object) -> Condition:  # type: ignore[override]
        return self._compare("=", value)

    def __ne__(self, value: object) -> Condition:  # type: ignore[override]
        return self._compare("!=", value)

    def __lt__(self, value: object) -> Condition:
        return self._compare("<", value)

    def __le__(self, value: object) -> Condition:
        return self._compare("<=", value)

    def __gt__(self, value: object) -> Condition:
        return self._compare(">", value)

    def __ge__(self, value: object) -> Condition:
        return self._compare(">=", value)

    def isin(self, values: Iterable[object]) -> Condition:
        """Return the condition that the column equals one of the values. All conditions of one scan have at most
        100,000 values, of 7 MiB together."""
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise invalid_argument(
                "isin() takes a list of values", "give one, as in isin([1, 2])", got=as_given(values)
            )
        # `values` may be endless: one more than a scan may have is enough for the refusal.
        given = tuple(itertools.islice(values, limits.SCAN_VALUES_MAX + 1))
        if any(map(_is_nan, given)):
            raise invalid_argument("isin() takes no NaN, which equals nothing", "leave it out", column=self.name)
        if any(v is None for v in given):
            raise invalid_argument("isin() takes no None", "use .is_null()", column=self.name)
        return Condition(_checked([Predicate(self.name, "in", given)]))

    def between(self, low: object, high: object) -> Condition:
        """Return the condition that the column is from `low` to `high`, both included."""
        return (self >= low) & (self <= high)

    def is_null(self) -> Condition:
        """Return the condition that the column has no value."""
        return Condition([Predicate(self.name, "is_null", ())])

    def is_not_null(self) -> Condition:
        """Return the condition that the column has a value."""
        return Condition([Predicate(self.name, "is_not_null", ())])

    def __repr__(self) -> str:
        return f"col({self.name!r})"


def col(name: str) -> Col:
    """Return a column for a condition: `nyala.col("delay") > 60`."""
    return Col(name)


Where = Condition | str | Sequence[Any] | None
"""The forms of `where=`: a condition, text, or a list of either; None selects all rows."""


def as_condition(where: Where) -> Condition:
    """Return any form of `where=` as one condition; NotApplied(INVALID_ARGUMENT) describes what is wrong."""
    if where is None:
        return Condition(())
    if isinstance(where, Condition):
        return where
    if isinstance(where, str):
        return parse_condition(where)
    if isinstance(where, Col):
        raise invalid_argument("a column is no condition", "compare it with something", column=where.name)
    if isinstance(where, list | tuple):
        if nested := [part for part in where if isinstance(part, list | tuple)]:
            raise invalid_argument("where= takes one list", "join its conditions in it", got=as_given(nested[0]))
        return Condition(p for part in where for p in as_condition(part).predicates)
    raise invalid_argument(
        "where= takes a condition, text, or a list of them", 'give one such as nyala.col("x") > 3', got=as_given(where)
    )


# ---- text

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[+-]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    | (?P<text>'(?:[^']|'')*')
    | "(?P<quoted>(?:[^"]|"")+)"
    | (?P<word>[^\W\d]\w*)
    | (?P<mark><=|>=|<>|!=|==|[=<>(),])
    )""",
    re.VERBOSE,
)
_NUMBER_CHARS_MAX = 400
"""Bounds the characters of one number. The highest double has 309 digits."""
_PARENTHESES_MAX = 32
"""Bounds how deep parentheses may be nested."""
_OPERATORS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


class _Literal(decimal.Decimal):
    """A number with a fraction or exponent in a text: beside a float or double, it is the nearest one, as in Python."""


class _Reader:
    """Tokens of one condition's text, with their positions for messages."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        pos, end = 0, len(text.rstrip())
        while pos < end:
            match = _TOKEN.match(text, pos)
            if match is None:
                rest = text[pos:].lstrip()
                hint = "a quote is not closed" if rest[0] in "'\"" else "this cannot be read"
                raise self.error(hint, len(text) - len(rest))
            kind = str(match.lastgroup)
            self.tokens.append((kind, match.group(kind), match.start(kind)))
            pos = match.end()
        self.at = 0

    def error(self, what: str, pos: int | None = None) -> Exception:
        where = pos if pos is not None else self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.text)
        todo = "write it as in \"price > 3 AND city IN ('Oslo', 'Rome')\""
        return invalid_argument(
            f"the condition cannot be read: {what}", todo, at=where + 1, near=repr(self.text[where : where + 20])
        )

    def is_word(self, *words: str) -> bool:
        """Whether the next token is one of these words; if so, it is consumed."""
        if self.at < len(self.tokens):
            kind, value, _ = self.tokens[self.at]
            if kind == "word" and value.lower() in words:
                self.at += 1
                return True
        return False

    def is_mark(self, *marks: str) -> str:
        """Consume and return the next token if it is one of these marks; else return an empty text."""
        if self.at < len(self.tokens) and self.tokens[self.at][0] == "mark" and self.tokens[self.at][1] in marks:
            self.at += 1
            return self.tokens[self.at - 1][1]
        return ""

    def value(self) -> object:
        if self.at >= len(self.tokens):
            raise self.error("a value is missing at the end")
        kind, value, _ = self.tokens[self.at]
        if kind == "number":
            if len(value) > _NUMBER_CHARS_MAX:
                raise self.error(f"a number of more than {_NUMBER_CHARS_MAX} characters")
            try:
                number = int(value) if re.fullmatch(r"[+-]?\d+", value) else _Literal(value)
            except decimal.InvalidOperation:
                raise self.error("a number with such an exponent is out of range") from None
            self.at += 1
            return number
        if kind == "text":
            self.at += 1
            return value[1:-1].replace("''", "'")
        if kind == "word" and value.lower() in ("true", "false"):
            self.at += 1
            return value.lower() == "true"
        if kind == "word" and value.lower() in ("date", "timestamp"):
            self.at += 1
            return self.value()
        if kind in ("word", "quoted"):
            raise self.error(f"a value is wanted; text goes into single quotes: '{shown(value)}'")
        raise self.error("a value is wanted")

    def name(self) -> str:
        if self.at >= len(self.tokens):
            raise self.error("a column is missing at the end")
        kind, value, _ = self.tokens[self.at]
        if kind not in ("word", "quoted"):
            raise self.error("a column's name is wanted")
        self.at += 1
        return value.replace('""', '"') if kind == "quoted" else value


def parse_condition(text: str) -> Condition:
    """Parse text, for example `carrier = 'AA' and delay > 10`; the refusal names the position of a mistake."""
    reader = _Reader(valid(check_kind, text, str, "a condition's text"))
    if not reader.tokens:
        return Condition(())
    parts: list[Predicate] = []
    while True:
        parts.extend(_one(reader).predicates)
        if reader.at == len(reader.tokens):
            return Condition(parts)
        if reader.is_word("or"):
            reader.at -= 1
            raise reader.error("OR cannot be evaluated at the tablets; use IN (...)")
        if not reader.is_word("and"):
            raise reader.error("AND is wanted between conditions")


def _one(reader: _Reader, depth: int = 1) -> Condition:
    if reader.is_mark("("):
        if depth > _PARENTHESES_MAX:
            raise reader.error(f"more than {_PARENTHESES_MAX} parentheses within one another")
        inside = _one(reader, depth + 1)
        while reader.is_word("and"):
            inside = inside & _one(reader, depth + 1)
        if not reader.is_mark(")"):
            raise reader.error("a closing parenthesis is missing")
        return inside
    if reader.is_word("not"):
        reader.at -= 1
        raise reader.error("NOT is only for IS NOT NULL")
    column = Col(reader.name())
    op = reader.is_mark(*_OPERATORS)
    if op:
        if reader.is_word("null"):
            raise reader.error("nothing compares with NULL; write IS NULL or IS NOT NULL")
        return column._compare(_OPERATORS[op], reader.value())
    if reader.is_word("is"):
        negated = reader.is_word("not")
        if not reader.is_word("null"):
            raise reader.error("IS NULL or IS NOT NULL is wanted")
        return column.is_not_null() if negated else column.is_null()
    if reader.is_word("between"):
        low = reader.value()
        if not reader.is_word("and"):
            raise reader.error("BETWEEN a AND b is wanted")
        return column.between(low, reader.value())
    if reader.is_word("in"):
        if not reader.is_mark("("):
            raise reader.error("IN is followed by values in parentheses")
        values = [reader.value()]
        while reader.is_mark(","):
            values.append(reader.value())
        if not reader.is_mark(")"):
            raise reader.error("a closing parenthesis is missing")
        return column.isin(values)
    raise reader.error("an operator is wanted: = != < <= > >= IN BETWEEN IS")


# ---- types


def bound(condition: Condition, schema: TableSchema) -> tuple[Predicate, ...]:
    """Return predicates that mean exactly the same, with values in their columns' types. NotApplied(INVALID_ARGUMENT)
    for unknown columns, impossible values, and more conditions than one scan may have."""

    def one(given: Predicate) -> Predicate:
        column = column_of(schema, given.column)
        values = tuple(_as_type(v, column) for v in given.values)
        return exact_predicate(Predicate(given.column, given.op, values), column.arrow_type)

    return _checked(map(one, condition.predicates))


def _checked(predicates: Iterable[Predicate]) -> tuple[Predicate, ...]:
    """Return the predicates; NotApplied(INVALID_ARGUMENT) if there are more than one scan may have."""
    given = tuple(predicates)
    _check_size(conditions_size(given))
    return given


def _check_size(size: ConditionsSize) -> None:
    try:
        size.check()
    except Refused as e:
        raise NotApplied(e.code, e.what, e.values) from e


def column_of(schema: TableSchema, name: str) -> Column:
    """Return the column of that name; the refusal suggests close names."""
    if not schema.has(name):
        raise unknown_name("column", name, schema.names)
    return schema.column(name)


def _as_type(value: Any, column: Column) -> object:
    reason = ""
    try:
        scalar = hasattr(value, "item") and not isinstance(value, str | bytes | np.datetime64 | np.timedelta64)
        converted = _converted(value.item() if scalar else value, column)
    except (ValueError, OverflowError, decimal.InvalidOperation) as e:
        converted, reason = None, str(e)
    if converted is None:
        raise invalid_argument(
            "the value cannot be compared with the column",
            "give one of the column's type",
            column=column.name,
            type=column.type.value,
            value=as_given(value),
            value_type=type(value).__name__,
            **({"reason": reason} if reason else {}),
        )
    return converted


def _converted(value: Any, column: Column) -> object:
    """Return the value in a form that compares exactly with the column, or None."""
    kind = column.type
    if kind is ColumnType.STRING:
        return value if isinstance(value, str) else None
    if kind is ColumnType.BINARY:
        return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None
    if kind is ColumnType.BOOL:
        return value if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if kind in (ColumnType.DATE, ColumnType.TIMESTAMP):
        if isinstance(value, str):
            value = dt.date.fromisoformat(value) if kind is ColumnType.DATE else time_of_text(value)
        return array_of([value], column.arrow_type)[0].as_py()
    if kind is ColumnType.DECIMAL and isinstance(value, float | str):
        value = decimal.Decimal(str(value))
    if kind in _FLOATS and isinstance(value, _Literal):
        value = float(value)
    return None if _is_nan(value) or not isinstance(value, int | float | decimal.Decimal) else value


_FLOATS = (ColumnType.FLOAT, ColumnType.DOUBLE)
