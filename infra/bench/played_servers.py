"""A process that plays many tablet servers for a master: real heartbeats, and answers at a port of each server.

`nyala bench masters-at-scale` and `decisions` start it. It prints a line of JSON when all ports listen, and one each
time that the master has the full reports of all servers. It reads commands from standard input: see `Played.obey`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import grpc

from nyala.replica.fs import TABLET_SERVER
from nyala.replica.rpc import (
    Context,
    ReportState,
    address_to_pb,
    async_channel_to,
    config_to_pb,
    listen_on,
    pb,
    pb_grpc,
)
from nyala.replica.types import Address, DataState, Member, OpId, RaftConfig, __version__
from nyala.schemas import build_level

CALL_S = 3.0
"""The time for which a tablet server waits for the reply to its heartbeat."""
CHANGE_S = 0.005
HOST = "127.0.0.1"
_Command = dict[str, Any]


def uuid_of(server: int) -> str:
    """The uuid of a played server."""
    return f"{server:032x}"


def tablet_id_of(tablet: int) -> str:
    """The id of a tablet."""
    return f"{tablet:032x}"


def members_of(tablet: int, servers: int, replicas: int) -> list[int]:
    """The servers of a tablet, the one that leads it first. Any two servers share few tablets or none."""
    step = 1 + tablet // servers % max(1, (servers - 1) // replicas)
    return [(tablet + step * n) % servers for n in range(replicas)]


def config_of(tablet: int, replicas: int, addresses: list[Address]) -> RaftConfig:
    """The committed config of a tablet; `addresses` of all servers, in their order."""
    places = ((n, addresses[n]) for n in members_of(tablet, len(addresses), replicas))
    return RaftConfig(OpId(1, 1), tuple(Member(uuid_of(n), (at,)) for n, at in places))


@dataclass
class _Server:
    """One played server: its replicas as statuses in the order of their ids, and what the master knows of them. It
    reports as a tablet server does."""

    number: int
    address: Address
    statuses: list[pb.ReplicaStatus] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)
    report: ReportState = field(default_factory=ReportState)
    known: bool = False
    """Whether the master has its full report."""
    silent: bool = False
    stub: Any = None
    """Of the master, over a connection of its own, as each real server has one."""
    sequence: int = 0

    @cached_property
    def by_id(self) -> dict[str, pb.ReplicaStatus]:
        """The statuses by their tablets, when all are there."""
        return {s.tablet_id: s for s in self.statuses}


class _Answers(pb_grpc.TabletServiceServicer):
    """The calls by which a master finds a server, and looks at its replicas."""

    def __init__(self, played: Played, number: int) -> None:
        self._played, self._number = played, number

    async def GetIdentity(self, _request: pb.Empty, _context: Context) -> pb.IdentityReply:
        """The uuid of this server."""
        cluster_id, level = self._played.cluster_id, build_level()
        return pb.IdentityReply(
            uuid=uuid_of(self._number), kind=TABLET_SERVER, cluster_id=cluster_id, feature_level=level
        )

    async def IsProcess(self, request: pb.ProcessRequest, _context: Context) -> pb.ProcessReply:
        """Whether it sends heartbeats with that number."""
        return pb.ProcessReply(same=request.process == self._number + 1)

    async def ListTablets(self, request: pb.ListTabletsRequest, _context: Context) -> pb.ListTabletsReply:
        """The statuses of these tablets."""
        held = self._played.servers[self._number].by_id
        return pb.ListTabletsReply(replicas=[held[t] for t in request.tablet_ids if t in held])

    async def ChangeConfig(self, request: pb.ChangeConfigRequest, _context: Context) -> pb.ChangeConfigReply:
        """Accept the change after the time of a log's sync."""
        with self._played.changes.under_way(request):
            await asyncio.sleep(CHANGE_S)
        return pb.ChangeConfigReply()


@dataclass
class Changes:
    """Counts the config changes of all played servers."""

    calls: int = 0
    tablets: set[str] = field(default_factory=set)
    at_once: Counter[str] = field(default_factory=Counter)
    """The changes under way by the server that joins."""
    at_once_max: int = 0

    @contextmanager
    def under_way(self, request: pb.ChangeConfigRequest) -> Iterator[None]:
        """Count a change from here to the end of the context."""
        joins = next(edit.member.uuid for edit in request.edits)
        self.calls += 1
        self.tablets.add(request.tablet_id)
        self.at_once[joins] += 1
        self.at_once_max = max(self.at_once_max, self.at_once[joins])
        try:
            yield
        finally:
            self.at_once[joins] -= 1


