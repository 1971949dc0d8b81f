"""What a text in SQL names, and what its result is called."""

from __future__ import annotations

from typing import Any

import pytest

import nyala
from nyala.replica.client import Client, NotApplied, parse_masters
from nyala.sql import tables_named, unique_names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('select * from a join "B-x" using (k)', ["B-x", "a"]),
        ("with t as (select * from inner_one) select * from t, main.zz", ["inner_one", "zz"]),
        ("select (select max(k) from b) from a where k in (select k from c)", ["a", "b", "c"]),
        ("from a", ["a"]),
        ("describe a", ["a"]),
        ("select 'from nowhere', 1 -- from nobody", []),
        ("with recursive r as (select 1 union all select * from r, e) select * from r", ["e"]),
    ],
)
def test_tables_of_a_query_are_found_wherever_they_are_named(text: str, names: list[str]) -> None:
    """Goal: each table that a query reads is opened, and no other. Method: joins, subqueries, WITH, comments."""
    assert tables_named(text) == names


@pytest.mark.parametrize("text", ["select " + "+".join("1" * 900), "select " + "(select " * 300 + "1" + ")" * 300])
def test_query_of_endless_depth_is_refused(text: str) -> None:
    """Goal: no query ends its program by an exception of Python. Method: sums and queries within one another."""
    with pytest.raises(NotApplied, match="too many expressions within one another"):
        tables_named(text)


@pytest.mark.parametrize(
    "values",
    [[object()], {"x": [object()]}, ["\ud800"], [10**5000]],
    ids=["object", "object in a list", "half a character", "endless"],
)
def test_value_that_duckdb_does_not_take_is_refused(values: Any) -> None:
    """Goal: a parameter is a value, or the query is refused in one line. Method: objects, half a character, a number
    without end; a query of no table, so that no process is asked."""
    query = nyala.Cluster(Client(parse_masters("127.0.0.1:1")), "").sql(
        "select ?" if type(values) is list else "select $x", values
    )
    with pytest.raises(NotApplied) as refused:
        query.to_arrow()
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 1500


def test_columns_of_one_name_get_numbers() -> None:
    """Goal: a result can be a dict or a frame. Method: names that occur again, beside a name that has such a number."""
    assert unique_names(["id", "id", "id_1", "id", "x"]) == ["id", "id_2", "id_1", "id_3", "x"]
