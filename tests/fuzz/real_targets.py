"""The targets that real processes have: the inputs of the targets in this process, their ids replaced by those of
processes, and sent to them.

A target's inputs name *prey* only: a tablet, a table or a copy that is made for one stretch of inputs and removed after
it. `Place` says which ids stand for which.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import grpc
import grpc.aio
from google.protobuf import message_factory

from nyala.replica.rpc import CHANNEL_OPTIONS, HEAD_BYTES, address_to_pb, frame, pb
from nyala.replica.types import Address, Code, DataState, kafka_topics
from tests.fuzz.handlers import check_reply
from tests.fuzz.real_cluster import HONEST_S, RealCluster
from tests.fuzz.registry import target_of
from tests.fuzz.rpc_targets import PLACEHOLDERS, PORTS, port_bytes
from tests.fuzz.target import Broken, Session
from tests.harness.catalogs import table_info as master_table
from tests.harness.cluster import ServerProcess
from tests.harness.copies import SOURCE_UUID, TABLET, TARGET_UUID
from tests.harness.links import NUMBER
from tests.harness.master_calls import MASTER, S
from tests.harness.played_replica import LEADER, ME, THIRD
from tests.harness.rows import batch, table_info, write_request
from tests.harness.server_calls import NOBODY, learner
from tests.unit.master import test_master_requests_table as of_master
from tests.unit.server import test_server_requests_table as of_server

CALL_S = 0.3
"""A caller waits so long for its reply, and then cancels the call. Some inputs make a handler wait for what never
comes."""
LINK_S = 5.0
"""A link must end within this time after its last byte; else the fuzzer ends it, and counts it as late."""
REPLY_S = 0.1
ENDED_S = 2.0
"""Of a process that has ended, this much later it is known."""
ROWS = 20
_GONE = (Code.TABLET_NOT_FOUND, Code.TABLET_DELETED, Code.ALREADY_INPROGRESS)
_ENDED = (
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAVAILABLE,
)
"""Statuses with which a call may end: its time was over, it was too long, it had no request that could be read, or its
connection ended. A server that has died is found by its process."""


class Wires:
    """The fuzzer's connections. They are kept from one stretch of inputs to the next."""

    def __init__(self, played_at: Address) -> None:
        self.played_at = played_at
        """Where the members of replicas that the fuzzer plays say that they listen."""
        self._channels: dict[str, grpc.aio.Channel] = {}

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        return self._channels[address]

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def call(self, process: ServerProcess, call: str, data: bytes, timeout_s: float = CALL_S) -> Any:
        """Return the reply, the last one of a stream; None if the call ended without one."""
        service, _, method = call.partition(".")
        described = pb.DESCRIPTOR.services_by_name[service].methods_by_name[method]
        path, channel = f"/nyala.v1.{service}/{method}", self._channel(process.address)
        try:
            if described.server_streaming:
                answers = [answer async for answer in channel.unary_stream(path)(data, timeout=timeout_s)]
            else:
                answers = [await channel.unary_unary(path)(data, timeout=timeout_s)]
        except grpc.aio.AioRpcError as error:
            if error.code() not in _ENDED:
                raise Broken(f"{call} ends with {error.code()}: {error.details()}") from error
            return error.code().name.lower()
        kind = message_factory.GetMessageClass(described.output_type)
        replies = [kind.FromString(bytes(answer)) for answer in answers]
        for reply in replies:
            check_reply(reply)
        return replies[-1] if replies else None

    async def honest(self, process: ServerProcess, call: str, request: Any) -> Any:
        """Return the reply to an honest request; Broken if there is none, or if it is refused."""
        reply = await self.call(process, call, request.SerializeToString(), HONEST_S)
        if reply == "unavailable":
            await asyncio.to_thread(_end_of, process)
        if reply is None or isinstance(reply, str) or reply.error.code:
            raise Broken(f"an honest {call} is refused by {process.name}: {getattr(reply, 'error', reply)}")
        return reply