class Played:
    """All played servers, on one event loop."""

    def __init__(self, servers: int, tablets: int, replicas: int, beat_s: float) -> None:
        self._wanted, self._tablets, self._replicas, self._beat_s = servers, tablets, replicas, beat_s
        self.servers: list[_Server] = []
        self.changes = Changes()
        self.cluster_id = ""
        self._unknown = 0
        self._beats: list[float] = []
        """The seconds that each heartbeat took since the last `told`."""
        self._refused = self._late = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._listening: list[Any] = []

    async def run(self) -> None:
        """Listen, and obey until standard input ends."""
        places = []
        for number in range(self._wanted):
            listening = grpc.aio.server()
            pb_grpc.add_TabletServiceServicer_to_server(_Answers(self, number), listening)  # type: ignore[no-untyped-call]
            places.append(Address(HOST, listen_on(listening, f"{HOST}:0")))
            await listening.start()
            self._listening.append(listening)
        self.listen_at(places)
        _say(ports=[s.address.port for s in self.servers])
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            self.obey(json.loads(line))

    def listen_at(self, addresses: list[Address]) -> None:
        """Make the servers at these addresses, with their replicas."""
        self.servers = [_Server(number, address) for number, address in enumerate(addresses)]
        for tablet in range(self._tablets):
            config = config_of(tablet, self._replicas, addresses)
            wire = config_to_pb(config)
            leader = config.members[0].uuid
            for member in config.members:
                leads = member.uuid == leader
                status = pb.ReplicaStatus(
                    tablet_id=tablet_id_of(tablet), uuid=member.uuid, data_state=DataState.READY, phase="RUNNING",
                    role="LEADER" if leads else "FOLLOWER", term=1, leader_uuid=leader, committed_config=wire,
                    commit_index=2, commit_term=1, rows=tablet, bytes_on_disk=1000,
                )  # fmt: skip
                if leads:
                    status.peers.extend(_peers(config, leader))
                self.servers[int(member.uuid, 16)].statuses.append(status)

    def obey(self, command: _Command) -> None:
        """Carry out one command: `beat` (the address of the master, and the cluster's id), `silence` (a server, whose
        tablets get other leaders), `changes` (print the config changes since the last time), or `tell` (print what the
        heartbeats took since the last time)."""
        if "beat" in command:
            self.cluster_id = command["cluster"]
            self._unknown = len(self.servers)
            for server in self.servers:
                server.known, server.report = False, ReportState()
                channel = async_channel_to(command["beat"])
                server.stub = pb_grpc.MasterServiceStub(channel)  # type: ignore[no-untyped-call]
            self._tasks = self._tasks or [asyncio.create_task(self._beats_of(s)) for s in self.servers]
        elif "silence" in command:
            self._silence(self.servers[command["silence"]])
        elif "changes" in command:
            made, self.changes = self.changes, Changes()
            _say(changes=made.calls, tablets=len(made.tablets), at_once_max=made.at_once_max)
        else:
            beats, self._beats = self._beats, []
            _say(beats=len(beats), beat_ms_max=1000 * max(beats, default=0.0), refused=self._refused, late=self._late)

    def _silence(self, lost: _Server) -> None:
        lost.silent = True
        addresses = [s.address for s in self.servers]
        for status in lost.statuses:
            if status.role != "LEADER":
                continue
            config = config_of(int(status.tablet_id, 16), self._replicas, addresses)
            leader = config.members[1].uuid
            for member in config.members[1:]:
                server = self.servers[int(member.uuid, 16)]
                own = server.by_id[status.tablet_id]
                own.term, own.leader_uuid = 2, leader
                if member.uuid == leader:
                    own.role = "LEADER"
                    own.peers.extend(_peers(config, leader))
                server.changed.add(own.tablet_id)

    async def _beats_of(self, server: _Server) -> None:
        await asyncio.sleep(self._beat_s * server.number / len(self.servers))
        while not server.silent:
            began, at_once = time.monotonic(), False
            try:
                reply = await server.stub.Heartbeat(self._heartbeat(server), timeout=CALL_S)
                known = not reply.error.code and not reply.need_full_report
                if reply.error.code:
                    self._refused += 1
                    server.report.not_taken()
                else:
                    at_once = server.report.taken(reply)
                self._beats.append(time.monotonic() - began)
                self._note(server, known)
            except grpc.aio.AioRpcError:
                server.report.not_taken()
                self._late += 1
            if not at_once:
                await asyncio.sleep(max(0.0, began + self._beat_s - time.monotonic()))

    def _note(self, server: _Server, known: bool) -> None:
        if known != server.known:
            server.known = known
            self._unknown += -1 if known else 1
            if not self._unknown:
                _say(known=len(self.servers))

    def _heartbeat(self, server: _Server) -> pb.HeartbeatRequest:
        server.sequence += 1
        report = server.report.next([*server.by_id], server.changed, server.by_id.__getitem__)
        return pb.HeartbeatRequest(
            server_uuid=uuid_of(server.number), addresses=[address_to_pb(server.address)], sequence=server.sequence,
            process=server.number + 1, full_report=report.full, replicas=report.statuses, cluster_id=self.cluster_id,
            slice_after=report.after, slice_until=report.until,
            version=__version__, feature_level=build_level(), disk_bytes_free=1 << 40,
        )  # fmt: skip


def _peers(config: RaftConfig, leader: str) -> list[pb.PeerHealth]:
    return [pb.PeerHealth(uuid=m.uuid, health="OK", match_index=2) for m in config.members if m.uuid != leader]


def _say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def main() -> None:
    """Play the servers that the arguments ask for."""
    parser = argparse.ArgumentParser()
    for name in ("--servers", "--tablets", "--replicas", "--beat-ms"):
        parser.add_argument(name, type=int, required=True)
    asked = parser.parse_args()
    asyncio.run(Played(asked.servers, asked.tablets, asked.replicas, asked.beat_ms / 1000).run())


if __name__ == "__main__":
    main()
