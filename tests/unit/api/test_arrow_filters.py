"""What of a filter of an Arrow reader becomes conditions for tablets."""

from __future__ import annotations

import datetime as dt
import decimal
import operator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.arrow_filters import columns_of, pushed
from nyala.dataset import NyalaDataset
from nyala.definitions import definition_of
from nyala.replica.rows import Predicate, predicate_mask
from nyala.replica.types import limits

COLUMNS = {
    "k": "int64",
    "name": "string",
    "share": "double",
    "on": "bool",
    "day": "date",
    "at": "timestamp",
    "price": "decimal(9,2)",
    "raw": "binary",
    "'quoted'": "int8",
}
SCHEMA = definition_of("t", COLUMNS, key="k").schema
UTC_2020 = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
VALUES: dict[str, list[Any]] = {
    "k": [-1, 0, 1, 2**62],
    "name": ["", "a", 'it\'s "q" \\ \n', "é"],
    "share": [-0.0, 0.5, 1e300, float("nan")],
    "on": [True, False],
    "day": [dt.date(2020, 1, 1), dt.date(1969, 7, 20)],
    "at": [UTC_2020, UTC_2020 + dt.timedelta(microseconds=1)],
    "price": [decimal.Decimal("1.50"), decimal.Decimal("-0.01")],
    "raw": [b"", b"\x00'", b"ab"],
    "'quoted'": [0, 1, 127],
}
field = pc.field


def rows() -> pa.RecordBatch:
    """Every value beside nulls; the key is its own row's number where the column has fewer values."""
    filled = {name: [*values, None] * 3 for name, values in VALUES.items()}
    return pa.record_batch(
        [pa.array((filled[f.name] * 9)[:12], f.type) for f in SCHEMA.arrow], names=list(SCHEMA.names)
    )


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        (field("k") > 3, [Predicate("k", ">", (3,))]),
        (pc.greater(pc.scalar(3), field("k")), [Predicate("k", "<", (3,))]),
        (
            (field("k") >= 3) & (field("name") != "it's"),
            [Predicate("k", ">=", (3,)), Predicate("name", "!=", ("it's",))],
        ),
        (field("k").isin([1, 2]), [Predicate("k", "in", (1, 2))]),
        ((field("k") == 1) | field("k").isin([2]) | (field("k") == 3), [Predicate("k", "in", (1, 2, 3))]),
        (field("name").is_null(), [Predicate("name", "is_null", ())]),
        (field("name").is_valid(), [Predicate("name", "is_not_null", ())]),
        (field("on"), [Predicate("on", "=", (True,))]),
        (~field("on"), [Predicate("on", "=", (False,))]),
        (field("'quoted'") == 1, [Predicate("'quoted'", "=", (1,))]),
    ],
)
def test_conditions_that_tablets_know_are_taken_whole(expression: pc.Expression, wanted: list[Predicate]) -> None:
    """Goal: comparisons, lists, tests for null and truth are evaluated at the tablets. Method: expressions as DuckDB
    and polars make them, and their conditions."""
    assert pushed(expression, SCHEMA) == (tuple(wanted), True)


@pytest.mark.parametrize(
    "expression",
    [
        field("k") + 1 > 3,
        (field("k") == 1) | (field("name") == "a"),
        (field("k") == 1) | (field("'quoted'") == 1),
        (field("k") < 1) | (field("k") > 2),
        field("k") == field("'quoted'"),
        field("k") == pa.scalar(None, pa.int64()),
        field("share") == float("nan"),
        field("share").is_null(nan_is_null=True),
        field("k").isin([1, None]),
        ~(field("k") == 1),
        field("unknown") == 1,
        pc.match_like(field("name"), "a%"),
        field("k").isin(range(limits.SCAN_VALUES_MAX + 1)),
    ],
)
def test_conditions_that_tablets_do_not_know_stay_with_the_reader(expression: pc.Expression) -> None:
    """Goal: no condition is taken that means something else at a tablet; the others of an AND are. Method: each alone,
    and beside one that is known."""
    assert pushed(expression, SCHEMA) == ((), False)
    assert pushed(expression & (field("k") < 9), SCHEMA) == ((Predicate("k", "<", (9,)),), False)


def test_columns_of_an_expression_are_those_it_names() -> None:
    """Goal: what the reader evaluates is read, too. Method: an OR of two columns, one of them twice."""
    assert columns_of((field("name") == "a") | (field("k") == 1) | (field("k") == 2), SCHEMA) == ["k", "name"]


def test_form_that_is_not_known_leaves_all_to_the_reader() -> None:
    """Goal: another pickled form of expressions makes reads slower and not wrong. Method: pickles that are none."""

    class Other:
        def __init__(self, pickled: object) -> None:
            self._pickled = pickled

        def __reduce__(self) -> tuple[object, tuple[object]]:
            return object, (self._pickled,)

    for pickled in (b"no Arrow file", pa.py_buffer(b""), file_without_metadata()):
        assert pushed(Other(pickled), SCHEMA) == ((), False)
        assert columns_of(Other(pickled), SCHEMA) == list(SCHEMA.names)


def file_without_metadata() -> pa.Buffer:
    """An Arrow file that is no expression."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema([])) as writer:
        writer.write(pa.record_batch([], names=[]))
    return sink.getvalue()


def conditions() -> st.SearchStrategy[pc.Expression]:
    """Trees of conditions over every column type."""
    signs = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]

    def one(name: str) -> st.SearchStrategy[pc.Expression]:
        kind = SCHEMA.arrow.field(name).type
        value = st.sampled_from(VALUES[name]).map(lambda v: pa.scalar(v, kind))
        compared = st.tuples(st.sampled_from(signs), value).map(lambda pair: pair[0](field(name), pair[1]))
        listed = st.lists(st.sampled_from(VALUES[name]), max_size=3).map(
            lambda vs: field(name).isin(pa.array(vs, kind))
        )
        return st.one_of(compared, listed, st.just(field(name).is_null()), st.just(field(name).is_valid()))

    leaves = st.sampled_from(list(COLUMNS)).flatmap(one)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda two: two[0] & two[1]),
            st.tuples(inner, inner).map(lambda two: two[0] | two[1]),
            inner.map(lambda it: ~it),
        ),
        max_leaves=6,
    )


@settings(max_examples=150, deadline=None)
@given(expression=conditions())
def test_tablets_send_every_row_that_the_filter_wants(expression: pc.Expression) -> None:
    """Goal: a filter gives the same rows, wherever it is evaluated. Method: random trees of conditions over every type,
    evaluated by Arrow and by the tablets' code over values, nulls and NaN."""
    batch = rows()
    predicates, whole = pushed(expression, SCHEMA)
    by_arrow = pa.table(batch).append_column("row", pa.array(range(batch.num_rows))).filter(expression)["row"]
    kept = predicate_mask(batch, predicates)
    sent = set(range(batch.num_rows)) if kept is None else {n for n, each in enumerate(kept.to_pylist()) if each}
    wanted = set(by_arrow.to_pylist())
    assert wanted == sent if whole else wanted <= sent, (str(expression), predicates)


def test_every_call_of_a_dataset_is_our_own() -> None:
    """Goal: no inherited call of pyarrow reads a file in place of the table. Method: each public name of the class."""
    names = {name for name in dir(ds.FileSystemDataset) if not name.startswith("__")}
    assert names - {"_scan_options", "_scanner_options"} <= set(vars(NyalaDataset))
