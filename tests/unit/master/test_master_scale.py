"""A master that knows 1,477 tables of 300 columns, 5,000 more, and 20,000 servers, asked for everything over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from nyala.replica.client.channels import Channels
from nyala.replica.client.paging import pages_of
from nyala.replica.master.catalog.records import NAME, SOURCE, TABLE, TABLET, Position, Record, TableId, Tablet, write
from nyala.replica.master.catalog.tables import table_record
from nyala.replica.master.requests.conversions import checked_table
from nyala.replica.rows import TableDescription
from nyala.replica.rpc import (
    RequestChecks,
    address_to_pb,
    config_to_pb,
    heartbeat_from_pb,
    new_server,
    page_writer,
    pb,
    pb_grpc,
)
from nyala.replica.types import Address, DataState, Member, OpId, RaftConfig, limits
from tests.harness.catalogs import new_table, table_info
from tests.harness.loop_steps import counted_steps
from tests.harness.master_calls import MasterWorld

pytestmark = pytest.mark.deep

WIDE, COLUMNS, SMALL, SERVERS, SOURCES = 1_477, 300, 5_000, 20_000, 10_000
LARGE_TABLETS = limits.TABLETS_PER_TABLE_MAX
ROOM = limits.PAGE_BYTES + (64 << 10)
"""One page, and what else a reply has."""
NEW, NEW_ADDRESS = f"{SERVERS:032x}", Address("new.example", 1)
"""A server that is to create a replica of each wide table. The masters know more servers than they would let in; one at
an address that the catalog has is let in all the same."""


def server(number: int) -> Member:
    return Member(f"{number % SERVERS:032x}", (Address(f"server-{number % SERVERS}.example", 7050),))


def wide_table() -> TableDescription:
    info = table_info("wide", buckets=1)
    del info.schema.columns[1:]
    for n in range(COLUMNS - 1):
        info.schema.columns.add(name=f"column_{n}_of_a_wide_table", type="string", nullable=True)
    return checked_table(info)


def tablet(table_id: str, number: int, **fields: Any) -> Tablet:
    members = tuple(server(number + i) for i in range(3))
    fields = {"formed": True, "config": RaftConfig(OpId(1, 1), members)} | fields
    return Tablet(table_id=table_id, **{"bucket": 0, "range_pos": 0, "members": members} | fields)


def records() -> Iterator[tuple[str, Record]]:
    """1,477 wide tables of one tablet, which their servers have not created yet; 5,000 small ones; one of many tablets;
    the positions of as many sources as one table may have."""
    wide, small = table_record(wide_table()), table_record(new_table("small"))

    def named(name: str, like: Any) -> Iterator[tuple[str, Record]]:
        described = {**like.described, "name": name, "table_id": name}
        yield TABLE + name, type(like)(name=name, replication_factor=3, described=described)
        yield NAME + name, TableId(table_id=name)

    for n in range(WIDE):
        yield from named(f"wide-{n:04}", wide)
        first = (Member(NEW, (NEW_ADDRESS,)), server(n))
        yield f"{TABLET}wide-{n:04}", tablet(f"wide-{n:04}", n, members=first, formed=False, config=None)
    for n in range(SMALL):
        yield from named(f"small-{n:04}", small)
        yield f"{TABLET}small-{n:04}", tablet(f"small-{n:04}", 4 * n)
    yield from named("large", small)
    for n in range(LARGE_TABLETS):
        yield f"{TABLET}large-{n:04}", tablet("large", n, bucket=n)
    for n in range(SOURCES):
        texts = {"table": "large", "topic": "writes.large", "cluster_id": "k", "topic_id": "t", "owner_run": "r"}
        numbers = {"kafka_partition": n, "generation": 1, "start": 0, "done": n, "owner_deadline_us": 0}
        yield f"{SOURCE}large/k/t/{n:05}", Position(table_id="large", **texts, **numbers)


def report(world: MasterWorld) -> None:
    """Heartbeats of all servers, each with its replicas, as if the master had called them before."""
    held: dict[str, list[pb.ReplicaStatus]] = {}
    for tablet_id, record in world.group.catalog.items(TABLET):
        for member in record.known_config.members if record.formed else ():
            leads = member == record.known_config.members[0]
            status = pb.ReplicaStatus(
                tablet_id=tablet_id, uuid=member.uuid, data_state=DataState.READY, phase="RUNNING", term=1,
                role="LEADER" if leads else "FOLLOWER", committed_config=config_to_pb(record.known_config),
            )  # fmt: skip
            held.setdefault(member.uuid, []).append(status)
    for n in range(SERVERS):
        uuid, address = server(n).uuid, server(n).addresses[0]
        world.master.soft.heartbeat(
            *heartbeat_from_pb(
                pb.HeartbeatRequest(
                    server_uuid=uuid,
                    addresses=[pb.Address(host=address.host, port=address.port)],
                    full_report=True,
                    replicas=held.get(uuid, []),
                )
            ),
            world.clock.now_us,
        )


class Asked:
    """Asks the master over gRPC, from another thread, and measures its replies and the steps of its loop."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub
        self.longest: dict[str, int] = {}
        """By method, the calls of functions in the longest step of the loop."""

    def _ask(self, method: str, request: Any) -> Any:
        reply = getattr(self._stub, method)(request, timeout=1200)
        assert method == "Status" or not reply.error.code, (method, reply.error)
        return reply

    async def call(self, method: str, request: Any) -> Any:
        """One reply."""
        with counted_steps() as steps:
            reply = await asyncio.to_thread(self._ask, method, request)
        self.longest[method] = max(self.longest.get(method, 0), *steps)
        return reply

    async def pages(self, method: str, request: Any) -> list[Any]:
        """All pages, as a client asks for them; none is longer than a page."""
        with counted_steps() as steps:
            walk = pages_of(lambda asked: self._ask(method, asked), request)
            found = await asyncio.to_thread(list, walk)
        assert max(page.ByteSize() for page in found) <= ROOM
        self.longest[method] = max(self.longest.get(method, 0), *steps)
        return found


