"""What parts of the load share: a stack with a client, a tally of what was done, and rows that no part may touch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

import nyala
from nyala.replica.types import Code, Refused
from tests.harness.cluster import SERVER, LocalCluster, local_cluster, wait_until

T = TypeVar("T")

QUICK_FLUSH = "tests.load.quick_flush_server"
OWN_PROCESS = ("env",)
"""What starts them: processes that are forked from the tests' template share pages with it, which real ones do not."""
MASTER_ARGUMENTS = ("--server-dead-ms=60000", "--rereplicate-after-ms=120000")
"""Under load on two cores a server may be late with its heartbeats, and the load is not about that."""
SERVERS = 3
GUARD_ROWS = 500
JOIN_S = 600.0
PAUSE_OVERLOADED_S = 0.05


class Tally:
    """What was done: units of work, seconds of each operation, refusals for overload, and anything else as an error.

    Concurrency: any thread.
    """

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.overloaded = 0
        self.done = 0.0
        self._seconds: dict[str, list[float]] = {}
        self._lock = threading.Lock()

    def add(self, units: float = 1.0) -> None:
        with self._lock:
            self.done += units

    def timed(self, operation: str, call: Callable[[], T]) -> T:
        """What the call returns; it is called again as long as it is refused for overload. Other errors are raised."""
        while True:
            began = time.monotonic()
            try:
                result = call()
            except Refused as error:
                if error.code is not Code.OVERLOADED:
                    raise
                with self._lock:
                    self.overloaded += 1
                time.sleep(PAUSE_OVERLOADED_S)
                continue
            took_s = time.monotonic() - began
            with self._lock:
                self._seconds.setdefault(operation, []).append(took_s)
            return result

    def fail(self, error: BaseException | str) -> None:
        with self._lock:
            self.errors.append(error if isinstance(error, str) else f"{type(error).__name__}: {error}")

    def latencies(self) -> dict[str, dict[str, float]]:
        """By operation: how many, and their middle, 99th percentile and slowest, in milliseconds."""
        with self._lock:
            return {
                name: {
                    "count": len(seconds),
                    "p50_ms": float(np.percentile(seconds, 50)) * 1000,
                    "p99_ms": float(np.percentile(seconds, 99)) * 1000,
                    "max_ms": max(seconds) * 1000,
                }
                for name, seconds in sorted(self._seconds.items())
            }


class Guard:
    """A table of known rows that no work on the cluster names, and that must therefore stay as it is."""

    def __init__(self, cluster: nyala.Cluster, name: str = "guard", rows: int = GUARD_ROWS) -> None:
        self.name = name
        self._table = cluster.create_table(name, {"k": "int64", "v": "string not null"}, key="k")
        self._rows = pa.table({"k": np.arange(rows), "v": [f"guard-{n}" for n in range(rows)]})
        self._table.insert(self._rows)

    def errors(self) -> list[str]:
        """Return what is wrong with the rows, by a strong read of all of them."""
        found = self._table.scan().to_arrow().sort_by("k")
        return [] if found.equals(self._rows.cast(found.schema)) else ["the guard's rows are not as written"]


class World:
    """One master, three tablet servers, a client, and the guard's table."""

    def __init__(self, processes: LocalCluster, cluster: nyala.Cluster) -> None:
        self.processes = processes
        self.cluster = cluster
        self.masters = processes.masters[0].address
        self._guard = Guard(cluster)

    def pids(self) -> dict[str, int]:
        """Of every server and master."""
        running = [p for p in (*self.processes.masters, *self.processes.servers) if p.process is not None]
        return {p.name: p.process.pid for p in running if p.process is not None}

    def guard_errors(self) -> list[str]:
        """What is wrong with the guard's rows, or with other tables that should be gone."""
        others = [name for name in self.cluster.tables() if name != self._guard.name]
        return self._guard.errors() + ([f"tables are left over: {others[:5]}"] if others else [])

    @contextmanager
    def table(self, name: str, buckets: int = 3, **more: Any) -> Iterator[Any]:
        """A table {k int64, v string}, dropped in the end."""
        yield self.cluster.create_table(name, {"k": "int64", "v": "string"}, key="k", hash_buckets=buckets, **more)
        self.cluster.drop_table(name)


def together(tally: Tally, threads: int, body: Callable[[int], None]) -> None:
    """Run `body(number)` in so many threads, to their end; what one raises is an error of the tally."""

    def run(number: int) -> None:
        try:
            body(number)
        except BaseException as error:  # noqa: BLE001 - the tally tells it
            tally.fail(error)

    running = [threading.Thread(target=run, args=(n,), name=f"load-{n}", daemon=True) for n in range(threads)]
    for thread in running:
        thread.start()
    deadline = time.monotonic() + JOIN_S
    for thread in running:
        while thread.is_alive() and not (tally.errors and time.monotonic() > deadline):
            thread.join(1)


@contextmanager
def running(
    servers: int,
    module: str = SERVER,
    *,
    own_processes: bool = True,
    master: Sequence[str] = MASTER_ARGUMENTS,
    server: Sequence[str] = (),
) -> Iterator[tuple[LocalCluster, nyala.Cluster]]:
    """Yield a master and so many tablet servers, and a connection to them; the ends of their logs are shown if the
    block raises.

    `own_processes`: each is started by an interpreter of its own. `master`, `server`: their arguments.
    """
    prefix = OWN_PROCESS if own_processes else ()
    with local_cluster(module=module) as processes:
        first = processes.add_master(*master, start=False)
        first.prefix = prefix
        first.start()
        for _ in range(servers):
            processes.add_server(*server, start=False).prefix = prefix
        for each in processes.servers:
            each.start(wait=False)
        for each in processes.servers:
            each.wait_ready()
        with nyala.connect(first.address) as cluster:
            alive = lambda: sum(s.alive for s in cluster.client.list_servers().servers) == servers  # noqa: E731
            wait_until(alive, "the master counts all servers")
            yield processes, cluster


@contextmanager
def world(quick_flush: bool) -> Iterator[World]:
    """Processes for parts of the load. `quick_flush`: for a short run, see `quick_flush_server.py`."""
    with running(SERVERS, QUICK_FLUSH if quick_flush else SERVER) as (processes, cluster):
        yield World(processes, cluster)
