"""The values of a condition from hostile callers: plain or refused, and never larger than what was sent."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nyala.replica.rows import (
    BatchDecoder,
    Conditions,
    MalformedMessage,
    Predicate,
    conditions_size,
    encode_batch,
    read_values,
)
from nyala.replica.rpc import pb, predicate_from_pb, predicate_to_pb, predicates_from_pb
from nyala.replica.types import Code, Refused, limits
from tests.harness.rows import SCHEMA, batch
from tests.harness.spent import peak_bytes

UTC = dt.UTC
PLAIN: list[tuple[Any, list[Any]]] = [
    (pa.bool_(), [True, False, True]),
    (pa.int8(), [-128, 127]),
    (pa.int16(), [-5]),
    (pa.int32(), [7]),
    (pa.int64(), [-(2**63), 2**63 - 1]),
    (pa.uint64(), [2**64 - 1]),
    (pa.float32(), [0.5]),
    (pa.float64(), [1e300, float("inf")]),
    (pa.decimal128(9, 2), [decimal.Decimal("1234567.89")]),
    (pa.string(), ["a", "", "long" * 50]),
    (pa.binary(), [b"", b"\0"]),
    (pa.date32(), [dt.date(1969, 12, 31)]),
    (pa.timestamp("us"), [dt.datetime(2020, 1, 1)]),
    (pa.timestamp("us", tz="UTC"), [dt.datetime(2020, 1, 1, tzinfo=UTC)]),
]


def stream(array: Any, name: str = "v", metadata: dict[str, str] | None = None, **options: Any) -> bytes:
    """Return the bytes that pyarrow writes for one column."""
    field = pa.field(name, array.type)
    rows = pa.RecordBatch.from_arrays([array], schema=pa.schema([field], metadata=metadata))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())


class Tagged(pa.ExtensionType):  # type: ignore[misc]
    """An extension type of its own."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.tagged")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


def _many_rows(data: bytes, rows: int) -> bytes:
    """The stream of three booleans, which says that they are `rows`."""
    return data.replace(struct.pack("<q", 3), struct.pack("<q", rows))


# Made when a test asks: the two longest take seconds.
NOT_TAKEN: dict[str, Callable[[], bytes]] = {
    "null, 2,000 million of them": lambda: stream(pa.nulls(2_000_000_000)),
    "run-end encoded, 1,000 million": lambda: stream(
        pa.RunEndEncodedArray.from_arrays(pa.array([10**9], pa.int32()), [1])
    ),
    "a dictionary": lambda: stream(pa.array(["a", "a"]).dictionary_encode()),
    "a list": lambda: stream(pa.array([[1], [2]])),
    "a struct": lambda: stream(pa.array([{"a": 1}])),
    "a map": lambda: stream(pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))),
    "a fixed-size list of 2**31 - 1 nulls": lambda: stream(
        pa.FixedSizeListArray.from_arrays(pa.nulls(2**31 - 1), type=pa.list_(pa.null(), 2**31 - 1))
    ),
    "a union": lambda: stream(pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])),
    "a string view": lambda: stream(pa.array(["a"], pa.string_view())),
    "large strings": lambda: stream(pa.array(["a"], pa.large_string())),
    "fixed-size binary of no bytes": lambda: stream(pa.array([b""] * 1000, pa.binary(0))),
    "a time": lambda: stream(pa.array([dt.time(1)])),
    "a duration": lambda: stream(pa.array([dt.timedelta(1)])),
    "an extension type": lambda: stream(pa.ExtensionArray.from_storage(Tagged(), pa.array([1]))),
    "another zone": lambda: stream(pa.array([0], pa.timestamp("us", tz="Europe/Berlin"))),
    "compressed": lambda: stream(pa.array([0] * 100_000), compression="zstd"),
    "nulls among them": lambda: stream(pa.array([1, None])),
    "another name": lambda: stream(pa.array([1]), name="w"),
    "metadata of the schema": lambda: stream(pa.array([1]), metadata={"a": "b"}),
    "no end": lambda: stream(pa.array([1]))[:-8],
    "two streams": lambda: stream(pa.array([1])) * 2,
    "nothing of a batch": lambda: stream(pa.array([1]))[:-8][:200],
    "more rows than bytes": lambda: _many_rows(stream(pa.array([True, False, True])), 2**31),
    "rows below zero": lambda: _many_rows(stream(pa.array([True, False, True])), -1),
    "more than a scan may have": lambda: stream(pa.array([False] * (limits.SCAN_VALUES_MAX + 1))),
    "text that is no UTF-8": lambda: stream(pa.array(["aabbcc"])).replace(b"aabbcc", b"a\xffb\xc3\x28c"),
    "zeros": lambda: bytes(400),
    "text": lambda: b"select * from things " * 20,
}


