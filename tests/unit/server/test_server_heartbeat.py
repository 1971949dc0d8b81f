"""A server's heartbeats report tablets that come and go to a master."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from nyala.infra.local.ports import Ports
from nyala.replica.fs import TABLET_SERVER, Instance
from nyala.replica.rpc import pb, pb_grpc, place_to_pb
from nyala.replica.server.heartbeats import heartbeat as heartbeat_module
from nyala.replica.server.heartbeats.heartbeat import Heartbeats
from nyala.replica.server.options import ServerOptions
from nyala.replica.server.runtime.channels import Channels
from nyala.replica.server.runtime.gil_watch import GilWatch
from nyala.replica.server.runtime.identity import Identity
from nyala.replica.server.runtime.memory import MemoryGuard
from nyala.replica.server.runtime.resources import ResourceWatch
from nyala.replica.server.tablets.manager import TabletManager
from nyala.replica.types import Address, Code, Member, OpId, RaftConfig, ResourceUse
from tests.harness.copies import TABLET, TARGET_UUID, new_disk, superblock
from tests.harness.managers import new_manager
from tests.harness.patience import patience_s
from tests.harness.rows import table_info
from tests.harness.server_pair import identity_of, until

OTHER = "tablet-2"
ALONE = RaftConfig(OpId(0, 0), (Member(TARGET_UUID, (Address("127.0.0.1", 2),)),))


class Hearing(pb_grpc.MasterServiceServicer):
    """A master that asks for one full report and then only listens."""

    def __init__(self) -> None:
        self.level = 0
        """The finalized feature level that it tells."""
        self.full: list[list[str]] = []
        """The tablets of each full report."""
        self.beats = 0
        self.numbers: list[tuple[int, int]] = []
        """Process and sequence of each."""
        self.uses: set[tuple[int, ...]] = set()
        """Open files and memory maps, each with its limit."""

    async def Heartbeat(self, request: Any, context: Any) -> Any:
        self.beats += 1
        self.numbers.append((request.process, request.sequence))
        files, maps = request.open_files, request.memory_maps
        self.uses.add((files.used, files.limit, maps.used, maps.limit))
        if request.full_report:
            self.full.append([r.tablet_id for r in request.replicas])
        return pb.HeartbeatReply(master_uuid="a" * 32, finalized_level=self.level)


class Group(Hearing):
    """A master of three: who leads is set, everybody names all; it listens on two ports at once."""

    def __init__(self, uuid: str) -> None:
        super().__init__()
        self.uuid, self.leads = uuid, False
        self.cluster_id = "c" * 32
        self.listed: list[Any] = []
        self.told_in_vain = 0
        """Replicas in heartbeats to this master while it did not lead, and reports that were called full."""
        self.ports: tuple[int, ...] = ()

    async def start(self) -> grpc.aio.Server:
        server = grpc.aio.server()
        pb_grpc.add_MasterServiceServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        self.ports = tuple(server.add_insecure_port(f"127.0.0.{n}:0") for n in (1, 2))
        await server.start()
        return server

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self.ports[0])

    @property
    def alias(self) -> Address:
        return Address("127.0.0.2", self.ports[1])

    async def Heartbeat(self, request: Any, context: Any) -> Any:
        if not self.leads:
            self.told_in_vain += len(request.replicas) + request.full_report
        reply = await super().Heartbeat(request, context)
        reply.master_uuid, reply.cluster_id = self.uuid, self.cluster_id
        reply.masters.extend(self.listed)
        if not self.leads:
            reply.error.code = Code.NOT_LEADER
        return reply


@asynccontextmanager
async def beating(
    root: Path, *masters: Address, cluster_id: str = "c" * 32, identity: Identity | None = None
) -> AsyncIterator[tuple[TabletManager, Any]]:
    """A server with two tablets that was told of these masters."""
    fatal: list[BaseException] = []
    options = ServerOptions(root=str(root), masters=masters, tick_ms=10, heartbeat_ms=20)
    manager = new_manager(new_disk(), fatal.append, options=options)
    await manager.start()
    for tablet_id in (TABLET, OTHER):
        await manager.create(replace(superblock(), tablet_id=tablet_id), ALONE, campaign=False)

    channels = Channels()
    resources = ResourceWatch(manager.uuid, lambda: ResourceUse(30, 1000), lambda: ResourceUse(60_000, 65_530))
    resources.look()
    beats = Heartbeats(
        manager, channels, MemoryGuard(1 << 30, lambda: 0), GilWatch(), Address("127.0.0.1", 2),
        process=7, identity=identity or identity_of(manager.uuid, cluster_id), unreachable=list,
        found=lambda uuid, places: None, resources=resources,
    )  # fmt: skip
    running = asyncio.create_task(beats.run_forever())
    try:
        yield manager, beats
    finally:
        manager.stopping = True
        await asyncio.wait_for(running, patience_s(60))
        manager.stopping = False
        await manager.stop()
        await channels.close()
    assert fatal == []


async def beats_later(master: Hearing, beats: int = 3) -> None:
    """Wait for so many more heartbeats."""
    then = master.beats + beats
    await until(lambda: master.beats >= then, "it beats on")


def test_tablet_that_is_gone_without_a_trace_is_told_by_a_full_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TC-65, IN-32. Goal: if a copy ends before it wrote anything, a full report tells the master that the tablet is
    not here. Method: a server with two tablets beats at a master over gRPC; one leaves the server's table and is marked
    as changed, as by a copy over nothing that failed, or an order for it: one full report without it, and none after
    that. Each heartbeat says the open files and maps that were counted."""
    monkeypatch.setattr(heartbeat_module, "TIMEOUT_S", 60.0)  # a beat that is late is told again in full

    async def life() -> None:
        master, server = Hearing(), grpc.aio.server()
        pb_grpc.add_MasterServiceServicer_to_server(master, server)  # type: ignore[no-untyped-call]
        address = Address("127.0.0.1", server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        async with beating(tmp_path, address, cluster_id="") as (manager, _):
            await beats_later(master)
            assert master.full == [[TABLET, OTHER]]
            gone = manager.tablets.pop(OTHER)
            manager.changed.add(OTHER)
            await until(lambda: len(master.full) > 1, "it says that it is gone")
            await beats_later(master)
            assert master.full == [[TABLET, OTHER], [TABLET]]
            processes, numbers = zip(*master.numbers, strict=True)
            assert len(set(processes)) == 1 and processes[0], "which process speaks"
            assert sorted(set(numbers)) == list(numbers), "its heartbeats are numbered as they are sent"
            assert master.uses == {(30, 1000, 60_000, 65_530)}, "as the server counted them last"
            manager.tablets[OTHER] = gone
        await server.stop(None)

    asyncio.run(life())


def test_server_notes_the_highest_feature_level_that_a_master_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-93. Goal: a server keeps the cluster's feature level, below which no build may start on its directory. Method:
    a server that knows no level yet is told one, and then a lower one, as by a master that was away."""
    monkeypatch.setattr(heartbeat_module, "TIMEOUT_S", 60.0)

    async def life() -> None:
        identity = Identity(new_disk(), Instance(TARGET_UUID, TABLET_SERVER, "c" * 32, 0, feature_level=0))
        master = Group("a" * 32)
        master.leads = True
        server = await master.start()
        async with beating(tmp_path, master.address, identity=identity):
            await beats_later(master)
            assert identity.feature_level == 0
            master.level = 1
            await until(lambda: identity.feature_level == 1, "it notes the level")
            master.level = 0
            await beats_later(master)
            assert identity.feature_level == 1
        await server.stop(None)

    asyncio.run(life())


def test_masters_that_the_others_name_are_beaten_at_and_only_those_of_our_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MF-32. Goal: a server sends heartbeats to masters that others name, once each, and ignores masters of another
    cluster. Method: the server is given a follower's address and a stranger's. The follower names itself at another
    address, and the leader; the stranger, of another cluster, names one more. The leader gets a full report, no master
    gets heartbeats twice, and the one that the stranger named gets none."""
    monkeypatch.setattr(heartbeat_module, "TIMEOUT_S", 60.0)

    async def life() -> None:
        follower, leader, stranger, decoy = (Group(name * 32) for name in "fasd")
        servers = [await each.start() for each in (follower, leader, stranger, decoy)]
        leader.leads = True
        group = [place_to_pb(follower.uuid, [follower.address]), place_to_pb(leader.uuid, [leader.address])]
        follower.listed = leader.listed = group
        stranger.cluster_id, stranger.listed = "e" * 32, [place_to_pb(decoy.uuid, [decoy.address])]
        async with beating(tmp_path, follower.alias, stranger.address) as (_, beats):
            await until(lambda: leader.full == [[TABLET, OTHER]], "the leader is told everything")
            await beats_later(leader)
            await beats_later(stranger)
            assert beats.masters == {follower.alias, stranger.address, leader.address}
            assert decoy.beats == 0
        for server in servers:
            await server.stop(None)

    asyncio.run(life())


@pytest.mark.parametrize("answers_at", [("127.0.0.2", "127.0.0.1"), ("127.0.0.1",)])
def test_master_that_was_named_before_we_knew_it_by_another_address_is_beaten_at_once(
    answers_at: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: if two addresses reach one master, the server drops the duplicate heartbeat. Method: it was silent at the
    address that we were told when another one named it at a second; then it answers there, is beaten, and answers at
    both; or only where we were told."""
    monkeypatch.setattr(heartbeat_module, "TIMEOUT_S", 60.0)

    async def life() -> None:
        late, leader = Group("l" * 32), Group("a" * 32)
        leader.leads = True
        servers = [await leader.start()]
        with Ports() as ports:
            told = Address("127.0.0.1", ports.free())
            leader.listed = [place_to_pb(late.uuid, [Address("127.0.0.2", told.port)])]
            async with beating(tmp_path, told, leader.address) as (_, beats):
                await until(lambda: len(beats.masters) == 3, "it is heard of at a second address")
                for host in answers_at:
                    again = grpc.aio.server()
                    pb_grpc.add_MasterServiceServicer_to_server(late, again)  # type: ignore[no-untyped-call]
                    assert again.add_insecure_port(f"{host}:{told.port}")
                    await again.start()
                    servers.append(again)
                    await beats_later(late)
                await until(lambda: beats.masters == {told, leader.address}, "one loop is enough")
                await beats_later(late)
                assert beats.masters == {told, leader.address}
        for server in servers:
            await server.stop(None)

    asyncio.run(life())


def test_master_that_does_not_lead_is_asked_whether_it_does_and_told_everything_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a server sends its reports only to a master that leads, and a full one to a new leader. Method: two
    tablets, one master that does not lead: heartbeats carry no replica and none is called a full report, also of what
    changed; it leads: it is told both."""
    monkeypatch.setattr(heartbeat_module, "TIMEOUT_S", 60.0)

    async def life() -> None:
        master = Group("m" * 32)
        server = await master.start()
        async with beating(tmp_path, master.address) as (manager, _):
            await beats_later(master)
            manager.changed.add(OTHER)
            await beats_later(master)
            assert master.told_in_vain == 0
            reported = len(master.full)
            master.leads = True
            await until(lambda: len(master.full) > reported, "it is told everything")
            assert master.full[reported:] == [[TABLET, OTHER]]
        await server.stop(None)

    asyncio.run(life())


def test_master_of_another_cluster_that_becomes_ours_is_never_told_that_nothing_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the first report to a master that comes back to our cluster is a full one with all tablets, because it
    never got one. Method: a leading master of another cluster, told nothing; it is back in ours, under the same uuid,
    as one whose catalog was brought back: its first full report has both tablets."""
    monkeypatch.setattr(heartbeat_module, "TIMEOUT_S", 60.0)

    async def life() -> None:
        master = Group("m" * 32)
        master.leads, master.cluster_id = True, "e" * 32
        server = await master.start()

        async with beating(tmp_path, master.address):
            await beats_later(master, 10)
            assert master.full == []
            master.cluster_id = "c" * 32
            await until(lambda: bool(master.full), "it is told what is here")
            assert master.full == [[TABLET, OTHER]]
        await server.stop(None)

    asyncio.run(life())


def test_orders_of_a_master_that_name_what_cannot_be_make_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """IN-82. Goal: a server refuses an order with an impossible tablet id, because the id becomes a file name. Method:
    a master orders tablets with ids of 255 characters, with NUL, as a path and below zero in a number: each is refused
    with a line in the log, no file is made, and the server beats on."""
    monkeypatch.setattr(heartbeat_module, "TIMEOUT_S", 60.0)
    hostile = ["x" * 255, "a\0b", "../x", ".x", "a/b", "\u0442"]

    class Ordering(Hearing):
        async def Heartbeat(self, request: Any, context: Any) -> Any:
            reply = await super().Heartbeat(request, context)
            for tablet_id in hostile:
                config = pb.RaftConfig(members=[pb.Member(uuid=TARGET_UUID, votes=True, holds_data=True)])
                create = pb.CreateTabletRequest(dest_uuid=TARGET_UUID, tablet_id=tablet_id, table=table_info("t1"))
                create.config.CopyFrom(config)
                reply.orders.add(create=create)
                # Orders of one tablet are carried out one at a time, so the tablet to delete has an id of its own.
                reply.orders.add(delete=pb.DeleteTabletRequest(dest_uuid=TARGET_UUID, tablet_id=tablet_id + "!"))
            below = pb.CreateTabletRequest(dest_uuid=TARGET_UUID, tablet_id="t-ok", table=table_info("t1"), bucket=-1)
            reply.orders.add(create=below)
            return reply

    async def scenario() -> None:
        master, server = Ordering(), grpc.aio.server()
        pb_grpc.add_MasterServiceServicer_to_server(master, server)  # type: ignore[no-untyped-call]
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with beating(tmp_path, Address("127.0.0.1", port)) as (manager, _):
                disk: Any = manager.disk
                files = set(disk.files)
                await beats_later(master, 5)
                assert sorted(manager.tablets) == sorted((TABLET, OTHER))
                assert not [f for f in set(disk.files) - files if TABLET not in f and OTHER not in f]
        finally:
            await server.stop(None)

    with caplog.at_level("INFO", "nyala.server"):
        asyncio.run(scenario())
    told = [r.getMessage() for r in caplog.records if "could not carry out an order" in r.getMessage()]
    assert sum("letters, digits" in text for text in set(told)) == 2 * len(hostile)
    assert any("bucket" in text for text in told)
