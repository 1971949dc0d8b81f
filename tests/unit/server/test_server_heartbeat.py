"""What a server's heartbeats tell a master of tablets that come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from nyala.replica.base import Address, Member, OpId, RaftConfig
from nyala.replica.rpc import pb, pb_grpc
from nyala.replica.server import heartbeat as heartbeat_module
from nyala.replica.server.channels import Channels
from nyala.replica.server.gil_watch import GilWatch
from nyala.replica.server.heartbeat import Heartbeats
from nyala.replica.server.memory import MemoryGuard
from nyala.replica.server.options import ServerOptions
from tests.harness.copies import TABLET, TARGET_UUID, new_disk, superblock
from tests.harness.managers import new_manager
from tests.harness.server_pair import until

OTHER = "tablet-2"
ALONE = RaftConfig(OpId(0, 0), (Member(TARGET_UUID, (Address("127.0.0.1", 2),)),))


class Hearing(pb_grpc.MasterServiceServicer):
    """A master that asks for one full report and then only listens."""

    def __init__(self) -> None:
        self.full: list[list[str]] = []
        """The tablets of each full report."""
        self.beats = 0
        self.numbers: list[tuple[int, int]] = []
        """Process and sequence of each."""

    async def Heartbeat(self, request: Any, context: Any) -> Any:
        self.beats += 1
        self.numbers.append((request.process, request.sequence))
        if request.full_report:
            self.full.append([r.tablet_id for r in request.replicas])
        return pb.HeartbeatReply(master_uuid="a" * 32)


async def beats_later(master: Hearing, beats: int = 3) -> None:
    """So many heartbeats from now."""
    then = master.beats + beats
    await until(lambda: master.beats >= then, "it beats on")


def test_tablet_that_is_gone_without_a_trace_is_told_by_a_full_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TC-65. Goal: a master does not give orders for ever about a copy that ended before it wrote anything. Method: a
    server with two tablets beats at a master over gRPC; one leaves the server's table and is marked as changed, as by a
    copy over nothing that failed, or an order for it: one full report without it, and none after that."""
    monkeypatch.setattr(heartbeat_module, "TIMEOUT_S", 60.0)  # a beat that is late is told again in full
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]

    async def life() -> None:
        master, server = Hearing(), grpc.aio.server()
        pb_grpc.add_MasterServiceServicer_to_server(master, server)  # type: ignore[no-untyped-call]
        address = Address("127.0.0.1", server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        options = ServerOptions(root=str(tmp_path), masters=(address,), tick_ms=10, heartbeat_ms=20)
        manager = new_manager(disk, fatal.append, options=options)
        await manager.start()
        for tablet_id in (TABLET, OTHER):
            await manager.create(replace(superblock(), tablet_id=tablet_id), ALONE, campaign=False)

        async def join(_: str) -> None:
            return

        found: Callable[[str, Any], None] = lambda uuid, places: None  # noqa: E731
        channels = Channels()
        beats = Heartbeats(
            manager, channels, MemoryGuard(1 << 30, lambda: 0), GilWatch(), Address("127.0.0.1", 2),
            join=join, cluster_id=str, lost=list, found=found,
        )  # fmt: skip
        beating = asyncio.create_task(beats.run_forever())
        try:
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
            manager.tablets[OTHER] = gone
        finally:
            manager.stopping = True
            await asyncio.wait_for(beating, 60)
            manager.stopping = False
            await manager.stop()
            await channels.close()
            await server.stop(None)

    asyncio.run(life())
    assert fatal == []
