"""Turns one Arrow batch of Kafka records into batches of rows in offset order, and faults for the records that are no
rows.

Every record is in exactly one of the two. The rows' batches have the table's columns, `__op` and `__offset`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nyala import schemas
from nyala.replica.rows import OFFSET_COLUMN, OP_COLUMN, RowOp, TableSchema, offsets_of, value_bytes
from nyala.replica.types import RowCode, limits, shown

from .avro_columns import I64, Cursor, Field, UnsupportedSchema, plan, read_field
from .columns import fits, to_array
from .framing import HEADER_BYTES, Framing, fingerprint_id, writer_ids
from .row_schema import OP_FIELD, key_schema_json, row_schema_json

_log = logging.getLogger(__name__)
_OPS = {op.name: int(op) for op in RowOp}


class WriterSchema(NamedTuple):
    """A writer schema of producers, from the catalog."""

    avro_json: str
    registry_id: int = 0


class Fault(NamedTuple):
    """A record that is no row: its Kafka offset, the reason, and the column at fault."""

    offset: int
    code: RowCode
    column: str = ""


@dataclass
class Decoded:
    """Rows as pa.RecordBatches in offset order, each with one set of columns; and the other records' faults."""

    batches: list[Any] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


@dataclass(frozen=True)
class _Plan:
    """The plan to read one writer schema. `refusal`: the reason why none of its rows can be rows of the table."""

    fields: tuple[Field, ...]
    refusal: tuple[RowCode, str] | None = None


_UNKNOWN = _Plan((), (RowCode.UNKNOWN_SCHEMA, ""))


def _parsed(avro_json: str) -> tuple[object, bytes] | None:
    """Return (a schema of the catalog, its fingerprint); None, and a note in the log, if the text is no schema. Masters
    of an earlier build stored any JSON."""
    try:
        return schemas.parse_writer_schema(avro_json)
    except ValueError as error:
        _tell_unusable(shown(avro_json), shown(str(error)))
        return None


@lru_cache(maxsize=256)
def _tell_unusable(begins: str, why: str) -> None:
    """Log it once in a process, because each task has a decoder of its own."""
    what = "a stored writer schema is no Avro schema, so its records become dead letters (UNKNOWN_SCHEMA): %s: %s"
    _log.warning(what, begins, why)


class _Bytes(NamedTuple):
    """A binary Arrow array as numpy sees it."""

    buffer: Any
    data: npt.NDArray[np.uint8]
    starts: I64
    ends: I64
    valid: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, array: Any) -> _Bytes:
        array = array.cast(pa.large_binary())
        offsets = offsets_of(array)
        valid = np.asarray(array.is_valid().to_numpy(False))
        return cls(array.buffers()[2], value_bytes(array), offsets[:-1], offsets[1:], valid)


