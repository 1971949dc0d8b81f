"""A master's calls to tablet servers: the identity of the one at an address, and its reports of tablets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import grpc
import grpc.aio

from nyala.replica.rpc import (
    ANSWER_CHANNEL_OPTIONS,
    SERVER_ROLE,
    channel_for_one_call,
    check_reply,
    check_status,
    pb,
    pb_grpc,
    raise_if_error,
    reported_replica_from_pb,
)
from nyala.replica.types import Address, Code, Refused, ReportedReplica

ASK_TIMEOUT_S = 1.5
"""The time-out of a call: half of the time that a server waits for the reply to its heartbeat."""


class Identity(NamedTuple):
    """The identity of the process at an address. `cluster_id`: empty before it has joined one."""

    uuid: str
    kind: str
    cluster_id: str


_SENDER = "the tablet server"


def reports_in(reply: pb.ListTabletsReply, uuid: str, asked: int) -> Sequence[ReportedReplica]:
    """The reports in the answer of server `uuid` about `asked` tablets; Refused for an answer that no server sends.
    Pure."""
    if len(reply.replicas) > asked:
        what = f"{_SENDER} sent more reports than this master asked for. None of them was used. Look at that server"
        raise Refused(Code.CORRUPTION, what, server=uuid, reports=len(reply.replicas), asked=asked)
    raise_if_error(check_reply(reply, _SENDER).error)
    for status in reply.replicas:
        check_status(status, uuid)
    return [reported_replica_from_pb(status) for status in reply.replicas]


class TabletServers(Protocol):
    """Calls to tablet servers. All methods raise Refused: UNAVAILABLE without an answer in time, CORRUPTION after an
    answer that no honest server sends or that is too long."""

    async def identity(self, address: Address) -> Identity:
        """The identity of the process at the address."""
        ...

    async def is_process(self, uuid: str, address: Address, process: int) -> bool | None:
        """Whether the server `uuid` at the address sends the heartbeats with that number; None if it does not know this
        call."""
        ...

    async def replicas(
        self, uuid: str, addresses: Sequence[Address], tablet_ids: Sequence[str]
    ) -> Sequence[ReportedReplica]:
        """The reports of server `uuid` about these tablets; refused if another process answers at the address."""
        ...


class GrpcTabletServers:
    """Calls over gRPC with a separate connection for each. They are few, and an unproven address must not keep a
    connection. An answer is bounded before it is parsed, and checked before it is used, because any process may be a
    tablet server."""

    async def identity(self, address: Address) -> Identity:
        """See `TabletServers`."""
        async with channel_for_one_call(address, ANSWER_CHANNEL_OPTIONS, to=SERVER_ROLE) as channel:
            reply = await pb_grpc.TabletServiceStub(channel).GetIdentity(pb.Empty(), timeout=ASK_TIMEOUT_S)
        check_reply(reply, _SENDER)
        return Identity(reply.uuid, reply.kind, reply.cluster_id)

    async def is_process(self, uuid: str, address: Address, process: int) -> bool | None:
        """See `TabletServers`."""
        async with channel_for_one_call(address, ANSWER_CHANNEL_OPTIONS, to=uuid) as channel:
            request = pb.ProcessRequest(dest_uuid=uuid, process=process)
            try:
                reply = await pb_grpc.TabletServiceStub(channel).IsProcess(request, timeout=ASK_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    return None  # a server of an older build
                raise
        raise_if_error(check_reply(reply, _SENDER).error)
        return bool(reply.same)

    async def replicas(
        self, uuid: str, addresses: Sequence[Address], tablet_ids: Sequence[str]
    ) -> Sequence[ReportedReplica]:
        """See `TabletServers`."""
        async with channel_for_one_call(next(iter(addresses)), ANSWER_CHANNEL_OPTIONS, to=uuid) as channel:
            request = pb.ListTabletsRequest(dest_uuid=uuid, tablet_ids=tablet_ids)
            reply = await pb_grpc.TabletServiceStub(channel).ListTablets(request, timeout=ASK_TIMEOUT_S)
        return reports_in(reply, uuid, len(tablet_ids))
