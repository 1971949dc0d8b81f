"""Rows that a tablet does not apply, at the session's writer and at the table that a user holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.replica.client import ClientOptions, RowErrors, SessionWriter, TableHandle, TabletHandle, wire_batches
from nyala.replica.client.calls import TabletCalls
from nyala.replica.client.channels import Channels
from nyala.replica.client.client_ids import ClientIds
from nyala.replica.client.locator import Locator
from nyala.replica.client.tables import Location
from nyala.replica.rows import OFFSET_COLUMN, PartitionSpec, RowError, RowOp, decode_batch
from nyala.replica.rpc import pb, pb_grpc, row_errors_to_pb
from nyala.replica.types import Address, Applied, Code, RowCode
from tests.harness.played_grpc import listening
from tests.harness.rows import SCHEMA

TABLETS = tuple(TabletHandle(f"t{n}", n, n, 0) for n in range(2))
TABLE = TableHandle("id", "readings", SCHEMA, PartitionSpec(("k",), 2), 1, 0, 0, tablets=TABLETS)


class Tablets(pb_grpc.TabletServiceServicer):  # type: ignore[misc]
    """The leader of both tablets, played by the test: rows of some keys fail, each with a code."""

    def __init__(self) -> None:
        self.failing: dict[int, tuple[RowCode, str]] = {}
        self.written: list[int] = []

    def Write(self, request: Any, context: Any) -> Any:
        """[gRPC] All rows but those that fail."""
        batch = decode_batch(request.payload, SCHEMA.wire_schema(tuple(request.column_ids)))
        keys, offsets = batch[0].to_pylist(), batch[OFFSET_COLUMN].to_pylist()
        bad = [RowError(o, *self.failing[k]) for k, o in zip(keys, offsets, strict=True) if k in self.failing]
        good = [k for k in keys if k not in self.failing]
        self.written += good
        return pb.WriteReply(rows_applied=len(good), row_errors=row_errors_to_pb(bad), hybrid_time=7)


class Writing:
    """The part of the product's client that writes, over the played tablets."""

    def __init__(self, address: Address) -> None:
        locator = Locator(lambda name: [Location(t.tablet_id, name, {"a": address}, "a") for t in TABLETS])
        locator.refresh(TABLE.name, 0)
        self.calls = TabletCalls(Channels(), locator, ClientOptions())
        self._client_ids = ClientIds()

    def session_writer(self, handle: TableHandle, *, on_error: Any = "raise") -> SessionWriter:
        return SessionWriter(self.calls, handle, self._client_ids, on_error)


@pytest.fixture
def tablets() -> Tablets:
    return Tablets()


@pytest.fixture
def client(tablets: Tablets) -> Iterator[Writing]:
    with listening(tablets) as address:
        made = Writing(address)
        yield made
        made.calls.channels.close()


@pytest.fixture
def table(client: Writing) -> nyala.Table:
    return nyala.Table(client, TABLE)  # type: ignore[arg-type]


ROWS = [{"k": k, "v": f"v{k}"} for k in range(10)]
WRITES: dict[str, Callable[..., nyala.WriteResult]] = {
    "insert": nyala.Table.insert,
    "upsert": nyala.Table.upsert,
    "update": nyala.Table.update,
    "delete": nyala.Table.delete,
}


@pytest.mark.parametrize("operation", WRITES)
def test_write_raises_with_the_rows_that_were_not_applied(operation: str, table: nyala.Table, tablets: Tablets) -> None:
    """IN-11. Goal: a write with failed rows raises, and the error tells which rows failed and how many others were
    applied. Method: each operation with two bad rows of ten in two tablets: position, key, code, column and the whole
    row are on the exception, and its text says how many others are in the table."""
    tablets.failing = {3: (RowCode.ALREADY_PRESENT, ""), 8: (RowCode.NULL_IN_REQUIRED_COLUMN, "v")}
    with pytest.raises(nyala.RowErrors) as caught:
        WRITES[operation](table, ROWS)
    error = caught.value
    assert [(e.row, e.code, e.column, e.key) for e in error.errors] == [  # type: ignore[union-attr]
        (3, RowCode.ALREADY_PRESENT, "", {"k": 3}),
        (8, RowCode.NULL_IN_REQUIRED_COLUMN, "v", {"k": 8}),
    ]
    columns = ["k"] if operation == "delete" else ["k", "v"]
    assert error.rows.to_pylist() == [{c: ROWS[k][c] for c in columns} for k in (3, 8)]
    assert (error.failed, error.rows_applied, len(tablets.written)) == (2, 8, 8)
    assert isinstance(error, nyala.Refused) and not isinstance(error, nyala.NotApplied | nyala.OutcomeUnknown)
    text = "table 'readings': 2 of 10 rows were not applied, the other 8 were: row 3 (k=3): ALREADY_PRESENT; row 8 "
    assert str(error).startswith(f"ALREADY_EXISTS: {text}") and 'on_error="return"' in str(error)
    assert "nothing was applied" not in str(error) and "outcome" not in str(error)


