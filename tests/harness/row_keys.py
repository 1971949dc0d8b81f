"""Kafka keys of rows, as publishers make them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from nyala.pipeline import Framing
from nyala.pipeline.publish import RowEncoder
from nyala.replica.rows import TableSchema


def encode_key(schema: TableSchema, row: Mapping[str, object]) -> bytes:
    """The Kafka key of a row of the table. `row` may have more columns."""
    return _encoder(schema).key(row)


@cache
def _encoder(schema: TableSchema) -> RowEncoder:
    return RowEncoder(schema, Framing.BARE, None, "", 0)
