"""Forgetting a server that is gone for good: what is removed, and when it is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.master import Catalog
from nyala.replica.master.catalog.records import DESIRED, MAINTENANCE, RETIRED, TABLET
from nyala.replica.master.requests import forgetting
from nyala.replica.rpc import pb
from nyala.replica.types import Code
from tests.harness.master_calls import MasterWorld, S, where

GONE = S[4]


def play(scene: Callable[[MasterWorld], Awaitable[None]]) -> None:
    """Let the scene happen to a master that leads and counts the servers."""

    async def whole() -> None:
        world = MasterWorld()
        await world.begin()
        try:
            await scene(world)
        finally:
            await world.end()

    asyncio.run(whole())


async def forget(w: MasterWorld, uuid: str = GONE, **fields: Any) -> Any:
    reply = await w.call("MasterService", "ForgetServer", pb.ForgetServerRequest(server_uuid=uuid, **fields))
    return reply.error


async def falls_silent(w: MasterWorld, *silent: str) -> None:
    """Time passes in which these servers send nothing; their processes are there."""
    w.clock.now_us += w.master.options.server_dead_ms * 1000 + 1
    for uuid in S:
        if uuid not in silent:
            await w.done("Heartbeat", w.beat(uuid))


async def dies(w: MasterWorld, uuid: str = GONE) -> None:
    del w.servers.listening[where(uuid)]
    await falls_silent(w, uuid)


def test_forgotten_server_leaves_nothing_and_may_come_back_as_a_new_one() -> None:
    """OP-02: its report, retirement and maintenance are removed in one change; the same request again changes nothing;
    a later heartbeat of it registers it anew, after the master has called it."""

    async def scene(w: MasterWorld) -> None:
        await w.done("RetireServer", pb.RetireServerRequest(server_uuid=GONE, seen_changes=0))
        await w.done("MaintainServer", pb.MaintainServerRequest(server_uuid=GONE, seconds=60, seen_changes=1))
        await dies(w)
        before = w.group.catalog.applied_opid.index
        assert (await forget(w, seen_changes=2)).code == 0
        assert GONE not in w.master.soft.servers and GONE not in w.master.server_uuids()
        assert w.group.catalog.get(RETIRED, GONE) is None and w.group.catalog.get(MAINTENANCE, GONE) is None
        assert w.group.catalog.applied_opid.index == before + 1 and w.group.catalog.get(DESIRED).changes == 3  # type: ignore[union-attr]
        after = await w.state()
        assert (await forget(w, seen_changes=2)).code == 0 and await w.state() == after
        w.servers.listen(GONE, where(GONE))
        called = len(w.servers.calls)
        reply = await w.done("Heartbeat", w.beat(GONE))
        assert GONE in w.master.soft.servers and len(w.servers.calls) == called + 1 and not reply.need_full_report

    play(scene)


def test_server_that_is_there_is_not_forgotten() -> None:
    """OP-02: refused with the reason while it sends heartbeats, and while a process answers with its uuid although no
    heartbeat arrives. Another process at its address is no reason."""

    async def scene(w: MasterWorld) -> None:
        await w.done("RetireServer", pb.RetireServerRequest(server_uuid=GONE, seen_changes=0))
        error = await forget(w)
        assert error.code == Code.ILLEGAL_STATE and "End its process first" in error.message
        await falls_silent(w, GONE)
        before = await w.state()
        error = await forget(w)
        assert error.code == Code.ILLEGAL_STATE and f"address={where(GONE)}" in error.message
        assert await w.state() == before
        w.servers.listen("f" * 32, where(GONE))
        assert (await forget(w)).code == 0 and GONE not in w.master.soft.servers

    play(scene)


def test_member_is_not_forgotten() -> None:
    """OP-02: refused, with the number of tablets and some of them, while the catalog has the server in a config, or a
    member reports a config with it that is not proven yet."""

    async def scene(w: MasterWorld) -> None:
        await dies(w, S[2])
        error = await forget(w, S[2])
        assert error.code == Code.ILLEGAL_STATE and "tablets=1" in error.message and w.tablet in error.message
        await dies(w)
        w.members, w.config_index = [*S[:2], GONE], 2
        for uuid in S[:2]:
            await w.done("Heartbeat", w.beat(uuid))
        known = w.master.soft.tablets[w.tablet].config
        assert known is not None and known.member(GONE) is not None
        assert (await forget(w)).code == Code.ILLEGAL_STATE and GONE in w.master.soft.servers

    play(scene)


def test_new_leading_master_waits_before_it_forgets() -> None:
    """OP-02: a master that has just begun to lead has heard nobody, so it cannot tell who is gone."""

    async def scene(w: MasterWorld) -> None:
        await w.done("RetireServer", pb.RetireServerRequest(server_uuid=GONE, seen_changes=0))
        del w.servers.listening[where(GONE)]
        w.master.soft.reset(w.clock.now_us)
        assert (await forget(w)).code == Code.NOT_READY and w.group.catalog.get(RETIRED, GONE) is not None
        await falls_silent(w, GONE)
        assert (await forget(w)).code == 0 and w.group.catalog.get(RETIRED, GONE) is None

    play(scene)


def test_heartbeat_during_the_change_keeps_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-02: a heartbeat that arrives while the change is committed has registered the server anew."""

    async def scene(w: MasterWorld) -> None:
        await w.done("RetireServer", pb.RetireServerRequest(server_uuid=GONE, seen_changes=0))
        await dies(w)
        change = w.group.change

        async def interrupted(*given: Any, **named: Any) -> Any:
            done = await change(*given, **named)
            w.master.soft.servers[GONE].last_heard_us = w.clock.now_us
            return done

        monkeypatch.setattr(w.group, "change", interrupted)
        assert (await forget(w)).code == 0
        assert GONE in w.master.soft.servers and w.group.catalog.get(RETIRED, GONE) is None

    play(scene)


