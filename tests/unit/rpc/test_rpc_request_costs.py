"""The cost of requests to the handlers of masters and tablet servers, in memory and steps, against the stated
bounds."""

from __future__ import annotations

import asyncio
import json
import sys
import tracemalloc
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, NamedTuple

import pandas  # noqa: F401 - pyarrow imports it when it is first asked for an array, which is no cost of a request
import pyarrow as pa
import pytest

from nyala.replica.rows import Predicate, RowOp, encode_batch
from nyala.replica.rpc import checked_request, count_fields, pb, predicate_to_pb
from nyala.replica.rpc.call_costs import arrival_cost, fields_cost, reply_bytes, reply_cost, request_cost
from nyala.replica.types import limits
from nyala.schemas import fingerprint64, parse_json
from tests.harness.catalogs import table_info
from tests.harness.copies import TABLET
from tests.harness.master_calls import MasterWorld, S
from tests.harness.request_table import Row
from tests.harness.rows import batch, write_request
from tests.harness.server_calls import run_server
from tests.unit.master.test_master_requests_table import ROWS as MASTER_ROWS
from tests.unit.rpc.test_rpc_request_bounds import message_of
from tests.unit.server.test_server_requests_table import ROWS as SERVER_ROWS

REFUSED = {"tablets to replace", "rows that say one", "splits of many buckets", "objects", "maps"}
"""Requests that are told that nothing was lost, or that they lie, ask for too much, or name no Avro schema."""
ENUM: dict[str, Any] = {"type": "enum", "name": "e", "symbols": ["a"]}
ARRAY = {"type": "array", "items": "int"}


DISK_COPIES = 3
"""In which the simulated disk has what is written: as it is, as it would be after a loss of power, and on the way."""


class Spent(NamedTuple):
    """By one request."""

    bytes: int
    """Of the request."""
    fields: int
    memory: int
    """At its peak, beyond what there was before: Python's and Arrow's."""
    disk: int
    """Bytes by which files have grown, which on a simulated disk are memory as well."""
    reply: int
    """Bytes of the reply, or of its longest message."""
    cost: int
    """The charge from the request's bytes to this reply."""
    steps: int
    """Calls of functions by the handler's own task, and not by what else runs meanwhile: more on a slow machine."""


