"""How much a request of thousands of records does in one step of the master's loop: others wait for that long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from nyala.replica.master.catalog.records import TABLE, TABLET, Table, Tablet, write
from nyala.replica.master.catalog.tables import table_record
from nyala.replica.master.requests.conversions import checked_table
from nyala.replica.master.tablets.descriptions import Descriptions, encoded_for_servers
from nyala.replica.master.tablets.kept_view import REFRESHES_PER_STEP
from nyala.replica.master.tablets.order_batch import CREATIONS_MAX
from nyala.replica.raft import AppendEntries
from nyala.replica.rpc import checked_request, pb
from nyala.replica.types import Code, Member, OpId, Refused, limits
from tests.harness.catalogs import AppliedCatalog, table_info
from tests.harness.loop_steps import counted_steps
from tests.harness.master_calls import MASTER, SECOND_MASTER, MasterWorld, S, where
from tests.harness.patience import patience_s
from tests.harness.server_pair import until

FEW, MANY = 50, 5_000
CALLS_MAX = 1_000
"""Of functions, in one step of the loop, for any number of positions."""


def opening(count: int) -> pb.OpenSourcesRequest:
    opens = [
        pb.SourceOpen(source=pb.SourceKey(cluster_id="c", topic_id="t", kafka_partition=n), topic="w", initial_start=5)
        for n in range(count)
    ]
    return pb.OpenSourcesRequest(table="flights", owner_run="run-1", lease_us=10**9, opens=opens)


def advancing(world: MasterWorld, count: int) -> pb.AdvanceSourcesRequest:
    request = pb.AdvanceSourcesRequest(table_id=world.table_id, owner_run="run-1", lease_us=10**9)
    for each in opening(count).opens:
        request.advances.add(source=each.source, generation=1, done=9)
    return request


@pytest.mark.deep
@pytest.mark.parametrize("count", [FEW, MANY])
def test_thousands_of_source_positions_are_no_long_step_of_the_loop(count: int) -> None:
    """IN-60. Goal: opening or advancing 5,000 positions does not delay heartbeats, votes and other requests. Method:
    the master's calls of functions in each step of its loop are counted: as few for 5,000 positions as for 50."""

    async def scenario() -> None:
        world = MasterWorld()
        await world.begin()
        try:
            open_, advance = opening(count), advancing(world, count)
            with counted_steps() as steps:
                opened = await world.done("OpenSources", open_)
                await world.done("OpenSources", open_)
                await world.done("AdvanceSources", advance)
            assert len(opened.positions) == count and len(steps) > 3
            assert max(steps) < CALLS_MAX, sorted(steps)[-3:]
        finally:
            await world.end()

    asyncio.run(scenario())


def test_change_that_was_computed_aside_is_refused_if_another_master_may_have_led_meanwhile() -> None:
    """IN-60. Goal: a change that was computed on another thread is committed only in the term in which the catalog was
    read. Method: a change that waits on its thread until this master leads in a later term is refused; nothing is
    changed."""

    async def scenario() -> None:
        world = MasterWorld()
        await world.begin()
        try:
            began, go_on = asyncio.Event(), threading.Event()
            loop = asyncio.get_running_loop()

            def compute() -> tuple[dict[str, Any], list[str], str, None]:
                loop.call_soon_threadsafe(began.set)
                assert go_on.wait(patience_s(60))
                return {"later/record": {"id": "late"}}, [], "", None

            changing = asyncio.create_task(world.group.change_aside(lambda: compute))
            await began.wait()
            replica, term = world.group.replica, world.group.term + 1
            assert not replica.step(AppendEntries(to_uuid=MASTER, from_uuid=SECOND_MASTER, term=term, prev=OpId(0, 0)))

            def leads_again() -> bool:
                world.group.tick()
                return world.group.is_leader and world.group.term > term

            await until(leads_again, "it leads again")
            go_on.set()
            with pytest.raises(Refused, match="does not lead"):
                await changing
            assert world.group.catalog.get("later/record") is None
        finally:
            await world.end()

    asyncio.run(scenario())


