"""Turns the filter of an Arrow reader, such as DuckDB's, into conditions that tablets evaluate.

pyarrow has no function that takes an expression apart. Its pickled form does it: a record batch whose columns are the
literals, with their types, and whose metadata is the expression in prefix order. What is not understood there stays
with the reader. So a change of that form makes reads slower, never wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from nyala.replica.client import NotApplied
from nyala.replica.rows import Predicate, TableSchema

from .expressions import Col, Condition, bound

if TYPE_CHECKING:
    import pyarrow.compute as pc

_LINE = re.compile(r"(call|end|field_ref|literal|options): '(.*)'")
_MIRRORED = {
    "equal": "equal",
    "not_equal": "not_equal",
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
}
_SIGNS = {"equal": "=", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_MATCH = 0
"""`SetLookupOptions`: a null among the values matches nulls."""


class Pushed(NamedTuple):
    """What of a filter the tablets evaluate. `whole`: that is the filter, and nothing is left to evaluate."""

    predicates: tuple[Predicate, ...]
    whole: bool


@dataclass(frozen=True)
class _Field:
    name: str


@dataclass(frozen=True)
class _Literal:
    value: object


@dataclass(frozen=True)
class _Call:
    function: str
    given: tuple[_Node, ...]
    options: Mapping[str, object]


_Node = _Field | _Literal | _Call


class _NotUnderstood(Exception):
    pass


def pushed(expression: pc.Expression, schema: TableSchema) -> Pushed:
    """Return the conditions that every row must meet for which the pc.Expression is true. Pure.

    Conditions of the expression that tablets cannot evaluate, such as an OR of two columns, are left out.
    """
    try:
        tree = _tree_of(expression)
    except _NotUnderstood:
        return Pushed((), whole=False)
    found: list[Predicate] = []
    whole = True
    for part in _parts(tree):
        try:
            found += bound(_condition(part), schema)
        except (_NotUnderstood, NotApplied):
            whole = False
    try:
        return Pushed(bound(Condition(found), schema), whole)
    except NotApplied:  # more than one scan may have
        return Pushed((), whole=False)


def columns_of(expression: pc.Expression, schema: TableSchema) -> list[str]:
    """Return the names of the columns that the expression may need; all of them if it is not understood."""
    try:
        needed = set(_fields(_tree_of(expression)))
    except _NotUnderstood:
        needed = set(schema.names)
    return [name for name in schema.names if name in needed]


def _fields(node: _Node) -> Iterator[str]:
    if isinstance(node, _Field):
        yield node.name
    elif isinstance(node, _Call):
        for each in node.given:
            yield from _fields(each)


def _tree_of(expression: pc.Expression) -> _Node:
    try:
        batch = pa.ipc.open_file(expression.__reduce__()[1][0]).get_batch(0)
        text = batch.schema.to_string(truncate_metadata=False, show_field_metadata=False)
    except MemoryError:
        raise
    except (pa.ArrowException, TypeError, IndexError, ValueError) as error:
        raise _NotUnderstood from error
    lines = text.rpartition("-- schema metadata --\n")[2].splitlines()
    words = [match.groups() if (match := _LINE.fullmatch(line)) else ("", line) for line in lines]
    node, end = _read(words, 0, batch.columns)
    if end != len(words):
        raise _NotUnderstood
    return node


def _read(words: Sequence[tuple[str, ...]], at: int, literals: Sequence[pa.Array]) -> tuple[_Node, int]:
    """Return the node that begins at a position, and the position behind it."""
    try:
        kind, value = words[at]
        if kind == "field_ref":
            return _Field(value), at + 1
        if kind == "literal":
            return _Literal(literals[int(value)][0].as_py()), at + 1
        if kind != "call":
            raise _NotUnderstood
        at, given, options = at + 1, [], {}
        while words[at] != ("end", value):
            if words[at][0] == "options":
                options, at = literals[int(words[at][1])][0].as_py(), at + 1
            else:
                node, at = _read(words, at, literals)
                given.append(node)
        return _Call(value, tuple(given), options), at + 1
    except (IndexError, ValueError) as error:
        raise _NotUnderstood from error


def _parts(node: _Node) -> Iterator[_Node]:
    """The parts that must all be true."""
    if isinstance(node, _Call) and node.function in ("and_kleene", "and"):
        for each in node.given:
            yield from _parts(each)
    else:
        yield node


def _condition(node: _Node) -> Condition:
    match node:
        case _Field(name):
            return Col(name) == True  # noqa: E712 - builds a condition
        case _Call("invert", (_Field(name),)):
            return Col(name) == False  # noqa: E712
        case _Call("is_valid", (_Field(name),)):
            return Col(name).is_not_null()
        case _Call("is_null", (_Field(name),), options) if options and not options.get("nan_is_null"):
            return Col(name).is_null()
        case _Call(sign, (_Field(name), _Literal(value))) if sign in _SIGNS:
            return _comparison(name, sign, value)
        case _Call(sign, (_Literal(value), _Field(name))) if sign in _SIGNS:
            return _comparison(name, _MIRRORED[sign], value)
        case _Call("is_in", (_Field(name),), options) if options:
            return _listed(name, options)
        # What DuckDB makes of IN: a null is no member, and no other either.
        case _Call("if_else", (_Call("is_valid", (_Field(tested),)), _Call("is_in", (_Field(name),), options), _)) if (
            options and tested == name
        ):
            return _listed(name, options)
        case _Call("or_kleene" | "or", (left, right)):
            return _either(_condition(left), _condition(right))
    raise _NotUnderstood


def _comparison(name: str, sign: str, value: object) -> Condition:
    if value is None:
        raise _NotUnderstood
    return Condition([Predicate(name, _SIGNS[sign], (value,))])


def _listed(name: str, options: Mapping[str, object]) -> Condition:
    values = options.get("value_set")
    if not isinstance(values, list) or options.get("null_matching_behavior") != _MATCH:
        raise _NotUnderstood
    return Col(name).isin(values)


def _either(left: Condition, right: Condition) -> Condition:
    """One list of values, where both sides name values of one column."""
    one, other = _only(left), _only(right)
    if one.column != other.column or not {one.op, other.op} <= {"=", "in"}:
        raise _NotUnderstood
    return Col(one.column).isin((*one.values, *other.values))


def _only(condition: Condition) -> Predicate:
    (predicate,) = condition.predicates
    return predicate
