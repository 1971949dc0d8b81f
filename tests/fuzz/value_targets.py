"""Values within requests and calls of the API: conditions as text, lists of values, batches of rows, schemas."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections.abc import Sequence
from functools import cache, partial

import pyarrow as pa

from nyala.expressions import bound, parse_condition
from nyala.replica.client import NotApplied
from nyala.replica.rows import (
    BatchDecoder,
    Column,
    ColumnType,
    Conditions,
    Predicate,
    TableSchema,
    encode_batch,
)
from nyala.replica.rpc import pb, predicate_to_pb, predicates_from_pb, schema_from_pb, schema_to_pb
from nyala.replica.rpc.checked_server import parsed_request
from nyala.replica.types import Refused
from tests.fuzz.sessions import pure
from tests.fuzz.spoil import LONGS, WORDS, spoilt
from tests.fuzz.spoil_proto import spoilt_message
from tests.fuzz.target import Broken, Target
from tests.harness import hostile
from tests.harness.every_type import KINDS, values

SCHEMA = TableSchema(
    1,
    tuple(
        kind.column(pos + 1, f"c{pos}_{kind.name}", nullable=kind.type is not ColumnType.INT64)
        for pos, kind in enumerate(KINDS)
    ),
    (next(f"c{pos}_{kind.name}" for pos, kind in enumerate(KINDS) if kind.type is ColumnType.INT64),),
)
ROWS = pa.RecordBatch.from_arrays(
    [values(kind, 5, nulls=kind.type is not ColumnType.INT64) for kind in KINDS],
    schema=pa.schema([pa.field(c.name, c.arrow_type) for c in SCHEMA.columns]),
)
NAMES = SCHEMA.names
TOKENS = (
    "=", "==", "!=", "<>", "<", "<=", ">", ">=", "in", "IN", "is", "not", "null", "between", "and", "AND", "or", "(",
    ")", ",", "'", "''", '"', '""', "true", "false", "date", "timestamp", "0", "1", "-1", "9" * 30, "9" * 400,
    "9" * 5000, "1e308", "1e309", "1e999999", "1e999999999", "1e-999999999", ".5", "5.", "+7", "0x1", "1_0", "NaN",
    "'2013-01-01'", "'0001-01-01'", "'9999-12-31T23:59:59.999999+23:59'", "'2013-02-30'", "'x'", "'\u0442'",
    "'\U0001f600'", "'\ud800'", "'\0'", "\0", "\n", "\t", "\u202e", "\u00b2", "\u0663", "é", ";", "--", "/*",
)  # fmt: skip


def _condition(data: bytes) -> object:
    """Use a user's text: it is refused as a mistake, or bound to columns and evaluated."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        predicates = bound(parse_condition(text), SCHEMA)
        mask = Conditions(predicates, ROWS.schema).mask(ROWS)
        for predicate in predicates:
            predicate_to_pb(predicate, SCHEMA.column(predicate.column).arrow_type).SerializeToString()
    except (NotApplied, Refused) as error:
        told = str(error)
        if not told or len(told) > 4096:
            raise Broken(f"a mistake told in {len(told)} characters: {told[:300]!r}") from error
        return "a mistake"
    return mask.to_pylist()


def _texts() -> list[bytes]:
    found = ["", "c5_float > 1.5", "c1_int8 in (1, 2, 3) and c1_int8 is not null"]
    for column in SCHEMA.columns:
        found += [f"{column.name} is null", f'"{column.name}" between 1 and 2', f"{column.name} = 'x'"]
        found += [f"({column.name} >= -5 AND {column.name} != 7)", f"{column.name} = date '2013-01-01'"]
        found += [f"{column.name} < 12.5", f"{column.name} = true", f"{column.name} = '2013-01-01T00:00:00+00:00'"]
    return [text.encode() for text in found]


