"""From one master to three: the steps of an operator, with one outage, and what is refused on the way."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import RealDisk
from nyala.replica.master import CATALOG_ID
from nyala.replica.server.heartbeats.other_masters import KNOWN_MASTERS
from nyala.replica.types import RaftConfig
from tests.harness.cluster import ServerProcess, local_cluster, wait_until
from tests.harness.three_masters import Masters, done, nyala, refused

pytestmark = pytest.mark.process


class Migration:
    """A single master with a table on one server; directories for two more, formatted."""

    def __init__(self, masters: Masters) -> None:
        self.masters = masters
        self.cluster = masters.cluster
        self.first = masters.members[0]
        self.server = self.cluster.add_server()
        masters.create("old")
        self.new = [masters.format(f"n{n}") for n in (1, 2)]
        self.at = [self.first.address, *(self.cluster.ports.free_address() for _ in self.new)]
        self.uuids = [done("fs", "uuid", root)["uuid"] for root in (self.first.root, *(root for root, _ in self.new))]

    @property
    def peers(self) -> list[str]:
        return [f"--peer={uuid}={address}" for uuid, address in zip(self.uuids, self.at, strict=True)]

    def rewrite(self, *options: str) -> Any:
        return done("cmeta", "rewrite", self.first.root, "catalog", *self.peers, "--yes", *options)

    def three(self) -> list[ServerProcess]:
        """The processes that they are afterwards, the first one over its old directory."""
        self.masters.addresses = self.at
        names = [self.first.name, *(root.name for root, _ in self.new)]
        self.cluster.masters.clear()
        return [self.masters.add(name, address) for name, address in zip(names, self.at, strict=True)]

    def config(self, root: Path) -> tuple[RaftConfig, int]:
        """What the catalog's metadata say there, of a master that does not run: config and term."""
        meta = ConsensusMeta.load(RealDisk(root), CATALOG_ID)
        return meta.committed_config, meta.term


@pytest.fixture
def migration() -> Iterator[Migration]:
    with local_cluster() as cluster:
        yield Migration(Masters(cluster, 1))


def test_single_master_becomes_three_with_every_table(migration: Migration) -> None:
    """Goal: MF-26, MF-28, MF-31, MF-32: stopped, told of the others, and started, the first waits for them; with
    them it elects, and everything that was in the catalog is. Method: the steps in order; the server runs on, and hears
    of the new masters from the first one; that one is killed: tables are made and seen by the two new ones, also when
    the server starts again and is told of all three, of whom one is dead."""
    migration.first.stop()
    assert sorted(m["uuid"] for m in migration.rewrite()["after"]["committed_config"]["members"]) == sorted(
        migration.uuids
    )
    first, *others = migration.three()
    first.start()
    status = migration.masters.status(first).replica
    assert status.role != "LEADER" and len(status.committed_config.members) == 3
    with ThreadPoolExecutor(2) as pool:
        copied = list(
            pool.map(lambda n: done("master", "copy-from", n[0], first.address, "--allow-leaderless"), migration.new)
        )
    assert [c["master"] for c in copied] == migration.uuids[1:]
    for master in others:
        master.start()
    migration.masters.level()
    assert migration.masters.tables() == {"old"}
    for address in migration.at[1:]:
        heard = f"hears of master {address}"
        wait_until(lambda heard=heard: heard in migration.server.log_path.read_text(), heard)  # type: ignore[misc]
    first.kill()
    migration.masters.create("new")
    migration.server.stop()
    (migration.server.root / KNOWN_MASTERS).unlink()  # it goes by its options alone
    migration.server.extra = ("--masters", ",".join(migration.at))
    migration.server.start()
    migration.masters.create("newest")
    with migration.masters.client() as client:
        running = lambda: all(t.running for t in client.tablet_infos("newest"))  # noqa: E731
        wait_until(running, "the server that started again has made its tablet")
    assert migration.masters.tables() == {"old", "new", "newest"}


