"""One master process: open, listen, tick, and end in order."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine
from typing import Any

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import (
    MASTER,
    RAFT_FOLDERS,
    FolderWatch,
    Instance,
    RealDisk,
    lock_root,
    open_or_format,
    say_ready,
    when_parent_ends,
)
from nyala.replica.rpc import (
    MASTER_ROLE,
    ConnectionBound,
    RequestChecks,
    check_directory_uuid,
    listen_on,
    new_server,
    pb_grpc,
    start_as,
)
from nyala.replica.transport import (
    PeerNetwork,
    PeerServicer,
    ProbedServices,
    SenderCheck,
    serve_health,
)
from nyala.replica.types import (
    Address,
    Corruption,
    InvariantViolation,
    Member,
    OpId,
    RaftConfig,
    ReplicaError,
    SystemClock,
    limits,
    place_to_listen,
    started_pool,
)
from nyala.replica.types.logs import name_process

from .catalog.catalog import CATALOG_ID
from .collection_pauses import CollectionPauses
from .decisions.decision_sinks import DecisionSinks
from .decisions.reconciler import Reconciler
from .group.catalog_copies import CatalogCopies
from .group.catalog_group import CatalogGroup
from .group.file_check import CHECK_EVERY_S, FileChecker, damaged
from .group.forming import form
from .group.joining import Joining
from .group.leaving import ASK_PERIOD_S, later_config
from .group.startup_checks import check_config, check_peers, has_catalog, need_catalog, removed
from .group.takeovers import Takeovers, takeovers_in_log
from .heartbeats.tablet_servers import GrpcTabletServers
from .metrics import Metrics
from .options import MasterOptions
from .readiness import Readiness
from .requests.master_service import MasterService
from .requests.upgrading import finalized_level
from .state import MasterState

_log = logging.getLogger("nyala.master")
READY_SERVICES, LIVE_SERVICES = ("nyala.v1.MasterService",), ("nyala.v1.PeerService", "nyala.v1.CopyService")
"""The services that health probes report as serving only when the master is ready, and those that serve before that."""
STOP_GRACE_S = 1.0
BELONG_PERIOD_S = 0.2
RESIGN_EXIT_CODE = 70
REMOVED_EXIT_CODE = 71
"""The exit code of a master that its group has removed."""


class MasterProcess:
    """The parts of one master, owned by one event loop.

    Invariants: the directory is locked before anything is read and until everything is closed. Durability: everything
    that a reply states is committed. Concurrency: the loop's thread; threads of Kafka and of the executor post to it.
    """

    def __init__(self, options: MasterOptions) -> None:
        self.options = options
        self.clock = SystemClock()
        self.stopping = asyncio.Event()
        self.failure: BaseException | None = None
        self._server: Any = None
        self._pauses = CollectionPauses()
        self._readiness = Readiness(self.stopping.is_set)
        self._parts: list[Any] = []
        self._left: RaftConfig | None = None
        """The committed config without this master, once the group has removed it; None before."""

    @property
    def _told(self) -> tuple[Address, ...]:
        """The addresses of masters on the command line."""
        return (*self.options.peers, *self.options.join)

    def fail(self, error: BaseException) -> None:
        """End the process, because of a failed disk, a failed catalog or a broken invariant."""
        _log.critical("this master must end: %s", error, exc_info=error)
        self.failure = self.failure or error
        self.stopping.set()

    async def run(self) -> int:
        """Serve until a signal or the parent's end; returns the exit code."""
        asyncio.get_running_loop().set_default_executor(started_pool(limits.LOOP_THREADS, "loop"))
        own = start_as(MASTER_ROLE, self.options.process.tls, self.options.listen, self.options.process.insecure)
        with lock_root(self.options.root):
            disk = RealDisk(self.options.root)
            try:
                with self._pauses:
                    await self._run(disk, own)
            except Corruption as error:
                raise damaged(error, disk) from error
        if self.failure:
            return RESIGN_EXIT_CODE
        return REMOVED_EXIT_CODE if self._left is not None else 0

    async def _run(self, disk: RealDisk, uuid: str) -> None:
        """`uuid`: the one in this process's certificate; empty without TLS."""
        instance = open_or_format(disk, self.clock, kind=MASTER, uuid=uuid)
        uuid = instance.uuid
        name_process(uuid)
        check_directory_uuid(uuid)
        need_catalog(disk, instance, joins=bool(self.options.join))
        joins = bool(self.options.join) and not has_catalog(disk)
        address = await self._listen()
        check_peers(address, self.options.peers)
        stored = ConsensusMeta.load(disk, CATALOG_ID).committed_config if CatalogGroup.exists(disk) else None
        if stored is not None and not joins:
            self._check(stored, Member(uuid, (address,)))
        service = MasterService(uuid, stored)
        network = PeerNetwork(uuid, address, takeover=instance.takeover)
        takeovers = Takeovers(instance, {} if joins else takeovers_in_log(disk))
        incoming = PeerServicer(
            uuid,
            service.deliver,
            SenderCheck(uuid, network, self._told).is_member,
            self.fail,
            check_caller=takeovers.check,
            knows=network.knows,
            link_number_for=network.link_number_for,
        )
        network.on_known = incoming.listener.end_unproven
        pb_grpc.add_MasterServiceServicer_to_server(service, self._server)
        pb_grpc.add_PeerServiceServicer_to_server(incoming, self._server)
        copies = CatalogCopies(disk, uuid, self.clock, incoming.grant_ticket, lambda: service.state.group, self.fail)
        pb_grpc.add_CopyServiceServicer_to_server(copies, self._server)
        metrics = Metrics(self._checks, self._connections, self._pauses)
        services = ProbedServices(READY_SERVICES, LIVE_SERVICES)
        serve_health(uuid, self._readiness.reasons, services, self._server, metrics, self.options.process)
        await incoming.listen(place_to_listen(self.options.listen)[0], self.options.peer_port)
        await self._server.start()
        when_parent_ends(self.options.parent_fd, self._parent_ended)
        try:
            config = await self._first_config(disk, Member(uuid, (address,)), service, takeovers)
            if config is not None:
                await self._serve(disk, service, network, address, config, copies, takeovers, instance, metrics)
        finally:
            metrics.close()
            await self._server.stop(STOP_GRACE_S)
            self._checks.close()
            copies.close()
            await incoming.close()
            await network.close()

    def _check(self, stored: RaftConfig, own: Member) -> None:
        if note := check_config(stored, own, self.options.peers):
            _log.warning("P %s %s", own.uuid, note)

    async def _first_config(
        self, disk: RealDisk, own: Member, service: MasterService, takeovers: Takeovers
    ) -> RaftConfig | None:
        """The config with which a new group begins; None if this process was stopped before all masters had answered,
        or before the group had added this new one."""
        if self.options.join and not has_catalog(disk):
            return await self._join(disk, own, service, takeovers)
        alone = RaftConfig(OpId(0, 0), (own,))
        if len(self.options.peers) < 2 or CatalogGroup.exists(disk):
            return alone
        return await self._unless_stopped(form(own, self.options.peers))

    async def _join(
        self, disk: RealDisk, own: Member, service: MasterService, takeovers: Takeovers
    ) -> RaftConfig | None:
        service.joining = joining = Joining(disk, own, self.options.join)
        say_ready(own.uuid, own.addresses[0], self.options.ready_file)
        config = await self._unless_stopped(joining.run(self.stopping.is_set))
        if config is not None:
            self._check(config, own)
            takeovers.read_log(disk)
        return config

    async def _unless_stopped(self, work: Coroutine[Any, Any, RaftConfig]) -> RaftConfig | None:
        """Return the result of `work`; None if this process is asked to stop before that."""
        working = asyncio.create_task(work)
        stopping = asyncio.create_task(self.stopping.wait())
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not working.done():
            working.cancel()
            return None
        return working.result()

    async def _serve(
        self,
        disk: RealDisk,
        service: MasterService,
        network: PeerNetwork,
        address: Address,
        config: RaftConfig,
        copies: CatalogCopies,
        takeovers: Takeovers,
        instance: Instance,
        metrics: Metrics,
    ) -> None:
        group = CatalogGroup(disk, self.clock, service.uuid, config, send=network.send, on_fatal=self.fail)
        network.learn_config(group.replica.committed_config)
        takeovers.catalog = group.catalog
        takeovers.check_own()
        state = MasterState(service.uuid, address, group, self.clock, self.options, GrpcTabletServers())
        reconciler = Reconciler(state)
        checker = FileChecker(disk, instance, group, FolderWatch(disk, RAFT_FOLDERS).check)
        self._start_parts(state, reconciler)
        await group.start()
        service.open(state)
        self._readiness.state = metrics.state = state
        tasks = [
            asyncio.create_task(self._tick(group, takeovers, network), name="raft tick"),
            asyncio.create_task(self._belong(checker, state), name="belong"),
            asyncio.create_task(self._check_files(checker), name="file check"),
            asyncio.create_task(self._notice_removal(checker, state, network), name="removal"),
            asyncio.create_task(self._announce(state), name="announce"),
            asyncio.create_task(self._reconcile(reconciler), name="reconciler"),
            asyncio.create_task(copies.expire_forever(), name="copy sessions"),
            asyncio.create_task(self._connections.run_forever(), name="connections"),
        ]
        for task in tasks:
            task.add_done_callback(self._task_ended)
        await self.stopping.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for part in self._parts:
            await asyncio.get_running_loop().run_in_executor(None, part.close)
        await copies.end()
        if self.failure is None:
            await group.stop()
            if self._left is not None:  # the next start reads it, and does not join in
                await asyncio.to_thread(group.cmeta.save_config, self._left)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """End the process if a task ends with an unexpected error, because a master without one of its parts gives
        wrong answers."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.critical("task %s died", task.get_name(), exc_info=error)
            self.fail(error)

    async def _listen(self) -> Address:
        self._checks = RequestChecks()
        self._server = new_server(self._checks)
        host, _ = place_to_listen(self.options.listen)
        advertised = Address.given(self.options.advertise) if self.options.advertise else None
        port = listen_on(self._server, self.options.listen)
        self._connections = ConnectionBound(port)
        return advertised or Address(host, port)

    def _start_parts(self, state: MasterState, reconciler: Reconciler) -> None:
        """Start the threads of Kafka and the executor, if the options ask for them. They are closed in the order of
        their start."""
        loop = asyncio.get_running_loop()
        threads = DecisionSinks(loop, state, reconciler, self.fail)
        if self.options.execute_decisions == "master":
            self._parts.append(threads.start_executor())
        if self.options.kafka:
            self._parts.append(threads.start_kafka())

    async def _announce(self, state: MasterState) -> None:
        """Report that this master is ready: a single one when it leads, one of several when it listens."""
        alone = state.group.replica.committed_config.voters == (state.uuid,)
        uuid, address = state.uuid, state.address
        if alone:
            await state.group.led.wait()
        _log.info("P %s master listens at %s", uuid, address)
        say_ready(uuid, address, self.options.ready_file)

    async def _tick(self, group: CatalogGroup, takeovers: Takeovers, network: PeerNetwork) -> None:
        period_s, known = self.options.tick_ms / 1000, group.replica.active_config
        while True:
            await asyncio.sleep(period_s)
            group.tick()
            self._readiness.observe()
            group.maintain(self.options.flush_entries)
            if group.replica.active_config is not known:
                known = group.replica.active_config
                network.learn_config(known)
            for uuid in takeovers.risen(group.replica.active_config):
                takeovers.check_own()
                network.relink(uuid)

    async def _belong(self, checker: FileChecker, state: MasterState) -> None:
        """Write the cluster's id and feature level into the directory. So a master that loses its catalog does not
        begin with an empty one, and a build that does not know the level does not open the directory."""
        while True:
            await checker.belong(state.cluster_id, finalized_level(state.catalog))
            await asyncio.sleep(BELONG_PERIOD_S)

    async def _notice_removal(self, checker: FileChecker, state: MasterState, network: PeerNetwork) -> None:
        while True:
            await asyncio.sleep(ASK_PERIOD_S)
            # The directory's cluster, because a master that just started may not have applied the record of it.
            told, cluster_id = self._told, checker.instance.cluster_id
            later, removes = await later_config(state.group, state.uuid, cluster_id, told)
            if later is not None and not removes:
                for member in later.members:
                    network.learn_listed(member.uuid, member.addresses)
            self._left = later if removes else None
            if self._left is not None:
                _log.error("P %s ends: %s", state.uuid, removed(state.uuid, self._left))
                self.stopping.set()
                return

    async def _check_files(self, checker: FileChecker) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            await checker.check_all()

    async def _reconcile(self, reconciler: Reconciler) -> None:
        while True:
            try:
                await reconciler.try_tick()
            except InvariantViolation as error:
                self.fail(error)
                return
            except ReplicaError as error:
                _log.warning("policy tick failed: %s", error)
            await asyncio.sleep(reconciler.next_in_s())

    def _parent_ended(self) -> None:
        _log.warning("the parent is gone: ending")
        self.stopping.set()


async def serve(options: MasterOptions) -> int:
    """Run one master until SIGTERM, SIGINT, the end of the parent or a fatal error; returns the exit code."""
    process = MasterProcess(options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, process.stopping.set)
    return await process.run()
