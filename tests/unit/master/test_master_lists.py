"""Lists of a master: each answer within one message, whatever there is."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import nyala
from nyala.replica.client import Client, ClientOptions
from nyala.replica.client.paging import pages_of
from nyala.replica.master.catalog.records import (
    CLUSTER,
    NAME,
    SOURCE,
    TABLE,
    TABLET,
    Kind,
    Position,
    Record,
    TableId,
    Tablet,
    read,
)
from nyala.replica.master.catalog.tables import table_record
from nyala.replica.master.group.catalog_group import CatalogGroup
from nyala.replica.master.heartbeats.soft_state import ServerState
from nyala.replica.master.requests import lists
from nyala.replica.rpc import description_to_pb, page_writer, pb, pb_grpc
from nyala.replica.types import Address, Code, FailingCopy, Heartbeat, Refused, hybrid_from_us, limits
from tests.harness.catalogs import AppliedCatalog, new_table
from tests.harness.leading_master import Masters
from tests.harness.master_calls import MasterWorld
from tests.harness.played_grpc import listening

ROOM = limits.PAGE_BYTES + (64 << 10)
"""One page, and what else a reply has."""


def put(box: AppliedCatalog, records: dict[str, dict[str, Any]]) -> None:
    """Records as if they had been committed; without the log's encoding, which would take most of a test's time."""
    for key, record in records.items():
        box.catalog._put(key, record, read(key, record), 0)


def wide(columns: int) -> dict[str, Any]:
    """The record of a table of so many columns."""
    made = [{"id": i + 1, "name": f"column_{i}_of_a_wide_table", "type": "decimal"} for i in range(columns)]
    return {"name": "wide", "schema": {"columns": made, "key": ["column_0"]}, "replication_factor": 3}


def tables(count: int, columns: int) -> dict[str, dict[str, Any]]:
    shared = wide(columns)
    found: dict[str, dict[str, Any]] = {}
    for n in range(count):
        found[f"{TABLE}{n:032x}"] = {**shared, "table_id": f"{n:032x}", "name": f"t{n:05}"}
        found[f"{NAME}t{n:05}"] = {"table_id": f"{n:032x}"}
    return found


def tablets(table_id: str, count: int) -> dict[str, dict[str, Any]]:
    members = [{"uuid": letter * 32, "addresses": ["a-server-of-the-cluster:7050"]} for letter in "abc"]
    return {
        f"{TABLET}{(7 * n) % count:032x}": {"table_id": table_id, "bucket": n % 100, "range_pos": n // 100,
                                            "members": members}
        for n in range(count)
    }  # fmt: skip


def pages(answer: Callable[[Any, Any], Any], master: Masters, request: Any) -> list[Any]:
    """All pages, as a client asks for them; none is larger than a page."""
    found = list(pages_of(lambda asked: asyncio.run(answer(master.state, asked)), request))
    assert max(page.ByteSize() for page in found) <= ROOM
    return found


def whole(answer: Callable[[Any, Any], Any], master: Masters, request: Any) -> Any:
    """The answer to a client of an older build, which asks once."""
    reply = asyncio.run(answer(master.state, request))
    assert reply.ByteSize() < limits.GRPC_MESSAGE_BYTES_MAX
    return reply


@pytest.mark.parametrize(("count", "columns"), [(2_000, 2), pytest.param(1_477, 300, marks=pytest.mark.deep)])
def test_every_table_is_listed_in_pages(count: int, columns: int) -> None:
    """IN-80. Goal: neither many nor wide tables make an answer too large. Method: 2,000 small ones, and 1,477 of 300
    columns; names and whole tables by pages, and by one request of an older build, which gets as many as fit."""
    master = Masters()
    put(master.box, tables(count, columns))
    names = [f"t{n:05}" for n in range(count)]
    for brief in (True, False):
        found = pages(lists.tables_page, master, pb.TableRequest(brief=brief))
        assert [t.name for page in found for t in page.tables] == ["flights", *names]
        assert {len(t.schema.columns) for page in found for t in page.tables} == ({0} if brief else {2, columns})
    once = whole(lists.tables_page, master, pb.TableRequest())
    listed = [t.name for t in once.tables]
    assert listed == ["flights", *names][: len(listed)]
    assert bool(once.next) == (len(listed) <= count)


@pytest.mark.deep
def test_every_tablet_of_a_table_is_listed_in_pages() -> None:
    """IN-80. Goal: a table of 10,000 tablets can be opened. Method: its tablets by pages, in order of position, each
    once; the description of the table comes with the first page only. An older build gets as many as fit."""
    master = Masters()
    put(master.box, {f"{TABLE}big": wide(300) | {"table_id": "big", "name": "big"}, f"{NAME}big": {"table_id": "big"}})
    put(master.box, tablets("big", 10_000) | {CLUSTER: {"id": "one"}})
    found = pages(lists.table_page, master, pb.TableRequest(name="big", with_tablets=True))
    places = [(t.range_pos, t.bucket) for page in found for t in page.tablets]
    assert places == [(n // 100, n % 100) for n in range(10_000)]
    assert [len(page.table.schema.columns) for page in found] == [300] + [0] * (len(found) - 1)
    assert {page.table.name for page in found} == {"big"}
    assert {page.cluster_id for page in found} == {"one"}
    assert whole(lists.table_page, master, pb.TableRequest(name="big", with_tablets=True)).tablets


@pytest.mark.deep
def test_every_server_is_listed_in_pages() -> None:
    """IN-80. Goal: `server list` answers with 5,000 servers' worth of records. Method: so many are known, each with
    four addresses and copies that fail; every one is listed once, and the masters with the first page only."""
    master = Masters(servers=0)
    failing = tuple(FailingCopy(f"{n:032x}", 3, "x" * 1_500) for n in range(3))
    for n in range(5_000):
        server = ServerState(f"{n:032x}", tuple(Address(f"host-{n}-{i}", 7050) for i in range(4)), 0)
        server.last_report = Heartbeat(copies_failing=failing)
        master.state.soft.servers[server.uuid] = server
    found = pages(lists.servers_page, master, pb.ListServersRequest())
    assert [s.uuid for page in found for s in page.servers] == [f"{n:032x}" for n in range(5_000)]
    assert [len(page.masters) for page in found] == [1] + [0] * (len(found) - 1)
    once = whole(lists.servers_page, master, pb.ListServersRequest())
    assert once.servers[0].uuid == f"{0:032x}"
    assert once.next


@pytest.mark.deep
def test_every_source_is_listed_in_pages() -> None:
    """IN-80. Goal: `source list` answers with 20,000 sources. Method: of all tables, and of one; retired ones are left
    out."""
    master = Masters()
    table_id = next(iter(master.box.catalog.items(TABLE)))[0]
    record = {"topic_id": "t", "generation": 1, "start": 0, "done": 5, "owner_run": "", "owner_deadline_us": 0,
              "cluster_id": "k", "topic": "writes.flights"}  # fmt: skip
    for owner in (table_id, "other"):
        put(
            master.box,
            {
                f"{SOURCE}{owner}/k/t/{n:05}": record
                | {"table_id": owner, "table": "x", "kafka_partition": n, "retired": n == 7}
                for n in range(10_000)
            },
        )
    numbers = [n for n in range(10_000) if n != 7]
    found = pages(lists.sources_page, master, pb.ListSourcesRequest(table="flights"))
    assert [p.source.kafka_partition for page in found for p in page.positions] == numbers
    found = pages(lists.sources_page, master, pb.ListSourcesRequest())
    assert sorted(p.source.kafka_partition for page in found for p in page.positions) == sorted(numbers * 2)


def test_work_on_a_page_gives_way_to_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-80. Goal: a listing of 1,477 wide tables does not delay heartbeats. Method: other work of the loop gets a turn
    between two tables of a page, where each turn is as short as can be."""
    monkeypatch.setattr(page_writer, "STEP_BYTES", 1)
    master = Masters()
    put(master.box, tables(50, 10))
    turns = 0

    async def scenario() -> None:
        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        await lists.tables_page(master.state, pb.TableRequest())
        task.cancel()

    asyncio.run(scenario())
    assert turns >= 50


