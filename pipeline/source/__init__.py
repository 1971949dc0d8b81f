"""Tables as a Spark data source: `format("nyala")`, `register(spark)` for pushdown, `read(spark, table, columns=)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .data_source import NyalaSource, PushingSource

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

__all__ = ["NyalaSource", "PushingSource", "read", "register"]


def register(spark: Any) -> None:
    """Make `format("nyala")` push filters down in this session, by Spark's setting for it."""
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(PushingSource)


def read(
    spark: Any,
    table: str,
    *,
    masters: str,
    columns: Sequence[str] | None = None,
    where: str = "",
    at: str = "",
    slices: int = 1,
) -> Any:
    """Return a DataFrame of the table, or of some columns of it, at one time. Registers the source.

    `where`: conditions as `source.where` has them; `at`: ISO timestamp or microseconds; `slices` per tablet.
    """
    register(spark)
    reader = spark.read.format("nyala").option("masters", masters).option("table", table)
    if columns is not None:
        reader = reader.option("columns", ",".join(columns))
    if where:
        reader = reader.option("where", where)
    if at:
        reader = reader.option("at", at)
    return reader.option("slices", str(slices)).load()
