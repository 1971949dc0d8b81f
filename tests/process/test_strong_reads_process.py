"""Strong reads of several tablets whose leaders' clocks differ, by a client that does not know who leads."""

from __future__ import annotations

from pathlib import Path

import pytest

import nyala
from nyala.replica.client.tables import Location
from nyala.replica.rpc import pb
from nyala.replica.types import Address, Code
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.wall import Wall

pytestmark = [pytest.mark.process, pytest.mark.deep]

AHEAD_S = 0.4
"""Less than clocks may differ."""
ROWS = 40


def leaders(cluster: LocalCluster, table: nyala.Table) -> dict[str, ServerProcess]:
    """Return each tablet's only server, when each leads."""
    return {t.tablet_id: cluster.leader(t.tablet_id) for t in table.handle.tablets}


def test_first_strong_read_has_what_was_acknowledged_though_the_client_asks_a_former_leader(tmp_path: Path) -> None:
    """IN-12. Goal: a strong read of several tablets holds every write that was acknowledged before it, although clocks
    differ by less than they may, and the client does not know that another server leads a tablet now. Method: two
    servers, one of whose walls is ahead, with one tablet of a table each. Clients that believe that the first one has
    both count the rows, each for the first time, after one more row was acknowledged. Servers make sure that they lead
    the tablets that they are asked about."""
    wall = Wall(tmp_path / "wall")
    wall.set(AHEAD_S)
    with local_cluster() as cluster:
        master = cluster.add_master()
        right, ahead = cluster.add_server(), cluster.add_server(env=wall.env)
        writer = nyala.connect(master.address)
        wait_until(lambda: sum(s.alive for s in writer.client.list_servers().servers) == 2, "both are registered")
        columns = {"id": "int64", "v": "string"}
        table = writer.create_table("t", columns, key="id", hash_buckets=2, replication_factor=1)
        of = leaders(cluster, table)
        assert {server.uuid for server in of.values()} == {right.uuid, ahead.uuid}
        mine = next(t for t in of if of[t] is right)
        other = next(t for t in of if of[t] is ahead)

        def time_of(server: ServerProcess, *tablets: str) -> pb.ServerTimeReply:
            return server.tablets.ServerTime(
                pb.ServerTimeRequest(dest_uuid=server.uuid, tablet_ids=tablets), timeout=30
            )

        reply = time_of(right, mine, other)
        assert (reply.error.code, list(reply.led)) == (0, [mine])
        assert time_of(right, other, mine).error.code == Code.TABLET_NOT_FOUND

        members = {s.uuid: Address.given(s.address) for s in (right, ahead)}
        lacking = []
        for count in range(ROWS):
            client = nyala.connect(master.address)
            read = client.table("t")
            locator = client.client.locator
            locator.remember([Location(t, "t", members, right.uuid) for t in of])
            table.upsert([{"id": count, "v": "new"}])
            found = read.count()
            lacking += [] if found == count + 1 else [(count + 1, found)]
            client.close()
        writer.close()
        assert lacking == []