async def _until(step: Callable[[], Awaitable[tuple[Any, bool]]], what: str, pause_s: float) -> Any:
    """Return what `step` found, as soon as it says that this is what was waited for; Broken with `what` and the last
    of it after HONEST_S."""
    deadline = asyncio.get_running_loop().time() + HONEST_S
    while True:
        found, done = await step()
        if done:
            return found
        if asyncio.get_running_loop().time() > deadline:
            raise Broken(f"{what}: {found}")
        await asyncio.sleep(pause_s)


def _end_of(process: ServerProcess) -> None:
    """Return if the process goes on; Broken if its connection broke because it has ended, which is known a little
    later."""
    with suppress(subprocess.TimeoutExpired):
        if process.process is not None:
            process.process.wait(ENDED_S)
            raise Broken(f"{process.name} ended with {process.process.returncode}:\n{process.log_tail()}")


@dataclass
class Place:
    """Where one stretch of inputs goes."""

    send: Callable[[bytes], Awaitable[str]]
    """Deliver an input; returns what came of it: answered, the code of the refusal, or gRPC's status. Of a link,
    whether the server closed it."""
    ids: dict[bytes, bytes]
    """What stands in inputs, and what replaces it; both are equally long, so that no length changes."""

    def __post_init__(self) -> None:
        assert all(len(old) == len(new) for old, new in self.ids.items()), self.ids
        self._pattern = re.compile(b"|".join(map(re.escape, self.ids)) or b"(?!)")

    def own(self, data: bytes) -> bytes:
        """Return the input with the ids of real processes."""
        return self._pattern.sub(lambda found: self.ids[found[0]], data)


@cache
def session_of(name: str) -> Session:
    """Return the session of a target in this process. Its world has ended: it makes inputs, and takes none."""
    found: list[Session] = []

    async def keep(session: Session) -> None:
        found.append(session)

    target_of(name).within(keep)
    return found[0]


def _ids(pairs: dict[str, str]) -> dict[bytes, bytes]:
    return {old.encode(): new.encode() for old, new in pairs.items()}


def _called(cluster: RealCluster, wires: Wires, process: ServerProcess, call: str) -> Callable[[bytes], Awaitable[str]]:
    async def send(data: bytes) -> str:
        reply = await wires.call(process, call, data)
        if reply is None or isinstance(reply, str):
            return reply or "no answer"
        code = reply.error.code if "error" in reply.DESCRIPTOR.fields_by_name else Code.OK
        return str(Code(code).name).lower() if code else "answered"

    return send


# ------------------------------------------------------------------------------------------------- calls of servers


