"""The HTTP page of a server or a master: `/metrics` for Prometheus, with the metrics of gRPC calls, and `/healthz` and
`/readyz` for probes."""

from __future__ import annotations

import io
import json
import logging
import socket as sockets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from socket import SHUT_RDWR, socket
from socketserver import TCPServer, ThreadingMixIn
from threading import BoundedSemaphore, Lock, Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from nyala.replica.rpc import ConnectionBound, RequestChecks
from nyala.replica.types import Code, Refused, limits

from .health import Health

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_log = logging.getLogger("nyala.transport")
_IDLE_S = 5.0
_END_S = 1.0
"""How long a new connection waits for the thread of the one that it replaces; it takes some milliseconds."""
_Connection = socket | tuple[bytes, socket]
"""What `socketserver` calls a request."""
_ASKING = ("GET", "HEAD")


class _Errors(io.StringIO):
    """Logs as one record what `wsgiref` writes of an error of the application."""

    def flush(self) -> None:
        """Log what was written since the last call."""
        if text := self.getvalue():
            _log.error("the page of metrics and health has a defect, its caller got status 500: %s", text)
            self.seek(0)
            self.truncate()


class _Handler(WSGIRequestHandler):
    """One connection of the page; it ends after some seconds in which its sender sends or takes nothing."""

    timeout = _IDLE_S

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: Prometheus asks every few seconds."""

    def get_stderr(self) -> _Errors:
        """Return the place to which the traceback of an error goes."""
        return _Errors()


class _Page(ThreadingMixIn, WSGIServer):
    """The page's server: a thread for each connection. One above the bound takes the place of the oldest, so that
    callers who send a byte now and then do not keep Prometheus away."""

    daemon_threads = True
    base_environ: dict[str, Any]
    request_queue_size = limits.METRICS_CONNECTIONS_MAX

    def server_bind(self) -> None:
        """Take the port. The one of `http.server` asks DNS for the machine's name, which may not answer."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def server_activate(self) -> None:
        """Begin to listen."""
        self._free = BoundedSemaphore(limits.METRICS_CONNECTIONS_MAX)
        self._lock = Lock()
        self._held: dict[int, _Connection] = {}
        """The connections with a thread, by id, the oldest first."""
        super().server_activate()

    def process_request(self, request: _Connection, client_address: object) -> None:
        """Answer on a thread."""
        if not self._free.acquire(blocking=False):
            with self._lock:
                oldest = next(iter(self._held.values()), None)
                if isinstance(oldest, socket):
                    with suppress(OSError):  # its caller has left
                        oldest.shutdown(SHUT_RDWR)
            if not self._free.acquire(timeout=_END_S):
                self.shutdown_request(request)
                return
        with self._lock:
            self._held[id(request)] = request
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be started now
            self._forget(request)
            raise

    def _forget(self, request: _Connection) -> None:
        with self._lock:
            del self._held[id(request)]
        self._free.release()

    def process_request_thread(self, request: _Connection, client_address: object) -> None:
        """[thread] Answer, and free the thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def handle_error(self, request: _Connection, client_address: object) -> None:
        """Log nothing: a caller that leaves, or says nothing, is no error of this process."""


class _PageOfIPv6(_Page):
    address_family = sockets.AF_INET6


def answers(health: Health, metrics: WSGIApplication) -> WSGIApplication:
    """The application of the page: `/healthz`, `/readyz`, and `metrics` at all other paths."""

    def application(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = str(environ.get("PATH_INFO", ""))
        if path not in ("/healthz", "/readyz"):
            return metrics(environ, start)
        if environ.get("REQUEST_METHOD") not in _ASKING:
            start("405 Method Not Allowed", [("Allow", ", ".join(_ASKING)), ("Content-Length", "0")])
            return []
        if path == "/healthz":
            word, problem = "live", health.liveness.problem()
            reasons = [problem] if problem else []
        else:
            word, reasons = "ready", health.why_not_ready()
        as_json = "json" in parse_qs(str(environ.get("QUERY_STRING", "")), keep_blank_values=True)
        as_json = as_json or "application/json" in str(environ.get("HTTP_ACCEPT", ""))
        if as_json:
            kind, text = "application/json", json.dumps({word: not reasons, "reasons": reasons}) + "\n"
        else:
            kind, text = "text/plain; charset=utf-8", "\n".join(reasons or ["ok"]) + "\n"
        body = text.encode()
        headers = [("Content-Type", kind), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
        start("503 Service Unavailable" if reasons else "200 OK", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return application


class Exporter(ABC):
    """Serves the metrics that `collect` yields, and the process's health. Concurrency: `collect` runs on the page's
    threads; values may be a tick old."""

    def __init__(self) -> None:
        self._server: Any = None
        self.port = -1
        """The port of the page; -1 before `serve`."""

    @abstractmethod
    def collect(self) -> Iterable[Any]:
        """All metric families."""

    def serve(self, port: int, host: str = "127.0.0.1", health: Health | None = None) -> None:
        """Serve the page, without `health` that of metrics only; Refused ILLEGAL_STATE if the port is taken, or the
        host is not this machine's."""
        registry = CollectorRegistry()
        registry.register(self)
        host = host.strip("[]")
        page = _PageOfIPv6 if ":" in host else _Page
        metrics: WSGIApplication = make_wsgi_app(registry)
        app = metrics if health is None else answers(health, metrics)
        try:
            self._server = make_server(host, port, app, server_class=page, handler_class=_Handler)
        except OSError as error:
            what = (
                "cannot listen for metrics: is the port taken? Choose another one by --metrics-port, or another "
                "address of this machine by --metrics-host"
            )
            raise Refused(Code.ILLEGAL_STATE, what, host=host, port=port, reason=error.strerror or "") from error
        self.port = self._server.server_port
        Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def call_families(prefix: str, checks: RequestChecks, connections: ConnectionBound) -> Iterator[Any]:
    """Metrics of the gRPC calls under way, of refused ones, and of connections that were ended."""
    calls = checks.under_way
    yield GaugeMetricFamily(f"{prefix}_calls_under_way", "gRPC calls whose answer has not left", calls.calls)
    yield GaugeMetricFamily(
        f"{prefix}_calls_under_way_bytes", "Memory that they may take, and that their replies take", calls.bytes
    )
    yield GaugeMetricFamily(f"{prefix}_calling_hosts", "Hosts that they come from", calls.hosts)
    yield CounterMetricFamily(
        f"{prefix}_calls_refused", "gRPC calls refused because too many were under way", calls.refused
    )
    received = GaugeMetricFamily(f"{prefix}_requests_received", "Requests that are received now", labels=["length"])
    waiting = GaugeMetricFamily(f"{prefix}_requests_waiting", "Requests that wait to be received", labels=["length"])
    for length, slots in (("short", checks.short_requests), ("long", checks.long_requests)):
        received.add_metric([length], slots.taken)
        waiting.add_metric([length], slots.waiting)
    yield from (received, waiting)
    yield CounterMetricFamily(
        f"{prefix}_requests_late",
        "gRPC calls ended before their request was whole: late, or another host needed the slot",
        checks.late,
    )
    yield CounterMetricFamily(
        f"{prefix}_connections_ended", "gRPC connections ended because their host had too many", connections.ended
    )