def _spoilt_text(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    way = rng.random()
    if way < 0.25:
        return spoilt(rng.choice(seeds), rng, seeds)
    if way < 0.32:
        deep = rng.choice((2, 20, 200, 2000, 20_000))
        return b"(" * deep + rng.choice(seeds) + b")" * rng.choice((deep, deep - 1, 0))
    if way < 0.36:
        many = rng.choice((10, 999, 1001, 20_000))
        return rng.choice((b" and ", b" AND ")).join([rng.choice(seeds)] * many)[: 1 << 20]
    if way < 0.4:
        listed = ",".join(rng.choice(TOKENS) for _ in range(rng.choice((1, 10, 1000))))
        return f"{rng.choice(NAMES)} in ({listed})".encode(errors="surrogatepass")
    tokens: list[str] = rng.choice(seeds).decode().replace("(", "( ").replace(",", " , ").split()
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(tokens) + 1)
        new = [rng.choice((*TOKENS, rng.choice(NAMES)))]
        tokens[at : at + rng.choice((0, 1, 1))] = new
    return rng.choice((" ", " ", "", "\n")).join(tokens).encode(errors="surrogatepass")


# ------------------------------------------------------------------------------------------------------- predicates


def _predicates() -> list[bytes]:
    found = []
    for column, kind in zip(SCHEMA.columns, KINDS, strict=True):
        some = [v for v in values(kind, 5).to_pylist() if v is not None]
        for op, given in (("=", some[:1]), ("in", some), ("in", []), ("is_null", []), (">=", some[1:2])):
            try:
                found.append(predicate_to_pb(Predicate(column.name, op, tuple(given)), column.arrow_type))
            except Refused:
                continue
    return [pb.ScanRequest(predicates=[one]).SerializeToString() for one in found]


def _predicate(data: bytes) -> object:
    """Use the conditions of a scan as a server does: they are refused, or evaluated over rows of every type."""
    try:
        request = parsed_request("TabletService.Scan", data, pb.ScanRequest)
        conditions = Conditions(predicates_from_pb(request.predicates), ROWS.schema)
        return conditions.mask(ROWS).to_pylist()
    except Refused as error:
        return error.code