class _ServerPrey:
    """A tablet, a deleted one and a session of a copy, on the first servers, which inputs of one stretch may name."""

    def __init__(self, cluster: RealCluster, wires: Wires) -> None:
        self._cluster, self._wires = cluster, wires
        self.first, self.other = cluster.processes.servers[:2]
        number = cluster.number()
        self.tablet, self.second = f"p{number:07}", f"q{number:07}"
        self.session = ""

    def ids(self) -> dict[bytes, bytes]:
        """Return the ids of worlds of servers, and those that replace them."""
        ids = {SOURCE_UUID: self.first.uuid, TARGET_UUID: self.other.uuid}
        ids |= {TABLET: self.tablet, of_server.SECOND: self.second}
        if self.session:
            ids[PLACEHOLDERS[0]] = self.session
        ports = (int(s.address.rpartition(":")[2]) for s in (self.first, self.other))
        return _ids(ids) | {port_bytes(old): port_bytes(new) for old, new in zip(PORTS, ports, strict=True)}

    async def done(self, call: str, request: Any, at: ServerProcess | None = None) -> Any:
        return await self._wires.honest(at or self.first, call, request)

    async def create(self, tablet_id: str, *members: Any, at: ServerProcess | None = None) -> None:
        """Make a tablet at a server, alone or with other members."""
        server = at or self.first
        config = pb.RaftConfig(members=[server.member(), *members])
        hint = "" if members and at is not None else server.uuid
        fields = {"table": table_info(), "config": config, "leader_hint": hint}
        request = pb.CreateTabletRequest(dest_uuid=server.uuid, tablet_id=tablet_id, **fields)
        await self.done("TabletService.CreateTablet", request, server)

    async def written(self) -> None:
        """Write rows into the tablet, as soon as its server leads it."""
        write = write_request(self.first.uuid, self.tablet, batch(list(range(ROWS)), ["v"] * ROWS))
        fields = {"tablet_id": self.tablet, "target_uuid": self.first.uuid}
        transfer = pb.TransferRequest(dest_uuid=self.other.uuid, **fields).SerializeToString()

        async def step() -> tuple[Any, bool]:
            reply = await self._wires.call(self.first, "TabletService.Write", write.SerializeToString(), HONEST_S)
            answered = not isinstance(reply, str) and reply is not None
            if answered and reply.error.code == Code.NOT_LEADER:
                await self._wires.call(self.other, "TabletService.TransferLeadership", transfer, HONEST_S)
            return reply, answered and not reply.error.code

        await _until(step, "nothing can be written into a new tablet", 0.01)

    async def began_a_term(self, at: ServerProcess) -> None:
        """Wait until the tablet of a server alone has its first entry."""
        request = pb.ListTabletsRequest(dest_uuid=at.uuid, tablet_ids=[self.tablet])

        async def step() -> tuple[Any, bool]:
            (replica,) = (await self.done("TabletService.ListTablets", request, at)).replicas
            return replica, replica.last_logged.index and replica.commit_index == replica.last_logged.index

        await _until(step, "a new tablet does not begin a term", 0.01)

    async def delete(self, tablet_id: str, at: ServerProcess) -> None:
        """Delete a replica, unless it is gone, or about to be deleted by the master's order."""
        request = pb.DeleteTabletRequest(dest_uuid=at.uuid, tablet_id=tablet_id)
        reply = await self._wires.call(at, "TabletService.DeleteTablet", request.SerializeToString(), HONEST_S)
        if isinstance(reply, str) or (reply.error.code and reply.error.code not in _GONE):
            raise Broken(f"an honest DeleteTablet is refused by {at.name}: {getattr(reply, 'error', reply)}")

    async def begin_copy(self) -> None:
        """Begin a session of a copy of the tablet."""
        fields = {"tablet_id": self.tablet, "requestor_uuid": NOBODY, "requestor_run": "run", "attempt": 1}
        request = pb.BeginCopyRequest(dest_uuid=self.first.uuid, **fields)
        self.session = (await self.done("CopyService.BeginCopy", request)).session_id

    async def removed(self, keep: set[str]) -> None:
        """Delete every replica on both servers that is not of a table of this cluster; and let both lead again."""
        for server in (self.first, self.other):
            listed = await self.done("TabletService.ListTablets", pb.ListTabletsRequest(dest_uuid=server.uuid), server)
            for replica in listed.replicas:
                if replica.tablet_id not in keep and replica.data_state == DataState.READY:
                    await self.delete(replica.tablet_id, server)
            seen = await self.done("TabletService.Quiesce", pb.QuiesceRequest(dest_uuid=server.uuid), server)
            request = pb.QuiesceRequest(dest_uuid=server.uuid, quiesce=False, seen=seen.changes)
            await self.done("TabletService.Quiesce", request, server)


async def _server_place(cluster: RealCluster, wires: Wires, call: str) -> Place:
    prey = _ServerPrey(cluster, wires)
    row = next(row for row in of_server.ROWS if row.call == call)
    match call:
        case "TabletService.TransferLeadership":
            await prey.create(prey.tablet, prey.first.member(), at=prey.other)
            await prey.create(prey.tablet, prey.other.member())
        case "CopyService.StartTabletCopy" | "CopyService.CancelCopy":
            await prey.create(prey.tablet)
            await prey.create(prey.tablet, at=prey.other)
            await prey.began_a_term(prey.other)
            await prey.delete(prey.tablet, prey.other)
        case _:
            await prey.create(prey.tablet)
    await prey.written()
    match call:
        case "TabletService.CreateTablet" | "TabletService.TransferLeadership":
            pass
        case "TabletService.ChangeConfig" | "TabletService.DeleteTablet":
            edits = [pb.ConfigEdit(kind="add", member=learner("1"))]
            change = pb.ChangeConfigRequest(dest_uuid=prey.first.uuid, tablet_id=prey.tablet, edits=edits)
            await prey.done("TabletService.ChangeConfig", change)
        case "CopyService.StartTabletCopy" | "CopyService.CancelCopy":
            pass
        case _:
            await prey.create(prey.second)
            await prey.delete(prey.second, prey.first)
            await prey.begin_copy()
    return Place(_called(cluster, wires, prey.other if row.at == "other" else prey.first, call), prey.ids())


