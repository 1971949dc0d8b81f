"""Every column type, in every number of rows and every form that Arrow has: right answers, and the caller's rows do not
change."""

from __future__ import annotations

import ast
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.client.batching import wire_batches
from nyala.replica.client.tables import TableHandle
from nyala.replica.rows import (
    ColumnType,
    PartitionSpec,
    Predicate,
    RowOp,
    decimal_words,
    decode_batch,
    encode_batch,
    fixed_width_values,
    key_hash,
    offsets_of,
    predicate_mask,
    route,
    value_bytes,
)
from tests.harness.every_type import KEYS, KINDS, ROW_COUNTS, Kind, forms, memory_of, same_values, table_schema, values
from tests.harness.hash_twin import key_hash_one

ROOT = Path(__file__).resolve().parents[3]

_names = operator.attrgetter("name")


@pytest.mark.a_third
@pytest.mark.parametrize("kind", KEYS, ids=_names)
def test_key_hash_of_every_type_in_every_form_is_one_and_changes_nothing(kind: Kind) -> None:
    """IN-01. Goal: a key has one hash, however its column lies in memory, and hashing writes into no caller's array.

    Method: 0, 1, 2, 16,384 and 16,385 rows, with nulls and without, as pyarrow builds them, read-only, mapped, sliced
    and in buffers that are too long; each against the scalar twin at both ends, and all against each other. Every byte
    of the buffers is compared with what it was.
    """
    other = Kind("n", ColumnType.INT64)
    for rows in ROW_COUNTS:
        for nulls in (False, True):
            plain, numbers = values(kind, rows, nulls=nulls), values(other, rows)
            expected = None
            for form, array in forms(plain):
                before = memory_of(array, numbers)
                one, two = key_hash([array]), key_hash([array, numbers])
                assert memory_of(array, numbers) == before, f"{form}, {rows} rows"
                assert one.flags.writeable and len(one) == rows
                for at in {0, 1, rows - 1} & set(range(rows)):
                    key = [array[at].as_py(), numbers[at].as_py()]
                    assert int(one[at]) == key_hash_one(key[:1], [kind.type]), f"{form}, row {at} of {rows}"
                    assert int(two[at]) == key_hash_one(key, [kind.type, other.type]), f"{form}, row {at} of {rows}"
                expected = (one, two) if expected is None else expected
                assert (one == expected[0]).all() and (two == expected[1]).all(), f"{form}, {rows} rows"


@pytest.mark.a_third
@pytest.mark.parametrize("kind", KINDS, ids=_names)
@pytest.mark.parametrize("key", [False, True], ids=["value", "key"])
def test_rows_of_every_type_are_routed_encoded_and_chosen_unchanged(kind: Kind, key: bool) -> None:
    """IN-01. Goal: what a client does with rows before they leave is right for every type, and changes none of them.

    Method: as a key where it may be one, and as a value; every number of rows and every form. The batches for three
    tablets are decoded again and hold the rows that went in; `route` and a predicate give one answer in every form.
    """
    if key and kind not in KEYS:
        return
    schema = table_schema(kind, key=key)
    spec = PartitionSpec(schema.key, 3)
    handle = TableHandle("t", "t", schema, spec, 1, 0, 0)
    for rows in ROW_COUNTS:
        for nulls in (False, True) if not key else (False,):
            plain, numbers = values(kind, rows, nulls=nulls), pa.array(np.arange(rows))
            expected = None
            for form, array in forms(plain):
                before = memory_of(array, numbers)
                batch = pa.RecordBatch.from_arrays([array, numbers], schema=schema.arrow)
                where = route(batch, schema, spec)
                present = predicate_mask(batch, [Predicate("c", "is_not_null")])
                found = _sent(handle, batch)
                assert memory_of(array, numbers) == before, f"{form}, {rows} rows"
                assert len(where) == rows and present.true_count == rows - plain.null_count
                assert same_values(found.column("c"), plain) and found.column("n").equals(numbers)
                if rows:
                    first = plain.drop_null()[0].as_py() if plain.null_count < rows else None
                    if first is not None and first == first:
                        assert predicate_mask(batch, [Predicate("c", "=", (first,))]).true_count >= 1
                expected = where if expected is None else expected
                assert (where == expected).all(), f"{form}, {rows} rows"


def _sent(handle: TableHandle, batch: Any) -> Any:
    """The rows of the batches for all tablets, by `n`. Each is in the tablet that is its own."""
    parts = []
    for wire in wire_batches(handle, batch, RowOp.UPSERT):
        decoded = decode_batch(wire.payload, handle.schema.wire_schema(wire.column_ids))
        assert decoded.num_rows == wire.rows
        assert (route(decoded, handle.schema, handle.partition) == wire.pos).all()
        assert encode_batch(decoded) == wire.payload
        parts.append(decoded.select(["c", "n"]))
    schema = handle.schema.wire_schema((1, 2))
    empty = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in list(schema)[:2]], names=["c", "n"])
    whole = pa.Table.from_batches(parts or [empty]).combine_chunks()
    order = pa.array(np.argsort(whole["n"].to_numpy()))
    return pa.RecordBatch.from_arrays([whole[name].combine_chunks().take(order) for name in ("c", "n")], ["c", "n"])


def test_views_of_arrow_memory_cannot_be_written_through() -> None:
    """IN-01. Goal: an in-place operation on a caller's rows fails where it is made, for any number of rows. Method: the
    views of arrays of one row, of which pyarrow's own buffers are writable, refuse to be written."""
    texts, decimals = pa.array(["abcd"]), values(KEYS[-1], 1)
    views = [offsets_of(texts), value_bytes(texts), fixed_width_values(texts, 4), decimal_words(decimals)]
    for view in (*views, decimal_words(decimals)[:, 0], np.ascontiguousarray(decimal_words(decimals)[:, 0])):
        assert not view.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            view[...] = view


@pytest.mark.deep
def test_arrow_memory_is_read_through_one_module() -> None:
    """IN-01. Goal: writable views of Arrow memory are made nowhere. Method: in the code that handles rows, `frombuffer`
    is called in `rows/buffers.py`, and by two modules that read bytes of their own: headers of messages, and a sidecar
    mapped for reading."""
    own = {"replica/rows/buffers.py", "replica/rows/message.py", "replica/tablet/block_file.py"}
    callers = set()
    for room in (
        "replica/rows",
        "replica/tablet",
        "replica/client",
        "replica/api",
        "replica/server",
        "pipeline",
        "jobs",
    ):
        for path in sorted((ROOT / room).rglob("*.py")):
            calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute))
            if any(call.attr == "frombuffer" for call in calls):
                callers.add(str(path.relative_to(ROOT)))
    assert callers == own
