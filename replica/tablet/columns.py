"""Rows as columns: a batch's columns by id, filled up, gathered and carried from one schema version to another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nyala.replica.rows import Column, TableSchema, fixed_width_values, offsets_of
from nyala.replica.types import check

I64 = npt.NDArray[np.int64]


_TAKEN_BYTES_MAX = (1 << 31) - 1
"""Offsets of strings have 32 bits."""
Longest = dict[int, int]
"""The bytes of the longest value, by id of a column of variable length."""


def longest_values(columns: Iterable[tuple[int, pa.Array]]) -> Longest:
    """The longest value of each column. Bytes beneath a null count, too, so the values may be shorter."""
    return {
        column_id: int(np.diff(offsets_of(array)).max(initial=0))
        for column_id, array in columns
        if pa.types.is_string(array.type) or pa.types.is_binary(array.type)
    }


def filled(column: Column, rows: int) -> Any:
    """A pa.Array of `rows` times the column's default; nulls if it has none."""
    return pa.repeat(pa.scalar(column.default, type=column.arrow_type), rows)


def conform(batch: Any, source: TableSchema, target: TableSchema) -> Any:
    """`batch`, of schema `source`, as the columns of `target`: matched by id; added columns have their default."""
    if source.schema_id == target.schema_id:
        return batch
    by_id = {c.id: batch.column(pos) for pos, c in enumerate(source.columns)}
    arrays = [by_id[c.id] if c.id in by_id else filled(c, batch.num_rows) for c in target.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=target.arrow)


class Place(NamedTuple):
    """The rows of a look-up that are in one batch.

    `mine`: their positions in the look-up. `at`: their positions in `batch`, which has the schema `schema`. Both of
    shape (rows,).
    """

    mine: I64
    batch: Any
    schema: TableSchema
    at: I64

    @property
    def keys(self) -> list[pa.Array]:
        """The key's columns of these rows, in key order."""
        return [take(column, self.at) for column in key_arrays(self.batch, self.schema)]

    def column(self, column_id: int) -> pa.Array | None:
        """The column of the whole batch; None if the batch was made before the column was added."""
        pos = self.schema.positions.get(column_id)
        return None if pos is None else self.batch.column(pos)

    def values(self, columns: Sequence[Column]) -> list[pa.Array]:
        """These rows' values in `columns`, which are of this or a later schema; columns added later have their
        default."""
        arrays = [(c, self.column(c.id)) for c in columns]
        return [filled(c, len(self.at)) if array is None else take(array, self.at) for c, array in arrays]


def gathered(places: Iterable[Place], columns_of: Callable[[Place], list[pa.Array]]) -> list[pa.Array]:
    """The columns of all rows of a look-up, in its order. `columns_of` returns those of one place."""
    found = [(place.mine, columns_of(place)) for place in places]
    if len(found) == 1:
        return found[0][1]
    order = np.concatenate([mine for mine, _ in found])
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    columns = zip(*(arrays for _, arrays in found), strict=True)
    return [take(pa.concat_arrays(pieces), back) for pieces in columns]


def select(batch: Any, source: TableSchema, target: TableSchema, names: Sequence[str]) -> Any:
    """The columns `names` of `target`, read from `batch` of schema `source`; zero-copy where they exist."""
    arrays, fields = [], []
    for name in names:
        column = target.column(name)
        pos = source.positions.get(column.id)
        arrays.append(filled(column, batch.num_rows) if pos is None else batch.column(pos))
        fields.append(target.arrow.field(name))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def key_arrays(batch: Any, schema: TableSchema) -> list[Any]:
    """The key's columns of a batch of the schema, in key order."""
    return [batch.column(schema.positions[column.id]) for column in schema.key_columns]


def take(array: Any, positions: I64) -> Any:
    """`array` at `positions`. numpy takes strings of equal length, which are common in keys, four times as fast."""
    quick = _take_fixed_width(array, positions) if len(positions) >= 4096 else None
    return quick if quick is not None else array.take(pa.array(positions))


def take_batch(batch: Any, positions: I64) -> Any:
    """A pa.RecordBatch of the rows at `positions`."""
    arrays = [take(column, positions) for column in batch.columns]
    if not arrays:
        return batch.take(pa.array(positions))
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _take_fixed_width(array: Any, positions: I64) -> Any | None:
    """A string or binary array, not empty, whose values are all equally long, taken as rows of a byte matrix; else
    None."""
    kind = array.type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)) or array.null_count:
        return None
    offsets = offsets_of(array)
    first, end = int(offsets[0]), int(offsets[-1])
    width = (end - first) // len(array)
    if not 0 < width <= 256 or width * len(array) != end - first or width * len(positions) > _TAKEN_BYTES_MAX:
        return None
    if not np.array_equal(offsets, np.arange(first, end + 1, width, dtype=np.int32)):
        return None
    rows = fixed_width_values(array, width)
    picked = rows.take(positions)
    new_offsets = np.arange(0, width * len(positions) + 1, width, dtype=np.int32)
    result = pa.Array.from_buffers(kind, len(positions), [None, pa.py_buffer(new_offsets), pa.py_buffer(picked)])
    check(len(result) == len(positions), "as many rows as were asked for")
    return result


class KeyNumbers:
    """Numbers the different ones of some keys, and finds them among rows, column by column of their values. It costs
    as much however many keys have one hash. `of_keys`, shape (keys,): the number of each key."""

    def __init__(self, keys: Sequence[pa.Array], stop: Callable[[], None]) -> None:
        """`keys`: the key's columns, in key order, without nulls. `stop` is called before each; it may raise."""
        self._known: list[tuple[pa.Array, I64]] = []
        self.of_keys: I64 = np.zeros(len(keys[0]), dtype=np.int64)
        for column in keys:
            stop()
            values = column.unique()
            known, self.of_keys = np.unique(_numbered(self.of_keys, column, values), return_inverse=True)
            self._known.append((values, known))

    def find(self, columns: Sequence[pa.Array], at: I64) -> tuple[I64, I64]:
        """(those of the rows `at` of the key's columns whose key is one of the keys, the number of each one's key)."""
        numbers: I64 = np.zeros(len(at), dtype=np.int64)
        for column, (values, known) in zip(columns, self._known, strict=True):
            wanted = _numbered(numbers, take(column, at), values)
            numbers = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
            same = known[numbers] == wanted
            at, numbers = at[same], numbers[same]
        return at, numbers


def _numbered(before: I64, column: pa.Array, values: pa.Array) -> I64:
    """A number for each pair of the number `before` and the row's value in this column; -1 if it is not one of
    `values`."""
    among: I64 = pc.fill_null(pc.index_in(column, value_set=values), -1).to_numpy()
    return np.where(among < 0, among, before * len(values) + among)


def equal_rows(left: Sequence[Any], right: Sequence[Any]) -> npt.NDArray[np.bool_]:
    """Shape (rows,): whether the key columns `left` and `right`, which hold no nulls, are equal row by row."""
    result: npt.NDArray[np.bool_] | None = None
    for a, b in zip(left, right, strict=True):
        one = pc.equal(a, b).to_numpy(zero_copy_only=False)
        result = one if result is None else result & one
    check(result is not None, "a key has columns")
    return result  # type: ignore[return-value]
