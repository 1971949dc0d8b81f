"""Rows of every type through a cluster: written by a client, scanned, summed up, copied, restarted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from nyala import Table
from nyala.infra.cli.app import app
from nyala.replica.client import TableHandle, wire_batches
from nyala.replica.rows import ColumnType, PartitionSpec, RowOp, RowSum, TableSchema
from nyala.replica.types import Address, ConfigEdit, EditKind, Member
from tests.harness.cluster import wait_until
from tests.harness.every_type import KEYS, KINDS, ROW_COUNTS, Kind, same_values, values
from tests.harness.stack import Stack

pytestmark = [pytest.mark.process, pytest.mark.deep]

KEY_KINDS = [kind for kind in KEYS if not kind.precision or kind.name in ("decimal_12_2", "decimal_38_38")]
INT64 = Kind("n", ColumnType.INT64)
MONEY = Kind("decimal_12_2", ColumnType.DECIMAL, 12, 2)
ROWS = 3


def schema_of(kind: Kind) -> TableSchema:
    """A key of this type and a number, and a value of every type."""
    key = [kind.column(1, "key", nullable=False), INT64.column(2, "n", nullable=False)]
    rest = [each.column(at, f"v_{each.name}", nullable=True) for at, each in enumerate(KINDS, 3)]
    return TableSchema(1, (*key, *rest), ("key", "n"))


def rows_of(kind: Kind, schema: TableSchema) -> Any:
    """ROWS rows: each key differs, and each value is null once; in memory that cannot be written."""
    columns = [values(kind, ROWS), pa.array(range(ROWS)), *(values(each, ROWS, nulls=True) for each in KINDS)]
    return frozen(columns, schema)


def frozen(columns: Sequence[Any], schema: TableSchema) -> Any:
    """The rows in memory that cannot be written."""
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, schema.arrow) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema.arrow))
    (batch,) = pa.ipc.open_stream(pa.py_buffer(written.getvalue().to_pybytes()))
    return batch


def add_copy(stack: Stack, handle: TableHandle) -> None:
    """Each tablet of one replica gets a second one, on the server after its own, which has it from a copy."""
    servers = sorted((s for s in stack.client.list_servers().servers if s.alive), key=lambda s: s.uuid)
    for tablet in handle.tablets:
        home = stack.info(stack.leader(tablet.tablet_id)).uuid
        target = servers[([s.uuid for s in servers].index(home) + 1) % len(servers)]
        addresses = tuple(Address(a.host, a.port) for a in target.addresses)
        member = Member(target.uuid, addresses, votes=False, promote=True)
        stack.client.change_config(handle.name, tablet.tablet_id, [ConfigEdit(EditKind.ADD, member)])

    def whole(tablet_id: str) -> bool:
        found = stack.statuses(tablet_id).values()
        return (
            sum(s.phase == "RUNNING" for s in found)
            == 2
            == max(sum(m.votes for m in s.committed_config.members) for s in found)
        )

    for tablet in handle.tablets:
        wait_until(lambda t=tablet.tablet_id: whole(t), "the copy votes")  # type: ignore[misc]


def test_one_row_of_every_type_is_the_same_after_a_write_a_copy_and_a_restart(stack: Stack) -> None:
    """IN-02. Goal: one row, of a key of any type and values of every type, is bit by bit the same wherever it is read,
    and no replica of it is in trouble.

    Method: a table for each type of key, decimals of two precisions, of two tablets and one replica. One row is written
    from memory that cannot be written, then two more, a slice of all that is sent as it is; each is scanned.
    `cluster check --checksum` ends with 0. Every tablet is copied, half of the tables are flushed before; the check
    compares the two replicas, and has the same sum for each as before. All servers are killed and come back: the same
    rows, the same sums.
    """
    tables: list[tuple[Table, Any]] = []
    for kind in KEY_KINDS:
        schema = schema_of(kind)
        handle = stack.client.create_table(
            f"key-{kind.name}", schema, PartitionSpec(schema.key, 2), replication_factor=1
        )
        tables.append((Table(stack.client, handle), rows_of(kind, schema)))
    for part in ((0, 1), (1, 2)):
        for table, rows in tables:
            if part[0]:
                send(stack, table.handle, rows.slice(*part))
            else:
                table.upsert(rows.slice(*part))
            assert_same(table, rows.slice(0, part[0] + part[1]))
        check(stack)
    assert_same_after_a_copy_and_a_restart(stack, tables)


def test_chunk_of_rows_and_one_row_more_are_the_same_after_a_write_a_copy_and_a_restart(stack: Stack) -> None:
    """IN-01, IN-02. Goal: a whole chunk, and a last chunk of one row, go the whole road as one row does, for every type
    in the key and as a value, with nulls and without.

    Method: 16,384 and 16,385 rows, each in a table of one tablet with all key types in the key and each type twice
    behind it, once with nulls; and in tables of one and of two tablets with a decimal in the key, whose rows are one
    batch. Then as above: scanned, summed up, copied, half of them flushed before; all servers killed.
    """
    tables: list[tuple[Table, Any]] = []
    for rows in ROW_COUNTS[-2:]:
        n, cents = INT64.column(1, "n", nullable=False), MONEY.column(2, "cents", nullable=False)
        keys = [kind.column(at, f"k_{kind.name}", nullable=False) for at, kind in enumerate(KEY_KINDS, 2)]
        first = len(keys) + 2
        full = [kind.column(at, f"f_{kind.name}", nullable=False) for at, kind in enumerate(KINDS, first)]
        some = [kind.column(at, f"s_{kind.name}", nullable=True) for at, kind in enumerate(KINDS, first + len(full))]
        wide = TableSchema(1, (n, *keys, *full, *some), ("n", *(c.name for c in keys)))
        narrow = TableSchema(1, (n, cents), ("n", "cents"))
        columns = [
            *(values(kind, rows) for kind in KEY_KINDS),
            *(values(kind, rows) for kind in KINDS),
            *(values(kind, rows, nulls=True) for kind in KINDS),
        ]
        for name, schema, held, tablets in (
            ("wide", wide, columns, 1),
            ("one-batch", narrow, [values(MONEY, rows)], 1),
            ("two-tablets", narrow, [values(MONEY, rows)], 2),
        ):
            handle = stack.client.create_table(
                f"{name}-{rows}", schema, PartitionSpec(schema.key, tablets), replication_factor=1
            )
            tables.append((Table(stack.client, handle), frozen([pa.array(range(rows)), *held], schema)))
    for table, batch in tables:
        table.upsert(batch)
        assert_same(table, batch)
    assert_same_after_a_copy_and_a_restart(stack, tables)


def assert_same_after_a_copy_and_a_restart(stack: Stack, tables: Sequence[tuple[Table, Any]]) -> None:
    """Each tablet is copied, every other table flushed before, and all servers are killed: the rows and sums stay."""
    before = sums(stack, tables)
    for at, (table, _) in enumerate(tables):
        if at % 2:
            for tablet in table.handle.tablets:
                stack.client.flush(stack.info(stack.leader(tablet.tablet_id)), tablet.tablet_id)
        add_copy(stack, table.handle)
    check(stack)
    assert sums(stack, tables) == before
    names = [name for name in stack.supervisor.children if name.startswith("server")]
    pids = stack.pids()
    stack.kill(*names)
    stack.wait_replaced(pids, *names)
    for table, rows in tables:
        assert_same(table, rows)
    check(stack)
    assert sums(stack, tables) == before


def send(stack: Stack, handle: TableHandle, rows: Any) -> None:
    """Write rows without the conversions of `Table`."""
    with stack.client.session_writer(handle) as writer:
        for batch in wire_batches(handle, rows, RowOp.UPSERT):
            writer.send(batch)
        writer.flush()
        assert writer.row_errors == []


def assert_same(table: Table, rows: Any) -> None:
    """The table holds these rows."""
    found = table.scan().to_arrow().sort_by("n").combine_chunks()
    assert found.num_rows == rows.num_rows
    for name in rows.schema.names:
        (column,) = found[name].chunks
        assert same_values(column, pa.concat_arrays([rows.column(name)])), (table.name, name)


def check(stack: Stack) -> None:
    """`nyala cluster check --checksum` finds nothing wrong."""
    line = ["cluster", "check", "--checksum", "--wait", "60", "--masters", stack.supervisor.masters]
    told = CliRunner().invoke(app, line)
    assert told.exit_code == 0, told.output


def sums(stack: Stack, tables: Sequence[tuple[Table, Any]]) -> dict[str, RowSum]:
    """By tablet id, the sum that all of its replicas have."""
    found = {}
    for table, _ in tables:
        at = stack.client.snapshot_time(table.handle)
        for tablet in table.handle.tablets:
            told = {
                stack.client.checksum(stack.info(name), tablet.tablet_id, at)
                for name in stack.statuses(tablet.tablet_id)
            }
            (found[tablet.tablet_id],) = told
    return found