@pytest.mark.deep
@settings(max_examples=60)
@given(st.data())
def test_pages_have_what_was_there_all_the_time_once(data: st.DataObject) -> None:
    """IN-80. Goal: a table that exists during the whole listing is listed exactly once, whatever is created and dropped
    between two pages. Method: between pages of a few tables, some are created and some dropped, at random."""
    master = Masters()
    everything = [f"n{n:02}" for n in range(40)]
    there = set(data.draw(st.sets(st.sampled_from(everything), min_size=10)))
    always, ever = set(there), set(there)

    def change(name: str) -> None:
        if name in there:
            master.box.commit(({}, [NAME + name, TABLE + name], "", None))
        else:
            table = table_record(new_table(name))
            master.box.commit(({NAME + name: TableId(table_id=name), TABLE + name: table}, [], "", None))

    start = set(there)
    there.clear()
    for name in sorted(start):
        change(name)
        there.add(name)
    after, listed = "", list[str]()
    while True:
        reply = asyncio.run(lists.tables_page(master.state, pb.TableRequest(after=after, limit_bytes=90, brief=True)))
        listed += [t.name for t in reply.tables]
        if not reply.next:
            break
        after = reply.next
        for name in data.draw(st.lists(st.sampled_from(everything), max_size=5, unique=True)):
            change(name)
            there ^= {name}
            always &= there
            ever |= there
    assert listed == sorted(set(listed))
    assert always <= set(listed) - {"flights"} <= ever


