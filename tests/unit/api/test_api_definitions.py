"""Tables and rows that users describe, and the errors if they are wrong."""

from __future__ import annotations

import datetime as dt
import decimal
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import nyala
from nyala.definitions import partition_of, schema_of
from nyala.replica.client import ScanSpec
from nyala.replica.rows import Column, ColumnType, RowOp, TableSchema
from nyala.replica.types import hybrid_from_us
from nyala.table import Scan, hybrid_time_of, staleness_us_of
from nyala.writing import as_table, conform

SCHEMA = schema_of(
    {
        "k": "int64",
        "name": "string not null",
        "price": "decimal(9, 2)",
        "at": "timestamp",
        "n": "int8",
    },
    key="k",
)


def test_schema_of_every_form_of_description_is_the_same() -> None:
    """Goal: say it as you like. Method: dict, pairs, other names, Arrow schema, Column objects."""
    expected = TableSchema(
        1,
        (
            Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
            Column(id=2, name="s", type=ColumnType.STRING),
            Column(id=3, name="d", type=ColumnType.DECIMAL, precision=9, scale=2),
        ),
        ("k",),
    )
    arrow = pa.schema([("k", pa.int64()), ("s", pa.large_string()), ("d", pa.decimal128(9, 2))])
    for columns in (
        {"k": "int64", "s": "string", "d": "decimal(9,2)"},
        {"k": int, "s": str, "d": pa.decimal128(9, 2)},
        [("k", "BIGINT"), ("s", "text"), ("d", "numeric( 9 , 2 )")],
        arrow,
        list(arrow),
        expected.columns,
    ):
        assert schema_of(columns, "k") == expected
    assert SCHEMA.column("name").nullable is False and SCHEMA.column("price").nullable is True


@pytest.mark.parametrize(
    "columns, key, says",
    [
        ({"k": "int46"}, "k", "did you mean 'int64'"),
        ({"k": "int64"}, "key", "no column 'key'; did you mean 'k'|no column 'key'"),
        ({"k": "int64"}, (), "primary key"),
        ({"k": "decimal"}, "k", "precision"),
        ({"k": "double"}, "k", "cannot be in the key"),
        ({"k": pa.list_(pa.int8())}, "k", "Arrow type"),
        ({"__k": "int64"}, "__k", "underscores"),
        (["k"], "k", "name"),
    ],
)
def test_schema_of_a_wrong_description_says_what_is_wrong(columns: Any, key: Any, says: str) -> None:
    """Goal: the error about a schema names the wrong value. Method: one of each kind."""
    with pytest.raises(nyala.NotApplied, match=says):
        schema_of(columns, key)


def test_partition_of_a_wrong_description_says_what_is_wrong() -> None:
    """Goal: likewise for partitions. Method: unknown column, column outside of the key, unsorted splits."""
    good = {"hash_buckets": 2, "hash_columns": None, "range_column": "", "range_splits": ()}
    assert partition_of(SCHEMA, **good).hash_columns == ("k",)  # type: ignore[arg-type]
    for wrong in (
        {"hash_columns": ["kk"]},
        {"hash_columns": ["name"]},
        {"hash_buckets": 0},
        {"range_column": "k", "range_splits": [3, 1]},
        {"range_column": "k", "range_splits": ["x"]},
    ):
        with pytest.raises(nyala.NotApplied):
            partition_of(SCHEMA, **{**good, **wrong})  # type: ignore[arg-type]


ROWS = [
    {"k": 1, "name": "a", "price": decimal.Decimal("1.50"), "at": dt.datetime(2013, 1, 1, tzinfo=dt.UTC), "n": None},
    {"k": 2, "name": "b", "price": None, "at": dt.datetime(2013, 1, 2, tzinfo=dt.UTC), "n": -5},
]


def test_rows_of_every_form_become_the_same_columns() -> None:
    """Goal: hand in what you have. Method: dicts, Arrow, pandas with naive times and float integers, polars."""
    expected = conform(as_table(ROWS, SCHEMA), SCHEMA, RowOp.INSERT)
    frame = pd.DataFrame(
        {
            "k": [1, 2],
            "name": ["a", "b"],
            "price": [decimal.Decimal("1.50"), None],
            "at": pd.to_datetime(["2013-01-01", "2013-01-02"]),
            "n": [float("nan"), -5.0],
        }
    )
    polars = pl.DataFrame(ROWS, schema_overrides={"price": pl.Decimal(9, 2), "n": pl.Int8})
    for rows in (expected, expected.to_batches()[0], frame, polars, (r for r in ROWS)):
        assert conform(as_table(rows, SCHEMA), SCHEMA, RowOp.INSERT).equals(expected)
    one = conform(as_table(ROWS[0], SCHEMA), SCHEMA, RowOp.INSERT)
    assert one.equals(expected.slice(0, 1))


