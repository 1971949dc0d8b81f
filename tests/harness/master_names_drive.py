"""Three masters known by names of their own, one of which moves to another machine.

Run by `tests.harness.netns.contained`: `python -m tests.harness.master_names_drive FILE`. It writes the results to
FILE.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.names_drive import Names
from tests.harness.three_masters import FLAGS, MASTER, Masters

PORT = 7051
NAMES = {f"m{n}.nyala.test": f"127.0.0.{n + 1}" for n in (1, 2, 3)}
ELSEWHERE = "127.0.0.9"
"""The address of the new machine."""


class NamedMasters(Masters):
    """Each listens at an address of its own, announces its name, and has the names of all in its options."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster, self.env = cluster, {}
        self.addresses = [f"{name}:{PORT}" for name in NAMES]
        self.members = [self.named(name.partition(".")[0], name, place) for name, place in NAMES.items()]
        for master in self.members:
            self.start(master, wait=False)
        for master in self.members:
            self.ready(master)

    def named(self, folder: str, name: str, place: str) -> ServerProcess:
        master = self.add(folder, f"{place}:{PORT}")
        master.extra = (*FLAGS, f"--peers={','.join(self.addresses)}", f"--advertise={name}:{PORT}")
        return master

    @staticmethod
    def ready(master: ServerProcess) -> None:
        """Wait for the master, which announces its name; here it is known by its address."""
        at = master.address
        master.wait_ready()
        master.address = at

    def start(self, master: ServerProcess, *, wait: bool = True) -> None:
        master.start(wait=False)
        if wait:
            self.ready(master)


def all_of_it(cluster: LocalCluster) -> dict[str, Any]:
    """Lose a master; another machine gets its name, its uuid and the catalog, in the order of an operator."""
    names = Names(cluster.folder / "hosts")
    names.tell_where(NAMES)
    masters = NamedMasters(cluster)
    server = ServerProcess(
        "ts1", "nyala.replica.server", cluster.folder / "ts1", ("--masters", ",".join(masters.addresses))
    )
    server.address = cluster.ports.free_address()
    cluster.servers.append(server.start())
    masters.create("one")
    stored = masters.status(masters.leader()).replica.committed_config
    lost = masters.followers()[0]
    others = [m for m in masters.members if m is not lost]
    kept = {p.name: p.process.pid for p in (*others, server) if p.process}
    lost_name = next(name for name, place in NAMES.items() if lost.address.startswith(f"{place}:"))
    lost.kill()
    shutil.rmtree(lost.root)
    root, _ = masters.format("new", lost.uuid)
    masters.copy(root)
    new = masters.named("new", lost_name, ELSEWHERE)
    masters.start(new)
    names.tell_where({**NAMES, lost_name: ELSEWHERE})
    masters.level()
    for _ in range(12):
        leading = masters.leader()
        if leading is new:
            break
        leading.kill()
        wait_until(lambda leading=leading: masters.leader() is not leading, "another one leads")  # type: ignore[misc]
        kept.pop(leading.name, None)
        masters.start(leading)
        masters.level()
    masters.create("two")
    return {
        "stored": sorted(f"{a.host}:{a.port}" for m in stored.members for a in m.addresses),
        "names": sorted(masters.addresses),
        "led_by": masters.leader().uuid,
        "new": new.uuid,
        "tables": sorted(masters.tables()),
        "kept": kept,
        "running": {p.name: p.process.pid for p in (*others, server) if p.process and p.name in kept},
    }


def main(out: Path) -> None:
    """Run everything; writes JSON to `out`."""
    with local_cluster(module=MASTER) as cluster:
        out.write_text(json.dumps(all_of_it(cluster)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
