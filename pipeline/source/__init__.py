"""Tables as a Spark data source: `format("nyala")`, `register(spark)`, `read(spark, table, columns=)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .data_source import NyalaSource

__all__ = ["NyalaSource", "read", "register"]


def register(spark: Any) -> None:
    """Register `format("nyala")` in this session. A session finds it by itself too; what is registered gets the
    environment that the session's context has now."""
    spark.dataSource.register(NyalaSource)


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
    """Return a DataFrame of the table, or of some of its columns. Registers the source.

    Each query of it reads at a time of its own, unless `at` names one.

    `where`: conditions as `source.where` has them; `at`: ISO timestamp, microseconds
    since 1970, or now; `slices` per tablet.
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
