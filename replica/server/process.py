"""One tablet server process: connects the parts, reports that it is ready, and ends in order."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
from collections.abc import Awaitable
from typing import Any

from nyala.replica.fs import (
    RAFT_FOLDERS,
    FolderWatch,
    Instance,
    RealDisk,
    lock_root,
    mark_folders,
    open_or_format,
    refuse_fenced,
    say_ready,
    when_parent_ends,
)
from nyala.replica.rpc import (
    SERVER_ROLE,
    ConnectionBound,
    RequestChecks,
    check_directory_uuid,
    listen_on,
    new_server,
    pb_grpc,
    start_as,
)
from nyala.replica.tablet_copy.wire import RemoteCopySource
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
    DiskFailure,
    HybridClock,
    Refused,
    ReplicaError,
    SystemClock,
    keep_memory_low,
    limits,
    place_to_listen,
    started_pool,
)
from nyala.replica.types.log_records import about
from nyala.replica.types.logs import begin_to_log, name_process, say_why_it_ends
from nyala.replica.types.process import raise_open_files_limit
from nyala.replica.wal import LogThreads

from .copies.copy_jobs import CopyJobs, CopyRequester
from .copies.copy_service import CopyServicer
from .copies.witness_data import WitnessDataJobs
from .heartbeats.heartbeat import Heartbeats
from .maintenance.file_check import CHECK_EVERY_S
from .maintenance.maintenance import Maintenance
from .maintenance.scrub import Scrub
from .metrics import Metrics
from .options import ServerOptions
from .readiness import Readiness
from .requests.leaders import LeaderTime
from .requests.quiescing import Quiescing
from .requests.scans import Scans
from .requests.tablet_service import TabletServicer
from .requests.writes import Writes
from .runtime.channels import Channels
from .runtime.gil_watch import GilWatch
from .runtime.identity import Identity
from .runtime.lanes import LoopPost
from .runtime.machine import found_machine
from .runtime.memory import MemoryGuard
from .runtime.sizing import memory_problem, sized, sizes_text
from .runtime.tasks import Tasks
from .startup.durable_state import check_durable_state
from .startup.warm import warm_up, without_pandas
from .tablets.manager import TabletManager

_log = logging.getLogger("nyala.server")

EXIT_FATAL = 70
"""The exit status after a failed disk or a broken invariant, when the process must not go on."""
READY_SERVICES, LIVE_SERVICES = ("nyala.v1.TabletService",), ("nyala.v1.PeerService", "nyala.v1.CopyService")
"""The services that health probes report as serving only when the server is ready, and those that serve before that."""
HAND_OVER_S = 2.0
LOOK_AT_FOLDERS_S = 1.0
STOP_S = 10.0


class TabletServer:
    """The parts of one tablet server process. `run` returns its exit code."""

    def __init__(self, options: ServerOptions, disk: RealDisk, instance: Instance) -> None:
        machine = found_machine()
        self._options = sized(options, machine)
        self._disk = disk
        self._identity = Identity(disk, instance)
        self._clock = SystemClock()
        self._hybrid_clock = HybridClock(self._clock)
        self._stop = asyncio.Event()
        self._tasks = Tasks(self._fatal)
        log = about(_log, process=instance.uuid)
        log.info("%s", sizes_text(options, machine))
        if problem := memory_problem(self._options, machine):
            log.warning("%s", problem)

    async def run(self) -> int:
        """Serve until SIGTERM, SIGINT or the end of the parent."""
        options, uuid, loop = self._options, self._identity.uuid, asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        when_parent_ends(options.parent_fd, self._parent_ended)
        loop.set_default_executor(started_pool(limits.LOOP_THREADS, "loop"))
        checks = RequestChecks()
        server = new_server(checks, request_bytes_max=limits.TABLET_REQUEST_BYTES_MAX)
        host, _ = place_to_listen(options.listen)
        port = listen_on(server, options.listen)
        address = Address.given(options.advertise or f"{host}:{port}")

        post = LoopPost(loop, self._fatal)
        heavy = started_pool(options.heavy_threads, "heavy")
        log_threads = LogThreads()
        network = PeerNetwork(uuid, address, soon=post.microtasks.soon)
        channels = Channels()
        requests: CopyRequester

        manager = TabletManager(
            disk=self._disk,
            uuid=uuid,
            options=options,
            clock=self._clock,
            hybrid_clock=self._hybrid_clock,
            post=post,
            heavy=heavy,
            log_threads=log_threads,
            send=network.send,
            pulse=network.pulse,
            learn_config=network.learn_config,
            on_copy_needed=lambda tablet_id, need: requests.needed(tablet_id, need),
            on_fatal=self._fatal,
        )
        self.manager = manager
        requests = CopyRequester(manager, channels, address, network.place)
        jobs = CopyJobs(manager, RemoteCopySource, network.place)
        memory = MemoryGuard(options.memory_soft_bytes, lambda: manager.memory_bytes)
        watch = FolderWatch(self._disk, RAFT_FOLDERS)
        maintenance = Maintenance(manager, memory, check_folders=watch.check)
        ask_leader = LeaderTime(channels, network.place).ask
        scans = Scans(
            self._hybrid_clock,
            options.scan_threads,
            ask_leader,
            manager.damaged,
            quiescing=lambda: manager.quiescing,
            on_fatal=self._fatal,
        )
        quiescing = Quiescing(manager, lambda: scans.under_way)
        validate = started_pool(2, "validate")
        writes = Writes(memory, validate, scans.observe, manager.copy_rate.written)
        scrub = Scrub(manager)
        joins = WitnessDataJobs(manager, jobs, network.place)
        peers = PeerServicer(
            uuid,
            manager.deliver,
            SenderCheck(uuid, network).is_member,
            on_fatal=self._fatal,
            on_heard=manager.ticker.liveness.heard,
            microtasks=post.microtasks,
            knows=network.knows,
            link_number_for=network.link_number_for,
            is_absent=manager.is_absent,
        )
        network.on_known = peers.listener.end_unproven
        gil = GilWatch()
        process = secrets.randbits(63) | 1  # other servers must not learn it: it lets a process report as this server
        service = TabletServicer(
            manager=manager,
            writes=writes,
            scans=scans,
            maintenance=maintenance,
            hybrid_clock=self._hybrid_clock,
            grant_ticket=peers.grant_ticket,
            microtasks=post.microtasks,
            gil=gil,
            identity=self._identity,
            quiescing=quiescing,
            process=process,
        )
        pb_grpc.add_TabletServiceServicer_to_server(service, server)
        pb_grpc.add_PeerServiceServicer_to_server(peers, server)
        copies = CopyServicer(manager, jobs, maintenance, peers.grant_ticket)
        pb_grpc.add_CopyServiceServicer_to_server(copies, server)
        heartbeats = Heartbeats(
            manager,
            channels,
            memory,
            gil,
            address,
            resources=maintenance.resources,
            process=process,
            identity=self._identity,
            unreachable=lambda: sorted({*network.unreachable(), *peers.seeking()}),
            found=network.learn_listed,
        )
        connections = ConnectionBound(port)
        metrics = Metrics(
            manager, memory, writes, maintenance, jobs, gil, scrub, peers, checks, connections, heartbeats
        )

        reasons = Readiness(manager, heartbeats, self._stop.is_set).reasons
        serve_health(uuid, reasons, ProbedServices(READY_SERVICES, LIVE_SERVICES), server, metrics, options.process)
        await manager.start()
        await peers.listen(host, options.peer_port)
        await server.start()
        say_ready(self._identity.uuid, address, options.ready_file)
        _log.info("P %s listens on %s, directory %s", self._identity.uuid, address, options.root)
        gil.start()
        self._tasks.start(manager.ticker.run_forever(lambda: manager.stopping))
        self._tasks.start(connections.run_forever())
        self._tasks.start(self._watch_folders(manager, watch))
        self._tasks.start(maintenance.run_forever())
        self._tasks.start(scrub.run_forever())
        self._tasks.start(joins.run_forever())
        self._tasks.start(quiescing.run_forever())
        if options.masters:
            self._tasks.start(heartbeats.run_forever())
        await self._until_open(manager.open_all())
        self._hybrid_clock.logs_are_open()
        heartbeats.booting = False
        await self._stop.wait()

        _log.info("P %s stopping", uuid)
        await self._bounded(quiescing.hand_over(), HAND_OVER_S, "handing leadership over")
        manager.stopping = True
        await self._bounded(jobs.stop(), STOP_S, "copies to end")
        service.write_links.close()
        await server.stop(grace=0.2)
        checks.close()
        service.scan_links.close()
        copies.close()
        self._tasks.cancel()
        await self._tasks.ended()
        await self._bounded(manager.stop(), STOP_S, "replicas to stop")
        post.close()
        for part in (scans, maintenance, scrub, metrics, gil):
            part.close()
        await peers.close()
        await network.close()
        await channels.close()
        heavy.shutdown(wait=False, cancel_futures=True)
        log_threads.close()
        return 0

    # --------------------------------------------------------------------------------------------------------- parts

    async def _until_open(self, opening: list[asyncio.Task[None]]) -> None:
        """Wait until every tablet is open or has failed, or until the server shall stop."""
        stopped = asyncio.create_task(self._stop.wait())
        rest: set[asyncio.Task[Any]] = set(opening)
        while rest and not stopped.done():
            done, pending = await asyncio.wait({*rest, stopped}, return_when=asyncio.FIRST_COMPLETED)
            rest = pending - {stopped}
            for task in done - {stopped}:
                task.result()
        stopped.cancel()

    async def _watch_folders(self, manager: TabletManager, watch: FolderWatch) -> None:
        """End the process if one of RAFT_FOLDERS is gone: writes to its open files would succeed and be lost."""
        looks = 0
        while not manager.stopping:
            await asyncio.sleep(LOOK_AT_FOLDERS_S)
            await manager.in_thread(watch.check)
            looks += 1
            if looks * LOOK_AT_FOLDERS_S >= CHECK_EVERY_S:
                looks = 0
                for what in await self._identity.repair():
                    text = "P %s the %s was damaged, missing or an earlier one: written again from memory"
                    _log.error(text, manager.uuid, what)

    async def _bounded(self, work: Awaitable[Any], seconds: float, what: str) -> None:
        try:
            async with asyncio.timeout(seconds):
                await work
        except TimeoutError:
            _log.warning("P %s gave up after %g s waiting for %s", self._identity.uuid, seconds, what)

    def _parent_ended(self) -> None:
        _log.info("P %s the parent is gone", self._identity.uuid)
        self._stop.set()

    def _fatal(self, error: BaseException) -> None:
        """End the process at once: after a failed sync or a broken invariant it must not vote or acknowledge."""
        _log.critical("P %s ends: %s", self._identity.uuid, error, exc_info=error)
        logging.shutdown()
        os._exit(EXIT_FATAL)


def main(options: ServerOptions) -> int:
    """Open the directory and serve; returns the exit code. If it cannot start, it prints the reason in one line."""
    try:
        begin_to_log(options.process, "server")
        uuid = start_as(SERVER_ROLE, options.process.tls, options.listen, options.process.insecure)
        with lock_root(options.root):
            keep_memory_low()
            without_pandas()
            warm_up()
            raise_open_files_limit()
            disk = RealDisk(options.root)
            refuse_fenced(disk)
            instance = open_or_format(disk, SystemClock(), uuid=uuid)
            name_process(instance.uuid)
            check_directory_uuid(instance.uuid)
            check_durable_state(disk, instance)
            mark_folders(disk, instance)
            return asyncio.run(TabletServer(options, disk, instance).run())
    except (Refused, Corruption, DiskFailure) as error:
        say_why_it_ends("nyala server", ReplicaError.__str__(error))
        return 1
