"""Conditions as text: `delay >= 10 and carrier in ('AA', 'UA') and gate is not null`.

The grammar is small on purpose: every condition in it runs at the tablets exactly as written. All other filters are
evaluated by Spark.
"""

from __future__ import annotations

import decimal
import json
import re
from typing import Any

from nyala.replica.rows import Column, ColumnType, Predicate, TableSchema, exact_predicate, value_from_json
from nyala.replica.types import Code, Refused, shown

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>'(?:[^']|'')*')
    | (?P<number>[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)
    | (?P<quoted>`[^`]+`)
    | (?P<word>[^\W\d]\w*)
    | (?P<sign><=|>=|!=|<>|=|<|>|\(|\)|,)
    )""",
    re.VERBOSE,
)
_FLOATS = (ColumnType.FLOAT, ColumnType.DOUBLE)
_COMPARISONS = {"=": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def parse_where(text: str, schema: TableSchema) -> tuple[Predicate, ...]:
    """Parse predicates that must all hold. Refused(INVALID_ARGUMENT) names the position at which the text is not
    understood."""
    if not text.strip():
        return ()
    return _Parser(text, schema).all()


class _Parser:
    def __init__(self, text: str, schema: TableSchema) -> None:
        self._text = text
        self._schema = schema
        self._tokens = self._split(text)
        self._at = 0

    def all(self) -> tuple[Predicate, ...]:
        found = [self._one()]
        while self._at < len(self._tokens):
            self._word("and")
            found.append(self._one())
        return tuple(exact_predicate(p, self._schema.column(p.column).arrow_type) for p in found)

    def _split(self, text: str) -> list[tuple[str, str]]:
        tokens, at, end = [], 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._error(f"not understood: {text[at : at + 20]!r}")
            kind = match.lastgroup or ""
            tokens.append((kind, match[kind]))
            at = match.end()
        return tokens

    def _error(self, why: str) -> Refused:
        return Refused(Code.INVALID_ARGUMENT, f"where {shown(self._text)!r}: {why}")

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise self._error("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _word(self, *wanted: str) -> str:
        kind, text = self._next()
        if kind != "word" or text.lower() not in wanted:
            raise self._error(f"expected {' or '.join(wanted)}, found {shown(text)!r}")
        return text.lower()

    def _sign(self, wanted: str) -> None:
        if (found := self._next()[1]) != wanted:
            raise self._error(f"expected {wanted!r}, found {shown(found)!r}")

    def _one(self) -> Predicate:
        kind, name = self._next()
        if kind not in ("word", "quoted"):
            raise self._error(f"expected a column, found {shown(name)!r}")
        column = self._schema.column(name.strip("`"))
        kind, sign = self._next()
        if kind == "sign" and sign in _COMPARISONS:
            return Predicate(column.name, _COMPARISONS[sign], (self._value(column),))
        if kind == "word" and sign.lower() == "in":
            return Predicate(column.name, "in", self._list(column))
        if kind == "word" and sign.lower() == "is":
            if self._word("not", "null") == "null":
                return Predicate(column.name, "is_null", ())
            self._word("null")
            return Predicate(column.name, "is_not_null", ())
        raise self._error(f"expected a comparison after {column.name}, found {shown(sign)!r}")

    def _list(self, column: Column) -> tuple[Any, ...]:
        self._sign("(")
        values = [self._value(column)]
        while (found := self._next()[1]) == ",":
            values.append(self._value(column))
        if found != ")":
            raise self._error(f"expected ')', found {shown(found)!r}")
        return tuple(values)

    def _value(self, column: Column) -> Any:
        kind, text = self._next()
        if kind == "string":
            plain = text[1:-1].replace("''", "'")
            return plain.encode() if column.type is ColumnType.BINARY else value_from_json(column.type, plain)
        if kind == "number":
            parse = float if column.type in _FLOATS else decimal.Decimal
            try:
                return json.loads(text.lstrip("+"), parse_float=parse)
            except (ValueError, decimal.InvalidOperation):  # such as 007
                raise self._error(f"{text[:40]!r} is not a number") from None
        if kind == "word" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise self._error(f"expected a value for {column.name}, found {shown(text)!r}")
