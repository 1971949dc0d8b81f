"""Conditions on one column of a key, reduced to one list of values or to two bounds."""

from __future__ import annotations

import operator

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nyala.replica.rows import Conditions, Predicate, Term
from nyala.replica.rows.key_terms import intersected

MEETS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
VALUES = st.integers(0, 9)
TERMS = st.one_of(
    st.builds(Term, st.sampled_from([*MEETS]), st.tuples(VALUES)),
    st.builds(Term, st.just("in"), st.lists(VALUES, max_size=8).map(tuple)),
)


def met(value: int, terms: list[Term]) -> bool:
    return all(value in of if op == "in" else MEETS[op](value, of[0]) for op, of in terms)


@example([Term("<=", (5,)), Term("<", (5,))])
@example([Term("<", (5,)), Term("<=", (5,))])
@example([Term(">=", (5,)), Term(">", (5,))])
@example([Term(">", (5,)), Term(">=", (5,))])
@example([Term("in", (2, 5, 7)), Term(">", (2,)), Term("<", (7,))])
@given(st.lists(TERMS, max_size=6))
def test_terms_together_mean_what_all_of_them_mean(terms: list[Term]) -> None:
    """RD-01. Goal: a search for fewer terms finds the same rows. Method: any terms on ten values; the result is one
    list in order, or at most one bound on each side."""
    few = intersected(terms)
    assert [met(value, few) for value in range(10)] == [met(value, terms) for value in range(10)]
    if any(term.op == "in" for term in terms):
        assert [term.op for term in few] == ["in"] and list(few[0].values) == sorted(set(few[0].values))
    else:
        assert [term.op[0] for term in few] == sorted({term.op[0] for term in terms}, reverse=True)


def test_terms_of_many_conditions_are_made_until_the_caller_leaves() -> None:
    """IN-60. Goal: preparing conditions ends when the caller leaves. Method: `stop` raises at the third of four
    lists."""
    conditions = Conditions([Predicate("k", "in", tuple(range(200)))] * 4, pa.schema([("k", pa.int64())]))
    looks = iter(range(2))

    def stop() -> None:
        if next(looks, None) is None:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        conditions.terms("k", stop)
    assert conditions.terms("k") == [Term("in", list(range(200)))]


@pytest.mark.parametrize(("kind", "values"), [(pa.binary(), ("a",)), (pa.string(), ("b", b"a"))])
def test_list_with_a_value_of_another_type_says_nothing_of_where_rows_are(
    kind: pa.DataType, values: tuple[object, ...]
) -> None:
    """RD-01. Goal: a row is found though a value of the list equals it only after a conversion. Method: a text beside
    binary keys, and bytes beside texts: the filter keeps the row, so the key is not searched."""
    conditions = Conditions([Predicate("k", "in", values)], pa.schema([("k", kind)]))
    rows = pa.record_batch([pa.array([b"a"], kind)], names=["k"])
    assert conditions.mask(rows).to_pylist() == [True] and conditions.terms("k") == []
