"""A cluster of real processes with TLS on every connection."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nyala
from nyala.infra.local.ports import Ports
from nyala.replica.tools import Severity, gather, judge
from nyala.replica.types import Code, Refused
from tests.harness.certificates import authority, directory_for
from tests.harness.cluster import PATIENCE_S, LocalCluster, local_cluster, wait_until
from tests.harness.documents import ROOT, blocks

pytestmark = pytest.mark.process

MASTER_UUID = "d" * 32


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster() as made:
        tls = str(directory_for("master", MASTER_UUID))
        made.add_master("--tls", tls, "--execute-decisions", "master", "--policy-ms", "200")
        for letter in "abc":
            made.add_server("--tls", str(directory_for("server", letter * 32)), start=False)
        for server in made.servers:
            server.start(wait=False)
        for server in made.servers:
            server.wait_ready()
        yield made


def test_cluster_with_tls_writes_reads_and_moves_a_replica(cluster: LocalCluster) -> None:
    """Goal: with TLS, a cluster does all that it does without; its processes have the uuids of their certificates, and
    clients without TLS are told what to do. Method: one master and three servers; rows in a table of three replicas;
    a table of one replica moves to another server with its rows; all replicas are well at the end."""
    assert [p.uuid for p in (*cluster.masters, *cluster.servers)] == [letter * 32 for letter in "dabc"]
    master = cluster.masters[0].address
    with pytest.raises(Refused, match=r"takes connections with TLS only.*NYALA_TLS") as refused:
        nyala.connect(master)
    assert refused.value.code is Code.UNAVAILABLE
    with nyala.connect(master, tls=directory_for("client", "anna")) as connected:
        client = connected.client
        wait_until(lambda: sum(s.alive for s in client.list_servers().servers) == 3, "three servers are alive")
        table = connected.create_table("wide", {"k": "int64", "v": "string"}, key="k", hash_buckets=2)
        assert table.insert([{"k": k, "v": "one"} for k in range(100)]).applied == 100
        assert table.insert([{"k": 100, "v": "small"}]).applied == 1
        assert table.scan().count() == 101
        alone = connected.create_table("alone", {"k": "int64"}, key="k", replication_factor=1)
        assert alone.insert([{"k": k} for k in range(5000)]).applied == 5000
        tablet_id = alone.handle.tablets[0].tablet_id

        def holders() -> list[str]:
            client.locator.refresh("alone", client.locator.version("alone"))
            found = client.locator.location(tablet_id)
            return sorted(found.members) if found is not None else []

        [before] = holders()
        target = next(s.uuid for s in cluster.servers if s.uuid != before)
        client.move_replica(tablet_id, before, target)
        wait_until(lambda: holders() == [target], "the replica has moved")
        assert alone.scan().count() == 5000

        def whole() -> bool:
            return not [f for f in judge(gather(client, checksum=True)) if f.severity is Severity.ERROR]

        wait_until(whole, "every tablet has its live replicas with the same rows")


@pytest.mark.deep
def test_running_cluster_takes_the_certificates_of_another_ca(tmp_path: Path) -> None:
    """Goal: the CA is exchanged while processes and a client go on running, and connections of later are made with the
    new one. Method: a master, a server and a client, whose directories get both CAs, then certificates of the new one,
    then the new CA alone; rows are written after each step, a client of the new CA alone gets in, one of the former
    gets no answer, and the server finds the restarted master."""
    held = {name: tmp_path / name for name in ("master", "server", "client")}
    uuids = {"master": MASTER_UUID, "server": "a" * 32, "client": "anna"}
    for role, directory in held.items():
        shutil.copytree(directory_for(role, uuids[role]), directory)
    former, new = ((authority(ca) / "ca.pem").read_bytes() for ca in ("ca", "next"))
    with local_cluster() as made:
        master = made.add_master("--tls", str(held["master"]), "--policy-ms", "200")
        server = made.add_server("--tls", str(held["server"]))
        with nyala.connect(master.address, tls=held["client"]) as connected:
            wait_until(
                lambda: sum(s.alive for s in connected.client.list_servers().servers) == 1, "the server is alive"
            )
            table = connected.create_table("t", {"k": "int64"}, key="k", replication_factor=1)
            for step, (issuer, bundle) in enumerate((("ca", former + new), ("next", former + new), ("next", new))):
                for role, directory in held.items():
                    source = directory_for(role, uuids[role], issuer)
                    for name, data in (
                        ("ca.pem", bundle),
                        *((n, (source / n).read_bytes()) for n in ("certificate.pem", "key.pem")),
                    ):
                        (directory / "next").write_bytes(data)
                        (directory / "next").replace(directory / name)
                for process in (master, server):
                    wait_until(
                        lambda p=process, n=step + 1: p.log_path.read_text().count("new TLS credentials") >= n,  # type: ignore[misc]
                        f"{process} has the credentials of step {step}",
                    )
                assert table.insert([{"k": step}]).applied == 1
            with nyala.connect(master.address, tls=directory_for("client", "bob", "next")) as other:
                assert other.table("t").scan().count() == 3
            with pytest.raises(Refused):
                nyala.connect(master.address, tls=directory_for("client", "bob"))
            master.kill()
            master.start()
            wait_until(lambda: sum(s.alive for s in connected.client.list_servers().servers) == 1, "it is heard again")
            assert table.insert([{"k": 3}]).applied == 1 and table.scan().count() == 4


SHOWN = "nyala security init --cluster|nyala security issue --name|nyala security list|--root --listen --masters --tls"


def test_commands_of_the_security_page_give_a_cluster_with_tls(tmp_path: Path) -> None:
    """Goal: a reader who types what the page shows has a cluster with TLS. Method: the page's blocks in one shell, at
    other ports; the last command, `nyala server list`, shows the server; without a certificate it is refused."""
    shown = [block.text for block in blocks(ROOT / "docs/operate/security.md") if block.kind == "shell"]
    made, started, used = shown
    assert all(word in made + started + used for word in SHOWN.replace("|", " ").split())
    last = used.rstrip().rpartition("\n")[2]
    # The processes have just been started: the list is repeated until the server is in it.
    waiting = f"until NYALA_TLS=anna {last} | grep -q alive; do :; done\n"
    script = f"trap 'kill $(jobs -p); wait' EXIT\nset -e\n{made}{started}{waiting}{used}unset NYALA_TLS\n! {last}\n"
    with Ports() as ports:
        for port in ("7050", "7051"):
            script = script.replace(f"127.0.0.1:{port}", ports.free_address())
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        ran = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-6000:]
    assert "takes connections with TLS only" in ran.stderr and "anna" in ran.stdout
