"""Measures Kafka → Spark → table: the topic is filled first, then one job reads it to its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nyala.infra.local import ChildState, Supervisor
from nyala.infra.local.parent_death import ended_with_parent
from nyala.pipeline import QUERY_ENDED, QUERY_STARTS, RowPublisher, Topics
from nyala.replica.client import ScanSpec

from .meter import Meter
from .options import BenchmarkError
from .report import Figures
from .sides import JOB_WAIT_S, check_count, fresh_table, timed_job
from .target import Target
from .work import SCHEMA

TOPIC = "bench.rows"
KAFKA_PARTITIONS = 2
PUBLISHED_EVERY = 50_000


class Batches:
    """The begin and end of the query and of its first micro-batch, from the events that a job prints.

    Concurrency: `note` on the thread that reads the job, the rest after the job has ended.
    """

    def __init__(self) -> None:
        self.began: float | None = None
        self.ended = 0.0
        self.query_began: float | None = None
        self.query_ended = 0.0
        self.dead_letters = 0

    def note(self, event: Mapping[str, Any]) -> None:
        """Note one event, at the time at which it is printed: of the query, or the end of a micro-batch."""
        if event.get("event") == QUERY_STARTS and self.query_began is None:
            self.query_began = time.monotonic()
        if event.get("event") == QUERY_ENDED:
            self.query_ended = time.monotonic()
        if event.get("event") != "micro_batch":
            return
        self.ended = time.monotonic()
        self.dead_letters += int(event.get("dead_letters", 0))
        if self.began is None:
            self.began = self.ended - float(event.get("duration_s", 0.0))

    def figures(self, rows: int, rows_per_batch: int, whole_s: float) -> Figures:
        """Rows a second from the query's start to its end, from submit to end, and of the micro-batches alone.

        BenchmarkError if nothing was ingested, or the query did not end by itself.
        """
        if self.began is None or self.ended <= self.began:
            raise BenchmarkError("the job ended without a micro-batch")
        if self.dead_letters:
            raise BenchmarkError(f"{self.dead_letters} records became dead letters")
        if self.query_began is None or self.query_ended < self.ended:
            raise BenchmarkError("the job did not say when its query began and ended")
        return {
            "pipeline_rows": rows,
            "pipeline_rows_per_batch_max": rows_per_batch,
            "pipeline_query_rows_per_s": rows / (self.query_ended - self.query_began),
            "pipeline_rows_per_s": rows / whole_s,
            "pipeline_batches_rows_per_s": rows / (self.ended - self.began),
        }


def publish(bootstrap: str, rows: int, note: Callable[[str], None]) -> None:
    """Fill the topic with `rows` single-row records of distinct random keys; not timed."""
    topics = Topics(bootstrap)
    topics.ensure(TOPIC, KAFKA_PARTITIONS)
    topics.close()
    random = np.random.default_rng(1)
    with RowPublisher(bootstrap, TOPIC, SCHEMA, bulk=True) as publisher:
        for number in range(rows):
            if number % PUBLISHED_EVERY == 0:
                keys = random.integers(0, 1 << 62, PUBLISHED_EVERY).tolist()
                note(f"publishing: {number:,} of {rows:,} records")
            key = keys[number % PUBLISHED_EVERY]
            publisher.publish({"key": key, "int_val": number, "string_val": f"{number:032d}"})


def kafka_pid(stack: Supervisor) -> dict[str, int]:
    """The broker's process, to be measured with the servers: the JVM that the supervised child reports."""
    child = stack.children["kafka"]
    return {"kafka": int(child.ready["pid"])} if child.state is ChildState.READY else {}


def pipeline_round(target: Target, rows: int, rows_per_batch: int, number: int) -> Figures:
    """One run of the ingest job over the whole topic, into a new table that is counted afterwards."""
    stack, client = target.own, target.client
    pids = target.pids() | kafka_pid(stack)
    with fresh_table(target, f"bench_pipeline_{number}") as handle:
        arguments = [
            "--table", handle.name, "--topic", TOPIC, "--masters", target.masters, "--kafka", stack.kafka_bootstrap,
            "--checkpoint", str(stack.folder / f"checkpoint-{number}"), "--available-now",
            "--offsets-per-trigger-max", str(rows_per_batch),
        ]  # fmt: skip
        batches, meter = Batches(), Meter(pids)
        job, status, whole_s = timed_job("ingest", arguments, stack.folder, batches.note)
        if status:
            raise BenchmarkError(f"the ingest job ended with status {status}: {' '.join(job.messages[-1:])}")
        figures = batches.figures(rows, rows_per_batch, whole_s) | meter.figures("pipeline", rows)
        check_count("pipeline", client.count(handle, ScanSpec()), rows)
        return figures


@dataclass
class OtherJob:
    """A job of a peer: any command that prints the same micro-batch events."""

    command: Sequence[str]
    environment: Mapping[str, str]
    log_file: Path

    def run(self, rows: int, rows_per_batch: int) -> Figures:
        """The figures of a run; BenchmarkError with the log's last line if it fails."""
        batches = Batches()
        began = time.monotonic()
        with self.log_file.open("ab") as log:
            process = subprocess.Popen(
                ended_with_parent(self.command),
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        watchdog = threading.Timer(JOB_WAIT_S, _kill_group, [process])
        watchdog.start()
        try:
            for line in process.stdout or ():
                if line.startswith("{"):
                    batches.note(json.loads(line))
            status = process.wait()
        finally:
            watchdog.cancel()
            _kill_group(process)
            process.wait()
        whole_s = time.monotonic() - began
        if status:
            said = self.log_file.read_text(errors="replace").strip().splitlines()
            raise BenchmarkError(f"the peer's job ended, status {status}: {said[-1][:300] if said else 'no message'}")
        return batches.figures(rows, rows_per_batch, whole_s)


def _kill_group(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
