"""A new master joins the group of running masters: it waits until they have added it, and copies the catalog.

The new master itself asks the others; no request makes it copy. It trusts the masters at the addresses of its option
`--join`, and those that they name. It does not vote or acknowledge before it has the catalog: until then it drops every
message of the group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import grpc.aio

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import MASTER
from nyala.replica.rpc import (
    ANSWER_CHANNEL_OPTIONS,
    MASTER_ROLE,
    channel_for_one_call,
    check_reply,
    config_from_pb,
    pb,
    pb_grpc,
)
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import CopyAttempt, TargetCopy, settle_at_startup
from nyala.replica.tablet_copy.wire import RemoteCopySource
from nyala.replica.types import (
    ZERO_OPID,
    Address,
    Code,
    Disk,
    DiskFailure,
    HybridClock,
    Member,
    RaftConfig,
    Refused,
    ReplicaError,
    SystemClock,
    limits,
)
from nyala.replica.types.log_records import about

from ..catalog.catalog import CATALOG_ID
from .startup_checks import has_catalog

_log = logging.getLogger("nyala.master")
ASK_TIMEOUT_S = 2.0
ASK_PAUSE_S = 0.2


class MasterSeen(NamedTuple):
    """The answer of a master about itself and its group."""

    uuid: str
    cluster_id: str
    leads: bool
    config: RaftConfig


async def ask_master(address: Address) -> MasterSeen | None:
    """The master at an address and its group; None if none answers, or if it belongs to no group yet."""
    try:
        async with channel_for_one_call(address, ANSWER_CHANNEL_OPTIONS, to=MASTER_ROLE) as channel:
            stub = pb_grpc.MasterServiceStub(channel)
            identity = check_reply(await stub.GetIdentity(pb.Empty(), timeout=ASK_TIMEOUT_S), "the master")
            replica = check_reply(await stub.Status(pb.Empty(), timeout=ASK_TIMEOUT_S), "the master").replica
        if identity.kind != MASTER or not identity.cluster_id or not replica.committed_config.members:
            return None
        config = config_from_pb(replica.committed_config)
        return MasterSeen(identity.uuid, identity.cluster_id, replica.role == "LEADER", config)
    except (grpc.aio.AioRpcError, ReplicaError):
        return None


class Joining:
    """Waits until the group has added this new master, and copies the catalog.

    Concurrency: the loop's thread; the copy runs in a thread of its own.
    """

    def __init__(self, disk: Disk, own: Member, told: Sequence[Address]) -> None:
        """`told`: the addresses of masters of the group, from `--join`."""
        self._disk = disk
        self.own = own
        self.cluster_id = ""
        """The cluster of the masters at `told`; empty before one of them has answered."""
        self._asked = dict.fromkeys(told)

    async def run(self, stopped: Callable[[], bool]) -> RaftConfig:
        """The group's config, once the whole catalog is here.

        Refused WRONG_CLUSTER if the addresses belong to masters of two clusters, and INVALID_ARGUMENT if the group has
        this master at another address than its own. Cancel the call to give up.
        """
        _log.info("P %s waits until the masters at %s add it", self.own.uuid, ",".join(map(str, self._asked)))
        while not has_catalog(self._disk):
            for address in list(self._asked):
                seen = await ask_master(address)
                if seen is None:
                    continue
                self._learn(seen, address)
                if seen.leads and seen.config.member(self.own.uuid) is not None:
                    await self._copy(seen.uuid, address, stopped)
                    break
            await asyncio.sleep(ASK_PAUSE_S)
        return ConsensusMeta.load(self._disk, CATALOG_ID).committed_config

    def _learn(self, seen: MasterSeen, address: Address) -> None:
        if self.cluster_id not in ("", seen.cluster_id):
            what = "--join names masters of two clusters; nothing was changed"
            raise Refused(Code.WRONG_CLUSTER, what, at=address, cluster=seen.cluster_id, other=self.cluster_id)
        self.cluster_id = seen.cluster_id
        for member in seen.config.members:
            if member.uuid != self.own.uuid and len(self._asked) < limits.MASTER_ADDRESSES_MAX:
                self._asked.update(dict.fromkeys(member.addresses))
        mine = seen.config.member(self.own.uuid)
        if mine is not None and not set(mine.addresses) & set(self.own.addresses):
            what = "the group has this master at another address than that of its --advertise or --listen"
            raise Refused(Code.INVALID_ARGUMENT, what, told=self.own.addresses[0], agreed=mine.addresses[0])

    async def _copy(self, leader: str, address: Address, stopped: Callable[[], bool]) -> None:
        log = about(_log, process=self.own.uuid, peer=leader)
        try:
            await asyncio.to_thread(copy_from_leader, self._disk, self.own.uuid, leader, address, stopped)
            log.info("has copied the catalog from %s@%s", leader, address)
        except DiskFailure:
            raise
        except (ReplicaError, grpc.RpcError, OSError) as error:
            log.warning("could not copy the catalog from %s@%s: %s", leader, address, error)


def copy_from_leader(disk: Disk, uuid: str, leader: str, address: Address, stopped: Callable[[], bool]) -> None:
    """Copy the catalog to a directory that has none, COPY.1 to COPY.5. An earlier copy that did not end is begun
    again."""

    def local(_check: object = None) -> Superblock | None:
        if not Superblock.exists(disk, CATALOG_ID):
            return None
        return settle_at_startup(disk, Superblock.load(disk, CATALOG_ID))

    before = local()
    last = before.last_logged if before is not None else None
    term = ConsensusMeta.load(disk, CATALOG_ID).term if ConsensusMeta.exists(disk, CATALOG_ID) else 0
    source = RemoteCopySource(leader, [address], limits.COPY_BEGIN_CATALOG_S_MAX)
    try:
        attempt = CopyAttempt(
            disk=disk,
            tablet_id=CATALOG_ID,
            uuid=uuid,
            source=source,
            cancelled=stopped,
            ahead_us=HybridClock(SystemClock()).ahead_us,
        )
        TargetCopy(attempt, own_last_opid=last or ZERO_OPID, own_term=term, stop_and_delete=local).run()
    finally:
        source.close()
