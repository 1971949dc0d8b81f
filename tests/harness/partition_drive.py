"""Three servers, each in a network of its own, whose leader is cut off, stopped and killed under load.

Run by `tests.harness.netns.contained`: `python -m tests.harness.partition_drive FILE`. It writes the results to FILE.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nyala.replica.client import Client, ScanSpec, wire_batches
from nyala.replica.rows import RowOp
from nyala.replica.types import Code, Refused
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.netns import HUB, Network
from tests.harness.register_load import ONE_TABLET, SCHEMA, RegisterLoad, strong_read, values_of

PROGRESS = 15


class Drive:
    """The cluster, its network, and the tablet under load. The places of the network are 1, 2, 3."""

    def __init__(self, cluster: LocalCluster, network: Network) -> None:
        self.cluster, self.network = cluster, network
        cluster.masters.append(ServerProcess("m1", "nyala.replica.master", cluster.folder / "m1", host=HUB).start())
        for place in (1, 2, 3):
            name = f"ts{place}"
            server = ServerProcess(
                name,
                "nyala.replica.server",
                cluster.folder / name,
                ("--masters", cluster.masters[0].address),
                host=network.address(place),
                prefix=network.inside(place),
            )
            cluster.servers.append(server.start())
        self.masters = [cluster.masters[0].address]
        self.client = Client(self.masters)
        wait_until(lambda: sum(s.alive for s in self.client.list_servers().servers) == 3, "three servers are alive")
        self.handle = self.client.create_table("registers", SCHEMA, ONE_TABLET)
        self.tablet_id = self.handle.tablets[0].tablet_id
        self.phases: dict[str, Any] = {}

    def place_of_leader(self) -> int:
        return self.cluster.servers.index(self.cluster.leader(self.tablet_id)) + 1

    def disturb(self, name: str, load: RegisterLoad, harm: Callable[[int], None], mend: Callable[[int], None]) -> None:
        """Harm the leader; clients must get on without it, then with it again."""
        place = self.place_of_leader()
        server = self.cluster.servers[place - 1]
        began, done = time.monotonic(), dict(load.done)
        harm(place)
        others = [s for s in self.cluster.servers if s is not server]

        def another() -> bool:
            statuses = [self.cluster.status(s, self.tablet_id) for s in others]
            return any(s is not None and s.role == "LEADER" for s in statuses)

        wait_until(another, f"another leader: {name}")
        load.progress(name, PROGRESS)
        mend(place)
        load.progress(f"after {name}", PROGRESS)
        carried_out = {kind: load.done[kind] - done[kind] for kind in done}
        self.phases[name] = {**carried_out, "seconds": round(time.monotonic() - began, 1), "leader": server.name}

    def all_of_it(self) -> RegisterLoad:
        """Run one fault after the other."""
        load = RegisterLoad(self.masters, self.handle, self.cluster.servers)
        load.start()
        load.progress("at the beginning", PROGRESS)
        network, servers = self.network, self.cluster.servers
        heal: Callable[[int], None] = lambda place: network.heal()  # noqa: E731
        self.disturb("cut off both ways", load, network.isolate, heal)
        self.disturb("sends but hears nobody", load, lambda p: network.isolate(p, outbound=False), heal)
        self.disturb("hears but reaches nobody", load, lambda p: network.isolate(p, inbound=False), heal)
        self.disturb(
            "stopped",
            load,
            lambda p: servers[p - 1].signal(signal.SIGSTOP),
            lambda p: servers[p - 1].signal(signal.SIGCONT),
        )
        self.disturb("killed", load, lambda p: servers[p - 1].kill(), lambda p: void(servers[p - 1].start()))
        load.stop()
        return load

    def stale_reads(self) -> dict[str, Any]:
        """Cut a follower off; returns the answers of it and of the client to reads of bounded staleness."""
        import pyarrow as pa

        leader = self.place_of_leader()
        victim = leader % 3 + 1
        behind = self.cluster.servers[victim - 1]

        def put(value: int) -> None:
            rows = pa.table({"k": pa.array([7], pa.int64()), "v": pa.array([value], pa.int64())})
            with self.client.session_writer(self.handle) as writer:
                for batch in wire_batches(self.handle, rows, RowOp.UPSERT):
                    writer.send(batch)

        def get(staleness_s: float) -> int | None:
            spec = ScanSpec(staleness_us=int(staleness_s * 1e6))
            return values_of(b for part in self.client.scan(self.handle, spec) for b in part.batches).get(7)

        put(1)

        def level() -> bool:
            try:
                return strong_read(behind, self.tablet_id, staleness_us=3_600_000_000).get(7) == 1
            except Refused as error:
                assert error.code in (Code.LAGGING, Code.NOT_READY), error
                return False  # it was killed a moment ago, and has applied nothing yet

        wait_until(level, f"{behind.name} has the row of {self.cluster.servers[leader - 1].name}")
        read_at = lambda age_us: strong_read(behind, self.tablet_id, staleness_us=age_us).get(7)  # noqa: E731
        # Refused while the follower's data is older: on a busy machine a moment's delay is more than that.
        answered = wait_until(lambda: read_at(2_000_000), f"{behind.name} is fresh enough to answer")
        self.network.isolate(victim)
        own = []
        for value in range(2, 8):
            put(value)
            own.append((value, get(3600)))
        old = wait_until(lambda: read_at(3_600_000_000), f"{behind.name} answers though it is cut off")

        def too_old() -> Refused | None:
            try:
                strong_read(behind, self.tablet_id, staleness_us=2_000_000)
            except Refused as error:
                return error if error.code is Code.LAGGING else None
            return None

        refusal = wait_until(too_old, "the follower's data is too old")
        fresh = get(2)
        self.network.heal()
        wait_until(lambda: read_at(2_000_000), "the follower is fresh again")
        return {
            "answered": answered,
            "own": own,
            "old": old,
            "refused": [Code(refusal.code).name, str(refusal)],
            "fresh": fresh,
        }


def void(_: object) -> None:
    """Accept the result of a call that is made for its effect."""


def main(out: Path) -> None:
    """Run everything; writes JSON to `out`: operations, refused writes, phases, stale reads."""
    with local_cluster() as cluster:
        drive = Drive(cluster, Network(3))
        load = drive.all_of_it()
        history = load.history
        found = {
            "operations": [asdict(o) for o in history.everything()],
            "refused_writes": sorted(history.refused_writes),
            "phases": drive.phases,
            "done": load.done,
            "lost": history.lost,
            "refused": history.refused,
            "stale": drive.stale_reads(),
        }
        drive.client.close()
        out.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
