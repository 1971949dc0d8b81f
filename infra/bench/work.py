"""The same work as the peer's, on a cluster of ours: each function runs one round and returns its figures."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from nyala.replica.client import Client, TableHandle
from nyala.replica.rows import Column, ColumnType, PartitionSpec, TableSchema

from .options import BenchmarkError
from .report import Figures, percentile_ms

TABLETS = 3
CLIENTS = 2
"""Processes that load or scan a table."""
STRING_BYTES = 32
KEYS_AT_ONCE = 10_000
SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="key", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="int_val", type=ColumnType.INT32),
        Column(id=3, name="string_val", type=ColumnType.STRING),
    ),
    ("key",),
)


def new_table(client: Client, name: str, tablets: int = TABLETS) -> TableHandle:
    """A fresh table with three replicas of each tablet."""
    handle = client.create_table(name, SCHEMA, PartitionSpec(("key",), tablets))
    client.snapshot_time(handle)
    return handle


def started(masters: str, table: str, mode: str, **more: object) -> subprocess.Popen[str]:
    """A client process (`client.py`) that is ready to work; `go` lets it. `more`: its other options by their names."""
    return _ready(_command(masters, table, mode, more))


def _command(masters: str, table: str, mode: str, more: Mapping[str, object]) -> list[str]:
    command = [sys.executable, "-m", "nyala.infra.bench.client", "--masters", masters, "--table", table, "--mode", mode]
    return [*command, *(f"--{name.replace('_', '-')}={value}" for name, value in more.items())]


def _ready(command: Sequence[str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline() if process.stdout else ""
    if line.strip() != "ready":
        process.kill()
        raise BenchmarkError(f"a client ended before it was ready (status {process.wait()})")
    return process


def go(process: subprocess.Popen[str]) -> None:
    """Let a client work that is ready."""
    if process.stdin:
        process.stdin.write("go\n")
        process.stdin.flush()


def run_clients(masters: str, table: str, mode: str, options: Sequence[Mapping[str, object]]) -> list[dict[str, Any]]:
    """Start one client process for each set of options, start their work at the same time, and return their results."""
    return [json.loads(text) for text in run_processes([_command(masters, table, mode, more) for more in options])]


def run_processes(commands: Sequence[Sequence[str]]) -> list[str]:
    """Start the processes, which print `ready` and wait for `go`, start their work at the same time, and return the
    JSON that each prints at its end."""
    running: list[subprocess.Popen[str]] = []
    try:
        running += map(_ready, commands)
        for process in running:
            go(process)
        printed = [process.communicate()[0] for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    if any(process.returncode for process in running):
        raise BenchmarkError(f"clients ended with {[process.returncode for process in running]}")
    return printed


def load(masters: str, table: str, rows: int, *, upsert: bool, string_bytes: int = STRING_BYTES) -> Figures:
    """Bulk insert of sequential keys, or upsert of random ones, timed to the slowest client's last acknowledgement."""
    each = rows // CLIENTS
    parts = [{"rows": each, "start": pos * each, "string_bytes": string_bytes} for pos in range(CLIENTS)]
    results = run_clients(masters, table, "upsert" if upsert else "insert", parts)
    if any(r["errors"] or r["applied"] != each for r in results):
        raise BenchmarkError(f"not every row was applied: {results}")
    name = "random_upsert_rows_per_s" if upsert else "bulk_insert_rows_per_s"
    return {name: each * CLIENTS / max(r["seconds"] for r in results)}


def single_writes(masters: str, table: str, writes: int, clients: int, start: int, under_way: int) -> Figures:
    """One-row durable writes by `clients` threads of one process, each with at most `under_way` writes under way."""
    options = {"rows": writes // clients, "threads": clients, "start": start, "under_way": under_way}
    (result,) = run_clients(masters, table, "single", [options])
    return single_figures(result, clients, under_way)


def single_figures(result: dict[str, Any], clients: int, under_way: int) -> Figures:
    """The output of such a process as figures; elapsed time / writes, as the peer's tool reports it."""
    if clients > 1:
        in_turn = "in_turn_" if under_way == 1 else ""
        return {f"single_write_{clients}_clients_{in_turn}per_s": result["writes"] / result["seconds"]}
    mean_ms = 1000 * result["seconds"] / result["writes"]
    if under_way > 1:
        return {"single_write_ms": mean_ms}
    return {
        "single_write_in_turn_ms": mean_ms,
        "single_write_p50_ms": percentile_ms(result["latencies"], 0.5),
        "single_write_p99_ms": percentile_ms(result["latencies"], 0.99),
    }


def scan(masters: str, client: Client, table: str) -> tuple[int, Figures]:
    """(rows, figures) of a scan of three columns, as of one hybrid time, by CLIENTS processes."""
    results = _scans(masters, client, table, 0.0)
    rows = int(sum((r["rows"] for r in results), 0.0))
    return rows, {"scan_rows_per_s": rows / max(r["seconds"] for r in results)}


def repeated_scans(masters: str, client: Client, table: str, seconds: float) -> tuple[int, Figures]:
    """(rows, figures) of the same scan, which each process repeats for so long."""
    results = _scans(masters, client, table, seconds)
    rows = int(sum((r["rows"] for r in results), 0.0))
    return rows, {"scan_repeated_rows_per_s": sum(r["rows"] / r["seconds"] for r in results)}


def _scans(masters: str, client: Client, table: str, seconds: float) -> list[dict[str, float]]:
    at = client.snapshot_time(client.get_table(table))
    parts = [{"part": n, "of": CLIENTS, "at": at, "seconds": seconds} for n in range(CLIENTS)]
    return run_clients(masters, table, "scan", parts)


def key_reads(masters: str, table: str, keys: int, reads: int) -> Figures:
    """Reads by key of a table whose keys are the numbers below `keys`: one at a time by 1 thread and by 16, many at a
    time, and a range of keys beside all of them."""
    (one,) = run_clients(masters, table, "get", [{"rows": reads, "keys": keys}])
    (many,) = run_clients(masters, table, "get", [{"rows": reads, "keys": keys, "threads": 16}])
    (batch,) = run_clients(masters, table, "get-many", [{"rows": KEYS_AT_ONCE, "keys": keys}])
    (ranges,) = run_clients(masters, table, "range", [{"keys": keys}])
    part_s, full_s = statistics.median(ranges["range"]), statistics.median(ranges["full"])
    return {
        "get_p50_ms": percentile_ms(one["latencies"], 0.5),
        "get_p99_ms": percentile_ms(one["latencies"], 0.99),
        "get_16_clients_per_s": many["reads"] / many["seconds"],
        "get_many_keys_per_s": KEYS_AT_ONCE / statistics.median(batch["seconds"]),
        "key_range_ms": 1000 * part_s,
        "key_range_full_ms": 1000 * full_s,
        "key_range_ratio": part_s / full_s,
    }
