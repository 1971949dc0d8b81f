"""How much a request of thousands of records does in one step of the master's loop: others wait for that long."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from nyala.replica.raft import AppendEntries
from nyala.replica.rpc import pb
from nyala.replica.types import OpId, Refused
from tests.harness.loop_steps import counted_steps
from tests.harness.master_calls import MASTER, SECOND_MASTER, MasterWorld
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


@pytest.mark.parametrize("count", [FEW, MANY])
def test_thousands_of_source_positions_are_no_long_step_of_the_loop(count: int) -> None:
    """IN-60. Goal: nobody waits while a query opens or advances 5,000 positions: heartbeats, votes and other requests
    get their turn. Method: the master's calls of functions in each step of its loop are counted: as few for 5,000
    positions as for 50."""

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
    """IN-60. Goal: what was computed beside the loop is committed in the term in which the catalog was read only.
    Method: a change that waits on its thread until this master leads in a later term is refused; nothing is changed."""

    async def scenario() -> None:
        world = MasterWorld()
        await world.begin()
        try:
            began, go_on = asyncio.Event(), threading.Event()
            loop = asyncio.get_running_loop()

            def compute() -> tuple[dict[str, Any], list[str], str, None]:
                loop.call_soon_threadsafe(began.set)
                assert go_on.wait(60)
                return {"later/record": {"id": "late"}}, [], "", None

            changing = asyncio.create_task(world.group.change(compute, aside=True))
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