NAN = float("nan")
FRAMES: list[tuple[str, Any, list[Any] | str]] = [
    ("d", [NAN, 1.0], [NAN, 1.0]),
    ("d", pd.Series([NAN, 1.0], dtype=object), [NAN, 1.0]),
    ("d", pd.array([None, 1.5], dtype="Float64"), [None, 1.5]),
    ("d", pd.Series([None, NAN, pd.NA], dtype=object), [None, NAN, None]),
    ("d", pd.arrays.SparseArray([NAN, 1.0]), [NAN, 1.0]),
    ("f", np.array([NAN, 1.0], dtype="float32"), [NAN, 1.0]),
    ("n", [1, NAN], [1, None]),
    ("s", ["a", NAN], ["a", None]),
    ("s", pd.Series(["a", NAN, None], dtype=object), ["a", None, None]),
    ("s", pd.Categorical(["a", None]), ["a", None]),
    ("t", [pd.Timestamp("2026-01-01"), pd.NaT], [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None]),
    ("m", [decimal.Decimal("1.5"), None], [decimal.Decimal("1.5"), None]),
    ("m", [decimal.Decimal("1.5"), decimal.Decimal("nan")], "column=m, .*row=1, value=Decimal\\('NaN'\\)"),
    ("s", ["a", 5], "column=s, .*row=1, value=5"),
    ("n", [1, "x"], "column=n, .*row=1, value='x'"),
    ("d", [1j, 2j], "column=d, .*row=0, value=.*1j"),
    ("d", [{}, 2.5], "column=d, .*row=0, value={}"),
]


@pytest.mark.parametrize(("name", "given", "stored"), FRAMES, ids=range(len(FRAMES)))
def test_values_of_pandas_are_stored_as_given_or_refused_with_their_row(name: str, given: Any, stored: Any) -> None:
    """IN-01, IN-82. Goal: NaN is a value of a float column and a missing value elsewhere, and no column of pandas ends
    in an error of a library. Method: each way in which pandas holds numbers, texts, times and missing values; values
    that do not fit."""
    types = {
        "k": "int64",
        "d": "double",
        "f": "float",
        "n": "int8",
        "s": "string",
        "t": "timestamp",
        "m": "decimal(9,2)",
    }
    schema = schema_of(types, "k")
    frame = pd.DataFrame({"k": range(len(given)), name: given})
    if isinstance(stored, str):
        with pytest.raises(nyala.NotApplied, match=stored):
            conform(as_table(frame, schema), schema, RowOp.UPSERT)
    else:
        assert repr(conform(as_table(frame, schema), schema, RowOp.UPSERT)[name].to_pylist()) == repr(
            pa.array(stored, schema.column(name).arrow_type).to_pylist()
        )


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (pd.Series([1, 2], name="k"), "these are no rows.*got=Series"),
        (pd.Series(["a", 2], name="k", dtype=object), "these are no rows.*got=Series"),
        (pl.Series("k", [1, 2]), "these are no rows.*got=Series"),
        (pa.chunked_array([[1, 2]]), "these are no rows.*got=ChunkedArray"),
        (pd.DataFrame([[1, 2]], columns=["k", "k"]), "a column comes twice"),
        (pd.DataFrame([[1, 2]], columns=["k", 5]), "no column '5'"),
        (pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("k", "a"), ("n", "b")])), "no column"),
    ],
)
def test_frame_that_is_no_rows_is_refused(frame: Any, says: str) -> None:
    """IN-82. Goal: no raw error. Method: single columns, and frames whose columns have impossible names."""
    with pytest.raises(nyala.NotApplied, match=says):
        conform(as_table(frame, SCHEMA), SCHEMA, RowOp.UPSERT)


def test_pandas_that_is_not_installed_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: one line, for pandas comes with an extra only. Method: an interpreter that finds none; the scan has nobody
    to ask, so that one which read first would fail in another way."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"needs pandas, which is not installed: `pip install pandas`"
    ) as told:
        Scan(None, None, ScanSpec()).to_pandas()  # type: ignore[arg-type]
    assert told.value.name == "pandas" and len(str(told.value).splitlines()) == 1


def test_rows_for_a_delete_keep_only_the_key() -> None:
    """Goal: any rows of the table can be handed to delete. Method: whole rows."""
    assert conform(as_table(ROWS, SCHEMA), SCHEMA, RowOp.DELETE).schema.names == ["k"]


