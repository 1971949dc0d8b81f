"""A server that quiesces: its leaderships go to other servers, with the reads and writes of their clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from nyala.replica.rpc import pb
from nyala.replica.server.requests.quiescing import target_of
from nyala.replica.types import Code
from tests.harness.copies import TABLET
from tests.harness.rows import batch, write_request
from tests.harness.server_calls import ServerWorld, run_server
from tests.harness.server_pair import until

T = "TabletService"


def voting(scenario: Callable[[ServerWorld], Awaitable[None]], *, running: bool = True) -> None:
    """Run it with a tablet that both servers vote for; the first one leads. `running`: both hand over by themselves."""

    async def whole(world: ServerWorld) -> None:
        world.pair.cut = False
        await world.pair.add_other()
        await world.pair.voting()
        tasks = [asyncio.create_task(world.quiescing(at).run_forever()) for at in ("first", "other") if running]
        try:
            await scenario(world)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run_server(whole)


async def told(world: ServerWorld, at: str, wanted: bool | None = None) -> Any:
    uuid = world.uuid if at == "first" else world.strangers[0]
    return await world.done(T, "Quiesce", pb.QuiesceRequest(dest_uuid=uuid, quiesce=wanted), at)


async def read(world: ServerWorld, at: str, **fields: Any) -> int:
    """The code of a scan's answer."""
    uuid = world.uuid if at == "first" else world.strangers[0]
    request = pb.ScanRequest(dest_uuid=uuid, tablet_id=TABLET, all_columns=True, **fields)
    return int((await world.call(T, "Scan", request, at)).error.code)


def leader(world: ServerWorld) -> str:
    return next((at for at in ("first", "other") if world.quiescing(at).progress().leaders), "")


def test_leadership_and_reads_go_to_the_other_server_and_may_come_back() -> None:
    """OP-03. Goal: the server's end interrupts nobody, and the request is repeatable. Method: it quiesces, and the
    other one leads and takes the write. A stale read is refused here with a code that clients take elsewhere, and
    answered there. It ends to quiesce, and answers the stale read; the leadership may be given back."""

    async def scenario(world: ServerWorld) -> None:
        stale = 600_000_000
        assert await read(world, "first", staleness_us=stale) == 0
        first = await told(world, "first", True)
        assert (first.quiescing, first.changes) == (True, (await told(world, "first", True)).changes)
        await until(lambda: world.takes_writes("other"), "the other one leads")
        rows = write_request(world.strangers[0], TABLET, batch([1], ["a"]), client_id="c", sequence=1)
        await world.done(T, "Write", rows, "other")
        assert await read(world, "first", staleness_us=stale) == Code.STEPPING_DOWN
        assert await read(world, "other", staleness_us=stale) == 0
        assert await read(world, "first") == Code.NOT_LEADER
        assert world.quiescing("first").progress()[:3] == (True, 0, 0)
        assert not (await told(world, "first", False)).quiescing
        assert await read(world, "first", staleness_us=stale) == 0
        await told(world, "other", True)
        await until(lambda: world.takes_writes("first"), "the first one leads again")

    voting(scenario)


def test_leader_that_nobody_relieves_leads_on_and_serves_while_it_quiesces() -> None:
    """OP-03. Goal: no tablet is without a leader because all of its servers quiesce. Method: both do; the first leads
    on, and answers stale reads too. Then each voter is asked in turn."""

    async def scenario(world: ServerWorld) -> None:
        await told(world, "other", True)
        await told(world, "first", True)
        assert await world.quiescing("first").hand_over() == 1
        assert leader(world) == "first" and await read(world, "first", staleness_us=600_000_000) == 0

    voting(scenario, running=False)
    assert [target_of(attempt, ["b", "c"]) for attempt in range(4)] == [None, "b", "c", "b"]
