"""Measures a failover as a client sees it: the server that leads a tablet is killed -9 while a client writes."""

from __future__ import annotations

import itertools
import os
import statistics
import threading
import time
from collections.abc import Sequence

import numpy as np

from nyala.replica import tools
from nyala.replica.client import ScanSpec, TableHandle, wire_batches
from nyala.replica.rows import RowOp
from nyala.replica.types import DataState

from .client import rows_of
from .meter import Meter, WalWatch
from .options import BenchmarkError
from .report import Figures
from .sides import check_count
from .target import Target

TABLETS = 2
CALM_WRITES = 200
"""The acknowledged writes to the tablet before the kill and after it."""
INTERRUPTION_S = 0.1
"""A longer pause between two writes counts as an interruption; a busy machine makes shorter ones."""
WAIT_S = 120.0


def time_without_writes(acknowledged: Sequence[float], killed_at: float) -> float:
    """Seconds beyond normal without a successful write. `acknowledged`: the times of one tablet's writes, in order.

    Normal is the median pause before the kill. All interruptions after it count, not the longest alone.
    """
    pauses = list(itertools.pairwise(acknowledged))
    before = [b - a for a, b in pauses if b <= killed_at]
    normal = statistics.median(before) if before else 0.0
    return sum(b - a - normal for a, b in pauses if b > killed_at and b - a > INTERRUPTION_S)


class RowWriter(threading.Thread):
    """Writes row after row, each durable before the next, and notes when each tablet acknowledged one."""

    def __init__(self, target: Target, handle: TableHandle, first: int) -> None:
        super().__init__(name="row-writer", daemon=True)
        self._client, self._handle, self._next = target.client, handle, first
        self._ended = threading.Event()
        self.error: Exception | None = None
        self.acknowledged: dict[int, list[float]] = {t.pos: [] for t in handle.tablets}

    def run(self) -> None:
        """Until `stop`, or until a write fails for good."""
        writer = self._client.session_writer(self._handle)
        try:
            while not self._ended.is_set():
                for batch in wire_batches(self._handle, rows_of(np.array([self._next]), self._next, 32), RowOp.INSERT):
                    writer.write(batch)
                    self.acknowledged[batch.pos].append(time.monotonic())
                self._next += 1
        except Exception as error:  # noqa: BLE001 - handed to the thread that waits
            self.error = error

    def wait_for(self, pos: int, count: int) -> None:
        """Return when tablet `pos` has acknowledged `count` more writes; BenchmarkError if that takes too long."""
        wanted, deadline = len(self.acknowledged[pos]) + count, time.monotonic() + WAIT_S
        while len(self.acknowledged[pos]) < wanted:
            if self.error is not None:
                raise BenchmarkError(f"a write failed: {self.error}")
            if time.monotonic() > deadline:
                raise BenchmarkError(f"no {count} writes to one tablet in {WAIT_S:.0f} s")
            time.sleep(0.01)

    def stop(self) -> int:
        """End after the present row; returns the first key that was not written."""
        self._ended.set()
        self.join(WAIT_S)
        return self._next


def failover_round(target: Target, handle: TableHandle, number: int) -> Figures:
    """Kill the leader of the first tablet under load, count the rows, bring its server back.

    The process figures cover all writes, before the kill and after it; those of the killed server end with its life,
    and `clients` is this process. WAL bytes are those of the two remaining servers.
    """
    stack, tablet = target.own, handle.tablets[0]
    _wait_healthy(target)
    leaders = [u for u, some in target.replicas(handle).items() for r in some if _leads(r, tablet.tablet_id)]
    if not leaders:
        raise BenchmarkError(f"tablet {tablet.tablet_id} has no leader")
    victim = target.name_of(leaders[0])
    first, held = number * 10_000_000, target.client.count(handle, ScanSpec())
    logged, replicas = _logged(target, handle, leaders[0])
    watch = WalWatch([root for name, root in target.folders.items() if name != victim], _ids(handle))
    meter = Meter(target.pids() | {"clients": os.getpid()})
    writer = RowWriter(target, handle, first)
    writer.start()
    try:
        writer.wait_for(tablet.pos, CALM_WRITES)
        meter.look()
        killed_at = time.monotonic()
        stack.kill_for_good(victim)
        writer.wait_for(tablet.pos, CALM_WRITES)
    finally:
        rows = writer.stop() - first
    figures = {"failover_s": time_without_writes(writer.acknowledged[tablet.pos], killed_at)}
    figures |= meter.figures("failover", rows)
    written = _logged(target, handle, leaders[0])[0] - logged + watch.removed_bytes()
    figures["failover_wal_bytes_per_row"] = written * len(handle.tablets) / (replicas * rows)
    check_count(f"{rows:,} one-row writes over a failover", target.client.count(handle, ScanSpec()), held + rows)
    stack.start_child(victim)
    return figures


def _ids(handle: TableHandle) -> list[str]:
    return [tablet.tablet_id for tablet in handle.tablets]


def _logged(target: Target, handle: TableHandle, victim: str) -> tuple[int, int]:
    """The WAL bytes of the table's replicas that are not at the server `victim`, and the number of these replicas."""
    found = [
        replica.wal_bytes
        for server in target.client.list_servers().servers
        if server.uuid != victim
        for replica in target.client.list_tablets(server, _ids(handle))
        if replica.data_state == DataState.READY
    ]
    return sum(found), len(found)


def _leads(status: object, tablet_id: str) -> bool:
    return getattr(status, "tablet_id", "") == tablet_id and getattr(status, "role", "") == "LEADER"


def _wait_healthy(target: Target) -> None:
    """Wait until every server answers and `cluster check` finds nothing, so that the next kill meets a healthy
    cluster."""
    deadline = time.monotonic() + WAIT_S
    while findings := tools.judge(tools.gather(target.client)):
        if time.monotonic() > deadline:
            raise BenchmarkError(
                f"the cluster is not whole after {WAIT_S:.0f} s: {findings[0].subject}: {findings[0].what}"
            )
        time.sleep(0.2)
