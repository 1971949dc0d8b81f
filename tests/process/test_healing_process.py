"""Healing if a living server, or its disk, is at fault; real servers, and one master that heals."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import nyala
from nyala.infra.cli.app import app
from nyala.replica.tools import gather
from nyala.replica.types import limits
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until

pytestmark = pytest.mark.process

MASTER = ("--server-dead-ms=4000", "--rereplicate-after-ms=5000", "--policy-ms=100", "--execute-decisions=master")
ROWS = 2_000


class Ward:
    """So many servers, a master that heals, one table of some tablets with rows."""

    def __init__(self, cluster: LocalCluster, *, servers: int, buckets: int) -> None:
        self.cluster = cluster
        master = cluster.add_master(*MASTER)
        for _ in range(servers):
            cluster.add_server(start=False).start(wait=False)
        for server in cluster.servers:
            server.wait_ready()
        self.nyala = nyala.connect(master.address)
        self.client = self.nyala.client
        alive = lambda: sum(s.alive for s in self.client.list_servers().servers) == servers  # noqa: E731
        wait_until(alive, "all servers are alive")
        self.nyala.create_table("t", {"id": "int64", "v": "string"}, key="id", hash_buckets=buckets)
        self.table = self.nyala.table("t")
        self.written = 0
        self.write()
        wait_until(lambda: all(len(self.running(t)) == 3 for t in self.tablets()), "three replicas of each tablet run")

    def write(self) -> None:
        """Write some more acknowledged rows."""
        self.table.upsert([{"id": i, "v": f"{i * 7919:0100d}"} for i in range(self.written, self.written + ROWS)])
        self.written += ROWS

    def tablets(self) -> list[str]:
        return [t.tablet_id for t in self.client.tablet_infos("t")]

    def voters(self) -> dict[str, frozenset[str]]:
        """Return the voters by tablet, as the master knows them; there is no other member."""
        infos = self.client.tablet_infos("t")
        wait = {t.tablet_id: [m.uuid for m in t.config.members if not m.votes] for t in infos}
        return {t.tablet_id: frozenset(m.uuid for m in t.config.members) for t in infos if not wait[t.tablet_id]}

    def status(self, server: ServerProcess, tablet_id: str) -> Any:
        return self.cluster.status(server, tablet_id)

    def running(self, tablet_id: str) -> list[str]:
        found = ((s.uuid, self.status(s, tablet_id)) for s in self.cluster.servers if s.alive)
        return [uuid for uuid, status in found if status is not None and status.phase == "RUNNING"]

    def held_by(self, server: ServerProcess) -> list[str]:
        return [t for t, members in self.voters().items() if server.uuid in members]

    def whole_without(self, server: ServerProcess) -> bool:
        """Return whether all tablets have voters only, in one listing, and the server is none of them."""
        voters = self.voters()
        return len(voters) == len(self.tablets()) and not any(server.uuid in members for members in voters.values())

    def flush(self, server: ServerProcess) -> None:
        """Flush until its replicas all have blocks, when each has applied a row: a follower may be behind its
        leader."""
        info = next(s for s in self.client.list_servers().servers if s.uuid == server.uuid)

        def flushed(tablet_id: str) -> bool:
            self.client.flush(info, tablet_id)
            return any((server.root / "data").glob(f"{tablet_id}-*.arrow"))

        for tablet_id in self.held_by(server):
            wait_until(lambda t=tablet_id: flushed(t), f"{server.name} has a block of {tablet_id}")  # type: ignore[misc]

    def failures_told(self, server: ServerProcess) -> list[int]:
        """Return how often each failing copy into the server failed, as the master lists it."""
        info = next(s for s in self.client.list_servers().servers if s.uuid == server.uuid)
        return [c.failures for c in info.copies_failing if c.error]

    def wait_whole_on(self, *servers: ServerProcess) -> None:
        """Wait until these and no others hold every tablet."""
        uuids = frozenset(s.uuid for s in servers)
        healed = lambda: set((v := self.voters()).values()) == {uuids} and len(v) == len(self.tablets())  # noqa: E731
        wait_until(healed, "every tablet stands on the good servers")

    def verify(self) -> None:
        """Check that every acknowledged row is there, and three replicas of each tablet have the same ones."""
        assert sorted(self.table.scan().to_arrow()["id"].to_pylist()) == list(range(self.written))

        def sums() -> dict[str, list[Any]] | None:
            view = gather(self.client, checksum=True)
            found = {t: [r.checksum for r in view.replicas[t] if r.checksum is not None] for t in self.tablets()}
            return found if all(len(s) == 3 for s in found.values()) else None

        for tablet_id, found in wait_until(sums, "three replicas of each tablet tell their checksums").items():
            assert len(set(found)) == 1, (tablet_id, found)


def spoil(server: ServerProcess) -> Path:
    """Put a file in place of the server's folder of blocks, which is renamed; returns the file."""
    data = server.root / "data"
    data.rename(server.root / "data-aside")
    data.write_bytes(b"")
    return data


