"""Default reads of a Spark cluster of several hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nyala
from tests.harness.cluster import local_cluster, wait_until

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
ROWS = 40


@pytest.mark.deep
def test_query_on_several_hosts_has_one_time_and_the_next_a_later_one(tmp_path: Path) -> None:
    """Goal: a default read works on a Spark cluster of several hosts: all tasks of a query read at one time, and the
    next query of the DataFrame at a later one. Method: a Spark cluster of two executors, whose Python workers do not
    see the driver's folder. Four tablets are read by two tasks at a time. When the first tasks have read,
    every row is changed, and then the other tasks read: the query has the old rows only. The next one has the new
    rows, and so has one that may be stale."""
    with local_cluster() as cluster:
        master = cluster.add_master("--execute-decisions=none")
        cluster.add_server()
        with nyala.connect(master.address) as client:
            wait_until(lambda: any(s.alive for s in client.client.list_servers().servers), "the server is alive")
            table = client.create_table(
                "t", {"k": "int64", "v": "int64"}, key="k", hash_buckets=4, replication_factor=1
            )
            table.insert([{"k": k, "v": 0} for k in range(ROWS)])
        command = [sys.executable, "-m", "tests.harness.spark_hosts", master.address, "t", str(tmp_path)]
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        )
    assert ended.returncode == 0, ended.stderr[-4000:]
    told = json.loads(ended.stdout.splitlines()[-1])
    assert len({folder for folder, _ in told["places"]}) == 2
    assert told["driver"] and not any(sees for _, sees in told["places"])
    assert told["found"] == {
        "before": [[0, ROWS]],
        "while rows are written": [[0, ROWS]],
        "after it": [[1, ROWS]],
        "stale": [[1, ROWS]],
    }
