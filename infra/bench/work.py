"""The same work as the peer's, on a cluster of ours: each function runs one round and returns its figures."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Any

from nyala.replica.client import Client, TableHandle
from nyala.replica.rows import Column, ColumnType, PartitionSpec, TableSchema

from .options import BenchmarkError
from .report import Figures

TABLETS = 3
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


def run_clients(masters: str, table: str, arguments: list[list[str]]) -> list[dict[str, Any]]:
    """Start one client process for each argument list, start their work at the same time, and return their results."""
    command = [sys.executable, "-m", "nyala.infra.bench.client", "--masters", masters, "--table", table]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen([*command, *more], **pipes) for more in arguments]
    try:
        for process in running:
            line = process.stdout.readline() if process.stdout else ""
            if line.strip() != "ready":
                raise BenchmarkError(f"a client ended before it was ready (status {process.poll()})")
        for process in running:
            if process.stdin:
                process.stdin.write("go\n")
                process.stdin.flush()
        printed = [process.communicate()[0] for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    if any(process.returncode for process in running):
        raise BenchmarkError(f"clients ended with {[process.returncode for process in running]}")
    return [json.loads(text) for text in printed]


def load(masters: str, table: str, rows: int, *, upsert: bool, clients: int = 2, string_bytes: int = 32) -> Figures:
    """Bulk insert of sequential keys, or upsert of random ones, timed to the slowest client's last acknowledgement."""
    each = rows // clients
    results = run_clients(
        masters,
        table,
        [
            [
                "--mode",
                "upsert" if upsert else "insert",
                "--rows",
                str(each),
                "--start",
                str(pos * each),
                "--string-bytes",
                str(string_bytes),
            ]
            for pos in range(clients)
        ],
    )
    if any(r["errors"] or r["applied"] != each for r in results):
        raise BenchmarkError(f"not every row was applied: {results}")
    name = "random_upsert_rows_per_s" if upsert else "bulk_insert_rows_per_s"
    return {name: each * clients / max(r["seconds"] for r in results)}


def single_writes(masters: str, table: str, writes: int, clients: int, start: int, under_way: int) -> Figures:
    """One-row durable writes by `clients` threads of one process, each with at most `under_way` writes under way."""
    arguments = ["--mode", "single", "--rows", str(writes // clients), "--threads", str(clients), "--start", str(start)]
    (result,) = run_clients(masters, table, [[*arguments, "--under-way", str(under_way)]])
    return single_figures(result, clients, under_way)


def single_figures(result: dict[str, Any], clients: int, under_way: int) -> Figures:
    """The output of such a process as figures; elapsed time / writes, as the peer's tool reports it."""
    if clients > 1:
        in_turn = "in_turn_" if under_way == 1 else ""
        return {f"single_write_{clients}_clients_{in_turn}per_s": result["writes"] / result["seconds"]}
    latencies, mean_ms = sorted(1000 * t for t in result["latencies"]), 1000 * result["seconds"] / result["writes"]
    if under_way > 1:
        return {"single_write_ms": mean_ms}
    return {
        "single_write_in_turn_ms": mean_ms,
        "single_write_p50_ms": latencies[len(latencies) // 2],
        "single_write_p99_ms": latencies[int(len(latencies) * 0.99)],
    }


def scan(masters: str, client: Client, table: str, clients: int = 2) -> tuple[int, Figures]:
    """(rows, figures) of a scan of three columns at one time by `clients` processes."""
    at = client.snapshot_time(client.get_table(table))
    arguments = [["--mode", "scan", "--part", str(n), "--of", str(clients), "--at", str(at)] for n in range(clients)]
    results = run_clients(masters, table, arguments)
    rows = sum(r["rows"] for r in results)
    return rows, {"scan_rows_per_s": rows / max(r["seconds"] for r in results)}


def key_reads(masters: str, table: str, keys: int, reads: int) -> Figures:
    """Reads by key of a table whose keys are the numbers below `keys`: one at a time by 1 thread and by 16, many at a
    time, and and a range of keys beside all of them."""
    known = ["--keys", str(keys)]
    (one,) = run_clients(masters, table, [["--mode", "get", "--rows", str(reads), *known]])
    (many,) = run_clients(masters, table, [["--mode", "get", "--rows", str(reads), "--threads", "16", *known]])
    (batch,) = run_clients(masters, table, [["--mode", "get-many", "--rows", str(KEYS_AT_ONCE), *known]])
    (ranges,) = run_clients(masters, table, [["--mode", "range", *known]])
    latencies = sorted(1000 * t for t in one["latencies"])
    return {
        "get_p50_ms": latencies[len(latencies) // 2],
        "get_p99_ms": latencies[int(len(latencies) * 0.99)],
        "get_16_clients_per_s": many["reads"] / many["seconds"],
        "get_many_keys_per_s": KEYS_AT_ONCE / statistics.median(batch["seconds"]),
        "key_range_ms": 1000 * statistics.median(ranges["range"]),
        "key_range_full_ms": 1000 * statistics.median(ranges["full"]),
        "key_range_ratio": statistics.median(ranges["range"]) / statistics.median(ranges["full"]),
    }
