"""Healing by witness on real servers: kill -9 of a voter, a second loss before any data is copied, the copy of the
data, and the returns."""

from __future__ import annotations

from typing import Any

import pytest

import nyala
from nyala import schemas
from nyala.replica.rpc import pb
from nyala.replica.tools import gather, judge
from nyala.replica.types import DataState
from nyala.replica.types.crash_points import CRASH_EXIT_CODE, CRASH_VARIABLE
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until

pytestmark = [pytest.mark.process, pytest.mark.deep]

MASTER = ("--server-dead-ms=4000", "--rereplicate-after-ms=5000", "--policy-ms=100", "--execute-decisions=master")
SLOW = ("--copy-rate-bytes-per-s", "131072")
ROWS = 10_000
"""The rows of each of five writes: at SLOW, their bytes take most of a minute."""


class Street:
    """Four servers, the fourth slow at copies; a master that heals by witness; one table of one tablet with rows."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        master = cluster.add_master(*MASTER, "--heal-by-witness")
        for _ in range(3):
            cluster.add_server()
        self.nyala = nyala.connect(master.address)
        self.client = self.nyala.client
        wait_until(lambda: sum(s.alive for s in self.client.list_servers().servers) == 3, "three servers are alive")
        self.nyala.create_table("t", {"id": "int64", "v": "string"}, key="id", hash_buckets=1)
        wait_until(lambda: all(t.running for t in self.client.tablet_infos("t")), "the tablet has a leader")
        self.spare = cluster.add_server(*SLOW)
        self.table = self.nyala.table("t")
        self.written = 0
        for _ in range(5):
            self.write(ROWS)

    def write(self, rows: int = 1) -> None:
        """Write so many acknowledged rows."""
        first = self.written
        self.table.upsert([{"id": i, "v": f"{i * 7919 % 100003:0100d}"} for i in range(first, first + rows)])
        self.written += rows

    @property
    def tablet_id(self) -> str:
        return self.client.tablet_infos("t")[0].tablet_id

    def leader(self) -> ServerProcess:
        return self.cluster.leader(self.tablet_id)

    def members(self) -> dict[str, Any]:
        """Return the members of the leader's committed config."""
        status = self.cluster.status(self.leader(), self.tablet_id)
        return {m.uuid: m for m in status.committed_config.members}

    def stands_in(self) -> bool:
        """Return whether the spare server votes without data, and three vote in all."""
        members = self.members()
        spare = members.get(self.spare.uuid)
        voters = [m for m in members.values() if m.votes]
        return spare is not None and spare.votes and not spare.holds_data and len(voters) == 3

    def jobs(self) -> list[Any]:
        request = pb.ListCopiesRequest(dest_uuid=self.spare.uuid)
        return list(self.spare.copies.ListCopies(request, timeout=30).jobs)

    def on_disk(self, server: ServerProcess) -> list[str]:
        """Return the features that an older build must know to read the superblock of a stopped server's replica."""
        raw = schemas.unframe("superblock", (server.root / "tablet-meta" / self.tablet_id).read_bytes())
        return list(raw["incompatible_features"])

    def a_follower(self) -> ServerProcess:
        leader = self.leader()
        return next(s for s in self.cluster.servers if s.alive and s not in (leader, self.spare))


def test_witness_restores_tolerance_before_the_data_and_leaves_if_the_original_returns() -> None:
    """CC-47, CC-51, CC-52, CC-54. Goal: on the loss of a voter a witness takes its place while data copies, the lost
    one is demoted, and its return cancels the copy. Method: kill -9 a voter of three: the fourth server votes as a
    witness; with its copy under way the lost one starts again: three as before, the copy CANCELLED, a tombstone left.
    Kill it again, and once the witness votes kill the leader too: writes go on. Then the witness is killed and started
    without the bound on copies, dies after each step in which its data joins it, and is whole. All
    start: three voters hold the same rows, every acknowledged one among them."""
    with local_cluster() as cluster:
        street = Street(cluster)
        with street.nyala:
            lost = street.a_follower()
            lost.kill()
            wait_until(street.stands_in, "a witness votes in the lost one's place")
            assert lost.uuid in street.members() and not street.members()[lost.uuid].votes
            wait_until(lambda: [j for j in street.jobs() if j.phase == "JOIN.2"], "data is copied")
            street.write()

            lost.start()
            wait_until(lambda: set(street.members()) == {s.uuid for s in cluster.servers[:3]}, "as it was")
            assert all(m.votes and m.holds_data for m in street.members().values())
            wait_until(lambda: "CANCELLED" in {j.phase for j in street.jobs()}, "the copy is called off")
            gone = DataState.DELETED
            wait_until(lambda: cluster.status(street.spare, street.tablet_id).data_state == gone, "a tombstone")

            lost.kill()
            wait_until(street.stands_in, "a witness votes again")
            leader = street.leader()
            leader.kill()
            street.write(50)
            assert street.stands_in() and street.leader() not in (leader, street.spare)
            assert cluster.status(street.spare, street.tablet_id).rows == 0

            street.spare.kill()
            street.spare.extra = tuple(a for a in street.spare.extra if a not in SLOW)
            for step in ("join.1", "join.2", "join.3", "join.4"):  # only the last one's superblock names the blocks
                street.spare.start(wait=False, env={CRASH_VARIABLE: step})  # it may die as soon as it is ready
                assert street.spare.wait_exit() == CRASH_EXIT_CODE
                assert ("witness" in street.on_disk(street.spare)) == (step != "join.4")
            street.spare.start()
            wait_until(lambda: street.members()[street.spare.uuid].holds_data, "the witness is whole")
            street.write()
            leader.start()  # and the lost one is needed no more; started now, it could be restored before that is seen
            wait_until(lambda: lost.uuid not in street.members(), "the lost one is replaced")
            lost.start()

            def well() -> bool:
                voters = [m for m in street.members().values() if m.votes and m.holds_data]
                view = gather(street.client, checksum=True)
                return len(street.members()) == len(voters) == 3 and not judge(view)

            wait_until(well, "three whole voters hold the same rows")
            assert street.spare.uuid in street.members() and lost.uuid not in street.members()
            assert street.table.count() == street.written
