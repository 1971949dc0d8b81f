"""Prometheus metrics of one server, computed at each request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from nyala.replica.rpc import ConnectionBound, RequestChecks
from nyala.replica.transport import Exporter, PeerServicer, call_families

from .copies.copy_jobs import CopyJobs
from .heartbeats.heartbeat import Heartbeats
from .maintenance.maintenance import Maintenance
from .maintenance.scrub import Scrub
from .requests.writes import Writes
from .runtime.gil_watch import GilWatch
from .runtime.memory import MemoryGuard
from .tablets.manager import TabletManager


@dataclass(eq=False)
class Metrics(Exporter):
    """The metrics of the server's parts."""

    manager: TabletManager
    memory: MemoryGuard
    writes: Writes
    maintenance: Maintenance
    jobs: CopyJobs
    gil: GilWatch
    scrub: Scrub
    peers: PeerServicer
    checks: RequestChecks
    connections: ConnectionBound
    heartbeats: Heartbeats

    def __post_init__(self) -> None:
        super().__init__()

    def collect(self) -> list[Any]:
        """All metric families."""
        tablets = list(self.manager.tablets.values())
        leaders = sum(1 for h in tablets if h.running and h.replica is not None and h.replica.is_leader)
        gauges = {
            "nyala_server_loop_lag_ms_max": ("Longest delay of the event loop so far", self.manager.ticker.lag_ms_max),
            "nyala_server_gil_hold_ms_max": ("Longest hold of the interpreter's lock so far", self.gil.hold_ms_max),
            "nyala_server_gil_hold_ms_recent": ("The same, of the last minute or two", self.gil.hold_ms_recent),
            "nyala_server_tablets_awake": ("Replicas whose group is not quiet", self.manager.ticker.awake),
            "nyala_server_memory_bytes": ("Memory that counts against the soft limit", self.memory.used_bytes),
            "nyala_server_open_files": ("Open file descriptors", self.maintenance.resources.files.used),
            "nyala_server_open_files_max": (
                "How many there may be; 0: not known",
                self.maintenance.resources.files.limit,
            ),
            "nyala_server_memory_maps": ("Memory maps in use", self.maintenance.resources.maps.used),
            "nyala_server_memory_maps_max": (
                "How many there may be (vm.max_map_count); 0: not known",
                self.maintenance.resources.maps.limit,
            ),
            "nyala_server_tablets": ("Replicas here, tombstones included", len(tablets)),
            "nyala_server_leaders": ("Replicas here that lead", leaders),
            "nyala_server_links": (
                "Open connections to the links' port that no other part has taken over",
                self.peers.listener.connections,
            ),
            "nyala_server_links_begun_bytes": (
                "Memory of frames that are begun on them",
                self.peers.listener.begun_bytes,
            ),
            "nyala_server_copy_jobs": ("Tablet copies into this server that run or wait", len(self.jobs.running())),
        }
        counters = {
            "nyala_server_write_batches": ("Write batches answered", self.writes.batches),
            "nyala_server_write_rows": ("Rows applied", self.writes.rows),
            "nyala_server_writes_refused": ("Writes refused over the memory limit", self.memory.refused),
            "nyala_server_peer_messages_refused": (
                "Messages refused because no correct server sends them, or because their times are too far ahead",
                self.peers.refusals.count,
            ),
            "nyala_server_master_replies_refused": (
                "Replies and orders of masters that no honest one sends; the log says of which, and why",
                self.heartbeats.replies_refused,
            ),
            "nyala_server_flushes": ("Flushes done", self.maintenance.flushes),
            "nyala_server_compactions": ("Compactions done", self.maintenance.compactions),
            "nyala_server_scrubbed_bytes": ("Bytes of blocks and logs read again to find damage", self.scrub.bytes),
            "nyala_server_damaged_files": (
                "Blocks and closed log segments that were found damaged",
                self.scrub.damaged,
            ),
        }
        families: list[Any] = [GaugeMetricFamily(name, text, value) for name, (text, value) in gauges.items()]
        families += [CounterMetricFamily(name, text, value) for name, (text, value) in counters.items()]
        return families + list(call_families("nyala_server", self.checks, self.connections))
