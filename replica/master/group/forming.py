"""Forms the group of several masters at their first start: each asks the others for their uuids, and all compute the
same config."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

import grpc.aio

from nyala.replica.fs import MASTER
from nyala.replica.rpc import (
    ANSWER_CHANNEL_OPTIONS,
    MASTER_ROLE,
    address_from_pb,
    async_channel_to,
    channel_for_one_call,
    check_reply,
    failed_call,
    feature_level_from_pb,
    pb,
    pb_grpc,
)
from nyala.replica.types import Address, Code, Member, OpId, RaftConfig, Refused, is_uuid

_log = logging.getLogger("nyala.master")
ASK_TIMEOUT_S = 2.0
ASK_PAUSE_S = 0.2
_SENDER = "the master"


async def form(own: Member, peers: Sequence[Address]) -> RaftConfig:
    """Wait until all masters at `peers` have answered, and return the first config of their group, which is the same on
    each.

    Refused ILLEGAL_STATE if one of them already belongs to a group without this master. Nothing is written before that,
    so a master that dies here starts over. Cancel it to give up.
    """
    others = [a for a in dict.fromkeys(peers) if a not in own.addresses]
    found = await asyncio.gather(*(_identity(address, own.uuid) for address in others))
    members = {own.uuid: own, **{uuid: Member(uuid, (address,)) for uuid, address in found}}
    return RaftConfig(OpId(0, 0), tuple(members[u] for u in sorted(members)))


def _check_group(members: Sequence[str], own: str, other: str, address: Address) -> None:
    """Raise Refused if the other master belongs to a group without this one. Before its group is formed, the config has
    no members."""
    if not members or own in members:
        return
    what = (
        "the masters already are a group without this one: it would begin a catalog of its own. To replace a lost "
        "master, `nyala fs format --kind master --uuid` an empty directory with that one's uuid, then "
        "`nyala master copy-from`; nothing was changed"
    )
    raise Refused(Code.ILLEGAL_STATE, what, uuid=own, asked=f"{other}@{address}", members=" ".join(members))


class MasterBuild(NamedTuple):
    """The identity and the build of a master, as it reports them."""

    uuid: str
    feature_level: int
    """The highest feature level that its build knows."""
    version: str
    cluster_id: str = ""
    joins: str = ""
    """The cluster that it waits to join; empty if it does not wait."""
    advertised: Address | None = None
    """The address at which a waiting master can be reached, by its own answer."""
    takes_changes: bool = False
    """Whether its build follows changes of the group's members."""


async def ask_build(address: Address) -> MasterBuild:
    """The uuid and the build of the master at an address; Refused UNAVAILABLE if none answers in time, and
    CORRUPTION after an answer that no master sends."""
    async with channel_for_one_call(address, ANSWER_CHANNEL_OPTIONS, to=MASTER_ROLE) as channel:
        found = await pb_grpc.MasterServiceStub(channel).GetIdentity(pb.Empty(), timeout=ASK_TIMEOUT_S)
    check_reply(found, _SENDER)
    joining = found.joining
    return MasterBuild(
        found.uuid,
        feature_level_from_pb(found.feature_level),
        found.version,
        cluster_id=found.cluster_id,
        joins=joining.cluster_id,
        advertised=address_from_pb(joining.address) if joining.HasField("address") else None,
        takes_changes=found.takes_changes,
    )


async def _identity(address: Address, own: str) -> tuple[str, Address]:
    async with async_channel_to(address, ANSWER_CHANNEL_OPTIONS, to=MASTER_ROLE) as channel:
        stub = pb_grpc.MasterServiceStub(channel)
        waiting = ""
        while True:
            try:
                reply = check_reply(await stub.GetIdentity(pb.Empty(), timeout=ASK_TIMEOUT_S), _SENDER)
                if reply.kind == MASTER and is_uuid(reply.uuid):
                    status = check_reply(await stub.Status(pb.Empty(), timeout=ASK_TIMEOUT_S), _SENDER)
                    _check_group([m.uuid for m in status.replica.committed_config.members], own, reply.uuid, address)
                    return reply.uuid, address
                why = f"what answers there is no master but a {reply.kind or 'process of no kind'}"
            except grpc.aio.AioRpcError as error:
                why = str(failed_call(error, address, ANSWER_CHANNEL_OPTIONS))
            except Refused as refused:
                if refused.code is not Code.CORRUPTION:
                    raise
                why = str(refused)
            if why != waiting:
                _log.info("waiting for the master at %s: %s", address, why)
            waiting = why
            await asyncio.sleep(ASK_PAUSE_S)
