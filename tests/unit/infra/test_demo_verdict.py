"""The demo's verdict: the year's events, the rows that the table must hold, and that no error passes."""

from __future__ import annotations

import polars as pl
import pytest

from nyala.infra.demo import flights

FLIGHTS = 336_776
"""Scheduled from New York's airports in 2013."""
CANCELLED = 8_255
NEVER_SEEN_TO_LAND = 458
"""Departed, and diverted or never heard of again."""


@pytest.fixture(scope="module")
def year() -> pl.DataFrame:
    return flights.raw_flights()


@pytest.fixture(scope="module")
def want(year: pl.DataFrame) -> pl.DataFrame:
    return flights.answer(year)


@pytest.mark.deep
def test_events_of_the_year_are_as_many_as_the_demo_says(year: pl.DataFrame) -> None:
    """Goal: a run has seen all events when it has seen so many. Method: the year's events, counted by what they say."""
    stream = flights.events(year)
    counted = {(op, status): count for op, status, count in stream.group_by("op", "status").len().iter_rows()}
    flew = FLIGHTS - CANCELLED
    assert counted == {
        ("insert", "scheduled"): FLIGHTS,
        ("upsert", "departed"): flew,
        ("upsert", "landed"): flew - NEVER_SEEN_TO_LAND,
        ("delete", "cancelled"): CANCELLED,
    }
    assert stream.height == flights.EVENTS_TOTAL == sum(counted.values())


@pytest.mark.deep
def test_answer_is_every_flight_that_departed_as_its_events_leave_it(year: pl.DataFrame, want: pl.DataFrame) -> None:
    """Goal: two roads from the source to the table meet. Method: rows counted; the events replayed to their end leave
    what the query over the flights says; half of them do not."""
    stream = flights.events(year)
    assert want.height == want.select(flights.KEY).n_unique() == FLIGHTS - CANCELLED
    assert want.filter(pl.col("arr_time").is_null()).height == NEVER_SEEN_TO_LAND
    assert flights.differences(flights.replay(stream), want) == []
    assert flights.differences(flights.replay(stream.head(stream.height // 2)), want)


@pytest.mark.deep
def test_flight_is_known_as_far_as_it_has_come(year: pl.DataFrame) -> None:
    """Goal: the board shows of a flight only what its events have told so far. Method: one flight's events, in
    order."""
    one = year.filter(pl.col("arr_time").is_not_null()).head(1)
    scheduled, departed, landed = flights.events(one).rows(named=True)
    assert [e["status"] for e in (scheduled, departed, landed)] == ["scheduled", "departed", "landed"]
    assert (scheduled["dep_time"], departed["dep_time"], departed["arr_time"]) == (None, one["dep_time"][0], None)
    assert {k: v for k, v in landed.items() if k not in ("op", "status")} == one.select(
        c for c in flights.COLUMNS if c != "status"
    ).row(0, named=True)
    cancelled = year.filter(pl.col("dep_time").is_null()).head(1)
    assert flights.events(cancelled)["op"].to_list() == ["insert", "delete"]
    assert flights.answer(cancelled).is_empty()
    aloft = one.with_columns(pl.lit(None, pl.Int32).alias("arr_time"))
    assert flights.differences(flights.replay(flights.events(aloft)), flights.answer(aloft)) == []
    assert flights.answer(aloft)["air_time"].to_list() == [None] != one["air_time"].to_list()


def moved(rows: pl.DataFrame) -> pl.DataFrame:
    """The first row under a key that no flight has."""
    return rows.head(1).with_columns(pl.lit(9999, pl.Int32).alias("flight"))


def changed(rows: pl.DataFrame, column: str, value: pl.Expr) -> pl.DataFrame:
    """Another value in one column of one row."""
    return rows.with_columns(pl.when(pl.int_range(pl.len()) == 77).then(value).otherwise(pl.col(column)).alias(column))


@pytest.mark.a_third
@pytest.mark.parametrize("column", [c for c in flights.COLUMNS if c not in flights.KEY])
@pytest.mark.parametrize("value", ["another", "none", "one where there is none"])
def test_verdict_sees_one_changed_value(want: pl.DataFrame, column: str, value: str) -> None:
    """Goal: the verdict finds a single wrong value. Method: in one row of thousands each column gets another value,
    becomes null, or had none; one line names the column and both values."""
    part = want.head(5000)
    odd = pl.lit("odd") if part.schema[column] == pl.String else pl.lit(-4711, pl.Int32)
    null = pl.lit(None, part.schema[column])
    got, should = {
        "another": (changed(part, column, odd), part),
        "none": (changed(part, column, null), changed(part, column, odd)),
        "one where there is none": (changed(part, column, odd), changed(part, column, null)),
    }[value]
    (line,) = flights.differences(got, should)
    assert line.startswith(f"column {column}: 1 values differ, the first ")
    assert ("None" in line) == (value != "another") and ("odd" in line or "-4711" in line)


@pytest.mark.parametrize(
    ("what", "lines"),
    [
        ("missing", ["4,999 rows instead of 5,000", "missing: 1 rows, the first "]),
        ("doubled", ["5,001 rows instead of 5,000", "1 keys appear more than once"]),
        ("doubled as another", ["5,001 rows instead of 5,000", "1 keys appear more than once"]),
        ("extra", ["5,001 rows instead of 5,000", "extra: 1 rows, the first "]),
        ("moved", ["missing: 1 rows, the first ", "extra: 1 rows, the first "]),
        ("doubled for a missing one", ["1 keys appear more than once", "missing: 1 rows, the first "]),
        ("empty", ["0 rows instead of 5,000", "missing: 5,000 rows, the first "]),
    ],
)
def test_verdict_sees_a_missing_doubled_or_extra_row(want: pl.DataFrame, what: str, lines: list[str]) -> None:
    """Goal: the verdict finds a missing, a doubled and an extra row. Method: a table of one row less, twice the same,
    one more, and where the number of rows is right all the same."""
    part = want.head(5000)
    got = {
        "missing": part.slice(1),
        "doubled": pl.concat([part, part.head(1)]),
        "doubled as another": pl.concat([part, changed(part, "status", pl.lit("odd")).slice(77, 1)]),
        "extra": pl.concat([part, moved(part)]),
        "moved": pl.concat([part.slice(1), moved(part)]),
        "doubled for a missing one": pl.concat([part.slice(1), part.slice(1, 1)]),
        "empty": part.clear(),
    }[what]
    found = flights.differences(got, part)
    assert len(found) == len(lines) and all(a.startswith(b) for a, b in zip(found, lines, strict=True)), found


def test_verdict_is_of_the_rows_and_not_of_their_order(want: pl.DataFrame) -> None:
    """Goal: a table whose tablets are read in any order is equal. Method: rows shuffled, columns turned round."""
    part = want.head(5000)
    got = part.sample(fraction=1.0, shuffle=True, seed=7).select(part.columns[::-1])
    assert flights.differences(got, part) == []