@pytest.mark.parametrize("kind, values", PLAIN, ids=[str(k) for k, _ in PLAIN])
def test_values_of_every_plain_type_come_back(kind: Any, values: list[Any]) -> None:
    """IN-61. Goal: what a column can hold is taken. Method: what pyarrow writes of each type, none, few and many."""
    for several in ([], values, values * 1000):
        assert read_values(stream(pa.array(several, type=kind))).to_pylist() == several


@pytest.mark.a_third
@pytest.mark.parametrize("name", NOT_TAKEN)
def test_encoding_that_is_not_needed_is_refused_before_it_costs_anything(name: str) -> None:
    """IN-61. Goal: a small encoded list cannot expand to gigabytes of memory. Method: each encoding that repeats, nests
    or unfolds, and each message that lies; the refusal names the column, and what was allocated on the way is a small
    multiple of the bytes."""
    data = NOT_TAKEN[name]()

    def refused() -> None:
        with pytest.raises(Refused) as caught:
            predicate_from_pb(pb.Predicate(column="c", op="in", values=data))
        assert caught.value.code is Code.INVALID_ARGUMENT and "column=c" in str(caught.value)

    refused()
    assert peak_bytes(refused) < _bound(data)


def _bound(data: bytes) -> int:
    """The stated bound on memory of reading a message: eight times its bytes and what the interpreter needs anyway."""
    return 8 * len(data) + (128 << 10)


def mutations(seed: int, data: bytes, count: int) -> Iterator[bytes]:
    """Cut, flipped, overwritten and spliced."""
    rng = random.Random(seed)
    words = [0, 1, 7, 8, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1]
    longs = [-1, 0, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)]
    for number in range(count):
        bad, at = bytearray(data), rng.randrange(len(data))
        if number % 5 == 0:
            bad[at : at + 4] = struct.pack("<I", rng.choice(words))
        elif number % 5 == 1:
            at &= ~7
            bad[at : at + 8] = struct.pack("<q", rng.choice(longs))
        elif number % 5 == 2:
            bad = bad[:at]
        elif number % 5 == 3:
            source = rng.randrange(len(data))
            bad[at : at + 16] = data[source : source + 16]
        else:
            for _ in range(rng.choice((1, 1, 2, 8))):
                bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        yield bytes(bad)


@pytest.mark.a_third
@pytest.mark.parametrize("seed", range(4))
def test_mutated_message_is_read_or_refused_within_its_bound(seed: int) -> None:
    """IN-61. Goal: no bytes of a kilobyte take much memory, end the process, or raise anything else. Method: some 2,500
    mutations a seed of streams and of write batches; what is taken passes pyarrow's full validation."""
    kinds = [stream(pa.array(values, type=kind)) for kind, values in PLAIN]
    refused = [data for data in (make() for make in NOT_TAKEN.values()) if len(data) <= 1024]
    taken, decoder = 0, BatchDecoder(SCHEMA.wire_schema((1, 2)))
    write = encode_batch(batch([1, 2, 3], ["a", None, "cc"]))
    for data in (*kinds, *refused):
        for bad in mutations(seed, data, 70):
            try:
                array = read_values(bad)
            except (MalformedMessage, pa.ArrowException, ValueError):
                continue
            array.validate(full=True)
            assert array.nbytes <= 2 * len(bad)
            taken += 1
    for bad in mutations(seed, write, 500):
        try:
            decoder.decode(bad).validate(full=True)
        except Refused:
            continue
        taken += 1
    assert taken > 50


