"""One round of each kind of work on the Kudu cluster; the figures have the same names as our own."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass

from nyala.infra.bench.copying import ROW_BYTES, STRING_BYTES
from nyala.infra.bench.meter import Meter
from nyala.infra.bench.options import BenchmarkError
from nyala.infra.bench.pipeline import TOPIC, OtherJob, kafka_pid
from nyala.infra.bench.report import Figures
from nyala.infra.bench.sides import UNDER_WAY, WRITERS, WRITES_OF_MANY, check_count
from nyala.infra.bench.work import SCHEMA, TABLETS
from nyala.infra.local import Supervisor
from nyala.pipeline import row_schema_json

from .kudu import KuduCluster, folder_bytes
from .kudu_pipeline import KuduPipeline

SETTLE_WAIT_S = 60.0
SETTLE_LOOK_S = 3.0


def load_round(cluster: KuduCluster, rows: int, number: int) -> Figures:
    """Like `sides.load_round`."""
    rows -= rows % 2
    figures: Figures = {}
    for kind, upsert in (("insert", False), ("upsert", True)):
        table = f"bench_{kind}_{number}"
        cluster.create_table(table, TABLETS)
        meter = Meter(cluster.pids())
        seconds = cluster.load(table, rows, upsert=upsert)
        figures["random_upsert_rows_per_s" if upsert else "bulk_insert_rows_per_s"] = rows / seconds
        figures |= meter.figures(kind, rows)
        found, _ = cluster.scan(table)
        check_count(f"Kudu, {kind} of {rows:,} rows", found, rows)
        cluster.delete_table(table)
    return figures


def write_round(cluster: KuduCluster, writes: int, number: int) -> Figures:
    """Like `sides.write_round`; Kudu's tool prints no percentiles."""
    figures: Figures = {}
    for clients, count in ((1, writes), (WRITERS, WRITES_OF_MANY * writes)):
        count -= count % clients
        table = f"bench_write_{clients}_{number}"
        cluster.create_table(table, TABLETS)
        meter = Meter(cluster.pids())
        seconds = cluster.single_writes(table, count, clients, buffers=UNDER_WAY)
        figures |= meter.figures(f"write_{clients}", count)
        in_turn_s = cluster.single_writes(table, count, clients, first=count, buffers=1)
        if clients == 1:
            figures |= {"single_write_ms": 1000 * seconds / count, "single_write_in_turn_ms": 1000 * in_turn_s / count}
        else:
            name = f"single_write_{clients}_clients"
            figures |= {f"{name}_per_s": count / seconds, f"{name}_in_turn_per_s": count / in_turn_s}
        found, _ = cluster.scan(table)
        check_count(f"Kudu, {2 * count:,} one-row writes", found, 2 * count)
        cluster.delete_table(table)
    return figures


def load_table(cluster: KuduCluster, table: str, rows: int, *, tablets: int = TABLETS, string_bytes: int = 32) -> None:
    """Load a table with `rows` rows, and wait a moment for its background work."""
    cluster.create_table(table, tablets)
    cluster.load(table, rows, string_bytes=string_bytes)
    deadline, before = time.monotonic() + SETTLE_WAIT_S, -1
    while (now := folder_bytes(cluster.folder)) != before and time.monotonic() < deadline:
        before = now
        time.sleep(SETTLE_LOOK_S)


def scan_round(cluster: KuduCluster, table: str, rows: int) -> Figures:
    """Like `sides.scan_round`; with two threads of one tool instead of two processes."""
    meter = Meter(cluster.pids())
    found, seconds = cluster.scan(table)
    check_count("Kudu, scan", found, rows)
    return {"scan_rows_per_s": rows / seconds, **meter.figures("scan", rows)}


def pipeline_round(
    cluster: KuduCluster, job: KuduPipeline, stack: Supervisor, rows: int, rows_per_batch: int, number: int
) -> Figures:
    """Like `pipeline.pipeline_round`: the same topic, the same rows a micro-batch, Spark 3.5 and Kudu's connector."""
    table = f"bench_pipeline_{number}"
    cluster.create_table(table, TABLETS)
    command = job.command(
        kafka=stack.kafka_bootstrap,
        topic=TOPIC,
        master=cluster.master,
        table=table,
        schema=row_schema_json(SCHEMA),
        checkpoint=cluster.folder / f"checkpoint-{number}",
        offsets_per_trigger_max=rows_per_batch,
    )
    meter = Meter(cluster.pids() | kafka_pid(stack))
    figures = OtherJob(command, job.environment(), cluster.folder / "pipeline.log").run(rows, rows_per_batch)
    figures |= meter.figures("pipeline", rows)
    found, _ = cluster.scan(table)
    check_count("Kudu, pipeline", found, rows)
    cluster.delete_table(table)
    return figures


@dataclass
class KuduMover:
    """Like `copying.Mover`."""

    cluster: KuduCluster
    table: str
    last: int = 0

    def round(self, number: int) -> Figures:
        """Add a server, move a replica there, end the server that had joined for the round before."""
        cluster = self.cluster
        target = cluster.servers + 1 + number
        cluster.start_server(target)
        cluster.wait_registered(target)
        tablet, replicas = next(iter(sorted(cluster.tablets(self.table).items())))
        followers = sorted(n for leads, n in replicas if not leads)
        source = self.last or (followers[0] if followers else 0)
        if not source:
            raise BenchmarkError(f"Kudu tablet {tablet} has no follower to move")
        meter = Meter(cluster.pids())
        moved = cluster.copy(tablet, source, target)
        used = meter.figures("copy", int(moved["bytes"]) // ROW_BYTES)
        if self.last:
            cluster.kill_server(self.last)
            shutil.rmtree(cluster.folder / f"t{self.last}", ignore_errors=True)
        self.last = target
        megabytes = moved["bytes"] / 1e6
        return {
            "copy_mb": megabytes,
            "download_s": moved["download_s"],
            "copy_mb_per_s": megabytes / max(moved["download_s"], 1e-3),
            "move_s": moved["move_s"],
            **used,
        }


def copy_table(cluster: KuduCluster, table: str, rows: int, tablets: int) -> KuduMover:
    """A table for moves, with rows as wide as ours."""
    load_table(cluster, table, rows, tablets=tablets, string_bytes=STRING_BYTES)
    return KuduMover(cluster, table)
