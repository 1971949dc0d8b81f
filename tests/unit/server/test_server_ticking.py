"""The one timer of a server: which replicas it ticks, and the effect of another server's loss on many tablets at
once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import google_crc32c
import pytest

from nyala.replica.raft import AppendEntries, AppendReply, Message, VoteRequest
from nyala.replica.server.tablets import ticking
from nyala.replica.server.tablets.manager import TabletManager
from nyala.replica.server.tablets.ticking import CHECK_TICKS, RaftTimer
from nyala.replica.types import Address, EntryKind, Member, OpId, RaftConfig
from tests.harness.copies import TARGET_UUID, new_disk, superblock
from tests.harness.managers import new_manager
from tests.harness.patience import patience_s

ALONE = RaftConfig(OpId(0, 0), (Member(TARGET_UUID, (Address("127.0.0.1", 2),)),))
OTHERS = ("c" * 32, "d" * 32)
THREE = RaftConfig(
    OpId(0, 0), tuple(Member(u, (Address("127.0.0.1", 2 + n),)) for n, u in enumerate((TARGET_UUID, *OTHERS)))
)


async def ticked_until(manager: TabletManager, condition: Callable[[], bool]) -> None:
    """Ticks come, and what they set off on threads is waited for."""
    async with asyncio.timeout(patience_s(120)):
        while not condition():
            manager.ticker.tick()
            await asyncio.sleep(0.001)


def test_quiet_tablet_is_not_ticked_until_something_reaches_it() -> None:
    """CN-24: an idle tablet costs nothing. Method: a tablet of one voter goes quiet and is visited no more; a write, a
    strong read and a look around each wake it, are answered, and let it rest again."""

    async def body() -> None:
        manager = new_manager(new_disk(), fatal.append)
        await manager.start()
        hosted = await manager.create(superblock(), ALONE, campaign=True)
        replica, ticker = hosted.replica, manager.ticker
        assert replica is not None and ticker.awake == 1
        await ticked_until(manager, lambda: ticker.awake == 0)
        assert replica.is_leader

        done = asyncio.get_running_loop().create_future()
        replica.write(EntryKind.NOOP, 0, b"", b"", google_crc32c.value(b""), done.set_result)
        assert ticker.awake == 1
        await done
        await ticked_until(manager, lambda: ticker.awake == 0)

        read = asyncio.get_running_loop().create_future()
        replica.read_barrier(read.set_result)
        assert ticker.awake == 1 and await read == replica.commit_index
        await ticked_until(manager, lambda: ticker.awake == 0)

        woken = 0
        for _ in range(2 * CHECK_TICKS + 1):
            ticker.tick()
            woken += ticker.awake
            await asyncio.sleep(0)
        assert 1 <= woken <= 10
        await manager.stop()

    fatal: list[BaseException] = []
    asyncio.run(body())
    assert fatal == []


@pytest.mark.deep
def test_loss_of_a_server_spreads_the_elections_of_its_tablets(monkeypatch: pytest.MonkeyPatch) -> None:
    """CN-28: a thousand elections at once would be none at all. Method: a hundred tablets follow one server, rest, and
    hear nothing of it any more. Five may begin in a tick: all ask for votes, over more ticks than random timeouts alone
    would take; before, nobody asks, and signs of life go to both other servers."""
    monkeypatch.setattr(ticking, "WAKES_PER_TICK", 5)
    asked: list[int] = []
    pulses: list[tuple[str, ...]] = []

    async def body() -> None:
        manager = new_manager(new_disk(), fatal.append, sent=sent, pulse=lambda uuids: pulses.append(tuple(uuids)))
        await manager.start()
        ticker, leader = manager.ticker, OTHERS[0]
        tablets = [f"{n:032x}" for n in range(100)]
        for tablet_id in tablets:
            await manager.create(replace(superblock(), tablet_id=tablet_id), THREE, campaign=False)
        plea = AppendEntries(to_uuid=TARGET_UUID, from_uuid=leader, term=1, prev=OpId(0, 0), quiet=True)

        def all_rest() -> bool:
            ticker.liveness.heard(leader, 1)
            for tablet_id in tablets:
                if not manager.tablets[tablet_id].replica.may_rest:  # type: ignore[union-attr]
                    manager.deliver(tablet_id, plea)
            return ticker.awake == 0 and len(pulses) >= 4  # the watch of the others has begun

        await ticked_until(manager, all_rest)
        assert all(set(p) == set(OTHERS) for p in pulses[-3:])
        voted: set[str] = set()
        for _ in range(60):
            sent.clear()
            ticker.tick()
            await asyncio.sleep(0.005)
            new = {t for t, m in sent if isinstance(m, VoteRequest)} - voted
            voted |= new
            asked.append(len(new))
        assert len(voted) == 100
        assert sum(n > 0 for n in asked) > 12, asked
        assert asked[:5] == [0] * 5
        await manager.stop()

    sent: list[tuple[str, Message]] = []
    fatal: list[BaseException] = []
    asyncio.run(body())
    assert fatal == []
    assert not any(isinstance(m, AppendReply) and m.quiet for _, m in sent)


def test_loop_that_was_blocked_makes_up_for_no_ticks() -> None:
    """CC-35: a process that stood still must not take its own pause for a silent leader. Method: block the loop for a
    hundred periods; when it goes on there is the tick that was due and one more, and the delay is told."""
    period_s, blocked_s = 0.004, 0.4

    async def body() -> None:
        begun, ended = asyncio.Event(), list[bool]()
        ticker = RaftTimer(TARGET_UUID, {}, tick_ms=4, silent_ticks_max=100, pulse=lambda uuids: begun.set())
        running = asyncio.create_task(ticker.run_forever(lambda: bool(ended)))
        async with asyncio.timeout(patience_s(30)):
            await begun.wait()
        before = ticker._ticks
        time.sleep(blocked_s)  # noqa: ASYNC251 - the fault itself
        began = time.monotonic()
        for _ in range(200):
            await asyncio.sleep(0)
        due = 2 + (time.monotonic() - began) / period_s
        assert 1 <= ticker._ticks - before <= due, (ticker._ticks - before, due)
        assert ticker.lag_ms_max >= 900 * (blocked_s - period_s)
        ended.append(True)
        await running

    asyncio.run(body())