def spoilt_values(data: bytes, rng: random.Random) -> bytes:
    """Return an Arrow message with false numbers in its metadata, or changed as bytes."""
    found = bytearray(data)
    if rng.random() < 0.3 or len(found) < 16:
        return spoilt(data, rng)
    for _ in range(rng.choice((1, 1, 2, 3))):
        size = rng.choice((1, 2, 4, 8))
        at = rng.randrange(len(found) - 8) // size * size
        number = rng.choice(LONGS if size == 8 else WORDS)
        if rng.random() < 0.4:
            number = int.from_bytes(found[at : at + size], "little") + rng.choice((-8, -1, 1, 2, 8))
        found[at : at + size] = (number & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return bytes(found)


@cache
def foreign_streams() -> list[bytes]:
    """Return valid Arrow that no client of ours sends: other types, nesting, dictionaries, compression, nulls without
    end."""
    arrays = [
        pa.nulls(5), pa.nulls(2_000_000_000), pa.array([[1], []]), pa.array([{"a": 1}]), pa.array([None, 1]),
        pa.array(["a", "b"]).dictionary_encode(), pa.array(["a"], pa.large_string()), pa.array(["a"], pa.string_view()),
        pa.array([b"1234"], pa.binary(4)), pa.array([dt.time(1)]), pa.array([dt.timedelta(1)]),
        pa.array([1, 2], pa.uint64()), pa.array([decimal.Decimal(1)], pa.decimal256(50, 2)),
        pa.RunEndEncodedArray.from_arrays(pa.array([2_000_000_000], pa.int32()), pa.array([1])),
        pa.array([1.5], pa.float16()), pa.array([0], pa.date64()), pa.array([1], pa.timestamp("ns", "Asia/Tokyo")),
    ]  # fmt: skip
    found = []
    for array in arrays:
        for options in (None, pa.ipc.IpcWriteOptions(compression="zstd")):
            sink = pa.BufferOutputStream()
            rows = pa.RecordBatch.from_arrays([array], names=["v"])
            with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
                writer.write_batch(rows)
            found.append(sink.getvalue().to_pybytes())
    return found


def _spoilt_predicates(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    if rng.random() < 0.3:
        return spoilt_message(pb.ScanRequest, seeds, rng)
    request = pb.ScanRequest.FromString(rng.choice(seeds))
    one = request.predicates[0]
    way = rng.random()
    if way < 0.6:
        one.values = spoilt_values(one.values, rng)
    elif way < 0.75:
        one.values = (
            rng.choice(foreign_streams()) if rng.random() < 0.5 else spoilt_values(rng.choice(foreign_streams()), rng)
        )
    else:
        one.values = pb.ScanRequest.FromString(rng.choice(seeds)).predicates[0].values
    if rng.random() < 0.3:
        one.op = rng.choice(("=", "!=", "<", "<=", ">", ">=", "in", "is_null", "is_not_null", "like"))
    if rng.random() < 0.3:
        one.column = rng.choice(NAMES)
    return bytes(request.SerializeToString())


# ---------------------------------------------------------------------------------------------------------- batches


class _Batch:
    """A batch of rows of every type, as a write carries it."""

    def __init__(self) -> None:
        wire = SCHEMA.wire_schema(tuple(c.id for c in SCHEMA.columns))
        self._decoder = BatchDecoder(wire)
        found = []
        for rows in (1, 3, 40):
            kinds = [values(kind, rows, nulls=kind.type is not ColumnType.INT64) for kind in KINDS]
            system = [pa.array([1] * rows, pa.uint8()), pa.array(range(rows), pa.int64())]
            found.append(encode_batch(pa.RecordBatch.from_arrays([*kinds, *system], schema=wire)))
        self.seeds = found
        plain = [p.data for p in (*hostile.other_messages(), *hostile.poisoned_offsets())]
        self._others = [*found, *plain, *foreign_streams()]

    def mutate(self, rng: random.Random) -> bytes:
        if rng.random() < 0.1:
            return spoilt(rng.choice(self._others), rng, self._others)
        data = rng.choice(self.seeds)
        head = 8 + int.from_bytes(data[4:8], "little")
        if rng.random() < 0.6:
            return spoilt_values(data[:head], rng) + data[head:]
        return spoilt_values(data, rng)

    def read(self, data: bytes) -> object:
        """Refuse the batch, or return rows that can be sorted, copied and written again."""
        try:
            rows = self._decoder.decode(data)
        except Refused as error:
            return error.code
        rows.validate(full=True)
        again = pa.RecordBatch.from_arrays([column.take(pa.array([0])) for column in rows.columns], schema=rows.schema)
        rows.sort_by([(name, "ascending") for name in SCHEMA.key])
        return again.num_rows, len(encode_batch(rows))


def _schema(data: bytes) -> object:
    """Read a table's schema as a request has it: it is refused, or written again as it was read."""
    try:
        request = parsed_request("TabletService.CreateTablet", data, pb.CreateTabletRequest)
        found = schema_from_pb(request.table.schema)
    except Refused as error:
        return error.code
    if TableSchema.from_json(found.to_json()) != found:
        raise Broken(f"the schema is another one once it was stored: {found}")
    return schema_to_pb(found).SerializeToString()


def targets() -> list[Target]:
    """Return one target for every kind of value."""
    texts, predicates, batch = _texts(), _predicates(), _Batch()
    table = pb.CreateTabletRequest(table=pb.TableInfo(schema=schema_to_pb(SCHEMA))).SerializeToString()
    small = TableSchema(1, (Column(id=1, name="k", type=ColumnType.INT64, nullable=False),), ("k",))
    tables = [table, pb.CreateTabletRequest(table=pb.TableInfo(schema=schema_to_pb(small))).SerializeToString()]
    return [
        pure("value/condition", texts, partial(_spoilt_text, seeds=texts), _condition),
        pure("value/predicates", predicates, partial(_spoilt_predicates, seeds=predicates), _predicate),
        pure("value/batch", batch.seeds, batch.mutate, batch.read),
        pure("value/schema", tables, lambda rng: spoilt_message(pb.CreateTabletRequest, tables, rng), _schema),
    ]
