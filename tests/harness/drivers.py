"""Jobs under spark-submit for tests: their output, their two processes, a worker that waits for its end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nyala.infra.local.jobs import JobProcess
from nyala.infra.local.parent_death import ended_with_parent
from tests.harness.cluster import wait_until
from tests.harness.processes import children_of, command_of, is_gone
from tests.harness.road import Lane


class Driver:
    """One job: Spark's JVM and, under it, the Python that runs the job's script."""

    def __init__(self, job: str, arguments: list[str], log_file: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self.job = JobProcess(job, arguments, log_file, on_event=self.events.append)

    @classmethod
    def of_lane(cls, lane: Lane, *more: str) -> Driver:
        """Run ingest of a lane, on its checkpoint, with a lease too long to wait for, and no patience with
        another's."""
        arguments = ["--table", lane.name, "--masters", lane.road.stack.masters, "--kafka", lane.road.kafka]
        arguments += ["--checkpoint", str(lane.checkpoint), "--lease-s", "600", "--owner-wait-s", "0", *more]
        return cls("ingest", arguments, lane.road.folder / f"{lane.name}.log")

    def __enter__(self) -> Driver:
        self.job.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.job.kill()

    @property
    def jvm_pid(self) -> int:
        assert self.job.process is not None
        return self.job.process.pid

    @property
    def python_pid(self) -> int:
        """Return the pid of the JVM's child that runs the job's script; its workers come from a daemon of another
        command."""

        def found() -> int:
            return next((p for p in children_of(self.jvm_pid) if b"/jobs/" in command_of(p)), 0)

        return wait_until(found, "the driver's interpreter runs")

    def total(self, name: str) -> int:
        """Return the sum of one number over the reported micro-batches."""
        return sum(each.get(name, 0) for each in list(self.events))

    def wait_records(self, records: int) -> None:
        """Wait until so many records were read."""

        def there() -> bool:
            assert self.job.running, self.job.messages
            return self.total("records") >= records

        wait_until(there, f"the job has read {records} records", 240)


@contextmanager
def kept_ingest(lane: Lane, restarts: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run `nyala job ingest --restarts` of a lane, with a lease of an hour."""
    command = [sys.executable, "-m", "nyala.infra.cli.app", "job", "ingest", "--restarts", str(restarts)]
    command += ["--masters", lane.road.stack.masters, "--kafka", lane.road.kafka, "--", "--table", lane.name]
    command += ["--checkpoint", str(lane.checkpoint), "--lease-s", "3600", "--owner-wait-s", "3601"]
    with (
        kept_log(lane).open("wb") as log,
        subprocess.Popen(ended_with_parent(command), stdout=log, stderr=log) as keeper,
    ):
        try:
            yield keeper
        finally:
            # The job follows.
            keeper.kill()


def kept_log(lane: Lane) -> Path:
    """Return the output of the kept job and of its supervisor."""
    return lane.road.folder / f"{lane.name}.log"


def wait_paused(file: Path) -> int:
    """Return the pid of the worker that paused at the armed point."""

    def paused() -> int:
        return int(file.read_text() or 0) if file.exists() else 0

    pid = wait_until(paused, "a worker pauses", 240)
    assert not is_gone(pid)
    return pid
