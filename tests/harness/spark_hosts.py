"""A program: queries of one DataFrame on a Spark cluster whose executors do not have the driver's folder.

`python -m tests.harness.spark_hosts MASTERS TABLE FOLDER` needs root, or a kernel that lets users have namespaces. The
Python workers of the executors run in a mount namespace in which another file system hides Spark's local folder. So
they do not see the driver's part of it, as on another host.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark

import nyala
from nyala.pipeline.session import spark_session
from nyala.pipeline.submit import submit_command, submit_environment

EXECUTORS = 2
WAIT_S = 120.0
WORKER = """#!/bin/sh
[ -z "$HIDDEN" ] && exec {python} "$@"
exec unshare --mount --map-root-user sh -c 'mount -t tmpfs none "$HIDDEN" && exec {python} "$@"' sh "$@"
"""
"""The interpreter of Python workers: those of the driver see all, those of executors do not see the folder."""


def wait_for(file: Path) -> None:
    """Return when the file is there."""
    end = time.monotonic() + WAIT_S
    while not file.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{file} did not come")
        time.sleep(0.02)


def main(masters: str, name: str, folder: Path) -> dict[str, Any]:
    """Return what tasks know of the driver's folder, and the values that each query finds."""
    worker, hidden = folder / "python", folder / "local"
    worker.write_text(WORKER.format(python=sys.executable))
    worker.chmod(0o755)
    conf = {
        "spark.local.dir": str(hidden),
        "spark.executorEnv.HIDDEN": str(hidden),
        "spark.executor.memory": "512m",
        "spark.cores.max": str(EXECUTORS),
    }
    command = submit_command("ingest", [], master=f"local-cluster[{EXECUTORS},1,512]", conf=conf)
    os.environ.update(submit_environment())
    # Spark runs the tasks of a Python source by the driver's interpreter, and those of an RDD by the other one.
    os.environ |= dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), str(worker))
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*command[1:-1], "pyspark-shell"])
    spark = spark_session("several hosts")
    jvm = spark.sparkContext._jvm
    (local,) = [d.getPath() for d in jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirs()]

    def place(_: int) -> tuple[str, bool]:
        time.sleep(0.5)
        return os.getcwd(), Path(local).is_dir()

    places = spark.sparkContext.parallelize(range(8), 8).map(place).collect()
    with nyala.connect(masters) as cluster:
        table = cluster.table(name)
        frame = spark.read.format("nyala").options(masters=masters, table=name).load()
        stale = spark.read.format("nyala").options(masters=masters, table=name, staleness="3600").load()
        keys = [r["k"] for r in table.scan(columns=["k"]).to_arrow().to_pylist()]
        found = {"before": values(frame)}

        begun, go = folder / "begun", folder / "go"

        def slowly(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                begun.touch()
                wait_for(go)
                yield batch

        def write_meanwhile() -> None:
            wait_for(begun)
            table.upsert([{"k": k, "v": 1} for k in keys])
            go.touch()

        writes = threading.Thread(target=write_meanwhile)
        writes.start()
        found["while rows are written"] = values(frame.mapInArrow(slowly, frame.schema))
        writes.join()
        found["after it"] = values(frame)
        found["stale"] = values(stale)
    told = {"driver": Path(local).is_dir(), "places": places, "found": found}
    application = spark.sparkContext.applicationId
    spark.stop()
    # The executors' folders are in that of the installation, wherever the others are.
    shutil.rmtree(Path(pyspark.__file__).parent / "work" / application, ignore_errors=True)
    return told


def values(frame: Any) -> list[list[int]]:
    """Return each value of a query's rows, with the number of rows that have it."""
    rows = [each["v"] for each in frame.collect()]
    return [[value, rows.count(value)] for value in sorted(set(rows))]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))