@pytest.mark.deep
@pytest.mark.parametrize("replicas", [1, 3, 5])
def test_tables_of_the_most_tablets_are_no_long_step_of_the_loop(replicas: int) -> None:
    """IN-60. Goal: creating, replacing and dropping a table of as many tablets as it may have does not delay
    heartbeats, votes and other requests. Method: the master's calls of functions in each step of its loop are
    counted; the tablets are looked at, too, before they are replaced or dropped: some calls for each."""

    async def scenario() -> None:
        world = MasterWorld()
        await world.begin()
        try:
            many = limits.TABLETS_PER_TABLE_MAX
            info = table_info("big", buckets=many, rf=replicas)
            with counted_steps() as steps:
                made = await world.done("CreateTable", pb.CreateTableRequest(table=info, request_id="big"))
            assert len({t.tablet_id for t in made.tablets}) == many
            assert max(steps) <= limits.REQUEST_STEPS, sorted(steps)[-3:]
            world.clock.now_us += 100_000_000
            await world.report()
            await world.master.refresh_views()
            for method, request in (
                ("ReplaceTablets", pb.ReplaceTabletsRequest(tablet_ids=[t.tablet_id for t in made.tablets])),
                ("DropTable", pb.TableRequest(name="big")),
            ):
                with counted_steps() as steps:
                    await world.done(method, request)
                assert max(steps) <= limits.REQUEST_STEPS + 40 * many, (method, sorted(steps)[-3:])
        finally:
            await world.end()

    asyncio.run(scenario())


@pytest.mark.parametrize(("splits", "buckets"), [(9_999, 1), (limits.TABLETS_PER_TABLE_MAX - 1, 2)])
def test_table_of_too_many_ranges_is_refused_in_a_short_step_of_the_loop(splits: int, buckets: int) -> None:
    """IN-60. Goal: the refusal of a table with more ranges than it may have does not delay heartbeats, votes and other
    requests: its splits are counted before one is read. Method: the request comes as bytes, with more splits than any
    table has, and with as many as one may have, but in several buckets. The calls of functions in each step of the
    loop are counted, with the reading of the message."""
    info = table_info("big", buckets=buckets)
    info.partition.range_column = info.schema.key[0]
    info.partition.range_splits_json.extend(str(n).encode() for n in range(splits))
    data = pb.CreateTableRequest(table=info, request_id="big").SerializeToString()

    async def scenario() -> None:
        world = MasterWorld()
        await world.begin()
        try:
            with counted_steps() as steps:
                try:
                    request = checked_request("MasterService.CreateTable", data, pb.CreateTableRequest)
                    code = (await world.call("MasterService", "CreateTable", request)).error.code
                except Refused as error:
                    code = error.code
                await asyncio.sleep(0)
            assert code in (Code.TOO_LARGE, Code.INVALID_ARGUMENT)
            assert max(steps) <= 20 * limits.TABLETS_PER_TABLE_MAX, sorted(steps)[-3:]
        finally:
            await world.end()

    asyncio.run(scenario())


@pytest.mark.deep
def test_number_of_voters_of_the_largest_table_is_no_long_step_of_the_loop() -> None:
    """IN-60. Goal: a request for another number of voters of a table of as many tablets as it may have does not delay
    heartbeats, votes and other requests. Method: such requests, at once and one after the other; each change touches
    all tablets, which the next one has to look at. The master's calls of functions in each step of its loop are
    counted."""

    async def scenario() -> None:
        world = MasterWorld()
        await world.begin()
        try:
            info = table_info("big", buckets=limits.TABLETS_PER_TABLE_MAX, rf=1)
            await world.done("CreateTable", pb.CreateTableRequest(table=info, request_id="big"))
            world.clock.now_us += 100_000_000
            await world.report()
            wanted = [pb.SetReplicationRequest(table="big", replicas=n) for n in (3, 5, 3, 1)]
            with counted_steps() as steps:
                await asyncio.gather(*(world.done("SetReplication", request) for request in wanted[:2]))
                for request in wanted[2:]:
                    await world.done("SetReplication", request)
            assert max(steps) <= limits.REQUEST_STEPS, sorted(steps)[-3:]
        finally:
            await world.end()

    asyncio.run(scenario())


