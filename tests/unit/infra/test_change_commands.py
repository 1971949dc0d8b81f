"""`nyala tablet change-config ...` against a master of this process, over gRPC: what the commands send."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio
import pytest
import typer

from nyala.infra.cli import changes
from nyala.infra.cli.context import client, find_server
from nyala.replica.client import Client
from nyala.replica.rpc import pb, pb_grpc
from nyala.replica.tools import Severity, checked
from nyala.replica.types import Code, Refused
from tests.harness.cluster import PATIENCE_S
from tests.harness.master_calls import MasterWorld, S, where

Say = Callable[[str, str], None]
"""Tablet and masters: one command line."""


class Overheard:
    """A master's service whose requests for changes of a tablet are kept."""

    def __init__(self, world: MasterWorld) -> None:
        self._service = world.service
        self.wanted: list[tuple[str, Any]] = []

    def __getattr__(self, method: str) -> Any:
        answer = getattr(self._service, method)

        async def heard(request: Any, context: Any) -> Any:
            if "seen" in request.DESCRIPTOR.fields_by_name:
                self.wanted.append((method, request))
            return await answer(request, context)

        return heard


def run(scenario: Callable[[MasterWorld, Overheard, str], Awaitable[None]]) -> None:
    """The scenario with a master that listens at the address it is given."""

    async def life() -> None:
        world = MasterWorld()
        await world.begin()
        service, server = Overheard(world), grpc.aio.server()
        pb_grpc.add_MasterServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
        at = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        try:
            await scenario(world, service, at)
        finally:
            await server.stop(None)
            await world.end()

    asyncio.run(life())


COMMANDS: list[tuple[Say, list[str]]] = [
    (lambda tablet, at: changes.add(tablet, S[3], wait=False, masters=at), S[:4]),
    (lambda tablet, at: changes.remove(tablet, S[2], wait=False, masters=at), S[:2]),
    (lambda tablet, at: changes.demote(tablet, S[2], wait=False, masters=at), S[:3]),
    (lambda tablet, at: changes.move(tablet, S[2], S[3], wait=False, masters=at), [S[0], S[1], S[3]]),
]
"""Each with the members when it has been carried out."""


@pytest.mark.parametrize(("say", "members"), COMMANDS, ids=["add", "remove", "demote", "move"])
def test_command_is_good_for_what_its_caller_saw_only(say: Say, members: list[str]) -> None:
    """TC-68, TC-69. Goal: a repeated request is not carried out again after its change was undone. Method: a command;
    what it sent is carried out and undone, then comes once more."""

    async def scenario(world: MasterWorld, service: Overheard, at: str) -> None:
        looked = world.seen()
        await asyncio.to_thread(say, world.tablet, at)
        ((method, request),) = service.wanted
        assert request.seen == looked
        await world.carried_out(*members)
        await world.carried_out(*S[:3])
        before = await world.state()
        late = await world.call("MasterService", method, request)
        assert late.error.code == Code.CAS_FAILED and "read it again" in late.error.message
        assert await world.state() == before

    run(scenario)


def test_command_finds_a_server_by_its_address_or_the_beginning_of_its_uuid() -> None:
    """Goal: an operator names a server by the address that `nyala server list` shows. Method: each of five servers by
    its address, of which one is the beginning of no other; a uuid's beginning; what no server has, and the host."""

    async def scenario(world: MasterWorld, service: Overheard, at: str) -> None:
        def talk() -> None:
            with client(at) as connected:
                assert [find_server(connected, str(where(uuid))).uuid for uuid in S] == S
                assert find_server(connected, S[1][:4]).uuid == S[1]
                for text in ("h:9", "h", "h:"):
                    with pytest.raises(
                        typer.BadParameter, match=f"^0 servers begin with '{text}' or have that address"
                    ):
                        find_server(connected, text)

        await asyncio.to_thread(talk)

    run(scenario)


def test_check_that_waits_waits_for_the_first_master_that_answers() -> None:
    """Goal: right after the start of a cluster, `nyala cluster check --wait` waits, and does not end because no master
    answers yet. Method: at the address a socket ends the first connection, and the master listens after it; without
    time, the same is refused; fewer servers than expected are an error."""

    async def scenario(world: MasterWorld, service: Overheard, at: str) -> None:
        first = socket.create_server(("127.0.0.1", 0))
        later = f"127.0.0.1:{first.getsockname()[1]}"
        loop, server = asyncio.get_running_loop(), grpc.aio.server()
        pb_grpc.add_MasterServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]

        def refuse_one() -> None:
            first.accept()[0].close()
            first.close()
            assert server.add_insecure_port(later)
            asyncio.run_coroutine_threadsafe(server.start(), loop).result()

        def look() -> None:
            with client(later, 3600) as connected:
                assert len(connected.list_servers().servers) == len(S)
                assert checked(connected, servers=len(S))[1] == checked(connected)[1]
                (missing,) = (f for f in checked(connected, servers=9)[1] if f.subject == "servers")
                assert missing.severity is Severity.ERROR and "5 tablet servers are alive, and 9 were expected" in (
                    missing.what
                )

        first.settimeout(PATIENCE_S)
        await asyncio.gather(asyncio.to_thread(refuse_one), asyncio.to_thread(look))
        await server.stop(None)
        with pytest.raises(Refused):
            await asyncio.to_thread(lambda: client(later).__enter__())

    run(scenario)


def test_cancel_of_what_was_wanted_before_leaves_what_is_wanted_now() -> None:
    """TC-68, TC-79. Goal: a cancellation names the change that its caller saw, and cancels no other. Method: a client
    looks, what it saw comes to its end, another change is wanted; the cancel of what it saw, then of what is."""

    async def scenario(world: MasterWorld, service: Overheard, at: str) -> None:
        loop = asyncio.get_running_loop()

        def look(connected: Client) -> pb.TabletInfo:
            return connected.tablet_infos("flights")[0]

        def talk() -> None:
            with client(at) as connected:
                connected.add_replica(world.tablet, S[3], "VOTER")
                old = look(connected)
                asyncio.run_coroutine_threadsafe(world.settled(), loop).result()
                connected.add_replica(world.tablet, S[4], "VOTER")
                with pytest.raises(
                    Refused, match=r"another change is wanted.*kind=ADD.*nothing was applied"
                ) as refused:
                    connected.cancel_change(world.tablet, seen=old)
                assert refused.value.code is Code.CAS_FAILED
                now = look(connected)
                assert now.wish.to_uuid == S[4] and not now.wish.cancelled
                connected.cancel_change(world.tablet, seen=now)
                assert look(connected).wish.cancelled

        await asyncio.to_thread(talk)

    run(scenario)
