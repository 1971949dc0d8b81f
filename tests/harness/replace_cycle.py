"""Removes and replaces the members of one tablet, again and again, on twice as many servers as replicas, under load.

It is Kudu's `RemoveReplaceInCycle`: once each server has held the tablet, every replacement is copied over an old
tombstone. Servers pause at random meanwhile, and some copy sessions time out. The verifiers of `infra/chaos` judge the
load and the disks.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from nyala.infra.chaos import Verdict
from nyala.infra.chaos.disks import read_log
from nyala.infra.chaos.scene import Scene, ServerScene, TabletScene, why_unsettled
from nyala.infra.chaos.verify import LogReadings, Looked, at_rest, load_verdicts, nothing_of, verify_disks
from nyala.infra.chaos.watch import Watcher
from nyala.infra.chaos.workload import PARTITION, Workload
from nyala.replica import tools
from nyala.replica.client import Client, ClientOptions
from nyala.replica.rpc import pb
from nyala.replica.types import Refused
from tests.harness.cluster import LocalCluster, ServerProcess, wait_until
from tests.harness.expiring_server import expire_next, expires_next

REPLICAS = 3
SERVERS = 2 * REPLICAS
HEALS = ("--server-dead-ms=2000", "--rereplicate-after-ms=6000", "--policy-ms=100", "--execute-decisions=master")
LITTLE_LOG = ("--log-retain-entries=100", "--log-retain-bytes=1000000")
PAUSE_S = (0.1, 1.0)
EXPIRED_IN = 4
"""One change in so many begins with a session that times out."""
LOOK_TIMEOUT_S = 1.5


class Cycle:
    """One tablet under load on a running cluster. `tell` is called with each step."""

    def __init__(self, cluster: LocalCluster, seed: int, tell: Callable[[str], None] = print) -> None:
        self.expired = self.onto_tombstones = 0
        """Changes whose first session timed out; replacements for which a tombstone was copied over."""
        self.readings = LogReadings()
        self._cluster = cluster
        self._tell = tell
        self._changes = 0
        self._findings: tuple[str, ...] = ("nobody could be asked",)
        self._rng = random.Random(seed)
        self._paused: ServerProcess | None = None
        self._pool = ThreadPoolExecutor(SERVERS, thread_name_prefix="cycle-look")
        masters = ",".join(m.address for m in cluster.masters)
        self._client = Client([masters], ClientOptions(attempt_timeout_s=LOOK_TIMEOUT_S))
        self._writing = Client([masters])
        alive = lambda: sum(s.alive for s in self._client.list_servers().servers) == SERVERS  # noqa: E731
        wait_until(alive, "all servers are alive")
        self.workload = Workload(self._writing, seed, partition=replace(PARTITION, buckets=1))
        self._tablet_id = self.workload.handle.tablets[0].tablet_id
        self.watcher = Watcher(self.scene)

    def close(self) -> None:
        self.workload.stop(5.0)
        self.watcher.stop()
        self._pool.shutdown()
        self._client.close()
        self._writing.close()

    # ------------------------------------------------------------------------------------------------- looking

    def scene(self) -> Scene:
        """Return the placement, as the servers that answer soon report it."""
        paused = self._paused
        servers = [ServerScene(s.name, s.uuid, "READY", "paused" if s is paused else "") for s in self._cluster.servers]
        asked = [s for s in self._cluster.servers if s is not paused]
        told = dict(zip([s.name for s in asked], self._pool.map(self._ask, asked), strict=True))
        statuses = {name: s for name, (found, _) in told.items() for s in found if s.tablet_id == self._tablet_id}
        copies = tuple(job for _, jobs in told.values() for job in jobs)
        return Scene(tuple(servers), (TabletScene(self._tablet_id, REPLICAS, statuses),), "READY", copies)

    def _ask(self, server: ServerProcess) -> tuple[list[pb.ReplicaStatus], list[pb.CopyJob]]:
        host, _, port = server.address.rpartition(":")
        info = pb.ServerInfo(uuid=server.uuid, addresses=[pb.Address(host=host, port=int(port))])
        try:
            return self._client.list_tablets(info), self._client.list_copies(info, timeout_s=LOOK_TIMEOUT_S)
        except Refused:
            return [], []

    def _members(self) -> list[str]:
        """Return the voters, once all is well."""

        def found() -> list[str]:
            scene = self.scene()
            (tablet,) = scene.tablets
            return [] if why_unsettled(scene, tablet) else sorted(s.uuid for s in scene.members(tablet))

        return wait_until(found, "the tablet has its voters, all of them well")

    def _strangers(self) -> dict[str, str]:
        """Return the servers that could take a place, and what each has of the tablet: nothing, or a tombstone."""

        def found() -> dict[str, str] | None:
            members = self._members()
            (tablet,) = self.scene().tablets
            states = {s.uuid: tablet.state_of(s.name) for s in self._cluster.servers if s.uuid not in members}
            for server in self._client.list_servers().servers:
                if states.get(server.uuid) == "" and self._client.list_tablets(server, [self._tablet_id]):
                    return None  # it has answered now, and had not before
            return states

        return wait_until(found, "whoever could take a place has answered")

    # ---------------------------------------------------------------------------------------------------- doing

    def run(self, cycles: int) -> None:
        """Move members to servers that never had one, until there are none. From then on remove one, `cycles` times,
        and let the master replace it: by an old tombstone, because no other server is left."""
        self.workload.start()
        while [state for state in self._strangers().values() if not state]:
            self._change(self._move)
        for _ in range(cycles):
            graves = lambda: set(self._strangers().values()) == {"tombstone"}  # noqa: E731
            wait_until(graves, "whoever can take a place is an old tombstone")
            self._change(self._remove)
            self.onto_tombstones += 1

    def _move(self) -> str:
        source, strangers = self._rng.choice(self._members()), self._strangers()
        target = min(strangers, key=lambda uuid: bool(strangers[uuid]))  # the master may have used the last new one
        self._client.move_replica(self._tablet_id, source, target)
        return f"{source[:8]} moves to {target[:8]}"

    def _remove(self) -> str:
        victim = self._rng.choice(self._members())
        self._client.remove_replica(self._tablet_id, victim)
        return f"{victim[:8]} is removed"

    def _change(self, ask: Callable[[], str]) -> None:
        """Make one change, with a pause of any server meanwhile; returns when it is made and all is well."""
        before = self._config()
        self._changes += 1
        if expires := self._changes % EXPIRED_IN == 0:
            expire_next(self._cluster.folder)
        said = wait_until(ask, "a change is accepted")
        self._pause()
        wait_until(lambda: self._config() != before, "the config is another")
        self._tell(f"{self._changes}: {said}; now {[u[:8] for u in self._members()]}")
        if expires:
            assert not expires_next(self._cluster.folder), "a session was opened, and timed out"
            self.expired += 1
        self._read_logs()
        wrong = [*self.workload.faults, *self.watcher.checker.faults, *filter(None, [self.watcher.error])]
        wrong += [*self.readings.appended, *self.readings.disordered, *self.readings.missing]
        assert not wrong, wrong

    def _read_logs(self) -> None:
        """Read the logs of all members from their disks, while the load goes on; again if a segment was collected, a
        block was being written, or members changed meanwhile."""
        self.readings.expected += 1

        def read() -> bool:
            seen = self.scene()
            (tablet,) = seen.tablets
            config = tablet.config
            if config is None or why_unsettled(seen, tablet):
                return False
            try:
                logs = {m.name: read_log(self._cluster.folder / m.name, self._tablet_id) for m in seen.members(tablet)}
            except FileNotFoundError:
                return False
            if any(damage for _, damage in logs.values()) or self._config() != tuple(config.opid):
                return False
            self.readings.take(seen, tablet, {name: entries for name, (entries, _) in logs.items()})
            return True

        wait_until(read, "the logs of three members are read")

    def _config(self) -> tuple[int, int]:
        """Return the OpId of the leader's committed config."""

        def found() -> tuple[int, int] | None:
            config = self.scene().tablets[0].config
            return (config.opid.term, config.opid.index) if config is not None else None

        return wait_until(found, "somebody leads")

    def _pause(self) -> None:
        """Pause any server for a moment."""
        self._paused = server = self._rng.choice(self._cluster.servers)
        server.signal(signal.SIGSTOP)
        try:
            threading.Event().wait(self._rng.uniform(*PAUSE_S))
        finally:
            server.signal(signal.SIGCONT)
            self._paused = None

    # --------------------------------------------------------------------------------------------------- judging

    def verdicts(self) -> Iterable[Verdict]:
        """Yield V1 to V6, at the end: the load stops, all comes to rest, and the servers are stopped."""
        goes_on = self.workload.wait_acknowledged(5)
        hanging = self.workload.stop()
        wrong = [*(["writes are not acknowledged"] if not goes_on else []), *hanging]
        yield Verdict("it goes on by itself", "the writers, and their ends", tuple(wrong))
        scene = wait_until(lambda: None if at_rest(found := self.scene()) else found, "the tablet is at rest")
        load = self.workload
        yield from load_verdicts(Looked.at(load), load.faults, load.final_faults, load.history_faults)
        with suppress(AssertionError):
            wait_until(lambda: not self._check(), "replicas are equal")
        yield Verdict("replicas are equal at one time, `cluster check` is clean (V6)", "all", self._findings)
        self.watcher.stop()
        checker = self.watcher.checker
        nothing = nothing_of(looks=checker.looks, leaders=len(checker.leaders))
        yield Verdict("one leader a term (V2)", f"{checker.looks} looks", (*nothing, *checker.faults))
        for process in (*self._cluster.masters, *self._cluster.servers):  # a master would replace those that end first
            process.signal(signal.SIGTERM)
        for server in self._cluster.servers:
            server.stop()
        by_writer = [w.expected for w in load.writers]
        yield from verify_disks(self._cluster.folder, scene, by_writer, readings=self.readings)

    def _check(self) -> tuple[str, ...]:
        found = tools.judge_compared(tools.gather(self._client, checksum=True))
        self._findings = tuple(f"{f.severity} {f.subject}: {f.what}" for f in found)
        return self._findings


def start_servers(cluster: LocalCluster) -> None:
    """Start one master that heals, and the servers."""
    cluster.add_master(*HEALS)
    for _ in range(SERVERS):
        server = cluster.add_server(*LITTLE_LOG, start=False)
        server.module = "tests.harness.expiring_server"
    for server in cluster.servers:
        server.start(wait=False)
    for server in cluster.servers:
        server.wait_ready()
