"""`nyala up --detach` as users run it: a supervisor without a terminal, ended in order and not."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic

import nyala
from nyala.infra.local import read_state, stop
from nyala.infra.local.ports import PORT_MIN, first_given_port
from nyala.replica.types import Refused
from tests.harness.cluster import wait_until
from tests.harness.processes import is_gone, kill

ROWS = [{"id": n, "name": f"row {n}"} for n in range(100)]


def say(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run `nyala ...` about the stack in `folder`, in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NYALA_M")} | {"NYALA_DIR": str(folder)}
    told = [sys.executable, "-m", "nyala.infra.cli.app", *command]
    return subprocess.run(told, env=environment, capture_output=True, text=True, timeout=300, check=False)


def up(folder: Path, *options: str) -> dict[str, Any]:
    """Start the stack; returns its state."""
    ended = say(folder, "up", "--detach", *options)
    assert ended.returncode == 0, ended.stderr
    state = read_state(folder)
    assert state is not None
    return state


def rows_of(state: dict[str, Any]) -> list[dict[str, Any]]:
    with nyala.connect(state["masters"]) as cluster:
        return sorted(cluster.table("kept").scan().to_arrow().to_pylist(), key=lambda row: row["id"])


@pytest.mark.process
@pytest.mark.deep
def test_death_of_a_detached_supervisor_leaves_no_orphan_and_loses_no_row(tmp_path: Path) -> None:
    """Goal: a kill of the supervisor ends the stack, and the next start restores it as it was. Method: rows, kill -9 of
    the supervisor; every child ends, `nyala status` and a table's command report that no stack runs; `nyala up` again
    serves the rows at the same addresses; `nyala down` ends all of it."""
    folder = tmp_path / "stack"
    state = up(folder, "--no-kafka")
    try:
        ports = [int(address.rpartition(":")[2]) for address in state["addresses"].values()]
        assert max(ports) < first_given_port() or first_given_port() <= PORT_MIN, "others' connections could sit there"
        with nyala.connect(state["masters"]) as cluster:
            table = cluster.create_table("kept", {"id": "int64", "name": "string"}, key="id")
            table.insert(ROWS)
        kill(state["pid"])
        orphans = [child["pid"] for child in state["children"]]
        assert len(orphans) == 4
        wait_until(lambda: all(map(is_gone, orphans)), "master and servers have ended with their supervisor")
        for command in (["status"], ["table", "list"]):
            ended = say(folder, *command)
            assert ended.returncode != 0 and "no stack runs" in ended.stderr and "nyala up" in ended.stderr
        again = up(folder, "--no-kafka")
        assert again["addresses"] == state["addresses"] and again["pid"] != state["pid"]
        assert rows_of(again) == ROWS
        ended = say(folder, "down")
        assert ended.returncode == 0, ended.stderr
        assert all(is_gone(child["pid"]) for child in again["children"])
    finally:
        stop(folder)


@pytest.mark.e2e
@pytest.mark.deep
def test_death_of_a_supervisor_under_load_takes_its_broker_along_and_loses_nothing(tmp_path: Path) -> None:
    """Goal: of a whole stack that is written to, the broker too ends with the supervisor, and what was acknowledged is
    there when it is started again. Method: rows one after the other and records of a topic; kill -9 of the supervisor
    amid them; the broker's JVM and every child are gone; `nyala up` serves each acknowledged row and record at the same
    addresses, to the same writer."""
    folder = tmp_path / "stack"
    state = up(folder)
    try:
        admin = KafkaAdminClient(bootstrap_servers=state["kafka"])
        admin.create_topics([NewTopic("kept", 1, 1)])
        admin.close()
        jvm = json.loads((folder / "kafka.ready").read_text())["pid"]
        with nyala.connect(state["masters"]) as cluster:
            table, written = cluster.create_table("kept", {"id": "int64"}, key="id"), []
            half, given_up = threading.Event(), threading.Event()

            def write() -> None:
                while (number := len(written)) < 400 and not given_up.is_set():
                    with suppress(Refused):  # a machine may take longer to start it again than a write waits
                        table.upsert([{"id": number}])
                        written.append(number)
                    if number == 100:
                        half.set()

            with (
                ThreadPoolExecutor(1) as pool,
                ExitStack() as at_the_end,
                KafkaProducer(bootstrap_servers=state["kafka"]) as producer,
            ):
                at_the_end.callback(given_up.set)  # or the pool would wait for a writer whose stack never comes back
                writing = pool.submit(write)
                for number in range(50):
                    producer.send("kept", value=b"%d" % number).get(60)
                assert half.wait(120)
                kill(state["pid"])
                gone = [jvm, *(child["pid"] for child in state["children"])]
                wait_until(lambda: all(map(is_gone, gone)), "the broker and every child have ended with the supervisor")
                again = up(folder)
                assert (again["kafka"], again["addresses"]) == (state["kafka"], state["addresses"])
                writing.result(300)
            assert written == list(range(400))
        with nyala.connect(again["masters"]) as cluster:
            assert sorted(cluster.table("kept").scan().to_arrow()["id"].to_pylist()) == written
        with KafkaConsumer("kept", bootstrap_servers=again["kafka"], auto_offset_reset="earliest") as consumer:
            found = list(itertools.islice(consumer, 50))
        assert [record.value for record in found] == [b"%d" % number for number in range(50)]
    finally:
        stop(folder)
