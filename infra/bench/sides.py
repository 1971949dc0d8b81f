"""One round of each kind of work on a cluster of ours: load, one-row writes, scans; and a job that is timed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nyala.infra.local.jobs import Event, JobProcess
from nyala.replica.client import ScanSpec, TableHandle
from nyala.replica.rpc import pb
from nyala.replica.types import Refused

from . import streams, work
from .idle import REPLICAS, wait_led
from .meter import Meter, WalWatch
from .options import BenchmarkError
from .report import Figures
from .target import Target

WRITERS = 16
JOB_WAIT_S = 1200.0
UNDER_WAY = 2
"""The most writes of each client that are under way, when it need not wait for each."""
WRITES_OF_MANY = 8
"""The 16 clients together write this many times the rows that the single client writes."""


@contextmanager
def fresh_table(target: Target, name: str, tablets: int = work.TABLETS) -> Iterator[TableHandle]:
    """A new table, with leaders and all replicas, dropped at the end; one that an interrupted run left is dropped
    first."""
    try:
        target.client.drop_table(name)
    except Refused as error:
        if error.code.name != "NOT_FOUND":
            raise
    handle = work.new_table(target.client, name, tablets)
    try:
        wait_led(target, [t.tablet_id for t in handle.tablets], REPLICAS)
        yield handle
    finally:
        target.client.drop_table(name)


def check_count(what: str, found: int, wanted: int) -> None:
    """BenchmarkError unless the table has all written rows."""
    if found != wanted:
        raise BenchmarkError(f"{what}: the table holds {found:,} rows, not {wanted:,}")


def load_round(target: Target, rows: int, number: int) -> Figures:
    """Bulk insert, then random upsert, each into a fresh table that is counted afterwards."""
    rows -= rows % 2
    figures: Figures = {"load_elections": 0.0, "load_loop_lag_ms": 0.0, "load_gil_hold_ms": 0.0}
    for kind, upsert in (("insert", False), ("upsert", True)):
        with fresh_table(target, f"bench_{kind}_{number}") as handle:
            terms, began = terms_of(_replicas(target, handle)), time.monotonic()
            meter = Meter(target.pids())
            watch = WalWatch(list(target.folders.values()), [t.tablet_id for t in handle.tablets])
            figures |= work.load(target.masters, handle.name, rows, upsert=upsert)
            lateness = [target.client.lateness(s, time.monotonic() - began) for s in target.servers()]
            replicas = _replicas(target, handle)
            figures["load_elections"] += terms_of(replicas) - terms
            figures["load_loop_lag_ms"] = max([figures["load_loop_lag_ms"], *(each.loop_lag_ms for each in lateness)])
            figures["load_gil_hold_ms"] = max([figures["load_gil_hold_ms"], *(each.gil_hold_ms for each in lateness)])
            figures |= meter.figures(kind, rows)
            figures |= _wal_figures(kind, replicas, watch.removed_bytes(), rows)
            check_count(f"{kind} of {rows:,} rows", target.client.count(handle, ScanSpec()), rows)
    return figures


def _replicas(target: Target, handle: TableHandle) -> list[pb.ReplicaStatus]:
    return [r for some in target.replicas(handle).values() for r in some]


def terms_of(replicas: list[pb.ReplicaStatus]) -> int:
    """The sum of the terms of all tablets, each by its furthest replica: each election raises it by one."""
    terms: dict[str, int] = {}
    for replica in replicas:
        terms[replica.tablet_id] = max(replica.term, terms.get(replica.tablet_id, 0))
    return sum(terms.values())


def _wal_figures(kind: str, replicas: list[pb.ReplicaStatus], removed_bytes: int, rows: int) -> Figures:
    """The logged bytes, those of removed segments included, per row and replica of its tablet."""
    tablets = len({r.tablet_id for r in replicas})
    written = removed_bytes + sum(r.wal_bytes for r in replicas)
    return {f"{kind}_wal_bytes_per_row": written * tablets / (max(1, len(replicas)) * rows)}


def write_round(target: Target, writes: int, number: int) -> Figures:
    """One-row durable writes by one client, then by 16, each into a fresh table that is counted afterwards.

    A client first has up to two writes under way, as in the peer's tool, and then one, to measure a write that is
    waited for.
    """
    figures: Figures = {}
    for clients, count in ((1, writes), (WRITERS, WRITES_OF_MANY * writes)):
        count -= count % clients
        with fresh_table(target, f"bench_write_{clients}_{number}") as handle:
            meter = Meter(target.pids())
            figures |= work.single_writes(target.masters, handle.name, count, clients, 0, UNDER_WAY)
            figures |= meter.figures(f"write_{clients}", count)
            figures |= work.single_writes(target.masters, handle.name, count, clients, count, 1)
            check_count(f"{2 * count:,} one-row writes", target.client.count(handle, ScanSpec()), 2 * count)
    return figures


@contextmanager
def loaded_table(target: Target, rows: int, *, tablets: int = work.TABLETS, string_bytes: int = 32) -> Iterator[str]:
    """A table with `rows` rows in flushed blocks."""
    with fresh_table(target, "bench_loaded", tablets) as handle:
        work.load(target.masters, handle.name, rows, upsert=False, string_bytes=string_bytes)
        target.flush(handle)
        yield handle.name


def scan_round(target: Target, table: str, rows: int, seconds: float) -> Figures:
    """A scan of three columns by two client processes, once, and repeated for so long; and bare streams of the same
    rows, each as long."""
    found, figures = work.scan(target.masters, target.client, table)
    check_count("scan", found, rows)
    meter = Meter(target.pids())
    found, repeated = work.repeated_scans(target.masters, target.client, table, seconds)
    figures |= repeated | meter.figures("scan", found) | streams.streams_round(rows, seconds)
    for kind in streams.kinds():
        figures[f"scan_to_{kind}_ratio"] = figures["scan_repeated_rows_per_s"] / figures[f"bare_{kind}_rows_per_s"]
    return figures


def timed_job(
    name: str, arguments: Sequence[str], folder: Path, on_event: Callable[[Event], None]
) -> tuple[JobProcess, int, float]:
    """Return the job that has ended, its exit status and its seconds; BenchmarkError if it does not end.

    Its log is in `folder`/logs.
    """
    job = JobProcess(name, arguments, folder / "logs" / f"{name}.log", on_event=on_event)
    began = time.monotonic()
    try:
        status = job.start().wait(JOB_WAIT_S)
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"the {name} job did not end in {JOB_WAIT_S:.0f} s") from None
    finally:
        if job.running:
            job.kill()
    return job, status, time.monotonic() - began
