"""One client process of a benchmark: prints `ready`, waits for `go`, works, prints one JSON line.

Rows have the shape of Kudu's own loader: int64 key, int32, string. They are made while the clock runs, as in that
loader. The clock stops when the last write is acknowledged.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from nyala.replica.client import Client, ClientOptions, ScanSpec, TableHandle, parse_masters, wire_batches
from nyala.replica.rows import Predicate, RowOp

from .options import BenchmarkError

ROWS_PER_ROUND = 150_000
"""The rows that are made and split by tablet at a time: about 50,000 for each of three tablets."""
WARM_UP_WRITES = 20


def upserted_rows(keys: Any, string_bytes: int) -> pa.Table:
    """Rows whose values are as random as their keys, as in Kudu's tool: a number, a point, then x."""
    text = (pl.Series(keys).cast(pl.String) + ".").str.pad_end(string_bytes, "x").str.slice(0, string_bytes)
    numbers = (keys & 0x7FFFFFFF).astype(np.int32)
    return pa.table(
        {"key": pa.array(keys), "int_val": pa.array(numbers), "string_val": text.to_arrow().cast(pa.string())}
    )


def rows_of(keys: Any, first: int, string_bytes: int) -> pa.Table:
    """`len(keys)` rows; `int_val` counts from `first`, `string_val` is that number in decimal with leading zeros."""
    numbers = np.arange(first, first + len(keys))
    text = pl.Series(numbers).cast(pl.String).str.zfill(string_bytes).to_arrow().cast(pa.string())
    return pa.table({"key": pa.array(keys), "int_val": pa.array(numbers.astype(np.int32)), "string_val": text})


def one_row(number: int, string_bytes: int) -> pa.RecordBatch:
    """The same row as of `rows_of`, without the work that is only worthwhile for many."""
    text = pa.array([str(number).zfill(string_bytes)])
    columns = [pa.array([number], pa.int64()), pa.array([number], pa.int32()), text]
    return pa.RecordBatch.from_arrays(columns, ["key", "int_val", "string_val"])


def bulk(client: Client, handle: TableHandle, options: argparse.Namespace) -> dict[str, Any]:
    """Insert sequential keys, or upsert random ones, in batches of about a megabyte."""
    writer = client.session_writer(handle, on_error="return")
    random = np.random.default_rng(options.start + 1)
    op = RowOp.UPSERT if options.mode == "upsert" else RowOp.INSERT
    started = time.monotonic()
    for first in range(options.start, options.start + options.rows, ROWS_PER_ROUND):
        count = min(ROWS_PER_ROUND, options.start + options.rows - first)
        if op is RowOp.UPSERT:
            rows = upserted_rows(random.integers(0, 1 << 62, count), options.string_bytes)
        else:
            rows = rows_of(np.arange(first, first + count), first, options.string_bytes)
        for batch in wire_batches(handle, rows, op, target_bytes=4 << 20):
            writer.send(batch)
    writer.flush()
    seconds = time.monotonic() - started
    return {"seconds": seconds, "applied": writer.rows_applied, "errors": len(writer.row_errors)}


def single(client: Client, handle: TableHandle, options: argparse.Namespace) -> dict[str, Any]:
    """`rows` one-row inserts from each of `threads` threads, each waiting for its own acknowledgement.

    As in Kudu's tool, the first writes, which connect, and the making of the rows count, too.
    """

    def work(first: int) -> list[float]:
        writer = client.session_writer(handle, on_error="return")
        latencies = []
        for number in range(first, first + options.rows):
            began = time.perf_counter()
            for batch in wire_batches(handle, one_row(number, options.string_bytes), RowOp.INSERT):
                if options.under_way == 1:
                    writer.write(batch)
                else:
                    writer.send(batch)
            latencies.append(time.perf_counter() - began)
        writer.flush()
        return latencies

    starts = [options.start + n * options.rows for n in range(options.threads)]
    started = time.monotonic()
    with ThreadPoolExecutor(options.threads) as pool:
        latencies = [t for part in pool.map(work, starts) for t in part]
    return {"seconds": time.monotonic() - started, "writes": len(latencies), "latencies": latencies}


def steady(client: Client, handle: TableHandle, options: argparse.Namespace) -> dict[str, Any]:
    """One-row inserts, one after the other, until the standard input ends; records the begin and the duration of
    each."""
    ended = threading.Event()

    def until_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=until_end, daemon=True).start()
    writer, writes, number = client.session_writer(handle, on_error="return"), [], options.start
    while not ended.is_set():
        row = one_row(number, options.string_bytes)
        at, began = time.time(), time.perf_counter()
        for batch in wire_batches(handle, row, RowOp.INSERT):
            writer.write(batch)
        writes.append((at, time.perf_counter() - began))
        number += 1
    return {"writes": writes[WARM_UP_WRITES:]}