WIDE = 250
"""Tables of 300 columns, each with a tablet that a server is to create."""
NEW = S[3]


def wide(number: int, column: str = "column") -> Table:
    info = table_info(f"wide-{number:03}", buckets=1)
    for n in range(limits.COLUMNS_MAX - 2):
        info.schema.columns.add(name=f"{column}_{n}_of_a_wide_table", type="string", nullable=True)
    info.table_id = info.name
    return table_record(checked_table(info))


async def world_of_wide_tables() -> MasterWorld:
    world = MasterWorld()
    await world.begin()
    like = wide(0)
    for n in range(WIDE):
        name = f"wide-{n:03}"
        described = {**like.described, "name": name, "table_id": name}
        table = Table(name=name, replication_factor=3, described=described)
        tablet = Tablet(table_id=name, bucket=0, range_pos=0, members=(Member(NEW, (where(NEW),)),))
        for key, record in ((TABLE + name, table), (f"{TABLET}{name}", tablet)):
            world.group.catalog._put(key, write(record), record, 0)
    return world


@pytest.mark.deep
def test_orders_for_hundreds_of_wide_tables_are_no_long_step_of_the_loop() -> None:
    """IN-60, IN-80. Goal: encoding the creation orders of 250 tables with 300 columns does not delay other work of the
    loop. Method: the master's function calls in each step of its loop are counted, heartbeat by heartbeat. No step
    encodes more than one table, and no heartbeat more than its share; each reply has the orders that were encoded so
    far. When all are encoded, one reply has as many orders as it may, in one step."""

    async def scenario() -> None:
        world = await world_of_wide_tables()
        try:
            ordered: dict[str, Any] = {}
            for already in range(0, WIDE, limits.DESCRIPTIONS_PER_HEARTBEAT_MAX):
                with counted_steps() as steps:
                    reply = await world.done("Heartbeat", world.beat(NEW))
                assert max(steps) < limits.REQUEST_STEPS, sorted(steps)[-3:]
                ordered |= {order.create.tablet_id: order.create for order in reply.orders}
                assert len(ordered) == already + limits.DESCRIPTIONS_PER_HEARTBEAT_MAX
            with counted_steps() as steps:
                reply = await world.done("Heartbeat", world.beat(NEW))
            assert len(reply.orders) == CREATIONS_MAX and max(steps) < limits.REQUEST_STEPS, sorted(steps)[-3:]
            assert {o.table.name for o in ordered.values()} == set(ordered)
            assert {len(o.table.schema.columns) for o in ordered.values()} == {limits.COLUMNS_MAX}
        finally:
            await world.end()

    asyncio.run(scenario())


