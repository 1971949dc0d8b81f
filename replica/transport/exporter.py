"""The page `/metrics` of a server or a master for Prometheus, and their metrics of gRPC calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from nyala.replica.rpc import ConnectionBound, RequestChecks
from nyala.replica.types import Code, Refused


class Exporter(ABC):
    """Serves the metrics that `collect` yields. Concurrency: `collect` runs on the page's thread; values may be a tick
    old."""

    def __init__(self) -> None:
        self._server: Any = None
        self.port = -1
        """The port of the page; -1 before `serve`."""

    @abstractmethod
    def collect(self) -> Iterable[Any]:
        """All metric families."""

    def serve(self, port: int) -> None:
        """Serve `/metrics` on loopback; Refused ILLEGAL_STATE if the port is taken."""
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
        except OSError as error:
            what = "cannot listen for metrics: is the port taken? Choose another one by --metrics-port"
            raise Refused(Code.ILLEGAL_STATE, what, port=port) from error
        self.port = self._server.server_port

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
        f"{prefix}_requests_late", "gRPC calls ended because their request was not whole in time", checks.late
    )
    yield CounterMetricFamily(
        f"{prefix}_connections_ended", "gRPC connections ended because their host had too many", connections.ended
    )