def test_dropped_tablets_wait_no_longer_for_a_forgotten_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-02: dropped tablets that wait for it alone are gone from now on; others wait for the other servers. A change
    has a bounded number of them, and all are done."""
    monkeypatch.setattr(forgetting, "CHANGES_MAX", 1)

    async def scene(w: MasterWorld) -> None:
        await w.done("DropTable", pb.TableRequest(name="flights", table_id=w.table_id))
        await dies(w, S[2])
        dropped = w.group.catalog.get(TABLET, w.tablet)
        assert dropped is not None and dropped.holders == tuple(S[:3])
        other = replace(dropped, holders=(S[2],))
        await w.group.change(lambda: ({TABLET + "f" * 32: other}, [], "", None))
        assert (await forget(w, S[2])).code == 0
        both = [w.group.catalog.get(TABLET, t) for t in (w.tablet, "f" * 32)]
        assert [(t.holders, t.gone_us) for t in both if t] == [(tuple(S[:2]), None), ((), w.clock.now_us)]

    play(scene)


class Unwalked(dict[str, Any]):
    """A dict that nobody may walk over."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("a walk over all tablets")

    values = items = keys = __iter__  # type: ignore[assignment]


def test_request_about_one_server_walks_over_no_tablets_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-80. Goal: what is asked of one server costs its own tablets only. Method: lists of all tablets that raise when
    somebody walks over them, while a server is retired and listed, another one dies and is forgotten, a third comes and
    a process takes the address of a fourth."""
    items = Catalog.items

    def unwalked(catalog: Catalog, kind: Any, within: str = "") -> Any:
        assert kind != TABLET, "a walk over all tablets"
        return items(catalog, kind, within)

    async def scene(w: MasterWorld) -> None:
        await w.master.refresh_views()
        w.master.soft.tablets = Unwalked(w.master.soft.tablets)
        monkeypatch.setattr(Catalog, "items", unwalked)
        await w.done("RetireServer", pb.RetireServerRequest(server_uuid=S[3], seen_changes=0))
        listed = await w.done("ListServers", pb.ListServersRequest())
        assert [s.drained for s in listed.servers if s.draining] == [True]
        await dies(w)
        assert (await forget(w)).code == 0
        w.servers.listen(GONE, where(GONE))
        await w.done("Heartbeat", w.beat(GONE))
        await dies(w)
        w.servers.listen("f" * 32, where(GONE))
        await w.done("Heartbeat", pb.HeartbeatRequest(server_uuid="f" * 32, addresses=w.beat(GONE).addresses))
        assert GONE not in w.master.soft.servers and "f" * 32 in w.master.soft.servers

    play(scene)
