"""Whether a process lives and can serve: for the HTTP page, and for gRPC's health service (`grpc.health.v1`)."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from nyala.replica.rpc import Context
from nyala.replica.types.process_options import ProcessOptions

_log = logging.getLogger("nyala.transport")

LIVE = "live"
"""The name of the gRPC service that serves as long as the event loop answers, whether or not the process is ready."""
ANSWER_S = 0.5
"""How long a caller waits for the event loop. Kubernetes gives up a probe after a second by default."""
LOOP_SILENT_S_MAX = 30.0
"""A process whose loop has run nothing for so long is hung. The longest pause that is known, of a garbage collection,
takes some seconds."""
READY_SILENT_S_MAX = 5.0
WATCHERS_MAX = 64
"""Bounds the calls of Watch under way: each takes a timer on the loop."""
WATCH_S = 0.5

_Status = health_pb2.HealthCheckResponse


class _Question(NamedTuple):
    """A callback that was given to the event loop."""

    asked_s: float
    ran: threading.Event


class Liveness:
    """Whether the event loop runs. Concurrency: any thread.

    Nothing but the loop counts: a restart heals no lost Kafka, no lost majority and no slow disk. If the loop's thread
    waits for the disk, the process lives, however long that takes.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] = time.monotonic,
        waits_for_disk: Callable[[int], bool] | None = None,
    ) -> None:
        """Call it on the loop's thread."""
        self._loop = loop
        self._clock = clock
        self._thread = threading.get_native_id()
        self._waits_for_disk = waits_for_disk or thread_waits_for_disk
        self._lock = threading.Lock()
        self._question: _Question | None = None
        """At most one is open, however many callers there are."""

    def silent_s(self) -> float:
        """For how long the loop has left a question open; 0 if it answers within ANSWER_S."""
        with self._lock:
            question = self._question
            if question is None or question.ran.is_set():
                question = self._question = _Question(self._clock(), threading.Event())
                with suppress(RuntimeError):  # the loop has ended, and the process ends now
                    self._loop.call_soon_threadsafe(question.ran.set)
        return 0.0 if question.ran.wait(ANSWER_S) else self._clock() - question.asked_s

    def problem(self) -> str:
        """Why the process must be restarted; empty if it lives."""
        silent_s = self.silent_s()
        if silent_s < LOOP_SILENT_S_MAX or self._waits_for_disk(self._thread):
            return ""
        return f"the event loop has not run for {silent_s:.0f} s"


def thread_waits_for_disk(thread: int) -> bool:
    """Whether a thread of this process is in uninterruptible sleep (state D), as while the kernel reads or writes a
    file for it. False where the kernel does not tell."""
    try:
        stat = Path(f"/proc/self/task/{thread}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] == ["D"]


class Health:
    """The health of one process.

    Concurrency: any thread. `reasons` is called on the page's threads and on the loop, and returns at once; what it
    reads may be a tick old.
    """

    def __init__(self, liveness: Liveness, reasons: Callable[[], list[str]]) -> None:
        """`reasons()`: why the process cannot serve now, a line each; empty if it can."""
        self.liveness = liveness
        self.reasons = reasons

    def why_not_ready(self) -> list[str]:
        """As `reasons`, and also whether the event loop runs. Not for the loop's thread, which it may wait for."""
        silent_s = self.liveness.silent_s()
        found = [f"the event loop has not run for {silent_s:.0f} s"] if silent_s >= READY_SILENT_S_MAX else []
        return [" ".join(reason.split()) for reason in (*found, *self.reasons())]


class ProbedServices(NamedTuple):
    """Full names of gRPC services, such as `nyala.v1.TabletService`, of which a probe may ask."""

    ready: Sequence[str]
    """Those that need a process that can serve."""
    live: Sequence[str]
    """Those by which other processes reach one that cannot."""


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """`grpc.health.v1.Health` on the port of all other services.

    The names: empty, and the services in `ready`, for a process that can serve; LIVE and the services in `live` for one
    whose loop answers. Concurrency: the loop's thread.
    """

    def __init__(self, health: Health, services: ProbedServices) -> None:
        self._health = health
        self._ready = frozenset({"", *services.ready})
        self._live = frozenset({LIVE, *services.live})
        self._watchers = 0

    def _status(self, service: str) -> health_pb2.HealthCheckResponse.ServingStatus:
        if service in self._live:
            return _Status.SERVING
        if service in self._ready:
            return _Status.NOT_SERVING if self._health.reasons() else _Status.SERVING
        return _Status.SERVICE_UNKNOWN

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Context) -> health_pb2.HealthCheckResponse:
        """[gRPC] The status of one service; the gRPC status NOT_FOUND if its name is not known."""
        status = self._status(request.service)
        if status == _Status.SERVICE_UNKNOWN:
            names = ", ".join(f"'{name}'" for name in sorted(self._ready | self._live))
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"no service '{request.service}' here; write one of: {names}"
            )
        return health_pb2.HealthCheckResponse(status=status)

    async def List(self, request: health_pb2.HealthListRequest, context: Context) -> health_pb2.HealthListResponse:
        """[gRPC] The status of each service."""
        names = sorted(self._ready | self._live)
        return health_pb2.HealthListResponse(
            statuses={name: health_pb2.HealthCheckResponse(status=self._status(name)) for name in names}
        )

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """[gRPC] The status of one service, and each change of it, until the caller or the server ends the call."""
        if self._watchers >= WATCHERS_MAX:
            what = f"{WATCHERS_MAX} callers watch this process already: call Check now and then"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, what)
        self._watchers += 1
        try:
            last = None
            while True:
                status = self._status(request.service)
                if status != last:
                    yield health_pb2.HealthCheckResponse(status=status)
                last = status
                await asyncio.sleep(WATCH_S)
        finally:
            self._watchers -= 1


class Page(Protocol):
    """The HTTP page of a process, which is an `Exporter`."""

    port: int

    def serve(self, port: int, host: str, health: Health) -> None: ...


def serve_health(
    uuid: str,
    reasons: Callable[[], list[str]],
    services: ProbedServices,
    server: grpc.aio.Server,
    page: Page,
    options: ProcessOptions,
) -> None:
    """Answer probes of this process: by gRPC's health service on `server`, which has not started, and on the HTTP page,
    if the options ask for it. Call it on the loop's thread. Refused ILLEGAL_STATE as `Exporter.serve`.

    `uuid`: this process's. `reasons`: as for `Health`.
    """
    health = Health(Liveness(asyncio.get_running_loop()), reasons)
    health_pb2_grpc.add_HealthServicer_to_server(HealthServicer(health, services), server)
    if options.metrics_port >= 0:
        page.serve(options.metrics_port, options.metrics_host, health)
        _log.info("P %s metrics and health at %s port %d", uuid, options.metrics_host, page.port)