class Counted:
    """An awaitable that runs a coroutine and counts the calls of functions that it makes."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self.steps = 0
        self._work = work

    def _count(self, frame: Any, event: str, arg: Any) -> None:
        self.steps += event in ("call", "c_call")

    def __await__(self) -> Generator[Any, Any, Any]:
        go_on: Callable[[], Any] = partial(self._work.send, None)
        while True:
            sys.setprofile(self._count)
            try:
                waits_for = go_on()
            except StopIteration as ended:
                return ended.value
            finally:
                sys.setprofile(None)
            try:
                yield waits_for
                go_on = partial(self._work.send, None)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  (the coroutine handles it)
                go_on = partial(self._work.throw, error)


async def spent(world: Any, method: str, request: Any, refused: bool = False) -> Spent:
    """Return what the request, which comes as bytes, takes until its answer is there."""
    service, _, name = method.partition(".")
    data, kind = request.SerializeToString(), message_of(method)

    async def answered() -> Any:
        return await world.call(service, name, checked_request(method, data, kind))

    counted = Counted(answered())
    disks = [world.disk] if isinstance(world, MasterWorld) else [world.pair.leader.disk, world.pair.other.disk]
    held = sum(sum(disk.files.values()) for disk in disks)
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        reply = await counted
    finally:
        memory = tracemalloc.get_traced_memory()[1] + int(pool.max_memory() or 0)
        tracemalloc.stop()
        pa.set_memory_pool(before)
    assert refused or "error" not in reply.DESCRIPTOR.fields_by_name or not reply.error.code, reply.error
    grown = max(0, sum(sum(disk.files.values()) for disk in disks) - held)
    fields = count_fields(method, data, kind.DESCRIPTOR)
    cost = arrival_cost(method, len(data), kind.DESCRIPTOR) + request_cost(method, request, len(data))
    cost += fields_cost(method, fields) if len(data) > limits.REQUEST_SMALL_BYTES else 0
    reply_most = reply_bytes(method, request, len(data))
    if limits.REQUESTS[method].reply_late:
        reply_most = limits.REQUESTS[method].reply_bytes
    else:
        cost -= reply_cost(reply_most)
    cost += reply_cost(reply.ByteSize())
    assert reply.ByteSize() <= reply_most, f"{method}: a reply of {reply.ByteSize()} of {reply_most} bytes"
    return Spent(len(data), fields, memory, grown, reply.ByteSize(), cost, counted.steps)


Make = Callable[[Any, int], Any]
"""(world, how many): a request of so many of what its kind may have many of."""


def rows(op: RowOp, text: int) -> Make:
    return lambda world, count: write_request(
        world.uuid, TABLET, batch(range(count), ["v" * text] * count, op=op), client_id="c", sequence=count
    )


def liar(world: Any, count: int) -> Any:
    request = rows(RowOp.UPSERT, 0)(world, count)
    request.rows = 1
    return request


def scan(predicate: Callable[[int], Predicate], kind: Any, each: int = 0) -> Make:
    """One condition of so many values, or as many conditions of one."""

    def make(world: Any, count: int) -> Any:
        conditions = [predicate_to_pb(predicate(each or count), kind)] * (count if each else 1)
        return pb.ScanRequest(dest_uuid=world.uuid, tablet_id=TABLET, count_only=True, predicates=conditions)

    return make


def keys(kind: Any) -> Make:
    """Keys as small as there are, each of which has a row."""

    def make(world: Any, count: int) -> Any:
        payload = encode_batch(pa.record_batch([pa.array(range(count), kind)], names=["k"]))
        return pb.GetRequest(dest_uuid=world.uuid, tablet_id=TABLET, all_columns=True, keys=payload, count=count)

    return make


def ids(count: int) -> list[str]:
    return [f"{n:032x}" for n in range(count)]


def tablet(change: Callable[[Any, int], None]) -> Make:
    def make(world: Any, count: int) -> Any:
        request = world.creation(f"tablet-{count}")
        change(request.table, count)
        return request

    return make


def table(change: Callable[[Any, int], None]) -> Make:
    def make(world: Any, count: int) -> Any:
        info = table_info(f"made-{count}", buckets=1)
        change(info, count)
        return pb.CreateTableRequest(table=info, request_id=f"r{count}")

    return make


def columns(info: Any, count: int) -> None:
    for n in range(count):
        info.schema.columns.add(
            id=n + 3 if info.schema.columns[0].id else 0, name=f"c{n:03}", type="string", nullable=True
        )


def older(info: Any, count: int) -> None:
    info.older_schemas.extend([info.schema] * count)
    for pos, schema in enumerate((*info.older_schemas, info.schema)):
        schema.schema_id = pos + 1


def splits(info: Any, count: int) -> None:
    info.partition.range_column = info.schema.key[0]
    info.partition.range_splits_json.extend(str(n).encode() for n in range(count))


def buckets(info: Any, count: int) -> None:
    splits(info, count)
    info.partition.buckets = 4096
    info.partition.hash_columns[:] = info.schema.key


def default(info: Any, count: int) -> None:
    info.schema.columns[1].default_json = json.dumps("x" * count).encode()


def writers(info: Any, count: int) -> None:
    for n in range(count):
        text = json.dumps(ENUM | {"name": f"e{n}", "doc": "x" * 2000})
        info.writer_schemas.add(fingerprint=fingerprint64(parse_json(text)).hex(), avro_json=text)


def fields(count: int, kind: Any = "int") -> Any:
    return {"type": "record", "name": "r", "fields": [{"name": f"f{n}", "type": kind} for n in range(count)]}


def writer(name: str, value: Callable[[int], Any]) -> Make:
    def make(world: Any, count: int) -> Any:
        text, fingerprint = json.dumps(value(count), separators=(",", ":")), f"{name}-{count}"
        if name not in REFUSED:
            fingerprint = fingerprint64(parse_json(text)).hex()
        schema = pb.WriterSchema(fingerprint=fingerprint, avro_json=text)
        return pb.AddWriterSchemaRequest(table="flights", schema=schema)

    return make


def key(number: int) -> Any:
    return pb.SourceKey(cluster_id="k", topic_id="t", kafka_partition=number)


def opens(world: Any, count: int) -> Any:
    named = [pb.SourceOpen(source=key(n), topic="writes.flights") for n in range(count)]
    return pb.OpenSourcesRequest(table="flights", owner_run="r", lease_us=10**9, opens=named)


def advances(world: Any, count: int) -> Any:
    moved = [pb.SourceAdvance(source=key(n), generation=1, done=9) for n in range(count)]
    return pb.AdvanceSourcesRequest(table_id=world.table_id, owner_run="r", lease_us=10**9, advances=moved)


def beat(change: Callable[[Any, int], None]) -> Make:
    def make(world: Any, count: int) -> Any:
        request = world.beat(S[1])
        change(request, count)
        return request

    return make


def replicas(request: Any, count: int) -> None:
    for tablet_id in ids(count):
        request.replicas.add().CopyFrom(request.replicas[0])
        request.replicas[-1].tablet_id = tablet_id


def empty_replicas(request: Any, count: int) -> None:
    for tablet_id in ids(count):
        request.replicas.add(tablet_id=tablet_id)


def peers(request: Any, count: int) -> None:
    for tablet_id in ids(count):
        request.replicas.add(tablet_id=tablet_id).peers.extend([pb.PeerHealth()] * 64)


def failing(request: Any, count: int) -> None:
    for tablet_id in ids(count):
        request.copies_failing.add(tablet_id=tablet_id, error="e" * 300)


AT_SERVERS: dict[str, tuple[str, Make, int]] = {
    "rows": ("TabletService.Write", rows(RowOp.UPSERT, 0), 20_000),
    "rows with texts": ("TabletService.Write", rows(RowOp.UPSERT, 50), 2000),
    "rows that fail": ("TabletService.Write", rows(RowOp.INSERT, 0), 8_000),
    "rows that say one": ("TabletService.Write", liar, 20_000),
    "values": ("TabletService.Scan", scan(lambda n: Predicate("k", "in", tuple(range(n))), pa.int64()), 10_000),
    "values of another type": (
        "TabletService.Scan", scan(lambda n: Predicate("k", "in", tuple(range(n))), pa.int32()), 10_000
    ),
    "texts": (
        "TabletService.Scan", scan(lambda n: Predicate("v", "in", tuple(map(str, range(n)))), pa.string()), 10_000
    ),
    "conditions": ("TabletService.Scan", scan(lambda n: Predicate("k", "=", (1,)), pa.int64(), each=1), 300),
    "empty conditions": ("TabletService.Scan", scan(lambda n: Predicate("k", "is_null"), pa.int64(), each=1), 900),
    "keys": ("TabletService.Get", keys(pa.int64()), 4096),
    "ids": (
        "TabletService.ListTablets",
        lambda world, count: pb.ListTabletsRequest(dest_uuid=world.uuid, tablet_ids=ids(count)), 1500,
    ),
    "tablets of a time": (
        "TabletService.ServerTime",
        lambda world, count: pb.ServerTimeRequest(dest_uuid=world.uuid, tablet_ids=[TABLET, *ids(count)]), 1000,
    ),
    "columns of a tablet": ("TabletService.CreateTablet", tablet(columns), 150),
    "older schemas of a tablet": ("TabletService.CreateTablet", tablet(older), 90),
    "splits of a tablet": ("TabletService.CreateTablet", tablet(splits), 300),
    "splits of a tablet of many buckets": ("TabletService.CreateTablet", tablet(buckets), 500),
    "a default of a tablet": ("TabletService.CreateTablet", tablet(default), 100_000),
    "writer schemas of a tablet": ("TabletService.CreateTablet", tablet(writers), 150),
}  # fmt: skip
AT_MASTERS: dict[str, tuple[str, Make, int]] = {
    "columns": ("MasterService.CreateTable", table(columns), 150),
    "splits": ("MasterService.CreateTable", table(splits), 50),
    "splits of many buckets": ("MasterService.CreateTable", table(buckets), 500),
    "a default": ("MasterService.CreateTable", table(default), 5_000),
    "writer schemas": ("MasterService.CreateTable", table(writers), 150),
    "objects": ("MasterService.AddWriterSchema", writer("objects", lambda n: [{"name": "a"}] * n), 15_000),
    "maps": ("MasterService.AddWriterSchema", writer("maps", lambda n: [{}] * n), 19_000),
    "symbols": (
        "MasterService.AddWriterSchema",
        writer("symbols", lambda n: ENUM | {"symbols": [f"s{k}" for k in range(n)]}),
        25_000,
    ),
    "a union": ("MasterService.AddWriterSchema", writer("a union", lambda n: ["int"] * n), 30_000),
    "fields": ("MasterService.AddWriterSchema", writer("fields", fields), 6_500),
    "arrays": ("MasterService.AddWriterSchema", writer("arrays", lambda n: fields(n, ARRAY)), 4_000),
    "sources": ("MasterService.OpenSources", opens, 500),
    "positions": ("MasterService.AdvanceSources", advances, 4500),
    "tablets to replace": (
        "MasterService.ReplaceTablets",
        lambda world, count: pb.ReplaceTabletsRequest(tablet_ids=ids(count), floors=[pb.SourceFloor()] * count),
        900,
    ),
    "replicas": ("MasterService.Heartbeat", beat(replicas), 60),
    "empty replicas": ("MasterService.Heartbeat", beat(empty_replicas), 400),
    "peers": ("MasterService.Heartbeat", beat(peers), 60),
    "failures": ("MasterService.Heartbeat", beat(failing), 100),
    "sought": ("MasterService.Heartbeat", beat(lambda r, n: r.seeking.extend(ids(n))), 2000),
}


async def measured(world: Any, rows: dict[str, tuple[str, Make, int]], name: str) -> None:
    """The costs of a row's request beside what is stated."""
    method, make, many = rows[name]
    refused = name in REFUSED
    await spent(world, method, make(world, 2), refused)  # what is imported and kept at the first such request
    bound, most = limits.REQUESTS[method], await spent(world, method, make(world, many), refused)
    assert most.bytes <= bound.bytes_max and most.fields <= bound.fields_max
    memory = most.cost + DISK_COPIES * most.disk
    assert most.memory <= memory, f"{method}, {name}: {most} of {memory} bytes"
    steps = limits.REQUEST_STEPS + most.fields * bound.field_steps
    assert most.steps <= steps, f"{method}, {name}: {most} of {steps} steps"