async def everything_answers(world: MasterWorld, asked: Asked) -> None:
    names = sorted(
        [f"wide-{n:04}" for n in range(WIDE)] + [f"small-{n:04}" for n in range(SMALL)] + ["large", "flights"]
    )
    for brief in (True, False):
        pages = await asked.pages("ListTables", pb.TableRequest(brief=brief))
        assert [t.name for page in pages for t in page.tables] == names
    once = await asked.call("ListTables", pb.TableRequest())
    assert once.ByteSize() < limits.GRPC_MESSAGE_BYTES_MAX and once.next
    found = await asked.call("GetTable", pb.TableRequest(name="wide-0700", with_tablets=True))
    assert len(found.table.schema.columns) == COLUMNS and len(found.tablets) == 1
    pages = await asked.pages("GetTable", pb.TableRequest(name="large", with_tablets=True))
    assert [t.bucket for page in pages for t in page.tablets] == list(range(LARGE_TABLETS))
    pages = await asked.pages("ListServers", pb.ListServersRequest())
    listed = [s for page in pages for s in page.servers]
    assert [s.uuid for s in listed][:SERVERS] == [server(n).uuid for n in range(SERVERS)]
    assert sum(s.replicas for s in listed) == 3 * (1 + SMALL + LARGE_TABLETS), "that of flights too"
    pages = await asked.pages("ListSources", pb.ListSourcesRequest(table="large"))
    assert [p.source.kafka_partition for page in pages for p in page.positions] == list(range(SOURCES))
    status = await asked.call("Status", pb.Empty())
    assert status.ByteSize() < limits.REQUESTS["MasterService.Status"].reply_bytes


async def new_server_gets_all_its_orders(world: MasterWorld, asked: Asked) -> None:
    """Heartbeat after heartbeat, the server creates what it is ordered: every wide table once, in bounded replies."""
    place, created, news, beats = address_to_pb(NEW_ADDRESS), set[str](), list[pb.ReplicaStatus](), 0
    world.servers.listen(NEW, NEW_ADDRESS, cluster_id=world.master.cluster_id)
    while len(created) < WIDE:
        beats += 1
        said = {"cluster_id": world.master.cluster_id, "sequence": beats, "process": 7, "full_report": beats == 1}
        request = pb.HeartbeatRequest(server_uuid=NEW, addresses=[place], replicas=news, **said)
        reply = await asked.call("Heartbeat", request)
        if beats == 1:  # the first one of a leadership has the addresses of all configs put together
            del asked.longest["Heartbeat"]
        assert reply.ByteSize() <= limits.REQUESTS["MasterService.Heartbeat"].reply_bytes
        ordered = {order.create.tablet_id: order.create for order in reply.orders}
        assert ordered and not ordered.keys() & created
        running = {"data_state": DataState.READY, "phase": "RUNNING", "role": "FOLLOWER", "term": 1}
        news = [
            pb.ReplicaStatus(tablet_id=t, uuid=NEW, committed_config=order.config, **running)
            for t, order in ordered.items()
        ]
        created |= ordered.keys()
    assert beats > 1


def test_everything_answers_in_pages_with_thousands_of_tables_and_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-80, IN-60. Goal: neither many nor wide tables, nor servers, make an answer too large, incomplete or a long
    step of the loop. Method: a master in this process, over gRPC; each list is walked by pages; a new server gets the
    orders of 1,477 wide tables. Steps are as short as can be, so the longest step of the loop is the work on one item
    of a page, or on a page that is assembled, or on the description of one table for the orders in the reply to a
    heartbeat; it is no more than a small request may cost. The first heartbeat of a leadership is left out: it walks
    the configs of all tablets once."""
    monkeypatch.setattr(page_writer, "STEP_BYTES", 1)

    async def scenario() -> None:
        world = MasterWorld()
        await world.begin()
        for key, record in records():
            world.group.catalog._put(key, write(record), record, 0)
        report(world)
        checks = RequestChecks()
        served = new_server(checks)
        pb_grpc.add_MasterServiceServicer_to_server(world.service, served)  # type: ignore[no-untyped-call]
        port = served.add_insecure_port("127.0.0.1:0")
        await served.start()
        channels = Channels()
        asked = Asked(channels.master(Address("127.0.0.1", port)))
        try:
            await everything_answers(world, asked)
            await new_server_gets_all_its_orders(world, asked)
            # At most so many tables are ordered, and reported by the next heartbeat, each in several fields.
            reported = limits.DESCRIPTIONS_PER_HEARTBEAT_MAX * limits.REQUESTS["MasterService.Heartbeat"].field_steps
            assert asked.longest.pop("Heartbeat") < limits.REQUEST_STEPS + reported, asked.longest
            assert max(asked.longest.values()) < limits.REQUEST_STEPS, asked.longest
        finally:
            channels.close()
            await served.stop(None)
            checks.close()
            await world.end()

    asyncio.run(scenario())