def some_record(group: str, number: int) -> Record:
    """Of one table in three."""
    table_id = str(number % 3)
    if group == "table":
        return table_record(new_table(table_id))
    if group == "tablet":
        return Tablet(table_id=table_id, bucket=0, range_pos=100 - number, members=())
    names = dict.fromkeys(("table", "topic", "cluster_id", "topic_id", "owner_run"), "x")
    numbers = dict.fromkeys(("kafka_partition", "generation", "start", "done", "owner_deadline_us"), number)
    return Position(table_id=table_id, **names, **numbers)


@settings(max_examples=80)
@example([("tablet", 0, True), ("tablet", 3, True), ("tablet", 0, False)])
@given(
    st.lists(st.tuples(st.sampled_from(["table", "tablet", "source"]), st.integers(0, 8), st.booleans()), max_size=60)
)
def test_index_of_the_catalog_agrees_with_its_records(changes: list[tuple[str, int, bool]]) -> None:
    """IN-80. Goal: pages come from an index, and the index is right after any changes and after a restart. Method:
    records put and deleted at random; every list compared with one made from the records."""
    box = AppliedCatalog()
    model: dict[str, Record] = {}
    for group, number, there in changes:
        key = f"{group}/{number % 3}/{number}" if group == "source" else f"{group}/{number}"
        if there:
            model[key] = some_record(group, number)
            box.commit(({key: model[key]}, [], "", None))
        else:
            model.pop(key, None)
            box.commit(({}, [key], "", None))
    box.catalog.flush()
    for catalog in (box.catalog, type(box.catalog).open(box.disk)):
        for prefix in map(Kind[Record], ("table/", "tablet/", "source/", "source/1/", "nothing/")):
            expected = sorted((k[len(prefix) :], v) for k, v in model.items() if k.startswith(prefix))
            assert list(catalog.items(prefix)) == expected
            assert list(catalog.walk(prefix)) == expected
            assert catalog.count(prefix) == len(expected)
            for key, _ in expected:
                assert list(catalog.walk(prefix, after=key)) == [e for e in expected if e[0] > key]
        for table in "012":
            mine = [(k.removeprefix("tablet/"), v) for k, v in model.items() if k.startswith("tablet/")]
            of_table = [(k, v) for k, v in mine if isinstance(v, Tablet) and v.table_id == table]
            assert catalog.tablets_of(table) == sorted(of_table, key=lambda each: each[1].range_pos)


def test_place_that_is_none_is_refused() -> None:
    """IN-80. Goal: a page token that no reply gave is refused with an error. Method: one of letters, for the tablets of
    a table."""
    with pytest.raises(Refused) as refused:
        asyncio.run(lists.table_page(Masters().state, pb.TableRequest(name="flights", with_tablets=True, after="x")))
    assert refused.value.code is Code.INVALID_ARGUMENT