@pytest.mark.parametrize("operation", WRITES)
def test_write_returns_row_errors_to_those_who_ask(operation: str, table: nyala.Table, tablets: Tablets) -> None:
    """IN-11. Goal: a caller can ask to get row errors as data. Method: each operation, with a bad row and without one;
    the result raises what the call would have raised."""
    assert WRITES[operation](table, ROWS).ok and WRITES[operation](table, ROWS, on_error="return").failed is None
    tablets.failing = {3: (RowCode.NOT_FOUND, "")}
    result = WRITES[operation](table, ROWS, on_error="return")
    assert (result.ok, result.applied, [e.row for e in result.errors]) == (False, 9, [3])
    assert result.failed["k"].to_pylist() == [3]
    with pytest.raises(nyala.RowErrors, match="1 of 10 rows was not applied, the other 9 were"):
        result.raise_for_errors()


def test_write_that_applied_no_row_says_so(table: nyala.Table, tablets: Tablets) -> None:
    """IN-11. Goal: the error tells whether any row was applied. Method: the only row fails; two of two; six of
    seven."""
    tablets.failing = dict.fromkeys(range(7), (RowCode.ALREADY_PRESENT, ""))
    with pytest.raises(nyala.RowErrors, match="1 of 1 rows was not applied, nothing was applied") as caught:
        table.insert({"k": 1, "v": "x"})
    assert caught.value.applied is Applied.NOT_APPLIED and caught.value.code is Code.ALREADY_EXISTS
    with pytest.raises(
        nyala.RowErrors, match=r"7 of 8 rows were not applied, the other one was: .*; and 2 more"
    ) as caught:
        table.insert([{"k": k, "v": "x"} for k in range(8)])
    assert caught.value.applied is Applied.UNKNOWN


@pytest.mark.parametrize("word", ["ignore", "", None, True, "Raise"])
def test_on_error_that_means_nothing_is_refused_before_anything_is_sent(
    word: Any, table: nyala.Table, tablets: Tablets
) -> None:
    """IN-11. Goal: a misspelt option is refused before anything is sent. Method: words that there are not."""
    with pytest.raises(nyala.NotApplied, match='on_error= is "raise" or "return"'):
        table.insert(ROWS, on_error=word)
    assert tablets.written == []


ADVICE = {
    ("insert", RowCode.ALREADY_PRESENT): "use upsert to change it, or insert with ignore_existing=True",
    ("update", RowCode.NOT_FOUND): "use upsert to add it, or update with ignore_missing=True",
    ("delete", RowCode.NOT_FOUND): "use delete with ignore_missing=True",
    ("upsert", RowCode.ROW_TOO_LARGE): "Correct these rows",
}


@pytest.mark.parametrize(("operation", "code"), ADVICE)
def test_row_errors_say_what_to_do(operation: str, code: RowCode, table: nyala.Table, tablets: Tablets) -> None:
    """IN-11. Goal: the error ends with the remedy for the kind of failure. Method: each operation with its usual
    code."""
    tablets.failing = {1: (code, "")}
    with pytest.raises(nyala.RowErrors, match=ADVICE[operation, code]):
        WRITES[operation](table, ROWS)


def batches(*keys: int) -> Iterator[Any]:
    return wire_batches(TABLE, pa.table({"k": list(keys), "v": ["x"] * len(keys)}), RowOp.INSERT)


def test_session_writer_raises_each_row_error_once(client: Writing, tablets: Tablets) -> None:
    """IN-11. Goal: the writer's own users see bad rows as well. Method: flush, one write and the end of a `with` block,
    each after a bad row; what was raised is not raised again, and stays in the list."""
    tablets.failing = dict.fromkeys((1, 2, 3), (RowCode.ALREADY_PRESENT, ""))
    with pytest.raises(RowErrors, match="row 0: ALREADY_PRESENT") as last, client.session_writer(TABLE) as writer:
        for batch in batches(0, 1):
            writer.send(batch)
        with pytest.raises(RowErrors, match="1 of 2 rows") as caught:
            writer.flush()
        assert [e.offset for e in caught.value.errors] == [1]  # type: ignore[union-attr]
        writer.flush()
        (alone,) = batches(2)
        with pytest.raises(RowErrors, match="1 of 1 rows"):
            writer.write(alone)
        for batch in batches(3, 4):
            writer.send(batch)
    assert last.value.rows_applied == 1 and len(writer.row_errors) == 3


def test_session_writer_returns_row_errors_to_those_who_ask(client: Writing, tablets: Tablets) -> None:
    """IN-11. Goal: tools that count bad rows go on. Method: the same, with the word for it."""
    tablets.failing = {1: (RowCode.ALREADY_PRESENT, "")}
    with client.session_writer(TABLE, on_error="return") as writer:
        for batch in batches(0, 1):
            writer.send(batch)
        writer.flush()
    assert writer.row_errors == [RowError(1, RowCode.ALREADY_PRESENT)] and writer.rows_applied == 1


def test_session_writer_that_ends_with_another_error_raises_that(client: Writing, tablets: Tablets) -> None:
    """Goal: a bad row does not hide why a block ended. Method: the block ends with an error of its own."""
    tablets.failing = {1: (RowCode.ALREADY_PRESENT, "")}
    with pytest.raises(ZeroDivisionError), client.session_writer(TABLE) as writer:
        for batch in batches(0, 1):
            writer.send(batch)
        _ = 1 / 0