def test_peak_of_mutated_messages_stays_within_the_bound() -> None:
    """IN-61. Goal: the bound holds while a message is read, not only after. Method: the peak of Arrow's pool and of
    Python's allocator over mutations of a kilobyte at most."""
    decoder = BatchDecoder(SCHEMA.wire_schema((1, 2)))
    for data in (
        stream(pa.array(["some", "texts"])),
        stream(pa.array([1, 2])),
        NOT_TAKEN["null, 2,000 million of them"](),
    ):
        for bad in mutations(9, data, 60):

            def read(bad: bytes = bad) -> None:
                try:
                    predicate_from_pb(pb.Predicate(column="c", op="in", values=bad))
                except Refused:
                    return

            assert peak_bytes(read) < _bound(bad)
    for bad in mutations(9, encode_batch(batch([1, 2], ["a", "b"])), 60):

        def decode(bad: bytes = bad) -> None:
            try:
                decoder.decode(bad)
            except Refused:
                return

        assert peak_bytes(decode) < _bound(bad)


def test_conditions_of_a_scan_are_bounded_together() -> None:
    """IN-61. Goal: 100,000 conditions and a million values are refused, also when they come in pieces. Method: one more
    than the bound of each, and just the bound."""
    test = pb.Predicate(column="c", op="is_null")
    assert len(predicates_from_pb([test] * limits.SCAN_PREDICATES_MAX)) == limits.SCAN_PREDICATES_MAX
    half = predicate_to_pb(Predicate("c", "in", tuple(range(limits.SCAN_VALUES_MAX // 2))), pa.int64())
    one = predicate_to_pb(Predicate("c", "=", (1,)), pa.int64())
    assert len(predicates_from_pb([half, half])) == 2
    for many in ([test] * (limits.SCAN_PREDICATES_MAX + 1), [test] * 100_000, [half, half, one]):
        with pytest.raises(Refused, match="at most") as caught:
            predicates_from_pb(many)
        assert caught.value.code is Code.INVALID_ARGUMENT


def test_list_of_values_that_the_column_cannot_hold_is_bounded() -> None:
    """IN-61. Goal: each such value is a comparison of its own, so there are few. Method: the bound, and one more."""
    schema = pa.schema([("c", pa.int8())])
    odd = tuple(range(1000, 1000 + limits.SCAN_ODD_VALUES_MAX))
    rows = pa.record_batch([pa.array([1, None, 2], pa.int8())], schema=schema)
    assert Conditions([Predicate("c", "in", (*odd, 2))], schema).mask(rows).to_pylist() == [False, False, True]
    both = [Predicate("c", "in", odd[:10]), Predicate("c", "in", (*odd[10:], 2))]
    assert Conditions(both, schema).mask(rows).to_pylist() == [False, False, False]
    for more in ([Predicate("c", "in", (*odd, 999_999))], [*both, Predicate("c", "in", (999_999,))]):
        with pytest.raises(Refused, match="cannot hold"):
            Conditions(more, schema)


class Steps:
    """A `stop` that counts, and raises when it is called for the `last`-th time."""

    def __init__(self, last: int = 10**9) -> None:
        self.taken = 0
        self._last = last

    def __call__(self) -> None:
        self.taken += 1
        if self.taken >= self._last:
            raise Refused(Code.TIMED_OUT, "stopped")


FULL = limits.SCAN_VALUES_MAX
LONG_LISTS: dict[str, tuple[Any, Any, int]] = {
    "numbers": (pa.array(range(FULL)), pa.int64(), 1),
    "doubles": (pa.array(range(1, FULL + 1), pa.float64()), pa.float64(), 1),
    "texts": (pa.array([f"{n:064}" for n in range(FULL)]), pa.string(), 1),
    "decimals": (pa.array(range(FULL), pa.decimal128(20, 2)), pa.decimal128(20, 2), 1),
    "numbers of another width": (pa.array(range(FULL), pa.int32()), pa.int64(), 1 + FULL // 1000),
    "whole doubles beside numbers": (pa.array(range(5000), pa.float64()), pa.int64(), 1 + 5),
}
"""(values, the column's type, steps in which they are made ready)."""


@pytest.mark.parametrize("name", LONG_LISTS)
def test_long_list_is_made_ready_in_steps_that_end_with_the_caller(name: str) -> None:
    """IN-60, IN-62. Goal: preparing 100,000 values ends when the caller leaves. Method: as many values as a scan may
    have: those of the column's type are taken as they are, without one object each; others a thousand at a time, and
    not one step more when `stop` raises. What is found is what Python finds."""
    values, kind, steps = LONG_LISTS[name]
    schema, last = pa.schema([("c", kind)]), len(values) - 1
    (read,) = predicates_from_pb([pb.Predicate(column="c", op="in", values=stream(values))])
    whole, cut = Steps(), Steps(2 + (steps > 1))
    ready = Conditions([read], schema, whole)
    assert whole.taken == steps
    cells = pa.array([values[last].as_py(), None, values[7].as_py()]).cast(kind)
    assert ready.mask(pa.record_batch([cells], schema=schema)).to_pylist() == [True, False, True]
    if steps == 1:
        assert peak_bytes(lambda: Conditions([read], schema)) < 100_000
    with pytest.raises(Refused, match="stopped"):
        Conditions([read, read], schema, cut)
    assert cut.taken == 2 + (steps > 1)


def test_conditions_are_read_in_steps_that_end_with_the_caller() -> None:
    """IN-62. Goal: the same while they are read. Method: a thousand conditions, of which three are read."""
    one, steps = predicate_to_pb(Predicate("c", "=", (1,)), pa.int64()), Steps(4)
    with pytest.raises(Refused, match="stopped"):
        predicates_from_pb([one] * limits.SCAN_PREDICATES_MAX, steps)
    assert steps.taken == 4


ONE_VALUE = st.one_of(
    st.lists(st.text(max_size=40) | st.text("\u00e9\u20ac", min_size=200, max_size=300), max_size=30),
    st.lists(st.binary(max_size=40), max_size=30),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30),
    st.lists(st.floats(allow_nan=False), max_size=30),
    st.lists(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20), max_size=30),
    st.lists(st.dates(), max_size=30),
    st.lists(st.datetimes(timezones=st.just(UTC)), max_size=30),
    st.lists(st.booleans(), max_size=30),
)
KINDS = (pa.int8(), pa.int64(), pa.float32(), pa.string(), pa.binary(), pa.decimal128(9, 2), pa.timestamp("us", "UTC"))


@pytest.mark.deep
@settings(max_examples=150)
@given(st.lists(ONE_VALUE, max_size=4), st.sampled_from(KINDS))
@example([["\u00e9" * 1000]], pa.string())
def test_what_a_client_measures_is_no_less_than_what_a_server_does(lists: list[list[Any]], kind: Any) -> None:
    """IN-61. Goal: a scan that its client lets pass is refused by no server for its size. Method: lists of every kind
    of value beside columns of several types; the client's measure and the bytes that travel."""
    predicates = [Predicate("c", "in", tuple(values)) for values in lists]
    try:
        sent = [predicate_to_pb(predicate, kind) for predicate in predicates]
    except Refused:
        return
    measured = conditions_size(predicates)
    assert measured.values_bytes >= sum(len(message.values) for message in sent)
    assert measured.values == sum(len(values) for values in lists)


@pytest.mark.parametrize("rows", [0, 1, 5, 100, 3000])
def test_long_list_finds_the_same_rows_in_short_and_long_batches(rows: int) -> None:
    """IN-61. Goal: cutting a long list down for a short batch loses nothing. Method: texts, integers and -0.0, with
    nulls, against Python's own membership."""
    rng = random.Random(rows)
    values: dict[str, list[Any]] = {
        "n": [rng.choice([None, rng.randrange(9000)]) for _ in range(rows)],
        "s": [rng.choice([None, f"k{rng.randrange(9000)}"]) for _ in range(rows)],
    }
    types = {"n": pa.int64(), "s": pa.string()}
    cells = pa.record_batch({k: pa.array(v, types[k]) for k, v in values.items()})
    for name, wanted in (("n", range(0, 9000, 3)), ("s", [f"k{i}" for i in range(0, 9000, 3)])):
        found = Conditions([Predicate(name, "in", tuple(wanted))], cells.schema).mask(cells)
        assert found.to_pylist() == [v is not None and v in set(wanted) for v in values[name]]


def test_nan_in_a_condition_is_refused() -> None:
    """IN-82. Goal: a condition with NaN is refused, because no row or every row would meet it. Method: NaN alone and in
    a list; infinities are values that a float column can hold, and are taken."""
    for op, values in (("=", (float("nan"),)), ("in", (1.0, float("nan")))):
        with pytest.raises(Refused, match="NaN"):
            predicate_from_pb(predicate_to_pb(Predicate("x", op, values), pa.float64()))
    taken = predicate_from_pb(predicate_to_pb(Predicate("x", "<", (float("inf"),)), pa.float64()))
    assert taken.values == (float("inf"),)
