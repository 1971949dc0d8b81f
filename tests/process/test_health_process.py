"""The health of a replica, as leader and master of real servers report it, while its server is stopped, killed and
damaged."""

from __future__ import annotations

import signal
from functools import partial
from typing import Any

import pytest

import nyala
from nyala.replica.rpc import pb
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.one_tablet import change, flush, lead
from tests.harness.three_masters import nyala as command

pytestmark = [pytest.mark.process, pytest.mark.deep]

DEAD_US, LOST_US = 2_000_000, 6_000_000
WATCHES = (f"--server-dead-ms={DEAD_US // 1000}", f"--rereplicate-after-ms={LOST_US // 1000}", "--policy-ms=100")
NO_RETAINED_LOG = ("--log-retain-entries", "0", "--log-retain-bytes", "0")
LOST = ("FAILED", "FAILED_UNRECOVERABLE")


class Watched:
    """A tablet on three servers, one of which is watched."""

    def __init__(self, cluster: LocalCluster, connected: Any) -> None:
        self.cluster, self.client = cluster, connected.client
        connected.create_table("t", {"id": "int64", "v": "string"}, key="id", hash_buckets=1)
        self.table, self.rows = connected.table("t"), 0
        self.tablet = wait_until(lambda: (info := self.info()).running and info, "it has a leader").tablet_id
        leader = cluster.leader(self.tablet)
        members = [cluster.server(m.uuid) for m in self.info().config.members]
        self.server = next(s for s in members if s is not leader)
        self.others = [s for s in cluster.servers if s is not self.server]

    def info(self) -> pb.TabletInfo:
        (info,) = self.client.tablet_infos("t")
        return info

    def write(self, rows: int) -> None:
        self.table.insert([{"id": self.rows + i, "v": f"{self.rows + i:0200d}"} for i in range(rows)])
        self.rows += rows

    def health(self) -> str:
        """Return the health that the master reports."""
        return str(self.info().health[self.server.uuid])

    def silent_us(self) -> int:
        """Return how long the master has received nothing from the server."""
        told = self.client.list_servers().servers
        return int(next(s.last_heartbeat_us_ago for s in told if s.uuid == self.server.uuid))

    def health_in_silence(self) -> str:
        """Return the health that the master reports of a server that sends nothing any more; it must fit the time since
        its last heartbeat."""

        def steady() -> str:
            at_least, health, at_most = self.silent_us(), self.health(), self.silent_us()
            if at_least > at_most:
                return ""  # there was one more word on its way
            assert at_most > LOST_US or health not in LOST, (health, at_most)
            # Twice as long at most: a leader that was silent itself for half of it judges by what follows.
            assert at_least <= 2 * LOST_US or health in LOST, (health, at_least)
            assert at_least <= DEAD_US or health != "HEALTHY", at_least
            return health

        return wait_until(steady, "its server is silent")

    def as_leader_sees(self) -> str:
        """Return the health that the leader reports, whichever of the others leads."""
        told = [self.cluster.status(s, self.tablet) for s in self.others]
        leads = [s for s in told if s is not None and s.role == "LEADER"]
        peers = max(leads, key=lambda s: s.term).peers if leads else []
        return next((str(p.health) for p in peers if p.uuid == self.server.uuid), "")

    def is_well(self) -> bool:
        """Return whether leader and master agree that it is healthy; an idle leader calls no member."""
        self.write(1)
        return self.as_leader_sees() == "OK" and self.health() == "HEALTHY"

    def falls_behind(self) -> bool:
        """Make the leader's log go on and be collected; returns whether it no longer reaches back to the replica."""
        self.write(2000)
        flush(self.cluster.leader(self.tablet), tablet_id=self.tablet)
        return self.as_leader_sees() == "NEEDS_COPY"

    def has_voter(self, server: ServerProcess) -> bool:
        """Return whether the leader's committed config has the server as a voter."""
        status = self.cluster.status(self.cluster.leader(self.tablet), self.tablet)
        return status is not None and any(m.uuid == server.uuid and m.votes for m in status.committed_config.members)


