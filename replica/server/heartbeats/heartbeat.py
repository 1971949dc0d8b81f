"""Heartbeats to all masters: sends reports, and carries out the orders in the replies."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import count
from typing import Any

import grpc
import grpc.aio

from nyala.replica.raft import too_far
from nyala.replica.rpc import (
    MASTER_ROLE,
    Report,
    ReportState,
    address_to_pb,
    addresses_from_pb,
    as_refusal,
    check_fields,
    check_reply,
    error_from_pb,
    pb,
    pb_grpc,
)
from nyala.replica.types import Address, Code, Refused, ReplicaError, __version__, limits
from nyala.replica.types.log_records import About, about
from nyala.schemas import build_level

from ..requests.tablet_service import create_tablet, delete_tablet, renew_tablet
from ..runtime.channels import Channels
from ..runtime.gil_watch import GilWatch
from ..runtime.identity import Identity
from ..runtime.memory import MemoryGuard
from ..runtime.resources import ResourceWatch
from ..runtime.tasks import Tasks
from ..tablets.manager import TabletManager
from ..tablets.status import replica_status
from .other_masters import former_masters, read_known_masters, unheard_of, write_known_masters
from .seeking import Seeker

_Ordered = pb.CreateTabletRequest | pb.DeleteTabletRequest
_log = logging.getLogger("nyala.server")

TIMEOUT_S = 3.0
ORDERS_RUNNING_MAX = 32
ERROR_CHARS_MAX = limits.COPY_ERROR_CHARS_MAX
"""The most characters of the reason why a copy failed, because each heartbeat lists all failing copies."""


class Heartbeats:
    """One loop for each master.

    A report is full the first time, and when the master asks for that. Otherwise it has the changed replicas, and a few
    more.
    Concurrency: the loop's thread.
    """

    def __init__(
        self,
        manager: TabletManager,
        channels: Channels,
        memory: MemoryGuard,
        gil: GilWatch,
        address: Address,
        *,
        resources: ResourceWatch,
        process: int,
        identity: Identity,
        unreachable: Callable[[], Sequence[str]],
        found: Callable[[str, Sequence[Address]], None],
    ) -> None:
        """`identity`: this server's identity. It joins the first cluster whose masters answer.

        `process`: a number by which masters distinguish this process's heartbeats from those of another process.
        `unreachable()`: the servers that this one cannot reach; `found(uuid, addresses)`: called with the addresses
        that a master names.
        """
        self._manager = manager
        self._channels = channels
        self._memory = memory
        self._gil = gil
        self._resources = resources
        self._address = address
        self._identity = identity
        self._unreachable = unreachable
        self._found = found
        self._changed: dict[Address, set[str]] = {}
        """The tablets that changed since the last report, for each master that has a loop."""
        self._uuids: dict[Address, str] = {}
        """The uuid that answered, for each master that has a loop; empty before."""
        self._process = process
        self._sequence = count(1)
        self._orders: set[str] = set()
        self._listed: tuple[Address, ...] = ()
        """The addresses of the masters that the leading one named last, in this process or before."""
        self._former: frozenset[Address] = frozenset()
        self._order_tasks = Tasks(manager.on_fatal)
        self.replies_refused = 0
        """The number of replies and orders that were dropped, because no honest master sends them."""
        self.booting = True
        self.registered = False
        """Whether a leading master has taken a heartbeat of this process."""
        self.refusal = ""
        """The reason of the last refused heartbeat, except that the master does not lead."""

    @property
    def masters(self) -> set[Address]:
        """The addresses to which heartbeats are sent now."""
        return set(self._uuids)

    async def run_forever(self) -> None:
        """Send heartbeats until the server stops."""
        async with asyncio.TaskGroup() as group:
            self._listed = await asyncio.to_thread(read_known_masters, self._manager.disk)
            for master in dict.fromkeys((*self._manager.options.masters, *self._listed)):
                self._begin(group, master)

    def _begin(self, group: asyncio.TaskGroup, master: Address, listed: str = "") -> None:
        """Begin a loop. `listed`: the uuid that other masters name for the address; empty for one of `--masters`."""
        self._changed[master], self._uuids[master] = set(), ""
        group.create_task(self._one_master(group, master, listed))

    def _hear_of_masters(self, group: asyncio.TaskGroup, reply: pb.HeartbeatReply) -> None:
        """Begin a loop for every master that a reply of our cluster names and that has none. An added master may lead
        later, when those of `--masters` are gone [MF-32]."""
        if not reply.cluster_id or self._identity.cluster_id not in ("", reply.cluster_id):
            return
        listed = [(place.uuid, addresses_from_pb(place.addresses)) for place in reply.masters]
        for master, uuid in unheard_of(listed, self._uuids).items():
            if master in self._former:
                continue  # a follower that lags behind still names it
            self._log_of(master).info("hears of master %s", master)
            self._begin(group, master, uuid)

    async def _remember(self, reply: pb.HeartbeatReply) -> None:
        """Store the masters that the leading one names, if they have changed. Other masters answer with an error."""
        listed = tuple(address for place in reply.masters for address in addresses_from_pb(place.addresses))
        if not listed or listed == self._listed:
            return
        try:
            await asyncio.to_thread(write_known_masters, self._manager.disk, listed)
        except ReplicaError as error:
            _log.warning("P %s could not store the masters' addresses: %s", self._manager.uuid, error)
        self._former = former_masters(self._former, self._listed, listed)
        self._listed = listed

    def _answers_elsewhere(self, master: Address, uuid: str) -> bool:
        """Whether the same master answers at an address of `--masters`, so that one loop is enough."""
        told = self._manager.options.masters
        return bool(uuid) and master not in told and any(self._uuids[other] == uuid for other in told)

    async def _one_master(self, group: asyncio.TaskGroup, master: Address, listed: str) -> None:
        """Report to one master and carry out its orders, until the server stops."""
        manager = self._manager
        master_uuid, away, refused = "", False, None
        changed, seeker, state = self._changed[master], Seeker(), ReportState()
        while not manager.stopping:
            if master in self._former and master not in manager.options.masters:
                self._log_of(master).info("master %s has left the masters", master)
                del self._changed[master], self._uuids[master]
                return
            self._spread_changes()
            report = state.next(sorted(manager.tablets), changed, self._status)
            try:
                reply = await self._beat(master, master_uuid, report, seeker)
                error = await self._refusal(reply)
                code = error.code if error is not None else None
                self._uuids[master] = reply.master_uuid
                if self._answers_elsewhere(master, reply.master_uuid):
                    del self._changed[master], self._uuids[master]
                    return
                self._hear_of_masters(group, reply)
                if (code is Code.WRONG_CLUSTER) is not (refused is Code.WRONG_CLUSTER):
                    self._tell_of_cluster(master, reply.cluster_id, code is Code.WRONG_CLUSTER)
                elif error is not None and code not in (refused, Code.INVALID_NAME):
                    self._log_of(master).info("master %s refused a heartbeat: %s", master, error)
                if away:
                    self._log_of(master).info("master %s answers again", master)
                away, refused = False, code
                master_uuid = "" if code is Code.INVALID_NAME else reply.master_uuid
                if error is not None:
                    state.not_taken()
                    self.refusal = self.refusal if code is Code.NOT_LEADER else str(error)
                else:
                    self.registered = True
                    await self._remember(reply)
                    first = state.taken(reply)
                    for listing in reply.found:
                        self._found(listing.uuid, addresses_from_pb(listing.addresses))
                    self._carry_out(reply.orders)
                    if first:
                        continue
            except Refused as error:  # a reply that no master sends
                state.not_taken()
                self.replies_refused += 1
                if refused is not error.code:
                    self._log_of(master).error("dropped a reply of master %s: %s", master, error)
                refused = error.code
            except grpc.aio.AioRpcError as error:
                self._uuids[master] = ""
                state.not_taken()
                if self._answers_elsewhere(master, listed):
                    del self._changed[master], self._uuids[master]
                    return
                if not away:
                    self._log_of(master).info("master %s does not answer: %s", master, error.code().name)
                away = True
            await asyncio.sleep(manager.options.heartbeat_ms / 1000)

    async def _refusal(self, reply: pb.HeartbeatReply) -> Refused | None:
        """The reason why this server does not use the master's reply: either of them refused the other. None if it uses
        the reply."""
        error, own = error_from_pb(reply.error), self._identity.cluster_id
        if error is not None and error.code is not Code.WRONG_CLUSTER and own and reply.cluster_id not in ("", own):
            return Refused(
                Code.WRONG_CLUSTER,
                "the master belongs to another cluster: start this server with the masters of its own, or with an "
                "empty directory",
                cluster=reply.cluster_id,
                own=own,
            )
        if error is not None or not reply.cluster_id:
            return error
        try:
            await self._identity.join(reply.cluster_id)
            await self._learn_level(reply.finalized_level)
        except Refused as refused:
            return refused
        self._manager.catalog_term = max(self._manager.catalog_term, reply.catalog_term)
        return None

    def _log_of(self, master: Address) -> About:
        return about(_log, process=self._manager.uuid, peer=str(master))

    async def _learn_level(self, level: int) -> None:
        """Write the cluster's feature level into the directory, before anything is written in its formats."""
        if level > self._identity.feature_level:
            await self._identity.raise_feature_level(level)
            _log.info(
                "P %s the cluster's feature level is %d: earlier builds cannot start here", self._manager.uuid, level
            )

    def _tell_of_cluster(self, master: Address, offered: str, foreign: bool) -> None:
        if not foreign:
            self._log_of(master).warning("master %s belongs to our cluster again", master)
            return
        self._log_of(master).error(
            "master %s belongs to cluster %s, this server to %s: its orders are ignored, the %d tablets here are "
            "kept and served. Bring back the masters of this cluster, or name them with --masters",
            master,
            offered or "(unknown)",
            self._identity.cluster_id,
            len(self._manager.tablets),
        )

    def _spread_changes(self) -> None:
        if self._manager.changed:
            for waiting in self._changed.values():
                waiting |= self._manager.changed
            self._manager.changed.clear()

    def _status(self, tablet_id: str) -> pb.ReplicaStatus:
        manager = self._manager
        return replica_status(manager.tablets[tablet_id], manager.uuid, manager.options.tick_ms)

    async def _beat(self, master: Address, master_uuid: str, report: Report, seeker: Seeker) -> pb.HeartbeatReply:
        manager, sequence = self._manager, next(self._sequence)
        free = await asyncio.to_thread(os.statvfs, manager.options.root)  # on a thread, because a mount may hang
        request = pb.HeartbeatRequest(
            dest_uuid=master_uuid,
            server_uuid=manager.uuid,
            addresses=[address_to_pb(self._address)],
            sequence=sequence,
            process=self._process,
            full_report=report.full,
            replicas=report.statuses,
            slice_after=report.after,
            slice_until=report.until,
            booting=self.booting,
            quiescing=manager.quiescing,
            location=manager.options.location,
            memory_bytes=self._memory.used_bytes,
            disk_bytes_free=free.f_bavail * free.f_frsize,
            version=__version__,
            feature_level=build_level(),
            finalized_level=self._identity.feature_level,
            cluster_id=self._identity.cluster_id,
            tablets_max=manager.options.tablets_max,
            loop_lag_ms_max=manager.ticker.lag_ms_max,
            gil_hold_ms_max=self._gil.hold_ms_max,
            open_files=pb.ResourceUse(**self._resources.files._asdict()),
            memory_maps=pb.ResourceUse(**self._resources.maps._asdict()),
            seeking=seeker.due(self._unreachable(), time.monotonic()),
            copies_failing=self._copies_failing(),
        )
        stub = pb_grpc.MasterServiceStub(self._channels.get(str(master), MASTER_ROLE))
        reply: pb.HeartbeatReply = await stub.Heartbeat(request, timeout=TIMEOUT_S)
        return self._checked(reply)

    def _checked(self, reply: pb.HeartbeatReply) -> pb.HeartbeatReply:
        """Return the reply; Refused(CORRUPTION) for one that no master sends."""
        check_reply(reply, "the master")
        known, level = self._manager.catalog_term, build_level()
        if too_far(known, reply.catalog_term):
            # Decisions of lower terms would count as old for ever.
            what = "the master names a term that no group can have reached. Its reply was not used. Look at that master"
            raise Refused(Code.CORRUPTION, what, catalog_term=reply.catalog_term, known=known)
        if reply.finalized_level > level and not reply.error.code:
            # This build could not open a directory that has that level.
            what = "the master names a level above this build's. Its reply was not used. Look at that master, or start "
            what += "the newer build here"
            raise Refused(Code.CORRUPTION, what, finalized_level=reply.finalized_level, build_level=level)
        return reply

    def _copies_failing(self) -> list[pb.FailingCopy]:
        manager = self._manager
        under_way = {h.tablet_id for h in manager.tablets.values() if h.copy is not None}
        found = manager.copy_failures.lasting(under_way)
        return [
            pb.FailingCopy(tablet_id=f.tablet_id, failures=f.count, error=f.reason[:ERROR_CHARS_MAX]) for f in found
        ]

    def _carry_out(self, orders: Iterable[pb.TabletOrder]) -> None:
        """Start the orders that are not under way. The masters repeat each order until it is carried out."""
        for order in orders:
            request, act = _meant(order)
            if request.tablet_id in self._orders or len(self._orders) >= ORDERS_RUNNING_MAX:
                continue
            self._orders.add(request.tablet_id)
            self._order_tasks.start(self._order(request, act))

    async def _order(self, request: _Ordered, act: Callable[[TabletManager, Any], Awaitable[object]]) -> None:
        manager = self._manager
        try:
            if request.dest_uuid != manager.uuid:
                _log.warning("P %s dropped an order for %s", manager.uuid, request.dest_uuid or "(nobody)")
                return
            self._check_order(request)
            await act(manager, request)
        except ReplicaError as error:
            refusal = as_refusal(error, manager.on_fatal)
            about(_log, request.tablet_id, manager.uuid).info("could not carry out an order: %s", refusal)
        finally:
            self._orders.discard(request.tablet_id)
            manager.changed.add(request.tablet_id)

    def _check_order(self, request: _Ordered) -> None:
        try:
            check_fields(request)
        except Refused:
            self.replies_refused += 1
            raise


def _meant(order: pb.TabletOrder) -> tuple[_Ordered, Callable[[TabletManager, Any], Awaitable[object]]]:
    """The request of an order, and the function that carries it out."""
    if order.HasField("create"):
        return order.create, create_tablet
    if order.HasField("renew"):
        return order.renew, renew_tablet
    return order.delete, delete_tablet
