"""Measures a rebalance plan of a large cluster: Spark's tasks read made reports and plan, as those of the job do."""

from __future__ import annotations

import os
import random
import shlex
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from nyala.pipeline.plan_tasks import made_in_tasks
from nyala.pipeline.rebalance import Plan, RebalanceOptions, planned_of
from nyala.pipeline.session import spark_session
from nyala.pipeline.submit import submit_command, submit_environment
from nyala.replica.policy import MoveKind
from nyala.replica.types import OpId, ReplicaReport, Report, kafka_topics
from nyala.schemas import encode_record

from .meter import resident_mb
from .options import BenchmarkError, PlanSize
from .report import Figures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RACKS, REPLICAS = 3, 3
PARTITIONS = kafka_topics.PARTITIONS[kafka_topics.REPORTS]
_LOOK_S = 0.2
_WITHIN_S = 3600
_RECORDS = "key binary, value binary, offset bigint"


def made_reports(size: PlanSize, at_us: int, part: int, parts: int) -> Iterator[Report]:
    """Yield this part of the reports: each tablet has a replica in each rack, on a server that chance chose, and sizes
    are skewed. The last tenth of the servers is new and has nothing."""
    rng = random.Random(part)
    numbers = {"again_within_s": _WITHIN_S}
    old = size.servers - size.servers // 10
    for n in range(part, size.servers, parts):
        yield Report(
            server_uuid=f"{n:032x}", server_address=f"h:{n + 1}", location=f"/dc1/rack{n % RACKS}", catalog_term=1,
            at_us=at_us, numbers=numbers | {"disk_bytes_free": 1 << 50},
        )  # fmt: skip
    for n in range(part, size.replicas // REPLICAS, parts):
        there = [rng.randrange(rack, old, RACKS) for rack in range(RACKS)]
        rng.shuffle(there)
        stored = int(rng.lognormvariate(17, 1.5))
        replicas = tuple(
            ReplicaReport(
                uuid=f"{server:032x}", address=f"h:{server + 1}", votes=True, promote=False, replace=False,
                health="HEALTHY", data_state=0, bytes_on_disk=stored, rows=stored // 100, is_leader=server == there[0],
                location=f"/dc1/rack{server % RACKS}",
            )
            for server in there
        )  # fmt: skip
        table = n % size.tables
        yield Report(
            tablet_id=f"{n:032x}", table_id=f"{table:032x}", table_name=f"table{table}", replication_factor=REPLICAS,
            config_opid=OpId(1, 1), leader_uuid=replicas[0].uuid, term=1, replicas=replicas, catalog_term=1,
            at_us=at_us, numbers=numbers,
        )  # fmt: skip


def _rows(size: PlanSize, at_us: int, parts: Iterable[int]) -> Iterator[tuple[bytearray, bytearray, int]]:
    for part in parts:
        for offset, report in enumerate(made_reports(size, at_us, part, PARTITIONS)):
            key = report.tablet_id or f"server:{report.server_uuid}"
            yield bytearray(key.encode()), bytearray(encode_record(report)), offset


@contextmanager
def local_spark() -> Iterator[SparkSession]:
    """A session on two cores of this machine, with the settings of a job."""
    from pyspark import SparkContext

    earlier = dict(os.environ)
    command = submit_command("rebalance", [], master="local[2]")
    os.environ.update(submit_environment())
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*command[1:-1], "pyspark-shell"])
    try:
        spark = spark_session("bench plan")
        try:
            yield spark
        finally:
            gateway = SparkContext._gateway
            spark.stop()
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(60)
    finally:
        os.environ.clear()
        os.environ.update(earlier)


def plan_round(spark: SparkSession, size: PlanSize) -> Figures:
    """Plan once for the reports of one cluster, which are made first and stored: that is not timed."""
    began_us = time.time_ns() // 1000
    options = RebalanceOptions(
        bootstrap="none:1",
        moves_max=size.moves_max,
        moves_per_server_max=size.moves_max,
        leader_moves_max=size.moves_max,
        leader_moves_per_server_max=size.moves_max,
    )
    with tempfile.TemporaryDirectory(prefix="nyala-bench-plan-") as folder:
        made = spark.sparkContext.parallelize(range(PARTITIONS), PARTITIONS).mapPartitions(
            partial(_rows, size, began_us)
        )
        spark.createDataFrame(made, _RECORDS).write.parquet(f"{folder}/reports")
        stored = spark.read.parquet(f"{folder}/reports")
        watch = _MemoryWatch()
        began_s = time.monotonic()
        plan = made_in_tasks(stored, partial(planned_of, options, began_us))
        seconds, peak_mb = time.monotonic() - began_s, watch.stop()
    if not isinstance(plan, Plan):
        raise BenchmarkError(f"no plan was made: {plan}")
    return {"plan_s": seconds, "plan_memory_mb": peak_mb, **plan_figures(plan, size)}


def plan_figures(plan: Plan, size: PlanSize) -> Figures:
    """The moves of a plan, the lower bounds that it states, and how even the servers are before and after it."""
    kinds = Counter(move.kind for move in plan.moves)
    counts = Counter({server.uuid: plan.numbers.replicas.get(server.uuid, 0) for server in plan.view.servers})
    before = max(counts.values()) - min(counts.values())
    for move in plan.moves:
        if move.kind is MoveKind.REPLICA:
            counts[move.from_uuid] -= 1
            counts[move.to_uuid] += 1
    return {
        "plan_replicas": sum(plan.numbers.replicas.values()),
        "plan_tables": size.tables,
        "plan_servers": size.servers,
        "plan_replica_moves": kinds[MoveKind.REPLICA],
        "plan_replica_bound": plan.replica_bound or 0,
        "plan_leader_moves": kinds[MoveKind.LEADER],
        "plan_leader_bound": plan.leader_bound or 0,
        "plan_skew_before": before,
        "plan_skew_after": max(counts.values()) - min(counts.values()),
    }


class _MemoryWatch:
    """The most memory that this process and its descendants, Spark and its workers, have together.

    Concurrency: a thread of its own looks a few times a second.
    """

    def __init__(self) -> None:
        self._peak_mb = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_S):
            self._peak_mb = max(self._peak_mb, sum(map(resident_mb, _family(os.getpid()))))

    def stop(self) -> float:
        """End the watch; returns the peak in MB."""
        self._stop.set()
        self._thread.join()
        return self._peak_mb


def _family(pid: int) -> Iterator[int]:
    """Yield a process and all of its descendants that are alive."""
    yield pid
    for task in _listed(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/children") as file:
                children = file.read().split()
        except OSError:
            continue
        for child in children:
            yield from _family(int(child))


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
