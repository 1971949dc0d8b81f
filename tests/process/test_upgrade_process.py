"""An upgrade from 0.2.0 to this build and the next one, and back, under load; and the level after which no process goes
back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from nyala.replica.rows import PartitionSpec
from nyala.schemas import build_level
from tests.harness.cluster import SERVER, LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.former_build import former_build
from tests.harness.register_load import SCHEMA, RegisterLoad
from tests.harness.three_masters import MASTER, Masters, done, nyala, refused

pytestmark = pytest.mark.process
NOW, NEXT = build_level(), build_level() + 1


class Build(NamedTuple):
    """How a server and a master of one build are started."""

    name: str
    server: str
    master: str
    env: Callable[[], Mapping[str, str]]


FORMER = Build("0.2.0", SERVER, MASTER, former_build)
THIS = Build("this build", SERVER, MASTER, dict)
LATER = Build("the next build", "tests.harness.next_server", "tests.harness.next_master", dict)

WRITE_AND_READ = """
import sys, nyala
with nyala.connect(sys.argv[1]) as cluster:
    table = cluster.table("registers")
    table.upsert({"k": -1, "v": -1})
    found = table.scan(where=nyala.col("k") == -1).to_arrow().to_pylist()
    table.delete({"k": -1})
    assert found == [{"k": -1, "v": -1}], found
    print(nyala.__version__)
"""


class Upgrade:
    """Three masters and three servers of 0.2.0, with one tablet that is written and read all the time."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.masters = Masters(cluster, env=FORMER.env())
        for _ in range(3):
            cluster.add_server(env=dict(FORMER.env()))
        with self.masters.client() as client:
            wait_until(lambda: sum(s.alive for s in client.list_servers().servers) == 3, "the servers are heard")
            client.create_table("registers", SCHEMA, PartitionSpec(("k",), 1), replication_factor=3)
            self.load = RegisterLoad(self.masters.addresses, client.get_table("registers"), [])
        self.load.start()
        self.load.progress("before the upgrade", 10)

    @property
    def at(self) -> tuple[str, str]:
        return "--masters", ",".join(self.masters.addresses)

    def swap(self, process: ServerProcess, build: Build) -> None:
        """Set another build for the next start of a process that was stopped."""
        process.module = build.master if process in self.cluster.masters else build.server
        process.env = dict(build.env())

    def change(self, process: ServerProcess, build: Build) -> None:
        """Stop a process in order and start it with another build; all three replicas are there again."""
        assert process.stop() == 0
        self.swap(process, build)
        process.start()
        self.load.progress(f"with {process.name} as {build.name}", 10)
        if process in self.cluster.servers:
            self.whole()

    def whole(self) -> None:
        wait_until(lambda: nyala("cluster", "check", *self.at).returncode == 0, "the cluster is well")

    def status(self) -> Any:
        return done("upgrade", "status", *self.at)

    def levels(self) -> list[int]:
        return sorted(p["feature_level"] or 0 for p in self.status()["processes"])

    def refused(self) -> str:
        return refused("upgrade", "finalize", "--yes", *self.at)

    def run_client(self, build: Build) -> None:
        """Run a program that writes and reads a row with that build."""
        command = [sys.executable, "-c", WRITE_AND_READ, self.at[1]]
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **build.env()}
        )
        assert ended.returncode == 0, ended.stderr
        assert (ended.stdout.strip() == "0.2.0") is (build is FORMER)


@pytest.mark.deep
def test_cluster_is_upgraded_process_by_process_and_goes_back_until_it_is_finalized() -> None:
    """IN-92, IN-93. Goal: no upgrade needs an outage, none shuts a process out, and its end is an operator's word.
    Method: under writes and reads that a checker judges, servers and masters of 0.2.0 become this build, one of each
    goes back and comes again, and then the next build; clients of both builds write and read at each state. The level
    is asked for and refused with who is in the way, also for a master that is away. Once it is raised, all hear of it,
    and 0.2.0 is refused: a server's directory, a master's directory, and a new server that begins with it."""
    with local_cluster() as cluster:
        upgrade = Upgrade(cluster)
        servers, masters = cluster.servers, upgrade.masters.members
        assert "nothing is to be finalized" in upgrade.status()["next"]
        upgrade.run_client(THIS)
        upgrade.change(servers[0], THIS)
        upgrade.change(masters[0], THIS)
        upgrade.run_client(FORMER)
        upgrade.change(servers[0], FORMER)
        upgrade.change(masters[0], FORMER)
        for process in (servers[0], masters[0], servers[1], masters[1], servers[2]):
            upgrade.change(process, LATER if process in servers else THIS)
        wait_until(lambda: upgrade.levels() == [NOW] * 3 + [NEXT] * 3, "the masters have heard of it")
        for master in masters:
            upgrade.change(master, LATER)
        upgrade.change(servers[1], FORMER)
        wait_until(lambda: f"tablet server {servers[1].uuid} runs" in upgrade.refused(), "who went back is in the way")
        upgrade.change(servers[1], LATER)
        assert masters[0].stop() == 0
        wait_until(lambda: f"{masters[0].uuid} does not answer" in upgrade.refused(), "who is away is in the way")
        masters[0].start()
        wait_until(lambda: "`nyala upgrade finalize` raises it" in upgrade.status()["next"], "all know the next level")
        assert done("upgrade", "finalize", "--yes", *upgrade.at) == {"level": NEXT, "before": NOW, "unheard": []}
        assert {p["finalized_level"] for p in upgrade.status()["processes"]} == {NEXT}
        assert done("upgrade", "finalize", "--yes", *upgrade.at)["before"] == NEXT
        upgrade.run_client(FORMER)
        for process in (servers[1], masters[1]):
            assert process.stop() == 0
            upgrade.swap(process, FORMER)
            assert f"feature-level-{NEXT}" in process.fails()
            upgrade.swap(process, LATER)
            process.start()
        stranger = cluster.add_server(env=dict(FORMER.env()))
        wait_until(lambda: "this server's build is too old for it" in stranger.log_tail(), "the new server is told")
        assert stranger.uuid not in {p["uuid"] for p in upgrade.status()["processes"]}
        stranger.stop()
        upgrade.whole()
        upgrade.load.progress("at the end", 10)
        upgrade.load.stop()
        assert upgrade.load.surprises == [] and upgrade.load.history.verify() > 100
