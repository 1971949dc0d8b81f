"""Three masters and four tablet servers on a machine that has IPv6 addresses only.

Run by `tests.harness.netns.contained`: `python -m tests.harness.ipv6_drive FILE`. It writes the results to FILE.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nyala
from nyala.replica.tools import Severity, gather, judge
from nyala.replica.types import DataState
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.three_masters import FLAGS, MASTER

HOST = "[::1]"
PORTS = (7051, 7052, 7053)
MASTERS = ",".join(f"{HOST}:{port}" for port in PORTS)
ROWS = 20_000
COMMAND = str(Path(sys.executable).with_name("nyala"))
COMMANDS = ("server list", "master list", "tablet list", "cluster check", "table scan six --limit 1")


def start(cluster: LocalCluster) -> None:
    """Start all masters and all servers."""
    for number, port in enumerate(PORTS):
        extra = (*FLAGS, "--execute-decisions=master", f"--peers={MASTERS}")
        master = ServerProcess(f"m{number}", MASTER, cluster.folder / f"m{number}", extra, address=f"{HOST}:{port}")
        cluster.masters.append(master.start(wait=False))
    for number in range(4):
        extra = ("--masters", MASTERS)
        server = ServerProcess(f"ts{number}", cluster.module, cluster.folder / f"ts{number}", extra, host=HOST)
        cluster.servers.append(server.start(wait=False))
    for process in (*cluster.masters, *cluster.servers):
        process.wait_ready()


def all_of_it(cluster: LocalCluster) -> dict[str, Any]:
    """Write and read, run commands, lose a leader and a master, and move a replica by a copy."""
    start(cluster)
    with wait_until(lambda: nyala.connect(MASTERS), "a master leads") as connected:
        client = connected.client
        wait_until(lambda: sum(s.alive for s in client.list_servers().servers) == 4, "four servers are alive")
        table = connected.create_table("six", {"k": "int64", "v": "string"}, key="k", replication_factor=3)
        table.insert([{"k": k, "v": "x" * 100} for k in range(ROWS)])
        table.insert([{"k": ROWS, "v": "one row, by the link for small writes"}])
        codes = {
            words: subprocess.run(
                [COMMAND, *words.split(), "--masters", MASTERS], capture_output=True, text=True, check=False
            ).returncode
            for words in COMMANDS
        }
        tablet = table.handle.tablets[0].tablet_id
        members = {s.uuid for s in cluster.servers if cluster.status(s, tablet)}
        spare = next(s for s in cluster.servers if s.uuid not in members)
        leader = cluster.leader(tablet)
        leaving = next(s for s in cluster.servers if s.uuid in members and s is not leader)
        client.move_replica(tablet, leaving.uuid, spare.uuid, reason="a copy by IPv6")

        def status_of(server: ServerProcess) -> Any:
            return cluster.status(server, tablet)

        def moved() -> bool:
            states = [status.data_state if status else None for status in map(status_of, (spare, leaving))]
            return states == [DataState.READY, DataState.DELETED]

        wait_until(moved, "the replica is at the fourth server")
        cluster.masters[0].kill()
        leader.kill()
        table.insert([{"k": ROWS + 1, "v": "after the leader's death"}])
        count = table.count(staleness=5) if table.count() else 0
        for process in (leader, cluster.masters[0]):
            process.start()

        def whole() -> bool:
            return not [f for f in judge(gather(client, checksum=True)) if f.severity is Severity.ERROR]

        wait_until(whole, "every replica has the same rows")
    processes = (*cluster.masters, *cluster.servers)
    return {
        "rows": count,
        "commands": codes,
        "alive": sum(process.alive for process in processes),
        "addresses": sorted({process.address.rpartition(":")[0] for process in processes}),
    }


def main(out: Path) -> None:
    """Run it where no IPv4 address is, and write the results."""
    for words in ("addr flush dev lo", "link set lo up", "addr replace ::1/128 dev lo"):
        subprocess.run(["ip", *words.split()], check=True)
    with local_cluster() as cluster:
        out.write_text(json.dumps(all_of_it(cluster)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