# ------------------------------------------------------------------------------------------------- calls of masters


_OF_REPLICAS = {
    f"MasterService.{name}"
    for name in (
        *("MoveReplica", "AddReplica", "RemoveReplica", "ChangeRole", "CancelChange", "SetReplication"),
        *("ReplaceTablets", "ConfirmConfig"),
    )
}
_SEEN = pb.OpId(term=1, index=1).SerializeToString()
"""The config that callers of a world have seen. Of a new tablet it is another one, with numbers of one byte, too."""

_DEADLINE = pb.MoveReplicaRequest(deadline_us=1 << 38).SerializeToString()
"""A deadline that lies ahead of a world's clock, and that has passed by a master's. There a zero of the same length
replaces it, which stands for none."""


async def _master_done(cluster: RealCluster, wires: Wires, method: str, request: Any) -> Any:
    return await wires.honest(cluster.master, f"MasterService.{method}", request)


async def _master_as_before(cluster: RealCluster, wires: Wires) -> None:
    """Drop all tables but this cluster's own, and let all servers take replicas again."""
    listed = await _master_done(cluster, wires, "ListTables", pb.TableRequest(brief=True))
    for table in listed.tables:
        if table.name not in cluster.own_tables:
            await _master_done(cluster, wires, "DropTable", pb.TableRequest(name=table.name))
    servers = await _master_done(cluster, wires, "ListServers", pb.ListServersRequest())
    for server in servers.servers:
        if server.draining:
            await _master_done(
                cluster, wires, "RetireServer", pb.RetireServerRequest(server_uuid=server.uuid, undo=True)
            )
        if server.maintenance_until_us:
            await _master_done(cluster, wires, "MaintainServer", pb.MaintainServerRequest(server_uuid=server.uuid))


async def _formed(cluster: RealCluster, wires: Wires) -> Any:
    """Return the prey table's tablet, as soon as the master accepts changes of it."""
    request = pb.TableRequest(name="flights", with_tablets=True)

    async def step() -> tuple[Any, bool]:
        (tablet,) = (await _master_done(cluster, wires, "GetTable", request)).tablets
        probe = pb.ReplicaRequest(tablet_id=tablet.tablet_id, server_uuid=NOBODY).SerializeToString()
        reply = await wires.call(cluster.master, "MasterService.RemoveReplica", probe, HONEST_S)
        return tablet, tablet.leader_uuid and not isinstance(reply, str) and reply.error.code == Code.NOT_FOUND

    return await _until(step, "a new tablet has no leader", 0.05)