@pytest.mark.deep
def test_table_that_changed_is_encoded_anew_and_no_other_one() -> None:
    """IN-60. Goal: orders carry the current description of a table, and only a changed table is encoded again. Method:
    a server that creates nothing is given the same orders again; then one of the tables changes, and one is dropped."""

    async def scenario() -> None:
        world = await world_of_wide_tables()
        catalog = world.group.catalog
        try:
            for _ in range(WIDE // limits.DESCRIPTIONS_PER_HEARTBEAT_MAX):
                await world.done("Heartbeat", world.beat(NEW))
            changed = wide(7, "another")
            catalog._put(f"{TABLE}wide-007", write(changed), changed, 0)
            catalog._delete(f"{TABLE}wide-008")
            ordered: dict[str, Any] = {}
            with counted_steps() as steps:
                for _ in range(3):
                    reply = await world.done("Heartbeat", world.beat(NEW))
                    ordered |= {order.create.tablet_id: order.create for order in reply.orders}
            with counted_steps() as alone:
                encoded_for_servers(changed)
            assert sum(count >= max(alone) - 10 for count in steps) == 1, (alone, sorted(steps)[-5:])
            assert ordered.keys() == {f"wide-{n:03}" for n in range(WIDE)} - {"wide-008"}
            names = {t: o.table.schema.columns[9].name.split("_")[0] for t, o in ordered.items()}
            assert names == {t: "another" if t == "wide-007" else "column" for t in ordered}
        finally:
            await world.end()

    asyncio.run(scenario())


def test_encoded_tables_that_a_master_keeps_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-60. Goal: encoded descriptions of wide tables fill only a bounded part of a master's memory. Method: room for
    three; a fourth replaces the least recently used one; a changed or dropped one is not found."""
    box, kept = AppliedCatalog(), Descriptions()
    for n in range(5):
        box.commit(({f"{TABLE}wide-{n:03}": wide(n)}, [], "", None))

    def make(number: int) -> int:
        table = box.catalog.get(TABLE, f"wide-{number:03}")
        assert table is not None
        return len(kept.make(f"wide-{number:03}", table))

    def is_kept(number: int) -> bool:
        table = box.catalog.get(TABLE, f"wide-{number:03}")
        assert table is not None
        return kept.get(f"wide-{number:03}", table) is not None

    def there() -> list[int]:
        return [n for n in range(5) if is_kept(n)]

    monkeypatch.setattr(limits, "DESCRIPTIONS_BYTES_MAX", 3 * make(0))
    make(1)
    make(2)
    assert there() == [0, 1, 2]
    assert is_kept(0)
    make(3)
    assert there() == [0, 2, 3]
    box.commit(({f"{TABLE}wide-002": wide(2)}, [], "", None))
    assert there() == [0, 3]
    make(2)
    make(2)
    assert there() == [0, 2, 3]
    make(4)
    assert len(there()) == 3


@pytest.mark.parametrize(
    ("method", "request_of"),
    [
        ("CreateTable", lambda world: pb.CreateTableRequest(table=table_info("new", buckets=1), request_id="r")),
        ("SetReplication", lambda world: pb.SetReplicationRequest(table="flights", replicas=1)),
        ("RetireServer", lambda world: pb.RetireServerRequest(server_uuid=S[4])),
        ("ReplaceTablets", lambda world: pb.ReplaceTabletsRequest(tablet_ids=[world.tablet])),
        ("AddReplica", lambda world: pb.ReplicaRequest(tablet_id=world.tablet, server_uuid=S[4], role="VOTER")),
        ("MoveReplica", lambda world: pb.MoveReplicaRequest(tablet_id=world.tablet, from_uuid=S[0], to_uuid=S[4])),
    ],
)
def test_requests_after_thousands_of_changes_are_no_long_step_of_the_loop(
    method: str, request_of: Callable[[MasterWorld], Any]
) -> None:
    """Goal: a request that places replicas looks at what has changed in bounded steps of the loop, under a new leader
    too. Method: the tablets that are looked at in one step, behind changes of thousands."""

    async def scenario() -> None:
        world = MasterWorld()
        await world.begin()
        try:
            kept, looks = world.master.kept, [0]
            look = kept.refresh

            def counted(mono_us: int, wall_us: int, most: int | None = None) -> bool:
                before = kept.refreshes
                done = look(mono_us, wall_us, most)
                looks.append(kept.refreshes - before)
                return done

            for n in range(2 * REFRESHES_PER_STEP + 1):
                tablet = Tablet(table_id="t", bucket=0, range_pos=0, members=(Member(S[0], (where(S[0]),)),))
                world.group.catalog._put(f"{TABLET}n{n}", write(tablet), tablet, 0)
            kept.refresh = counted  # type: ignore[method-assign]
            await world.call("MasterService", method, request_of(world))
            assert sum(looks) > 2 * REFRESHES_PER_STEP and max(looks) == REFRESHES_PER_STEP
        finally:
            await world.end()

    asyncio.run(scenario())
