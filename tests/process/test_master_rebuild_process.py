"""All masters are lost: a new one begins with a catalog that is made of what the tablet servers hold."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pyarrow as pa
import pytest

from nyala.replica.client import Client, ScanSpec, wire_batches
from nyala.replica.rows import Column, ColumnType, PartitionSpec, RowOp, TableSchema
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.source_load import SourceLoad
from tests.harness.three_masters import Masters, done, nyala, refused

pytestmark = pytest.mark.process
HEALS = ("--server-dead-ms=4000", "--rereplicate-after-ms=5000", "--execute-decisions=master")
COLUMNS = (
    Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
    Column(id=2, name="must", type=ColumnType.INT32, nullable=False),
)
FED, FED_SPEC = TableSchema(1, COLUMNS, ("k",)), PartitionSpec(("k",), 2)


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster() as made:
        yield made


def rebuild(root: object, masters: Masters, servers: list[ServerProcess], *more: object) -> tuple[object, ...]:
    """The command, as an operator types it."""
    return (
        *("master", "unsafe-rebuild", root, "--servers", ",".join(s.address for s in servers)),
        *("--address", masters.addresses[0], "--masters", ",".join(masters.addresses), *more),
    )


def insert(client: Client, table: str, begin: int, end: int) -> None:
    handle = client.get_table(table)
    with client.session_writer(handle) as writer:
        for batch in wire_batches(handle, pa.table({"id": range(begin, end)}), RowOp.INSERT):
            writer.write(batch)


def count(client: Client, table: str) -> int:
    return client.count(client.get_table(table), ScanSpec())


def lose(masters: Masters) -> None:
    for master in masters.members:
        master.kill()
        shutil.rmtree(master.root)


def test_all_masters_are_lost_and_a_catalog_is_made_of_the_tablet_servers(cluster: LocalCluster) -> None:
    """MF-03. Goal: after the loss of all masters' directories every row is read, and everything goes on: writes, an
    ingest exactly once, creating and dropping tables, the replacement of a lost replica. Method: three masters, three
    servers, rows in one table, an ingest into another that never stops; all masters are killed and their directories
    removed; what a careless operator may type is refused and writes nothing; then the command, and a start. A fourth
    server comes, and one that held replicas is killed for good."""
    masters = Masters(cluster)
    servers = [cluster.add_server() for _ in range(3)]
    masters.create("old", replicas=3)
    with masters.client() as client:
        fed = client.create_table("fed", FED, FED_SPEC, replication_factor=3)
        before = {t.name: (t.table_id, t.tablets) for t in map(client.get_table, ("old", "fed"))}
        insert(client, "old", 0, 500)
    with SourceLoad(masters.addresses[0], fed) as ingest:
        ingest.progress()
        root = cluster.folder / "rebuilt"
        assert "ILLEGAL_STATE" in refused(*rebuild(root, masters, servers, "--yes"))  # a master lives
        lose(masters)

        ended = nyala(*rebuild(root, masters, servers[:2], "--yes"))
        assert ended.returncode == 1 and servers[2].uuid in ended.stdout and "--lost-server" in ended.stdout
        occupied = cluster.folder / "ts9"
        occupied.mkdir()
        (occupied / "theirs").write_text("x")
        assert "ALREADY_EXISTS" in refused(*rebuild(occupied, masters, servers, "--yes"))
        planned = done(*rebuild(root, masters, servers, "--dry-run"))
        assert not planned["written"] and planned["problems"] == []
        assert not root.exists() and [p.name for p in occupied.iterdir()] == ["theirs"]

        made = done(*rebuild(root, masters, servers, "--yes"))
        assert {t["name"]: t["tablets"] for t in made["tables"]} == {"old": 1, "fed": 2}
        assert made["sources"][0]["generation"] == 1 and made["sources"][0]["done"] > 0
        assert "ALREADY_EXISTS" in refused(*rebuild(root, masters, servers, "--yes"))
        new = masters.add("rebuilt", masters.addresses[0], peers=())
        new.extra = (*new.extra, *HEALS)
        new.start()
        ingest.progress()
        masters.addresses = masters.addresses[:1]
        with masters.client() as client:
            assert client.catalog_term() > 1 << 32
            assert {n: (client.get_table(n).table_id, client.get_table(n).tablets) for n in before} == before
            assert count(client, "old") == 500
            insert(client, "old", 500, 600)
            assert count(client, "old") == 600
            masters.create("young")
            insert(client, "young", 0, 10)
            client.drop_table("young")
            assert {t.name for t in client.list_tables()} == {"old", "fed"}

            checked = done("cluster", "check", "--masters", masters.addresses[0], "--checksum", "--wait", 60)
            assert [f for f in checked["findings"] if f["severity"] == "ERROR"] == []
            fourth = cluster.add_server()
            servers[0].kill()

            def replaced() -> bool:
                infos = [i for name in before for i in client.tablet_infos(name)]
                voters = [{m.uuid for m in i.config.members if m.votes} for i in infos]
                return all(fourth.uuid in v and servers[0].uuid not in v and len(v) == 3 for v in voters)

            wait_until(replaced, "the lost server's replicas are replaced")
            ingest.progress()
            assert count(client, "old") == 600
            ingest.finish(client)