@pytest.mark.parametrize(
    "rows, op, says",
    [
        ([{"k": 1, "nmae": "x"}], RowOp.UPSERT, "did you mean 'name'"),
        ([{"name": "x"}], RowOp.UPSERT, "lack key columns.*missing=k"),
        ([{"k": 1}], RowOp.INSERT, "must have a value.*missing=name"),
        ([{"k": 1}], RowOp.UPDATE, "besides the key"),
        ([{"k": 1, "n": 1}, {"k": 2, "n": 300}], RowOp.UPSERT, "row=1.*value=300"),
        ([{"k": "one", "n": 1}], RowOp.UPSERT, "row=0.*value='one'"),
        ([{"k": 1, "n": 1}, {"k": 2}], RowOp.UPSERT, "row=1.*differs_in=n"),
        ([{"k": 1}, {"k": None}], RowOp.DELETE, "column=k.*row=1"),
        ([{"k": 1}, 5], RowOp.DELETE, "row=1"),
        ("k=1", RowOp.UPSERT, "list of dicts"),
        (7, RowOp.UPSERT, "list of dicts"),
        (pa.table({"k": [1, 2, 3], "n": [1, 2, 1000]}), RowOp.UPSERT, "column=n.*row=2.*value=1000"),
        (pa.table({"k": [1, 2], "name": [1.5, 2.5]}), RowOp.UPSERT, "column=name.*row=0.*value=1.5.*give text"),
        (pa.table({"k": [1, 2], "n": ["1", "2"]}), RowOp.UPSERT, "column=n.*row=0.*value='1'.*give a number"),
        (pa.table([[1], [2]], names=["k", "k"]), RowOp.UPSERT, "twice"),
    ],
)
def test_rows_that_do_not_fit_are_refused_with_row_and_value(rows: Any, op: RowOp, says: str) -> None:
    """Goal: the user finds the bad row. Method: one of each kind."""
    with pytest.raises(nyala.NotApplied, match=says) as caught:
        conform(as_table(rows, SCHEMA), SCHEMA, op)
    assert "nothing was applied" in str(caught.value)


def test_at_takes_datetimes_with_a_zone_and_hybrid_times() -> None:
    """Goal: no time is misread. Method: both forms; naive times, seconds and text are refused."""
    when = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    us = int(when.timestamp()) * 1_000_000
    assert hybrid_from_us(us) <= hybrid_time_of(when) < hybrid_from_us(us + 1)
    assert hybrid_time_of(hybrid_from_us(us) + 3) == hybrid_from_us(us) + 3
    assert hybrid_time_of(None) == 0
    for wrong in (dt.datetime(2024, 5, 1), int(when.timestamp()), us, "now", True):
        with pytest.raises(nyala.NotApplied):
            hybrid_time_of(wrong)  # type: ignore[arg-type]


def test_staleness_takes_seconds_that_clocks_can_judge() -> None:
    """Goal: nothing is promised that clocks cannot keep. Method: seconds; no number, or one out of bounds, is told."""
    assert staleness_us_of(5) == 5_000_000 and staleness_us_of(0.75) == 750_000
    for wrong in (0, 0.5, -1, float("nan"), float("inf"), 1e9, True, "5"):
        with pytest.raises(nyala.NotApplied, match="staleness"):
            staleness_us_of(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "address, says",
    [("", "addresses"), ("nohost", "host:port"), ("h:0", "port 0"), ("h:99999", "ports go up to 65535"), (5, "addr")],
)
def test_connect_to_what_is_no_address_says_so(address: Any, says: str) -> None:
    """Goal: an invalid address is refused at once. Method: what is no host:port."""
    with pytest.raises(nyala.NotApplied, match=says):
        nyala.connect(address)


def test_connect_to_a_port_where_nobody_listens_says_so_within_seconds() -> None:
    """Goal: connecting to an address where no master listens fails within seconds. Method: a port that refuses
    connections."""
    with pytest.raises(nyala.NotApplied, match=r"no master answers.*127\.0\.0\.1:9"):
        nyala.connect("127.0.0.1:9")


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_nyala_imports_lightly_and_without_spark() -> None:
    """Goal: users need no Spark, and servers do not load what clients need. Method: modules after the import."""
    light = run_python("import sys, nyala; print([m for m in ('pyspark', 'pyarrow', 'grpc') if m in sys.modules])")
    assert light.stdout.strip() == "[]", light.stderr
    whole = run_python("import sys, nyala; nyala.connect, nyala.Table; print('pyspark' in sys.modules)")
    assert whole.stdout.strip() == "False", whole.stderr


def test_api_under_its_folder_name_is_refused() -> None:
    """Goal: no file under two names. Method: import the package by the folder it lies in."""
    for name in ("nyala.replica.api", "nyala.replica.api.table"):
        done = run_python(f"import {name}")
        assert done.returncode == 1 and "import this package as `nyala`" in done.stderr


def test_public_names_all_exist() -> None:
    """Goal: __all__ is true. Method: get each; an unknown one names the known ones."""
    assert all(getattr(nyala, name) is not None for name in nyala.__all__)
    assert set(nyala.__all__) <= set(dir(nyala))
    with pytest.raises(AttributeError, match="connect"):
        _ = nyala.conect


def test_numpy_values_compare_like_python_ones() -> None:
    """Goal: values out of arrays work. Method: a numpy integer in a condition."""
    from nyala.expressions import bound

    (predicate,) = bound(nyala.col("k") == np.int32(5), SCHEMA)
    assert predicate.values == (5,)