class Asked(pb_grpc.MasterServiceServicer):
    """A master that remembers what it was asked, and has one table with a tablet more on each page."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.table_ids: Iterator[str] = iter(())

    def ListTables(self, request: Any, context: Any) -> Any:
        self.asked.append(("ListTables", request))
        return pb.ListTablesReply()

    def GetTable(self, request: Any, context: Any) -> Any:
        self.asked.append(("GetTable", request))
        table = description_to_pb(replace(new_table("wide", buckets=3), table_id=next(self.table_ids)))
        if request.table_id and request.table_id != table.table_id:
            error = pb.Error(code=Code.WRONG_TABLE, message="the table was dropped and created again")
            return pb.TableReply(error=error)
        at = int(request.after or -1) + 1
        tablet = pb.TabletInfo(tablet_id=f"tablet-{at}", bucket=at)
        return pb.TableReply(table=table, tablets=[tablet], next="" if at == 2 else str(at), cluster_id="one")


@pytest.fixture
def master() -> Iterator[tuple[Asked, str]]:
    servicer = Asked()
    with listening(servicer) as address:
        yield servicer, str(address)


def test_connect_needs_no_list(master: tuple[Asked, str]) -> None:
    """IN-80. Goal: connecting costs the same however many tables there are. Method: the requests that a client makes
    while it connects are recorded: at most one, for one name."""
    servicer, address = master
    nyala.connect(address).close()
    assert [(method, r.brief, r.limit_bytes) for method, r in servicer.asked] == [("ListTables", True, 1)]


def test_client_puts_the_pages_of_one_table_together(master: tuple[Asked, str]) -> None:
    """IN-80, IN-10. Goal: a client combines pages of one table only, and knows the cluster that they came from. Method:
    a master with a tablet on each page; then the table is dropped and created again between two pages, which raises an
    error."""
    servicer, address = master
    with nyala.connect(address) as cluster:
        servicer.table_ids = iter(["a", "a", "a"])
        found = cluster.client.get_table("wide")
        assert [t.tablet_id for t in found.tablets] == ["tablet-0", "tablet-1", "tablet-2"]
        assert found.cluster_id == "one"
        servicer.table_ids = iter(["a", "b"])
        with pytest.raises(Refused) as refused:
            cluster.client.get_table("wide")
        assert refused.value.code is Code.WRONG_TABLE


def test_list_that_does_not_get_on_is_told() -> None:
    """IN-80. Goal: a client ends a listing with an error if a page begins where the former one began. Method: a master
    that sends such a page."""
    asked = pages_of(lambda request: pb.ListTablesReply(next="x"), pb.TableRequest())
    assert next(asked).next == "x"
    with pytest.raises(Refused) as refused:
        list(asked)
    assert refused.value.code is Code.CORRUPTION


def test_first_look_up_may_be_of_any_master_and_the_next_is_of_the_leading_one(master: tuple[Asked, str]) -> None:
    """Goal: a client that allows a staleness takes its look-ups off the leading master, and never repeats outdated
    locations. Method: the client knows two names of one master; the first look-up of a table is asked of the other one,
    with the staleness, and every later one of the leading one, without. With the default, all are."""
    servicer, address = master
    other = address.replace("127.0.0.1", "localhost")
    for allowed_s, expected in ((5.0, [5_000_000, 0]), (0.0, [0, 0])):
        with Client([address, other], ClientOptions(look_up_staleness_s=allowed_s)) as client:
            servicer.table_ids = itertools.repeat("a")
            servicer.asked.clear()
            for version in range(2):
                client.locator.refresh("wide", version)
            assert [request.staleness_us for _, request in servicer.asked[::3]] == expected


@pytest.mark.parametrize(
    ("staleness_us", "heard_us_ago", "code"),
    [
        (0, 0, Code.NOT_LEADER),
        (5_000_000, 1_000_000, 0),
        (5_000_000, 5_000_000, Code.LAGGING),
        (1, 0, Code.INVALID_ARGUMENT),
    ],
)
def test_follower_answers_look_ups_from_a_catalog_that_is_new_enough(
    staleness_us: int, heard_us_ago: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a follower answers only if the request allows it and its catalog is so new, and then tells no leaders of
    tablets, of which it knows nothing. Method: a master that was led alone, as though it followed another one, which
    was heard some time ago."""

    async def run() -> Any:
        world = MasterWorld()
        await world.begin()
        heard = hybrid_from_us(world.clock.wall_us() - heard_us_ago)
        monkeypatch.setattr(CatalogGroup, "is_leader", property(lambda self: False))
        monkeypatch.setattr(type(world.group.replica), "heard_time", property(lambda self: heard))
        asked = pb.TableRequest(name="flights", with_tablets=True, staleness_us=staleness_us)
        reply = await world.call("MasterService", "GetTable", asked)
        monkeypatch.undo()
        await world.end()
        return world, reply

    world, reply = asyncio.run(run())
    assert reply.error.code == code
    assert [t.tablet_id for t in reply.tablets] == ([] if code else [world.tablet])
    assert all(not t.leader_uuid and len(t.config.members) == 3 for t in reply.tablets)