async def _master_place(cluster: RealCluster, wires: Wires, call: str) -> Place:
    """Make a table. Calls that change replicas find its only tablet led, by the first server of the world's five."""
    request = pb.CreateTableRequest(table=master_table(buckets=1), request_id=f"prey-{cluster.number()}")
    made = await _master_done(cluster, wires, "CreateTable", request)
    servers, ids = [s.uuid for s in cluster.processes.servers], {}
    if call in _OF_REPLICAS:
        tablet = await _formed(cluster, wires)
        members = sorted((m.uuid for m in tablet.config.members), key=lambda uuid: uuid != tablet.leader_uuid)
        servers = [*members, *(uuid for uuid in servers if uuid not in members)]
        ids[_DEADLINE] = _DEADLINE[:-1] + b"\0"
        ids[_SEEN] = bytes((8, tablet.config.opid.term, 16, tablet.config.opid.index))
        if call == "MasterService.CancelChange":
            seen = pb.TabletSeen(committed_config_id=tablet.config.opid, wishes=tablet.wishes)
            fields = {"tablet_id": tablet.tablet_id, "to_uuid": members[1], "reason": "wanted before"}
            await _master_done(cluster, wires, "MoveReplica", pb.MoveReplicaRequest(seen=seen, **fields))
    ids |= _ids(dict(zip(S, [*servers, servers[-1]], strict=True)) | {MASTER: cluster.master.uuid})
    ids |= _ids(dict(zip(PLACEHOLDERS, (made.table.table_id, made.tablets[0].tablet_id), strict=False)))
    if call in ("MasterService.OpenSources", "MasterService.AdvanceSources", "MasterService.ResetSource"):
        await _master_done(cluster, wires, "OpenSources", of_master.opening()(None))
    return Place(_called(cluster, wires, cluster.master, call), ids)


# ------------------------------------------------------------------------------------------------------------- links


