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


def write_fed(client: Client, begin: int, end: int) -> None:
    handle = client.get_table("two")
    columns = pa.table({"k": range(begin, end), "must": pa.array([1] * (end - begin), pa.int32())})
    with client.session_writer(handle) as writer:
        for batch in wire_batches(handle, columns, RowOp.INSERT):
            writer.write(batch)


def count(client: Client, table: str) -> int:
    return client.count(client.get_table(table), ScanSpec())


def lose(masters: Masters) -> None:
    for master in masters.members:
        master.kill()
        shutil.rmtree(master.root)


@pytest.mark.deep
def test_all_masters_are_lost_and_a_catalog_is_made_of_the_tablet_servers(cluster: LocalCluster) -> None:
    """OP-06. Goal: after the loss of all masters' directories every row is read, and everything goes on: writes, an
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


@pytest.mark.deep
def test_careless_rebuild_is_refused_and_a_lost_tablet_is_replaced_afterwards(cluster: LocalCluster) -> None:
    """OP-06. Goal: a catalog is made of all servers of one cluster or not at all; what is lost for good does not stand
    in the way. Method: a table of two tablets, one on each of two servers, of which one is lost with all masters. The
    command names a server that never joined, a server twice, one server only, and the lost one; then it says what is
    lost, and dies while it writes: no master starts there. After a wipe it succeeds, an empty tablet replaces the lost
    one, and rows are written and read."""
    stranger = cluster.add_server()
    masters = Masters(cluster, 1)
    servers = [cluster.add_server() for _ in range(2)]
    masters.create("one", replicas=1)
    with masters.client() as client:
        handle = client.create_table("two", FED, FED_SPEC, replication_factor=1)
        write_fed(client, 0, 100)
        holds = {t.tablet_id: status for t in handle.tablets if (status := cluster.status(servers[0], t.tablet_id))}
    assert len(holds) == 1
    kept = next(iter(holds.values())).rows
    root = cluster.folder / "rebuilt"
    servers[1].kill()
    shutil.rmtree(servers[1].root)
    lose(masters)

    def problems(servers: list[ServerProcess], *more: object) -> str:
        ended = nyala(*rebuild(root, masters, servers, "--yes", *more))
        assert ended.returncode == 1 and not root.exists(), (ended.stdout, ended.stderr)
        return ended.stdout

    assert "of no cluster yet" in problems([servers[0], stranger], "--lost-server", servers[1].uuid)
    assert "Name it once" in problems([servers[0], servers[0]])
    assert f"--lost-server {servers[1].address}" in problems(servers)
    lost = ("--lost-server", servers[1].address)
    assert "lacks 1 of 2 tablets" in problems(servers, *lost)
    going_on = rebuild(root, masters, servers, *lost, "--accept-missing", "--yes")
    died = nyala(*going_on, crash_point="cmeta.before_flush")
    assert died.returncode not in (0, 1) and root.exists(), died.stderr
    new = masters.add("rebuilt", masters.addresses[0], peers=())
    new.extra = (*new.extra, *HEALS)
    assert "NOT_READY" in new.fails()
    assert nyala("fs", "wipe", root, "--yes").returncode == 0
    made = done(*going_on)
    assert [len(t["missing"]) for t in made["tables"] if t["name"] == "two"] == [1]
    new.start()
    told = ("--masters", masters.addresses[0])
    replace = ("unsafe", "replace", "--table", "two", "--no-kafka", *told)
    plan = wait_until(lambda: (p := done(*replace))["left_alone"] and p, "the living tablet is left alone")
    assert len(plan["tablets"]) == 1

    def replaced() -> bool:
        ended = nyala(*replace, f"--yes-i-lose-data={plan['fingerprint']}")
        assert ended.returncode == 0 or "NOT_READY" in ended.stderr, ended.stderr
        return ended.returncode == 0

    wait_until(replaced, "an empty tablet is in the place of the lost one")
    with masters.client() as client:
        wait_until(lambda: count(client, "two") == kept, "rows are read")
        write_fed(client, 100, 200)
        assert count(client, "two") == kept + 100


def test_two_of_three_masters_are_lost_and_the_third_goes_on_alone(cluster: LocalCluster) -> None:
    """Goal: while one catalog is left, nothing is rebuilt: the recovery page's other procedure works. Method: two of
    three masters are lost; the third is stopped, its config is rewritten to it alone, and it knows and makes tables."""
    masters = Masters(cluster)
    cluster.add_server()
    masters.create("before")
    masters.level()
    third, *lost = masters.members
    for master in lost:
        master.kill()
        shutil.rmtree(master.root)
    third.stop()
    done("cmeta", "rewrite", third.root, "catalog", "--peer", f"{third.uuid}={third.address}", "--yes")
    third.start()
    masters.addresses = [third.address]
    masters.create("after")
    assert masters.tables() == {"before", "after"}
