"""Uses each library once before the server listens, because a first use would stall the loop."""

from __future__ import annotations

import sys
from typing import Any

import polars as pl
import pyarrow as pa

from nyala.replica.rows import (
    OFFSET_COLUMN,
    OP_COLUMN,
    Column,
    ColumnType,
    Predicate,
    TableSchema,
    decode_batch,
    encode_batch,
    key_hash,
    predicate_mask,
)

SWITCH_INTERVAL_S = 0.001
"""The time for which a thread may keep the interpreter's lock while the loop waits for it. Python's default is five
times longer."""


class _NoPandas:
    """An import finder that hides pandas."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("a tablet server does without pandas", name=name)


def without_pandas() -> None:
    """Hide pandas from pyarrow, unless it is imported already.

    pyarrow would import it when it first converts a Python list, which takes half a second on the loop and 40 MB, for
    nothing.
    """
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())


def warm_up() -> None:
    """Use each library once as a write and a scan do, so that lazy imports and thread pools start here."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    columns = (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="v", type=ColumnType.STRING),
    )
    schema = TableSchema(1, columns, ("k",))
    wire = schema.wire_schema((1, 2))
    rows = pa.RecordBatch.from_pydict({"k": [2, 1], "v": ["b", None], OP_COLUMN: [2, 2], OFFSET_COLUMN: [0, 1]}, wire)
    decoded = decode_batch(encode_batch(rows), wire)
    key_hash([decoded.column("k")])
    predicate_mask(decoded, [Predicate("k", ">", (1,))])
    frame = pl.DataFrame(pl.from_arrow(decoded))
    frame.sort("k").to_arrow()
