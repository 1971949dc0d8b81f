"""All tablet servers come back at other addresses at once: only the masters know the new ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import nyala
from nyala.replica.tools import Severity, gather, judge
from tests.harness.cluster import LocalCluster, local_cluster, wait_until

pytestmark = [pytest.mark.process, pytest.mark.deep]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster() as made:
        made.add_master()
        for _ in range(3):
            made.add_server(start=False)
        for server in made.servers:
            server.start(wait=False)
        for server in made.servers:
            server.wait_ready()
        yield made


def test_cluster_whose_servers_all_moved_at_once_elects_and_heals(cluster: LocalCluster) -> None:
    """CN-34. Goal: if the configs and address books of all servers name addresses where no server, or another one,
    listens, the groups find each other through the masters. Method: rows in a table of two tablets; kill all three
    servers; two come back at new ports, and the third at a port where another one was; every tablet elects, takes a
    row, and has three live replicas."""
    with nyala.connect(cluster.masters[0].address) as connected:
        client = connected.client
        wait_until(lambda: sum(s.alive for s in client.list_servers().servers) == 3, "three servers are alive")
        table = connected.create_table("moved", {"k": "int64", "v": "string"}, key="k", hash_buckets=2)
        assert table.insert([{"k": k, "v": "before"} for k in range(100)]).applied == 100
        before = {s.uuid: s.address for s in cluster.servers}
        for server in cluster.servers:
            server.kill()
        for server, address in zip(cluster.servers, ("", "", cluster.servers[0].address), strict=True):
            server.address = address
            server.start(wait=False)
        for server in cluster.servers:
            server.wait_ready()
        assert all(before[s.uuid] != s.address for s in cluster.servers)
        for tablet in table.handle.tablets:
            cluster.leader(tablet.tablet_id)
        assert table.insert([{"k": k, "v": "after"} for k in range(100, 200)]).applied == 100
        assert table.scan().count() == 200

        def whole() -> bool:
            return not [f for f in judge(gather(client, checksum=True)) if f.severity is Severity.ERROR]

        wait_until(whole, "every tablet has three live replicas with the same rows")
