"""Columns of every type, in every form in which a caller may hold them, and the bytes of the caller that must not
change."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from nyala.replica.rows import KEY_TYPES, Column, ColumnType, TableSchema

ROW_COUNTS = (0, 1, 2, 16_384, 16_385)
"""No row, the counts that pyarrow and numpy treat in special ways, a whole chunk of the hash, and one row more."""


class Kind(NamedTuple):
    """A column's type, as tests are named after it."""

    name: str
    type: ColumnType
    precision: int = 0
    scale: int = 0

    def column(self, column_id: int, name: str, *, nullable: bool) -> Column:
        """Return a column of this type."""
        return Column(
            id=column_id, name=name, type=self.type, nullable=nullable, precision=self.precision, scale=self.scale
        )

    @property
    def arrow(self) -> Any:
        """Return its pyarrow DataType."""
        return self.column(1, "c", nullable=True).arrow_type


DECIMALS = ((1, 0), (5, 5), (12, 2), (18, 4), (19, 0), (38, 0), (38, 8), (38, 38))
KINDS = (
    *(Kind(kind.value, kind) for kind in ColumnType if kind is not ColumnType.DECIMAL),
    *(Kind(f"decimal_{p}_{s}", ColumnType.DECIMAL, p, s) for p, s in DECIMALS),
)
KEYS = tuple(kind for kind in KINDS if kind.type in KEY_TYPES)


def values(kind: Kind, rows: int, *, nulls: bool = False) -> Any:
    """Return an array of the type, with its extreme values first, then others up to that many rows; some are equal."""
    rng = np.random.default_rng(rows + 1)
    array = _values(kind, rows, rng)
    if nulls and rows:
        array = (
            pa.array([array[i].as_py() if i % 3 else None for i in range(min(rows, 3))], kind.arrow)
            if (rows <= 3)
            else _with_nulls(array, rng.random(rows) < 0.3)
        )
    assert array.type == kind.arrow and len(array) == rows
    array.validate(full=True)
    return array


def _with_nulls(array: Any, mask: Any) -> Any:
    mask[0] = True
    return pa.compute.if_else(pa.array(mask), pa.scalar(None, array.type), array)


def _values(kind: Kind, rows: int, rng: np.random.Generator) -> Any:
    if kind.type is ColumnType.BOOL:
        return pa.array(rng.random(rows) < 0.5)
    if kind.type is ColumnType.DECIMAL:
        return _decimals(kind, rows, rng)
    if kind.type in (ColumnType.FLOAT, ColumnType.DOUBLE):
        floats = np.array([-0.0, 0.0, np.nan, np.inf, -np.inf, 1.5, 5e-324][:rows], np.float64)
        more = rng.standard_normal(max(0, rows - 7)) * 1e30
        return pa.array(np.concatenate([floats, more]).astype(kind.arrow.to_pandas_dtype()))
    if kind.type in (ColumnType.STRING, ColumnType.BINARY):
        texts = ["z\u00fcrich \0", "", "12345678", "123456789", "x" * 70]
        texts += [f"text {i}" * (i % 4) for i in range(rows)]
        return pa.array(texts[:rows], pa.string()).cast(kind.arrow)
    bits = {ColumnType.DATE: 32, ColumnType.TIMESTAMP: 64}.get(kind.type) or kind.arrow.bit_width
    # Dates of Python have four digits, and so have these; the integers behind them may be any.
    low, high = {
        ColumnType.DATE: (-719_162, 2_932_896),
        ColumnType.TIMESTAMP: (-62_135_596_800_000_000, 253_402_300_799_999_999),
    }.get(kind.type, (-(1 << (bits - 1)), (1 << (bits - 1)) - 1))
    ends = np.array([low, high, -1, 0][:rows], np.int64)
    more = rng.integers(low, high, max(0, rows - 4), dtype=np.int64, endpoint=True)
    numbers = pa.array(np.concatenate([ends, more]).astype(f"int{bits}"))
    return numbers if numbers.type == kind.arrow else numbers.view(kind.arrow)


def _decimals(kind: Kind, rows: int, rng: np.random.Generator) -> Any:
    most = 10**kind.precision - 1
    numbers = [most, -most, -1, 0][:rows]
    numbers += (
        [int(n) * (most // (1 << 62) or 1) % (2 * most + 1) - most for n in rng.integers(0, 1 << 62, rows - 4)]
        if (rows > 4)
        else []
    )
    words = np.frombuffer(b"".join(n.to_bytes(16, "little", signed=True) for n in numbers), np.uint8)
    return pa.Array.from_buffers(kind.arrow, rows, [None, pa.py_buffer(words.copy())])


def table_schema(kind: Kind, *, key: bool) -> TableSchema:
    """Return a schema with `c` of this type, as the first of two key columns, or as a value. `n` numbers the rows."""
    number = Kind("n", ColumnType.INT64).column(2, "n", nullable=False)
    return TableSchema(1, (kind.column(1, "c", nullable=not key), number), ("c", "n") if key else ("n",))


def forms(array: Any) -> Iterator[tuple[str, Any]]:
    """Yield the same values as pyarrow may hold them: writable, read-only, mapped, sliced, in buffers longer than
    needed."""
    yield "built", pa.concat_arrays([array, array]).slice(0, len(array)) if len(array) else array
    yield "read-only", _with_buffers(array, lambda data: pa.py_buffer(bytes(data)))
    yield "mapped", _with_buffers(array, _mapped)
    padded = pa.concat_arrays([array.slice(0, 3), array, array.slice(0, 1)])
    yield "sliced", padded.slice(min(3, len(array)), len(array))
    yield (
        "sliced read-only",
        _with_buffers(padded, lambda data: pa.py_buffer(bytes(data))).slice(min(3, len(array)), len(array)),
    )
    yield "long buffers", _with_buffers(array, lambda data: pa.py_buffer(bytes(data) + b"\xff" * 5))


def _with_buffers(array: Any, changed: Any) -> Any:
    buffers = [b if b is None else changed(memoryview(b)) for b in array.buffers()]
    return pa.Array.from_buffers(array.type, len(array), buffers, offset=array.offset)


def _mapped(data: memoryview) -> Any:
    if not len(data):
        return pa.py_buffer(b"")
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return pa.py_buffer(mmap.mmap(file.fileno(), len(data), access=mmap.ACCESS_READ))


def memory_of(*arrays: Any) -> list[bytes | None]:
    """Return every byte of the arrays' buffers, those outside a slice too."""
    return [b if b is None else b.to_pybytes() for array in arrays for b in array.buffers()]


def same_values(left: Any, right: Any) -> bool:
    """Return whether two arrays hold the same values bit by bit: NaN is NaN, and 0.0 is not -0.0."""
    if pa.types.is_floating(left.type):
        integers = {32: pa.int32(), 64: pa.int64()}[left.type.bit_width]
        left, right = left.view(integers), right.view(integers)
    equal: bool = left.equals(right)
    return equal
