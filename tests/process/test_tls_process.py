"""A cluster of real processes with TLS on every connection."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import nyala
from nyala.infra.cli.app import app
from nyala.infra.local.ports import Ports
from nyala.replica.tools import Severity, gather, judge
from nyala.replica.tools.server_evidence import read_tablets
from nyala.replica.types import Address, Code, DataState, Refused
from tests.harness.certificates import authority, credentials_for, directory_for, earlier_client, speaking_as
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
    clients without TLS are told what to do. A client reads and writes; what moves replicas needs an operator, or a
    certificate of an earlier build. Method: one master, which carries decisions out itself, and three servers; rows in
    a table of three replicas; a table of one replica moves to another server with its rows, and back; all replicas are
    well at the end."""
    assert [p.uuid for p in (*cluster.masters, *cluster.servers)] == [letter * 32 for letter in "dabc"]
    master = cluster.masters[0].address
    with pytest.raises(Refused, match=r"takes connections with TLS only.*NYALA_TLS") as refused:
        nyala.connect(master)
    assert refused.value.code is Code.UNAVAILABLE
    earlier = earlier_client("carl")
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
        with pytest.raises(Refused, match=r"client anna.*allowed=operator") as refused:
            client.move_replica(tablet_id, before, target)
        assert refused.value.code is Code.NOT_AUTHORIZED and "nothing was applied" in str(refused.value)
        for mover, places in ((directory_for("operator", "ops"), (before, target)), (earlier, (target, before))):
            with nyala.connect(master, tls=mover) as other:
                other.client.move_replica(tablet_id, *places)
                wait_until(lambda to=places[1]: holders() == [to], "the replica has moved")  # type: ignore[misc]
                wait_until(lambda: not client.masters_status().moves_active, "the masters know it")
        assert alone.scan().count() == 5000

        def whole() -> bool:
            return not [f for f in judge(gather(client, checksum=True)) if f.severity is Severity.ERROR]

        wait_until(whole, "every tablet has its live replicas with the same rows")


def test_operators_calls_reach_servers_with_tls(cluster: LocalCluster) -> None:
    """Goal: what operators' commands send to servers and masters works with an operator's certificate, and a client's
    brings none of it. Method: each of these calls of the client, and a new master's look at the servers; with a
    client's certificate, which is refused for every one, and with an operator's."""
    servers = {server.uuid: Address.parse(server.address) for server in cluster.servers}
    tls = {role: directory_for(role, "ops") for role in ("client", "operator")}
    with (
        nyala.connect(cluster.masters[0].address, tls=tls["client"]) as ordinary,
        nyala.connect(cluster.masters[0].address, tls=tls["operator"]) as operator,
    ):
        client = operator.client
        wait_until(lambda: sum(s.alive for s in client.list_servers().servers) == 3, "three servers are alive")
        handle = ordinary.create_table("t", {"k": "int64"}, key="k", replication_factor=1).handle
        tablet_id = handle.tablets[0].tablet_id
        listed = {server.uuid: server for server in client.list_servers().servers}
        [info] = client.tablet_infos("t")
        [holder] = [member.uuid for member in info.config.members]
        here, there = listed[holder], next(one for uuid, one in listed.items() if uuid != holder)
        wait_until(lambda: [r.role for r in client.list_tablets(here, [tablet_id])] == ["LEADER"], "the tablet is led")
        calls: tuple[tuple[str, *tuple[Any, ...]], ...] = (
            ("quiesce_server", there, True),
            ("quiesce_server", there, False),
            ("flush", here, tablet_id),
            ("list_quarantine", here),
            ("purge_quarantine", here, tablet_id),
            ("list_copies", here),
            ("transfer_leadership", "t", tablet_id, holder),
            ("maintain_server", there.uuid, 60),
            ("maintain_server", there.uuid, 0),
            ("start_copy", there, here, client.list_tablets(here, [tablet_id])[0], DataState.DOES_NOT_EXIST),
        )
        for method, *arguments in calls:
            with pytest.raises(Refused) as refused:
                getattr(ordinary.client, method)(*arguments)
            assert refused.value.code is Code.NOT_AUTHORIZED, (method, refused.value)
            getattr(client, method)(*arguments)
    for role in tls:
        with speaking_as(credentials_for(role, "ops")):
            found = read_tablets(servers, patience_s=0.0)
        assert (tablet_id in found.tablets) is (role == "operator"), found
        assert role == "operator" or "CopyService.BeginCopy" in found.unread[tablet_id]


def test_stopped_directory_is_filled_with_its_own_certificate_alone(cluster: LocalCluster) -> None:
    """Goal: files of a replica go to the server that the copy is for, and to no operator or client. Method: `nyala
    local-replica copy-from` into a stopped server's directory, with a client's certificate, an operator's, another
    server's and its own; only the last brings the replica."""
    with nyala.connect(cluster.masters[0].address, tls=directory_for("client", "anna")) as connected:
        wait_until(lambda: sum(s.alive for s in connected.client.list_servers().servers) == 3, "three are alive")
        table = connected.create_table("t", {"k": "int64"}, key="k", replication_factor=1)
        assert table.insert([{"k": k} for k in range(100)]).applied == 100
        tablet_id = table.handle.tablets[0].tablet_id
        [info] = connected.client.tablet_infos("t")
    [holder] = [member.uuid for member in info.config.members]
    source = next(server for server in cluster.servers if server.uuid == holder)
    stopped = next(server for server in cluster.servers if server.uuid != holder)
    stopped.stop()
    line = ["local-replica", "copy-from", str(stopped.root), tablet_id, source.address, "--yes"]
    others = (("client", "anna"), ("operator", "ops"), ("server", "f" * 32), ("server", stopped.uuid))
    for number, (role, name) in enumerate(others, 1):
        with speaking_as(credentials_for(role, name)):
            ran = CliRunner().invoke(app, line)
        if number < len(others):
            refused = str(ran.exception)
            code = "INVALID_NAME" if role == "server" else "NOT_AUTHORIZED"
            assert code in refused and "nothing was applied" in refused, (role, ran.output, refused)
        else:
            assert ran.exit_code == 0 and f"copied {tablet_id}" in ran.output, (ran.output, ran.exception)


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
    """Goal: a reader who types what the page shows has a cluster with TLS, and a client and an operator. Method: the
    page's blocks in one shell, at other ports; the last command, `nyala server list`, shows the server; without a
    certificate it is refused, and so is a maintenance that anna begins, and not that of ops."""
    shown = [block.text for block in blocks(ROOT / "docs/operate/security.md") if block.kind == "shell"]
    made, started, used = shown
    assert all(word in made + started + used for word in SHOWN.replace("|", " ").split())
    last = used.rstrip().rpartition("\n")[2]
    # The processes have just been started: the list is repeated until the server is in it.
    waiting = f"until NYALA_TLS=anna {last} | grep -q alive; do :; done\n"
    work = last.replace("server list", "server enter-maintenance 127.0.0.1:7050")
    rights = f"! {work}\nexport NYALA_TLS=ops\n{work}\nunset NYALA_TLS\n! {last}\n"
    script = f"trap 'kill $(jobs -p); wait' EXIT\nset -e\n{made}{started}{waiting}{used}{rights}"
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
    assert "client anna" in ran.stderr and "MasterService.MaintainServer" in ran.stderr