@pytest.mark.deep
def test_requests_of_tablet_servers_cost_no_more_than_is_stated() -> None:
    """IN-60. Goal: REQUESTS is true: the memory and the steps of every handler are a function of the request's bytes
    and fields, and not more. Method: of every call that takes more than a few bytes, the requests that make most of
    each byte and of each field, small and large: the peak of Python's and of Arrow's memory, and the calls of functions
    on the event loop, from the bytes to the answer."""

    async def scenario(world: Any) -> None:
        await world.write(list(range(8_000)), "v")
        for name in AT_SERVERS:
            await measured(world, AT_SERVERS, name)

    run_server(scenario)


@pytest.mark.deep
def test_requests_of_masters_cost_no_more_than_is_stated() -> None:
    """IN-60. Goal and method: as above, each at a master of its own, whose log is short."""

    async def scenario(name: str) -> None:
        world = MasterWorld()
        await world.begin()
        try:
            if name == "positions":
                await world.done("OpenSources", opens(world, 4500))
            await measured(world, AT_MASTERS, name)
        finally:
            await world.end()

    for name in AT_MASTERS:
        asyncio.run(scenario(name))


def test_every_call_that_takes_many_bytes_has_a_row() -> None:
    """IN-60. Goal: a new call with large requests is measured too. Method: the table of bounds; frames of links hold
    writes, which have rows."""
    large = {method for method, bound in limits.REQUESTS.items() if bound.bytes_max > limits.REQUEST_SMALL_BYTES}
    assert large - {"WriteBundle"} <= {method for method, _, _ in (*AT_SERVERS.values(), *AT_MASTERS.values())}


@pytest.mark.deep
def test_a_call_of_few_bytes_costs_no_more_than_it_is_charged() -> None:
    """IN-60. Goal: what every call is charged is what it may take, also if it asks for much with little. Method:
    the good request of every call, in a fresh world each, after all of them were made once, so that nothing is
    imported or kept for the first time: the peak of memory beside what is charged; the reply is not longer than its
    row says."""

    async def warm(row: Row, world: Any) -> None:
        await row.prepare(world)
        await world.call(*row.names, row.good(world))

    async def cost(row: Row, world: Any) -> None:
        await row.prepare(world)
        found = await spent(world, row.call, row.good(world))
        assert found.memory <= found.cost + DISK_COPIES * found.disk, f"{row.call}: {found}"

    async def master(row: Row, do: Any) -> None:
        world = MasterWorld()
        await world.begin()
        try:
            await do(row, world)
        finally:
            await world.end()

    for do in (warm, cost):
        for row in SERVER_ROWS:
            run_server(partial(do, row), row.at or "first")
        for row in MASTER_ROWS:
            asyncio.run(master(row, do))
