"""From one build to the next and back under load, process by process; and the level from which none goes back."""

from __future__ import annotations

from typing import Any

import pytest

from nyala.replica.rows import PartitionSpec
from nyala.schemas import build_level
from tests.harness.cluster import SERVER, LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.register_load import SCHEMA, RegisterLoad
from tests.harness.three_masters import MASTER, Masters, done, nyala, refused

pytestmark = pytest.mark.process
NEXT_SERVER, NEXT_MASTER = "tests.harness.next_server", "tests.harness.next_master"
NOW, NEXT = build_level(), build_level() + 1


class Upgrade:
    """Three masters and three servers, with one tablet that is written and read all the time."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.masters = Masters(cluster)
        for _ in range(3):
            cluster.add_server()
        with self.masters.client() as client:
            wait_until(lambda: sum(s.alive for s in client.list_servers().servers) == 3, "the servers are heard")
            client.create_table("registers", SCHEMA, PartitionSpec(("k",), 1), replication_factor=3)
            self.load = RegisterLoad(self.masters.addresses, client.get_table("registers"), [])
        self.load.start()
        self.load.progress("before the upgrade", 10)

    @property
    def at(self) -> tuple[str, str]:
        return "--masters", ",".join(self.masters.addresses)

    def change(self, process: ServerProcess, module: str) -> None:
        """Stop a process in order and start it with another build; the tablet's three replicas are all there again."""
        assert process.stop() == 0
        process.module = module
        process.start()
        self.load.progress(f"with {process.name} as {module}", 10)
        if process in self.cluster.servers:
            self.whole()

    def whole(self) -> None:
        wait_until(lambda: nyala("cluster", "check", *self.at).returncode == 0, "the cluster is well")

    def status(self) -> Any:
        return done("upgrade", "status", *self.at)

    def refused(self) -> str:
        return refused("upgrade", "finalize", "--yes", *self.at)


def levels(status: Any) -> list[int | None]:
    return sorted((p["feature_level"] or 0) for p in status["processes"])


def test_cluster_is_upgraded_process_by_process_and_goes_back_until_it_is_finalized() -> None:
    """IN-92, IN-93. Goal: no upgrade needs an outage, none shuts a process out, and its end is an operator's word.
    Method: under writes and reads that a checker judges, servers and masters become the next build one by one; one of
    each goes back and comes again; the level is asked for at each state and refused with who is in the way, also for a
    master that is away. Once it is raised, all hear of it, and the former build is refused: a server's directory, a
    master's directory, and a new server that begins with it."""
    with local_cluster() as cluster:
        upgrade = Upgrade(cluster)
        assert "nothing is to be finalized" in upgrade.status()["next"]
        servers, masters = cluster.servers, upgrade.masters.members
        for number, server in enumerate(servers):
            upgrade.change(server, NEXT_SERVER)
            wait_until(
                lambda number=number: levels(upgrade.status()) == [NOW] * (5 - number) + [NEXT] * (number + 1),  # type: ignore[misc]
                "the masters have heard of it",
            )
        upgrade.change(servers[0], SERVER)
        upgrade.change(servers[0], NEXT_SERVER)
        for master in masters:
            upgrade.change(master, NEXT_MASTER)
        upgrade.change(masters[0], MASTER)
        assert f"master {masters[0].uuid} runs" in upgrade.refused() or upgrade.masters.leader() is masters[0]
        assert masters[0].stop() == 0
        wait_until(lambda: "does not answer" in upgrade.refused(), "the master that is away is in the way")
        masters[0].module = NEXT_MASTER
        masters[0].start()
        wait_until(lambda: "`nyala upgrade finalize` raises it" in upgrade.status()["next"], "all know the next level")
        assert done("upgrade", "finalize", "--yes", *upgrade.at) == {"level": NEXT, "before": NOW, "unheard": []}
        assert {p["finalized_level"] for p in upgrade.status()["processes"]} == {NEXT}
        assert done("upgrade", "finalize", "--yes", *upgrade.at)["before"] == NEXT
        upgrade.load.progress("at the next level", 10)
        for process, former, later in ((servers[1], SERVER, NEXT_SERVER), (masters[1], MASTER, NEXT_MASTER)):
            assert process.stop() == 0
            process.module = former
            assert f"feature-level-{NEXT}" in process.fails()
            process.module = later
            process.start()
        stranger = cluster.add_server()
        wait_until(lambda: "this server's build is too old for it" in stranger.log_tail(), "the new server is told")
        assert stranger.uuid not in {p["uuid"] for p in upgrade.status()["processes"]}
        stranger.stop()
        upgrade.whole()
        upgrade.load.progress("at the end", 10)
        upgrade.load.stop()
        assert upgrade.load.surprises == [] and upgrade.load.history.verify() > 100
