"""How several masters find each other at their first start: everybody asks everybody's uuid, and all get one config."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import grpc.aio

from nyala.replica.base import Address, Member, OpId, RaftConfig, is_uuid
from nyala.replica.disk import MASTER
from nyala.replica.rpc import CHANNEL_OPTIONS, pb, pb_grpc

_log = logging.getLogger("nyala.master")
ASK_TIMEOUT_S = 2.0
ASK_PAUSE_S = 0.2


async def form(own: Member, peers: Sequence[Address]) -> RaftConfig:
    """The first config of a group of masters at `peers`, equal on each of them. Waits until all have answered.

    Nothing is written before that, so a master that dies here starts over. Cancel it to give up.
    """
    others = [a for a in dict.fromkeys(peers) if a not in own.addresses]
    found = await asyncio.gather(*(_identity(address) for address in others))
    members = {own.uuid: own, **{uuid: Member(uuid, (address,)) for uuid, address in found}}
    return RaftConfig(OpId(0, 0), tuple(members[u] for u in sorted(members)))


async def _identity(address: Address) -> tuple[str, Address]:
    async with grpc.aio.insecure_channel(str(address), options=CHANNEL_OPTIONS) as channel:
        stub = pb_grpc.MasterServiceStub(channel)  # type: ignore[no-untyped-call]
        waiting = False
        while True:
            try:
                reply = await stub.GetIdentity(pb.Empty(), timeout=ASK_TIMEOUT_S)
                if reply.kind == MASTER and is_uuid(reply.uuid):
                    return reply.uuid, address
            except grpc.aio.AioRpcError as error:
                if not waiting:
                    _log.info("waiting for the master at %s: %s", address, error.code().name)
                waiting = True
            await asyncio.sleep(ASK_PAUSE_S)