def scan(client: Client, handle: TableHandle, options: argparse.Namespace) -> dict[str, Any]:
    """Read every second tablet part, so that two clients share the table; again and again for `seconds`."""
    spec = ScanSpec(columns=("key", "int_val", "string_val"), snapshot_time=options.at)
    parts = [tablet for number, tablet in enumerate(handle.tablets) if number % options.of == options.part]
    started, rows, seconds = time.monotonic(), 0, -1.0
    with ThreadPoolExecutor(max(1, len(parts))) as pool:
        while seconds < options.seconds:
            rows += sum(part.rows for part in pool.map(lambda tablet: client.scan_tablet(handle, tablet, spec), parts))
            seconds = time.monotonic() - started
    return {"seconds": seconds, "rows": rows}


def get(client: Client, handle: TableHandle, options: argparse.Namespace) -> dict[str, object]:
    """`rows` reads of a random key by each of `threads` threads, one after the other. Keys are below `keys`; each has a
    row."""

    def work(number: int) -> list[float]:
        keys, latencies = np.random.default_rng(number + 1).integers(0, options.keys, options.rows), []
        for key in keys.tolist():
            began = time.perf_counter()
            found, _ = client.get(handle, pa.record_batch([pa.array([key], pa.int64())], names=["key"]))
            latencies.append(time.perf_counter() - began)
            if found.num_rows != 1:
                raise BenchmarkError(f"key {key} was loaded and has {found.num_rows} rows")
        return latencies

    started = time.monotonic()
    with ThreadPoolExecutor(options.threads) as pool:
        latencies = [t for part in pool.map(work, range(options.threads)) for t in part]
    return {"seconds": time.monotonic() - started, "reads": len(latencies), "latencies": latencies}


def get_many(client: Client, handle: TableHandle, options: argparse.Namespace) -> dict[str, object]:
    """Reads of `rows` random keys at a time, five times."""
    rng, times = np.random.default_rng(options.start + 1), []
    for _ in range(5):
        keys = pa.record_batch([pa.array(rng.integers(0, options.keys, options.rows), pa.int64())], names=["key"])
        began = time.perf_counter()
        found, _ = client.get(handle, keys)
        times.append(time.perf_counter() - began)
        if found.num_rows != options.rows:
            raise BenchmarkError(f"{found.num_rows} of {options.rows} keys have a row, and all were loaded")
    return {"seconds": times}


def key_range(client: Client, handle: TableHandle, options: argparse.Namespace) -> dict[str, object]:
    """A scan of all columns of one hundredth of the keys, and one of all of them, five times each in turn."""
    low, count = options.keys // 3, options.keys // 100
    hundredth = (Predicate("key", ">=", (low,)), Predicate("key", "<", (low + count,)))
    times: dict[int, list[float]] = {count: [], options.keys: []}
    for _ in range(5):
        for wanted, conditions in ((count, hundredth), (options.keys, ())):
            began = time.perf_counter()
            rows = sum(part.rows for part in client.scan(handle, ScanSpec(predicates=conditions)))
            times[wanted].append(time.perf_counter() - began)
            if rows != wanted:
                raise BenchmarkError(f"a scan of {wanted} keys brought {rows} rows")
    return {"range": times[count], "full": times[options.keys]}


WORK: dict[str, Callable[[Client, TableHandle, argparse.Namespace], dict[str, Any]]] = {
    "insert": bulk,
    "upsert": bulk,
    "single": single,
    "steady": steady,
    "scan": scan,
    "get": get,
    "get-many": get_many,
    "range": key_range,
}


def main() -> int:
    """Run one piece of work."""
    parser = argparse.ArgumentParser(description="one client process of a benchmark")
    parser.add_argument("--masters", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--mode", choices=sorted(WORK), required=True)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--under-way", type=int, default=1)
    parser.add_argument("--string-bytes", type=int, default=32)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--of", type=int, default=1)
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--keys", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0)
    options = parser.parse_args()
    bounds = ClientOptions(writes_inflight_max=options.under_way) if options.mode == "single" else ClientOptions()
    with Client(parse_masters(options.masters), bounds) as client:
        handle = client.get_table(options.table)
        if options.mode != "single":
            rows_of(np.arange(10), 0, options.string_bytes)
            upserted_rows(np.arange(10), options.string_bytes)
            client.snapshot_time(handle)
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(WORK[options.mode](client, handle, options)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
