"""Heartbeats to all masters: reports out, orders in."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count, islice
from typing import Any

import grpc
import grpc.aio

from nyala.replica.base import Address, Code, Refused, ReplicaError, __version__
from nyala.replica.rpc import address_to_pb, addresses_from_pb, as_refusal, error_from_pb, pb, pb_grpc

from .channels import Channels
from .gil_watch import GilWatch
from .manager import TabletManager
from .memory import MemoryGuard
from .other_masters import unheard_of
from .seeking import Seeker
from .service import create_tablet, delete_tablet, renew_tablet
from .status import replica_status
from .tasks import Tasks

_log = logging.getLogger("nyala.server")

TIMEOUT_S = 3.0
REFRESH_PER_BEAT = 20
"""Unchanged replicas reported again with each heartbeat, in turn, so that sizes and row counts stay fresh."""
ORDERS_RUNNING_MAX = 32


class Heartbeats:
    """One loop per master. A report is full the first time and when asked for, otherwise what changed and a few more.

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
        join: Callable[[str], Awaitable[None]],
        cluster_id: Callable[[], str],
        lost: Callable[[], Sequence[str]],
        found: Callable[[str, Sequence[Address]], None],
    ) -> None:
        """`join(cluster id)`: belong to that cluster from now on; Refused WRONG_CLUSTER if to another already.

        `lost()`: servers that this one seeks; `found(uuid, addresses)`: where a master says that one listens.
        """
        self._manager = manager
        self._channels = channels
        self._memory = memory
        self._gil = gil
        self._address = address
        self._join = join
        self._cluster_id = cluster_id
        self._lost = lost
        self._found = found
        self._changed: dict[Address, set[str]] = {}
        """Of every master that has a loop: the tablets to be told of next."""
        self._uuids: dict[Address, str] = {}
        """Of every master that has a loop: who answered there; empty before."""
        self._process = secrets.randbits(63) | 1
        """Tells the masters this process's heartbeats from those of one that ran here before."""
        self._sequence = count(1)
        self._orders: set[str] = set()
        self._order_tasks = Tasks(manager.on_fatal)
        self.booting = True

    @property
    def masters(self) -> set[Address]:
        """Where heartbeats go now."""
        return set(self._uuids)

    async def run_forever(self) -> None:
        """Beat until the server stops."""
        async with asyncio.TaskGroup() as group:
            for master in self._manager.options.masters:
                self._begin(group, master)

    def _begin(self, group: asyncio.TaskGroup, master: Address, listed: str = "") -> None:
        """`listed`: the uuid that other masters say is there; empty for one that we were told of."""
        self._changed[master], self._uuids[master] = set(), ""
        group.create_task(self._one_master(group, master, listed))

    def _hear_of_masters(self, group: asyncio.TaskGroup, reply: Any) -> None:
        """Begin a loop for every master that the masters of our cluster name and that has none: one that was added
        leads some day, and the one that we were told of may be gone by then [MF-32]."""
        if not reply.cluster_id or self._cluster_id() not in ("", reply.cluster_id):
            return
        listed = [(place.uuid, addresses_from_pb(place.addresses)) for place in reply.masters]
        for master, uuid in unheard_of(listed, self._uuids).items():
            _log.info("P %s hears of master %s", self._manager.uuid, master)
            self._begin(group, master, uuid)

    def _answers_elsewhere(self, master: Address, uuid: str) -> bool:
        """Whether the same master answers under an address that we were told: one loop is enough."""
        told = self._manager.options.masters
        return bool(uuid) and master not in told and any(self._uuids[other] == uuid for other in told)

    async def _one_master(self, group: asyncio.TaskGroup, master: Address, listed: str) -> None:
        """Who refused or was silent, such as one that does not lead, is only asked, and is told everything at once when
        it takes a heartbeat: what it was told before it has forgotten, or never heard."""
        manager = self._manager
        master_uuid, heard, full, place, away, refused = "", False, False, 0, False, None
        changed, seeker = self._changed[master], Seeker()
        while not manager.stopping:
            self._spread_changes()
            tablets = sorted(manager.tablets)
            reported = set(changed)
            changed.clear()
            full = full or not reported <= manager.tablets.keys()  # only a full report tells what is no longer here
            if not heard:
                chosen = []
            elif full:
                chosen = tablets
            else:
                place = place + REFRESH_PER_BEAT if place + REFRESH_PER_BEAT < len(tablets) else 0
                chosen = sorted(reported | set(islice(tablets, place, place + REFRESH_PER_BEAT)))
            try:
                reply = await self._beat(master, master_uuid, heard and full, chosen, seeker)
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
                    _log.info("P %s master %s refused a heartbeat: %s", manager.uuid, master, error)
                if away:
                    _log.info("P %s master %s answers again", manager.uuid, master)
                away, refused, before, heard = False, code, heard, error is None
                master_uuid = "" if code is Code.INVALID_NAME else reply.master_uuid
                if heard:
                    full = reply.need_full_report or not before
                    for listing in reply.found:
                        self._found(listing.uuid, addresses_from_pb(listing.addresses))
                    self._carry_out(reply.orders)
                    if not before:
                        continue
            except grpc.aio.AioRpcError as error:
                heard, self._uuids[master] = False, ""
                if self._answers_elsewhere(master, listed):
                    del self._changed[master], self._uuids[master]
                    return
                if not away:
                    _log.info("P %s master %s does not answer: %s", manager.uuid, master, error.code().name)
                away = True
            await asyncio.sleep(manager.options.heartbeat_ms / 1000)

    async def _refusal(self, reply: Any) -> Refused | None:
        """Why this master's reply counts for nothing: it refused us, or we refuse it."""
        error, own = error_from_pb(reply.error), self._cluster_id()
        if error is not None and error.code is not Code.WRONG_CLUSTER and own and reply.cluster_id not in ("", own):
            return Refused(
                Code.WRONG_CLUSTER, "the master belongs to another cluster", cluster=reply.cluster_id, own=own
            )
        if error is not None or not reply.cluster_id:
            return error
        try:
            await self._join(reply.cluster_id)
        except Refused as refused:
            return refused
        return None

    def _tell_of_cluster(self, master: Address, offered: str, foreign: bool) -> None:
        if not foreign:
            _log.warning("P %s master %s belongs to our cluster again", self._manager.uuid, master)
            return
        _log.error(
            "P %s master %s belongs to cluster %s, this server to %s: its orders are ignored, the %d tablets here are "
            "kept and served. Bring back the masters of this cluster, or name them with --masters",
            self._manager.uuid,
            master,
            offered or "(unknown)",
            self._cluster_id(),
            len(self._manager.tablets),
        )

    def _spread_changes(self) -> None:
        if self._manager.changed:
            for waiting in self._changed.values():
                waiting |= self._manager.changed
            self._manager.changed.clear()

    async def _beat(self, master: Address, master_uuid: str, full: bool, chosen: list[str], seeker: Seeker) -> Any:
        manager, sequence = self._manager, next(self._sequence)
        statuses = [
            replica_status(manager.tablets[t], manager.uuid, manager.options.tick_ms)
            for t in chosen
            if t in manager.tablets
        ]
        free = await asyncio.to_thread(os.statvfs, manager.options.root)  # a mount may hang, the loop must not
        request = pb.HeartbeatRequest(
            dest_uuid=master_uuid,
            server_uuid=manager.uuid,
            addresses=[address_to_pb(self._address)],
            sequence=sequence,
            process=self._process,
            full_report=full,
            replicas=statuses,
            booting=self.booting,
            location=manager.options.location,
            memory_bytes=self._memory.used_bytes,
            disk_bytes_free=free.f_bavail * free.f_frsize,
            version=__version__,
            cluster_id=self._cluster_id(),
            tablets_max=manager.options.tablets_max,
            loop_lag_ms_max=manager.ticker.lag_ms_max,
            gil_hold_ms_max=self._gil.hold_ms_max,
            seeking=seeker.due(self._lost(), time.monotonic()),
            copies_failing=self._copies_failing(),
        )
        stub = pb_grpc.MasterServiceStub(self._channels.get(str(master)))  # type: ignore[no-untyped-call]
        return await stub.Heartbeat(request, timeout=TIMEOUT_S)

    def _copies_failing(self) -> list[Any]:
        manager = self._manager
        under_way = {h.tablet_id for h in manager.tablets.values() if h.copy is not None}
        found = manager.copy_failures.lasting(under_way)
        return [pb.FailingCopy(tablet_id=f.tablet_id, failures=f.count, error=f.reason) for f in found]

    def _carry_out(self, orders: Any) -> None:
        """Start what the masters order and is not under way; they repeat whatever is not yet done."""
        for order in orders:
            request, act = _meant(order)
            if request.tablet_id in self._orders or len(self._orders) >= ORDERS_RUNNING_MAX:
                continue
            self._orders.add(request.tablet_id)
            self._order_tasks.start(self._order(request, act))

    async def _order(self, request: Any, act: Callable[[TabletManager, Any], Awaitable[Any]]) -> None:
        manager = self._manager
        try:
            if request.dest_uuid != manager.uuid:
                _log.warning("P %s dropped an order for %s", manager.uuid, request.dest_uuid or "(nobody)")
                return
            await act(manager, request)
        except ReplicaError as error:
            refusal = as_refusal(error, manager.on_fatal)
            _log.info("T %s P %s could not carry out an order: %s", request.tablet_id, manager.uuid, refusal)
        finally:
            self._orders.discard(request.tablet_id)
            manager.changed.add(request.tablet_id)


def _meant(order: Any) -> tuple[Any, Callable[[TabletManager, Any], Awaitable[Any]]]:
    """The request of an order, and what carries it out."""
    if order.HasField("create"):
        return order.create, create_tablet
    if order.HasField("renew"):
        return order.renew, renew_tablet
    return order.delete, delete_tablet
