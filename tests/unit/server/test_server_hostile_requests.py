"""Every call of a tablet server with every field as a careless, broken or hostile caller would send it, over gRPC."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from nyala.replica.rows import Predicate
from nyala.replica.rpc import pb, pb_grpc, predicate_to_pb
from nyala.replica.types import Code, limits
from tests.harness.copies import TABLET
from tests.harness.hostile_fields import Must, Served, cases, play
from tests.harness.request_table import Row
from tests.harness.server_calls import ServerWorld, run_server
from tests.unit.server.test_server_requests_table import ROWS, put, read


@pytest.mark.a_third
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_hostile_field_of_any_call_is_refused_and_leaves_everything_as_it_was(row: Row) -> None:
    """IN-82, IN-60. Goal: names, ids and numbers are checked where they come in, so that none becomes a file's name, an
    exception or a record. Method: the good request of every call, with each field at any depth as NUL, too long, a
    path, other alphabets, below zero, beyond the range, NaN and JSON without end, to a server as the product makes it:
    INVALID_ARGUMENT, and nothing on disk or in memory has changed; then what may be answered, whatever the answer."""

    async def scenario(world: ServerWorld) -> None:
        await row.prepare(world)
        async with Served(world.services()) as served:
            await play(row, world, served, "TabletService")

    run_server(scenario, row.at)


class Linked:
    """The server's end of a link for small writes, and its other calls."""

    def __init__(self, world: ServerWorld) -> None:
        self._world = world
        self._links = world.services()["TabletService"].write_links

    async def call(self, service: str, method: str, request: Any) -> Any:
        """The reply; what is no refusal is raised."""
        if method != "Write":
            return await self._world.call(service, method, request)
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._links.begin(request, outcome.set_result)
        reply = await outcome
        if isinstance(reply, BaseException):
            raise reply
        return reply


@pytest.mark.parametrize("good", [put("a"), read(3, 4)], ids=["of a client", "of a source"])
def test_hostile_field_of_a_write_on_a_link_is_refused_and_leaves_everything_as_it_was(good: Any) -> None:
    """IN-82, IN-60. Goal: what comes on a link for small writes is checked as a call is, so that nothing gets into the
    log or the ledger that may not be there. Method: lists and texts of megabytes and a number below zero, to what takes
    the link's writes: INVALID_ARGUMENT; then the table of hostile fields, but for a time that is only compared: each is
    refused, and nothing has changed; the good write is taken."""
    row = next(row for row in ROWS if row.call == "TabletService.Write")

    async def scenario(world: ServerWorld) -> None:
        await row.prepare(world)
        linked, before = Linked(world), await world.state()
        for change in (
            pb.WriteRequest(column_ids=[1] * (limits.COLUMNS_MAX + 1)),
            pb.WriteRequest(column_ids=[1] * 1_000_000),
            pb.WriteRequest(source=pb.SourceKey(cluster_id="\0" * (4 << 20))),
            pb.WriteRequest(source=pb.SourceKey(kafka_partition=-5)),
        ):
            request = good(world)
            request.MergeFrom(change)
            reply = await linked.call(*row.names, request)
            assert reply.error.code == Code.INVALID_ARGUMENT and len(reply.error.message) < 400, reply.error
        for case in cases(good(world)):
            if case.must is Must.INVALID and not case.what.startswith("propagated_time"):
                reply = await linked.call(*row.names, case.request)
                assert reply.error.code, case.what
        assert await world.state() == before
        assert not (await linked.call(*row.names, good(world))).error.code

    run_server(scenario, row.at)


@pytest.mark.deep
def test_costly_scans_are_refused_and_reads_of_others_go_on() -> None:
    """IN-60, IN-61. Goal: 10**6 column names, 10**5 conditions, 10**6 values and 224 bytes of nulls take nothing down.
    Method: each of them to a server as the product makes it, all at once, among reads of somebody else, who gets all
    his rows; each is refused, with what the bound is."""

    async def scenario(world: ServerWorld) -> None:
        await world.write([1, 2, 3], "v")
        async with Served(world.services()) as served:
            await _costly(world, served)

    run_server(scenario)


async def _costly(world: ServerWorld, served: Served) -> None:
    at = {"dest_uuid": world.uuid, "tablet_id": TABLET}
    values = predicate_to_pb(Predicate("k", "in", tuple(range(10**6))), pa.int64())
    many = predicate_to_pb(Predicate("k", "in", tuple(range(limits.SCAN_VALUES_MAX + 1))), pa.int64())
    nulls = pb.Predicate(column="k", op="in", values=_nulls(2_000_000_000))
    costly = {
        "a million column names": pb.ScanRequest(**at, columns=["k"] * 10**6),
        "301 column names": pb.ScanRequest(**at, columns=["k"] * 301),
        "one column twice": pb.ScanRequest(**at, columns=["k", "k"]),
        "100,000 conditions": pb.ScanRequest(**at, predicates=[pb.Predicate(column="k", op="is_null")] * 10**5),
        "a million values": pb.ScanRequest(**at, predicates=[values]),
        "values beyond the bound": pb.ScanRequest(**at, predicates=[many]),
        "224 bytes of nulls": pb.ScanRequest(**at, predicates=[nulls]),
        "a name of a megabyte": pb.ScanRequest(**at, columns=["k" * 10**6]),
    }
    good = pb.ScanRequest(**at, count_only=True)

    async def read() -> int:
        stub = pb_grpc.TabletServiceStub(served.channel)
        chunks = [chunk async for chunk in stub.Scan(good, timeout=60)]
        batches = [c.arrow_batch for c in chunks if c.arrow_batch]
        schema = pa.ipc.read_schema(pa.py_buffer(chunks[0].arrow_schema))
        return int(pa.ipc.read_record_batch(pa.py_buffer(batches[0]), schema).column(0)[0].as_py())

    calls = [served.call("TabletService", "Scan", request) for request in costly.values()]
    outcomes = await asyncio.gather(*calls, *(read() for _ in range(8)))
    for what, reply in zip(costly, outcomes, strict=False):
        assert reply.error.code in (Code.INVALID_ARGUMENT, Code.TOO_LARGE) and reply.last, (what, reply)
    assert outcomes[len(costly) :] == [3] * 8


def _nulls(count: int) -> bytes:
    rows = pa.RecordBatch.from_arrays([pa.nulls(count)], names=["v"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())