def failed_copies(server: ServerProcess, tablet_id: str) -> int:
    log = server.log_path.read_text().splitlines()
    return sum(f" T {tablet_id} " in line and "tablet copy failed" in line for line in log)


@pytest.mark.deep
def test_live_server_into_which_no_copy_succeeds_stops_nobodys_healing() -> None:
    """TC-65, scenario 110. Goal: a server that lives and cannot take a copy is given up for another one. Method: of
    five servers one starts with a file in place of its folder of blocks; it loses its replicas, and so is the first
    choice for every new one. Another server is killed: copies fail there again and again, and nevertheless all tablets
    end on the three that are left, with every row; the master says of the bad server what failed there."""
    with local_cluster() as cluster:
        ward = Ward(cluster, servers=5, buckets=4)
        with ward.nyala:
            bad, dead, *good = cluster.servers
            ward.flush(bad)
            bad.kill()
            spoil(bad)
            bad.start()
            wait_until(lambda: ward.whole_without(bad), "it has lost all of its replicas")
            dead.kill()
            wait_until(
                lambda: max(ward.failures_told(bad), default=0) >= limits.COPY_FAILURES_MAX, "the master is told"
            )
            ward.wait_whole_on(*good)
            tried = [t for t in ward.tablets() if failed_copies(bad, t) >= limits.COPY_FAILURES_MAX]
            assert tried, "it was the first choice"
            ward.write()
            ward.verify()


@pytest.mark.deep
def test_server_in_maintenance_loses_no_replica_before_the_time_is_over() -> None:
    """OP-01: a server that is killed in maintenance keeps its replicas until the time is over, although it has been
    silent for longer than the re-replication delay before. Then the tablets are healed without anybody's doing.
    OP-02: after that the server can be forgotten, and it counts again when it comes back.

    An early replacement comes after about six seconds; so on a slow machine the test can only miss it.
    """
    with local_cluster() as cluster:
        ward = Ward(cluster, servers=4, buckets=2)
        with ward.nyala:
            masters = ("--masters", cluster.masters[0].address)
            dead = next(s for s in cluster.servers if ward.held_by(s))
            begin = f"server enter-maintenance {dead.uuid} --minutes 0.4 --reason disk --json".split()
            shown = json.loads(CliRunner().invoke(app, [*begin, *masters]).output)["maintenance"]
            dead.kill()
            wait_until(lambda: ward.whole_without(dead), "the tablets are healed")
            assert time.time() * 1e6 >= shown["until_us"]
            ward.wait_whole_on(*(s for s in cluster.servers if s is not dead))
            ward.verify()
            forget = ["server", "forget", dead.uuid, *masters]
            wait_until(lambda: CliRunner().invoke(app, forget).exit_code == 0, "it is a member no more, and forgotten")
            assert dead.uuid not in {s.uuid for s in ward.nyala.client.list_servers().servers}
            dead.start()
            wait_until(lambda: dead.uuid in {s.uuid for s in ward.nyala.client.list_servers().servers}, "it is back")
            ended = CliRunner().invoke(app, ["server", "exit-maintenance", dead.uuid, *masters])
            assert ended.exit_code == 0 and "was not in maintenance" in ended.output