@pytest.mark.deep
def test_copies_of_a_leaderless_first_master_are_equal_and_made_at_once(migration: Migration) -> None:
    """Goal: MF-29, MF-30: nobody can lead yet, and both new masters are copied to at the same time. Method: without the
    operator's leave it is refused; with it, both copies at once; the directories hold the same config, log end and
    catalog, and no vote of the source."""
    migration.first.stop()
    migration.rewrite()
    first = migration.three()[0].start()
    (one, _), (two, _) = migration.new
    assert "NOT_LEADER" in refused("master", "copy-from", one, first.address)
    with ThreadPoolExecutor(2) as pool:
        ended = list(
            pool.map(lambda root: nyala("master", "copy-from", root, first.address, "--allow-leaderless"), (one, two))
        )
    assert [e.returncode for e in ended] == [0, 0], ended
    first.stop()
    dumps = [done("local-replica", "dump", root, "catalog") for root in (first.root, one, two)]
    assert len({str(d["last_logged"]) for d in dumps}) == 1, dumps
    assert len({str(migration.config(root)) for root in (first.root, one, two)}) == 1
    catalogs = [migration.masters.catalog(root) for root in (first.root, one, two)]
    assert catalogs[0] == catalogs[1] == catalogs[2] and catalogs[0]
    assert all(ConsensusMeta.load(RealDisk(root), CATALOG_ID).voted_for is None for root in (one, two))


def test_config_rewrite_that_dies_is_finished_and_never_falls_back(migration: Migration) -> None:
    """Goal: MF-27: the new config holds whatever happens. Method: kill the rewrite before and after each of its durable
    steps, start the master each time as it is; repeat the rewrite until it is done; entries of the old log do not bring
    the old config back, the term does not fall, and the earlier file is kept."""
    migration.first.stop()
    before, term = migration.config(migration.first.root)
    for point in ("recover.logged", "cmeta.before_flush", "cmeta.after_flush"):
        died = nyala("cmeta", "rewrite", migration.first.root, "catalog", *migration.peers, "--yes", crash_point=point)
        assert died.returncode not in (0, 1), (point, died.stderr)
    finished = migration.rewrite()
    config, later = migration.config(migration.first.root)
    assert {m.uuid for m in config.members} == set(migration.uuids) and later > term and config != before
    first = migration.three()[0].start()
    wait_until(lambda: migration.masters.status(first).replica.phase == "CONFIGURING", "it has replayed its log")
    assert len(migration.masters.status(first).replica.committed_config.members) == 3
    first.stop()
    assert migration.config(first.root)[0].members == config.members
    assert (first.root / "undo").is_dir(), finished


@pytest.mark.deep
def test_migration_is_refused_what_would_end_badly(migration: Migration) -> None:
    """Goal: MF-21, MF-22, MF-24, MF-25: a careless step changes nothing. Method: rewrite a master that runs, with an
    even number, a name that does not resolve, without itself; format what is formatted; ask for uuids while it runs;
    start the first master without the new addresses, and with them before the rewrite."""
    first, root = migration.first, migration.first.root
    assert "works on this directory" in refused("cmeta", "rewrite", root, "catalog", *migration.peers, "--yes")
    told = done("fs", "uuid", root)
    assert (told["uuid"], told["kind"]) == (first.uuid, "MASTER") and told["cluster_id"]
    assert "has an identity already" in refused("fs", "format", migration.new[0][0], "--kind", "master")
    first.stop()
    before = migration.config(root)
    assert "one, three or five" in refused("cmeta", "rewrite", root, "catalog", *migration.peers[:2], "--yes")
    astray = f"--peer={migration.uuids[2]}=nobody.nyala.invalid:7051"
    for peers, said in ((migration.peers[1:], "leaves out"), ([*migration.peers[:2], astray], "does not resolve")):
        ended = nyala("cmeta", "rewrite", root, "catalog", *peers, "--yes")
        assert ended.returncode == 2 and said in " ".join(ended.stderr.split()), ended.stderr
    assert migration.config(root) == before
    migration.rewrite()
    assert "agreed" in first.fails()
    migration.three()[0].start()
