"""Numbers and lists as programs have them: out of NumPy, pandas, a dict."""

from __future__ import annotations

import datetime as dt
import decimal
import fractions
from typing import Any

import numpy as np
import pytest

import nyala
from nyala.definitions import schema_of
from nyala.replica.types import Code, Refused, check_list, check_measure, check_whole, hybrid_from_us
from nyala.table import hybrid_time_of, staleness_us_of

WHOLE: list[Any] = [5, np.int8(5), np.int64(5), np.uint64(5)]
MEASURES: list[Any] = [*WHOLE, 5.0, np.float16(5), np.float32(5), np.float64(5), fractions.Fraction(5)]
NONE: list[Any] = [
    True,
    np.bool_(True),
    "5",
    b"5",
    decimal.Decimal(5),
    5j,
    np.complex64(5),
    np.array([5]),
    dt.timedelta(seconds=5),
    None,
    float("nan"),
    np.float32("nan"),
    np.float64("nan"),
]


def kinds(values: list[Any]) -> Any:
    return pytest.mark.parametrize("number", values, ids=lambda v: f"{type(v).__name__}-{v}")


@kinds(MEASURES)
def test_number_of_any_type_is_taken_and_becomes_pythons_own(number: Any) -> None:
    """Goal: a number that comes out of NumPy or pandas is a number. Method: each type, for a whole number and for one
    that need not be, at each door that takes one."""
    assert type(check_measure(number, "it", 0, 9)) is float
    assert staleness_us_of(number) == 5_000_000
    options = nyala.ClientOptions(timeout_s=number)
    assert type(options.timeout_s) is float and options == nyala.ClientOptions(timeout_s=5.0)
    if number in WHOLE and not isinstance(number, float | np.floating | fractions.Fraction):
        assert type(check_whole(number, "it", 0, 9)) is int
        assert type(nyala.ClientOptions(scan_parallel_max=number).scan_parallel_max) is int
        return
    with pytest.raises(Refused, match="whole number") as refused:
        check_whole(number, "it", 0, 9)
    assert refused.value.code is Code.INVALID_ARGUMENT


@kinds(NONE)
def test_what_is_no_number_is_refused(number: Any) -> None:
    """Goal: a flag, a text or a NaN is told, and not counted with. Method: the same doors."""
    for door in (
        lambda: check_measure(number, "it", 0, 9),
        lambda: check_whole(number, "it", 0, 9),
        lambda: staleness_us_of(number),
        lambda: nyala.ClientOptions(timeout_s=number),
        lambda: nyala.ClientOptions(scan_parallel_max=number),
    ):
        with pytest.raises(Refused) as refused:
            door()
        assert refused.value.code is Code.INVALID_ARGUMENT


def test_hybrid_time_out_of_a_column_is_one() -> None:
    """Goal: `at=` takes a hybrid time that was kept in a DataFrame. Method: as Python's and as NumPy's number."""
    time = hybrid_from_us(1_790_000_000_000_000)
    for at in (time, np.int64(time), np.uint64(time)):
        found = hybrid_time_of(at)
        assert found == time and type(found) is int
    for at in (True, np.bool_(True), float(time), np.float64(time)):
        with pytest.raises(Refused, match="at= takes a datetime"):
            hybrid_time_of(at)  # type: ignore[arg-type]


def test_views_of_a_dict_are_lists_and_sets_are_not() -> None:
    """Goal: what has an order is a list, as it was in 0.2.0. Method: the views of a dict, which Python counts among the
    sets, for a table's columns and key; a set and a frozenset are refused."""
    columns = {"k": "int64", "b": "string", "a": "double"}
    for given in (columns, columns.items(), list(columns.items()), iter(columns.items())):
        schema = schema_of(given, {"k": 0, "b": 0}.keys())
        assert schema.names == ("k", "b", "a") and schema.key == ("k", "b")
    assert check_list(columns.values(), "it", 3) == ("int64", "string", "double")
    for unordered in ({"k"}, frozenset({"k"})):
        with pytest.raises(Refused, match="takes a list"):
            check_list(unordered, "it", 3)