class RowDecoder:
    """Decodes the records of one table's topic.

    `lookup` asks the catalog for its writer schemas again. It is called at most once for a batch, and only when a value
    names a schema that is not known. Concurrency: one thread.
    """

    def __init__(
        self,
        schema: TableSchema,
        framing: Framing,
        writers: Sequence[WriterSchema] = (),
        *,
        bare_schema: str = "",
        lookup: Callable[[], Sequence[WriterSchema]] | None = None,
    ) -> None:
        self._schema = schema
        self._framing = framing
        self._lookup = lookup
        self._key_plan = plan(schemas.parse_json(key_schema_json(schema)))
        self._plans: dict[int, _Plan] = {}
        if framing is Framing.BARE:
            bare = _parsed(bare_schema)
            self._plans[0] = self._plan_of(bare[0]) if bare is not None else _UNKNOWN
        # `RowPublisher`'s schema of whole rows need not be registered, because it follows from the table.
        self._learn([WriterSchema(row_schema_json(schema)), *writers] if framing is Framing.SINGLE_OBJECT else writers)

    def decode(self, keys: Any, values: Any, offsets: I64, op_headers: Any = None) -> Decoded:
        """Decode a batch. `keys`, `values`: binary arrays; `offsets` ascend; `op_headers`: a binary array, null for
        records without the header."""
        count = len(offsets)
        value = _Bytes.of(values)
        code = np.zeros(count, np.uint8)
        column = np.full(count, "", object)
        code[value.ends - value.starts > limits.ROW_EVENT_BYTES_MAX] = RowCode.ROW_TOO_LARGE
        key_columns = self._decode_keys(_Bytes.of(keys), value.valid, code)
        ops = _header_ops(op_headers, count, code)
        groups, plans = self._group(value, code)
        parts: dict[int, dict[str, Any]] = {}
        for writer in sorted(set(groups[groups >= 0].tolist())):
            rows = np.flatnonzero(groups == writer)
            parts[writer] = self._decode_group(plans[writer], value, rows, key_columns, ops, code, column)
        return self._assemble(parts, groups, key_columns, ops, code, column, offsets, value.valid)

    def _learn(self, writers: Sequence[WriterSchema]) -> None:
        if self._framing is Framing.BARE:
            return
        for writer in writers:
            if (parsed := _parsed(writer.avro_json)) is not None:
                single = self._framing is Framing.SINGLE_OBJECT
                self._plans[fingerprint_id(parsed[1]) if single else writer.registry_id] = self._plan_of(parsed[0])

    def _plan_of(self, parsed: object) -> _Plan:
        """Return the plan for this writer schema. It is made once for each writer schema."""
        try:
            fields = plan(parsed)
        except UnsupportedSchema as error:
            return _Plan((), (RowCode.WRONG_TYPE, error.column))
        for each in fields:
            if self._is_op(each):
                continue
            if not self._schema.has(each.name):
                return _Plan(fields, (RowCode.UNKNOWN_COLUMN, each.name))
            if not fits(self._schema.column(each.name), each):
                return _Plan(fields, (RowCode.WRONG_TYPE, each.name))
        return _Plan(fields)

    def _is_op(self, each: Field) -> bool:
        return each.name == OP_FIELD and each.kind == "enum" and not self._schema.has(OP_FIELD)

    def _group(self, value: _Bytes, code: Any) -> tuple[I64, list[_Plan]]:
        """Return (the position of each row's plan, -1 for nulls and for rows that failed; the plans)."""
        ids, good = writer_ids(self._framing, value.data, value.starts, value.ends)
        code[(code == 0) & value.valid & ~good] = RowCode.UNDECODABLE
        usable = (code == 0) & value.valid
        distinct, inverse = np.unique(ids[usable], return_inverse=True)
        if self._lookup and any(int(i) not in self._plans for i in distinct):
            self._learn(self._lookup())
        plans = [self._plans.get(int(i), _UNKNOWN) for i in distinct]
        groups = np.full(ids.size, -1, np.int64)
        groups[usable] = np.array([plans.index(each) for each in plans], np.int64)[inverse]
        return groups, plans

    def _decode_keys(self, key: _Bytes, has_value: Any, code: Any) -> dict[str, Any]:
        """Return the key columns from the Kafka keys. A null key, or one that is no datum of its schema, fails its
        row."""
        cursor = Cursor(key.data, key.starts, key.ends)
        out = {}
        for each in self._key_plan:
            target = self._schema.column(each.name)
            out[each.name] = to_array(target, each, read_field(cursor, each), cursor, key.buffer)
        cursor.finish()
        fresh = code == 0
        code[fresh & ~key.valid] = RowCode.NULL_KEY
        bad = (code == 0) & (cursor.code != 0)
        code[bad] = np.where(has_value[bad], np.uint8(RowCode.KEY_MISMATCH), np.uint8(RowCode.UNDECODABLE))
        return out

    def _decode_group(
        self, how: _Plan, value: _Bytes, rows: I64, keys: dict[str, Any], ops: Any, code: Any, column: Any
    ) -> dict[str, Any]:
        """Return Arrow arrays of one writer schema's rows, by column name; faults are stored in `code` and `column`."""
        if how.refusal:
            code[rows], column[rows] = how.refusal
            return {}
        cursor = Cursor(value.data, value.starts[rows] + HEADER_BYTES[self._framing], value.ends[rows])
        arrays: dict[str, Any] = {}
        for pos, each in enumerate(how.fields):
            cursor.field = pos
            raw = read_field(cursor, each)
            if self._is_op(each):
                self._set_ops(each, raw, rows, ops, code)
            else:
                arrays[each.name] = to_array(self._schema.column(each.name), each, raw, cursor, value.buffer)
        cursor.finish()
        failed = np.flatnonzero(cursor.code)
        for pos in failed.tolist():
            at = int(cursor.fault[pos])
            column[rows[pos]] = how.fields[at].name if at >= 0 else ""
        code[rows[failed]] = cursor.code[failed]
        self._compare_keys(arrays, keys, rows, code, column)
        return arrays

    def _set_ops(self, each: Field, raw: Any, rows: I64, ops: Any, code: Any) -> None:
        numbers = np.array([_OPS.get(symbol.upper(), 0) for symbol in each.symbols], np.uint8)
        written = numbers[raw.words]
        written[~raw.valid] = RowOp.UPSERT
        mine = np.where(ops[rows] == 0, written, ops[rows])
        ops[rows] = mine
        code[rows[(mine == 0) & (code[rows] == 0)]] = RowCode.UNKNOWN_OPERATION

    def _compare_keys(self, arrays: dict[str, Any], keys: dict[str, Any], rows: I64, code: Any, column: Any) -> None:
        everything = rows.size == len(code)
        for name, key in keys.items():
            mine = key if everything else key.take(pa.array(rows))
            if name not in arrays:
                arrays[name] = mine
                continue
            same = pc.equal(arrays[name], mine)
            if same.true_count == len(same):
                continue
            fresh = code[rows] == 0
            missing = fresh & np.asarray(arrays[name].is_null().to_numpy(False))
            wrong = fresh & ~missing & ~np.asarray(pc.fill_null(same, False).to_numpy(False))
            for mask, why in ((missing, RowCode.NULL_KEY), (wrong, RowCode.KEY_MISMATCH)):
                code[rows[mask]] = why
                column[rows[mask]] = name

    def _assemble(
        self, parts: dict[int, dict[str, Any]], groups: I64, keys: Any, ops: Any, code: Any, column: Any, offsets: I64,
        has_value: Any,
    ) -> Decoded:  # fmt: skip
        """Cut the good rows into runs of one group. A delete by a null value joins the run before or after it."""
        out = Decoded()
        for pos in np.flatnonzero(code).tolist():
            out.faults.append(Fault(int(offsets[pos]), RowCode(int(code[pos])), str(column[pos])))
        good = np.flatnonzero(code == 0)
        if not good.size:
            return out
        ops[(ops == 0) & has_value] = RowOp.UPSERT
        ops[~has_value] = RowOp.DELETE_IGNORE
        run_group = _fill(groups[good])
        edges = np.concatenate(([0], np.flatnonzero(np.diff(run_group)) + 1, [good.size]))
        place = np.zeros(groups.size, np.int64)
        for group in parts:
            mine = groups == group
            place[mine] = np.arange(int(mine.sum()))
        for lo, hi in pairwise(edges.tolist()):
            rows = good[lo:hi]
            out.batches.append(self._run(parts.get(int(run_group[lo])), rows, groups, place, keys, ops, offsets))
        return out

    def _run(self, part: Any, rows: I64, groups: I64, place: I64, keys: Any, ops: Any, offsets: I64) -> Any:
        arrays = part or keys
        names = [name for name in self._schema.names if name in arrays]
        deletes = groups[rows] < 0
        columns = []
        for name in names:
            source = arrays[name]
            if not deletes.any():
                whole = rows.size == len(source)
                columns.append(source if whole else source.take(pa.array(place[rows])))
                continue
            taken = source.take(pa.array(place[rows], mask=deletes))
            columns.append(pc.coalesce(taken, keys[name].take(pa.array(rows))) if name in keys else taken)
        columns += [pa.array(ops[rows]), pa.array(offsets[rows])]
        return pa.RecordBatch.from_arrays(columns, names=[*names, OP_COLUMN, OFFSET_COLUMN])


def _fill(groups: I64) -> I64:
    """Replace each -1 by the group before it; at the beginning, by the first group after it. If all are -1, they
    stay."""
    known = np.flatnonzero(groups >= 0)
    if not known.size:
        return groups
    return groups[np.maximum.accumulate(np.where(groups >= 0, np.arange(groups.size), known[0]))]


def _header_ops(headers: Any, count: int, code: Any) -> Any:
    """Return the operation that each record's header names; 0 without one. An unknown one fails the record."""
    ops = np.zeros(count, np.uint8)
    if headers is None:
        return ops
    for row in np.flatnonzero(headers.is_valid().to_numpy(False)).tolist():
        number = _OPS.get(headers[row].as_py().decode("ascii", "replace").upper(), 0)
        ops[row] = number
        if number == 0 and code[row] == 0:
            code[row] = RowCode.UNKNOWN_OPERATION
    return ops