def test_health_of_a_replica_is_told_through_pause_death_lost_log_and_damage() -> None:
    """Goal: scenario 107 at real servers. Method: a master that replaces nobody; a follower's server is stopped, goes
    on, is killed, and comes back when the log has gone on without it, then with damaged metadata, and is stopped so; at
    last its replica is deleted, and made again. Leader and master tell each state. That it is lost is told when six
    seconds have passed since its server was heard, and not before; who is behind the log or damaged is unrecoverable,
    be its server silent or not; and whatever comes back whole is well."""
    with local_cluster() as cluster:
        master = cluster.add_master(*WATCHES)
        for _ in range(3):
            cluster.add_server(*NO_RETAINED_LOG, start=False).start(wait=False)
        for server in cluster.servers:
            server.wait_ready()
        with nyala.connect(master.address) as connected:
            alive = lambda: sum(s.alive for s in connected.client.list_servers().servers) == 3  # noqa: E731
            wait_until(alive, "three servers are alive")
            watched = Watched(cluster, connected)
            tablet, server = watched.tablet, watched.server
            config = lambda: (info := watched.info()) and info.config.SerializeToString()  # noqa: E731
            wait_until(watched.is_well, "it is well")
            before = config()

            server.signal(signal.SIGSTOP)
            try:
                watched.write(1)
                wait_until(lambda: watched.as_leader_sees() == "UNREACHABLE", "its leader misses it")
                wait_until(lambda: watched.health_in_silence() == "UNKNOWN", "it is silent")
                wait_until(lambda: watched.health_in_silence() == "FAILED", "it is lost")
            finally:
                server.signal(signal.SIGCONT)
            wait_until(watched.is_well, "it is back")

            server.kill()
            wait_until(lambda: watched.health_in_silence() == "UNKNOWN", "it is silent again")
            leader = cluster.leader(tablet)
            lead(cluster, next(s for s in watched.others if s is not leader), tablet)  # who sent it nothing yet
            wait_until(watched.falls_behind, "the leader's log has passed it")
            wait_until(lambda: watched.health_in_silence() == "FAILED_UNRECOVERABLE", "it is lost for good")
            server.start()
            wait_until(watched.is_well, "it was copied to")

            server.kill()
            damaged = server.root / "consensus-meta" / tablet
            data = bytearray(damaged.read_bytes())
            data[len(data) // 2] ^= 1
            damaged.write_bytes(data)
            server.start()
            wait_until(lambda: cluster.status(server, tablet).phase == "FAILED", "its replica is offline")
            wait_until(lambda: watched.health() == "FAILED_UNRECOVERABLE", "the master has heard so")
            server.signal(signal.SIGSTOP)
            try:
                while watched.silent_us() <= DEAD_US:
                    assert watched.health() == "FAILED_UNRECOVERABLE"
                assert watched.health() == "FAILED_UNRECOVERABLE", "now that its server is silent"
                assert watched.as_leader_sees() != "OK"
            finally:
                server.signal(signal.SIGCONT)
            request = pb.DeleteTabletRequest(dest_uuid=server.uuid, tablet_id=tablet)
            reply = server.tablets.DeleteTablet(request, timeout=30)
            assert not reply.error.code, reply.error
            wait_until(watched.is_well, "it was made again")
            assert config() == before, "nobody was replaced"
            assert watched.table.scan().count() == watched.rows


def test_replica_that_refuses_a_copy_is_named_with_the_command_that_heals_it() -> None:
    """TC-58. Goal: an intact replica that knows its group's leader no more, and refuses to be replaced, is told to the
    operator, and is not replaced on that account. Method: while a voter is away, two voters are added, the two others
    are removed, and the log is collected. It comes back and refuses the new leader's copies: `nyala cluster check`
    warns of it, and names the command. By that command it gets all rows, and the warning ends."""
    with local_cluster() as cluster:
        master = cluster.add_master("--execute-decisions=none")
        for _ in range(5):
            cluster.add_server(*NO_RETAINED_LOG, start=False).start(wait=False)
        for server in cluster.servers:
            server.wait_ready()
        with nyala.connect(master.address) as connected:
            listed = lambda: connected.client.list_servers().servers  # noqa: E731
            wait_until(lambda: sum(s.alive for s in listed()) == 5, "five servers are alive")
            watched = Watched(cluster, connected)
            watched.write(10)
            tablet, away = watched.tablet, watched.server
            former = {m.uuid for m in watched.info().config.members}
            away.kill()
            for server in cluster.servers:
                if server.uuid not in former:
                    change(cluster, "add", server.member(votes=False, promote=True), tablet_id=tablet)
                    wait_until(partial(watched.has_voter, server), "it was copied to and votes")
            for uuid in sorted(former - {away.uuid}):
                change(cluster, "remove", pb.Member(uuid=uuid), tablet_id=tablet)
            wait_until(watched.falls_behind, "the leader's log has passed it")

            failing = lambda: [c for s in listed() if s.uuid == away.uuid for c in s.copies_failing]  # noqa: E731
            away.start()
            (told,) = wait_until(failing, "the master has heard of the refusals")
            assert told.tablet_id == tablet and "votes in no config" in told.error
            wait_until(lambda: [c.failures for c in failing()] == [2], "it refused again")
            checked = command("cluster", "check", "--masters", master.address)
            remedy = "nyala local-replica delete DIR TABLET"
            assert remedy in " ".join(checked.stdout.split()), (checked.stdout, checked.stderr)
            assert watched.health() != "FAILED_UNRECOVERABLE" and not cluster.status(away, tablet).error

            away.stop()
            done = command("local-replica", "delete", away.root, tablet, "--yes")
            assert done.returncode == 0, done.stderr
            away.start()
            wait_until(lambda: watched.health() == "HEALTHY" and not failing(), "it was copied to")
            assert watched.table.scan().count() == watched.rows