async def _linked(port: int, ticket: bytes, data: bytes, *, greets: bool, replies: bool) -> str:
    """Send the bytes on a connection with this ticket, or without one, and read until the other end closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if ticket:
            writer.write(frame(ticket))
        if greets and await asyncio.wait_for(reader.readexactly(HEAD_BYTES), HONEST_S) != frame(b""):
            raise Broken("the server does not greet on the connection that it offered")
        writer.write(data)
        if replies:
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), REPLY_S)
        if writer.can_write_eof():
            writer.write_eof()
        async with asyncio.timeout(LINK_S):
            while await reader.read(1 << 16):
                pass
    except TimeoutError:
        return "late"
    except (OSError, asyncio.IncompleteReadError):  # it has ended the connection already
        return "ended"
    finally:
        writer.close()
    return "ended"


async def _granted(wires: Wires, process: ServerProcess, call: str, request: Any) -> tuple[int, bytes]:
    """Return a port and a ticket. The server may have too many connections for now: then it is asked again."""
    while True:
        reply = await wires.call(process, call, request.SerializeToString(), HONEST_S)
        if not isinstance(reply, str) and reply is not None and reply.error.code == Code.OVERLOADED:
            await asyncio.sleep(0.01)
            continue
        if isinstance(reply, str) or reply is None or reply.error.code:
            raise Broken(f"an honest {call} is refused by {process.name}: {getattr(reply, 'error', reply)}")
        return reply.port, reply.ticket


async def _raft_place(cluster: RealCluster, wires: Wires) -> Place:
    """Make a replica of three whose other members the fuzzer plays."""
    prey = _ServerPrey(cluster, wires)
    at = address_to_pb(wires.played_at)
    peers = [pb.Member(uuid=u, addresses=[at], votes=True, holds_data=True) for u in (LEADER, THIRD)]
    config = pb.RaftConfig(members=[prey.first.member(), *peers])
    request = pb.CreateTabletRequest(
        dest_uuid=prey.first.uuid, tablet_id=prey.tablet, table=table_info(), config=config
    )
    await prey.done("TabletService.CreateTablet", request)
    last_port = 0

    async def send(data: bytes) -> str:
        nonlocal last_port
        whose = data[0] % 4 if data else 3
        if whose == 3 and last_port:
            return await _linked(last_port, b"", data[1:], greets=False, replies=False)
        sender = (LEADER, THIRD, prey.first.uuid, LEADER)[whose]
        link = pb.OpenLinkRequest(dest_uuid=prey.first.uuid, from_uuid=sender, from_address=at, process=NUMBER)
        last_port, ticket = await _granted(wires, prey.first, "PeerService.OpenLink", link)
        return await _linked(last_port, ticket, data[1:], greets=False, replies=False)

    return Place(send, _ids({ME: prey.first.uuid, TABLET: prey.tablet}))


async def _writes_place(cluster: RealCluster, wires: Wires) -> Place:
    prey = _ServerPrey(cluster, wires)
    await prey.create(prey.tablet)
    await prey.written()
    opens = pb.OpenWritesRequest(dest_uuid=prey.first.uuid)

    async def send(data: bytes) -> str:
        port, ticket = await _granted(wires, prey.first, "TabletService.OpenWrites", opens)
        return await _linked(port, ticket, data, greets=True, replies=len(data) % 2 == 0)

    return Place(send, prey.ids())


async def _copy_place(cluster: RealCluster, wires: Wires) -> Place:
    prey = _ServerPrey(cluster, wires)
    await prey.create(prey.tablet)
    await prey.written()
    await prey.begin_copy()
    opens = pb.OpenFetchRequest(dest_uuid=prey.first.uuid, session_id=prey.session)

    async def send(data: bytes) -> str:
        port, ticket = await _granted(wires, prey.first, "CopyService.OpenFetch", opens)
        return await _linked(port, ticket, data, greets=True, replies=len(data) % 2 == 0)

    return Place(send, prey.ids())


# ------------------------------------------------------------------------------------------------------------ topics


async def _topic_place(cluster: RealCluster, wires: Wires, topic: str) -> Place:
    """Make a table. Records about its tablet are of the config that it has, and name its servers."""
    if cluster.topics is None:
        raise ValueError(f"topic/{topic} needs a cluster with a broker: real_cluster(kafka=True)")
    request = pb.CreateTableRequest(table=master_table(buckets=1), request_id=f"prey-{cluster.number()}")
    await _master_done(cluster, wires, "CreateTable", request)
    tablet = await _formed(cluster, wires)
    members = sorted((m.uuid for m in tablet.config.members), key=lambda uuid: uuid != tablet.leader_uuid)
    other = next(s.uuid for s in cluster.processes.servers if s.uuid not in members)
    return Place(cluster.topics.sender(topic, tablet, [members[0], members[1], other]), {})


# ----------------------------------------------------------------------------------------------------------- registry

_LINKS: dict[str, Callable[[RealCluster, Wires], Awaitable[Place]]] = {
    "link/raft": _raft_place,
    "link/writes": _writes_place,
    "link/copy": _copy_place,
}
TOPICS = tuple(f"topic/{name}" for name in kafka_topics.PARTITIONS)
"""The topics that a master reads; with them the processes need a broker."""
BY_SPARK = "Spark's tasks read it, and no process of the cluster does"
NOT_SENT = {"link/rows": "a client reads it, and no process of the cluster does", "topic/dead-letters": BY_SPARK} | {
    f"topic/writes-{framing}": BY_SPARK for framing in kafka_topics.FRAMINGS
}
"""Calls, links and topics that have a target in this process only, each with the reason."""


def real_targets() -> list[str]:
    """Return the names of all targets whose inputs can be sent to processes, in the order of the targets."""
    calls = [f"server/{row.call}" for row in of_server.ROWS] + [f"master/{row.call}" for row in of_master.ROWS]
    return [*calls, *_LINKS, *TOPICS]


def chosen_real(words: Iterable[str]) -> list[str]:
    """Return the names that contain one of the words, all of them without a word; KeyError for a word in no name."""
    found: dict[str, None] = {}
    for word in list(words) or [""]:
        mine = [name for name in real_targets() if word in name]
        if not mine:
            raise KeyError(word)
        found |= dict.fromkeys(mine)
    return list(found)


async def place_of(name: str, cluster: RealCluster, wires: Wires) -> Place:
    """Remove all prey, and make that of a target."""
    await without_prey(cluster, wires)
    kind, _, what = name.partition("/")
    if kind == "link":
        return await _LINKS[name](cluster, wires)
    if kind == "topic":
        return await _topic_place(cluster, wires, what)
    return await (_server_place if kind == "server" else _master_place)(cluster, wires, what)


async def without_prey(cluster: RealCluster, wires: Wires) -> None:
    """Remove all that inputs have made."""
    await _master_as_before(cluster, wires)
    await _ServerPrey(cluster, wires).removed(cluster.own_tablets)
