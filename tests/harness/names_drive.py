"""Four servers known by host names, and a resolver that loses one of them and has it again.

Run by `tests.harness.netns.contained`: `python -m tests.harness.names_drive FILE`. It writes the results to FILE.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nyala
from nyala.replica.rpc import pb
from nyala.replica.types import DataState
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until

HEALS = ("--server-dead-ms=2000", "--policy-ms=100", "--execute-decisions=master")


class Names:
    """The hosts file of this namespace alone; and its only network, the loopback."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._file.write_text("")
        subprocess.run(["mount", "--bind", str(file), "/etc/hosts"], check=True)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

    def tell(self, *names: str) -> None:
        """Let these names resolve to this machine, and no other ones."""
        self.tell_where(dict.fromkeys(names, "127.0.0.1"))

    def tell_where(self, places: Mapping[str, str]) -> None:
        """Let these names resolve to those addresses, and no other ones."""
        lines = {"localhost": "127.0.0.1", **places}
        self._file.write_text("".join(f"{address} {name}\n" for name, address in lines.items()))


class Drive:
    """The cluster, its names, and its one tablet."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.names = Names(cluster.folder / "hosts")
        self.all = {f"ts{n}": f"ts{n}.nyala.test" for n in (1, 2, 3, 4)}
        self.names.tell(*self.all.values())
        self.master = cluster.add_master(*HEALS, "--rereplicate-after-ms=900000")
        for name, host in self.all.items():
            port = cluster.ports.free()
            args = ("--masters", self.master.address, "--advertise", f"{host}:{port}")
            server = ServerProcess(name, "nyala.replica.server", cluster.folder / name, args)
            server.address = f"127.0.0.1:{port}"
            cluster.servers.append(server)
        self.start(*cluster.servers)
        self.nyala = nyala.connect(self.master.address)
        self.client = self.nyala.client
        wait_until(lambda: sum(s.alive for s in self.client.list_servers().servers) == 4, "four servers are alive")
        self.table = self.nyala.create_table("t", {"id": "int64"}, key="id", hash_buckets=1)
        self.tablet = self.client.tablet_infos("t")[0].tablet_id
        self.rows = 0
        self.write()

    @staticmethod
    def start(*servers: ServerProcess) -> None:
        """Start servers that announce their names; here they are known, and listen, at the former addresses."""
        addresses = [server.address for server in servers]
        for server in servers:
            server.start(wait=False)
        for server, address in zip(servers, addresses, strict=True):
            server.wait_ready()
            server.address = address

    def write(self) -> None:
        self.table.insert([{"id": self.rows}])
        self.rows += 1

    def config(self) -> pb.RaftConfig:
        return self.client.tablet_infos("t")[0].config

    def voters(self) -> set[str]:
        return {m.uuid for m in self.config().members if m.votes}

    def health(self, server: ServerProcess) -> str:
        """Return the health of a peer that the leader reports."""
        peers = self.cluster.status(self.cluster.leader(self.tablet), self.tablet).peers
        return next((p.health for p in peers if p.uuid == server.uuid), "")

    def forget(self, server: ServerProcess) -> None:
        """Let the server's name resolve no more, and start it again: no link to it is left from before."""
        server.kill()
        self.names.tell(*(host for name, host in self.all.items() if name != server.name))
        self.start(server)

    def all_of_it(self) -> dict[str, Any]:
        """Remove a name and bring it back; then remove it for so long that the server is replaced."""
        leader = self.cluster.leader(self.tablet)
        voters = self.voters()
        lost, other = (s for s in self.cluster.servers if s.uuid in voters and s is not leader)
        spare = next(s for s in self.cluster.servers if s.uuid not in voters)
        self.forget(lost)
        leader.kill()
        self.start(leader)
        elected = self.cluster.leader(self.tablet)
        assert elected in (leader, other), "who asked whom it can resolve was elected"
        self.write()
        wait_until(lambda: self.health(lost) == "UNREACHABLE", "the new leader marks the peer")
        self.write()
        assert self.voters() == voters
        self.names.tell(*self.all.values())
        wait_until(lambda: self.health(lost) == "OK", "the peer is healthy again")
        level = lambda: self.cluster.status(lost, self.tablet).rows == self.rows  # noqa: E731
        wait_until(level, "it has every row")

        running = [s.process.pid for s in (leader, other, spare) if s.process is not None]
        self.forget(lost)
        self.write()
        self.master.kill()
        self.master.extra = (*HEALS, "--rereplicate-after-ms=3000")
        self.master.start()
        replaced = {leader.uuid, other.uuid, spare.uuid}
        wait_until(lambda: self.voters() == replaced, "it is replaced")
        self.write()
        self.names.tell(*self.all.values())
        gone = lambda: self.cluster.status(lost, self.tablet).data_state == DataState.DELETED  # noqa: E731
        wait_until(gone, "the replica that was replaced is a tombstone")
        alive = [s.process.pid for s in (leader, other, spare) if s.process is not None and s.alive]
        unresolved = f"link to {lost.uuid} at {self.all[lost.name]}"
        said = sum(unresolved in s.log_path.read_text() for s in (leader, other))
        return {
            "rows": self.table.scan().count(),
            "written": self.rows,
            "running": running,
            "alive": alive,
            "said": said,
        }


def main(out: Path) -> None:
    """Run everything; writes JSON to `out`."""
    with local_cluster() as cluster:
        drive = Drive(cluster)
        with drive.nyala:
            out.write_text(json.dumps(drive.all_of_it()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
